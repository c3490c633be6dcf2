//! The checks once a second: slow and idle clients, and delayed replies to wrong
//! passwords. Also the bound on all clients' buffers.

use std::time::Duration;

use rustix::event::epoll::EventFlags;

use super::conn::{Conn, Phase};
use super::replies::WRONG_PASSWORD;
use super::{LISTENER, Server};
use crate::table::Time;

/// How often timeouts of connections are looked at.
const SWEEP_NS: u64 = 1_000_000_000;
/// Freed bytes of buffers that go back to the system with the turn, and those that do so
/// with the sweep.
pub(super) const TRIM_NOW: usize = 32 << 20;
pub(super) const TRIM_SOON: usize = 4 << 20;
/// A scraper's time to send its request and to read the answer.
const HTTP_TIMEOUT_NS: u64 = 5_000_000_000;

/// Why a client is disconnected.
enum Fault {
    Slow,
    Idle,
}

impl Server {
    pub(super) fn sweep(&mut self, now: Time) {
        self.next_sweep = Time(now.0 + SWEEP_NS);
        if self.doors.deaf {
            self.hear_again();
        }
        if self.no_tokens()
            && let Some(reserver) = &mut self.reserver
        {
            reserver.request(self.table.next_token() + self.table.tokens_left());
        }
        for slot in 0..self.conns.len() {
            let Some(conn) = &self.conns[slot] else {
                continue;
            };
            let client = conn.id;
            match (self.fault_of(conn, now), conn.phase) {
                (Some(Fault::Slow), _) => self.stats.closed_slow += 1,
                (Some(Fault::Idle), _) => self.stats.closed_idle += 1,
                // The delayed reply to a wrong password.
                (None, Phase::Refused(due)) if due <= now => {
                    self.unblock(client, |reply| reply.error(WRONG_PASSWORD));
                    continue;
                }
                // The end of a request's time in line.
                (None, Phase::Parked(parked)) if parked.until.is_some_and(|due| due <= now) => {
                    self.unblock(client, |reply| reply.nil());
                    continue;
                }
                (None, _) => continue,
            }
            if let Some(conn) = self.take_conn(client) {
                self.close(conn);
            }
        }
        self.trim_heap(TRIM_SOON);
        for place in &mut self.http {
            place.take_if(|conn| now.0.saturating_sub(conn.since.0) > HTTP_TIMEOUT_NS);
        }
    }

    /// Gives memory of freed buffers back to the system, if it is at least this much.
    #[inline]
    pub(super) fn trim_heap(&mut self, least: usize) {
        if self.freed >= least {
            self.freed = 0;
            jostle_sys::heap::trim();
        }
    }

    /// Lets the next sweep come by this time, but no more often than 20 times a second.
    pub(super) fn sweep_by(&mut self, time: Time) {
        let soonest = Time(self.clock.0 + SWEEP_NS / 20);
        self.next_sweep = self.next_sweep.min(time.max(soonest));
    }

    /// Why a connection is to be closed, if it is.
    fn fault_of(&self, conn: &Conn, now: Time) -> Option<Fault> {
        let passed = |since: Option<Time>, limit: Option<Duration>| {
            since.zip(limit).is_some_and(|(since, limit)| {
                u128::from(now.0.saturating_sub(since.0)) > limit.as_nanos()
            })
        };
        let patience = self.config.request_timeout;
        if passed(conn.profile.incomplete_since, patience)
            || passed(conn.profile.stuck_since, patience)
        {
            return Some(Fault::Slow);
        }
        // A client that owes something is slow, not idle, and has a time limit of its own.
        let owes = conn.profile.incomplete_since.is_some() || conn.is_stuck();
        let of_use = conn.waits() || self.table.owns_any(conn.id);
        let excused = of_use || (owes && patience.is_some());
        if !excused && passed(Some(conn.profile.last_request), self.config.idle_timeout) {
            return Some(Fault::Idle);
        }
        None
    }

    /// Keeps the sum of all clients' buffers below its bound: empty buffers are freed;
    /// if that is not enough, the clients with the largest buffers are closed.
    #[cold]
    pub(super) fn shed(&mut self) {
        let mut sizes = Vec::with_capacity(self.conns.len());
        for slot in 0..self.conns.len() {
            let Some(mut conn) = self.conns[slot].take() else {
                continue;
            };
            conn.trim();
            self.account(&mut conn);
            sizes.push((conn.accounted, slot));
            self.conns[slot] = Some(conn);
        }
        sizes.sort_unstable();
        while self.buffered > self.config.max_buffers
            && let Some((1.., slot)) = sizes.pop()
        {
            if let Some(conn) = self.conns[slot].take() {
                self.stats.closed_output += 1;
                self.close(conn);
            }
        }
    }

    fn hear_again(&mut self) {
        self.doors.deaf = false;
        for (index, listener) in self.doors.listeners.iter().enumerate() {
            let _ = self.watch_for(LISTENER | index as u64, &listener.fd, EventFlags::IN);
        }
    }
}
