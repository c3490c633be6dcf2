//! The pages of all workers merged, as the statistics read them.

use jostle_model::record::Distribution;
use jostle_stats::histogram::Histogram;
use jostle_worker::order::Merged;

/// Waits of readers and of writers, where both take the lock.
pub const READER_WAITS: &str = "reader_wait_ns";
/// See [`READER_WAITS`].
pub const WRITER_WAITS: &str = "writer_wait_ns";

/// The histogram of the keeper's merged pages, with its exact figures.
pub fn histogram(merged: &Merged) -> Histogram {
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
