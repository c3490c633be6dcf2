//! How one cell is measured: a fresh server, one load, its figures.

use super::Ground;
use super::servers::{Kind, Server};
use super::{Scale, beside};
use crate::peers::read_answer;
use anyhow::{Context, ensure};
use jostle_model::record::Run;
use jostle_sys::stat::{self, CpuClock};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What a cell gives. What it does not have is NaN, and not printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// Operations per second.
    pub rate: f64,
    /// CPU of the server for each, in microseconds.
    pub server_us: f64,
    /// CPU of the client for each, in microseconds.
    pub client_us: f64,
    /// Share of its CPU that the server used.
    pub server_busy: f64,
    /// Share of its CPU that the client used.
    pub client_busy: f64,
    /// Share of all CPUs that others used, or the hypervisor.
    pub elsewhere: f64,
    /// The longest time that requests which were sent together took, in milliseconds.
    pub batch_ms: f64,
    /// Bytes of the server's memory for each lock.
    pub bytes: f64,
}

impl Figures {
    /// From a run of jostle.
    fn of(point: &Run) -> anyhow::Result<Figures> {
        ensure!(point.operations > 0, "nothing was done in the window");
        let server = point.server.as_ref().context("no figures of the server")?;
        let server_s = server.cpu_s.context("no CPU time of the server")?;
        let client_s = point.cpu.cpu_s.context("no CPU time of the client")?;
        let accounts = point.around.accounts.as_deref().context("no accounts")?;
        let elsewhere_s = accounts.others_s.unwrap_or(0.0) + accounts.stolen_s.unwrap_or(0.0);
        let each_us = 1e6 / point.operations as f64;
        let batches = [&point.times.batch_ns, &point.times.release_batch_ns];
        let longest = batches.into_iter().flatten().map(|batch| batch.max).max();
        Ok(Figures {
            rate: point.throughput_per_s,
            server_us: server_s * each_us,
            client_us: client_s * each_us,
            server_busy: server_s / point.window.window_s,
            client_busy: client_s / point.window.window_s,
            elsewhere: elsewhere_s / (accounts.between_s * accounts.cpus.max(1) as f64),
            batch_ms: longest.map_or(f64::NAN, |longest_ns| longest_ns as f64 * 1e-6),
            bytes: server.bytes_per_held_lock.unwrap_or(f64::NAN),
        })
    }
}

/// What jostle does to a server.
#[derive(Clone)]
pub(super) struct Load {
    /// What it asks.
    pub asked: Asked,
    pub work: Work,
    /// Connections that wait for other locks meanwhile.
    pub waiters: usize,
    /// Whether the metrics are read meanwhile.
    pub scrape: bool,
}

/// A server, by the recipe of a target.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    /// A server of ours, as a jostled is asked.
    Lockd(Kind),
    /// A Redis, by the recipe of this target.
    Redis(&'static str),
    /// The specimen that only answers, which jostle launches itself.
    Echo,
}

/// What each worker does, which is a connection.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// Acquires and releases, so many pairs on their way at once.
    Pairs {
        workers: usize,
        pipeline: usize,
        /// As in `--names`: one lock for all, or each its own.
        names: &'static str,
    },
    /// All want the same lock for a time.
    HandOff { workers: usize },
    /// One connection acquires so many locks, holds them all and releases them.
    Hold { locks: u64, pipeline: usize },
}

impl Work {
    fn words(self, scale: &Scale) -> String {
        match self {
            Work::Pairs {
                workers,
                pipeline,
                names,
            } => {
                let pairs = scale.pairs[usize::from(pipeline > 1)];
                let each = pairs.div_ceil(workers as u64);
                format!("stream -w {workers} --pipeline {pipeline} --names {names} -n {each}")
            }
            Work::HandOff { workers } => {
                let seconds = scale.seconds;
                format!("contend -w {workers} --hold 0 --idle 0 --warmup 50ms -t {seconds}")
            }
            Work::Hold { locks, pipeline } => {
                format!("hold -w 1 --keys {locks} --pipeline {pipeline}")
            }
        }
    }
}

impl Load {
    pub(super) fn run(&self, ground: &Ground) -> anyhow::Result<Figures> {
        let server = match self.asked {
            Asked::Lockd(kind) => Some(Server::start(kind, ground)?),
            Asked::Redis(_) => Some(Server::start(Kind::Redis, ground)?),
            Asked::Echo => None,
        };
        let target = match (self.asked, &server) {
            (Asked::Lockd(_), Some(server)) => format!("lockd://127.0.0.1:{}", server.port),
            (Asked::Redis(recipe), Some(server)) => format!("{recipe}://127.0.0.1:{}", server.port),
            _ => "echo".to_owned(),
        };
        let _waiting = match &server {
            Some(server) => beside::wait(server.port, self.waiters)?,
            None => Vec::new(),
        };
        let metrics = server.as_ref().and_then(|server| server.metrics);
        let _reader = match self.scrape {
            true => Some(metrics.context("a server without metrics")?),
            false => None,
        }
        .map(beside::Reader::start);
        let words = self.work.words(&ground.scale);
        let mut jostle = Command::new(&ground.jostle);
        jostle.args(words.split(' ')).arg(target);
        jostle.args(["--as", "tasks", "--generator-threads", "1"]);
        jostle.args(["--place", &format!("cpus:{}", ground.client_cpu)]);
        if server.is_none() {
            jostle.args(["--server-place", &format!("cpus:{}", ground.server_cpu)]);
        }
        jostle.args(["--runs", "1", "--format", "json", "--quiet"]);
        Figures::of(&read_answer(&mut jostle)?)
    }
}

