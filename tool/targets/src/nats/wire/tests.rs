//! The dialogue with the server, message by message.

use super::*;

const INBOX: &str = "_INBOX.x.";

fn wire() -> NatsWire {
    NatsWire::new((Names::of_run(1), 2), 30_000_000_000, INBOX, (1, 2))
}

fn asking(asking: Asking) -> NatsWire {
    let (mut wire, mut out) = (wire(), Vec::new());
    wire.acquire(0, Mode::Exclusive, asking, &mut out);
    assert_eq!(sent(&out), "HPUB create 0");
    wire
}

/// The bytes put together, without the names.
fn sent(out: &[u8]) -> String {
    let text = String::from_utf8(out.to_vec()).unwrap();
    let mut said = Vec::new();
    let mut lines = text.split("\r\n");
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "HPUB" => {
                assert!(words[1].starts_with("$KV.jostle_"), "{line}");
                assert!(words[2].starts_with(INBOX), "{line}");
                let rest: Vec<&str> = lines.by_ref().take(5).collect();
                // With a marker there is one line more.
                let is_marker = rest[2].starts_with("KV-");
                let body = if is_marker { rest[4] } else { rest[3] };
                let head_end = if is_marker { 4 } else { 3 };
                let head: usize = rest[..head_end].iter().map(|line| line.len() + 2).sum();
                assert_eq!(words[3], head.to_string(), "{text}");
                assert_eq!(words[4], (head + body.len()).to_string(), "{text}");
                let expected = rest[1].strip_prefix("Nats-Expected-Last-Subject-Sequence: ");
                let kind = if is_marker { "delete" } else { "create" };
                said.push(format!("HPUB {kind} {}", expected.unwrap()));
                let value = if is_marker {
                    ""
                } else {
                    "000000000000000100000002"
                };
                assert_eq!(body, value);
            }
            "PUB" => {
                let subject = words[1].strip_prefix("$JS.API.DIRECT.GET.KV_").unwrap();
                let (bucket, key) = subject.split_once('.').unwrap();
                assert!(key.starts_with(&format!("$KV.{bucket}.")), "{line}");
                said.push("PUB get".to_owned());
            }
            "" => {}
            word => said.push(word.to_owned()),
        }
    }
    said.join(", ")
}

fn stored(wire: &NatsWire, sequence: u64) -> String {
    let body = format!("{{\"stream\":\"KV_x\", \"seq\":{sequence}}}");
    format!("MSG {INBOX}{} 1 {}\r\n{body}\r\n", wire.number, body.len())
}

fn elsewhere(wire: &NatsWire) -> String {
    let body = r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"},"stream":"KV_x","seq":0}"#;
    format!("MSG {INBOX}{} 1 {}\r\n{body}\r\n", wire.number, body.len())
}

fn headed(subject: &str, subscription: u8, head: &str, body: &str) -> String {
    let (head_bytes, whole) = (head.len(), head.len() + body.len());
    format!("HMSG {subject} {subscription} {head_bytes} {whole}\r\n{head}{body}\r\n")
}

fn answer_to(wire: &NatsWire, head: &str, body: &str) -> String {
    headed(&format!("{INBOX}{}", wire.number), 1, head, body)
}

fn owned(wire: &NatsWire) -> String {
    let head = "NATS/1.0\r\nNats-Stream: KV_x\r\nNats-Sequence: 8\r\n\r\n";
    answer_to(wire, head, "another")
}

fn deleted(wire: &NatsWire) -> String {
    let head = "NATS/1.0\r\nKV-Operation: DEL\r\nNats-Sequence: 9\r\n\r\n";
    answer_to(wire, head, "")
}

fn nothing(wire: &NatsWire) -> String {
    answer_to(wire, "NATS/1.0 404 Message Not Found\r\n\r\n", "")
}

/// A change that the bucket has stored, at this sequence.
fn changed(sequence: u64, line: &str) -> String {
    let head = format!("NATS/1.0\r\n{line}Nats-Sequence: {sequence}\r\n\r\n");
    headed("jostle.x.y", 2, &head, "")
}

fn released(sequence: u64) -> String {
    changed(sequence, "KV-Operation: DEL\r\n")
}

