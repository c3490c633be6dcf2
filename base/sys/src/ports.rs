//! Ports for servers that are given one before they start.

use crate::limits::net::Net;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// From here on few services have a port of their own.
const LOWEST: u16 = 20_000;

/// Fewer ports than these are not worth a choice.
const ENOUGH: u16 = 1_000;

/// Attempts to find a port that is free.
const ATTEMPTS: usize = 100;

/// How long a port is kept from other callers: a server may take its time to start.
const RESERVED: Duration = Duration::from_secs(60);

/// The reservations of this process, and since when.
static RESERVATIONS: Mutex<Vec<(Instant, UnixListener)>> = Mutex::new(Vec::new());

/// `count` different ports of this address on which nobody listens now. No other caller
/// gets them for the next minute, in any process of this network namespace.
///
/// They lie below those that the kernel gives to clients (`net.ipv4.ip_local_port_range`):
/// no connection takes one of them before its server starts or while it restarts, and no
/// client that tries again and again is connected to itself. Where that range leaves no
/// room, the kernel chooses.
///
/// # Errors
/// The system's.
pub fn free(address: IpAddr, count: usize) -> io::Result<Vec<u16>> {
    let clients_from = Net::read().ports.map(|(first, _)| first);
    let bound: io::Result<Vec<TcpListener>> = (0..count)
        .map(|_| bind_below(address, clients_from))
        .collect();
    let port = |listener: &TcpListener| Ok(listener.local_addr()?.port());
    bound?.iter().map(port).collect()
}

fn bind_below(address: IpAddr, clients_from: Option<u16>) -> io::Result<TcpListener> {
    let room = clients_from.map_or(0, |from| from.saturating_sub(LOWEST));
    if room >= ENOUGH {
        // Seeded anew for each process, and another for each call.
        let random = RandomState::new();
        for attempt in 0..ATTEMPTS {
            let port = LOWEST + (random.hash_one(attempt) % u64::from(room)) as u16;
            if !reserve(port) {
                continue;
            }
            match TcpListener::bind((address, port)) {
                Ok(bound) => return Ok(bound),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                // Some machines keep such ports from plain users.
                Err(_) => break,
            }
        }
    }
    TcpListener::bind((address, 0))
}

/// Reserves a port, by an abstract socket with its number: the kernel has one of a name, and
/// removes it with its process. False if another caller has reserved the port. Any other
/// failure only means that the port is not reserved.
fn reserve(port: u16) -> bool {
    let mut kept = RESERVATIONS.lock().unwrap_or_else(PoisonError::into_inner);
    kept.retain(|(since, _)| since.elapsed() < RESERVED);
    let name = SocketAddr::from_abstract_name(format!("jostle-port-{port}"));
    match name.and_then(|name| UnixListener::bind_addr(&name)) {
        Ok(socket) => kept.push((Instant::now(), socket)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => return false,
        Err(_) => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Each test has an address of its own; servers listen on the first one.
    fn here(nth: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 77, nth).into()
    }

    fn port(here: IpAddr, clients_from: Option<u16>) -> u16 {
        let bound = bind_below(here, clients_from).unwrap();
        bound.local_addr().unwrap().port()
    }

    #[test]
    fn they_lie_below_those_of_clients_where_there_is_room() {
        for _ in 0..100 {
            let port = port(here(2), Some(LOWEST + ENOUGH));
            assert!((LOWEST..LOWEST + ENOUGH).contains(&port), "{port}");
        }
        // The kernel's own choice: one of its clients' ports.
        let of_clients = Net::read().ports.unwrap();
        for clients_from in [None, Some(1024), Some(LOWEST + ENOUGH - 1)] {
            let port = port(here(2), clients_from);
            let is_of_clients = (of_clients.0..=of_clients.1).contains(&port);
            assert!(is_of_clients, "{clients_from:?}: {port}");
        }
    }

    #[test]
    fn one_that_was_given_out_is_not_given_out_again() {
        let clients_from = Some(LOWEST + ENOUGH);
        let mut ports: Vec<u16> = (0..200).map(|_| port(here(4), clients_from)).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 200);
        // As another process would ask.
        assert!(!reserve(ports[0]));
    }

    mod live_tests {
        use super::*;

        #[test]
        fn they_differ_and_can_be_bound() {
            let mut ports = free(here(1), 20).unwrap();
            for port in &ports {
                drop(TcpListener::bind((here(1), *port)).unwrap());
            }
            ports.sort_unstable();
            ports.dedup();
            assert_eq!(ports.len(), 20);
        }

        #[test]
        fn one_in_use_is_not_chosen() {
            let taken: Vec<TcpListener> = (LOWEST..LOWEST + ENOUGH)
                .filter_map(|port| TcpListener::bind((here(3), port)).ok())
                .collect();
            let of_clients = Net::read().ports.unwrap();
            assert!(port(here(3), Some(LOWEST + ENOUGH)) >= of_clients.0);
            drop(taken);
        }
    }
}
