//! Generators that are kept from working, by dose, and the same ones left alone:
//! is every run flagged whose headline moved by a tenth, and no other?
//!
//! A session is a chain of runs of one command line: left alone, planted, left
//! alone, planted, ..., left alone. [`judge`] has the definitions, [`mod@kinds`] what
//! is run and planted.

mod judge;
mod kinds;

use super::bench::Bench;
use super::chain::{self, Link, Linked};
use super::plants::{Plant, Planted};
use super::sides::{Side, Sides};
use super::store::slim;
use super::{Collect, Required, Row, grid, machine};
use crate::disturbance::Disturbance;
use crate::program;
use anyhow::Context;
use jostle_model::plan::Plan;
use jostle_model::record::{self, Environment};
use jostle_testbed::servers::Placed;
use judge::{Judged, Trial};
use kinds::{Figure, Kind, kinds, means};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Instant;

/// A line of the file: one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    #[serde(flatten)]
    pub link: Link,
    /// The first of a session says where and with which jostle.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub environment: Option<Environment>,
    /// How often its quota stopped jostle's control group, by our own reading.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stopped: Option<u64>,
    pub plan: Plan,
    /// Without slices, and without histograms that no check looks at.
    pub point: record::Run,
}

impl Linked for Run {
    fn link(&self) -> &Link {
        &self.link
    }
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(collect: &Collect, quick: bool, short: bool) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = collect.begin::<Run>()?;
    let number = |runs: &[Run]| runs.last().map_or(0, |run| run.link.session);
    let looks = number(&store.lines) + kinds().count() as u64;
    let is_enough = |runs: &[Run]| match quick {
        true => number(runs) >= looks,
        false => is_enough(runs),
    };
    if !is_enough(&store.lines) && Instant::now() < until {
        let mut bench = Bench::set_up(&program::build()?, &[], Some(Sides::make()?))?;
        for kind in kinds() {
            bench.serve(kind.server()?, false)?;
        }
        let plants = |(nth, kind): (usize, Kind)| {
            let mut plants = kind.plants();
            if quick {
                // One dose of each plant in turn: whether all of it works.
                plants.retain(|planted| planted.dose == 80);
                plants = vec![plants[nth % plants.len()]];
            }
            (kind.name, plants)
        };
        let all: Vec<_> = kinds().enumerate().map(plants).collect();
        chain::collect(&mut store, until, is_enough, &all, |link, used| {
            let run = run(&bench, link, used.unwrap_or(0.0), short)?;
            let used = used_by(&run.point);
            Ok((run, used))
        })?;
    }
    Ok(report(&store.lines, quick))
}

/// One run; `used` is the CPUs' worth of time that jostle used when left alone.
fn run(bench: &Bench, link: Link, used: f64, short: bool) -> anyhow::Result<Run> {
    let sides = bench.sides()?;
    sides.lift()?;
    let (cpu, group) = (sides.cpu(Side::Generator), sides.group(Side::Generator));
    let kind = Kind::named(&link.kind).context("a kind of the table")?;
    let mut words = kind.line(&bench.server(kind.server()?)?.target(), cpu, short);
    let mut beside = None;
    if let Some(planted) = link.planted {
        let quota = |cpus| {
            let (file, text) = group.quota(cpus);
            (file.display().to_string(), text)
        };
        let jostle = bench.jostle.display().to_string();
        let (options, how) = means(planted, &jostle, cpu, used, quota);
        words.extend(options);
        let start = |how: String| Disturbance::start(&bench.jostle, &how, Some(group.path()));
        beside = how.map(start).transpose()?;
    }
    let place = Placed {
        cpu: None,
        ..bench.placed(Side::Generator)
    };
    let before = sides.stopped();
    let set = bench.measure(place, &words)?;
    beside.map_or(Ok(()), Disturbance::end)?;
    let mut point = set.runs.into_iter().next().unwrap_or_default();
    slim(&mut point);
    Ok(Run {
        environment: (link.at == 0).then_some(set.experiment.environment),
        link,
        stopped: Some(sides.stopped() - before),
        plan: set.experiment.plan,
        point,
    })
}

fn is_enough(runs: &[Run]) -> bool {
    let judged = judge::judge(runs);
    let trials = judge::trials(&judged);
    let harmed = trials.iter().filter(|trial| trial.is_harmed()).count();
    Required::NONE.is_enough(harmed) && Required::FEW.is_enough(clean(&judged).count())
}

/// Runs that were left alone by everybody.
fn clean<'a>(judged: &'a [Judged<'a>]) -> impl Iterator<Item = &'a Judged<'a>> {
    let alone = judged.iter();
    let alone = alone.filter(|judged| judged.run.link.planted.is_none());
    alone.filter(|judged| !judged.is_spoilt())
}

/// CPUs' worth of time that the generators and all else in their group used.
fn used_by(point: &record::Run) -> f64 {
    let cpu_s = point.cpu.cpu_s.unwrap_or(0.0) + point.around.machine.harness_cpu_s;
    cpu_s / point.window.window_s.max(1e-3)
}

fn report(runs: &[Run], quick: bool) -> Vec<Row> {
    let judged = judge::judge(runs);
    let trials = judge::trials(&judged);
    describe(runs, &judged);
    table(&trials);
    list(&judged, &trials);
    let harmed = || trials.iter().filter(|trial| trial.is_harmed());
    let required = |required| if quick { Required::Nothing } else { required };
    rows! {
        "harmed, missed", harmed(), |trial| !trial.is_flagged(), required(Required::NONE);
        "harmed, missed but for neighbours", harmed(), |trial| !trial.is_flagged_by_others(),
            Required::Nothing;
        "left alone, flagged", clean(&judged), |run| run.flag().is_some(),
            required(Required::FEW);
    }
}

