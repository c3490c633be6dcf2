//! `contend`: acquire, hold, release, idle, for as long as the window lasts.
//!
//! The loop is compiled for each lock by itself, and once for each way to
//! measure, so that what is not recorded costs nothing.

use super::locking::is_answered;
use crate::crew::Crew;
use crate::order::ContendOrder;
use crate::page::{Stage, Word, phase};
use crate::recording::recorder::Recorder;
use jostle_model::plan::Measure;
use jostle_model::time::Busy;
use jostle_sys::clock::{self, sleep};
use jostle_sys::signal::interrupted;
use jostle_targets::{CallError, Keeping, Lock, Mode, Outcome};
use std::sync::atomic::Ordering::Relaxed;

/// How a worker's loop measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Counts alone.
    Counts,
    /// Stamps, histograms and witness.
    Full,
    /// The witness alone.
    NoStamps,
    /// Stamps and histograms alone.
    NoWitness,
}

impl From<Measure> for Probe {
    fn from(measure: Measure) -> Probe {
        match measure {
            Measure::Full => Probe::Full,
            Measure::Counts => Probe::Counts,
        }
    }
}

/// One worker of the workload.
struct Contender<'a, L> {
    lock: &'a mut L,
    notes: Recorder<'a>,
    /// How a hold is kept that lasts beyond the first renewal; None: it needs none.
    keeping: Option<Keeping>,
}

/// How holds of this order are kept, where they last until a renewal is due.
pub(crate) fn kept(contend: &ContendOrder, keeping: Option<Keeping>) -> Option<Keeping> {
    keeping.filter(|keeping| contend.renews && contend.hold.span().0 > keeping.every_ns)
}

/// Works until the window has closed, or for `limit` grants, from the common start on. The
/// notes are made here, so that they stand beside the loop and need no pointer of their own.
///
/// # Errors
/// The lock's call that failed.
#[inline(never)]
pub(crate) fn run<L: Lock>(
    lock: &mut L,
    crew: &Crew<'_>,
    contend: &ContendOrder,
    worker: usize,
    probe: Probe,
    limit: u64,
) -> Result<(), CallError> {
    let notes = crew.recorder(contend, worker, worker);
    notes.page.set(Word::Stage, Stage::Working as u64);
    let keeping = kept(contend, lock.keeping());
    let mut contender = Contender {
        lock,
        notes,
        keeping,
    };
    match probe {
        Probe::Counts if contender.asks_for_nothing_else() => contender.count::<true>(limit),
        Probe::Counts => contender.count::<false>(limit),
        Probe::Full => contender.measure::<true, true>(limit),
        Probe::NoStamps => contender.measure::<false, true>(limit),
        Probe::NoWitness => contender.measure::<true, false>(limit),
    }
}

