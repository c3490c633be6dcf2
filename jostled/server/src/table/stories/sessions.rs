//! Sessions: one heartbeat for many locks.

use super::*;

#[test]
fn a_session_owns_what_is_taken_in_its_name_and_outlives_the_connection() {
    rules(&[
        (0.0, "a OPEN 7 100", "-"),
        (0.0, "a LOCK x SESSION 7", "1"),
        (0.0, "b LOCK y SESSION 7", "2"),
        (0.0, "a LOCK x SESSION 7", "alreadyheld 1 exclusive"),
        (0.0, "a LOCK x WAIT 0", "nil"),
        // Not the connection's: without the token it cannot be given back.
        (0.0, "a UNLOCK x", "notowner"),
        (0.0, "c UNLOCK x 2", "notowner"),
        (0.0, "c RENEW x 1 50", "nolease"),
        (0.0, "a CLOSE", "-"),
        (0.0, "b CLOSE", "-"),
        (50.0, "c LOCK x", "waits"),
        (60.0, "- PROLONG 7", "renewed"),
        (100.0, "d LOCK y WAIT 0", "nil"),
        (159.9, "- TICK", "-"),
        (160.0, "- TICK", "-, c gets 3"),
        (160.0, "- PROLONG 7", "nosession"),
        (160.0, "- END 7", "nosession"),
        (160.0, "d LOCK y", "4"),
        (160.0, "d LOCK z SESSION 7", "nosession"),
    ]);
}

#[test]
fn whoever_waits_in_the_name_of_a_session_is_told_of_its_end_and_gets_nothing() {
    rules(&[
        (0.0, "- OPEN 7 100", "-"),
        (0.0, "a LOCK x", "1"),
        (0.0, "b LOCK x SESSION 7", "waits"),
        (0.0, "c LOCK x SESSION 7 SHARED", "waits"),
        (0.0, "d LOCK x", "waits"),
        (0.0, "- END 7", "-, c gets nosession, b gets nosession"),
        (0.0, "a UNLOCK x", "released, d gets 2"),
        // The same by its time.
        (0.0, "- OPEN 8 100", "-"),
        (0.0, "b LOCK x SESSION 8", "waits"),
        (0.0, "c LOCK x SHARED", "waits"),
        (99.9, "d UNLOCK x", "released, b gets 3"),
        (100.0, "- TICK", "-, c gets 4"),
        (100.0, "b UNLOCK x 3", "notowner"),
    ]);
}

#[test]
fn a_disconnect_ends_a_wait_for_a_session_and_not_the_session() {
    rules(&[
        (0.0, "- OPEN 7 1000", "-"),
        (0.0, "a LOCK x", "1"),
        (0.0, "b LOCK x SESSION 7", "waits"),
        (0.0, "c LOCK x SESSION 7", "waits"),
        (0.0, "b CLOSE", "-"),
        (0.0, "a UNLOCK x", "released, c gets 2"),
        (0.0, "c CLOSE", "-"),
        (0.0, "d LOCK x WAIT 0", "nil"),
        (0.0, "d UNLOCK x 2", "released"),
        (0.0, "d LOCK x SESSION 7", "3"),
        (0.0, "- END 7", "-"),
        (0.0, "d UNLOCK x 3", "notheld"),
    ]);
}

