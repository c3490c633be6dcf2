//! Leases over a crash. A program that ended without a handover may have left leases of
//! which this one knows only the longest and the last instant of a grant (the
//! [`Promise`]). Until all of them have ended, nothing is granted: LOCK waits in line,
//! and its request is executed when the time has come.

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
use crate::tokens::{Earlier, Promise, RANGE};

/// A next range of tokens is asked for when fewer are left.
const TOKENS_LOW: u64 = RANGE / 2;
/// With fewer left than one read can use, and the next range on its way, the
/// server waits for the disk rather than refuse grants.
const TOKENS_CRITICAL: u64 = SCRATCH as u64;
/// How far ahead of the clock a promise reaches.
const AHEAD_NS: u64 = 10_000_000_000;
/// How long a command waits for the disk that keeps a promise.
const PATIENCE: Duration = Duration::from_secs(1);

impl Server {
    /// Begins to promise; `earlier` is what the file holds.
    pub(super) fn promise_first(&mut self, earlier: Earlier) {
        if self.config.after_crash == AfterCrash::Grant {
            return;
        }
        let (now, max_ttl_ms) = (self.clock, self.config.max_ttl_ms);
        let end = earlier.leases_end(now.0, max_ttl_ms);
        // What the earlier leases need stays promised until they have ended.
        let left_ms = end.map_or(0, |end| (end - now.0).div_ceil(1_000_000));
        self.leases.kept = Promise::default();
        self.leases.from = end.map(Time);
        let first = Promise {
            longest_ms: left_ms.max(self.table.longest_lease_ms(now)),
            until: now.0 + if end.is_some() { 0 } else { AHEAD_NS },
        };
        self.keep(first, PATIENCE);
        if let Some(end) = end {
            let seconds = (end - now.0).div_ceil(1_000_000_000);
            say(&format!(
                "no lock is granted for {seconds} s: leases of the program before may still \
                 run (--after-crash)"
            ));
        }
    }

    /// Asks the disk to keep a promise; false: it has not kept one yet.
    fn keep(&mut self, promise: Promise, patience: Duration) -> bool {
        let reserver = self.reserver.as_mut();
        let kept = reserver.and_then(|reserver| reserver.promise(promise, patience));
        self.leases.kept = kept.unwrap_or(self.leases.kept);
        kept.is_some()
    }

    /// Whether the promise that is kept covers such a lease.
    #[inline]
    fn covers(&self, ttl_ms: u64, now: Time) -> bool {
        ttl_ms <= self.leases.kept.longest_ms && now.0 < self.leases.kept.until
    }

    /// Whether a lease of this length may begin or be renewed now. If no promise covers
    /// it, one is made, for twice the length at most: so that happens a few times in the
    /// life of a daemon, and beyond that once in some seconds.
    #[inline]
    pub(super) fn may_lease(&mut self, ttl_ms: u64, now: Time) -> bool {
        self.covers(ttl_ms, now) || self.promise(ttl_ms, now, PATIENCE)
    }

    #[cold]
    fn promise(&mut self, ttl_ms: u64, now: Time, patience: Duration) -> bool {
        let longest_ms = ttl_ms.next_power_of_two().min(self.config.max_ttl_ms);
        let wanted = Promise {
            longest_ms: longest_ms.max(self.leases.kept.longest_ms),
            until: now.0 + AHEAD_NS,
        };
        // The first answer may be that to an earlier promise.
        for _ in 0..2 {
            if !self.keep(wanted, patience) || self.covers(ttl_ms, now) {
                break;
            }
        }
        self.covers(ttl_ms, now)
    }

    /// Promises anew in time, for leases that waiters get without a command of theirs.
    /// Without the disk nothing more is granted in the end.
    #[inline]
    pub(super) fn renew_promise(&mut self) {
        let (now, until) = (self.clock, self.leases.kept.until);
        if now.0.saturating_add(AHEAD_NS / 2) < until || self.table.waiting() == 0 {
            return;
        }
        let patience = if now.0 < until {
            Duration::ZERO
        } else {
            PATIENCE
        };
        if !self.promise(0, now, patience) {
            self.table.withhold_tokens();
        }
    }

    /// The promise of a clean end: exactly the leases that are left.
    pub(super) fn promise_last(&mut self) {
        if self.leases.kept.until == u64::MAX {
            return;
        }
        let now = self.now();
        let waits_ms = self.leases.from.map_or(0, |from| from.ms_from(now));
        let last = Promise {
            longest_ms: self.table.longest_lease_ms(now).max(waits_ms),
            until: now.0,
        };
        // The first answer may be that to an earlier promise.
        while self.keep(last, PATIENCE) && self.leases.kept != last {}
    }

    // The time in which nothing is granted.

    /// Milliseconds until locks are granted; `None`: they are.
    pub(super) fn loading_ms(&self, now: Time) -> Option<u64> {
        self.leases.from.map(|from| from.ms_from(now).max(1))
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
                // A session may have been opened meanwhile.
                self.leases.kept.longest_ms = self.table.longest_lease_ms(self.clock);
                return say("locks are granted again: leases of the program before have ended");
            };
            let Some(conn) = self.conns[client.slot()].as_mut() else {
                continue;
            };
            if conn.id == client
                && let Phase::Parked(parked) = conn.phase
            {
                conn.phase = Phase::Released(parked);
                self.turn.resumed.push_back(client);
            }
        }
    }
}

impl Server {
    pub(super) fn no_tokens(&self) -> bool {
        self.table.tokens_left() < TOKENS_LOW && self.reserver.is_some()
    }

    pub(super) fn token_trouble(&self) -> String {
        let reserver = self.reserver.as_ref();
        let trouble = reserver.and_then(|reserver| reserver.trouble.clone());
        trouble.unwrap_or_else(|| "the disk has not answered yet".to_owned())
    }

    /// Asks for tokens in time. Call it before commands are executed.
    #[inline]
    pub(super) fn provide_tokens(&mut self) {
        let left = self.table.tokens_left();
        if left >= TOKENS_LOW {
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
                // No later time: commands of this turn may follow.
                self.step(Tokens(end), self.clock);
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
