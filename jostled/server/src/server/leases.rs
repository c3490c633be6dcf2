//! Leases over a crash. A program that ended without a handover may have left leases of
//! which this one knows only the longest and the last instant of a grant (the
//! [`Promise`]). Until all of them have ended, nothing is granted: LOCK waits in line,
//! and its request is executed when the time has come.

#[cfg(test)]
mod live_tests;

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::Server;
use super::conn::{Conn, Parked, Phase};
use super::parts::SCRATCH;
use super::reserver::{Reserved, Reserver, TOKENS_PATIENCE};
use super::turn::RESUMES_PER_SEND;
use crate::config::AfterCrash;
use crate::log::say;
use crate::table::{Time, Tokens};
use crate::tokens::{Promise, RANGE, leases_end};

/// A next range of tokens is asked for when fewer are left.
const TOKENS_LOW: u64 = RANGE / 2;
/// With fewer left than one read can use, and the next range on its way, the
/// server waits for the disk rather than refuse grants.
const TOKENS_CRITICAL: u64 = SCRATCH as u64;
/// How far ahead of the clock a promise reaches.
const AHEAD_NS: u64 = 10_000_000_000;
/// How often a promise is compared with what is needed.
const REVIEW_NS: u64 = 30_000_000_000;
/// Slots of the table that one part of a review searches: some 100 us.
const REVIEW_SLOTS: u64 = 16_384;
/// How long a command waits for the disk that keeps a promise.
const PATIENCE: Duration = Duration::from_secs(1);

impl Promise {
    /// Whether such a lease may begin or be renewed.
    fn covers(self, ttl_ms: u64, now: Time) -> bool {
        ttl_ms <= self.longest_ms && now.0 < self.until
    }
}

impl Server {
    /// Begins to promise; `earlier` is what the file holds.
    pub(super) fn promise_first(&mut self, earlier: &[Promise]) {
        // With a store, what it has kept need not be waited for; anything else must be.
        if self.config.after_crash == AfterCrash::Grant && self.gate.is_none() {
            // A later start that waits must not rely on what an earlier program promised.
            self.keep(self.leases.kept, PATIENCE, |_| true);
            return;
        }
        let (now, max_ttl_ms) = (self.clock, self.config.max_ttl_ms);
        let end = leases_end(earlier, now.0, max_ttl_ms);
        // What the earlier leases need stays promised until they have ended.
        let left_ms = end.map_or(0, |end| (end - now.0).div_ceil(1_000_000));
        self.leases.kept = Promise::default();
        self.leases.limit_ms = 0;
        self.leases.from = end.map(Time);
        self.leases.needed_ms = left_ms.max(self.table.longest_lease_ms(now, 0, u64::MAX).0);
        self.leases.review_at = Time(now.0 + REVIEW_NS);
        let first = Promise {
            longest_ms: self.leases.needed_ms,
            until: now.0 + if end.is_some() { 0 } else { AHEAD_NS },
        };
        self.keep(first, PATIENCE, |_| true);
        if end.is_none() {
            self.gate.iter_mut().for_each(|gate| gate.note_run());
        }
        if let Some(end) = end {
            let seconds = (end - now.0).div_ceil(1_000_000_000);
            say(&format!(
                "no lock is granted for {seconds} s: leases of the program before may still \
                 run (--after-crash; LEASES FORGET ends the wait)"
            ));
        }
    }

    /// Asks the disk to keep a promise, or one that is `enough`; whether it does by now.
    fn keep(
        &mut self,
        promise: Promise,
        patience: Duration,
        enough: impl Fn(Promise) -> bool,
    ) -> bool {
        // The first answer may be that to an earlier promise.
        for _ in 0..2 {
            // A smaller one may be on disk before its answer is here.
            let kept = &mut self.leases.kept;
            kept.longest_ms = kept.longest_ms.min(promise.longest_ms);
            kept.until = kept.until.min(promise.until);
            let reserver = self.reserver.as_mut();
            match reserver.and_then(|reserver| reserver.promise(promise, patience)) {
                Some(answer) => {
                    self.leases.kept = answer;
                    self.leases.stored_ms = answer.longest_ms;
                }
                None => return false,
            }
            if enough(self.leases.kept) {
                return true;
            }
        }
        false
    }

    /// Whether a lease of this length may begin or be renewed now. If no promise covers
    /// it, one is made, for an eighth more at most: so that happens a few times in a
    /// minute at worst, and beyond that once in some seconds.
    #[inline]
    pub(super) fn may_lease(&mut self, ttl_ms: u64, now: Time) -> bool {
        let covers = ttl_ms <= self.leases.limit_ms && now.0 < self.leases.kept.until;
        covers || self.promise(ttl_ms, now)
    }

