//! A log-linear histogram of nanoseconds: 32 groups of 128 buckets.
//!
//! Values below 128 have a bucket each. Group k >= 1 covers
//! [128 * 2^(k-1), 128 * 2^k) with 128 buckets of width 2^(k-1), so that a
//! bucket's midpoint lies within 0.4 % of every value in it. The layout is that
//! of HdrHistogram with 7 bits (Tene, hdrhistogram.org), with the sub-bucket
//! count fixed, so that a bucket's number is one shift and one add.
//!
//! Workers do not write into this type: they keep their own counters in shared pages, with
//! the same [`index`], and [`Histogram::absorb`] adds those.

use jostle_model::Nanos;
use jostle_model::record::{Buckets, Distribution};

/// Buckets.
pub const LEN: usize = 4096;

/// Bits of a value that a bucket keeps.
const BITS: u32 = 7;
const GROUP: usize = 1 << BITS;

/// The percentiles that are published, by name.
pub const PERCENTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];

/// A percentile is published only with at least this many values beyond it:
/// the count beyond is about Poisson, and 10 +- 3 is the last that still
/// places a percentile to within a third of its tail.
pub const LEAST_BEYOND: u64 = 10;

/// The bucket of a value. Values of 2^38 ns (275 s) and more share the last.
///
/// Runs in the measured loop: no branch, no table.
#[inline]
pub fn index(value_ns: u64) -> usize {
    // Setting bit 7 makes the first two groups one case: their width is 1.
    let shift = 63 - BITS - (value_ns | GROUP as u64).leading_zeros();
    let index = ((shift as usize) << BITS) + (value_ns >> shift) as usize;
    index.min(LEN - 1)
}

/// The smallest value of a bucket, in nanoseconds.
pub fn floor(index: usize) -> u64 {
    let shift = shift(index);
    ((index - (shift << BITS)) as u64) << shift
}

/// How many whole nanoseconds a bucket covers.
pub fn width(index: usize) -> u64 {
    1 << shift(index)
}

fn shift(index: usize) -> usize {
    (index >> BITS).saturating_sub(1)
}

/// The value that stands for a bucket: the middle of what it covers.
fn midpoint(index: usize) -> u64 {
    floor(index) + (width(index) - 1) / 2
}

