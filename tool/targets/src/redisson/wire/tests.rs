use super::*;

fn asking(asking: Asking) -> RedissonWire {
    let names = Names::of_run(1);
    let scripts = ["take", "give", "keep"].map(|script| script.as_bytes().to_vec());
    let mut wire = RedissonWire::new(names, 30_000, scripts, &"0123456789abcdef".repeat(2));
    let mut out = Vec::new();
    wire.acquire(0, Mode::Exclusive, asking, &mut out);
    assert!(sent(&out).starts_with("EVALSHA take 1 jostle:"), "{out:?}");
    wire
}

/// The words of what was put together, without lengths.
fn sent(out: &[u8]) -> String {
    let text = String::from_utf8(out.to_vec()).unwrap();
    let words = text
        .split("\r\n")
        .filter(|line| !line.starts_with(['*', '$']));
    words.collect::<Vec<_>>().join(" ")
}

fn push(wire: &RedissonWire, word: &str) -> String {
    let channel = String::from_utf8(wire.channel(0).to_vec()).unwrap();
    let last = if word == "message" { "$1\r\n0" } else { ":1" };
    let (word_bytes, channel_bytes) = (word.len(), channel.len());
    format!(">3\r\n${word_bytes}\r\n{word}\r\n${channel_bytes}\r\n{channel}\r\n{last}\r\n")
}

/// Gives it these bytes, which must be whole; what it answers, and what it sends then.
fn hears(wire: &mut RedissonWire, bytes: &str) -> (Answer, String) {
    for cut in 1..bytes.len() {
        assert_eq!(
            wire.decode(&bytes.as_bytes()[..cut], "x"),
            Ok(None),
            "{cut}"
        );
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

/// Has found the lock taken and awaits a message.
fn waiting(limit: Asking) -> RedissonWire {
    let mut wire = asking(limit);
    let (answer, sent) = hears(&mut wire, ":30000\r\n");
    assert_eq!(answer, Answer::Pending);
    assert!(
        sent.starts_with("SUBSCRIBE redisson_lock__channel:{jostle:"),
        "{sent}"
    );
    let confirmed = push(&wire, "subscribe");
    let (answer, sent) = hears(&mut wire, &confirmed);
    assert_eq!(answer, Answer::Pending);
    assert!(sent.starts_with("EVALSHA take"), "{sent}");
    assert_eq!(
        hears(&mut wire, ":200\r\n"),
        (Answer::Pending, String::new())
    );
    let patience = wire.patience_ns().unwrap();
    assert!((1..=200_000_000).contains(&patience), "{patience}");
    wire
}

#[test]
fn a_free_lock_is_taken_and_given_by_one_script_each() {
    let mut wire = asking(Asking::Block);
    assert_eq!(hears(&mut wire, "_\r\n").0, Answer::Granted);
    let mut out = Vec::new();
    wire.release(0, Mode::Exclusive, &mut out);
    assert!(sent(&out).starts_with("EVALSHA give 3 jostle:"), "{out:?}");
    assert!(sent(&out).contains("01234567-89ab-cdef-0123-456789abcdef:1"));
    for (answer, expected) in [("_\r\n", Err(LAPSED)), (":1\r\n", Ok(()))] {
        wire.state = State::Giving;
        assert_eq!(wire.released(Reply::Text(answer.as_bytes())), expected);
    }
}

/// Words that begin so.
fn words<'a>(sent: &'a str, begin: &str) -> Vec<&'a str> {
    let words = sent.split(' ');
    words.filter(|word| word.starts_with(begin)).collect()
}

#[test]
fn a_release_leaves_a_latch_of_its_own_that_is_removed_without_waiting() {
    let mut wire = asking(Asking::Block);
    let mut latches = Vec::new();
    let mut replies = "_\r\n";
    for _ in 0..2 {
        assert_eq!(hears(&mut wire, replies).0, Answer::Granted);
        let mut out = Vec::new();
        wire.release(0, Mode::Exclusive, &mut out);
        let given = sent(&out);
        let latch = words(&given, "redisson_unlock_latch:{jostle:")[0].to_owned();
        assert_eq!(wire.released(Reply::Text(b":1\r\n")), Ok(()));
        out.clear();
        wire.afterwards(&mut out);
        assert_eq!(sent(&out).trim_end(), format!("DEL {latch}"));
        // It may come while nothing is asked for.
        assert_eq!(wire.decode(b":1\r\n", "x"), Ok(None));
        assert!(wire.decode(b":1\r\n:1\r\n", "x").is_err());
        out.clear();
        wire.acquire(0, Mode::Exclusive, Asking::Block, &mut out);
        assert!(sent(&out).starts_with("EVALSHA take"), "{out:?}");
        latches.push(latch);
        replies = ":1\r\n_\r\n";
    }
    assert_ne!(latches[0], latches[1]);
}

