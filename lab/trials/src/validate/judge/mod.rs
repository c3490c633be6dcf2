//! `jostle judge` over load generators that are held back, or whose servers are: is a
//! saturated generator ever called clean, or a clean one saturated?
//!
//! Each session runs one generator. [`truth`] has the definitions, [`mod@generators`] the programs.
//! [`cases`] are generators and servers whose limits are known beforehand, [`idle`] repeats these
//! generators where nothing is planted.

pub(super) mod cases;
mod generators;
pub(super) mod idle;
mod truth;

use super::bench::{Bench, printed};
use super::chain::{self, Link, Linked};
use super::plants::{Plant, Planted};
use super::sides::{Side, Sides};
use super::{Required, Row, Series, grid, machine};
use crate::disturbance::Disturbance;
use anyhow::Context;
use generators::{Amount, Generator};
use jostle_model::judged::{Limit, Watched};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;
use truth::{Trial, Truth, trials};

/// Share of both that must be decided.
const DECIDED: f64 = 0.8;

/// However much is taken from a side, as much of the usual work is asked for at least.
const LEAST: f64 = 0.4;

/// Requests by which a generator's rate is found, before its first run.
const PILOT: u64 = 10_000;

/// The time that a run takes, left alone.
const RUN_S: u64 = 2;

/// No run takes longer, unless it stands still.
const LONGEST_S: u32 = 120;

const SIDES: [Side; 2] = [Side::Generator, Side::Server];
const PLANTS: [Plant; 3] = [Plant::Quota, Plant::Hog, Plant::Pause];
const DOSES: [u32; 6] = [10, 20, 30, 40, 60, 80];

/// A line of the file: one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    #[serde(flatten)]
    pub link: Link,
    /// The process of a planted hog.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hog: Option<u32>,
    /// How often quotas stopped either side, by our own reading.
    pub stopped: u64,
    /// The rate that the generator printed.
    pub per_s: f64,
    pub watched: Watched,
}

impl Linked for Run {
    fn link(&self) -> &Link {
        &self.link
    }
}

/// How fast a generator is, and what both sides use, left alone.
#[derive(Clone, Copy, Debug)]
struct Usual {
    per_s: f64,
    /// CPUs' worth of time of each side.
    used: [f64; 2],
}

/// The generators that are asked for.
fn generators(series: &Series) -> anyhow::Result<Vec<Generator>> {
    let generators = generators::all().filter(|each| series.has(each.name));
    let generators: Vec<Generator> = generators.collect();
    anyhow::ensure!(!generators.is_empty(), "no generator has that in its name");
    Ok(generators)
}

/// With a server for each of these generators, which has what it needs.
fn set_up(series: &Series, generators: &[Generator]) -> anyhow::Result<Bench> {
    let packages: Vec<&str> = generators.iter().map(|each| each.package).collect();
    let mut bench = Bench::set_up(&series.jostle()?, &packages, Some(Sides::make()?))?;
    for generator in generators {
        let address = bench.serve(generator.server()?, true)?.address;
        generator.prepare(address)?;
    }
    Ok(bench)
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(series: &Series, short: bool) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = series.collect.begin::<Run>()?;
    if !is_enough(&store.lines) && Instant::now() < until {
        let generators = generators(series)?;
        let bench = set_up(series, &generators)?;
        let plants = || Planted::all(&SIDES, &PLANTS, &DOSES);
        let kinds = generators.iter();
        let kinds: Vec<_> = kinds.map(|each| (each.name, plants())).collect();
        let run_s = if short { RUN_S / 2 } else { RUN_S };
        let mut per_s = 0.0;
        chain::collect(
            &mut store,
            until,
            is_enough,
            &kinds,
            |link, usual: Option<Usual>| {
                let mut named = generators.iter().filter(|each| each.name == link.kind);
                let generator = *named.next().context("a generator of the list")?;
                if link.at == 0 {
                    per_s = pilot(&bench, generator, run_s)?;
                }
                per_s = usual.map_or(per_s, |usual| usual.per_s);
                let left = link
                    .planted
                    .map_or(1.0, |planted| planted.left().max(LEAST));
                let used = usual.map_or([0.0; 2], |usual| usual.used);
                let run = run(&bench, generator, amount(per_s * left, run_s), link, used)?;
                let usual = usual_of(&run);
                Ok((run, usual))
            },
        )?;
    }
    Ok(report(&store.lines))
}

