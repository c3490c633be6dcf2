//! TCP sockets of a network namespace as the kernel sees them: queues, bytes carried,
//! segments sent again (sock_diag(7), over netlink). Any user may ask.
//!
//! Not for owners: a socket's inode leads to its process through /proc/PID/fd.

use crate::namespaces::Network;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::cmp::Ordering;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A TCP socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Its state, as include/net/tcp_states.h numbers them.
    pub state: u8,
    /// Its own port.
    pub own_port: u16,
    /// The port at the other end; 0 of a listener.
    pub other_port: u16,
    /// Unique for as long as the machine runs.
    pub cookie: u64,
    /// Names it in /proc/PID/fd; 0 where no process has it.
    pub inode: u32,
    /// Bytes that have arrived and were not read; of a listener the connections that wait
    /// to be accepted.
    pub unread: u32,
    /// Bytes that were written and not acknowledged; of a listener how many may wait.
    pub unsent: u32,
    /// The traffic so far; absent of a listener and of one in TIME_WAIT.
    pub carried: Option<Carried>,
    /// Until its timer ends, in milliseconds: of one in TIME_WAIT until that ends.
    pub expires_ms: u32,
    /// By which the kernel finds it again.
    pub id: Id,
}

/// Its address family, and struct inet_diag_sockid: ports, addresses, interface, cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(u8, [u8; ID]);

impl Default for Id {
    fn default() -> Id {
        Id(0, [0; ID])
    }
}

/// The traffic of a connection since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes sent and acknowledged.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes that segments have carried away, acknowledged or not; what kernels before 4.19 do not
    /// count, as acknowledged.
    pub left_bytes: u64,
    /// Segments in both directions, with and without data.
    pub segments: u64,
    /// Segments that were sent again.
    pub retransmitted: u64,
    /// Bytes that were written and that no segment has carried yet.
    pub unsent: u32,
    /// Time since it sent data, and since it received data, in milliseconds.
    pub idle_ms: [u32; 2],
    /// Time since it received anything, bare acknowledgements too, in milliseconds.
    pub acknowledged_ms: u32,
    /// Segments that it sent and that were not acknowledged.
    pub in_flight: u32,
    /// Times in a row that its timer has sent a segment again, and nothing was acknowledged.
    pub timeouts: u8,
    /// Segments with data, sent and received; 0 where the kernel does not count them.
    pub data_segments: [u32; 2],
}

impl Carried {
    /// Whether it has sent something since it last received anything: the other end owes an
    /// answer, if it answers at all. The kernel counts in ticks of up to 10 ms. A connection that
    /// is used again at once has sent and received in the same tick: an answer would have
    /// acknowledged what was sent, so that one waits of which something is in flight, or was
    /// acknowledged after the latest answer. Where all answers so far have several segments, and
    /// the same number of them, one is owed as long as a part of it is missing.
    /// None where nothing tells.
    pub fn awaits_answer(self) -> Option<bool> {
        let [sent_ms, received_ms] = self.idle_ms;
        let is_owed = self.in_flight > 0 || self.acknowledged_ms < received_ms;
        match sent_ms.cmp(&received_ms) {
            Ordering::Less => Some(true),
            _ if self.lacks_segments() => Some(true),
            Ordering::Greater => Some(false),
            Ordering::Equal => is_owed.then_some(true),
        }
    }

    /// Whether next to nothing comes back, as on the connection of a log.
    pub fn only_sends(self) -> bool {
        let [sent, received] = self.data_segments.map(u64::from);
        sent >= 10 && 10 * received < sent
    }

    /// Whether answers of several segments each are there except for a part of the latest.
    fn lacks_segments(self) -> bool {
        let each = self.segments_each();
        let missing = self.missing_segments();
        each >= 2 && missing.is_some_and(|missing| (1..=each as i64).contains(&missing))
    }

    /// Segments for each request, if each has one itself.
    fn segments_each(self) -> u64 {
        let [requests, received] = self.data_segments.map(u64::from);
        (received + requests / 2) / requests.max(1)
    }

    /// How many segments are missing until all requests, of one segment each, have answers of the
    /// same number of segments. What both ends said at the beginning may shift it. None where
    /// there were too few requests.
    pub fn missing_segments(self) -> Option<i64> {
        let [requests, received] = self.data_segments.map(u64::from);
        let each = self.segments_each();
        (each > 0 && requests > 2 * each).then(|| (requests * each) as i64 - received as i64)
    }
}

