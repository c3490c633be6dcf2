//! TCP connections between processes, cut and mended. A filter on the sockets of both sides
//! drops whatever arrives (socket(7), SO_ATTACH_FILTER): neither side receives what the
//! other sends, or notices the other's end. With a filter on the sockets of one side only, what
//! that side sends still arrives ([`Way`]). TCP sends again what was sent meanwhile.
//!
//! Needs the rights over the processes (pidfd_getfd(2), Linux 5.6), and where the kernel is
//! set up so, CAP_BPF ([`may_cut`]). Changes nothing for other connections of the machine;
//! one that is made later is not cut.

use crate::sock_diag::u32_at;
use crate::socket::{get, set};
use rustix::net::{AddressFamily, SocketType, getpeername, getsockname, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::time::Duration;

/// The connections between two sides. While this lives, no socket of them is really
/// closed.
#[derive(Debug)]
pub struct Link {
    /// Each with whether it is one of the first side.
    sockets: Vec<(OwnedFd, bool)>,
    cut: bool,
}

/// In which direction nothing gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// In both.
    Both,
    /// Bytes from the first side are lost.
    FromFirst,
    /// Bytes to the first side are lost.
    ToFirst,
}

/// A connected socket of another process: our descriptor of it, and its two addresses.
struct Connected {
    socket: OwnedFd,
    own: SocketAddr,
    peer: SocketAddr,
}

impl Link {
    /// Finds the TCP connections between processes of one side and of another; there may
    /// be none.
    ///
    /// # Errors
    /// EPERM where the processes are not ours; else the system's. A process or socket
    /// that is gone meanwhile is no error.
    pub fn between(one: &[u32], other: &[u32]) -> io::Result<Link> {
        let (ones, others) = (connected(one)?, connected(other)?);
        let pairs = |of: &Connected, with: &[Connected]| {
            with.iter().any(|w| w.own == of.peer && w.peer == of.own)
        };
        let found: Vec<(bool, bool)> = (ones.iter().map(|of| (pairs(of, &others), true)))
            .chain(others.iter().map(|of| (pairs(of, &ones), false)))
            .collect();
        let all = ones.into_iter().chain(others).zip(found);
        let sockets = all.filter(|(_, (found, _))| *found);
        Ok(Link {
            sockets: sockets.map(|(of, (_, first))| (of.socket, first)).collect(),
            cut: false,
        })
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// For how long nothing has passed on any of the connections, acknowledgements included, as the
    /// first side's sockets know it. A firewall counts the same.
    pub fn silent_for(&self) -> Duration {
        let firsts = self.sockets.iter().filter(|(_, first)| *first);
        let silent_ms = firsts.filter_map(|(socket, _)| {
            // struct tcp_info (include/uapi/linux/tcp.h): data sent, data and answers received.
            let info: [u8; 60] = get(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO).ok()?;
            [44, 52, 56]
                .into_iter()
                .filter_map(|at| u32_at(&info, at))
                .min()
        });
        Duration::from_millis(silent_ms.min().unwrap_or(0).into())
    }

    /// The time after which the second side asks a silent peer whether it lives (tcp(7),
    /// TCP_KEEPIDLE), the longest of all connections; None where one of them never asks.
    pub fn asks_after(&self) -> Option<Duration> {
        let seconds = self.sockets.iter().filter(|(_, first)| !first);
        let times = seconds.map(|(socket, _)| {
            let asks = sockopt::socket_keepalive(socket) == Ok(true);
            sockopt::tcp_keepidle(socket).ok().filter(|_| asks)
        });
        times.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Nothing gets through this way from now on, until it is mended or dropped.
    ///
    /// # Errors
    /// The system's; what was cut by then stays cut.
    pub fn cut(&mut self, way: Way) -> io::Result<()> {
        self.cut = true;
        // A filter drops what its socket receives.
        let receives = |first: bool| match way {
            Way::Both => true,
            Way::FromFirst => !first,
            Way::ToFirst => first,
        };
        let mut sockets = self.sockets.iter().filter(|(_, first)| receives(*first));
        sockets.try_for_each(|(socket, _)| drop_all(socket))
    }

    /// Closes our descriptors and leaves the sockets as they are: in a forked child, whose copies
    /// would keep them open.
    pub fn forget(mut self) {
        self.cut = false;
    }

    /// Lets everything through again.
    pub fn mend(&mut self) {
        if std::mem::take(&mut self.cut) {
            self.sockets.iter().for_each(|(socket, _)| take_all(socket));
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.mend();
    }
}

/// Whether this user may attach a filter to a socket at all.
pub fn may_cut() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
        socket.is_ok_and(|socket| drop_all(&socket).is_ok())
    })
}

fn connected(pids: &[u32]) -> io::Result<Vec<Connected>> {
    let mut found = Vec::new();
    for pid in pids {
        found.extend(connected_of(*pid)?);
    }
    Ok(found)
}

