//! jostle beside what disturbs it: does what it prints hold?
//!
//! A cell is a plant and a command line. A trial is three controls, a session beside the
//! plant, and three more controls; the truth is what the controls span. Where the next trial is
//! of the same line and begins at once, the later controls of one are the earlier ones of the
//! other, and are recorded once. Of the controls only those count beside which a sampler that
//! is not jostle's saw nothing else (in the first series: the runs in which the kernel's ticks
//! show nothing else); a trial with a control without such a run, or with controls too far
//! apart, is discarded. [`PLANTS`] and [`LINES`] are the matrix; [`judged`] is a pure function
//! of the recorded runs.

use super::quiet::{Beside, Sampler};
use super::store::{Store, slim};
use super::{Required, Row, Series};
use crate::program;
use anyhow::Context;
use jostle_model::record::{Accounts, Circumstances, Environment, Experiment, Run, Status, Window};
use jostle_stats::figures;
use jostle_stats::harm::BEARABLE;
use jostle_stats::summary::{OneBound, PointSummary, summarize};
use jostle_testbed::leash::Leash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What is planted, and a shell's loop that does it. It never ends by itself.
const PLANTS: [(&str, &str); 6] = [
    ("continuous", "while :; do :; done"),
    (
        "bursts",
        "while :; do timeout 0.02 sh -c 'while :; do :; done'; sleep 0.3; done",
    ),
    (
        "kernel threads",
        "F=$(mktemp); while :; do dd if=/dev/zero of=$F bs=1M count=64 conv=fsync 2>&-; done",
    ),
    (
        // What one CPU sends the other one handles.
        "soft interrupts",
        "exec unshare -nm bash -c 'ip link set lo up; mount -t sysfs none /sys; \
         echo 1 > /sys/class/net/lo/queues/rx-0/rps_cpus; \
         while :; do echo > /dev/udp/127.0.0.1/9; done 2>&-'",
    ),
    ("short-lived programs", "while :; do /bin/true; done"),
    ("memory", "exec dd if=/dev/zero of=/dev/null bs=64M 2>&-"),
];

/// What is measured; each word that is a number of seconds or of runs is added.
const LINES: [(&str, &str); 4] = [
    ("one worker", "contend ofd -w 1 -b 0 -i 0 --place cpus:0"),
    ("pair, free", "contend flock -w 2 -b 0 -i 0"),
    ("pair, apart", "contend flock -w 2 -b 0 -i 0 --place cross"),
    ("service", "contend lockd -w 2 -b 0 -i 0"),
];

/// On each side.
const CONTROLS: usize = 3;
/// Trials of a cell.
const TRIALS: usize = 17;
/// Controls agree within this. A free pair's differ by 7 to 20 %, a service's by 10 to 60 %,
/// with nothing beside them: what is within their span is true of them.
const APART: f64 = 0.30;
/// Share of the CPUs that others may have used in a control: within what a control scatters.
const QUIET: f64 = 0.03;

/// A line of the file: one session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Session {
    trial: u64,
    plant: String,
    line: String,
    /// Beside the plant, or a control.
    planted: bool,
    /// Absent in the first series.
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
pub(super) fn rows(series: &Series) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = series.collect.begin()?;
    if Instant::now() >= until {
        return Ok(report(&store.lines));
    }
    let jostle = series.jostle()?;
    let sampler = Sampler::start()?;
    // Trials are continued within one call only, where nothing passes between them.
    let before = store.lines.len();
    while Instant::now() < until {
        let here: &[Session] = &store.lines[before..];
        let line = here.last().map(|last| last.line.as_str());
        let found = next(&store.lines, line, |cell| series.has(cell));
        let (cell, tried) = found.context("no cell has that in its name")?;
        if tried >= TRIALS {
            break;
        }
        eprintln!("{}, {}", cell.0, cell.1);
        let controls_of = shared(here, cell.1);
        trial(&jostle, &sampler, &mut store, cell, controls_of)?;
    }
    Ok(report(&store.lines))
}

/// A cell with the fewest trials, and how many these are. If there are several, one of this
/// line, whose controls it can share. None where none is wanted.
fn next(
    sessions: &[Session],
    line: Option<&str>,
    is_wanted: impl Fn(&str) -> bool,
) -> Option<((&'static str, &'static str), usize)> {
    let mut tried = BTreeMap::<_, usize>::new();
    for trial in trials(sessions) {
        let planted = trial[CONTROLS];
        *tried
            .entry((planted.plant.as_str(), planted.line.as_str()))
            .or_default() += 1;
    }
    let cells = PLANTS
        .iter()
        .flat_map(|plant| LINES.map(|line| (plant.0, line.0)));
    let counted = cells
        .filter(|(plant, line)| is_wanted(&format!("{plant}, {line}")))
        .map(|cell| (cell, tried.get(&cell).copied().unwrap_or(0)));
    counted.min_by_key(|(cell, tried)| (*tried, Some(cell.1) != line))
}

