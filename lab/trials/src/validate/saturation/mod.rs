//! Generators that are kept from working, by dose, and the same ones left alone:
//! is every run flagged whose headline moved by a tenth, and no other?
//!
//! A session is a chain of runs of one command line: left alone, planted, left
//! alone, planted, ..., left alone. [`judge`] has the definitions, [`kinds`] what
//! is run and planted.

mod bench;
mod judge;
mod kinds;
mod store;

use super::chain;
use super::store::Store;
use super::{Collect, Required, Row};
use crate::program;
use bench::Bench;
use jostle_model::record;
use judge::{Judged, Trial};
use kinds::{Figure, KINDS, Kind, Planted};
use std::collections::BTreeMap;
use std::time::Instant;
use store::Run;

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(collect: &Collect, quick: bool, short: bool) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = collect.begin()?;
    if (quick || !is_enough(&store.lines)) && Instant::now() < until {
        let bench = Bench::set_up(&program::build()?, short)?;
        if quick {
            look(&bench, &mut store)?;
        }
        while !quick && !is_enough(&store.lines) && Instant::now() < until {
            session(&bench, &mut store, until)?;
        }
    }
    Ok(report(&store.lines, quick))
}

fn is_enough(runs: &[Run]) -> bool {
    let judged = judge::judge(runs);
    let trials = judge::trials(&judged);
    let harmed = trials.iter().filter(|trial| trial.is_harmed()).count();
    Required::NONE.is_enough(harmed) && Required::FEW.is_enough(clean(&judged).count())
}

/// Runs that were left alone by everybody.
fn clean<'a>(judged: &'a [Judged<'a>]) -> impl Iterator<Item = &'a Judged<'a>> {
    let alone = judged.iter().filter(|judged| judged.run.planted.is_none());
    alone.filter(|judged| !judged.is_spoilt())
}

/// One dose of each plant in turn, one for each kind: whether all of it works.
fn look(bench: &Bench, store: &mut Store<Run>) -> anyhow::Result<()> {
    for (nth, kind) in KINDS.iter().enumerate() {
        let heavy: Vec<Planted> = kind.plants().filter(|p| p.dose == 80).collect();
        let plant = heavy[nth % heavy.len()];
        session_of(bench, store, kind, &[plant], None)?;
    }
    Ok(())
}

/// Makes a session of the kind and the doses that have the fewest trials so far.
fn session(bench: &Bench, store: &mut Store<Run>, until: Instant) -> anyhow::Result<()> {
    let judged = judge::judge(&store.lines);
    let mut counts: BTreeMap<(&str, Planted), usize> = BTreeMap::new();
    for trial in judge::trials(&judged) {
        *counts
            .entry((trial.judged.kind.name, trial.planted))
            .or_default() += 1;
    }
    let chosen = chain::rarest(
        chain::next_session(&store.lines, |run| run.session),
        KINDS.iter().collect(),
        |kind: &'static Kind| kind.plants().collect(),
        |kind, planted| counts.get(&(kind.name, planted)).copied().unwrap_or(0),
    );
    let Some((kind, plants)) = chosen else {
        return Ok(());
    };
    session_of(bench, store, kind, &plants, Some(until))
}

fn session_of(
    bench: &Bench,
    store: &mut Store<Run>,
    kind: &'static Kind,
    plants: &[Planted],
    until: Option<Instant>,
) -> anyhow::Result<()> {
    let session = chain::next_session(&store.lines, |run| run.session);
    eprintln!("session {session}: {}", kind.name);
    chain::session(plants, until, |at, planted| {
        let (planted, used_by_control) = planted.unzip();
        let ran = bench.run(kind, planted, used_by_control.unwrap_or(0.0))?;
        let run = Run::new(session, at, kind.name, planted, ran);
        let used = used(&run.point);
        store.add(run)?;
        Ok(used)
    })
}

/// CPUs' worth of time that the generators and all else in their group used.
fn used(point: &record::Run) -> f64 {
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
    vec![
        Row::of(
            "harmed, missed",
            harmed(),
            |trial| !trial.is_flagged(),
            required(Required::NONE),
        ),
        Row::of(
            "harmed, missed but for neighbours",
            harmed(),
            |trial| !trial.is_flagged_by_others(),
            Required::Nothing,
        ),
        Row::of(
            "left alone, flagged",
            clean(&judged),
            |run| run.flag().is_some(),
            required(Required::FEW),
        ),
    ]
}

fn describe(runs: &[Run], judged: &[Judged<'_>]) {
    let environments = || runs.iter().filter_map(|run| run.environment.as_ref());
    let Some(environment) = environments().next_back() else {
        return;
    };
    println!(
        "{} sessions, {} runs, of which the machine spoilt {}; {}, {}, {} cores, jostle {}\n",
        environments().count(),
        runs.len(),
        judged.iter().filter(|judged| judged.is_spoilt()).count(),
        environment.cpu_model,
        environment.kernel,
        environment.cores,
        environment.jostle
    );
}

/// By what was planted, and where.
fn table(trials: &[Trial<'_>]) {
    println!(
        "{:<20}  {:>4}  {:<6}  {:>4}  {:>6}  {:>9}  {:>8}  {:>14}",
        "planted", "dose", "loop", "runs", "harmed", "flagged", "detected", "but for others"
    );
    let mut rows: BTreeMap<(Planted, &str), Vec<&Trial<'_>>> = BTreeMap::new();
    for trial in trials {
        let row = rows.entry((trial.planted, trial.judged.kind.group));
        row.or_default().push(trial);
    }
    for ((planted, group), trials) in rows {
        let count =
            |is: &dyn Fn(&Trial<'_>) -> bool| trials.iter().filter(|trial| is(trial)).count();
        let harmed = count(&|trial| trial.is_harmed());
        let flagged = count(&|trial| trial.is_harmed() && trial.is_flagged());
        let by_others = count(&|trial| trial.is_harmed() && trial.is_flagged_by_others());
        let share = |count: usize| match harmed {
            0 => "-".to_owned(),
            _ => format!("{:.0} %", 100.0 * count as f64 / harmed as f64),
        };
        println!(
            "{:<20}  {:>2} %  {group:<6}  {:>4}  {harmed:>6}  {flagged:>9}  {:>8}  {:>14}",
            planted.plant.name(),
            planted.dose,
            trials.len(),
            share(flagged),
            share(by_others),
        );
    }
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
            trial.judged.run.session,
            trial.judged.kind.name,
            trial.planted.plant.name(),
            trial.planted.dose,
            moved.collect::<Vec<_>>().join(", "),
            busy(&trial.judged.run.point)
        );
    }
    for run in clean(judged) {
        if let Some(flag) = run.flag() {
            println!(
                "FLAGGED though left alone: session {}, {}: {flag}; {}",
                run.run.session,
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
