//! Locks, semaphores, several locks, transactions, bounds.

use super::play;
use crate::common::{Client, Daemon, short};
use jostle_resp::Value;

#[test]
fn locks_are_taken_and_released_by_their_owners() {
    play(
        &Daemon::start(&[]),
        &[
            (0, "LOCK a", "1"),
            (0, "LOCK a", "ALREADYHELD"),
            (0, "TRYLOCK a", "ALREADYHELD"),
            (1, "TRYLOCK a", "nil"),
            (1, "LOCK a WAIT 0", "nil"),
            (1, "LOCK a WAIT 20", "nil"),
            (1, "UNLOCK a", "NOTOWNER"),
            (1, "UNLOCK a 2", "NOTOWNER"),
            (1, "UNLOCK a 1", "1"),
            (1, "UNLOCK a 1", "NOTHELD"),
            (0, "UNLOCK a", "NOTHELD"),
            // Leases.
            (0, "LOCK l TTL 60000", "2"),
            (1, "RENEW l 2 TTL 60000", "1"),
            (1, "RENEW l 1 TTL 60000", "NOTOWNER"),
            (1, "UNLOCK l", "NOTOWNER"),
            (0, "UNLOCK l", "1"),
            (0, "RENEW l 2 TTL 60000", "NOTOWNER"),
            (0, "TRYLOCK m TTL 1", "3"),
            (1, "LOCK m WAIT 60000", "4"),
            (1, "RENEW m 4 TTL 1", "NOLEASE"),
            // Shared.
            (0, "LOCK s SHARED", "5"),
            (1, "LOCK s SHARED TTL 60000", "6"),
            (2, "TRYLOCK s", "nil"),
            (2, "TRYLOCK s SHARED", "7"),
            (3, "FORCEUNLOCK s", "3"),
            (3, "FORCEUNLOCK s", "0"),
            (0, "lock lower ttl 60000 wait 5 shared", "8"),
            // Semaphores.
            (0, "LOCK sem OF 2 TTL 60000", "9"),
            (1, "LOCK sem OF 2", "10"),
            (1, "LOCK sem OF 2", "ALREADYHELD"),
            (2, "TRYLOCK sem OF 2", "nil"),
            (2, "LOCK sem OF 3", "BADLIMIT"),
            (2, "LOCK sem", "BADLIMIT"),
            (2, "LOCK sem SHARED", "BADLIMIT"),
            (2, "UNLOCK sem", "NOTOWNER"),
            (2, "UNLOCK sem 9", "1"),
            (2, "LOCK sem of 2 ttl 60000 wait 5", "11"),
            (1, "UNLOCK sem", "1"),
            (2, "UNLOCK sem", "1"),
            (0, "LOCK sem OF 1", "12"),
            (1, "LOCK sem WAIT 5", "nil"),
            // Usage.
            (0, "LOCK x OF 0", "ERR"),
            (0, "LOCK x OF 65536", "ERR"),
            (0, "LOCK x OF", "ERR"),
            (0, "LOCK x OF 2 OF 2", "ERR"),
            (0, "LOCK x OF 2 SHARED", "ERR"),
            (0, "LOCK x OF 1 SHARED", "ERR"),
            (0, "LOCK", "ERR"),
            (0, "LOCK x TTL", "ERR"),
            (0, "LOCK x TTL 0", "ERR"),
            (0, "LOCK x TTL -1", "ERR"),
            (0, "LOCK x TTL 1.5", "ERR"),
            (0, "LOCK x TTL 99999999999999", "ERR"),
            (0, "LOCK x TTL 5 TTL 5", "ERR"),
            (0, "LOCK x WAIT x", "ERR"),
            (0, "LOCK x NOW", "ERR"),
            (0, "TRYLOCK x WAIT 5", "ERR"),
            (0, "UNLOCK x y", "ERR"),
            (0, "UNLOCK x 1 2", "ERR"),
            (0, "RENEW x 1 PX 5", "ERR"),
            (0, "RENEW x 1 TTL 0", "ERR"),
            (0, "NONSENSE", "ERR"),
            (0, "LOCK  ", "ERR"), // Two arguments, of which one is an option.
        ],
    );
}

