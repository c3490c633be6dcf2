//! `pthread-pi`: the C library's mutex with priority inheritance.

use crate::mutex::{self, MutexLock};
use crate::table::{Entry, Family, LockCapabilities, capabilities};
use crate::{Setup, SetupError, Target};
use jostle_sys::pthread::{MutexKind, Mutexes};

/// The mutexes.
#[derive(Debug)]
pub(crate) struct PthreadPi(Mutexes);

impl Target for PthreadPi {
    type Lock = MutexLock;

    const ENTRY: Entry = Entry {
        name: "pthread-pi",
        family: Family::Memory,
        summary: "a process-shared pthread mutex with priority inheritance",
        details: "As `pthread`, with PTHREAD_PRIO_INHERIT: contended, the kernel lends the owner the highest \
                  priority among its waiters and hands the mutex to the first waiter of the \
                  highest priority, so that no newcomer comes before it. When an owner dies, a failed \
                  assertion of glibc ends its waiters with SIGABRT. It needs Linux 5.14 and glibc \
                  2.35.",
        lock: capabilities!(LockCapabilities::TIMED; fifo),
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<PthreadPi, SetupError> {
        mutex::prepare(setup, MutexKind::PriorityInheritance).map(PthreadPi)
    }

    fn join(&self, _worker: usize) -> Result<MutexLock, SetupError> {
        Ok(MutexLock::new(&self.0))
    }
}
