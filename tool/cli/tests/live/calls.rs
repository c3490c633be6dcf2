//! `jostle call`, run for real: what a call is split into, what is an error and
//! never a fast success, and that no process outlives the run, however it ends.

use crate::common::{Jostle, Place, Running, Signal, alone, beside, jostle, processes, reason};
use jostle_model::record::{Run, Status};
use std::collections::BTreeSet;

/// One run of a command, as records; `options` come first.
fn call(command: &str, options: &str) -> Jostle {
    jostle(&format!("call --runs 1 --quiet --format json {options}")).word(command)
}

fn measured(command: &str, options: &str) -> Run {
    call(command, options).run_cleanly().measures().only_run()
}

#[test]
fn a_call_is_split_into_spawn_run_and_reap() {
    let _beside = beside();
    for carrier in ["processes", "threads"] {
        let run = measured("sh -c 'exit 0'", &format!("-n 40 -w 2 --as {carrier}"));
        assert_eq!(run.workload, "stream");
        assert_eq!(run.operations, 80);
        assert_eq!(run.codes, [("0".to_owned(), 80)].into());
        let names: Vec<&str> = run.phases.iter().map(|p| p.phase.as_str()).collect();
        assert_eq!(names, ["spawn", "run", "reap"]);
        assert!(run.phases.iter().all(|p| p.span.count == 80));
        // Every nanosecond of a call belongs to one of its phases.
        let service = run.times.service_ns.as_ref().unwrap();
        let sum: f64 = run.phases.iter().map(|p| p.span.mean).sum();
        assert!((sum - service.mean).abs() < 1.0, "{sum} {service:?}");
        assert_eq!(
            run.histograms["spawn_ns"]
                .0
                .iter()
                .map(|b| b.1)
                .sum::<u64>(),
            80
        );
        assert_eq!(run.series.iter().map(|s| s.operations).sum::<u64>(), 80);
        assert!(run.cpu.children_user_s.unwrap() + run.cpu.children_system_s.unwrap() > 0.0);
        assert_eq!(reason(&run, "errors"), None);
        let null = run.null.unwrap();
        assert_eq!(null.target, "exec:true");
        assert_eq!(null.service_ns.count, 80);
        assert!(run.exclusion.is_none() && run.acquire_ns.is_none());
    }
}

/// A failed call is quicker than one that does its work.
#[test]
fn an_unexpected_code_is_an_error_and_no_fast_success() {
    let _beside = beside();
    let table = [
        // command, options, code, successes
        ("sh -c 'exit 3'", "", "3", 0),
        ("sh -c 'exit 3'", "--expect 3", "3", 20),
        ("sh -c 'exit 3'", "--expect 0:3", "3", 20),
        ("true", "--expect 3", "0", 0),
        ("sh -c 'kill -KILL $$'", "", "SIGKILL", 0),
    ];
    for (command, options, code, successes) in table {
        let done = call(command, &format!("-n 20 {options}")).run_cleanly();
        let run = done.only_run();
        assert_eq!(run.codes, [(code.to_owned(), 20)].into(), "{command}");
        assert_eq!(run.operations, successes, "{command} {options}");
        match successes {
            0 => {
                assert_eq!(done.code(), 3);
                assert_eq!(run.verdict.is, Status::Invalid);
                assert_eq!(run.around.errors[&format!("code {code}")], 20);
                assert_eq!(run.times.service_ns, None);
                assert_eq!(run.times.failed_ns.unwrap().count, 20);
            }
            _ => {
                assert_eq!(reason(&run, "errors"), None, "{command} {options}");
                assert_eq!(run.times.failed_ns, None);
            }
        }
    }
}

/// Of 20 calls every fourth ends with 7.
#[test]
fn codes_are_counted_each_by_itself() {
    let _beside = beside();
    let run = measured("sh -c 'test $(({n} % 4)) = 0 && exit 7; exit 0'", "-n 20");
    let counted = [("0".to_owned(), 15), ("7".to_owned(), 5)].into();
    assert_eq!(run.codes, counted);
    assert_eq!(run.around.errors, [("code 7".to_owned(), 5)].into());
    assert_eq!(run.times.service_ns.unwrap().count, 15);
}

#[test]
fn every_call_has_a_number_of_its_own_and_its_worker() {
    let place = Place::beside_others();
    let line = "call --runs 1 --quiet -n 10 -w 2 --null none --command-output out";
    let told = |options: &str| {
        let _ = std::fs::remove_file(place.file("out"));
        let run = place.jostle(&format!("{line} {options}"));
        run.word(r"printf '%s\n' {worker}/{n}")
            .run_cleanly()
            .measures();
        let lines = place.read("out");
        // The pilot's calls stand before those of the run.
        let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
        lines[lines.len() - 20..].to_vec()
    };
    let all: BTreeSet<String> = told("").into_iter().collect();
    let expected = (0..20).map(|n| format!("{}/{n}", n / 10));
    assert_eq!(all, expected.collect());
    let few = told("--numbers 3");
    let count = |end: &str| few.iter().filter(|line| line.ends_with(end)).count();
    assert_eq!([count("/0"), count("/1"), count("/2")], [7, 7, 6]);
}