/// The trial that ended last, if its later controls can be the earlier ones of a trial of this
/// line: it is of the same line, and others were quiet beside each of these controls. Figures
/// have no part in that choice.
fn shared(sessions: &[Session], line: &str) -> Option<u64> {
    let last = trials(sessions).pop()?;
    let was_quiet = |control: &&Session| control.points.iter().any(|run| is_quiet(control, run));
    let fits = last[0].line == line && last[CONTROLS + 1..].iter().all(was_quiet);
    fits.then_some(last[CONTROLS].trial)
}

fn trial(
    jostle: &Path,
    sampler: &Sampler,
    store: &mut Store<Session>,
    (plant, line): (&str, &str),
    controls_of: Option<u64>,
) -> anyhow::Result<()> {
    let trial = store.lines.last().map_or(1, |last| last.trial + 1);
    let find = |table: &[(&str, &str)], name: &str| {
        let mut named = table.iter().filter(|(other, _)| *other == name);
        named
            .next()
            .map_or_else(String::new, |(_, words)| (*words).to_owned())
    };
    let (script, words) = (find(&PLANTS, plant), find(&LINES, line));
    let directory = tempfile::tempdir()?;
    let first = controls_of.map_or(0, |_| CONTROLS);
    for nth in first..=2 * CONTROLS {
        let planted = nth == CONTROLS;
        let leash = planted.then(|| start(&script)).transpose()?;
        let mut run = program::call(jostle);
        run.args(words.split_whitespace())
            .args(["-t", "1", "--runs", "3"]);
        let part = directory.path().join("part.jsonl");
        let (sets, beside) = sampler.beside(|| program::run(&mut run, &part))?;
        let mut sets = sets?;
        drop(leash);
        let set = sets.pop().context("jostle wrote nothing")?;
        let mut points = set.runs;
        points.iter_mut().for_each(slim);
        let mut experiment = set.experiment;
        if !planted {
            // Hundreds of them, of which nothing else is looked at.
            experiment.environment = Environment::default();
            points.iter_mut().for_each(bare);
        }
        store.add(Session {
            trial,
            plant: plant.to_owned(),
            line: line.to_owned(),
            planted,
            beside: Some(beside),
            controls_of: controls_of.filter(|_| planted),
            experiment,
            points,
        })?;
    }
    Ok(())
}

/// Leaves of a control's run its rate, and what tells whether it was quiet.
fn bare(run: &mut Run) {
    let accounts = run.around.accounts.take().map(|all| {
        Box::new(Accounts {
            between_s: all.between_s,
            cpus: all.cpus,
            workers_s: all.workers_s,
            server_s: all.server_s,
            tool_s: all.tool_s,
            stolen_s: all.stolen_s,
            ..Accounts::default()
        })
    });
    *run = Run {
        target: std::mem::take(&mut run.target),
        run: run.run,
        throughput_per_s: run.throughput_per_s,
        window: Window {
            window_s: run.window.window_s,
            ..Window::default()
        },
        around: Circumstances {
            machine: run.around.machine,
            accounts,
            ..Circumstances::default()
        },
        ..Run::default()
    };
}

/// The loop, until its leash is dropped.
fn start(script: &str) -> anyhow::Result<Leash> {
    let ends = format!("( {script} ) < /dev/null & read _; kill $!");
    let mut shell = Command::new("bash");
    shell.args(["-c", &ends]).stdout(Stdio::null());
    let leash = Leash::start(&mut shell)?;
    std::thread::sleep(Duration::from_millis(500));
    Ok(leash)
}

/// What became of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Held,
    NotHeld,
    /// Nothing was printed.
    NoFigure,
    /// The controls were disturbed, or lie apart.
    Discarded,
}

/// The seven sessions of each whole trial. One that was cut off is none, nor is one that shares
/// the controls of such a trial.
fn trials(sessions: &[Session]) -> Vec<Vec<&Session>> {
    let mut trials: Vec<Vec<&Session>> = Vec::new();
    for own in sessions.chunk_by(|one, other| one.trial == other.trial) {
        let last = trials
            .last()
            .filter(|last| Some(last[CONTROLS].trial) == own[0].controls_of);
        let shared = last.map_or(&[][..], |last| &last[CONTROLS + 1..]);
        let whole: Vec<&Session> = shared.iter().copied().chain(own).collect();
        if whole.len() == 2 * CONTROLS + 1 {
            trials.push(whole);
        }
    }
    trials
}

/// The outcomes of each cell.
fn judged(sessions: &[Session]) -> BTreeMap<(String, String), Vec<Outcome>> {
    let mut cells = BTreeMap::<_, Vec<Outcome>>::new();
    for trial in trials(sessions) {
        let planted = trial[CONTROLS];
        let cell = (planted.plant.clone(), planted.line.clone());
        cells.entry(cell).or_default().push(outcome(&trial));
    }
    cells
}

