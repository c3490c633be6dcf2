//! `flock`: flock(2) on a file.

use crate::file_set::{Access, FileSet, Opened, WHOLE};
use crate::signs::Signs;
use crate::table::{Entry, Family, LockCapabilities, capabilities};
use crate::{CallError, Lock, Mode, Outcome, Setup, SetupError, Target, Wait, argument};
use jostle_sys::files::{self, LockKind};
use jostle_sys::owners::OwnedBy;
use std::os::fd::BorrowedFd;

/// The files.
#[derive(Debug)]
pub struct Flock(FileSet);

/// One worker's open files.
#[derive(Debug)]
pub struct FlockLock(Opened);

impl Target for Flock {
    type Lock = FlockLock;

    const ENTRY: Entry = Entry {
        name: "flock",
        argument: Some("PATH"),
        check_argument: argument::path,
        family: Family::File,
        summary: "flock(2) on a file, which each worker keeps open",
        details: "Takes the lock with flock(LOCK_EX or LOCK_SH) and gives it up with \
                  flock(LOCK_UN); with --open-each, open(2) and close(2) stand around it and the \
                  close gives it up. The lock belongs to the open file, of which each worker has \
                  its own, and goes with it when its owner dies. The kernel wakes all waiters at \
                  a release and lets them race, so they are not served in order. A file that may \
                  only be read can be locked too. `{worker}` in PATH is the worker's number, for \
                  the same file by several mounts.",
        lock: capabilities!(LockCapabilities::NONE; shared, open_each, excludes, survives_owner),
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<Flock, SetupError> {
        let probe = |file: BorrowedFd<'_>| files::flock(file, LockKind::Exclusive, false);
        FileSet::prepare(setup, Self::ENTRY.name, Access::Read, probe).map(Flock)
    }

    fn join(&self, worker: usize) -> Result<FlockLock, SetupError> {
        self.0.join(worker).map(FlockLock)
    }

    fn session(&self, worker: usize, key: usize) -> Result<FlockLock, CallError> {
        self.0.session(worker, key).map(FlockLock)
    }

    fn owners(&self) -> Option<Signs> {
        Some(self.0.owners(OwnedBy::Flock, WHOLE))
    }
}

impl Lock for FlockLock {
    #[inline]
    fn acquire(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let lock = |file: BorrowedFd<'_>, block| files::flock(file, mode.into(), block);
        self.0.acquire("flock", key, wait, lock)
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        self.0
            .release("flock", key, |file| files::flock_release(file))
    }
}
