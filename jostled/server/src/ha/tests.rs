//! Scripted cases, which a random world meets rarely or cannot tell from others.

use super::*;
use crate::store::{Entry, Hold, Owner, Session};
use crate::table::{Mode, Time};

const S: u64 = 1_000;

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

fn head() -> Head {
    Head {
        incarnation: "before".into(),
        orphan_ms: 10 * S,
        ..Head::first("c", 7)
    }
}

fn standby(memory: Memory, restored: bool) -> Standby {
    let own = Own {
        incarnation: "own".into(),
        orphan_ms: 10 * S,
        ..Own::default()
    };
    Standby::new(Keys::new("x"), Rules::REAL, own, memory, restored)
}

fn primary() -> Primary {
    let taken = Taken {
        head: head(),
        stored: Default::default(),
        first_token: 1,
        orphan_ms: 0,
        at: at(0),
        discarded: false,
        loading: at(0),
    };
    Primary::new(Keys::new("x"), Rules::REAL, taken)
}

/// The call that is due.
fn sent(due: Due) -> Call {
    match due {
        Due::Send(call) => call,
        other => panic!("{other:?}"),
    }
}

fn txn(call: &Call) -> &Txn {
    match &*call.request {
        Request::Txn(txn) => txn,
        other => panic!("{other:?}"),
    }
}

fn put(call: &Call, key: &str) -> Option<String> {
    let mut puts = txn(call).puts.iter();
    let found = puts.find(|(found, _)| found.ends_with(key.as_bytes()));
    found.map(|(_, value)| String::from_utf8(value.clone()).unwrap())
}

fn begun(token: u64, owner: Owner) -> Entry {
    let (name, mode) = (b"a b\xff".to_vec(), Mode::Exclusive);
    Entry::Begun(token, Hold { name, mode, owner })
}

fn session() -> Session {
    Session {
        user: "u".into(),
        id: 5,
    }
}

fn page(pairs: &[(&str, Vec<u8>)]) -> Answer {
    let pairs = pairs
        .iter()
        .map(|(key, value)| (format!("/jostled/x/{key}").into_bytes(), value.clone()));
    Answer::Page {
        pairs: pairs.collect(),
        more: false,
        revision: 9,
    }
}

/// Shows the standby heads at these times; the time of the takeover's call, if there is one.
fn watch(standby: &mut Standby, until: u64, value: impl Fn(u64) -> Option<Head>) -> Option<Call> {
    for ms in (0..until).step_by(10) {
        let Due::Send(call) = standby.due(at(ms)) else {
            continue;
        };
        let found = value(ms);
        let answer = match (&*call.request, &found) {
            (Request::Txn(_), _) => return Some(call),
            (Request::Range(range), None) if range.to.is_none() => page(&[]),
            (_, Some(head)) => page(&[("head", head.text())]),
            _ => Answer::Unknown,
        };
        standby.answered(call.number, answer, at(ms));
    }
    None
}

#[test]
fn keys_are_text_and_read_back() {
    let mut primary = primary();
    let holds = [
        begun(
            1,
            Owner::Lease {
                ttl_ms: 20,
                user: "u".into(),
            },
        ),
        begun(
            2,
            Owner::Connection {
                number: 3,
                user: "u".into(),
            },
        ),
        begun(3, Owner::Session(session())),
    ];
    let mut entries = vec![Entry::Opened(session(), 30, "it's \"me\"".into())];
    entries.extend(holds.clone());
    primary.ask(entries.clone());
    let call = sent(primary.due(at(1)));
    let text = r#"{"name":"a b%FF","mode":"exclusive","user":"u","lease_ms":20}"#;
    assert_eq!(put(&call, "h/0000000000000000001").unwrap(), text);
    let text = r#"{"user":"u","ttl_ms":30,"text":"it's \"me\""}"#;
    assert_eq!(put(&call, &format!("s/{:032x}", 5)).unwrap(), text);
    let keys = Keys::new("x");
    let read = txn(&call)
        .puts
        .iter()
        .map(|(key, value)| keys.read(key, value).unwrap());
    let read: Vec<_> = read.collect();
    for entry in entries {
        assert!(read.contains(&keys::Found::Entry(entry)));
    }
    for name in [&b"%"[..], b"%4", b"a%\xc3\xa9\"\\\n", "é".as_bytes()] {
        let mode = Mode::Place { of: 3 };
        let owner = Owner::Session(session());
        let hold = Hold {
            name: name.to_vec(),
            mode,
            owner,
        };
        let found = keys.read(&keys.hold(9), &keys::hold_text(&hold));
        assert_eq!(found.unwrap(), keys::Found::Entry(Entry::Begun(9, hold)));
    }
    let bad = r#"{"name":"a%f","mode":"exclusive","user":"u","lease_ms":20}"#;
    assert!(keys.read(&keys.hold(9), bad.as_bytes()).is_err());
    let newer = Head {
        format: 2,
        ..head()
    };
    assert!(
        Head::read(&newer.text())
            .unwrap_err()
            .to_string()
            .contains("format 2")
    );
}

