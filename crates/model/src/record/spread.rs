//! Requests in flight that are spread over generators.

use super::Waits;
use serde::{Deserialize, Serialize};

/// How busy a thread was that keeps a target busy: a generator thread, the busiest of workers
/// that have each their own, or the busiest one of a generator of `spread`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadLoad {
    /// (CPU time + time runnable but not running) / its wall time.
    pub busy_share: f64,
    /// Time runnable but not running / its wall time.
    pub runqueue_share: f64,
    /// What else is known of a generator that is a process (`spread`).
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub process: Option<GeneratorProcess>,
}

/// A generator of `spread`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorProcess {
    /// Rank of its host, where there are several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rank: Option<u64>,
    /// Requests that it keeps in flight.
    pub workers: u64,
    /// Requests that it completed within the window.
    pub operations: u64,
    /// Its CPU time within the window.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_s: Option<f64>,
    /// Share of the periods within the window in which its own quota ran out;
    /// absent without a quota.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throttled_share: Option<f64>,
    /// Share of the window in which it stood still: it neither ran nor waited for
    /// a CPU, though it was due.
    pub still_share: f64,
}

/// What keeping so many requests in flight was like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many there should have been at any time.
    pub in_flight: u64,
    /// How many there were, on average over the window: the time that requests
    /// were in flight within it, less that of generators that stood still, over
    /// its length.
    pub effective: f64,
    /// How many of them, on average, were not in their own worker's hands: less its
    /// CPU time and its time runnable but not running.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at_server: Option<f64>,
    /// CPUs' worth of time that each generator was given; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generator_cpu: Option<f64>,
    /// Response of all requests, with those that the window's end cut off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response_ns: Option<Waits>,
    /// Whether generators and server can take CPU time from each other; absent
    /// where that is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disjoint: Option<bool>,
    /// How that is known, or why not, in words.
    pub budgets: String,
    /// It is known by the server's address alone: that is none of the hosts', so that
    /// the server is on another machine, unless CPU time here is accounted for by
    /// nobody.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub by_address: bool,
}
