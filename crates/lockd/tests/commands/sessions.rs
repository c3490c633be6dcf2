//! Sessions: one heartbeat for many locks.

use std::time::{Duration, Instant};

use crate::common::{Daemon, short};
use jostle_resp::Value;

#[test]
fn a_session_owns_its_locks_over_connections_and_ends_at_its_time() {
    let daemon = Daemon::start(&[]);
    let (mut a, mut b) = (daemon.client(), daemon.client());
    let id = a.say("SESSION OPEN TTL 600000");
    assert_eq!(id.len(), 32, "{id}");
    let of_session = format!("SESSION {id}");
    assert_eq!(a.token(&format!("LOCK x {of_session}")), 1);
    assert_eq!(b.token(&format!("TRYLOCK s SHARED session {id}")), 2);
    assert_eq!(b.token(&format!("LOCK p OF 2 {of_session}")), 3);
    for (line, expected) in [
        (format!("LOCK x {of_session}"), "ALREADYHELD"),
        (format!("LOCK y {of_session} TTL 100"), "ERR"),
        (format!("LOCKALL 1 y {of_session}"), "ERR"),
        (format!("LOCK y SESSION {}", "0".repeat(32)), "NOSESSION"),
        ("LOCK y SESSION short".to_owned(), "NOSESSION"),
        ("LOCK y SESSION".to_owned(), "NOSESSION"),
        ("UNLOCK x".to_owned(), "NOTOWNER"),
        ("RENEW x 1 TTL 1000".to_owned(), "NOLEASE"),
        (format!("SESSION RENEW {id}"), "1"),
        (format!("SESSION RENEW {}", id.to_uppercase()), "1"),
        ("SESSION RENEW short".to_owned(), "NOSESSION"),
        ("SESSION OPEN TTL 0".to_owned(), "ERR"),
        ("SESSION OPEN 100".to_owned(), "ERR"),
        ("SESSION LIST x".to_owned(), "ERR"),
    ] {
        assert_eq!(b.say(&line), expected, "{line}");
    }
    drop(a);
    daemon.await_info("connected_clients", 2);
    assert_eq!(b.say("TRYLOCK x"), "nil");
    assert_eq!((b.info("holds"), b.info("sessions")), (3, 1));
    // Its wait ends with the connection; the session goes on.
    let mut waiter = daemon.client();
    assert_eq!(b.token("LOCK w"), 4);
    waiter.send(&format!("LOCK w {of_session}"));
    daemon.await_info("waiters", 1);
    drop(waiter);
    daemon.await_info("waiters", 0);
    // The end tells those who wait in its name, and serves the others.
    let mut waiter = daemon.client();
    waiter.send(&format!("LOCK w {of_session}"));
    daemon.await_info("waiters", 1);
    let mut other = daemon.client();
    other.send("LOCK x");
    daemon.await_info("waiters", 2);
    assert_eq!(b.say(&format!("SESSION CLOSE {id}")), "1");
    assert_eq!(short(&waiter.read()), "NOSESSION");
    assert_eq!(other.read().as_integer(), Some(5));
    assert_eq!(b.say(&format!("SESSION CLOSE {id}")), "NOSESSION");
    assert_eq!(b.info("releases_by_session"), 3);
    assert_eq!(b.info("waits_without_session"), 1);
}

#[test]
fn a_session_that_is_not_renewed_ends_and_one_that_is_lives() {
    let daemon = Daemon::start(&["--max-sessions", "2"]);
    let (mut a, mut b) = (daemon.client(), daemon.client());
    let start = Instant::now();
    let id = a.say("SESSION OPEN TTL 300");
    let kept = a.say("SESSION OPEN TTL 600000");
    assert_eq!(a.say("SESSION OPEN TTL 300"), "TOOMANYSESSIONS");
    a.token(&format!("LOCK x SESSION {id}"));
    a.token(&format!("LOCK y SESSION {kept}"));
    assert_eq!(b.say("LOCK x WAIT 60000"), "3");
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(a.say(&format!("SESSION RENEW {id}")), "NOSESSION");
    assert_eq!(a.say(&format!("SESSION RENEW {kept}")), "1");
    assert_eq!(b.say("TRYLOCK y"), "nil");
}

#[test]
fn sessions_work_in_a_transaction() {
    let daemon = Daemon::start(&[]);
    let (mut a, mut b) = (daemon.client(), daemon.client());
    let id = a.say("SESSION OPEN TTL 600000");
    let lock = format!("LOCK x SESSION {id}");
    for (line, expected) in [
        ("MULTI", "OK"),
        (&*lock, "QUEUED"),
        (&*lock, "QUEUED"),
        ("SESSION RENEW no", "QUEUED"),
    ] {
        assert_eq!(b.say(line), expected);
    }
    let replies = b.ask("EXEC");
    let Value::Array(replies) = replies else {
        panic!("{replies:?}")
    };
    let replies: Vec<String> = replies.iter().map(short).collect();
    assert_eq!(replies, ["1", "ALREADYHELD", "NOSESSION"]);
}
