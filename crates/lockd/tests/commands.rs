//! Every command against the real daemon, as a client sees it.

#![allow(clippy::unwrap_used)] // A helper of a test fails the test.

mod common;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use common::{Client, Daemon, eventually, short};
use jostle_resp::Value;

/// Plays rows of (who, request, short reply).
fn play(daemon: &Daemon, rows: &[(usize, &str, &str)]) {
    let mut clients: Vec<_> = (0..4).map(|_| daemon.client()).collect();
    for (who, line, expected) in rows {
        assert_eq!(clients[*who].say(line), *expected, "{who}: {line}");
    }
}

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
            (1, "LOCK m WAIT 1000", "4"),
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
fn what_tools_for_redis_ask_is_answered() {
    play(
        &Daemon::start(&[]),
        &[
            (0, "PING", "PONG"),
            (0, "PING hello", "hello"),
            (0, "ECHO hello", "hello"),
            (0, "SELECT 0", "OK"),
            (0, "SELECT 1", "ERR"),
            (0, "AUTH secret", "ERR"),
            (0, "CLIENT GETNAME", "nil"),
            (0, "CLIENT SETNAME me", "OK"),
            (0, "CLIENT GETNAME", "me"),
            (0, "CLIENT SETINFO LIB-NAME mine", "OK"),
            (0, "CLIENT SETINFO LIB-VER 1.0", "OK"),
            (0, "CLIENT SETINFO OTHER 1.0", "ERR"),
            (0, "CLIENT NONSENSE", "ERR"),
            (0, "CONFIG SET save x", "ERR"),
            (0, "COMMAND COUNT", "23"),
            (0, "HELLO 4", "NOPROTO"),
            (
                0,
                "HELLO 3 SETNAME you",
                "Map([(Bulk([115, 101, 114, 118, 101, 114]), \
            Bulk([106, 111, 115, 116, 108, 101, 100])), (Bulk([118, 101, 114, 115, 105, 111, \
            110]), Bulk([48, 46, 49, 46, 48])), (Bulk([112, 114, 111, 116, 111]), Integer(3)), \
            (Bulk([105, 100]), Integer(1)), (Bulk([109, 111, 100, 101]), Bulk([115, 116, 97, \
            110, 100, 97, 108, 111, 110, 101])), (Bulk([114, 111, 108, 101]), Bulk([109, 97, \
            115, 116, 101, 114])), (Bulk([109, 111, 100, 117, 108, 101, 115]), Array([]))])",
            ),
            (0, "CLIENT GETNAME", "you"),
            (0, "RESET", "RESET"),
            (0, "CLIENT GETNAME", "nil"),
            (1, "CLIENT ID", "2"),
        ],
    );
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    let Value::Array(values) = client.ask("CONFIG GET save app*") else {
        panic!()
    };
    assert_eq!(values.len(), 4);
    let Value::Array(commands) = client.ask("COMMAND") else {
        panic!()
    };
    assert_eq!(commands.len(), 23);
    let Value::Array(docs) = client.ask("COMMAND DOCS lock nonsense") else {
        panic!()
    };
    assert_eq!(docs.len(), 2);
    let list = client.ask("CLIENT LIST");
    assert!(
        list.as_text().unwrap().starts_with("id=1 addr=127.0.0.1:"),
        "{list:?}"
    );
}