fn is_enough(runs: &[Run]) -> bool {
    let trials = trials(runs);
    let count = |truth| {
        let of_it = trials.iter().filter(|t| t.truth == truth && !t.spoilt);
        of_it.count()
    };
    Required::NONE.is_enough(count(Truth::Saturated))
        && Required::FEW.is_enough(count(Truth::Clean))
}

/// The generator's command in its place.
fn line(bench: &Bench, generator: Generator, amount: Amount) -> anyhow::Result<Vec<String>> {
    let address = bench.server(generator.server()?)?.address;
    let begin = bench.placed(Side::Generator).words();
    Ok([begin, generator.command(address, amount)?].concat())
}

/// One run, watched by jostle, with something planted or left alone; `used` are the CPUs' worth
/// of time that both sides use, left alone.
fn run(
    bench: &Bench,
    generator: Generator,
    amount: Amount,
    link: Link,
    used: [f64; 2],
) -> anyhow::Result<Run> {
    let sides = bench.sides()?;
    sides.lift()?;
    let before = sides.stopped();
    let beside = match link.planted {
        Some(planted) => bench.plant(planted, used[planted.side as usize])?,
        None => None,
    };
    // 3: the generator was the limit.
    let command = line(bench, generator, amount)?;
    let (printed, watched) = bench.judge(&command, LONGEST_S, &[0, 3])?;
    let is_hog = link
        .planted
        .is_some_and(|planted| planted.plant == Plant::Hog);
    let hog = beside.as_ref().filter(|_| is_hog).map(Disturbance::pid);
    beside.map_or(Ok(()), Disturbance::end)?;
    Ok(Run {
        link,
        hog,
        stopped: sides.stopped() - before,
        per_s: generator.figure(&printed, amount)?,
        watched,
    })
}

/// A generator's rate, by runs without jostle that are thrown away.
fn pilot(bench: &Bench, generator: Generator, run_s: u64) -> anyhow::Result<f64> {
    let mut per_s = PILOT as f64;
    // The first one is too short to tell more than the order.
    for _ in 0..if generator.is_counted() { 2 } else { 0 } {
        let amount = amount(per_s, run_s);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        command.args(line(bench, generator, amount)?);
        per_s = generator.figure(&printed(&mut command, &[0])?, amount)?;
    }
    Ok(per_s)
}

fn amount(per_s: f64, run_s: u64) -> Amount {
    Amount {
        seconds: run_s,
        requests: (per_s * run_s as f64) as u64,
    }
}

/// The use of both sides while there was traffic.
fn usual_of(run: &Run) -> Usual {
    let watched = &run.watched;
    let [from_s, to_s] = [watched.finding.from_s, watched.finding.to_s];
    let within = |column: &[f64]| -> f64 {
        let each = column.iter().zip(&watched.end_s);
        let within = each.filter(|(_, end_s)| **end_s > from_s + 0.05 && **end_s < to_s + 0.05);
        within.map(|(used_s, _)| used_s).sum::<f64>() / (to_s - from_s).max(0.1)
    };
    let server = watched.server.as_ref();
    Usual {
        per_s: run.per_s,
        used: [
            within(&watched.generator.cpu_s),
            server.map_or(0.0, |side| within(&side.cpu_s)),
        ],
    }
}

