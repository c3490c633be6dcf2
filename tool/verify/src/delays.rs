//! CPU time that processes were ready for and did not get, over a whole run in which they come and
//! go.

use jostle_sys::stat;
use std::collections::BTreeMap;

/// What was lost so far.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    threads: BTreeMap<u32, u64>,
    pub lost_ns: u64,
}

impl Delays {
    /// Adds what all threads of these processes have lost since the last look; of one that is new
    /// everything. Others are forgotten.
    pub(crate) fn look(&mut self, processes: &[u32]) {
        let threads = processes.iter().flat_map(|pid| {
            let threads = stat::threads_of(*pid).into_iter();
            threads.filter_map(|tid| Some((tid, stat::scheduled(*pid, tid)?.waited_ns)))
        });
        let now: BTreeMap<u32, u64> = threads.collect();
        self.lost_ns += lost(&self.threads, &now);
        self.threads = now;
    }
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
        assert_eq!(
            lost(&of(&[(1, 10), (2, 50)]), &of(&[(1, 13), (2, 7), (3, 5)])),
            3 + 7 + 5
        );
    }
}
