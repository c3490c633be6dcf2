//! `pthread-robust`: the C library's mutex that survives its owner.

use crate::mutex::mutexes;
use crate::prelude::*;
use jostle_sys::pthread::MutexKind;

mutexes! {
    /// The mutexes.
    PthreadRobust, MutexKind::Robust, Entry {
        name: "pthread-robust",
        family: Family::Memory,
        summary: "a process-shared robust pthread mutex, which tells of a dead owner",
        details: "As `pthread`, with PTHREAD_MUTEX_ROBUST: each owner is entered in a list that the kernel \
                  walks when a thread ends, and the next owner is told (EOWNERDEAD) and makes the \
                  mutex consistent.",
        lock: capabilities!(LockCapabilities::TIMED; survives_owner),
        ..Entry::PLAIN
    }
}