fn describe(runs: &[Run], judged: &[Judged<'_>]) {
    let environments = || runs.iter().filter_map(|run| run.environment.as_ref());
    let Some(environment) = environments().next_back() else {
        return;
    };
    println!(
        "{} sessions, {} runs, of which the machine spoilt {}; {}\n",
        environments().count(),
        runs.len(),
        judged.iter().filter(|judged| judged.is_spoilt()).count(),
        machine(environment)
    );
}

/// A plant, as the table prints it.
fn name(plant: Plant) -> &'static str {
    match plant {
        Plant::Throttle => "throttled",
        Plant::Quota => "generators throttled",
        Plant::Starve | Plant::Hog => "starved",
        Plant::Pause => "paused",
    }
}

/// By what was planted, and where.
fn table(trials: &[Trial<'_>]) {
    let mut cells: BTreeMap<(Planted, &str), Vec<&Trial<'_>>> = BTreeMap::new();
    for trial in trials {
        let cell = (trial.planted, trial.judged.kind.group);
        cells.entry(cell).or_default().push(trial);
    }
    let rows = cells.into_iter().map(|((planted, group), trials)| {
        let harmed = || trials.iter().filter(|trial| trial.is_harmed());
        let flagged = harmed().filter(|trial| trial.is_flagged()).count();
        let by_others = harmed().filter(|trial| trial.is_flagged_by_others());
        let share = |count: usize| match harmed().count() {
            0 => "-".to_owned(),
            harmed => format!("{:.0} %", 100.0 * count as f64 / harmed as f64),
        };
        vec![
            name(planted.plant).to_owned(),
            format!("{:>2} %", planted.dose),
            group.to_owned(),
            trials.len().to_string(),
            harmed().count().to_string(),
            flagged.to_string(),
            share(flagged),
            share(by_others.count()),
        ]
    });
    let headings = "planted|dose|loop|runs|harmed|flagged|detected|but for others";
    grid("  ", &[-20, 4, -6, 4, 6, 9, 8, 14], headings, rows);
    println!(
        "\nharmed: the headline moved by a tenth; detected: share of the harmed that was \
         flagged; but for others: without the check neighbours\n"
    );
}

/// Those of whom the verdict was wrong.
fn list(judged: &[Judged<'_>], trials: &[Trial<'_>]) {
    for trial in trials
        .iter()
        .filter(|t| t.is_harmed() && !t.is_flagged_by_others())
    {
        let moved = trial.moved.iter().map(|(figure, to)| {
            let name = match figure {
                Figure::Throughput => "throughput",
                Figure::P99 => "p99",
            };
            format!("{name} x {to:.2}")
        });
        println!(
            "{}: session {}, {}, {} by {} %: {}; {}",
            if trial.is_flagged() {
                "by neighbours alone"
            } else {
                "MISSED"
            },
            trial.judged.run.link.session,
            trial.judged.kind.name,
            name(trial.planted.plant),
            trial.planted.dose,
            moved.collect::<Vec<_>>().join(", "),
            busy(&trial.judged.run.point)
        );
    }
    for run in clean(judged) {
        if let Some(flag) = run.flag() {
            println!(
                "FLAGGED though left alone: session {}, {}: {flag}; {}",
                run.run.link.session,
                run.kind.name,
                busy(&run.run.point)
            );
        }
    }
    println!();
}

/// Busy and waiting for a CPU, of the generator that was so the most.
fn busy(point: &record::Run) -> String {
    let generators = || point.thread_loads.iter();
    let busy = generators().map(|generator| generator.busy_share);
    let queued = generators().map(|generator| generator.runqueue_share);
    format!(
        "busy {:.1} %, of it waiting for a CPU {:.1} %",
        100.0 * busy.fold(0.0, f64::max),
        100.0 * queued.fold(0.0, f64::max)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::store::Store;
    use jostle_model::plan::Workload;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.jsonl");
        for at in 0..3 {
            let mut store: Store<Run> = Store::open(Some(&path)).unwrap();
            assert_eq!(store.lines.len(), at as usize);
            let planted = Planted::all(&[Side::Generator], &[Plant::Pause], &[20])[0];
            store
                .add(Run {
                    link: Link {
                        session: 7,
                        at,
                        kind: "stream, tasks".to_owned(),
                        planted: (at == 1).then_some(planted),
                    },
                    environment: (at == 0).then(Environment::default),
                    stopped: Some(0),
                    plan: Plan::of(Workload::Stream),
                    point: record::Run {
                        throughput_per_s: f64::from(at),
                        ..record::Run::default()
                    },
                })
                .unwrap();
        }
        let runs = Store::<Run>::open(Some(&path)).unwrap().lines;
        let rates: Vec<f64> = runs.iter().map(|run| run.point.throughput_per_s).collect();
        assert_eq!(rates, [0.0, 1.0, 2.0]);
        let whole = |run: &Run| (run.environment.is_some(), run.link.planted.is_some());
        let whole: Vec<_> = runs.iter().map(whole).collect();
        assert_eq!(whole, [(true, false), (false, true), (false, false)]);
    }
}
