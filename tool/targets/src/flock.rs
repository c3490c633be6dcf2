//! `flock`: flock(2) on a file.

use crate::file_set::{Access, FileSet, Opened};
use crate::table::{Entry, Family, LockCapabilities};
use crate::{
    CallError, Lock, Mode, Outcome, Setup, SetupError, Target, Wait, argument, until_granted,
};
use jostle_sys::files::{self, LockKind};
use jostle_sys::owners::OwnedBy;

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
        aliases: &[],
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
        lock: LockCapabilities {
            shared: true,
            open_each: true,
            excludes: true,
            survives_owner: true,
            ..LockCapabilities::NONE
        },
        no_threads: None,
    };

    fn prepare(setup: &Setup<'_>) -> Result<Flock, SetupError> {
        let probe =
            |file: std::os::fd::BorrowedFd<'_>| files::flock(file, LockKind::Exclusive, false);
        FileSet::prepare(setup, Self::ENTRY.name, Access::Read, probe).map(Flock)
    }

    fn join(&self, worker: usize) -> Result<FlockLock, SetupError> {
        self.0.join(worker).map(FlockLock)
    }

    fn session(&self, worker: usize, key: usize) -> Result<FlockLock, CallError> {
        self.0.session(worker, key).map(FlockLock)
    }

    fn owners(&self) -> Option<Vec<(u32, String)>> {
        Some(self.0.owners(OwnedBy::Flock))
    }
}

impl Lock for FlockLock {
    #[inline]
    fn acquire(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let block = match wait {
            Wait::Try => false,
            Wait::Block { .. } => true,
            Wait::Until(_) => return Err(CallError::unsupported("flock")),
        };
        let file = self.0.enter(key)?;
        let outcome = until_granted("flock", || files::flock(file, mode.into(), block));
        if self.0.open_each() && outcome != Ok(Outcome::Granted) {
            self.0.close(key);
        }
        outcome
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        if self.0.open_each() {
            self.0.close(key);
            return Ok(());
        }
        files::flock_release(self.0.held(key)?).map_err(|errno| CallError::new("flock", errno))
    }
}