    #[cold]
    fn promise(&mut self, ttl_ms: u64, now: Time) -> bool {
        let step = (ttl_ms.next_power_of_two() / 16).max(1);
        let longest_ms = ttl_ms.next_multiple_of(step);
        let longest_ms = longest_ms.min(self.config.max_ttl_ms.max(ttl_ms));
        let may =
            self.leases.kept.covers(longest_ms, now) || self.extend(longest_ms, now, PATIENCE);
        if may {
            self.leases.limit_ms = self.leases.limit_ms.max(longest_ms);
            let review_at = &mut self.leases.review_at;
            *review_at = (*review_at).min(Time(now.0 + REVIEW_NS));
        }
        may
    }

    /// Promises leases up to this length, and those that were asked for before, for the
    /// next seconds; returns whether a promise covers that length now.
    fn extend(&mut self, longest_ms: u64, now: Time, patience: Duration) -> bool {
        let wanted = Promise {
            longest_ms: longest_ms
                .max(self.leases.limit_ms)
                .max(self.leases.needed_ms),
            until: now.0 + AHEAD_NS,
        };
        self.keep(wanted, patience, |kept| kept.covers(longest_ms, now));
        self.leases.kept.covers(longest_ms, now)
    }

    /// Promises anew in time, for leases that waiters get without a command of theirs, and
    /// less once long leases have ended. Without the disk nothing more is granted in the
    /// end.
    #[inline]
    pub(super) fn renew_promise(&mut self) {
        let now = self.clock;
        if now >= self.leases.review_at {
            self.review(now);
        }
        let until = self.leases.kept.until;
        if now.0.saturating_add(AHEAD_NS / 2) < until || self.table.waiting() == 0 {
            return;
        }
        let patience = if now.0 < until {
            Duration::ZERO
        } else {
            PATIENCE
        };
        if !self.extend(0, now, patience) {
            self.table.withhold_tokens();
        }
    }

    /// Searches the table, a part at a time, for the longest lease that may still run or is
    /// waited for. From the first part on, requests have to ask for their lengths anew.
    /// Those that were asked for since the last review stay promised until the next one: a
    /// promise that grows waits for the disk. One that is twice as long as needed is replaced.
    #[cold]
    fn review(&mut self, now: Time) {
        let (from, found_ms) = self.leases.review.take().unwrap_or_else(|| {
            self.leases.needed_ms = self.leases.kept.longest_ms.max(self.leases.needed_ms);
            (0, std::mem::take(&mut self.leases.limit_ms))
        });
        let (longest_ms, next) = self.table.longest_lease_ms(now, from, REVIEW_SLOTS);
        let found_ms = found_ms.max(longest_ms);
        if let Some(next) = next {
            self.leases.review = Some((next, found_ms));
            return;
        }
        self.leases.needed_ms = found_ms.max(self.loading_ms(now).unwrap_or(0));
        let needed = Promise {
            longest_ms: self.leases.needed_ms.max(self.leases.limit_ms),
            until: now.0.max(self.leases.kept.until),
        };
        let enough = |kept: Promise| kept.longest_ms <= needed.longest_ms;
        let done = needed.longest_ms > self.leases.kept.longest_ms / 2
            || self.keep(needed, Duration::ZERO, enough);
        self.leases.review_at = match done && needed.longest_ms == 0 {
            true => Time(u64::MAX),
            false => Time(now.0 + REVIEW_NS),
        };
    }

    /// The promise of a clean end: exactly the leases that are left.
    pub(super) fn promise_last(&mut self) {
        let now = self.now();
        let waits_ms = self.leases.from.map_or(0, |from| from.ms_from(now));
        let (left_ms, _) = self.table.longest_lease_ms(now, 0, u64::MAX);
        let last = Promise {
            longest_ms: left_ms.max(waits_ms),
            until: now.0,
        };
        self.keep(last, PATIENCE, |kept| kept == last);
    }

    /// Waits no longer for leases of the program before.
    pub(super) fn forget_leases(&mut self) {
        self.leases.from = Some(Time(0));
        // Requests in line are executed before later ones.
        if self.leases.parked.is_empty() {
            self.release_parked();
        }
    }

    // The time in which nothing is granted.

    /// Milliseconds until locks are granted; `None`: they are.
    pub(super) fn loading_ms(&self, now: Time) -> Option<u64> {
        self.leases.from.map(|from| from.ms_from(now).max(1))
    }

