//! `posix-sem`: an unnamed POSIX semaphore in shared memory.

use crate::prelude::*;
use crate::until_granted;
use jostle_sys::posix_sem::Semaphores;

/// The semaphores.
#[derive(Clone, Debug)]
pub(crate) struct PosixSem(Semaphores);

impl Target for PosixSem {
    type Lock = PosixSem;

    const ENTRY: Entry = Entry {
        name: "posix-sem",
        family: Family::Semaphore,
        summary: "an unnamed POSIX semaphore in shared memory, by sem_wait(3)",
        details: "Takes one from a process-shared semaphore of value 1 with sem_wait(3), or \
                  sem_clockwait on CLOCK_MONOTONIC with a timeout, and gives it back with \
                  sem_post(3). A newcomer may take it before a waiter that has been woken. What \
                  an owner that died held stays taken.",
        lock: LockCapabilities::TIMED,
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<PosixSem> {
        let new = Semaphores::new(setup.keys, 1).map(PosixSem);
        new.map_err(no_memory)
    }

    fn join(&self, _worker: usize) -> Result<PosixSem> {
        Ok(self.clone())
    }
}

impl Lock for PosixSem {
    #[inline]
    fn acquire(&mut self, key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        match wait {
            Wait::Try => until_granted("sem_trywait", || self.0.try_wait(key)),
            Wait::Block { .. } => until_granted("sem_wait", || self.0.wait(key)),
            Wait::Until(time) => until_granted("sem_clockwait", || self.0.wait_until(key, time)),
        }
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        self.0
            .post(key)
            .map_err(|errno| CallError::new("sem_post", errno))
    }
}
