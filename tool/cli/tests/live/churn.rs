//! `churn`: what a lock costs if each job opens a session of its own.

use crate::common::servers::{redis_server, serves};
use crate::common::{Place, as_json, beside, jostle, must_have, reason, rows};
use jostle_model::record::{Run, Status};
use jostle_testbed::lock_servers as servers;
use jostle_testbed::ports::free_port;
use std::io::{Read, Write};
use std::net::TcpStream;

fn one(line: &str) -> Run {
    as_json(line).measures().only_run()
}

/// The sums that hold in each run on every machine.
#[track_caller]
fn adds_up(run: &Run, cycles: u64) {
    assert_eq!(run.operations, cycles);
    assert_eq!(run.workload, "churn");
    let phase = |name: &str| {
        let mut phases = run.phases.iter();
        let found = phases.find(|phase| phase.phase == name);
        &found.unwrap_or_else(|| panic!("no {name}: {run:?}")).span
    };
    let (open, close, cycle) = (phase("open"), phase("close"), phase("cycle"));
    let acquire = &run.acquire_ns.as_ref().unwrap().granted;
    let release = run.times.release_ns.as_ref().unwrap();
    for part in [open, acquire, release, close, cycle] {
        assert_eq!(part.count, cycles);
    }
    let parts = open.mean + acquire.mean + release.mean + close.mean;
    assert!(parts <= cycle.mean, "{parts} of {}", cycle.mean);
    assert!(cycle.mean < 1.1 * run.window.window_s * 1e9, "{run:?}");
    for check in [
        "exclusion",
        "lost_update",
        "deaths",
        "errors",
        "server_counts",
    ] {
        assert_eq!(reason(run, check), None, "{check}");
    }
}

#[test]
fn file_locks_are_opened_for_each_lock() {
    let _beside = beside();
    for target in ["flock", "ofd", "posix"] {
        adds_up(&one(&format!("churn {target} -w 2 -n 200")), 400);
    }
    adds_up(&one("churn flock -w 2 -n 200 --as threads"), 400);
}

#[test]
fn workers_with_one_lock_are_watched() {
    let _beside = beside();
    for target in ["flock", "lockd"] {
        let run = one(&format!("churn {target} -w 4 -n 100 --names one"));
        adds_up(&run, 400);
        assert_eq!(run.names.as_deref(), Some("one"));
        let exclusion = run.exclusion.unwrap();
        assert_eq!((exclusion.checked, exclusion.violations), (400, 0));
    }
}

/// How many connections a Redis has accepted so far.
fn accepted(port: u16) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"INFO stats\r\nQUIT\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let mut lines = answer.lines();
    let count = lines.find_map(|line| line.strip_prefix("total_connections_received:"));
    count.unwrap().parse().unwrap()
}

#[test]
fn the_server_sees_as_many_sessions_as_cycles() {
    let _beside = beside();
    let port = free_port().unwrap();
    let _server = serves(port, &mut redis_server(port, &[]));
    let sessions = |operations: u64| {
        let before = accepted(port);
        let line = format!("churn redis://127.0.0.1:{port} -w 2 -n {operations}");
        adds_up(&one(&line), 2 * operations);
        accepted(port) - before
    };
    // What is asked beside the workers is the same in both.
    assert_eq!(sessions(300) - sessions(100), 400);
}

#[test]
fn what_has_no_session_is_refused_with_what_has() {
    let _beside = beside();
    let table = "
        churn futex => futex has no session
        churn sysv => churn works with: flock, ofd
        churn null => null has no session
        churn lockd --as tasks => --as processes or threads
        churn http://127.0.0.1/ => is not a lock
        churn redis://192.0.2.1:6379 -n 1000000 => net.ipv4.tcp_tw_reuse=1";
    for [line, says] in rows(table) {
        let done = jostle(line).run();
        assert!(done.code() != 0, "{line}");
        done.says(says);
    }
}

#[test]
fn a_wrong_password_and_a_silent_port_end_it_before_the_first_cycle() {
    let _beside = beside();
    for target in servers::guarded("open-sesame") {
        let line = format!("churn {target} -n 20");
        as_json(&line).exits(1).says("NOAUTH");
    }
    let port = free_port().unwrap();
    let silent = format!("churn redis://127.0.0.1:{port} -n 20");
    as_json(&silent)
        .exits(1)
        .says("cannot connect to 127.0.0.1");
}

#[test]
fn a_server_that_is_killed_ends_it_and_leaves_nothing() {
    let _beside = beside();
    must_have("memcached", "memcached");
    for carrier in ["processes", "threads"] {
        let place = Place::new();
        let line = format!("churn memcached -w 2 -n 7000 --runs 50 --as {carrier} -o killed");
        let mut run = place.jostle(&line).in_background();
        run.kill_servers("memcached");
        let done = run.end().ends_within_a_minute().leaves_nothing();
        assert!(done.stderr.contains("memcached that jostle launched") || done.code() == 3);
        // One that made all its cycles was over before.
        let all = |point: &Run| point.operations == 14_000 && point.around.errors.is_empty();
        let runs = place.runs("killed");
        assert!(
            runs.iter()
                .all(|point| point.verdict.is == Status::Invalid || all(point))
        );
    }
}
