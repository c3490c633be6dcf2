//! How acquisitions were shared out among workers.
//!
//! Workers without an acquisition count in every figure: leaving them out is
//! how a lock that starves some looks fair.

use crate::gamma::{chi_square_lower, chi_square_upper};
use jostle_model::record::PerWorker;

/// The figures of a list with one count for each worker, those without an acquisition
/// included. None for no worker at all. Waits and streaks are left absent; the caller fills
/// them in.
///
/// With one worker, or where nobody got anything, the shares are equal and
/// nothing varies: deviation and dispersion are 0, Jain's index is 1.
pub fn per_worker(operations: &[u64]) -> Option<PerWorker> {
    let n = operations.len() as f64;
    let (min, max) = (operations.iter().min()?, operations.iter().max()?);
    let total = operations.iter().map(|x| *x as f64).sum::<f64>();
    let mean = total / n;
    let deviations = |x: &u64| (*x as f64 - mean).powi(2);
    let variance = if operations.len() > 1 {
        operations.iter().map(deviations).sum::<f64>() / (n - 1.0)
    } else {
        0.0
    };
    Some(PerWorker {
        min: *min,
        max: *max,
        mean,
        stddev: variance.sqrt(),
        jain: jain(operations),
        dispersion: if mean > 0.0 { variance / mean } else { 0.0 },
        top_half_share: top_half_share(operations),
        none: operations.iter().filter(|x| **x == 0).count() as u64,
        rotations: rotations(operations.len() as u64, total as u64),
        ..PerWorker::default()
    })
}

/// How many turns each worker could have had: window / (workers x mean time
/// per grant).
///
/// The mean time per grant is window / operations, so that the window cancels:
/// the rotations are operations / workers, the mean of the counts. With several
/// keys the mean time per grant over all keys is still window / operations, and
/// so nothing changes. 0 without workers.
pub fn rotations(workers: u64, operations: u64) -> f64 {
    if workers == 0 {
        return 0.0;
    }
    operations as f64 / workers as f64
}

/// Jain's index (sum x)^2 / (n sum x^2): 1 for equal shares, 1/n where one
/// worker got everything (Jain, Chiu & Hawe, DEC-TR-301, 1984). A fair lottery
/// at mean m has about m / (m + 1): a low index alone is not unfairness.
fn jain(operations: &[u64]) -> f64 {
    let sum: f64 = operations.iter().map(|x| *x as f64).sum();
    let squares: f64 = operations.iter().map(|x| (*x as f64).powi(2)).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (operations.len() as f64 * squares)
}

/// Share of the better-served half; the middle one of an odd number counts
/// half, so that equal shares give 0.5 for any number. 0.5 where nobody got
/// anything.
fn top_half_share(operations: &[u64]) -> f64 {
    let mut sorted = operations.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let half = sorted.len() / 2;
    let total: f64 = sorted.iter().map(|x| *x as f64).sum();
    if total == 0.0 {
        return 0.5;
    }
    let mut top: f64 = sorted[..half].iter().map(|x| *x as f64).sum();
    if sorted.len() % 2 == 1 {
        top += sorted[half] as f64 / 2.0;
    }
    top / total
}

/// How a dispersion compares with that of a lottery, in which each grant goes
/// to any worker with the same probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DispersionTest {
    /// Variance over mean, over all runs.
    pub dispersion: f64,
    /// Degrees of freedom: workers - 1, summed over the runs.
    pub degrees: f64,
    /// Probability that a lottery is at most as uneven: small for a queue.
    pub lower_p: f64,
    /// Probability that a lottery is at least as uneven: small for favouritism.
    pub upper_p: f64,
}

/// Whether counts are uneven by more than chance: a lottery spreads them as widely in fewer
/// than one of a thousand cases (chi-square, k - 1 degrees), and the largest is at least a
/// quarter above its even share.
pub fn is_uneven(counts: &[u64]) -> bool {
    let each = counts.iter().map(|count| *count as f64);
    let mean = each.clone().sum::<f64>() / counts.len().max(1) as f64;
    let statistic = each.clone().map(|count| (count - mean).powi(2) / mean);
    let statistic: f64 = statistic.sum();
    let largest = each.fold(0.0, f64::max);
    counts.len() > 1
        && largest >= 1.25 * mean
        && chi_square_upper(statistic, (counts.len() - 1) as f64) < 1e-3
}

