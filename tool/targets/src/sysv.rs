//! `sysv`: System V semaphores.

use crate::semaphore::Semaphores;
use crate::table::{Entry, Family, LockCapabilities, capabilities};

/// The semaphores.
pub(crate) type Sysv = Semaphores<false>;

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "sysv",
    family: Family::Semaphore,
    summary: "a System V semaphore, by semop(2)",
    details: "Takes one from a semaphore of value 1 with semop(2), or semtimedop(2) with a \
              timeout, and gives it back. The kernel hands it to the waiters in the order in \
              which they came. Several keys are hashed by name (jostle-key-N, 64-bit FNV-1a) \
              to --slots semaphores; names that meet in a slot exclude each other, and how \
              many do is reported as `collisions`. What an owner that died held stays taken.",
    lock: capabilities!(LockCapabilities::TIMED; fifo, semaphore_sets),
    ..Entry::PLAIN
};
