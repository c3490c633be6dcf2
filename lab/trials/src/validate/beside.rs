//! jostle beside what disturbs it: does what it prints hold?
//!
//! A cell is a plant and a command line. A trial is three controls, a session beside the
//! plant, and three more controls; the truth is what the controls span. Of these only those
//! count beside which a sampler that is not jostle's saw nothing else (in the first series: the
//! runs in which the kernel's ticks show nothing else); a trial with a control without such a run, or with controls too far
//! apart, is discarded. [`PLANTS`] and [`LINES`] are the
//! matrix; [`judged`] is a pure function of the recorded runs.

use super::quiet::{Beside, Sampler};
use super::store::{Store, slim};
use super::{Collect, Required, Row};
use crate::program;
use anyhow::Context;
use jostle_model::record::{Accounts, Environment, Experiment, Is, Point};
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
    experiment: Experiment,
    points: Vec<Point>,
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(
    collect: &Collect,
    program: Option<&Path>,
    only: Option<&str>,
) -> anyhow::Result<Vec<Row>> {
    if let Some(path) = &collect.judge {
        return Ok(report(&Store::read(path)?.lines));
    }
    let mut store = Store::open(collect.save.as_deref())?;
    let jostle = match program {
        Some(path) => path.to_owned(),
        None => program::build()?,
    };
    let sampler = Sampler::start()?;
    let until = Instant::now() + Duration::from_secs(collect.seconds);
    while Instant::now() < until {
        let mut cells = judged(&store.lines);
        let of = |(plant, line): (&str, &str)| format!("{plant}, {line}");
        let all = PLANTS
            .iter()
            .flat_map(|plant| LINES.map(|line| (plant.0, line.0)));
        let all = all.filter(|cell| only.is_none_or(|only| of(*cell).contains(only)));
        let tried = |(plant, line): &(&str, &str)| {
            let outcomes = cells.get(&(plant.to_string(), line.to_string()));
            outcomes.map_or(0, Vec::len)
        };
        let next = all
            .min_by_key(tried)
            .context("no cell has that in its name")?;
        if tried(&next) >= TRIALS {
            break;
        }
        cells.clear();
        eprintln!("{}", of(next));
        trial(&jostle, &sampler, &mut store, next)?;
    }
    Ok(report(&store.lines))
}

fn trial(
    jostle: &Path,
    sampler: &Sampler,
    store: &mut Store<Session>,
    (plant, line): (&str, &str),
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
    for nth in 0..=2 * CONTROLS {
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
        let mut points = set.points;
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
            experiment,
            points,
        })?;
    }
    Ok(())
}

