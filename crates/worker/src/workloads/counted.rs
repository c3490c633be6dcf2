//! `stream`, `churn` and `hold`: a number of operations, not a time, ends the run.
//!
//! A stream is pairs of acquire and release back to back, without hold or idle; `churn` opens
//! a session before each pair and closes it after.
//! `hold` acquires different locks, keeps them all, and releases them in the
//! same order; between its phases all workers meet, so that the server's memory
//! can be read with everything held, and for as long as the keeper wants they keep
//! what they hold (`renewals`).

use super::locking::{Locking, is_answered};
use super::renewals::Renewals;
use crate::crew::{Crew, Used};
use crate::page::{Figure, Shared, Word};
use crate::recording::tally::{Counted, Tally};
use jostle_sys::futex;
use jostle_targets::{CallError, Calls, Kind, Lock, Mode, Outcome, Target, Wait};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

// A distribution takes 16 KiB of every worker's page. Sessions are noted in those that
// workers who neither hold nor renew leave empty.

/// How long sessions took to be open.
pub(crate) const OPEN: Figure = Figure::Hold;
/// How long it took to end them, once the lock was released.
pub(crate) const CLOSE: Figure = Figure::Renewal;
/// From the beginning of the one to the end of the other.
pub(crate) const CYCLE: Figure = Figure::Refused;

/// One worker at the common start.
pub(crate) struct Course<'a, T: Target> {
    /// Its number on all hosts.
    number: usize,
    /// What opens sessions.
    target: &'a T,
    lock: &'a mut T::Lock,
    notes: Tally<'a>,
    shared: &'a Shared,
    /// Whether locks are held for a time.
    kept: bool,
    renewals: Renewals<'a>,
    wait: Wait,
}

impl<'a, T: Target> Course<'a, T> {
    /// Worker number `worker`, with its handle.
    pub(crate) fn new(
        crew: &Crew<'a, Locking<'a, T>>,
        counted: Counted<'a>,
        lock: &'a mut T::Lock,
        worker: usize,
    ) -> Course<'a, T> {
        let notes = crew.tally(counted, worker, worker);
        let locks = match counted {
            Counted::Stream(_) => (0, 0),
            Counted::Hold(_) => (notes.first_key(), notes.operations as usize),
        };
        let kept = crew.order.workload.wants().kept;
        Course {
            number: crew.order.number(worker),
            target: &crew.target.target,
            kept,
            renewals: Renewals::new(notes.page, lock, kept, locks, counted.pipeline()),
            lock,
            notes,
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
    pub(crate) fn run(&mut self) -> Result<bool, CallError> {
        let done = match self.notes.counted {
            // The traffic of its handle does not include the locks of other sessions.
            Counted::Stream(stream) if stream.session_each => return self.churn(),
            Counted::Stream(_) => self.stream(),
            Counted::Hold(_) => self.hold(),
        };
        if let Some(traffic) = self.lock.traffic() {
            self.notes.page.note_traffic(traffic);
        }
        done
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
            if !is_answered(self.lock.release(key, Mode::Exclusive))? {
                return Ok(false);
            }
            if self.notes.logs() {
                self.notes.log(key, &pair, self.lock.token());
            }
            self.notes.passed(nth, &pair);
        }
        Ok(true)
    }

