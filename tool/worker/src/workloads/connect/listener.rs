//! Processes that hold other listening sockets: nobody connects to them, and
//! what they cost those who connect elsewhere is the question.

use super::board::{Board, Own, order};
use jostle_targets::endpoint::call;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

/// They listen below the ports that clients get by default, on addresses that
/// no client of ours has.
const FIRST_PORT: u64 = 1_025;
const PORTS: u64 = 8_000;
/// Further ports to try where the first is taken, each `PORTS` above the one before.
const OTHERS: u64 = 2;

/// The task of one listening process.
#[derive(Debug)]
pub struct Listener<'a> {
    /// The board that all share.
    pub board: &'a Board,
    /// Its number among all processes.
    pub number: usize,
    /// Its sockets: from this one on, so many.
    pub first: u64,
    /// See `first`.
    pub count: u64,
}

/// Where listening socket number `nth` listens, at the `other`th attempt.
fn address(nth: u64, other: u64) -> SocketAddrV4 {
    let host = Ipv4Addr::from_bits(0x7fc0_0001 + (nth / PORTS) as u32);
    SocketAddrV4::new(host, (FIRST_PORT + nth % PORTS + other * PORTS) as u16)
}

/// A server that listens on every address has its port on ours too.
fn one(nth: u64) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let fd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    let mut tried = 0;
    loop {
        match bind(&fd, &address(nth, tried)) {
            Err(Errno::ADDRINUSE) if tried < OTHERS => tried += 1,
            bound => break bound?,
        }
    }
    listen(&fd, 1)?;
    Ok(fd)
}

impl Listener<'_> {
    /// Makes all of them: a point must not have fewer listeners than it states.
    ///
    /// None if one could not be made; the board then has the error for the keeper.
    pub fn prepare(&self) -> Option<Vec<OwnedFd>> {
        let mut fds = Vec::with_capacity(self.count as usize);
        for nth in self.first..self.first + self.count {
            match one(nth) {
                Ok(fd) => fds.push(fd),
                Err(errno) => {
                    self.board.set_own(self.number, Own::For, nth + 1);
                    self.board
                        .set_own(self.number, Own::Errno, errno.raw_os_error() as u64);
                    self.board
                        .set_own(self.number, Own::Call, call::BIND as u64 + 1);
                    return None;
                }
            }
        }
        Some(fds)
    }

    /// Holds them until told to close.
    pub fn live(&self, fds: Vec<OwnedFd>) -> i32 {
        self.board.await_order(self.number, order::WORK);
        drop(fds);
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listens_at_a_place_of_its_own_far_from_clients() {
        let mut seen = std::collections::BTreeSet::new();
        for nth in (0..1_000_000).step_by(7) {
            for other in 0..=OTHERS {
                let place = address(nth, other);
                assert!(place.ip().is_loopback() && place.port() < 25_100);
                assert!(seen.insert(place), "{place}");
            }
        }
    }
}
