//! The data needed to resume a measurement that was interrupted.

use crate::plan::Plan;
use serde::{Deserialize, Serialize};

/// The decisions before the first run, and the conditions that must still hold when the experiment
/// is resumed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scheduled {
    /// The kernel's identifier of this boot; empty if it has none.
    pub boot: String,
    /// Size and time of change of jostle's program file.
    pub program: String,
    /// Planned blocks; 0 for `connect` and `recover`, which plan by their options alone.
    pub blocks: u32,
    /// The times of one run of each point, in the order of the plan; empty if `blocks` is 0.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub times: Vec<RunTimes>,
    /// The resolved plans of the same command that were to follow.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub then: Vec<Plan>,
}

/// The planned times of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunTimes {
    /// The window.
    pub window_ns: u64,
    /// Before it.
    pub warmup_ns: u64,
    /// Starting, stopping and reaping the workers.
    pub overhead_ns: u64,
}

/// An experiment was resumed. The block that was interrupted is measured again as a whole; its
/// first runs are no longer in the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resumed {
    /// Wall-clock time, RFC 3339 in UTC.
    pub started_at: String,
    /// The first block that was made after the break.
    pub block: u32,
    /// Runs of the interrupted block that were discarded.
    pub left_out: u64,
}
