//! `stream` and `hold`: a number of operations, not a time, ends the run.
//!
//! A stream is pairs of acquire and release back to back, without hold or idle.
//! `hold` acquires different locks, keeps them all, and releases them in the
//! same order; between its phases all workers meet, so that the server's memory
//! can be read with everything held.

use crate::order::RunOrder;
use crate::page::{Figure, Page, SLICES, Shared, Stage, Word};
use crate::witness::{Guard, Witness};
use jostle_model::plan::{Measure, Names};
use jostle_stats::rng::Rng;
use jostle_sys::clock::Clock;
use jostle_sys::futex;
use jostle_targets::{CallError, Calls, Kind, Lock, Mode, Outcome, Wait};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// One worker at the common start.
pub struct Course<'a, L> {
    lock: &'a mut L,
    order: &'a RunOrder,
    clock: Clock,
    shared: &'a Shared,
    page: Page<'a>,
    guard: Guard<'a>,
    worker: usize,
    wait: Wait,
    stamps: Stamps,
}

/// Which operations are stamped.
struct Stamps {
    every: u64,
    gap: u64,
    rng: Rng,
}

impl Stamps {
    #[inline(always)]
    fn due(&mut self) -> bool {
        match (self.every, self.gap) {
            (0, _) => false,
            (1, _) => true,
            (every, 0) => {
                self.gap = self.rng.geometric(every as f64) - 1;
                true
            }
            _ => {
                self.gap -= 1;
                false
            }
        }
    }
}

