//! `jostle judge` over load generators that are held back, or whose servers are: is a
//! saturated generator ever called clean, or a clean one saturated?
//!
//! A session is a chain of runs of one generator: left alone, planted, left alone,
//! planted, ..., left alone. [`truth`] has the definitions, [`generators`] what is run,
//! [`plants`] what is planted. [`cost`] is another question: what watching costs. [`cases`]
//! are generators and servers whose limits are known beforehand, [`idle`] repeats these generators
//! where nothing is planted.

mod bench;
pub(super) mod cases;
pub(super) mod cost;
mod generators;
pub(super) mod idle;
mod plants;
mod truth;

use super::store::Store;
use super::{Required, Row};
use crate::program;
use bench::{Bench, Ran, Usual};
use generators::{Amount, Generator};
use jostle_model::judged::{Limit, Watched};
use jostle_stats::rng::Rng;
use plants::Planted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use truth::{Trial, Truth, trials};

/// If none of so many is called clean, surely (95 %) under 1.5 % are.
const SATURATED: u64 = 200;

/// If at most [`FALSE`] of so many are called saturated, surely (95 %) at most 2 % are.
const CLEAN: u64 = 313;
const FALSE: u64 = 2;

/// Share of both that must be decided.
const DECIDED: f64 = 0.8;

/// Planted runs of a session.
const PLANTED: usize = 6;

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

/// What to collect.
pub(super) struct Wanted<'a> {
    pub seconds: u64,
    pub save: Option<&'a Path>,
    /// Judge this file instead.
    pub judge: Option<&'a Path>,
    /// Only generators whose names contain this.
    pub only: Option<&'a str>,
    /// Runs of one second instead of two.
    pub short: bool,
    /// jostle, as it was built already.
    pub program: Option<&'a Path>,
}

impl Wanted<'_> {
    fn generators(&self) -> anyhow::Result<Vec<Generator>> {
        let is_wanted = |each: &Generator| self.only.is_none_or(|only| each.name().contains(only));
        let generators: Vec<Generator> = Generator::ALL.into_iter().filter(is_wanted).collect();
        anyhow::ensure!(!generators.is_empty(), "no generator has that in its name");
        Ok(generators)
    }

    fn bench(&self, generators: &[Generator]) -> anyhow::Result<Bench> {
        let built = self.program.map(Path::to_owned);
        let jostle: PathBuf = built.map_or_else(program::build, Ok)?;
        Bench::set_up(&jostle, generators)
    }

    /// The time that a run takes, left alone.
    fn run_s(&self) -> u64 {
        if self.short { 1 } else { 2 }
    }
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(wanted: &Wanted<'_>) -> anyhow::Result<Vec<Row>> {
    if let Some(path) = wanted.judge {
        return Ok(report(&Store::read(path)?.lines));
    }
    let mut store = Store::open(wanted.save)?;
    let until = Instant::now() + Duration::from_secs(wanted.seconds);
    if !is_enough(&store.lines) && wanted.seconds > 0 {
        let generators = wanted.generators()?;
        let bench = wanted.bench(&generators)?;
        while !is_enough(&store.lines) && Instant::now() < until {
            session(&bench, &generators, &mut store, until, wanted.run_s())?;
        }
    }
    Ok(report(&store.lines))
}

fn is_enough(runs: &[Run]) -> bool {
    let trials = trials(runs);
    let count = |truth| {
        let of_it = trials.iter().filter(|t| t.truth == truth && !t.spoilt);
        of_it.count() as u64
    };
    count(Truth::Saturated) >= SATURATED && count(Truth::Clean) >= CLEAN
}