impl Tcp {
    /// A connection between these addresses, in which nothing else is known.
    pub fn between(own: SocketAddr, other: SocketAddr) -> Tcp {
        let mut id = [0; ID];
        for (at, address) in [(4, own.ip()), (20, other.ip())] {
            match address {
                IpAddr::V4(ip) => id[at..at + 4].copy_from_slice(&ip.octets()),
                IpAddr::V6(ip) => id[at..at + 16].copy_from_slice(&ip.octets()),
            }
        }
        id[0..2].copy_from_slice(&own.port().to_be_bytes());
        id[2..4].copy_from_slice(&other.port().to_be_bytes());
        let family = match own {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        };
        Tcp {
            state: ESTABLISHED,
            own_port: own.port(),
            other_port: other.port(),
            id: Id(family as u8, id),
            ..Tcp::default()
        }
    }

    /// Whether the other end is an address of the loopback.
    pub fn is_loopback(&self) -> bool {
        self.addresses()[1].ip().is_loopback()
    }

    /// The address of its own end, and of the other end.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        let Id(family, id) = self.id;
        let of = |at: usize, port: u16| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&id[at..at + 16]);
            let address = match i32::from(family) {
                libc::AF_INET => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
                _ => IpAddr::from(bytes).to_canonical(),
            };
            SocketAddr::new(address, port)
        };
        [of(4, self.own_port), of(20, self.other_port)]
    }
}

/// A connection that both ends have open.
pub const ESTABLISHED: u8 = 1;
/// A client whose first segment was not answered yet.
pub const SYN_SENT: u8 = 2;
/// A socket that accepts.
pub const LISTEN: u8 = 10;
/// A connection that is closed, whose ports are not free yet.
const TIME_WAIT: u8 = 6;

/// The sockets asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Their own port; 0: any.
    pub own_port: u16,
    /// The port at the other end; 0: any.
    pub other_port: u16,
    /// Listeners too, or connections alone.
    pub listeners: bool,
    /// With what they have carried.
    pub carried: bool,
    /// Those in TIME_WAIT, and no others.
    pub time_wait: bool,
}

/// A netlink socket for queries.
#[derive(Debug)]
pub struct SockDiag {
    fd: OwnedFd,
    answer: Vec<u8>,
}

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

const HEADER: usize = 16;
const MESSAGE: usize = 72;
const ID: usize = 48;
const REQUEST: usize = HEADER + 60;
/// With struct inet_diag_req_v2.
const ONE: usize = HEADER + 8 + ID;
/// NLMSG_ERROR and NLMSG_DONE (include/uapi/linux/netlink.h).
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// TCPDIAG_GETSOCK, INET_DIAG_INFO (inet_diag.h). The newer request, by family, walks the
/// kernel's table of all sockets once for IPv4 and once more for IPv6.
const OF_TCP: u16 = 18;
/// SOCK_DIAG_BY_FAMILY, which finds one socket without a walk.
const BY_FAMILY: u16 = 20;
const INFO: u16 = 2;
/// Questions in one message: their answers together fit the socket's buffer.
const AT_ONCE: usize = 32;
/// NLM_F_REQUEST.
const ONLY: u16 = 1;
/// NLM_F_REQUEST | NLM_F_DUMP.
const DUMP: u16 = 0x301;

impl SockDiag {
    /// Opens it.
    ///
    /// # Errors
    /// Where the kernel has no sock_diag (CONFIG_INET_DIAG), or a sandbox forbids netlink.
    pub fn open() -> io::Result<SockDiag> {
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        // An answer is there when it was asked for, unless the kernel had no room for it.
        rustix::net::sockopt::set_socket_timeout(&fd, Timeout::Recv, Some(PATIENCE))?;
        Ok(SockDiag {
            fd,
            answer: vec![0; 64 << 10],
        })
    }

    /// Opens it in another network namespace, whose sockets it then names whoever asks.
    ///
    /// # Errors
    /// As [`Network::within`] and [`SockDiag::open`].
    pub fn open_in(network: &Network) -> io::Result<SockDiag> {
        network.within(SockDiag::open)?
    }

