//! One figure against another, from runs of the same blocks.
//!
//! Machines drift by more than targets differ. The two runs of one block stand
//! close together in time, so that their quotient keeps what the drift takes
//! from each. The quotients' logarithms go through Wilcoxon's signed-rank
//! statistic, which assumes symmetry and nothing else of their shape.

use crate::figures::Figure;
use crate::intervals::sorted;
use crate::ranks::{Pairs, averages, differences, rank_sum_cut, signed_rank_cut, ties};
use crate::summary::PointSummary;
use std::collections::HashMap;

/// A ratio within this distance of 1 counts as equal.
pub(crate) const EQUAL_WITHIN: f64 = 0.05;

/// The conclusion about a ratio.
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
    /// The estimate nearest to 1 that the intervals of the runs allow.
    pub nearest: f64,
    /// Blocks.
    pub blocks: usize,
    /// The conclusion.
    pub outcome: Outcome,
}

/// A figure of a run: the least that it would have been without other programs, what was
/// measured, and the most.
pub type Ends = [f64; 3];

impl Ratio {
    /// This estimate, with the interval of the least and that of the greatest ratio.
    fn between(self, least: &Ratio, most: &Ratio) -> Ratio {
        let nearest = nearest(least.ratio, most.ratio);
        let (low, high) = (least.low, most.high);
        Ratio {
            low,
            high,
            nearest,
            outcome: outcome([nearest, low, high], self.interval, EQUAL_WITHIN),
            ..self
        }
    }
}

/// The ratio nearest to 1 of all between these two.
pub(crate) fn nearest(least: f64, most: f64) -> f64 {
    if least > 1.0 { least } else { most.min(1.0) }
}

/// [`paired`] of intervals: the least ratio is that of the other's least to the base's
/// greatest figure, and the greatest the reverse.
fn paired_within(pairs: &[(Ends, Ends)]) -> Option<Ratio> {
    let of = |base: usize, other: usize| {
        let pairs = pairs.iter().map(|(b, o)| (b[base], o[other]));
        paired(&pairs.collect::<Vec<_>>())
    };
    Some(of(1, 1)?.between(&of(2, 0)?, &of(0, 2)?))
}

