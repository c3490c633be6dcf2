//! Connections that wait for answers, and whether a server answers them in turn: one after the
//! other, at even intervals. It does so where all requests need the same lock, or wait in one queue.
//!
//! Where each request waits for a time of its own, answers come whenever they come: some close
//! together, and others far apart.

use jostle_sys::sock_diag::Carried;
use std::collections::BTreeMap;

/// The connections to one server: how many segments are missing when an answer is owed, and how
/// many when none is, by the looks at which the clock told.
#[derive(Clone, Debug, Default)]
pub(super) struct Owed(BTreeMap<i64, [u32; 2]>);

impl Owed {
    /// Looks at which an answer was owed for one at which none was, of the same missing segments.
    const SURE: u32 = 4;

    /// Whether a connection awaits an answer; None where neither the clock tells, nor what other
    /// connections and looks have shown.
    pub(super) fn awaits(&mut self, carried: Carried) -> Option<bool> {
        let known = carried.awaits_answer();
        let Some(missing) = carried.missing_segments() else {
            return known;
        };
        match known {
            Some(is_owed) => {
                self.0.entry(missing).or_default()[usize::from(!is_owed)] += 1;
                known
            }
            None => {
                let [owed, not] = self.0.get(&missing)?;
                (*owed > 0 && *owed >= Owed::SURE * not).then_some(true)
            }
        }
    }
}

/// Fewer answers may stand at even distances by chance.
const FEWEST: usize = 8;

/// The kernel tells the age of an answer in ticks: at a shorter distance all look even.
const TICKS: f64 = 2.0;

/// A part of the usual distance: with ages drawn at random all of eight are further apart in 3 % of
/// the looks.
const APART: f64 = 0.6;

/// Counts the answers that are further from the next one than a part of their median distance, the
/// first one included. `ages_ms` has the age of the latest answer, in milliseconds, of each
/// connection that waits for another. A lock that is not fair leaves some behind, so that the mean tells less. 0 where
/// there are too few of them, or they are too close to tell.
pub(super) fn in_turn(ages_ms: &mut [u32], tick_ms: f64) -> usize {
    ages_ms.sort_unstable();
    let distances: Vec<u32> = ages_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut sorted = distances.clone();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len().saturating_sub(1) / 2);
    let median = median.copied().map_or(0.0, f64::from);
    if ages_ms.len() < FEWEST || median < TICKS * tick_ms {
        return 0;
    }
    let is_apart = |distance: &&u32| f64::from(**distance) > APART * median;
    1 + distances.iter().filter(is_apart).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_whose_clock_does_not_tell_is_known_by_the_others() {
        let mut owed = Owed::default();
        let mut awaits = |sent, received, idle_ms: [u32; 2]| {
            owed.awaits(Carried {
                idle_ms,
                acknowledged_ms: idle_ms[1],
                data_segments: [sent, received],
                ..Carried::default()
            })
        };
        // MariaDB speaks first: as many answers as requests are one too few.
        assert_eq!(awaits(20, 20, [60, 60]), None);
        assert_eq!(awaits(9, 9, [4, 8]), Some(true));
        assert_eq!(awaits(9, 10, [8, 4]), Some(false));
        assert_eq!(awaits(20, 20, [60, 60]), Some(true));
        assert_eq!(awaits(20, 21, [60, 60]), None);
        // Where looks contradict one another, nothing is known.
        assert_eq!(awaits(9, 9, [8, 4]), Some(false));
        assert_eq!(awaits(20, 20, [60, 60]), None);
    }

    #[test]
    fn answers_of_a_lock_come_in_turn_and_those_of_timers_do_not() {
        for (ages_ms, count) in [
            // Met in MariaDB: eight clients of one GET_LOCK for 10 ms, and of SLEEP(0.08).
            ([8, 24, 32, 48, 60, 72, 88, 100], 8),
            ([92, 20, 36, 44, 60, 68, 84, 12], 8),
            ([4, 8, 8, 12, 12, 12, 12, 16], 0),
            ([8, 8, 8, 8, 12, 12, 12, 80], 0),
            // Met in Python, whose lock is not fair.
            ([28, 68, 108, 148, 232, 272, 316, 760], 8),
            // Timers that began one after the other.
            ([2, 5, 30, 31, 40, 66, 70, 79], 5),
            // A lock for 4 ms, which is one tick.
            ([0, 4, 8, 12, 16, 20, 24, 28], 0),
        ] {
            assert_eq!(in_turn(&mut ages_ms.clone(), 4.0), count, "{ages_ms:?}");
        }
        assert_eq!(in_turn(&mut [10, 20, 30, 40, 50], 4.0), 0);
        assert_eq!(in_turn(&mut [], 4.0), 0);
    }
}