    /// The sockets of IPv4 and of IPv6 that are wanted.
    ///
    /// # Errors
    /// The system's.
    pub fn tcp(&mut self, wanted: Wanted) -> io::Result<Vec<Tcp>> {
        let mut found = Vec::new();
        self.ask(&request(wanted))?;
        while !self.next(&mut found)? {}
        Ok(found)
    }

    /// These sockets as they are now, with what they have carried; those that are closed are
    /// left out. Each is found by its ports and addresses, where [`SockDiag::tcp`] walks all
    /// sockets of the kernel, those in TIME_WAIT too.
    ///
    /// # Errors
    /// The system's.
    pub fn again(&mut self, known: &[Tcp]) -> io::Result<Vec<Tcp>> {
        let mut found = Vec::with_capacity(known.len());
        for some in known.chunks(AT_ONCE) {
            let questions: Vec<u8> = some.iter().flat_map(|socket| about(socket.id)).collect();
            self.ask(&questions)?;
            for _ in some {
                match self.next(&mut found) {
                    Err(error) if is_gone(&error) => {}
                    Err(error) => {
                        self.drain();
                        return Err(error);
                    }
                    Ok(_) => {}
                }
            }
        }
        found.retain(|socket| socket.state != TIME_WAIT);
        Ok(found)
    }

    /// The inode of the socket at the other end of a Unix socket; None where there is none.
    ///
    /// # Errors
    /// The system's, such as where the kernel has no answers on these (CONFIG_UNIX_DIAG).
    pub fn unix_peer(&mut self, inode: u32) -> io::Result<Option<u32>> {
        const REQUEST: usize = HEADER + 24;
        const SHOW_PEER: u32 = 4;
        const PEER: u16 = 2;
        // struct nlmsghdr and struct unix_diag_req.
        let mut bytes = [0; REQUEST];
        bytes[0..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
        bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        bytes[6..8].copy_from_slice(&ONLY.to_ne_bytes());
        bytes[16] = libc::AF_UNIX as u8;
        bytes[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
        bytes[24..28].copy_from_slice(&inode.to_ne_bytes());
        bytes[28..32].copy_from_slice(&SHOW_PEER.to_ne_bytes());
        // INET_DIAG_NOCOOKIE: sockets with any cookie.
        bytes[32..40].copy_from_slice(&u64::MAX.to_ne_bytes());
        self.ask(&bytes)?;
        let read = rustix::net::recv(&self.fd, self.answer.as_mut_slice(), RecvFlags::empty())?;
        let answer = self.answer.get(..read.0).unwrap_or_default();
        if u16_at(answer, 4) == Some(ERROR) {
            let errno = u32_at(answer, HEADER).unwrap_or(0) as i32;
            return Err(io::Error::from_raw_os_error(-errno));
        }
        // Behind struct unix_diag_msg.
        let mut found = attributes(answer.get(HEADER + 16..).unwrap_or_default());
        Ok(found
            .find(|(kind, _)| *kind == PEER)
            .and_then(|(_, peer)| u32_at(peer, 0)))
    }

    /// Drops what was answered, which would be taken for answers to the next query: the kernel
    /// answers these questions before `ask` returns.
    fn drain(&mut self) {
        let read = |buffer: &mut [u8]| rustix::net::recv(&self.fd, buffer, RecvFlags::DONTWAIT);
        while read(self.answer.as_mut_slice()).is_ok() {}
    }

    fn ask(&self, questions: &[u8]) -> io::Result<()> {
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.fd, questions, SendFlags::empty(), &kernel)?;
        Ok(())
    }

    /// Reads one answer; true after the last one of a walk.
    fn next(&mut self, found: &mut Vec<Tcp>) -> io::Result<bool> {
        let read = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.fd, self.answer.as_mut_slice(), RecvFlags::empty())
        })?;
        let mut rest = self.answer.get(..read.0).unwrap_or_default();
        while let Some(length) = u32_at(rest, 0).map(|length| length as usize) {
            let (Some(message), Some(kind)) = (rest.get(HEADER..length), u16_at(rest, 4)) else {
                return Err(io::Error::other(
                    "the kernel's answer on sockets is cut short",
                ));
            };
            match kind {
                DONE => return Ok(true),
                ERROR => {
                    let errno = u32_at(message, 0).unwrap_or(0) as i32;
                    return Err(io::Error::from_raw_os_error(-errno));
                }
                _ => found.extend(socket(message)),
            }
            rest = rest.get(aligned(length)..).unwrap_or_default();
        }
        Ok(false)
    }
}

