//! jostle beside what disturbs it: does what it prints hold?
//!
//! A cell is a plant ([`plants`], from files) and a command line ([`LINES`]). A trial is three
//! controls, a session beside the plant, and three more controls. Where the next trial is of the
//! same line and begins at once, the later controls of one are the earlier ones of the other, and
//! are recorded once. Cells are taken in an order drawn from a seed, so that plants and lines stay
//! balanced wherever a sitting ends; one that claimed nothing in two trials is left out of later
//! sittings. [`judge`] has what holds; it is a pure function of the
//! recorded sessions, and so are the tables of [`page`].

mod judge;
mod margin;
mod page;
mod plants;

use super::bench::Bench;
use super::quiet::{Beside, Sampler};
use super::store::{Store, slim};
use super::{Row, Series, columns};
use anyhow::Context;
use jostle_model::record::{Environment, Experiment, Run};
use jostle_stats::rng::Rng;
use jostle_testbed::servers::Placed;
use plants::{Expected, Plant};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Instant;

/// The lines measured: a name, and the words that follow `jostle`.
static LINES: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let lines = columns(include_str!("../../validate/beside.tsv"));
    lines.map(|[name, words]| (name, words)).collect()
});

/// The order of cells is drawn from it.
const SEED: u64 = 58;

/// On each side.
const CONTROLS: usize = 3;

/// How often a control is taken, until nothing ran beside it.
const CONTROL_TRIES: usize = 5;

/// What is planted.
#[derive(clap::Args)]
pub(crate) struct How {
    /// A file of plants, such as lab/trials/plants/first.toml; once for each
    #[arg(long, value_name = "FILE", required_unless_present = "judge")]
    plants: Vec<PathBuf>,
}

/// A line of the file: one session.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Session {
    trial: u64,
    plant: String,
    line: String,
    /// Beside the plant, or a control.
    planted: bool,
    /// The number of the task's call, from 1; absent in the first series, whose controls have
    /// nothing but their rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sitting: Option<u32>,
    /// The expectation of the plant's author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expected: Option<Expected>,
    /// Absent in the first part of the first series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beside: Option<Beside>,
    /// In the session beside the plant, the number of the trial before, if its later controls
    /// are the earlier ones of this trial too. Absent where this trial has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    controls_of: Option<u64>,
    experiment: Experiment,
    points: Vec<Run>,
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(series: &Series, how: &How) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = series.collect.begin()?;
    if Instant::now() < until {
        collect(series, &plants::read(&how.plants)?, &mut store, until)?;
    }
    let judged = judge::judged(&store.lines);
    println!("{}", page::tables(&store.lines, &judged));
    Ok(page::rows(&store.lines, &judged))
}

fn collect(
    series: &Series,
    plants: &[Plant],
    store: &mut Store<Session>,
    until: Instant,
) -> anyhow::Result<()> {
    let last = store.lines.iter().filter_map(|session| session.sitting);
    let sitting = Sitting {
        bench: Bench::set_up(&series.jostle()?, &[], None)?,
        sampler: Sampler::start()?,
        number: last.max().unwrap_or(0) + 1,
    };
    let mut plants: Vec<&Plant> = plants.iter().collect();
    let silent = silent(&store.lines);
    let is_wanted = |plant: &str, line: &str| {
        series.has(&format!("{plant}, {line}"))
            && !silent.contains(&(plant.to_owned(), line.to_owned()))
    };
    // Trials are continued within one call only, where nothing passes between them.
    let before = store.lines.len();
    while Instant::now() < until {
        let here: &[Session] = &store.lines[before..];
        let line = here.last().map(|last| last.line.as_str());
        let found = next(&store.lines, &plants, line, is_wanted);
        let (plant, line) = found.context("no such cell is left that claims anything")?;
        eprintln!("{}, {}", plant.name, line.0);
        let controls_of = shared(here, line.0);
        if let Err(error) = sitting.trial(store, plant, line, controls_of) {
            eprintln!("{error:#}; `{}` is left out of this sitting", plant.name);
            plants.retain(|other| other.name != plant.name);
        }
    }
    Ok(())
}

