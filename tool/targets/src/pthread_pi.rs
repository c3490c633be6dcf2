//! `pthread-pi`: the C library's mutex with priority inheritance.

use crate::mutex::mutexes;
use crate::prelude::*;
use jostle_sys::pthread::MutexKind;

mutexes! {
    /// The mutexes.
    PthreadPi, MutexKind::PriorityInheritance, Entry {
        name: "pthread-pi",
        family: Family::Memory,
        summary: "a process-shared pthread mutex with priority inheritance",
        details: "As `pthread`, with PTHREAD_PRIO_INHERIT: contended, the kernel lends the owner the highest \
                  priority among its waiters and hands the mutex to the first waiter of the \
                  highest priority, so that no newcomer comes before it. When an owner dies, a failed \
                  assertion of glibc ends its waiters with SIGABRT. It needs Linux 5.14 and glibc \
                  2.35.",
        lock: capabilities!(LockCapabilities::TIMED; fifo),
        ..Entry::PLAIN
    }
}
