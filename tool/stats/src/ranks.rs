//! Wilcoxon's rank statistics of many runs: where an interval begins among the sorted pairs
//! of a sample, and those pairs, selected without making a list of them.
//!
//! Ten thousand runs have fifty million pairs. So no list of them is made, and no table of
//! them that takes more than [`MOST_STEPS`].

use crate::intervals::COVERAGE;

/// The distribution of a statistic is counted exactly where that takes at most so many
/// steps, such as for 100 runs against 100. Beyond, the normal approximation is within
/// 0.003 of each of its probabilities (see the tests).
const MOST_STEPS: usize = 1_000_000;

/// The standard normal variable is below `-Z` with a probability of (1 - [`COVERAGE`]) / 2.
const Z: f64 = 1.959_963_984_540_054;

/// The largest c with P(T < c) <= 2.5 %, where T is the signed-rank statistic of n
/// differences without effect. None under 6, where even c = 1 is too much. `tied` is that
/// of [`ties`].
///
/// Beyond [`MOST_STEPS`] T is taken as normal with the mean n(n+1)/4 and the variance
/// n(n+1)(2n+1)/24 - `tied`/48, and half a rank of continuity (Hollander, Wolfe & Chicken,
/// Nonparametric statistical methods, 3rd edition 2014, section 3.1; Lehmann,
/// Nonparametrics, 1975, section 3.2).
pub(crate) fn signed_rank_cut(n: usize, tied: f64) -> Option<usize> {
    let pairs = n * (n + 1) / 2;
    if n * pairs <= MOST_STEPS {
        return cut(signed_rank_distribution(n));
    }
    let n = n as f64;
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - tied / 48.0;
    normal_cut(pairs, variance)
}

/// The largest c with P(U < c) <= 2.5 %, where U is the rank-sum statistic of m and n values
/// without effect. None where even c = 1 is too much. `tied` is the sum of [`ties`] of
/// both sides: values that are tied within a side are so under each shift of the other.
///
/// Beyond [`MOST_STEPS`] U is taken as normal with the mean mn/2 and the variance
/// mn/12 (m+n+1 - `tied`/((m+n)(m+n-1))), and half a rank of continuity (Hollander, Wolfe &
/// Chicken, section 4.1; Lehmann, section 1.3).
pub(crate) fn rank_sum_cut(m: usize, n: usize, tied: f64) -> Option<usize> {
    let pairs = m * n;
    if m.min(n) * pairs <= MOST_STEPS {
        return cut(rank_sum_distribution(m, n));
    }
    let all = (m + n) as f64;
    let variance = pairs as f64 / 12.0 * (all + 1.0 - tied / (all * (all - 1.0)));
    normal_cut(pairs, variance)
}

