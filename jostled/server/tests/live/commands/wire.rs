//! Requests in pieces, pipelines, long replies.

use std::io::{Read, Write};
use std::time::Duration;

use crate::common::{Daemon, short};
use jostle_resp::Value;

#[test]
fn many_connections_that_pipeline_behind_their_waits_all_get_their_replies() {
    let daemon = Daemon::start(&[]);
    let rounds = 200;
    let threads: Vec<_> = (0..8)
        .map(|who| {
            let mut client = daemon.client();
            std::thread::spawn(move || {
                client.set_timeout(Duration::from_secs(120));
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
fn requests_arrive_in_any_pieces_inline_or_not() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    let bytes = b"*2\r\n$4\r\nLOCK\r\n$1\r\na\r\nPING\r\n*1\r\n$4\r\nPING\r\nUNLOCK 'a' \r\n\r\n";
    for byte in bytes {
        client.stream.write_all(&[*byte]).unwrap();
        client.stream.flush().unwrap();
    }
    let replies: Vec<_> = (0..4).map(|_| short(&client.read())).collect();
    assert_eq!(replies, ["1", "PONG", "PONG", "1"]);
    client.stream.write_all(b"*1\r\n:1\r\n").unwrap();
    assert_eq!(short(&client.read()), "ERR");
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
        assert_eq!(short(&client.read()), n.to_string());
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
fn a_deep_pipeline_on_many_locks_is_answered_in_order() {
    const LOCKS: u64 = 10_000;
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    // Enough locks for the daemon to read names ahead, among them names that a write
    // cuts in two, and commands that are not about locks.
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
    // An error in a request decoded ahead is reported in its turn.
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
fn a_pipeline_read_ahead_goes_on_where_it_was_broken_off() {
    let daemon = Daemon::start(&[]);
    let (mut client, mut other) = (daemon.client(), daemon.client());
    other.token("LOCK taken");
    // One lock below the number from which on requests are read ahead, so that it begins
    // and ends with each LOCK and UNLOCK.
    for number in 0..8189 {
        client.token(&format!("LOCK a{number}"));
    }
    let mut bytes = Vec::new();
    for round in 0..40 {
        write!(bytes, "LOCK b\r\nLOCK c TTL 60000\r\nECHO {round}\r\n").unwrap();
        write!(bytes, "UNLOCK c\r\n\r\nUNLOCK b\r\nECHO 'now {round}'\r\n").unwrap();
    }
    // Behind a long command others come first; behind a wait all others do.
    for round in 0..40 {
        write!(bytes, "LOCK d{round}\r\nHOLDERS no*\r\n").unwrap();
        write!(bytes, "ECHO 'long {round}'\r\n").unwrap();
    }
    for round in 0..10 {
        write!(bytes, "LOCK taken WAIT 60000\r\nECHO had{round}\r\n").unwrap();
        write!(bytes, "UNLOCK taken\r\n").unwrap();
    }
    client.stream.write_all(&bytes).unwrap();
    daemon.await_info("waiters", 1);
    assert_eq!(other.say("UNLOCK taken"), "1");
    let mut expect = |expected: &str| assert_eq!(short(&client.read()), expected);
    let mut token = 8190;
    for round in 0..40 {
        for _ in ["b", "c"] {
            token += 1;
            expect(&token.to_string());
        }
        expect(&round.to_string());
        expect("1");
        expect("1");
        expect(&format!("now {round}"));
    }
    for round in 0..40 {
        token += 1;
        expect(&token.to_string());
        expect("Array([])");
        expect(&format!("long {round}"));
    }
    for round in 0..10 {
        token += 1;
        expect(&token.to_string());
        expect(&format!("had{round}"));
        expect("1");
    }

    // Requests decoded for a client that waits are not given to another client.
    other.token("LOCK taken");
    let behind = "ECHO it\r\n".repeat(20);
    let bytes = format!("LOCK taken WAIT 60000\r\n{behind}");
    client.stream.write_all(bytes.as_bytes()).unwrap();
    daemon.await_info("waiters", 1);
    let as_long = "PING\r\n".repeat(behind.len() / 6);
    assert_eq!(as_long.len(), behind.len());
    other.stream.write_all(as_long.as_bytes()).unwrap();
    for _ in 0..behind.len() / 6 {
        assert_eq!(short(&other.read()), "PONG");
    }
    assert_eq!(other.say("UNLOCK taken"), "1");
    client.read();
    for _ in 0..20 {
        assert_eq!(short(&client.read()), "it");
    }
}
