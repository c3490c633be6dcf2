//! A figure over several runs: median, and an interval by order statistics.
//!
//! The run is the unit: operations within a run depend on each other, so that
//! intervals from their number would be far too narrow. Order statistics assume
//! nothing of the shape of the noise (David & Nagaraja, Order statistics, 3rd
//! edition 2003, section 7.1).

use crate::summary::Estimate;
use std::borrow::Borrow;

/// Coverage that an interval has at least.
pub(crate) const COVERAGE: f64 = 0.95;

/// The middle value, or the mean of the middle two. None where empty or where
/// a value is not finite.
pub fn median(values: impl IntoIterator<Item: Borrow<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.into_iter().map(|value| *value.borrow()).collect();
    sorted(&values).map(|sorted| middle(&sorted))
}

pub(crate) fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

/// The median of sorted values, of which there is at least one.
pub(crate) fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        (sorted[half - 1] + sorted[half]) / 2.0
    }
}

/// Median over the runs and its interval of at least 95 %: from the k-th value
/// to the k-th from the end, with k of `order_statistic` (6 to 8 runs the
/// extremes, 9 to 11 the second, 12 to 14 the third, and so on). With fewer
/// than 6 runs no such interval exists: the plain range, `interval` false.
///
/// None where empty or where a value is not finite.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let sorted = sorted(values)?;
    let k = order_statistic(sorted.len());
    let from = k.unwrap_or(1) - 1;
    Some(Estimate {
        median: middle(&sorted),
        low: sorted[from],
        high: sorted[sorted.len() - 1 - from],
        interval: k.is_some(),
        runs: sorted.len(),
    })
}

/// The largest k for which the interval from the k-th smallest to the k-th
/// largest of n values covers the median with probability of at least 95 %:
/// 1 - 2 P(B < k) >= 0.95, B binomial(n, 1/2). None under 6 values.
pub(crate) fn order_statistic(n: usize) -> Option<usize> {
    // In logarithms, since 2^-n leaves the range of f64 beyond 1074 values.
    let mut ln_probability = -(n as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    let mut k = 0;
    while k < n / 2 {
        below += ln_probability.exp();
        if 2.0 * below > 1.0 - COVERAGE {
            break;
        }
        ln_probability += ((n - k) as f64 / (k + 1) as f64).ln();
        k += 1;
    }
    (k > 0).then_some(k)
}

/// Half of the interval's width over the median; None where that is 0.
pub fn relative_half_width(estimate: &Estimate) -> Option<f64> {
    (estimate.median != 0.0).then(|| (estimate.high - estimate.low) / 2.0 / estimate.median.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    #[test]
    fn the_interval_takes_the_documented_order_statistics() {
        for (runs, k) in [
            (1..=5, None),
            (6..=8, Some(1)),
            (9..=11, Some(2)),
            (12..=14, Some(3)),
            (15..=16, Some(4)),
            (17..=19, Some(5)),
            (100..=100, Some(40)), // tabulated
        ] {
            for n in runs {
                assert_eq!(order_statistic(n), k, "{n} runs");
            }
        }
        assert_eq!(order_statistic(0), None);
        assert!(order_statistic(5000).is_some_and(|k| (2400..2500).contains(&k)));
    }

    #[test]
    fn few_runs_give_a_range_and_never_an_interval() {
        let five = estimate(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((five.low, five.median, five.high), (1.0, 3.0, 5.0));
        assert!(!five.interval);
        let nine = estimate(&[9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0]).unwrap();
        assert_eq!((nine.low, nine.median, nine.high), (2.0, 5.0, 8.0));
        assert!(nine.interval);
        let one = estimate(&[7.0]).unwrap();
        assert_eq!(
            (one.low, one.high, one.interval, one.runs),
            (7.0, 7.0, false, 1)
        );
    }

    #[test]
    fn no_estimate_comes_from_nothing_or_from_nonsense() {
        for values in [&[][..], &[1.0, f64::NAN], &[f64::INFINITY]] {
            assert_eq!(estimate(values), None);
            assert_eq!(median(values), None);
        }
    }

    #[test]
    fn the_half_width_is_relative_to_the_median() {
        let estimate = estimate(&[90.0, 100.0, 100.0, 100.0, 100.0, 110.0]).unwrap();
        assert_eq!(relative_half_width(&estimate), Some(0.1));
        assert_eq!(relative_half_width(&super::estimate(&[0.0]).unwrap()), None);
    }

    #[test]
    fn the_interval_covers_the_true_median_as_often_as_it_says() {
        // A skewed distribution, as run times have: exp(exponential), whose
        // median is exp(ln 2) = 2.
        let mut rng = Rng::new(1);
        for n in 6..=15 {
            let trials = 4000;
            let mut covered = 0;
            for _ in 0..trials {
                let runs: Vec<f64> = (0..n).map(|_| 1.0 / (1.0 - rng.unit_f64())).collect();
                let found = estimate(&runs).unwrap();
                covered += u32::from(found.low <= 2.0 && 2.0 <= found.high);
            }
            // 95 % less three standard deviations of 4000 trials.
            let share = f64::from(covered) / f64::from(trials);
            assert!(share > 0.95 - 0.0104, "{n} runs: {share}");
        }
    }

    proptest! {
        #[test]
        fn the_median_lies_within_its_interval(values in prop::collection::vec(-1e9..1e9f64, 1..60)) {
            let found = estimate(&values).unwrap();
            prop_assert!(found.low <= found.median && found.median <= found.high);
        }
    }
}
