//! `posix`: the record locks of POSIX, by fcntl(2).

use crate::ofd;
use crate::record_lock::RecordLocks;
use crate::table::Entry;

/// The files.
pub type Posix = RecordLocks<true>;

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "posix",
    aliases: &[],
    summary: "fcntl(2) record locks of the process, on bytes of a file",
    details: "Takes the lock with fcntl(F_SETLKW), which also looks for deadlocks, and gives \
              it up with F_UNLCK; the file must be writable. The lock belongs to the process \
              and goes with it, or as soon as the process closes any descriptor of the file. \
              Byte ranges are those of `ofd`.",
    no_threads: Some(
        "record locks belong to the process, so its threads never contend; \
         use ofd, or --as processes",
    ),
    ..ofd::ENTRY
};