#[test]
fn the_administrator_sees_holders_and_waiters() {
    let daemon = Daemon::start(&[]);
    let (mut a, mut b, mut c) = (daemon.client(), daemon.client(), daemon.client());
    a.say("HELLO 3 SETNAME anna");
    c.say("HELLO 3");
    assert_eq!(c.ask("HOLDER x"), Value::Array(vec![]));
    assert_eq!(a.say("LOCK x TTL 60000"), "1");
    assert_eq!(a.say("LOCK y SHARED"), "2");
    b.send("LOCK x WAIT 60000 TTL 5");
    daemon.await_info("waiters", 1);

    let field = |value: &Value, name: &str| match value {
        Value::Map(pairs) => {
            let found = pairs.iter().find(|(key, _)| key.as_text() == Some(name));
            found
                .unwrap_or_else(|| panic!("no {name} in {value:?}"))
                .1
                .clone()
        }
        other => panic!("{other:?}"),
    };
    let text = |value: Value| value.as_text().unwrap().to_owned();
    let Value::Array(holders) = c.ask("HOLDER x") else {
        panic!()
    };
    assert_eq!(holders.len(), 1);
    assert_eq!(field(&holders[0], "token"), Value::Integer(1));
    assert_eq!(text(field(&holders[0], "mode")), "exclusive");
    assert_eq!(text(field(&holders[0], "name")), "anna");
    let left = field(&holders[0], "ttl-ms").as_integer().unwrap();
    assert!((50_000..=60_000).contains(&left), "{left}");

    let Value::Array(all) = c.ask("HOLDERS") else {
        panic!()
    };
    assert_eq!(all.len(), 2);
    let Value::Array(some) = c.ask("HOLDERS y*") else {
        panic!()
    };
    assert_eq!(text(field(&some[0], "lock")), "y");
    assert_eq!(text(field(&some[0], "mode")), "shared");
    assert_eq!(field(&some[0], "ttl-ms"), Value::Integer(-1));
    let Value::Array(limited) = c.ask("HOLDERS LIMIT 1") else {
        panic!()
    };
    assert_eq!(limited.len(), 1);

    let Value::Array(waiters) = c.ask("WAITERS x") else {
        panic!()
    };
    assert_eq!(waiters.len(), 1);
    assert_eq!(field(&waiters[0], "ttl-ms"), Value::Integer(5));
    assert_eq!(field(&waiters[0], "client"), Value::Integer(2));
    assert_eq!(c.ask("WAITERS y"), Value::Array(vec![]));

    // The lease's owner leaves; the lease stays, and says whose it was.
    drop(a);
    eventually("y is released", || {
        c.ask("HOLDER y") == Value::Array(vec![])
    });
    let Value::Array(holders) = c.ask("HOLDER x") else {
        panic!()
    };
    assert_eq!(text(field(&holders[0], "address")), "");
    assert_eq!(c.say("FORCEUNLOCK x"), "1");
    assert_eq!(b.read(), Value::Integer(3));
}

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
    assert_eq!(common::short(&b.read()), "first");
    b.set_timeout(Duration::from_millis(50));
    assert!(
        b.try_read().is_err(),
        "nothing behind the LOCK may be answered"
    );
    b.set_timeout(Duration::from_secs(10));
    assert_eq!(a.say("UNLOCK x"), "1");
    let replies: Vec<_> = (0..4).map(|_| common::short(&b.read())).collect();
    assert_eq!(replies, ["2", "second", "1", "3"]);
}

#[test]
fn a_client_that_was_woken_with_commands_behind_is_woken_again() {
    // The first wake-up, by a disconnect, left the connection marked as having
    // something to send; so the second grant never left the server.
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    client.set_timeout(Duration::from_secs(10));
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
            assert_eq!(common::short(&client.read()), "behind");
        }
        assert_eq!(client.say("UNLOCK x"), "1");
    }
}

