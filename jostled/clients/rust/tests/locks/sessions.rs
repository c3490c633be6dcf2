//! Sessions.

use crate::expect::{counting, is, lost, no_answer, not_granted, refused};
use crate::service::eventually;
use crate::world::{SECOND, World, at_once, in_each, locks};
use jostle_lock::{SessionWish, Wish};
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

const FAULTS: &[&str] = &["stopped", "cut off"];
const ALL_FAULTS: &[&str] = &["stopped", "cut off", "killed"];
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_session_owns_its_locks_until_it_is_closed() {
    let World { daemon, locks, .. } = &World::new();
    let session = locks.session(SessionWish::ttl(HOUR)).unwrap();
    let other = locks.session(SessionWish::ttl(HOUR)).unwrap();
    let a = session.acquire("a", &at_once()).unwrap();
    let b = session.acquire("b", &at_once().of(2)).unwrap();
    assert!(b.token() > a.token());
    a.release().unwrap();
    locks.acquire("a", &at_once()).unwrap().release().unwrap();
    let place = other.acquire("b", &at_once().of(2)).unwrap();
    not_granted(locks.acquire("b", &at_once().of(2)));
    refused("ALREADYHELD", session.acquire("b", &at_once().of(2)));
    let c = session.acquire("c", &at_once()).unwrap();
    not_granted(other.acquire("c", &Wish::waiting(SECOND / 20)));
    assert!(!c.is_lost());
    drop(c);
    assert_eq!(daemon.info("holds"), 2);
    place.release().unwrap();
    std::mem::forget(b); // It ends with its session.
    session.close().unwrap();
    daemon.settles();
    drop(other);
    is(daemon, "sessions", 0);
    is(daemon, "connected_clients", 1);
}

#[test]
fn one_renewal_is_enough_for_all_locks_of_a_session() {
    let World { daemon, locks, .. } = &World::new();
    let session = locks.session(SessionWish::ttl(3 * SECOND)).unwrap();
    let held: Vec<_> = (0..20)
        .map(|n| session.acquire(&n.to_string(), &at_once()).unwrap())
        .collect();
    let before = daemon.info("cmd_session");
    eventually("renewals", || daemon.info("cmd_session") >= before + 4);
    for one in &held {
        one.check().unwrap();
    }
    assert_eq!(daemon.info("holds"), 20);
}

#[test]
fn who_waits_in_the_name_of_a_session_that_ends_is_told() {
    let World { daemon, locks, .. } = &World::new();
    let (told, tells) = counting();
    let session = locks
        .session(SessionWish::ttl(HOUR).on_lost(tells))
        .unwrap();
    let mine = session.acquire("other", &at_once()).unwrap();
    let held = locks.acquire("job", &at_once()).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let wish = Wish::waiting(60 * SECOND);
            lost("NOSESSION", session.acquire("job", &wish))
        });
        is(daemon, "waiters", 1);
        daemon.ask(&format!("SESSION CLOSE {}", session.id()));
        let why = waits.join().unwrap();
        assert!(!why.contains(session.id()), "{why}");
    });
    eventually("told", || told.load(SeqCst) == 1);
    lost("NOSESSION", mine.check());
    lost("NOSESSION", mine.release());
    lost("NOSESSION", session.close());
    held.release().unwrap();
}

#[test]
fn a_lock_of_a_session_that_was_taken_away_is_reported_by_its_release() {
    let World { daemon, locks, .. } = &World::new();
    let session = locks.session(SessionWish::ttl(HOUR)).unwrap();
    let held = session.acquire("job", &at_once()).unwrap();
    daemon.ask("FORCEUNLOCK job");
    lost("NOT", held.release());
    session.check().unwrap();
}

#[test]
fn sessions_that_make_no_sense_are_told() {
    let World { locks, .. } = &World::new();
    lost(
        "NOSESSION",
        locks.take_up(&"0".repeat(32), SessionWish::ttl(HOUR)),
    );
    let session = locks.session(SessionWish::ttl(HOUR)).unwrap();
    for wrong in [at_once().ttl(SECOND), at_once().on_lost(|_| ())] {
        refused("a lock of a session has no", session.acquire("job", &wrong));
    }
}

