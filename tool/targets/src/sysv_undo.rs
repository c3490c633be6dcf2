//! `sysv-undo`: System V semaphores that the kernel gives back for the dead.

use crate::semaphore::{SemaphoreLock, Semaphores};
use crate::table::{Entry, Family, LockCapabilities};
use crate::{Setup, SetupError, Target, argument};
use std::collections::BTreeMap;

/// The semaphores.
#[derive(Debug)]
pub(crate) struct SysvUndo(Semaphores);

impl Target for SysvUndo {
    type Lock = SemaphoreLock;

    const ENTRY: Entry = Entry {
        name: "sysv-undo",
        aliases: &[],
        argument: None,
        check_argument: argument::none,
        family: Family::Semaphore,
        summary: "a System V semaphore with SEM_UNDO, which outlives its owners",
        details: "As `sysv`, with SEM_UNDO in each semop(2): the kernel keeps a list of what each \
                  process has taken, and gives it back when the process ends.",
        lock: LockCapabilities {
            timeout: true,
            excludes: true,
            survives_owner: true,
            fifo: true,
            semaphore_sets: true,
            ..LockCapabilities::NONE
        },
        no_threads: Some(
            "the undo list belongs to the process, so nothing is given back when a thread dies; \
             use sysv, or --as processes",
        ),
    };

    fn prepare(setup: &Setup<'_>) -> Result<SysvUndo, SetupError> {
        Semaphores::prepare(setup, true).map(SysvUndo)
    }

    fn join(&self, _worker: usize) -> Result<SemaphoreLock, SetupError> {
        Ok(self.0.join())
    }

    fn facts(&self) -> BTreeMap<String, f64> {
        self.0.facts()
    }
}
