//! A process for each call: jostle beside a bare loop of posix_spawn(3) in C,
//! beside perl's system(), and from parents of any size.

use super::figures::Requirement::{RatioAtLeast, Shown};
use super::{Bench, Metric, Side, Trial};
use anyhow::{Context, bail};
use jostle_sys::spawn::Program;
use jostle_testbed::shell;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

/// Enough for a mean within a few percent: half a second.
const CALLS: u32 = 3_000;

/// Parents, in MiB of touched memory.
const PARENTS: [u32; 4] = [1, 64, 256, 1024];

/// In the order in which they run.
pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![bare(), perl(), flat()];
    trials.extend(PARENTS.map(forked));
    trials
}

fn metric(what: String, requirement: super::Requirement) -> Vec<Metric> {
    vec![Metric { what, requirement }]
}

/// Calls a second of `jostle stream exec:nothing`, fully measured.
fn jostle() -> Side {
    Box::new(|bench| {
        let target = format!("exec:{}", bench.peers.join("nothing").display());
        let calls = CALLS.to_string();
        let mut command = Command::new(&bench.jostle);
        command.args(["stream", &target, "-n", &calls, "-w", "1", "--null", "none"]);
        command.args(["--runs", "1", "--format", "json", "--quiet"]);
        let answer = super::read_answer(&mut command)?;
        Ok(vec![answer.point.throughput_per_s])
    })
}

fn bare() -> Trial {
    Trial {
        name: "calls beside posix_spawn".to_owned(),
        metrics: metric("static, tiny: calls/s".to_owned(), RatioAtLeast(0.9)),
        jostle: jostle(),
        peer: Some(Box::new(|bench| {
            Ok(vec![rate(bench, "posix_spawn", CALLS, 0)?])
        })),
    }
}

/// The origin's way to start its client; of one word, so that perl uses no shell.
fn perl() -> Trial {
    const SCRIPT: &str = "my ($n, $p) = @ARGV; my $t = time; \
                          for (1..$n) { system($p) == 0 or die } printf '%.0f', (time - $t) * 1e9";
    Trial {
        name: "calls beside perl".to_owned(),
        metrics: metric("perl's system(): calls/s".to_owned(), RatioAtLeast(2.0)),
        jostle: jostle(),
        peer: Some(Box::new(|bench| {
            let calls = CALLS / 3;
            let mut perl = Command::new("perl");
            perl.args(["-MTime::HiRes=time", "-e", SCRIPT, &calls.to_string()]);
            let text = shell::output(perl.arg(bench.peers.join("nothing")))?;
            let nanos: f64 = text.trim().parse().with_context(|| text.clone())?;
            Ok(vec![f64::from(calls) / nanos * 1e9])
        })),
    }
}

/// What the target `exec` does for a call, from a parent of 1 GiB beside one of
/// this program's own size.
fn flat() -> Trial {
    Trial {
        name: "calls from a parent of 1 GiB".to_owned(),
        metrics: metric("1 GiB beside none: calls/s".to_owned(), RatioAtLeast(0.9)),
        jostle: Box::new(|bench| {
            let memory = std::hint::black_box(vec![1u8; 1 << 30]);
            let rate = own_rate(bench);
            drop(std::hint::black_box(memory));
            rate
        }),
        peer: Some(Box::new(own_rate)),
    }
}

fn own_rate(bench: &Bench) -> anyhow::Result<Vec<f64>> {
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    let words = [bench.peers.join("nothing").display().to_string()];
    let mut program = Program::new(&words, nowhere.as_fd(), nowhere.as_fd())?;
    let start = Instant::now();
    for nth in 0..u64::from(CALLS) {
        let child = program.start(nth, 0)?;
        child.await_end(Some(Duration::from_secs(10)))?;
        if child.reap()?.code != Some(0) {
            bail!("a program that does nothing failed");
        }
    }
    Ok(vec![f64::from(CALLS) / start.elapsed().as_secs_f64()])
}

/// posix_spawn(3) in the column of jostle, fork(2) in that of the peer.
fn forked(mib: u32) -> Trial {
    // A fork of 1 GiB copies 2 MiB of page tables.
    let calls = (30_000 / mib).clamp(30, 1_000);
    Trial {
        name: format!("calls by fork from {mib} MiB"),
        metrics: metric(format!("posix_spawn, fork from {mib} MiB: calls/s"), Shown),
        jostle: Box::new(move |bench| Ok(vec![rate(bench, "posix_spawn", calls, mib)?])),
        peer: Some(Box::new(move |bench| {
            Ok(vec![rate(bench, "fork", calls, mib)?])
        })),
    }
}

/// Calls a second of the C loop.
fn rate(bench: &Bench, how: &str, calls: u32, mib: u32) -> anyhow::Result<f64> {
    let nothing = bench.peers.join("nothing");
    let mut command = Command::new(bench.peers.join("spawn"));
    command.args([how, &calls.to_string()]).arg(nothing);
    let text = shell::output(command.arg(mib.to_string()))?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(calls)), Some(Ok(nanos))) => Ok(calls / nanos * 1e9),
        _ => bail!("spawn printed {text}"),
    }
}
