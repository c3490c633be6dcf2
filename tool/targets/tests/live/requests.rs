//! Targets as requests: every lock is one, and a program that is started.

use crate::common::{Bench, prepared_here, with_ledger};
use jostle_sys::clock::Clock;
use jostle_sys::files::Errno;
use jostle_targets::caller::MOST_PHASES;
use jostle_targets::prepare_requests;
use jostle_targets::{Entry, Phases, REQUESTS, RequestSetup, Requests, Spec, all};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Prepares a target as typed, with this timeout and output.
pub(crate) fn with<R>(
    typed: &str,
    timeout: Duration,
    output: Option<&Path>,
    test: impl FnOnce(&dyn Requests) -> R,
) -> R {
    let spec = Spec::parse(typed).unwrap();
    prepared(spec.entry, spec.argument.as_deref(), timeout, output, test)
}

fn prepared<R>(
    entry: &Entry,
    argument: Option<&str>,
    timeout: Duration,
    output: Option<&Path>,
    test: impl FnOnce(&dyn Requests) -> R,
) -> R {
    with_ledger(|ledger, _| {
        let bench = Bench {
            argument,
            ..Bench::new(ledger)
        };
        let base = bench.setup(entry.name);
        let setup = RequestSetup {
            base: &base,
            timeout,
            output,
            connection: None,
            server_log: None,
        };
        let target = prepare_requests(entry, &setup);
        test(&*target.unwrap_or_else(|error| panic!("{}: {error}", entry.name)))
    })
}

const LONG: Duration = Duration::from_secs(120);

#[test]
fn every_lock_is_acquired_and_released_as_a_request() {
    let clock = Clock::new();
    for entry in prepared_here() {
        prepared(entry, None, LONG, None, |target| {
            assert_eq!(target.phases(), ["acquire", "release"], "{}", entry.name);
            let mut caller = target.join(0).unwrap();
            // What a request leaves behind would stop the next.
            for nth in 0..3 {
                let mut phases = Phases::begin(clock);
                let answer = caller.call(nth, &mut phases).unwrap();
                assert!(target.is_success(answer.code), "{}", entry.name);
                let spans = [0, 1].map(|phase| phases.span(phase).unwrap());
                let all = phases.ended() - phases.began();
                assert_eq!(spans.iter().sum::<u64>(), all, "{}", entry.name);
            }
        });
    }
}

#[test]
fn a_program_is_started_for_each_request() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("output");
    let clock = Clock::new();
    let command = "exec:sh -c 'echo {worker}-{n}; exit {n}'";
    with(command, LONG, Some(&output), |target| {
        let mut caller = target.join(4).unwrap();
        for code in [0, 7, 255] {
            let mut phases = Phases::begin(clock);
            let answer = caller.call(code, &mut phases).unwrap();
            assert_eq!(u64::from(answer.code), code);
            assert_eq!(target.is_success(answer.code), code == 0);
            assert_eq!(target.code_name(answer.code), code.to_string());
            assert!((0..3).all(|phase| phases.span(phase).unwrap() > 0));
        }
    });
    assert_eq!(
        std::fs::read_to_string(output).unwrap(),
        "4-0\n4-7\n4-255\n"
    );
}

#[test]
fn a_signal_is_a_code_of_its_own_and_a_timeout_no_code_at_all() {
    let clock = Clock::new();
    with("exec:sh -c 'kill -TERM $$'", LONG, None, |target| {
        let answer = target.join(0).unwrap().call(0, &mut Phases::begin(clock));
        let code = answer.unwrap().code;
        assert_eq!(target.code_name(code), "SIGTERM");
        assert!(!target.is_success(code));
    });
    with("exec:sleep 60", Duration::from_millis(50), None, |target| {
        let error = target.join(0).unwrap().call(0, &mut Phases::begin(clock));
        let error = error.unwrap_err();
        assert_eq!(error.errno, Errno::TIMEDOUT.raw_os_error());
        assert!(error.to_string().contains("--call-timeout"), "{error}");
    });
}

/// Else a benchmark of a command that hangs would fill the machine with it.
#[test]
fn a_command_that_takes_too_long_is_gone_with_all_that_it_started() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("pids");
    let hangs = "exec:sh -c 'sleep 600 & echo $$ $!; wait'";
    let said_within = |seconds| {
        let timeout = Duration::from_secs(seconds);
        with(hangs, timeout, Some(&output), |target| {
            let answer = target
                .join(0)
                .unwrap()
                .call(0, &mut Phases::begin(Clock::new()));
            assert_eq!(answer.unwrap_err().errno, Errno::TIMEDOUT.raw_os_error());
        });
        let said = std::fs::read_to_string(&output).unwrap();
        Some(said).filter(|said| !said.is_empty())
    };
    // Longer where a busy machine ended it before its first word.
    let pids = [2, 10, 50].into_iter().find_map(said_within).unwrap();
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert_eq!(pids.len(), 2, "{pids:?}");
    let runs = |pid: &&&str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // One that nobody has waited for yet does not run any more.
        !stat.is_empty() && !stat.contains(") Z ")
    };
    let deadline = std::time::Instant::now() + LONG;
    while pids.iter().any(|pid| runs(&pid)) {
        assert!(std::time::Instant::now() < deadline, "{pids:?} still run");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_target_of_requests_is_documented_and_has_a_name_of_its_own() {
    let names: BTreeSet<&str> = all().map(|entry| entry.name).collect();
    assert_eq!(names.len(), all().count());
    for target in REQUESTS {
        let entry = &target.entry;
        assert!(entry.is_asked(), "{}", entry.name);
        assert!(!entry.summary.is_empty() && entry.details.ends_with('.'));
        if let Some(null) = target.null {
            assert!(Spec::parse(null).unwrap().entry.is_asked(), "{null}");
        }
    }
    with("exec:true", LONG, None, |target| {
        assert!(target.phases().len() <= MOST_PHASES);
    });
}
