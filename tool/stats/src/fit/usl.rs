//! Throughput over the number of workers: the universal scalability law, and the
//! peak, where one was really measured.

use super::Sample;
use super::data::Data;
use crate::fit::curve::{REJECTED_BELOW, lack_of_fit};
use crate::intervals::median;
use crate::ratio::paired;
use jostle_model::record::Usl;

/// Fewest points for three parameters.
const LEAST_VALUES: usize = 6;

/// Share of the peak's throughput: a point surely below it is past the peak.
const PAST_THE_PEAK: f64 = 0.95;

/// The law's parameters from the time per operation (in ns) of all workers
/// together, at each number N of workers: with X operations a second,
///
/// N / X = a + b (N - 1) + c N (N - 1)
///
/// so that one worker alone does 1 / a a second, contention is b / a and
/// coherence c / a (Gunther, Guerrilla capacity planning, 2007, section 4.4).
/// Least squares by shares, as for the laws. b or c below 0 would mean that
/// workers help each other: it is set to 0, and the fit is suspect.
///
/// None with fewer than six N, or where the law does not fit.
pub fn usl(samples: &[Sample]) -> Option<Usl> {
    let data = Data::new(samples)?;
    if data.values() < LEAST_VALUES {
        return None;
    }
    // Relative errors of N / X are those of the time per operation.
    let y: Vec<f64> = data.n.iter().zip(&data.t).map(|(n, t)| n * t).collect();
    let columns = |n: f64| [1.0, n - 1.0, n * (n - 1.0)];
    let rows: Vec<[f64; 3]> = data.n.iter().map(|n| columns(*n)).collect();
    let free = solve(&rows, &y, [true; 3])?;
    let superlinear = free[1] < 0.0 || free[2] < 0.0;
    let subsets = [
        [true; 3],
        [true, true, false],
        [true, false, true],
        [true, false, false],
    ];
    let fits = subsets.iter().filter_map(|used| solve(&rows, &y, *used));
    let chi = |p: &[f64; 3]| {
        data.chi_square(|n| {
            let row = columns(n);
            (p[0] * row[0] + p[1] * row[1] + p[2] * row[2]) / n
        })
    };
    let best = fits
        .filter(|p| p[0] > 0.0 && p[1] >= 0.0 && p[2] >= 0.0)
        .min_by(|one, other| chi(one).total_cmp(&chi(other)))?;
    // What is suspect anyway need not fit.
    if !superlinear && lack_of_fit(chi(&best), &data, 3) < REJECTED_BELOW {
        return None;
    }
    let [a, b, c] = best;
    Some(Usl {
        rate_per_s: 1e9 / a,
        contention: b / a,
        coherence: c / a,
        suspect: superlinear.then(|| "superlinear: workers seem to help each other".to_owned()),
    })
}

/// Weighted least squares of the columns in use, in the same four rounds as the
/// laws have; the others are 0. None where they are not independent.
fn solve(rows: &[[f64; 3]], y: &[f64], used: [bool; 3]) -> Option<[f64; 3]> {
    let mut fitted = y.to_vec();
    let mut found = [0.0; 3];
    for _ in 0..=4 {
        let mut matrix = [[0.0; 4]; 3];
        for ((row, y), fitted) in rows.iter().zip(y).zip(&fitted) {
            let weight = 1.0 / (fitted * fitted);
            for i in (0..3).filter(|i| used[*i]) {
                for j in (0..3).filter(|j| used[*j]) {
                    matrix[i][j] += weight * row[i] * row[j];
                }
                matrix[i][3] += weight * row[i] * y;
            }
        }
        for i in (0..3).filter(|i| !used[*i]) {
            matrix[i][i] = 1.0;
        }
        found = eliminate(matrix)?;
        let of = |row: &[f64; 3]| row.iter().zip(&found).map(|(x, p)| x * p).sum::<f64>();
        // A curve that dips below 0 has no shares; keep the last weights.
        let next: Vec<f64> = rows.iter().map(of).collect();
        if next.iter().all(|t| t.is_finite() && *t > 0.0) {
            fitted = next;
        }
    }
    Some(found)
}

