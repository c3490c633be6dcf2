//! CPU time that processes were ready for and did not get, over a whole run in which they come and
//! go.

use jostle_sys::stat;
use std::collections::BTreeMap;

/// The losses of a run.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    threads: BTreeMap<u32, u64>,
    /// The time of each look, and what was lost since the one before.
    looks: Vec<(u64, u64)>,
}

impl Delays {
    /// Adds what all threads of these processes have lost since the last look; of one that is new
    /// everything. Others are forgotten. Whatever all of them lose together, it delays nobody for
    /// longer than the time between the two looks.
    pub(crate) fn look(&mut self, at_ns: u64, processes: &[u32]) {
        let threads = processes.iter().flat_map(|pid| {
            let threads = stat::threads_of(*pid).into_iter();
            threads.filter_map(|tid| Some((tid, stat::scheduled(*pid, tid)?.waited_ns)))
        });
        let now: BTreeMap<u32, u64> = threads.collect();
        let before_ns = self.looks.last().map_or(0, |(at_ns, _)| *at_ns);
        let lost_ns = lost(&self.threads, &now).min(at_ns.saturating_sub(before_ns));
        self.looks.push((at_ns, lost_ns));
        self.threads = now;
    }

    /// By how much a wait may have been delayed that would have taken so long without: the least D
    /// such that no stretch of that time and D has lost more than D.
    pub(crate) fn of_a_wait(&self, took_ns: u64) -> u64 {
        let mut delay_ns = 0;
        loop {
            let most_ns = most_within(&self.looks, took_ns + delay_ns);
            if most_ns <= delay_ns {
                return delay_ns;
            }
            delay_ns = most_ns;
        }
    }
}

/// The greatest loss in any stretch of so many nanoseconds; looks count whole at both its ends.
fn most_within(looks: &[(u64, u64)], width_ns: u64) -> u64 {
    let (mut from, mut sum_ns, mut most_ns) = (0, 0, 0);
    for (nth, (_, lost_ns)) in looks.iter().enumerate() {
        sum_ns += lost_ns;
        most_ns = most_ns.max(sum_ns);
        let began_ns = nth.checked_sub(1).map_or(0, |before| looks[before].0);
        while from < nth && looks[from].0 + width_ns <= began_ns {
            sum_ns -= looks[from].1;
            from += 1;
        }
    }
    most_ns
}

/// The system may give a thread's number to another one, which has lost less.
fn lost(before: &BTreeMap<u32, u64>, now: &BTreeMap<u32, u64>) -> u64 {
    let each = now.iter().map(|(tid, waited)| {
        let earlier = before.get(tid).filter(|earlier| *earlier <= waited);
        waited - earlier.unwrap_or(&0)
    });
    each.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_counts_whole_and_what_was_there_by_its_growth() {
        let of = |threads: &[(u32, u64)]| threads.iter().copied().collect();
        let now = of(&[(1, 13), (2, 7), (3, 5)]);
        assert_eq!(lost(&of(&[(1, 10), (2, 50)]), &now), 3 + 7 + 5);
    }

    #[test]
    fn a_wait_is_delayed_by_what_is_lost_while_it_lasts() {
        let delay = |each: fn(u64) -> u64, took_ns| {
            let looks = (1..100).map(|nth| (10 * nth, each(nth))).collect();
            let threads = BTreeMap::new();
            Delays { threads, looks }.of_a_wait(took_ns)
        };
        assert_eq!(delay(|_| 0, 100), 0);
        // One loss delays a wait once, however long the run.
        assert_eq!(delay(|nth| if nth == 50 { 9 } else { 0 }, 100), 9);
        // Half of the time lost makes a wait twice as long, and a little for the looks at its ends.
        let half = delay(|_| 5, 100);
        assert!((100..=120).contains(&half), "{half}");
        // All of it: as long as the run.
        assert_eq!(delay(|_| 10, 100), 990);
    }
}
