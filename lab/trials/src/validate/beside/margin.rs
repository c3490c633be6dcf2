//! By how much more is missed beside plants than in controls, with its upper limit.

use jostle_stats::rng::Rng;

/// Draws of the bootstrap.
const DRAWS: usize = 2_000;
/// One-sided.
const CONFIDENCE: f64 = 0.95;
const SEED: u64 = 58;

/// The mean of what trials miss more, and its upper limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Margin {
    pub mean: f64,
    pub upper: f64,
}

/// The mean of `each`, a share between -1 and 1 of each trial, and its one-sided upper limit of
/// 95 %: the percentile of means of as many trials, drawn from them with replacement (Efron &
/// Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3). None without a trial.
pub(super) fn margin(each: &[f64]) -> Option<Margin> {
    let count = each.len();
    let mean = |sum: f64| sum / count as f64;
    let mut rng = Rng::new(SEED);
    let mut means: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let drawn = (0..count).map(|_| each[rng.below(count as u64) as usize]);
            mean(drawn.sum())
        })
        .collect();
    means.sort_by(f64::total_cmp);
    (count > 0).then(|| Margin {
        mean: mean(each.iter().sum()),
        upper: means[(CONFIDENCE * DRAWS as f64) as usize],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many trials that miss with these chances beside the plant and in a control.
    fn series(trials: usize, [beside, control]: [f64; 2], seed: u64) -> Vec<f64> {
        let mut rng = Rng::new(seed);
        let mut misses = |chance: f64| f64::from(u8::from(rng.unit_f64() < chance));
        (0..trials)
            .map(|_| misses(beside) - misses(control))
            .collect()
    }

    #[test]
    fn the_limit_is_that_of_the_normal_distribution_where_that_holds() {
        let each: Vec<f64> = (0..400)
            .map(|nth| f64::from(u8::from(nth % 5 == 0)))
            .collect();
        let found = margin(&each).unwrap();
        let expected = 0.2 + 1.645 * (0.2 * 0.8 / 400.0_f64).sqrt();
        assert!((found.mean - 0.2).abs() < 1e-12);
        assert!(
            (found.upper - expected).abs() < 0.003,
            "{found:?} {expected}"
        );
        assert_eq!(margin(&[]), None);
        let never = margin(&[0.0; 30]);
        assert_eq!(
            never,
            Some(Margin {
                mean: 0.0,
                upper: 0.0
            })
        );
    }

    /// A difference of five points or more passes in about one series of twenty.
    #[test]
    fn the_limit_holds_as_often_as_it_says() {
        let covered = |chances: [f64; 2]| {
            let truth = chances[0] - chances[1];
            let holds = |seed: &u64| margin(&series(200, chances, *seed)).unwrap().upper >= truth;
            (0..100u64).filter(holds).count()
        };
        for chances in [[0.11, 0.06], [0.25, 0.20]] {
            let covered = covered(chances);
            assert!(
                (88..100).contains(&covered),
                "{chances:?}: {covered} of 100"
            );
        }
    }
}
