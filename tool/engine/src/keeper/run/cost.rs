//! The tool's own cost on a target, measured by one worker alone.

use super::{Children, Run, failed};
use crate::order::WorkloadOrder;
use jostle_harness::{Aborted, how_it_ended};
use jostle_sys::shared::{LINE, Region};
use jostle_sys::waited::Waited;
use jostle_worker::page::Word;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

impl Run<'_> {
    /// Measures the tool's own cost; see `Work::live_as_cost`.
    pub(crate) fn cost(&self, blocks: usize) -> Result<Vec<[f64; 4]>, Aborted> {
        if !matches!(self.order.workload, WorkloadOrder::Contend(_)) {
            let what = "what the tool costs is measured of `contend` alone";
            return Err(Aborted(format!("{}: {what}", self.order.target)));
        }
        let region = Region::new(blocks * 4 * 8 + LINE).map_err(|e| Aborted(e.to_string()))?;
        let results: &[AtomicU64] = region.words64(0, blocks * 4);
        let crew = self.crew();
        // --acquire-timeout needs it.
        self.relate_clocks();
        let pid = self
            .context
            .forker
            .fork(|| self.work.live_as_cost(&crew, blocks, results))
            .map_err(|e| {
                Aborted(format!(
                    "cannot fork a worker: {e}; raise the limit on processes"
                ))
            })?;
        let mut children = Children::default();
        children
            .alive
            .insert(pid.as_raw_nonzero().get() as u32, 0..1);
        let may_hang = self.order.target.starts_with("lib:");
        let watched = self.watch_cost(&mut children, may_hang);
        if !children.alive.is_empty() {
            self.clear_away(&mut children);
        }
        let Some(called) = watched? else {
            // The run names the function that does not return.
            return Ok(Vec::new());
        };
        self.context.note_ended(&mut children.others);
        self.work
            .clear()
            .map_err(|error| failed(self.order, error))?;
        match (self.shared.page(0).message(), children.ended.first()) {
            (Some(message), _) => Err(Aborted(format!("{}: {message}", self.order.target))),
            // The run names the function and how its worker ended.
            (None, Some((ended, _))) if ended.code != Some(0) && may_hang && called => {
                Ok(Vec::new())
            }
            (None, Some((ended, _))) if ended.code != Some(0) => Err(Aborted(format!(
                "{}: the worker that measures the tool's own cost ended early: {}",
                self.order.target,
                how_it_ended(ended)
            ))),
            _ => Ok(results
                .chunks_exact(4)
                .map(|block| std::array::from_fn(|n| f64::from_bits(block[n].load(Relaxed))))
                .collect()),
        }
    }

    /// Waits for the end of the worker that measures the cost: whether it called the target.
    /// None if it is still in a call of a user's library.
    fn watch_cost(&self, children: &mut Children, may_hang: bool) -> Result<Option<bool>, Aborted> {
        const PATIENCE: Duration = Duration::from_secs(60);
        /// Nobody else asks for the lock.
        const FIRST_PATIENCE: Duration = Duration::from_secs(10);
        /// A call of a user's library that nobody else is in the way of.
        const CALL_PATIENCE: Duration = Duration::from_secs(3);
        let (mut all, mut one) = (Waited::begin(), Waited::begin());
        let (mut first, mut seen) = (0, (0, 0));
        while !children.alive.is_empty() {
            self.context.note_ended(&mut children.others);
            self.heed_parent(Duration::from_millis(2))?;
            let page = self.shared.page(0);
            let pending = page.get(Word::PendingSince);
            let at = (page.get(Word::Total), pending);
            if at != seen {
                (seen, one) = (at, Waited::begin());
            }
            let (in_all, in_one) = (all.so_far(), one.so_far());
            if may_hang && seen != (0, 0) && in_one > CALL_PATIENCE {
                return Ok(None);
            }
            if first == 0 {
                first = pending;
            }
            if first > 0 && pending == first && in_one > FIRST_PATIENCE {
                return Err(Aborted(format!(
                    "{}: the first request was not granted within {} s: somebody holds it already, \
                     or its acquisition never returns; release it, or name another lock",
                    self.order.target,
                    FIRST_PATIENCE.as_secs()
                )));
            }
            if in_all > PATIENCE {
                return Err(Aborted(format!(
                    "{}: what the tool itself costs could not be measured within {} s by one \
                     worker alone; does it answer at all, and does a release free the lock?",
                    self.order.target,
                    PATIENCE.as_secs()
                )));
            }
            children.reap();
        }
        Ok(Some(seen != (0, 0)))
    }
}
