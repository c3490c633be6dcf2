//! `sysv`: System V semaphores.

use crate::semaphore::{SemaphoreLock, Semaphores};
use crate::table::{Entry, Family, LockCapabilities};
use crate::{Setup, SetupError, Target, argument};
use std::collections::BTreeMap;

/// The semaphores.
#[derive(Debug)]
pub(crate) struct Sysv(Semaphores);

impl Target for Sysv {
    type Lock = SemaphoreLock;

    const ENTRY: Entry = Entry {
        name: "sysv",
        aliases: &[],
        argument: None,
        check_argument: argument::none,
        family: Family::Semaphore,
        summary: "a System V semaphore, by semop(2)",
        details: "Takes one from a semaphore of value 1 with semop(2), or semtimedop(2) with a \
                  timeout, and gives it back. The kernel hands it to the waiters in the order in \
                  which they came. Several keys are hashed by name (jostle-key-N, 64-bit FNV-1a) \
                  to --slots semaphores; names that meet in a slot exclude each other, and how \
                  many do is reported as `collisions`. What an owner that died held stays taken.",
        lock: LockCapabilities {
            timeout: true,
            excludes: true,
            fifo: true,
            semaphore_sets: true,
            ..LockCapabilities::NONE
        },
        no_threads: None,
    };

    fn prepare(setup: &Setup<'_>) -> Result<Sysv, SetupError> {
        Semaphores::prepare(setup, false).map(Sysv)
    }

    fn join(&self, _worker: usize) -> Result<SemaphoreLock, SetupError> {
        Ok(self.0.join())
    }

    fn facts(&self) -> BTreeMap<String, f64> {
        self.0.facts()
    }
}
