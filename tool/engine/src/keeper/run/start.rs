//! The common start: of one host's workers as the last of them arrives, of many
//! hosts' at a time that is agreed.

use super::{Children, Run};
use jostle_harness::{Aborted, RAMP_PATIENCE_NS, Result};
use jostle_sys::waited::Waited;
use jostle_sys::{clock, futex};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

impl Run<'_> {
    /// The common start; returns when the window opens. `just_before` looks at the
    /// workers while nobody works yet.
    pub(super) fn start(
        &self,
        children: &mut Children,
        just_before: impl FnOnce(&Children),
    ) -> Result<u64> {
        match self.order.together {
            None => {
                just_before(children);
                let now = self.relate_clocks();
                self.release_workers(now);
                self.await_arrivals(children)
            }
            Some(_) => {
                let begins = self.await_go(children)?;
                self.relate_clocks();
                let opens = self.agree(begins);
                self.release_workers(begins);
                just_before(children);
                Ok(opens)
            }
        }
    }

    /// Notes how far stamps are from `CLOCK_MONOTONIC`, and returns what that shows.
    pub(super) fn relate_clocks(&self) -> u64 {
        let (stamp, monotonic) = (self.now(), clock::monotonic());
        let apart = monotonic.wrapping_sub(stamp);
        self.shared.to_monotonic().store(apart, Relaxed);
        monotonic
    }

    /// Lets them go, so that they begin at `begins` of `CLOCK_MONOTONIC`.
    fn release_workers(&self, begins: u64) {
        let run = self.order.warmup.0 + self.order.window.0;
        self.shared.last_resort().store(
            begins + RAMP_PATIENCE_NS / 10 + run + self.order.patience().0,
            Relaxed,
        );
        self.books.starts();
        self.shared.go().store(1, Release);
        futex::wake(self.shared.go(), futex::ALL);
    }

    /// Until the last one has arrived and set the window; returns its opening.
    fn await_arrivals(&self, children: &mut Children) -> Result<u64> {
        let mut waited = Waited::begin();
        loop {
            let arrived = self.shared.arrived().load(Acquire);
            let opens = self.shared.opens().load(Acquire);
            if opens != u64::MAX {
                return Ok(opens);
            }
            self.futex_nap(self.shared.arrived(), arrived);
            self.heed_parent(Duration::ZERO)?;
            children.reap();
            // Who is lost once the window is set was lost at work.
            if self.shared.opens().load(Acquire) == u64::MAX {
                self.refuse_losses(children)?;
            }
            if waited.so_far().as_nanos() > RAMP_PATIENCE_NS.into() {
                return Err(Aborted(format!(
                    "only {arrived} of {} workers came to the common start; fewer workers (-w)",
                    self.order.workers
                )));
            }
        }
    }
}