#[test]
fn the_head_tells_whether_an_unknown_write_is_done() {
    let mut one = primary();
    // The machine's memory was copied: two go on with one run and one sequence.
    let mut other = one.clone();
    let all = (1..200).map(|token| begun(token, Owner::Session(session())));
    one.ask(all.collect());
    other.ask(vec![begun(2, Owner::Session(session()))]);
    let call = sent(one.due(at(1)));
    let done = put(&call, "head").unwrap().into_bytes();
    assert_eq!(
        one.answered(call.number, Answer::Unknown, at(2)),
        News::default()
    );
    let again = sent(one.due(at(60)));
    assert_eq!((again.attempt, &again.request), (1, &call.request));
    let news = one.answered(call.number, Answer::Refused(Some(done.clone())), at(61));
    assert!(!news.freed && matches!(one.due(at(62)), Due::Send(call) if call.attempt == 0));
    let call = sent(other.due(at(1)));
    let news = other.answered(call.number, Answer::Refused(Some(done)), at(2));
    assert!(!news.freed && matches!(other.due(at(3)), Due::Over(Over::Deposed(_))));
}

#[test]
fn replies_and_tokens_follow_what_is_written() {
    let mut primary = primary();
    primary.turned(at(500));
    let beat = sent(primary.due(at(500)));
    primary.ask(Vec::new());
    let news = primary.answered(beat.number, Answer::Committed, at(501));
    let tokens = Some(7 + (1 << 22));
    let freed = false;
    assert_eq!(news, News { freed, tokens }, "it began before the turn");
    assert_eq!(
        Some(
            Head::read(put(&beat, "head").unwrap().as_bytes())
                .unwrap()
                .tokens
        ),
        tokens
    );
    let call = sent(primary.due(at(501)));
    // Another operation's answer.
    assert_eq!(
        primary.answered(beat.number, Answer::Committed, at(502)),
        News::default()
    );
    assert!(
        primary
            .answered(call.number, Answer::Committed, at(502))
            .freed
    );
    let user = String::new();
    primary.ask(vec![begun(1, Owner::Lease { ttl_ms: 20, user })]);
    let call = sent(primary.due(at(503)));
    primary.answered(call.number, Answer::Committed, at(503));
    // What is renewed and ends in one batch was there before.
    primary.ask(vec![Entry::Renewed(1, 100), Entry::Ended(1)]);
    let call = sent(primary.due(at(503)));
    assert_eq!(txn(&call).deletes, [(Keys::new("x").hold(1), None)]);
}

#[test]
fn a_primary_writes_while_its_loop_turns_and_ends_when_it_cannot() {
    let mut primary = primary();
    let mut beats = 0;
    let mut over = None;
    for ms in (0..40 * S).step_by(10) {
        if ms < 15 * S {
            primary.turned(at(ms));
        }
        match primary.due(at(ms)) {
            Due::Send(call) => {
                beats += 1;
                primary.answered(call.number, Answer::Committed, at(ms));
            }
            Due::Wait(until) => assert!(until > at(ms)),
            Due::Over(found) => over = over.or(Some((ms, found))),
        }
    }
    assert_eq!(beats, 33, "until 2 s after the last turn");
    assert_eq!(over, Some((26_500, Over::Silent(10 * S))));
    // A copy of a request follows, at another endpoint.
    let mut primary = self::primary();
    primary.ask(Vec::new());
    let call = sent(primary.due(at(1)));
    assert!(txn(&call).puts.is_empty(), "a barrier makes no revision");
    assert!(matches!(primary.due(at(300)), Due::Wait(until) if until == at(301)));
    assert_eq!(sent(primary.due(at(301))).attempt, 1);
    assert!(
        primary
            .answered(call.number, Answer::Committed, at(302))
            .freed
    );
}

