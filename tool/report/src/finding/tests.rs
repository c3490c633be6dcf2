//! Findings of records, and of made results.

use super::*;
use crate::{made, read};
use jostle_stats::summary::summarize;

/// The findings of each experiment of a record.
fn of_record(name: &str) -> Vec<Vec<String>> {
    let records = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/record");
    let sets = read(format!("{records}/{name}.jsonl")).unwrap();
    sets.iter().map(of).collect()
}

fn of(set: &ResultSet) -> Vec<String> {
    findings(set, &summarize(&set.experiment, &set.runs)).sentences
}

/// Each has runs in enough blocks.
#[test]
fn targets_are_ranked_by_what_tells_them_apart_most() {
    let found = [of_record("old"), of_record("scope")].concat();
    let firsts: Vec<&str> = found.iter().map(|one| one[0].as_str()).collect();
    assert_eq!(
        firsts,
        [
            "Nothing is decided: neither surely within 5 % nor surely beyond (--runs 12 would \
             narrow it).",
            "lockd is the quickest to acquire (p99) with 28 us, before redis with 1.1 ms (2 workers, \
             20,000 operations).",
            "lockd is the cheapest in its server's CPU with 14 us per operation, before redis with \
             17 us per operation (2 workers, 20,000 operations).",
            "chained:3000 is the fastest with 21,215,107 operations/s, before lockd and redis with \
             30,725 operations/s and 29,697 operations/s (1 worker, 10,000 locks).",
            "lockd is the cheapest in its server's CPU with 453 ns per operation, before redis \
             with 2.7 us per operation (1 worker, 1,000,000 locks).",
            "procd is the cheapest in CPU with 3.5 us per request, before procd-call with 45 us per \
             request and exec:perl -e 'ex\u{2026}6)' /etc/passwd with 642 us per request (2 \
             workers, 10,000 operations).",
        ]
    );
    assert_eq!(
        found[1][1],
        "lockd is the fastest with 48,177 operations/s, before redis with 28,167 operations/s (2 workers, \
         20,000 operations)."
    );
}

/// The title of 14 targets had five lines, all of them names.
#[test]
fn of_many_targets_a_few_are_named() {
    let found = of(&made::wide(14, 12));
    assert_eq!(
        found[0],
        "lock09, lock03 and 2 more are the cheapest in CPU with 19 us per lock, before lock13, \
         lock10 and 8 more with between 602 us per lock and 650 us per lock (1,000 workers)."
    );
}

/// "Nothing is decided" stood above the reason that one of two locks did not exclude.
#[test]
fn a_lock_that_does_not_exclude_comes_first_beside_others_too() {
    let mut both = made::broken();
    let mut other = made::set();
    other.runs.retain(|point| point.at.workers == Some(10));
    both.runs.append(&mut other.runs);
    let found = of(&both);
    let is_broken = found[0].starts_with("busted: 6 of ");
    assert!(
        is_broken && found[0].contains("does not exclude"),
        "{found:?}"
    );
    assert!(!found.concat().contains("Nothing is decided"), "{found:?}");
}

#[test]
fn a_record_of_few_runs_decides_nothing() {
    assert_eq!(
        of_record("default"),
        [["Nothing is decided: 5 runs of each target, and an order takes 6 (--runs 12)."]]
    );
}

/// Each kind of run has its sentence, and so has a run of which nothing may be used.
#[test]
fn a_single_target_is_told_by_what_it_does() {
    let only = |mut set: ResultSet, target: &str| {
        set.runs.retain(|point| point.target == target);
        of(&set).concat()
    };
    let mut spoilt = made::set();
    for run in &mut spoilt.runs {
        run.around.machine.stolen_ticks = 1000;
    }
    let mut starving = made::set();
    for run in &mut starving.runs {
        run.operations = run.operations.max(40_000);
    }
    let record = |name: &str| of_record(name).concat().concat();
    let found = [
        only(made::set(), "flock"),
        only(starving, "flock"),
        only(made::counts_only(), "spin"),
        only(made::recovered(), "flock"),
        only(made::recovered(), "redis"),
        of(&made::rated(&[1_000, 1_000, 1_000], 1_000)).concat(),
        of(&made::broken()).concat(),
        only(spoilt, "sysv"),
        record("hosts-strong"),
        record("recover-zookeeper"),
    ];
    assert_eq!(
        found,
        [
            "flock serves 948 locks/s (1,000 workers); the rate with 10 workers is the same, \
             within 5 %.",
            "flock starves 100 of 1,000 waiters at 948 locks/s; the rate with 10 workers is the \
             same, within 5 %.",
            "spin serves 9,018,000 locks/s to 2 workers, each 22,000,000 to 23,000,000 times.",
            "flock grants again within 240 us after its owner was killed; the lock stayed owned where \
             its owner was stopped.",
            "redis grants again within 1.9 s after its owner was stopped; two believed for up to \
             600 us to own it.",
            "lockd holds 2,000 requests/s with p99 596 us.",
            "busted: 6 of 28350 acquisitions found another owner inside: this lock \
             does not exclude (worker 3 met worker 5 on key 0).",
            "Nothing is decided: 2 of 2 points are INVALID: the hypervisor took 96.8 % of the \
             CPU time (run it again).",
            "ldap://198.18.1.…g?(uid=user{n}) serves 4,626 requests/s, the most that \
             the server answers (3 generators).",
            "zookeeper grants again within 2.8 s after its owner was killed, stopped or cut off, or \
             its server was stopped; in some runs it stayed owned where its server was killed; two \
             believed for up to 4.1 ms to own it.",
        ]
    );
}

/// A title by the first value would hide the jump.
#[test]
fn a_sweep_of_connections_has_its_own_sentence() {
    assert_eq!(of(&made::connections()), [""; 0]);
}

#[test]
fn invalid_points_take_no_part() {
    let mut set = made::set();
    assert!(
        of(&set)[0].starts_with("sysv is the cheapest in CPU"),
        "{:?}",
        of(&set)
    );
    for run in set
        .runs
        .iter_mut()
        .filter(|run| run.at.workers == Some(1000))
    {
        run.around.machine.stolen_ticks = 1000;
    }
    let fewer = of(&set);
    assert!(
        fewer.iter().all(|one| !one.contains("1,000 workers")),
        "{fewer:?}"
    );
    set.runs
        .iter_mut()
        .for_each(|run| run.around.machine.stolen_ticks = 1000);
    let none = of(&set).concat();
    assert!(
        none.starts_with("Nothing is decided: 4 of 4 points are INVALID: "),
        "{none}"
    );
}

#[test]
fn of_many_targets_those_between_are_counted() {
    let mut set = made::set();
    let points: Vec<_> = set
        .runs
        .iter()
        .filter(|p| p.target == "sysv")
        .cloned()
        .collect();
    set.runs.clear();
    set.experiment.plan.targets = (1..=7).map(|n| format!("t{n}")).collect();
    for (n, target) in (1..).zip(&set.experiment.plan.targets) {
        set.runs.extend(points.iter().cloned().map(|mut point| {
            point.target.clone_from(target);
            point.cpu.cpu_us_per_operation =
                point.cpu.cpu_us_per_operation.map(|us| us * f64::from(n));
            point
        }));
    }
    let first = &of(&set)[0];
    assert!(
        first.starts_with("t1 is the cheapest in CPU with 45 us per lock, before t2 with"),
        "{first}"
    );
    assert!(
        first.ends_with(
            "t3 with 135 us per lock, 3 targets more and t7 with 315 us per lock (1,000 workers)."
        ),
        "{first}"
    );
}
