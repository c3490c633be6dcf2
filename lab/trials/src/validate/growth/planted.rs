//! Curves with a known truth, for testing the findings about growth.
//!
//! A curve is planted, noise like that of machines is added, and the finding is compared
//! with the truth.

use jostle_stats::fit::laws::Law;
use jostle_stats::fit::{self, Finding, Growth, Sample};
use jostle_stats::rng::Rng;

/// The planted truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Truth {
    /// t = A + B f(N), with A this many times what B f adds at the largest N.
    Law {
        /// f.
        law: Law,
        /// A over B f(largest N).
        offset: f64,
    },
    /// Constant up to a place, so many times as much beyond it.
    Cliff,
    /// Constant up to a place, and from there on in proportion to N.
    Knee,
}

/// How runs differ from the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noise {
    /// 3 % (one standard deviation), each run by itself.
    Clean,
    /// As clean, and the hypervisor takes the CPU away for stretches of on average three runs, a
    /// tenth of all runs, which then take 1.1 to 2 times as long.
    Bursts,
    /// As clean, on a machine that is at half its speed for some blocks.
    TwoSpeeds,
}

impl Noise {
    /// Every kind.
    pub(super) const ALL: [Noise; 3] = [Noise::Clean, Noise::Bursts, Noise::TwoSpeeds];

    /// In words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Noise::Clean => "3 % noise",
            Noise::Bursts => "steal bursts",
            Noise::TwoSpeeds => "two speeds",
        }
    }
}

/// Times B f(largest N) that A is planted as.
static OFFSETS: [f64; 4] = [0.0, 1.0, 10.0, 100.0];

/// Everything that is planted: a constant, each other law with each offset, a cliff, a knee.
pub(super) fn truths() -> Vec<Truth> {
    let laws = Law::ALL.into_iter().flat_map(|law| {
        let offsets = if law == Law::Constant {
            &OFFSETS[..1]
        } else {
            &OFFSETS[..]
        };
        offsets.iter().map(move |offset| Truth::Law {
            law,
            offset: *offset,
        })
    });
    laws.chain([Truth::Cliff, Truth::Knee]).collect()
}

impl Truth {
    /// In words.
    pub(super) fn name(self) -> String {
        match self {
            Truth::Law {
                law: Law::Constant, ..
            } => "1".to_owned(),
            Truth::Law { law, offset } => format!("{}, offset {offset}", law.name()),
            Truth::Cliff => "a cliff of 1.5 to 60 times".to_owned(),
            Truth::Knee => "a knee: 1, then N".to_owned(),
        }
    }
}

/// Standard deviation of a run.
const DEVIATION: f64 = 0.03;

/// One planted curve, sampled.
#[derive(Clone, Debug)]
pub(super) struct Planted {
    /// The planted truth.
    truth: Truth,
    /// The curve at each N.
    curve: Vec<f64>,
    /// The runs.
    pub samples: Vec<Sample>,
    /// The N before and the N after a cliff or a knee.
    between: Option<(u64, u64)>,
}

/// Samples a truth at these N in so many blocks.
pub(super) fn plant(truth: Truth, noise: Noise, n: &[u64], blocks: u32, rng: &mut Rng) -> Planted {
    let (curve, between) = curve(truth, n, rng);
    Planted {
        truth,
        between,
        ..Planted::sampled(curve, noise, n, blocks, rng)
    }
}

impl Planted {
    /// Samples of any curve. Its truth is set to a knee, which need not be found.
    pub(super) fn sampled(
        curve: Vec<f64>,
        noise: Noise,
        n: &[u64],
        blocks: u32,
        rng: &mut Rng,
    ) -> Planted {
        let runs = runs(&curve, noise, blocks, rng);
        let samples = n.iter().zip(runs);
        let samples = samples.map(|(n, runs)| Sample { n: *n, runs }).collect();
        Planted {
            truth: Truth::Knee,
            curve,
            samples,
            between: None,
        }
    }
}

type Bent = (Vec<f64>, Option<(u64, u64)>);

fn curve(truth: Truth, n: &[u64], rng: &mut Rng) -> Bent {
    const LEVEL: f64 = 100.0;
    let last = n[n.len() - 1] as f64;
    match truth {
        Truth::Law {
            law: Law::Constant, ..
        } => (vec![LEVEL; n.len()], None),
        Truth::Law { law, offset } => {
            let b = LEVEL / law.at(last);
            let at = |n: &u64| offset * LEVEL + b * law.at(*n as f64);
            (n.iter().map(at).collect(), None)
        }
        Truth::Cliff => {
            // Not so near an end that it would be one odd point.
            let place = 2 + rng.below(n.len() as u64 - 3) as usize;
            let height = 1.5 * f64::powf(40.0, rng.unit_f64());
            let at = |i: usize| LEVEL * if i < place { 1.0 } else { height };
            (
                (0..n.len()).map(at).collect(),
                Some((n[place - 1], n[place])),
            )
        }
        Truth::Knee => {
            let place = n.len() / 3 + rng.below(n.len() as u64 / 3) as usize;
            let at = |n_i: &u64| LEVEL * (*n_i as f64 / n[place - 1] as f64).max(1.0);
            (n.iter().map(at).collect(), Some((n[place - 1], n[place])))
        }
    }
}

