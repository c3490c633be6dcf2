//! The destination of connections: the capability of targets that `connect` opens
//! connections to. This module has no locks and no policy: [`Endpoint`] knows addresses,
//! makes listening sockets for an embedded server, and opens one connection.
//!
//! [`Plug::connect`] and [`Plug::bind`] are the measured calls; they do what the
//! plan asks of every socket and nothing else.

use crate::{SetupError, Spec, tcp, unix};
use jostle_model::connect::PortRange;
use jostle_sys::ledger::Ledger;
use jostle_sys::socket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, listen, socket_with,
    sockopt,
};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The wishes of a target for its endpoint.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The text behind the colon of the target as typed.
    pub argument: Option<&'a str>,
    /// Where things that must not outlive the run are made and recorded.
    pub ledger: &'a Ledger,
    /// Destination ports.
    pub ports: usize,
    /// Ports that must not be used for listening, because the clients use them.
    pub avoid: Option<PortRange>,
    /// The run's seed.
    pub seed: u64,
}

/// An address of any family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// IPv4 or IPv6.
    Ip(SocketAddr),
    /// A path.
    Unix(SocketAddrUnix),
}

/// The place that connections lead to.
#[derive(Debug)]
pub struct Endpoint {
    /// Each destination.
    pub addresses: Vec<Address>,
    /// Whether the server is ours to run.
    pub embedded: bool,
}

/// The plan's options for every client socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Bytes of the send buffer, as asked.
    pub sndbuf: Option<u64>,
    /// Bytes of the receive buffer, as asked.
    pub rcvbuf: Option<u64>,
    /// Ports to choose from.
    pub port_range: Option<PortRange>,
    /// Bind the address alone.
    pub bind_no_port: bool,
    /// close() sends RST.
    pub reset: bool,
}

/// A call of [`Plug`] that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {errno}")]
pub struct Failed {
    /// The system call, by its number in [`CALLS`].
    pub call: usize,
    /// Why.
    pub errno: Errno,
}

/// The calls that a connection takes, by number.
pub const CALLS: [&str; 6] = [
    "socket",
    "setsockopt",
    "bind",
    "connect",
    "getsockname",
    "accept4",
];

/// Numbers of [`CALLS`].
pub mod call {
    /// socket(2).
    pub const SOCKET: usize = 0;
    /// setsockopt(2).
    pub const OPTION: usize = 1;
    /// bind(2).
    pub const BIND: usize = 2;
    /// connect(2).
    pub const CONNECT: usize = 3;
    /// getsockname(2).
    pub const NAME: usize = 4;
    /// accept4(2).
    pub const ACCEPT: usize = 5;
}

impl Endpoint {
    /// The endpoint of this target.
    ///
    /// # Errors
    /// In words for the user, with the remedy.
    pub fn prepare(spec: &Spec, wanted: &Wanted<'_>) -> Result<Endpoint, SetupError> {
        match spec.entry.name {
            "unix" => unix::endpoint(wanted),
            _ => tcp::endpoint(wanted),
        }
    }

    /// Listening sockets for an embedded server: for each lane of acceptors (one
    /// lane where they share) one socket for each destination. Non-blocking.
    ///
    /// # Errors
    /// The system's, with the address.
    pub fn listen(
        &mut self,
        lanes: usize,
        backlog: u32,
        options: Options,
    ) -> Result<Vec<Vec<OwnedFd>>, SetupError> {
        let mut sockets = Vec::new();
        for lane in 0..lanes {
            let mut of_lane = Vec::new();
            for address in &mut self.addresses {
                let fd = loop {
                    match listener(address, lanes > 1, backlog, options) {
                        // Somebody else's; the next port may be free.
                        Err(Errno::ADDRINUSE) if lane == 0 && next_port(address) => {}
                        other => break other,
                    }
                };
                of_lane.push(fd.map_err(|errno| {
                    SetupError(format!("cannot listen at {}: {errno}", shown(address)))
                })?);
            }
            sockets.push(of_lane);
        }
        Ok(sockets)
    }
}

/// Whether there was another port to try.
fn next_port(address: &mut Address) -> bool {
    match address {
        Address::Ip(ip) if ip.port() < u16::MAX => {
            ip.set_port(ip.port() + 1);
            true
        }
        _ => false,
    }
}

