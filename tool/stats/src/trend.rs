//! Does a series drift? Slope and significance, robust against single spikes.

use crate::gamma::normal_two_sided;
use crate::intervals::median;

/// The median of the slopes between all pairs of equally spaced values, per
/// step (Theil 1950; Sen, J. Am. Stat. Assoc. 63, 1968). None under two values
/// or where one is not finite.
pub(crate) fn theil_sen(values: &[f64]) -> Option<f64> {
    let mut slopes = Vec::with_capacity(values.len() * values.len() / 2);
    for (i, earlier) in values.iter().enumerate() {
        for (j, later) in values.iter().enumerate().skip(i + 1) {
            slopes.push((later - earlier) / (j - i) as f64);
        }
    }
    median(&slopes)
}

/// A test for a monotonic trend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MannKendall {
    /// Pairs that rise minus pairs that fall.
    pub s: i64,
    /// Two-sided probability of such an S, or one further from 0, without a
    /// trend.
    pub p: f64,
}

/// Up to this length the distribution of S is taken from all orders.
const EXACT_UP_TO: usize = 10;

/// Mann's test (Econometrica 13, 1945; Kendall, Rank correlation methods, 4th
/// edition 1975). Exact for up to ten values without ties; otherwise by the
/// normal approximation with the variance corrected for ties,
/// (n(n-1)(2n+5) - sum t(t-1)(2t+5)) / 18, and continuity-corrected. Ten values
/// of which some are equal thus have a p that is off by up to a hundredth.
pub(crate) fn mann_kendall(values: &[f64]) -> MannKendall {
    let mut s = 0;
    for (i, earlier) in values.iter().enumerate() {
        for later in &values[i + 1..] {
            s += i64::from(later > earlier) - i64::from(later < earlier);
        }
    }
    let ties = tie_groups(values);
    let p = if s == 0 {
        1.0
    } else if values.len() <= EXACT_UP_TO && ties.is_empty() {
        exact_p(values.len(), s.unsigned_abs())
    } else {
        normal_p(values.len(), s.unsigned_abs(), &ties)
    };
    MannKendall { s, p }
}

/// Sizes of the groups of equal values.
fn tie_groups(values: &[f64]) -> Vec<usize> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let sorted = sorted.chunk_by(|a, b| a == b).map(<[f64]>::len);
    sorted.filter(|t| *t > 1).collect()
}

/// Twice the share of the n! orders whose S is at least `s`. An order with I
/// inversions has S = n(n-1)/2 - 2I, and the orders with I inversions are
/// counted by placing one value after another: the k-th adds 0 to k - 1.
fn exact_p(n: usize, s: u64) -> f64 {
    let mut shares = vec![1.0];
    for k in 2..=n {
        let mut next = vec![0.0; shares.len() + k - 1];
        for (inversions, share) in shares.iter().enumerate() {
            for slot in &mut next[inversions..inversions + k] {
                *slot += share / k as f64;
            }
        }
        shares = next;
    }
    let most = shares.len() as u64 - 1;
    let inversions = (most - s.min(most)) / 2;
    let tail: f64 = shares[..=inversions as usize].iter().sum();
    (2.0 * tail).min(1.0)
}

fn normal_p(n: usize, s: u64, ties: &[usize]) -> f64 {
    let term = |n: usize| (n * (n - 1) * (2 * n + 5)) as f64;
    let variance = (term(n) - ties.iter().map(|t| term(*t)).sum::<f64>()) / 18.0;
    if variance <= 0.0 {
        return 1.0;
    }
    normal_two_sided((s as f64 - 1.0) / variance.sqrt())
}

/// The least drift worth a word, as a share of the mean.
pub const WORTH: f64 = 0.10;

/// Probability of a drift without a trend under which it is taken for one.
pub const P: f64 = 0.01;

/// Share of the runs that must drift in the same direction.
const RUNS_SHARE: f64 = 2.0 / 3.0;

/// How far a series drifts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// From its beginning to its end, as a share of its mean: Theil-Sen's slope by
    /// the number of values.
    pub share: f64,
    /// Mann-Kendall's p.
    pub p: f64,
}