#[test]
fn the_latch_of_what_was_given_back_is_removed_with_the_next_request() {
    let mut wire = asking(Asking::Block);
    wire.give_up(&mut Vec::new());
    hears(&mut wire, "_\r\n");
    assert_eq!(hears(&mut wire, ":1\r\n").0, Answer::Taken);
    let mut out = Vec::new();
    wire.acquire(0, Mode::Exclusive, Asking::Block, &mut out);
    let asked = sent(&out);
    assert!(asked.starts_with("DEL redisson_unlock_latch:{"), "{asked}");
    assert!(asked.contains(" EVALSHA take "), "{asked}");
    // The answer to the removal is no lease that is left.
    assert_eq!(hears(&mut wire, ":0\r\n_\r\n").0, Answer::Granted);
}

#[test]
fn the_last_latch_is_removed_before_the_server_ends_the_connection() {
    let mut wire = asking(Asking::Block);
    let farewell = |wire: &mut RedissonWire| {
        let mut out = Vec::new();
        assert!(wire.farewell(&mut out));
        sent(&out)
    };
    assert_eq!(farewell(&mut wire).trim_end(), "QUIT");
    hears(&mut wire, "_\r\n");
    wire.release(0, Mode::Exclusive, &mut Vec::new());
    let said = farewell(&mut wire);
    assert!(said.starts_with("DEL redisson_unlock_latch:{"), "{said}");
    assert!(said.trim_end().ends_with(" QUIT"), "{said}");
}

#[test]
fn a_message_and_the_end_of_the_lease_make_it_try_again() {
    let mut wire = waiting(Asking::Block);
    let message = push(&wire, "message");
    let (answer, sent_next) = hears(&mut wire, &message);
    assert_eq!(answer, Answer::Pending);
    assert!(sent_next.starts_with("EVALSHA take"), "{sent_next}");
    // A message that came before the answer is behind it, one after it counts.
    assert_eq!(hears(&mut wire, &format!("{message}:100\r\n")).1, "");
    let mut out = Vec::new();
    wire.due(&mut out).unwrap();
    assert!(sent(&out).starts_with("EVALSHA take"), "{out:?}");
    let both = format!(":100\r\n{message}");
    let decoded = wire.decode(both.as_bytes(), "x").unwrap().unwrap();
    assert_eq!(wire.acquired(0, decoded.0), Ok(Answer::Pending));
    assert_eq!(wire.state, State::Due(Step::Take));
}

#[test]
fn an_owner_that_had_to_wait_ends_its_subscription_with_the_release() {
    let mut wire = waiting(Asking::Block);
    let mut out = Vec::new();
    wire.due(&mut out).unwrap();
    assert_eq!(hears(&mut wire, "_\r\n").0, Answer::Granted);
    out.clear();
    wire.release(0, Mode::Exclusive, &mut out);
    let words = sent(&out);
    assert!(
        words.starts_with("UNSUBSCRIBE redisson_lock__channel:{"),
        "{words}"
    );
    assert!(words.contains("EVALSHA give"), "{words}");
    let answers = push(&wire, "unsubscribe") + ":1\r\n";
    let decoded = wire.decode(answers.as_bytes(), "x").unwrap().unwrap();
    assert_eq!(decoded.1, answers.len());
    assert_eq!(wire.released(decoded.0), Ok(()));
}

#[test]
fn a_try_does_not_wait_and_what_nobody_wants_is_given_back() {
    let mut wire = asking(Asking::Try);
    assert_eq!(hears(&mut wire, ":30000\r\n").0, Answer::Taken);
    // Taken back while it waits.
    let mut wire = waiting(Asking::Block);
    let mut out = Vec::new();
    wire.give_up(&mut out);
    assert!(sent(&out).starts_with("UNSUBSCRIBE"), "{out:?}");
    let confirmed = push(&wire, "unsubscribe");
    assert_eq!(hears(&mut wire, &confirmed).0, Answer::Taken);
    // Taken back when it was granted already.
    let mut wire = asking(Asking::Block);
    wire.give_up(&mut Vec::new());
    let (answer, sent) = hears(&mut wire, "_\r\n");
    assert_eq!(answer, Answer::Pending);
    assert!(sent.starts_with("EVALSHA give"), "{sent}");
    assert_eq!(hears(&mut wire, ":1\r\n").0, Answer::Taken);
}

#[test]
fn what_was_not_asked_for_is_an_error() {
    let mut wire = asking(Asking::Block);
    assert!(wire.decode(b"_\r\n_\r\n", "x").is_ok());
    let two = wire.acquired(0, Reply::Text(b":5\r\n:5\r\n"));
    assert_eq!(two, Err(surplus::error(SCRIPT)));
    let mut wire = asking(Asking::Block);
    let error = wire
        .acquired(0, Reply::Text(b"-OOM no memory\r\n"))
        .unwrap_err();
    assert_eq!(error.said, Some("OOM no memory"));
    let mut wire = asking(Asking::Block);
    assert!(wire.acquired(0, Reply::Text(b"+OK\r\n")).is_err());
    assert!(wire.decode(b"?", "x").is_err());
}
