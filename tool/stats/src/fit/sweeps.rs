//! The sweeps of an experiment, and a record of how each figure grows.
//!
//! Everything here walks two tables, [`SWEPT`] and [`FIGURES`].

use super::{Bend, Finding, Part, Sample, curve, exponent, growth, usl, words};
use crate::figures::{FIGURES, Figure};
use crate::ratio::Ratio;
use crate::summary::PointSummary;
use jostle_model::plan::Workload;
use jostle_model::record::{At, Experiment, Fit, FitBend, FitLaw, FitPart, Interval, Run};
use jostle_model::swept::{SWEPT, Swept};

/// The figures that are fitted, the one that closes the table first.
pub fn fitted() -> impl Iterator<Item = &'static Figure> {
    FIGURES.iter().filter(|figure| !figure.grows.is_empty())
}

/// Fewest values that make a sweep; of two the quotient says all.
const LEAST_VALUES: usize = 3;

/// One record for each target, swept value and figure that has at least three
/// values. Points that are INVALID for ratios are left out.
pub fn fits(experiment: &Experiment, points: &[PointSummary<'_>]) -> Vec<Fit> {
    let mut fits = Vec::new();
    if experiment.plan.workload == Workload::Rate {
        // The cost at a rate does not depend on a number of items; `rate` reports a knee
        // instead.
        return fits;
    }
    for (target, at, swept) in sweeps(points) {
        let of_sweep: Vec<&PointSummary<'_>> = points
            .iter()
            .filter(|point| point.target == target && rest(point.at, swept) == at)
            .filter(|point| !point.verdict.is_invalid())
            .collect();
        for (nth, figure) in fitted().enumerate() {
            let samples = samples(&of_sweep, swept, figure);
            if samples.len() >= LEAST_VALUES {
                let mut fit = record(experiment, figure, &samples);
                (fit.target, fit.over, fit.at) = (target.to_owned(), swept.name.to_owned(), at);
                fit.text = words::sentence(&experiment.plan, &fit);
                if nth == 0 && usl_applies(experiment, swept, &of_sweep) {
                    fit.usl = usl::usl(&samples);
                    fit.peak = usl::peak(&samples);
                    fit.text += &words::peak(&fit);
                }
                fits.push(fit);
            }
        }
    }
    fits
}

/// Each target with each swept value, for each combination of the others.
fn sweeps<'a>(points: &[PointSummary<'a>]) -> Vec<(&'a str, At, &'static Swept)> {
    let mut found: Vec<(&str, At, &'static Swept)> = Vec::new();
    for point in points {
        for swept in SWEPT {
            let at = rest(point.at, swept);
            let new = !found
                .iter()
                .any(|(t, a, s)| *t == point.target && *a == at && s.name == swept.name);
            if new && at != point.at {
                found.push((point.target, at, swept));
            }
        }
    }
    found
}

/// The swept values beside the one of this name; as in `at` of a fit.
pub fn beside(at: At, over: &str) -> At {
    let swept = SWEPT.iter().find(|swept| swept.name == over);
    swept.map_or(at, |swept| rest(at, swept))
}

/// The swept values but for this one.
fn rest(mut at: At, swept: &Swept) -> At {
    (swept.clear)(&mut at);
    at
}

/// The cost of one run, as the point takes it.
pub fn cost(figure: &Figure, point: &PointSummary<'_>, run: &Run) -> Option<f64> {
    let cost = (figure.of)(run).filter(|cost| *cost > 0.0)?;
    point.within(figure, run, cost)
}

fn samples(points: &[&PointSummary<'_>], swept: &Swept, figure: &Figure) -> Vec<Sample> {
    let mut samples: Vec<Sample> = points
        .iter()
        .filter_map(|point| {
            let runs = point.runs_over(figure.over).iter();
            let runs: Vec<(u32, f64)> = runs
                .filter_map(|run| Some((run.block, cost(figure, point, run)?)))
                .collect();
            Some(Sample {
                n: (swept.of)(&point.at).filter(|n| *n > 0 && !runs.is_empty())?,
                runs,
            })
        })
        .collect();
    samples.sort_by_key(|sample| sample.n);
    samples
}

/// Only if every worker can have a CPU, or if a server does the work: the throughput of
/// oversubscribed kernel locks depends on the scheduler.
fn usl_applies(experiment: &Experiment, swept: &Swept, points: &[&PointSummary<'_>]) -> bool {
    let most = points.iter().filter_map(|point| point.at.workers).max();
    let mut points = points.iter();
    let served = points.all(|p| p.runs.iter().all(|r| r.server.is_some()));
    swept.name == "workers"
        && experiment.plan.workload != Workload::Hold
        && (served || most.is_some_and(|most| most <= experiment.environment.cores))
}

fn record(experiment: &Experiment, figure: &Figure, samples: &[Sample]) -> Fit {
    let found = growth(samples);
    let exponent = match found.finding {
        Finding::Laws | Finding::Power => exponent::exponent(samples, experiment.plan.seed()),
        _ => None,
    };
    Fit {
        figure: figure.name.to_owned(),
        values: found.values as u64,
        runs: found.runs as u64,
        from: found.from,
        to: found.to,
        finding: found.finding.name().to_owned(),
        ratio: found.ratio.as_ref().and_then(interval),
        laws: found.laws.iter().map(law).collect(),
        exponent: exponent.map(|exponent| Interval {
            estimate: exponent.c,
            low: exponent.low,
            high: exponent.high,
        }),
        bends: found.bends.iter().map(bend).collect(),
        parts: found.parts.iter().map(part).collect(),
        ..Fit::default()
    }
}

fn interval(ratio: &Ratio) -> Option<Interval> {
    ratio.interval.then_some(Interval {
        estimate: ratio.ratio,
        low: ratio.low,
        high: ratio.high,
    })
}

fn law(fit: &curve::Fitted) -> FitLaw {
    FitLaw {
        law: fit.law.name().to_owned(),
        a: fit.line.a,
        b: fit.line.b,
        p: fit.p,
    }
}

fn bend(bend: &Bend) -> FitBend {
    FitBend {
        after: bend.after,
        before: bend.before,
    }
}

fn part(part: &Part) -> FitPart {
    FitPart {
        from: part.from,
        to: part.to,
        ratio: part.ratio.as_ref().and_then(interval),
        laws: match part.constant {
            // The others would only say that it may grow a little.
            true => part
                .laws
                .iter()
                .filter(|l| l.line.b == 0.0)
                .take(1)
                .map(law)
                .collect(),
            false => part.laws.iter().map(law).collect(),
        },
    }
}