impl<'a, L: Lock> Course<'a, L> {
    /// Worker number `worker`, with its handle.
    pub fn new(
        lock: &'a mut L,
        order: &'a RunOrder,
        clock: Clock,
        shared: &'a Shared,
        witness: &'a Witness,
        worker: usize,
    ) -> Course<'a, L> {
        let page = shared.page(worker);
        page.set(Word::Stage, Stage::Working as u64);
        Course {
            lock,
            order,
            clock,
            shared,
            page,
            guard: witness.guard(worker, page, order.seed),
            worker,
            wait: Wait::Block {
                last_resort_ns: shared.last_resort().load(Relaxed),
            },
            stamps: Stamps {
                every: match order.measure {
                    Measure::Full => order.stamp_every,
                    Measure::Counts => 0,
                },
                gap: 0,
                rng: Rng::stream(order.seed, worker as u64),
            },
        }
    }

    /// Pairs back to back. False if it was ended before all were done.
    ///
    /// # Errors
    /// The call that failed.
    pub fn stream(&mut self) -> Result<bool, CallError> {
        let key = match self.order.names {
            Names::One => 0,
            Names::Own => self.worker,
        };
        if self.order.pipeline > 1 {
            return self.batches(Kind::Pairs, key);
        }
        let full = self.order.measure == Measure::Full;
        for nth in 0..self.order.operations {
            if !self.pair(key, nth, full)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[inline(always)]
    fn pair(&mut self, key: usize, nth: u64, full: bool) -> Result<bool, CallError> {
        let stamped = self.stamps.due();
        let attempt = if stamped { self.clock.now() } else { 0 };
        if !self.acquire(key, attempt)? {
            return Ok(false);
        }
        let grant = if stamped { self.clock.now() } else { 0 };
        if full {
            self.guard.enter(key, Mode::Exclusive);
            self.guard.leave(key, Mode::Exclusive);
        }
        let release = if stamped { self.clock.now() } else { 0 };
        self.lock.release(key, Mode::Exclusive)?;
        self.page.add(Word::Operations, 1);
        if stamped {
            let released = self.clock.now();
            self.acquired(nth, grant - attempt);
            self.page.fold(Figure::Release, released - release);
        }
        Ok(true)
    }

    /// Acquires all, meets the others, releases all. False if it was ended
    /// before.
    ///
    /// # Errors
    /// The call that failed.
    pub fn hold(&mut self) -> Result<bool, CallError> {
        let first = self.worker * self.order.operations as usize;
        if !self.acquire_all(first)? {
            return Ok(false);
        }
        self.page.set(Word::HeldAt, self.clock.now());
        self.meet();
        self.release_all(first)
    }

    fn acquire_all(&mut self, first: usize) -> Result<bool, CallError> {
        if self.order.pipeline > 1 {
            return self.batches(Kind::Acquires, first);
        }
        for nth in 0..self.order.operations {
            let stamped = self.stamps.due();
            let attempt = if stamped { self.clock.now() } else { 0 };
            if !self.acquire(first + nth as usize, attempt)? {
                return Ok(false);
            }
            if stamped {
                let took = self.clock.now() - attempt;
                self.acquired(nth, took);
            }
        }
        Ok(true)
    }

    fn release_all(&mut self, first: usize) -> Result<bool, CallError> {
        if self.order.pipeline > 1 {
            return self.batches(Kind::Releases, first);
        }
        for nth in 0..self.order.operations {
            let stamped = self.stamps.due();
            let from = if stamped { self.clock.now() } else { 0 };
            self.lock.release(first + nth as usize, Mode::Exclusive)?;
            self.page.add(Word::Operations, 1);
            if stamped {
                let took = self.clock.now() - from;
                self.page.fold(Figure::Release, took);
                self.page.slice_releases(self.slice(nth), 1, took);
            }
        }
        Ok(true)
    }

    /// The figures are then of whole batches, the slices still of single locks.
    fn batches(&mut self, kind: Kind, first: usize) -> Result<bool, CallError> {
        let mut nth = 0;
        while nth < self.order.operations {
            let count = (self.order.operations - nth).min(self.order.pipeline as u64);
            let calls = Calls {
                kind,
                first: match kind {
                    Kind::Pairs => first,
                    Kind::Acquires | Kind::Releases => first + nth as usize,
                },
                count: count as usize,
            };
            let from = self.clock.now();
            self.page.set(Word::PendingSince, from);
            if self.lock.batch(calls, self.wait)? != Outcome::Granted {
                return Ok(false);
            }
            self.page.set(Word::PendingSince, 0);
            self.batch_done(kind, nth, count, self.clock.now() - from);
            nth += count;
        }
        Ok(true)
    }

    fn batch_done(&self, kind: Kind, nth: u64, count: u64, took: u64) {
        let full = self.order.measure == Measure::Full;
        let slice = self.slice(nth);
        if kind != Kind::Releases {
            self.page.add(Word::Total, count);
        }
        if kind != Kind::Acquires {
            self.page.add(Word::Operations, count);
        }
        match kind {
            _ if !full => {}
            Kind::Releases => {
                self.page.fold(Figure::Release, took);
                self.page.slice_releases(slice, count, took);
            }
            Kind::Pairs | Kind::Acquires => {
                self.page.add(Word::Stamped, count);
                self.page.fold(Figure::Acquire, took);
                self.page.slice_batch(slice, count, took);
            }
        }
    }

    /// False if the keeper ended the wait.
    #[inline(always)]
    fn acquire(&mut self, key: usize, attempt: u64) -> Result<bool, CallError> {
        self.page.set(Word::PendingSince, attempt.max(1));
        let outcome = self.lock.acquire(key, Mode::Exclusive, self.wait)?;
        self.page.set(Word::PendingSince, 0);
        match outcome {
            Outcome::Granted => {}
            Outcome::GrantedFromDead => self.page.add(Word::FromDead, 1),
            Outcome::Refused | Outcome::Interrupted => return Ok(false),
        }
        self.page.add(Word::Total, 1);
        Ok(true)
    }

    #[inline(always)]
    fn acquired(&self, nth: u64, took: u64) {
        self.page.add(Word::Stamped, 1);
        self.page.fold(Figure::Acquire, took);
        self.page.raise(Word::LongestWait, took);
        self.page.slice(self.slice(nth), Some(took));
    }

    /// Which tenth of the worker's operations number `nth` belongs to.
    #[inline(always)]
    fn slice(&self, nth: u64) -> usize {
        slice_of(nth, self.order.operations)
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

/// Which tenth of `operations` number `nth` belongs to.
#[inline(always)]
fn slice_of(nth: u64, operations: u64) -> usize {
    (nth * SLICES as u64 / operations.max(1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_slices_share_the_operations_evenly() {
        let of = |operations: u64| (0..operations).map(move |nth| slice_of(nth, operations));
        for slice in 0..SLICES {
            assert_eq!(of(1000).filter(|s| *s == slice).count(), 100);
        }
        assert_eq!(of(3).collect::<Vec<_>>(), [0, 3, 6]);
    }

    #[test]
    fn one_in_so_many_is_stamped() {
        let stamped = |every| {
            let mut stamps = Stamps {
                every,
                gap: 0,
                rng: Rng::stream(7, 0),
            };
            (0..10_000).filter(|_| stamps.due()).count()
        };
        assert_eq!((stamped(0), stamped(1)), (0, 10_000));
        let tenth = stamped(10);
        assert!((900..1_100).contains(&tenth), "{tenth}");
    }
}
