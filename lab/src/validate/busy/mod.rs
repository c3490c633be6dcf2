//! Hogs that are planted beside what is measured: does the undisturbed speed lie
//! within the bound that jostle gives for the disturbed runs, and is that bound of use?
//!
//! A session is one kind of command line with hogs in one place, in blocks: each block
//! has a run beside a hog of every dose, and at most two of these between two runs that
//! were left alone. [`judge`] has the definitions, [`mod@kinds`] what is run and planted.

mod bench;
mod judge;
mod kinds;

use super::store::Store;
use super::{Required, Row};
use crate::hog::Hog;
use crate::program;
use bench::Bench;
use jostle_model::record::{Experiment, Is, Point};
use jostle_stats::intervals::median;
use jostle_stats::rng::Rng;
use judge::{Trial, is_quiet, trials};
use kinds::{Beside, DOSES, Kind, kinds};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Trials that are required, and how many of them may miss.
const TRIALS: u64 = 300;
const MISSES: u64 = 8;

/// Misses of one workload at one dose.
const OF_A_CELL: usize = 2;

/// How many times as far as the shift a bound may reach, in the median.
const LOOSENESS: f64 = 3.0;

/// Fewest that give an interval of 95 %.
const PAIRS: usize = 6;

/// Share of the CPU time that was wanted: above it a run is reported apart.
const STOLEN: f64 = 0.02;

/// A line of the file: one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    /// Runs of one session stand one after the other.
    pub session: u64,
    /// Its place in it.
    pub at: u32,
    pub kind: String,
    pub beside: Beside,
    /// None: left alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hog: Option<Planted>,
    pub experiment: Experiment,
    /// Without slices, and without histograms that no check looks at.
    pub point: Point,
}

/// The hog that ran along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Planted {
    /// Share of one CPU, in per cent.
    pub percent: u64,
    pub cpu: usize,
    pub niceness: i32,
    /// By which it can be told among a run's neighbours.
    pub pid: u32,
}

/// What to collect.
pub(super) struct Wanted<'a> {
    pub seconds: u64,
    pub save: Option<&'a Path>,
    /// Judge this file instead.
    pub judge: Option<&'a Path>,
    pub niceness: i32,
    /// Only kinds whose names contain this.
    pub only: Option<&'a str>,
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(wanted: &Wanted<'_>) -> anyhow::Result<Vec<Row>> {
    let mut kinds = kinds();
    kinds.retain(|kind| wanted.only.is_none_or(|only| kind.name.contains(only)));
    anyhow::ensure!(!kinds.is_empty(), "no kind has that in its name");
    if let Some(path) = wanted.judge {
        return Ok(report(&kinds, &Store::read(path)?.lines));
    }
    let mut store = Store::open(wanted.save)?;
    let until = Instant::now() + Duration::from_secs(wanted.seconds);
    let mut bench = None;
    while Instant::now() < until {
        let Some((kind, beside)) = next(&kinds, &store.lines) else {
            break;
        };
        let bench = match &mut bench {
            Some(bench) => bench,
            none => none.insert(Bench::set_up(&program::build()?)?),
        };
        collect(bench, &mut store, kind, beside, wanted.niceness)?;
    }
    Ok(report(&kinds, &store.lines))
}

/// The kind and place with the fewest trials, of several the one that was tried the
/// least, until each has all doses and there are enough; None: there are.
fn next<'a>(kinds: &'a [Kind], runs: &[Run]) -> Option<(&'a Kind, Beside)> {
    let trials = trials(kinds, runs);
    let mut found: BTreeMap<(&str, Beside), usize> = BTreeMap::new();
    for trial in &trials {
        *found.entry((&trial.kind.name, trial.beside)).or_default() += 1;
    }
    let mut tried: BTreeMap<(&str, Beside), usize> = BTreeMap::new();
    for run in runs {
        *tried.entry((&run.kind, run.beside)).or_default() += 1;
    }
    let places = kinds
        .iter()
        .flat_map(|kind| Beside::ALL.map(|at| (kind, at)));
    let count = |(kind, at): &(&Kind, Beside)| {
        let place = (&*kind.name, *at);
        [&found, &tried].map(|counts| counts.get(&place).copied().unwrap_or(0))
    };
    let fewest = places.min_by_key(count)?;
    let is_whole = count(&fewest)[0] >= DOSES.len();
    // A few kinds by themselves can never come to so many.
    let is_enough = trials.len() as u64 >= TRIALS.min(kinds.len() as u64 * 10);
    (!is_whole || !is_enough).then_some(fewest)
}

/// One session.
fn collect(
    bench: &mut Bench,
    store: &mut Store<Run>,
    kind: &Kind,
    beside: Beside,
    niceness: i32,
) -> anyhow::Result<()> {
    let session = store.lines.last().map_or(1, |run| run.session + 1);
    eprintln!(
        "session {session}: {}, hogs on the {}",
        kind.name,
        beside.name()
    );
    let order = order(session);
    for (at, dose) in order.into_iter().enumerate() {
        let hog = dose.map(|percent| Hog {
            percent,
            cpu: bench.cpu_of(beside),
            niceness,
        });
        let (planted, set) = bench.run(kind, hog)?;
        let mut point = set.points.into_iter().next().unwrap_or_default();
        super::store::slim(&mut point);
        store.add(Run {
            session,
            at: at as u32,
            kind: kind.name.clone(),
            beside,
            hog: planted,
            experiment: set.experiment,
            point,
        })?;
    }
    Ok(())
}