fn report(runs: &[Run]) -> Vec<Row> {
    let trials = trials(runs);
    describe(runs, &trials);
    table(&trials);
    list(&trials);
    let row = |what: &str, spoilt, truth, is: fn(&&Trial<'_>) -> bool, required| {
        let of_it = trials.iter();
        let of_it = of_it.filter(|trial| trial.truth == truth && trial.spoilt == spoilt);
        Row::counting(what, of_it, is, required)
    };
    let [wrong, decided]: [fn(&&Trial<'_>) -> bool; 2] = [|t| t.is_wrong(), |t| t.is_decided()];
    let share = Required::AtLeast(DECIDED);
    use Truth::{Clean, Saturated};
    let table = [
        ("saturated, called clean", Saturated, wrong, Required::NONE),
        ("clean, called saturated", Clean, wrong, Required::FEW),
        ("saturated, decided", Saturated, decided, share),
        ("clean, decided", Clean, decided, share),
    ];
    let plain = table.map(|(what, truth, is, required)| row(what, false, truth, is, required));
    let spoilt = table.map(|(what, truth, is, _)| {
        let what = format!("spoilt: {what}");
        row(&what, true, truth, is, Required::Nothing)
    });
    plain.into_iter().chain(spoilt).collect()
}

fn describe(runs: &[Run], trials: &[Trial<'_>]) {
    let Some(last) = runs.last() else {
        return;
    };
    println!(
        "{} sessions, {} runs, {} trials, of which the machine spoilt {}; {}\n",
        last.link.session,
        runs.len(),
        trials.len(),
        trials.iter().filter(|trial| trial.spoilt).count(),
        machine(&last.watched.environment)
    );
}

/// A plant, as tables print it.
fn name(plant: Plant) -> &'static str {
    match plant {
        Plant::Hog => "hog",
        Plant::Pause => "pauses",
        _ => "quota",
    }
}

/// By generator and what was planted.
fn table(trials: &[Trial<'_>]) {
    const LIMITS: [Limit; 5] = [
        Limit::Generator,
        Limit::Server,
        Limit::Machine,
        Limit::Path,
        Limit::Undecided,
    ];
    let mut cells: BTreeMap<(&str, Planted), Vec<&Trial<'_>>> = BTreeMap::new();
    for trial in trials {
        let cell = (&*trial.run.link.kind, trial.planted);
        cells.entry(cell).or_default().push(trial);
    }
    let rows = cells.into_iter().map(|((generator, planted), trials)| {
        let moved = || trials.iter().filter(|trial| trial.truth != Truth::Unmoved);
        let count = |limit| moved().filter(|trial| trial.finding.limit == limit).count();
        let wrong = moved().filter(|trial| trial.is_wrong()).count();
        let counts = [
            &[trials.len(), moved().count()][..],
            &LIMITS.map(count),
            &[wrong],
        ]
        .concat();
        let (side, plant) = (planted.side.name(), name(planted.plant));
        let first = [generator, side, plant, &format!("{} %", planted.dose)].map(str::to_owned);
        let counts = counts.iter().map(usize::to_string);
        first.into_iter().chain(counts).collect()
    });
    let headings = "|held back|by|dose|trials|moved|generator|server|machine|path|undecided|wrong";
    let widths = [-16, -9, -7, 4, 7, 6, 10, 6, 7, 4, 9, 6];
    grid(" ", &widths, headings, rows);
    println!(
        "\nmoved: the generator's own figure fell by a tenth; of these, what jostle judge called \
         the limit\n"
    );
}

/// Trials whose judgement was wrong or none.
fn list(trials: &[Trial<'_>]) {
    for trial in trials {
        let moved = trial.truth != Truth::Unmoved;
        let what = match (trial.is_wrong(), trial.is_decided()) {
            (true, _) => "WRONG",
            (false, false) if moved => "undecided",
            _ => continue,
        };
        println!(
            "{what}{}: session {}, {}, {} by {} of {} %: rate x {:.2}; {}: {}",
            if trial.spoilt { " (spoilt)" } else { "" },
            trial.run.link.session,
            trial.run.link.kind,
            trial.planted.side.name(),
            name(trial.planted.plant),
            trial.planted.dose,
            trial.to,
            trial.finding.limit.name(),
            trial.finding.reasons.join(" | ")
        );
    }
    println!();
}
