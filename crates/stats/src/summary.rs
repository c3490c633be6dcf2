//! From the runs of a result file to what a table says: one summary for each
//! point, one closing sentence for each target. Pure functions of the records.

use jostle_model::record::{At, Claim, Experiment, OwnCost, PerWorker, Point, Verdict};

/// A figure over several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Median over the runs.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// True where `low..high` is a 95 % interval of the median by order
    /// statistics (at least 6 runs); false where it is the plain range.
    pub interval: bool,
    /// Runs.
    pub runs: usize,
}

/// What is known of one (target, point) over all its runs.
#[derive(Clone, Debug)]
pub struct PointSummary<'a> {
    /// As typed.
    pub target: &'a str,
    /// The swept values.
    pub at: At,
    /// The runs behind it, in the order of the file.
    pub runs: Vec<&'a Point>,
    /// Operations per second.
    pub throughput_per_s: Option<Estimate>,
    /// Share of the ideal.
    pub of_ideal: Option<Estimate>,
    /// CPU per operation.
    pub cpu_us_per_operation: Option<Estimate>,
    /// Share of the grants that were contended.
    pub blocked_share: Option<Estimate>,
    /// Longest wait over all runs.
    pub longest_wait_ns: Option<u64>,
    /// The run whose count of served workers is the median one, so that the
    /// columns `min..max` and `none` belong together.
    pub per_worker: Option<PerWorker>,
    /// The target's cost by itself and the tool's beside it.
    pub own_cost: Option<OwnCost>,
    /// Over all runs: the checks of every run, and those that need several.
    pub verdict: Verdict,
}
