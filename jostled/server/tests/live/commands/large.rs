//! Lists of a large table: each reply is bounded, so is the work for it, and neither
//! its asker nor anybody else suffers.

use std::collections::HashSet;
use std::io::Write;
use std::net::TcpStream;

use crate::common::{Client, Daemon, short};
use jostle_resp::Value;

/// Locks that are held; every other one is shared, which the table keeps elsewhere.
const LOCKS: usize = 100_000;
/// Rows of a reply.
const ROWS: usize = 1000;
/// Places that the daemon looks at for a page, at most.
const LOOKED_AT: usize = 1 << 14;

/// Sends requests without reading, in one piece.
fn pipeline<'a>(client: &mut Client<TcpStream>, lines: impl Iterator<Item = &'a str>) {
    let mut bytes = Vec::new();
    for line in lines {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        jostle_resp::request::encode(&mut bytes, &args);
    }
    client.stream.write_all(&bytes).unwrap();
}

/// Takes many locks, a thousand at a time.
fn take(client: &mut Client<TcpStream>, lines: &[String]) {
    for part in lines.chunks(1000) {
        pipeline(client, part.iter().map(String::as_str));
        for line in part {
            let token = client.read();
            assert!(token.as_integer().is_some(), "{line}: {token:?}");
        }
    }
}

/// A daemon with a large table, and the client that owns all of it.
fn large() -> (Daemon, Client<TcpStream>) {
    let daemon = Daemon::start(&[]);
    let mut owner = daemon.client();
    let lines: Vec<String> = (0..LOCKS)
        .map(|n| match n % 2 {
            0 => format!("LOCK alone{n:06}"),
            _ => format!("LOCK shared{n:06} SHARED"),
        })
        .collect();
    take(&mut owner, &lines);
    assert_eq!(owner.info("holds"), LOCKS as u64);
    (daemon, owner)
}

fn rows(value: Value) -> Vec<Value> {
    match value {
        Value::Array(rows) => rows,
        other => panic!("{other:?}"),
    }
}

/// The next page's cursor, and the rows.
fn page(value: Value) -> (String, Vec<Value>) {
    let mut parts = rows(value);
    let page = rows(parts.pop().unwrap());
    (short(&parts[0]), page)
}

/// The lock that a row names.
fn lock_of(row: &Value) -> String {
    // A map in RESP2: names and values in turns.
    let fields = rows(row.clone());
    assert_eq!(short(&fields[0]), "lock");
    short(&fields[1])
}

/// All pages of a walk, while somebody else asks for something between each two.
fn walk(
    asker: &mut Client<TcpStream>,
    other: &mut Client<TcpStream>,
    command: &str,
    options: &str,
) -> Vec<Vec<Value>> {
    let (mut pages, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        asker.send(&format!("{command} CURSOR {cursor}{options}"));
        assert_eq!(other.say("PING"), "PONG");
        let (next, rows) = page(asker.read());
        pages.push(rows);
        if next == "0" {
            return pages;
        }
        assert!(pages.len() < LOCKS, "the walk does not end");
        cursor = next;
    }
}

#[test]
fn replies_are_bounded_and_who_wants_more_is_told_of_cursors() {
    let (daemon, mut owner) = large();
    let mut other = daemon.client();
    for line in ["HOLDERS", "HOLDERS LIMIT 1000", "HOLDERS a* LIMIT 1000"] {
        assert_eq!(rows(owner.ask(line)).len(), ROWS, "{line}");
    }
    let rare = format!("HOLDERS {}", "*no".repeat(300));
    for (line, expected) in [
        ("HOLDERS LIMIT 1001", "CURSOR"),
        ("HOLDERS LIMIT 100000", "CURSOR"),
        ("HOLDERS a* LIMIT 100000", "CURSOR"),
        // The table is not searched in full for what takes long.
        (&rare, "CURSOR"),
        ("HOLDERS CURSOR 0 COUNT 1001", "1000"),
    ] {
        let reply = owner.ask(line);
        let refusal = reply.as_text().unwrap();
        assert!(
            refusal.starts_with("ERR ") && refusal.contains(expected),
            "{line}: {refusal}"
        );
    }
    // Long names: the bytes are bounded, too.
    let long: Vec<String> = (0..1000)
        .map(|n| format!("LOCK {n:04}{}", "x".repeat(500)))
        .collect();
    take(&mut owner, &long);
    let found = rows(owner.ask("HOLDERS *xxx LIMIT 1000"));
    assert!((100..ROWS).contains(&found.len()), "{} rows", found.len());
    let pages = walk(&mut owner, &mut other, "HOLDERS", " COUNT 1000 MATCH *xxx");
    assert!(pages.iter().all(|page| page.len() < ROWS));
    assert_eq!(pages.iter().map(Vec::len).sum::<usize>(), 1000);
    // It has all that it had.
    assert_eq!(owner.info("closed_output"), 0);
    assert_eq!(owner.info("holds"), LOCKS as u64 + 1000);
    assert_eq!(owner.say("UNLOCK alone000000"), "1");
    assert_eq!(owner.say("UNLOCK shared099999"), "1");
}