    /// Milliseconds for which the start after a crash would grant nothing, at most. With
    /// `--after-crash grant`, or a store, it does not wait.
    pub(super) fn crash_wait_ms(&self) -> u64 {
        match self.leases.stored_ms {
            _ if self.gate.is_some() && self.leases.from.is_none() => 0,
            u64::MAX => 0,
            longest_ms => longest_ms,
        }
    }

    /// Puts the request that is being executed in line, for at most `wait_ms`.
    #[cold]
    pub(super) fn park(&mut self, conn: &mut Conn, wait_ms: Option<u64>, now: Time) {
        let until = wait_ms.map(|ms| Time(now.0.saturating_add(ms * 1_000_000)));
        conn.phase = Phase::Parked(Parked { until, length: 0 });
        self.leases.parked.push_back(conn.id);
        if let Some(until) = until {
            self.sweep_by(until);
        }
    }

    /// Lets parked requests be executed once the time has come, a bounded number at a
    /// time. Requests that come meanwhile are parked behind them.
    pub(super) fn release_parked(&mut self) {
        if self.leases.from.is_none_or(|from| self.clock < from) {
            return;
        }
        for _ in 0..RESUMES_PER_SEND {
            let Some(client) = self.leases.parked.pop_front() else {
                self.leases.from = None;
                self.gate.iter_mut().for_each(|gate| gate.note_run());
                // The file has to forget them too.
                self.leases.review_at = self.clock;
                return say("locks are granted again: no earlier lease is waited for any more");
            };
            let Some(conn) = self.conns[client.slot()].as_mut() else {
                continue;
            };
            if conn.id == client
                && let Phase::Parked(parked) = conn.phase
            {
                conn.phase = Phase::Released(parked);
                self.turn.resume(conn);
            }
        }
    }
}

impl Server {
    pub(super) fn no_tokens(&self) -> bool {
        self.table.tokens_left() < TOKENS_LOW && self.reserver.is_some() && self.full().is_none()
    }

    /// Why the store has no room, if so.
    pub(super) fn full(&self) -> Option<&String> {
        self.gate.as_ref()?.full.as_ref()
    }

    pub(super) fn token_trouble(&self) -> String {
        let reserver = self.reserver.as_ref();
        let trouble = reserver.and_then(|reserver| reserver.trouble.clone());
        let trouble = self.full().cloned().or(trouble);
        trouble.unwrap_or_else(|| "the disk has not answered yet".to_owned())
    }

    /// Asks for tokens in time. Call it before commands are executed.
    #[inline]
    pub(super) fn provide_tokens(&mut self) {
        if self.table.tokens_left() < TOKENS_LOW {
            self.ask_for_tokens();
        }
    }

    #[cold]
    #[inline(never)]
    fn ask_for_tokens(&mut self) {
        let left = self.table.tokens_left();
        if self.full().is_some() {
            return;
        }
        let Some(reserver) = &mut self.reserver else {
            return;
        };
        // After a failure the sweep tries again, once a second.
        if reserver.trouble.is_none() {
            reserver.request(self.table.next_token() + left);
        }
        if left < TOKENS_CRITICAL && reserver.in_flight() && reserver.trouble.is_none() {
            self.take_tokens(TOKENS_PATIENCE);
        }
    }

    /// Stops writes of tokens for now; returns the descriptor of their file, if there is one.
    pub(super) fn rest_tokens(&mut self) -> Result<Option<OwnedFd>, String> {
        if self.reserver.as_ref().is_some_and(Reserver::in_flight) {
            self.take_tokens(TOKENS_PATIENCE);
        }
        self.reserver.as_ref().map(Reserver::rest).transpose()
    }

    pub(super) fn take_tokens(&mut self, patience: Duration) {
        let Some(reserver) = &mut self.reserver else {
            return;
        };
        match reserver.answer(patience) {
            Reserved::Upto(end) => {
                self.stats.reservations += 1;
                #[cfg(feature = "ha")]
                let end = self.of_group(end);
                // A store without room asks for tokens again when it has some.
                if self.full().is_none() {
                    // No later time: commands of this turn may follow.
                    self.step(Tokens(end), self.clock);
                }
            }
            Reserved::Failed => self.stats.reservation_failures += 1,
            Reserved::Pending => {
                if patience >= TOKENS_PATIENCE {
                    reserver.trouble = Some("the disk does not answer".to_owned());
                }
            }
        }
    }
}
