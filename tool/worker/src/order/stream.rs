//! The work of the workers of `stream` and `churn`: pairs of a lock, or requests.

use super::RequestOrder;
use jostle_model::plan::{Names, Plan};
use serde::{Deserialize, Serialize};

/// Pairs of acquire and release, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamOrder {
    /// Pairs of each worker.
    pub operations: u64,
    /// Whether the workers share one lock.
    pub names: Names,
    /// Pairs that are sent at once.
    pub pipeline: usize,
    /// Whether each pair has a session of its own (`churn`).
    #[serde(default)]
    pub session_each: bool,
}

impl StreamOrder {
    /// So many pairs of each worker, as the plan has them.
    pub fn new(plan: &Plan, operations: u64) -> StreamOrder {
        StreamOrder {
            operations,
            names: plan.names(),
            pipeline: plan.pipeline() as usize,
            session_each: plan.workload.facts().session_each,
        }
    }
}

/// Requests, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AskOrder {
    /// Requests of each worker.
    pub operations: u64,
    /// The requests.
    pub requests: RequestOrder,
}
