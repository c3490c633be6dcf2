//! One run of `spread`, and what its generators yield.

use super::RequestOrder;
use serde::{Deserialize, Serialize};

/// Requests are kept in flight, one for each worker, by processes whose threads are the
/// workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpreadOrder {
    /// What is asked.
    pub requests: RequestOrder,
    /// These processes, over which workers are spread.
    pub generators: usize,
    /// CPUs' worth of time that each of them gets; None: no limit.
    pub generator_cpu: Option<f64>,
}

/// The generators over which requests were spread, within the window. Those of
/// several hosts follow each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpreadData {
    /// One after the other.
    pub generators: Vec<GeneratorData>,
    /// Time that requests were in flight, all workers together.
    pub in_flight_ns: u64,
    /// What is known of the CPUs of generators and server, of each machine with
    /// generators.
    pub sides: Vec<Sides>,
}

/// What is known on one machine of the CPUs of generators and server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sides {
    /// Whether a server answers at all.
    pub remote: bool,
    /// Whether its address is another machine's, by all that can be seen.
    pub elsewhere: bool,
    /// CPUs of the generators.
    pub generator_cpus: Vec<usize>,
    /// CPUs of the server; None: its process is not known, or not here.
    pub server_cpus: Option<Vec<usize>>,
    /// CPUs' worth of time that the generators have together, at most.
    pub generator_quota: Option<f64>,
    /// The same of the server.
    pub server_quota: Option<f64>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorData {
    /// Rank of its host, where there are several.
    pub rank: Option<u64>,
    /// Share of their CPUs that all generators of its machine used together; None:
    /// those of this data are all.
    pub of_cpus: Option<f64>,
    /// Its workers.
    pub workers: u64,
    /// Requests that they completed.
    pub operations: u64,
    /// CPU time of its process.
    pub cpu_ns: Option<u64>,
    /// Load of its busiest thread: CPU time with time on the run queue, and the latter
    /// alone, as shares of the window.
    pub busiest: Option<(f64, f64)>,
    /// Periods of its quota, and those in which it ran out.
    pub periods: Option<(u64, u64)>,
    /// Time in which it stood still.
    pub still_ns: u64,
}