#[test]
fn a_session_is_lost_with_all_its_locks() {
    in_each(ALL_FAULTS, &[1500], |world, fault, ttl| {
        let (told, tells) = counting();
        let wish = SessionWish::ttl(ttl.unwrap()).on_lost(tells);
        let session = world.locks.session(wish).unwrap();
        let held = ["a", "b"].map(|name| session.acquire(name, &at_once()).unwrap());
        world.begin(fault);
        eventually("lost", || session.is_lost() && told.load(SeqCst) == 1);
        for one in held {
            assert!(one.is_lost());
            lost("session", one.release());
        }
        lost("session", session.acquire("c", &at_once()));
        lost("session", session.close());
        if fault != "killed" {
            world.end();
            world.daemon.settles();
            is(&world.daemon, "sessions", 0);
        }
        assert_eq!(told.load(SeqCst), 1);
    });
}

#[test]
fn who_gives_up_waiting_in_a_session_leaves_the_line() {
    in_each(FAULTS, &[600_000], |world, fault, ttl| {
        let direct = locks(world.daemon.port, 60 * SECOND, 0);
        let first = direct.acquire("job", &at_once()).unwrap();
        let session = world.locks.session(SessionWish::ttl(ttl.unwrap())).unwrap();
        let held = session.acquire("other", &at_once()).unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| no_answer(session.acquire("job", &Wish::waiting(SECOND))));
            is(&world.daemon, "waiters", 1);
            world.begin(fault);
            waits.join().unwrap();
        });
        no_answer(held.release()); // The session may still have it.
        session.check().unwrap();
        world.end();
        is(&world.daemon, "waiters", 0);
        first.release().unwrap();
        session.close().unwrap();
        world.daemon.settles();
    });
}

#[test]
fn a_request_whose_answer_was_lost_finds_its_lock() {
    let at_once = at_once();
    for wish in [at_once.clone(), at_once.clone().shared(), at_once.of(3)] {
        let World {
            daemon,
            link,
            locks,
        } = &World::new();
        let session = locks.session(SessionWish::ttl(HOUR)).unwrap();
        link.lose_answer_to("LOCK");
        no_answer(session.acquire("job", &wish));
        let held = session.acquire("job", &wish).unwrap();
        assert_eq!((held.token(), daemon.info("holds")), (1, 1));
        // It is one lock, held once: who asks beside it is refused.
        refused("ALREADYHELD", session.acquire("job", &wish));
        held.release().unwrap();
        daemon.settles();
        assert_eq!(session.acquire("job", &wish).unwrap().token(), 2);
    }
}

#[test]
fn a_retry_finds_the_lock_of_the_request_that_it_repeats() {
    let World { daemon, link, .. } = &World::new();
    let locks = locks(link.port, SECOND, 1);
    let session = locks.session(SessionWish::ttl(HOUR)).unwrap();
    link.lose_answer_to("LOCK");
    let held = session.acquire("job", &at_once()).unwrap();
    assert_eq!((held.token(), daemon.info("grants")), (1, 1));
    held.release().unwrap();
    // One that is taken up claims nothing that it did not ask for.
    let held = session.acquire("job", &at_once()).unwrap();
    let other = locks.take_up(session.id(), SessionWish::ttl(HOUR)).unwrap();
    refused("ALREADYHELD", other.acquire("job", &at_once()));
    held.release().unwrap();
}

#[test]
fn a_session_outlives_a_link_that_is_cut_for_a_moment() {
    let World {
        daemon,
        link,
        locks,
    } = &World::new();
    let session = locks.session(SessionWish::ttl(3 * SECOND)).unwrap();
    let held = session.acquire("job", &at_once()).unwrap();
    let opened = link.opened();
    link.set(true);
    eventually("another connection", || link.opened() > opened);
    link.set(false);
    let before = daemon.info("cmd_session");
    eventually("a renewal", || daemon.info("cmd_session") > before);
    held.release().unwrap();
    session.close().unwrap();
}

#[test]
fn a_session_that_is_taken_up_again_keeps_its_locks() {
    let world = World::new();
    let wish = || SessionWish::ttl(3 * SECOND);
    let first = world.locks.session(wish()).unwrap();
    let held = first.acquire("job", &at_once()).unwrap();
    let direct = locks(world.daemon.port, 5 * SECOND, 0);
    let session = direct.take_up(first.id(), wish()).unwrap();
    world.begin("cut off");
    // Renewed over the other connection alone, for longer than it lasts.
    eventually("the first one is lost", || first.is_lost());
    let before = world.daemon.info("cmd_session");
    let renewed = || world.daemon.info("cmd_session") >= before + 3;
    eventually("renewals", renewed);
    not_granted(direct.acquire("job", &at_once()));
    session.held("job", held.token()).release().unwrap();
    let again = session.acquire("job", &at_once()).unwrap();
    assert!(again.token() > held.token());
    again.release().unwrap();
    session.close().unwrap();
    world.end();
    world.daemon.settles();
}
