//! The common part of `ofd` and `posix`: fcntl(2) locks on a range of bytes. They differ in whom a
//! lock belongs to.

use crate::file_set::{Access, FileSet, Opened};
use crate::signs::Signs;
use crate::table::Entry;
use crate::{CallError, Lock, Mode, Outcome, Setup, SetupError, Target, Wait, ofd, posix};
use jostle_model::plan::Range;
use jostle_sys::files::{self, Bytes, Errno, Holder, LockKind};
use jostle_sys::owners::OwnedBy;
use std::os::fd::BorrowedFd;

/// The files, and how they are locked: for the process, or else for the open file.
#[derive(Debug)]
pub struct RecordLocks<const OF_PROCESS: bool> {
    files: FileSet,
    range: Range,
    workers: usize,
}

impl<const OF_PROCESS: bool> RecordLocks<OF_PROCESS> {
    const HOLDER: Holder = match OF_PROCESS {
        true => Holder::Process,
        false => Holder::OpenFile,
    };

    fn lock(&self, files: Opened, worker: usize) -> RecordLock {
        RecordLock {
            files,
            holder: Self::HOLDER,
            bytes: bytes(self.range, worker),
        }
    }
}

impl<const OF_PROCESS: bool> Target for RecordLocks<OF_PROCESS> {
    type Lock = RecordLock;

    const ENTRY: Entry = match OF_PROCESS {
        true => posix::ENTRY,
        false => ofd::ENTRY,
    };

    fn prepare(setup: &Setup<'_>) -> Result<Self, SetupError> {
        let probe = |file: BorrowedFd<'_>| attempt(file, Self::HOLDER);
        Ok(RecordLocks {
            files: FileSet::prepare(setup, Self::ENTRY.name, Access::Write, probe)?,
            range: setup.range,
            workers: setup.workers,
        })
    }

    fn join(&self, worker: usize) -> Result<RecordLock, SetupError> {
        Ok(self.lock(self.files.join(worker)?, worker))
    }

    fn session(&self, worker: usize, key: usize) -> Result<RecordLock, CallError> {
        Ok(self.lock(self.files.session(worker, key)?, worker))
    }

    /// Who has a lock of this kind, of either holder: they exclude each other.
    fn owners(&self) -> Option<Signs> {
        let last = bytes(self.range, self.workers.saturating_sub(1));
        let wanted = [0, (last.start + last.len - 1) as i64];
        Some(self.files.owners(OwnedBy::Record, wanted))
    }
}

/// All bytes, so that anybody's lock is seen.
fn attempt(file: BorrowedFd<'_>, holder: Holder) -> Result<(), Errno> {
    files::record_lock(
        file,
        holder,
        LockKind::Exclusive,
        Bytes { start: 0, len: 0 },
        false,
    )
}

/// The bytes that a worker locks. Overlapping ranges are 32 long and begin 16
/// apart, so that each shares 16 bytes with each neighbour and none with the
/// workers beyond.
pub(crate) fn bytes(range: Range, worker: usize) -> Bytes {
    let start = 16 * worker as u64;
    match range {
        Range::Same => Bytes { start: 0, len: 1 },
        Range::Disjoint => Bytes { start, len: 16 },
        Range::Overlap => Bytes { start, len: 32 },
    }
}

/// One worker's open files and its range in each.
#[derive(Debug)]
pub struct RecordLock {
    files: Opened,
    holder: Holder,
    bytes: Bytes,
}

impl Lock for RecordLock {
    #[inline]
    fn acquire(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let (holder, bytes) = (self.holder, self.bytes);
        self.files.acquire("fcntl", key, wait, |file, block| {
            files::record_lock(file, holder, mode.into(), bytes, block)
        })
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        let (holder, bytes) = (self.holder, self.bytes);
        self.files.release("fcntl", key, |file| {
            files::record_release(file, holder, bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_neighbours_share_bytes() {
        let meet = |range, a, b| {
            let (a, b) = (bytes(range, a), bytes(range, b));
            a.start < b.start + b.len && b.start < a.start + a.len
        };
        for (range, self_met, neighbour, beyond) in [
            (Range::Same, true, true, true),
            (Range::Overlap, true, true, false),
            (Range::Disjoint, true, false, false),
        ] {
            assert_eq!(meet(range, 5, 5), self_met, "{range}");
            assert_eq!(meet(range, 5, 6), neighbour, "{range}");
            assert_eq!(meet(range, 5, 7), beyond, "{range}");
        }
    }
}
