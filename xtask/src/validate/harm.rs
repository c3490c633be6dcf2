//! A STAND-IN, to be deleted when the harm of neighbours is bounded by
//! `jostle_stats::harm`, which has this shape: it says nothing yet.

use jostle_model::record::{Experiment, Point};

/// Where the undisturbed throughput lies, as a share of the measured one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Harm {
    /// At least this, at most 1.
    pub low: f64,
    /// At most this, at least 1.
    pub high: f64,
}

/// None: the records hold no accounts.
pub fn bound(_: &Experiment, _: &[&Point]) -> Option<Harm> {
    None
}
