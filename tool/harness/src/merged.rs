//! What the pages of all workers came to, as the statistics read it.

use jostle_model::record::{Distribution, Slice};
use jostle_stats::histogram::{self, Histogram};
use jostle_worker::order::{Merged, RunData};

/// Waits of readers and of writers, where both take the lock.
pub const READER_WAITS: &str = "reader_wait_ns";
/// See [`READER_WAITS`].
pub const WRITER_WAITS: &str = "writer_wait_ns";

/// What the keeper merged, as a histogram with its exact figures.
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

/// The ten slices of a run.
pub fn series(data: &RunData) -> Vec<Slice> {
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
/// Adds so many values of this size.
pub fn add(merged: &mut Merged, value: u64, count: u64) {
    if count == 0 {
        return;
    }
    let floor = histogram::floor(histogram::index(value));
    let buckets = &mut merged.buckets.0;
    if buckets.is_empty() {
        (merged.min, merged.max) = (value, value);
    }
    match buckets.binary_search_by_key(&floor, |(floor, _)| *floor) {
        Ok(at) => buckets[at].1 += count,
        Err(at) => buckets.insert(at, (floor, count)),
    }
    merged.sum += value * count;
    (merged.min, merged.max) = (merged.min.min(value), merged.max.max(value));
}
