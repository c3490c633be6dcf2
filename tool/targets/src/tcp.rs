//! `tcp`: connections over TCP. Without an address the server is ours, on
//! loopback; with one, any server that accepts.

use crate::SetupError;
use crate::endpoint::{Address, Endpoint, Wanted};
use crate::table::{Entry, Family};
use std::net::{SocketAddr, ToSocketAddrs};

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "tcp",
    argument: Some("//HOST:PORT"),
    check_argument: |argument| argument.map_or(Ok(()), |place| split(place).map(|_| ())),
    family: Family::Connection,
    summary: "connections over TCP; without an address, to a server of our own on loopback",
    details: "Server and clients in as many processes as the limit on descriptors demands, on \
              127.0.0.1 and from 127.0.0.0/8. With an address the client side alone is made, \
              towards any server that accepts; HOST may be a name, and the port is one.",
    ..Entry::PLAIN
};

/// Ports below the kernel's default range for clients, and above the usual ports of
/// servers.
const FIRST_PORT: u64 = 10_000;
const LAST_PORT: u64 = 32_767;

/// `//HOST:PORT`.
fn split(place: &str) -> Result<(&str, u16), String> {
    let wrong = || format!("`{place}` is no address; write tcp://HOST:PORT");
    let rest = place.strip_prefix("//").ok_or_else(wrong)?;
    let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match port.parse() {
        Ok(port) if port > 0 && !host.is_empty() => Ok((host, port)),
        _ => Err(wrong()),
    }
}

/// Its endpoint.
///
/// # Errors
/// A name that leads nowhere.
pub(crate) fn endpoint(wanted: &Wanted<'_>) -> Result<Endpoint, SetupError> {
    let addresses = match wanted.argument {
        Some(place) => vec![resolved(place)?],
        None => own_ports(wanted),
    };
    Ok(Endpoint {
        addresses: addresses.into_iter().map(Address::Ip).collect(),
        embedded: wanted.argument.is_none(),
    })
}

fn resolved(place: &str) -> Result<SocketAddr, SetupError> {
    let (host, port) = split(place).map_err(SetupError)?;
    let mut found = (host, port)
        .to_socket_addrs()
        .map_err(|error| SetupError(format!("cannot find {host}: {error}; write its number")))?;
    found
        .next()
        .ok_or_else(|| SetupError(format!("{host} has no address; write its number")))
}

/// Consecutive ports outside of the clients' range, as many as wanted. Each seed has other
/// ports, because the closed connections of an earlier run are in TIME_WAIT towards that
/// run's ports.
fn own_ports(wanted: &Wanted<'_>) -> Vec<SocketAddr> {
    let (first, last) = match wanted.avoid {
        Some(range) if u64::from(range.low) <= FIRST_PORT => {
            // There is no room below the range: use ports above it if there is room,
            // otherwise any.
            let above = u64::from(range.high) + 1;
            if above + wanted.ports as u64 + 256 < 65_536 {
                (above, 65_535)
            } else {
                (FIRST_PORT, 65_535)
            }
        }
        Some(range) => (FIRST_PORT, u64::from(range.low) - 1),
        None => (FIRST_PORT, LAST_PORT),
    };
    let room = (last - first + 1)
        .saturating_sub(wanted.ports as u64)
        .max(1);
    let start = first + wanted.seed % room;
    (0..wanted.ports as u64)
        .map(|nth| SocketAddr::from(([127, 0, 0, 1], (start + nth).min(65_535) as u16)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::connect::PortRange;

    #[test]
    fn addresses_are_read_as_typed() {
        let table = [
            ("//127.0.0.1:80", Ok(("127.0.0.1", 80))),
            ("//[::1]:80", Ok(("::1", 80))),
            ("//host.example:8080", Ok(("host.example", 8080))),
            ("127.0.0.1:80", Err(())),
            ("//127.0.0.1", Err(())),
            ("//:80", Err(())),
            ("//h:0", Err(())),
            ("//h:70000", Err(())),
        ];
        for (place, expected) in table {
            assert_eq!(split(place).map_err(|_| ()), expected, "{place}");
        }
        assert!(split("h").unwrap_err().contains("tcp://HOST:PORT"));
    }

    #[test]
    fn our_own_ports_lie_outside_of_the_clients() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = jostle_sys::ledger::Ledger::create_in(directory.path()).unwrap();
        for (low, high) in [(32_768, 60_999), (1_024, 60_999), (20_000, 65_535)] {
            for seed in [0, 7, u64::MAX] {
                let range = PortRange { low, high };
                let wanted = Wanted {
                    argument: None,
                    ledger: &ledger,
                    ports: 8,
                    avoid: Some(range),
                    seed,
                };
                let ports = own_ports(&wanted);
                assert_eq!(ports.len(), 8);
                for port in ports.iter().map(SocketAddr::port) {
                    assert!(!(low..=high).contains(&port), "{port} in {range}");
                }
            }
        }
    }
}
