//! Every target of the table, by the whole binary: with each carrier and each
//! option that it declares it is measured without a fault; the specimens show
//! what they were made to show, and the broken one is flagged.

use crate::common::{alone, beside, each_at_once, in_some_try, jostle, reason};
use jostle_model::plan::Carrier;
use jostle_model::record::{Run, Status};
use jostle_targets::{Entry, Spec, TABLE};
use jostle_testbed::lock_servers as servers;
use std::time::Duration;

/// Checks that another program on this machine, a short window, a build without optimisation, or a
/// lock that excludes nobody, rightly fails.
const BYSTANDERS: [&str; 15] = [
    "neighbours",
    // Other tests sleep and wake thousands of times a second.
    "interference",
    "precision",
    "generator",
    "steal",
    "steadiness",
    "hold_accuracy",
    "rotations",
    "few_operations",
    "not_contended",
    "own_cost",
    // A lock stands free while whoever is next waits for a CPU of this crowded machine.
    "idle_lock",
    // So does the keeper, between two of its readings.
    "unchecked",
    // A quota on CPU time, and a machine that was quicker in other runs.
    "throttled",
    "anchor",
];

/// Long enough for every worker's turn; some two hundred are made. Whoever got none in it is
/// asked again, with a longer one.
const WINDOW_S: f64 = 0.02;

/// Options of a way to use a lock, and which targets declare it.
type Way = (&'static str, fn(&Entry) -> bool);

const WAYS: [Way; 7] = [
    ("", |_| true),
    ("--keys 4", |_| true),
    ("--try", |_| true),
    ("--shared 0.8", |entry| entry.lock.shared),
    ("--acquire-timeout 200us", |entry| entry.lock.timeout),
    ("--range overlap", |entry| entry.lock.ranges),
    ("--range disjoint", |entry| entry.lock.ranges),
];

/// As typed: `busted` with its fault switched off is a lock like any other.
fn typed(entry: &Entry) -> String {
    match (entry.name, servers::argument(entry.name)) {
        ("busted", _) => "busted:0".to_owned(),
        (name, Some(place)) => format!("{name}:{place}"),
        (name, None) => name.to_owned(),
    }
}

fn carried_by(carrier: Carrier) -> impl Iterator<Item = &'static Entry> {
    let can = move |entry: &&Entry| match carrier {
        Carrier::Processes => true,
        Carrier::Threads => entry.no_threads.is_none(),
        Carrier::Tasks => entry.carries_tasks(),
    };
    TABLE.iter().copied().filter(can).filter(can_be_sound)
}

/// All but what breaks exclusion whatever it is told.
fn can_be_sound(entry: &&Entry) -> bool {
    !["echo", "echo+unix", "echo+pipe"].contains(&entry.name)
}

#[test]
fn every_target_does_all_that_it_declares_as_processes() {
    every_target_does_all_that_it_declares(Carrier::Processes, |entry| !is_launched(entry));
}

#[test]
fn every_target_does_all_that_it_declares_as_threads() {
    every_target_does_all_that_it_declares(Carrier::Threads, |entry| !is_launched(entry));
}

#[test]
fn every_target_does_all_that_it_declares_as_tasks() {
    every_target_does_all_that_it_declares(Carrier::Tasks, |entry| !is_launched(entry));
}

/// A server is launched for each run, which takes seconds; the conformance tests of the
/// targets' own crate launch each once.
#[test]
#[ignore = "cargo xtask long"]
fn every_service_does_all_that_it_declares() {
    for carrier in [Carrier::Processes, Carrier::Threads, Carrier::Tasks] {
        every_target_does_all_that_it_declares(carrier, is_launched);
    }
}

/// Whether a program of somebody else is launched for a run.
fn is_launched(entry: &Entry) -> bool {
    Spec::parse(entry.name).is_ok_and(|spec| spec.launches().is_some())
}