#[test]
fn the_end_of_a_session_waits_for_none_of_its_holds() {
    let mut primary = primary();
    let mut asked = vec![Entry::Opened(session(), 30, String::new())];
    asked.extend((1..=1000).map(|token| begun(token, Owner::Session(session()))));
    primary.ask(asked);
    let commit = |primary: &mut Primary| {
        let call = sent(primary.due(at(1)));
        let count = txn(&call).puts.len() + txn(&call).deletes.len();
        assert!(count <= OPERATIONS + 1);
        primary
            .answered(call.number, Answer::Committed, at(1))
            .freed
    };
    let batches = (1..).find(|_| commit(&mut primary)).unwrap();
    assert_eq!(batches, 8, "1001 keys");
    let mut ends = vec![Entry::Closed(session())];
    ends.extend((1..=1000).map(Entry::Ended));
    primary.ask(ends);
    assert!(commit(&mut primary));
    // Their keys go later, by and by.
    (0..7).for_each(|_| assert!(!commit(&mut primary)));
    assert!(matches!(primary.due(at(1)), Due::Wait(_)));
}

#[test]
fn a_standby_takes_over_when_the_head_stands_and_its_own_reads_succeed() {
    let new = || standby(Memory::default(), false);
    let beats = |ms: u64| {
        Some(Head {
            sequence: ms / 500 + 1,
            ..head()
        })
    };
    assert!(watch(&mut new(), 20 * S, beats).is_none());
    let stands = |_| Some(head());
    assert!(watch(&mut new(), 1_490, stands).is_none());
    assert!(watch(&mut new(), 1_900, stands).is_some());
    // Waits are counted from when the success is known; nothing is granted for a while after
    // holds were discarded.
    let discards = |_| {
        Some(Head {
            loading_ms: 1000,
            ..head()
        })
    };
    let mut next = new();
    let call = watch(&mut next, 2 * S, discards).unwrap();
    let taken = next
        .answered(call.number, Answer::Committed, at(9 * S))
        .unwrap();
    assert_eq!(
        (taken.at, taken.loading, taken.head.loading_ms),
        (at(9 * S), at(10_010), 1000)
    );
    assert_eq!((taken.orphan_ms, taken.first_token), (10 * S, 7));
    // The load shows another head: the primary lives.
    let mut other = new();
    for ms in (0..3 * S).step_by(10) {
        let Due::Send(call) = other.due(at(ms)) else {
            continue;
        };
        let answer = match &*call.request {
            Request::Range(range) if range.to.is_none() => page(&[("head", head().text())]),
            Request::Range(_) => page(&[(
                "head",
                Head {
                    sequence: 2,
                    ..head()
                }
                .text(),
            )]),
            Request::Txn(_) => panic!("it takes over from a head that it did not load"),
        };
        other.answered(call.number, answer, at(ms));
    }
    let released = |_| {
        Some(Head {
            incarnation: String::new(),
            ..head()
        })
    };
    assert!(
        watch(&mut new(), 50, released).is_some(),
        "it need not wait"
    );
    // Nobody could write while it could not read.
    let mut cut = new();
    let loads = (0..9 * S).step_by(10).find(|ms| {
        let Due::Send(call) = cut.due(at(*ms)) else {
            return false;
        };
        let answer = match (500..3 * S).contains(ms) {
            true => Answer::Unknown,
            false => page(&[("head", head().text())]),
        };
        cut.answered(call.number, answer, at(*ms));
        matches!(&*call.request, Request::Range(range) if range.to.is_some())
    });
    assert!(
        loads.is_some_and(|ms| (3_400..3_900).contains(&ms)),
        "{loads:?}"
    );
    // It compares the bytes that it has read, with a field of a later version.
    let mut late = new();
    let mut value = head().text();
    value.truncate(value.len() - 1);
    value.extend_from_slice(b",\"more\":1}");
    let call = loop_until_txn(&mut late, &value);
    assert_eq!(txn(&call).compare.as_ref(), Some(&value));
}

