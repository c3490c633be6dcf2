//! The end of a run: waits are interrupted, and nobody is left.

use super::{Children, Run};
use jostle_model::plan::Measure;
use jostle_sys::waited::Waited;
use jostle_sys::{process, signal};
use jostle_worker::page::{Stage, Word};
use std::time::Duration;

/// Between two rounds of signals to workers that still wait.
const NUDGE: Duration = Duration::from_millis(10);

/// However late a nap between two looks at the workers ends, it counts as at most so
/// many times its planned length.
const LATE: u32 = 2;

impl Run<'_> {
    /// Ends every wait, repeatedly. Workers that do not come back in time are killed, and
    /// all at once when the parent no longer wants the result. What they measured is in
    /// shared memory.
    pub(in crate::keeper) fn drain(&self, children: &mut Children) {
        let grace_ends = self.now() + self.order.workload.grace().0;
        let patience = self.order.patience().0;
        let mut waited = Duration::ZERO;
        let mut grace: Option<Waited> = None;
        children.reap();
        while !children.alive.is_empty()
            && waited < Duration::from_nanos(patience + self.leave_to_exit(children))
        {
            // A hold in progress may last for minutes.
            if self.heed_parent(Duration::ZERO).is_err() {
                break;
            }
            if self.now() >= grace_ends {
                grace.get_or_insert_with(Waited::begin);
                self.nudge(children);
            }
            let nap = NUDGE.min(Duration::from_millis(1 + children.alive.len() as u64 / 100));
            std::thread::sleep(nap);
            children.reap();
            if let Some(grace) = &mut grace {
                // Where naps last long there is no CPU, for workers and servers neither.
                waited = grace.so_far_by(LATE * nap);
            }
        }
        if !children.alive.is_empty() {
            children.killed = children.alive.values().cloned().flatten().collect();
            let each = children.alive.iter();
            let stuck = each.map(|(pid, workers)| match self.is_in_leave(*pid) {
                true => workers.len(),
                false => workers
                    .clone()
                    .filter(|worker| !self.has_ended(*worker))
                    .count(),
            });
            children.stuck = stuck.sum::<usize>() as u64;
            self.clear_away(children);
        }
    }

    /// How much longer to wait, in nanoseconds, where all workers have ended and only their
    /// processes are not gone yet. Processes of one program exit one after the other: each
    /// removes its mappings from the list of the program's file. On a starved machine, the
    /// process that has that list may be without a CPU for long.
    fn leave_to_exit(&self, children: &Children) -> u64 {
        const EXIT: Duration = Duration::from_secs(20);
        /// A `jostle_leave` that waits for others of its workers.
        const LEAVE: Duration = Duration::from_secs(2);
        let mut left = children.alive.values().cloned().flatten();
        match left.all(|worker| self.has_ended(worker)) {
            true if children.alive.keys().any(|pid| self.is_in_leave(*pid)) => {
                LEAVE.as_nanos() as u64
            }
            true => EXIT.as_nanos() as u64,
            false => 0,
        }
    }

    /// Whether a user's library may keep the process: it does not exit yet.
    fn is_in_leave(&self, pid: u32) -> bool {
        self.order.target.starts_with("lib:") && !process::is_exiting(pid)
    }

    fn has_ended(&self, worker: usize) -> bool {
        let stage = self.shared.page(worker).get(Word::Stage);
        stage == Stage::Done as u64 || stage == Stage::Failed as u64
    }

    /// A signal to each worker that waits for a grant or idles; owners finish.
    fn nudge(&self, children: &Children) {
        let mut last = 0;
        for worker in children.alive.values().cloned().flatten() {
            let page = self.shared.page(worker);
            let waits = page.get(Word::PendingSince) != 0 || page.get(Word::Idling) != 0;
            let unstamped = self.order.measure == Measure::Counts;
            let tid = page.get(Word::Tid);
            // One signal wakes all tasks of a thread.
            if (waits || unstamped) && tid != last {
                last = tid;
                let _ = signal::end_waits_of(page.get(Word::Pid) as u32, tid as u32);
            }
        }
    }

    pub(super) fn clear_away(&self, children: &mut Children) {
        while !children.alive.is_empty() {
            children.kill_all();
            std::thread::sleep(Duration::from_millis(1));
            children.reap();
        }
    }
}