#[test]
fn whoever_asks_in_the_name_of_a_session_learns_the_token_that_it_holds() {
    rules(&[
        (0.0, "- OPEN 7 100", "-"),
        (0.0, "- OPEN 8 100", "-"),
        (0.0, "a LOCK x SESSION 7", "1"),
        (0.0, "a CLOSE", "-"),
        (0.0, "b LOCK x SESSION 7", "alreadyheld 1 exclusive"),
        (0.0, "b LOCK x SESSION 7 WAIT 0", "alreadyheld 1 exclusive"),
        (0.0, "b LOCK x SESSION 7 SHARED", "alreadyheld 1 exclusive"),
        // The holder is the session, not the client that asks.
        (0.0, "b LOCK x WAIT 0", "nil"),
        (0.0, "b LOCK x SESSION 8 WAIT 0", "nil"),
        (0.0, "b LOCK x SESSION 7 OF 2", "Places(1)"),
        (0.0, "b LOCKALL 2 x y WAIT 0", "nil"),
        // Among those who share, its own token.
        (0.0, "c LOCK s SHARED", "2"),
        (0.0, "c LOCK s SESSION 8 SHARED", "3"),
        (0.0, "c LOCK s SESSION 7 SHARED", "4"),
        (0.0, "b LOCK s SESSION 7", "alreadyheld 4 shared"),
        (0.0, "b LOCK s SESSION 8 SHARED", "alreadyheld 3 shared"),
        (0.0, "c LOCK p SESSION 8 OF 3", "5"),
        (0.0, "c LOCK p SESSION 7 OF 3", "6"),
        (0.0, "b LOCK p SESSION 7 OF 3", "alreadyheld 6 place"),
        // Asking adds no hold: one release is enough.
        (0.0, "b UNLOCK x 1", "released"),
        (0.0, "b LOCK x SESSION 7", "7"),
        // A lock that was taken away and given to others is not its own any more.
        (0.0, "- FORCE x", "forced 1"),
        (0.0, "c LOCK x", "8"),
        (0.0, "b LOCK x SESSION 7 WAIT 0", "nil"),
        (100.0, "b LOCK s SESSION 7 SHARED", "nosession"),
        (100.0, "- OPEN 7 100", "-"),
        (100.0, "b LOCK s SESSION 7 SHARED", "9"),
        (100.0, "- END 7", "-"),
        (100.0, "b LOCK s SESSION 7 SHARED", "nosession"),
    ]);
}

#[test]
fn a_session_that_gets_a_lock_waits_for_it_no_longer() {
    rules(&[
        (0.0, "- OPEN 7 1000", "-"),
        (0.0, "- OPEN 8 1000", "-"),
        (0.0, "o LOCK x", "1"),
        (0.0, "a LOCK x SESSION 7", "waits"), // Its connection breaks unnoticed.
        (0.0, "b LOCK x SESSION 8", "waits"),
        (0.0, "c LOCK x SESSION 7", "waits"), // The repetition.
        (0.0, "c2 LOCK x SESSION 7 SHARED WAIT 500", "waits"),
        (0.0, "d LOCK x", "waits"),
        (0.0, "e LOCK y SESSION 7", "2"), // Another name: the others need not know.
        (
            1.0,
            "o UNLOCK x",
            "released, a gets 3, c gets alreadyheld 3 exclusive, c2 gets alreadyheld 3 exclusive",
        ),
        (2.0, "a CLOSE", "-"),
        (2.0, "c UNLOCK x 3", "released, b gets 4"),
        (2.0, "b UNLOCK x 4", "released, d gets 5"),
        (600.0, "- TICK", "-"), // No wait is left that could time out.
        (600.0, "d UNLOCK x", "released"),
        (600.0, "d UNLOCK x", "notheld"),
    ]);
    // A session takes one place, and shares once, however many ask in its name.
    rules(&[
        (0.0, "- OPEN 7 1000", "-"),
        (0.0, "o LOCK s", "1"),
        (0.0, "a LOCK s SESSION 7 SHARED", "waits"),
        (0.0, "b LOCK s SESSION 7 SHARED", "waits"),
        (0.0, "c LOCK s SHARED", "waits"),
        (
            1.0,
            "o UNLOCK s",
            "released, a gets 2, b gets alreadyheld 2 shared, c gets 3",
        ),
        (1.0, "o LOCK p OF 2", "4"),
        (1.0, "o2 LOCK p OF 2", "5"),
        (1.0, "a LOCK p SESSION 7 OF 2", "waits"),
        (1.0, "b LOCK p SESSION 7 OF 2", "waits"),
        (1.0, "w LOCK p OF 2", "waits"),
        (1.0, "o CLOSE", "-, a gets 6, b gets alreadyheld 6 place"),
        (1.0, "o2 UNLOCK p", "released, w gets 7"),
    ]);
}

