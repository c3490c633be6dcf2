//! The limits of an account.

use super::*;

/// A stage on which `a`, `b` and `c` belong to account 1, which may have this
/// much, and everybody else to none.
fn bounded(locks: Option<u32>, waiters: Option<u32>) -> Stage {
    let mut stage = Stage::new(Limits::default());
    for who in ["a", "b", "c"] {
        enlist(&mut stage, who, 1);
    }
    quota(&mut stage, locks, waiters);
    stage
}

fn enlist(stage: &mut Stage, who: &str, account: u16) {
    let client = stage.client(who, Time(0));
    let event = Enlist { client, account };
    stage.table.step(event, Time(0), &mut Vec::new());
}

fn quota(stage: &mut Stage, locks: Option<u32>, waiters: Option<u32>) {
    let most = Amounts {
        locks: locks.unwrap_or(u32::MAX),
        waiters: waiters.unwrap_or(u32::MAX),
        ..Amounts::ANY
    };
    let event = Quota { account: 1, most };
    stage.table.step(event, Time(0), &mut Vec::new());
}

#[track_caller]
fn play(stage: &mut Stage, rows: &[(f64, &str, &str)]) {
    for (at_ms, line, expected) in rows {
        let found = stage.play(Time((at_ms * 1e6) as u64), line);
        assert_eq!(found, *expected, "at {at_ms} ms, {line}");
    }
}

#[test]
fn locks_and_places_in_line_of_all_clients_count_together() {
    let mut stage = bounded(Some(3), None);
    play(
        &mut stage,
        &[
            (0.0, "z LOCK x", "1"),
            (0.0, "a LOCK y", "2"),
            (0.0, "a LOCK s SHARED TTL 10", "3"),
            (0.0, "b LOCK x", "waits"),
            (0.0, "c LOCK w", "QuotaLocks(3)"),
            (0.0, "c LOCK x WAIT 0", "QuotaLocks(3)"),
            (0.0, "c LOCKALL 2 v w", "QuotaLocks(3)"),
            // Others are not touched.
            (0.0, "z LOCKALL 2 v w", "4+2"),
            // The grant neither adds to it nor exceeds it.
            (0.0, "z UNLOCK x", "released, b gets 6"),
            (0.0, "c LOCK u", "QuotaLocks(3)"),
            (10.0, "c LOCK u", "7"),
            (10.0, "a UNLOCK y", "released"),
            (10.0, "b CLOSE", "-"),
            (10.0, "c LOCKALL 2 y x", "8+2"),
        ],
    );
    assert_eq!(stage.table.account_has(1).locks, 3);
}

#[test]
fn places_in_line_have_a_bound_of_their_own() {
    let mut stage = bounded(None, Some(2));
    play(
        &mut stage,
        &[
            (0.0, "z LOCK x", "1"),
            (0.0, "z LOCK y", "2"),
            (0.0, "a LOCK x WAIT 5", "waits"),
            (0.0, "b LOCKALL 2 x y", "QuotaWaiters(2)"),
            (0.0, "b LOCKALL 2 u v", "3+2"),
            (0.0, "b LOCK x", "waits"),
            (0.0, "c LOCK x", "QuotaWaiters(2)"),
            (0.0, "c LOCK x WAIT 0", "nil"),
            (5.0, "c LOCK x", "waits, a gets nil"),
        ],
    );
    assert_eq!(stage.table.account_has(1).waiters, 2);
}