/// A name that is new each time. With a single random number (31 bits) some names come
/// twice on a connection, which then asks for a lock that it has already.
const NAME: &str = "__rand_int____rand_int__";

/// What redis-benchmark is told to send: a lock that is leased, one that its connection
/// owns, and what Redis's users send.
pub(super) const LEASED: &[&str] = &["LOCK", NAME, "TTL", "60000", "WAIT", "0"];
pub(super) const OWNED: &[&str] = &["LOCK", NAME, "WAIT", "0"];
pub(super) const SET: &[&str] = &["SET", NAME, "x", "NX", "PX", "60000"];

/// Busy and stolen time of all CPUs so far, in ticks.
fn ticks() -> anyhow::Result<u64> {
    let machine = stat::machine_ticks()?;
    Ok(machine.busy + machine.stolen)
}

/// Locks acquired by redis-benchmark, by names that are new almost each time.
pub(super) fn redis_benchmark(
    ground: &Ground,
    kind: Kind,
    connections: usize,
    depth: usize,
    command: &[&str],
) -> anyhow::Result<Figures> {
    let server = Server::start(kind, ground)?;
    let requests = match depth {
        1 => ground.scale.requests / 20,
        _ => ground.scale.requests,
    };
    let mut benchmark = Command::new("taskset");
    benchmark
        .args([
            "-c",
            &ground.client_cpu.to_string(),
            "redis-benchmark",
            "--csv",
        ])
        .args(["-p", &server.port.to_string(), "-n", &requests.to_string()])
        .args(["-c", &connections.to_string(), "-P", &depth.to_string()])
        .args(["-r", "2147483647"])
        .args(command)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let clock = CpuClock::of(server.pid())?;
    let used = || clock.read().context("the server has ended");
    let ticks_before = ticks()?;
    let (start, before) = (Instant::now(), used()?);
    let child = benchmark.spawn()?;
    let own = CpuClock::of(child.id())?;
    // Dead, but not yet reaped: its clock can still be read.
    let pid = Pid::from_raw(child.id() as i32);
    waitid(
        WaitId::Pid(pid.context("no process")?),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    )?;
    let (elapsed_s, after) = (start.elapsed().as_secs_f64(), used()?);
    let client_ns = own.read().context("redis-benchmark is gone")?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let trouble = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "redis-benchmark failed: {text}{trouble}"
    );
    let seconds = |ns: u64| ns as f64 * 1e-9;
    let (server_s, client_s) = (seconds(after - before), seconds(client_ns));
    let busy_s = ticks()?.saturating_sub(ticks_before) as f64 / stat::ticks_per_second() as f64;
    let all_s = elapsed_s * stat::machine_ticks()?.cpus.max(1) as f64;
    let each_us = 1e6 / requests as f64;
    Ok(Figures {
        rate: requests_per_second(&text).with_context(|| format!("in: {text}"))?,
        server_us: server_s * each_us,
        client_us: client_s * each_us,
        server_busy: server_s / elapsed_s,
        client_busy: client_s / elapsed_s,
        elsewhere: ((busy_s - server_s - client_s) / all_s).max(0.0),
        batch_ms: f64::NAN,
        bytes: f64::NAN,
    })
}

/// The second column of the last line.
fn requests_per_second(csv: &str) -> Option<f64> {
    let line = csv.lines().last()?;
    line.split("\",\"").nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_stands_in_the_second_column_of_the_last_line() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\"\n\
                    \"LOCK jostle::__rand_int__ TTL 60000\",\"2444444.50\",\"1.9\",\"0.1\"\n";
        assert_eq!(requests_per_second(text), Some(2_444_444.5));
        assert_eq!(requests_per_second("nonsense\n"), None);
    }

    #[test]
    fn figures_are_for_each_operation() {
        use jostle_model::record::{Accounts, Circumstances, Cpu, Server, Window};
        let point = Run {
            operations: 1000,
            throughput_per_s: 2000.0,
            window: Window {
                window_s: 0.5,
                ..Window::default()
            },
            cpu: Cpu {
                cpu_s: Some(0.125),
                ..Cpu::default()
            },
            server: Some(Server {
                cpu_s: Some(0.25),
                ..Server::default()
            }),
            around: Circumstances {
                accounts: Some(Box::new(Accounts {
                    between_s: 0.5,
                    cpus: 2,
                    others_s: Some(0.1),
                    stolen_s: Some(0.1),
                    ..Accounts::default()
                })),
                ..Circumstances::default()
            },
            ..Run::default()
        };
        let figures = Figures::of(&point).unwrap();
        assert_eq!((figures.rate, figures.elsewhere), (2000.0, 0.2));
        assert_eq!((figures.server_us, figures.client_us), (250.0, 125.0));
        assert_eq!((figures.server_busy, figures.client_busy), (0.5, 0.25));
        assert!(figures.batch_ms.is_nan() && figures.bytes.is_nan());
        // A run without the server's CPU time has no row, nor one that did nothing.
        let idle = Run {
            operations: 0,
            ..point.clone()
        };
        let unknown = Run {
            server: None,
            ..point
        };
        assert!(Figures::of(&idle).is_err() && Figures::of(&unknown).is_err());
    }
}
