//! Waits: their order, their end, clients that leave.

use std::time::{Duration, Instant};

use crate::common::{Daemon, eventually, short};
use jostle_resp::Value;

#[test]
fn commands_behind_a_waiting_lock_wait_and_keep_their_order() {
    let daemon = Daemon::start(&[]);
    let (mut a, mut b) = (daemon.client(), daemon.client());
    assert_eq!(a.say("LOCK x"), "1");
    b.send("ECHO first");
    b.send("LOCK x");
    b.send("ECHO second");
    b.send("UNLOCK x");
    b.send("LOCK x WAIT 5");
    assert_eq!(short(&b.read()), "first");
    b.set_timeout(Duration::from_millis(50));
    assert!(
        b.try_read().is_err(),
        "nothing behind the LOCK may be answered"
    );
    b.set_timeout(Duration::from_secs(120));
    assert_eq!(a.say("UNLOCK x"), "1");
    let replies: Vec<_> = (0..4).map(|_| short(&b.read())).collect();
    assert_eq!(replies, ["2", "second", "1", "3"]);
}

#[test]
fn a_client_that_was_woken_with_commands_behind_is_woken_again() {
    // The first wake-up, by a disconnect, left the connection marked as having
    // something to send; so the second grant never left the server.
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    client.set_timeout(Duration::from_secs(120));
    for round in 0..3 {
        let mut holder = daemon.client();
        holder.token("LOCK x");
        client.send("LOCK x");
        let behind = round % 2 == 0;
        if behind {
            client.send("ECHO behind");
        }
        daemon.await_info("waiters", 1);
        drop(holder);
        assert!(client.read().as_integer().is_some(), "round {round}");
        if behind {
            assert_eq!(short(&client.read()), "behind");
        }
        assert_eq!(client.say("UNLOCK x"), "1");
    }
}

#[test]
fn a_wait_ends_to_the_millisecond() {
    let daemon = Daemon::start(&[]);
    let (mut a, mut b) = (daemon.client(), daemon.client());
    a.say("LOCK x");
    for wait_ms in [1, 7, 50, 300] {
        let mut wait = || {
            let start = Instant::now();
            assert_eq!(b.say(&format!("LOCK x WAIT {wait_ms}")), "nil");
            let took = start.elapsed();
            assert!(
                took >= Duration::from_millis(wait_ms),
                "{took:?} for {wait_ms} ms"
            );
            took
        };
        // One of a hundred: the machine may be busy.
        let in_time = Duration::from_millis(wait_ms + 50);
        assert!((0..100).any(|_| wait() < in_time), "{wait_ms} ms");
    }
}

#[test]
fn a_disconnect_cancels_the_wait_and_what_was_behind_it() {
    let daemon = Daemon::start(&[]);
    let (mut a, mut b, mut c) = (daemon.client(), daemon.client(), daemon.client());
    a.say("LOCK x");
    b.send("LOCK x TTL 60000");
    daemon.await_info("waiters", 1);
    b.send("LOCK y TTL 60000");
    c.send("LOCK x");
    daemon.await_info("waiters", 2);
    drop(b);
    daemon.await_info("waiters", 1);
    assert_eq!(a.say("UNLOCK x"), "1");
    assert_eq!(c.read(), Value::Integer(2));
    assert_eq!(a.say("TRYLOCK y"), "3");
    // What a connection owns goes with it, and to the next in line.
    a.send("LOCK x");
    daemon.await_info("waiters", 1);
    drop(c);
    assert_eq!(a.read(), Value::Integer(4));
}

#[test]
fn a_client_that_gives_up_before_its_wait_ends_leaks_no_grant() {
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.client();
    for round in 0..50 {
        holder.token("LOCK x");
        let expirations = daemon.info("expirations");
        let mut hasty = daemon.client();
        // It wants a lease, which would outlive it.
        hasty.send("LOCK x TTL 3000 WAIT 60000");
        daemon.await_info("waiters", 1);
        hasty.set_timeout(Duration::from_millis(1 + round % 3));
        assert!(hasty.try_read().is_err());
        drop(hasty);
        if round % 2 == 0 {
            daemon.await_info("waiters", 0);
        } // Else it closes and the lock is released at the same time.
        holder.say("UNLOCK x");
        eventually("the lock is free", || daemon.info("holds") == 0);
        // At the same time, a busy kernel may deliver the release before the end of the
        // other connection, and the lease then runs out.
        assert!(round % 2 == 1 || daemon.info("expirations") == expirations);
    }
}

#[test]
fn waits_of_clients_that_have_given_up_end_with_max_wait() {
    let daemon = Daemon::start(&["--max-wait", "1"]);
    let (mut a, mut b) = (daemon.client(), daemon.client());
    a.token("LOCK x");
    let start = Instant::now();
    assert_eq!(b.say("LOCK x"), "nil");
    assert!(start.elapsed() >= Duration::from_secs(1));
}
