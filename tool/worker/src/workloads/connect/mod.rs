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

/// So many connections before each listed number have a stretch of their own: those made
/// with about as many open as listed.
pub const LAST: u64 = 100;

/// Numbers of connections at which a new stretch of histograms begins: each
/// listed number, [`LAST`] before it, and the decades below the greatest.
pub fn stretches(listed: &[u64]) -> Vec<u64> {
    let most = listed.iter().copied().max().unwrap_or(0);
    let decades = (1..)
        .map(|power| 10_u64.pow(power))
        .take_while(|n| *n < most);
    let last = listed.iter().filter_map(|n| n.checked_sub(LAST));
    let last = last.filter(|n| *n > 0);
    let mut ends: Vec<u64> = listed.iter().copied().chain(decades).chain(last).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// The decade of connection number `nth` (from 1): `1..10`, `10..100`, `1k..10k`.
pub fn decade(nth: u64) -> String {
    let low = 10_u64.pow(nth.max(2).ilog10_below());
    format!("{}..{}", short(low), short(low * 10))
}

/// The decade that a count belongs to, its upper end included.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_change_at_listed_numbers_and_at_decades() {
        let table: &[(&[u64], &[u64])] = &[
            (&[5], &[5]),
            (&[1000], &[10, 100, 900, 1000]),
            (
                &[1000, 5000, 14_000],
                &[10, 100, 900, 1000, 4900, 5000, 10_000, 13_900, 14_000],
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
}