fn every_target_does_all_that_it_declares(carrier: Carrier, which: fn(&Entry) -> bool) {
    let _beside = beside();
    // Tasks share a thread, which none may keep by spinning.
    let hold = match carrier {
        Carrier::Tasks => "50us",
        _ => "-50us",
    };
    each_at_once(&WAYS, |(options, declared)| {
        let mut targets: Vec<String> = carried_by(carrier)
            .filter(|e| which(e) && declared(e))
            .map(typed)
            .collect();
        if targets.is_empty() {
            return;
        }
        let mut window_s = WINDOW_S;
        // On a machine with hundreds of busy tasks nobody may get the CPU at all.
        in_some_try("grants by every target", || {
            let line = format!(
                "contend {} --as {carrier} {options} -w 4 -b {hold} -i 10us -t {window_s} --warmup 5ms --runs 1 --format json",
                targets.join(" ")
            );
            let done = jostle(&line).run_cleanly().measures();
            let runs = done.runs();
            assert_eq!(runs.len(), targets.len(), "{}", done.transcript());
            // Who has no CPU for seconds is killed when the run ends, and is measured once more.
            let whole =
                |run: &Run| run.operations > 0 && !run.around.errors.contains_key("stuck_at_end");
            for run in runs.iter().filter(|run| whole(run)) {
                let what = format!("{} {carrier} {options}", run.target);
                is_measured_without_a_fault(run, window_s, &what);
                let is_try = run.around.setup.contains_key("refused_tries");
                assert_eq!(*options == "--try", is_try, "{what}");
                let has_timeout = options.starts_with("--acquire-timeout");
                assert_eq!(has_timeout, run.timeouts.is_some(), "{what}");
            }
            let mut wholes = runs.iter().map(whole);
            targets.retain(|_| wholes.next() == Some(false));
            window_s *= 8.0;
            targets.is_empty().then_some(())
        });
    });
}

fn is_measured_without_a_fault(run: &Run, window_s: f64, what: &str) {
    let grave: Vec<_> = run
        .verdict
        .reasons
        .iter()
        .filter(|r| !BYSTANDERS.contains(&r.check.as_str()))
        .collect();
    assert!(grave.is_empty(), "{what}: {grave:?}");
    assert!(
        (run.window.window_s - window_s).abs() < 1e-9,
        "{what}: {} s",
        run.window.window_s
    );
    let of_workers = &run.workers.as_ref().unwrap().operations;
    assert_eq!(of_workers.len(), 4, "{what}");
    let sum: u64 = of_workers.iter().sum();
    assert_eq!(sum, run.operations, "{what}: workers");
    assert_eq!(run.series.len(), 10, "{what}");
    let sum: u64 = run.series.iter().map(|slice| slice.operations).sum();
    assert_eq!(sum, run.operations, "{what}: series");
    let seen = run.exclusion.as_ref().unwrap();
    assert!(seen.checked >= run.operations, "{what}: {seen:?}");
    let faults = [seen.violations, seen.lost_updates, seen.holder_died];
    assert_eq!(faults, [0; 3], "{what}");
    if run.stamp_every == Some(1) {
        let stamped = [
            run.stamped,
            run.acquire_ns.as_ref().map(|a| a.granted.count),
            run.times.hold_ns.as_ref().map(|h| h.count),
        ];
        assert_eq!(
            stamped,
            [Some(run.operations); 3],
            "{what}: stamped, waits, holds"
        );
    }
}

#[test]
fn a_lock_that_lets_two_in_is_flagged_and_the_overlaps_are_counted() {
    let _beside = beside();
    // On a machine with many busy tasks there are few grants in a second.
    let mut window_s = 1;
    let done = in_some_try("overlaps enough to judge by", || {
        let line = format!(
            "contend busted:5e-2 -w 4 -b 200us -i 10us -t {window_s} --runs 1 --format json"
        );
        window_s *= 4;
        let done = jostle(&line).measures();
        (done.only_run().around.truth["planted"] > 30.0).then_some(done)
    });
    let run = done.exits(3).only_run();
    let exclusion = run.exclusion.as_ref().unwrap();
    assert_eq!(reason(&run, "exclusion").unwrap().is, Status::Invalid);
    assert!(
        exclusion.examples[0].contains("was let in"),
        "{exclusion:?}"
    );
    // None is counted twice. Two intruders at a time hide one another's overlap, and so does
    // an owner that leaves at that moment: how often depends on the machine, but is seldom.
    let planted = run.around.truth["planted"];
    for (what, found) in [
        ("overlaps", exclusion.violations as f64),
        ("updates lost", exclusion.lost_updates as f64),
    ] {
        assert!(
            (0.5 * planted..=planted).contains(&found),
            "{found} {what} were found, {planted} overlaps were planted"
        );
    }
}

