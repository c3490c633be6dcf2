//! Hosts on a switch, for servers and clients whose links are cut: a network namespace for each
//! host, and one more whose bridge joins them. A cut holds for new connections too, which filters
//! on sockets ([`crate::link`]) do not reach.
//!
//! No namespace has a name: each lasts while a process is in it or the [`Switch`] is held, and its
//! interfaces go with it. So nothing has to be recorded in the ledger, and a keeper that is killed
//! leaves nothing behind. Addresses are those of RFC 2544's tests, and collide with none: the
//! machine's own network is in another namespace.
//!
//! Needs `ip` (iproute2), CAP_SYS_ADMIN and CAP_NET_ADMIN.

use crate::namespaces::leave;
use crate::{spawn, waited};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The bridge of all hosts, and the one of those that are parted from them.
const WHOLE: &str = "whole";
const APART: &str = "apart";
/// The number of the switch itself among the addresses of hosts.
const OWN: usize = 253;
/// How long a new host may be out of reach, and one look.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// A switch on which this thread stands, and its hosts. When it is dropped, the thread returns to
/// the network that it came from.
#[derive(Debug)]
pub struct Switch {
    home: File,
    own: File,
    /// Those of servers first.
    hosts: Vec<File>,
    servers: usize,
}

impl Switch {
    /// Whether this process may make one, as far as its rights and programs tell.
    ///
    /// # Errors
    /// The reason, as a part of a sentence.
    pub fn may_be_made() -> Result<(), String> {
        const RIGHTS: u64 = 1 << 12 | 1 << 21;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let rights = rights.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        let lacks = match (rights, ip()) {
            (Some(rights), _) if rights & RIGHTS != RIGHTS => {
                "only root may make them (CAP_SYS_ADMIN and CAP_NET_ADMIN)".to_owned()
            }
            (_, Err(error)) => format!("`ip`: {error}; `apt install iproute2` (Debian)"),
            _ => return Ok(()),
        };
        Err(format!(
            "its servers need network namespaces of their own, and {lacks}"
        ))
    }

    /// Makes a switch with hosts for so many servers and clients, 253 at most, and moves this
    /// thread there: what it starts from then on is on the switch, unless it enters a host.
    ///
    /// # Errors
    /// The system's, or what `ip` said; this thread is then where it was.
    pub fn make(servers: usize, clients: usize) -> io::Result<Switch> {
        let home = here()?;
        leave(libc::CLONE_NEWNET)?;
        // From here on, dropping it returns.
        let mut switch = Switch {
            home,
            own: here()?,
            hosts: Vec::new(),
            servers,
        };
        for _ in 0..servers + clients {
            leave(libc::CLONE_NEWNET)?;
            switch.hosts.push(here()?);
        }
        enter(&switch.own)?;
        // Of its own choice the bridge has the address of one of its ports, which may leave.
        let mut lines = format!(
            "link set dev lo up\nlink add name {APART} type bridge\nlink set dev {APART} up\n\
             link add name {WHOLE} address 02:00:00:00:00:01 type bridge\n{}",
            up(WHOLE, Switch::address(OWN))
        );
        for (host, file) in switch.hosts.iter().enumerate() {
            // `ip` is a child, which sees our descriptors by our number.
            let place = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
            lines += &format!(
                "link add name h{host} type veth peer name eth0 netns {place}\n\
                 link set dev h{host} master {WHOLE}\nlink set dev h{host} up\n"
            );
        }
        run_ip(&lines)?;
        for (host, file) in switch.hosts.iter().enumerate() {
            enter(file)?;
            run_ip(&format!(
                "link set dev lo up\n{}",
                up("eth0", Switch::address(host))
            ))?;
        }
        enter(&switch.own)?;
        (0..switch.hosts.len()).try_for_each(until_it_answers)?;
        Ok(switch)
    }

