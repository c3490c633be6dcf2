//! The record that a worker of `stream` or `hold` keeps of its operations: everything but the calls
//! themselves and the waiting, which differ by carrier.

use super::Common;
use super::recorder::handed_over;
use crate::grants::WorkerLog;
use crate::order::{HoldOrder, RunOrder, StreamOrder};
use crate::page::{Page, PageHistogram, SLICES, Stage, Word};
use crate::witness::{Before, Guard};
use jostle_model::plan::{Measure, Names};
use jostle_stats::rng::Rng;
use jostle_sys::clock::{Clock, UNKNOWN_CPU};
use jostle_targets::{BatchKind, Mode};

/// Work that ends with its operations.
#[derive(Clone, Copy, Debug)]
pub enum Counted<'a> {
    /// Pairs.
    Stream(&'a StreamOrder),
    /// All acquisitions, and then all releases.
    Hold(&'a HoldOrder),
}

impl Counted<'_> {
    /// Operations of each worker.
    pub(crate) fn operations(self) -> u64 {
        match self {
            Counted::Stream(stream) => stream.operations,
            Counted::Hold(hold) => hold.operations,
        }
    }

    /// Requests that are sent at once.
    pub(crate) fn pipeline(self) -> usize {
        match self {
            Counted::Stream(stream) => stream.pipeline,
            Counted::Hold(hold) => hold.pipeline,
        }
    }

    /// The calls with which it begins.
    pub(crate) fn first_kind(self) -> BatchKind {
        match self {
            Counted::Stream(_) => BatchKind::Pairs,
            Counted::Hold(_) => BatchKind::Acquires,
        }
    }

    /// The lock of worker `number` of all hosts, or the first of those that it holds.
    fn first_key(self, number: usize) -> usize {
        match self {
            Counted::Stream(stream) => match stream.names {
                Names::One => 0,
                Names::Own => number,
            },
            Counted::Hold(hold) => number * hold.operations as usize,
        }
    }
}

/// One worker's notes.
pub struct Tally<'a> {
    order: &'a RunOrder,
    /// The order.
    pub counted: Counted<'a>,
    /// Operations of each worker.
    pub operations: u64,
    /// The scale of the stamps.
    pub clock: Clock,
    /// The worker's own counters.
    pub page: Page<'a>,
    /// Where distributions are folded: the worker's page, or one that it shares
    /// with the others of its thread.
    figures: Page<'a>,
    guard: Guard<'a>,
    grants: WorkerLog<'a>,
    worker: usize,
    stamps: Stamps,
    full: bool,
    /// Several workers take one lock: there are hand-offs to look for.
    meets: bool,
}

/// The choice of operations that are stamped.
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

/// An operation of a stream that is under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pair {
    stamped: bool,
    attempt: u64,
    grant: u64,
    release: u64,
    /// From just after the grant to just before the release, for the log.
    inner_ns: (u64, u64),
}

