//! Sessions: one heartbeat for many locks.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::common::{Daemon, short};
use jostle_resp::Value;
use jostle_resp::request::encode;

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
        (format!("LOCKALL 1 y {of_session} TTL 1"), "ERR"),
        (format!("LOCKALL 2 y x {of_session}"), "ALREADYHELD"),
        (format!("PLACE x {of_session}"), "nil"),
        (format!("PLACE x {of_session} y"), "ERR"),
        ("PLACE x SESSION short".to_owned(), "nil"),
        ("PLACE x OF 1".to_owned(), "ERR"),
        ("SESSION OPEN TTL 9 AS".to_owned(), "ERR"),
        ("SESSION OPEN TTL 9 TO me".to_owned(), "ERR"),
        ("SESSION OPEN TTL 9 AS \u{1b}[2J".to_owned(), "ERR"),
        (format!("SESSION OPEN TTL 9 AS {}", "x".repeat(256)), "ERR"),
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
    // The end answers the waiters in its name, and serves the others.
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
    let kept = a.say("SESSION OPEN TTL 600000");
    let other = a.say("SESSION OPEN TTL 600000");
    assert_eq!(a.say("SESSION OPEN TTL 300"), "TOOMANYSESSIONS");
    assert_eq!(a.say(&format!("SESSION CLOSE {other}")), "1");
    a.token(&format!("LOCK y SESSION {kept}"));
    // Again where the machine stood still for its whole time.
    let opened = |_| {
        let (start, id) = (Instant::now(), a.say("SESSION OPEN TTL 300"));
        let said = a.say(&format!("LOCK x SESSION {id}"));
        assert!(["2", "NOSESSION"].contains(&said.as_str()), "{said}");
        (said == "2").then_some((start, id))
    };
    let (start, id) = (0..100).find_map(opened).expect("a session");
    assert_eq!(b.say("LOCK x WAIT 60000"), "3");
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(a.say(&format!("SESSION RENEW {id}")), "NOSESSION");
    assert_eq!(a.say(&format!("SESSION RENEW {kept}")), "1");
    assert_eq!(b.say("TRYLOCK y"), "nil");
}

