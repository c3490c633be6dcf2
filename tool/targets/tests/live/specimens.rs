//! The notes of specimens match what happened.

use crate::common::{Bench, GRANTED, block, with_ledger};
use jostle_sys::clock::monotonic;
use jostle_targets::busted::Busted;
use jostle_targets::delay::Delay;
use jostle_targets::stall::Stall;
use jostle_targets::unfair::Unfair;
use jostle_targets::{Lock, Mode, Target, Wait};
use rustix::thread::{Pid, gettid};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use Mode::{Exclusive, Shared};

#[test]
fn delay_takes_the_time_that_it_notes() {
    with_ledger(|ledger, _| {
        for (argument, nanos) in [("20us", 20_000), ("5ms", 5_000_000)] {
            let bench = Bench {
                argument: Some(argument),
                ..Bench::new(ledger)
            };
            let target: Delay = bench.prepare();
            let mut lock = target.join(3).unwrap();
            assert_eq!(target.truth()["count"], 0.0);
            assert!(
                !target.truth().contains_key("min_ns"),
                "nothing was measured"
            );
            let start = monotonic();
            for _ in 0..10 {
                assert_eq!(lock.acquire(0, Exclusive, Wait::Try), GRANTED);
            }
            let took = (monotonic() - start) as f64;
            let truth = target.truth();
            assert_eq!(truth["count"], 10.0);
            assert!(truth["min_ns"] >= f64::from(nanos), "{truth:?}");
            assert!(truth["max_ns"] >= truth["min_ns"], "{truth:?}");
            assert!(truth["sum_ns"] <= took && truth["sum_ns"] >= 10.0 * f64::from(nanos));
        }
    });
}

#[test]
fn stall_notes_how_long_nobody_got_it() {
    with_ledger(|ledger, _| {
        let bench = Bench {
            argument: Some("20ms/50ms"),
            ..Bench::new(ledger)
        };
        let target: Stall = bench.prepare();
        let mut lock = target.join(0).unwrap();
        let (start, mut longest) = (monotonic(), 0);
        // Three whole periods, and a part of a fourth; longer on a busy machine.
        let few = |longest: u64| {
            let is_few = target.truth()["stalls"] < 3.0 || longest <= 10_000_000;
            is_few && monotonic() - start < 120_000_000_000
        };
        while monotonic() - start < 160_000_000 || few(longest) {
            let before = monotonic();
            assert_eq!(lock.acquire(0, Exclusive, block()), GRANTED);
            let took = monotonic() - before;
            longest = took.max(longest);
            lock.release(0, Exclusive).unwrap();
        }
        let truth = target.truth();
        let most = (monotonic() - start) as f64 / 50e6 + 1.0;
        assert!((3.0..=most).contains(&truth["stalls"]), "{truth:?}");
        assert_eq!(
            truth["held_up"], truth["stalls"],
            "one worker meets each once"
        );
        assert!(truth["stall_min_ns"] >= 20e6, "{truth:?}");
        assert!(longest > 10_000_000, "nothing was held up");
    });
}

#[test]
fn busted_counts_the_entries_that_met_an_owner_and_no_others() {
    with_ledger(|ledger, _| {
        let bench = Bench {
            argument: Some("1"),
            ..Bench::new(ledger)
        };
        let target: Busted = bench.prepare();
        let [mut one, mut two, mut three] = [0, 1, 2].map(|w| target.join(w).unwrap());
        let planted = || target.truth()["planted"];
        assert_eq!(one.acquire(0, Exclusive, Wait::Try), GRANTED);
        assert_eq!(planted(), 0.0, "it was free");
        assert_eq!(two.acquire(0, Exclusive, Wait::Try), GRANTED);
        assert_eq!(planted(), 1.0);
        one.release(0, Exclusive).unwrap();
        assert_eq!(three.acquire(0, Shared, Wait::Try), GRANTED);
        assert_eq!(planted(), 2.0, "a reader met a writer");
        two.release(0, Exclusive).unwrap();
        assert_eq!(one.acquire(0, Shared, Wait::Try), GRANTED);
        assert_eq!(planted(), 2.0, "readers may meet");
        one.release(0, Shared).unwrap();
        three.release(0, Shared).unwrap();
    });
}

/// Waits until a thread of this process has nothing to do but wait.
fn await_sleep(thread: Pid) {
    let stat = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let end = monotonic() + 120_000_000_000;
    loop {
        // Long enough for what it does before, if it has a CPU; if it has none, it is not asleep.
        std::thread::sleep(Duration::from_millis(50));
        let text = std::fs::read_to_string(&stat).unwrap();
        if text.rsplit(')').next().unwrap().starts_with(" S") {
            return;
        }
        assert!(monotonic() < end, "{text}");
    }
}

