//! One figure against another, from runs of the same blocks.
//!
//! Machines drift by more than targets differ. The two runs of one block stand
//! close together in time, so that their quotient keeps what the drift takes
//! from each. The quotients' logarithms go through Wilcoxon's signed-rank
//! statistic, which assumes symmetry and nothing else of their shape.

use crate::intervals::{COVERAGE, middle, sorted};
use jostle_model::record::Point;

/// Nearer to 1 than this, a ratio is of no consequence.
pub const EQUAL_WITHIN: f64 = 0.05;

/// What may be said of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The interval excludes 1, and the estimate lies outside of 0.95 to 1.05:
    /// a difference that is both certain and of consequence.
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
        outcome: outcome(ratio, low, high, cut.is_some()),
    })
}

/// [`paired`] on a figure of runs, matched by their block.
pub fn by_block(
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

fn outcome(ratio: f64, low: f64, high: f64, interval: bool) -> Outcome {
    let (least, most) = (1.0 - EQUAL_WITHIN, 1.0 + EQUAL_WITHIN);
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
    let mut below = 0.0;
    let mut cut = 0;
    for probability in signed_rank_distribution(n) {
        below += probability;
        if below > (1.0 - COVERAGE) / 2.0 {
            break;
        }
        cut += 1;
    }
    (cut > 0).then_some(cut)
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