/// Fisher's index of dispersion (Statistical methods for research workers,
/// 1925, section 16): for a lottery (workers - 1) x variance / mean is about
/// chi-square with workers - 1 degrees, and sums over independent runs are so
/// with the sum of the degrees. The approximation is good from a mean of about
/// 2 on.
///
/// `runs` holds the number of workers and the dispersion of each run. None
/// where no run has two workers.
pub fn dispersion_test(runs: &[(u64, f64)]) -> Option<DispersionTest> {
    let (mut statistic, mut degrees) = (0.0, 0.0);
    for (workers, dispersion) in runs {
        let free = workers.saturating_sub(1) as f64;
        statistic += free * dispersion;
        degrees += free;
    }
    (degrees > 0.0).then(|| DispersionTest {
        dispersion: statistic / degrees,
        degrees,
        lower_p: chi_square_lower(statistic, degrees),
        upper_p: chi_square_upper(statistic, degrees),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn a_distribution_is_uneven_only_beyond_chance_and_by_a_quarter() {
        let table: &[(&[u64], bool)] = &[
            (&[755, 80, 83, 82], true),
            (&[250, 240, 262, 248], false),
            // Surely uneven, by less than a quarter.
            (&[120_000, 100_000, 100_000, 80_000], false),
            // Twice its share, and chance would do it.
            (&[2, 1, 1, 0], false),
            (&[1000], false),
            (&[0, 0], false),
            (&[], false),
        ];
        for (counts, uneven) in table {
            assert_eq!(is_uneven(counts), *uneven, "{counts:?}");
        }
    }

    #[test]
    fn the_figures_agree_with_ones_worked_by_hand() {
        // mean 4, squares of the deviations 16 + 4 + 0 + 4 + 16 = 40
        let shares = per_worker(&[0, 2, 4, 6, 8]).unwrap();
        assert_eq!((shares.min, shares.max, shares.none), (0, 8, 1));
        assert!(close(shares.mean, 4.0));
        assert!(close(shares.stddev, 10f64.sqrt()));
        assert!(close(shares.dispersion, 2.5));
        assert!(close(shares.jain, 400.0 / (5.0 * 120.0)));
        assert!(close(shares.top_half_share, (8.0 + 6.0 + 2.0) / 20.0));
        assert!(close(shares.rotations, 4.0));
    }

    #[test]
    fn edge_cases_are_numbers() {
        assert_eq!(per_worker(&[]), None);
        let table: &[(&[u64], f64, f64, f64)] = &[
            // counts, jain, dispersion, top half
            (&[7], 1.0, 0.0, 0.5),
            (&[0], 1.0, 0.0, 0.5),
            (&[0, 0, 0], 1.0, 0.0, 0.5),
            (&[5, 5, 5], 1.0, 0.0, 0.5),
            (&[9, 0, 0], 1.0 / 3.0, 9.0, 1.0), // variance 27, mean 3
        ];
        for (counts, jain, dispersion, top) in table {
            let found = per_worker(counts).unwrap();
            assert!(close(found.jain, *jain), "{counts:?}");
            assert!(close(found.dispersion, *dispersion), "{counts:?}");
            assert!(close(found.top_half_share, *top), "{counts:?}");
        }
    }

    #[test]
    fn a_lottery_has_dispersion_near_one_and_the_jain_index_that_goes_with_it() {
        let mut rng = Rng::new(11);
        let mut counts = vec![0u64; 1000];
        for _ in 0..5000 {
            counts[rng.below(1000) as usize] += 1;
        }
        let shares = per_worker(&counts).unwrap();
        let test = dispersion_test(&[(1000, shares.dispersion)]).unwrap();
        assert!((shares.dispersion - 1.0).abs() < 0.15, "{shares:?}");
        assert!((shares.jain - 5.0 / 6.0).abs() < 0.02, "{shares:?}");
        assert!(test.lower_p > 0.01 && test.upper_p > 0.01, "{test:?}");
    }

    #[test]
    fn a_queue_and_a_favourite_are_told_from_a_lottery() {
        let queue = per_worker(&[4, 5, 5, 5, 4, 5, 5, 4, 5, 5]).unwrap();
        let test = dispersion_test(&[(10, queue.dispersion)]).unwrap();
        assert!(test.lower_p < 1e-4, "{test:?}");
        let favourite = per_worker(&[4, 5, 5, 5, 4, 5, 5, 4, 5, 30]).unwrap();
        let test = dispersion_test(&[(10, favourite.dispersion)]).unwrap();
        assert!(test.upper_p < 1e-4, "{test:?}");
    }

    #[test]
    fn two_workers_need_several_runs_to_show_a_queue() {
        let one = dispersion_test(&[(2, 2e-4)]).unwrap();
        assert!(one.lower_p > 0.01, "{one:?}");
        let six = dispersion_test(&[(2, 2e-4); 6]).unwrap();
        assert!(six.lower_p < 1e-6, "{six:?}");
        assert_eq!(dispersion_test(&[(1, 0.0)]), None);
    }

    #[test]
    fn a_lottery_is_flagged_as_often_as_the_p_value_says() {
        let mut rng = Rng::new(2);
        let (mut low, mut high) = (0, 0);
        for _ in 0..1000 {
            let mut counts = [0u64; 50];
            for _ in 0..50 * 5 {
                counts[rng.below(50) as usize] += 1;
            }
            let d = per_worker(&counts).unwrap().dispersion;
            let test = dispersion_test(&[(50, d)]).unwrap();
            low += u32::from(test.lower_p < 0.05);
            high += u32::from(test.upper_p < 0.05);
        }
        // 50 expected, standard deviation 7.
        assert!(
            (25..=80).contains(&low) && (25..=80).contains(&high),
            "{low} {high}"
        );
    }

    proptest! {
        #[test]
        fn indices_keep_their_bounds(counts in prop::collection::vec(0u64..10_000, 1..100)) {
            let n = counts.len() as f64;
            let shares = per_worker(&counts).unwrap();
            prop_assert!(shares.jain >= 1.0 / n - 1e-9 && shares.jain <= 1.0 + 1e-9);
            prop_assert!(shares.top_half_share >= 0.5 - 1e-9 && shares.top_half_share <= 1.0 + 1e-9);
            prop_assert!(shares.min as f64 <= shares.mean && shares.mean <= shares.max as f64);
        }
    }
}