fn listener(
    address: &Address,
    shared_port: bool,
    backlog: u32,
    options: Options,
) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(family(address), SocketType::STREAM, flags, None)?;
    if shared_port {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    // Accepted sockets inherit them.
    buffers(&fd, options)?;
    match address {
        Address::Ip(ip) => bind(&fd, ip)?,
        Address::Unix(path) => bind(&fd, path)?,
    }
    listen(&fd, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(fd)
}

fn family(address: &Address) -> AddressFamily {
    match address {
        Address::Ip(SocketAddr::V4(_)) => AddressFamily::INET,
        Address::Ip(SocketAddr::V6(_)) => AddressFamily::INET6,
        Address::Unix(_) => AddressFamily::UNIX,
    }
}

fn buffers(fd: &OwnedFd, options: Options) -> Result<(), Errno> {
    if let Some(bytes) = options.sndbuf {
        sockopt::set_socket_send_buffer_size(fd, bytes as usize)?;
    }
    if let Some(bytes) = options.rcvbuf {
        sockopt::set_socket_recv_buffer_size(fd, bytes as usize)?;
    }
    Ok(())
}

/// An address in words.
pub fn shown(address: &Address) -> String {
    match address {
        Address::Ip(ip) => ip.to_string(),
        Address::Unix(path) => {
            let bytes = path.path_bytes().unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        }
    }
}

/// Source address number `nth` of a run whose sockets are bound to source addresses: an
/// address of 127.0.0.0/8 that no other run of this experiment uses. Each address has its
/// own ports in TIME_WAIT, and bind() does not reuse such a port.
pub fn source(sources: u64, run: u64, nth: u64) -> Ipv4Addr {
    // 127.1.0.0 to 127.127.255.255, round and round.
    let number = (run * sources + nth) % (127 << 16);
    Ipv4Addr::from_bits(0x7f01_0000 + number as u32)
}

/// A maker of connections, one after the other.
#[derive(Debug)]
pub struct Plug<'a> {
    endpoint: &'a Endpoint,
    options: Options,
    /// Bound before connecting; empty: none is.
    sources: &'a [Ipv4Addr],
}

impl<'a> Plug<'a> {
    /// For connections from these addresses in turn.
    pub fn new(endpoint: &'a Endpoint, options: Options, sources: &'a [Ipv4Addr]) -> Plug<'a> {
        Plug {
            endpoint,
            options,
            sources,
        }
    }

    /// A socket as the plan wants it, for connection number `nth`.
    ///
    /// # Errors
    /// The call that failed.
    #[inline]
    pub fn socket(&self, nth: u64) -> Result<OwnedFd, Failed> {
        let fd = socket_with(
            family(self.destination(nth)),
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(failed(call::SOCKET))?;
        if self.options != Options::default() {
            self.prepare(&fd).map_err(failed(call::OPTION))?;
        }
        Ok(fd)
    }

    fn prepare(&self, fd: &OwnedFd) -> Result<(), Errno> {
        let options = self.options;
        let system = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        buffers(fd, options)?;
        if options.reset {
            sockopt::set_socket_linger(fd, Some(Duration::ZERO))?;
        }
        if let Some(range) = options.port_range {
            socket::local_port_range(fd.as_fd(), range.low, range.high).map_err(system)?;
        }
        if options.bind_no_port && !self.sources.is_empty() {
            socket::bind_address_no_port(fd.as_fd()).map_err(system)?;
        }
        Ok(())
    }

    /// Whether sockets are bound before they connect.
    pub fn binds(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Binds a socket to the source address of connection number `nth`.
    ///
    /// # Errors
    /// The call that failed.
    #[inline]
    pub fn bind(&self, fd: &OwnedFd, nth: u64) -> Result<(), Failed> {
        let address = self.sources[(nth % self.sources.len() as u64) as usize];
        bind(fd, &SocketAddrV4::new(address, 0)).map_err(failed(call::BIND))
    }

    /// Connects a socket to the destination of connection number `nth`.
    ///
    /// # Errors
    /// The call that failed.
    #[inline]
    pub fn connect(&self, fd: &OwnedFd, nth: u64) -> Result<(), Failed> {
        match self.destination(nth) {
            Address::Ip(SocketAddr::V4(ip)) => rustix::net::connect(fd, ip),
            Address::Ip(SocketAddr::V6(ip)) => rustix::net::connect(fd, ip),
            Address::Unix(path) => rustix::net::connect(fd, path),
        }
        .map_err(failed(call::CONNECT))
    }

    /// The port that the kernel has given; None for a family without ports.
    ///
    /// # Errors
    /// The call that failed.
    #[inline]
    pub fn port(&self, fd: &OwnedFd) -> Result<Option<u16>, Failed> {
        if !matches!(self.endpoint.addresses[0], Address::Ip(_)) {
            return Ok(None);
        }
        let name = getsockname(fd).map_err(failed(call::NAME))?;
        Ok(SocketAddr::try_from(name).ok().map(|ip| ip.port()))
    }

    /// Sources take turns, and after each round of all sources the next port follows, so
    /// that every pair of source and port gets its share.
    #[inline]
    fn destination(&self, nth: u64) -> &Address {
        let round = nth / self.sources.len().max(1) as u64;
        &self.endpoint.addresses[(round % self.endpoint.addresses.len() as u64) as usize]
    }
}

/// Connections that are open on this side and closed or reset on the peer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// How many.
    pub count: u64,
    /// The index of the first one.
    pub first: Option<usize>,
}

