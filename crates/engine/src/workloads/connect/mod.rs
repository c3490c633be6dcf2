//! `connect`: one client process after the other opens connections, one or
//! several servers accept them, until as many are open as asked for.
//!
//! There is one stream of connections, in order, so that "how many were open" is
//! exact for each. A process carries as many as its limit on descriptors allows
//! and hands over to the next; what it keeps of a connection is its descriptor,
//! and everything measured goes into a few histograms that all processes share
//! ([`board`]). At each listed number the client rests until the keeper has read
//! its figures. Not for deciding anything: the keeper does.

pub mod board;
pub mod client;
pub mod listener;
pub mod server;

/// Descriptors of a process that are not connections, where nobody has counted
/// them: the standard ones, the keeper's, an epoll.
pub const RESERVE: u64 = 32;

/// Numbers of connections at which a new stretch of histograms begins: each
/// listed number, and the decades below the greatest.
pub fn stretches(listed: &[u64]) -> Vec<u64> {
    let most = listed.iter().copied().max().unwrap_or(0);
    let decades = (1..)
        .map(|power| 10_u64.pow(power))
        .take_while(|n| *n < most);
    let mut ends: Vec<u64> = listed.iter().copied().chain(decades).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// The decade of connection number `nth` (from 1): `1..10`, `10..100`, `1k..10k`.
pub fn decade(nth: u64) -> String {
    let low = 10_u64.pow(nth.max(2).ilog10_below());
    format!("{}..{}", short(low), short(low * 10))
}

/// Which decade a count belongs to, its upper end included.
trait Below {
    fn ilog10_below(self) -> u32;
}

impl Below for u64 {
    fn ilog10_below(self) -> u32 {
        (self - 1).ilog10()
    }
}

fn short(n: u64) -> String {
    match n {
        n if n >= 1_000_000 && n.is_multiple_of(1_000_000) => format!("{}M", n / 1_000_000),
        n if n >= 1_000 && n.is_multiple_of(1_000) => format!("{}k", n / 1_000),
        n => n.to_string(),
    }
}

/// How many processes of each kind a sweep takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crew {
    /// Those that connect.
    pub clients: usize,
    /// Those that accept; none where the server is another's.
    pub servers: usize,
    /// Those that hold other listening sockets.
    pub listeners: usize,
    /// Connections that each can carry.
    pub each: u64,
}

/// What the number of processes follows from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Connections.
    pub open: u64,
    /// Other sockets that listen.
    pub listeners: u64,
    /// Processes that accept at the same time; 0 where nobody of ours accepts.
    pub acceptors: u64,
    /// Descriptors of each process that are no connections.
    pub reserve: u64,
    /// Descriptors that each process may have; None: as many as it likes.
    pub limit: Option<u64>,
}

impl Size {
    /// The processes; None if one could not carry a single connection.
    pub fn crew(&self) -> Option<Crew> {
        let limit = self.limit.unwrap_or(1 << 20);
        let each = limit.checked_sub(self.reserve).filter(|n| *n > 0)?;
        let needed = |n: u64| n.div_ceil(each) as usize;
        Some(Crew {
            clients: needed(self.open),
            // However unevenly they are dealt, so many can carry them all.
            servers: match self.acceptors {
                0 => 0,
                acceptors => needed(self.open) + acceptors as usize,
            },
            listeners: needed(self.listeners),
            each,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_change_at_listed_numbers_and_at_decades() {
        let table: &[(&[u64], &[u64])] = &[
            (&[5], &[5]),
            (&[1000], &[10, 100, 1000]),
            (
                &[1000, 5000, 14_000],
                &[10, 100, 1000, 5000, 10_000, 14_000],
            ),
        ];
        for (listed, ends) in table {
            assert_eq!(stretches(listed), *ends);
        }
    }

    #[test]
    fn a_decade_ends_with_its_round_number() {
        for (nth, name) in [
            (1, "1..10"),
            (10, "1..10"),
            (11, "10..100"),
            (1_000, "100..1k"),
            (1_001, "1k..10k"),
            (1_000_000, "100k..1M"),
        ] {
            assert_eq!(decade(nth), name, "{nth}");
        }
    }

    #[test]
    fn processes_follow_from_the_limit_on_descriptors() {
        let of = |open, limit| {
            let size = Size {
                open,
                listeners: 50_000,
                acceptors: 1,
                reserve: 40,
                limit: Some(limit),
            };
            size.crew()
        };
        let million = of(1_000_000, 20_000).unwrap();
        assert_eq!(
            (million.clients, million.servers, million.each),
            (51, 52, 19_960)
        );
        assert_eq!(million.listeners, 3);
        assert_eq!(of(100, 20_000).unwrap().clients, 1);
        assert_eq!(of(1, 40), None, "not one descriptor is left");
        let alone = Size {
            open: 100,
            reserve: 1,
            ..Size::default()
        };
        assert_eq!(alone.crew().unwrap().servers, 0, "the server is another's");
    }
}
