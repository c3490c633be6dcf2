//! What `ofd` and `posix` share: fcntl(2) locks on a range of bytes. They
//! differ in whom a lock belongs to.

use crate::file_set::{Access, FileSet, Opened};
use crate::{CallError, Lock, Mode, Outcome, Setup, SetupError, Wait, until_granted};
use jostle_model::plan::Range;
use jostle_sys::files::{self, Bytes, Errno, Holder, LockKind};
use jostle_sys::owners::OwnedBy;
use std::os::fd::BorrowedFd;

/// The files, and how they are locked.
#[derive(Debug)]
pub(crate) struct RecordLocks {
    files: FileSet,
    holder: Holder,
    range: Range,
}

impl RecordLocks {
    pub(crate) fn prepare(
        setup: &Setup<'_>,
        name: &str,
        holder: Holder,
    ) -> Result<RecordLocks, SetupError> {
        let probe = match holder {
            Holder::OpenFile => |file: BorrowedFd<'_>| attempt(file, Holder::OpenFile),
            Holder::Process => |file: BorrowedFd<'_>| attempt(file, Holder::Process),
        };
        Ok(RecordLocks {
            files: FileSet::prepare(setup, name, Access::Write, probe)?,
            holder,
            range: setup.range,
        })
    }

    pub(crate) fn join(&self, worker: usize) -> Result<RecordLock, SetupError> {
        Ok(RecordLock {
            files: self.files.join(worker)?,
            holder: self.holder,
            bytes: bytes(self.range, worker),
        })
    }

    /// Who has a lock of this kind, of either holder: they exclude each other.
    pub(crate) fn owners(&self) -> Vec<(u32, String)> {
        self.files.owners(OwnedBy::Record)
    }

    /// For lock number `key` alone.
    pub(crate) fn session(&self, worker: usize, key: usize) -> Result<RecordLock, CallError> {
        Ok(RecordLock {
            files: self.files.session(worker, key)?,
            holder: self.holder,
            bytes: bytes(self.range, worker),
        })
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
        let block = match wait {
            Wait::Try => false,
            Wait::Block { .. } => true,
            Wait::Until(_) => return Err(CallError::unsupported("fcntl")),
        };
        let (holder, bytes) = (self.holder, self.bytes);
        let file = self.files.enter(key)?;
        let outcome = until_granted("fcntl", || {
            files::record_lock(file, holder, mode.into(), bytes, block)
        });
        if self.files.open_each() && outcome != Ok(Outcome::Granted) {
            self.files.close(key);
        }
        outcome
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        if self.files.open_each() {
            self.files.close(key);
            return Ok(());
        }
        files::record_release(self.files.held(key)?, self.holder, self.bytes)
            .map_err(|errno| CallError::new("fcntl", errno))
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
