//! The order for a run of `verify`, and its result.

use jostle_model::plan::Fault;
use jostle_model::record::{Promise, Verified};
use jostle_model::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run: clients call for so long, while faults strike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyOrder {
    /// As typed.
    pub target: String,
    /// Processes that call.
    pub clients: usize,
    /// Locks.
    pub keys: usize,
    /// How long; the schedule of the faults depends on it.
    pub lasts: Nanos,
    /// Ends so early, by the same schedule; None: not before its time.
    pub until: Option<Nanos>,
    /// The lease of locks that have one.
    pub lease: Nanos,
    /// Faults that strike. The parent has left out what makes no sense.
    pub faults: Vec<Fault>,
    /// The promise that the user stated: it takes the place of the target's.
    pub promise: Option<Promise>,
    /// The service that is launched for the user's own lock; its name stands in braces in the
    /// words of the target.
    pub with: Option<String>,
    /// Where the history is kept; None: in a file that ends with the run.
    pub history: Option<String>,
    /// Servers of a cluster that is launched.
    pub members: usize,
    /// Replicas that must have a lock before it counts as granted.
    pub wait_replicas: usize,
    /// The file with name and password for servers of the user's.
    pub credentials: Option<String>,
    /// The seed of all that is random.
    pub seed: u64,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VerifyData {
    /// The findings.
    pub verified: Verified,
    /// When the first violation was complete, from the start of the run.
    pub found_ns: Option<u64>,
    /// Why it ended before its time, in words: the user's wish, a full disk, a process or a
    /// service that ended by itself. What had been recorded by then was judged.
    pub cut_short: Option<String>,
    /// From the first fork until all were ready.
    pub ramp_ns: u64,
    /// From then on.
    pub took_ns: u64,
    /// Processes that ended as they should not.
    pub deaths: Vec<String>,
    /// Facts about the target.
    pub setup: BTreeMap<String, f64>,
}
