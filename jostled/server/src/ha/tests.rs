//! Scripted cases, which a random world meets rarely or cannot tell from others.

use super::*;
use crate::store::{Entry, Hold, Owner, Session};
use crate::table::{Mode, Time};

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

/// The head of a primary, changed like this.
fn head(change: impl FnOnce(&mut Head)) -> Head {
    let mut head = Head::first("c", 7);
    (head.incarnation, head.orphan_ms) = ("before".into(), 10_000);
    change(&mut head);
    head
}

fn same(_: &mut Head) {}

fn standby(memory: Memory, restored: bool) -> Standby {
    Standby::new(
        Keys::new("x"),
        Rules::REAL,
        Own::default(),
        memory,
        restored,
    )
}

fn new() -> Standby {
    standby(Memory::default(), false)
}

fn primary() -> Primary {
    let taken = Taken {
        head: head(same),
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

fn put(call: &Call, key: &str) -> Vec<u8> {
    let mut puts = txn(call).puts.iter();
    let found = puts.find(|(found, _)| found.ends_with(key.as_bytes()));
    found.unwrap().1.clone()
}

fn head_of(call: &Call) -> Head {
    Head::read(&put(call, "head")).unwrap()
}

/// Whether the commit of what is due frees replies.
fn commit(primary: &mut Primary, ms: u64) -> bool {
    let call = sent(primary.due(at(ms)));
    assert!(txn(&call).puts.len() + txn(&call).deletes.len() <= OPERATIONS + 1);
    primary
        .answered(call.number, Answer::Committed, at(ms))
        .freed
}

fn begun(token: u64, owner: Owner) -> Entry {
    let (name, mode) = (b"a b\xff".to_vec(), Mode::Exclusive);
    Entry::Begun(token, Hold { name, mode, owner })
}

fn session() -> Session {
    let user = "u".into();
    Session { user, id: 5 }
}

fn lease(ttl_ms: u64) -> Owner {
    let user = "u".into();
    Owner::Lease { ttl_ms, user }
}

/// A head and nothing else.
fn page(value: Option<Vec<u8>>) -> Answer {
    let pair = |value| (b"/jostled/x/head".to_vec(), value);
    Answer::Page {
        pairs: value.map(pair).into_iter().collect(),
        more: false,
        revision: 9,
    }
}

fn is_load(request: &Request) -> bool {
    matches!(request, Request::Range(range) if range.to.is_some())
}

/// Answers a standby's requests for a minute; the first one that gets no answer, and when.
fn drive(
    standby: &mut Standby,
    mut answer: impl FnMut(u64, &Request) -> Option<Answer>,
) -> Option<(u64, Call)> {
    for ms in (0..60_000).step_by(10) {
        if let Due::Send(call) = standby.due(at(ms)) {
            match answer(ms, &call.request) {
                None => return Some((ms, call)),
                Some(answer) => drop(standby.answered(call.number, answer, at(ms))),
            }
        }
    }
    None
}

/// The takeover of a standby that sees these heads.
fn takeover(standby: &mut Standby, value: impl Fn(u64) -> Option<Head>) -> Option<(u64, Call)> {
    drive(standby, |ms, request| match request {
        Request::Txn(_) => None,
        Request::Range(_) => Some(page(value(ms).map(|head| head.text()))),
    })
}

#[test]
fn keys_are_text_and_read_back() {
    let mut primary = primary();
    let (number, user) = (3, "u".into());
    let entries = [
        Entry::Opened(session(), 30, "it's \"me\"".into()),
        begun(1, lease(20)),
        begun(2, Owner::Connection { number, user }),
        begun(3, Owner::Session(session())),
    ];
    primary.ask(entries.to_vec());
    let call = sent(primary.due(at(1)));
    let text = r#"{"name":"a b%FF","mode":"exclusive","user":"u","lease_ms":20}"#;
    assert_eq!(put(&call, "h/0000000000000000001"), text.as_bytes());
    let text = r#"{"user":"u","ttl_ms":30,"text":"it's \"me\""}"#;
    assert_eq!(put(&call, &format!("s/{:032x}", 5)), text.as_bytes());
    let keys = Keys::new("x");
    let puts = txn(&call).puts.iter();
    let read: Vec<_> = puts.map(|(key, value)| keys.read(key, value)).collect();
    for entry in entries {
        assert!(read.contains(&Ok(keys::Found::Entry(entry))));
    }
    for name in [&b"%"[..], b"%4", b"a%\xc3\xa9\"\\\n", "é".as_bytes()] {
        let (name, mode) = (name.to_vec(), Mode::Place { of: 3 });
        let owner = Owner::Session(session());
        let hold = Hold { name, mode, owner };
        let found = keys.read(&keys.hold(9), &keys::hold_text(&hold));
        assert_eq!(found, Ok(keys::Found::Entry(Entry::Begun(9, hold))));
    }
    let bad = br#"{"name":"a%f","mode":"exclusive","user":"u","lease_ms":20}"#;
    assert!(keys.read(&keys.hold(9), bad).is_err());
    let newer = Head::read(&head(|head| head.format = 2).text());
    assert!(newer.unwrap_err().to_string().contains("format 2"));
}

#[test]
fn the_head_tells_whether_an_unknown_write_is_done() {
    let mut one = primary();
    // The machine's memory was copied: two go on with one run and one sequence.
    let mut other = one.clone();
    one.ask((1..200).map(|token| begun(token, lease(9))).collect());
    other.ask(vec![begun(2, lease(9))]);
    let call = sent(one.due(at(1)));
    let done = Answer::Refused(Some(put(&call, "head")));
    let news = one.answered(call.number, Answer::Unknown, at(2));
    assert_eq!(news, News::default());
    let again = sent(one.due(at(60)));
    assert_eq!((again.attempt, &again.request), (1, &call.request));
    let news = one.answered(call.number, done.clone(), at(61));
    assert!(!news.freed && commit(&mut one, 62), "the rest follows");
    let call = sent(other.due(at(1)));
    assert!(!other.answered(call.number, done, at(2)).freed);
    assert!(matches!(other.due(at(3)), Due::Over(Over::Deposed(_))));
}

#[test]
fn replies_and_tokens_follow_what_is_written() {
    let mut primary = primary();
    primary.turned(at(500));
    let beat = sent(primary.due(at(500)));
    primary.ask(Vec::new());
    let news = primary.answered(beat.number, Answer::Committed, at(501));
    let (freed, tokens) = (false, Some(7 + (1 << 22)));
    assert_eq!(news, News { freed, tokens }, "it began before the turn");
    assert_eq!(Some(head_of(&beat).tokens), tokens);
    let barrier = sent(primary.due(at(501)));
    assert!(txn(&barrier).puts.is_empty(), "it makes no revision");
    // Another operation's answer.
    let news = primary.answered(beat.number, Answer::Committed, at(502));
    assert_eq!(news, News::default());
    // A copy follows, at another endpoint.
    assert!(matches!(primary.due(at(800)), Due::Wait(until) if until == at(801)));
    assert_eq!(sent(primary.due(at(801))).attempt, 1);
    assert!(
        primary
            .answered(barrier.number, Answer::Committed, at(802))
            .freed
    );
    primary.ask(vec![begun(1, lease(20))]);
    assert!(commit(&mut primary, 803));
    // Only what a connection held and was adopted can be renewed: it is a lease then.
    let (number, user) = (3, "u".into());
    primary.ask(vec![
        begun(2, Owner::Connection { number, user }),
        Entry::Renewed(2, 9),
    ]);
    let call = sent(primary.due(at(803)));
    assert!(put(&call, "2").ends_with(br#""lease_ms":9}"#));
    assert!(commit(&mut primary, 1103));
    // What is renewed and ends in one batch was there before.
    primary.ask(vec![Entry::Renewed(1, 100), Entry::Ended(1)]);
    let call = sent(primary.due(at(1104)));
    assert_eq!(txn(&call).deletes, [(Keys::new("x").hold(1), None)]);
}

#[test]
fn a_request_for_several_locks_is_stored_as_a_whole() {
    let (mut primary, hold) = (primary(), |token| begun(token, lease(9)));
    let before = (1..OPERATIONS as u64).map(hold);
    let both = [Entry::Together(2), hold(126), hold(127)];
    primary.ask(before.chain(both).collect());
    let call = sent(primary.due(at(1)));
    assert_eq!(txn(&call).puts.len(), OPERATIONS, "with the head");
}

#[test]
fn a_primary_writes_while_its_loop_turns_and_ends_when_it_cannot() {
    let (mut primary, mut beats) = (primary(), 0);
    let over = (0..40_000).step_by(10).find_map(|ms| {
        if ms < 15_000 {
            primary.turned(at(ms));
        }
        match primary.due(at(ms)) {
            Due::Send(call) => {
                beats += 1;
                primary.answered(call.number, Answer::Committed, at(ms));
                None
            }
            Due::Wait(_) => None,
            Due::Over(over) => Some((ms, over)),
        }
    });
    assert_eq!(beats, 33, "until 2 s after the last turn");
    assert_eq!(over, Some((26_500, Over::Silent(10_000))));
}

#[test]
fn the_end_of_a_session_waits_for_none_of_its_holds() {
    let mut primary = primary();
    let mut asked = vec![Entry::Opened(session(), 30, String::new())];
    asked.extend((1..=1000).map(|token| begun(token, Owner::Session(session()))));
    primary.ask(asked);
    let batches = (1..).find(|_| commit(&mut primary, 1));
    assert_eq!(batches, Some(8), "1001 keys");
    let ends = (1..=1000).map(Entry::Ended);
    primary.ask([Entry::Closed(session())].into_iter().chain(ends).collect());
    assert!(commit(&mut primary, 1));
    // Their keys go later, by and by.
    (0..7).for_each(|_| assert!(!commit(&mut primary, 1)));
    assert!(matches!(primary.due(at(1)), Due::Wait(_)));
}

#[test]
fn a_standby_takes_over_when_the_head_stands_and_its_own_reads_succeed() {
    let beats = |ms| Some(head(|head| head.sequence = ms / 500));
    assert!(takeover(&mut new(), beats).is_none());
    let released = |_| Some(head(|head| head.incarnation.clear()));
    assert!(
        takeover(&mut new(), released).unwrap().0 < 50,
        "it need not wait"
    );
    // Waits are counted from when the success is known, and holds were discarded before.
    let mut next = new();
    let (ms, call) = takeover(&mut next, |_| Some(head(|head| head.loading_ms = 1000))).unwrap();
    assert!((1_500..1_900).contains(&ms), "{ms}");
    let taken = next
        .answered(call.number, Answer::Committed, at(9_000))
        .unwrap();
    let times = (taken.at, taken.loading, taken.head.loading_ms);
    assert_eq!(times, (at(9_000), at(10_010), 1000));
    assert_eq!((taken.orphan_ms, taken.first_token), (10_000, 7));
    // Nobody could write while it could not read.
    let cut = drive(&mut new(), |ms, request| match (500..3_000).contains(&ms) {
        true => Some(Answer::Unknown),
        false => (!is_load(request)).then(|| page(Some(head(same).text()))),
    });
    assert!((3_400..3_900).contains(&cut.unwrap().0));
    // The load shows another head, or fails, and begins again with its newest revision.
    let mut loads = 0;
    drive(&mut new(), |_, request| match request {
        Request::Range(range) if range.to.is_none() => Some(page(Some(head(same).text()))),
        Request::Range(range) if range.revision == 9 => Some(Answer::Unknown),
        Request::Range(_) => {
            loads += 1;
            let value = Some(head(|head| head.batch = "other".into()).text());
            Some(match page(value) {
                Answer::Page {
                    pairs, revision, ..
                } if loads % 2 == 0 => Answer::Page {
                    pairs,
                    more: true,
                    revision,
                },
                page => page,
            })
        }
        Request::Txn(_) => panic!("it takes over from a head that it did not load"),
    });
    assert!(loads > 2, "{loads}");
    // It compares the bytes that it has read, with a field of a later version.
    let text = head(same).text();
    let value = [&text[..text.len() - 1], b",\"more\":1}"].concat();
    let call = drive(&mut new(), |_, request| match request {
        Request::Txn(_) => None,
        Request::Range(_) => Some(page(Some(value.clone()))),
    });
    assert_eq!(txn(&call.unwrap().1).compare.as_ref(), Some(&value));
}

#[test]
fn what_a_member_knows_better_is_refused_until_it_is_told_to_accept_it() {
    for (cluster, known, trouble) in [
        (
            "other",
            1,
            "the cluster c, and the data directory is that of other",
        ),
        ("c", 5, "etcd has state 1, and this member has seen state 5"),
    ] {
        let mut memory = Memory::of(&head(|head| head.sequence = known));
        (memory.cluster, memory.tokens) = (cluster.into(), 100);
        let mut refuses = standby(memory.clone(), false);
        assert!(takeover(&mut refuses, |_| Some(head(same))).is_none());
        assert!(refuses.trouble().unwrap().to_string().contains(trouble));
        assert_eq!(refuses.memory(), &memory);
        let mut accepts = standby(memory.clone(), true);
        let (_, call) = takeover(&mut accepts, |_| Some(head(same))).unwrap();
        assert!(head_of(&call).sequence > known + (1 << 39));
        assert!(head_of(&call).tokens > 100 + (1 << 39));
        assert_eq!(txn(&call).deletes, Keys::new("x").content());
        // A primary that serves has this state already.
        let beats = |ms: u64| Some(head(|head| head.sequence = (ms / 500).min(15)));
        let (_, call) = takeover(&mut standby(memory, true), beats).unwrap();
        assert!(txn(&call).deletes.is_empty());
    }
    let mut none = new();
    assert!(takeover(&mut none, |_| None).is_none());
    assert!(
        none.trouble()
            .unwrap()
            .to_string()
            .contains("/jostled/x/head")
    );
}

#[test]
fn a_cluster_is_initialised_once() {
    let init = |cluster| Init::new(&Keys::new("x"), Rules::REAL, cluster, 7, at(0));
    let (mut first, mut second) = (init("one"), init("two"));
    let call = sent(first.due(at(0)));
    assert_eq!(txn(&call).compare, None);
    assert!(first.answered(Answer::Unknown, at(0)).is_none());
    let made = Answer::Refused(Some(put(&call, "head")));
    assert!(second.answered(made.clone(), at(0)).is_none());
    assert!(matches!(second.due(at(1)), Due::Over(Over::Initialised(_))));
    let head = first.answered(made, at(60)).unwrap();
    assert_eq!((head.tokens, head.incarnation.as_str()), (7, ""));
}

#[test]
fn members_run_while_their_values_change() {
    let (keys, mut members) = (Keys::new("x"), Members::default());
    let mut note = |beat, ms| {
        let member = Member {
            beat,
            ..Member::default()
        };
        members.note(&keys, &[(keys.member("b"), member.text())], at(ms));
        members.others("a", at(ms)).count()
    };
    assert_eq!((note(1, 0), note(1, 1)), (0, 0), "it may be gone");
    assert_eq!((note(2, 2), note(2, 15_000), note(2, 15_002)), (1, 1, 0));
}
