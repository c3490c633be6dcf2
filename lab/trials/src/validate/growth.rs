//! Curves with a known growth ([`planted`]): what is found must hold the truth and claim no more.

mod planted;

use super::{Required, Row};
use jostle_stats::fit::Finding;
use jostle_stats::fit::exponent::exponent;
use jostle_stats::fit::laws::Law;
use jostle_stats::fit::usl::peak;
use jostle_stats::rng::Rng;
use planted::{Noise, Planted, Truth, find, holds, overclaims, plant, truths};

/// The seed from which all curves are drawn.
const SEED: u64 = 7;

/// The fewest points that a claim takes, and a sweep as one makes it.
const SWEEPS: [&[u64]; 2] = [
    &[10, 20, 50, 100, 300, 1_000],
    &[
        1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 50_000, 100_000, 200_000, 300_000,
        500_000, 1_000_000,
    ],
];

pub(super) fn rows(seeds: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut overclaimed = 0;
    let mut trials = 0;
    for sweep in SWEEPS {
        for noise in Noise::ALL {
            for truth in truths() {
                let (row, over) = one(truth, noise, sweep, seeds);
                rows.push(row);
                overclaimed += over;
                trials += seeds;
            }
        }
    }
    rows.push(Row::counted(
        "claims that are untrue or lie outside of the sweep",
        overclaimed,
        trials,
        Required::AtMost(0.0),
    ));
    rows.extend(peaks(seeds));
    rows.extend(exponents(seeds.div_ceil(5)));
    rows
}

/// Whether the exponent's interval holds the exponent; each takes hundreds of
/// fits, so that there are fewer of them.
fn exponents(seeds: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for noise in Noise::ALL {
        for (law, c) in [(Law::Sqrt, 0.5), (Law::Linear, 1.0)] {
            let (mut held, mut given) = (0, 0);
            for seed in 0..seeds {
                let truth = Truth::Law { law, offset: 1.0 };
                let mut rng = Rng::stream(SEED, seed);
                let planted = plant(truth, noise, SWEEPS[1], 6, &mut rng);
                if let Some(found) = exponent(&planted.samples, seed) {
                    given += 1;
                    held += u64::from((found.low..=found.high).contains(&c));
                }
            }
            let what = format!(
                "13 points, {}: exponent {c} is in its interval",
                noise.name()
            );
            rows.push(Row::counted(what, held, given, Required::Nothing));
        }
    }
    rows
}

fn one(truth: Truth, noise: Noise, sweep: &[u64], seeds: u64) -> (Row, u64) {
    let (mut held, mut over, mut laws, mut constant) = (0, 0, 0, 0);
    for seed in 0..seeds {
        let planted = plant(truth, noise, sweep, 6, &mut Rng::stream(SEED, seed));
        let found = find(&planted);
        held += u64::from(holds(&planted, &found));
        over += u64::from(overclaims(&planted, &found).is_some());
        laws += found.laws.len();
        constant += u64::from(found.finding == Finding::Constant);
    }
    let note = match truth {
        Truth::Law { .. } => format!(
            "{:.1} laws in the set, called constant {:.0} %",
            laws as f64 / seeds as f64,
            100.0 * constant as f64 / seeds as f64
        ),
        _ => String::new(),
    };
    let required = match (truth, noise) {
        // Two straight lines: nobody asked for it, and good to know.
        (Truth::Knee, _) => Required::Nothing,
        (_, Noise::Clean) => Required::AtLeast(0.97),
        _ => Required::AtLeast(0.95),
    };
    let what = format!("{} points, {}: {}", sweep.len(), noise.name(), truth.name());
    let row = Row::counted(what, held, seeds, required).noting(note);
    (row, over)
}

/// Throughputs whose peak was passed, has not been reached, or does not exist:
/// a peak may only be claimed in the first.
fn peaks(seeds: u64) -> Vec<Row> {
    const WORKERS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
    let claims = |coherence: f64| {
        let claimed = |seed: &u64| {
            let cost = |n: u64| {
                let n = n as f64;
                1e6 * (1.0 + 0.05 * (n - 1.0) + coherence * n * (n - 1.0)) / n
            };
            let curve = WORKERS.iter().map(|n| cost(*n)).collect();
            let mut rng = Rng::stream(SEED, *seed);
            let planted = Planted::sampled(curve, Noise::Clean, &WORKERS, 6, &mut rng);
            peak(&planted.samples).is_some()
        };
        (0..seeds).filter(claimed).count() as u64
    };
    let none = Required::AtMost(0.0);
    let rows = [
        (
            "a peak at 31 of up to 128 workers",
            0.001,
            Required::Nothing,
        ),
        ("a peak at 300 of up to 128 workers", 1e-5, none),
        ("a peak of a throughput that levels off", 0.0, none),
    ];
    let row = |(what, coherence, required)| {
        Row::counted(
            format!("{what} is claimed"),
            claims(coherence),
            seeds,
            required,
        )
    };
    rows.map(row).into()
}
