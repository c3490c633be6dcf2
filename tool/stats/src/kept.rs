//! Locks that were kept for a time, over the runs of a point.

use jostle_model::record::{Kept, Run};

/// The locks kept at a point. What it cost are figures (`figures.rs`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeptSummary {
    /// Locks of all workers.
    pub locks: u64,
    /// Whether anything had to be renewed.
    pub leased: bool,
    /// TCP connections of the workers.
    pub connections: Option<u64>,
    /// The greatest lateness of a renewal, over all runs.
    pub latest_ns: Option<u64>,
    /// Locks of all runs whose lease ended while they were held.
    pub lapsed: u64,
}

/// Over the runs of a point; None where nothing was kept.
pub fn summarize(runs: &[&Run]) -> Option<KeptSummary> {
    let kept = || runs.iter().filter_map(|run| run.kept.as_deref());
    let first = kept().next()?;
    Some(KeptSummary {
        locks: first.locks,
        leased: first.lease_s.is_some(),
        connections: first.connections,
        latest_ns: kept().filter_map(Kept::latest_ns).max(),
        lapsed: kept().map(|kept| kept.lapsed).sum(),
    })
}
