//! A look at two targets below the runs that a test takes: by how much one did better in the worst
//! case, and how often chance alone would show as much.
//!
//! Each run is an interval that takes in what other programs may have done to it. A look decides
//! nothing: no exit code and no comparison of two results follows from it.

use crate::figures::{Better, Figure};
use crate::rng::Rng;
use crate::summary::PointSummary;

/// The least ratio of the best's worst run to the worst's best one.
const LEAST: f64 = 1.25;

/// A look whose chance is above this must not be shown as one.
pub const MOST: f64 = 0.5;

/// One target beside another, after few runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// How many times as good the better one was at least, over all pairs of their runs.
    pub low: f64,
    /// How many times at most.
    pub high: f64,
    /// Runs of the one that has fewer.
    pub runs: usize,
    /// How often chance alone parts the best and the worst of so many equal targets as far: no run
    /// of one lies among those of the other. Above [`MOST`] it is no look.
    pub chance: f64,
}

/// `best` beside `worst`, of so many targets; None where their runs overlap, or nearly do.
pub fn look(
    figure: &Figure,
    best: &PointSummary<'_>,
    worst: &PointSummary<'_>,
    targets: usize,
) -> Option<Look> {
    let (best, worst) = (best.reached(figure)?, worst.reached(figure)?);
    let (low, high) = match figure.better {
        Better::More => (best.low / worst.high, best.high / worst.low),
        Better::Less => (worst.low / best.high, worst.high / best.low),
    };
    let runs = best.runs.min(worst.runs);
    let is_apart = low >= LEAST && high.is_finite();
    is_apart.then(|| Look {
        low,
        high,
        runs,
        chance: chance(targets, runs),
    })
}

/// The chance that no run of the target with the greatest median lies among those of the one with
/// the least, if the runs of all of them are alike: 1 of 10 for two targets with three runs each.
/// Drawn, always with the same numbers; to about a hundredth.
fn chance(targets: usize, runs: usize) -> f64 {
    const DRAWN: u32 = 4_000;
    if targets == 2 {
        // Both ways of the C(2 r, r) in which two sets of r runs can be mixed.
        let ways = (1..=runs).fold(1.0, |ways, n| ways * (runs + n) as f64 / n as f64);
        return 2.0 / ways;
    }
    let mut rng = Rng::new(targets as u64);
    let apart = (0..DRAWN).filter(|_| {
        let mut all: Vec<Vec<u64>> = (0..targets)
            .map(|_| {
                let mut drawn: Vec<u64> = (0..runs).map(|_| rng.next_u64()).collect();
                drawn.sort_unstable();
                drawn
            })
            .collect();
        all.sort_by_key(|drawn| drawn[runs / 2]);
        all[0][runs - 1] < all[targets - 1][0]
    });
    apart.count() as f64 / f64::from(DRAWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{CPU, THROUGHPUT};
    use crate::fixtures::{experiment, made, queue};
    use crate::summary::summarize;

    #[test]
    fn chance_parts_two_of_three_runs_once_in_ten_and_the_ends_of_eight_far_more_often() {
        assert!((chance(2, 3) - 0.1).abs() < 1e-9);
        assert!((chance(2, 5) - 2.0 / 252.0).abs() < 1e-9);
        assert!((0.25..0.40).contains(&chance(8, 3)), "{}", chance(8, 3));
        assert!((1.0 - chance(2, 1)).abs() < 1e-9 && chance(3, 1) > 0.99);
        // As drawn, two are what is computed.
        assert_eq!(chance(8, 3), chance(8, 3));
    }

    #[test]
    fn runs_that_lie_apart_are_told_from_the_least_ratio_on() {
        let of = |others: f64| {
            let made = made(3).with("flock", 1000.0, 40.0, &queue(10, 472)).with(
                "sysv",
                others,
                80.0,
                &queue(10, 472),
            );
            let experiment = experiment();
            let points = summarize(&experiment, &made.runs);
            [
                look(THROUGHPUT, &points[0], &points[1], 2),
                look(CPU, &points[0], &points[1], 2),
            ]
        };
        let [rate, cpu] = of(500.0).map(Option::unwrap);
        assert!(
            (1.9..2.1).contains(&rate.low) && rate.high < 2.2,
            "{rate:?}"
        );
        assert!((1.9..2.1).contains(&cpu.low) && cpu.runs == 3, "{cpu:?}");
        assert_eq!(of(900.0)[0], None);
    }
}
