//! Several locks at once, and places.

use crate::expect::{counting, is, lost, no_answer, not_granted, refused};
use crate::service::eventually;
use crate::world::{SECOND, World, at_once, in_each, locks};
use jostle_lock::{Wish, WishAll};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const FAULTS: &[&str] = &["stopped", "cut off"];
const ALL_FAULTS: &[&str] = &["stopped", "cut off", "killed"];
const HOUR: Duration = Duration::from_secs(3600);

fn all(wait: Duration, ttl: Option<Duration>) -> WishAll {
    let wish = WishAll::waiting(wait);
    match ttl {
        Some(ttl) => wish.ttl(ttl),
        None => wish,
    }
}

#[test]
fn several_are_granted_all_or_none_and_tokens_grow() {
    let World { daemon, locks, .. } = &World::new();
    let mut last = 0;
    for ttl in [None, Some(60 * SECOND)] {
        let held = locks
            .acquire_all(&["a", "b", "c"], all(SECOND, ttl))
            .unwrap();
        for name in ["a", "b", "c"] {
            assert!(held.tokens()[name] > last, "{:?}", held.tokens());
            last = held.tokens()[name];
        }
        for wait in [Duration::ZERO, Duration::from_millis(50)] {
            not_granted(locks.acquire_all(&["d", "c"], all(wait, None)));
        }
        locks.acquire("d", &at_once()).unwrap().release().unwrap();
        not_granted(locks.acquire("b", &at_once()));
        assert_eq!(daemon.info("holds"), 3);
        held.check().unwrap();
        held.release().unwrap();
        daemon.settles();
    }
    drop(
        locks
            .acquire_all(&["a", "b"], all(SECOND, Some(HOUR)))
            .unwrap(),
    );
    daemon.settles();
}

#[test]
fn several_are_taken_in_any_order_without_a_deadlock() {
    let World { locks, .. } = &World::new();
    let inside: [AtomicUsize; 3] = Default::default();
    let alone = AtomicUsize::new(0);
    thread::scope(|scope| {
        for order in [[0, 1], [1, 0], [1, 2], [2, 0]] {
            let (inside, alone) = (&inside, &alone);
            scope.spawn(move || {
                let names = order.map(|at| at.to_string());
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                for _ in 0..20 {
                    let wish = all(60 * SECOND, Some(60 * SECOND));
                    let held = locks.acquire_all(&names, wish).unwrap();
                    for at in order {
                        let before = inside[at].fetch_add(1, SeqCst);
                        alone.fetch_add(usize::from(before == 0), SeqCst);
                    }
                    for at in order {
                        inside[at].fetch_sub(1, SeqCst);
                    }
                    held.release().unwrap();
                }
            });
        }
    });
    assert_eq!(alone.load(SeqCst), 160);
}

#[test]
fn every_lease_is_renewed_and_all_are_lost_when_one_is() {
    let World { daemon, locks, .. } = &World::new();
    let (told, tells) = counting();
    let wish = all(SECOND, Some(3 * SECOND)).on_lost(tells);
    let held = locks.acquire_all(&["a", "b"], wish).unwrap();
    eventually("renewals", || daemon.info("renewals") >= 6);
    held.check().unwrap();
    assert_eq!(daemon.info("expirations"), 0);
    daemon.ask("FORCEUNLOCK b");
    eventually("told", || told.load(SeqCst) == 1);
    lost("NOTOWNER", held.check());
    lost("a, b (tokens", held.release());
}

#[test]
fn a_release_reports_what_was_taken_away_and_gives_back_the_rest() {
    let World { daemon, locks, .. } = &World::new();
    for ttl in [None, Some(60 * SECOND)] {
        let held = locks
            .acquire_all(&["a", "b", "c"], all(SECOND, ttl))
            .unwrap();
        daemon.ask("FORCEUNLOCK a");
        lost("NOT", held.release());
        daemon.settles();
    }
}

#[test]
fn several_that_the_daemon_does_not_take_are_refused() {
    let World { daemon, locks, .. } = &World::new();
    for wrong in [&[][..], &["a", "a"], &["n"; 65]] {
        refused("LOCKALL takes", locks.acquire_all(wrong, all(SECOND, None)));
    }
    daemon.settles();
}

#[test]
fn so_many_get_in_and_no_more() {
    let World { daemon, locks, .. } = &World::new();
    for wish in [
        Wish::waiting(60 * SECOND).of(3),
        Wish::waiting(60 * SECOND).of(3).ttl(60 * SECOND),
    ] {
        let (inside, most) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
        thread::scope(|scope| {
            let leave: Vec<mpsc::Sender<()>> = (0..8)
                .map(|_| {
                    let (leave, go) = mpsc::channel();
                    let wish = &wish;
                    scope.spawn(move || {
                        let held = locks.acquire("seat", wish).unwrap();
                        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        let _ = go.recv(); // Until the sender is dropped.
                        inside.fetch_sub(1, SeqCst);
                        held.release().unwrap();
                    });
                    leave
                })
                .collect();
            eventually("three are in", || inside.load(SeqCst) == 3);
            is(daemon, "waiters", 5);
            not_granted(locks.acquire("seat", &at_once().of(3)));
            refused("BADLIMIT", locks.acquire("seat", &at_once().of(4)));
            drop(leave);
        });
        assert_eq!((inside.load(SeqCst), most.load(SeqCst)), (0, 3));
        daemon.settles();
    }
}

#[test]
fn a_holder_of_several_is_told_that_they_are_lost() {
    in_each(ALL_FAULTS, &[0, 1500], |world, fault, ttl| {
        let (told, tells) = counting();
        let wish = all(SECOND, ttl).on_lost(tells);
        let held = world.locks.acquire_all(&["a", "b"], wish).unwrap();
        world.begin(fault);
        eventually("lost", || held.is_lost() && told.load(SeqCst) == 1);
        lost("a, b", held.release());
        if fault != "killed" {
            world.end();
            world.daemon.settles();
        }
        assert_eq!(told.load(SeqCst), 1);
    });
}

#[test]
fn nothing_stays_behind_when_several_are_not_answered() {
    in_each(FAULTS, &[0, 600_000], |world, fault, ttl| {
        world.begin(fault);
        no_answer(world.locks.acquire_all(&["a", "b"], all(SECOND / 10, ttl)));
        world.end();
        world.daemon.settles();
    });
}

#[test]
fn who_gives_up_waiting_for_several_leaves_all_lines() {
    in_each(FAULTS, &[0, 600_000], |world, fault, ttl| {
        let direct = locks(world.daemon.port, 60 * SECOND, 0);
        let first = direct.acquire("b", &at_once()).unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                no_answer(world.locks.acquire_all(&["a", "b"], all(SECOND, ttl)));
            });
            is(&world.daemon, "waiters", 2);
            world.begin(fault);
            waits.join().unwrap();
        });
        world.end();
        is(&world.daemon, "waiters", 0);
        direct.acquire("a", &at_once()).unwrap().release().unwrap();
        first.release().unwrap();
        world.daemon.settles();
    });
}
