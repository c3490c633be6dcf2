//! `stream`, `churn` and `hold`: a number of operations, not a time, ends the run.
//!
//! A stream is pairs of acquire and release back to back, without hold or idle; `churn` opens
//! a session before each pair and closes it after.
//! `hold` acquires different locks, keeps them all, and releases them in the
//! same order; between its phases all workers meet, so that the server's memory
//! can be read with everything held, and for as long as the keeper wants they keep
//! what they hold (`renewals`).

use super::locking::{Loop, WorkerLock, is_answered};
use super::renewals::Renewals;
use crate::crew::{Crew, Used};
use crate::order::{HoldOrder, StreamOrder};
use crate::page::{PageHistogram, Shared, Word};
use crate::recording::tally::{Counted, Tally};
use jostle_sys::futex;
use jostle_targets::{BatchKind, CallError, Calls, Lock, Locks, Mode, Outcome, Wait};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

// A distribution takes 16 KiB of every worker's page. Sessions are noted in those that
// workers who neither hold nor renew leave empty.

/// How long sessions took to be open.
pub const OPEN: PageHistogram = PageHistogram::Hold;
/// How long it took to end them, once the lock was released.
pub const CLOSE: PageHistogram = PageHistogram::Renewal;
/// From the beginning of the one to the end of the other.
pub const CYCLE: PageHistogram = PageHistogram::Refused;

/// One worker at the common start, whose calls are not pairs one by one.
struct CountedLoop<'a, L> {
    lock: &'a mut L,
    notes: Tally<'a>,
    shared: &'a Shared,
    /// Whether locks are held for a time.
    kept: bool,
    renewals: Renewals<'a>,
    wait: Wait,
}

