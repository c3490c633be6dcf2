//! The workers' records of their operations in their pages, whatever carries them: [`recorder`]
//! that of `contend`, [`tally`] that of `stream` and `hold`.

pub(crate) mod recorder;
pub(crate) mod tally;

use crate::grants::{Logs, WorkerLog};
use crate::order::RunOrder;
use crate::page::Shared;
use crate::witness::{Guard, Witness};
use jostle_stats::rng::Rng;
use jostle_sys::clock::Clock;

/// The common means by which all workers of a run take notes.
#[derive(Clone, Copy)]
pub struct Common<'a> {
    /// The run.
    pub order: &'a RunOrder,
    /// The scale of the stamps.
    pub clock: Clock,
    /// The run's memory.
    pub shared: &'a Shared,
    /// The witness of their locks.
    pub witness: &'a Witness,
    /// Where they log their grants.
    pub logs: &'a Logs,
}

impl<'a> Common<'a> {
    /// By which the witness watches this worker.
    fn guard(&self, worker: usize) -> Guard<'a> {
        let page = self.shared.page(worker);
        self.witness.guard(worker, page, self.order.seed)
    }

    /// With which this worker logs its grants.
    fn of_worker(&self, worker: usize) -> WorkerLog<'a> {
        self.logs.of_worker(worker)
    }

    /// This worker's own random numbers.
    fn rng(&self, worker: usize) -> Rng {
        Rng::stream(self.order.seed, worker as u64)
    }
}
