//! Pairs of real sessions, one after the other: the same thing measured twice
//! must not differ; what was planted must be found.

use super::{Required, Row};
use crate::program;
use anyhow::Context;
use jostle_model::record::Point;
use jostle_report::ResultSet;
use jostle_report::compare::{Input, compare};
use jostle_stats::comparison::Said;
use jostle_stats::intervals::median;
use jostle_testbed::shell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What is measured in a session; the experiments are known by their place.
const PLAN: &str = "lab/trials/validate/compare.toml";
const LOCK: usize = 0;
const DELAYS: usize = 1;
const HOLD: usize = 2;
const LONGER_HOLD: usize = 3;

/// What is planted where nothing slower was measured.
const SLOWER: f64 = 1.1;

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(pairs: u32, seconds: u64, directory: Option<&Path>) -> anyhow::Result<Vec<Row>> {
    let usual = shell::target_directory().join("validate/compare");
    let directory = directory.unwrap_or(&usual);
    collect(directory, pairs + 1, seconds)?;
    let sessions = load(directory)?;
    let first = sessions.first().and_then(|sets| sets.first());
    let environment = &first
        .context("no whole session was collected")?
        .experiment
        .environment;
    println!(
        "{} sessions in a row, {}, {} cores, jostle {}",
        sessions.len(),
        environment.kernel,
        environment.cores,
        environment.jostle
    );
    Ok([1, 20]
        .into_iter()
        .flat_map(|apart| judge(&sessions, apart))
        .collect())
}

fn path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:04}.jsonl"))
}

fn collect(directory: &Path, sessions: u32, seconds: u64) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)?;
    let missing: Vec<u32> = (0..sessions)
        .filter(|number| !path(directory, *number).exists())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let jostle = program::build()?;
    let started = Instant::now();
    for number in missing {
        if started.elapsed().as_secs() >= seconds {
            break;
        }
        // Under its name only once it is whole.
        let part = directory.join("part.jsonl");
        let mut session = Command::new(&jostle);
        session.arg("run").arg(shell::root().join(PLAN));
        program::run(&mut session, &part)?;
        std::fs::rename(&part, path(directory, number))?;
    }
    Ok(())
}

fn load(directory: &Path) -> anyhow::Result<Vec<Vec<ResultSet>>> {
    let mut sessions = Vec::new();
    while path(directory, sessions.len() as u32).exists() {
        sessions.push(jostle_report::read(path(directory, sessions.len() as u32))?);
    }
    Ok(sessions)
}

/// A comparison of two sessions, or of one with another made slower.
struct Trial<'a> {
    base: &'a ResultSet,
    new: ResultSet,
    targets: Option<[&'a str; 2]>,
}

fn of_workers(set: &ResultSet, workers: u64) -> ResultSet {
    let mut set = set.clone();
    set.points.retain(|point| point.at.workers == Some(workers));
    set
}

fn said(trial: &Trial<'_>, workers: u64) -> Option<Said> {
    let base = of_workers(trial.base, workers);
    let new = of_workers(&trial.new, workers);
    let compared = compare(&Input {
        base_name: "BASE",
        base: std::slice::from_ref(&base),
        new_name: "NEW",
        new: Some(std::slice::from_ref(&new)),
        targets: trial.targets,
        within: 0.05,
        all: false,
        strict: false,
    });
    compared.ok()?.rows.first().map(|(_, row)| row.said)
}

