//! How one cell is measured: a fresh server, one load, its figures.

use super::Ground;
use super::servers::{Kind, Server};
use crate::load::{Cost, Held, Machine};
use anyhow::{Context, bail, ensure};
use jostle_sys::stat::CpuClock;
use jostle_testbed::shell;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde::de::DeserializeOwned;
use std::process::{Command, Stdio};
use std::time::Instant;

/// What a cell gives. What it does not have is NaN, and not printed.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
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
    /// The longest time without any reply, in milliseconds.
    pub stall_ms: f64,
    /// Bytes of the server's memory for each lock.
    pub bytes: f64,
}

impl Figures {
    /// For operations of so many commands each.
    fn of(cost: &Cost, commands: f64) -> Figures {
        let operations = cost.commands as f64 / commands;
        Figures {
            rate: operations / cost.elapsed_s,
            server_us: cost.server_cpu_s * 1e6 / operations,
            client_us: cost.client_cpu_s * 1e6 / operations,
            server_busy: cost.server_cpu_s / cost.elapsed_s,
            client_busy: cost.client_cpu_s / cost.elapsed_s,
            elsewhere: cost.elsewhere,
            stall_ms: f64::NAN,
            bytes: f64::NAN,
        }
    }
}

/// A load that `xtask load stream` puts on a server.
#[derive(Clone)]
pub struct Load {
    pub server: Kind,
    pub dialect: &'static str,
    pub shape: &'static str,
    pub connections: usize,
    pub depth: usize,
    pub pieces: usize,
    pub waiters: usize,
    pub scrape: bool,
    /// Commands that make an operation.
    pub commands: f64,
}

impl Load {
    pub fn run(&self, ground: &Ground) -> anyhow::Result<Figures> {
        let server = Server::start(self.server, ground)?;
        let mut load = ground.load("stream", &server, self.dialect);
        let number = |n: usize| n.to_string();
        load.args(["--shape", self.shape])
            .args(["--connections", &number(self.connections)])
            .args(["--depth", &number(self.depth)])
            .args(["--pieces", &number(self.pieces)])
            .args(["--waiters", &number(self.waiters)])
            .args(["--seconds", &ground.scale.seconds.to_string()]);
        if self.scrape {
            let port = server.metrics.context("a server without metrics")?;
            load.args(["--scrape", &port.to_string()]);
        }
        Ok(Figures::of(&answer(&mut load)?, self.commands))
    }
}

/// Locks acquired, held and released: figures of both, for each command.
pub fn hold(
    ground: &Ground,
    kind: Kind,
    dialect: &'static str,
    locks: u64,
) -> anyhow::Result<[Figures; 2]> {
    let server = Server::start(kind, ground)?;
    let mut load = ground.load("hold", &server, dialect);
    load.args(["--locks", &locks.to_string()])
        .args(["--seconds", &ground.scale.seconds.to_string()]);
    let held: Held = answer(&mut load)?;
    let figures = |cost: &Cost| Figures {
        stall_ms: cost.longest_gap_s * 1e3,
        ..Figures::of(cost, 1.0)
    };
    let acquire = Figures {
        bytes: held.bytes_each,
        ..figures(&held.acquire)
    };
    Ok([acquire, figures(&held.release)])
}

/// Locks acquired by redis-benchmark, by names that are new almost each time.
pub fn redis_benchmark(
    ground: &Ground,
    kind: Kind,
    connections: usize,
    depth: usize,
) -> anyhow::Result<Figures> {
    const LEASE: [&str; 6] = ["LOCK", "jostle::__rand_int__", "TTL", "60000", "WAIT", "0"];
    const SET: [&str; 6] = ["SET", "jostle::__rand_int__", "x", "NX", "PX", "60000"];
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
        .args(if kind == Kind::Redis { SET } else { LEASE })
        .stdout(Stdio::piped());
    let clock = CpuClock::of(server.pid())?;
    let used = || clock.read().context("the server has ended");
    let machine = Machine::watch()?;
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
    ensure!(output.status.success(), "redis-benchmark failed: {text}");
    let cost = Cost {
        commands: requests,
        elapsed_s,
        server_cpu_s: (after - before) as f64 * 1e-9,
        client_cpu_s: client_ns as f64 * 1e-9,
        elsewhere: machine.elsewhere(((after - before) + client_ns) as f64 * 1e-9)?,
        longest_gap_s: 0.0,
    };
    Ok(Figures {
        rate: requests_per_second(&text).with_context(|| format!("in: {text}"))?,
        ..Figures::of(&cost, 1.0)
    })
}

/// The second column of the last line.
fn requests_per_second(csv: &str) -> Option<f64> {
    let line = csv.lines().last()?;
    line.split("\",\"").nth(1)?.parse().ok()
}

impl Ground {
    fn load(&self, what: &str, server: &Server, dialect: &str) -> Command {
        let mut load = Command::new(&self.load);
        load.args(["load", what, "--cpu", &self.client_cpu.to_string()])
            .args(["--port", &server.port.to_string()])
            .args(["--pid", &server.pid().to_string()])
            .args(["--dialect", dialect]);
        load
    }
}

fn answer<T: DeserializeOwned>(load: &mut Command) -> anyhow::Result<T> {
    let text = shell::output(load)?;
    match serde_json::from_str(&text) {
        Ok(answer) => Ok(answer),
        Err(error) => bail!("`{}` printed {text}: {error}", shell::typed(load)),
    }
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
        let cost = Cost {
            commands: 1000,
            elapsed_s: 0.5,
            server_cpu_s: 0.25,
            client_cpu_s: 0.125,
            elsewhere: 0.0,
            longest_gap_s: 0.0,
        };
        let figures = Figures::of(&cost, 2.0);
        assert_eq!(figures.rate, 1000.0);
        assert_eq!(figures.server_us, 500.0);
        assert_eq!(figures.client_us, 250.0);
        assert_eq!((figures.server_busy, figures.client_busy), (0.5, 0.25));
    }
}
