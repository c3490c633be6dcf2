//! `spin`: a test-and-test-and-set spin lock.

use crate::table::{Entry, Family, LockCapabilities};
use crate::{CallError, Lock, Mode, Outcome, Setup, SetupError, Target, Wait, no_memory};
use jostle_sys::futex::Words;
use jostle_sys::{clock, signal};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Pauses between two checks of the clock and of the keeper's flag: a pause takes 10 to 50
/// ns, so that this is a few microseconds.
const LOOKS: u32 = 128;

/// The words.
#[derive(Clone, Debug)]
pub struct Spin(Words);

impl Target for Spin {
    type Lock = Spin;

    const ENTRY: Entry = Entry {
        name: "spin",
        family: Family::Memory,
        summary: "a test-and-test-and-set spin lock in shared memory",
        details: "One atomic exchange to take it; while it is taken, waiters read it with a pause \
                  between, and never sleep nor yield: with more workers than CPUs, whole time \
                  slices go into waiting for an owner that is not running. What an owner that \
                  died held stays taken.",
        lock: LockCapabilities::TIMED,
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<Spin, SetupError> {
        Words::new(setup.keys).map(Spin).map_err(no_memory)
    }

    fn join(&self, _worker: usize) -> Result<Spin, SetupError> {
        Ok(self.clone())
    }
}

impl Lock for Spin {
    #[inline]
    fn acquire(&mut self, key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let word = self.0.word(key);
        if word.swap(1, Acquire) == 0 {
            return Ok(Outcome::Granted);
        }
        Ok(match wait {
            Wait::Try => Outcome::Refused,
            Wait::Until(time) => spin(word, time, Outcome::Refused),
            Wait::Block { last_resort_ns } => spin(word, last_resort_ns, Outcome::Interrupted),
        })
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        self.0.word(key).store(0, Release);
        Ok(())
    }
}

/// Spins until the lock is granted or the wait interrupted; returns `late` at the time
/// `until`.
#[cold]
fn spin(word: &AtomicU32, until: u64, late: Outcome) -> Outcome {
    loop {
        for _ in 0..LOOKS {
            if word.load(Relaxed) == 0 && word.swap(1, Acquire) == 0 {
                return Outcome::Granted;
            }
            std::hint::spin_loop();
        }
        if signal::interrupted() {
            return Outcome::Interrupted;
        }
        if clock::monotonic() >= until {
            return late;
        }
    }
}
