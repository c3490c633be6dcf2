//! A run of several hosts, from the keeper's side: it waits between its phases, so that no
//! host begins before all are ready, and no host asks a server for its counts before all
//! have drained.
//!
//! `world` finds the hosts and makes them agree; here the parent gives the times.

use super::run::{Children, Run};
use crate::order::{Reply, Request};
use jostle_harness::{Aborted, LOOK_UP, RAMP_PATIENCE_NS, Result};
use jostle_sys::waited::Waited;
use std::sync::atomic::Ordering::Relaxed;

/// Time for the parent to agree with other hosts, beyond the time that they may take.
const TALK_NS: u64 = 30_000_000_000;

impl Run<'_> {
    /// Says that all are ready, and waits for the time of the common start, of
    /// `CLOCK_MONOTONIC`.
    pub(super) fn await_go(&self, children: &mut Children) -> Result<u64> {
        self.context.tell(&Reply::Prepared)?;
        // The asking host is ready before the others are told.
        let (mut waited, most_ns) = (Waited::begin(), 2 * RAMP_PATIENCE_NS + TALK_NS);
        loop {
            match self.context.hear(LOOK_UP)? {
                Some(Request::Go { at_ns }) => return Ok(at_ns),
                Some(_) => return Err(Aborted("interrupted".into())),
                None => {}
            }
            children.reap();
            self.refuse_losses(children)?;
            refuse_delay(&mut waited, most_ns, "no common start was agreed")?;
        }
    }

    /// Sets start and window by the agreed time; returns the opening as a stamp.
    pub(super) fn agree(&self, begins: u64) -> u64 {
        let stamp = begins.wrapping_sub(self.shared.to_monotonic().load(Relaxed));
        let opens = stamp + self.order.warmup.0;
        self.shared.begins().store(begins, Relaxed);
        self.shared
            .closes()
            .store(opens + self.order.window.0, Relaxed);
        // Workers read all three after they were let go.
        self.shared.opens().store(opens, Relaxed);
        opens
    }

    /// Drains, and waits until all other hosts have; returns when this one had.
    pub(super) fn drain_together(&self, children: &mut Children) -> Result<u64> {
        self.drain(children);
        let drained = self.now();
        if self.order.together.is_none() {
            return Ok(drained);
        }
        self.context.tell(&Reply::Drained)?;
        // The window of a counted run is the longest that it may take.
        let longest = self.order.warmup.0 + self.order.window.0 + self.order.patience().0;
        let (mut waited, most_ns) = (Waited::begin(), longest + TALK_NS);
        let late = "the other hosts did not come to their end";
        loop {
            match self.context.hear(LOOK_UP)? {
                Some(Request::Conclude) => return Ok(drained),
                Some(_) => return Err(Aborted("interrupted".into())),
                None => refuse_delay(&mut waited, most_ns, late)?,
            }
        }
    }
}

fn refuse_delay(waited: &mut Waited, most_ns: u64, what: &str) -> Result<()> {
    match waited.so_far().as_nanos() > most_ns.into() {
        true => Err(Aborted(format!("{what} in time"))),
        false => Ok(()),
    }
}
