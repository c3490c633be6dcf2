//! `ofd`: open file description locks, by fcntl(2).

use crate::argument;
use crate::record_lock::RecordLocks;
use crate::table::{Entry, Family, LockCapabilities, capabilities};

/// The files.
pub type Ofd = RecordLocks<false>;

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
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
    lock: capabilities!(LockCapabilities::NONE; shared, ranges, open_each, excludes,
        survives_owner),
    ..Entry::PLAIN
};
