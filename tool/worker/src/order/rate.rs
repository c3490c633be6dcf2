//! One run of `rate`, and what became of its requests.

use super::{Merged, RequestOrder};
use jostle_model::open_loop::OpenLoop;
use jostle_model::plan::Arrivals;
use jostle_model::time::Nanos;
use serde::{Deserialize, Serialize};

/// Requests are sent when they are due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateOrder {
    /// The requests.
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

/// The outcomes of the requests that were due in the window, and how late they were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenLoopData {
    /// How many there were, and what became of them.
    pub counts: OpenLoop,
    /// From the intended start to the answer.
    pub response: Merged,
    /// From the intended start to the end of the run, or to being dropped.
    pub unanswered: Merged,
    /// The generator's lateness.
    pub generator_lag: Merged,
    /// The target's lateness.
    pub target_lag: Merged,
    /// The canary's lateness.
    pub canary_lag: Merged,
}

impl OpenLoopData {
    pub(super) fn join(&mut self, other: &OpenLoopData) {
        self.counts.join(&other.counts);
        self.response.join(&other.response);
        self.unanswered.join(&other.unanswered);
        self.generator_lag.join(&other.generator_lag);
        self.target_lag.join(&other.target_lag);
        self.canary_lag.join(&other.canary_lag);
    }
}
