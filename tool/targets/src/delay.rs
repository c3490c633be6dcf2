//! `delay`: a lock each of whose acquisitions takes a known time. It records the time that
//! each really took, and excludes nobody.

use crate::specimen::{Tallies, add};
use crate::table::{Entry, LockCapabilities};
use crate::{
    CallError, Facts, Lock, Mode, Outcome, Setup, SetupError, Target, Wait, facts, no_memory,
};
use jostle_model::Nanos;
use jostle_model::time::Unit;
use jostle_sys::{clock, signal};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Without an argument.
const DEFAULT: Nanos = Nanos::from_millis(1);

/// The last stretch is spun: a sleep ends up to the timer slack (50 us where
/// nobody has changed it) and a wake-up (some 10 us) late.
const SPUN_NS: u64 = 100_000;

const COUNT: usize = 0;
const SUM: usize = 1;
const MIN: usize = 2;
const MAX: usize = 3;
const LAST: usize = 4;

/// The delay, and a record of the delays that each worker really had. Shared by the
/// specimens that take a known time.
#[derive(Debug)]
pub struct Given {
    nanos: u64,
    tallies: Arc<Tallies>,
}

impl Given {
    /// This time, for so many workers.
    pub fn new(time: Nanos, workers: usize) -> io::Result<Given> {
        Ok(Given {
            nanos: time.0,
            tallies: Arc::new(Tallies::new(workers)?),
        })
    }

    /// The lock of one of them, by its number among the workers of all hosts.
    pub fn to(&self, worker: usize) -> DelayLock {
        DelayLock {
            nanos: self.nanos,
            given: Arc::clone(&self.tallies),
            worker: self.tallies.place(worker),
        }
    }

    /// What was really given.
    pub fn truth(&self) -> Facts {
        let sum = |index| Some(self.tallies.column(index).sum::<u64>() as f64);
        // Zero means that a worker had none, for a delay takes longer.
        let column = |index| self.tallies.column(index).filter(|ns| *ns > 0);
        facts([
            ("count", sum(COUNT)),
            ("sum_ns", sum(SUM)),
            ("last_ns", sum(LAST)),
            ("min_ns", column(MIN).min().map(|ns| ns as f64)),
            ("max_ns", column(MAX).max().map(|ns| ns as f64)),
        ])
    }
}

/// A lock that does nothing else.
#[derive(Debug)]
pub struct Delay(Given);

/// One worker's delays.
#[derive(Debug)]
pub struct DelayLock {
    nanos: u64,
    given: Arc<Tallies>,
    worker: usize,
}

impl Target for Delay {
    type Lock = DelayLock;

    const ENTRY: Entry = Entry {
        name: "delay",
        argument: Some("TIME"),
        check_argument: |argument| parse(argument).map(drop),
        summary: "each acquisition takes TIME (default 1ms), and nobody is excluded",
        details: "Sleeps, then spins through the last 100 us, so that the time is exact unless \
                  the CPU is taken away. It notes what every delay really was: `count`, `sum_ns`, \
                  `min_ns`, `max_ns`; and together the latest one of each worker, which the end of \
                  the window may have cut off: `last_ns`.",
        lock: LockCapabilities::GRANTS_ALL,
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<Delay, SetupError> {
        let time = parse(setup.argument).map_err(SetupError)?;
        Given::new(time, setup.workers)
            .map(Delay)
            .map_err(no_memory)
    }

    fn join(&self, worker: usize) -> Result<DelayLock, SetupError> {
        Ok(self.0.to(worker))
    }

    fn truth(&self) -> Facts {
        self.0.truth()
    }
}

fn parse(argument: Option<&str>) -> Result<Nanos, String> {
    match argument {
        None => Ok(DEFAULT),
        // A bare number is refused, because its unit would be a guess.
        Some(text) if text.ends_with(|c: char| c.is_ascii_digit()) => Err(format!(
            "`{text}` has no unit; write a time such as 20us or 5ms"
        )),
        Some(text) => match Nanos::parse(text, Unit::Micros)? {
            Nanos::ZERO => Err("a delay of nothing is `null`".to_owned()),
            nanos => Ok(nanos),
        },
    }
}

impl DelayLock {
    fn note(&self, took: u64) {
        let given = self.given.of(self.worker);
        let min = given[MIN].load(Relaxed);
        add(&given[COUNT], 1);
        add(&given[SUM], took);
        given[MIN].store(if min == 0 { took } else { min.min(took) }, Relaxed);
        given[MAX].store(given[MAX].load(Relaxed).max(took), Relaxed);
        given[LAST].store(took, Relaxed);
    }
}

impl Lock for DelayLock {
    #[inline]
    fn acquire(&mut self, _key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        if let Wait::Until(_) = wait {
            return Err(CallError::unsupported("delay"));
        }
        let start = clock::monotonic();
        if self.nanos > SPUN_NS {
            clock::sleep(self.nanos - SPUN_NS, signal::interrupted);
        }
        loop {
            let took = clock::monotonic() - start;
            if took >= self.nanos {
                self.note(took);
                return Ok(Outcome::Granted);
            }
            if signal::interrupted() {
                return Ok(Outcome::Interrupted);
            }
            std::hint::spin_loop();
        }
    }

    #[inline]
    fn release(&mut self, _key: usize, _mode: Mode) -> Result<(), CallError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_host_notes_the_delays_of_its_workers() {
        let given = Given::new(Nanos::from_micros(1), 2).unwrap();
        for worker in [4, 5] {
            let mut lock = given.to(worker);
            let outcome = lock.acquire(0, Mode::Exclusive, Wait::Try).unwrap();
            assert_eq!(outcome, Outcome::Granted);
        }
        let columns: Vec<u64> = given.tallies.column(COUNT).collect();
        assert_eq!(columns, [1, 1]);
        assert_eq!(given.truth()["count"], 2.0);
    }
}
