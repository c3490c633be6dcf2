//! `cargo xtask peers`: jostle's targets of lock services side by side with the usual clients
//! of these services ([`clients`]), and jostled beside Redis ([`services`]).
//!
//! Server and client each have a CPU of their own. A block measures each cell of a trial once,
//! the next block in the reverse order, so that drift of the machine falls on all; a ratio is
//! taken within a block and never across. Printed are median, lowest and highest over the
//! blocks, and beside each ratio what is required of its median.
//!
//! Not a test: on a busy machine a requirement may be missed without a fault.

mod clients;
mod services;
mod table;

use crate::program;
use crate::validate::store::Store;
use anyhow::{Context, bail, ensure};
use jostle_model::record::{Run, Status};
use jostle_testbed::shell;
use services::Scale;
use std::path::{Path, PathBuf};
use std::process::Command;
use table::Trial;

/// What was asked for.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Interleaved repeats of each trial
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Only the trial of this name, or those whose names contain it
    #[arg(long)]
    only: Option<String>,
    /// jostled beside Redis
    #[arg(long, required_unless_present = "clients")]
    services: bool,
    /// Targets of lock services beside those services' usual clients
    #[arg(long, conflicts_with = "services")]
    clients: bool,
    /// Adds what is measured to this file, a line for each trial
    #[arg(long)]
    save: Option<PathBuf>,
    /// Tests that it runs: programs as they are built, in no time; the
    /// figures mean nothing
    #[arg(long, hide = true)]
    smoke: Option<PathBuf>,
}

/// The needs of a trial.
struct Ground {
    jostled: PathBuf,
    jostle: PathBuf,
    /// This program, built as programs are that are measured.
    lab: PathBuf,
    server_cpu: usize,
    client_cpu: usize,
    scale: Scale,
}

/// Builds everything, runs the trials and prints a table of each.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let all = match options.clients {
        true => clients::trials(),
        false => services::trials::all(),
    };
    let names: Vec<String> = all.iter().map(|trial| trial.name.clone()).collect();
    let only = options.only.as_deref().unwrap_or("");
    let chosen = chosen(all, only);
    if chosen.is_empty() {
        bail!(
            "no trial has `{only}` in its name; there are: {}",
            names.join(", ")
        );
    }
    jostle_testbed::packages::ensure(&["redis-server", "util-linux"])?;
    let ground = Ground::build(options.smoke.as_deref())?;
    let about = ground.about()?;
    println!("{about}\n\n{}", table::heading());
    let mut saved = Store::open(options.save.as_deref())?;
    let (count, mut missed, mut judged) = (chosen.len(), 0, 0);
    // A trial goes when it is over, and with the last of its kind the server that they share.
    for trial in chosen {
        let blocks = (0..options.repeats).map(|repeat| {
            let block = trial.block(&ground, repeat % 2 == 1);
            block.with_context(|| format!("trial `{}`", trial.name))
        });
        let blocks: Vec<table::Block> = blocks.collect::<anyhow::Result<_>>()?;
        let result = table::Outcome::new(&trial, &blocks);
        println!("{result}");
        missed += result.missed();
        judged += result.judged();
        saved.add(result.record(&about))?;
    }
    println!(
        "{count} trial(s), {} interleaved repeats, median [lowest-highest]: {judged} requirements, {}",
        options.repeats,
        match missed {
            0 => "all met".to_owned(),
            n => format!("{n} missed"),
        }
    );
    Ok(())
}

/// The trial of this name, else those that have it in theirs.
fn chosen(mut all: Vec<Trial>, only: &str) -> Vec<Trial> {
    let is_exact = all.iter().any(|trial| trial.name == only);
    all.retain(|trial| match is_exact {
        true => trial.name == only,
        false => trial.name.contains(only),
    });
    all
}

impl Ground {
    fn build(smoke: Option<&Path>) -> anyhow::Result<Ground> {
        let cpus = jostle_sys::cpu::allowed();
        ensure!(
            cpus.len() >= 2 || smoke.is_some(),
            "server and client need a CPU each, and this process may use one alone"
        );
        let (scale, programs) = match smoke {
            Some(programs) => (services::SMOKE, programs.to_path_buf()),
            None => {
                let both = ["build", "--release", "-pjostle", "-pjostle-lockd"];
                let services = ["--features", "jostle/services"];
                shell::run(shell::cargo(&both).args(services))?;
                (services::FULL, shell::target_directory().join("release"))
            }
        };
        Ok(Ground {
            jostled: programs.join("jostled"),
            jostle: programs.join("jostle"),
            lab: std::env::current_exe()?,
            client_cpu: *cpus.first().context("no CPU")?,
            server_cpu: *cpus.last().context("no CPU")?,
            scale,
        })
    }

    /// The machine and who was measured on it.
    fn about(&self) -> anyhow::Result<String> {
        let version = |program: &Path, flag: &str| {
            let text = shell::output(Command::new(program).arg(flag))?;
            anyhow::Ok(text.split(" sha=").next().unwrap_or("").trim().to_owned())
        };
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo")?;
        let model = jostle_sys::limits::text::cpu_model(&cpuinfo);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
        Ok(format!(
            "{}; {}; {}, Linux {}; server on CPU {}, client on CPU {}",
            version(&self.jostled, "--version")?,
            version(Path::new("redis-server"), "--version")?,
            model.unwrap_or_default(),
            kernel.trim(),
            self.server_cpu,
            self.client_cpu,
        ))
    }

    /// Has jostle do one run of one point, on the client's CPU. A point that is INVALID still has
    /// its figures, and they are taken, but the reason is printed.
    fn measure(&self, words: &str) -> anyhow::Result<Run> {
        let place = tempfile::tempdir()?;
        let mut command = Command::new(&self.jostle);
        command.args(words.split_whitespace()).args(["--runs", "1"]);
        command.args(["--place", &format!("cpus:{}", self.client_cpu)]);
        let mut sets = program::run(&mut command, &place.path().join("part.jsonl"))?;
        let run = sets.pop().and_then(|mut set| set.runs.pop());
        let run = run.with_context(|| format!("`{words}` measured nothing"))?;
        let reasons = run.verdict.reasons.iter();
        for reason in reasons.filter(|reason| reason.is == Status::Invalid) {
            eprintln!("INVALID: {}: {}", run.target, reason.text);
        }
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_chosen_by_its_name_or_several_by_a_part_of_theirs() {
        let names = |only| -> Vec<String> {
            let chosen = chosen(services::trials::all(), only).into_iter();
            chosen.map(|trial| trial.name).collect()
        };
        assert_eq!(names("1x1"), ["1x1"]);
        assert_eq!(names("in use").len(), 3);
        assert_eq!(names("").len(), services::trials::all().len());
        assert!(names("no such").is_empty());
    }
}
