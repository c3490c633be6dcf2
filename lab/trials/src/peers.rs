//! `cargo xtask peers`: jostle measured side by side with small C programs that
//! do the same without measuring anything (`lab/trials/peers/*.c`).
//!
//! Each repeat runs jostle and its peer one after the other, the next repeat in
//! the reverse order, so that drift of the machine falls on both; a ratio is
//! taken within a repeat and never across. Median, lowest and highest over the
//! repeats are printed beside what is required.
//!
//! [`clients`] does the same for the targets of lock services and the usual clients of these
//! services, [`services`] for jostled and Redis.
//!
//! Not a test: on a busy machine a requirement may be missed without a fault.

mod calls;
mod clients;
mod connections;
mod figures;
mod ldap;
mod own_locks;
pub(crate) mod services;
mod trials;

use crate::program;
use anyhow::{Context, bail};
use figures::{Requirement, Spread};
use jostle_model::record::{Experiment, Is, Point, Record};
use jostle_testbed::shell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One figure of a trial.
struct Metric {
    what: String,
    requirement: Requirement,
}

/// Runs one side once, and gives one figure for each metric of its trial; a peer
/// may leave out the last ones, which it does not have.
type Side = Box<dyn Fn(&Bench) -> anyhow::Result<Vec<f64>>>;

/// Something that jostle and a peer both do.
struct Trial {
    name: String,
    metrics: Vec<Metric>,
    jostle: Side,
    peer: Option<Side>,
}

/// Where the programs are, and a directory on tmpfs for files to lock.
struct Bench {
    jostle: PathBuf,
    peers: PathBuf,
    files: PathBuf,
}

/// What a call of jostle gave.
struct Answer {
    experiment: Experiment,
    point: Point,
    /// Length of the point's line in the result file.
    point_bytes: u64,
}

/// Measures jostle beside programs in C and other tools.
pub(crate) fn run(repeats: u32, only: Option<&str>) -> anyhow::Result<()> {
    run_all(trials::all(), Bench::build, repeats, only)
}

/// Measures the targets of lock services beside those services' usual clients; this
/// jostle, or one that is built now.
pub(crate) fn run_clients(
    repeats: u32,
    only: Option<&str>,
    jostle: Option<PathBuf>,
) -> anyhow::Result<()> {
    let build = || Bench::with(jostle.map_or_else(program::build, Ok)?);
    run_all(clients::trials(), build, repeats, only)
}

/// Builds everything, runs the trials and prints a row for each figure.
fn run_all(
    all: Vec<Trial>,
    build: impl FnOnce() -> anyhow::Result<Bench>,
    repeats: u32,
    only: Option<&str>,
) -> anyhow::Result<()> {
    let names: Vec<String> = all.iter().map(|trial| trial.name.clone()).collect();
    let wanted = |trial: &Trial| only.is_none_or(|part| trial.name.contains(part));
    let chosen: Vec<Trial> = all.into_iter().filter(wanted).collect();
    if chosen.is_empty() {
        bail!(
            "no trial has `{}` in its name; there are: {}",
            only.unwrap_or(""),
            names.join(", ")
        );
    }
    let bench = build()?;
    println!("{}", figures::heading());
    let (count, mut missed) = (chosen.len(), 0);
    // A trial goes when it is over, and with the last of its kind the server that they share.
    for trial in chosen {
        missed += run_trial(&bench, &trial, repeats)?;
    }
    println!(
        "\n{count} trials, {repeats} interleaved repeats, median [lowest-highest]: {}",
        match missed {
            0 => "every requirement met".to_owned(),
            n => format!("{n} missed"),
        }
    );
    Ok(())
}

/// Runs a trial's repeats, prints its rows, and gives how many requirements it
/// missed.
fn run_trial(bench: &Bench, trial: &Trial, repeats: u32) -> anyhow::Result<usize> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for repeat in 0..repeats {
        let sides = [
            (Some(&trial.jostle), &mut ours),
            (trial.peer.as_ref(), &mut theirs),
        ];
        let mut sides = Vec::from(sides);
        if repeat % 2 == 1 {
            sides.reverse();
        }
        for (side, figures) in sides {
            if let Some(side) = side {
                figures.push(side(bench).with_context(|| format!("trial `{}`", trial.name))?);
            }
        }
    }
    let mut missed = 0;
    for (at, metric) in trial.metrics.iter().enumerate() {
        let column = |runs: &[Vec<f64>]| -> Vec<f64> {
            runs.iter().filter_map(|run| run.get(at).copied()).collect()
        };
        let (ours, theirs) = (column(&ours), column(&theirs));
        let ratio = Spread::of(&figures::ratios(&ours, &theirs));
        let (jostle, peer) = (Spread::of(&ours), Spread::of(&theirs));
        let met = metric.requirement.met(jostle, peer, ratio);
        println!(
            "{}",
            figures::row(&metric.what, [jostle, peer, ratio], metric.requirement, met)
        );
        missed += usize::from(met == Some(false));
    }
    Ok(missed)
}

impl Bench {
    fn build() -> anyhow::Result<Bench> {
        let bench = Bench::with(program::build()?)?;
        for program in ["pairs", "contend", "spawn", "connect", "pipe"] {
            compile(program, &bench.peers.join(program), &[])?;
        }
        let alone = ["-static", "-nostdlib", "-fno-stack-protector"];
        compile("nothing", &bench.peers.join("nothing"), &alone)?;
        Ok(bench)
    }