fn connected_of(pid: u32) -> io::Result<Vec<Connected>> {
    let Some(handle) = Pid::from_raw(pid as i32) else {
        return Ok(Vec::new());
    };
    let process = match pidfd_open(handle, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(rustix::io::Errno::SRCH) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let entries = match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let is_socket =
            fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(number) = number.filter(|_: &RawFd| is_socket) else {
            continue;
        };
        match pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
            Ok(socket) => found.extend(tcp(socket)),
            // Closed meanwhile, or its process ended.
            Err(rustix::io::Errno::BADF | rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// Nothing for a socket that is not of TCP, or not connected.
fn tcp(socket: OwnedFd) -> Option<Connected> {
    let address = |address| {
        let address = SocketAddr::try_from(address).ok()?;
        // A server on an IPv6 socket has its IPv4 peers as mapped addresses.
        Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
    };
    let is_stream = rustix::net::sockopt::socket_type(&socket) == Ok(SocketType::STREAM);
    let own = address(getsockname(&socket).ok()?)?;
    let peer = address(getpeername(&socket).ok()??)?;
    is_stream.then_some(Connected { socket, own, peer })
}

fn drop_all(socket: &OwnedFd) -> io::Result<()> {
    // A program of one instruction: keep 0 bytes of each packet (Linux,
    // Documentation/networking/filter.rst).
    let mut nothing = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut nothing,
    };
    set(
        socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_ATTACH_FILTER,
        program,
    )
}

/// Removes the filter. The call fails, harmlessly, on a socket without one.
fn take_all(socket: &OwnedFd) {
    let unused: libc::c_int = 0;
    let _ = set(
        socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_DETACH_FILTER,
        unused,
    );
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    /// A child that has a connection for its standard input and output, and its other end.
    fn echo() -> (std::process::Child, TcpStream) {
        let listener = TcpListener::bind("[::ffff:127.0.0.1]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let accepted = OwnedFd::from(accepted);
        let child = Command::new("cat")
            .stdin(Stdio::from(accepted.try_clone().unwrap()))
            .stdout(Stdio::from(accepted))
            .spawn()
            .unwrap();
        (child, client)
    }

    #[test]
    fn nothing_gets_through_a_link_that_is_cut_until_it_is_mended() {
        let (mut child, mut client) = echo();
        let own = std::process::id();
        let mut link = Link::between(&[own], &[child.id()]).unwrap();
        // Both ends; the other's is there twice.
        assert!(link.sockets.len() >= 3, "{link:?}");
        let mut byte = [0];
        client.write_all(b"a").unwrap();
        client.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"a");

        assert_eq!(link.asks_after(), None);
        for (socket, _) in link.sockets.iter().filter(|(_, first)| !first) {
            sockopt::set_socket_keepalive(socket, true).unwrap();
            sockopt::set_tcp_keepidle(socket, Duration::from_secs(77)).unwrap();
        }
        assert_eq!(link.asks_after(), Some(Duration::from_secs(77)));
        std::thread::sleep(Duration::from_millis(300));
        assert!(link.silent_for() >= Duration::from_millis(250));

        link.cut(Way::Both).unwrap();
        client.write_all(b"b").unwrap();
        assert!(link.silent_for() < Duration::from_millis(250));
        client
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        // Other tests start processes, whose ends may interrupt a wait with a time limit.
        let silent = loop {
            match client.read(&mut byte).unwrap_err() {
                signal if signal.kind() == ErrorKind::Interrupted => {}
                error => break error,
            }
        };
        assert!(
            matches!(silent.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            "{silent}"
        );
        link.mend();
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        client.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"b");

        drop(link);
        drop(client);
        child.wait().unwrap();
    }

    #[test]
    fn a_link_can_be_cut_in_one_direction() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let mut sink = Command::new("cat")
            .stdin(Stdio::from(OwnedFd::from(accepted)))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut written = sink.stdout.take().unwrap();
        let mut link = Link::between(&[std::process::id()], &[sink.id()]).unwrap();
        let mut byte = [0];
        link.cut(Way::ToFirst).unwrap();
        client.write_all(b"a").unwrap();
        written.read_exact(&mut byte).unwrap();
        link.mend();
        link.cut(Way::FromFirst).unwrap();
        client.write_all(b"b").unwrap();
        let quiet = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 300_000_000,
        };
        let mut fds = [rustix::event::PollFd::new(
            &written,
            rustix::event::PollFlags::IN,
        )];
        assert_eq!(rustix::event::poll(&mut fds, Some(&quiet)), Ok(0));
        link.mend();
        written.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"b");
        drop((link, client));
        sink.wait().unwrap();
    }

    #[test]
    fn strangers_have_no_link() {
        let (mut child, client) = echo();
        let (mut other, others) = echo();
        let link = Link::between(&[other.id()], &[child.id()]).unwrap();
        assert!(link.is_empty(), "{link:?}");
        // A process that is gone has no link either.
        assert!(
            Link::between(&[4_194_305], &[child.id()])
                .unwrap()
                .is_empty()
        );
        drop((client, others));
        child.wait().unwrap();
        other.wait().unwrap();
    }
}
