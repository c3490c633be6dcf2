//! Sessions: one heartbeat for many locks.

use super::*;

#[test]
fn a_session_owns_what_is_taken_in_its_name_and_outlives_the_connection() {
    rules(&[
        (0.0, "a OPEN 7 100", "-"),
        (0.0, "a LOCK x SESSION 7", "1"),
        (0.0, "b LOCK y SESSION 7", "2"),
        (0.0, "a LOCK x SESSION 7", "alreadyheld"),
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
fn a_session_shares_and_has_places_as_a_connection_does() {
    rules(&[
        (0.0, "- OPEN 7 100", "-"),
        (0.0, "a LOCK s SESSION 7 SHARED", "1"),
        (0.0, "b LOCK s SESSION 7 SHARED", "alreadyheld"),
        (0.0, "b LOCK s SHARED", "2"),
        (0.0, "a LOCK p SESSION 7 OF 2", "3"),
        (0.0, "a LOCK p SESSION 7 OF 2", "alreadyheld"),
        (0.0, "b LOCK p OF 2", "4"),
        (0.0, "c LOCK p SESSION 7 OF 2", "alreadyheld"),
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
    for event in [Event::RenewSession { key }, Event::CloseSession { key }] {
        let reply = stage.table.step(event, now, &mut Vec::new());
        assert_eq!(reply, Reply::NoSession);
    }
    assert_eq!(stage.play(now, "- PROLONG 7"), "renewed");
    assert_eq!(stage.table.sessions(), 2);
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
    assert_eq!(told, count, "none of those that are left stands in the way");
    assert_eq!(stage.play(now, "z UNLOCK busy"), "released");
    while stage.table.next_tick() == Some(Time(0)) {
        told += stage.play(now, "- TICK").matches("nosession").count();
    }
    assert_eq!(
        (told, stage.table.holds(), stage.table.sessions()),
        (count, 0, 0)
    );
}
