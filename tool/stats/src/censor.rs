//! Waits cut off by the end of the window: the product-limit estimate.
//!
//! An attempt that had waited 4.9 s when the window closed is not a wait of 4.9 s, and
//! leaving it out would make a lock that starves its waiters look quick. Kaplan & Meier
//! (Nonparametric estimation from incomplete observations, J. Am. Stat. Assoc. 53, 1958)
//! use the information that it lasted at least that long.

use crate::histogram::{Histogram, LEAST_BEYOND, PERCENTILES, floor, has_enough_beyond};
use jostle_model::Nanos;
use jostle_model::record::{Percentiles, Waits};
use std::collections::BTreeMap;

/// A percentile of a censored distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Percentile {
    /// The curve reaches it there.
    At(u64),
    /// The curve ends before it; the percentile is at least this.
    AtLeast(u64),
}

/// The summary of waits for a result file. None where there was no attempt.
///
/// Where nothing was granted, `granted` has a count of 0 and its other figures
/// mean nothing.
pub fn waits(granted: &Histogram, censored: &Histogram, over: &[Nanos]) -> Option<Waits> {
    if granted.count() + censored.count() == 0 {
        return None;
    }
    let mut waits = Waits {
        granted: granted.distribution(over).unwrap_or_default(),
        censored: censored.count(),
        kaplan_meier: Percentiles::default(),
        at_least: Percentiles::default(),
    };
    for (name, q) in PERCENTILES {
        match kaplan_meier(granted, censored, q) {
            Some(Percentile::At(ns)) => waits.kaplan_meier.insert(name, ns),
            Some(Percentile::AtLeast(ns)) => waits.at_least.insert(name, ns),
            None => {}
        }
    }
    Some(waits)
}

/// The Kaplan-Meier percentile `q` of the time to a grant, in nanoseconds: the
/// first time t at which S(t) <= 1 - q, where S is the product, over the times
/// up to t, of 1 - d/n (d grants among n attempts still under observation).
/// Within a bucket grants come before censorings, as is usual for ties.
///
/// The curve is followed while more than ten attempts are under observation,
/// since with fewer one grant moves it by more than a tenth; a percentile that
/// it has not reached by then is only known to lie beyond. Without censoring
/// the result is [`Histogram::quantile`].
///
/// None where all attempts together are too few for the percentile (fewer than
/// ten beyond it).
pub fn kaplan_meier(granted: &Histogram, censored: &Histogram, q: f64) -> Option<Percentile> {
    let attempts = granted.count() + censored.count();
    if !has_enough_beyond(attempts, q) {
        return None;
    }
    // An allowance for rounding: products that should be 0.1 may be 0.1 + 1e-17.
    let goal = 1.0 - q + 1e-12;
    let mut at_risk = attempts;
    let mut survival = 1.0;
    for (index, grants, censorings) in both(granted, censored) {
        if at_risk <= LEAST_BEYOND {
            return Some(Percentile::AtLeast(floor(index)));
        }
        survival *= 1.0 - grants as f64 / at_risk as f64;
        if grants > 0 && survival <= goal {
            return Some(Percentile::At(granted.representative(index)));
        }
        at_risk -= grants + censorings;
    }
    granted.max().max(censored.max()).map(Percentile::AtLeast)
}

