//! Requests in flight that are spread over generators.

use super::Waits;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The load of a thread that generates requests: a generator thread, the busiest of workers
/// with a thread each, or the busiest thread of a generator of `spread`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadLoad {
    /// (CPU time + time runnable but not running) / its wall time; for `spread` [the greatest of
    /// three shares](method/generators.md#how-busy-was-a-generator).
    pub busy_share: f64,
    /// Time runnable but not running / its wall time.
    pub runqueue_share: f64,
    /// Further facts about a generator that is a process (`spread`).
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub process: Option<GeneratorProcess>,
}

/// A generator of `spread`.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorProcess {
    /// Rank of its host, where there are several.
    pub rank: Option<u64>,
    /// Requests that it keeps in flight.
    pub workers: u64,
    /// Requests that it completed within the window.
    pub operations: u64,
    /// Its CPU time within the window.
    pub cpu_s: Option<f64>,
    /// Share of the periods within the window in which its own quota ran out;
    /// absent without a quota.
    pub throttled_share: Option<f64>,
    /// Share of the window in which it stood still: it neither ran nor waited for
    /// a CPU, though it was due.
    pub still_share: f64,
}

/// Figures about keeping a number of requests in flight.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many there should have been at any time.
    pub in_flight: u64,
    /// How many there were, [on
    /// average](method/generators.md#how-many-requests-really-were-in-flight).
    pub effective: f64,
    /// How many of them were not in their own worker's hands; absent without schedstat.
    pub at_server: Option<f64>,
    /// CPUs' worth of time that each generator was given; absent: no limit.
    pub generator_cpu: Option<f64>,
    /// The successes as in `service_ns`, and as censored the requests that the window's end cut
    /// off.
    pub response_ns: Option<Waits>,
    /// Whether generators and server can take CPU time from each other (false) or
    /// [not](method/generators.md#when-are-cpu-budgets-disjoint) (true).
    pub disjoint: Option<bool>,
    /// How that is known, or why not, in words.
    pub budgets: String,
    /// It is known only because the server's address belongs to none of the hosts.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub by_address: bool,
}