#[test]
fn the_counters_add_up() {
    let daemon = Daemon::start(&[]);
    let (mut a, mut b) = (daemon.client(), daemon.client());
    for n in 0..100 {
        a.token(&format!("LOCK n{n}"));
        a.say(&format!("UNLOCK n{n}"));
    }
    a.token("LOCK x");
    b.say("LOCK x WAIT 0");
    b.say("LOCK x WAIT 1");
    b.say("UNLOCK x");
    b.token("LOCK l TTL 1");
    b.say("UNLOCK nothing");
    b.send("LOCK x");
    daemon.await_info("waiters", 1);
    a.say("UNLOCK x");
    b.read();
    drop(b);
    daemon.await_info("holds", 0);
    for (name, value) in [
        ("grants", 103),
        ("grants_at_once", 102),
        ("grants_after_wait", 1),
        ("releases", 101),
        ("releases_by_disconnect", 1),
        ("expirations", 1),
        ("busy", 1),
        ("waits", 2),
        ("wait_timeouts", 1),
        ("not_owner", 1),
        ("not_held", 1),
        ("cmd_lock", 105),
        ("cmd_unlock", 103),
        ("next_token", 104),
    ] {
        assert_eq!(a.info(name), value, "{name}");
    }
}

#[test]
fn bounds_are_errors_with_their_names() {
    let daemon = Daemon::start(&[
        "--max-waiters-per-lock",
        "1",
        "--max-waiters",
        "2",
        "--max-name",
        "20",
        "--max-memory",
        "1M",
        "--max-request",
        "1K",
    ]);
    let mut clients: Vec<Client<_>> = (0..6).map(|_| daemon.client()).collect();
    assert_eq!(clients[0].say("LOCK x"), "1");
    assert_eq!(clients[0].say("LOCK y"), "2");
    assert_eq!(clients[0].say("LOCK z"), "3");
    clients[1].send("LOCK x");
    daemon.await_info("waiters", 1);
    assert_eq!(clients[2].say("LOCK x"), "TOOMANYWAITERS");
    clients[2].send("LOCK y");
    daemon.await_info("waiters", 2);
    assert_eq!(clients[3].say("LOCK z"), "TOOMANYWAITERS");
    assert_eq!(clients[3].say("LOCK 123456789012345678901"), "BADNAME");
    let full = (0..20_000).map(|n| clients[4].say(&format!("LOCK n{n}")));
    assert!(full.into_iter().any(|reply| reply == "OOM"));
    assert_eq!(clients[4].say("UNLOCK n0"), "1");
    clients[5].send(&format!("ECHO {}", "x".repeat(2000)));
    assert_eq!(short(&clients[5].read()), "ERR");
    assert!(clients[5].try_read().is_err());
}

#[test]
fn transactions_run_whole_or_not_at_all() {
    let daemon = Daemon::start(&[]);
    let (mut a, mut b) = (daemon.client(), daemon.client());
    let array = |client: &mut Client<_>, line: &str| match client.ask(line) {
        Value::Array(values) => values.iter().map(short).collect::<Vec<_>>().join(" "),
        other => short(&other),
    };
    assert_eq!(b.say("LOCK taken"), "1");
    for (line, expected) in [
        ("EXEC", "ERR"),
        ("DISCARD", "ERR"),
        ("MULTI", "OK"),
        ("MULTI", "ERR"), // Not nested, which aborts nothing.
        ("LOCK x TTL 60000", "QUEUED"),
        ("LOCK taken WAIT 60000", "QUEUED"), // It does not wait within.
        ("UNLOCK y", "QUEUED"),
        ("ECHO end", "QUEUED"),
    ] {
        assert_eq!(a.say(line), expected, "{line}");
    }
    assert_eq!(b.say("TRYLOCK other"), "2", "nothing is executed yet");
    assert_eq!(array(&mut a, "EXEC"), "3 nil NOTHELD end");
    assert_eq!(a.say("EXEC"), "ERR");
    // Errors while queueing, each of which lets EXEC execute nothing.
    for wrong in [
        "NONSENSE",
        "LOCK",
        "HELLO 3",
        "AUTH x",
        "WATCH x",
        "INFO",
        "COMMAND",
        "CONFIG GET *",
        "HOLDER x",
        "CLIENT LIST",
        "SESSION LIST",
    ] {
        assert_eq!(a.say("MULTI"), "OK");
        assert_eq!(a.say("LOCK half"), "QUEUED");
        assert_eq!(a.say(wrong), "ERR");
        assert_eq!(a.say("LOCK half2"), "QUEUED");
        assert_eq!(a.say("EXEC"), "EXECABORT");
    }
    for end in ["DISCARD", "RESET"] {
        assert_eq!(a.say("MULTI"), "OK");
        assert_eq!(a.say("LOCK half"), "QUEUED");
        assert_ne!(a.say(end), "ERR");
        assert_eq!(a.say("PING"), "PONG");
    }
    assert_eq!(a.info("grants"), 3);
    // Bounded in commands and in bytes.
    for (line, times) in [
        ("PING", 1001),
        (&"ECHO x".replace('x', &"x".repeat(9000))[..], 8),
    ] {
        assert_eq!(a.say("MULTI"), "OK");
        let refused = (0..times).filter(|_| a.say(line) == "ERR").count();
        assert_eq!((refused, a.say("EXEC")), (1, "EXECABORT".to_owned()));
    }
}