impl<'a> Tally<'a> {
    /// The tally of worker number `worker`, which folds its distributions into the page
    /// of worker `figures`.
    pub fn new(
        common: Common<'a>,
        counted: Counted<'a>,
        worker: usize,
        figures: usize,
    ) -> Tally<'a> {
        let order = common.order;
        let page = common.shared.page(worker);
        page.set(Word::Stage, Stage::Working as u64);
        let full = order.measure == Measure::Full;
        Tally {
            order,
            counted,
            operations: counted.operations(),
            clock: common.clock,
            page,
            figures: common.shared.page(figures),
            guard: common.guard(worker),
            grants: common.of_worker(worker),
            worker,
            stamps: Stamps {
                every: if full { order.stamp_every } else { 0 },
                gap: 0,
                rng: common.rng(worker),
            },
            full,
            meets: full && order.is_contended_stream(),
        }
    }

    /// The lock of a stream, or the first of those that are held.
    pub(crate) fn first_key(&self) -> usize {
        self.counted.first_key(self.order.number(self.worker))
    }

    /// The stamp of a call that begins; zero where this one has none.
    #[inline(always)]
    pub(crate) fn begin(&mut self) -> u64 {
        if self.stamps.due() {
            self.clock.now()
        } else {
            0
        }
    }

    /// An attempt begins that was begun with this stamp.
    #[inline(always)]
    pub(crate) fn waits(&self, attempt: u64) {
        self.page.set(Word::PendingSince, attempt.max(1));
    }

    /// It came to a grant.
    #[inline(always)]
    pub(crate) fn granted(&self) {
        self.page.set(Word::PendingSince, 0);
        self.page.add(Word::Total, 1);
    }

    /// As [`Tally::granted`] for a stream, whose owner leaves at once: to be
    /// followed by the release.
    #[inline(always)]
    pub(crate) fn passes(&mut self, key: usize, attempt: u64) -> Pair {
        self.granted();
        let stamped = attempt > 0;
        let (grant, cpu) = if stamped {
            self.clock.stamp()
        } else {
            (0, UNKNOWN_CPU)
        };
        let inner_from = self.grants.now();
        if self.full {
            self.guard.enter(key, Mode::Exclusive);
            if self.meets && stamped {
                self.look_back(self.guard.before(key, Mode::Exclusive), attempt, grant, cpu);
            }
            self.guard.leave(key, Mode::Exclusive);
        }
        let inner_ns = (inner_from, self.grants.now());
        let mut release = 0;
        if self.meets {
            let (stamp, cpu) = self.clock.stamp();
            self.guard.releasing(key, Mode::Exclusive, stamp, cpu);
            release = stamp;
        } else if stamped {
            release = self.clock.now();
        }
        Pair {
            stamped,
            attempt,
            grant,
            release,
            inner_ns,
        }
    }

    /// The grant came with this fencing token; the lock is not released yet.
    #[inline(always)]
    pub(crate) fn came_with(&self, key: usize, token: u64) {
        if self.full {
            self.guard.look_at_token(key, Mode::Exclusive, token);
        }
    }

    /// Whether grants are logged.
    #[inline(always)]
    pub(crate) fn logs(&self) -> bool {
        self.grants.is_on()
    }

    /// Logs a pair on lock number `key`, which came with this token.
    #[inline]
    pub(crate) fn log(&mut self, key: usize, pair: &Pair, token: Option<u64>) {
        self.grants.log(key, Mode::Exclusive, pair.inner_ns, token);
    }

    #[inline(always)]
    fn look_back(&self, before: Before, attempt: u64, grant: u64, cpu: u32) {
        if before.release > attempt {
            handed_over(self.order, &self.page, &self.figures, before, grant, cpu);
        }
    }

    /// The release of operation number `nth` of a stream has returned.
    #[inline(always)]
    pub(crate) fn passed(&self, nth: u64, pair: &Pair) {
        self.page.add(Word::Operations, 1);
        if pair.stamped {
            let released = self.clock.now();
            self.acquired(nth, pair.grant - pair.attempt);
            self.figures
                .fold(PageHistogram::Release, released - pair.release);
        }
    }

    /// Lock number `nth` was acquired, in so long.
    #[inline(always)]
    pub(crate) fn acquired(&self, nth: u64, took: u64) {
        self.page.add(Word::Stamped, 1);
        self.figures.fold(PageHistogram::Acquire, took);
        self.page.raise(Word::LongestWait, took);
        self.figures.slice(self.slice(nth), Some(took));
    }

    /// Lock number `nth` was released; `from` is zero where that has no stamp.
    #[inline(always)]
    pub fn released(&self, nth: u64, from: u64) {
        self.page.add(Word::Operations, 1);
        if from > 0 {
            let took = self.clock.now() - from;
            self.figures.fold(PageHistogram::Release, took);
            self.figures.slice_releases(self.slice(nth), 1, took);
        }
    }

    /// So many calls from number `nth` on are done.
    #[inline(always)]
    pub fn count(&self, kind: BatchKind, count: u64) {
        if kind != BatchKind::Releases {
            self.page.add(Word::Total, count);
        }
        if kind != BatchKind::Acquires {
            self.page.add(Word::Operations, count);
        }
    }

    /// Requests that were sent together have all been answered, in so long;
    /// `alone` is the part of it in which none before them was on its way.
    pub(crate) fn batch(&self, kind: BatchKind, nth: u64, count: u64, took: u64, alone: u64) {
        if !self.full {
            return;
        }
        let slice = self.slice(nth);
        if kind == BatchKind::Releases {
            self.figures.fold(PageHistogram::Release, took);
            self.figures.slice_releases(slice, count, alone);
        } else {
            self.page.add(Word::Stamped, count);
            self.figures.fold(PageHistogram::Acquire, took);
            self.figures.slice_batch(slice, count, alone);
        }
    }

    /// The tenth of the worker's operations that number `nth` belongs to.
    #[inline(always)]
    fn slice(&self, nth: u64) -> usize {
        slice_of(nth, self.operations)
    }
}

/// The tenth of `operations` that number `nth` belongs to.
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
