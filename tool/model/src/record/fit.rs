//! How a figure grows over a sweep.

use super::At;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// How one figure of one target grows with one swept value.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// The target as typed.
    pub target: String,
    /// The figure that grows: `time_per_operation_ns` (window_s / operations, all workers together;
    /// not for `connect`), `connect_p50_ns`, `accept_p50_ns` or `bind_p50_ns` (medians of the
    /// calls), `cpu_us_per_operation`, `server_cpu_us_per_operation`.
    pub figure: String,
    /// The swept value by its name in `at`; N below.
    pub over: String,
    /// The other swept values, which are the same for all its points.
    pub at: At,
    /// Distinct values of N.
    pub values: u64,
    /// Fewest runs of one of them.
    pub runs: u64,
    /// Smallest N; the fit holds for no others than from here to `to`.
    pub from: u64,
    /// Largest N.
    pub to: u64,
    /// `constant` (within a tenth), `laws`, `power` (grows as a power of N that is none of the
    /// laws), `falls`, `bends`, `no_law`, `too_few` (under 6 values, 2 decades or 6 runs).
    pub finding: String,
    /// The figure at `to` over that at `from`, by block; absent under 6 blocks with both.
    pub ratio: Option<Interval>,
    /// The laws that the data allow and cannot tell apart.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub laws: Vec<FitLaw>,
    /// c of a + b N^c; absent where nothing surely grows.
    pub exponent: Option<Interval>,
    /// Places where the figure's growth changes, each between two values of N.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub bends: Vec<FitBend>,
    /// The parts between bends, of at least 5 values.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub parts: Vec<FitPart>,
    /// The universal scalability law, for lock services and for workers that each have a CPU,
    /// from 6 numbers of workers.
    pub usl: Option<Usl>,
    /// The number of workers with the highest throughput, where two larger ones surely had
    /// under 95 % of it.
    pub peak: Option<u64>,
    /// All of it in one sentence.
    pub text: String,
}

/// An estimate and where the truth lies with 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The estimate.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// t = a + b f(N).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FitLaw {
    /// f: `1`, `log N`, `sqrt N`, `N`, `N log N`, `N^2`.
    pub law: String,
    /// In the figure's unit.
    pub a: f64,
    /// In the figure's unit for each f(N).
    pub b: f64,
    /// Probability of so bad a fit if the law were true.
    pub p: f64,
}

/// A bend lies between two values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FitBend {
    /// The last value that surely lies before it.
    pub after: u64,
    /// The first value that surely lies beyond it.
    pub before: u64,
}

/// One part of a sweep between bends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FitPart {
    /// Smallest value.
    pub from: u64,
    /// Largest value.
    pub to: u64,
    /// The figure at the largest value over that at the smallest, by block.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<Interval>,
    /// The laws that the data allow there.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub laws: Vec<FitLaw>,
}

/// X = rate_per_s N / (1 + contention (N - 1) + coherence N (N - 1)).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usl {
    /// Throughput of one worker alone.
    pub rate_per_s: f64,
    /// Share of the work that only one can do at a time.
    pub contention: f64,
    /// Cost of agreement between each two.
    pub coherence: f64,
    /// Why it should not be trusted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub suspect: Option<String>,
}
