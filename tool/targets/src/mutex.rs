//! The common part of `pthread`, `pthread-robust` and `pthread-pi`: the C library's process-shared
//! mutexes.
//!
//! No signal ends a wait for such a mutex. A wait without a timeout is therefore a timed
//! wait too, until the last-resort time after the end of the run. A try before it takes a
//! free mutex without computing a deadline.

/// A target of such mutexes: its name as a type, their kind, and its line in the table.
macro_rules! mutexes {
    ($(#[$doc:meta])* $name:ident, $kind:expr, $entry:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name(jostle_sys::pthread::Mutexes);

        impl Target for $name {
            type Lock = crate::mutex::MutexLock;

            const ENTRY: Entry = $entry;

            fn prepare(setup: &Setup<'_>) -> Result<$name> {
                crate::mutex::prepare(setup, $kind).map($name)
            }

            fn join(&self, _worker: usize) -> Result<Self::Lock> {
                Ok(crate::mutex::MutexLock::new(&self.0))
            }
        }
    };
}
pub(crate) use mutexes;

use crate::{CallError, Lock, Mode, Outcome, Setup, SetupError, Wait};
use jostle_sys::files::Errno;
use jostle_sys::pthread::{Handle, Locked, MutexKind, Mutexes};
use std::io;

/// Makes one mutex for each key.
pub(crate) fn prepare(setup: &Setup<'_>, kind: MutexKind) -> Result<Mutexes, SetupError> {
    Mutexes::new(kind, setup.keys).map_err(|error| refused(&error))
}

fn refused(error: &io::Error) -> SetupError {
    let errno = Errno::from_raw_os_error(error.raw_os_error().unwrap_or(0));
    match errno {
        Errno::NOSYS => SetupError(
            "waiting on CLOCK_MONOTONIC for a mutex with priority inheritance needs Linux 5.14 \
             and glibc 2.35; use pthread here"
                .to_owned(),
        ),
        _ => SetupError(format!(
            "cannot make mutexes in shared memory: {error}; use futex"
        )),
    }
}

/// One worker's handle.
#[derive(Debug)]
pub(crate) struct MutexLock(Handle);

impl MutexLock {
    pub(crate) fn new(mutexes: &Mutexes) -> MutexLock {
        MutexLock(mutexes.handle())
    }
}

impl Lock for MutexLock {
    #[inline(always)]
    fn acquire(&mut self, key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let (call, locked) = match (self.0.try_lock(key), wait) {
            (Ok(Locked::Clean), _) => return Ok(Outcome::Granted),
            (
                Err(Errno::BUSY),
                Wait::Block {
                    last_resort_ns: until,
                }
                | Wait::Until(until),
            ) => ("pthread_mutex_clocklock", self.0.lock_until(key, until)),
            (tried, _) => ("pthread_mutex_trylock", tried),
        };
        match (locked, wait) {
            (Ok(Locked::Clean), _) => Ok(Outcome::Granted),
            (Ok(Locked::OwnerDied), _) => Ok(Outcome::GrantedFromDead),
            (Err(Errno::TIMEDOUT), Wait::Block { .. }) => Ok(Outcome::Interrupted),
            (Err(Errno::TIMEDOUT | Errno::BUSY), _) => Ok(Outcome::Refused),
            (Err(errno), _) => Err(CallError::new(call, errno)),
        }
    }

    #[inline(always)]
    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        self.0
            .unlock(key)
            .map_err(|errno| CallError::new("pthread_mutex_unlock", errno))
    }
}