impl<L: Lock> Contender<'_, L> {
    /// The window is told by a flag that the keeper turns, since one stamp may
    /// cost as much as the lock. `BARE` leaves out what the order does not ask
    /// for: on a lock of 12 ns the questions alone cost a tenth.
    fn count<const BARE: bool>(&mut self, limit: u64) -> Result<(), CallError> {
        let phase = self.notes.shared.phase();
        let block = self.notes.block();
        let (mut total, mut base, mut seen) = (0, 0, phase::BEFORE);
        while total < limit {
            let (key, mode) = if BARE {
                (0, Mode::Exclusive)
            } else {
                self.notes.choose()
            };
            let wait = if BARE { block } else { self.notes.patience(0) };
            let outcome = self.lock.acquire(key, mode, wait)?;
            let now = phase.load(Relaxed);
            if now != seen {
                if seen == phase::BEFORE {
                    base = total;
                    self.notes.page.set(Word::Base, base);
                }
                seen = now;
            }
            if matches!(outcome, Outcome::Granted | Outcome::GrantedFromDead) {
                if seen != phase::AFTER {
                    total += 1;
                    self.notes.page.set(Word::Total, total);
                    if !BARE {
                        self.hold(key)?;
                    }
                }
                if !is_answered(self.lock.release(key, mode))? {
                    break;
                }
            }
            if seen == phase::AFTER || outcome == Outcome::Interrupted && interrupted() {
                break;
            }
            if !BARE {
                self.idle();
            }
        }
        self.notes.page.set(Word::Operations, total - base);
        Ok(())
    }

    /// One lock, exclusive, waited for, without hold and idle.
    fn asks_for_nothing_else(&self) -> bool {
        let contend = self.notes.contend;
        self.notes.order.keys == 1
            && contend.shared == 0.0
            && !contend.try_only
            && contend.acquire_timeout.is_none()
            && contend.hold.span().0 == 0
            && contend.idle.span().0 == 0
    }

    fn measure<const STAMPS: bool, const WITNESS: bool>(
        &mut self,
        limit: u64,
    ) -> Result<(), CallError> {
        for _ in 0..limit {
            let (key, mode) = self.notes.choose();
            let stamped = STAMPS && self.notes.is_due();
            let attempt = if stamped { self.notes.clock.now() } else { 0 };
            if stamped && attempt >= self.notes.closes() {
                break;
            }
            self.notes.begins::<STAMPS>(attempt);
            let wait = self.notes.patience(attempt);
            let outcome = self.lock.acquire(key, mode, wait)?;
            match outcome {
                Outcome::Granted | Outcome::GrantedFromDead => {
                    if self.own::<STAMPS, WITNESS>(key, mode, attempt, stamped)? {
                        break;
                    }
                }
                Outcome::Refused => self.notes.refused(attempt),
                Outcome::Interrupted if interrupted() => {
                    self.notes.censored(attempt);
                    break;
                }
                Outcome::Interrupted => {}
            }
            self.notes.advance();
            self.idle();
        }
        Ok(())
    }

    /// From the grant to the release, and what is recorded of it. True if the
    /// window has closed.
    #[inline(always)]
    fn own<const STAMPS: bool, const WITNESS: bool>(
        &mut self,
        key: usize,
        mode: Mode,
        attempt: u64,
        stamped: bool,
    ) -> Result<bool, CallError> {
        let mut grant = self.notes.granted::<WITNESS>(key, mode, attempt, stamped);
        if WITNESS && let Some(token) = self.lock.token() {
            self.notes.came_with(key, mode, token);
        }
        if self.notes.holds(&grant) {
            self.hold(key)?;
        }
        self.notes.leaving::<STAMPS, WITNESS>(&mut grant);
        let answered = is_answered(self.lock.release(key, mode))?;
        if STAMPS && self.notes.logs() {
            self.notes.log(&grant, self.lock.token());
        }
        Ok(STAMPS && self.notes.released(&grant, answered) || !answered)
    }

    /// The owner's business. A signal does not shorten it: a hold that began
    /// within the window is finished and measured.
    #[inline(always)]
    fn hold(&mut self, key: usize) -> Result<(), CallError> {
        let mut span = self.notes.contend.hold.span().0;
        if let Some(keeping) = self.keeping {
            span = self.hold_kept(key, keeping, span)?;
        }
        match self.notes.contend.hold {
            Busy::Sleep(_) if span == 0 => {}
            Busy::Sleep(_) => self.sleep_through(span),
            Busy::Spin(_) => self.spin(span, || false),
        }
        Ok(())
    }

    /// Holds for as long as renewals are due. Returns what is left of the hold.
    #[cold]
    fn hold_kept(&mut self, key: usize, keeping: Keeping, span: u64) -> Result<u64, CallError> {
        let end = clock::monotonic() + span;
        let left = || end.saturating_sub(clock::monotonic());
        let mut lapsed = Vec::new();
        while left() > keeping.every_ns {
            match self.notes.contend.hold {
                Busy::Sleep(_) => sleep(keeping.every_ns, || false),
                Busy::Spin(_) => self.spin(keeping.every_ns, || false),
            }
            match self.lock.renew(&[key], &mut lapsed) {
                Ok(true) if lapsed.is_empty() => {}
                Ok(_) => return Err(keeping.lost()),
                Err(error) if error.is_interrupted() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(left())
    }

    /// A sleep that ends on time: the kernel ends it early by what it would be late,
    /// and the rest is spun.
    fn sleep_through(&self, span: u64) {
        let early = self.notes.contend.wake_early.0;
        if early == 0 {
            return sleep(span, || false);
        }
        let end = self.notes.clock.now() + span;
        sleep(span - early.min(span), || false);
        let spun = self.notes.clock.spin_until(end);
        self.notes.spun(spun);
    }

    /// Rest between two operations; the end of the run ends it.
    #[inline(always)]
    fn idle(&mut self) {
        match self.notes.rest() {
            Busy::Sleep(span) if span.0 == 0 => {}
            Busy::Sleep(span) => {
                let from = self.notes.clock.now();
                self.notes.page.set(Word::Idling, 1);
                sleep(span.0, interrupted);
                self.notes.page.set(Word::Idling, 0);
                self.notes.idled(from);
            }
            Busy::Spin(span) => self.spin(span.0, interrupted),
        }
    }

    fn spin(&self, span: u64, ended: impl Fn() -> bool) {
        let start = self.notes.clock.now();
        while self.notes.clock.now() - start < span && !ended() {
            std::hint::spin_loop();
        }
    }
}