/// The buckets that either has, in ascending order: number, grants, censorings.
fn both(granted: &Histogram, censored: &Histogram) -> impl Iterator<Item = (usize, u64, u64)> {
    let mut merged: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for (index, count) in granted.occupied() {
        merged.entry(index).or_default().0 = count;
    }
    for (index, count) in censored.occupied() {
        merged.entry(index).or_default().1 = count;
    }
    merged.into_iter().map(|(index, (d, c))| (index, d, c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    fn counted(values: &[(u64, u64)]) -> Histogram {
        let mut histogram = Histogram::new();
        for (value, n) in values {
            histogram.record_n(*value, *n);
        }
        histogram
    }

    #[test]
    fn the_curve_agrees_with_one_worked_by_hand() {
        // n at risk 100; 40 granted at 10: S = 0.6; 20 censored at 15;
        // 30 of 40 granted at 20: S = 0.15; 10 censored at 30.
        let granted = counted(&[(10, 40), (20, 30)]);
        let censored = counted(&[(15, 20), (30, 10)]);
        let table = [
            (0.3, Some(Percentile::At(10))),
            (0.5, Some(Percentile::At(20))),
            (0.8, Some(Percentile::At(20))),
            (0.9, Some(Percentile::AtLeast(30))),
            (0.99, None), // a hundred attempts say nothing of the worst one
        ];
        for (q, expected) in table {
            assert_eq!(kaplan_meier(&granted, &censored, q), expected, "{q}");
        }
    }

    #[test]
    fn grants_come_before_censorings_of_the_same_time() {
        let granted = counted(&[(10, 50), (20, 1)]);
        let censored = counted(&[(10, 50)]);
        assert_eq!(
            kaplan_meier(&granted, &censored, 0.49),
            Some(Percentile::At(10))
        );
    }

    #[test]
    fn leaving_the_starved_out_would_flatter_the_lock() {
        // 4500 quick grants, 500 waiters that saw none in 5 s.
        let granted = counted(&[(1_000_000, 4_500)]);
        let censored = counted(&[(5_000_000_000, 500)]);
        let waits = waits(&granted, &censored, &[]).unwrap();
        assert_eq!(waits.granted.percentiles["p99"], 1_000_000);
        assert!(waits.kaplan_meier.get("p99").is_none());
        assert_eq!(waits.at_least["p99"], 5_000_000_000);
        assert_eq!(waits.censored, 500);
    }

    #[test]
    fn when_nothing_was_granted_only_a_bound_remains() {
        let starved = waits(&counted(&[]), &counted(&[(7, 1000)]), &[]).unwrap();
        assert_eq!(starved.granted.count, 0);
        assert_eq!(starved.at_least["p50"], 7);
        assert_eq!(waits(&counted(&[]), &counted(&[]), &[]), None);
    }

    #[test]
    fn a_tail_of_ten_is_too_thin_to_follow() {
        let granted = counted(&[(10, 500), (50, 9)]);
        let censored = counted(&[(20, 491)]);
        assert_eq!(
            kaplan_meier(&granted, &censored, 0.9),
            Some(Percentile::AtLeast(50))
        );
    }

    #[test]
    fn the_true_median_is_found_through_random_censoring() {
        // Exponential waits of mean 1e6, cut by exponential windows of mean
        // 2e6: the median of the waits is 1e6 ln 2, of the granted ones less.
        let mut rng = Rng::new(7);
        let (mut granted, mut censored) = (Histogram::new(), Histogram::new());
        for _ in 0..20_000 {
            let wait = -1e6 * (1.0 - rng.unit_f64()).ln();
            let cut = -2e6 * (1.0 - rng.unit_f64()).ln();
            if wait <= cut {
                granted.record(wait as u64);
            } else {
                censored.record(cut as u64);
            }
        }
        let truth = 1e6 * std::f64::consts::LN_2;
        let Some(Percentile::At(found)) = kaplan_meier(&granted, &censored, 0.5) else {
            panic!("the curve reaches its median");
        };
        assert!((found as f64 / truth - 1.0).abs() < 0.03, "{found}");
        assert!((granted.quantile(0.5).unwrap() as f64) < 0.75 * truth);
    }

    proptest! {
        #[test]
        fn without_censoring_it_is_the_plain_quantile(
            values in prop::collection::vec(0u64..10_000_000, 100..400),
            q in 0.0..0.9f64,
        ) {
            let mut granted = Histogram::new();
            for value in values {
                granted.record(value);
            }
            prop_assert_eq!(
                kaplan_meier(&granted, &Histogram::new(), q),
                Some(Percentile::At(granted.quantile(q).unwrap()))
            );
        }
    }
}
