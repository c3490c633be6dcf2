//! The list of what jostle must reach, and how each side does it.

use super::figures::Requirement::{self, AtMost, BothAbove, RatioAtLeast, Shown};
use super::{Answer, Bench, Metric, Side, Trial};
use anyhow::{Context, bail};
use jostle_model::record::PerWorker;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Every trial, in the order in which they run; a few minutes for five repeats.
pub(super) fn all() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (kind, least) in [("flock", 0.95), ("ofd", 0.95), ("sysv", 0.95)] {
        trials.push(pairs(kind, least));
    }
    // A loop counter and a look at a flag are a fair part of a pair of 20 ns.
    for (kind, least) in [("futex", 0.8), ("pthread", 0.8)] {
        trials.push(pairs(kind, least));
    }
    trials.push(added());
    trials.push(ramp());
    trials.push(order("flock"));
    trials.push(order("ofd"));
    trials.push(queue());
    trials.push(slack());
    trials.push(memory());
    trials.push(ten_thousand());
    trials.extend(super::connections::all());
    trials.extend(super::calls::trials());
    trials.extend(super::own_locks::trials());
    trials.extend(super::ldap::trials());
    trials
}

/// Where both sides lock files: jostle's own default is tmpfs as well.
pub(super) fn directory_for_locks() -> PathBuf {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        shm.to_path_buf()
    } else {
        std::env::temp_dir()
    }
}

fn metric(what: impl Into<String>, requirement: Requirement) -> Metric {
    Metric {
        what: what.into(),
        requirement,
    }
}

/// What `contend` of the C programs prints.
#[derive(Deserialize)]
struct Bare {
    ramp_s: f64,
    drain_s: f64,
    start_spread_ns: f64,
    min: f64,
    max: f64,
    none: f64,
    dispersion: f64,
    longest_wait_ns: f64,
}

fn bare(bench: &Bench, arguments: &[&str]) -> anyhow::Result<Bare> {
    let text = bench.peer("contend", arguments)?;
    serde_json::from_str(&text).with_context(|| format!("peer printed {text}"))
}

fn shared_out(answer: &Answer) -> anyhow::Result<PerWorker> {
    answer
        .point
        .per_worker
        .context("the point has no per_worker")
}

/// A side that answers one question of jostle.
fn jostle(
    arguments: &'static [&'static str],
    figures: impl Fn(&Answer) -> anyhow::Result<Vec<f64>> + 'static,
) -> Side {
    Box::new(move |bench| figures(&bench.answer(arguments)?))
}

/// Uncontended pairs per second of one worker that only counts.
fn pairs(kind: &'static str, least: f64) -> Trial {
    Trial {
        name: format!("pairs {kind}"),
        metrics: vec![metric(
            format!("{kind}: uncontended pairs/s"),
            RatioAtLeast(least),
        )],
        jostle: Box::new(move |bench| {
            let answer = bench.answer(&[
                kind,
                "-w",
                "1",
                "-b",
                "0",
                "-i",
                "0",
                "-t",
                "1",
                "--measure",
                "counts",
            ])?;
            Ok(vec![answer.point.throughput_per_s])
        }),
        peer: Some(Box::new(move |bench| {
            let text = bench.peer("pairs", &[kind, "1000"])?;
            let mut numbers = text.split_whitespace().map(str::parse::<f64>);
            match (numbers.next(), numbers.next()) {
                (Some(Ok(pairs)), Some(Ok(nanos))) => Ok(vec![pairs / nanos * 1e9]),
                _ => bail!("pairs printed {text}"),
            }
        })),
    }
}