#[test]
fn a_walk_tells_of_every_lock_in_pages_of_bounded_work() {
    let (daemon, mut owner) = large();
    let mut other = daemon.client();
    for (options, count) in [(" COUNT 1000", ROWS), ("", 100)] {
        let pages = walk(&mut owner, &mut other, "HOLDERS", options);
        assert!(pages.iter().all(|page| page.len() <= count));
        let found: HashSet<String> = pages.iter().flatten().map(lock_of).collect();
        assert_eq!(found.len(), LOCKS, "{options}");
        assert!(pages.len() <= LOCKS / count + 10, "{} pages", pages.len());
    }
    // Rare rows take as many pages as there are slots to visit.
    let rare = " COUNT 1000 MATCH *099999";
    let pages = walk(&mut owner, &mut other, "HOLDERS", rare);
    assert_eq!(pages.iter().map(Vec::len).sum::<usize>(), 1);
    assert!(pages.len() > LOCKS / LOOKED_AT, "{} pages", pages.len());

    // Waiters are searched among all sharers and waiters.
    let mut waiters: Vec<Client<_>> = (0..1500).map(|_| daemon.client()).collect();
    for waiter in &mut waiters {
        waiter.send("LOCK alone000000");
    }
    daemon.await_info("waiters", 1500);
    assert_eq!(rows(owner.ask("WAITERS alone000000")).len(), ROWS);
    let waiting = "WAITERS alone000000";
    for (options, count) in [(" COUNT 1000", ROWS), ("", 100)] {
        let pages = walk(&mut owner, &mut other, waiting, options);
        assert!(pages.iter().all(|page| page.len() <= count));
        assert_eq!(pages.iter().map(Vec::len).sum::<usize>(), 1500);
        assert!(pages.len() > LOCKS / 2 / LOOKED_AT, "{} pages", pages.len());
    }
    assert_eq!(owner.info("closed_output"), 0);
    assert_eq!(owner.info("holds"), LOCKS as u64);
    assert_eq!(owner.say("UNLOCK alone000000"), "1");
    assert!(waiters[0].read().as_integer().is_some());
}

#[test]
fn others_have_their_turn_between_two_lists() {
    const ASKED: usize = 60;
    let (daemon, mut owner) = large();
    for line in [
        // All replies together are less than a client may leave unread.
        "HOLDERS LIMIT 50",
        "HOLDERS CURSOR 0 COUNT 50",
        "HOLDERS CURSOR 0 MATCH *no*such*name*",
        "WAITERS alone000000 CURSOR 0",
    ] {
        let mut other = daemon.client();
        let name = line.split(' ').next().unwrap().to_lowercase();
        let executed = format!("cmd_{name}");
        let before = other.info(&executed);
        // All of it is there when the daemon looks.
        daemon.signal("-STOP");
        pipeline(&mut owner, std::iter::repeat_n(line, ASKED));
        pipeline(
            &mut other,
            ["INFO", "PING"].into_iter().cycle().take(2 * ASKED),
        );
        daemon.signal("-CONT");
        let last = std::thread::scope(|scope| {
            let owner = &mut owner;
            scope.spawn(move || {
                for _ in 0..ASKED {
                    let reply = owner.read();
                    assert!(matches!(reply, Value::Array(_)), "{line}: {reply:?}");
                }
            });
            let mut seen = before;
            for _ in 0..ASKED {
                let reply = other.read();
                assert_eq!(short(&other.read()), "PONG");
                let text = reply.as_text().unwrap();
                let found = text
                    .lines()
                    .find_map(|line| line.strip_prefix(&format!("{executed}:")));
                let now: u64 = found.unwrap().parse().unwrap();
                assert!(now - seen <= 2, "{line}: {} of them in a row", now - seen);
                seen = now;
            }
            seen
        });
        assert!(
            last > before + 1,
            "{line}: none of them went beside the others"
        );
    }
    assert_eq!(owner.info("closed_output"), 0);
    assert_eq!(owner.info("holds"), LOCKS as u64);
}
