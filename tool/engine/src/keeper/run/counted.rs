//! Runs that end with their operations (`stream`, `hold`), and those that stand
//! still instead.

use super::{Children, Driven, Reading, Run, asked};
use crate::order::WorkloadOrder;
use jostle_harness::during::During;
use jostle_harness::{Aborted, Result};
use jostle_model::time::Nanos;
use jostle_sys::waited::Waited;
use jostle_worker::page::Word;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed},
};
use std::time::Duration;

/// How long workers with a number of operations may stand still.
const STILL_PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks at how far they are.
const LOOK_AT_PROGRESS_NS: u64 = 500_000_000;

/// Between the phases of `hold`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    /// Stamp at which the locks could be released.
    pub resumed: u64,
    /// The growth of the server's memory.
    pub held_bytes: Option<i64>,
}

impl Run<'_> {
    /// Up to the end of the last worker. The clocks are read before anybody
    /// starts and after all have ended: what lies between is theirs.
    pub(super) fn drive_counted(&self, children: &mut Children) -> Result<Driven> {
        let start = self.now();
        self.fork_workers(children)?;
        self.await_ready(children)?;
        let ramp_ns = self.now() - start;
        let holds = matches!(self.order.workload, WorkloadOrder::Hold(_));
        let before = match holds {
            true => self.server_memory()?,
            false => None,
        };
        let during = self.start_during()?;
        self.books.server.look();
        let span = self.order.workload.keeps();
        let kept = span > Nanos::ZERO;
        let resident = kept.then(|| self.books.server.resident_bytes()).flatten();
        let idle = match kept {
            true => self.look_at_idle(span, children)?,
            false => None,
        };
        let mut opened = Reading::default();
        let opens = self.start(children, |children| opened = self.read(children))?;
        self.watch.opens(opens);
        self.stops.open(self, children);
        let (mut peak, mut keep) = (None, None);
        if holds {
            self.await_all(self.shared.midway(), children)?;
            let held_bytes = self.held_bytes(before);
            if kept {
                keep = Some(self.keep(span, (resident, idle), children)?);
            }
            peak = Some(self.resume(held_bytes));
        }
        self.await_all(self.shared.finished(), children)?;
        let closed = self.read(children);
        self.stops.close(children);
        self.books.look_around(closed.cpu_ns.keys());
        let ends = (0..self.order.workers).map(|w| self.shared.page(w).get(Word::Finished));
        // None has ended only if all have failed or died.
        let closes = ends.max().filter(|end| *end > 0).unwrap_or(closed.at_ns);
        self.shared.closes().store(closes, Relaxed);
        self.turn(self.shared.dismissed());
        Ok(Driven {
            ramp_ns,
            opened,
            closed,
            flagged: (opens, closes),
            peak,
            keep,
            during: during.map(During::end),
        })
    }

    /// The growth of the server's own count of its memory since `before`. A server that does not
    /// tell any more fails the workers' next calls, too, which keep what was measured.
    fn held_bytes(&self, before: Option<u64>) -> Option<i64> {
        let held = before.zip(self.server_memory().ok().flatten());
        held.map(|(before, after)| after as i64 - before as i64)
    }

    /// Lets the workers release their locks.
    fn resume(&self, held_bytes: Option<i64>) -> Peak {
        let resumed = self.now();
        self.turn(self.shared.resumed());
        Peak {
            resumed,
            held_bytes,
        }
    }

    fn server_memory(&self) -> Result<Option<u64>> {
        if self.server.is_none() {
            return Ok(None);
        }
        Ok(asked(&*self.work, self.order)?.and_then(|figures| figures.memory_bytes))
    }

    /// Waits until all workers are counted that have not died or failed. Gives
    /// up when no worker makes progress any more, and after the longest time
    /// that a run may take.
    fn await_all(&self, counter: &AtomicU32, children: &mut Children) -> Result<()> {
        let span = self.order.workload.keeps();
        let deadline = self.shared.opens().load(Relaxed) + self.order.window.0 + span.0;
        let (mut still, mut done) = (Waited::begin(), 0);
        let mut look = self.now();
        loop {
            let seen = counter.load(Acquire);
            if seen as usize + self.lost(children) >= self.order.workers {
                return Ok(());
            }
            self.futex_nap(counter, seen);
            self.heed_parent(Duration::ZERO)?;
            children.reap();
            self.report(children, self.shared.opens().load(Relaxed), None);
            let (now, _) = (self.now(), still.so_far());
            // Their pages are theirs to write: they are looked at seldom.
            if now < look {
                continue;
            }
            look = now + LOOK_AT_PROGRESS_NS;
            let so_far = self.progress();
            if so_far != done {
                (still, done) = (Waited::begin(), so_far);
            }
            self.lose_patience(now, still.so_far(), deadline, done)?;
        }
    }

    /// Workers that will not be counted any more.
    fn lost(&self, children: &Children) -> usize {
        let ended = children.ended.iter();
        let dead = ended.flat_map(|(_, workers)| workers.clone());
        dead.filter(|worker| self.shared.page(*worker).get(Word::Finished) == 0)
            .count()
    }

    fn progress(&self) -> u64 {
        let of = |worker| {
            let page = self.shared.page(worker);
            page.get(Word::Total) + page.get(Word::Operations)
        };
        (0..self.order.workers).map(of).sum()
    }

    fn lose_patience(&self, now: u64, still: Duration, deadline: u64, done: u64) -> Result<()> {
        let requests = self.order.workload.requests();
        let one_takes = requests.map_or(0, |requests| requests.timeout.0);
        if still > STILL_PATIENCE + Duration::from_nanos(one_takes) {
            return Err(Aborted(format!(
                "{}: no worker got any further for {} s, after {done} calls in all; is a lock \
                 taken by somebody else, its owner dead, or a wake-up lost?",
                self.order.target,
                still.as_secs()
            )));
        }
        if now > deadline {
            return Err(Aborted(format!(
                "{}: the run did not end within {:.0} s, after {done} calls in all; fewer \
                 operations, or a longer -t",
                self.order.target,
                self.order.window.as_secs_f64()
            )));
        }
        Ok(())
    }
}
