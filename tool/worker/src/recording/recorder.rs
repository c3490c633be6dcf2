//! The record that a worker of `contend` keeps of its cycles, and its draws for them: everything
//! but the lock itself and the waiting, which differ by carrier.
//!
//! The four steps of a cycle that leave a trace are granted, leaving, released,
//! and not granted; each is compiled for what is recorded, so that what is not
//! costs nothing.

use super::Common;
use crate::grants::WorkerLog;
use crate::order::{ContendOrder, RunOrder};
use crate::page::{Page, PageHistogram, SLICES, Shared, WRITERS, Word, phase};
use crate::witness::{Before, Guard};
use jostle_model::time::Busy;
use jostle_stats::rng::Rng;
use jostle_sys::clock::{Clock, UNKNOWN_CPU};
use jostle_targets::{Mode, Wait};
use std::sync::atomic::Ordering::Relaxed;

/// One worker's notes.
pub(crate) struct Recorder<'a> {
    /// The run.
    pub order: &'a RunOrder,
    /// The order.
    pub contend: &'a ContendOrder,
    /// The scale of the stamps.
    pub clock: Clock,
    /// The run's memory.
    pub shared: &'a Shared,
    /// The worker's own counters.
    pub page: Page<'a>,
    /// Where distributions are folded: the worker's page, or one that it shares
    /// with the others of its thread.
    figures: Page<'a>,
    guard: Guard<'a>,
    grants: WorkerLog<'a>,
    rng: Rng,
    to_monotonic: u64,
    last_resort_ns: u64,
    gap: u64,
    /// Stamp of the worker's latest release; zero: none.
    latest_release: u64,
}

/// A grant, from its stamp to its release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    key: usize,
    mode: Mode,
    /// Stamps; zero where this operation has none.
    attempt: u64,
    grant: u64,
    cpu: u32,
    stamped: bool,
    /// Another worker had the lock before.
    changed: bool,
    before: Before,
    release: u64,
    /// From just after the grant to just before the release, for the log.
    inner_ns: (u64, u64),
}

