//! Requests in an order, and what became of them.

use super::Merged;
use jostle_model::plan::{Arrivals, Connection};
use jostle_model::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What there is to say about requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestOrder {
    /// Codes that are a success; None: the target's own.
    pub expect: Option<Vec<u64>>,
    /// How long one may take.
    pub timeout: Nanos,
    /// Where the output of started programs goes.
    pub output: Option<String>,
    /// `{n}` runs over so many numbers; None: over all requests.
    pub numbers: Option<u64>,
    /// They come at a rate; None: each worker's as soon as it has the last answer.
    pub open_loop: Option<OpenLoopOrder>,
    /// What connections they have; None: as the target does by itself.
    pub connection: Option<Connection>,
    /// The log in which the server's own counts are read.
    pub server_log: Option<String>,
}

/// Requests that come at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenLoopOrder {
    /// So many a second.
    pub per_s: u64,
    /// How they follow each other.
    pub arrivals: Arrivals,
    /// One that finds no free slot for so long is not sent.
    pub drop_after: Nanos,
    /// When the first one is due, where requests follow at equal distances: those
    /// of several hosts take turns.
    pub first_after: Nanos,
}

/// What requests came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestYield {
    /// Their parts, in order.
    pub phases: Vec<(String, Merged)>,
    /// From sending to answer, successes.
    pub service: Merged,
    /// The same, of others.
    pub failed: Merged,
    /// Answers by their code.
    pub codes: BTreeMap<String, u64>,
    /// User and system time of the processes that were started.
    pub children_ns: (u64, u64),
    /// What became of requests that came at a rate.
    pub open_loop: Option<Box<OpenLoopYield>>,
}

/// What became of the requests that were due in the window, and how late they
/// were: see [`jostle_model::open_loop::OpenLoop`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenLoopYield {
    /// By the schedule.
    pub planned: u64,
    /// Answered as expected.
    pub done: u64,
    /// Answered otherwise, or not in time.
    pub failed: u64,
    /// Never sent.
    pub dropped: u64,
    /// The part of `dropped` for want of the generator and not of a slot.
    pub dropped_with_slot: u64,
    /// The part of `dropped` that still waited when the window closed.
    pub dropped_at_end: u64,
    /// Sent and not answered.
    pub in_flight: u64,
    /// From the intended start to the answer.
    pub response: Merged,
    /// From the intended start to the end of the run, or to being dropped.
    pub unanswered: Merged,
    /// What the generator was late by.
    pub generator_lag: Merged,
    /// What the target was late by.
    pub target_lag: Merged,
    /// What the canary was late by.
    pub canary_lag: Merged,
}