/// What the controls of a trial did, each the median of its runs that were quiet. None if one
/// has no such run, or if they lie apart.
fn rates(trial: &[&Session]) -> Option<Vec<f64>> {
    let of_control = |control: &Session| {
        let runs = control.points.iter().filter(|run| is_quiet(control, run));
        let runs: Vec<f64> = runs.map(|run| run.throughput_per_s).collect();
        jostle_stats::intervals::median(&runs)
    };
    let controls = trial.iter().filter(|one| !one.planted);
    let rates: Vec<f64> = controls.map(|one| of_control(one)).collect::<Option<_>>()?;
    let [least, most] = span(&rates);
    (most <= least * (1.0 + APART)).then_some(rates)
}

fn span(rates: &[f64]) -> [f64; 2] {
    let each = || rates.iter().copied();
    [
        each().fold(f64::INFINITY, f64::min),
        each().fold(0.0, f64::max),
    ]
}

fn outcome(trial: &[&Session]) -> Outcome {
    let beside = trial[CONTROLS];
    let Some(rates) = rates(trial) else {
        return Outcome::Discarded;
    };
    let points = summarize(&beside.experiment, &beside.points);
    let point = points.first();
    point.map_or(Outcome::NoFigure, |point| holds(point, span(&rates)))
}

/// Controls that, as if they were the session beside the plant, are not within 5 % of what the
/// other five span, and all: how often this judge rejects what nothing disturbed. Each control
/// counts once: those that two trials share count in the first that is not discarded.
fn rejected(sessions: &[Session]) -> [usize; 2] {
    let mut counts = [0, 0];
    let mut last = None;
    for trial in trials(sessions) {
        let Some(rates) = rates(&trial) else {
            continue;
        };
        let planted = trial[CONTROLS];
        let have_counted = planted.controls_of.is_some() && planted.controls_of == last;
        last = Some(planted.trial);
        for at in if have_counted { CONTROLS } else { 0 }..rates.len() {
            let mut others = rates.clone();
            let rate = others.swap_remove(at);
            counts[0] += usize::from(!is_near(rate, span(&others)));
            counts[1] += 1;
        }
    }
    counts
}

/// Within what a VALID figure may be off.
fn is_near(rate: f64, [least, most]: [f64; 2]) -> bool {
    ((1.0 - BEARABLE) * least..=(1.0 + BEARABLE) * most).contains(&rate)
}

/// Whether what is printed is compatible with the truth's interval.
fn holds(point: &PointSummary<'_>, [least, most]: [f64; 2]) -> Outcome {
    let verdict = match (point.verdict.is, point.of(figures::THROUGHPUT), point.harm) {
        (Status::Invalid, ..) => match point.one_bound_per_s() {
            None => return Outcome::NoFigure,
            Some(OneBound::AtLeast(low)) => low <= most,
            Some(OneBound::AtMost(high)) => high >= least,
        },
        (_, Some(figure), Some(harm)) if harm.off() >= BEARABLE => {
            let figure = figure.median;
            figure * harm.low <= most && figure * harm.high >= least
        }
        (_, Some(figure), _) => is_near(figure.median, [least, most]),
        (_, None, _) => return Outcome::NoFigure,
    };
    match verdict {
        true => Outcome::Held,
        false => Outcome::NotHeld,
    }
}

/// Whether others left a control alone during this run: by the sampler, in the whole session;
/// where it has no sampler, by the kernel's ticks: what was busy beside ours, and steal.
fn is_quiet(control: &Session, run: &Run) -> bool {
    if let Some(beside) = control.beside {
        return beside.worst <= QUIET;
    }
    let Some(accounts) = run.around.accounts.as_deref() else {
        return false;
    };
    let ours_s = accounts.workers_s + accounts.server_s.unwrap_or(0.0) + accounts.tool_s;
    let machine = &run.around.machine;
    let busy_s = machine.busy_ticks as f64 / machine.ticks_per_s.max(1) as f64;
    let all_s = accounts.between_s * machine.cores as f64;
    busy_s - ours_s <= QUIET * all_s && super::stolen(run) <= QUIET
}

fn report(sessions: &[Session]) -> Vec<Row> {
    let cells = judged(sessions);
    let [rejected, controls] = rejected(sessions);
    println!(
        "{:<22} {:<12} held  not held  no figure  discarded",
        "beside", "line"
    );
    use Outcome::{Discarded, Held, NoFigure, NotHeld};
    let counts = |outcomes: &[Outcome]| {
        [Held, NotHeld, NoFigure, Discarded]
            .map(|wanted| outcomes.iter().filter(|one| **one == wanted).count())
    };
    for ((plant, line), outcomes) in &cells {
        let [held, not, none, discarded] = counts(outcomes);
        println!("{plant:<22} {line:<12} {held:>4}  {not:>8}  {none:>9}  {discarded:>9}");
    }
    let all: Vec<Outcome> = cells.into_values().flatten().collect();
    let [held, not, _, discarded] = counts(&all);
    let row =
        |what, count, trials, required| Row::counted(what, count as u64, trials as u64, required);
    let (holds, few) = (Required::AtLeast(0.97), Required::AtMost(0.20));
    let against = "controls against the other five: not held";
    vec![
        row("what is printed holds", held, held + not, holds),
        row(against, rejected, controls, Required::Nothing),
        row("discarded", discarded, all.len(), few),
    ]
}

#[cfg(test)]
mod tests;
