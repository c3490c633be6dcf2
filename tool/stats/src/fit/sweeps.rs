//! The sweeps of an experiment, and a record of how each figure grows.
//!
//! Everything here walks two tables, [`SWEPT`] and [`FIGURES`]: a workload with a
//! new swept value or a new figure adds a line.

use super::{Bend, Finding, Growth, Part, Sample, curve, exponent, growth, usl, words};
use crate::figures::{self, *};
use crate::ratio::Ratio;
use crate::summary::PointSummary;
use jostle_model::plan::Workload;
use jostle_model::record::{At, Experiment, Fit, FitBend, FitLaw, FitPart, Interval, Run};

/// A value that workloads sweep.
#[derive(Debug)]
pub struct Swept {
    /// Its name in `at`.
    pub name: &'static str,
    /// What there are so many of, one and several.
    pub noun: [&'static str; 2],
    /// The option that lists its values.
    pub option: &'static str,
    /// The field of `at`.
    pub field: fn(&mut At) -> &mut Option<u64>,
}

/// Every value that workloads sweep.
pub static SWEPT: &[Swept] = &[
    Swept {
        name: "workers",
        noun: ["worker", "workers"],
        option: "-w",
        field: |at| &mut at.workers,
    },
    Swept {
        name: "operations",
        noun: ["operation", "operations"],
        option: "-n",
        field: |at| &mut at.operations,
    },
    Swept {
        name: "keys",
        noun: ["lock", "locks"],
        option: "--keys",
        field: |at| &mut at.keys,
    },
    Swept {
        name: "generators",
        noun: ["generator", "generators"],
        option: "--generators",
        field: |at| &mut at.generators,
    },
    Swept {
        name: "open",
        noun: ["connection", "connections"],
        option: "--open",
        field: |at| &mut at.open,
    },
    Swept {
        name: "listeners",
        noun: ["other listener", "other listeners"],
        option: "--listeners",
        field: |at| &mut at.listeners,
    },
    Swept {
        name: "sources",
        noun: ["source address", "source addresses"],
        option: "--sources",
        field: |at| &mut at.sources,
    },
];

/// A cost of a run.
#[derive(Debug)]
pub struct FittedFigure {
    /// In result files, with its unit.
    pub name: &'static str,
    /// In sentences, before "per lock" or "per operation".
    pub what: &'static str,
    /// Whether that follows; a call's own time says by itself of what it is.
    pub per_operation: bool,
    /// The runs that it is taken over.
    pub over: Over,
    /// Reads the figure from a run.
    pub of: fn(&Run) -> Option<f64>,
}

/// The time of an operation, all workers together.
const PER_OPERATION: &str = "time_per_operation_ns";

/// A cost of each operation, or of a call by itself.
const fn cost(figure: &figures::Figure, what: &'static str, per_operation: bool) -> FittedFigure {
    FittedFigure {
        name: figure.name,
        what,
        per_operation,
        over: figure.over,
        of: figure.of,
    }
}

/// The figures that are fitted, the one that closes the table first.
pub static FIGURES: &[FittedFigure] = &[
    FittedFigure {
        name: PER_OPERATION,
        what: "time",
        per_operation: true,
        over: Over::CleanSlices,
        // A connection's holds what the tool and its waits for the server take.
        of: |run| {
            let of_locks = run.operations > 0 && run.connections.is_none();
            of_locks.then(|| 1e9 * run.window.window_s / run.operations as f64)
        },
    },
    cost(CONNECT_P50, "time in connect()", false),
    FittedFigure {
        // Beside connect() it is next to nothing.
        of: |run| (BIND_P50.of)(run).filter(|_| run.times.connect_ns.is_none()),
        ..cost(BIND_P50, "time in bind()", false)
    },
    cost(ACCEPT_P50, "time in accept4()", false),
    cost(CPU, "CPU", true),
    cost(SERVER_CPU, "server CPU", true),
];

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
        for figure in FIGURES {
            let samples = samples(&of_sweep, swept, figure);
            if samples.len() >= LEAST_VALUES {
                let mut fit = record(experiment, figure, &samples);
                (fit.target, fit.over, fit.at) = (target.to_owned(), swept.name.to_owned(), at);
                fit.text = words::sentence(&experiment.plan, &fit);
                if figure.name == FIGURES[0].name && usl_applies(experiment, swept, &of_sweep) {
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
    *(swept.field)(&mut at) = None;
    at
}

impl FittedFigure {
    /// The figure of one run, as the point takes it: the time of an operation from the slices
    /// that its rate is from.
    pub fn within(&self, point: &PointSummary<'_>, run: &Run) -> Option<f64> {
        let value = (self.of)(run).filter(|cost| *cost > 0.0)?;
        match self.name {
            PER_OPERATION => Some(value / point.rate_of(run, 1.0)?),
            _ => Some(value),
        }
    }
}

fn samples(points: &[&PointSummary<'_>], swept: &Swept, figure: &FittedFigure) -> Vec<Sample> {
    let mut samples: Vec<Sample> = points
        .iter()
        .filter_map(|point| {
            let mut at = point.at;
            let runs = point.runs_over(figure.over).iter();
            let runs: Vec<(u32, f64)> = runs
                .filter_map(|run| Some((run.block, figure.within(point, run)?)))
                .collect();
            Some(Sample {
                n: (*(swept.field)(&mut at)).filter(|n| *n > 0 && !runs.is_empty())?,
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
    let served = points
        .iter()
        .all(|p| p.runs.iter().all(|r| r.server.is_some()));
    swept.name == "workers"
        && experiment.plan.workload != Workload::Hold
        && (served || most.is_some_and(|most| most <= experiment.environment.cores))
}

fn record(experiment: &Experiment, figure: &FittedFigure, samples: &[Sample]) -> Fit {
    let found = growth(samples);
    let exponent = match found.finding {
        Finding::Laws | Finding::Power => exponent::exponent(samples, experiment.plan.seed()),
        _ => None,
    };
    let Growth {
        values,
        runs,
        from,
        to,
        ratio,
        finding,
        laws,
        bends,
        parts,
        ..
    } = found;
    Fit {
        figure: figure.name.to_owned(),
        values: values as u64,
        runs: runs as u64,
        from,
        to,
        finding: finding.name().to_owned(),
        ratio: ratio.as_ref().and_then(interval),
        laws: laws.iter().map(law).collect(),
        exponent: exponent.map(|exponent| Interval {
            estimate: exponent.c,
            low: exponent.low,
            high: exponent.high,
        }),
        bends: bends.iter().map(bend).collect(),
        parts: parts.iter().map(part).collect(),
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