    /// With a jostle that is there, and no peers yet.
    fn with(jostle: PathBuf) -> anyhow::Result<Bench> {
        let bench = Bench {
            jostle,
            peers: shell::target_directory().join("peers"),
            files: trials::directory_for_locks(),
        };
        std::fs::create_dir_all(&bench.peers)?;
        Ok(bench)
    }

    /// A peer's answer on stdout.
    fn peer(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(self.peers.join(program));
        shell::output(command.args(arguments).arg(&self.files))
    }

    /// The command that has jostle do one run of one point and print records.
    fn contend(&self, arguments: &[&str]) -> Command {
        self.measure("contend", arguments)
    }

    /// The same of any verb that measures.
    fn measure(&self, verb: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.jostle);
        command
            .arg(verb)
            .args(arguments)
            .args(["--runs", "1", "--format", "json", "--quiet"]);
        command
    }

    /// Runs it and reads its records.
    fn answer(&self, arguments: &[&str]) -> anyhow::Result<Answer> {
        read_answer(&mut self.contend(arguments))
    }
}

/// Runs jostle and reads its records. A point that is INVALID still has its
/// figures, and they are taken, but the reason is printed.
fn read_answer(command: &mut Command) -> anyhow::Result<Answer> {
    let output = command.stderr(Stdio::inherit()).output()?;
    let typed = shell::typed(command);
    if !matches!(output.status.code(), Some(0 | 3)) {
        bail!("`{typed}` failed: {}", output.status);
    }
    let text = String::from_utf8(output.stdout)?;
    let answer = read(&text).with_context(|| format!("output of `{typed}`"))?;
    let reasons = &answer.point.verdict.reasons;
    for reason in reasons.iter().filter(|reason| reason.is == Is::Invalid) {
        eprintln!("INVALID: {}: {}", answer.point.target, reason.text);
    }
    Ok(answer)
}

fn compile(program: &str, to: &Path, how: &[&str]) -> anyhow::Result<()> {
    let source = shell::root()
        .join("lab/trials/peers")
        .join(program)
        .with_extension("c");
    compile_source(&source, to, how)
}

fn compile_source(source: &Path, to: &Path, how: &[&str]) -> anyhow::Result<()> {
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-pthread"])
        .arg("-o")
        .arg(to)
        .arg(source)
        // Libraries serve what stands before them.
        .args(how);
    shell::run(&mut cc)
}

/// Reads the records of one run of one point.
fn read(text: &str) -> anyhow::Result<Answer> {
    let (mut experiment, mut point) = (None, None);
    for line in text.lines() {
        match serde_json::from_str(line)? {
            Record::Experiment(record) => experiment = Some(record),
            Record::Point(record) => point = Some((record, line.len() as u64 + 1)),
            Record::Closing(_) | Record::Verdict(_) | Record::Fit(_) => {}
            Record::End(_) | Record::Calibrated(_) => {}
            Record::Judged(_) | Record::Doubled(_) => {}
        }
    }
    let experiment = *experiment.context("no experiment record")?;
    let (point, point_bytes) = point.context("no point record")?;
    Ok(Answer {
        experiment,
        point: *point,
        point_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::plan::{Plan, Workload};
    use jostle_model::record::{Calibration, Environment, SCHEMA};
    use std::cell::RefCell;
    use std::rc::Rc;

    fn nowhere() -> Bench {
        Bench {
            jostle: "/nonexistent/jostle".into(),
            peers: "/nonexistent".into(),
            files: "/nonexistent".into(),
        }
    }

    #[test]
    fn repeats_are_interleaved_and_every_other_one_reversed() {
        let order = Rc::new(RefCell::new(String::new()));
        let side = |letter: char| -> Side {
            let order = Rc::clone(&order);
            Box::new(move |_| {
                order.borrow_mut().push(letter);
                Ok(vec![1.0])
            })
        };
        let trial = Trial {
            name: "x".to_owned(),
            metrics: vec![Metric {
                what: "x".to_owned(),
                requirement: Requirement::RatioAtLeast(2.0),
            }],
            jostle: side('j'),
            peer: Some(side('p')),
        };
        assert_eq!(
            run_trial(&nowhere(), &trial, 3).unwrap(),
            1,
            "1 is less than 2"
        );
        assert_eq!(*order.borrow(), "jppjjp");
    }

    #[test]
    fn an_experiment_s_records_are_read_with_the_length_of_the_point() {
        let experiment = Record::Experiment(Box::new(Experiment {
            schema: SCHEMA.to_owned(),
            plan: Plan::of(Workload::Contend),
            environment: Environment::default(),
            calibration: Calibration::default(),
            target_facts: Default::default(),
            started_at: "2026-01-01T00:00:00Z".to_owned(),
        }));
        let point = Record::Point(Box::new(Point {
            target: "flock".to_owned(),
            throughput_per_s: 940.5,
            ..Point::default()
        }));
        let line = |record| serde_json::to_string(record).unwrap() + "\n";
        let answer = read(&(line(&experiment) + &line(&point))).unwrap();
        assert_eq!(answer.point.throughput_per_s, 940.5);
        assert_eq!(answer.point_bytes, line(&point).len() as u64);
        assert_eq!(answer.experiment.schema, SCHEMA);
    }

    #[test]
    fn records_without_a_point_are_an_error() {
        assert!(read("").is_err());
        assert!(read("{\"record\":\"end\",\"exit\":0,\"elapsed_s\":1.0}\n").is_err());
        assert!(read("locks/s 17\n").is_err());
    }
}