/// What full measurement adds to a cycle, by jostle's own account.
fn added() -> Trial {
    const KINDS: [&str; 5] = ["flock", "ofd", "sysv", "futex", "pthread"];
    let arguments = &[
        "flock", "ofd", "sysv", "futex", "pthread", "-w", "1", "-b", "0", "-i", "0", "-t", "0.2",
    ];
    Trial {
        name: "added by full".to_owned(),
        metrics: KINDS
            .iter()
            .map(|kind| metric(format!("{kind}: full adds, ns"), AtMost(150.0)))
            .collect(),
        jostle: jostle(arguments, |answer| {
            let cost = &answer.experiment.calibration.own_cost;
            let added = |kind| Some(cost.get(kind)?.added_ns);
            let figures = KINDS
                .iter()
                .map(|kind| added(*kind).with_context(|| (*kind).to_owned()));
            figures.collect()
        }),
        peer: None,
    }
}

/// Starting and stopping 1000 worker processes.
fn ramp() -> Trial {
    Trial {
        name: "ramp and drain".to_owned(),
        metrics: vec![
            metric("1000 flock workers: ramp + drain, s", AtMost(0.6)),
            metric("  arrivals at the start within, ms", AtMost(30.0)),
        ],
        jostle: jostle(
            &["flock", "-w", "1000", "-b", "10", "-i", "10", "-t", "1"],
            |answer| {
                let point = &answer.point;
                Ok(vec![
                    point.ramp_s + point.drain_s,
                    point.start_spread_ns as f64 / 1e6,
                ])
            },
        ),
        peer: Some(Box::new(|bench| {
            let bare = bare(bench, &["flock", "1000", "10", "10", "50", "1000"])?;
            Ok(vec![bare.ramp_s + bare.drain_s, bare.start_spread_ns / 1e6])
        })),
    }
}

/// Locks whose waiters the kernel does not serve in order must be seen so.
///
/// A queue serves everybody once in each rotation, so that after any time two
/// workers differ by at most one: variance at most 1/4, and over the two
/// rotations of this window (mean 2) a dispersion of at most 1/8.
fn order(kind: &'static str) -> Trial {
    Trial {
        name: format!("order {kind}"),
        metrics: vec![
            metric(
                format!("{kind}, 1000 workers: dispersion"),
                BothAbove(0.125),
            ),
            metric("  workers that got nothing in 2 s", Shown),
            metric("  longest wait, s", Shown),
        ],
        jostle: Box::new(move |bench| {
            let answer = bench.answer(&[
                kind, "-w", "1000", "-b", "1000", "-i", "10", "-t", "2", "--warmup", "1s",
            ])?;
            let workers = shared_out(&answer)?;
            let longest = workers.longest_wait_ns.context("no longest wait")?;
            Ok(vec![
                workers.dispersion,
                workers.none as f64,
                longest as f64 / 1e9,
            ])
        }),
        peer: Some(Box::new(move |bench| {
            let bare = bare(bench, &[kind, "1000", "1000", "10", "1000", "2000"])?;
            Ok(vec![bare.dispersion, bare.none, bare.longest_wait_ns / 1e9])
        })),
    }
}

/// A lock whose waiters the kernel does serve in order must be seen so too.
fn queue() -> Trial {
    Trial {
        name: "order sysv".to_owned(),
        metrics: vec![metric("sysv, 100 workers, 10 s: max - min", AtMost(3.0))],
        jostle: jostle(
            &["sysv", "-w", "100", "-b", "1000", "-i", "10", "-t", "10"],
            |answer| shared_out(answer).map(|workers| vec![(workers.max - workers.min) as f64]),
        ),
        peer: Some(Box::new(|bench| {
            let bare = bare(bench, &["sysv", "100", "1000", "10", "200", "10000"])?;
            Ok(vec![bare.max - bare.min])
        })),
    }
}

/// A hold of 1 ms takes 1 ms only with a timer slack of 1 ns; the peer is
/// jostle itself with the kernel's default.
fn slack() -> Trial {
    const OWN: &[&str] = &["flock", "-b", "1000", "-i", "10", "-w", "10", "-t", "2"];
    fn operations(answer: &Answer) -> anyhow::Result<Vec<f64>> {
        Ok(vec![answer.point.throughput_per_s])
    }
    Trial {
        name: "timer slack".to_owned(),
        metrics: vec![metric(
            "flock: locks/s, slack 1 ns : 50 us",
            RatioAtLeast(1.04),
        )],
        jostle: Box::new(|bench| operations(&bench.answer(OWN)?)),
        peer: Some(Box::new(|bench| {
            let arguments = [OWN, &["--timer-slack", "50us"]].concat();
            operations(&bench.answer(&arguments)?)
        })),
    }
}

