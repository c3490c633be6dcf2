//! Whether a server is on this machine or on another one, judging by its address.
//!
//! A container or another namespace on this machine has addresses of its own, so that
//! `elsewhere` is no proof. Its callers therefore also check the machine's CPU time.

use crate::Spec;
use crate::address::is_here;
use crate::table::Family;
use jostle_sys::serving::Address;
use std::net::{IpAddr, ToSocketAddrs};

/// Families whose argument, where it is a path, is a socket's.
const SOCKETS: &[Family] = &[Family::Connection, Family::Service, Family::Specimen];

impl Spec {
    /// The address of its server on this machine, as typed. None if the server is on
    /// another machine, if jostle launches it, or if there is no server.
    pub fn address(&self) -> Option<Address> {
        let argument = self.argument.as_deref()?;
        match authority(argument) {
            Some(_) if self.is_elsewhere() => None,
            Some(_) => self.port().map(Address::Port),
            None if SOCKETS.contains(&self.entry.family) && argument.starts_with('/') => {
                Some(Address::Unix(argument.to_owned()))
            }
            None => None,
        }
    }

    /// The port of its server where that has an address of another machine, which may be another
    /// network namespace of this one.
    pub fn port_elsewhere(&self) -> Option<u16> {
        self.port().filter(|_| self.is_elsewhere())
    }

    fn port(&self) -> Option<u16> {
        let named = authority(self.argument.as_deref()?)?;
        let usual = || crate::requests(self.entry)?.usual_port;
        port(named).or_else(usual)
    }

    /// Whether its server is reached over the loopback interface, as launched servers are.
    pub fn is_on_loopback(&self) -> bool {
        let place = self.argument.as_deref().and_then(authority);
        let found = place.and_then(addresses);
        found.is_none_or(|found| found.iter().all(|address| address.is_loopback()))
    }

    /// Whether the target is a server with an address that is none of this host's.
    pub fn is_elsewhere(&self) -> bool {
        self.argument
            .as_deref()
            .and_then(authority)
            .and_then(addresses)
            .is_some_and(|found| !found.is_empty() && !found.into_iter().any(is_here))
    }
}

/// `HOST:PORT` or `HOST` of `//USER@HOST:PORT/...`.
fn authority(argument: &str) -> Option<&str> {
    let schemes = ["", "https:", "rediss:"];
    let is_scheme = |before: &str| schemes.contains(&before);
    let (_, rest) = argument
        .split_once("//")
        .filter(|(before, _)| is_scheme(before))?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let host = rest[..end].rsplit('@').next()?;
    (!host.is_empty()).then_some(host)
}

fn port(authority: &str) -> Option<u16> {
    authority.rsplit_once(':')?.1.parse().ok()
}

fn addresses(authority: &str) -> Option<Vec<IpAddr>> {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => authority,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    // The port plays no part.
    let found = (host, 0).to_socket_addrs().ok()?;
    Some(found.map(|address| address.ip()).collect())
}

#[cfg(test)]
mod live_tests {
    use super::*;

    #[test]
    fn an_address_of_no_interface_of_ours_is_elsewhere() {
        // 192.0.2.0/24 is nobody's (RFC 5737).
        for (target, elsewhere) in [
            ("redis://192.0.2.1:6379", true),
            ("lockd://127.0.0.1:2626", false),
            ("lockd://localhost:2626", false),
            ("ldap://192.0.2.1/dc=x?(uid=user{n})", true),
            ("ldap://[::1]:3890/dc=x?(uid=a)", false),
            ("http://192.0.2.1:8080/a", true),
            ("lockd+unix:/run/x", false),
            ("exec:true", false),
            ("null", false),
        ] {
            let spec = Spec::parse(target).unwrap();
            assert_eq!(spec.is_elsewhere(), elsewhere, "{target}");
        }
    }

    #[test]
    fn a_server_of_this_machine_is_known_by_its_address() {
        let port = |port| Some(Address::Port(port));
        for (target, address) in [
            ("redis://127.0.0.1:6379", port(6379)),
            ("ldap://localhost/dc=x?(uid=user{n})", port(389)),
            ("https://127.0.0.1/", port(443)),
            ("http://127.0.0.1:8080/a:1", port(8080)),
            ("lockd://127.0.0.1:2626?ca=/c", port(2626)),
            ("rediss://127.0.0.1:6379", port(6379)),
            ("etcd:https://127.0.0.1:2379", port(2379)),
            (
                "lockd+unix:/run/x",
                Some(Address::Unix("/run/x".to_owned())),
            ),
            ("redis://192.0.2.1:6379", None),
            ("flock:/tmp/x", None),
            ("exec:true", None),
            ("lockd", None),
        ] {
            let spec = Spec::parse(target).unwrap();
            assert_eq!(spec.address(), address, "{target}");
        }
    }
}
