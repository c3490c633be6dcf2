//! Bursts: tenths of a run in which answers took much longer than in the others.

use crate::intervals::median;
use jostle_model::record::{Run, Slice};

/// A tenth whose mean is more than this many times the median tenth's is a burst. A factor
/// of two is obvious in any plot. If fewer than one run in ten has bursts, they are the
/// machine's noise; the reader sees the number of such runs.
pub const TIMES: f64 = 2.0;

/// The mean response in each tenth of a run, in nanoseconds, and whether the tenth is a
/// burst. None where no request was answered in it.
pub fn along(run: &Run) -> Vec<Option<(f64, bool)>> {
    let mean = |slice: &Slice| slice.mean_wait_ns;
    let usual = usual(run.series.iter().filter_map(mean));
    let each = run.series.iter().map(mean);
    each.map(|mean| mean.map(|mean| (mean, is_one(mean, usual))))
        .collect()
}

/// The median tenth's; of none no tenth is a burst.
pub fn usual(means: impl Iterator<Item = f64>) -> f64 {
    median(means).unwrap_or(f64::INFINITY)
}

/// Whether a tenth is a burst beside the median one.
pub fn is_one(mean: f64, usual: f64) -> bool {
    mean > TIMES * usual
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_twice_the_median_tenth_is_a_burst() {
        let slice = |mean_wait_ns| Slice {
            operations: 1,
            mean_wait_ns,
            ..Slice::default()
        };
        let run = Run {
            series: [
                Some(10.0),
                Some(11.0),
                None,
                Some(20.0),
                Some(23.0),
                Some(9.0),
            ]
            .map(slice)
            .into(),
            ..Run::default()
        };
        let bursts: Vec<_> = along(&run)
            .iter()
            .map(|s| s.map(|(_, burst)| burst))
            .collect();
        assert_eq!(
            bursts,
            [
                Some(false),
                Some(false),
                None,
                Some(false),
                Some(true),
                Some(false)
            ]
        );
        assert!(along(&Run::default()).is_empty());
    }
}