#[test]
fn leases_count_after_their_connection_is_gone_and_its_slot_is_not_used_meanwhile() {
    let mut stage = bounded(Some(2), None);
    play(
        &mut stage,
        &[
            (0.0, "a LOCK x TTL 10", "1"),
            (0.0, "a LOCK y", "2"),
            (0.0, "a CLOSE", "-"),
        ],
    );
    assert_eq!(stage.table.account_has(1).locks, 1);
    // A client that connects now is a different one, and does not own the lease.
    enlist(&mut stage, "d", 1);
    play(
        &mut stage,
        &[
            (1.0, "d UNLOCK x", "notowner"),
            (1.0, "d LOCK z", "3"),
            (1.0, "d LOCK w", "QuotaLocks(2)"),
            (10.0, "d LOCK w", "4"),
            (10.0, "d LOCK v", "QuotaLocks(2)"),
            (10.0, "d UNLOCK w", "released"),
            (10.0, "d LOCK w TTL 10", "5"),
            (10.0, "d CLOSE", "-"),
        ],
    );
    // Without a bound nobody is kept for a lease.
    let slots = stage.table.clients.len();
    quota(&mut stage, None, None);
    play(
        &mut stage,
        &[(11.0, "e LOCK v", "6"), (20.0, "e LOCK w", "7")],
    );
    assert_eq!(stage.table.clients.len(), slots);
}

#[test]
fn a_bound_that_is_set_later_finds_what_is_there_and_clients_take_theirs_along() {
    let mut stage = bounded(None, None);
    play(
        &mut stage,
        &[(0.0, "a LOCK x", "1"), (0.0, "b LOCK y TTL 1000", "2")],
    );
    quota(&mut stage, Some(2), None);
    play(&mut stage, &[(0.0, "c LOCK z", "QuotaLocks(2)")]);
    enlist(&mut stage, "a", 0);
    assert_eq!(stage.table.account_has(1).locks, 1);
    play(&mut stage, &[(0.0, "c LOCK z", "3")]);
    enlist(&mut stage, "a", 1);
    assert_eq!(stage.table.account_has(1).locks, 3);
    quota(&mut stage, None, None);
    play(&mut stage, &[(0.0, "c LOCK w", "4")]);
}

#[test]
fn what_a_session_owns_is_its_users() {
    let mut stage = bounded(Some(2), None);
    let key = SessionKey { user: 1, id: 7 };
    let open = OpenSession {
        key,
        ttl_ms: 10,
        text: "",
    };
    let opened = stage.table.step(open, Time(0), &mut Vec::new());
    opened.unwrap();
    let request = LockRequest {
        client: stage.client("a", Time(0)),
        name: b"x",
        ttl_ms: None,
        wait_ms: None,
        mode: Mode::Exclusive,
        session: Some(&key),
    };
    let reply = stage.table.step(request, Time(0), &mut Vec::new());
    assert_eq!(reply, Some(Outcome::Granted(1)));
    play(
        &mut stage,
        &[
            (0.0, "a CLOSE", "-"),
            (0.0, "b LOCK y", "2"),
            (0.0, "b LOCK z", "QuotaLocks(2)"),
            (10.0, "b LOCK z", "3"),
        ],
    );
}

/// A step at the beginning, of which nobody is told.
fn step<E: Event>(stage: &mut Stage, event: E) -> E::Reply {
    stage.table.step(event, Time(0), &mut Vec::new())
}

/// Opens a session of account 1.
fn open(stage: &mut Stage, id: u128) -> Result<(), Refusal> {
    let key = SessionKey { user: 1, id };
    step(
        stage,
        OpenSession {
            key,
            ttl_ms: 10,
            text: "",
        },
    )
}