impl<'a> Recorder<'a> {
    /// The recorder of worker number `worker`, which folds its distributions into the
    /// page of worker `figures`.
    pub(crate) fn new(
        common: Common<'a>,
        contend: &'a ContendOrder,
        worker: usize,
        figures: usize,
    ) -> Recorder<'a> {
        let shared = common.shared;
        Recorder {
            order: common.order,
            contend,
            clock: common.clock,
            shared,
            page: shared.page(worker),
            figures: shared.page(figures),
            guard: common.guard(worker),
            grants: common.of_worker(worker),
            rng: common.rng(worker),
            to_monotonic: shared.to_monotonic().load(Relaxed),
            last_resort_ns: shared.last_resort().load(Relaxed),
            gap: 0,
            latest_release: 0,
        }
    }

    /// Whether the next operation is stamped.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.gap == 0
    }

    /// Goes on to the operation after.
    #[inline(always)]
    pub(crate) fn advance(&mut self) {
        let every = self.order.stamp_every;
        self.gap = match self.gap {
            0 if every == 1 => 0,
            0 => self.rng.geometric(every as f64) - 1,
            left => left - 1,
        };
    }

    /// The lock of the next operation.
    #[inline(always)]
    pub(crate) fn choose(&mut self) -> (usize, Mode) {
        let key = match self.order.keys {
            1 => 0,
            keys => self.rng.below(keys as u64) as usize,
        };
        let share = self.contend.shared;
        if share == 0.0 {
            return (key, Mode::Exclusive);
        }
        let writes = self.rng.unit_f64() >= share;
        self.page.set(Word::Writes, u64::from(writes));
        let mode = if writes {
            Mode::Exclusive
        } else {
            Mode::Shared
        };
        (key, mode)
    }

    /// An attempt begins that has this stamp, or none (zero). Its worker may be killed
    /// while it waits: what is known of the wait has to stand in the page.
    #[inline(always)]
    pub(crate) fn begins<const STAMPS: bool>(&self, attempt: u64) {
        self.page.set(Word::PendingSince, attempt.max(1));
        if STAMPS && attempt == 0 {
            self.page.set(Word::PendingAfter, self.latest_release);
        }
    }

    /// How long an attempt may wait that began at this stamp, if it has one.
    #[inline(always)]
    pub(crate) fn patience(&self, attempt: u64) -> Wait {
        match (self.contend.try_only, self.contend.acquire_timeout) {
            (true, _) => Wait::Try,
            (false, None) => self.block(),
            (false, Some(timeout)) => {
                let from = match attempt {
                    0 => self.clock.now(),
                    stamp => stamp,
                };
                Wait::Until(from.wrapping_add(self.to_monotonic).wrapping_add(timeout.0))
            }
        }
    }

    /// Until granted, or nobody waits any more.
    #[inline(always)]
    pub(crate) fn block(&self) -> Wait {
        Wait::Block {
            last_resort_ns: self.last_resort_ns,
        }
    }

    /// When the window closes; `u64::MAX` until all have arrived.
    #[inline(always)]
    pub(crate) fn closes(&self) -> u64 {
        self.shared.closes().load(Relaxed)
    }

    /// The lock is ours: the grant's stamp, and the witness's mark.
    #[inline(always)]
    pub(crate) fn granted<const WITNESS: bool>(
        &mut self,
        key: usize,
        mode: Mode,
        attempt: u64,
        stamped: bool,
    ) -> Grant {
        let (grant, cpu) = if stamped {
            self.clock.stamp()
        } else {
            (0, UNKNOWN_CPU)
        };
        let inner_from = self.grants.now();
        self.page.set(Word::GrantedAt, grant);
        self.page.set(Word::PendingSince, 0);
        self.page.add(Word::Total, 1);
        if WITNESS {
            self.guard.enter(key, mode);
        }
        let before = if stamped {
            self.guard.before(key, mode)
        } else {
            Before::default()
        };
        let changed = WITNESS && mode == Mode::Exclusive && {
            let opens = self.shared.opens().load(Relaxed);
            let opens = if opens == u64::MAX { 0 } else { opens };
            self.guard.streak(key, attempt, grant, opens)
        };
        Grant {
            key,
            mode,
            attempt,
            grant,
            cpu,
            stamped,
            changed,
            before,
            release: 0,
            inner_ns: (inner_from, 0),
        }
    }

    /// The grant came with this fencing token; we still hold.
    #[inline(always)]
    pub(crate) fn came_with(&self, key: usize, mode: Mode, token: u64) {
        self.guard.look_at_token(key, mode, token);
    }

    /// Whether the owner still does what it wanted the lock for. A grant that
    /// came after the window is given back at once.
    #[inline(always)]
    pub(crate) fn holds(&self, grant: &Grant) -> bool {
        grant.grant < self.closes()
    }

    /// Records the time spun at the end of a hold, if the keeper's flag shows the window
    /// open: the flag changes when the keeper reads the CPU clocks.
    #[inline]
    pub(crate) fn spun(&self, nanos: u64) {
        if self.shared.phase().load(Relaxed) == phase::WITHIN {
            self.page.add(Word::Spun, nanos);
        }
    }

    /// How to rest before the next operation.
    #[inline(always)]
    pub(crate) fn rest(&mut self) -> Busy {
        match self.contend.idle_varies {
            false => self.contend.idle,
            true => Self::times(self.contend.idle, self.rng.exponential()),
        }
    }

    fn times(mut rest: Busy, factor: f64) -> Busy {
        let (Busy::Sleep(span) | Busy::Spin(span)) = &mut rest;
        span.0 = (span.0 as f64 * factor) as u64;
        rest
    }

    /// A sleep between two operations is over that began at this stamp.
    #[inline]
    pub(crate) fn idled(&self, from: u64) {
        if self.shared.phase().load(Relaxed) == phase::WITHIN {
            self.page
                .add(Word::Idled, self.clock.now().saturating_sub(from));
            self.page.add(Word::Idles, 1);
        }
    }

    /// The hold is over: the mark goes, and the release is stamped.
    #[inline(always)]
    pub(crate) fn leaving<const STAMPS: bool, const WITNESS: bool>(&mut self, grant: &mut Grant) {
        if WITNESS {
            self.guard.leave(grant.key, grant.mode);
        }
        grant.inner_ns.1 = self.grants.now();
        if STAMPS {
            let (release, cpu) = self.clock.stamp();
            self.guard.releasing(grant.key, grant.mode, release, cpu);
            grant.release = release;
        }
    }

    /// Whether grants are logged.
    #[inline(always)]
    pub(crate) fn logs(&self) -> bool {
        self.grants.is_on()
    }

    /// Logs a grant of the window, which came with this token.
    #[inline]
    pub(crate) fn log(&mut self, of: &Grant, token: Option<u64>) {
        let at = if of.stamped { of.grant } else { of.release };
        if at >= self.shared.opens().load(Relaxed) && at < self.closes() {
            self.grants.log(of.key, of.mode, of.inner_ns, token);
        }
    }

    /// The release has returned, `answered` or ended by the keeper: how long it took is
    /// unknown then. True if the window has closed.
    #[inline(always)]
    pub(crate) fn released(&mut self, of: &Grant, answered: bool) -> bool {
        let (opens, closes) = (self.shared.opens().load(Relaxed), self.closes());
        self.latest_release = of.release;
        if !of.stamped {
            // Granted after the window, for all that is known.
            if of.release.saturating_sub(self.contend.hold.span().0) >= closes {
                self.censored(0);
            }
            // The hold of an unstamped operation is shorter than the error
            // that counting it by its release makes at the window's edges.
            if of.release >= opens && of.release < closes {
                self.page.add(Word::Operations, 1);
                self.page.add(Word::OwnerChanges, u64::from(of.changed));
                self.figures
                    .slice(slice_of(of.release, opens, closes), None);
            }
            return of.release >= closes;
        }
        let released = self.clock.now();
        let wait = of.grant - of.attempt;
        if of.grant >= opens && of.grant < closes {
            self.page.add(Word::Operations, 1);
            self.page.add(Word::OwnerChanges, u64::from(of.changed));
            self.page.add(Word::Stamped, 1);
            self.figures.fold(self.waits_of(of.mode), wait);
            self.figures
                .fold(PageHistogram::Hold, of.release - of.grant);
            if answered {
                self.figures
                    .fold(PageHistogram::Release, released - of.release);
            }
            self.page.raise(Word::LongestWait, wait);
            self.figures
                .slice(slice_of(of.grant, opens, closes), Some(wait));
            if of.before.release > of.attempt {
                let until = of.before.release.min(of.grant);
                let blocked = until.saturating_sub(of.attempt.max(opens));
                self.page.add(Word::BlockedNs, blocked);
                handed_over(
                    self.order,
                    &self.page,
                    &self.figures,
                    of.before,
                    of.grant,
                    of.cpu,
                );
            }
        }
        if of.grant >= closes {
            self.censored(of.attempt);
        }
        if of.grant < opens {
            self.warm_up(of, wait, released);
        }
        of.grant >= closes
    }

    #[inline(always)]
    fn waits_of(&self, mode: Mode) -> PageHistogram {
        match mode {
            Mode::Exclusive if self.contend.shared > 0.0 => WRITERS,
            _ => PageHistogram::Acquire,
        }
    }

    /// Makes the memory for values like these during the warm-up, so that the window takes
    /// no faults for them.
    #[cold]
    fn warm_up(&self, of: &Grant, wait: u64, released: u64) {
        self.figures.touch(self.waits_of(of.mode), wait);
        self.figures
            .touch(PageHistogram::Hold, of.release - of.grant);
        self.figures
            .touch(PageHistogram::Release, released - of.release);
        if of.before.release > of.attempt {
            let handoff = of.grant.saturating_sub(of.before.release);
            self.figures.touch(PageHistogram::HandoffSame, handoff);
            self.figures.touch(PageHistogram::HandoffCross, handoff);
        }
    }

    /// This attempt had no grant when the window closed.
    #[cold]
    pub(crate) fn censored(&self, attempt: u64) {
        if attempt < self.closes() {
            self.page.set(Word::CensoredAt, attempt.max(1));
        }
    }

    /// A try was refused, or the time of an attempt was up.
    #[cold]
    pub(crate) fn refused(&mut self, attempt: u64) {
        self.page.set(Word::PendingSince, 0);
        let now = self.clock.now();
        if now < self.shared.opens().load(Relaxed) || now >= self.closes() {
            return;
        }
        let word = match self.contend.try_only {
            true => Word::Refusals,
            false => Word::Timeouts,
        };
        self.page.add(word, 1);
        if attempt > 0 {
            self.figures.fold(PageHistogram::Refused, now - attempt);
            let writes = self.page.get(Word::Writes);
            self.page.add(Word::WritesFailed, writes);
            self.page
                .add(Word::WritesFailedNs, writes * (now - attempt));
        }
    }
}