impl<'a, L: Lock> CountedLoop<'a, L> {
    /// Worker number `worker`, with its lock.
    fn new(
        lock: &'a mut L,
        crew: &Crew<'a>,
        counted: Counted<'a>,
        worker: usize,
    ) -> CountedLoop<'a, L> {
        let notes = crew.tally(counted, worker, worker);
        let keys = match counted {
            Counted::Stream(_) => (0, 0),
            Counted::Hold(_) => (notes.first_key(), notes.operations as usize),
        };
        let kept = crew.order.workload.wants().kept;
        CountedLoop {
            kept,
            renewals: Renewals::new(notes.page, lock, kept, keys, counted.pipeline()),
            lock,
            notes,
            shared: crew.shared,
            wait: block(crew),
        }
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
            return self.batches(BatchKind::Acquires, first);
        }
        for nth in 0..self.notes.operations {
            let key = first + nth as usize;
            self.renewals.renew_due(self.lock)?;
            let asked_ns = self.renewals.stamp();
            let attempt = self.notes.begin();
            if !acquire(self.lock, &self.notes, key, attempt, self.wait)? {
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
            return self.batches(BatchKind::Releases, first);
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
    fn batches(&mut self, kind: BatchKind, first: usize) -> Result<bool, CallError> {
        let (operations, depth) = (self.notes.operations, self.notes.counted.pipeline());
        let mut nth = 0;
        while nth < operations {
            let count = (operations - nth).min(depth as u64);
            let calls = Calls {
                kind,
                first: match kind {
                    BatchKind::Pairs => first,
                    BatchKind::Acquires | BatchKind::Releases => first + nth as usize,
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
                BatchKind::Pairs => {}
                BatchKind::Acquires => keys.for_each(|key| self.renewals.granted(key, asked_ns)),
                BatchKind::Releases => self.renewals.released_below(keys.end),
            }
            nth += count;
        }
        Ok(true)
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

/// All that a worker does from the common start on. False if it was ended before.
///
/// # Errors
/// The call that failed.
pub(crate) fn work(
    crew: &Crew<'_>,
    locks: &dyn Locks,
    counted: Counted<'_>,
    lock: &mut dyn WorkerLock,
    worker: usize,
) -> Result<bool, CallError> {
    let done = match counted {
        // The traffic of its own lock does not include the locks of other sessions.
        Counted::Stream(stream) if stream.session_each => {
            return churn(locks, crew, stream, worker);
        }
        _ => lock.run(crew, worker, Loop::Counted(counted)),
    };
    if let Some(traffic) = lock.lock().traffic() {
        crew.shared.page(worker).note_traffic(traffic);
    }
    done
}

/// Sessions, each for one pair. False if it was ended before all were done. A session
/// that does not open ends the worker, as every call does that fails.
fn churn(
    locks: &dyn Locks,
    crew: &Crew<'_>,
    stream: &StreamOrder,
    worker: usize,
) -> Result<bool, CallError> {
    let mut notes = crew.tally(Counted::Stream(stream), worker, worker);
    let (key, wait) = (notes.first_key(), block(crew));
    let number = crew.order.number(worker);
    for nth in 0..notes.operations {
        let began = notes.begin();
        let stamped = began > 0;
        notes.waits(began);
        let mut lock = locks.session(number, key)?;
        let attempt = if stamped { notes.clock.now() } else { 0 };
        match lock.acquire(key, Mode::Exclusive, wait)? {
            Outcome::Granted | Outcome::GrantedFromDead => {}
            Outcome::Refused | Outcome::Interrupted => return Ok(false),
        }
        let pair = notes.passes(key, attempt);
        let token = lock.token();
        if let Some(token) = token {
            notes.came_with(key, token);
        }
        if !is_answered(lock.release(key, Mode::Exclusive))? {
            return Ok(false);
        }
        if notes.logs() {
            notes.log(key, &pair, token);
        }
        notes.passed(nth, &pair);
        let released = if stamped { notes.clock.now() } else { 0 };
        lock.part()?;
        drop(lock);
        if stamped {
            let closed = notes.clock.now();
            notes.page.fold(OPEN, attempt - began);
            notes.page.fold(CLOSE, closed - released);
            notes.page.fold(CYCLE, closed - began);
        }
    }
    Ok(true)
}

/// Pairs back to back, or many at once. False if it was ended before all were done. The notes
/// are made here, so that they stand beside the loop and need no pointer of their own.
///
/// # Errors
/// The lock's call that failed.
#[inline(never)]
pub(crate) fn stream<L: Lock>(
    lock: &mut L,
    crew: &Crew<'_>,
    stream: &StreamOrder,
    worker: usize,
) -> Result<bool, CallError> {
    if stream.pipeline > 1 {
        let mut course = CountedLoop::new(lock, crew, Counted::Stream(stream), worker);
        return course.batches(BatchKind::Pairs, course.notes.first_key());
    }
    let mut notes = crew.tally(Counted::Stream(stream), worker, worker);
    let wait = block(crew);
    let key = notes.first_key();
    for nth in 0..notes.operations {
        let attempt = notes.begin();
        if !acquire(lock, &notes, key, attempt, wait)? {
            return Ok(false);
        }
        let pair = notes.passes(key, attempt);
        if let Some(token) = lock.token() {
            notes.came_with(key, token);
        }
        if !is_answered(lock.release(key, Mode::Exclusive))? {
            return Ok(false);
        }
        if notes.logs() {
            notes.log(key, &pair, lock.token());
        }
        notes.passed(nth, &pair);
    }
    Ok(true)
}

/// Locks of its own, all held at once. False if it was ended before.
///
/// # Errors
/// The lock's call that failed.
#[inline(never)]
pub(crate) fn hold<L: Lock>(
    lock: &mut L,
    crew: &Crew<'_>,
    hold: &HoldOrder,
    worker: usize,
) -> Result<bool, CallError> {
    CountedLoop::new(lock, crew, Counted::Hold(hold), worker).hold()
}

/// Until granted, or nobody waits any more.
fn block(crew: &Crew<'_>) -> Wait {
    Wait::Block {
        last_resort_ns: crew.shared.last_resort().load(Relaxed),
    }
}

/// False if the keeper ended the wait.
#[inline(always)]
fn acquire<L: Lock>(
    lock: &mut L,
    notes: &Tally<'_>,
    key: usize,
    attempt: u64,
    wait: Wait,
) -> Result<bool, CallError> {
    notes.waits(attempt);
    match lock.acquire(key, Mode::Exclusive, wait)? {
        Outcome::Granted | Outcome::GrantedFromDead => Ok(true),
        Outcome::Refused | Outcome::Interrupted => Ok(false),
    }
}
