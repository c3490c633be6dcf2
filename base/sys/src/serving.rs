//! The processes that serve an address of this machine: the owners of its sockets.
//!
//! A socket has an inode, which the kernel names beside its address (sock_diag, or else
//! /proc/net), and /proc/PID/fd beside its owner. Other users' descriptors can be looked at by
//! root alone.

use crate::census::{self, Identity};
use crate::sock_diag::{self, SockDiag, Tcp, Wanted};
use crate::{namespaces, other_end};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The address that a server is asked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port, at whatever address of this host.
    Port(u16),
    /// A socket of the file system.
    Unix(String),
}

/// States of a TCP socket in /proc/net/tcp (include/net/tcp_states.h).
const ESTABLISHED: &str = "01";
const LISTEN: &str = "0A";

/// The flag __SO_ACCEPTCON in /proc/net/unix.
const ACCEPTS: &str = "00010000";

/// The processes that hold the accepted connections of an address, with those that listen
/// there and started them: a session of PostgreSQL may end before anybody looks again. Where
/// there are no connections, those that listen. Empty where nobody does, or where it cannot be
/// seen.
///
/// Where nobody listens in our network namespace, or only who accepts for others, as [`elsewhere`].
pub fn serving(address: &Address) -> Vec<u32> {
    let listening = inodes(address, Kind::Listening);
    let here = with_listeners(&inodes(address, Kind::Connected), &listening);
    let is_elsewhere = match here.is_empty() {
        true => listening.is_empty(),
        false => here.iter().all(|pid| other_end::forwards(*pid)),
    };
    match address {
        Address::Port(port) if is_elsewhere => {
            let found = elsewhere(*port);
            if found.is_empty() { here } else { found }
        }
        _ => here,
    }
}

/// The processes that serve a port in other network namespaces of this machine, as far as those
/// may be entered: the other ends of our own connections to it.
pub fn elsewhere(port: u16) -> Vec<u32> {
    let wanted = Wanted {
        other_port: port,
        carried: true,
        ..Wanted::default()
    };
    let Some(home) = namespaces::network_of(std::process::id()) else {
        return Vec::new();
    };
    let ours = SockDiag::open().and_then(|mut diag| diag.tcp(wanted));
    let found = other_end::follow(home, &ours.unwrap_or_default());
    found.map_or(Vec::new(), |found| found.pids)
}

/// Whether anybody listens at a port in another network namespace of this machine.
pub fn is_served_elsewhere(port: u16) -> bool {
    let wanted = Wanted {
        own_port: port,
        listeners: true,
        ..Wanted::default()
    };
    let (networks, _) = namespaces::networks();
    networks.iter().skip(1).any(|network| {
        let all = SockDiag::open_in(network).and_then(|mut diag| diag.tcp(wanted));
        let mut all = all.unwrap_or_default().into_iter();
        all.any(|socket| socket.state == sock_diag::LISTEN)
    })
}

/// Who holds the accepted connections, with those listeners that started them; where nobody
/// holds any, all listeners.
pub(crate) fn with_listeners(connected: &BTreeSet<u64>, listening: &BTreeSet<u64>) -> Vec<u32> {
    let mut found = owners(connected);
    // A session that has ended since says nothing about who started it.
    found.retain(|pid| Identity::of(*pid).is_some());
    let listening = owners(listening).into_iter();
    let started = |pid: &u32| {
        found
            .iter()
            .any(|one| one != pid && census::descends_from(*one, *pid))
    };
    let parents: Vec<u32> = match found.is_empty() {
        true => listening.collect(),
        false => listening
            .filter(|pid| *pid > 1 && !found.contains(pid) && started(pid))
            .collect(),
    };
    found.extend(parents);
    found
}

/// Whether anybody listens at an address, visible or not.
pub fn is_served(address: &Address) -> bool {
    !inodes(address, Kind::Listening).is_empty()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Connected,
    Listening,
}

fn inodes(address: &Address, kind: Kind) -> BTreeSet<u64> {
    let read = |name: &str| fs::read_to_string(Path::new("/proc/net").join(name));
    match address {
        // /proc/net/tcp has a line for each socket in TIME_WAIT too: 14,000 of them, which
        // one second of `ab` leaves behind, took 0.2 s of CPU time to read.
        Address::Port(port) => asked(*port, kind).unwrap_or_else(|_| {
            let texts = ["tcp", "tcp6"].into_iter();
            let texts = texts.filter_map(|name| read(name).ok());
            texts.flat_map(|text| of_tcp(&text, *port, kind)).collect()
        }),
        Address::Unix(path) => {
            let text = read("unix").unwrap_or_default();
            of_unix(&text, path, kind).collect()
        }
    }
}

