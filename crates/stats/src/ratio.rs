//! One figure against another, from runs of the same blocks.
//!
//! Machines drift by more than targets differ. The two runs of one block stand
//! close together in time, so that their quotient keeps what the drift takes
//! from each. The quotients' logarithms go through Wilcoxon's signed-rank
//! statistic, which assumes symmetry and nothing else of their shape.

use crate::intervals::{COVERAGE, middle, sorted};
use jostle_model::record::Point;

/// A ratio within this distance of 1 counts as equal.
pub(crate) const EQUAL_WITHIN: f64 = 0.05;

/// What may be said of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The interval excludes 1, and the estimate lies outside of 0.95 to 1.05: the
    /// difference is both certain and large enough to matter.
    Differs,
    /// The whole interval lies within 0.95 to 1.05.
    Same,
    /// The data cannot tell; always so under six blocks.
    Undecided,
}

/// A ratio over blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Hodges-Lehmann estimate.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// True where `low..high` is an interval of at least 95 % (six blocks or
    /// more); false where it is the plain range.
    pub interval: bool,
    /// Blocks.
    pub blocks: usize,
    /// What may be said.
    pub outcome: Outcome,
}

/// The ratio of the second figure to the first over pairs of one block each.
/// None where no pair is left; pairs with a figure that is not positive and
/// finite have no logarithm and are left out.
///
/// The estimate is the median of the averages of all pairs of log-ratios, each
/// with itself included (Hodges & Lehmann, Ann. Math. Statist. 34, 1963); the
/// interval runs from the c-th smallest of these averages to the c-th largest,
/// where c is the largest number with P(T < c) <= 2.5 % for the signed-rank
/// statistic T (Wilcoxon, Biometrics 1, 1945; Hollander, Wolfe & Chicken,
/// Nonparametric statistical methods, 3rd edition 2014, section 3.3).
pub fn paired(pairs: &[(f64, f64)]) -> Option<Ratio> {
    let usable = |x: f64| x.is_finite() && x > 0.0;
    let logs: Vec<f64> = pairs
        .iter()
        .filter(|(base, other)| usable(*base) && usable(*other))
        .map(|(base, other)| (other / base).ln())
        .collect();
    let sorted_logs = sorted(&logs)?;
    let averages = sorted(&walsh_averages(&logs))?;
    let cut = signed_rank_cut(logs.len());
    let (low, high) = match cut {
        Some(c) => (averages[c - 1], averages[averages.len() - c]),
        None => (sorted_logs[0], sorted_logs[sorted_logs.len() - 1]),
    };
    let (ratio, low, high) = (middle(&averages).exp(), low.exp(), high.exp());
    Some(Ratio {
        ratio,
        low,
        high,
        interval: cut.is_some(),
        blocks: logs.len(),
        outcome: outcome([ratio, low, high], cut.is_some(), EQUAL_WITHIN),
    })
}

/// The ratio of the second figure to the first for unpaired runs, such as those of two
/// sessions. None if a side has no usable run.
///
/// The estimate is the median of all differences of one log of either side
/// (Hodges & Lehmann, as above); the interval runs from the c-th smallest to the
/// c-th largest, where c is the largest number with P(U < c) <= 2.5 % for the
/// rank-sum statistic U (Mann & Whitney, Ann. Math. Statist. 18, 1947; Hollander,
/// Wolfe & Chicken, section 4.3). Four runs of each are the fewest with an
/// interval; `blocks` is the smaller number.
pub(crate) fn unpaired(base: &[f64], other: &[f64]) -> Option<Ratio> {
    let logs = |figures: &[f64]| -> Vec<f64> {
        let usable = figures.iter().filter(|x| x.is_finite() && **x > 0.0);
        usable.map(|x| x.ln()).collect()
    };
    let (base, other) = (logs(base), logs(other));
    let all = base.iter().flat_map(|b| other.iter().map(move |o| o - b));
    let differences = sorted(&all.collect::<Vec<_>>())?;
    let cut = cut(rank_sum_distribution(base.len(), other.len()));
    let from = cut.unwrap_or(1) - 1;
    let ends = [differences[from], differences[differences.len() - 1 - from]];
    let (ratio, low, high) = (middle(&differences).exp(), ends[0].exp(), ends[1].exp());
    Some(Ratio {
        ratio,
        low,
        high,
        interval: cut.is_some(),
        blocks: base.len().min(other.len()),
        outcome: outcome([ratio, low, high], cut.is_some(), EQUAL_WITHIN),
    })
}

/// [`paired`] on a figure of runs, matched by their block.
pub(crate) fn by_block(
    base: &[&Point],
    other: &[&Point],
    figure: impl Fn(&Point) -> Option<f64>,
) -> Option<Ratio> {
    let pairs: Vec<(f64, f64)> = base
        .iter()
        .filter_map(|b| {
            let o = other.iter().find(|o| o.block == b.block)?;
            Some((figure(b)?, figure(o)?))
        })
        .collect();
    paired(&pairs)
}

