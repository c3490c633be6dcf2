//! `contend`: acquire, hold, release, idle, for as long as the window lasts.
//!
//! The loop is compiled for each lock by itself, and once for each way to
//! measure, so that what is not recorded costs nothing.

use crate::order::RunOrder;
use crate::page::{Figure, Page, SLICES, Shared, Stage, Word, phase};
use crate::witness::{Guard, Witness};
use jostle_model::plan::Measure;
use jostle_model::time::Busy;
use jostle_stats::rng::Rng;
use jostle_sys::clock::{Clock, UNKNOWN_CPU, sleep};
use jostle_sys::signal::interrupted;
use jostle_targets::{CallError, Lock, Mode, Outcome, Wait};
use std::sync::atomic::Ordering::Relaxed;

/// How a worker's loop measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
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

/// One worker of the workload, at the common start.
pub struct Contender<'a, L> {
    lock: &'a mut L,
    order: &'a RunOrder,
    clock: Clock,
    shared: &'a Shared,
    page: Page<'a>,
    guard: Guard<'a>,
    rng: Rng,
    to_monotonic: u64,
    last_resort_ns: u64,
}

impl<'a, L: Lock> Contender<'a, L> {
    /// Worker number `worker`, with its handle.
    pub fn new(
        lock: &'a mut L,
        order: &'a RunOrder,
        clock: Clock,
        shared: &'a Shared,
        witness: &'a Witness,
        worker: usize,
    ) -> Contender<'a, L> {
        let page = shared.page(worker);
        Contender {
            lock,
            order,
            clock,
            shared,
            page,
            guard: witness.guard(worker, page, order.seed),
            rng: Rng::stream(order.seed, worker as u64),
            to_monotonic: shared.to_monotonic().load(Relaxed),
            last_resort_ns: shared.last_resort().load(Relaxed),
        }
    }

    /// Works until the window has closed, or for `limit` grants.
    ///
    /// # Errors
    /// The lock's call that failed.
    pub fn run(&mut self, probe: Probe, limit: u64) -> Result<(), CallError> {
        self.page.set(Word::Stage, Stage::Working as u64);
        match probe {
            Probe::Counts if self.asks_for_nothing_else() => self.count::<true>(limit),
            Probe::Counts => self.count::<false>(limit),
            Probe::Full => self.measure::<true, true>(limit),
            Probe::NoStamps => self.measure::<false, true>(limit),
            Probe::NoWitness => self.measure::<true, false>(limit),
        }
    }

    /// The window is told by a flag that the keeper turns, since one stamp may
    /// cost as much as the lock. `BARE` leaves out what the order does not ask
    /// for: on a lock of 12 ns the questions alone cost a tenth.
    fn count<const BARE: bool>(&mut self, limit: u64) -> Result<(), CallError> {
        let phase = self.shared.phase();
        let block = Wait::Block {
            last_resort_ns: self.last_resort_ns,
        };
        let (mut total, mut base, mut seen) = (0, 0, phase::BEFORE);
        while total < limit {
            let (key, mode) = if BARE {
                (0, Mode::Exclusive)
            } else {
                self.choose()
            };
            let outcome = match BARE {
                true => self.lock.acquire(key, mode, block)?,
                false => self.attempt(key, mode, 0)?,
            };
            let now = phase.load(Relaxed);
            if now != seen {
                if seen == phase::BEFORE {
                    base = total;
                    self.page.set(Word::Base, base);
                }
                seen = now;
            }
            if matches!(outcome, Outcome::Granted | Outcome::GrantedFromDead) {
                if seen != phase::AFTER {
                    total += 1;
                    self.page.set(Word::Total, total);
                    if !BARE {
                        self.hold();
                    }
                }
                self.lock.release(key, mode)?;
            }
            if seen == phase::AFTER || outcome == Outcome::Interrupted && interrupted() {
                break;
            }
            if !BARE {
                self.idle();
            }
        }
        self.page.set(Word::Operations, total - base);
        Ok(())
    }

    /// One lock, exclusive, waited for, without hold and idle.
    fn asks_for_nothing_else(&self) -> bool {
        let order = self.order;
        order.keys == 1
            && order.shared == 0.0
            && !order.try_only
            && order.acquire_timeout.is_none()
            && order.hold.span().0 == 0
            && order.idle.span().0 == 0
    }

    fn measure<const STAMPS: bool, const WITNESS: bool>(
        &mut self,
        limit: u64,
    ) -> Result<(), CallError> {
        let every = self.order.stamp_every;
        let mut gap = 0;
        for _ in 0..limit {
            let (key, mode) = self.choose();
            let stamped = STAMPS && gap == 0;
            let attempt = if stamped { self.clock.now() } else { 0 };
            if stamped && attempt >= self.shared.closes().load(Relaxed) {
                break;
            }
            self.page.set(Word::PendingSince, attempt.max(1));
            let outcome = self.attempt(key, mode, attempt)?;
            match outcome {
                Outcome::Granted | Outcome::GrantedFromDead => {
                    let closed = self.own::<STAMPS, WITNESS>(key, mode, attempt, stamped)?;
                    if outcome == Outcome::GrantedFromDead {
                        self.page.add(Word::FromDead, 1);
                    }
                    if closed {
                        break;
                    }
                }
                Outcome::Refused => self.refused(attempt),
                Outcome::Interrupted if interrupted() => {
                    self.censored(attempt);
                    break;
                }
                Outcome::Interrupted => {}
            }
            gap = match gap {
                0 if every == 1 => 0,
                0 => self.rng.geometric(every as f64) - 1,
                left => left - 1,
            };
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
        let (grant, cpu) = if stamped {
            self.clock.stamp()
        } else {
            (0, UNKNOWN_CPU)
        };
        let (opens, closes) = (
            self.shared.opens().load(Relaxed),
            self.shared.closes().load(Relaxed),
        );
        self.page.set(Word::PendingSince, 0);
        self.page.add(Word::Total, 1);
        if WITNESS {
            self.guard.enter(key, mode);
        }
        let before = if stamped {
            self.guard.before(key, mode)
        } else {
            Default::default()
        };
        if WITNESS && mode == Mode::Exclusive {
            self.guard.streak(
                key,
                attempt,
                grant,
                if opens == u64::MAX { 0 } else { opens },
            );
        }
        if grant < closes {
            self.hold();
        }
        if WITNESS {
            self.guard.leave(key, mode);
        }
        if !STAMPS {
            self.lock.release(key, mode)?;
            return Ok(false);
        }
        let (release, release_cpu) = self.clock.stamp();
        self.guard.releasing(key, mode, release, release_cpu);
        self.lock.release(key, mode)?;
        if !stamped {
            // The hold of an unstamped operation is shorter than the error
            // that counting it by its release makes at the window's edges.
            if release >= opens && release < closes {
                self.page.add(Word::Operations, 1);
                self.page.slice(slice_of(release, opens, closes), None);
            }
            return Ok(release >= closes);
        }
        let released = self.clock.now();
        if grant >= opens && grant < closes {
            self.page.add(Word::Operations, 1);
            self.page.add(Word::Stamped, 1);
            self.page.fold(Figure::Acquire, grant - attempt);
            self.page.fold(Figure::Hold, release - grant);
            self.page.fold(Figure::Release, released - release);
            self.page.raise(Word::LongestWait, grant - attempt);
            self.page
                .slice(slice_of(grant, opens, closes), Some(grant - attempt));
            if before.release > attempt {
                self.contended(before, grant, cpu);
            }
        }
        if grant >= closes {
            self.censored(attempt);
        }
        Ok(grant >= closes)
    }

    /// This attempt had no grant when the window closed.
    #[cold]
    fn censored(&self, attempt: u64) {
        if attempt < self.shared.closes().load(Relaxed) {
            self.page.set(Word::CensoredAt, attempt);
        }
    }

    fn contended(&self, before: crate::witness::Before, grant: u64, cpu: u32) {
        self.page.add(Word::Contended, 1);
        if before.release > grant + self.order.clock_uncertainty.0 {
            self.page.add(Word::BeforeRelease, 1);
            return;
        }
        let crossed = before.cpu != UNKNOWN_CPU && cpu != UNKNOWN_CPU && before.cpu != cpu;
        let figure = if crossed {
            Figure::HandoffCross
        } else {
            Figure::HandoffSame
        };
        self.page.fold(figure, grant.saturating_sub(before.release));
    }

    #[cold]
    fn refused(&mut self, attempt: u64) {
        self.page.set(Word::PendingSince, 0);
        let now = self.clock.now();
        if now < self.shared.opens().load(Relaxed) || now >= self.shared.closes().load(Relaxed) {
            return;
        }
        self.page.add(
            if self.order.try_only {
                Word::Refusals
            } else {
                Word::Timeouts
            },
            1,
        );
        if attempt > 0 {
            self.page.fold(Figure::Refused, now - attempt);
        }
    }

    #[inline(always)]
    fn choose(&mut self) -> (usize, Mode) {
        let key = match self.order.keys {
            1 => 0,
            keys => self.rng.below(keys as u64) as usize,
        };
        let mode = match self.order.shared {
            share if share > 0.0 && self.rng.unit_f64() < share => Mode::Shared,
            _ => Mode::Exclusive,
        };
        (key, mode)
    }

    #[inline(always)]
    fn attempt(&mut self, key: usize, mode: Mode, attempt: u64) -> Result<Outcome, CallError> {
        let wait = match (self.order.try_only, self.order.acquire_timeout) {
            (true, _) => Wait::Try,
            (false, None) => Wait::Block {
                last_resort_ns: self.last_resort_ns,
            },
            (false, Some(timeout)) => {
                let from = if attempt > 0 {
                    attempt
                } else {
                    self.clock.now()
                };
                Wait::Until(from.wrapping_add(self.to_monotonic).wrapping_add(timeout.0))
            }
        };
        self.lock.acquire(key, mode, wait)
    }

    /// The owner's business. A signal does not shorten it: a hold that began
    /// within the window is finished and measured.
    #[inline(always)]
    fn hold(&self) {
        match self.order.hold {
            Busy::Sleep(span) if span.0 == 0 => {}
            Busy::Sleep(span) => sleep(span.0, || false),
            Busy::Spin(span) => self.spin(span.0, || false),
        }
    }

    /// Rest between two operations; the end of the run ends it.
    #[inline(always)]
    fn idle(&self) {
        match self.order.idle {
            Busy::Sleep(span) if span.0 == 0 => {}
            Busy::Sleep(span) => {
                self.page.set(Word::Idling, 1);
                sleep(span.0, interrupted);
                self.page.set(Word::Idling, 0);
            }
            Busy::Spin(span) => self.spin(span.0, interrupted),
        }
    }

    fn spin(&self, span: u64, ended: impl Fn() -> bool) {
        let start = self.clock.now();
        while self.clock.now() - start < span && !ended() {
            std::hint::spin_loop();
        }
    }
}

/// Which tenth of the window a stamp lies in.
#[inline(always)]
fn slice_of(stamp: u64, opens: u64, closes: u64) -> usize {
    ((stamp - opens) as u128 * SLICES as u128 / (closes - opens).max(1) as u128) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_slices_share_the_window_evenly() {
        let slices: Vec<usize> = [100, 109, 110, 150, 199]
            .map(|s| slice_of(s, 100, 200))
            .into();
        assert_eq!(slices, [0, 0, 1, 5, 9]);
    }
}