/// The text of an error.
fn error(value: &Value) -> &str {
    match value {
        Value::Error(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn asking_again_for_a_lock_tells_its_owner_the_token() {
    let daemon = Daemon::start(&[]);
    let (mut a, mut b) = (daemon.client(), daemon.client());
    let id = a.say("SESSION OPEN TTL 600000");
    a.token(&format!("LOCK x SESSION {id}"));
    b.token("LOCK s SHARED");
    a.token(&format!("LOCK s SHARED SESSION {id}"));
    a.token(&format!("LOCK p OF 2 SESSION {id}"));
    a.token("LOCK own");
    drop(a); // Its session goes on, its own lock ends.
    daemon.await_info("holds", 4);
    b.token("LOCK own");
    for (line, text) in [
        (
            "LOCK x",
            "ALREADYHELD 1 exclusive the session holds the lock",
        ),
        (
            "LOCK x WAIT 0",
            "ALREADYHELD 1 exclusive the session holds the lock",
        ),
        (
            "TRYLOCK s SHARED",
            "ALREADYHELD 3 shared the session holds the lock",
        ),
        // The session holds the lock in another mode than this request names.
        ("LOCK s", "ALREADYHELD 3 shared the session holds the lock"),
        (
            "TRYLOCK p OF 2",
            "ALREADYHELD 4 place the session holds the lock",
        ),
    ] {
        let reply = b.ask(&format!("{line} SESSION {id}"));
        assert_eq!(error(&reply), text, "{line}");
    }
    for (line, text) in [
        (
            "LOCK own",
            "ALREADYHELD 6 exclusive this connection holds the lock",
        ),
        (
            "LOCK s",
            "ALREADYHELD 2 shared this connection holds the lock",
        ),
        (
            "LOCKALL 3 free own s",
            "ALREADYHELD 6 exclusive this connection holds number 2 of the 3 locks",
        ),
    ] {
        assert_eq!(error(&b.ask(line)), text, "{line}");
    }
    // The connection's own requests do not reach the session's locks, nor the other way round.
    assert_eq!(b.say("TRYLOCK x"), "nil");
    assert_eq!(b.say(&format!("TRYLOCK own SESSION {id}")), "nil");
    assert_eq!(b.info("holds"), 5, "asking took nothing");
    // The token is good for a release, once.
    assert_eq!(b.say("UNLOCK x 1"), "1");
    assert_eq!(b.say("UNLOCK x 1"), "NOTHELD");
    assert_eq!(b.say(&format!("SESSION CLOSE {id}")), "1");
    assert_eq!(b.say(&format!("LOCK p OF 2 SESSION {id}")), "NOSESSION");
}

#[test]
fn a_repeated_request_does_not_wait_for_its_own_session() {
    let daemon = Daemon::start(&[]);
    let mut b = daemon.client();
    let id = b.say("SESSION OPEN TTL 600000");
    b.token("LOCK x");
    // The first client's connection stays open and unread, as the daemon sees it when a
    // link is cut.
    let (mut first, mut again) = (daemon.client(), daemon.client());
    first.send(&format!("LOCK x SESSION {id}"));
    daemon.await_info("waiters", 1);
    again.send(&format!("LOCK x SESSION {id}"));
    daemon.await_info("waiters", 2);
    again.set_timeout(Duration::from_secs(120));
    assert_eq!(b.say("UNLOCK x"), "1");
    let told = again.read();
    assert_eq!(
        error(&told),
        "ALREADYHELD 2 exclusive the session holds the lock"
    );
    assert_eq!((b.info("waits_already_held"), b.info("waiters")), (1, 0));
    assert_eq!((b.info("waits"), b.info("grants_after_wait")), (2, 1));
    drop(first);
    daemon.await_info("connected_clients", 3);
    assert_eq!(again.say("UNLOCK x 2"), "1");
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

#[test]
fn an_administrator_sees_sessions_without_their_ids_and_ends_those_of_a_user() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    let ids: Vec<String> = (0..3)
        .map(|_| client.say("SESSION OPEN TTL 600000"))
        .collect();
    client.token(&format!("LOCK x SESSION {}", ids[0]));
    client.token(&format!("LOCK y SHARED SESSION {}", ids[0]));
    let list = format!("{:?}", client.ask("SESSION LIST"));
    assert!(ids.iter().all(|id| !list.contains(id)), "{list}");
    let holds = |count| {
        list.matches(&format!(r#"[104, 111, 108, 100, 115]), Integer({count})"#))
            .count()
    };
    assert_eq!((holds(2), holds(0)), (1, 2), "{list}");
    let Value::Array(page) = client.ask("SESSION LIST CURSOR 0 MATCH def* COUNT 2") else {
        panic!("no page");
    };
    assert!(
        matches!(&page[1], Value::Array(rows) if rows.len() == 2),
        "{page:?}"
    );
    assert_ne!(short(&page[0]), "0");
    for (line, told) in [
        (
            "SESSION LIST CURSOR 0 MATCH other",
            "Array([Bulk([48]), Array([])])",
        ),
        ("SESSION CLOSE USER other", "ERR"),
        ("SESSION CLOSE USER default", "3"),
        ("TRYLOCK x", "3"),
        ("SESSION LIST", "Array([])"),
    ] {
        assert_eq!(client.say(line), told, "{line}");
    }
}

#[test]
fn who_waits_sees_its_place_and_who_holds_the_lock_since_when() {
    let daemon = Daemon::start(&[]);
    let open = |text: &str| {
        let mut bytes = Vec::new();
        let words = ["SESSION", "OPEN", "TTL", "600000", "AS", text];
        encode(&mut bytes, &words.map(str::as_bytes));
        let mut client = daemon.client();
        client.stream.write_all(&bytes).unwrap();
        let id = short(&client.read());
        (client, id)
    };
    let (mut holder, id) = open("ann@build7 pid 4711 make");
    assert_eq!(
        holder.say(&format!("LOCKALL 2 x y SHARED SESSION {id}")),
        "Array([Integer(1), Integer(2)])"
    );
    let (mut first, second) = (daemon.client(), open("bob@build7"));
    let number = first.token("CLIENT ID");
    first.send("LOCK x");
    daemon.await_info("waiters", 1);
    let (mut waiter, id) = second;
    waiter.send(&format!("LOCKALL 2 z x SESSION {id}"));
    daemon.await_info("waiters", 3);
    assert_eq!(holder.say(&format!("PLACE x SESSION {id}")), "2");
    assert_eq!(holder.say(&format!("PLACE z SESSION {id}")), "1");
    assert_eq!(holder.say(&format!("PLACE x ID {number}")), "1");
    assert_eq!(holder.say("PLACE x ID 99"), "nil");
    let rows = |value: Value| match value {
        Value::Array(rows) => rows,
        other => panic!("{other:?}"),
    };
    let field = |row: &Value, name: &str| {
        let Value::Array(pairs) = row else {
            panic!("{row:?}")
        };
        let at = pairs.iter().position(|key| short(key) == name).unwrap();
        short(&pairs[at + 1])
    };
    let holders = rows(holder.ask("HOLDER x"));
    assert_eq!(field(&holders[0], "name"), "ann@build7 pid 4711 make");
    assert!(field(&holders[0], "held-ms").parse::<u64>().is_ok());
    let waiters = rows(holder.ask("WAITERS x"));
    assert_eq!(
        waiters
            .iter()
            .map(|row| field(row, "name"))
            .collect::<Vec<_>>(),
        ["", "bob@build7"]
    );
    let sessions = rows(holder.ask("SESSION LIST"));
    assert_eq!(field(&sessions[1], "as"), "bob@build7");
    // The end of the session ends its wait in both lines.
    assert_eq!(holder.say(&format!("SESSION CLOSE {id}")), "1");
    assert_eq!(short(&waiter.read()), "NOSESSION");
    daemon.await_info("waiters", 1);
}
