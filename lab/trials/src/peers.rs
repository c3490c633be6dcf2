//! `cargo xtask peers`: jostle's targets of lock services side by side with the usual clients
//! of these services ([`clients`]), and jostled beside Redis ([`services`]).
//!
//! Each repeat runs jostle and its peer one after the other, the next repeat in
//! the reverse order, so that drift of the machine falls on both; a ratio is
//! taken within a repeat and never across. Median, lowest and highest over the
//! repeats are printed beside what is required.
//!
//! Not a test: on a busy machine a requirement may be missed without a fault.

mod clients;
mod figures;
pub(crate) mod services;

use crate::program;
use anyhow::{Context, bail};
use figures::{Requirement, Spread};
use jostle_model::record::{Record, Run, Status};
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

/// Where the programs are.
struct Bench {
    jostle: PathBuf,
    peers: PathBuf,
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
        let met = metric.requirement.met(ratio);
        println!(
            "{}",
            figures::row(&metric.what, [jostle, peer, ratio], metric.requirement, met)
        );
        missed += usize::from(met == Some(false));
    }
    Ok(missed)
}

impl Bench {
    /// With a jostle that is there, and no peers yet.
    fn with(jostle: PathBuf) -> anyhow::Result<Bench> {
        let bench = Bench {
            jostle,
            peers: shell::target_directory().join("peers"),
        };
        std::fs::create_dir_all(&bench.peers)?;
        Ok(bench)
    }

    /// The command that has jostle do one run of one point and print records.
    fn measure(&self, verb: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.jostle);
        command
            .arg(verb)
            .args(arguments)
            .args(["--runs", "1", "--format", "json", "--quiet"]);
        command
    }
}

/// Runs jostle and reads its records. A point that is INVALID still has its
/// figures, and they are taken, but the reason is printed.
fn read_answer(command: &mut Command) -> anyhow::Result<Run> {
    let output = command.stderr(Stdio::inherit()).output()?;
    let typed = shell::typed(command);
    if !matches!(output.status.code(), Some(0 | 3)) {
        bail!("`{typed}` failed: {}", output.status);
    }
    let text = String::from_utf8(output.stdout)?;
    let point = read(&text).with_context(|| format!("output of `{typed}`"))?;
    let reasons = &point.verdict.reasons;
    for reason in reasons.iter().filter(|reason| reason.is == Status::Invalid) {
        eprintln!("INVALID: {}: {}", point.target, reason.text);
    }
    Ok(point)
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

/// The one run in these records.
fn read(text: &str) -> anyhow::Result<Run> {
    let mut point = None;
    for line in text.lines() {
        if let Record::Run(record) = serde_json::from_str(line)? {
            point = Some(*record);
        }
    }
    point.context("no point record")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    fn nowhere() -> Bench {
        Bench {
            jostle: "/nonexistent/jostle".into(),
            peers: "/nonexistent".into(),
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
                requirement: Requirement::RatioWithin(2.0, 3.0),
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
    fn the_point_is_found_among_the_records() {
        let point = Record::Run(Box::new(Run {
            target: "flock".to_owned(),
            throughput_per_s: 940.5,
            ..Run::default()
        }));
        let line = serde_json::to_string(&point).unwrap();
        let end = "{\"record\":\"end\",\"exit\":0,\"elapsed_s\":1.0}";
        let read = read(&format!("{line}\n{end}\n")).unwrap();
        assert_eq!(read.throughput_per_s, 940.5);
    }

    #[test]
    fn records_without_a_point_are_an_error() {
        assert!(read("").is_err());
        assert!(read("{\"record\":\"end\",\"exit\":0,\"elapsed_s\":1.0}\n").is_err());
        assert!(read("locks/s 17\n").is_err());
    }
}
