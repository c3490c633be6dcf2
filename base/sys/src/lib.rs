//! The only unsafe code of jostle: a thin, typed skin over Linux.
//!
//! For the calls that a measurement needs and no well-kept crate offers
//! safely: stamps, fork, shared pages, futexes, semaphores, process-shared
//! mutexes. Not for policy: nothing here decides what to measure.

pub mod bare;
pub mod census;
pub mod clock;
pub mod cpu;
pub mod errno;
pub mod exits;
pub mod files;
pub mod futex;
pub mod heap;
pub mod interrupts;
pub mod ledger;
pub mod library;
pub mod limits;
pub mod link;
pub mod namespaces;
pub mod other_end;
pub mod owners;
pub mod ports;
pub mod posix_sem;
pub mod prefetch;
pub mod process;
pub mod pthread;
pub mod serving;
pub mod shared;
pub mod signal;
pub mod sock_diag;
pub mod socket;
pub mod spawn;
pub mod stat;
pub mod switch;
pub mod sysv;
pub mod terminal;
pub mod tracing;
pub mod user;
pub mod waited;
pub mod waits;
