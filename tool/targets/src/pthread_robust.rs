//! `pthread-robust`: the C library's mutex that survives its owner.

use crate::mutex::{self, MutexLock};
use crate::table::{Entry, Family, LockCapabilities, capabilities};
use crate::{Setup, SetupError, Target};
use jostle_sys::pthread::{MutexKind, Mutexes};

/// The mutexes.
#[derive(Debug)]
pub(crate) struct PthreadRobust(Mutexes);

impl Target for PthreadRobust {
    type Lock = MutexLock;

    const ENTRY: Entry = Entry {
        name: "pthread-robust",
        family: Family::Memory,
        summary: "a process-shared robust pthread mutex, which tells of a dead owner",
        details: "As `pthread`, with PTHREAD_MUTEX_ROBUST: each owner is entered in a list that the kernel \
                  walks when a thread ends, and the next owner is told (EOWNERDEAD) and makes the \
                  mutex consistent.",
        lock: capabilities!(LockCapabilities::TIMED; survives_owner),
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<PthreadRobust, SetupError> {
        mutex::prepare(setup, MutexKind::Robust).map(PthreadRobust)
    }

    fn join(&self, _worker: usize) -> Result<MutexLock, SetupError> {
        Ok(MutexLock::new(&self.0))
    }
}
