//! The administrator's commands.

use std::time::Duration;

use crate::common::{Client, Daemon, eventually, short};
use jostle_resp::Value;

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

    // The lease's owner leaves; the lease stays, and shows its owner's number.
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
fn an_administrator_ends_waits_and_connections() {
    let daemon = Daemon::start(&[]);
    let mut clients: Vec<Client<_>> = (0..4).map(|_| daemon.client()).collect();
    let ids: Vec<u64> = clients.iter_mut().map(|c| c.token("CLIENT ID")).collect();
    let mut admin = daemon.client();
    clients[0].token("LOCK x");
    // A client that has given up but kept its connection: nobody would use its lease.
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

/// Walks with a cursor; all rows.
pub(super) fn walk(
    client: &mut Client<std::net::TcpStream>,
    command: &str,
    options: &str,
) -> Vec<Value> {
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
    client.set_timeout(Duration::from_secs(120));
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

#[test]
fn contention_is_for_administrators_by_their_patterns_and_never_in_the_metrics() {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    let lines =
        "user boss on >b ~* +@all\nuser half on >h ~a:* +@admin\nuser app on >a ~* +@lock\n";
    std::fs::write(&users, lines).unwrap();
    let flags = [
        "--users-file",
        users.to_str().unwrap(),
        "--metrics",
        "127.0.0.1:0",
    ];
    let daemon = Daemon::start(&flags);
    let log_in = |user: &str| {
        let mut client = daemon.client();
        assert_eq!(client.say(&format!("AUTH {user}")), "OK");
        client
    };
    let (mut boss, mut half, mut app) = (log_in("boss b"), log_in("half h"), log_in("app a"));
    for name in ["a:hot", "b:hot"] {
        app.token(&format!("LOCK {name}"));
        assert_eq!(boss.say(&format!("TRYLOCK {name}")), "nil");
        assert_eq!(boss.say(&format!("LOCK {name} WAIT 1")), "nil");
    }
    let seen = |value: &Value| {
        let text = format!("{value:?}");
        let name = |text: &str| format!("{:?}", Value::Bulk(text.into()));
        ["a:hot", "b:hot"].map(|lock| text.matches(&name(lock)).count())
    };
    // In this minute and this hour.
    assert_eq!(seen(&boss.ask("CONTENTION")), [2, 2]);
    assert_eq!(seen(&half.ask("CONTENTION COUNT 1000")), [2, 0]);
    let one = seen(&boss.ask("CONTENTION COUNT 1"));
    assert_eq!(one.iter().sum::<usize>(), 2);
    for (line, told) in [
        ("CONTENTION COUNT", "ERR"),
        ("CONTENTION COUNT 0", "ERR"),
        ("CONTENTION TOP 3", "ERR"),
    ] {
        assert_eq!(boss.say(line), told, "{line}");
    }
    assert_eq!(app.say("CONTENTION"), "NOPERM");
    let mut scrape =
        std::net::TcpStream::connect(("127.0.0.1", daemon.port_of("metrics on http://"))).unwrap();
    std::io::Write::write_all(&mut scrape, b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    std::io::Read::read_to_string(&mut scrape, &mut page).unwrap();
    assert!(
        page.contains("jostled_waits") && !page.contains("hot"),
        "{page}"
    );
}