    /// Sessions, each for one pair. False if it was ended before all were done. A session
    /// that does not open ends the worker, as every call does that fails.
    fn churn(&mut self) -> Result<bool, CallError> {
        let key = self.notes.first_key();
        for nth in 0..self.notes.operations {
            let began = self.notes.begin();
            let stamped = began > 0;
            self.notes.waits(began);
            let mut lock = self.target.session(self.number, key)?;
            let attempt = if stamped { self.notes.clock.now() } else { 0 };
            match lock.acquire(key, Mode::Exclusive, self.wait)? {
                Outcome::Granted => {}
                Outcome::GrantedFromDead => self.notes.page.add(Word::FromDead, 1),
                Outcome::Refused | Outcome::Interrupted => return Ok(false),
            }
            let pair = self.notes.passes(key, attempt);
            let token = lock.token();
            if let Some(token) = token {
                self.notes.came_with(key, token);
            }
            if !is_answered(lock.release(key, Mode::Exclusive))? {
                return Ok(false);
            }
            if self.notes.logs() {
                self.notes.log(key, &pair, token);
            }
            self.notes.passed(nth, &pair);
            let released = if stamped { self.notes.clock.now() } else { 0 };
            lock.part()?;
            drop(lock);
            if stamped {
                let closed = self.notes.clock.now();
                self.notes.page.fold(OPEN, attempt - began);
                self.notes.page.fold(CLOSE, closed - released);
                self.notes.page.fold(CYCLE, closed - began);
            }
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
        self.meet()?;
        self.release_all(first)
    }

    fn acquire_all(&mut self, first: usize) -> Result<bool, CallError> {
        if self.notes.counted.pipeline() > 1 {
            return self.batches(Kind::Acquires, first);
        }
        for nth in 0..self.notes.operations {
            let key = first + nth as usize;
            self.renewals.renew_due(self.lock)?;
            let asked_ns = self.renewals.stamp();
            let attempt = self.notes.begin();
            if !self.acquire(key, attempt)? {
                return Ok(false);
            }
            self.notes.granted();
            self.renewals.granted(key, asked_ns);
            if attempt > 0 {
                self.notes.acquired(nth, self.notes.clock.now() - attempt);
            }
        }
        Ok(true)
    }

    fn release_all(&mut self, first: usize) -> Result<bool, CallError> {
        // A batch is given up at the first lock that is not ours.
        if self.notes.counted.pipeline() > 1 && !self.renewals.some_lapsed() {
            return self.batches(Kind::Releases, first);
        }
        for nth in 0..self.notes.operations {
            let key = first + nth as usize;
            self.renewals.renew_due(self.lock)?;
            if self.renewals.has_lapsed(key) {
                continue;
            }
            let from = self.notes.begin();
            match is_answered(self.lock.release(key, Mode::Exclusive)) {
                Ok(true) => self.notes.released(nth, from),
                Ok(false) => return Ok(false),
                Err(error) if self.renewals.lapsed_at_release(key, &error) => {}
                Err(error) => return Err(error),
            }
            self.renewals.released_below(key + 1);
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
            self.renewals.renew_due(self.lock)?;
            let asked_ns = self.renewals.stamp();
            let from = self.notes.clock.now();
            self.notes.waits(from);
            if self.lock.batch(calls, self.wait)? != Outcome::Granted {
                return Ok(false);
            }
            self.notes.page.set(Word::PendingSince, 0);
            let took = self.notes.clock.now() - from;
            self.notes.count(kind, count);
            self.notes.batch(kind, nth, count, took, took);
            let keys = calls.first..calls.first + calls.count;
            match kind {
                Kind::Pairs => {}
                Kind::Acquires => keys.for_each(|key| self.renewals.granted(key, asked_ns)),
                Kind::Releases => self.renewals.released_below(keys.end),
            }
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

    /// Waits until all workers hold their locks, and keeps its own until the keeper lets it
    /// go on.
    fn meet(&mut self) -> Result<(), CallError> {
        let (before, from_ns) = (Used::read(&self.notes.page), self.notes.clock.now());
        self.renewals.refresh(self.lock);
        // The traffic so far was for acquiring.
        if let Some(traffic) = self.lock.traffic() {
            self.notes.page.note_traffic(traffic);
        }
        let midway = self.shared.midway();
        if midway.fetch_add(1, AcqRel) + 1 == self.shared.workers() as u32 {
            futex::wake(midway, futex::ALL);
        }
        while self.shared.resumed().load(Acquire) == 0 {
            let _ = futex::wait(self.shared.resumed(), 0, self.renewals.next_due_ns());
            self.renewals.renew_due(self.lock)?;
        }
        if self.kept {
            let page = &self.notes.page;
            page.set(Word::KeptFor, self.notes.clock.now() - from_ns);
            Used::read(page).less(&before).leave_kept(page);
        }
        Ok(())
    }
}