/// What may be said of an estimate, its lower and its upper end, where shares up
/// to `within` are of no consequence.
pub fn outcome([ratio, low, high]: [f64; 3], interval: bool, within: f64) -> Outcome {
    let (least, most) = (1.0 - within, 1.0 + within);
    if !interval {
        Outcome::Undecided
    } else if low >= least && high <= most {
        Outcome::Same
    } else if (low > 1.0 && ratio > most) || (high < 1.0 && ratio < least) {
        Outcome::Differs
    } else {
        Outcome::Undecided
    }
}

fn walsh_averages(values: &[f64]) -> Vec<f64> {
    let mut averages = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (i, a) in values.iter().enumerate() {
        averages.extend(values[i..].iter().map(|b| (a + b) / 2.0));
    }
    averages
}

/// The largest c with P(T < c) <= 2.5 %, where T is the signed-rank statistic
/// of n differences without effect. None under 6, where even c = 1 is too much.
fn signed_rank_cut(n: usize) -> Option<usize> {
    cut(signed_rank_distribution(n))
}

/// The largest c with P(T < c) <= 2.5 %, from the probabilities of T = 0, 1, ...
fn cut(distribution: Vec<f64>) -> Option<usize> {
    let mut below = 0.0;
    let mut cut = 0;
    for probability in distribution {
        below += probability;
        if below > (1.0 - COVERAGE) / 2.0 {
            break;
        }
        cut += 1;
    }
    (cut > 0).then_some(cut)
}

/// P(U = u) for u = 0, 1, ..., m n, exactly: of m + n values in random order the
/// largest is one of the first m, and then exceeds all n others, or it is not.
fn rank_sum_distribution(m: usize, n: usize) -> Vec<f64> {
    // counts[i] after j rounds: the distribution for i and j.
    let mut rows: Vec<Vec<f64>> = vec![vec![1.0]; m + 1];
    for j in 1..=n {
        for i in 1..=m {
            let mut row = vec![0.0; i * j + 1];
            let share = i as f64 / (i + j) as f64;
            for (u, p) in rows[i - 1].iter().enumerate() {
                row[u + j] += share * p;
            }
            for (u, p) in rows[i].iter().enumerate() {
                row[u] += (1.0 - share) * p;
            }
            rows[i] = row;
        }
    }
    rows.swap_remove(m)
}

