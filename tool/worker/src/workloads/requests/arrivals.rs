//! When requests are due that come at a rate: pure functions of rate, span and
//! seed. Whoever sends them sleeps; the pattern never does.

use crate::order::OpenLoopOrder;
use jostle_model::plan::Arrivals;
use jostle_stats::rng::Rng;

/// The intended starts within `span_ns`, in nanoseconds from its beginning,
/// ascending.
///
/// Constant: number i at `first_after` + i / rate, rounded down, so that no error
/// adds up.
/// Poisson: the gaps are independent and exponential with mean 1 / rate, so that the
/// number in the span varies by its root.
pub(super) fn due(open: &OpenLoopOrder, span_ns: u64, seed: u64) -> Vec<u64> {
    let per_s = open.per_s;
    let gap_ns = 1e9 / per_s.max(1) as f64;
    match open.arrivals {
        Arrivals::Constant => {
            let nth = |i: u64| u128::from(i) * 1_000_000_000 / u128::from(per_s.max(1));
            let first = open.first_after.0;
            let count = u128::from(span_ns.saturating_sub(first)) * u128::from(per_s.max(1));
            let count = count.div_ceil(1_000_000_000) as u64;
            (0..count).map(|i| first + nth(i) as u64).collect()
        }
        Arrivals::Poisson => {
            let mut rng = Rng::new(seed);
            let mut at = 0.0;
            let mut due = Vec::with_capacity((span_ns as f64 / gap_ns) as usize + 1);
            loop {
                at += gap_ns * rng.exponential();
                if at >= span_ns as f64 {
                    return due;
                }
                due.push(at as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::Nanos;

    const S: u64 = 1_000_000_000;

    fn due(arrivals: Arrivals, per_s: u64, span_ns: u64, seed: u64) -> Vec<u64> {
        super::due(&open(arrivals, per_s, 0), span_ns, seed)
    }

    fn open(arrivals: Arrivals, per_s: u64, first_after: u64) -> OpenLoopOrder {
        OpenLoopOrder {
            per_s,
            arrivals,
            drop_after: Nanos(S),
            first_after: Nanos(first_after),
        }
    }

    #[test]
    fn hosts_that_take_turns_keep_the_distances_of_one() {
        // Three hosts, 10 a second each.
        let hosts = [0, S / 30, 2 * S / 30]
            .map(|first| super::due(&open(Arrivals::Constant, 10, first), S, 1));
        let mut all = hosts.concat();
        all.sort_unstable();
        let one = due(Arrivals::Constant, 30, S, 1);
        assert_eq!(all.len(), one.len());
        let apart = all.iter().zip(&one).map(|(a, b)| a.abs_diff(*b));
        assert!(apart.max().unwrap() <= 2);
    }

    #[test]
    fn a_constant_rate_has_equal_gaps_and_nothing_at_the_end_of_the_span() {
        // a second, span -> count, first few
        let table: [(u64, u64, usize, &[u64]); 4] = [
            (4, S, 4, &[0, 250_000_000, 500_000_000, 750_000_000]),
            (3, S, 3, &[0, 333_333_333, 666_666_666]),
            (1, 3 * S / 2, 2, &[0, S]),
            (10_000, 5 * S, 50_000, &[0, 100_000]),
        ];
        for (per_s, span, count, first) in table {
            let due = due(Arrivals::Constant, per_s, span, 1);
            assert_eq!(due.len(), count, "{per_s}");
            assert_eq!(&due[..first.len()], first, "{per_s}");
            assert!(due.last() < Some(&span));
        }
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_deviation_of_an_exponential_one() {
        let due = due(Arrivals::Poisson, 1_000, 100 * S, 42);
        let gaps: Vec<f64> = due.windows(2).map(|two| (two[1] - two[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // 100,000 gaps: the standard error of either is under half a hundredth.
        assert!((mean / 1e6 - 1.0).abs() < 0.02, "{mean}");
        assert!((variance.sqrt() / 1e6 - 1.0).abs() < 0.03, "{variance}");
        assert!(due.is_sorted());
    }

    #[test]
    fn a_seed_says_it_all() {
        let of = |seed| due(Arrivals::Poisson, 1_000, S, seed);
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }
}