#[test]
fn a_server_that_only_answers_is_flagged_on_every_carrier() {
    let _beside = beside();
    each_at_once(Carrier::ALL, |carrier| {
        // Without a CPU no two workers meet.
        let mut window_s = 0.3;
        let done = in_some_try("overlapping grants", || {
            let line = format!(
                "contend echo -w 4 -b 200us -i 10us -t {window_s} --as {carrier} --runs 1 --format json"
            );
            window_s *= 4.0;
            let done = jostle(&line).measures().leaves_nothing();
            let point = done.only_run();
            // Who has no CPU for seconds is killed when the run ends.
            let whole = !point.around.errors.contains_key("stuck_at_end");
            (whole && reason(&point, "exclusion").is_some()).then_some(done)
        });
        let point = done.exits(3).only_run();
        assert_eq!(reason(&point, "exclusion").unwrap().is, Status::Invalid);
        // It answers what it is asked: nothing else speaks against it.
        assert!(reason(&point, "errors").is_none(), "{:?}", point.verdict);
        assert!(
            reason(&point, "server_counts").is_none(),
            "{:?}",
            point.verdict
        );
    });
}

#[test]
fn a_lock_that_grants_all_refuses_nobody() {
    let _beside = beside();
    let with = |option: &str| {
        jostle(&format!(
            "contend null -w 4 {option} -b -50us -t 0.2 --runs 1 --format json"
        ))
        .measures()
        .only_run()
    };
    assert_eq!(with("--try").around.setup["refused_tries"], 0.0);
    // Long enough for a worker that the scheduler stops within its attempt.
    assert_eq!(with("--acquire-timeout 10m").timeouts, Some(0));
    // Where nobody is excluded, there is no share of those that had to wait.
    assert_eq!(with("").blocked_share, None);
}

/// A lock with a known order of service, contended by so many, each of whom
/// waits again as soon as it has been served.
fn unfair(policy: &str, workers: u64) -> Run {
    let line = format!(
        "contend unfair:{policy} -w {workers} -b 500us -i 10us -t 1 --runs 1 --format json"
    );
    jostle(&line).measures().only_run()
}

#[test]
fn others_go_on_after_a_killed_owner_where_the_lock_survives_it() {
    others_go_on_after_a_killed_owner(|entry| !entry.lock.remote);
}

#[test]
#[ignore = "cargo xtask long"]
fn others_go_on_after_a_killed_owner_of_a_service() {
    others_go_on_after_a_killed_owner(|entry| entry.lock.remote);
}

/// Grants in the last three tenths of the window, long after the owner was killed.
fn operations_after(run: &Run) -> u64 {
    run.series[7..].iter().map(|slice| slice.operations).sum()
}

fn others_go_on_after_a_killed_owner(which: fn(&Entry) -> bool) {
    let _beside = beside();
    // A lease frees a dead owner's lock when it ends, after 30 s: longer than a test
    // may take.
    let is_leased = |entry: &Entry| entry.is_remote() && !entry.lock.survives_owner;
    let entries: Vec<&Entry> = TABLE
        .iter()
        .copied()
        .filter(|entry| which(entry) && !is_leased(entry) && can_be_sound(entry))
        .collect();
    each_at_once(&entries, |entry| {
        let name = typed(entry);
        let stays_locked = !entry.lock.survives_owner && name != "lockfile";
        let mut slower = 1;
        let (point, holder) = in_some_try("others let in when an owner is killed", || {
            let window_ms = 1500 * slower;
            let line = format!(
                "contend {name} -w 4 -b 60ms -i 0 -t {window_ms}ms --warmup 50ms --runs 1 --format json"
            );
            let mut run = jostle(&line).in_background();
            run.workers_unless_over(4)?;
            // Mostly enough for all of them to reach the common start.
            run.after(Duration::from_millis(250 * slower));
            slower *= 2;
            let holder = match name.as_str() {
                // Their waiters sleep on a timer as the owner does: any of them.
                "lockfile" | "postgres-try" => run.workers_unless_over(1)?[0].pid,
                _ => run.holder_unless_over()?,
            };
            run.kill(holder);
            let done = run.end().leaves_nothing();
            // On a busy machine too early, or when all was over.
            let early = done.stderr.contains("lost before the start");
            let struck = !early && done.stdout.contains("killed by SIGKILL");
            struck.then_some(())?;
            let run = done.exits(3).only_run();
            // On a busy machine the kernel may take longer than the run to end the owner,
            // and only then frees what it had.
            let late = entry.lock.survives_owner && operations_after(&run) == 0;
            // And the owner may have released meanwhile, so that a waiter was killed.
            let died_as_owner = run.exclusion.as_ref().is_some_and(|e| e.holder_died > 0);
            let missed = stays_locked && operations_after(&run) > 0 && !died_as_owner;
            (!late && !missed).then_some((run, holder))
        });
        let text = format!("(pid {holder}): killed by SIGKILL");
        let deaths = &point.around.deaths;
        let is_told = deaths.iter().any(|death| death.contains(&text));
        assert!(is_told, "{name}: {deaths:?}");
        // glibc finds the dead owner's mutex inconsistent and aborts.
        let alone = deaths.len() == 1 || name == "pthread-pi";
        assert!(alone, "{name}: {deaths:?}");
        let verdict = &point.verdict;
        assert!(reason(&point, "deaths").is_some(), "{name}: {verdict:?}");
        for flag in ["exclusion", "lost_update"] {
            assert!(reason(&point, flag).is_none(), "{name}: {verdict:?}");
        }
        if stays_locked {
            let after = operations_after(&point);
            let freed = "is freed when its owner dies; its entry says it is not";
            assert_eq!(after, 0, "{name} {freed}");
        }
    });
}