/// The doses of a session's runs; None: left alone. Every dose once in each block, and
/// next to a run that was left alone.
fn order(session: u64) -> Vec<Option<u64>> {
    let mut rng = Rng::new(session);
    let mut order = Vec::new();
    for _ in 0..PAIRS {
        let mut doses = DOSES;
        rng.shuffle(&mut doses);
        for two in doses.chunks(2) {
            order.push(None);
            order.extend(two.iter().copied().map(Some));
        }
    }
    order
}

fn report(kinds: &[Kind], runs: &[Run]) -> Vec<Row> {
    let trials = trials(kinds, runs);
    describe(runs, trials.len());
    table(&trials);
    list(&trials);
    let bound: Vec<&Trial<'_>> = trials
        .iter()
        .filter(|trial| trial.bound.is_some())
        .collect();
    let misses = bound.iter().filter(|trial| trial.is_miss()).count();
    let cells = misses_by_cell(&trials);
    let over = cells.values().filter(|misses| **misses > OF_A_CELL).count();
    let loose: Vec<f64> = trials.iter().filter_map(Trial::looseness).collect();
    let tight = loose.iter().filter(|times| **times <= LOOSENESS).count();
    let silent = |trial: &Trial<'_>| trial.has_moved() && trial.verdict == Is::Valid;
    let row = |what: &str, count: usize, trials: usize, required| Row {
        what: what.to_owned(),
        count: count as u64,
        trials: trials as u64,
        required,
        note: String::new(),
    };
    let required = Required::AtMostOf {
        most: MISSES,
        of: TRIALS,
    };
    vec![
        row("misses", misses, bound.len(), required),
        row(
            "cells of workload and dose with more than 2",
            over,
            cells.len(),
            Required::AtMostOf { most: 0, of: 1 },
        ),
        Row {
            // Half of them: that the median is.
            note: format!("median {:.2} times", median(&loose).unwrap_or(f64::NAN)),
            ..row(
                "moved by 3 % or more: bound within 3 times the shift",
                tight,
                loose.len(),
                Required::AtLeast(0.5),
            )
        },
        row(
            "moved by 3 % or more, VALID",
            trials.iter().filter(|trial| silent(trial)).count(),
            trials.iter().filter(|trial| trial.has_moved()).count(),
            Required::Nothing,
        ),
        row(
            "trials without a bound",
            trials.len() - bound.len(),
            trials.len(),
            Required::Nothing,
        ),
    ]
}

fn misses_by_cell<'a>(trials: &'a [Trial<'_>]) -> BTreeMap<(&'a str, u64), usize> {
    let mut cells = BTreeMap::new();
    for trial in trials.iter().filter(|trial| trial.bound.is_some()) {
        let cell = cells.entry((&*trial.kind.workload, trial.dose));
        *cell.or_default() += usize::from(trial.is_miss());
    }
    cells
}

fn describe(runs: &[Run], trials: usize) {
    let Some(last) = runs.last() else {
        return;
    };
    let environment = &last.experiment.environment;
    let alone = || runs.iter().filter(|run| run.hog.is_none());
    println!(
        "{trials} trials of {} runs, {} of them left alone, {} of these not quiet; steal above \
         2 % in {}\n{}, {}, {} cores, jostle {}\n",
        runs.len(),
        alone().count(),
        alone().filter(|run| !is_quiet(&run.point)).count(),
        runs.iter()
            .filter(|run| super::stolen(&run.point) > STOLEN)
            .count(),
        environment.cpu_model,
        environment.kernel,
        environment.cores,
        environment.jostle
    );
}

