//! One run of `spread`, and what its generators yield.

use super::RequestOrder;
use serde::{Deserialize, Serialize};

/// Requests are kept in flight, one for each worker, by processes whose threads are the
/// workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpreadOrder {
    /// The requests.
    pub requests: RequestOrder,
    /// These processes, over which workers are spread.
    pub generators: usize,
    /// CPUs' worth of time that each of them gets; None: no limit.
    pub generator_cpu: Option<f64>,
}

/// The record of keeping requests in flight over generators, within the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpreadData {
    /// Time that requests were in flight, all workers together.
    pub in_flight_ns: u64,
    /// The part of it in which their generators stood still.
    pub still_ns: u64,
    /// The CPUs of generators and server, for each machine with generators.
    pub sides: Vec<Sides>,
}

/// The CPUs of generators and server, as known on one machine.
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
    /// CPUs' worth of time that the server has, at most.
    pub server_quota: Option<f64>,
}
