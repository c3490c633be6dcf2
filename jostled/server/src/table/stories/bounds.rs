//! Bounds, names, tokens, and what happens in pieces.

use super::*;

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
    table.limits.memory_bytes = empty + 3 * 1024 * (size_of::<Lock>() + size_of::<Side>());
    let now = Time(0);
    let mut out = Vec::new();
    table.step(Tokens(u64::MAX), now, &mut out);
    let client = table.step(Open, now, &mut out).unwrap();
    let lock = |name: String, table: &mut Table| {
        let (name, mode) = (name.as_bytes(), Mode::Exclusive);
        let request = LockRequest {
            client,
            name,
            ttl_ms: None,
            wait_ms: None,
            mode,
            session: None,
        };
        table.step(request, now, &mut Vec::new())
    };
    let is_granted = |outcome| matches!(outcome, Some(Outcome::Granted(_)));
    let granted = (0..10_000)
        .take_while(|n| is_granted(lock(format!("n{n}"), &mut table)))
        .count();
    assert_eq!(granted, 3 * 1024);
    assert_eq!(
        lock("more".into(), &mut table),
        Some(Outcome::Refused(Refusal::Memory))
    );
    assert!(table.bytes() <= table.limits.memory_bytes);
    let unlock = Unlock {
        client,
        name: b"n7",
        token: None,
    };
    assert_eq!(table.step(unlock, now, &mut out), Ok(()));
    assert!(is_granted(lock("more".into(), &mut table)));
}

#[test]
fn without_reserved_tokens_nothing_is_granted_and_nobody_waits_for_it() {
    let mut stage = Stage::new(Limits::default());
    stage.table = Table::new(Limits::default(), HashKey(1, 2), 7);
    let mut out = Vec::new();
    let now = Time(0);
    stage.table.step(Tokens(9), now, &mut out);
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
    stage.table.step(Tokens(20), now, &mut out);
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
    // The last of them keeps its name until the next request.
    assert_ne!(stage.table.blocks.live(), 0);
    stage.play(Time(0), "a LOCK x");
    assert_eq!(stage.table.blocks.live(), 0);
}

#[test]
fn a_name_that_was_held_before_is_found_where_it_is_held_now() {
    rules(&[
        (0.0, "a LOCK x", "1"),
        (0.0, "a UNLOCK x", "released"),
        (0.0, "b LOCK x", "2"), // In the slot that a remembers,
        (0.0, "a LOCK x", "waits"),
        (0.0, "b UNLOCK x", "released, a gets 3"),
        (0.0, "b LOCK y", "4"), // and in another than b remembers.
        (0.0, "a UNLOCK x", "released"),
        (0.0, "a LOCK z", "5"),
        (0.0, "a LOCK x", "6"),
        (0.0, "b LOCK x", "waits"),
    ]);
}

#[test]
fn a_freed_slot_tells_nothing_of_a_long_name_whose_blocks_another_uses() {
    let (one, other) = ("n".repeat(30) + "1", "n".repeat(30) + "2");
    let asks = |who: &str, what: &str, name: &str| format!("{who} {what} {name}");
    rules(&[
        (0.0, "a LOCK x", "1"),
        (0.0, &asks("a", "LOCK", &one), "2"),
        (0.0, &asks("a", "UNLOCK", &one), "released"),
        (0.0, "a UNLOCK x", "released"),
        (0.0, &asks("b", "LOCK", &other), "3"), // In x's slot, with the other's blocks.
        (0.0, &asks("a", "LOCK", &other), "waits"),
    ]);
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
    let count = TIMERS_PER_STEP * 8;
    for n in 0..count {
        stage.play(Time(0), &format!("a LOCK n{n} TTL 10"));
    }
    stage.play(Time(0), "a LOCK s SHARED TTL 10");
    stage.play(Time(0), "a LOCK w TTL 10");
    stage.play(Time(0), "a OPEN 7 10");
    stage.play(Time(0), "b LOCK w WAIT 20");
    let later = Time(10_000_000);
    stage.play(later, "- TICK");
    assert!(stage.table.names_held() > 0, "not all at once");
    assert_eq!(stage.table.next_tick(), Some(Time(0)));
    // So is the session's timer, and of no more use.
    assert_eq!(stage.play(later, "a LOCK f SESSION 7"), "nosession");
    assert_eq!(stage.play(later, "a PROLONG 7"), "nosession");
    assert_eq!(stage.play(later, "a END 7"), "nosession");
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

/// One UNLOCK granted 9,000 clients a lock that they shared, in one step of 67 ms.
#[test]
fn a_long_line_is_served_in_parts_and_in_order() {
    let mut stage = Stage::new(Limits::default());
    let now = Time(0);
    stage.play(now, "holder LOCK x");
    let count = 2 * SERVED_PER_STEP + 10;
    for number in 0..count {
        stage.play(now, &format!("s{number} LOCK x SHARED"));
    }
    stage.play(now, "last LOCK x");
    let granted = |told: &str| told.matches(" gets ").count();
    let first = stage.play(now, "holder UNLOCK x");
    assert_eq!(granted(&first), SERVED_PER_STEP);
    assert!(first.contains("s0 gets 2,"), "{first}");
    assert_eq!(stage.table.next_tick(), Some(Time(0)));
    // Nobody overtakes those who could have it already.
    assert_eq!(stage.play(now, "late LOCK x SHARED WAIT 0"), "nil");
    assert_eq!(stage.play(now, "late LOCK x SHARED"), "waits");
    assert_eq!(granted(&stage.play(now, "- TICK")), SERVED_PER_STEP);
    let rest = stage.play(now, "- TICK");
    assert_eq!(granted(&rest), 10);
    let last = format!("s{} gets {}", count - 1, count + 1);
    assert!(rest.ends_with(&last), "{rest}");
    assert_eq!(stage.table.next_tick(), None);
}