/// None of values that are too few, not finite, or without a positive mean.
pub fn drift(values: &[f64]) -> Option<Drift> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let share = theil_sen(values)? * count / mean;
    (mean > 0.0).then(|| Drift {
        share,
        p: mann_kendall(values).p,
    })
}

/// A drift that runs agree on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreed {
    /// The median of those that agree.
    pub share: f64,
    /// How many they are.
    pub runs: usize,
}

/// Above 10 % of the mean with p < 0.01, in the same direction in two thirds of the
/// runs; None else.
pub fn agreed(runs: &[Drift]) -> Option<Agreed> {
    let towards = |sign: f64| -> Vec<f64> {
        let sure = runs
            .iter()
            .filter(|drift| drift.share * sign > WORTH && drift.p < P);
        sure.map(|drift| drift.share).collect()
    };
    let (up, down) = (towards(1.0), towards(-1.0));
    let agreed = if up.len() >= down.len() { up } else { down };
    let enough = agreed.len() as f64 >= RUNS_SHARE * runs.len() as f64;
    let share = median(&agreed).filter(|_| enough)?;
    Some(Agreed {
        share,
        runs: agreed.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn the_slope_ignores_a_spike() {
        assert_eq!(theil_sen(&[1.0, 3.0, 5.0, 7.0]), Some(2.0));
        assert_eq!(theil_sen(&[10.0, 10.0, 900.0, 10.0, 10.0]), Some(0.0));
        assert_eq!(theil_sen(&[1.0]), None);
    }

    #[test]
    fn the_exact_p_is_the_tabulated_one() {
        // Kendall's table: P(S >= s), here doubled.
        let table = [
            (4, 6, 0.042),
            (5, 8, 0.042),
            (5, 10, 0.0083),
            (8, 20, 0.007_1),
            (10, 23, 0.023),
            (10, 27, 0.008_3),
            (10, 21, 0.036),
        ];
        for (n, s, one_sided) in table {
            let p = exact_p(n, s) / 2.0;
            assert!((p - one_sided).abs() < 0.0006, "n {n}, S {s}: {p}");
        }
    }

    #[test]
    fn orders_give_their_statistic() {
        let rising: Vec<f64> = (0..10).map(f64::from).collect();
        let falling: Vec<f64> = rising.iter().rev().copied().collect();
        assert_eq!(mann_kendall(&rising).s, 45);
        assert_eq!(mann_kendall(&falling).s, -45);
        assert!(mann_kendall(&falling).p < 1e-6);
        assert_eq!(mann_kendall(&[5.0; 10]), MannKendall { s: 0, p: 1.0 });
        assert_eq!(mann_kendall(&[]).p, 1.0);
    }

    #[test]
    fn ties_and_the_normal_approximation_agree_with_the_exact_p() {
        // One tie among ten: close to the exact p without it.
        let tied = [1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 6.0, 8.0, 7.0, 9.0];
        let found = mann_kendall(&tied);
        assert_eq!(found.s, 42);
        assert!(found.p < 0.001, "{found:?}");
        // n 5, a group of four: variance (300 - 156) / 18 = 8, z = 3 / sqrt(8).
        let grouped = mann_kendall(&[1.0, 1.0, 1.0, 1.0, 2.0]);
        assert_eq!(grouped.s, 4);
        assert!((grouped.p - 0.2888).abs() < 1e-3, "{grouped:?}");
        for s in [15, 21, 29] {
            let (exact, normal) = (exact_p(10, s), normal_p(10, s, &[]));
            assert!((exact - normal).abs() < 0.01, "S {s}: {exact} {normal}");
        }
    }

    #[test]
    fn without_a_trend_one_series_in_a_hundred_is_flagged() {
        let mut rng = Rng::new(9);
        let mut flagged = 0;
        for _ in 0..10_000 {
            let series: Vec<f64> = (0..10).map(|_| rng.unit_f64()).collect();
            flagged += u32::from(mann_kendall(&series).p < 0.01);
        }
        // At most 1 %, and discrete: 0.92 % expected for ten values.
        assert!((50..=130).contains(&flagged), "{flagged}");
    }
}
