//! How far a run has come, for the parent to show while it is still going on. Plain data;
//! the figures of the result come from [`super::RunData`] and never from here.

use super::Merged;
use serde::{Deserialize, Serialize};

/// Workers whose shares are told at most; of more, an even sample.
pub const SHARES: usize = 64;

/// One look at the pages of a run in progress. Counts and CPU times only grow, so that the
/// difference of two looks is what happened in between.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// From the opening of the window to this look.
    pub elapsed_ns: u64,
    /// Length of the window; None where a number of operations ends the run.
    pub window_ns: Option<u64>,
    /// Operations since the opening.
    pub operations: u64,
    /// Operations after which the run ends, where their number ends it.
    pub planned: Option<u64>,
    /// Operations of each worker, ascending; of more than [`SHARES`] workers an even
    /// sample with both ends. Empty where operations have no worker (`connect`).
    pub shares: Vec<u64>,
    /// How many workers there are.
    pub workers: u64,
    /// Workers without an operation.
    pub none: u64,
    /// The timed latency, by its name in a result (`acquire_ns`, `service_ns`), and all times since
    /// the opening. None where nothing is timed.
    pub latency: Option<(String, Merged)>,
    /// Acquisitions that found another owner inside; None where nobody looks.
    pub overlaps: Option<u64>,
    /// The CPU clocks.
    pub cpu: Used,
    /// The time of this look.
    pub took_ns: u64,
}

/// CPU time since processes began, by owner, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// The processes of the workers.
    pub workers_ns: u64,
    /// The processes that hold the other ends of the workers' connections; None where
    /// there is no server, or none of this machine.
    pub server_ns: Option<u64>,
    /// jostle's own processes.
    pub tool_ns: u64,
    /// All processes of the machine; None where it cannot be read.
    pub whole_ns: Option<u64>,
}

/// An even sample of these values with both ends, ascending.
pub fn shares(mut values: Vec<u64>) -> Vec<u64> {
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    match values.len() {
        0..=SHARES => values,
        _ => (0..SHARES)
            .map(|nth| values[nth * last / (SHARES - 1)])
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_workers_a_sample_keeps_both_ends() {
        assert_eq!(shares(vec![]), [0; 0]);
        assert_eq!(shares(vec![7, 3]), [3, 7]);
        assert_eq!(shares((0..64).rev().collect()).len(), 64);
        let many = shares((0..1_000).rev().collect());
        assert_eq!((many.len(), many[0], many[63]), (64, 0, 999));
        assert!(many.is_sorted());
    }
}
