//! `posix`: the record locks of POSIX, by fcntl(2).

use crate::record_lock::{RecordLock, RecordLocks};
use crate::table::{Entry, Family, LockCapabilities};
use crate::{CallError, Setup, SetupError, Target, argument};
use jostle_sys::files::Holder;

/// The files.
#[derive(Debug)]
pub struct Posix(RecordLocks);

impl Target for Posix {
    type Lock = RecordLock;

    const ENTRY: Entry = Entry {
        name: "posix",
        aliases: &[],
        argument: Some("PATH"),
        check_argument: argument::path,
        family: Family::File,
        summary: "fcntl(2) record locks of the process, on bytes of a file",
        details: "Takes the lock with fcntl(F_SETLKW), which also looks for deadlocks, and gives \
                  it up with F_UNLCK; the file must be writable. The lock belongs to the process \
                  and goes with it, or as soon as the process closes any descriptor of the file. \
                  Byte ranges are those of `ofd`.",
        lock: LockCapabilities {
            shared: true,
            ranges: true,
            open_each: true,
            excludes: true,
            survives_owner: true,
            ..LockCapabilities::NONE
        },
        no_threads: Some(
            "record locks belong to the process, so its threads never contend; \
             use ofd, or --as processes",
        ),
    };

    fn prepare(setup: &Setup<'_>) -> Result<Posix, SetupError> {
        RecordLocks::prepare(setup, Self::ENTRY.name, Holder::Process).map(Posix)
    }

    fn join(&self, worker: usize) -> Result<RecordLock, SetupError> {
        self.0.join(worker)
    }

    fn session(&self, worker: usize, key: usize) -> Result<RecordLock, CallError> {
        self.0.session(worker, key)
    }

    fn owners(&self) -> Option<Vec<(u32, String)>> {
        Some(self.0.owners())
    }
}