/// Gauss with pivots.
fn eliminate(mut m: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot =
            (column..3).max_by(|a, b| m[*a][column].abs().total_cmp(&m[*b][column].abs()))?;
        m.swap(column, pivot);
        let head = m[column];
        if head[column].abs() < f64::MIN_POSITIVE {
            return None;
        }
        for (row, values) in m.iter_mut().enumerate() {
            if row != column {
                let factor = values[column] / head[column];
                for (value, head) in values.iter_mut().zip(&head) {
                    *value -= factor * head;
                }
            }
        }
    }
    Some([0, 1, 2].map(|i| m[i][3] / m[i][i]))
}

/// The number of workers with the highest throughput, where at least two larger
/// ones were measured at which it surely lies below 95 % of that: a peak that
/// was seen from both sides or not at all. `samples` hold times per operation.
pub fn peak(samples: &[Sample]) -> Option<u64> {
    let cost = |sample: &Sample| median(sample.runs.iter().map(|r| r.1));
    let best = samples
        .iter()
        .filter_map(|sample| Some((sample, cost(sample)?)))
        .min_by(|one, other| one.1.total_cmp(&other.1))?
        .0;
    let surely_past = |sample: &&Sample| {
        let pairs: Vec<(f64, f64)> = sample
            .runs
            .iter()
            .filter_map(|(block, t)| {
                let (_, at_best) = best.runs.iter().find(|(b, _)| b == block)?;
                Some((1.0 / at_best, 1.0 / t))
            })
            .collect();
        paired(&pairs).is_some_and(|ratio| ratio.interval && ratio.high < PAST_THE_PEAK)
    };
    let larger = samples.iter().filter(|sample| sample.n > best.n);
    (larger.filter(surely_past).count() >= 2).then_some(best.n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const N: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

    /// Times per operation of a system with these coefficients, 1000 a second
    /// alone.
    fn samples(contention: f64, coherence: f64, seed: u64) -> Vec<Sample> {
        let mut rng = Rng::new(seed);
        let time = |n: u64| {
            let n = n as f64;
            1e6 * (1.0 + contention * (n - 1.0) + coherence * n * (n - 1.0)) / n
        };
        N.iter()
            .map(|n| Sample {
                n: *n,
                runs: (1..=6)
                    .map(|b| (b, time(*n) * (0.01 * rng.normal()).exp()))
                    .collect(),
            })
            .collect()
    }

    #[test]
    fn the_coefficients_are_found() {
        let found = usl(&samples(0.05, 0.001, 1)).unwrap();
        assert!((found.rate_per_s / 1000.0 - 1.0).abs() < 0.03, "{found:?}");
        assert!((found.contention / 0.05 - 1.0).abs() < 0.15, "{found:?}");
        assert!((found.coherence / 0.001 - 1.0).abs() < 0.15, "{found:?}");
        assert_eq!(found.suspect, None);
        assert_eq!(usl(&samples(0.05, 0.001, 1)[..5]), None);
    }

    #[test]
    fn workers_that_help_each_other_are_suspect() {
        let found = usl(&samples(-0.004, 0.0, 2)).unwrap();
        assert_eq!((found.contention, found.coherence), (0.0, 0.0));
        assert!(found.suspect.unwrap().contains("superlinear"));
    }

    #[test]
    fn a_peak_needs_two_larger_numbers_that_are_surely_worse() {
        // Highest at sqrt((1 - 0.05) / 0.001) = 31.
        let all = samples(0.05, 0.001, 3);
        assert_eq!(peak(&all), Some(32));
        assert_eq!(peak(&all[..7]), None, "only one larger");
        assert_eq!(peak(&samples(0.05, 0.0, 4)), None, "it levels off");
        let mut few = all.clone();
        few.iter_mut().for_each(|sample| sample.runs.truncate(5));
        assert_eq!(peak(&few), None, "five runs are no certainty");
    }
}
