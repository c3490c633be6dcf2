//! One run of `rate`, and what became of its requests.

use super::{Merged, RequestOrder};
use jostle_model::plan::Arrivals;
use jostle_model::time::Nanos;
use serde::{Deserialize, Serialize};

/// Requests are sent when they are due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateOrder {
    /// What is asked.
    pub requests: RequestOrder,
    /// When.
    pub open_loop: OpenLoopOrder,
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

/// What became of the requests that were due in the window, and how late they
/// were: see [`jostle_model::open_loop::OpenLoop`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenLoopData {
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
