//! Workers that take locks: the target, and which workload they follow. Its counterpart
//! for workers that send requests is `requests`.
//!
//! The measured loops are generic over the lock. [`WorkerLock`] is a worker's lock together
//! with the loops of its type, and [`PreparedLock`] makes one. Whatever else a worker does with
//! its lock, it does through an object.

use super::contend::{self, Probe};
use super::counted;
use super::staying::Staying;
use crate::crew::Crew;
use crate::order::ContendOrder;
use crate::recording::tally::Counted;
use jostle_sys::signal;
use jostle_targets::{
    CallError, Entry, Lock, Locks, Result, Setup, Target, Visitor, prepare, visit,
};

/// A lock, and what its workers do with it.
pub(crate) struct Locking<'a> {
    /// Its line in the table.
    pub(crate) entry: &'static Entry,
    pub(crate) lock: Box<dyn PreparedLock>,
    /// The work.
    pub(crate) order: LockOrder<'a>,
}

/// The workers' work with the lock, by workload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LockOrder<'a> {
    /// `contend`.
    Contend(&'a ContendOrder),
    /// `stream` or `hold`.
    Counted(Counted<'a>),
}

impl<'a> Locking<'a> {
    /// Prepares the lock of an entry.
    ///
    /// # Errors
    /// In words for the user.
    pub(crate) fn prepare(
        entry: &'static Entry,
        setup: &Setup<'_>,
        order: LockOrder<'a>,
    ) -> Result<Locking<'a>> {
        let lock = match visit(entry, Own(setup)) {
            Ok(own) => own?,
            Err(Own(setup)) => Box::new(Shared(prepare(entry, setup)?)),
        };
        Ok(Locking { entry, lock, order })
    }
}

/// The state that all workers of a lock share, and the way to a worker's own.
pub(crate) trait PreparedLock: Sync {
    fn locks(&self) -> &dyn Locks;

    /// Makes the lock of worker number `worker`, and does `work` with it. It stands on the
    /// worker's own stack, so that no two share a cache line.
    ///
    /// # Errors
    /// In words for the user.
    fn join(&self, worker: usize, work: &mut dyn FnMut(&mut dyn WorkerLock)) -> Result<()>;
}

/// A measured loop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loop<'a> {
    /// [`contend::run`], measured in this way, for so many grants.
    Contend(&'a ContendOrder, Probe, u64),
    /// [`counted::stream`] or [`counted::hold`].
    Counted(Counted<'a>),
}

/// A worker's lock, and the measured loops of its type.
pub(crate) trait WorkerLock {
    fn lock(&mut self) -> &mut dyn Lock;

    /// Runs a loop as worker number `worker`. False if it was ended before all was done.
    ///
    /// # Errors
    /// The lock's call that failed.
    fn run(&mut self, crew: &Crew<'_>, worker: usize, what: Loop<'_>) -> Result<bool, CallError>;
}

impl<L: Lock> WorkerLock for L {
    fn lock(&mut self) -> &mut dyn Lock {
        self
    }

    fn run(&mut self, crew: &Crew<'_>, worker: usize, what: Loop<'_>) -> Result<bool, CallError> {
        match what {
            Loop::Contend(order, probe, limit) => {
                contend::run(self, crew, order, worker, probe, limit).map(|()| true)
            }
            Loop::Counted(Counted::Stream(order)) => counted::stream(self, crew, order, worker),
            Loop::Counted(Counted::Hold(order)) => counted::hold(self, crew, order, worker),
        }
    }
}

/// Prepares a lock that has loops of its own.
struct Own<'a, 'b>(&'a Setup<'b>);

impl Visitor for Own<'_, '_> {
    type Out = Result<Box<dyn PreparedLock>>;

    fn visit<T: Target>(self) -> Self::Out {
        Ok(Box::new(T::prepare(self.0)?))
    }
}

impl<T: Target> PreparedLock for T {
    fn locks(&self) -> &dyn Locks {
        self
    }

    fn join(&self, worker: usize, work: &mut dyn FnMut(&mut dyn WorkerLock)) -> Result<()> {
        work(&mut Target::join(self, worker)?);
        Ok(())
    }
}

/// A lock that shares the loops of all whose calls take long. Its workers stay with a service
/// that has several servers.
struct Shared(Box<dyn Locks>);

impl PreparedLock for Shared {
    fn locks(&self) -> &dyn Locks {
        &*self.0
    }

    fn join(&self, worker: usize, work: &mut dyn FnMut(&mut dyn WorkerLock)) -> Result<()> {
        work(&mut Staying::new(self.0.join(worker)?));
        Ok(())
    }
}

/// Whether a release was answered; false if the keeper ended the wait for the answer of a
/// server, which the worker then leaves. A lock of the user's own may return EINTR by
/// itself, which is an error.
///
/// # Errors
/// The lock's call that failed.
#[inline(always)]
pub(crate) fn is_answered(released: Result<(), CallError>) -> Result<bool, CallError> {
    match released {
        Ok(()) => Ok(true),
        Err(error) if error.is_interrupted() && signal::interrupted() => Ok(false),
        Err(error) => Err(error),
    }
}
