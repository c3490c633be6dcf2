//! What the pages of all workers came to, as the statistics read it.

use crate::order::{Merged, RunData};
use jostle_model::record::{Distribution, Slice};
use jostle_stats::histogram::Histogram;

/// What the keeper merged, as a histogram with its exact figures.
pub(crate) fn histogram(merged: &Merged) -> Histogram {
    let histogram = Histogram::from_buckets(&merged.buckets);
    let count = histogram.count();
    let exact = Distribution {
        count,
        min: merged.min,
        max: merged.max,
        mean: if count > 0 {
            merged.sum as f64 / count as f64
        } else {
            0.0
        },
        ..Distribution::default()
    };
    histogram.with_exact(&exact)
}

pub(crate) fn series(data: &RunData) -> Vec<Slice> {
    let mean = |sum: u64, count: u64| (count > 0).then(|| sum as f64 / count as f64);
    let released = |at: usize| data.release_slices.get(at).copied().unwrap_or_default();
    data.slices
        .iter()
        .enumerate()
        .map(|(at, (operations, stamped, waits))| Slice {
            operations: *operations,
            mean_wait_ns: mean(*waits, *stamped),
            mean_release_ns: mean(released(at).1, released(at).0),
        })
        .collect()
}