/// What the machine has less of while 1000 workers wait, for each of them.
fn memory() -> Trial {
    const WORKERS: f64 = 1000.0;
    fn each_kib(taken_bytes: u64) -> Vec<f64> {
        vec![taken_bytes as f64 / WORKERS / 1024.0]
    }
    Trial {
        name: "memory".to_owned(),
        metrics: vec![metric("1000 flock workers: KiB each", AtMost(200.0))],
        jostle: Box::new(|bench| {
            let arguments = ["flock", "-w", "1000", "-b", "1000", "-i", "10", "-t", "1"];
            let mut command = bench.contend(&arguments);
            Ok(each_kib(taken_while(&mut command)?))
        }),
        peer: Some(Box::new(|bench| {
            let mut command = std::process::Command::new(bench.peers.join("contend"));
            command
                .args(["flock", "1000", "1000", "10", "0", "1000"])
                .arg(&bench.files);
            Ok(each_kib(taken_while(&mut command)?))
        })),
    }
}

/// By how much MemAvailable falls while a program runs.
fn taken_while(command: &mut std::process::Command) -> anyhow::Result<u64> {
    let available = || -> anyhow::Result<u64> {
        let text = std::fs::read_to_string("/proc/meminfo")?;
        let memory = jostle_sys::limits::text::memory(&text).context("no MemAvailable")?;
        Ok(memory.available_bytes)
    };
    let before = available()?;
    let mut least = before;
    let mut child = command.stdout(Stdio::null()).spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        least = least.min(available()?);
        std::thread::sleep(Duration::from_millis(10));
    };
    if !matches!(status.code(), Some(0 | 3)) {
        bail!(
            "`{}` failed: {status}",
            jostle_testbed::shell::typed(command)
        );
    }
    Ok(before - least)
}

/// The most workers that one host is made for.
fn ten_thousand() -> Trial {
    Trial {
        name: "10000 workers".to_owned(),
        metrics: vec![
            metric("10000 flock workers: ramp + drain, s", Shown),
            metric("  the point's record, bytes", AtMost(1e6)),
        ],
        jostle: jostle(
            &["flock", "-w", "10000", "-b", "1000", "-i", "10", "-t", "2"],
            |answer| {
                let point = &answer.point;
                if let Some(death) = point.deaths.first() {
                    bail!("a worker died: {death}");
                }
                Ok(vec![
                    point.ramp_s + point.drain_s,
                    answer.point_bytes as f64,
                ])
            },
        ),
        peer: Some(Box::new(|bench| {
            let bare = bare(bench, &["flock", "10000", "1000", "10", "1000", "2000"])?;
            Ok(vec![bare.ramp_s + bare.drain_s])
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trial_has_a_name_of_its_own_and_something_to_show() {
        let trials = all();
        for (at, trial) in trials.iter().enumerate() {
            assert!(!trial.metrics.is_empty(), "{}", trial.name);
            assert!(
                trials[at + 1..]
                    .iter()
                    .all(|other| other.name != trial.name)
            );
        }
    }

    mod live_tests {
        use super::*;

        #[test]
        fn memory_is_taken_while_a_program_runs_and_its_failure_is_told() {
            let shell = |script: &str| {
                let mut command = std::process::Command::new("sh");
                command.args(["-c", script]);
                command
            };
            assert!(taken_while(&mut shell("sleep 0.05")).is_ok());
            let error = taken_while(&mut shell("exit 1")).unwrap_err();
            assert!(error.to_string().contains("exit status: 1"), "{error}");
        }
    }
}
