//! The table's rules, each as a short story. A row is: the time in ms, who does
//! what, what is answered; then what others are told. Tokens count from 1.

use super::*;
use std::collections::HashMap;

/// Plays a story and compares every answer.
fn story(limits: Limits, rows: &[(f64, &str, &str)]) {
    let mut stage = Stage::new(limits);
    for (row, (at_ms, line, expected)) in rows.iter().enumerate() {
        let found = stage.play(Time((at_ms * 1e6) as u64), line);
        assert_eq!(found, *expected, "row {row}: at {at_ms} ms, {line}");
    }
}

fn rules(rows: &[(f64, &str, &str)]) {
    story(Limits::default(), rows);
}

struct Stage {
    table: Table,
    people: HashMap<String, ClientId>,
}

impl Stage {
    fn new(limits: Limits) -> Self {
        let mut table = Table::new(limits, HashKey(1, 2), 1);
        table.step(Event::Tokens { end: u64::MAX }, Time(0), &mut Vec::new());
        Self {
            table,
            people: HashMap::new(),
        }
    }

    fn client(&mut self, who: &str, now: Time) -> ClientId {
        if let Some(client) = self.people.get(who) {
            return *client;
        }
        let reply = self.table.step(Event::Open, now, &mut Vec::new());
        let Reply::Opened(client) = reply else {
            panic!("{reply:?}")
        };
        self.people.insert(who.to_owned(), client);
        client
    }

    fn play(&mut self, now: Time, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let mut outputs = Vec::new();
        let client = if words[0] == "-" {
            None
        } else {
            Some(self.client(words[0], now))
        };
        let event = event(client, &words[1..]);
        let reply = self.table.step(event, now, &mut outputs);
        if let Event::Close { .. } = event {
            self.people.remove(words[0]);
        }
        let mut told = vec![said(reply)];
        told.extend(outputs.iter().map(|output| {
            let name = self.people.iter().find(|(_, id)| **id == output.client);
            let who = name.map_or("?", |(name, _)| name.as_str());
            match output.outcome {
                Outcome::Granted { token, .. } => format!("{who} gets {token}"),
                Outcome::GrantedAll { first, count, .. } => format!("{who} gets {first}+{count}"),
                Outcome::TimedOut => format!("{who} gets nil"),
                Outcome::Refused(refusal) => format!("{who} gets {refusal:?}"),
            }
        }));
        told.join(", ")
    }
}

fn event<'n>(client: Option<ClientId>, words: &[&'n str]) -> Event<'n> {
    let number = |word: &str| word.parse().unwrap();
    if let ("LOCKALL", Some(client)) = (words[0], client) {
        // A test's names may live as long as the test.
        let count: usize = words[1].parse().unwrap();
        let names: Vec<&[u8]> = words[2..2 + count].iter().map(|w| w.as_bytes()).collect();
        let option = |key: &str| {
            let at = words.iter().position(|word| *word == key)?;
            Some(number(words[at + 1]))
        };
        return Event::LockAll(LockAllRequest {
            client,
            names: names.leak(),
            ttl_ms: option("TTL"),
            wait_ms: option("WAIT"),
        });
    }
    let option = |key: &str| {
        words
            .iter()
            .position(|word| *word == key)
            .map(|at| number(words[at + 1]))
    };
    let name = words.get(1).map_or(&b""[..], |name| name.as_bytes());
    match (words[0], client) {
        ("LOCK", Some(client)) => Event::Lock(LockRequest {
            client,
            name,
            ttl_ms: option("TTL"),
            wait_ms: option("WAIT"),
            mode: match option("OF") {
                Some(of) if of > 1 => Mode::Place { of: of as u16 },
                _ if words.contains(&"SHARED") => Mode::Shared,
                _ => Mode::Exclusive,
            },
        }),
        ("UNLOCK", Some(client)) => Event::Unlock {
            client,
            name,
            token: words.get(2).map(|word| number(word)),
        },
        ("RENEW", _) => Event::Renew {
            name,
            token: number(words[2]),
            ttl_ms: number(words[3]),
        },
        ("FORCE", _) => Event::Force { name },
        ("CANCEL", Some(client)) => Event::Cancel { client },
        ("CLOSE", Some(client)) => Event::Close { client },
        ("TICK", _) => Event::Tick,
        other => panic!("{other:?}"),
    }
}

