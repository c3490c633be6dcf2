//! What the workers of `contend` do.

use jostle_model::plan::Range;
use jostle_model::time::{Busy, Nanos};
use serde::{Deserialize, Serialize};

/// Acquire, hold, release, idle, until the window closes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContendOrder {
    /// While holding.
    pub hold: Busy,
    /// Between operations.
    pub idle: Busy,
    /// Share of shared acquisitions.
    pub shared: f64,
    /// Byte ranges.
    pub range: Range,
    /// Try instead of waiting.
    pub try_only: bool,
    /// Give up after.
    pub acquire_timeout: Option<Nanos>,
    /// Open the file for each acquisition.
    pub open_each: bool,
    /// By how much the sleep of a hold is cut short; the rest is spun.
    pub wake_early: Nanos,
}

impl ContendOrder {
    /// Exclusive acquisitions that wait, without hold and idle.
    pub const BARE: ContendOrder = ContendOrder {
        hold: Busy::Sleep(Nanos::ZERO),
        idle: Busy::Sleep(Nanos::ZERO),
        shared: 0.0,
        range: Range::Same,
        try_only: false,
        acquire_timeout: None,
        open_each: false,
        wake_early: Nanos::ZERO,
    };
}
