//! Distributions of times: their summaries, and the histograms behind them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A distribution's summary. Its histogram stands among the point's histograms;
/// `docs/results.md` says under which name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Values.
    pub count: u64,
    /// Exact smallest.
    pub min: u64,
    /// Exact largest.
    pub max: u64,
    /// Exact mean.
    pub mean: f64,
    /// Percentiles by name (`p50`, `p90`, `p99`, `p999`); one without at least
    /// ten values beyond it is absent.
    #[serde(flatten)]
    pub percentiles: BTreeMap<String, u64>,
    /// Share of the values above each time asked for with `--over`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub over: BTreeMap<String, f64>,
}

/// Waits: some attempts had not ended when the window did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// The granted ones.
    #[serde(flatten)]
    pub granted: Distribution,
    /// Attempts that ended without a grant or not at all within the window.
    pub censored: u64,
    /// Kaplan-Meier percentiles over granted and censored attempts; one that
    /// the data do not reach is absent here and stands in `at_least`.
    pub kaplan_meier: BTreeMap<String, u64>,
    /// Percentiles known only to lie above this.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub at_least: BTreeMap<String, u64>,
}

/// A log-linear histogram: the smallest value of each bucket that is not
/// empty, and its count. Buckets are 1 wide up to 256, then 128 to an octave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Buckets(pub Vec<(u64, u64)>);
