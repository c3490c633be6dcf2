//! A world of clients that die, pause, come back late and race with time, for
//! millions of steps, and a witness that checks after each one:
//!
//! - no two holders are incompatible, a semaphore has no more holders than places, and
//!   as many places as were requested; nothing lapses before its deadline or is found
//!   held after it;
//! - tokens grow;
//! - a client granted after a wait was first in line, in all lines if it wants several
//!   locks, and gets all of them; no client is granted at once while others wait;
//! - a session owns locks until its end and not beyond it, and waiters in its name are told of
//!   the end; it has a lock at most once, and a client that asks for a lock that the session has,
//!   or gets during the wait, is told the token of that very hold;
//! - each account has the locks and waits that it is booked for;
//! - no client waits for a lock that it could have, or beyond its time;
//! - every answer is the one that the rules demand; the totals are right;
//! - replaying the journal gives the table's holds and sessions, with their owners and ends;
//! - all of that with a table that is handed over now and then: made anew from its
//!   image, as bytes.
//!
//! `cargo xtask mutants` plants faults into the table and requires that they are seen here.
//! The seed is printed with a violation; `JOSTLE_SEED` plays it again.
//! `JOSTLE_STEPS` sets how long (the default is short enough for every test
//! run; millions take a release build).

mod asks;
pub(crate) mod dice;
mod play;
mod replay;
mod witness;

use super::*;
use play::Play;

type Name = u32;
type Violation = String;

fn bytes_of(name: Name) -> Vec<u8> {
    // Some short, some that need blocks.
    if name.is_multiple_of(7) {
        format!("a rather long name that needs blocks of its own: {name}").into_bytes()
    } else {
        format!("n{name}").into_bytes()
    }
}

/// The kind of world.
#[derive(Clone, Copy, Debug)]
struct World {
    clients: usize,
    names: u64,
    /// The percentage of actions that only let time pass.
    patience: u64,
    shared_percent: u64,
    /// Whether clients die and disturb; else they only come and wait.
    unruly: bool,
}

fn simulate(seed: u64, steps: u64, world: World) -> Result<Counters, Violation> {
    let mut play = Play::new(seed, world);
    for step in 0..steps {
        play.act().map_err(|violation| {
            format!(
                "seed {seed}, step {step}, at {:?}, {world:?}: {violation}",
                play.now
            )
        })?;
    }
    Ok(*play.table.counters())
}

const CROWDED: World = World {
    clients: 40,
    names: 6,
    patience: 20,
    shared_percent: 40,
    unruly: true,
};
const SPREAD: World = World {
    clients: 300,
    names: 3000,
    patience: 5,
    shared_percent: 20,
    unruly: true,
};
const EXCLUSIVE: World = World {
    clients: 12,
    names: 2,
    patience: 30,
    shared_percent: 0,
    unruly: true,
};

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[test]
fn no_random_world_sees_a_rule_broken() {
    let steps = setting(
        "JOSTLE_STEPS",
        if cfg!(debug_assertions) {
            60_000
        } else {
            2_000_000
        },
    );
    let first = setting("JOSTLE_SEED", 1);
    for seed in first..first + 2 {
        for world in [CROWDED, SPREAD, EXCLUSIVE] {
            let counters = simulate(seed, steps, world).unwrap_or_else(|why| panic!("{why}"));
            // A world in which nothing happens proves nothing.
            assert!(counters.granted_after_wait > steps / 200, "{counters:?}");
            assert!(counters.expired > steps / 200, "{counters:?}");
            assert!(counters.wait_timeouts > steps / 1000, "{counters:?}");
            assert!(counters.released_by_session > steps / 2000, "{counters:?}");
            assert!(
                counters.waits_without_session > steps / 5000,
                "{counters:?}"
            );
            assert!(
                counters.waits_already_held > steps / 2000 || world.names > 100,
                "{counters:?}"
            );
            assert!(
                counters.released_by_disconnect > steps / 1000,
                "{counters:?}"
            );
        }
    }
}

#[test]
fn a_hundred_thousand_waiters_are_served_in_order() {
    let waiters = 100_000;
    let limits = Limits {
        waiters_per_lock: u32::MAX,
        ..Limits::default()
    };
    let world = World {
        clients: waiters,
        names: 1,
        patience: 0,
        shared_percent: 10,
        unruly: true,
    };
    let mut play = Play::new(setting("JOSTLE_SEED", 1), world);
    play.table.limits = limits;
    for at in 0..waiters {
        play.lock(play.clients[at], 0)
            .unwrap_or_else(|why| panic!("{why}"));
    }
    assert!(play.witness.waiting.len() > waiters * 3 / 4);
    for _ in 0..setting("JOSTLE_STEPS", 100_000) {
        play.act().unwrap_or_else(|why| panic!("{why}"));
    }
}
