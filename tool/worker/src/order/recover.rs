//! One fault of `recover`, and what it yields.

use jostle_model::plan::Fault;
use jostle_model::record::{Delays, Event, Struck};
use jostle_model::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One fault, struck while one process owns a lock and others wait for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecoverOrder {
    /// As typed.
    pub target: String,
    /// The fault that strikes.
    pub fault: Fault,
    /// Processes that wait.
    pub waiters: usize,
    /// How long the next grant is waited for.
    pub within: Nanos,
    /// How long what is stopped stays so.
    pub pause: Nanos,
    /// The lease of locks that have one.
    pub lease: Nanos,
    /// Whether clients renew what they hold where the field's do.
    pub renews: bool,
    /// Servers of a cluster that is launched.
    pub members: usize,
    /// Replicas that must have a lock before it counts as granted.
    pub wait_replicas: usize,
    /// The file with name and password for servers of the user's.
    pub credentials: Option<String>,
    /// Slack of each process's timers.
    pub timer_slack: Nanos,
    /// The seed of the time at which the fault strikes.
    pub seed: u64,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecoverData {
    /// In the order of time, without the ends of leases.
    pub history: Vec<Event>,
    /// The lease that locks had.
    pub lease_ns: Option<u64>,
    /// By so much it may end early.
    pub lease_step_ns: Option<u64>,
    /// When the owner asked for its lease.
    pub leased_at_ns: Option<u64>,
    /// Who was struck.
    pub struck: Struck,
    /// Around the call that struck.
    pub struck_ns: (u64, u64),
    /// When what was struck went on.
    pub returned_ns: Option<u64>,
    /// After so long the server asks the owner's host whether it lives, where its connection is
    /// lost for good; 0: never.
    pub keepalive_s: Option<u64>,
    /// The time taken from the next owner and the service until they had granted.
    pub delays: Option<Delays>,
    /// From the first fork until all were ready.
    pub ramp_ns: u64,
    /// From the first acquisition to the last process's end.
    pub took_ns: u64,
    /// Processes that ended otherwise than they should, in words.
    pub deaths: Vec<String>,
    /// Facts about the target's set-up, by name.
    pub setup: BTreeMap<String, f64>,
}