#[test]
fn what_cannot_be_started_is_an_error_before_the_run() {
    let place = Place::beside_others();
    std::fs::write(place.file("plain"), "x").unwrap();
    let table = "
        no-such-program => 1 => no program `no-such-program` in $PATH
        ./no-such-program => 1 => there is no program ./no-such-program
        ./plain => 1 => ./plain cannot be executed
        sh -c 'exit => 2 => ends within a quote";
    for [command, code, text] in crate::common::rows(table) {
        let run = place.jostle("call -o result.jsonl").word(command);
        let done = run.run_cleanly().exits(code.parse().unwrap());
        done.says(text).prints_nothing();
        assert!(!place.file("result.jsonl").exists(), "{command}");
    }
    let run = place
        .jostle("call true --null")
        .word("exec:no-such-program");
    run.run_cleanly()
        .exits(1)
        .says("--null")
        .says("no-such-program");
}

/// A shell that waits for a program of its own, which hangs too.
const HANGS: &str = "sh -c 'sleep 600 & sleep 600; true'";

#[test]
fn a_command_that_hangs_is_killed_and_counted() {
    let _beside = beside();
    let options = "-n 3 --call-timeout 100ms --null none";
    let done = call(HANGS, options).run_cleanly().exits(3);
    let done = done.ends_within_a_minute();
    let run = done.only_run();
    assert_eq!(run.around.errors, [("ETIMEDOUT".to_owned(), 3)].into());
    assert_eq!((run.operations, run.codes.len()), (0, 0));
    assert!(run.times.failed_ns.unwrap().min >= 100_000_000);
}

#[test]
fn what_a_command_leaves_behind_ends_with_the_run() {
    let _beside = beside();
    let done = call("sh -c 'sleep 600 & exit 0'", "-n 3 --null none").run();
    // At once, before anything had time to be cleared away.
    assert_eq!(done.what_is_left(), [""; 0]);
    assert_eq!(done.measures().only_run().operations, 3);
}

fn hanging() -> Running {
    let run = jostle("call --quiet -n 5 -w 2 --null none").word(HANGS);
    let mut run = run.in_background();
    run.until("commands that hang", |run| {
        let started = |worker: &crate::common::Process| !processes::children(worker.pid).is_empty();
        let workers = run.workers();
        (workers.len() == 2 && workers.iter().all(started)).then_some(())
    });
    run
}

#[test]
fn however_it_ends_no_process_is_left() {
    let _beside = beside();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::KILL, 137)] {
        let mut run = hanging();
        run.keeper();
        run.signal(signal);
        run.end()
            .leaves_nothing()
            .exits(code)
            .ends_within_a_minute();
    }
    // The keeper alone: the user's process clears away.
    let mut run = hanging();
    let keeper = run.keeper();
    run.kill(keeper);
    run.end().leaves_nothing().exits(1).says("SIGKILL");
    // A worker alone.
    let mut run = hanging();
    let worker = run.workers()[0].pid;
    run.kill(worker);
    run.signal(Signal::INT);
    run.end().leaves_nothing().exits(130);
}

/// Tests that have the machine to themselves.
mod alone {
    use super::*;

    fn both_sleeps(run: &mut Running) -> Vec<processes::Process> {
        run.until("both sleeps", |run| {
            let all = processes::marked(run.mark()).into_iter();
            let sleeps: Vec<_> = all.filter(|process| process.name == "sleep").collect();
            Some(sleeps).filter(|found| found.len() == 2)
        })
    }

    fn sleeping(place: &Place) -> Running {
        place
            .jostle("call -n 1 -w 1 --runs 1 --call-timeout 10m --null none")
            .word("sh -c 'sleep 3601 & sleep 3602'")
            .in_background()
    }

    #[test]
    fn a_command_does_not_outlive_parent_and_keeper() {
        let _alone = alone();
        for place in [Place::new(), Place::of_a_plain_user()] {
            let mut run = sleeping(&place);
            both_sleeps(&mut run);
            run.kill_all_but_the_cleaner();
            run.end().exits(137).leaves_nothing();
        }
    }

    /// Nobody was left who could have ended it.
    #[test]
    fn a_command_that_outlives_the_cleaner_too_is_ended_by_the_next_start() {
        let _alone = alone();
        let place = Place::of_a_plain_user();
        let mut run = sleeping(&place);
        let started = both_sleeps(&mut run);
        run.kill_all_at_once();
        let done = run.end().exits(137);
        assert!(
            started.iter().all(processes::Process::lives),
            "nothing was left to be ended"
        );
        place
            .jostle("contend null -w 1 -b 0 -t 50ms --runs 1")
            .measures();
        let started: Vec<u32> = started.iter().map(|process| process.pid).collect();
        processes::until_gone(&started);
        done.leaves_nothing();
    }
}
