//! `futex`: a mutex of three states on a futex word.

use crate::table::{Entry, Family, LockCapabilities};
use crate::{CallError, Lock, Mode, Outcome, Setup, SetupError, Target, Wait, no_memory};
use jostle_sys::futex::{self, Waited, Words};
use jostle_sys::signal;

/// The words.
#[derive(Clone, Debug)]
pub struct Futex(Words);

impl Target for Futex {
    type Lock = Futex;

    const ENTRY: Entry = Entry {
        name: "futex",
        family: Family::Memory,
        summary: "a three-state mutex in shared memory that sleeps with futex(2)",
        details: "The second mutex of Drepper, \"Futexes Are Tricky\": free, taken, or taken with \
                  sleepers, without spinning before the sleep. Uncontended it makes no system \
                  call. A newcomer may take it before a waiter that has been woken. What an owner \
                  that died held stays taken.",
        lock: LockCapabilities::TIMED,
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<Futex, SetupError> {
        Words::new(setup.keys).map(Futex).map_err(no_memory)
    }

    fn join(&self, _worker: usize) -> Result<Futex, SetupError> {
        Ok(self.clone())
    }
}

impl Lock for Futex {
    #[inline]
    fn acquire(&mut self, key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let word = self.0.word(key);
        if futex::try_lock(word) {
            return Ok(Outcome::Granted);
        }
        let until = match wait {
            Wait::Try => return Ok(Outcome::Refused),
            Wait::Block { .. } => None,
            Wait::Until(time) => Some(time),
        };
        match futex::lock_contended(word, until, signal::interrupted) {
            Ok(Waited::Acquired) => Ok(Outcome::Granted),
            Ok(Waited::TimedOut) => Ok(Outcome::Refused),
            Ok(Waited::Ended) => Ok(Outcome::Interrupted),
            Err(errno) => Err(CallError::new("futex", errno)),
        }
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        futex::unlock(self.0.word(key));
        Ok(())
    }
}