#[test]
fn many_connections_that_pipeline_behind_their_waits_all_get_their_replies() {
    let daemon = Daemon::start(&[]);
    let rounds = 200;
    let threads: Vec<_> = (0..8)
        .map(|who| {
            let mut client = daemon.client();
            std::thread::spawn(move || {
                client.set_timeout(Duration::from_secs(20));
                let ttl = if who % 2 == 0 { "" } else { " TTL 60000" };
                for round in 0..rounds {
                    for name in ["x", "y"] {
                        client.send(&format!("LOCK {name}{ttl}"));
                        client.send(&format!("ECHO {round}"));
                        client.send(&format!("UNLOCK {name}"));
                    }
                    if round % 10 == 9 {
                        for _ in 0..10 * 2 {
                            assert!(client.read().as_integer().is_some());
                            client.read();
                            assert_eq!(client.read(), Value::Integer(1));
                        }
                    }
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(daemon.info("grants"), 8 * 2 * rounds);
    assert_eq!(daemon.info("holds"), 0);
}

#[test]
fn a_wait_ends_to_the_millisecond() {
    let daemon = Daemon::start(&[]);
    let (mut a, mut b) = (daemon.client(), daemon.client());
    a.say("LOCK x");
    for wait_ms in [1, 7, 50, 300] {
        let start = Instant::now();
        assert_eq!(b.say(&format!("LOCK x WAIT {wait_ms}")), "nil");
        let took = start.elapsed();
        assert!(
            took >= Duration::from_millis(wait_ms),
            "{took:?} for {wait_ms} ms"
        );
        // The upper bound is generous: the machine may be busy.
        assert!(
            took < Duration::from_millis(wait_ms + 200),
            "{took:?} for {wait_ms} ms"
        );
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
    }
    // On a busy machine the kernel may deliver the release before the end of the
    // other connection, and the lease then runs out; that is the exception.
    assert!(daemon.info("expirations") <= 3);
}

#[test]
fn requests_arrive_in_any_pieces_inline_or_not() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    let bytes = b"*2\r\n$4\r\nLOCK\r\n$1\r\na\r\nPING\r\n*1\r\n$4\r\nPING\r\nUNLOCK 'a' \r\n\r\n";
    for byte in bytes {
        client.stream.write_all(&[*byte]).unwrap();
        client.stream.flush().unwrap();
    }
    let replies: Vec<_> = (0..4).map(|_| common::short(&client.read())).collect();
    assert_eq!(replies, ["1", "PONG", "PONG", "1"]);
    client.stream.write_all(b"*1\r\n:1\r\n").unwrap();
    assert_eq!(common::short(&client.read()), "ERR");
    let mut rest = Vec::new();
    assert_eq!(
        client.stream.read_to_end(&mut rest).unwrap(),
        0,
        "closed after nonsense"
    );
}

#[test]
fn half_closed_clients_get_the_replies_they_have_earned() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    for n in 0..1000 {
        client.send(&format!("ECHO {n}"));
        if n % 50 == 0 {
            client.send("HOLDER x"); // Those that may take long let others go first.
        }
    }
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    for n in 0..1000 {
        assert_eq!(common::short(&client.read()), n.to_string());
        if n % 50 == 0 {
            assert_eq!(client.read(), Value::Array(vec![]));
        }
    }
    assert!(client.try_read().is_err());
}

#[test]
fn long_commands_in_plenty_let_others_in_between() {
    let daemon = Daemon::start(&[]);
    let (mut worker, mut greedy) = (daemon.client(), daemon.client());
    for n in 0..2000 {
        worker.token(&format!("LOCK n{n}"));
    }
    // One read brings them all: thousands of walks through the table.
    let flood = b"*2\r\n$7\r\nHOLDERS\r\n$3\r\nno*\r\n".repeat(2000);
    greedy.stream.write_all(&flood).unwrap();
    let mut pings = 0;
    while daemon.info("cmd_holders") < 2000 {
        assert_eq!(worker.say("PING"), "PONG");
        pings += 1;
    }
    assert!(pings >= 5, "{pings}");
    for _ in 0..2000 {
        assert_eq!(greedy.read(), Value::Array(vec![]));
    }
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
    assert_eq!(common::short(&clients[5].read()), "ERR");
    assert!(clients[5].try_read().is_err());
}

#[test]
fn a_deep_pipeline_on_many_locks_is_answered_in_order() {
    const LOCKS: u64 = 10_000;
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    // So many locks that the daemon looks at names before their turn: those that
    // a write cuts in two, and commands that are not about locks, among them.
    for (command, first) in [("LOCK", 1), ("UNLOCK", 0)] {
        for batch in 0..LOCKS / 500 {
            let numbers = batch * 500..(batch + 1) * 500;
            let mut bytes = Vec::new();
            for number in numbers.clone() {
                write!(bytes, "{command} lock:{number}\r\nPING\r\n").unwrap();
            }
            let (some, rest) = bytes.split_at(bytes.len() / 2 - 3);
            client.stream.write_all(some).unwrap();
            client.stream.write_all(rest).unwrap();
            for number in numbers {
                let expected = if first == 1 { number + 1 } else { 1 };
                assert_eq!(client.read(), Value::Integer(expected as i64));
                assert_eq!(short(&client.read()), "PONG");
            }
        }
    }
    // An error in what was looked at ahead comes in its turn.
    for number in 0..9000 {
        client.token(&format!("LOCK a{number}"));
    }
    let mut lines = b"LOCK b\r\nLOCK c\r\n*1\r\nno bulk string\r\n".to_vec();
    lines.extend_from_slice(&[b'x'; 100]);
    client.stream.write_all(&lines).unwrap();
    for expected in ["19001", "19002", "ERR"] {
        assert_eq!(short(&client.read()), expected);
    }
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
    for wrong in ["NONSENSE", "LOCK", "HELLO 3", "AUTH x", "WATCH x"] {
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
        (1, "LOCKALL 1 x SHARED", "ERR"),
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
    // Leases for one who leaves in that moment, and the end of all waits.
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

#[test]
fn http_is_hung_up_on_and_nothing_behind_it_is_executed() {
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.client();
    assert_eq!(holder.say("LOCK job"), "1");
    let behind = "FORCEUNLOCK job\r\nQUIT\r\n";
    let lines = [
        "POST / HTTP/1.1\r\n",
        "post /\r\n",
        "GET / HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "host: localhost\r\n",
        // The methods that a page of the same origin may invent.
        "UNLOCK / HTTP/1.1\r\nHost: rebound.example\r\n",
        "*1\r\n$4\r\nPOST\r\n",
    ];
    for line in lines {
        let mut page = daemon.client();
        page.set_timeout(Duration::from_secs(20));
        page.stream
            .write_all(format!("{line}Accept: */*\r\n\r\n{behind}").as_bytes())
            .unwrap();
        let mut answer = Vec::new();
        // The end may be a reset, as what was behind is not read.
        let _ = page.stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            !answer.contains("OK") && !answer.contains(":1"),
            "{line}: {answer}"
        );
    }
    assert_eq!(holder.info("holds"), 1);
    assert_eq!(holder.info("closed_http"), lines.len() as u64);
    // Whoever takes it for Redis is told.
    assert_eq!(holder.say("GET x"), "ERR");
    assert_eq!(holder.say("UNLOCK job"), "1");
}

#[test]
fn an_administrator_ends_waits_and_connections() {
    let daemon = Daemon::start(&[]);
    let mut clients: Vec<Client<_>> = (0..4).map(|_| daemon.client()).collect();
    let ids: Vec<u64> = clients.iter_mut().map(|c| c.token("CLIENT ID")).collect();
    let mut admin = daemon.client();
    clients[0].token("LOCK x");
    // One that has given up, and kept its connection: its lease would be nobody's.
    for (reason, expected) in [("", "nil"), (" TIMEOUT", "nil"), (" ERROR", "UNBLOCKED")] {
        clients[1].send("LOCK x TTL 60000");
        clients[1].send("ECHO behind");
        daemon.await_info("waiters", 1);
        let unblock = format!("CLIENT UNBLOCK {}{reason}", ids[1]);
        assert_eq!(admin.say(&unblock), "1");
        assert_eq!(short(&clients[1].read()), expected);
        assert_eq!(short(&clients[1].read()), "behind");
        assert_eq!(admin.say(&unblock), "0", "it waits no more");
    }
    clients[2].send("LOCK x");
    daemon.await_info("waiters", 1);
    // A killed holder's lock goes on at once.
    clients[3].send(&format!("CLIENT KILL {}", ids[0]));
    assert_eq!(short(&clients[3].read()), "OK");
    assert!(clients[2].read().as_integer().is_some());
    assert!(clients[0].try_read().is_err());
    for (line, expected) in [
        (format!("CLIENT KILL {}", ids[0]), "ERR"),
        (format!("CLIENT KILL ID {}", ids[0]), "0"),
        (format!("CLIENT KILL ID {}", ids[2]), "1"),
        ("CLIENT KILL x".to_owned(), "ERR"),
        ("CLIENT KILL ADDR 127.0.0.1:1".to_owned(), "ERR"),
        ("CLIENT UNBLOCK x".to_owned(), "ERR"),
        ("CLIENT UNBLOCK 1 NOW".to_owned(), "ERR"),
        ("CLIENT UNBLOCK 999999999".to_owned(), "0"),
    ] {
        assert_eq!(admin.say(&line), expected, "{line}");
    }
    assert_eq!(admin.info("holds"), 0);
    assert_eq!(admin.info("waits_unblocked"), 3);
    let own = admin.token("CLIENT ID");
    assert_eq!(admin.say(&format!("CLIENT KILL {own}")), "OK");
    assert!(admin.try_read().is_err());
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

/// Walks with a cursor; all rows.
fn walk(client: &mut Client<std::net::TcpStream>, command: &str, options: &str) -> Vec<Value> {
    let (mut rows, mut cursor) = (Vec::new(), "0".to_owned());
    for _ in 0..10_000 {
        let Value::Array(mut page) = client.ask(&format!("{command} CURSOR {cursor}{options}"))
        else {
            panic!("no page")
        };
        let Some(Value::Array(more)) = page.pop() else {
            panic!("no rows")
        };
        rows.extend(more);
        cursor = short(&page[0]);
        if cursor == "0" {
            return rows;
        }
    }
    panic!("the walk does not end");
}

#[test]
fn large_tables_are_listed_in_pages_and_nobody_is_cut_off_for_asking() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    client.set_timeout(Duration::from_secs(60));
    client.say("HELLO 3 SETNAME owner");
    for n in 0..5000 {
        client.token(&format!("LOCK n{n}"));
    }
    for n in 0..5 {
        client.token(&format!("LOCK s{n} SHARED"));
    }
    let rows = |value: Value| match value {
        Value::Array(rows) => rows.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(rows(client.ask("HOLDERS")), 1000);
    assert_eq!(rows(client.ask("HOLDERS n1* LIMIT 7")), 7);
    let refusal = client.ask("HOLDERS LIMIT 100000");
    assert!(refusal.as_text().unwrap().contains("CURSOR"), "{refusal:?}");
    assert_eq!(walk(&mut client, "HOLDERS", "").len(), 5005);
    assert_eq!(
        walk(&mut client, "HOLDERS", " COUNT 1000 MATCH s*").len(),
        5
    );
    for wrong in [
        "x",
        "99999999999",
        "0 COUNT 0",
        "0 COUNT 1001",
        "0 MATCH",
        "0 LIMIT 5",
    ] {
        assert_eq!(
            client.say(&format!("HOLDERS CURSOR {wrong}")),
            "ERR",
            "{wrong}"
        );
    }
    // Waiters and clients.
    let mut waiters: Vec<Client<_>> = (0..1200).map(|_| daemon.client()).collect();
    for waiter in &mut waiters {
        waiter.send("LOCK n0");
    }
    daemon.await_info("waiters", 1200);
    assert_eq!(rows(client.ask("WAITERS n0")), 1000);
    assert_eq!(walk(&mut client, "WAITERS n0", " COUNT 500").len(), 1200);
    assert_eq!(walk(&mut client, "WAITERS n0", " MATCH owner").len(), 0);
    let list = client.ask("CLIENT LIST");
    assert_eq!(list.as_text().unwrap().lines().count(), 1000);
    let Value::Array(page) = client.ask("CLIENT LIST CURSOR 0 MATCH owner COUNT 1000") else {
        panic!()
    };
    assert_eq!(page[1].as_text().unwrap().lines().count(), 1);
    // It was not cut off, and has its locks.
    assert_eq!(client.say("UNLOCK n4999"), "1");
    assert_eq!(client.info("closed_output"), 0);
}
