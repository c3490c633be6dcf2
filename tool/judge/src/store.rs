//! The counts that Redis, memcached and their kin keep of their own reads, asked before and after.
//!
//! Only a server that is one by its name is asked: any other would count a request that it does
//! not understand. No password is ever sent.

use jostle_model::judged::Lookups;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// How the names of such servers begin (at most 15 bytes are known), the request, and what they
/// call hits and misses.
const KINDS: [(&[&str], &str, [&str; 2]); 2] = [
    (
        &["redis-server", "valkey-server", "keydb-server", "dragonfly"],
        "INFO stats\r\n",
        ["keyspace_hits", "keyspace_misses"],
    ),
    (&["memcached"], "stats\r\n", ["get_hits", "get_misses"]),
];

/// How long a server may take to answer: looks wait meanwhile.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 100 });

/// Longer answers are not read to their end.
const LONGEST: usize = 64 * 1024;

/// A store that has answered.
#[derive(Debug)]
pub(super) struct Store {
    port: u16,
    request: &'static str,
    names: [&'static str; 2],
    before: [u64; 2],
}

impl Store {
    /// Asks the server of this name. None where it is no store, or does not answer.
    pub(super) fn ask(name: &str, port: u16) -> Option<Store> {
        let is_it = |names: &&[&str]| names.iter().any(|known| name.starts_with(known));
        let (_, request, names) = KINDS.into_iter().find(|(names, ..)| is_it(names))?;
        Some(Store {
            before: counts(port, request, names)?,
            port,
            request,
            names,
        })
    }

    /// The counts since then. None where it does not answer, or was started anew.
    pub(super) fn since(&self) -> Option<Lookups> {
        let now = counts(self.port, self.request, self.names)?;
        Some(Lookups {
            hits: now[0].checked_sub(self.before[0])?,
            misses: now[1].checked_sub(self.before[1])?,
        })
    }
}

fn counts(port: u16, request: &str, names: [&str; 2]) -> Option<[u64; 2]> {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while answer.len() < LONGEST {
        match stream.read(&mut part).ok()? {
            0 => return None,
            length => answer.extend_from_slice(&part[..length]),
        }
        if let Some(found) = parse(&String::from_utf8_lossy(&answer), names) {
            return Some(found);
        }
    }
    None
}

/// Both counts, from whole lines `NAME:COUNT` (Redis) or `STAT NAME COUNT` (memcached).
fn parse(answer: &str, names: [&str; 2]) -> Option<[u64; 2]> {
    let whole = answer.rsplit_once("\r\n")?.0;
    let count = |name: &str| {
        let mut lines = whole.split("\r\n");
        lines.find_map(|line| {
            let line = line.strip_prefix("STAT ").unwrap_or(line);
            let (named, count) = line.split_once([':', ' '])?;
            (named == name).then(|| count.parse().ok()).flatten()
        })
    };
    Some([count(names[0])?, count(names[1])?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_counts_are_read_from_whole_lines() {
        let redis = "$40\r\n# Stats\r\nkeyspace_hits:5\r\nkeyspace_misses:170\r\n";
        let [redis_names, memcached_names] = KINDS.map(|(_, _, names)| names);
        assert_eq!(parse(redis, redis_names), Some([5, 170]));
        // The rest of the number is on its way.
        assert_eq!(parse(&redis[..redis.len() - 3], redis_names), None);
        assert_eq!(
            parse("-NOAUTH Authentication required.\r\n", redis_names),
            None
        );
        let memcached = "STAT cas_misses 9\r\nSTAT get_hits 1\r\nSTAT get_misses 2\r\nEND\r\n";
        assert_eq!(parse(memcached, memcached_names), Some([1, 2]));
    }

    mod live_tests {
        use super::*;
        use std::net::TcpListener;

        #[test]
        fn only_a_store_is_asked_and_its_counts_are_those_since() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(Store::ask("nginx", port).is_none());
            let server = std::thread::spawn(move || {
                for (hits, misses) in [(3, 10), (4, 107)] {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut request = [0; 12];
                    stream.read_exact(&mut request).unwrap();
                    assert_eq!(&request, b"INFO stats\r\n");
                    let answer =
                        format!("$9\r\nkeyspace_hits:{hits}\r\nkeyspace_misses:{misses}\r\n");
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            });
            let store = Store::ask("redis-server", port).unwrap();
            let since = store.since();
            let lookups = Lookups {
                hits: 1,
                misses: 97,
            };
            assert_eq!(since, Some(lookups));
            server.join().unwrap();
            assert_eq!(store.since(), None);
        }
    }
}