/// By workload and dose.
fn table(trials: &[Trial<'_>]) {
    println!(
        "{:<16} {:>5}  {:>6}  {:>13}  {:>13}  {:>9}  {:>6}",
        "beside a hog", "dose", "trials", "true shift", "bound", "times", "misses"
    );
    let mut cells: BTreeMap<(&str, u64), Vec<&Trial<'_>>> = BTreeMap::new();
    for trial in trials {
        let cell = cells.entry((&trial.kind.workload, trial.dose));
        cell.or_default().push(trial);
    }
    for ((workload, dose), trials) in cells {
        let over = |of: &dyn Fn(&Trial<'_>) -> Option<f64>| -> Option<f64> {
            median(
                &trials
                    .iter()
                    .filter_map(|trial| of(trial))
                    .collect::<Vec<_>>(),
            )
        };
        let text = |found: Option<f64>| found.map_or("-".to_owned(), |x| format!("{x:.2}"));
        let extremes = |of: &dyn Fn(&Trial<'_>) -> f64| {
            let each = trials.iter().map(|trial| of(trial));
            let [low, high] =
                each.fold([f64::MAX, 0.0], |[low, high], x| [low.min(x), high.max(x)]);
            format!("{low:.2} .. {high:.2}")
        };
        println!(
            "{workload:<16} {dose:>3} %  {:>6}  {:>13}  {:>13}  {:>9}  {:>6}",
            trials.len(),
            extremes(&|trial| trial.shift.ratio),
            format!(
                "{} .. {}",
                text(over(&|trial| Some(trial.bound?[0]))),
                text(over(&|trial| Some(trial.bound?[1])))
            ),
            text(over(&|trial| trial.looseness())),
            trials.iter().filter(|trial| trial.is_miss()).count()
        );
    }
    println!(
        "\ntrue shift: undisturbed over disturbed speed, least and most; bound: what was printed \
         for it, medians; times: how far it reaches of the shift, median of those that moved by \
         3 %\n"
    );
}

/// Trials that missed.
fn list(trials: &[Trial<'_>]) {
    for trial in trials.iter().filter(|trial| trial.is_miss()) {
        let [low, high] = trial.bound.unwrap_or_default();
        println!(
            "MISSED: session {}, {}, {} % on the {}: true {:.3} ({:.3} .. {:.3}), bound {low:.3} \
             .. {high:.3}, {}",
            trial.session,
            trial.kind.name,
            trial.dose,
            trial.beside.name(),
            trial.shift.ratio,
            trial.shift.low,
            trial.shift.high,
            trial.verdict
        );
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use jostle_model::plan::{Plan, Workload};
    use jostle_model::record::{Calibration, Distribution, Environment, SCHEMA};

    /// A run of the first kind, with this throughput.
    pub(crate) fn run(at: u32, percent: Option<u64>, throughput_per_s: f64) -> Run {
        Run {
            session: 1,
            at,
            kind: kinds()[0].name.clone(),
            beside: Beside::Workers,
            hog: percent.map(|percent| Planted {
                percent,
                cpu: 0,
                niceness: 0,
                pid: 7,
            }),
            experiment: Experiment {
                schema: SCHEMA.to_owned(),
                plan: Plan::of(Workload::Contend),
                environment: Environment::default(),
                calibration: Calibration::default(),
                target_facts: Default::default(),
                started_at: String::new(),
            },
            point: Point {
                throughput_per_s,
                service_ns: Some(Distribution {
                    mean: 1e9 / throughput_per_s,
                    ..Distribution::default()
                }),
                ..Point::default()
            },
        }
    }

    /// As collected, of a kind and a place.
    fn whole(session: u64, kind: &Kind, beside: Beside) -> Vec<Run> {
        let runs = order(session).into_iter().enumerate();
        runs.map(|(at, dose)| Run {
            session,
            kind: kind.name.clone(),
            beside,
            ..run(at as u32, dose, 100.0)
        })
        .collect()
    }

    #[test]
    fn every_dose_is_next_to_a_run_left_alone_once_in_each_block() {
        for session in 1..50 {
            let order = order(session);
            assert_eq!(order.len(), PAIRS * (DOSES.len() + 3));
            let kinds = kinds();
            let trials = trials(&kinds, &whole(session, &kinds[3], Beside::Other)).len();
            assert_eq!(trials, DOSES.len());
        }
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn the_next_call_takes_what_has_the_fewest_and_ends_when_all_is_there() {
        let kinds = kinds();
        let mut runs = Vec::new();
        for nth in 1..=2 * kinds.len() as u64 {
            let (kind, beside) = next(&kinds, &runs).unwrap();
            assert_eq!(kind.name, kinds[(nth as usize - 1) / 2].name);
            let mut session = whole(nth, kind, beside);
            if nth == 3 {
                // It was ended before its last run: not one dose less than all is there.
                session.truncate(20);
                runs.extend(session);
                session = whole(100, kind, beside);
            }
            runs.extend(session);
        }
        assert_eq!(next(&kinds, &runs), None);
        // A session that was cut off counts as tried, and not as a trial.
        let cut = &whole(1, &kinds[0], Beside::Workers)[..20];
        assert_eq!(next(&kinds[..1], cut), Some((&kinds[0], Beside::Other)));
        // One kind by itself.
        assert_eq!(next(&kinds[1..2], &runs), None);
        assert!(next(&kinds[1..2], &runs[..10]).is_some());
    }

    #[test]
    fn misses_are_counted_by_cell() {
        let kinds = kinds();
        let runs = whole(1, &kinds[0], Beside::Other);
        let mut trials = trials(&kinds, &runs);
        assert!(misses_by_cell(&trials).is_empty(), "nothing was said");
        for trial in &mut trials {
            // All speeds are the same.
            trial.bound = Some(if trial.dose < 20 {
                [1.5, 2.0]
            } else {
                [0.9, 1.1]
            });
        }
        let cells = misses_by_cell(&trials);
        assert_eq!(cells[&("contend flock", 10)], 1);
        assert_eq!(cells.values().sum::<usize>(), 2);
        assert_eq!(cells.len(), DOSES.len());
    }
}