/// For each N its runs, by block.
fn runs(curve: &[f64], noise: Noise, blocks: u32, rng: &mut Rng) -> Vec<Vec<(u32, f64)>> {
    let mut runs = vec![Vec::new(); curve.len()];
    let mut burst = None;
    for block in 1..=blocks {
        let speed = match noise {
            Noise::TwoSpeeds if rng.below(2) == 0 => 2.0,
            _ => 1.0,
        };
        let mut order: Vec<usize> = (0..curve.len()).collect();
        rng.shuffle(&mut order);
        for nth in order {
            burst = match burst {
                None if noise == Noise::Bursts && rng.unit_f64() < 1.0 / 27.0 => {
                    Some(1.1 + 0.9 * rng.unit_f64())
                }
                Some(_) if rng.unit_f64() < 1.0 / 3.0 => None,
                other => other,
            };
            let run = curve[nth] * speed * burst.unwrap_or(1.0) * (DEVIATION * rng.normal()).exp();
            runs[nth].push((block, run));
        }
    }
    runs
}

/// Whether what was found holds the truth.
pub(super) fn holds(planted: &Planted, found: &Growth) -> bool {
    match planted.truth {
        Truth::Law { law, .. } => found.laws.iter().any(|fit| fit.law == law),
        Truth::Cliff | Truth::Knee => planted.between.is_some_and(|(after, before)| {
            found.finding == Finding::Bends
                && found
                    .bends
                    .iter()
                    .any(|bend| bend.after <= after && before <= bend.before)
        }),
    }
}

/// A finding that contradicts the truth, if there is one.
pub(super) fn overclaims(planted: &Planted, found: &Growth) -> Option<&'static str> {
    let (first, last) = (planted.samples.first()?.n, planted.samples.last()?.n);
    let outside = |n: u64| n < first || n > last;
    let ends = planted.curve.last()? / planted.curve.first()?;
    if found
        .bends
        .iter()
        .any(|bend| outside(bend.after) || outside(bend.before))
    {
        Some("a bend outside of the sweep")
    } else if outside(found.from) || outside(found.to) {
        Some("a claim outside of the sweep")
    } else if found.finding == Finding::Constant && !(0.9..=1.1).contains(&ends) {
        Some("constant, and it is not")
    } else {
        None
    }
}

/// Plants, and says what growth finds.
pub(super) fn find(planted: &Planted) -> Growth {
    fit::growth(&planted.samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small share of what `cargo xtask validate growth` does: 40 curves of
    /// each truth, of which 97 % and 95 % hold with three standard deviations
    /// to spare.
    #[test]
    fn what_is_found_holds_the_truth_and_claims_no_more() {
        let sweep = [10, 20, 50, 100, 300, 1_000];
        for noise in [Noise::Clean, Noise::Bursts] {
            for truth in truths().into_iter().filter(|truth| *truth != Truth::Knee) {
                let mut held = 0;
                for seed in 0..40 {
                    let planted = plant(truth, noise, &sweep, 6, &mut Rng::stream(11, seed));
                    let found = find(&planted);
                    assert_eq!(overclaims(&planted, &found), None, "{truth:?} {seed}");
                    held += u32::from(holds(&planted, &found));
                }
                assert!(held >= 36, "{truth:?}, {noise:?}: {held} of 40");
            }
        }
    }

    /// A set of all laws would always hold the truth.
    #[test]
    fn a_law_without_an_offset_is_found_alone() {
        let sweep = [10, 20, 50, 100, 300, 1_000];
        for law in Law::ALL.into_iter().filter(|law| *law != Law::Constant) {
            let truth = Truth::Law { law, offset: 0.0 };
            let alone = (0..40).filter(|seed| {
                let mut rng = Rng::stream(12, *seed);
                let found = find(&plant(truth, Noise::Clean, &sweep, 6, &mut rng));
                found.laws.len() == 1 && found.laws[0].law == law
            });
            assert!(alone.count() >= 36, "{law:?}");
        }
    }

    #[test]
    fn of_few_points_or_runs_nothing_is_claimed() {
        let truth = Truth::Law {
            law: Law::Linear,
            offset: 0.0,
        };
        let all = [10, 20, 50, 100, 300, 1_000];
        for (n, blocks) in [(&all[..5], 6), (&all[..], 5)] {
            let planted = plant(truth, Noise::Clean, n, blocks, &mut Rng::new(1));
            let found = find(&planted);
            assert_eq!(found.finding, Finding::TooFew);
            assert!(found.laws.is_empty() && found.bends.is_empty());
        }
        // Six values within less than two decades may bend, but follow no law.
        let narrow = [10, 12, 14, 16, 18, 20];
        let planted = plant(truth, Noise::Clean, &narrow, 6, &mut Rng::new(1));
        assert_eq!(find(&planted).finding, Finding::TooFew);
    }

    #[test]
    fn the_origin_s_cliff_is_a_bend() {
        // Mean connect() times to one destination from one source: flat until
        // the even ports are used up at 14,116, then 70 times as much for each
        // further connection.
        let n = [1_000, 5_000, 10_000, 14_000, 15_000, 20_000, 28_000];
        let mean = |n: &u64| {
            let beyond = (*n as f64 - 14_116.0).max(0.0);
            (10.0 * *n as f64 + 780.0 * beyond) / *n as f64
        };
        let curve: Vec<f64> = n.iter().map(mean).collect();
        for seed in 0..20 {
            let mut rng = Rng::stream(3, seed);
            let found = find(&Planted::sampled(
                curve.clone(),
                Noise::Clean,
                &n,
                6,
                &mut rng,
            ));
            assert_eq!(found.finding, Finding::Bends, "{seed}");
            let bend = found.bends[0];
            assert_eq!((bend.after, bend.before), (14_000, 15_000), "{seed}");
        }
    }
}
