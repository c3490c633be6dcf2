//! `ofd`: open file description locks, by fcntl(2).

use crate::record_lock::{RecordLock, RecordLocks};
use crate::table::{Entry, Family, LockCapabilities};
use crate::{CallError, Setup, SetupError, Target, argument};
use jostle_sys::files::Holder;

/// The files.
#[derive(Debug)]
pub struct Ofd(RecordLocks);

impl Target for Ofd {
    type Lock = RecordLock;

    const ENTRY: Entry = Entry {
        name: "ofd",
        aliases: &["fcntl"],
        argument: Some("PATH"),
        check_argument: argument::path,
        family: Family::File,
        summary: "fcntl(2) locks of the open file description, on bytes of a file",
        details: "Takes the lock with fcntl(F_OFD_SETLKW) and gives it up with F_UNLCK; the file \
                  must be writable. The lock belongs to the open file, of which each worker has \
                  its own, and goes with it when its owner dies. Workers lock byte 0 (--range \
                  same), 16 bytes each (disjoint), or 32 bytes of which each neighbour shares 16 \
                  (overlap). `fcntl` is lockscale's name for it.",
        lock: LockCapabilities {
            shared: true,
            ranges: true,
            open_each: true,
            excludes: true,
            survives_owner: true,
            ..LockCapabilities::NONE
        },
        no_threads: None,
    };

    fn prepare(setup: &Setup<'_>) -> Result<Ofd, SetupError> {
        RecordLocks::prepare(setup, Self::ENTRY.name, Holder::OpenFile).map(Ofd)
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
