//! `pthread`: the C library's mutex, shared by processes.

use crate::mutex::mutexes;
use crate::prelude::*;
use jostle_sys::pthread::MutexKind;

mutexes! {
    /// The mutexes.
    Pthread, MutexKind::Plain, Entry {
        name: "pthread",
        family: Family::Memory,
        summary: "a process-shared pthread mutex of the default kind",
        details: "pthread_mutex_clocklock and pthread_mutex_unlock on a mutex in shared memory. glibc's is a \
                  futex of three states, without spinning. A newcomer may take it before a waiter \
                  that has been woken. What an owner that died held stays taken.",
        lock: LockCapabilities::TIMED,
        ..Entry::PLAIN
    }
}