/// Leaves of a control's run its rate, and what tells whether it was quiet.
fn bare(run: &mut Point) {
    let accounts = run.accounts.take().map(|all| {
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
    *run = Point {
        target: std::mem::take(&mut run.target),
        run: run.run,
        window_s: run.window_s,
        throughput_per_s: run.throughput_per_s,
        machine: run.machine,
        accounts,
        ..Point::default()
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

/// The outcomes of each cell.
fn judged(sessions: &[Session]) -> BTreeMap<(String, String), Vec<Outcome>> {
    let mut cells = BTreeMap::<_, Vec<Outcome>>::new();
    for trial in sessions.chunk_by(|one, other| one.trial == other.trial) {
        // One that was cut off is none.
        if trial.len() == 2 * CONTROLS + 1 {
            let cell = (trial[0].plant.clone(), trial[0].line.clone());
            cells.entry(cell).or_default().push(outcome(trial));
        }
    }
    cells
}

/// What the controls of a trial did, each the median of its runs that were quiet. None if one
/// has no such run, or if they lie apart.
fn rates(trial: &[Session]) -> Option<Vec<f64>> {
    let of_control = |control: &Session| {
        let is_quiet = |run: &&Point| match control.beside {
            Some(beside) => beside.worst <= QUIET,
            None => is_quiet(run),
        };
        let runs = control.points.iter().filter(is_quiet);
        let runs: Vec<f64> = runs.map(|run| run.throughput_per_s).collect();
        jostle_stats::intervals::median(&runs)
    };
    let controls = trial.iter().filter(|one| !one.planted);
    let rates: Vec<f64> = controls.map(of_control).collect::<Option<_>>()?;
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

fn outcome(trial: &[Session]) -> Outcome {
    let planted = trial.iter().find(|one| one.planted);
    let Some((beside, rates)) = planted.zip(rates(trial)) else {
        return Outcome::Discarded;
    };
    let points = summarize(&beside.experiment, &beside.points);
    let point = points.first();
    point.map_or(Outcome::NoFigure, |point| holds(point, span(&rates)))
}

/// Controls that, as if they were the session beside the plant, are not within 5 % of what the
/// other five span, and all: how often this judge rejects what nothing disturbed.
fn rejected(sessions: &[Session]) -> [usize; 2] {
    let trials = sessions.chunk_by(|one, other| one.trial == other.trial);
    let whole = trials.filter(|trial| trial.len() == 2 * CONTROLS + 1);
    let each = whole.filter_map(rates).flat_map(|rates| {
        (0..rates.len()).map(move |at| {
            let mut others = rates.clone();
            let rate = others.swap_remove(at);
            usize::from(!is_near(rate, span(&others)))
        })
    });
    each.fold([0, 0], |[rejected, all], one| [rejected + one, all + 1])
}

/// Within what a VALID figure may be off.
fn is_near(rate: f64, [least, most]: [f64; 2]) -> bool {
    ((1.0 - BEARABLE) * least..=(1.0 + BEARABLE) * most).contains(&rate)
}

/// Whether what is printed is compatible with the truth's interval.
fn holds(point: &PointSummary<'_>, [least, most]: [f64; 2]) -> Outcome {
    let verdict = match (point.verdict.is, point.throughput_per_s, point.harm) {
        (Is::Invalid, ..) => match point.one_bound_per_s() {
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

/// By the kernel's ticks: what was busy beside ours, and steal.
fn is_quiet(run: &Point) -> bool {
    let Some(accounts) = run.accounts.as_deref() else {
        return false;
    };
    let ours_s = accounts.workers_s + accounts.server_s.unwrap_or(0.0) + accounts.tool_s;
    let machine = &run.machine;
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
    let count =
        |outcomes: &[Outcome], wanted| outcomes.iter().filter(|one| **one == wanted).count();
    for ((plant, line), outcomes) in &cells {
        let [held, not, none, discarded] = [
            Outcome::Held,
            Outcome::NotHeld,
            Outcome::NoFigure,
            Outcome::Discarded,
        ]
        .map(|wanted| count(outcomes, wanted));
        println!("{plant:<22} {line:<12} {held:>4}  {not:>8}  {none:>9}  {discarded:>9}");
    }
    let all: Vec<Outcome> = cells.into_values().flatten().collect();
    let [held, not, discarded] =
        [Outcome::Held, Outcome::NotHeld, Outcome::Discarded].map(|wanted| count(&all, wanted));
    let row = |what: &str, count: usize, trials: usize, required| Row {
        what: what.to_owned(),
        count: count as u64,
        trials: trials as u64,
        required,
        note: String::new(),
    };
    vec![
        row(
            "what is printed holds",
            held,
            held + not,
            Required::AtLeast(0.97),
        ),
        row(
            "controls against the other five: not held",
            rejected,
            controls,
            Required::Nothing,
        ),
        row("discarded", discarded, all.len(), Required::AtMost(0.20)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::plan::{Plan, Workload};
    use jostle_model::record::{At, Calibration, Machine, SCHEMA};

    /// A trial of one worker whose controls do 100 a second; beside the plant it did `per_s`,
    /// and its threads waited for half of what ran beside them.
    fn trial(controls: [f64; 2], busy_ticks: u64, per_s: f64, foreign_s: f64) -> Outcome {
        let session = |planted, per_s: f64, foreign_s: f64| {
            let run = Point {
                target: "ofd".to_owned(),
                at: At {
                    workers: Some(1),
                    ..At::default()
                },
                window_s: 1.0,
                operations: 10_000,
                throughput_per_s: per_s,
                machine: Machine {
                    busy_ticks,
                    ticks_per_s: 100,
                    cores: 2,
                    ..Machine::default()
                },
                accounts: Some(Box::new(Accounts {
                    between_s: 1.0,
                    cpus: 1,
                    others_s: Some(foreign_s),
                    foreign_s: Some(foreign_s),
                    waited_s: Some(foreign_s / 2.0),
                    ..Accounts::default()
                })),
                ..Point::default()
            };
            Session {
                trial: 1,
                plant: "p".to_owned(),
                line: "l".to_owned(),
                planted,
                beside: None,
                experiment: Experiment {
                    schema: SCHEMA.to_owned(),
                    plan: Plan::of(Workload::Contend),
                    environment: Environment::default(),
                    calibration: Calibration::default(),
                    target_facts: Default::default(),
                    started_at: String::new(),
                },
                points: vec![run],
            }
        };
        let mut sessions = vec![session(false, controls[0], 0.0); CONTROLS];
        sessions.push(session(true, per_s, foreign_s));
        sessions.extend(vec![session(false, controls[1], 0.0); CONTROLS]);
        judged(&sessions).into_values().next().unwrap()[0]
    }

    #[test]
    fn what_is_printed_is_held_against_what_the_controls_span() {
        use Outcome::{Discarded, Held, NotHeld};
        let table = [
            // controls, ticks in them, beside the plant, foreign seconds
            (([100.0, 104.0], 3, 100.0, 0.0), Held),
            (([100.0, 104.0], 3, 94.0, 0.0), NotHeld),
            // 80 to 100 a second.
            (([100.0, 104.0], 3, 80.0, 0.4), Held),
            (([100.0, 104.0], 3, 70.0, 0.4), NotHeld),
            // At least 40.
            (([100.0, 104.0], 3, 40.0, 1.6), Held),
            (([30.0, 31.0], 3, 40.0, 1.6), NotHeld),
            (([100.0, 131.0], 3, 100.0, 0.0), Discarded),
            (([100.0, 104.0], 7, 100.0, 0.0), Discarded),
        ];
        for ((controls, ticks, per_s, foreign_s), outcome) in table {
            let found = trial(controls, ticks, per_s, foreign_s);
            assert_eq!(found, outcome, "{controls:?} {per_s} {foreign_s}");
        }
    }

    /// The series of lab/record/validation.md: a rule that changes must not make false what held.
    #[test]
    fn what_the_recorded_series_prints_holds() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../record/validate-beside.jsonl"
        );
        let sessions: Vec<Session> = Store::read(Path::new(path)).unwrap().lines;
        let cells = judged(&sessions);
        assert_eq!(cells.len(), PLANTS.len() * LINES.len());
        let outcomes: Vec<Outcome> = cells.into_values().flatten().collect();
        let count = |wanted| outcomes.iter().filter(|one| **one == wanted).count();
        let (held, not) = (count(Outcome::Held), count(Outcome::NotHeld));
        assert!(held >= 45 && not <= 2, "{held}, {not} not");
        // Sessions that nothing disturbed are rejected as often.
        let [rejected, controls] = rejected(&sessions);
        assert_eq!((rejected, controls), (33, 636));
        assert!(not * controls <= rejected * (held + not));
    }

    #[test]
    fn a_session_that_was_cut_off_is_no_trial() {
        assert!(judged(&[]).is_empty());
    }
}
