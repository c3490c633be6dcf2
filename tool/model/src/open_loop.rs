//! The record of an open loop: requests that come at a rate, whatever became of
//! those before.

use crate::record::{Distribution, Percentiles};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The requests of `rate` whose intended start lay in the window. `planned` is always the sum
/// of `done`, `failed`, `dropped` and `in_flight`. `operations` counts the successes that
/// *ended* in the window. `service_ns`, `failed_ns` and `series` go by intended start; `codes`
/// and `errors` are of the whole run.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenLoop {
    /// Intended starts within the window, by the schedule that was fixed before
    /// the run.
    pub planned: u64,
    /// Answered as expected, in the window or in the second after it.
    pub done: u64,
    /// Answered with another code, or not in time.
    pub failed: u64,
    /// Never sent.
    pub dropped: u64,
    /// Sent and not answered when the run was ended.
    pub in_flight: u64,
    /// The part of `dropped` for which there was a free slot, so that the generator could
    /// have sent them.
    pub dropped_with_slot: u64,
    /// The part of `dropped` that still waited when the window closed; the others had waited
    /// longer than `drop-after`.
    pub dropped_at_end: u64,
    /// The generator's lag: from the intended start, or from the time at which a slot was
    /// free if that was later, to the sending.
    pub generator_lag_ns: Option<Distribution>,
    /// The target's lag: from the intended start until a slot was free.
    pub target_lag_ns: Option<Distribution>,
    /// The lag of the canary, a process beside the generators that repeatedly sleeps for 1
    /// ms.
    pub canary_lag_ns: Option<Distribution>,
    /// Percentiles of the response time, with dropped requests and those in flight taken as
    /// censored.
    #[serde(skip_serializing_if = "Percentiles::is_empty", default)]
    pub response_kaplan_meier: Percentiles,
    /// Lower bounds of percentiles that are not known exactly.
    #[serde(skip_serializing_if = "Percentiles::is_empty", default)]
    pub response_at_least: Percentiles,
}

impl OpenLoop {
    /// Adds the counts of another host's generator.
    pub fn join(&mut self, other: &OpenLoop) {
        crate::joined!(self, other: planned done failed dropped in_flight dropped_with_slot
            dropped_at_end);
    }

    /// Whether every planned request is accounted for, once.
    pub fn adds_up(&self) -> bool {
        self.planned == self.done + self.failed + self.dropped + self.in_flight
    }
}
