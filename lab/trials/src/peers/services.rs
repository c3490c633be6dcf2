//! `cargo xtask peers --services`: jostled measured side by side with Redis and
//! with a server that only answers, all asked by jostle.

mod beside;
mod cells;
mod servers;
pub(super) mod trials;

use super::Ground;

/// How much of everything.
pub(super) struct Scale {
    /// Length of a measurement that has one; short, so that a block sees one machine.
    seconds: f64,
    /// Pairs of all connections that have one command on its way, and that have many.
    pairs: [u64; 2],
    /// Locks held: few, and many.
    locks: [u64; 2],
    /// Waiters of one lock: few, and many.
    waiters: [usize; 2],
    /// Waiters of other locks.
    beside: usize,
}

pub(super) const FULL: Scale = Scale {
    seconds: 0.4,
    pairs: [10_000, 500_000],
    locks: [1000, 1_000_000],
    waiters: [10, 10_000],
    beside: 1000,
};

pub(super) const SMOKE: Scale = Scale {
    // On a busy machine a shorter window may see no hand-off.
    seconds: 0.2,
    pairs: [100, 10_000],
    locks: [100, 2000],
    waiters: [2, 50],
    beside: 20,
};
