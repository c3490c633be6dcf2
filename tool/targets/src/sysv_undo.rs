//! `sysv-undo`: System V semaphores that the kernel gives back for the dead.

use crate::semaphore::Semaphores;
use crate::sysv;
use crate::table::{Entry, capabilities};

/// The semaphores.
pub(crate) type SysvUndo = Semaphores<true>;

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "sysv-undo",
    summary: "a System V semaphore with SEM_UNDO, which outlives its owners",
    details: "As `sysv`, with SEM_UNDO in each semop(2): the kernel keeps a list of what each \
              process has taken, and gives it back when the process ends.",
    lock: capabilities!(sysv::ENTRY.lock; survives_owner),
    no_threads: Some(
        "the undo list belongs to the process, so nothing is given back when a thread dies; \
         use sysv, or --as processes",
    ),
    ..sysv::ENTRY
};
