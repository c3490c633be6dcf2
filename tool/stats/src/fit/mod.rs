//! How a figure grows with a swept value: the laws that the data allow, where a curve
//! bends, and when the data are not enough.
//!
//! A lack-of-fit test comes first, then the choice among the laws that fit. There are no
//! statements about values outside of the sweep. See tool/docs/method/growth.md. A sweep is
//! generic: a swept value and figures of its runs ([`sweeps`]), whatever the workload.
//!
//! Two points are not fitted (the closing sentences state their quotient), and there are no
//! forecasts.

pub mod bend;
pub mod curve;
pub mod data;
pub mod exponent;
pub mod laws;
pub mod sweeps;
pub mod usl;
pub mod words;

pub use sweeps::fits;
pub use words::closing;

use crate::ratio::{Ratio, paired};
use curve::{Fitted, Power, REJECTED_BELOW};
use data::Data;

/// Fewest distinct N for a claim, and fewest runs of each.
pub const LEAST_VALUES: usize = 6;
/// See [`LEAST_VALUES`].
pub const LEAST_RUNS: usize = 6;
/// Largest N over smallest: two decades, within which even log N doubles.
pub const LEAST_SPAN: f64 = 100.0;
/// A cost whose ends and levels all lie within this is called constant.
pub(crate) const CONSTANT: std::ops::RangeInclusive<f64> = 0.9..=1.1;

/// The runs at one N.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The swept value.
    pub n: u64,
    /// Block and figure of each run.
    pub runs: Vec<(u32, f64)>,
}

/// The conclusion that the data allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing: too few N or runs, or too narrow a span.
    TooFew,
    /// One level everywhere, within a tenth.
    Constant,
    /// One of the laws that the data allow.
    Laws,
    /// No law, but a power of N that is none of them.
    Power,
    /// It falls, smoothly.
    Falls,
    /// No smooth curve: it changes its course.
    Bends,
    /// No smooth curve, and no place either at which it changes.
    NoLaw,
}

impl Finding {
    /// As it stands in a result file.
    pub fn name(self) -> &'static str {
        match self {
            Finding::TooFew => "too_few",
            Finding::Constant => "constant",
            Finding::Laws => "laws",
            Finding::Power => "power",
            Finding::Falls => "falls",
            Finding::Bends => "bends",
            Finding::NoLaw => "no_law",
        }
    }
}

/// A bend lies between these two N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bend {
    /// The last N that surely lies before it.
    pub after: u64,
    /// The first N that surely lies beyond it.
    pub before: u64,
}

/// One part between bends.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its smallest N.
    pub from: u64,
    /// Its largest N.
    pub to: u64,
    /// The laws that the data allow there; empty where no law fits.
    pub laws: Vec<Fitted>,
    /// The figure at its largest N over that at its smallest.
    pub ratio: Option<Ratio>,
    /// Whether it is the same everywhere in it, within a tenth.
    pub constant: bool,
}

/// How a figure grows.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// Distinct N.
    pub values: usize,
    /// Fewest runs of one of them.
    pub runs: usize,
    /// Smallest N.
    pub from: u64,
    /// Largest N.
    pub to: u64,
    /// The figure at the largest N over that at the smallest, by block.
    pub ratio: Option<Ratio>,
    /// The conclusion over the whole sweep.
    pub finding: Finding,
    /// The laws that the data allow and cannot tell apart.
    pub laws: Vec<Fitted>,
    /// The best power of N, where no law fits.
    pub power: Option<Power>,
    /// Where it bends.
    pub bends: Vec<Bend>,
    /// The parts between changes.
    pub parts: Vec<Part>,
}

/// The growth that samples of distinct N show. A figure that is no cost (zero, negative, not a
/// number) makes them say nothing.
pub fn growth(samples: &[Sample]) -> Growth {
    let mut samples = samples.to_vec();
    samples.sort_by_key(|sample| sample.n);
    let ends = samples.first().zip(samples.last());
    let (from, to) = ends.map_or((0, 0), |(first, last)| (first.n, last.n));
    let runs = samples.iter().map(|s| s.runs.len()).min().unwrap_or(0);
    let mut growth = Growth {
        values: samples.len(),
        runs,
        from,
        to,
        ratio: ends.and_then(|(first, last)| between(first, last)),
        finding: Finding::TooFew,
        laws: Vec::new(),
        power: None,
        bends: Vec::new(),
        parts: Vec::new(),
    };
    let Some(data) = Data::new(&samples) else {
        return growth;
    };
    if samples.len() >= LEAST_VALUES && runs >= LEAST_RUNS {
        find(&mut growth, &samples, &data);
    }
    growth
}

fn find(growth: &mut Growth, samples: &[Sample], data: &Data) {
    let wide = growth.to as f64 / growth.from.max(1) as f64 >= LEAST_SPAN;
    let laws = curve::allowed(data);
    let power = || curve::power(data).filter(|power| power.p >= REJECTED_BELOW);
    let constant = is_constant(&data.t, growth.ratio.as_ref());
    if constant || !laws.is_empty() {
        growth.finding = match (wide, constant) {
            (false, _) => Finding::TooFew,
            (true, true) => Finding::Constant,
            (true, false) => Finding::Laws,
        };
        if wide {
            growth.laws = laws;
        }
    } else if let Some(power) = power() {
        growth.finding = match (wide, power.c > 0.0) {
            (false, _) => Finding::TooFew,
            (true, true) => Finding::Power,
            (true, false) => Finding::Falls,
        };
        growth.power = wide.then_some(power);
    } else {
        let found = bend::bends(data);
        growth.finding = match found.is_empty() {
            true => Finding::NoLaw,
            false => Finding::Bends,
        };
        growth.bends = found
            .iter()
            .map(|bend| Bend {
                after: samples[bend.after].n,
                before: samples[bend.before].n,
            })
            .collect();
        growth.parts = bend::parts(samples.len(), &found)
            .into_iter()
            .map(|range| part(samples, data, range))
            .collect();
    }
}

fn part(samples: &[Sample], data: &Data, range: std::ops::Range<usize>) -> Part {
    let of_part = data.part(range.clone());
    let (first, last) = (&samples[range.start], &samples[range.end - 1]);
    let ratio = between(first, last);
    Part {
        from: first.n,
        to: last.n,
        laws: curve::allowed(&of_part),
        constant: is_constant(&of_part.t, ratio.as_ref()),
        ratio,
    }
}

/// The second figure over the first, in runs of the same blocks.
fn between(first: &Sample, last: &Sample) -> Option<Ratio> {
    let pairs: Vec<(f64, f64)> = first
        .runs
        .iter()
        .filter_map(|(block, x)| {
            let (_, y) = last.runs.iter().find(|(other, _)| other == block)?;
            Some((*x, *y))
        })
        .collect();
    paired(&pairs)
}

/// The ends' whole interval within a tenth, and no level in between beyond it.
fn is_constant(levels: &[f64], ends: Option<&Ratio>) -> bool {
    let least = levels.iter().copied().fold(f64::MAX, f64::min);
    let most = levels.iter().copied().fold(0.0, f64::max);
    let ends = ends.is_some_and(|ends| {
        ends.interval && CONSTANT.contains(&ends.low) && CONSTANT.contains(&ends.high)
    });
    ends && most / least <= *CONSTANT.end()
}