/// Sockets whose own port it is (0: any), by the kernel's answer.
fn asked(port: u16, kind: Kind) -> io::Result<BTreeSet<u64>> {
    let wanted = Wanted {
        own_port: port,
        listeners: kind == Kind::Listening,
        ..Wanted::default()
    };
    let state = match kind {
        Kind::Connected => sock_diag::ESTABLISHED,
        Kind::Listening => sock_diag::LISTEN,
    };
    let sockets = SockDiag::open()?.tcp(wanted)?.into_iter();
    let of_it = sockets.filter(|socket| socket.state == state && socket.inode != 0);
    Ok(of_it.map(|socket| socket.inode.into()).collect())
}

/// Sockets whose own port it is: of a connection the server's end.
fn of_tcp(text: &str, port: u16, kind: Kind) -> Vec<u64> {
    let state = match kind {
        Kind::Connected => ESTABLISHED,
        Kind::Listening => LISTEN,
    };
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let own = fields.get(1)?.rsplit_once(':')?.1;
        let is_it = u16::from_str_radix(own, 16) == Ok(port) && *fields.get(3)? == state;
        let inode = fields.get(9)?.parse().ok()?;
        (is_it && inode != 0).then_some(inode)
    };
    text.lines().skip(1).filter_map(of_line).collect()
}

/// Connected ends of a server carry its path as the listener does; only the listener
/// accepts.
fn of_unix<'a>(text: &'a str, path: &'a str, kind: Kind) -> impl Iterator<Item = u64> + 'a {
    text.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = *fields.get(3)? == ACCEPTS;
        let is_it = *fields.get(7)? == path && listens == (kind == Kind::Listening);
        is_it.then(|| fields.get(6)?.parse().ok()).flatten()
    })
}

pub(crate) fn owners(inodes: &BTreeSet<u64>) -> Vec<u32> {
    if inodes.is_empty() {
        return Vec::new();
    }
    let mut pids = census::processes();
    pids.retain(|pid| sockets(*pid).any(|inode| inodes.contains(&inode)));
    pids
}

/// The inodes of the sockets that a process has open; empty where it may not be looked at.
pub fn sockets_of(pid: u32) -> BTreeSet<u64> {
    sockets(pid).collect()
}

fn sockets(pid: u32) -> impl Iterator<Item = u64> {
    open_sockets(pid).map(|(_, inode)| inode)
}

fn open_sockets(pid: u32) -> impl Iterator<Item = (PathBuf, u64)> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
    let entries = descriptors.into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let path = entry.path();
        let link = fs::read_link(&path).ok()?;
        let number = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        Some((path, number.parse().ok()?))
    })
}

/// Whether a process accepts connections, over TCP or a Unix socket of its network namespace.
pub fn accepts(pid: u32) -> bool {
    let own = sockets_of(pid);
    let read = |name| File::open(format!("/proc/{pid}/net/{name}")).ok();
    // Of TCP, listeners stand first: behind them there may be thousands in TIME_WAIT.
    let listening = |name, state: usize, accepts: &'static str, inode: usize| {
        let lines = read(name).map(|file| BufReader::new(file).lines().skip(1));
        let lines = lines.into_iter().flatten().map_while(Result::ok);
        lines.map(move |line| {
            let field = |at| line.split_whitespace().nth(at);
            (field(state) == Some(accepts)).then(|| field(inode)?.parse().ok())
        })
    };
    let is_own = |inode: Option<u64>| inode.is_some_and(|inode| own.contains(&inode));
    let of_tcp = |name| {
        listening(name, 3, LISTEN, 9)
            .map_while(|line| line)
            .any(is_own)
    };
    !own.is_empty()
        && (["tcp", "tcp6"].into_iter().any(of_tcp)
            || listening("unix", 3, ACCEPTS, 6).flatten().any(is_own))
}

/// The protocols of the sockets that a process has open, by inode, as the kernel names them
/// (`TCPv6`), up to so many sockets.
pub fn protocols_of(pid: u32) -> BTreeMap<u64, String> {
    const LOOKED_AT: usize = 256;
    let each = open_sockets(pid)
        .take(LOOKED_AT)
        .filter_map(|(path, inode)| {
            let mut name = [0; 32];
            let length = rustix::fs::getxattr(&path, "system.sockprotoname", &mut name).ok()?;
            let name = String::from_utf8_lossy(name.get(..length)?);
            Some((inode, name.trim_end_matches('\0').to_owned()))
        });
    each.collect()
}

