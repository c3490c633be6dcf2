//! One lock.

use crate::service::{Daemon, eventually};
use crate::world::{SECOND, World, at_once, in_each, locks};
use jostle_lock::{Error, Locks, Wish};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

fn wish(wait: Duration, ttl: Option<Duration>) -> Wish {
    let wish = Wish::waiting(wait);
    match ttl {
        Some(ttl) => wish.ttl(ttl),
        None => wish,
    }
}

fn error_of(locks: &Locks, name: &str, wish: &Wish) -> Error {
    locks.acquire(name, wish).err().expect("it was granted")
}

#[test]
fn without_a_password_it_tells_what_to_give() {
    let daemon = Daemon::with("JOSTLED_PASSWORD", Some("secret"));
    let error = error_of(&locks(daemon.port, SECOND, 0), "job", &at_once());
    let told = matches!(&error, Error::Refused(text) if text.starts_with("NOAUTH give user"));
    assert!(told, "{error}");
    let url = format!("redis://:secret@127.0.0.1:{}", daemon.port);
    let locks = Locks::new(url, Default::default()).unwrap();
    locks.acquire("job", &at_once()).unwrap().release().unwrap();
}

#[test]
fn a_lock_excludes_and_tokens_grow() {
    let World { daemon, locks, .. } = &World::new();
    let mut last = 0;
    for ttl in [None, Some(60 * SECOND)] {
        let held = locks.acquire("job", &wish(10 * SECOND, ttl)).unwrap();
        assert!(held.token() > last && !held.is_lost());
        last = held.token();
        for wait in [Duration::ZERO, Duration::from_millis(50)] {
            let error = error_of(locks, "job", &Wish::waiting(wait));
            assert!(matches!(error, Error::NotGranted(_)), "{error}");
        }
        held.release().unwrap();
        daemon.settles();
    }
    drop(locks.acquire("job", &at_once()).unwrap());
    daemon.settles();
}

#[test]
fn readers_share_and_places_are_counted() {
    let World { locks, .. } = &World::new();
    for wish in [at_once().shared(), at_once().of(2)] {
        let held = [
            locks.acquire("book", &wish).unwrap(),
            locks.acquire("book", &wish).unwrap(),
        ];
        let error = error_of(locks, "book", &at_once().of(3));
        assert!(
            matches!(&error, Error::Refused(why) if why.contains("BADLIMIT")),
            "{error}"
        );
        for held in held {
            held.release().unwrap();
        }
    }
}

#[test]
fn a_lease_is_renewed_while_it_is_held() {
    let World { daemon, locks, .. } = &World::new();
    let held = locks.acquire("job", &at_once().ttl(3 * SECOND)).unwrap();
    eventually("renewals", || daemon.info("renewals") >= 3);
    held.release().unwrap();
    assert_eq!(daemon.info("expirations"), 0);
}

#[test]
fn only_what_is_held_for_long_is_renewed() {
    let daemon = Daemon::with("JOSTLED_PASSWORD", None);
    let ttl_ms = || {
        let holder = daemon.ask("HOLDER job");
        let (_, ttl) = holder.split_once("ttl-ms\r\n:").unwrap();
        ttl.lines().next().unwrap().parse::<u64>().unwrap()
    };
    // It would be renewed after a second.
    for attempt in 1.. {
        let before = daemon.info("renewals");
        let patient = locks(daemon.port, 20 * SECOND, 0);
        let held = patient.acquire("job", &at_once().ttl(60 * SECOND)).unwrap();
        assert!(ttl_ms() > 30_000);
        held.release().unwrap();
        if daemon.info("renewals") == before {
            break;
        }
        assert!(attempt < 20, "it is renewed at once");
    }
    // Such a lease is short until the first renewal.
    let held = locks(daemon.port, 5 * SECOND, 0).acquire("job", &at_once().ttl(60 * SECOND));
    eventually("longer", || ttl_ms() > 30_000);
    held.unwrap().release().unwrap();
}

#[test]
fn a_lock_that_is_taken_away_is_reported() {
    let World { daemon, locks, .. } = &World::new();
    let held = locks.acquire("job", &at_once().ttl(3 * SECOND)).unwrap();
    daemon.ask("FORCEUNLOCK job");
    eventually("lost", || held.is_lost());
    let error = held.check().unwrap_err();
    assert!(
        matches!(&error, Error::LockLost(why) if why.contains("NOTOWNER")),
        "{error}"
    );
    let other = locks.acquire("job", &at_once()).unwrap();
    daemon.ask("FORCEUNLOCK job");
    assert!(matches!(other.release(), Err(Error::LockLost(_))));
}