/// Each session against the one that so many later was made.
fn judge(sessions: &[Vec<ResultSet>], apart: usize) -> Vec<Row> {
    let pairs: Vec<(&Vec<ResultSet>, &Vec<ResultSet>)> =
        sessions.iter().zip(sessions.iter().skip(apart)).collect();
    let points: [(&str, usize, &str, u64); 4] = [
        ("flock, 1 worker", LOCK, "flock", 1),
        ("flock, 2 workers", LOCK, "flock", 2),
        ("delay:100us", DELAYS, "delay:100us", 1),
        ("flock, 2 workers, hold 100 us", HOLD, "flock", 2),
    ];
    let mut rows = Vec::new();
    for (what, place, target, workers) in points {
        let count = |slower: f64| -> [u64; 3] {
            let mut counts = [0; 3];
            for (base, new) in &pairs {
                let trial = Trial {
                    base: &base[place],
                    new: slowed(&new[place], slower),
                    targets: Some([target, target]),
                };
                tally(&mut counts, said(&trial, workers));
            }
            counts
        };
        let [worse, better, same] = count(1.0);
        rows.push(Row {
            what: format!("{apart} apart, A/A, {what}: called different"),
            count: worse + better,
            trials: pairs.len() as u64,
            required: Required::AtMost(0.05),
            note: format!("called the same {same}"),
        });
        let [worse, better, _] = count(SLOWER);
        rows.push(Row {
            what: format!("{apart} apart, {what}, figures divided by 1.1: called worse"),
            count: worse,
            trials: pairs.len() as u64,
            // Two workers without a hold scatter by more than a tenth; and what
            // slows a lock with a hold while the hold stays may be the machine.
            required: match (apart, workers) {
                (1, 1) => Required::AtLeast(0.9),
                _ => Required::Nothing,
            },
            note: format!("called better {better}"),
        });
    }
    rows.push(planted(
        &pairs,
        apart,
        DELAYS,
        DELAYS,
        ["delay:100us", "delay:110us"],
        1,
    ));
    rows.push(planted(
        &pairs,
        apart,
        HOLD,
        LONGER_HOLD,
        ["flock", "flock"],
        2,
    ));
    rows
}

fn tally(counts: &mut [u64; 3], said: Option<Said>) {
    match said {
        Some(Said::Worse) => counts[0] += 1,
        Some(Said::Better) => counts[1] += 1,
        Some(Said::Same) => counts[2] += 1,
        Some(Said::Undecided) | None => {}
    }
}

/// What was really slower: by how much stands in the specimen's own log, or in
/// the holds as they were.
fn planted(
    pairs: &[(&Vec<ResultSet>, &Vec<ResultSet>)],
    apart: usize,
    base_at: usize,
    new_at: usize,
    targets: [&str; 2],
    workers: u64,
) -> Row {
    let mut counts = [0; 3];
    let mut truths = Vec::new();
    for (base, new) in pairs {
        let trial = Trial {
            base: &base[base_at],
            new: new[new_at].clone(),
            targets: Some(targets),
        };
        tally(&mut counts, said(&trial, workers));
        let truth = |set: &ResultSet, target: &str| {
            let of_target = set.points.iter().filter(|point| point.target == target);
            median(&of_target.filter_map(truth).collect::<Vec<_>>())
        };
        truths.extend(
            truth(trial.base, targets[0])
                .zip(truth(&trial.new, targets[1]))
                .map(|(base, new)| new / base),
        );
    }
    Row {
        what: format!(
            "{apart} apart, {} slower as recorded: called worse",
            match targets {
                [base, new] if base != new => format!("{base} and {new},"),
                _ => "flock, hold 100 us and 110 us,".to_owned(),
            }
        ),
        count: counts[0],
        trials: pairs.len() as u64,
        required: match apart {
            1 => Required::AtLeast(0.9),
            _ => Required::Nothing,
        },
        note: format!(
            "really {:.3} times (median); called better {}",
            median(&truths).unwrap_or(f64::NAN),
            counts[1]
        ),
    }
}

/// Nanoseconds that an operation was made to take.
fn truth(run: &Point) -> Option<f64> {
    match (run.truth.get("sum_ns"), run.truth.get("count")) {
        (Some(sum), Some(count)) => Some(sum / count),
        _ => run.hold_ns.as_ref().map(|hold| hold.mean),
    }
}

/// The same runs, had they been slower by so much.
fn slowed(set: &ResultSet, by: f64) -> ResultSet {
    let mut set = set.clone();
    for point in &mut set.points {
        point.throughput_per_s /= by;
        point.of_ideal = point.of_ideal.map(|share| share / by);
    }
    set
}