/// P(T = t) for t = 0, 1, ..., n(n+1)/2, exactly: each rank is in the sum or
/// not, with probability 1/2, so that the ranks are added one after another.
fn signed_rank_distribution(n: usize) -> Vec<f64> {
    let mut probabilities = vec![0.0; n * (n + 1) / 2 + 1];
    probabilities[0] = 1.0;
    for rank in 1..=n {
        // From the top, so that no rank is counted twice.
        for t in (0..=rank * (rank + 1) / 2).rev() {
            let with = if t >= rank {
                probabilities[t - rank]
            } else {
                0.0
            };
            probabilities[t] = (probabilities[t] + with) / 2.0;
        }
    }
    probabilities
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn ratios(values: &[f64]) -> Vec<(f64, f64)> {
        values.iter().map(|r| (100.0, 100.0 * r)).collect()
    }

    #[test]
    fn the_signed_rank_distribution_is_the_tabulated_one() {
        // Three ranks: the sums 0 1 2 3 3 4 5 6, one eighth each.
        let expected = [1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0].map(|n| n / 8.0);
        assert_eq!(signed_rank_distribution(3), expected);
        // Largest T with P(T' <= T) <= 2.5 %, from the usual tables, plus one.
        let table = [
            (5, None),
            (6, Some(1)),
            (7, Some(3)),
            (8, Some(4)),
            (9, Some(6)),
        ];
        for (n, cut) in table {
            assert_eq!(signed_rank_cut(n), cut, "{n}");
        }
        for (n, cut) in [(10, 9), (12, 14), (15, 26), (20, 53)] {
            assert_eq!(signed_rank_cut(n), Some(cut), "{n}");
        }
    }

    #[test]
    fn the_rank_sum_distribution_is_the_tabulated_one() {
        // Two and two: U = 0, 1, 2, 2, 3, 4 of the six orders.
        let found = rank_sum_distribution(2, 2);
        for (p, n) in found.iter().zip([1.0, 1.0, 2.0, 1.0, 1.0]) {
            assert!((p - n / 6.0).abs() < 1e-12, "{found:?}");
        }
        // Largest U with P(U' <= U) <= 2.5 %, from the usual tables, plus one.
        let table = [
            (3, 4, None),
            (4, 4, Some(1)),
            (5, 5, Some(3)),
            (6, 6, Some(6)),
            (6, 9, Some(11)),
            (9, 9, Some(18)),
            (12, 12, Some(38)),
        ];
        for (m, n, expected) in table {
            assert_eq!(cut(rank_sum_distribution(m, n)), expected, "{m} {n}");
            assert_eq!(cut(rank_sum_distribution(n, m)), expected, "{n} {m}");
        }
    }

    #[test]
    fn runs_that_nothing_pairs_cover_the_truth_too() {
        let mut rng = Rng::new(5);
        for (m, n) in [(4, 4), (6, 9), (12, 12)] {
            let trials = 3000;
            let mut covered = 0;
            for _ in 0..trials {
                let mut drawn = |level: f64, count: usize| -> Vec<f64> {
                    (0..count)
                        .map(|_| level * (0.05 * rng.normal()).exp())
                        .collect()
                };
                let found = unpaired(&drawn(1000.0, m), &drawn(1100.0, n)).unwrap();
                covered += u32::from(found.low <= 1.1 && 1.1 <= found.high);
            }
            let share = f64::from(covered) / f64::from(trials);
            assert!(share > 0.95 - 0.012, "{m} and {n}: {share}");
        }
        assert_eq!(unpaired(&[], &[1.0]), None);
        assert!(!unpaired(&[1.0, 2.0, 3.0], &[1.0; 4]).unwrap().interval);
    }

    #[test]
    fn there_are_three_outcomes() {
        let table: &[(&[f64], Outcome)] = &[
            (&[1.0, 1.01, 0.99, 1.0, 1.02, 0.98], Outcome::Same),
            (&[1.10, 1.12, 1.09, 1.11, 1.13, 1.08], Outcome::Differs),
            (&[0.90, 0.91, 0.89, 0.92, 0.88, 0.90], Outcome::Differs),
            (&[0.8, 1.2, 0.9, 1.1, 1.0, 1.3], Outcome::Undecided),
            // surely above 1, but not beyond 5 %, nor surely within
            (&[1.03, 1.04, 1.05, 1.02, 1.06, 1.04], Outcome::Undecided),
            // certain to the eye, but five blocks cannot give 95 %
            (&[2.0, 2.0, 2.0, 2.0, 2.0], Outcome::Undecided),
        ];
        for (values, outcome) in table {
            let found = paired(&ratios(values)).unwrap();
            assert_eq!(found.outcome, *outcome, "{found:?}");
        }
    }

    #[test]
    fn five_blocks_give_the_range() {
        let found = paired(&ratios(&[1.2, 1.0, 1.1, 0.9, 1.3])).unwrap();
        assert!(!found.interval);
        assert!((found.low - 0.9).abs() < 1e-12 && (found.high - 1.3).abs() < 1e-12);
    }

    #[test]
    fn seven_blocks_give_the_third_averages_from_either_end() {
        // Log-ratios 0 to 6: their averages begin 0, 0.5, 1 and end 5, 5.5, 6.
        let pairs: Vec<(f64, f64)> = (0..7).map(|i| (1.0, f64::from(i).exp())).collect();
        let found = paired(&pairs).unwrap();
        for (end, ln) in [(found.low, 1.0), (found.ratio, 3.0), (found.high, 5.0)] {
            assert!((end.ln() - ln).abs() < 1e-9, "{found:?}");
        }
    }

    #[test]
    fn figures_without_a_logarithm_are_left_out() {
        assert_eq!(paired(&[]), None);
        assert_eq!(paired(&[(0.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0)]), None);
        assert_eq!(paired(&[(0.0, 1.0), (1.0, 2.0)]).unwrap().blocks, 1);
    }

    #[test]
    fn only_runs_of_the_same_block_are_pairs() {
        let point = |block, throughput_per_s| Point {
            block,
            throughput_per_s,
            ..Point::default()
        };
        let base = [point(1, 10.0), point(2, 20.0), point(3, 40.0)];
        let other = [point(3, 80.0), point(1, 20.0)];
        let found = by_block(
            &base.iter().collect::<Vec<_>>(),
            &other.iter().collect::<Vec<_>>(),
            |p| Some(p.throughput_per_s),
        )
        .unwrap();
        assert_eq!(found.blocks, 2);
        assert!((found.ratio - 2.0).abs() < 1e-12);
    }

    #[test]
    fn the_interval_covers_the_truth_and_drift_of_the_machine_cancels() {
        let mut rng = Rng::new(4);
        for n in [6, 9, 12] {
            let trials = 3000;
            let mut covered = 0;
            for _ in 0..trials {
                let pairs: Vec<(f64, f64)> = (0..n)
                    .map(|block| {
                        let drift = 1.0 + 0.3 * f64::from(block);
                        let noise = 1.0 + 0.1 * (rng.unit_f64() - 0.5);
                        (1000.0 * drift, 1100.0 * drift * noise)
                    })
                    .collect();
                let found = paired(&pairs).unwrap();
                covered += u32::from(found.low <= 1.1 && 1.1 <= found.high);
            }
            // 95 % less three standard deviations of 3000 trials.
            let share = f64::from(covered) / f64::from(trials);
            assert!(share > 0.95 - 0.012, "{n} blocks: {share}");
        }
    }
}