/// Whether a process's sockets may not be looked at.
pub fn is_hidden(pid: u32) -> bool {
    let read = fs::read_dir(format!("/proc/{pid}/fd"));
    read.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Whether any of these sockets is a Unix socket.
pub fn has_unix(inodes: &BTreeSet<u64>) -> bool {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut lines = text.lines().skip(1);
    lines.any(|line| {
        let inode = line.split_whitespace().nth(6);
        inode.is_some_and(|inode| inode.parse().is_ok_and(|inode| inodes.contains(&inode)))
    })
}

/// The TCP connections that these processes have open; those that they have inherited
/// from `parent` are not theirs. None where the kernel does not name sockets, or there is
/// none.
pub fn connections_of(pids: &[u32], parent: u32) -> Option<u64> {
    let open = asked(0, Kind::Connected).ok()?;
    let inherited = sockets_of(parent);
    let own = |pid: &u32| {
        let sockets = sockets_of(*pid).into_iter();
        let own = sockets.filter(|inode| open.contains(inode) && !inherited.contains(inode));
        own.count() as u64
    };
    let all: u64 = pids.iter().map(own).sum();
    (all > 0).then_some(all)
}

/// Their own ports of the TCP connections that these processes have open.
pub fn ports_of(pids: &[u32]) -> BTreeSet<u16> {
    let sockets: BTreeSet<u64> = pids.iter().flat_map(|pid| sockets(*pid)).collect();
    let all = SockDiag::open().and_then(|mut diag| diag.tcp(Wanted::default()));
    let all = all.unwrap_or_default().into_iter();
    all.filter(|socket| sockets.contains(&u64::from(socket.inode)))
        .map(|socket| socket.own_port)
        .collect()
}

/// The process of this machine whose connection begins at this address; None where that cannot
/// be seen, or several have it.
pub fn process_at(address: SocketAddr) -> Option<u32> {
    let wanted = Wanted {
        own_port: address.port(),
        ..Wanted::default()
    };
    let sockets = SockDiag::open()
        .and_then(|mut diag| diag.tcp(wanted))
        .ok()?;
    let is_it = |socket: &&Tcp| socket.addresses()[0] == address && socket.inode != 0;
    let sockets = sockets.iter();
    let inodes = sockets.filter(is_it).map(|socket| socket.inode.into());
    match owners(&inodes.collect())[..] {
        [pid] => Some(pid),
        _ => None,
    }
}

/// How many connections at this port each of these processes has open. Of those with none only such
/// are told of as accept there and have not started another that does. Empty where the kernel does
/// not name sockets.
pub fn shares_of(pids: &[u32], port: u16) -> Vec<u64> {
    let [open, listening] = [Kind::Connected, Kind::Listening].map(|kind| asked(port, kind));
    shares_among(
        pids,
        &open.unwrap_or_default(),
        &listening.unwrap_or_default(),
    )
}

/// As [`shares_of`], of these sockets.
pub fn shares_among(pids: &[u32], open: &BTreeSet<u64>, listening: &BTreeSet<u64>) -> Vec<u64> {
    let each = pids.iter().map(|pid| (*pid, sockets_of(*pid)));
    let each = each.map(|(pid, own)| {
        let accepts = own.intersection(listening).count() > 0;
        (pid, accepts, own.intersection(open).count() as u64)
    });
    let each: Vec<(u32, bool, u64)> = each.collect();
    let serves = |pid: u32| {
        let mut others = each
            .iter()
            .filter(|(other, accepts, _)| *accepts && *other != pid);
        !others.any(|(other, ..)| census::descends_from(*other, pid))
    };
    let shares = each.iter();
    let shares = shares.filter(|(pid, accepts, own)| *own > 0 || (*accepts && serves(*pid)));
    shares.map(|(.., own)| *own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn of_a_connection_only_the_server_s_end_counts() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1\n\
            1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 12 1\n\
            2: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 13 1\n\
            3: 0100007F:1F90 0100007F:9C41 06 00000000:00000000 03:00000000 00000000     0        0 0 3\n";
        assert_eq!(of_tcp(text, 8080, Kind::Listening), [11]);
        assert_eq!(of_tcp(text, 8080, Kind::Connected), [12]);
    }

    mod live_tests {
        use super::*;
        use std::process::{Command, Stdio};
        use std::time::Duration;

        #[test]
        fn whoever_listens_or_has_accepted_is_found_by_its_port() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = Address::Port(listener.local_addr().unwrap().port());
            assert!(is_served(&address));
            // Children that other tests fork hold it too, for a moment.
            let is_ours = || serving(&address).contains(&std::process::id());
            assert!(is_ours());
            assert!(accepts(std::process::id()) && !accepts(u32::MAX));
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let accepted = listener.accept().unwrap();
            // Both ends and the listener, at least: other tests have sockets too.
            assert!(sockets_of(std::process::id()).len() >= 3);
            let own = [std::process::id()];
            assert!(connections_of(&own, 0) >= Some(2));
            assert_eq!(connections_of(&own, own[0]), None);
            // The server's end alone; a process without one has no share.
            let port = listener.local_addr().unwrap().port();
            assert_eq!(shares_of(&[own[0], u32::MAX], port), [1]);
            drop(listener);
            let is_closed = |_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                !is_served(&address)
            };
            assert!((0..12_000).any(is_closed));
            assert!(is_ours());
            drop((client, accepted));
        }

        /// Such a server once was "other programs (redis-server 68 %)".
        #[test]
        fn a_server_in_another_network_namespace_is_found_by_our_connection() {
            const SERVER: &str = "until ip addr add 10.213.77.2/30 dev jt1; do sleep 0.1; done; \
                ip link set jt1 up; exec python3 -c 'import socket, time; \
                s = socket.create_server((\"10.213.77.2\", 7402)); c = s.accept(); time.sleep(600)'";
            let ip = |words: &str| {
                let ran = Command::new("ip").args(words.split(' ')).status();
                assert!(ran.unwrap().success(), "ip {words}");
            };
            let mut command = Command::new("sh");
            let command = command.args(["-c", SERVER]).stderr(Stdio::null());
            let mut host = crate::namespaces::spawn_as_host(command, 0).unwrap();
            let found = std::panic::catch_unwind(|| {
                ip(&format!(
                    "link add jt0 type veth peer name jt1 netns {}",
                    host.id()
                ));
                ip("addr add 10.213.77.1/30 dev jt0");
                ip("link set jt0 up");
                let open = |_| {
                    std::thread::sleep(Duration::from_millis(20));
                    let at = ([10, 213, 77, 2], 7402).into();
                    TcpStream::connect_timeout(&at, Duration::from_secs(1)).ok()
                };
                let _connection = (0..6_000).find_map(open).unwrap();
                // The kernel accepts before the program does.
                let is_found = |_| {
                    std::thread::sleep(Duration::from_millis(20));
                    is_served_elsewhere(7402) && elsewhere(7402) == [host.id()]
                };
                (0..6_000).any(is_found)
            });
            // The devices end with the namespace.
            host.kill().unwrap();
            host.wait().unwrap();
            assert!(found.unwrap());
        }

        /// PostgreSQL: only a session was found, which was gone when its CPU time was asked for.
        #[test]
        fn the_listener_that_started_the_owner_of_a_connection_serves_too() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = Address::Port(listener.local_addr().unwrap().port());
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            let mut session = Command::new("sleep")
                .arg("100")
                .stdin(std::os::fd::OwnedFd::from(accepted))
                .spawn()
                .unwrap();
            let own = std::process::id();
            let both = |_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                let found = serving(&address);
                found.contains(&own) && found.contains(&session.id())
            };
            let found = (0..12_000).any(both);
            session.kill().unwrap();
            session.wait().unwrap();
            assert!(found);
        }

        #[test]
        fn whoever_serves_a_socket_of_the_file_system_is_found_by_its_path() {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("s");
            let address = Address::Unix(path.display().to_string());
            assert_eq!(serving(&address), [0; 0]);
            let listener = UnixListener::bind(&path).unwrap();
            // Children that other tests fork hold it too, for a moment.
            let is_ours = |_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                serving(&address) == [std::process::id()]
            };
            assert!((0..12_000).any(is_ours));
            let client = UnixStream::connect(&path).unwrap();
            let accepted = listener.accept().unwrap();
            assert!(has_unix(&sockets_of(std::process::id())) && !has_unix(&BTreeSet::new()));
            drop(listener);
            assert!((0..12_000).any(is_ours));
            drop((client, accepted));
        }
    }
}