/// struct nlmsghdr and struct inet_diag_req, of which the kernel reads no family.
fn request(wanted: Wanted) -> [u8; REQUEST] {
    let connections: u32 = 0b11_1111_1110; // ESTABLISHED to LAST_ACK
    let states = match wanted.time_wait {
        true => 1 << TIME_WAIT,
        false => connections & !(1 << TIME_WAIT) | u32::from(wanted.listeners) << LISTEN,
    };
    let extensions = u8::from(wanted.carried) << (INFO - 1);
    let mut bytes = [0; REQUEST];
    bytes[0..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&OF_TCP.to_ne_bytes());
    bytes[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    bytes[16] = libc::AF_INET as u8;
    bytes[19] = extensions;
    bytes[20..22].copy_from_slice(&wanted.own_port.to_be_bytes());
    bytes[22..24].copy_from_slice(&wanted.other_port.to_be_bytes());
    bytes[68..72].copy_from_slice(&states.to_ne_bytes());
    bytes
}

/// struct nlmsghdr and struct inet_diag_req_v2.
fn about(Id(family, id): Id) -> [u8; ONE] {
    let mut bytes = [0; ONE];
    bytes[0..4].copy_from_slice(&(ONE as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&ONLY.to_ne_bytes());
    bytes[16] = family;
    bytes[17] = libc::IPPROTO_TCP as u8;
    bytes[18] = 1 << (INFO - 1);
    bytes[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
    bytes[24..].copy_from_slice(&id);
    bytes
}

/// Closed, or its addresses are another connection's now.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE))
}

/// struct inet_diag_msg and its attributes.
fn socket(message: &[u8]) -> Option<Tcp> {
    let port = |at| u16_at(message, at).map(u16::from_be);
    let id: [u8; ID] = message.get(4..4 + ID)?.try_into().ok()?;
    let family = i32::from(*message.first()?);
    let mut socket = Tcp {
        state: *message.get(1)?,
        own_port: port(4)?,
        other_port: port(6)?,
        cookie: u64::from(u32_at(message, 44)?) | u64::from(u32_at(message, 48)?) << 32,
        inode: u32_at(message, 68)?,
        unread: u32_at(message, 56)?,
        unsent: u32_at(message, 60)?,
        carried: None,
        expires_ms: u32_at(message, 52)?,
        id: Id(family as u8, id),
    };
    let mut attributes = attributes(message.get(MESSAGE..)?);
    let info = attributes.find(|(kind, _)| *kind == INFO && socket.state != LISTEN);
    socket.carried = info.and_then(|(_, info)| carried(info));
    Some(socket)
}

/// struct tcp_info (include/uapi/linux/tcp.h): kernels only ever add to its end.
fn carried(info: &[u8]) -> Option<Carried> {
    Some(Carried {
        retransmitted: u32_at(info, 100)?.into(),
        idle_ms: [u32_at(info, 44)?, u32_at(info, 52)?],
        acknowledged_ms: u32_at(info, 56)?,
        in_flight: u32_at(info, 24)?,
        timeouts: *info.get(2)?,
        sent_bytes: u64_at(info, 120)?,
        received_bytes: u64_at(info, 128)?,
        left_bytes: match (u64_at(info, 200), u64_at(info, 208)) {
            (Some(sent), Some(again)) => sent.saturating_sub(again),
            _ => u64_at(info, 120)?,
        },
        segments: u64::from(u32_at(info, 136)?) + u64::from(u32_at(info, 140)?),
        // Since Linux 4.6.
        unsent: u32_at(info, 144).unwrap_or(0),
        data_segments: [156, 152].map(|at| u32_at(info, at).unwrap_or(0)),
    })
}

/// By kind, the attributes that follow each other here.
pub(crate) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        // The two highest bits are flags.
        let kind = u16_at(rest, 2)? & 0x3fff;
        let value = rest.get(4..length)?;
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

/// Messages and attributes begin at multiples of four.
pub(crate) fn aligned(length: usize) -> usize {
    length.div_ceil(4) * 4
}

#[cfg(test)]
mod tests;
