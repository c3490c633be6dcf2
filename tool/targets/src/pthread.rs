//! `pthread`: the C library's mutex, shared by processes.

use crate::mutex::{self, MutexLock};
use crate::table::{Entry, Family, LockCapabilities};
use crate::{Setup, SetupError, Target};
use jostle_sys::pthread::{MutexKind, Mutexes};

/// The mutexes.
#[derive(Debug)]
pub(crate) struct Pthread(Mutexes);

impl Target for Pthread {
    type Lock = MutexLock;

    const ENTRY: Entry = Entry {
        name: "pthread",
        family: Family::Memory,
        summary: "a process-shared pthread mutex of the default kind",
        details: "pthread_mutex_clocklock and pthread_mutex_unlock on a mutex in shared memory. glibc's is a \
                  futex of three states, without spinning. A newcomer may take it before a waiter \
                  that has been woken. What an owner that died held stays taken.",
        lock: LockCapabilities::TIMED,
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<Pthread, SetupError> {
        mutex::prepare(setup, MutexKind::Plain).map(Pthread)
    }

    fn join(&self, _worker: usize) -> Result<MutexLock, SetupError> {
        Ok(MutexLock::new(&self.0))
    }
}