/// Tests that judge figures of this machine.
mod figures {
    use super::*;

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_known_delay_is_found_in_the_wait() {
        let _alone = alone();
        // All that the specimen notes falls into the window.
        let line = "contend delay:200us -w 1 -b 0 -i 0 -t 0.3 --warmup 0 --runs 1 --format json";
        in_some_try("a mean wait within max(1 %, 5 us) of the truth", || {
            let run = jostle(line).measures().only_run();
            let wait = run.acquire_ns.unwrap().granted;
            let truth_ns = run.around.truth["sum_ns"] / run.around.truth["count"];
            let bound_ns = (0.01 * truth_ns).max(5_000.0);
            // Single delays last longer, when the CPU is taken away.
            let p50_ns = wait.percentiles["p50"] as f64;
            assert!(
                (198_000.0..=truth_ns + bound_ns).contains(&p50_ns),
                "{p50_ns} {truth_ns}"
            );
            ((wait.mean - truth_ns).abs() <= bound_ns).then_some(())
        });
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_queue_and_a_lottery_are_told_apart() {
        let _alone = alone();
        let queue = unfair("queue", 20).per_worker.unwrap();
        assert!(queue.dispersion < 0.1 && queue.none == 0, "{queue:?}");
        // Dispersion of a lottery times 49 is chi-square with 49 degrees: beyond
        // these bounds once in 10,000 runs.
        let lottery = unfair("lottery", 50).per_worker.unwrap();
        assert!((0.4..1.9).contains(&lottery.dispersion), "{lottery:?}");
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn two_to_one_is_found_as_two_thirds() {
        let _alone = alone();
        let run = unfair("2to1", 50);
        let operations = run.workers.unwrap().operations;
        let even: u64 = operations.iter().step_by(2).sum();
        let share = even as f64 / run.operations as f64;
        // The owner is not drawn: 48 of 73 after an even one, 50 of 74 after an odd one.
        // The share exceeds this bound once in 10,000 runs; a lottery gives 0.5.
        let bound = 4.0 * (0.664 * 0.336 / run.operations as f64).sqrt();
        assert!(bound < 0.16, "{} grants", run.operations);
        assert!((share - 0.664).abs() < bound, "{share}, not within {bound}");
        // The truth is of the whole run, warm-up included.
        assert!(
            (share - run.around.truth["even_share"]).abs() < 0.02,
            "{share} {:?}",
            run.around.truth
        );
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn the_starved_worker_is_named_and_its_wait_is_censored() {
        let _alone = alone();
        // It is served where the scheduler keeps all others from waiting.
        let run = in_some_try("a worker without a grant", || {
            Some(unfair("starve", 10)).filter(|run| run.per_worker.unwrap().none > 0)
        });
        let shares = run.per_worker.unwrap();
        assert_eq!((shares.none, shares.min), (1, 0), "{shares:?}");
        assert_eq!(shares.longest_wait_worker, Some(0), "{shares:?}");
        assert!(
            shares.longest_wait_ns.unwrap() >= 1_000_000_000,
            "{shares:?}"
        );
        assert!(run.acquire_ns.unwrap().censored >= 1);
        assert_eq!(run.workers.unwrap().operations[0], 0);
    }
}
