use super::*;

const OURS: &str = "5e55-10n";

fn asking(asking: Asking) -> ConsulWire {
    let login = Login::of_launched("h:1".to_owned(), None, "t0ken");
    let session = (OURS, 15_000_000_000);
    let mut wire = ConsulWire::new(Names::of_run(1), &login, session, clock::monotonic());
    let mut out = Vec::new();
    wire.acquire(0, Mode::Exclusive, asking, &mut out);
    let sent = String::from_utf8(out).unwrap();
    assert!(sent.starts_with("GET /v1/kv/jostle:"), "{sent}");
    assert!(sent.ends_with(" HTTP/1.1\r\nHost: h:1\r\nX-Consul-Token: t0ken\r\n\r\n"));
    assert!(!format!("{wire:?}").contains("t0ken"));
    wire
}

fn answer(status: u16, index: u64, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\nX-Consul-Index: {index}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn key(session: &str, modified: u64) -> String {
    let body = format!(
        r#"[{{"LockIndex":1,"Key":"k","Flags":0,"Value":null,"Session":"{session}","CreateIndex":3,"ModifyIndex":{modified}}}]"#
    );
    answer(200, modified, &body)
}

/// Gives it these answers, which must be whole; what they mean, and what it sends then.
fn hears(wire: &mut ConsulWire, bytes: &str) -> (Result<Answer, CallError>, String) {
    for cut in 1..bytes.len() {
        assert_eq!(
            wire.decode(&bytes.as_bytes()[..cut], "x"),
            Ok(None),
            "{cut}"
        );
    }
    let (reply, length) = wire.decode(bytes.as_bytes(), "x").unwrap().unwrap();
    assert_eq!(length, bytes.len());
    let answer = wire.acquired(0, reply);
    let mut out = Vec::new();
    if answer == Ok(Answer::Pending) {
        wire.go_on(&mut out);
    }
    (answer, String::from_utf8(out).unwrap())
}

fn sees_no_key(wire: &mut ConsulWire) {
    let (answer, sent) = hears(wire, &answer(404, 7, ""));
    assert_eq!(answer, Ok(Answer::Pending));
    assert!(sent.contains("?acquire="), "{sent}");
}

#[test]
fn a_free_key_is_acquired_and_read_and_its_modify_index_is_the_token() {
    let mut wire = asking(Asking::Block);
    let (pending, sent) = hears(&mut wire, &answer(404, 7, ""));
    assert_eq!(pending, Ok(Answer::Pending));
    assert!(sent.starts_with("PUT /v1/kv/jostle:"), "{sent}");
    assert!(sent.contains("?acquire=5e55-10n&flags=3304740253564472344 HTTP/1.1"));
    assert!(
        sent.contains("Content-Length: 0\r\n\r\nGET /v1/kv/jostle:"),
        "{sent}"
    );
    let both = answer(200, 0, "true") + &key(OURS, 8);
    assert_eq!(hears(&mut wire, &both).0, Ok(Answer::Granted));
    assert_eq!(wire.token(Reply::Nil), Some(8));
    for (given, expected) in [("true", Ok(())), ("false", Err(LOST))] {
        wire.release(0, Mode::Exclusive, &mut Vec::new());
        let bytes = answer(200, 0, given);
        assert_eq!(wire.released(Reply::Text(bytes.as_bytes())), expected);
    }
}

#[test]
fn a_key_of_another_session_is_watched_from_its_index() {
    let mut wire = asking(Asking::Block);
    let (pending, sent) = hears(&mut wire, &key("another", 9));
    assert_eq!(pending, Ok(Answer::Pending));
    let wait = sent.split("?index=9&wait=").nth(1).unwrap();
    let wait_ms: u64 = wait.split("ms").next().unwrap().parse().unwrap();
    assert!(
        (1..=7_500).contains(&wait_ms),
        "until the session is renewed: {wait_ms}"
    );
    // It changed, and is free.
    let (_, sent) = hears(&mut wire, &answer(200, 10, r#"[{"ModifyIndex":10}]"#));
    assert!(sent.contains("?acquire="), "{sent}");
    // Another session was faster.
    let lost = answer(200, 0, "false") + &key("another", 11);
    assert!(hears(&mut wire, &lost).1.contains("?index=11&wait="));
    // Nobody wants it any more, and a query holds nothing.
    wire.give_up(&mut Vec::new());
    assert!(wire.is_left());
}

#[test]
fn a_lock_delay_is_waited_for_and_an_answer_that_does_not_come_is_an_error() {
    let mut wire = asking(Asking::Block);
    sees_no_key(&mut wire);
    let delayed = answer(200, 0, "false") + &answer(200, 8, r#"[{"ModifyIndex":8}]"#);
    assert_eq!(
        hears(&mut wire, &delayed),
        (Ok(Answer::Pending), String::new())
    );
    assert!(wire.is_on_time() && wire.patience_ns().unwrap() <= RETRY_NS);
    let mut out = Vec::new();
    wire.due(&mut out).unwrap();
    assert!(out.starts_with(b"GET /v1/kv/jostle:"));
    assert_eq!(wire.due(&mut out), Err(SILENT));
}

#[test]
fn a_try_does_not_wait_and_what_nobody_wants_is_given_back() {
    let mut wire = asking(Asking::Try);
    assert_eq!(hears(&mut wire, &key("another", 9)).0, Ok(Answer::Taken));
    let mut wire = asking(Asking::Block);
    sees_no_key(&mut wire);
    wire.give_up(&mut Vec::new());
    assert!(!wire.is_left());
    let both = answer(200, 0, "true") + &key(OURS, 8);
    assert!(hears(&mut wire, &both).1.contains("?release=5e55-10n"));
    assert_eq!(
        hears(&mut wire, &answer(200, 0, "true")).0,
        Ok(Answer::Taken)
    );
}

#[test]
fn a_session_is_renewed_in_the_same_write_and_one_that_is_over_is_told() {
    let mut wire = asking(Asking::Block);
    sees_no_key(&mut wire);
    let over = answer(500, 0, "invalid session \"5e55-10n\"") + &answer(404, 7, "");
    assert_eq!(hears(&mut wire, &over).0, Err(LAPSED));
    let mut wire = asking(Asking::Block);
    sees_no_key(&mut wire);
    let both = answer(200, 0, "true") + &key(OURS, 8);
    assert_eq!(hears(&mut wire, &both).0, Ok(Answer::Granted));
    wire.renewed_ns = 0;
    let mut out = Vec::new();
    wire.release(0, Mode::Exclusive, &mut out);
    assert!(out.starts_with(b"PUT /v1/session/renew/5e55-10n HTTP/1.1"));
    let gone = answer(404, 0, "not found") + &answer(200, 0, "false");
    let (reply, _) = wire.decode(gone.as_bytes(), "x").unwrap().unwrap();
    assert_eq!(wire.released(reply), Err(LOST));
}