/// Workers 1, 2, 3 come one after the other while worker 4 owns the lock, then
/// worker 0; who was granted, in order.
fn order_of_grants(policy: &str) -> Vec<usize> {
    with_ledger(|ledger, _| {
        let bench = Bench {
            argument: Some(policy),
            workers: 5,
            ..Bench::new(ledger)
        };
        let target: Unfair = bench.prepare();
        let grants = Mutex::new(Vec::new());
        let mut owner = target.join(4).unwrap();
        assert_eq!(owner.acquire(0, Exclusive, block()), GRANTED);
        std::thread::scope(|scope| {
            for worker in [1, 2, 3, 0] {
                let (target, grants) = (&target, &grants);
                let (begins, begun) = std::sync::mpsc::channel();
                scope.spawn(move || {
                    let mut lock = target.join(worker).unwrap();
                    begins.send(gettid()).unwrap();
                    assert_eq!(lock.acquire(0, Exclusive, block()), GRANTED);
                    grants.lock().unwrap().push(worker);
                    lock.release(0, Exclusive).unwrap();
                });
                await_sleep(begun.recv().unwrap());
            }
            owner.release(0, Exclusive).unwrap();
        });
        assert_eq!(target.truth()["handed"], 4.0);
        assert_eq!(target.truth()["granted_min"], 1.0);
        assert_eq!(target.truth()["granted_max"], 1.0);
        grants.into_inner().unwrap()
    })
}

#[test]
fn unfair_serves_in_the_order_of_its_policy() {
    assert_eq!(order_of_grants("queue"), [1, 2, 3, 0]);
    assert_eq!(order_of_grants("starve"), [1, 2, 3, 0]);
    let mut drawn = order_of_grants("lottery");
    drawn.sort_unstable();
    assert_eq!(drawn, [0, 1, 2, 3], "everybody is served once");
}

type Truth = std::collections::BTreeMap<String, f64>;

/// Six workers go round without pause, worker 0 once all others do, until so many are granted;
/// what is noted is what they counted.
fn truth_of_a_crowd(policy: &str) -> Truth {
    with_ledger(|ledger, _| {
        let bench = Bench {
            argument: Some(policy),
            workers: 6,
            ..Bench::new(ledger)
        };
        let target: Unfair = bench.prepare();
        let all_there = std::sync::Barrier::new(6);
        let [all_granted, begun] = [0; 2].map(AtomicU64::new);
        let go_round = |worker| {
            let mut lock = target.join(worker).unwrap();
            all_there.wait();
            let end = monotonic() + 120_000_000_000;
            while worker == 0 && begun.load(Relaxed) < 5 && monotonic() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut granted = 0_u32;
            while all_granted.load(Relaxed) < 1_000 && monotonic() < end {
                assert_eq!(lock.acquire(0, Exclusive, block()), GRANTED);
                begun.fetch_add(u64::from(granted == 0), Relaxed);
                granted += 1;
                all_granted.fetch_add(1, Relaxed);
                // The owner rests, so that all others come to wait.
                std::thread::sleep(Duration::from_micros(100));
                lock.release(0, Exclusive).unwrap();
            }
            f64::from(granted)
        };
        let counted: Vec<f64> = std::thread::scope(|scope| {
            let workers = [0, 1, 2, 3, 4, 5].map(|worker| scope.spawn(move || go_round(worker)));
            workers.map(|worker| worker.join().unwrap()).to_vec()
        });
        let truth = target.truth();
        let sum: f64 = counted.iter().sum();
        let even: f64 = counted.iter().step_by(2).sum();
        let noted = [
            ("granted", sum),
            ("granted_min", counted.iter().copied().fold(sum, f64::min)),
            ("granted_max", counted.iter().copied().fold(0.0, f64::max)),
            ("granted_worker_0", counted[0]),
            ("even_share", even / sum),
        ];
        for (name, counted) in noted {
            assert_eq!(truth[name], counted, "{policy}: {name}");
        }
        truth
    })
}

#[test]
fn unfair_notes_whom_it_favoured() {
    let queue = truth_of_a_crowd("queue");
    assert!(queue["handed"] > 100.0, "{queue:?}");

    // One that stands still on its way back to the lock competes for nothing: then it is
    // tried again.
    let is_starved = |truth: &Truth| {
        let granted = truth["granted_worker_0"];
        granted == truth["granted_min"] && granted * 4.0 < truth["granted_max"]
    };
    assert!((0..5).any(|_| is_starved(&truth_of_a_crowd("starve"))));

    let are_drawn = || {
        let [two_to_one, lottery] = ["2to1", "lottery"].map(truth_of_a_crowd);
        // Two or three of the five that wait are even; with weights the even half gets more
        // than its half.
        let gains = two_to_one["even_share"] > lottery["even_share"] + 0.03;
        // The last owner is not drawn, so that the halves alternate somewhat: the share
        // scatters by 0.41 over the root of the grants. With weights it is 0.64.
        let bound = 4.0 * 0.41 / lottery["granted"].sqrt();
        assert!(bound < 0.13, "{lottery:?}");
        gains && (lottery["even_share"] - 0.5).abs() < bound
    };
    assert!((0..5).any(|_| are_drawn()));
}

#[test]
fn a_waiter_that_gives_up_is_not_picked() {
    with_ledger(|ledger, _| {
        let target: Unfair = Bench {
            argument: Some("queue"),
            ..Bench::new(ledger)
        }
        .prepare();
        let [mut owner, mut waiter, mut other] = [0, 1, 2].map(|w| target.join(w).unwrap());
        owner.acquire(0, Exclusive, block()).unwrap();
        let until = Wait::Until(monotonic() + 5_000_000);
        assert_eq!(waiter.acquire(0, Exclusive, until), crate::common::REFUSED);
        owner.release(0, Exclusive).unwrap();
        assert_eq!(other.acquire(0, Exclusive, Wait::Try), GRANTED);
        assert_eq!(target.truth()["handed"], 0.0);
    });
}