/// A cell with the fewest trials. If there are several, one of this line, whose controls it can
/// share, and among these the first in an order that is drawn anew for each round.
fn next<'a>(
    sessions: &[Session],
    plants: &[&'a Plant],
    line: Option<&str>,
    is_wanted: impl Fn(&str, &str) -> bool,
) -> Option<(&'a Plant, (&'static str, &'static str))> {
    let mut tried = BTreeMap::<_, u64>::new();
    for trial in judge::trials(sessions) {
        let planted = trial[CONTROLS];
        *tried
            .entry((planted.plant.as_str(), planted.line.as_str()))
            .or_default() += 1;
    }
    let cells = plants
        .iter()
        .flat_map(|plant| LINES.iter().map(move |line| (*plant, *line)));
    let wanted = cells
        .enumerate()
        .filter(|(_, (plant, line))| is_wanted(&plant.name, line.0));
    let first = wanted.min_by_key(|(nth, (plant, of))| {
        let tried = tried.get(&(plant.name.as_str(), of.0));
        let tried = tried.copied().unwrap_or(0);
        let drawn = Rng::stream(SEED + tried, *nth as u64).next_u64();
        (tried, Some(of.0) != line, drawn)
    });
    first.map(|(_, cell)| cell)
}

/// Plants and lines with two trials or more that count, none of which claims a throughput: what they
/// print is known. Whether a claim was false has no part in that choice.
fn silent(sessions: &[Session]) -> BTreeSet<(String, String)> {
    let mut claims = BTreeMap::<_, Vec<bool>>::new();
    for (trial, judged) in judge::trials(sessions).iter().zip(judge::judged(sessions)) {
        if judged.outcomes[0] == judge::Outcome::Discarded {
            continue;
        }
        let is_claim = matches!(judged.outcomes[0], judge::Outcome::Claimed(_));
        let planted = trial[CONTROLS];
        let cell = (planted.plant.clone(), planted.line.clone());
        claims.entry(cell).or_default().push(is_claim);
    }
    claims.retain(|_, each| each.len() >= 2 && !each.contains(&true));
    claims.into_keys().collect()
}

/// The trial that ended last, if its later controls can be the earlier ones of a trial of this
/// line: it is of the same line, and others were quiet beside each of these controls. Figures
/// have no part in that choice.
fn shared(sessions: &[Session], line: &str) -> Option<u64> {
    let last = judge::trials(sessions).pop()?;
    let was_quiet = |control: &&Session| {
        let mut runs = control.points.iter();
        runs.any(|run| judge::is_quiet(control, run))
    };
    let fits = last[0].line == line && last[CONTROLS + 1..].iter().all(was_quiet);
    fits.then_some(last[CONTROLS].trial)
}

/// The means to make sessions.
struct Sitting {
    bench: Bench,
    sampler: Sampler,
    number: u32,
}

impl Sitting {
    fn trial(
        &self,
        store: &mut Store<Session>,
        plant: &Plant,
        line: (&str, &str),
        controls_of: Option<u64>,
    ) -> anyhow::Result<()> {
        let trial = store.lines.last().map_or(1, |last| last.trial + 1);
        let first = controls_of.map_or(0, |_| CONTROLS);
        for nth in first..=2 * CONTROLS {
            let planted = nth == CONTROLS;
            let running = planted.then(|| plant.start()).transpose()?;
            let (beside, experiment, points) = match planted {
                true => self.session(line.1)?,
                false => self.control(line.1)?,
            };
            if let Some(running) = running {
                running.end()?;
            }
            store.add(Session {
                trial,
                plant: plant.name.clone(),
                line: line.0.to_owned(),
                planted,
                sitting: Some(self.number),
                expected: Some(plant.expected).filter(|_| planted),
                beside: Some(beside),
                controls_of: controls_of.filter(|_| planted),
                experiment,
                points,
            })?;
        }
        Ok(())
    }

    /// A session left alone: if other programs ran beside it, in the mean over its time, it is taken
    /// again. The sampler alone decides, before anything is known of its figures. What the
    /// hypervisor takes, it takes beside plants as well, and no retry avoids it.
    fn control(&self, words: &str) -> anyhow::Result<(Beside, Experiment, Vec<Run>)> {
        for _ in 1..CONTROL_TRIES {
            let session = self.session(words)?;
            if session.0.foreign <= judge::QUIET {
                return Ok(session);
            }
        }
        self.session(words)
    }

    /// The evidence of a session's verdict, without what no table of the lab has.
    fn session(&self, words: &str) -> anyhow::Result<(Beside, Experiment, Vec<Run>)> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let measure = || self.bench.measure(Placed::default(), &words);
        let (set, beside) = self.sampler.beside(measure)?;
        let set = set?;
        let mut experiment = set.experiment;
        experiment.environment = Environment {
            cores: experiment.environment.cores,
            ..Environment::default()
        };
        let mut points = set.runs;
        for run in &mut points {
            slim(run);
            run.workers = None;
        }
        Ok((beside, experiment, points))
    }
}

#[cfg(test)]
mod tests;