/// Counts by bucket; count, sum, minimum and maximum are held beside them and
/// are exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl Histogram {
    /// An empty one.
    pub fn new() -> Histogram {
        Histogram {
            counts: vec![0; LEN].into_boxed_slice(),
            count: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    /// Adds a value.
    pub fn record(&mut self, value_ns: u64) {
        self.record_n(value_ns, 1);
    }

    /// Adds a value `n` times.
    pub fn record_n(&mut self, value_ns: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.counts[index(value_ns)] += n;
        self.count += n;
        self.sum_ns += u128::from(value_ns) * u128::from(n);
        self.min_ns = self.min_ns.min(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// Adds everything that `other` holds.
    pub fn merge(&mut self, other: &Histogram) {
        let counts = other.counts.iter().copied();
        self.absorb(counts, other.sum_ns, other.min_ns, other.max_ns);
    }

    /// Adds what a worker counted itself: its counters in the order of
    /// [`index`], and the exact sum, minimum and maximum that it kept beside.
    /// Where all counters are zero the other three are ignored.
    pub fn absorb(
        &mut self,
        counts: impl IntoIterator<Item = u64>,
        sum_ns: u128,
        min_ns: u64,
        max_ns: u64,
    ) {
        let mut added = 0;
        for (mine, theirs) in self.counts.iter_mut().zip(counts) {
            *mine += theirs;
            added += theirs;
        }
        if added > 0 {
            self.count += added;
            self.sum_ns += sum_ns;
            self.min_ns = self.min_ns.min(min_ns);
            self.max_ns = self.max_ns.max(max_ns);
        }
    }

    /// Values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Exact smallest; None where empty.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// Exact largest; None where empty.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// Exact mean; None where empty.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// The buckets that are not empty: number and count, in ascending order.
    pub fn occupied(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts
            .iter()
            .enumerate()
            .filter_map(|(index, count)| (*count > 0).then_some((index, *count)))
    }

    /// The value that represents a bucket: its midpoint, and never outside of the exact minimum and
    /// maximum.
    pub(crate) fn representative(&self, index: usize) -> u64 {
        midpoint(index).max(self.min_ns).min(self.max_ns)
    }

    /// The value of rank ceil(q * count), counted from 1 in ascending order:
    /// the inverse of the empirical distribution function (type 1 of Hyndman &
    /// Fan, 1996). `q` is clamped to 0..1; q = 0 gives the minimum.
    ///
    /// The result is off by at most 0.4 % (the bucket's half-width), except
    /// that values from 275 s on are told apart only by the exact maximum.
    /// None where empty.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let rank = self.rank(q);
        let mut seen = 0;
        for (index, count) in self.occupied() {
            seen += count;
            if seen >= rank {
                return Some(self.representative(index));
            }
        }
        None
    }

    /// The quantile, if it may be published: [`LEAST_BEYOND`] values lie beyond it.
    pub fn published(&self, q: f64) -> Option<u64> {
        has_enough_beyond(self.count, q).then(|| self.quantile(q))?
    }

    fn rank(&self, q: f64) -> u64 {
        rank(self.count, q)
    }

    /// Share of the values strictly above `value_ns`, 0 to 1; 0 where empty.
    ///
    /// Within the bucket of `value_ns` the values are taken to be spread
    /// evenly; the error is a part of that one bucket's share.
    pub fn share_over(&self, value_ns: u64) -> f64 {
        if self.count == 0 || value_ns >= self.max_ns {
            return 0.0;
        }
        if value_ns < self.min_ns {
            return 1.0;
        }
        let at = index(value_ns);
        let beyond: u64 = self.counts[at + 1..].iter().sum();
        let low = floor(at).max(self.min_ns);
        let high = if at == LEN - 1 {
            self.max_ns
        } else {
            (floor(at) + width(at) - 1).min(self.max_ns)
        };
        let part = (high - value_ns) as f64 / (high - low + 1) as f64;
        (beyond as f64 + part * self.counts[at] as f64) / self.count as f64
    }

    /// The form in which a result file keeps it.
    pub fn to_buckets(&self) -> Buckets {
        Buckets(self.occupied().map(|(i, n)| (floor(i), n)).collect())
    }

    /// Reads it back. The file's buckets do not hold the exact figures, so that
    /// sum, minimum and maximum are those of the midpoints, until
    /// [`Histogram::with_exact`] puts the recorded ones in their place.
    pub fn from_buckets(buckets: &Buckets) -> Histogram {
        let mut histogram = Histogram::new();
        for (floor_ns, count) in &buckets.0 {
            histogram.record_n(midpoint(index(*floor_ns)), *count);
        }
        histogram
    }

    /// Takes minimum, maximum and mean from the summary that was recorded with
    /// the buckets. Ignored where either is empty.
    pub fn with_exact(mut self, recorded: &Distribution) -> Histogram {
        if self.count > 0 && recorded.count > 0 {
            self.min_ns = recorded.min;
            self.max_ns = recorded.max;
            self.sum_ns = (recorded.mean * self.count as f64).round() as u128;
        }
        self
    }

    /// The summary for a result file, with the share above each time in
    /// `over`. None where empty: what was not measured is absent.
    ///
    /// A percentile is present only where at least [`LEAST_BEYOND`] values lie beyond it.
    /// That holds for the median too, which thus needs 20 values; with fewer, minimum, mean
    /// and maximum are enough.
    pub fn distribution(&self, over: &[Nanos]) -> Option<Distribution> {
        let percentiles = PERCENTILES
            .iter()
            .filter_map(|(name, q)| Some((*name, self.published(*q)?)))
            .collect();
        let over = over
            .iter()
            .map(|time| (time.to_string(), self.share_over(time.0)))
            .collect();
        Some(Distribution {
            count: self.count,
            min: self.min()?,
            max: self.max()?,
            mean: self.mean()?,
            percentiles,
            over,
        })
    }
}

fn rank(count: u64, q: f64) -> u64 {
    // 0.9 * 10 is 9.000000000000002 in some orders of evaluation: without the
    // allowance the rank would slip by one on round counts.
    let exact = q.clamp(0.0, 1.0) * count as f64;
    ((exact - 1e-9).ceil() as u64).clamp(1, count.max(1))
}

/// Whether `count` values leave at least [`LEAST_BEYOND`] above quantile `q`.
pub(crate) fn has_enough_beyond(count: u64, q: f64) -> bool {
    count >= rank(count, q) + LEAST_BEYOND
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        for value in values {
            histogram.record(*value);
        }
        histogram
    }

    #[test]
    fn every_bucket_begins_where_the_one_before_ends() {
        let mut next = 0;
        for i in 0..LEN {
            assert_eq!(floor(i), next, "bucket {i}");
            assert_eq!(index(floor(i)), i);
            assert_eq!(index(floor(i) + width(i) - 1), i);
            next = floor(i) + width(i);
        }
        assert_eq!(next, 1 << 38);
    }

    #[test]
    fn known_values_fall_into_known_buckets() {
        let table: &[(u64, usize)] = &[
            (0, 0),
            (127, 127),
            (128, 128),
            (255, 255), // the last of width 1
            (256, 256), // the first of width 2
            (257, 256),
            (258, 257),
            (511, 383),
            (512, 384),
            ((1 << 38) - 1, LEN - 1),
            (1 << 38, LEN - 1), // beyond the top
            (u64::MAX, LEN - 1),
        ];
        for (value, bucket) in table {
            assert_eq!(index(*value), *bucket, "{value}");
        }
    }

    #[test]
    fn ranks_follow_the_inverse_of_the_distribution_function() {
        let ten = histogram(&[10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
        let table = [
            (0.0, 10),
            (0.1, 10),
            (0.11, 20),
            (0.5, 50),
            (0.9, 90),
            (0.91, 100),
            (1.0, 100),
        ];
        for (q, value) in table {
            assert_eq!(ten.quantile(q), Some(value), "{q}");
        }
        assert_eq!(Histogram::new().quantile(0.5), None);
    }

    #[test]
    fn a_percentile_without_ten_values_beyond_is_absent() {
        let names = |n: u64| {
            let mut histogram = Histogram::new();
            histogram.record_n(1000, n);
            let distribution = histogram.distribution(&[]).unwrap();
            distribution
                .percentiles
                .iter()
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(19), Vec::<String>::new());
        assert_eq!(names(20), ["p50"]);
        assert_eq!(names(100), ["p50", "p90"]);
        assert_eq!(names(999), ["p50", "p90"]);
        assert_eq!(names(1000), ["p50", "p90", "p99"]);
        assert_eq!(names(10_000), ["p50", "p90", "p99", "p999"]);
        assert_eq!(Histogram::new().distribution(&[]), None);
    }

    #[test]
    fn shares_above_a_time_carry_its_name() {
        let mut waits = Histogram::new();
        waits.record_n(1_000_000, 90);
        waits.record_n(2_000_000_000, 10);
        let over = [
            Nanos(1_000_000_000),
            Nanos(10_000_000_000),
            Nanos::from_micros(1),
        ];
        let distribution = waits.distribution(&over).unwrap();
        assert_eq!(distribution.over["1s"], 0.1);
        assert_eq!(distribution.over["10s"], 0.0);
        assert_eq!(distribution.over["1us"], 1.0);
    }

    #[test]
    fn the_exact_figures_survive_the_file() {
        let original = histogram(&[123_457, 999_999, 5_000_001]);
        let summary = original.distribution(&[]).unwrap();
        let read = Histogram::from_buckets(&original.to_buckets()).with_exact(&summary);
        assert_eq!(read.distribution(&[]), Some(summary));
    }

    #[test]
    fn what_workers_counted_is_absorbed_and_idle_workers_change_nothing() {
        let mut all = histogram(&[500]);
        all.absorb(vec![0; LEN], 0, u64::MAX, 0);
        let mut counters = vec![0; LEN];
        counters[index(100)] = 2;
        all.absorb(counters, 200, 100, 100);
        assert_eq!(all, histogram(&[500, 100, 100]));
    }

    proptest! {
        #[test]
        fn a_quantile_is_within_0_8_percent_of_the_exact_one(
            mut values in prop::collection::vec(0u64..1 << 38, 1..200),
            q in 0.0..=1.0f64,
        ) {
            let found = histogram(&values).quantile(q).unwrap() as f64;
            values.sort_unstable();
            let exact = values[rank(values.len() as u64, q) as usize - 1] as f64;
            prop_assert!((found - exact).abs() <= 0.008 * exact, "{found} for {exact}");
        }

        #[test]
        fn merged_parts_are_the_whole(
            a in prop::collection::vec(any::<u64>(), 0..100),
            b in prop::collection::vec(any::<u64>(), 0..100),
        ) {
            let mut merged = histogram(&a);
            merged.merge(&histogram(&b));
            prop_assert_eq!(merged, histogram(&[a, b].concat()));
        }

        #[test]
        fn buckets_read_back_as_they_were_written(values in prop::collection::vec(any::<u64>(), 0..100)) {
            let buckets = histogram(&values).to_buckets();
            prop_assert_eq!(Histogram::from_buckets(&buckets).to_buckets(), buckets);
        }

        #[test]
        fn the_share_over_a_value_is_within_that_bucket_s_share(
            values in prop::collection::vec(0u64..100_000, 1..200),
            value in 0u64..100_000,
        ) {
            let n = values.len() as f64;
            let exact = values.iter().filter(|v| **v > value).count() as f64 / n;
            let bucket = values.iter().filter(|v| index(**v) == index(value)).count() as f64 / n;
            let found = histogram(&values).share_over(value);
            prop_assert!((found - exact).abs() <= bucket + 1e-12, "{found} for {exact}");
        }
    }
}