#[test]
fn a_token_that_was_told_to_one_who_asked_again_may_be_known() {
    let mut stage = Stage::new(Limits::default());
    let now = Time(0);
    for line in [
        "- OPEN 7 1000",
        "o LOCK x",
        "o LOCK y",
        "a LOCK x SESSION 7",
        "b LOCK y SESSION 7",
        "c LOCK l TTL 100",
        "o UNLOCK x",
        "o UNLOCK y",
    ] {
        stage.play(now, line);
    }
    // Both were granted after a wait, and whether the replies arrived is not known.
    let known = |stage: &Stage| {
        let x = stage.table.may_be_known(b"x", 4);
        (x, stage.table.may_be_known(b"y", 5))
    };
    assert_eq!(known(&stage), (false, false));
    assert_eq!(
        stage.play(now, "d LOCK x SESSION 7"),
        "alreadyheld 4 exclusive"
    );
    assert_eq!(known(&stage), (true, false));
    assert!(!stage.table.may_be_known(b"x", 3), "no such hold");
    assert!(!stage.table.may_be_known(b"l", 3), "a lease");
    assert!(!stage.table.may_be_known(b"nobody's", 4));
    // The next session in its place knows nothing yet.
    stage.play(now, "- END 7");
    stage.play(now, "- OPEN 8 1000");
    assert_eq!(stage.play(now, "d LOCK x SESSION 8"), "6");
    assert!(!stage.table.may_be_known(b"x", 6));
}

#[test]
fn a_session_with_very_many_waiters_is_told_of_each_lock_once() {
    // The line is longer than the session's list, and the other way round.
    for (in_name, others) in [(2, 50), (50, 2)] {
        let mut stage = Stage::new(Limits::default());
        let now = Time(0);
        stage.play(now, "- OPEN 7 1000");
        stage.play(now, "o LOCK x");
        for n in 0..in_name {
            stage.play(now, &format!("q{n} LOCK n{n}"));
            stage.play(now, &format!("p{n} LOCK n{n} SESSION 7"));
            stage.play(now, &format!("w{n} LOCK x SESSION 7"));
        }
        for n in 0..others {
            stage.play(now, &format!("z{n} LOCK x"));
        }
        let told = stage.play(now, "o UNLOCK x");
        assert!(told.starts_with("released, w0 gets "), "{told}");
        let again: Vec<&str> = told.split(", ").skip(2).collect();
        let token = told.split(' ').nth(3).unwrap().trim_end_matches(',');
        let expected: Vec<String> = (1..in_name)
            .map(|n| format!("w{n} gets alreadyheld {token} exclusive"))
            .collect();
        assert_eq!(again, expected, "in the order of the line");
        assert_eq!(stage.table.waiting(), in_name + others);
    }
}

#[test]
fn a_session_that_ends_in_the_same_instant_as_what_it_waits_for_gets_nothing() {
    rules(&[
        (0.0, "- OPEN 7 100", "-"),
        (0.0, "a LOCK x TTL 100", "1"),
        (0.0, "b LOCK x SESSION 7", "waits"),
        (0.0, "c LOCK y TTL 100", "2"),
        (0.0, "d LOCK y SESSION 7 WAIT 100", "waits"),
        (0.0, "e LOCK x", "waits"),
        (
            100.0,
            "- TICK",
            "-, b gets nosession, e gets 3, d gets nosession",
        ),
        // However late the step comes, a grant before its end was one.
        (200.0, "- OPEN 8 100", "-"),
        (200.0, "a LOCK z TTL 99", "4"),
        (200.0, "b LOCK z SESSION 8", "waits"),
        (200.0, "c LOCK z", "waits"),
        (900.0, "- TICK", "-, b gets 5, c gets 6"),
    ]);
}