/// Makes a session of the generator and with the plants that have the fewest runs so far.
fn session(
    bench: &Bench,
    generators: &[Generator],
    store: &mut Store<Run>,
    until: Instant,
    run_s: u64,
) -> anyhow::Result<()> {
    let session = store.lines.last().map_or(1, |run| run.session + 1);
    let mut counts: BTreeMap<(&str, Planted), usize> = BTreeMap::new();
    for run in &store.lines {
        if let Some(planted) = run.planted {
            *counts.entry((&run.generator, planted)).or_default() += 1;
        }
    }
    let mut rng = Rng::new(session);
    let mut generators = generators.to_vec();
    rng.shuffle(&mut generators);
    let count = |generator: Generator, planted: Planted| {
        let key = (generator.name(), planted);
        counts.get(&key).copied().unwrap_or(0)
    };
    let tried = |each: &Generator| Planted::all().map(|p| count(*each, p)).sum::<usize>();
    let Some(generator) = generators.into_iter().min_by_key(tried) else {
        return Ok(());
    };
    let mut plants: Vec<Planted> = Planted::all().collect();
    rng.shuffle(&mut plants);
    plants.sort_by_key(|planted| count(generator, *planted));
    plants.truncate(PLANTED);
    eprintln!("session {session}: {}", generator.name());
    chain(bench, store, session, generator, &plants, until, run_s)
}

/// One session: every second run is left alone, the first and the last too.
fn chain(
    bench: &Bench,
    store: &mut Store<Run>,
    session: u64,
    generator: Generator,
    plants: &[Planted],
    until: Instant,
    run_s: u64,
) -> anyhow::Result<()> {
    let mut per_s = pilot(bench, generator, run_s)?;
    let mut at = 0;
    let mut run = |planted: Option<(Planted, Usual)>, per_s: f64, store: &mut Store<Run>| {
        let left = planted.map_or(1.0, |(planted, _)| planted.left().max(LEAST));
        let amount = amount(per_s * left, run_s);
        let ran = bench.run(generator, amount, planted)?;
        let usual = usual(&ran);
        store.add(line(
            session,
            at,
            generator,
            planted.map(|(planted, _)| planted),
            ran,
        ))?;
        at += 1;
        anyhow::Ok(usual)
    };
    let mut usual = run(None, per_s, store)?;
    for planted in plants {
        if Instant::now() >= until {
            break;
        }
        per_s = usual.per_s;
        run(Some((*planted, usual)), per_s, store)?;
        usual = run(None, per_s, store)?;
    }
    Ok(())
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
    let of = |truth: Truth, spoilt: bool| {
        let of_it = trials.iter();
        of_it.filter(move |trial| trial.truth == truth && trial.spoilt == spoilt)
    };
    let row = |what: &str, spoilt: bool, truth, is: fn(&Trial<'_>) -> bool, required| Row {
        what: what.to_owned(),
        count: of(truth, spoilt).filter(|trial| is(trial)).count() as u64,
        trials: of(truth, spoilt).count() as u64,
        required,
        note: String::new(),
    };
    let at_most = |most, of| Required::AtMostOf { most, of };
    let [wrong, decided]: [fn(&Trial<'_>) -> bool; 2] = [|t| t.is_wrong(), |t| t.is_decided()];
    let share = Required::AtLeast(DECIDED);
    use Truth::{Clean, Saturated};
    vec![
        row(
            "saturated, called clean",
            false,
            Saturated,
            wrong,
            at_most(0, SATURATED),
        ),
        row(
            "clean, called saturated",
            false,
            Clean,
            wrong,
            at_most(FALSE, CLEAN),
        ),
        row("saturated, decided", false, Saturated, decided, share),
        row("clean, decided", false, Clean, decided, share),
        row(
            "spoilt: saturated, called clean",
            true,
            Saturated,
            wrong,
            Required::Nothing,
        ),
        row(
            "spoilt: clean, called saturated",
            true,
            Clean,
            wrong,
            Required::Nothing,
        ),
        row(
            "spoilt: saturated, decided",
            true,
            Saturated,
            decided,
            Required::Nothing,
        ),
        row(
            "spoilt: clean, decided",
            true,
            Clean,
            decided,
            Required::Nothing,
        ),
    ]
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
