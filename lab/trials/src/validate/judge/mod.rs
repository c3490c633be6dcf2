//! `jostle judge` over load generators that are held back, or whose servers are: is a
//! saturated generator ever called clean, or a clean one saturated?
//!
//! A session is of one generator. [`truth`] has the definitions, [`mod@generators`] what is run,
//! [`plants`] what is planted. [`cases`]
//! are generators and servers whose limits are known beforehand, [`idle`] repeats these generators
//! where nothing is planted.

mod bench;
pub(super) mod cases;
mod generators;
pub(super) mod idle;
mod plants;
mod truth;

use super::chain;
use super::store::Store;
use super::{Required, Row, Series};
use bench::{Bench, Ran, Usual};
use generators::{Amount, Generator};
use jostle_model::judged::{Limit, Watched};
use plants::Planted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Instant;
use truth::{Trial, Truth, trials};

/// Share of both that must be decided.
const DECIDED: f64 = 0.8;

/// However much is taken from a side, as much of the usual work is asked for at least.
const LEAST: f64 = 0.4;

/// Requests by which a generator's rate is found, before its first run.
const PILOT: u64 = 10_000;

/// A line of the file: one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    /// Runs of one session are of one generator, and stand one after the other.
    pub session: u64,
    /// Its place in it; those with even numbers are left alone.
    pub at: u32,
    pub generator: String,
    /// None: left alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub planted: Option<Planted>,
    /// The process of a planted hog.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hog: Option<u32>,
    /// How often quotas stopped either side, by our own reading.
    pub stopped: u64,
    /// The rate that the generator printed.
    pub per_s: f64,
    pub watched: Watched,
}

/// The generators that are asked for.
fn generators(series: &Series) -> anyhow::Result<Vec<Generator>> {
    let all = Generator::ALL.into_iter();
    let generators: Vec<Generator> = all.filter(|each| series.has(each.name())).collect();
    anyhow::ensure!(!generators.is_empty(), "no generator has that in its name");
    Ok(generators)
}

