//! `cargo xtask peers --services`: jostled measured side by side with Redis and
//! with a server that only answers, all asked by jostle, and by redis-benchmark as a
//! cross-check.
//!
//! Server and client each have a CPU of their own. A block measures each cell of
//! a trial once, for a fraction of a second, the next block in the reverse
//! order; a ratio is taken within a block and never across, since machines
//! change their speed between them. Printed are median, lowest and highest over
//! the blocks, and beside each ratio what is required of its median.
//!
//! Not a test: on a busy machine a requirement may be missed without a fault.

mod beside;
mod cells;
mod servers;
mod table;
mod trials;

use anyhow::{Context, bail, ensure};
use jostle_testbed::{packages, shell};
use std::io::Write;
use std::path::{Path, PathBuf};
use table::{Block, Trial};

/// What was asked for.
pub(crate) struct Options {
    /// Interleaved repeats.
    pub repeats: u32,
    /// Only the trial of this name, or those whose names contain it.
    pub only: Option<String>,
    /// Where figures are added.
    pub save: Option<PathBuf>,
    /// A directory with `jostled` and `jostle`, to see that all of it runs.
    pub smoke: Option<PathBuf>,
}

/// What a trial needs to know.
struct Ground {
    jostled: PathBuf,
    jostle: PathBuf,
    /// This program, built as programs are that are measured.
    lab: PathBuf,
    server_cpu: usize,
    client_cpu: usize,
    scale: Scale,
}

/// How much of everything.
struct Scale {
    /// Length of a measurement that has one; short, so that a block sees one machine.
    seconds: f64,
    /// Pairs of all connections that have one command on its way, and that have many.
    pairs: [u64; 2],
    /// Locks held: few, and many.
    locks: [u64; 2],
    /// Waiters of one lock: few, and many.
    waiters: [usize; 2],
    /// Waiters of other locks.
    beside: usize,
    /// Requests of a call of redis-benchmark.
    requests: u64,
}

const FULL: Scale = Scale {
    seconds: 0.4,
    pairs: [10_000, 500_000],
    locks: [1000, 1_000_000],
    waiters: [10, 10_000],
    beside: 1000,
    requests: 400_000,
};

const SMOKE: Scale = Scale {
    // On a busy machine a shorter window may see no hand-off.
    seconds: 0.2,
    pairs: [100, 10_000],
    locks: [100, 2000],
    waiters: [2, 50],
    beside: 20,
    requests: 20_000,
};

/// Builds everything, runs the trials and prints a table of each.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let all = trials::all();
    let only = options.only.as_deref().unwrap_or("");
    let chosen = chosen(&all, only);
    if chosen.is_empty() {
        let names: Vec<&str> = all.iter().map(|trial| &*trial.name).collect();
        bail!(
            "no trial has `{only}` in its name; there are: {}",
            names.join(", ")
        );
    }
    packages::ensure(&["redis-server", "redis-tools", "util-linux"])?;
    let ground = Ground::build(options.smoke.as_deref())?;
    let about = ground.about()?;
    println!("{about}\n");
    println!("{}", table::heading());
    let (mut missed, mut judged) = (0, 0);
    for trial in &chosen {
        let mut blocks: Vec<Block> = Vec::new();
        for repeat in 0..options.repeats {
            let block = trial.block(&ground, repeat % 2 == 1);
            blocks.push(block.with_context(|| format!("trial `{}`", trial.name))?);
        }
        let result = table::Result::of(trial, &blocks);
        println!("{result}");
        missed += result.missed();
        judged += result.judged();
        if let Some(path) = &options.save {
            let line = serde_json::to_string(&result.record(&about))?;
            let mut file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)?;
            writeln!(file, "{line}")?;
        }
    }
    println!(
        "{} trial(s), {} interleaved repeats, median [lowest-highest]: {judged} requirements, {}",
        chosen.len(),
        options.repeats,
        match missed {
            0 => "all met".to_owned(),
            n => format!("{n} missed"),
        }
    );
    Ok(())
}

/// The trial of this name, else those that have it in theirs.
fn chosen<'t>(all: &'t [Trial], only: &str) -> Vec<&'t Trial> {
    let exact: Vec<&Trial> = all.iter().filter(|trial| trial.name == only).collect();
    if !exact.is_empty() {
        return exact;
    }
    let parts = all.iter().filter(|trial| trial.name.contains(only));
    parts.collect()
}

impl Ground {
    fn build(smoke: Option<&Path>) -> anyhow::Result<Ground> {
        let cpus = jostle_sys::cpu::allowed();
        ensure!(
            cpus.len() >= 2 || smoke.is_some(),
            "server and client need a CPU each, and this process may use one alone"
        );
        let (scale, programs) = match smoke {
            Some(programs) => (SMOKE, programs.to_path_buf()),
            None => {
                shell::run(&mut shell::cargo(&[
                    "build",
                    "--release",
                    "--package",
                    "jostle",
                    "--package",
                    "jostle-lockd",
                ]))?;
                (FULL, shell::target_directory().join("release"))
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
            let text = shell::output(std::process::Command::new(program).arg(flag))?;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_chosen_by_its_name_or_several_by_a_part_of_theirs() {
        let all = trials::all();
        let names = |only| -> Vec<&str> {
            let chosen = chosen(&all, only).into_iter();
            chosen.map(|trial| &*trial.name).collect()
        };
        assert_eq!(names("1x1"), ["1x1"]);
        assert_eq!(names("in use").len(), 3);
        assert_eq!(names("").len(), all.len());
        assert!(names("no such").is_empty());
    }
}
