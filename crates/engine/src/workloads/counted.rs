//! `stream` and `hold`: a number of operations, not a time, ends the run.
//!
//! A stream is pairs of acquire and release back to back, without hold or idle.
//! `hold` acquires different locks, keeps them all, and releases them in the
//! same order; between its phases all workers meet, so that the server's memory
//! can be read with everything held.

use crate::crew::Crew;
use crate::page::{Shared, Word};
use crate::recording::tally::{Counted, Tally};
use jostle_sys::futex;
use jostle_targets::{CallError, Calls, Kind, Lock, Mode, Outcome, Wait};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// One worker at the common start.
pub struct Course<'a, L> {
    lock: &'a mut L,
    notes: Tally<'a>,
    shared: &'a Shared,
    wait: Wait,
}

impl<'a, L: Lock> Course<'a, L> {
    /// Worker number `worker`, with its handle.
    pub fn new<T>(
        crew: &Crew<'a, T>,
        counted: Counted<'a>,
        lock: &'a mut L,
        worker: usize,
    ) -> Course<'a, L> {
        Course {
            lock,
            notes: crew.tally(counted, worker, worker),
            shared: crew.shared,
            wait: Wait::Block {
                last_resort_ns: crew.shared.last_resort().load(Relaxed),
            },
        }
    }

    /// All that a worker does. False if it was ended before.
    ///
    /// # Errors
    /// The call that failed.
    pub fn run(&mut self) -> Result<bool, CallError> {
        match self.notes.counted {
            Counted::Stream(_) => self.stream(),
            Counted::Hold(_) => self.hold(),
        }
    }

    /// Pairs back to back. False if it was ended before all were done.
    fn stream(&mut self) -> Result<bool, CallError> {
        let key = self.notes.first_key();
        if self.notes.counted.pipeline() > 1 {
            return self.batches(Kind::Pairs, key);
        }
        for nth in 0..self.notes.operations {
            let attempt = self.notes.begin();
            if !self.acquire(key, attempt)? {
                return Ok(false);
            }
            let pair = self.notes.passes(key, attempt);
            if let Some(token) = self.lock.token() {
                self.notes.came_with(key, token);
            }
            self.lock.release(key, Mode::Exclusive)?;
            if self.notes.logs() {
                self.notes.log(key, &pair, self.lock.token());
            }
            self.notes.passed(nth, &pair);
        }
        Ok(true)
    }

    /// Acquires all, meets the others, releases all. False if it was ended
    /// before.
    fn hold(&mut self) -> Result<bool, CallError> {
        let first = self.notes.first_key();
        if !self.acquire_all(first)? {
            return Ok(false);
        }
        self.notes.page.set(Word::HeldAt, self.notes.clock.now());
        self.meet();
        self.release_all(first)
    }

    fn acquire_all(&mut self, first: usize) -> Result<bool, CallError> {
        if self.notes.counted.pipeline() > 1 {
            return self.batches(Kind::Acquires, first);
        }
        for nth in 0..self.notes.operations {
            let attempt = self.notes.begin();
            if !self.acquire(first + nth as usize, attempt)? {
                return Ok(false);
            }
            self.notes.granted();
            if attempt > 0 {
                self.notes.acquired(nth, self.notes.clock.now() - attempt);
            }
        }
        Ok(true)
    }

    fn release_all(&mut self, first: usize) -> Result<bool, CallError> {
        if self.notes.counted.pipeline() > 1 {
            return self.batches(Kind::Releases, first);
        }
        for nth in 0..self.notes.operations {
            let from = self.notes.begin();
            self.lock.release(first + nth as usize, Mode::Exclusive)?;
            self.notes.released(nth, from);
        }
        Ok(true)
    }

    /// The figures are then of whole batches, the slices still of single locks.
    fn batches(&mut self, kind: Kind, first: usize) -> Result<bool, CallError> {
        let (operations, depth) = (self.notes.operations, self.notes.counted.pipeline());
        let mut nth = 0;
        while nth < operations {
            let count = (operations - nth).min(depth as u64);
            let calls = Calls {
                kind,
                first: match kind {
                    Kind::Pairs => first,
                    Kind::Acquires | Kind::Releases => first + nth as usize,
                },
                count: count as usize,
            };
            let from = self.notes.clock.now();
            self.notes.waits(from);
            if self.lock.batch(calls, self.wait)? != Outcome::Granted {
                return Ok(false);
            }
            self.notes.page.set(Word::PendingSince, 0);
            let took = self.notes.clock.now() - from;
            self.notes.count(kind, count);
            self.notes.batch(kind, nth, count, took, took);
            nth += count;
        }
        Ok(true)
    }

    /// False if the keeper ended the wait.
    #[inline(always)]
    fn acquire(&mut self, key: usize, attempt: u64) -> Result<bool, CallError> {
        self.notes.waits(attempt);
        match self.lock.acquire(key, Mode::Exclusive, self.wait)? {
            Outcome::Granted => Ok(true),
            Outcome::GrantedFromDead => {
                self.notes.page.add(Word::FromDead, 1);
                Ok(true)
            }
            Outcome::Refused | Outcome::Interrupted => Ok(false),
        }
    }

    fn meet(&self) {
        let midway = self.shared.midway();
        if midway.fetch_add(1, AcqRel) + 1 == self.shared.workers() as u32 {
            futex::wake(midway, futex::ALL);
        }
        while self.shared.resumed().load(Acquire) == 0 {
            let _ = futex::wait(self.shared.resumed(), 0, None);
        }
    }
}