#[test]
fn several_locks_are_taken_together_or_not_at_all() {
    let daemon = Daemon::start(&[]);
    let mut clients: Vec<Client<_>> = (0..4).map(|_| daemon.client()).collect();
    let tokens = |value: Value| match value {
        Value::Array(values) => values.iter().map(short).collect::<Vec<_>>().join(" "),
        other => short(&other),
    };
    for (who, line, expected) in [
        (0, "LOCKALL 3 a b c", "1 2 3"),
        (0, "LOCKALL 2 d a", "ALREADYHELD"),
        (1, "LOCKALL 2 c d WAIT 0", "nil"),
        (1, "LOCKALL 2 c d WAIT 5", "nil"),
        (1, "TRYLOCK d", "4"),
        // Usage; nothing is taken.
        (1, "LOCKALL 0 x", "ERR"),
        (1, "LOCKALL 65 x", "ERR"),
        (1, "LOCKALL 2 x x", "ERR"),
        (1, "LOCKALL 2 x", "ERR"),
        (1, "LOCKALL 1 x SHARED SHARED", "ERR"),
        (1, "LOCKALL 1 x SESSION 1", "NOSESSION"),
        (1, "LOCKALL 1 x OF 2", "ERR"),
        (1, "LOCKALL 1 x NOW", "ERR"),
        (1, "LOCKALL 2 x ", "BADNAME"),
        (2, "LOCK x OF 2", "5"),
        (2, "LOCKALL 2 y x", "BADLIMIT"),
    ] {
        assert_eq!(tokens(clients[who].ask(line)), expected, "{line}");
    }
    clients[2].send("LOCKALL 2 b free TTL 60000");
    daemon.await_info("waiters", 2);
    // Reserved: nobody holds it, and nobody else gets it.
    assert_eq!(clients[3].say("TRYLOCK free"), "nil");
    assert_eq!(clients[3].say("UNLOCK free"), "NOTHELD");
    assert_eq!(clients[0].say("UNLOCK b"), "1");
    assert_eq!(tokens(clients[2].read()), "6 7");
    assert_eq!(clients[3].say("UNLOCK free 7"), "1");
    // The end of all waits of a client, by CLIENT UNBLOCK.
    clients[3].send("LOCKALL 2 b free");
    daemon.await_info("waiters", 2);
    let id = 4;
    assert_eq!(clients[0].say(&format!("CLIENT UNBLOCK {id}")), "1");
    assert_eq!(short(&clients[3].read()), "nil");
    assert_eq!(clients[0].say("TRYLOCK free"), "8");
    // Within a transaction it does not wait.
    assert_eq!(clients[3].say("MULTI"), "OK");
    assert_eq!(clients[3].say("LOCKALL 2 b e WAIT 60000"), "QUEUED");
    assert_eq!(clients[3].ask("EXEC"), Value::Array(vec![Value::Nil]));
}
