//! The samples that the fits see of a sweep: one level for each N, and how sure it is.

use super::Sample;
use crate::intervals::{median, middle, sorted};

/// A level within this share of a curve counts as on it: no machine's cost follows a law
/// exactly, and a bend of one per cent does not matter.
const OF_NO_CONSEQUENCE: f64 = 0.01;

/// Levels and their error.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// The swept values, ascending.
    pub n: Vec<f64>,
    /// The median over the blocks at each, the blocks' own speed taken out.
    pub t: Vec<f64>,
    /// Variance of each level, as a share of it, squared.
    pub variance: Vec<f64>,
    /// Degrees of freedom behind the variance.
    pub degrees: f64,
    /// Fewest runs of one N.
    pub runs: usize,
}

impl Data {
    /// None where a sample is empty or holds what no cost can be.
    pub fn new(samples: &[Sample]) -> Option<Data> {
        if samples.is_empty() {
            return None;
        }
        let mut samples: Vec<&Sample> = samples.iter().collect();
        samples.sort_by_key(|sample| sample.n);
        let logs: Vec<Vec<(u32, f64)>> = samples.iter().map(|s| logs(s)).collect::<Option<_>>()?;
        let logs = without_blocks(&logs);
        let levels: Vec<f64> = logs.iter().map(|runs| level(runs)).collect::<Option<_>>()?;
        let runs: Vec<usize> = logs.iter().map(Vec::len).collect();
        let squares: f64 = logs
            .iter()
            .zip(&levels)
            .flat_map(|(runs, level)| runs.iter().map(move |(_, x)| (x - level).powi(2)))
            .sum();
        let blocks = runs.iter().copied().max().unwrap_or(0);
        let degrees = runs.iter().sum::<usize>() as f64 - (runs.len() + blocks) as f64 + 1.0;
        let of_run = if degrees > 0.0 {
            squares / degrees
        } else {
            return None;
        };
        Some(Data {
            n: samples.iter().map(|s| s.n as f64).collect(),
            t: levels.iter().map(|level| level.exp()).collect(),
            variance: runs
                .iter()
                .map(|runs| of_run * of_median(*runs) + OF_NO_CONSEQUENCE.powi(2))
                .collect(),
            degrees,
            runs: runs.into_iter().min().unwrap_or(0),
        })
    }

    /// How many N.
    pub fn values(&self) -> usize {
        self.n.len()
    }

    /// Some of the N; the error stays that of all.
    pub fn part(&self, range: std::ops::Range<usize>) -> Data {
        Data {
            n: self.n[range.clone()].to_vec(),
            t: self.t[range.clone()].to_vec(),
            variance: self.variance[range].to_vec(),
            ..*self
        }
    }

    /// Sum over N of (residual / its standard error)^2, residuals as a share of
    /// the curve.
    pub(crate) fn chi_square(&self, curve: impl Fn(f64) -> f64) -> f64 {
        let each = self.n.iter().zip(&self.t).zip(&self.variance);
        each.map(|((n, t), variance)| (t / curve(*n) - 1.0).powi(2) / variance)
            .sum()
    }
}

fn logs(sample: &Sample) -> Option<Vec<(u32, f64)>> {
    let usable = |x: f64| (x.is_finite() && x > 0.0).then(|| x.ln());
    let runs = sample.runs.iter();
    let logs: Option<Vec<_>> = runs.map(|(b, x)| Some((*b, usable(*x)?))).collect();
    logs.filter(|logs| !logs.is_empty())
}

fn level(runs: &[(u32, f64)]) -> Option<f64> {
    median(runs.iter().map(|(_, x)| *x))
}

/// Removes each block's common factor (Tukey's median polish, one round): if the machine
/// was slow for one block, it was slow for every N, which does not affect the curve's
/// shape.
fn without_blocks(logs: &[Vec<(u32, f64)>]) -> Vec<Vec<(u32, f64)>> {
    let levels: Vec<f64> = logs.iter().filter_map(|runs| level(runs)).collect();
    let speed = |block: u32| {
        let residuals: Vec<f64> = logs
            .iter()
            .zip(&levels)
            .flat_map(|(runs, level)| {
                let of_block = runs.iter().filter(move |(b, _)| *b == block);
                of_block.map(move |(_, x)| x - level)
            })
            .collect();
        sorted(&residuals).map_or(0.0, |sorted| middle(&sorted))
    };
    let runs = |runs: &Vec<(u32, f64)>| runs.iter().map(|(b, x)| (*b, x - speed(*b))).collect();
    logs.iter().map(runs).collect()
}

/// Variance of the median of so many normal values, in units of theirs: pi / 2
/// over their number, and the usual correction for few (Kendall & Stuart, The
/// advanced theory of statistics, volume 1, 14.6); an even number does as well
/// as the odd one above it.
fn of_median(runs: usize) -> f64 {
    let odd = (runs | 1) as f64;
    match runs {
        0 | 1 => 1.0,
        2 => 0.5,
        _ => std::f64::consts::PI / (2.0 * odd + std::f64::consts::PI - 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn sample(n: u64, runs: &[f64]) -> Sample {
        Sample {
            n,
            runs: (1..).zip(runs.iter().copied()).collect(),
        }
    }

    #[test]
    fn a_slow_block_says_nothing_of_the_shape() {
        // The second and third block ran at half the speed.
        let samples = [
            sample(1, &[10.0, 20.0, 20.0]),
            sample(2, &[30.0, 60.0, 60.0]),
            sample(4, &[50.0, 100.0, 100.0]),
        ];
        let data = Data::new(&samples).unwrap();
        assert!((data.t[1] / data.t[0] - 3.0).abs() < 1e-9);
        assert!((data.t[2] / data.t[0] - 5.0).abs() < 1e-9);
        assert!(data.variance[0] < 1.1e-4, "{data:?}");
    }

    #[test]
    fn nothing_is_made_of_no_runs_or_of_nonsense() {
        assert_eq!(Data::new(&[]), None);
        assert_eq!(Data::new(&[sample(1, &[])]), None);
        assert_eq!(Data::new(&[sample(1, &[1.0, 0.0])]), None);
        // A single run each has no error to judge by.
        assert_eq!(Data::new(&[sample(1, &[1.0]), sample(2, &[1.0])]), None);
    }

    #[test]
    fn the_median_s_variance_is_what_drawing_finds() {
        let mut rng = Rng::new(1);
        for runs in [3, 6, 9, 15] {
            let trials = 20_000;
            let drawn: Vec<f64> = (0..trials)
                .map(|_| {
                    let values: Vec<f64> = (0..runs).map(|_| rng.normal()).collect();
                    median(&values).unwrap()
                })
                .collect();
            let found = drawn.iter().map(|x| x * x).sum::<f64>() / f64::from(trials);
            let ratio = of_median(runs) / found;
            assert!((0.92..1.08).contains(&ratio), "{runs}: {ratio}");
        }
    }
}