#[test]
fn a_holder_is_told_that_its_lock_is_lost() {
    in_each(
        &["stopped", "cut off", "killed"],
        &[0, 1500],
        |world, fault, ttl| {
            let told = Arc::new(AtomicUsize::new(0));
            let tells = Arc::clone(&told);
            let wish = wish(10 * SECOND, ttl).on_lost(move |lost| {
                assert_eq!(lost.name, "job");
                tells.fetch_add(1, Ordering::SeqCst);
            });
            let held = world.locks.acquire("job", &wish).unwrap();
            assert!(!held.is_lost());
            world.begin(fault);
            eventually("lost", || {
                held.is_lost() && told.load(Ordering::SeqCst) == 1
            });
            assert!(matches!(held.release(), Err(Error::LockLost(_))));
            if fault != "killed" {
                world.end();
                world.daemon.settles();
            }
            assert_eq!(told.load(Ordering::SeqCst), 1);
        },
    );
}

#[test]
fn nothing_stays_behind_when_no_answer_comes() {
    in_each(
        &["stopped", "cut off"],
        &[0, 600_000],
        |world, fault, ttl| {
            world.begin(fault);
            let error = error_of(&world.locks, "job", &wish(SECOND / 10, ttl));
            assert!(matches!(error, Error::NoAnswer(_)), "{error}");
            world.end();
            world.daemon.settles();
        },
    );
}

#[test]
fn a_waiter_that_gives_up_leaves_the_line() {
    in_each(
        &["stopped", "cut off"],
        &[0, 600_000],
        |world, fault, ttl| {
            let direct = locks(world.daemon.port, 60 * SECOND, 0);
            let first = direct.acquire("job", &at_once()).unwrap();
            thread::scope(|scope| {
                let waits = scope.spawn(|| error_of(&world.locks, "job", &wish(SECOND, ttl)));
                eventually("it waits", || world.daemon.info("waiters") == 1);
                world.begin(fault);
                let error = waits.join().unwrap();
                assert!(matches!(error, Error::NoAnswer(_)), "{error}");
            });
            world.end();
            eventually("no waiters", || world.daemon.info("waiters") == 0);
            first.release().unwrap();
            world.daemon.settles();
        },
    );
}

#[test]
fn a_killed_daemon_gives_no_answer() {
    let world = World::new();
    world.begin("killed");
    let error = error_of(&world.locks, "job", &at_once());
    assert!(matches!(error, Error::NoAnswer(_)), "{error}");
}

#[test]
fn a_lease_outlives_a_link_that_is_cut_for_a_moment() {
    let World {
        daemon,
        link,
        locks,
    } = &World::new();
    let held = locks.acquire("job", &at_once().ttl(3 * SECOND)).unwrap();
    let before = daemon.info("renewals");
    link.set(true);
    eventually("another connection", || link.opened() >= 2);
    link.set(false);
    eventually("a renewal", || daemon.info("renewals") > before);
    held.release().unwrap();
    daemon.settles();
}

#[test]
fn a_lease_is_renewed_soon_when_its_connection_breaks() {
    let World {
        daemon,
        link,
        locks,
    } = &World::new();
    // A third of it is 20 minutes.
    let held = locks.acquire("job", &at_once().ttl(3600 * SECOND)).unwrap();
    let opened = link.opened();
    let holder = daemon.ask("HOLDER job");
    let (_, client) = holder.split_once("client\r\n:").unwrap();
    let client = client.lines().next().unwrap();
    daemon.ask(&format!("CLIENT KILL ID {client}"));
    eventually("another connection", || link.opened() > opened);
    let before = daemon.info("renewals");
    eventually("a renewal", || daemon.info("renewals") > before);
    held.release().unwrap();
}

#[test]
fn a_second_attempt_gets_the_lock() {
    let World { daemon, link, .. } = &World::new();
    let locks = locks(link.port, SECOND, 5);
    link.set(true);
    let held = thread::scope(|scope| {
        let attempts = scope.spawn(|| locks.acquire("job", &Wish::waiting(SECOND / 2)));
        eventually("another attempt", || link.opened() >= 2);
        link.set(false);
        attempts.join().unwrap().unwrap()
    });
    eventually("one hold", || daemon.info("holds") == 1);
    assert_eq!(daemon.info("waiters"), 0);
    held.release().unwrap();
    daemon.settles();
}