/// The sum of t^3 - t over the groups of t equal values; 0 where all differ.
pub(crate) fn ties(sorted: &[f64]) -> f64 {
    let groups = sorted.chunk_by(|a, b| a == b);
    let groups = groups.map(|group| group.len() as f64);
    groups.map(|t| t.powi(3) - t).sum()
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

/// The cut of a whole-numbered normal variable from 0 to `pairs`: P(T < c) is that of being below
/// c - 1/2.
fn normal_cut(pairs: usize, variance: f64) -> Option<usize> {
    let cut = (pairs as f64 / 2.0 + 0.5 - Z * variance.sqrt()).floor();
    (cut >= 1.0).then_some(cut as usize)
}

/// P(U = u) for u = 0, 1, ..., mn, exactly: the coefficients of the Gaussian binomial
/// coefficient, the product of (1 - x^(n+i)) / (1 - x^i) for i = 1 to m, by the number of
/// all orders (Harding, Applied Statistics 33, 1984). m is the smaller: mn steps a factor.
fn rank_sum_distribution(m: usize, n: usize) -> Vec<f64> {
    let (m, n) = (m.min(n), m.max(n));
    let mut p = vec![0.0; m * n + 1];
    p[0] = 1.0;
    for i in 1..=m {
        // From the top, so that a place is subtracted before it changes.
        for u in (n + i..p.len()).rev() {
            p[u] -= p[u - n - i];
        }
        for u in i..p.len() {
            p[u] += p[u - i];
        }
        let share = i as f64 / (n + i) as f64;
        p.iter_mut().for_each(|p| *p *= share);
    }
    p
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

/// The figures of all pairs of a sample, known by how many of them are at most so large.
pub(crate) struct Pairs<F> {
    /// Number of pairs, at least one.
    pub count: usize,
    /// The least and the greatest of them.
    ends: [f64; 2],
    at_most: F,
}

/// The differences of each of `other` and each of `base`. Both are sorted, and not empty.
pub(crate) fn differences(base: &[f64], other: &[f64]) -> Pairs<impl Fn(f64) -> usize> {
    let (m, n) = (base.len(), other.len());
    Pairs {
        count: m * n,
        ends: [other[0] - base[m - 1], other[n - 1] - base[0]],
        // A larger value of `other` has fewer partners, and each of them is a larger one.
        at_most: move |most| {
            let mut from = 0;
            let partners = other.iter().map(|o| {
                while from < m && o - base[from] > most {
                    from += 1;
                }
                m - from
            });
            partners.sum()
        },
    }
}

/// The averages of each two values, each with itself included (Walsh averages). The values
/// are sorted, and not empty.
pub(crate) fn averages(values: &[f64]) -> Pairs<impl Fn(f64) -> usize> {
    let n = values.len();
    Pairs {
        count: n * (n + 1) / 2,
        ends: [values[0], values[n - 1]],
        // A larger value has fewer partners; those before it have counted the pair.
        at_most: move |most| {
            let mut to = n;
            let partners = values.iter().enumerate().map(|(i, a)| {
                while to > 0 && (a + values[to - 1]) / 2.0 > most {
                    to -= 1;
                }
                to.saturating_sub(i)
            });
            partners.sum()
        },
    }
}

impl<F: Fn(f64) -> usize> Pairs<F> {
    /// The k-th smallest, from 1: the least number that at least k pairs do not exceed, by
    /// halving the floating-point numbers between both ends, at most 64 times.
    pub(crate) fn smallest(&self, k: usize) -> f64 {
        let [mut low, mut high] = self.ends.map(in_order);
        while low < high {
            // Without the overflow of a sum.
            let middle = (low & high) + ((low ^ high) >> 1);
            match (self.at_most)(number(middle)) >= k {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        number(low)
    }

    /// How many are at most this.
    pub(crate) fn at_most(&self, most: f64) -> usize {
        (self.at_most)(most)
    }

    /// The middle pair, or the mean of the middle two.
    pub(crate) fn median(&self) -> f64 {
        let half = self.smallest(self.count.div_ceil(2));
        match self.count % 2 {
            1 => half,
            _ => (half + self.smallest(self.count / 2 + 1)) / 2.0,
        }
    }
}

/// The place of a number among all floating-point numbers, as `total_cmp` orders them.
fn in_order(number: f64) -> i64 {
    let bits = number.to_bits().cast_signed();
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

/// The number at this place.
fn number(place: i64) -> f64 {
    f64::from_bits((place ^ ((place >> 63).cast_unsigned() >> 1).cast_signed()).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gamma::normal_two_sided;
    use crate::intervals::middle;
    use crate::rng::Rng;
    use std::cell::Cell;

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
            assert_eq!(signed_rank_cut(n, 0.0), cut, "{n}");
        }
        for (n, cut) in [(10, 9), (12, 14), (15, 26), (20, 53)] {
            assert_eq!(signed_rank_cut(n, 0.0), Some(cut), "{n}");
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
            assert_eq!(rank_sum_cut(m, n, 0.0), expected, "{m} {n}");
            assert_eq!(rank_sum_cut(n, m, 0.0), expected, "{n} {m}");
        }
    }

    /// P(a normal variable is below `x`).
    fn normal_below(x: f64, mean: f64, variance: f64) -> f64 {
        let z = (x - mean) / variance.sqrt();
        let beyond = normal_two_sided(z) / 2.0;
        if z < 0.0 { beyond } else { 1.0 - beyond }
    }

    /// The greatest distance between P(T < c), exactly and by the normal approximation.
    fn worst(distribution: &[f64], variance: f64) -> f64 {
        let mean = (distribution.len() - 1) as f64 / 2.0;
        let mut below = 0.0;
        let mut worst: f64 = 0.0;
        for (c, p) in distribution.iter().enumerate() {
            worst = worst.max((normal_below(c as f64 - 0.5, mean, variance) - below).abs());
            below += p;
        }
        worst
    }

    #[test]
    fn where_it_takes_over_the_normal_approximation_is_within_the_stated_bound() {
        for (m, n) in [(101, 101), (32, 1000), (11, 10_000)] {
            let (m64, n64) = (m as f64, n as f64);
            let off = worst(
                &rank_sum_distribution(m, n),
                m64 * n64 * (m64 + n64 + 1.0) / 12.0,
            );
            assert!(off < 0.003, "{m} and {n}: {off}");
        }
        let n = 126_f64;
        let off = worst(
            &signed_rank_distribution(126),
            n * (n + 1.0) * (2.0 * n + 1.0) / 24.0,
        );
        assert!(off < 0.003, "{off}");
    }

    #[test]
    fn the_cut_hardly_moves_where_the_normal_approximation_takes_over() {
        // The fewest runs for which the exact distribution is not used, by either way.
        let exact = cut(rank_sum_distribution(216, 216)).unwrap();
        let found = rank_sum_cut(216, 216, 0.0).unwrap();
        assert!(found.abs_diff(exact) <= 2, "{found}, not {exact}");
        let exact = cut(signed_rank_distribution(272)).unwrap();
        let found = signed_rank_cut(272, 0.0).unwrap();
        assert!(found.abs_diff(exact) <= 2, "{found}, not {exact}");
    }

    #[test]
    fn ties_narrow_the_interval_as_much_as_they_lower_the_variance() {
        assert_eq!(ties(&[1.0, 2.0, 2.0, 3.0, 3.0, 3.0]), 6.0 + 24.0);
        assert_eq!(ties(&[1.0, 2.0]), 0.0);
        // 300 values of only two: the variance of m = n = 300 falls from 601 to 601 less
        // 4 (150^3 - 150) / (600 * 599), both times 7,500.
        let two: Vec<f64> = (0..300).map(|i| f64::from(i / 150)).collect();
        let tied = 2.0 * ties(&two);
        let variance = 7_500.0 * (601.0 - 4.0 * 3_374_850.0 / 359_400.0);
        let expected = (45_000.5 - 1.959_964 * f64::sqrt(variance)).floor();
        assert_eq!(rank_sum_cut(300, 300, tied), Some(expected as usize));
        assert!(rank_sum_cut(300, 300, tied) > rank_sum_cut(300, 300, 0.0));
        assert!(signed_rank_cut(300, ties(&two)) > signed_rank_cut(300, 0.0));
    }

    #[test]
    fn pairs_are_selected_as_from_a_sorted_list_of_all() {
        let mut rng = Rng::new(11);
        for (m, n) in [(1, 1), (1, 7), (6, 9), (40, 31)] {
            // Rounded, so that many are equal, and of either sign.
            let mut drawn = |count: usize| -> Vec<f64> {
                let mut values: Vec<f64> =
                    (0..count).map(|_| (5.0 * rng.normal()).round()).collect();
                values.sort_by(f64::total_cmp);
                values
            };
            let (base, other) = (drawn(m), drawn(n));
            let each = base.iter().flat_map(|b| other.iter().map(move |o| o - b));
            same(&differences(&base, &other), each.collect());
            let each = base
                .iter()
                .enumerate()
                .flat_map(|(i, a)| base[i..].iter().map(move |b| (a + b) / 2.0));
            same(&averages(&base), each.collect());
        }
    }

    fn same<F: Fn(f64) -> usize>(pairs: &Pairs<F>, mut all: Vec<f64>) {
        all.sort_by(f64::total_cmp);
        assert_eq!(pairs.count, all.len());
        for (i, value) in all.iter().enumerate() {
            assert_eq!(pairs.smallest(i + 1), *value, "the {i}th of {all:?}");
        }
        assert_eq!(pairs.median(), middle(&all));
    }

    /// With tables and lists of all pairs, 10,000 runs took 2.8 GB and more than minutes.
    #[test]
    fn ten_thousand_runs_are_passed_over_some_hundred_times() {
        let values: Vec<f64> = (0..10_000).map(f64::from).collect();
        let passes = Cell::new(0);
        let all = differences(&values, &values);
        let counted = Pairs {
            count: all.count,
            ends: all.ends,
            at_most: |most| {
                passes.set(passes.get() + 1);
                (all.at_most)(most)
            },
        };
        assert_eq!((counted.median(), counted.smallest(1)), (0.0, -9999.0));
        assert!(passes.get() <= 3 * 64, "{} passes", passes.get());
        assert!(rank_sum_cut(10_000, 10_000, 0.0).is_some());
        assert!(signed_rank_cut(10_000, 0.0).is_some());
        assert_eq!(averages(&values).median(), 4999.5);
    }
}
