//! The verdict of a point over all its runs.

use super::{At, Verdict};
use serde::{Deserialize, Serialize};

/// A point, its figure and its verdict, as table, csv, markdown and page print them. All
/// of it follows from the runs; a reader that has them can compute it again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The target as typed.
    pub target: String,
    /// The swept values.
    pub at: At,
    /// The point's main figure; absent where it is INVALID.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub figure: Option<MainFigure>,
    /// Over all its runs.
    pub verdict: Verdict,
}

/// A point's main figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MainFigure {
    /// Its name in the runs: `throughput_per_s`, or the median of `connect_ns` or
    /// `bind_ns`, in nanoseconds.
    pub of: String,
    /// Over the runs.
    pub median: f64,
    /// Lower end of the median's 95 % interval; of the range under six runs.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Runs.
    pub runs: u64,
}