fn said(reply: Reply) -> String {
    match reply {
        Reply::Granted(token) => token.to_string(),
        Reply::GrantedAll { first, count } => format!("{first}+{count}"),
        Reply::Queued => "waits".into(),
        Reply::Busy => "nil".into(),
        Reply::Done => "-".into(),
        Reply::Forced(holders) => format!("forced {holders}"),
        Reply::Refused(refusal) => format!("{refusal:?}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

#[test]
fn an_exclusive_lock_has_one_holder_and_a_line_of_waiters() {
    rules(&[
        (0.0, "a LOCK x", "1"),
        (0.0, "b LOCK x", "waits"),
        (0.0, "c LOCK x", "waits"),
        (0.0, "d LOCK y", "2"), // Another name is another lock.
        (1.0, "a UNLOCK x", "released, b gets 3"),
        (2.0, "b UNLOCK x", "released, c gets 4"),
        (3.0, "c UNLOCK x", "released"),
        (3.0, "c UNLOCK x", "notheld"),
        (4.0, "a LOCK x", "5"),
    ]);
}

#[test]
fn only_the_holder_releases() {
    rules(&[
        (0.0, "a LOCK x", "1"),
        (0.0, "b UNLOCK x", "notowner"),
        (0.0, "b UNLOCK x 2", "notowner"),
        (0.0, "b UNLOCK x 1", "released"), // With the token from any connection.
        (0.0, "b UNLOCK x 1", "notheld"),
        (0.0, "a LOCK x", "2"),
        (0.0, "a UNLOCK x 1", "notowner"), // Not with the token of an earlier hold.
        (0.0, "a UNLOCK x 2", "released"),
        (0.0, "a UNLOCK never", "notheld"),
    ]);
}

#[test]
fn a_lock_without_ttl_belongs_to_the_connection_and_goes_with_it() {
    rules(&[
        (0.0, "a LOCK x", "1"),
        (0.0, "a LOCK y", "2"),
        (0.0, "b LOCK x", "waits"),
        (1e9, "- TICK", "-"), // However long it takes.
        (1e9, "a CLOSE", "-, b gets 3"),
        (1e9, "b LOCK y WAIT 0", "4"),
    ]);
}

#[test]
fn asking_again_for_what_one_owns_is_an_error_and_never_a_deadlock() {
    rules(&[
        (0.0, "a LOCK x", "1"),
        (0.0, "a LOCK x", "alreadyheld"),
        (0.0, "a LOCK x WAIT 0", "alreadyheld"),
        (0.0, "a LOCK x SHARED", "alreadyheld"),
        (0.0, "a LOCK x TTL 5", "alreadyheld"),
        (0.0, "a LOCK s SHARED", "2"),
        (0.0, "a LOCK s SHARED", "alreadyheld"),
        (0.0, "a LOCK s", "alreadyheld"), // No upgrade from shared to exclusive.
        // A lease may be somebody else's business (a pool): asking again waits.
        (0.0, "a LOCK l TTL 5", "3"),
        (0.0, "a LOCK l TTL 5", "waits"),
        (5.0, "- TICK", "-, a gets 4"),
    ]);
}

#[test]
fn a_lease_outlives_its_connection_and_ends_at_its_deadline() {
    rules(&[
        (0.0, "a LOCK x TTL 100", "1"),
        (0.0, "a CLOSE", "-"),
        (0.0, "b LOCK x", "waits"),
        (99.999999, "- TICK", "-"),
        (100.0, "- TICK", "-, b gets 2"),
        (100.0, "b UNLOCK x", "released"),
    ]);
}

#[test]
fn what_has_lapsed_cannot_be_released_or_renewed() {
    rules(&[
        (0.0, "a LOCK x TTL 100", "1"),
        (99.0, "b RENEW x 1 50", "renewed"), // From now on, by anyone with the token.
        (148.9, "a RENEW x 1 10", "renewed"),
        (158.9, "a RENEW x 1 10", "notowner"),
        (158.9, "a UNLOCK x 1", "notheld"),
        (200.0, "a LOCK x TTL 100", "2"),
        (300.0, "a UNLOCK x 2", "notheld"), // The same instant: it has lapsed.
        (300.0, "a LOCK x TTL 100", "3"),
        (400.0, "b LOCK x WAIT 0", "4"),
        (400.0, "a UNLOCK x 3", "notowner"),
        (400.0, "a RENEW x 3 9", "notowner"),
        (400.0, "a UNLOCK x", "notowner"),
    ]);
}

#[test]
fn renewal_can_shorten_and_needs_a_lease() {
    rules(&[
        (0.0, "a LOCK x TTL 1000", "1"),
        (0.0, "a RENEW x 1 10", "renewed"),
        (0.0, "b LOCK x", "waits"),
        (10.0, "- TICK", "-, b gets 2"),
        (10.0, "b RENEW x 2 10", "nolease"),
        (10.0, "b RENEW y 2 10", "notowner"),
    ]);
}

#[test]
fn a_wait_ends_at_its_time_and_not_before() {
    rules(&[
        (0.0, "a LOCK x", "1"),
        (0.0, "b LOCK x WAIT 10", "waits"),
        (0.0, "c LOCK x WAIT 20", "waits"),
        (9.999999, "- TICK", "-"),
        (10.0, "- TICK", "-, b gets nil"),
        (19.999999, "a UNLOCK x", "released, c gets 2"),
        (20.0, "- TICK", "-"),
        (20.0, "b LOCK x WAIT 0", "nil"),
    ]);
}

#[test]
fn a_lease_and_a_wait_that_end_together_both_end() {
    rules(&[
        (0.0, "a LOCK x TTL 10", "1"),
        (0.0, "b LOCK x WAIT 10", "waits"),
        (0.0, "c LOCK x WAIT 11", "waits"),
        (10.0, "- TICK", "-, b gets nil, c gets 2"),
    ]);
}

#[test]
fn a_late_step_changes_nothing_about_who_was_in_time() {
    rules(&[
        (0.0, "a LOCK x TTL 10", "1"),
        (0.0, "b LOCK x TTL 10 WAIT 11", "waits"),
        (0.0, "c LOCK x WAIT 11", "waits"),
        // b was in time; its lease starts now. c was not.
        (500.0, "- TICK", "-, b gets 2, c gets nil"),
        (509.9, "d LOCK x WAIT 0", "nil"),
        (510.0, "d LOCK x WAIT 0", "3"),
    ]);
}

#[test]
fn a_lease_granted_after_a_wait_starts_with_the_grant() {
    rules(&[
        (0.0, "a LOCK x", "1"),
        (0.0, "b LOCK x TTL 100", "waits"),
        (90.0, "a UNLOCK x", "released, b gets 2"),
        (189.0, "c LOCK x WAIT 0", "nil"),
        (190.0, "c LOCK x WAIT 0", "3"),
    ]);
}

#[test]
fn readers_share_and_nobody_overtakes_a_waiting_writer() {
    rules(&[
        (0.0, "a LOCK x SHARED", "1"),
        (0.0, "b LOCK x SHARED", "2"),
        (0.0, "w LOCK x", "waits"),
        (0.0, "c LOCK x SHARED", "waits"), // Compatible, but behind the writer.
        (0.0, "d LOCK x SHARED WAIT 0", "nil"),
        (1.0, "a UNLOCK x", "released"),
        (2.0, "b UNLOCK x", "released, w gets 3"),
        (2.0, "e LOCK x SHARED", "waits"),
        (2.0, "v LOCK x", "waits"),
        (3.0, "w UNLOCK x", "released, c gets 4, e gets 5"), // All up to the next writer.
        (4.0, "c UNLOCK x", "released"),
        (4.0, "e CLOSE", "-, v gets 6"),
    ]);
}

#[test]
fn readers_behind_a_writer_that_gives_up_are_let_in_at_once() {
    for leaving in ["w CANCEL", "w CLOSE"] {
        rules(&[
            (0.0, "a LOCK x SHARED", "1"),
            (0.0, "w LOCK x WAIT 100", "waits"),
            (0.0, "b LOCK x SHARED", "waits"),
            (1.0, leaving, "-, b gets 2"),
        ]);
    }
    rules(&[
        (0.0, "a LOCK x SHARED", "1"),
        (0.0, "w LOCK x WAIT 100", "waits"),
        (0.0, "b LOCK x SHARED", "waits"),
        (100.0, "- TICK", "-, w gets nil, b gets 2"),
    ]);
}

#[test]
fn a_shared_hold_is_released_by_its_own_holder() {
    rules(&[
        (0.0, "a LOCK x SHARED", "1"),
        (0.0, "b LOCK x SHARED TTL 50", "2"),
        (0.0, "c UNLOCK x", "notowner"),
        (0.0, "c UNLOCK x 3", "notowner"),
        (0.0, "w LOCK x", "waits"),
        (0.0, "c UNLOCK x 1", "released"),
        (0.0, "a UNLOCK x", "notowner"),
        (50.0, "- TICK", "-, w gets 3"),
    ]);
}

#[test]
fn of_several_shared_holds_a_session_means_its_connections_else_the_latest() {
    rules(&[
        (0.0, "a LOCK x SHARED TTL 100", "1"),
        (0.0, "a LOCK x SHARED TTL 100", "2"),
        (0.0, "a LOCK x SHARED", "3"),
        (0.0, "a UNLOCK x", "released"), // 3
        (0.0, "a UNLOCK x 3", "notowner"),
        (0.0, "a UNLOCK x", "released"), // 2
        (0.0, "a UNLOCK x 1", "released"),
    ]);
}

#[test]
fn a_semaphore_has_so_many_holders_and_a_line_behind_them() {
    rules(&[
        (0.0, "a LOCK x OF 2", "1"),
        (0.0, "a LOCK x OF 2", "alreadyheld"), // One place for each connection.
        (0.0, "b LOCK x OF 2 TTL 10", "2"),
        (0.0, "c LOCK x OF 2 WAIT 0", "nil"),
        (0.0, "c LOCK x OF 2", "waits"),
        (0.0, "d LOCK x OF 2 WAIT 5", "waits"),
        (0.0, "e LOCK x OF 2", "waits"),
        (5.0, "- TICK", "-, d gets nil"),
        (10.0, "- TICK", "-, c gets 3"), // A place that lapses is the next one's.
        (10.0, "b UNLOCK x 2", "notowner"),
        (10.0, "b UNLOCK x 1", "released, e gets 4"), // With its token, from anywhere.
        (10.0, "c CLOSE", "-"),
        (10.0, "b LOCK x OF 2", "5"),
        (10.0, "f LOCK x OF 2", "waits"),
        (10.0, "- FORCE x", "forced 2, f gets 6"),
    ]);
}

#[test]
fn the_places_of_a_semaphore_are_the_same_as_long_as_anybody_holds_or_waits() {
    rules(&[
        (0.0, "a LOCK x OF 3", "1"),
        (0.0, "b LOCK x OF 2", "Places(3)"),
        (0.0, "b LOCK x", "Places(3)"),
        (0.0, "b LOCK x SHARED", "Places(3)"),
        (0.0, "a LOCK x OF 4", "Places(3)"), // Said before that it is held.
        (0.0, "a UNLOCK x", "released"),
        (0.0, "b LOCK x OF 2", "2"),
        (0.0, "b UNLOCK x", "released"),
        (0.0, "a LOCK x OF 1", "3"), // The same as without.
        (0.0, "b LOCK x OF 2", "Places(1)"),
        (0.0, "b LOCK x", "waits"),
        (0.0, "a UNLOCK x", "released, b gets 4"),
        (0.0, "b UNLOCK x", "released"),
        (0.0, "a LOCK x SHARED", "5"),
        (0.0, "b LOCK x OF 2", "Places(1)"),
        (0.0, "c LOCK x", "waits"),
    ]);
}

#[test]
fn several_locks_are_taken_together_or_not_at_all() {
    rules(&[
        (0.0, "a LOCKALL 2 x y", "1+2"),
        (0.0, "b LOCKALL 2 y z WAIT 0", "nil"),
        (0.0, "b LOCK z", "3"), // Nothing was kept of it.
        (0.0, "b LOCKALL 2 z w", "alreadyheld"),
        (0.0, "a UNLOCK x", "released"), // Each by itself.
        (0.0, "c LOCKALL 3 y z w TTL 10", "waits"),
        (0.0, "d LOCK w", "waits"), // Free, and reserved.
        (0.0, "e LOCK w WAIT 0", "nil"),
        (0.0, "e UNLOCK w", "notheld"),
        (0.0, "a UNLOCK y", "released"),
        (5.0, "b UNLOCK z", "released, c gets 4+3"),
        (15.0, "- TICK", "-, d gets 7"), // The leases began with the grant.
    ]);
}

#[test]
fn who_wants_several_locks_keeps_its_place_in_every_line() {
    rules(&[
        (0.0, "a LOCK x", "1"),
        (0.0, "a LOCK y", "2"),
        (0.0, "b LOCKALL 2 x y", "waits"),
        (0.0, "c LOCKALL 2 y x", "waits"), // The other way round: no deadlock.
        (0.0, "a UNLOCK y", "released"),
        (0.0, "a UNLOCK x", "released, b gets 3+2"),
        (0.0, "b CLOSE", "-, c gets 5+2"),
        (0.0, "d LOCK y SHARED", "waits"),
        (0.0, "c UNLOCK x", "released"),
        (0.0, "c UNLOCK y", "released, d gets 7"),
    ]);
}

#[test]
fn one_who_gives_up_several_locks_lets_those_behind_it_go_on() {
    for (leaves, told) in [
        ("b CANCEL", "-, d gets 2, c gets 3"),
        ("b CLOSE", "-, d gets 2, c gets 3"),
    ] {
        rules(&[
            (0.0, "a LOCK x", "1"),
            (0.0, "b LOCKALL 3 x y z", "waits"),
            (0.0, "c LOCK y", "waits"),
            (0.0, "d LOCK z", "waits"),
            (0.0, leaves, told),
            (0.0, "a UNLOCK x", "released"),
        ]);
    }
    rules(&[
        (0.0, "a LOCK x", "1"),
        (0.0, "b LOCKALL 2 x y WAIT 5", "waits"),
        (0.0, "c LOCK y", "waits"),
        (5.0, "- TICK", "-, b gets nil, c gets 2"),
        // A place whose time is over does not hold up what becomes free late.
        (5.0, "b LOCKALL 2 x z WAIT 5", "waits"),
        (5.0, "d LOCK x", "waits"),
        (10.0, "a UNLOCK x", "released, b gets nil, d gets 3"),
        (10.0, "b LOCK s OF 2", "4"),
        (10.0, "e LOCKALL 2 s t", "Places(2)"),
    ]);
}

#[test]
fn bounds_count_each_place_of_several_locks() {
    let limits = Limits {
        waiters_per_lock: 2,
        waiters: 4,
        ..Limits::default()
    };
    story(
        limits,
        &[
            (0.0, "a LOCK x", "1"),
            (0.0, "b LOCKALL 5 x y z v w", "Waiters"),
            (0.0, "b LOCKALL 3 x y z", "waits"),
            (0.0, "c LOCKALL 2 x y", "Waiters"),
            (0.0, "c LOCK x", "waits"),
            (0.0, "d LOCK x", "WaitersOfLock"),
            (0.0, "d LOCKALL 2 w ", "Name"),
            (0.0, "d LOCKALL 2 v w", "2+2"),
        ],
    );
}

#[test]
fn a_client_that_dies_while_waiting_leaves_no_trace() {
    rules(&[
        (0.0, "a LOCK x", "1"),
        (0.0, "b LOCK x TTL 1000", "waits"),
        (0.0, "c LOCK x", "waits"),
        (0.0, "b CLOSE", "-"),
        (1.0, "a UNLOCK x", "released, c gets 2"),
    ]);
}

#[test]
fn force_takes_a_lock_from_all_holders_and_serves_the_line() {
    rules(&[
        (0.0, "- FORCE x", "forced 0"),
        (0.0, "a LOCK x SHARED", "1"),
        (0.0, "b LOCK x SHARED TTL 1000", "2"),
        (0.0, "w LOCK x", "waits"),
        (0.0, "- FORCE x", "forced 2, w gets 3"),
        (0.0, "a UNLOCK x", "notowner"),
        (0.0, "b UNLOCK x 2", "notowner"),
        (0.0, "- FORCE x", "forced 1"),
        (0.0, "w UNLOCK x", "notheld"),
        (0.0, "w CLOSE", "-"),
    ]);
}

#[test]
fn bounds_are_refusals_that_change_nothing() {
    let limits = Limits {
        name_bytes: 30,
        waiters_per_lock: 2,
        waiters: 3,
        ..Limits::default()
    };
    story(
        limits,
        &[
            (0.0, "a LOCK ", "Name"),
            (0.0, "a LOCK 123456789012345678901234567890", "1"),
            (0.0, "a LOCK 1234567890123456789012345678901", "Name"),
            (0.0, "a LOCK x", "2"),
            (0.0, "a LOCK y", "3"),
            (0.0, "b LOCK x", "waits"),
            (0.0, "c LOCK x", "waits"),
            (0.0, "d LOCK x", "WaitersOfLock"),
            (0.0, "d LOCK y", "waits"),
            (0.0, "e LOCK y", "Waiters"),
            (0.0, "e LOCK z", "4"), // Whoever need not wait is served.
            (0.0, "a UNLOCK x", "released, b gets 5"),
            (0.0, "e LOCK y", "waits"),
        ],
    );
}

#[test]
fn a_bound_on_waits_ends_those_that_would_last_for_ever() {
    let limits = Limits {
        wait_ms: Some(10),
        ..Limits::default()
    };
    story(
        limits,
        &[
            (0.0, "a LOCK x", "1"),
            (0.0, "b LOCK x", "waits"),
            (0.0, "c LOCK x WAIT 5", "waits"),
            (0.0, "d LOCK x WAIT 100", "waits"),
            (5.0, "- TICK", "-, c gets nil"),
            (9.9, "- TICK", "-"),
            (10.0, "- TICK", "-, b gets nil, d gets nil"),
        ],
    );
}

#[test]
fn memory_is_bounded_and_freed_places_serve_again() {
    let mut table: Table = Table::new(Limits::default(), HashKey(1, 2), 1);
    let empty = table.bytes();
    table.limits.memory_bytes = empty + 3 * 1024 * (size_of::<Lock>() + size_of::<Links>());
    let now = Time(0);
    let mut out = Vec::new();
    table.step(Event::Tokens { end: u64::MAX }, now, &mut out);
    let Reply::Opened(client) = table.step(Event::Open, now, &mut out) else {
        panic!()
    };
    let lock = |name: String, table: &mut Table| {
        let (name, mode) = (name.as_bytes(), Mode::Exclusive);
        let request = LockRequest {
            client,
            name,
            ttl_ms: None,
            wait_ms: None,
            mode,
        };
        table.step(Event::Lock(request), now, &mut Vec::new())
    };
    let granted = (0..10_000)
        .take_while(|n| matches!(lock(format!("n{n}"), &mut table), Reply::Granted(_)))
        .count();
    assert_eq!(granted, 3 * 1024);
    assert_eq!(
        lock("more".into(), &mut table),
        Reply::Refused(Refusal::Memory)
    );
    assert!(table.bytes() <= table.limits.memory_bytes);
    let unlock = Event::Unlock {
        client,
        name: b"n7",
        token: None,
    };
    assert_eq!(table.step(unlock, now, &mut out), Reply::Released);
    assert!(matches!(lock("more".into(), &mut table), Reply::Granted(_)));
}

#[test]
fn without_reserved_tokens_nothing_is_granted_and_nobody_waits_for_it() {
    let mut stage = Stage::new(Limits::default());
    stage.table = Table::new(Limits::default(), HashKey(1, 2), 7);
    let mut out = Vec::new();
    let now = Time(0);
    stage.table.step(Event::Tokens { end: 9 }, now, &mut out);
    for (line, expected) in [
        ("a LOCK x", "7"),
        ("b LOCK x", "waits"),
        ("c LOCK x", "waits"),
        ("a LOCK y", "8"),
        ("a LOCK z", "Tokens"),
        ("a LOCK z SHARED", "Tokens"),
        // The lock is free, but cannot be given: those who wait are told.
        ("a UNLOCK x", "released, b gets Tokens, c gets Tokens"),
        ("b LOCK x", "Tokens"),
        ("a UNLOCK y", "released"),
    ] {
        assert_eq!(stage.play(now, line), expected, "{line}");
    }
    stage.table.step(Event::Tokens { end: 20 }, now, &mut out);
    assert_eq!(stage.play(now, "b LOCK x"), "9");
}

#[test]
fn long_names_are_told_apart_to_their_last_byte() {
    let mut stage = Stage::new(Limits {
        name_bytes: 65535,
        ..Limits::default()
    });
    let mut names: Vec<String> = Vec::new();
    for length in [1, 23, 24, 25, 26, 79, 80, 81, 82, 140, 141, 500, 65535] {
        let name = "n".repeat(length);
        let other = format!("{}m", &name[1..]);
        names.extend([name, other]);
    }
    for (token, name) in (1..).zip(&names) {
        assert_eq!(
            stage.play(Time(0), &format!("a LOCK {name}")),
            token.to_string()
        );
    }
    let mut seen = Vec::new();
    let visit = |name: &[u8], _| {
        seen.push(String::from_utf8(name.to_vec()).unwrap());
        1
    };
    let end = stage.table.walk_holds(0, 1 << 20, &mut Vec::new(), visit);
    assert_eq!((end, seen), (Ok(None), names.clone()));
    for name in &names {
        assert_eq!(stage.play(Time(0), &format!("a UNLOCK {name}")), "released");
        assert_eq!(stage.play(Time(0), &format!("a UNLOCK {name}")), "notheld");
    }
    assert_eq!(stage.table.blocks.live(), 0);
}

#[test]
fn a_session_with_very_many_locks_is_released_in_pieces() {
    let mut stage = Stage::new(Limits::default());
    let count = RELEASES_PER_STEP * 2 + 10;
    for n in 0..count {
        stage.play(Time(0), &format!("a LOCK n{n}"));
    }
    assert_eq!(stage.table.names_held(), count as u64);
    stage.play(Time(0), "a CLOSE");
    assert_eq!(stage.table.names_held(), (count - RELEASES_PER_STEP) as u64);
    assert_eq!(stage.table.next_tick(), Some(Time(0)));
    stage.play(Time(0), "- TICK");
    stage.play(Time(0), "- TICK");
    assert_eq!(stage.table.names_held(), 0);
    assert_eq!(stage.table.next_tick(), None);
}

#[test]
fn the_next_tick_is_never_later_than_the_next_deadline() {
    let mut stage = Stage::new(Limits::default());
    let mut now = Time(12_345);
    // From a millisecond to 34 years, each set when the one before has passed.
    for exponent in 0..40 {
        let ttl_ms = 1u64 << exponent;
        assert!(
            stage
                .play(now, &format!("a LOCK x TTL {ttl_ms}"))
                .parse::<u64>()
                .is_ok()
        );
        let deadline = Time(now.after_ms(ttl_ms));
        let mut ticks = 0;
        while now < deadline {
            let next = stage.table.next_tick().expect("a lease is running");
            assert!(
                next <= deadline,
                "2^{exponent} ms: {next:?} is after {deadline:?}"
            );
            assert!(next > now, "no progress at {now:?}");
            now = next;
            stage.play(now, "- TICK");
            ticks += 1;
        }
        assert!(ticks <= 10, "2^{exponent} ms took {ticks} ticks");
        assert_eq!(stage.table.names_held(), 0);
    }
}

#[test]
fn very_many_leases_that_end_together_end_in_pieces_but_none_is_of_use() {
    let mut stage = Stage::new(Limits::default());
    let count = TIMERS_PER_STEP * 5;
    for n in 0..count {
        stage.play(Time(0), &format!("a LOCK n{n} TTL 10"));
    }
    stage.play(Time(0), "a LOCK s SHARED TTL 10");
    stage.play(Time(0), "a LOCK w TTL 10");
    stage.play(Time(0), "b LOCK w WAIT 20");
    let later = Time(10_000_000);
    stage.play(later, "- TICK");
    assert!(stage.table.names_held() > 0, "not all at once");
    assert_eq!(stage.table.next_tick(), Some(Time(0)));
    // Names whose timers are among the last.
    let last = count - 1;
    assert_eq!(stage.play(later, &format!("a UNLOCK n{last}")), "notheld");
    assert_eq!(
        stage.play(later, &format!("a RENEW n{} {} 10", last - 1, last)),
        "notowner"
    );
    let token = stage.play(later, &format!("c LOCK n{} WAIT 0", last - 2));
    assert!(token.parse::<u64>().is_ok(), "{token}");
    assert!(stage.play(later, "c LOCK s WAIT 0").parse::<u64>().is_ok());
    let given = stage.play(later, "c LOCK w WAIT 0");
    assert!(given.starts_with("nil, b gets "), "{given}");
    let mut ticks = 0;
    while stage.table.next_tick() == Some(Time(0)) {
        stage.play(later, "- TICK");
        ticks += 1;
    }
    assert!(ticks >= 3, "{ticks}");
    assert_eq!(stage.table.names_held(), 3);
}

#[test]
fn a_walk_in_pieces_sees_every_hold_that_stays() {
    let mut stage = Stage::new(Limits::default());
    let now = Time(0);
    for n in 0..50 {
        stage.play(now, &format!("a LOCK stays{n}"));
        stage.play(now, &format!("a LOCK goes{n}"));
        stage.play(now, &format!("s{n} LOCK shared SHARED"));
        stage.play(now, &format!("w{n} LOCK stays0"));
    }
    let (mut seen, mut cursor, mut pages) = (Vec::new(), 0, 0);
    loop {
        let visit = |name: &[u8], holder: Holder| {
            seen.push((String::from_utf8(name.to_vec()).unwrap(), holder.token));
            1
        };
        let next = stage
            .table
            .walk_holds(cursor, 16, &mut Vec::new(), visit)
            .unwrap();
        // Others come and go in between.
        stage.play(now, &format!("a UNLOCK goes{pages}"));
        stage.play(now, &format!("b LOCK comes{pages}"));
        pages += 1;
        match next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    assert!(pages > 10);
    let count = |start: &str| {
        seen.iter()
            .filter(|(name, _)| name.starts_with(start))
            .count()
    };
    assert_eq!((count("stays"), count("shared")), (50, 50));
    let (mut waiting, mut cursor) = (0, 0);
    while let Some(next) = stage
        .table
        .walk_waiters(b"stays0", cursor, 16, |_| {
            waiting += 1;
            1
        })
        .unwrap()
    {
        cursor = next;
    }
    assert_eq!(waiting, 50);
    assert_eq!(stage.table.walk_waiters(b"free", 0, 9, |_| 1), Ok(None));
    for cursor in [1 << 33, u64::MAX] {
        let walked = stage.table.walk_holds(cursor, 1, &mut Vec::new(), |_, _| 1);
        assert_eq!(walked, Err(BadCursor));
    }
}