#[test]
fn a_session_takes_several_locks_and_waits_for_them_as_a_connection_does() {
    rules(&[
        (0.0, "- OPEN 7 1000", "-"),
        (0.0, "a LOCKALL 2 x y SESSION 7", "1+2"),
        (0.0, "a CLOSE", "-"),
        (0.0, "b LOCK x WAIT 0", "nil"),
        (
            0.0,
            "b LOCKALL 2 z y SESSION 7",
            "alreadyheld 2 exclusive at 1",
        ),
        (0.0, "b LOCKALL 2 z w SESSION 9", "nosession"),
        // The group and the single request are of one session: one of them gets the lock, and
        // the other one is told.
        (0.0, "o LOCK z", "3"),
        (0.0, "b LOCKALL 2 z w SESSION 7", "waits"),
        (0.0, "c LOCK z SESSION 7", "waits"),
        (0.0, "d LOCK w SESSION 7", "waits"),
        (0.0, "e LOCK w", "waits"),
        (
            1.0,
            "o UNLOCK z",
            "released, b gets 4+2, c gets alreadyheld 4 exclusive, d gets alreadyheld 5 exclusive",
        ),
        (1.0, "b UNLOCK z 4", "released"),
        (1.0, "b UNLOCK w 5", "released, e gets 6"),
        (2.0, "o LOCK z", "7"),
        (2.0, "c LOCK z SESSION 7", "waits"),
        (2.0, "b LOCKALL 2 v z SESSION 7", "waits"),
        (2.0, "f LOCK v", "waits"),
        (
            2.0,
            "o UNLOCK z",
            "released, c gets 8, b gets alreadyheld 8 exclusive at 1, f gets 9",
        ),
        // Its end ends the wait in all lines.
        (3.0, "b LOCKALL 2 v w SESSION 7", "waits"),
        (3.0, "g LOCK w", "waits"),
        (3.0, "- END 7", "-, b gets nosession"),
        (3.0, "e UNLOCK w", "released, g gets 10"),
        (3.0, "h LOCKALL 3 x y z", "11+3"),
    ]);
}

#[test]
fn several_locks_are_shared_together_or_not_at_all() {
    rules(&[
        (0.0, "a LOCKALL 2 x y SHARED", "1+2"),
        (0.0, "b LOCKALL 2 y z SHARED TTL 9", "3+2"),
        (0.0, "a LOCKALL 2 z y SHARED", "alreadyheld 2 shared at 1"),
        (0.0, "c LOCK y", "waits"),
        (0.0, "d LOCKALL 2 x y SHARED WAIT 0", "nil"), // Nobody overtakes.
        (0.0, "d LOCKALL 2 x y SHARED", "waits"),
        (0.0, "e LOCK x SHARED", "waits"), // Reserved for d.
        (0.0, "c CANCEL", "-, d gets 5+2, e gets 7"),
        (0.0, "f LOCKALL 2 x w", "waits"),
        (0.0, "d CLOSE", "-"),
        (0.0, "e CLOSE", "-"),
        (0.0, "a UNLOCK x", "released, f gets 8+2"),
    ]);
}

