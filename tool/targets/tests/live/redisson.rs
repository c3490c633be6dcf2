//! The recipe of `redisson` on a real server, which counts the commands that it gets.

use jostle_sys::clock::monotonic;
use jostle_sys::ledger::Ledger;
use jostle_targets::address::Address;
use jostle_targets::redisson::Redisson;
use jostle_targets::remote::Client;
use jostle_targets::{CallError, Lock, Mode, Outcome, Setup, Target, Wait};
use jostle_testbed::lock_servers as servers;
use std::time::{Duration, Instant};

const GRANTED: Result<Outcome, CallError> = Ok(Outcome::Granted);

/// The server of this test's thread.
fn with(check: impl FnOnce(&Redisson, Client)) {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let argument = servers::argument("redis").unwrap();
    let setup = Setup {
        argument: Some(argument),
        ..servers::setup(&ledger, 3)
    };
    let target = Redisson::prepare(&setup).unwrap();
    let client = Client::connect(&Address::tcp(argument).unwrap()).unwrap();
    check(&target, client);
    target.remove_leftovers().unwrap();
    ledger.sweep().unwrap();
}

fn block() -> Wait {
    Wait::Block {
        last_resort_ns: monotonic() + 60_000_000_000,
    }
}

/// How often the server has run a command.
fn count(server: &mut Client, command: &str) -> u64 {
    let told = server.ask(&[b"INFO", b"commandstats"]).unwrap();
    let told = String::from_utf8(told).unwrap();
    let name = format!("cmdstat_{command}:calls=");
    let line = told.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_waiter_is_woken_by_the_release_with_as_many_commands_as_the_recipe_says() {
    with(|target, mut server| {
        let mut owner = target.join(0).unwrap();
        let mut waiter = target.join(1).unwrap();
        assert_eq!(owner.acquire(0, Mode::Exclusive, block()), GRANTED);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let granted = waiter.acquire(0, Mode::Exclusive, block());
                (granted, waiter.release(0, Mode::Exclusive))
            });
            // The owner's, and the waiter's before and after it subscribed.
            wait_for(|| count(&mut server, "evalsha") == 3);
            assert_eq!(count(&mut server, "subscribe"), 1);
            assert_eq!(owner.release(0, Mode::Exclusive), Ok(()));
            assert_eq!(waits.join().unwrap(), (GRANTED, Ok(())));
        });
        // Not by the end of the lease.
        assert!(begun.elapsed() < Duration::from_secs(29));
        let counted = ["evalsha", "subscribe", "publish", "unsubscribe"];
        let counted = counted.map(|command| count(&mut server, command));
        assert_eq!(counted, [3 + 3, 1, 2, 1]);
        // Each release removes the lock, by the script, and the latch, which nobody waits for.
        wait_for(|| count(&mut server, "del") == 2 + 2);
        let latches = server.ask(&[
            b"EVAL",
            b"return #redis.call('keys', '*latch*') .. ''",
            b"0",
        ]);
        assert_eq!(latches.unwrap(), b"0");
        // Try, subscribe, try again, after the message; the end of the subscription goes with
        // the release, and the removal of its latch follows.
        assert_eq!(waiter.traffic().unwrap().round_trips, 6);
        waiter.part().unwrap();
    });
}

#[test]
fn a_timeout_ends_the_subscription_and_a_lapsed_lease_is_told_at_the_release() {
    with(|target, mut server| {
        let mut locks = [0, 1].map(|worker| target.join(worker).unwrap());
        let [owner, late] = &mut locks;
        assert_eq!(owner.acquire(0, Mode::Exclusive, block()), GRANTED);
        // Longer where it has not come to subscribe on a busy machine.
        let mut subscribes_within = |ms: u64| {
            let soon = Wait::Until(monotonic() + ms * 1_000_000);
            let refused = late.acquire(0, Mode::Exclusive, soon);
            assert_eq!(refused, Ok(Outcome::Refused));
            count(&mut server, "subscribe") > 0
        };
        assert!([500, 2_000, 10_000].into_iter().any(&mut subscribes_within));
        let subscribed = count(&mut server, "subscribe");
        assert_eq!(count(&mut server, "unsubscribe"), subscribed);
        // As if it had lapsed.
        target.remove_leftovers().unwrap();
        let told = owner.release(0, Mode::Exclusive).unwrap_err().to_string();
        assert!(told.contains("no longer ours"), "{told}");
        assert_eq!(late.acquire(0, Mode::Exclusive, Wait::Try), GRANTED);
        assert_eq!(late.release(0, Mode::Exclusive), Ok(()));
    });
}