/// Finds the connections that the peer has closed or reset. Unread data does not count as a
/// close. Makes one system call per batch, and never waits.
///
/// # Errors
/// The system's: no memory.
pub fn lost(fds: &[OwnedFd]) -> Result<Lost, Errno> {
    /// poll(2) accepts no more entries than the descriptor limit, which is at least the
    /// number of descriptors that this process has open.
    const BATCH: usize = 512;
    const AT_ONCE: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut lost = Lost::default();
    for (nth, batch) in fds.chunks(BATCH).enumerate() {
        let ask = |fd| PollFd::new(fd, PollFlags::RDHUP);
        let mut polled: Vec<PollFd<'_>> = batch.iter().map(ask).collect();
        retry_on_intr(|| poll(&mut polled, Some(&AT_ONCE)))?;
        for (at, fd) in polled.iter().enumerate() {
            if fd.revents().intersects(gone) {
                lost.count += 1;
                lost.first.get_or_insert(nth * BATCH + at);
            }
        }
    }
    Ok(lost)
}

fn failed(call: usize) -> impl Fn(Errno) -> Failed {
    move |errno| Failed { call, errno }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_source_and_destination_gets_its_share() {
        let endpoint = Endpoint {
            addresses: [1, 2]
                .map(|port| Address::Ip(([127, 0, 0, 1], port).into()))
                .into(),
            embedded: true,
        };
        let sources: Vec<Ipv4Addr> = (0..3).map(|nth| source(3, 0, nth)).collect();
        let plug = Plug::new(&endpoint, Options::default(), &sources);
        let mut pairs = std::collections::BTreeMap::new();
        for nth in 0..60 {
            let to = shown(plug.destination(nth));
            *pairs.entry((nth % 3, to)).or_insert(0) += 1;
        }
        assert_eq!(pairs.len(), 6);
        assert!(pairs.values().all(|count| *count == 10), "{pairs:?}");
    }

    #[test]
    fn sources_are_loopback_and_no_run_uses_another_s() {
        assert_ne!(source(1, 5, 0), source(1, 6, 0), "one address moves on too");
        let mut seen = std::collections::BTreeSet::new();
        for run in 0..20 {
            for nth in 0..64 {
                let address = source(64, run, nth);
                assert!(address.is_loopback() && seen.insert(address), "{address}");
            }
        }
        assert!(source(64, u64::from(u32::MAX), 63).is_loopback());
    }

    mod live_tests {
        use super::*;

        #[test]
        fn a_connection_is_lost_when_its_peer_has_closed_or_reset_it_and_not_by_data() {
            use std::io::Write;
            use std::net::{TcpListener, TcpStream};
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let (mut fds, mut held) = (Vec::new(), Vec::new());
            for nth in 0..1_200 {
                let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                fds.push(OwnedFd::from(stream));
                let (mut peer, _) = listener.accept().unwrap();
                match nth {
                    700 => drop(peer),
                    1_100 => {
                        sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
                        drop(peer);
                    }
                    _ => {
                        peer.write_all(b"unasked").unwrap();
                        held.push(peer);
                    }
                }
            }
            let expected = Lost {
                count: 2,
                first: Some(700),
            };
            // On a busy machine the ends arrive after the calls have returned.
            let comes_to = |count| {
                let is_so = (0..60_000).any(|_| {
                    std::thread::sleep(Duration::from_millis(1));
                    lost(&fds).unwrap().count == count
                });
                assert!(is_so, "{:?}", lost(&fds));
            };
            comes_to(2);
            assert_eq!(lost(&fds), Ok(expected));
            assert_eq!(lost(&fds[..700]), Ok(Lost::default()));
            drop(held);
            comes_to(1_200);
        }
    }
}