#[test]
fn who_waits_learns_its_own_place_and_holders_are_shown_with_their_session_s_text() {
    let mut stage = Stage::new(Limits::default());
    let now = Time(1 << 13);
    for line in [
        "- OPEN 7 1000 me",
        "- OPEN 8 1000",
        "o LOCK x SESSION 7",
        "a LOCK x",
        "b LOCKALL 2 y x SESSION 8",
        "c LOCK x SESSION 8",
    ] {
        stage.play(now, line);
    }
    let (a, b) = (stage.people["a"], stage.people["b"]);
    let (table, eight) = (&stage.table, session(8));
    let place = |name: &str, of| table.place(name.as_bytes(), of, now, 2);
    assert_eq!(place("x", Err(a)), Some(1));
    assert_eq!(place("x", Ok(&eight)), Some(2), "the first of its requests");
    assert_eq!((place("x", Err(b)), place("y", Err(b))), (Some(2), Some(1)));
    assert_eq!((place("y", Err(a)), place("z", Err(a))), (None, None));
    assert_eq!(place("x", Ok(&session(7))), None, "it holds the lock");
    assert_eq!(
        table.place(b"x", Ok(&session(8)), now, 1),
        Some(2),
        "and beyond"
    );
    let holder = table.holders(b"x").next().unwrap();
    assert_eq!(
        (table.session_text(holder.client), holder.since),
        ("me", now)
    );
    assert_eq!(table.session_text(a), "");
    let waiting: Vec<Waiter> = table.waiters(b"x").collect();
    assert_eq!(waiting[0].owner, a);
    assert!(waiting[1].owner != b && waiting[1].owner == waiting[2].owner);
    // Nothing is left of a session's text.
    assert_eq!(table.text_bytes, 2);
    let later = Time(9 << 20);
    stage.play(later, "- END 7");
    assert_eq!(stage.table.text_bytes, 0);
    assert_eq!(stage.table.holders(b"x").next().unwrap().since, later);
}

#[test]
fn a_session_shares_and_has_places_as_a_connection_does() {
    rules(&[
        (0.0, "- OPEN 7 100", "-"),
        (0.0, "a LOCK s SESSION 7 SHARED", "1"),
        (0.0, "b LOCK s SESSION 7 SHARED", "alreadyheld 1 shared"),
        (0.0, "b LOCK s SHARED", "2"),
        (0.0, "a LOCK p SESSION 7 OF 2", "3"),
        (0.0, "a LOCK p SESSION 7 OF 2", "alreadyheld 3 place"),
        (0.0, "b LOCK p OF 2", "4"),
        (0.0, "c LOCK p SESSION 7 OF 2", "alreadyheld 3 place"),
        (0.0, "w LOCK s", "waits"),
        (0.0, "b UNLOCK s", "released"),
        (0.0, "w2 LOCK p OF 2", "waits"),
        (100.0, "- TICK", "-, w gets 5, w2 gets 6"),
    ]);
}

#[test]
fn a_session_is_found_by_its_user_alone_and_there_is_a_bound() {
    let limits = Limits {
        sessions: 2,
        ..Limits::default()
    };
    let mut stage = Stage::new(limits);
    let now = Time(0);
    for (line, expected) in [
        ("- OPEN 7 100", "-"),
        ("- OPEN 7 100", "Sessions"),
        ("- OPEN 8 100", "-"),
        ("- OPEN 9 100", "Sessions"),
        ("- END 8", "-"),
        ("- OPEN 9 100", "-"),
    ] {
        assert_eq!(stage.play(now, line), expected, "{line}");
    }
    let key = SessionKey { user: 1, id: 7 };
    let mut outputs = Vec::new();
    assert!(!stage.table.step(RenewSession(key), now, &mut outputs));
    assert!(!stage.table.step(CloseSession(key), now, &mut outputs));
    assert_eq!(stage.play(now, "- PROLONG 7"), "renewed");
    assert_eq!(stage.table.sessions(), 2);
}

/// An empty session of an hour let a start wait for an hour.
#[test]
fn sessions_that_neither_hold_nor_wait_need_no_promise() {
    let mut stage = Stage::new(Limits::default());
    for (at_ms, line, longest_ms) in [
        (0, "- OPEN 7 100", 0),
        (10, "a LOCK x SESSION 7", 90),
        // It is wanted by a waiter, from its grant on.
        (20, "b LOCK x TTL 300", 300),
        (20, "- OPEN 8 400", 300),
        (30, "c LOCK x SESSION 8", 390),
        (40, "- END 7", 380),
        (50, "b UNLOCK x 2", 370),
        (60, "- END 8", 0),
        (60, "d LOCK y SHARED TTL 70", 70),
        (130, "- TICK", 0),
    ] {
        let now = Time(at_ms * 1_000_000);
        stage.play(now, line);
        let (mut longest, mut next) = (0, Some(0));
        while let Some(from) = next {
            let part = stage.table.longest_lease_ms(now, from, 1);
            (longest, next) = (part.0.max(longest), part.1);
        }
        assert_eq!(longest, longest_ms, "{line}");
        assert_eq!(stage.table.longest_lease_ms(now, 0, u64::MAX).0, longest_ms);
        let found = stage.table.session_ttl_ms(&session(7), now);
        let used = (10..40).contains(&at_ms);
        assert_eq!(found, (at_ms < 40).then_some((100, used)), "{line}");
    }
}

