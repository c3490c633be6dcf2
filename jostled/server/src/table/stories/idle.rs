//! A lock that was given back keeps its name for a moment, and nobody can tell.

use super::*;

/// A stage on which `a` has just given back x.
fn given_back(limits: Limits) -> Stage {
    let mut stage = Stage::new(limits);
    assert_eq!(stage.play(Time(0), "a LOCK x"), "1");
    assert_eq!(stage.play(Time(0), "a UNLOCK x"), "released");
    assert_ne!(stage.table.idle, NIL);
    stage
}

#[test]
fn whoever_asks_next_finds_it_free() {
    for (line, expected) in [
        ("a LOCK x", "2"),
        ("b LOCK x", "2"),
        ("b LOCK x TTL 5", "2"),
        ("b LOCK x SHARED", "2"),
        ("b LOCK x OF 3", "2"),
        ("b LOCK y", "2"),
        ("b LOCKALL 2 y x", "2+2"),
        ("a UNLOCK x", "notheld"),
        ("b UNLOCK x 1", "notheld"),
        ("- RENEW x 1 5", "notowner"),
        ("- FORCE x", "forced 0"),
        ("a CLOSE", "-"),
    ] {
        let mut stage = given_back(Limits::default());
        let named = |stage: &Stage, name: &[u8]| stage.table.holders(name).count();
        assert_eq!((stage.table.names_held(), named(&stage, b"x")), (0, 0));
        assert_eq!(stage.play(Time(0), line), expected, "{line}");
        let held = stage.table.holds();
        assert_eq!(stage.table.names_held(), held, "{line}");
        let found = named(&stage, b"x") + named(&stage, b"y");
        assert_eq!(found as u64, held, "{line}");
        // Each name stands in the table once: whoever has it keeps others out.
        let taken = named(&stage, b"x") != 0;
        let again = stage.play(Time(0), "c LOCK x WAIT 0");
        assert_eq!(again.parse::<u64>().is_err(), taken, "{line}: {again}");
    }
}

#[test]
fn its_lease_ends_as_any_other() {
    let mut stage = given_back(Limits::default());
    for (at_ms, line, expected) in [
        (0, "a LOCK x TTL 5", "2"),
        (1, "b LOCK x", "waits"),
        (5, "- TICK", "-, b gets 3"),
        (6, "b UNLOCK x", "released"),
        (6, "b UNLOCK x", "notheld"),
        (6, "c LOCK x", "4"),
        (7, "c CLOSE", "-"),
        (7, "a LOCK x", "5"),
    ] {
        assert_eq!(
            stage.play(Time(at_ms * 1_000_000), line),
            expected,
            "{line}"
        );
    }
}

/// Its slot is there for the next name where no more memory may be had.
#[test]
fn it_takes_no_room_from_others() {
    let mut stage = Stage::new(Limits::default());
    assert_eq!(stage.play(Time(0), "a LOCK 0"), "1");
    stage.table.limits.memory_bytes = stage.table.bytes();
    let mut last = 0;
    while stage.play(Time(0), &format!("a LOCK {}", last + 1)) != "Memory" {
        last += 1;
    }
    assert!(last > 100, "a chunk has more slots than {last}");
    assert_eq!(stage.play(Time(0), "a UNLOCK 0"), "released");
    assert_ne!(stage.table.idle, NIL);
    let token = stage.play(Time(0), "a LOCK another");
    assert!(token.parse::<u64>().is_ok(), "{token}");
    assert_eq!(stage.play(Time(0), "a LOCK one-too-many"), "Memory");
}