/// [`unpaired`] for figures with a least and a greatest value.
pub(crate) fn unpaired_within(base: &[Ends], other: &[Ends]) -> Option<Ratio> {
    let each = |figures: &[Ends], end: usize| figures.iter().map(|e| e[end]).collect::<Vec<f64>>();
    let of = |b: usize, o: usize| unpaired(&each(base, b), &each(other, o));
    Some(of(1, 1)?.between(&of(2, 0)?, &of(0, 2)?))
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
/// Nonparametric statistical methods, 3rd edition 2014, section 3.3), exactly or, with
/// hundreds of blocks, nearly (`signed_rank_cut`).
pub fn paired(pairs: &[(f64, f64)]) -> Option<Ratio> {
    paired_by(pairs, |logs| signed_rank_cut(logs.len(), ties(logs)))
}

/// Pairs after which a sequence of pairs is looked at, and c at that look: P(T < c) is 1/64,
/// 2/512 and 19/4096, together 2.42 %, so that the intervals of all three looks hold at the
/// same time in 95 % of the sequences (Bonferroni).
pub(crate) const LOOKS: [(usize, usize); 3] = [(6, 1), (9, 2), (12, 8)];

/// [`paired`] at one of the [`LOOKS`]; with another number of pairs, the same as it.
pub(crate) fn paired_at_look(pairs: &[(f64, f64)]) -> Option<Ratio> {
    paired_by(pairs, |logs| {
        let look = LOOKS.iter().find(|(pairs, _)| *pairs == logs.len());
        look.map_or_else(
            || signed_rank_cut(logs.len(), ties(logs)),
            |(_, cut)| Some(*cut),
        )
    })
}

fn paired_by(pairs: &[(f64, f64)], cut: impl Fn(&[f64]) -> Option<usize>) -> Option<Ratio> {
    let usable = |x: f64| x.is_finite() && x > 0.0;
    let logs: Vec<f64> = pairs
        .iter()
        .filter(|(base, other)| usable(*base) && usable(*other))
        .map(|(base, other)| (other / base).ln())
        .collect();
    let logs = sorted(&logs)?;
    let cut = cut(&logs);
    let range = [logs[0], logs[logs.len() - 1]];
    Some(ratio_of(&averages(&logs), cut, range, logs.len()))
}

/// The ratio of the second figure to the first for unpaired runs, such as those of two
/// sessions. None if a side has no usable run.
///
/// The estimate is the median of all differences of one log of either side
/// (Hodges & Lehmann, as above); the interval runs from the c-th smallest to the
/// c-th largest, where c is the largest number with P(U < c) <= 2.5 % for the
/// rank-sum statistic U (Mann & Whitney, Ann. Math. Statist. 18, 1947; Hollander,
/// Wolfe & Chicken, section 4.3), exactly or, with hundreds of runs, nearly
/// (`rank_sum_cut`). Four runs of each are the fewest with an interval; `blocks` is the
/// smaller number.
pub fn unpaired(base: &[f64], other: &[f64]) -> Option<Ratio> {
    let (base, other) = (sorted(&logs(base))?, sorted(&logs(other))?);
    let (m, n) = (base.len(), other.len());
    let cut = rank_sum_cut(m, n, ties(&base) + ties(&other));
    let range = [other[0] - base[m - 1], other[n - 1] - base[0]];
    Some(ratio_of(&differences(&base, &other), cut, range, m.min(n)))
}

/// Whether the interval of [`unpaired`] has a part within these ratios; true without an interval.
/// For thousands of figures: it looks at the interval's ends, and does not search them.
pub(crate) fn unpaired_reaches(base: &[f64], other: &[f64], [least, most]: [f64; 2]) -> bool {
    let (Some(base), Some(other)) = (sorted(&logs(base)), sorted(&logs(other))) else {
        return true;
    };
    let Some(cut) = rank_sum_cut(base.len(), other.len(), ties(&base) + ties(&other)) else {
        return true;
    };
    let pairs = differences(&base, &other);
    let below = pairs.at_most(least.ln().next_down());
    pairs.at_most(most.ln()) >= cut && below < pairs.count + 1 - cut
}

fn logs(figures: &[f64]) -> Vec<f64> {
    let usable = figures.iter().filter(|x| x.is_finite() && **x > 0.0);
    usable.map(|x| x.ln()).collect()
}

/// The ratio of an estimate in logarithms: the median of the pairs, from the `cut`-th
/// smallest to the `cut`-th largest, or the plain range without a cut.
fn ratio_of<F: Fn(f64) -> usize>(
    pairs: &Pairs<F>,
    cut: Option<usize>,
    range: [f64; 2],
    blocks: usize,
) -> Ratio {
    let [low, high] = match cut {
        Some(c) => [pairs.smallest(c), pairs.smallest(pairs.count + 1 - c)],
        None => range,
    }
    .map(f64::exp);
    let ratio = pairs.median().exp();
    Ratio {
        ratio,
        low,
        high,
        interval: cut.is_some(),
        nearest: ratio,
        blocks,
        outcome: outcome([ratio, low, high], cut.is_some(), EQUAL_WITHIN),
    }
}

/// [`paired`] on a figure of two points, over the runs of each block that can be compared and
/// that the figure is taken over.
pub fn by_block(
    base: &PointSummary<'_>,
    other: &PointSummary<'_>,
    figure: &Figure,
) -> Option<Ratio> {
    // The first run of a block stands for it: later ones do not replace it.
    let others = other.comparable(figure).into_iter().rev();
    let by_number: HashMap<u32, Ends> = others.map(|(run, ends)| (run.block, ends)).collect();
    let pairs = base.comparable(figure).into_iter();
    let pairs = pairs.filter_map(|(run, ends)| Some((ends, *by_number.get(&run.block)?)));
    paired_within(&pairs.collect::<Vec<_>>())
}

/// The conclusion from an estimate, its lower and its upper end, where shares up to `within` are of
/// no consequence.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::THROUGHPUT;
    use crate::fixtures;
    use crate::rng::Rng;
    use crate::summary::summarize;
    use jostle_model::record::{At, Run};

    fn ratios(values: &[f64]) -> Vec<(f64, f64)> {
        values.iter().map(|r| (100.0, 100.0 * r)).collect()
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
                let [base, other] = [drawn(1000.0, m), drawn(1100.0, n)];
                let found = unpaired(&base, &other).unwrap();
                for [least, most] in [[0.98, 1.02], [1.05, 1.12], [1.2, 1.3]] {
                    let reaches = found.low <= most && found.high >= least;
                    assert_eq!(
                        unpaired_reaches(&base, &other, [least, most]),
                        reaches || !found.interval
                    );
                }
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
    fn only_runs_of_the_same_block_are_pairs_and_their_bounds_widen_the_interval() {
        let experiment = fixtures::experiment();
        let runs = [("flock", 1, 10.0), ("flock", 2, 20.0), ("flock", 3, 40.0)];
        let runs = runs
            .into_iter()
            .chain([("sysv", 3, 80.0), ("sysv", 1, 20.0)]);
        let runs = runs.map(|(target, block, throughput_per_s)| Run {
            target: target.to_owned(),
            block,
            throughput_per_s,
            at: At {
                workers: Some(1),
                ..At::default()
            },
            // Kept from its CPUs for 2 % of the window, it may have done 2 % more.
            ..fixtures::beside(5.0, if target == "sysv" { 0.1 } else { 0.0 })
        });
        let runs: Vec<Run> = runs.collect();
        let found = summarize(&experiment, &runs);
        let found = by_block(&found[0], &found[1], THROUGHPUT).unwrap();
        assert_eq!((found.blocks, found.low, found.high), (2, 2.0, 2.0 / 0.98));
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
