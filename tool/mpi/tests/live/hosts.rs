//! Three hosts on a network, started by a real `mpirun` over ssh, and Redis on a
//! fourth: the hosts are namespaces of this machine, each with its own name,
//! processes and clock. Needs root, openmpi-bin, openssh-server and redis-server.

use jostle_testbed::hosts::{Hosts, SERVER};
use jostle_testbed::turns::alone;
use serde_json::Value;
use std::io::Read;
use std::process::{Child, Output, Stdio};
use std::sync::RwLockWriteGuard;
use std::time::{Duration, Instant};

/// On a busy machine too; mpirun itself notices a cut after ten seconds.
const LIMIT: Duration = Duration::from_secs(60);
const RANKS: [&str; 3] = ["h1", "h2", "h3"];

/// Hosts with a server, one test's at a time: they share two CPUs.
struct Ground {
    server: Child,
    hosts: Hosts,
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Ground {
    fn new() -> Ground {
        let alone = alone();
        let hosts = Hosts::for_test(3).unwrap();
        let mut redis = hosts.on(SERVER, "redis-server");
        redis.args(["--bind", "0.0.0.0", "--protected-mode", "no", "--save", ""]);
        let server = redis.stdout(Stdio::null()).spawn().unwrap();
        let ground = Ground {
            server,
            hosts,
            _alone: alone,
        };
        eventually(
            "redis-server (apt-get install redis-server) answers",
            || {
                let mut ping = ground.hosts.on("h1", "redis-cli");
                let ping = ping.args(["-h", SERVER, "ping"]).output().unwrap();
                ping.stdout == b"PONG\n"
            },
        );
        ground
    }

    /// `mpirun -n 3 jostle-mpi LINE`.
    fn start(&self, line: &str) -> Child {
        let mut mpirun = self.hosts.mpirun();
        mpirun
            .args(["-n", "3", env!("CARGO_BIN_EXE_jostle-mpi")])
            .args(line.split_whitespace())
            .args(["--quiet", "--format", "json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        mpirun.spawn().unwrap()
    }

    /// Of jostle and of what started it.
    fn processes(&self, host: &str) -> Vec<String> {
        let all = self.hosts.processes(host).unwrap();
        all.into_iter().map(|(_, command)| command).collect()
    }

    /// The only point of a run that is none of these hosts' fault to the end.
    fn point(&self, line: &str) -> Value {
        let mut points = self.points(line);
        assert_eq!(points.len(), 1);
        points.remove(0)
    }

    fn points(&self, line: &str) -> Vec<Value> {
        let output = self.start(line).wait_with_output().unwrap();
        assert!(
            matches!(output.status.code(), Some(0 | 3)),
            "{}",
            said(&output)
        );
        let printed = String::from_utf8(output.stdout).unwrap();
        let records = printed
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let points = records.filter(|record: &Value| record["record"] == "run");
        let points = points.collect();
        self.nothing_is_left();
        points
    }

    fn nothing_is_left(&self) {
        for host in RANKS {
            eventually(host, || self.processes(host).is_empty());
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "cargo xtask long"]
fn three_hosts_make_one_run_and_their_planted_clocks_are_found() {
    let ground = Ground::new();
    let point = ground.point("stream redis://srv:6379 -w 6 -n 50 --names own --runs 1");
    let rows = point["hosts"].as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["host"].as_str().unwrap())
        .collect();
    assert_eq!(names, RANKS);
    assert_eq!(point["operations"], 300);
    let first = ground.hosts.member("h1").unwrap().shift_ns;
    for row in rows {
        assert_eq!(row["operations"], 100, "{row}");
        let name = row["host"].as_str().unwrap();
        let planted = ground.hosts.member(name).unwrap().shift_ns - first;
        let found = row["clock_ahead_ns"].as_i64().unwrap();
        let within = row["clock_within_ns"].as_i64().unwrap();
        assert!((found - planted).abs() <= within, "{planted} {row}");
        // Hosts are thousands of seconds apart, and a network that is none.
        assert!(within < 1_000_000_000, "{row}");
    }
}

#[test]
#[ignore = "cargo xtask long"]
fn connections_of_three_hosts_add_up_and_the_one_without_ports_is_named() {
    let ground = Ground::new();
    let line = "connect tcp://srv:6379 --open 90:150:300 --port-range 40000-40049 --runs 1";
    let runs = ground.points(line);
    // 50 ports a host: 150 connections and no more.
    let opened: Vec<u64> = runs
        .iter()
        .map(|point| point["connections"]["opened"].as_u64().unwrap())
        .collect();
    assert_eq!(opened, [90, 150, 150]);
    for row in runs[0]["hosts"].as_array().unwrap() {
        assert_eq!(row["operations"], 30, "{row}");
        assert_eq!(row["latency_ns"]["count"], 30, "{row}");
    }
    let stopped = &runs[2]["connections"]["stopped"];
    let text = stopped["text"].as_str().unwrap();
    assert!(
        text.starts_with("h1: EADDRNOTAVAIL after 50 connections"),
        "{text}"
    );
}

#[test]
#[ignore = "cargo xtask long"]
fn a_host_with_too_little_cpu_is_flagged_by_name() {
    let ground = Ground::new();
    ground.hosts.cpu("h2", Some(0.05)).unwrap();
    let line = "spread redis://srv:6379 --in-flight 12 --generators 3 -t 1 --runs 1";
    let point = ground.point(line);
    let reasons = |verdict: &Value| -> Vec<String> {
        let reasons = verdict["reasons"].as_array();
        let throttled = reasons
            .into_iter()
            .flatten()
            .filter(|r| r["check"] == "throttled");
        throttled
            .map(|r| r["text"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(point["run_verdict"]["is"], "INVALID", "{point}");
    let flagged = reasons(&point["run_verdict"]);
    assert!(
        matches!(&flagged[..], [text] if text.starts_with("h2: ") && !text.contains("likewise")),
        "{flagged:?}"
    );
    for row in point["hosts"].as_array().unwrap() {
        let weak = row["host"] == "h2";
        assert_eq!(!reasons(&row["verdict"]).is_empty(), weak, "{row}");
    }
}

#[test]
#[ignore = "cargo xtask long"]
fn a_host_that_is_cut_off_ends_the_run_by_its_name_and_nothing_is_left() {
    let ground = Ground::new();
    let mut job = ground.start("contend redis://srv:6379 -w 3 -t 10m --runs 1");
    let jostle = |command: &String| command.starts_with(env!("CARGO_BIN_EXE_jostle-mpi"));
    eventually("workers work on h3", || {
        ground.processes("h3").iter().filter(|c| jostle(c)).count() >= 3
    });
    let start = Instant::now();
    ground.hosts.cut("h3").unwrap();
    eventually("the run ends", || job.try_wait().unwrap().is_some());
    assert!(start.elapsed() < LIMIT, "it ran to its end");
    let status = job.wait().unwrap();
    let mut errors = String::new();
    job.stderr
        .take()
        .unwrap()
        .read_to_string(&mut errors)
        .unwrap();
    assert!(!status.success(), "{errors}");
    assert!(errors.contains("jostle: h3"), "{errors}");
    ground.nothing_is_left();
}