    /// The address of a host.
    pub fn address(host: usize) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, 0, host as u8 + 1)
    }

    /// The host of a client; without one it stands on the switch.
    pub fn of_client(&self, number: usize) -> Option<usize> {
        Some(self.servers + number).filter(|host| *host < self.hosts.len())
    }

    /// Moves this thread to a host, for good: in a forked child.
    ///
    /// # Errors
    /// The system's; NotFound without such a host.
    pub fn enter(&self, host: usize) -> io::Result<()> {
        let file = self.hosts.get(host);
        enter(file.ok_or(io::ErrorKind::NotFound)?)
    }

    /// As [`Switch::enter`], to the host of a client, if it has one.
    ///
    /// # Errors
    /// The system's.
    pub fn enter_as(&self, client: usize) -> io::Result<()> {
        self.of_client(client)
            .map_or(Ok(()), |host| self.enter(host))
    }

    /// From here on nothing passes between these hosts and all others, the switch among them, and
    /// nobody is told.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn part(&self, hosts: &[usize]) -> io::Result<()> {
        plug(hosts.iter().copied(), APART)
    }

    /// Joins all hosts again.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn join(&self) -> io::Result<()> {
        plug(0..self.hosts.len(), WHOLE)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // It may: it has left its home by the same right.
        let _ = enter(&self.home);
    }
}

fn up(interface: &str, address: Ipv4Addr) -> String {
    format!("addr add {address}/24 dev {interface}\nlink set dev {interface} up\n")
}

/// The kernel may take a second to see that a new link is up (link_watch.c). Where nobody listens
/// a host refuses a connection.
fn until_it_answers(host: usize) -> io::Result<()> {
    let address = (Switch::address(host), 9).into();
    let answers = || {
        let error = TcpStream::connect_timeout(&address, LOOK).err()?;
        (error.kind() == io::ErrorKind::ConnectionRefused).then_some(())
    };
    let answered = waited::within(PATIENCE, Duration::from_millis(1), answers);
    answered.ok_or_else(|| io::Error::other(format!("{address} is not reached")))
}

/// The network namespace of this thread.
fn here() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

fn enter(network: &File) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(network.as_fd(), kind)?)
}

/// From one bridge to another: the links stay up, so that neither end learns of it from its
/// interface.
fn plug(hosts: impl Iterator<Item = usize>, bridge: &str) -> io::Result<()> {
    let lines = hosts.map(|host| format!("link set dev h{host} master {bridge}\n"));
    run_ip(&lines.collect::<String>())
}

fn ip() -> io::Result<PathBuf> {
    spawn::find("ip").or_else(|error| spawn::find("/usr/sbin/ip").map_err(|_| error))
}

/// Runs these commands of ip(8), where this thread is.
fn run_ip(lines: &str) -> io::Result<()> {
    let mut child = Command::new(ip()?)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    // One that has ended says why below.
    let written = child
        .stdin
        .take()
        .map(|mut stdin| stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output()?;
    match output.status.success() {
        true => written.unwrap_or(Ok(())),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("ip: {}", said.trim())))
        }
    }
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::fs::MetadataExt;

    /// What a thread of this host does there.
    fn on<T: Send>(switch: &Switch, host: usize, act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let there = || {
                switch.enter(host).unwrap();
                act()
            };
            scope.spawn(there).join().unwrap()
        })
    }

    #[test]
    fn a_part_of_the_hosts_reaches_itself_alone_until_it_is_joined_again() {
        let id = || here().unwrap().metadata().unwrap().ino();
        let before = id();
        let switch = Switch::make(2, 1).unwrap();
        assert_eq!([0, 1].map(|one| switch.of_client(one)), [Some(2), None]);
        let bind = || TcpListener::bind((Switch::address(1), 0)).unwrap();
        let listener = on(&switch, 1, bind);
        let address = listener.local_addr().unwrap();
        let here = || TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok();
        let from = |host: usize| on(&switch, host, here);
        assert!(from(0) && from(2) && here());
        switch.part(&[1, 2]).unwrap();
        assert!(!from(0) && from(2) && !here());
        switch.join().unwrap();
        assert!(from(0) && from(2) && here());
        let error = run_ip("link add name x type nonsense\n").unwrap_err();
        assert!(error.to_string().starts_with("ip: "), "{error}");
        drop(switch);
        assert_eq!(id(), before);
    }
}
