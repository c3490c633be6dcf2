//! `delay`, and what `cliff` and `stall` share with it: locks that exclude nobody, and whose
//! acquisitions take a known time. They record the time that each really took.

use crate::prelude::*;
use crate::specimen::{Tallies, add};
use crate::stall::Stalls;
use crate::{cliff, stall};
use jostle_model::Nanos;
use jostle_model::time::Unit;
use jostle_sys::{clock, signal};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Each acquisition takes the same time.
pub type Delay = Timed<DELAY>;

const DELAY: usize = 0;
pub(crate) const CLIFF: usize = 1;
pub(crate) const STALL: usize = 2;

/// Its line in the table.
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

/// The time that an acquisition takes.
#[derive(Clone, Debug)]
pub(crate) enum Time {
    /// Always the same.
    Each(Nanos),
    /// Nothing, or the rest of a stall.
    Stalls(Stalls),
}

/// A lock that takes this time, and a record of what each worker really waited.
#[derive(Debug)]
pub struct Timed<const KIND: usize> {
    time: Time,
    given: Arc<Tallies>,
}

/// One worker's acquisitions.
#[derive(Debug)]
pub struct TimedLock {
    time: Time,
    given: Arc<Tallies>,
    worker: usize,
}

impl<const KIND: usize> Target for Timed<KIND> {
    type Lock = TimedLock;

    const ENTRY: Entry = match KIND {
        DELAY => ENTRY,
        CLIFF => cliff::ENTRY,
        _ => stall::ENTRY,
    };

    fn prepare(setup: &Setup<'_>) -> Result<Self> {
        Ok(Timed {
            time: match KIND {
                DELAY => Time::Each(parse(setup.argument).map_err(SetupError)?),
                CLIFF => Time::Each(cliff::time(setup).map_err(SetupError)?),
                _ => Time::Stalls(Stalls::prepare(setup)?),
            },
            given: Arc::new(Tallies::new(setup.workers).map_err(no_memory)?),
        })
    }

    fn join(&self, worker: usize) -> Result<TimedLock> {
        Ok(TimedLock {
            time: self.time.clone(),
            given: Arc::clone(&self.given),
            worker: self.given.place(worker),
        })
    }

    fn truth(&self) -> Facts {
        if let Time::Stalls(stalls) = &self.time {
            return stalls.truth();
        }
        let sum = |index| Some(self.given.column(index).sum::<u64>() as f64);
        // Zero means that a worker had none, for a delay takes longer.
        let column = |index| self.given.column(index).filter(|ns| *ns > 0);
        facts([
            ("count", sum(COUNT)),
            ("sum_ns", sum(SUM)),
            ("last_ns", sum(LAST)),
            ("min_ns", column(MIN).min().map(|ns| ns as f64)),
            ("max_ns", column(MAX).max().map(|ns| ns as f64)),
        ])
    }
}

/// A time with its unit, such as `such_as`.
pub(crate) fn time(text: &str, such_as: &str) -> Result<Nanos, String> {
    match text.ends_with(|c: char| c.is_ascii_digit()) {
        // A bare number is refused, because its unit would be a guess.
        true => Err(format!("`{text}` has no unit; write {such_as}")),
        false => Nanos::parse(text, Unit::Micros),
    }
}

fn parse(argument: Option<&str>) -> Result<Nanos, String> {
    match argument.map(|text| time(text, "a time such as 20us or 5ms")) {
        None => Ok(DEFAULT),
        Some(Ok(Nanos::ZERO)) => Err("a delay of nothing is `null`".to_owned()),
        Some(time) => time,
    }
}

impl TimedLock {
    fn note(&self, took: u64) {
        let given = self.given.of_worker(self.worker);
        let min = given[MIN].load(Relaxed);
        add(&given[COUNT], 1);
        add(&given[SUM], took);
        given[MIN].store(if min == 0 { took } else { min.min(took) }, Relaxed);
        given[MAX].store(given[MAX].load(Relaxed).max(took), Relaxed);
        given[LAST].store(took, Relaxed);
    }
}

impl Lock for TimedLock {
    #[inline]
    fn acquire(&mut self, _key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let nanos = match &self.time {
            _ if matches!(wait, Wait::Until(_)) => return Err(CallError::unsupported("delay")),
            Time::Stalls(stalls) => return Ok(stalls.wait(wait)),
            Time::Each(nanos) => nanos.0,
        };
        let start = clock::monotonic();
        if nanos > SPUN_NS {
            clock::sleep(nanos - SPUN_NS, signal::interrupted);
        }
        loop {
            let took = clock::monotonic() - start;
            if took >= nanos {
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
        let target: Delay = Timed {
            time: Time::Each(Nanos::from_micros(1)),
            given: Arc::new(Tallies::new(2).unwrap()),
        };
        for worker in [4, 5] {
            let mut lock = target.join(worker).unwrap();
            let outcome = lock.acquire(0, Mode::Exclusive, Wait::Try).unwrap();
            assert_eq!(outcome, Outcome::Granted);
        }
        let columns: Vec<u64> = target.given.column(COUNT).collect();
        assert_eq!(columns, [1, 1]);
        assert_eq!(target.truth()["count"], 2.0);
    }
}
