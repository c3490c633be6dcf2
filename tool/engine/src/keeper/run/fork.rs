//! From the first fork until all workers are ready.

use super::{Children, Run};
use crate::order::WorkloadOrder;
use jostle_harness::{Aborted, RAMP_PATIENCE_NS, Result, how_it_ended};
use jostle_model::plan::Carrier;
use jostle_sys::waited::Waited;
use jostle_worker::crew::Crew;
use jostle_worker::page::{Stage, Word};
use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

impl Run<'_> {
    pub(super) fn fork_workers(&self, children: &mut Children) -> Result<()> {
        let crew = self.crew();
        let count = self.order.workers;
        if self.work.has_canary() {
            self.fork_canary(&crew, children)?;
        }
        if let WorkloadOrder::Spread(spread) = &self.order.workload {
            let of = spread.generators;
            let mut generators = (0..of).map(|nth| self.order.dealt(nth, of));
            return generators.try_for_each(|workers| self.fork(&crew, workers, children));
        }
        if self.order.carrier != Carrier::Processes {
            return self.fork(&crew, 0..count, children);
        }
        for worker in 0..count {
            self.fork(&crew, worker..worker + 1, children)?;
            if worker % 64 == 63 {
                self.heed_parent(Duration::ZERO)?;
            }
        }
        Ok(())
    }

    fn fork_canary(&self, crew: &Crew<'_>, children: &mut Children) -> Result<()> {
        let pid = self.context.forker.fork(|| self.work.live_as_canary(crew));
        let pid = pid.map_err(|error| {
            Aborted(format!(
                "cannot fork the canary: {error}; raise the limit on processes (ulimit -u)"
            ))
        })?;
        let none = self.order.workers..self.order.workers;
        children
            .alive
            .insert(pid.as_raw_nonzero().get() as u32, none);
        Ok(())
    }

    /// One process, which carries these workers.
    fn fork(&self, crew: &Crew<'_>, workers: Range<usize>, children: &mut Children) -> Result<()> {
        let (forker, work) = (&self.context.forker, &*self.work);
        let group = self.groups.get(children.alive.len());
        let pid = match self.order.carrier {
            Carrier::Processes => forker.fork(|| crew.worker_process(work, workers.start)),
            Carrier::Threads => forker.fork(|| crew.worker_threads(work, workers.clone(), group)),
            Carrier::Tasks => forker.fork(|| work.live_as_tasks(crew)),
        };
        let pid = pid.map_err(|error| {
            Aborted(format!(
                "cannot fork worker {} of {}: {error}; a limit on processes was reached \
                 (ulimit -u, kernel.pid_max, the cgroup's pids.max): raise it, or fewer workers (-w)",
                workers.start, self.order.workers
            ))
        })?;
        children
            .alive
            .insert(pid.as_raw_nonzero().get() as u32, workers);
        Ok(())
    }

    /// Waits until all are ready. A worker that fails ends the run: a point
    /// must not have fewer workers than it states.
    pub(super) fn await_ready(&self, children: &mut Children) -> Result<()> {
        let mut waited = Waited::begin();
        loop {
            let ready = self.shared.ready().load(Acquire);
            if ready as usize >= self.order.workers {
                break;
            }
            self.futex_nap(self.shared.ready(), ready);
            self.heed_parent(Duration::ZERO)?;
            children.reap();
            self.refuse_losses(children)?;
            if waited.so_far().as_nanos() > RAMP_PATIENCE_NS.into() {
                return Err(Aborted(format!(
                    "only {ready} of {} workers became ready within {} s; fewer workers (-w)",
                    self.order.workers,
                    RAMP_PATIENCE_NS / 1_000_000_000
                )));
            }
        }
        children.reap();
        self.refuse_losses(children)?;
        self.stops.ready(self, children);
        Ok(())
    }

    pub(in crate::keeper) fn refuse_losses(&self, children: &Children) -> Result<()> {
        let failed = (0..self.order.workers).find_map(|worker| {
            let page = self.shared.page(worker);
            (page.get(Word::Stage) == Stage::Failed as u64)
                .then(|| page.message())
                .flatten()
        });
        if let Some(message) = failed {
            return Err(Aborted(format!("{}: {message}", self.order.target)));
        }
        match children.ended.first() {
            Some((ended, workers)) => Err(Aborted(format!(
                "worker {} (pid {}) was lost before the start: {}",
                workers.start,
                ended.pid,
                how_it_ended(ended)
            ))),
            None => Ok(()),
        }
    }
}