/// 10,000 sessions of one user left none for the others.
#[test]
fn sessions_and_memory_of_an_account_have_bounds_of_their_own() {
    let mut stage = bounded(None, None);
    let mut most = Amounts {
        sessions: 2,
        ..Amounts::ANY
    };
    step(&mut stage, Quota { account: 1, most });
    assert_eq!((open(&mut stage, 1), open(&mut stage, 2)), (Ok(()), Ok(())));
    assert_eq!(open(&mut stage, 3), Err(Refusal::QuotaSessions(2)));
    // A million short names take no more than what they are counted for.
    most = Amounts {
        bytes: 100_000,
        ..Amounts::ANY
    };
    step(&mut stage, Quota { account: 1, most });
    let before = stage.table.account_has(1).bytes;
    assert!(before > 0, "its sessions count");
    let held = (0..2000)
        .take_while(|n| stage.play(Time(0), &format!("a LOCK l{n} TTL 5")) != "QuotaBytes(100000)");
    assert!((900..1250).contains(&held.count()));
    let refused = (3..9).find_map(|id| open(&mut stage, id).err());
    assert_eq!(refused, Some(Refusal::QuotaBytes(100_000)));
    // Leases of a client that is gone count until they end, and take no slot.
    let slots = stage.table.clients.len();
    play(
        &mut stage,
        &[
            (0.0, "a CLOSE", "-"),
            (0.0, "b LOCK x", "QuotaBytes(100000)"),
        ],
    );
    let token = stage.play(Time(0), "z LOCK x");
    assert!(token.parse::<u64>().is_ok(), "{token}: others have room");
    let later = Time(6_000_000);
    while stage.table.next_tick().is_some_and(|tick| tick <= later) {
        stage.table.step(Tick, later, &mut Vec::new());
    }
    let token = stage.play(later, "b LOCK y");
    assert!(
        token.parse::<u64>().is_ok(),
        "{token}: the leases have ended"
    );
    assert_eq!(stage.table.clients.len(), slots);
    assert_eq!(stage.table.account_has(1).locks, 1);
}

#[test]
fn all_sessions_of_an_account_end_in_pieces_and_those_of_others_stay() {
    let mut stage = bounded(None, None);
    let many = 3 * RELEASES_PER_STEP as u32;
    for id in 0..many.into() {
        open(&mut stage, id).unwrap();
    }
    let key = SessionKey { user: 0, id: 7 };
    step(
        &mut stage,
        OpenSession {
            key,
            ttl_ms: 10,
            text: "",
        },
    )
    .unwrap();
    assert_eq!(step(&mut stage, CloseSessionsOf(1)), many);
    let left = |stage: &Stage| stage.table.account_has(1).sessions;
    assert_eq!(left(&stage), many - RELEASES_PER_STEP as u32);
    while stage.table.next_tick() == Some(Time(0)) {
        step(&mut stage, Tick);
    }
    assert_eq!((left(&stage), stage.table.sessions()), (0, 1));
}

#[test]
fn an_owner_that_may_have_no_more_is_still_told_what_it_has() {
    let mut stage = bounded(Some(2), None);
    let key = SessionKey { user: 1, id: 7 };
    let open = OpenSession {
        key,
        ttl_ms: 10,
        text: "",
    };
    let opened = stage.table.step(open, Time(0), &mut Vec::new());
    opened.unwrap();
    let (mode, token) = (Mode::Exclusive, 1);
    let request = LockRequest {
        client: stage.client("a", Time(0)),
        name: b"x",
        ttl_ms: None,
        wait_ms: None,
        mode,
        session: Some(&key),
    };
    let ask = |stage: &mut Stage| stage.table.step(request, Time(0), &mut Vec::new());
    assert_eq!(ask(&mut stage), Some(Outcome::Granted(token)));
    play(&mut stage, &[(0.0, "b LOCK y", "2")]);
    let which = Which::OfSession;
    let held = Outcome::AlreadyHeld { token, mode, which };
    assert_eq!(ask(&mut stage), Some(held));
    assert!(stage.table.may_be_known(b"x", token));
    play(
        &mut stage,
        &[
            (0.0, "b LOCK y", "alreadyheld 2 exclusive"),
            (0.0, "b LOCK y SHARED", "alreadyheld 2 exclusive"),
            (0.0, "b LOCK x", "QuotaLocks(2)"),
            (0.0, "b LOCK y OF 3", "QuotaLocks(2)"),
            (0.0, "b LOCK z", "QuotaLocks(2)"),
        ],
    );
}