#[test]
fn a_session_with_very_many_locks_and_waiters_ends_in_pieces_and_grants_nothing_meanwhile() {
    let mut stage = Stage::new(Limits::default());
    let now = Time(0);
    let count = 3 * RELEASES_PER_STEP;
    stage.play(now, "- OPEN 7 100");
    stage.play(now, "o LOCK busy");
    for n in 0..count {
        stage.play(now, &format!("a LOCK n{n} SESSION 7"));
        stage.play(now, &format!("w{n} LOCK busy SESSION 7"));
    }
    stage.play(now, "z LOCK busy");
    let told = stage.play(now, "- END 7");
    assert!(told.matches("nosession").count() < count, "not all at once");
    assert_eq!(stage.table.next_tick(), Some(Time(0)));
    let mut told = stage
        .play(now, "o UNLOCK busy")
        .matches("nosession")
        .count()
        + { told.matches("nosession").count() };
    while stage.table.next_tick() == Some(Time(0)) {
        told += stage.play(now, "- TICK").matches("nosession").count();
    }
    assert_eq!(told, count, "none of those that are left stands in the way");
    assert_eq!(stage.play(now, "z UNLOCK busy"), "released");
    assert_eq!(
        (told, stage.table.holds(), stage.table.sessions()),
        (count, 0, 0)
    );
}

#[test]
fn a_session_that_holds_nothing_and_has_very_many_waiters_is_not_another_s_before_all_are_told() {
    let mut stage = Stage::new(Limits::default());
    let now = Time(0);
    let count = RELEASES_PER_STEP + 5;
    stage.play(now, "- OPEN 7 100");
    stage.play(now, "o LOCK busy");
    for n in 0..count {
        stage.play(now, &format!("w{n} LOCK busy SESSION 7"));
    }
    let mut told = stage.play(now, "- END 7").matches("nosession").count();
    assert_eq!(told, RELEASES_PER_STEP, "not all at once");
    // Its place would be the next one's.
    stage.play(now, "- OPEN 8 100");
    told += stage
        .play(now, "o UNLOCK busy")
        .matches("nosession")
        .count();
    while stage.table.next_tick() == Some(Time(0)) {
        told += stage.play(now, "- TICK").matches("nosession").count();
    }
    assert_eq!(
        (told, stage.table.holds(), stage.table.sessions()),
        (count, 0, 1)
    );
    assert_eq!(stage.play(now, "z LOCK busy SESSION 8"), "2");
}

#[test]
fn a_session_that_ends_as_the_last_of_very_many_timers_tells_its_waiters() {
    let mut stage = Stage::new(Limits::default());
    for n in 1..TIMERS_PER_STEP {
        stage.play(Time(0), &format!("l LOCK n{n} TTL 10"));
    }
    stage.play(Time(0), "- OPEN 7 11");
    stage.play(Time(0), "o LOCK busy");
    stage.play(Time(0), "w LOCK busy SESSION 7");
    let now = Time(12_000_000);
    let mut told = stage.play(now, "- TICK").matches("nosession").count();
    stage.play(now, "- OPEN 8 100");
    told += stage
        .play(now, "o UNLOCK busy")
        .matches("nosession")
        .count();
    while stage.table.next_tick().is_some_and(|tick| tick <= now) {
        told += stage.play(now, "- TICK").matches("nosession").count();
    }
    assert_eq!(
        (told, stage.table.holds(), stage.table.sessions()),
        (1, 0, 1)
    );
}