fn loop_until_txn(standby: &mut Standby, value: &[u8]) -> Call {
    for ms in (0..9 * S).step_by(10) {
        if let Due::Send(call) = standby.due(at(ms)) {
            if let Request::Txn(_) = &*call.request {
                return call;
            }
            standby.answered(call.number, page(&[("head", value.to_vec())]), at(ms));
        }
    }
    panic!("it does not take over");
}

#[test]
fn what_a_member_knows_better_is_refused_until_it_is_told_to_accept_it() {
    let memory = |cluster: &str, sequence| Memory {
        cluster: cluster.into(),
        sequence,
        tokens: 100,
    };
    let stands = |_| Some(head());
    for (memory, trouble) in [
        (
            memory("other", 1),
            "the cluster c, and the data directory is that of other",
        ),
        (
            memory("c", 5),
            "etcd has state 1, and this member has seen state 5",
        ),
    ] {
        let mut refuses = standby(memory.clone(), false);
        assert!(watch(&mut refuses, 9 * S, stands).is_none());
        assert!(refuses.trouble().unwrap().to_string().contains(trouble));
        assert_eq!(refuses.memory(), &memory);
        let mut accepts = standby(memory.clone(), true);
        let call = watch(&mut accepts, 9 * S, stands).unwrap();
        let new = Head::read(put(&call, "head").unwrap().as_bytes()).unwrap();
        assert!(new.sequence > memory.sequence + (1 << 39));
        assert!(new.tokens > memory.tokens + (1 << 39));
        assert_eq!(txn(&call).deletes, Keys::new("x").content());
        // A primary that serves has this state already.
        let mut late = standby(memory, true);
        let beats = |ms: u64| {
            Some(Head {
                sequence: (ms / 500).min(15),
                ..head()
            })
        };
        let call = watch(&mut late, 20 * S, beats).unwrap();
        assert!(txn(&call).deletes.is_empty());
    }
    let mut none = standby(Memory::default(), false);
    assert!(watch(&mut none, 9 * S, |_| None).is_none());
    assert!(
        none.trouble()
            .unwrap()
            .to_string()
            .contains("/jostled/x/head")
    );
}

#[test]
fn a_cluster_is_initialised_once() {
    let new = |cluster| Init::new(&Keys::new("x"), Rules::REAL, cluster, 7, at(0));
    let mut first = new("one");
    let call = sent(first.due(at(0)));
    assert_eq!(txn(&call).compare, None);
    assert!(first.answered(Answer::Unknown, at(0)).is_none());
    let made = put(&call, "head").unwrap().into_bytes();
    let mut second = new("two");
    assert!(
        second
            .answered(Answer::Refused(Some(made.clone())), at(0))
            .is_none()
    );
    assert!(matches!(second.due(at(1)), Due::Over(Over::Initialised(_))));
    let head = first.answered(Answer::Refused(Some(made)), at(60)).unwrap();
    assert_eq!((head.tokens, head.incarnation.as_str()), (7, ""));
}

#[test]
fn members_run_while_their_values_change() {
    let (keys, mut members) = (Keys::new("x"), Members::default());
    let mut note = |beat, ms| {
        let member = Member {
            version: "1".into(),
            addresses: Vec::new(),
            digest: String::new(),
            beat,
        };
        members.note(&keys, &[(keys.member("b"), member.text())], at(ms));
        members.others("a", at(ms)).count()
    };
    assert_eq!(note(1, 0), 0, "it may be gone");
    assert_eq!(
        (note(1, 1), note(2, 2), note(2, 15_000), note(2, 15_002)),
        (0, 1, 1, 0)
    );
}
