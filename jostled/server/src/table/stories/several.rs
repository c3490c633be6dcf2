//! Semaphores, and several locks at once.

use super::*;

#[test]
fn a_semaphore_has_so_many_holders_and_a_line_behind_them() {
    rules(&[
        (0.0, "a LOCK x OF 2", "1"),
        (0.0, "a LOCK x OF 2", "alreadyheld 1 place"), // One place for each connection.
        (0.0, "b LOCK x OF 2 TTL 10", "2"),
        (0.0, "c LOCK x OF 2 WAIT 0", "nil"),
        (0.0, "c LOCK x OF 2", "waits"),
        (0.0, "d LOCK x OF 2 WAIT 5", "waits"),
        (0.0, "e LOCK x OF 2", "waits"),
        (5.0, "- TICK", "-, d gets nil"),
        (10.0, "- TICK", "-, c gets 3"), // A place that lapses is the next one's.
        (10.0, "b UNLOCK x 2", "notowner"),
        (10.0, "b UNLOCK x 1", "released, e gets 4"), // With its token, from anywhere.
        (10.0, "c CLOSE", "-"),
        (10.0, "b LOCK x OF 2", "5"),
        (10.0, "f LOCK x OF 2", "waits"),
        (10.0, "- FORCE x", "forced 2, f gets 6"),
    ]);
}

#[test]
fn the_places_of_a_semaphore_are_the_same_as_long_as_anybody_holds_or_waits() {
    rules(&[
        (0.0, "a LOCK x OF 3", "1"),
        (0.0, "b LOCK x OF 2", "Places(3)"),
        (0.0, "b LOCK x", "Places(3)"),
        (0.0, "b LOCK x SHARED", "Places(3)"),
        (0.0, "a LOCK x OF 4", "Places(3)"), // Said before that it is held.
        (0.0, "a UNLOCK x", "released"),
        (0.0, "b LOCK x OF 2", "2"),
        (0.0, "b UNLOCK x", "released"),
        (0.0, "a LOCK x OF 1", "3"), // The same as without.
        (0.0, "b LOCK x OF 2", "Places(1)"),
        (0.0, "b LOCK x", "waits"),
        (0.0, "a UNLOCK x", "released, b gets 4"),
        (0.0, "b UNLOCK x", "released"),
        (0.0, "a LOCK x SHARED", "5"),
        (0.0, "b LOCK x OF 2", "Places(1)"),
        (0.0, "c LOCK x", "waits"),
    ]);
}

#[test]
fn several_locks_are_taken_together_or_not_at_all() {
    rules(&[
        (0.0, "a LOCKALL 2 x y", "1+2"),
        (0.0, "b LOCKALL 2 y z WAIT 0", "nil"),
        (0.0, "b LOCK z", "3"), // Nothing was kept of it.
        (0.0, "b LOCKALL 2 z w", "alreadyheld 3 exclusive"),
        (0.0, "b LOCKALL 2 w z", "alreadyheld 3 exclusive at 1"),
        (0.0, "a UNLOCK x", "released"), // Each by itself.
        (0.0, "c LOCKALL 3 y z w TTL 10", "waits"),
        (0.0, "d LOCK w", "waits"), // Free, and reserved.
        (0.0, "e LOCK w WAIT 0", "nil"),
        (0.0, "e UNLOCK w", "notheld"),
        (0.0, "a UNLOCK y", "released"),
        (5.0, "b UNLOCK z", "released, c gets 4+3"),
        (15.0, "- TICK", "-, d gets 7"), // The leases began with the grant.
    ]);
}

#[test]
fn who_wants_several_locks_keeps_its_place_in_every_line() {
    rules(&[
        (0.0, "a LOCK x", "1"),
        (0.0, "a LOCK y", "2"),
        (0.0, "b LOCKALL 2 x y", "waits"),
        (0.0, "c LOCKALL 2 y x", "waits"), // The other way round: no deadlock.
        (0.0, "a UNLOCK y", "released"),
        (0.0, "a UNLOCK x", "released, b gets 3+2"),
        (0.0, "b CLOSE", "-, c gets 5+2"),
        (0.0, "d LOCK y SHARED", "waits"),
        (0.0, "c UNLOCK x", "released"),
        (0.0, "c UNLOCK y", "released, d gets 7"),
    ]);
}

#[test]
fn one_who_gives_up_several_locks_lets_those_behind_it_go_on() {
    for (leaves, told) in [
        ("b CANCEL", "-, d gets 2, c gets 3"),
        ("b CLOSE", "-, d gets 2, c gets 3"),
    ] {
        rules(&[
            (0.0, "a LOCK x", "1"),
            (0.0, "b LOCKALL 3 x y z", "waits"),
            (0.0, "c LOCK y", "waits"),
            (0.0, "d LOCK z", "waits"),
            (0.0, leaves, told),
            (0.0, "a UNLOCK x", "released"),
        ]);
    }
    rules(&[
        (0.0, "a LOCK x", "1"),
        (0.0, "b LOCKALL 2 x y WAIT 5", "waits"),
        (0.0, "c LOCK y", "waits"),
        (5.0, "- TICK", "-, b gets nil, c gets 2"),
        // A place whose time is over does not hold up what becomes free late.
        (5.0, "b LOCKALL 2 x z WAIT 5", "waits"),
        (5.0, "d LOCK x", "waits"),
        (10.0, "a UNLOCK x", "released, b gets nil, d gets 3"),
        (10.0, "b LOCK s OF 2", "4"),
        (10.0, "e LOCKALL 2 s t", "Places(2)"),
    ]);
}

#[test]
fn all_waits_end_and_nobody_gets_a_lock_because_others_have_given_up() {
    rules(&[
        (0.0, "a LOCK x SHARED", "1"),
        // Whoever waits behind it could be served when it is gone.
        (0.0, "b LOCK x", "waits"),
        (0.0, "c LOCK x SHARED", "waits"),
        // It keeps y reserved.
        (0.0, "d LOCKALL 2 x y", "waits"),
        (0.0, "e LOCK y", "waits"),
        (0.0, "- OPEN 7 100", "-"),
        (0.0, "f LOCK y SESSION 7", "waits"),
        (0.0, "- CANCELALL", "-"),
        (0.0, "e LOCK y", "2"),
        (0.0, "c LOCK x SHARED WAIT 0", "3"),
        (0.0, "- END 7", "-"),
        (0.0, "a UNLOCK x", "released"),
        (0.0, "c UNLOCK x", "released"),
        (0.0, "- CANCELALL", "-"),
        (1.0, "b LOCK x", "4"),
    ]);
}