/// Notes a grant that another owner's release made way for.
pub(crate) fn handed_over(
    order: &RunOrder,
    page: &Page<'_>,
    figures: &Page<'_>,
    before: Before,
    grant: u64,
    cpu: u32,
) {
    page.add(Word::Contended, 1);
    if before.release > grant + order.clock_uncertainty.0 {
        page.add(Word::BeforeRelease, 1);
        return;
    }
    let crossed = before.cpu != UNKNOWN_CPU && cpu != UNKNOWN_CPU && before.cpu != cpu;
    let figure = if crossed {
        PageHistogram::HandoffCross
    } else {
        PageHistogram::HandoffSame
    };
    figures.fold(figure, grant.saturating_sub(before.release));
}

/// The tenth of the window that a stamp lies in.
#[inline(always)]
fn slice_of(stamp: u64, opens: u64, closes: u64) -> usize {
    ((stamp - opens) as u128 * SLICES as u128 / (closes - opens).max(1) as u128) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::Nanos;

    #[test]
    fn an_idle_that_varies_stays_a_sleep_or_a_spin() {
        let mean = Nanos(2_000);
        let half = Nanos(1_000);
        let times = |rest| Recorder::times(rest, 0.5);
        assert_eq!(times(Busy::Sleep(mean)), Busy::Sleep(half));
        assert_eq!(times(Busy::Spin(mean)), Busy::Spin(half));
    }

    #[test]
    fn ten_slices_share_the_window_evenly() {
        let slices: Vec<usize> = [100, 109, 110, 150, 199]
            .map(|s| slice_of(s, 100, 200))
            .into();
        assert_eq!(slices, [0, 0, 1, 5, 9]);
    }
}
