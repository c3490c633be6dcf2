//! The cost of a held lock over the runs of a point.

use crate::intervals::estimate;
use crate::summary::Estimate;
use jostle_model::record::{Kept, Run};

/// What keeping its locks cost at a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeptSummary {
    /// Locks of all workers.
    pub locks: u64,
    /// Whether anything had to be renewed.
    pub leased: bool,
    /// Renewals of one lock in a minute.
    pub renewals: Option<Estimate>,
    /// The workers' CPU time for one lock in a minute, in microseconds.
    pub cpu_us: Option<Estimate>,
    /// The same of the server.
    pub server_cpu_us: Option<Estimate>,
    /// The same without what the server uses while it has no locks.
    pub own_server_cpu_us: Option<Estimate>,
    /// What the server's memory grew by for one lock, in bytes.
    pub memory_bytes: Option<Estimate>,
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
    let over_runs = |figure: fn(&Kept) -> Option<f64>| {
        let values: Vec<f64> = kept().filter_map(figure).collect();
        estimate(&values)
    };
    Some(KeptSummary {
        locks: first.locks,
        leased: first.lease_s.is_some(),
        renewals: over_runs(Kept::renewals_per_minute),
        cpu_us: over_runs(Kept::cpu_us_per_minute),
        server_cpu_us: over_runs(Kept::server_cpu_us_per_minute),
        own_server_cpu_us: over_runs(Kept::own_server_cpu_us_per_minute),
        memory_bytes: over_runs(Kept::server_memory_bytes_each),
        connections: first.connections,
        latest_ns: kept().filter_map(Kept::latest_ns).max(),
        lapsed: kept().map(|kept| kept.lapsed).sum(),
    })
}