/// Gives it these bytes, which must be whole; what it answers, and what it sends then.
fn hears(wire: &mut NatsWire, bytes: &str) -> (Answer, String) {
    for cut in 1..bytes.len() {
        // What nobody awaits may come whole before that.
        let decoded = wire.decode(&bytes.as_bytes()[..cut], "x");
        assert_eq!(decoded, Ok(None), "{cut} of {bytes:?}");
    }
    let decoded = wire.decode(bytes.as_bytes(), "x").unwrap();
    let (reply, length) = decoded.unwrap();
    assert_eq!(length, bytes.len());
    let answer = wire.acquired(0, reply).unwrap();
    let mut out = Vec::new();
    if answer == Answer::Pending {
        wire.go_on(&mut out);
    }
    (answer, sent(&out))
}

/// An answer, and the bytes sent then.
type Heard<'a> = (fn(&NatsWire) -> String, &'a str);

/// Makes each answer of what it awaits by then, and compares what it sends.
fn goes(wire: &mut NatsWire, steps: &[Heard<'_>]) {
    for (answer, expected) in steps {
        let bytes = answer(wire);
        assert_eq!(
            hears(wire, &bytes),
            (Answer::Pending, (*expected).to_owned())
        );
    }
}

/// Has found the key taken and awaits a message.
fn waiting(limit: Asking) -> NatsWire {
    let mut wire = asking(limit);
    goes(
        &mut wire,
        &[(elsewhere, "PUB get"), (owned, "SUB, PUB get"), (owned, "")],
    );
    assert!(matches!(wire.state, State::Waiting(_)), "{wire:?}");
    wire
}

#[test]
fn a_key_is_created_where_nothing_is_or_in_place_of_a_marker() {
    let mut wire = asking(Asking::Block);
    let granted = stored(&wire, 5);
    assert_eq!(hears(&mut wire, &granted).0, Answer::Granted);
    assert_eq!(wire.token(Reply::Nil), Some(5));
    let mut out = Vec::new();
    wire.release(0, Mode::Exclusive, &mut out);
    assert_eq!(sent(&out), "HPUB delete 5");
    assert_eq!(
        wire.released(Reply::Text(stored(&wire, 6).as_bytes())),
        Ok(())
    );
    // One that expired meanwhile.
    let mut wire = asking(Asking::Try);
    goes(
        &mut wire,
        &[(elsewhere, "PUB get"), (nothing, "HPUB create 0")],
    );
    let mut wire = asking(Asking::Try);
    goes(
        &mut wire,
        &[(elsewhere, "PUB get"), (deleted, "HPUB create 9")],
    );
    // Another was faster, and a try does not wait.
    let lost = elsewhere(&wire);
    assert_eq!(hears(&mut wire, &lost), (Answer::Taken, String::new()));
}

#[test]
fn a_waiter_looks_after_a_message_and_now_and_then() {
    let mut wire = waiting(Asking::Block);
    // A value that was written again is no release, nor is one that came before.
    for message in [changed(9, ""), released(7)] {
        assert_eq!(wire.decode(message.as_bytes(), "x"), Ok(None));
    }
    assert_eq!(hears(&mut wire, &released(9)).1, "HPUB create 9");
    goes(&mut wire, &[(elsewhere, "")]);
    // The same again, which another has taken.
    assert_eq!(wire.decode(released(9).as_bytes(), "x"), Ok(None));
    let mut out = Vec::new();
    wire.due(&mut out).unwrap();
    assert_eq!(sent(&out), "PUB get");
    goes(&mut wire, &[(deleted, "HPUB create 9")]);
    let granted = stored(&wire, 12);
    assert_eq!(hears(&mut wire, &granted).0, Answer::Granted);
    out.clear();
    wire.release(0, Mode::Exclusive, &mut out);
    assert_eq!(sent(&out), "UNSUB, HPUB delete 12");
    let late = wire.released(Reply::Text(elsewhere(&wire).as_bytes()));
    assert_eq!(late, Err(LAPSED));
}

#[test]
fn a_release_that_comes_beside_an_answer_is_not_missed() {
    // The key has message 8 by then: what freed it before is past.
    for (freed, expected) in [(9, Some(9)), (7, None)] {
        for first in [true, false] {
            let mut wire = asking(Asking::Block);
            goes(
                &mut wire,
                &[(elsewhere, "PUB get"), (owned, "SUB, PUB get")],
            );
            let (answer, message) = (owned(&wire), released(freed));
            let both = match first {
                true => message + &answer,
                false => answer + &message,
            };
            let (reply, length) = wire.decode(both.as_bytes(), "x").unwrap().unwrap();
            assert_eq!(length, both.len());
            assert_eq!(wire.acquired(0, reply), Ok(Answer::Pending));
            match expected {
                Some(at) => assert_eq!(wire.state, State::Due(Step::Take(at)), "{first}"),
                None => assert!(matches!(wire.state, State::Waiting(_)), "{wire:?}"),
            }
        }
    }
    // While another's attempt is answered.
    let mut wire = waiting(Asking::Block);
    hears(&mut wire, &released(9));
    let both = released(12) + &elsewhere(&wire);
    assert_eq!(
        hears(&mut wire, &both),
        (Answer::Pending, "HPUB create 12".to_owned())
    );
}

#[test]
fn what_nobody_wants_any_more_is_given_back_and_no_message_comes_later() {
    let mut wire = waiting(Asking::Block);
    let mut out = Vec::new();
    wire.give_up(&mut out);
    assert_eq!(sent(&out), "UNSUB, PUB get");
    let free = deleted(&wire);
    assert_eq!(hears(&mut wire, &free).0, Answer::Taken);
    let mut wire = asking(Asking::Block);
    wire.give_up(&mut Vec::new());
    let granted = stored(&wire, 5);
    assert_eq!(
        hears(&mut wire, &granted),
        (Answer::Pending, "HPUB delete 5".to_owned())
    );
    let given = stored(&wire, 6);
    assert_eq!(hears(&mut wire, &given).0, Answer::Taken);
    // Time is up.
    let mut wire = waiting(Asking::Block);
    wire.limit = Asking::Until(0);
    out.clear();
    wire.due(&mut out).unwrap();
    assert_eq!(sent(&out), "UNSUB, PUB get");
    let taken = owned(&wire);
    assert_eq!(hears(&mut wire, &taken).0, Answer::Taken);
}

#[test]
fn a_server_that_asks_whether_we_are_there_is_answered() {
    let mut wire = waiting(Asking::Block);
    assert_eq!(hears(&mut wire, "PING\r\n").1, "PONG");
    assert!(matches!(wire.state, State::Waiting(_)), "{wire:?}");
    // While a lock is held the answer goes with the next request.
    let mut wire = asking(Asking::Block);
    let both = format!("PING\r\n{}", stored(&wire, 5));
    assert_eq!(hears(&mut wire, &both).0, Answer::Granted);
    assert_eq!(wire.decode(b"PING\r\n", "x"), Ok(None));
    let mut out = Vec::new();
    wire.renew(0, &mut out);
    assert_eq!(sent(&out), "PONG, HPUB create 5");
    assert_eq!(
        wire.renewed(0, Reply::Text(stored(&wire, 7).as_bytes())),
        Ok(true)
    );
    out.clear();
    wire.renew(0, &mut out);
    assert_eq!(sent(&out), "HPUB create 7");
    assert_eq!(
        wire.renewed(0, Reply::Text(elsewhere(&wire).as_bytes())),
        Ok(false)
    );
}

#[test]
fn a_lock_that_another_has_taken_meanwhile_is_not_asked_for() {
    let mut wire = waiting(Asking::Block);
    let taken = format!("{}{}", released(9), changed(10, ""));
    let answer = wire.acquired(0, Reply::Text(taken.as_bytes()));
    assert_eq!(answer, Ok(Answer::Pending));
    assert!(matches!(wire.state, State::Waiting(_)), "{wire:?}");
    let freed = format!("{taken}{}", released(11));
    assert_eq!(
        wire.acquired(0, Reply::Text(freed.as_bytes())),
        Ok(Answer::Pending)
    );
    let mut out = Vec::new();
    wire.go_on(&mut out);
    assert_eq!(sent(&out), "HPUB create 11");
}
