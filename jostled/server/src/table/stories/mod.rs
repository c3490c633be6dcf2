//! The table's rules, each as a short story. A row is: the time in ms, the client and
//! its request, the reply, then the outputs to others. Tokens count from 1.

mod adopted;
mod bounds;
mod contention;
mod idle;
mod quotas;
mod sessions;
mod several;

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
        table.step(Tokens(u64::MAX), Time(0), &mut Vec::new());
        Self {
            table,
            people: HashMap::new(),
        }
    }

    fn client(&mut self, who: &str, now: Time) -> ClientId {
        if let Some(client) = self.people.get(who) {
            return *client;
        }
        let client = self.table.step(Open, now, &mut Vec::new()).unwrap();
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
        let reply = act(&mut self.table, client, &words[1..], now, &mut outputs);
        if words[1] == "CLOSE" {
            self.people.remove(words[0]);
        }
        let mut told = vec![reply];
        told.extend(outputs.iter().map(|output| {
            let name = self.people.iter().find(|(_, id)| **id == output.client);
            let who = name.map_or("?", |(name, _)| name.as_str());
            format!("{who} gets {}", said(Some(output.outcome)))
        }));
        told.join(", ")
    }
}

/// A session of one user.
fn session(id: u64) -> SessionKey {
    SessionKey {
        user: 0,
        id: id.into(),
    }
}

/// Does what the words ask for; returns the reply.
fn act(
    table: &mut Table,
    client: Option<ClientId>,
    words: &[&str],
    now: Time,
    outputs: &mut Vec<Output>,
) -> String {
    let number = |word: &str| word.parse::<u64>().unwrap();
    let option = |key: &str| {
        let at = words.iter().position(|word| *word == key)?;
        Some(number(words[at + 1]))
    };
    let (ttl_ms, wait_ms) = (option("TTL"), option("WAIT"));
    let name = words.get(1).map_or(&b""[..], |name| name.as_bytes());
    let key = || session(number(words[1]));
    let open = |open: bool, reply: &str| if open { reply } else { "nosession" }.to_owned();
    match (words[0], client) {
        ("LOCK", Some(client)) => {
            let session = option("SESSION").map(session);
            let request = LockRequest {
                client,
                name,
                ttl_ms,
                wait_ms,
                mode: match option("OF") {
                    Some(of) if of > 1 => Mode::Place { of: of as u16 },
                    _ if words.contains(&"SHARED") => Mode::Shared,
                    _ => Mode::Exclusive,
                },
                session: session.as_ref(),
            };
            said(table.step(request, now, outputs))
        }
        ("LOCKALL", Some(client)) => {
            let count: usize = words[1].parse().unwrap();
            let names: Vec<&[u8]> = words[2..2 + count].iter().map(|w| w.as_bytes()).collect();
            let session = option("SESSION").map(session);
            let request = LockAllRequest {
                client,
                names: &names,
                ttl_ms,
                wait_ms,
                shared: words.contains(&"SHARED"),
                session: session.as_ref(),
            };
            said(table.step(request, now, outputs))
        }
        ("OPEN", _) => {
            let open = OpenSession {
                key: key(),
                ttl_ms: number(words[2]),
                text: words.get(3).unwrap_or(&""),
            };
            match table.step(open, now, outputs) {
                Ok(()) => "-".into(),
                Err(refusal) => format!("{refusal:?}"),
            }
        }
        ("PROLONG", _) => open(table.step(RenewSession(key()), now, outputs), "renewed"),
        ("END", _) => open(table.step(CloseSession(key()), now, outputs), "-"),
        ("UNLOCK", Some(client)) => {
            let token = words.get(2).map(|word| number(word));
            let event = Unlock {
                client,
                name,
                token,
            };
            match table.step(event, now, outputs) {
                Ok(()) => "released".into(),
                Err(why) => format!("{why:?}").to_lowercase(),
            }
        }
        ("RENEW", _) => {
            let (token, ttl_ms) = (number(words[2]), number(words[3]));
            let event = Renew {
                name,
                token,
                ttl_ms,
            };
            match table.step(event, now, outputs) {
                Ok(()) => "renewed".into(),
                Err(why) => format!("{why:?}").to_lowercase(),
            }
        }
        ("FORCE", _) => format!("forced {}", table.step(Force(name), now, outputs)),
        (word, client) => {
            match (word, client) {
                ("CANCEL", Some(client)) => table.step(Cancel(client), now, outputs),
                ("CANCELALL", _) => table.step(CancelAll, now, outputs),
                ("CLOSE", Some(client)) => table.step(Close(client), now, outputs),
                ("TICK", _) => table.step(Tick, now, outputs),
                other => panic!("{other:?}"),
            }
            "-".into()
        }
    }
}

fn said(outcome: Option<Outcome>) -> String {
    match outcome {
        None => "waits".into(),
        Some(Outcome::Granted(token)) => token.to_string(),
        Some(Outcome::GrantedAll { first, count }) => format!("{first}+{count}"),
        Some(Outcome::TimedOut) => "nil".into(),
        Some(Outcome::NoSession) => "nosession".into(),
        Some(Outcome::AlreadyHeld { token, mode, which }) => {
            let place = match which {
                Which::OneOf { at: at @ 1.., .. } => format!(" at {at}"),
                _ => String::new(),
            };
            format!("alreadyheld {token} {}{place}", mode.word())
        }
        Some(Outcome::Refused(refusal)) => format!("{refusal:?}"),
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
        (0.0, "a LOCK x", "alreadyheld 1 exclusive"),
        (0.0, "a LOCK x WAIT 0", "alreadyheld 1 exclusive"),
        (0.0, "a LOCK x SHARED", "alreadyheld 1 exclusive"),
        (0.0, "a LOCK x TTL 5", "alreadyheld 1 exclusive"),
        (0.0, "b LOCK s SHARED", "2"),
        (0.0, "a LOCK s SHARED TTL 9", "3"),
        (0.0, "a LOCK s SHARED", "4"),
        // Neither another's token nor that of its own lease.
        (0.0, "a LOCK s SHARED", "alreadyheld 4 shared"),
        (0.0, "a LOCK s", "alreadyheld 4 shared"), // No upgrade from shared to exclusive.
        // A lease may be somebody else's business (a pool): asking again waits.
        (0.0, "a LOCK l TTL 5", "5"),
        (0.0, "a LOCK l TTL 5", "waits"),
        (5.0, "- TICK", "-, a gets 6"),
        // It was not made reentrant: one release is enough.
        (5.0, "a UNLOCK x", "released"),
        (5.0, "a UNLOCK x", "notheld"),
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
