//! How a figure grows over a sweep.

use super::At;
use serde::{Deserialize, Serialize};

/// How one figure of one target grows with one swept value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// The target as typed.
    pub target: String,
    /// The figure by its name.
    pub figure: String,
    /// The swept value by its name in `at`.
    pub over: String,
    /// The other swept values, which are the same for all its points.
    pub at: At,
    /// Distinct values of `over` that have figures.
    pub values: u64,
    /// Fewest runs of one of them.
    pub runs: u64,
    /// Smallest value.
    pub from: u64,
    /// Largest value.
    pub to: u64,
    /// The finding: `too_few`, `constant`, `laws`, `power`, `falls`, `bends`, `no_law`.
    pub finding: String,
    /// The figure at the largest value over that at the smallest, by block.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<Interval>,
    /// The laws that the data allow and cannot tell apart.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub laws: Vec<FitLaw>,
    /// The exponent of a + b N^exponent, where something surely grows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exponent: Option<Interval>,
    /// Where it changes its course.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub bends: Vec<FitBend>,
    /// What lies between, where that is enough points for laws of its own.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub parts: Vec<FitPart>,
    /// The universal scalability law, where it applies.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub usl: Option<Usl>,
    /// The value at which throughput was highest, where it surely was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
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
    /// What the data allow there.
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
    /// What speaks against it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub suspect: Option<String>,
}
