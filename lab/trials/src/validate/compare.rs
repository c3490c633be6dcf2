//! All pairs of real sessions: the same thing measured twice must not differ; what was
//! planted must be found.

use super::{Required, Row, columns};
use crate::program;
use anyhow::Context;
use jostle_report::ResultSet;
use jostle_report::compare::{Comparison, Input, compare};
use jostle_stats::comparison::Change;
use jostle_stats::rng::Rng;
use jostle_testbed::shell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The plan of a session, and the number of its experiments.
const PLAN: &str = "lab/trials/validate/compare.toml";
const EXPERIMENTS: usize = 4;

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(pairs: u32, seconds: u64, judged: Option<&Path>) -> anyhow::Result<Vec<Row>> {
    let sessions = match judged {
        Some(path) => recorded(path)?,
        None => {
            let directory = shell::target_directory().join("validate/compare");
            collect(&directory, pairs + 1, seconds)?;
            load(&directory)?
        }
    };
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
    Ok(judge(&sessions))
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

/// The sessions of one file, in a row.
fn recorded(path: &Path) -> anyhow::Result<Vec<Vec<ResultSet>>> {
    let sets = jostle_report::read(path)?;
    let sessions = sets.chunks_exact(EXPERIMENTS);
    Ok(sessions.map(<[_]>::to_vec).collect())
}

fn of_workers(set: &ResultSet, workers: u64) -> ResultSet {
    let mut set = set.clone();
    set.runs.retain(|point| point.at.workers == Some(workers));
    set
}

fn said(base: &ResultSet, new: &ResultSet, targets: [&str; 2]) -> Option<Change> {
    let [base, new] = [base, new].map(std::slice::from_ref);
    let compared = compared(base, Some(new), targets);
    compared.ok()?.rows.first().map(|(_, row)| row.said)
}

/// The answer of `jostle compare` about two targets.
pub(super) fn compared(
    base: &[ResultSet],
    new: Option<&[ResultSet]>,
    targets: [&str; 2],
) -> anyhow::Result<Comparison> {
    Ok(compare(&Input {
        base_name: "BASE",
        base,
        new_name: "NEW",
        new,
        targets: Some(targets),
        within: 0.05,
        all: false,
        strict: false,
    })?)
}

/// The findings about pairs of sessions, by their places.
type Findings = Vec<([usize; 2], Option<Change>)>;

/// The comparison made in each pair of sessions.
struct Case {
    what: &'static str,
    /// Two experiments of the plan.
    places: [usize; 2],
    targets: [&'static str; 2],
    workers: u64,
    /// By how much the second is made slower.
    slower: f64,
    required: Required,
}

impl Case {
    fn is_alike(&self) -> bool {
        self.slower == 1.0 && self.targets[0] == self.targets[1] && self.places[0] == self.places[1]
    }
}

fn cases() -> impl Iterator<Item = Case> {
    let number = |text: &str| text.parse::<f64>().expect("a number of the table");
    let lines = columns(include_str!("../../validate/compare.tsv"));
    lines.map(
        move |[what, base, new, one, other, workers, slower, least]| Case {
            what,
            places: [base, new].map(|place| number(place) as usize),
            targets: [one, other],
            workers: number(workers) as u64,
            slower: number(slower),
            required: match least {
                "-" => Required::Nothing,
                least => Required::AtLeast(number(least)),
            },
        },
    )
}

/// Each session against each later one.
fn judge(sessions: &[Vec<ResultSet>]) -> Vec<Row> {
    let places = 0..sessions.len();
    let pairs = places.flat_map(|one| (one + 1..sessions.len()).map(move |other| [one, other]));
    let pairs: Vec<[usize; 2]> = pairs.collect();
    let (mut equals, mut rows) = (Findings::new(), Vec::new());
    for case in cases() {
        let told = told(sessions, &pairs, &case);
        if case.is_alike() {
            equals.extend(&told);
        }
        rows.push(row(
            case.what,
            case.is_alike(),
            case.required,
            &told,
            sessions.len(),
        ));
    }
    let all = row(
        "all of these",
        true,
        Required::AtMost(0.02),
        &equals,
        sessions.len(),
    );
    rows.insert(4, all);
    rows
}

fn told(sessions: &[Vec<ResultSet>], pairs: &[[usize; 2]], case: &Case) -> Findings {
    let sets = |nth: usize, slower: f64| -> Vec<ResultSet> {
        let each = sessions.iter().map(|session| &session[case.places[nth]]);
        each.map(|set| slowed(&of_workers(set, case.workers), slower))
            .collect()
    };
    let (base, new) = (sets(0, 1.0), sets(1, case.slower));
    let each = pairs.iter().map(|[one, other]| {
        let said = said(&base[*one], &new[*other], case.targets);
        ([*one, *other], said)
    });
    each.collect()
}

fn row(what: &str, is_alike: bool, required: Required, told: &Findings, sessions: usize) -> Row {
    let wanted: fn(Change) -> bool = match is_alike {
        true => |said| matches!(said, Change::Worse | Change::Better),
        false => |said| said == Change::Worse,
    };
    let count = |is: &dyn Fn(Change) -> bool| {
        let said = told.iter().filter_map(|(_, said)| *said);
        said.filter(|said| is(*said)).count() as u64
    };
    let (low, high) = resampled(told, sessions, wanted);
    let other = match is_alike {
        true => format!("called the same {}", count(&|said| said == Change::Same)),
        false => format!("called better {}", count(&|said| said == Change::Better)),
    };
    let what = match is_alike {
        true => format!("A/A, {what}: called different"),
        false => format!("{what}: called worse"),
    };
    Row::counted(what, count(&wanted), count(&|_| true), required).noting(format!(
        "over sessions {:.1} to {:.1} %; {other}",
        100.0 * low,
        100.0 * high
    ))
}

/// Between which bounds the share of what is wanted lies, were other
/// sessions of the kind compared (95 %): pairs share sessions, so that sessions are drawn
/// anew, with replacement, and each pair counts as often as both of its own were drawn
/// (bootstrap: Efron and Tibshirani, 1993, chapter 13).
fn resampled(told: &Findings, sessions: usize, wanted: fn(Change) -> bool) -> (f64, f64) {
    let mut rng = Rng::new(41);
    let mut shares: Vec<f64> = Vec::new();
    for _ in 0..2000 {
        let mut drawn = vec![0_u64; sessions];
        for _ in 0..sessions {
            drawn[rng.below(sessions as u64) as usize] += 1;
        }
        let mut counts = [0, 0];
        for ([one, other], said) in told {
            let Some(said) = *said else {
                continue;
            };
            let times = drawn[*one] * drawn[*other];
            counts[0] += times * u64::from(wanted(said));
            counts[1] += times;
        }
        shares.push(counts[0] as f64 / counts[1].max(1) as f64);
    }
    shares.sort_by(f64::total_cmp);
    (shares[50], shares[1949])
}

/// These runs, had they been slower by so much.
fn slowed(set: &ResultSet, by: f64) -> ResultSet {
    let mut set = set.clone();
    for point in &mut set.runs {
        point.throughput_per_s /= by;
        point.of_ideal = point.of_ideal.map(|share| share / by);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record of 40 sessions, without what no comparison reads.
    #[test]
    fn recorded_sessions_are_compared_as_they_were() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../record/validate-compare.jsonl"
        );
        let sessions = recorded(Path::new(path)).unwrap();
        assert_eq!(sessions.len(), 40);
        let shares = judge(&sessions).into_iter().map(|row| {
            let share = 100.0 * row.count as f64 / row.trials as f64;
            (row.what, row.note, share)
        });
        let shares: Vec<_> = shares.collect();
        assert!(shares[4].2 <= 2.0, "{shares:?}");
        // By a tenth slower, as was planted.
        assert!(
            shares[5..].iter().all(|(what, note, share)| {
                let scatters =
                    what.starts_with("flock, 1") || what.starts_with("flock, 2 workers, figures");
                let least = if what.starts_with("delay") {
                    90.0
                } else {
                    80.0
                };
                note.ends_with("called better 0") && (scatters || *share >= least)
            }),
            "{shares:?}"
        );
    }
}
