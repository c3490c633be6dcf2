//! How far the clock of another host is from ours.
//!
//! The other's clock was read between the sending of a question and the coming of its
//! answer, so that each exchange bounds the offset from both sides, whatever the two ways
//! took (Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989).
//! The bounds of all exchanges hold at once: the remaining uncertainty is half the sum of
//! the shortest way there and the shortest way back, and a slow exchange costs nothing. The
//! exchanges themselves are made in `first`.

use crate::hosts::Offset;

/// How fast two clocks may part, in parts in a million: the kernel lets a time daemon
/// turn `CLOCK_MONOTONIC` by 500 (adjtimex(2)), and crystals add up to 100 between
/// them.
const DRIFT_PPM: u64 = 600;

/// One question and its answer, in nanoseconds of either clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    /// Ours, before the question.
    pub sent: u64,
    /// The other's, in between.
    pub there: u64,
    /// Ours, after the answer.
    pub back: u64,
}

/// The bounds from exchanges of one moment: the other's clock less ours lies between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// At the least.
    pub low: i64,
    /// At the most.
    pub high: i64,
    /// The moment, by our clock.
    pub at: u64,
}

/// The drift that so long may have caused between the clocks.
fn drift(elapsed: u64) -> i64 {
    (elapsed / 1_000_000 * DRIFT_PPM + elapsed % 1_000_000 * DRIFT_PPM / 1_000_000 + 1) as i64
}

/// The bounds in which all exchanges agree, for the moment of the last one. None
/// without an exchange, or if they do not agree: then a clock jumped.
pub(super) fn bounds(exchanges: &[Exchange]) -> Option<Bounds> {
    let at = exchanges.last()?.back;
    let (mut low, mut high) = (i64::MIN, i64::MAX);
    for exchange in exchanges {
        let ahead = |ours: u64| exchange.there.wrapping_sub(ours) as i64;
        let since = drift(at.saturating_sub(exchange.sent));
        low = low.max(ahead(exchange.back) - since);
        high = high.min(ahead(exchange.sent) + since);
    }
    (low <= high).then_some(Bounds { low, high, at })
}

impl Bounds {
    /// The best guess, and how far it may be wrong, if `now` is a while later.
    pub(super) fn offset(self, now: u64) -> Offset {
        let since = drift(now.saturating_sub(self.at));
        middle(self.low - since, self.high + since)
    }

    /// The offset at any time between two measurements: all that the bounds of either
    /// allow. A clock that is slewed moves from the one to the other in between. So does
    /// one that jumped, and the bounds are then as wide as the jump.
    pub(super) fn between(before: Bounds, after: Bounds) -> Offset {
        middle(before.low.min(after.low), before.high.max(after.high))
    }
}

fn middle(low: i64, high: i64) -> Offset {
    let half = (high - low) / 2;
    Offset {
        ahead_ns: low + half,
        within_ns: (high - low - half).unsigned_abs(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The exchange that goes out at `sent`, takes so long there and back, with the
    /// other's clock ahead by so much.
    fn exchange(sent: u64, there: u64, back: u64, ahead: i64) -> Exchange {
        Exchange {
            sent,
            there: (sent + there).wrapping_add_signed(ahead),
            back: sent + there + back,
        }
    }

    fn holds(offset: Offset, truth: i64) -> bool {
        offset.ahead_ns.abs_diff(truth) <= offset.within_ns
    }

    #[test]
    fn the_truth_lies_within_whatever_the_ways_took() {
        for truth in [0, 12_345_678, -86_400_000_000_000, 5] {
            for (there, back) in [(50_000, 50_000), (10_000, 90_000), (0, 100_000)] {
                let all: Vec<Exchange> = (0..100)
                    .map(|nth| exchange(MS * 10 + nth * 100_000, there, back, truth))
                    .collect();
                let bounds = bounds(&all).unwrap();
                let offset = bounds.offset(bounds.at);
                assert!(holds(offset, truth), "{truth} {there} {back}: {offset:?}");
                // Half the round trip, and hardly more.
                let within = offset.within_ns;
                assert!((50_000..52_000).contains(&within), "{within}");
            }
        }
    }

    #[test]
    fn slow_exchanges_cost_nothing_and_the_quick_way_of_either_counts() {
        let slow = exchange(0, 5 * MS, 9 * MS, 70);
        // Quick there, quick back, never both.
        let there = exchange(20 * MS, 1_000, 400_000, 70);
        let back = exchange(21 * MS, 400_000, 1_000, 70);
        let bounds = bounds(&[slow, there, back]).unwrap();
        let offset = bounds.offset(bounds.at);
        assert!(holds(offset, 70));
        assert!(offset.within_ns < 3_000, "{offset:?}");
    }

    #[test]
    fn a_clock_that_jumps_while_it_is_read_is_not_read() {
        let all = [
            exchange(0, 1_000, 1_000, 0),
            exchange(MS, 1_000, 1_000, 5 * MS as i64),
        ];
        assert_eq!(bounds(&all), None);
        assert_eq!(bounds(&[]), None);
    }

    #[test]
    fn a_bracket_holds_all_that_happened_between() {
        let at = |ms: u64, truth: i64| bounds(&[exchange(ms * MS, 10_000, 10_000, truth)]).unwrap();
        // A crystal of 20 ppm over 5 s.
        let (before, after) = (at(0, 0), at(5_000, 100_000));
        let offset = Bounds::between(before, after);
        for truth in [0, 30_000, 100_000] {
            assert!(holds(offset, truth), "{truth}: {offset:?}");
        }
        // A virtual machine that was paused for 2 s.
        let after = at(5_000, -2_000_000_000);
        let offset = Bounds::between(before, after);
        assert!(holds(offset, 0) && holds(offset, -2_000_000_000));
    }

    #[test]
    fn an_old_measurement_is_worth_less() {
        let bounds = bounds(&[exchange(0, 10_000, 10_000, 0)]).unwrap();
        let later = bounds.offset(bounds.at + 1_000 * MS);
        assert_eq!(
            later.within_ns / 1_000,
            610,
            "600 ppm of a second: {later:?}"
        );
    }
}