/// The time that a run takes, left alone.
const RUN_S: u64 = 2;

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(series: &Series, short: bool) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = series.collect.begin()?;
    if !is_enough(&store.lines) && Instant::now() < until {
        let generators = generators(series)?;
        let bench = Bench::set_up(&series.jostle()?, &generators)?;
        let run_s = if short { RUN_S / 2 } else { RUN_S };
        while !is_enough(&store.lines) && Instant::now() < until {
            session(&bench, &generators, &mut store, until, run_s)?;
        }
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

/// Makes a session of the generator and with the plants that have the fewest runs so far.
fn session(
    bench: &Bench,
    generators: &[Generator],
    store: &mut Store<Run>,
    until: Instant,
    run_s: u64,
) -> anyhow::Result<()> {
    let session = chain::next_session(&store.lines, |run| run.session);
    let mut counts: BTreeMap<(&str, Planted), usize> = BTreeMap::new();
    for run in &store.lines {
        if let Some(planted) = run.planted {
            *counts.entry((&run.generator, planted)).or_default() += 1;
        }
    }
    let chosen = chain::rarest(
        session,
        generators.to_vec(),
        |_| Planted::all().collect(),
        |generator, planted| {
            let key = (generator.name(), planted);
            counts.get(&key).copied().unwrap_or(0)
        },
    );
    let Some((generator, plants)) = chosen else {
        return Ok(());
    };
    eprintln!("session {session}: {}", generator.name());
    let mut per_s = pilot(bench, generator, run_s)?;
    chain::session(
        &plants,
        Some(until),
        |at, planted: Option<(Planted, Usual)>| {
            per_s = planted.map_or(per_s, |(_, usual)| usual.per_s);
            let left = planted.map_or(1.0, |(planted, _)| planted.left().max(LEAST));
            let ran = bench.run(generator, amount(per_s * left, run_s), planted)?;
            let usual = usual(&ran);
            let planted = planted.map(|(planted, _)| planted);
            store.add(line(session, at, generator, planted, ran))?;
            Ok(usual)
        },
    )
}

/// A generator's rate, by a run that is thrown away.
fn pilot(bench: &Bench, generator: Generator, run_s: u64) -> anyhow::Result<f64> {
    let mut per_s = PILOT as f64;
    // The first one is too short to tell more than the order.
    for _ in 0..if generator.is_counted() { 2 } else { 0 } {
        per_s = bench.bare(generator, amount(per_s, run_s))?;
    }
    Ok(per_s)
}

fn amount(per_s: f64, run_s: u64) -> Amount {
    Amount {
        seconds: run_s,
        requests: (per_s * run_s as f64) as u64,
    }
}

fn line(session: u64, at: u32, generator: Generator, planted: Option<Planted>, ran: Ran) -> Run {
    Run {
        session,
        at,
        generator: generator.name().to_owned(),
        planted,
        hog: ran.hog,
        stopped: ran.stopped,
        per_s: ran.per_s,
        watched: ran.watched,
    }
}

/// What both sides used while there was traffic.
fn usual(ran: &Ran) -> Usual {
    let watched = &ran.watched;
    let [from_s, to_s] = [watched.finding.from_s, watched.finding.to_s];
    let within = |column: &[f64]| -> f64 {
        let each = column.iter().zip(&watched.end_s);
        let within = each.filter(|(_, end_s)| **end_s > from_s + 0.05 && **end_s < to_s + 0.05);
        within.map(|(used_s, _)| used_s).sum::<f64>() / (to_s - from_s).max(0.1)
    };
    Usual {
        per_s: ran.per_s,
        generator: within(&watched.generator.cpu_s),
        server: watched
            .server
            .as_ref()
            .map_or(0.0, |side| within(&side.cpu_s)),
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
        Row::of(what, of_it, is, required)
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
    let environment = &last.watched.environment;
    println!(
        "{} sessions, {} runs, {} trials, of which the machine spoilt {}; {}, {}, {} cores, \
         jostle {}\n",
        last.session,
        runs.len(),
        trials.len(),
        trials.iter().filter(|trial| trial.spoilt).count(),
        environment.cpu_model,
        environment.kernel,
        environment.cores,
        environment.jostle
    );
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
    println!(
        "{:<16} {:<9} {:<7} {:>4}  {:>6}  {:>5}  {:>9} {:>6} {:>7} {:>4} {:>9}  {:>5}",
        "",
        "held back",
        "by",
        "dose",
        "trials",
        "moved",
        "generator",
        "server",
        "machine",
        "path",
        "undecided",
        "wrong"
    );
    let mut cells: BTreeMap<(&str, Planted), Vec<&Trial<'_>>> = BTreeMap::new();
    for trial in trials {
        let cell = (&*trial.run.generator, trial.planted);
        cells.entry(cell).or_default().push(trial);
    }
    for ((generator, planted), trials) in cells {
        let moved: Vec<&&Trial<'_>> = trials
            .iter()
            .filter(|trial| trial.truth != Truth::Unmoved)
            .collect();
        let [by_generator, by_server, by_machine, by_path, undecided] = LIMITS.map(|limit| {
            let of_it = moved.iter().filter(|trial| trial.finding.limit == limit);
            of_it.count()
        });
        println!(
            "{generator:<16} {:<9} {:<7} {:>2} %  {:>6}  {:>5}  {by_generator:>9} {by_server:>6} \
             {by_machine:>7} {by_path:>4} {undecided:>9}  {:>5}",
            planted.side.name(),
            planted.plant.name(),
            planted.dose,
            trials.len(),
            moved.len(),
            moved.iter().filter(|trial| trial.is_wrong()).count()
        );
    }
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
            trial.run.session,
            trial.run.generator,
            trial.planted.side.name(),
            trial.planted.plant.name(),
            trial.planted.dose,
            trial.to,
            trial.finding.limit.name(),
            trial.finding.reasons.join(" | ")
        );
    }
    println!();
}
