//! The daemon's end: clients get their last replies, within a time limit. A drain may
//! precede it, in which nothing is granted any more and holders finish.

use std::io;

use rustix::event::epoll;
use rustix::time::Timespec;

use super::Server;
use crate::log::say;
use crate::systemd::Notifier;
use crate::table::{CancelAll, ClientId, Tick, Time};

/// The reply to clients that wait for a lock, or request one, while holders finish.
pub(super) const DRAINING: &str =
    "SHUTDOWN the lock daemon is ending: it waits for holders and grants nothing any more";

impl Server {
    /// Stops granting locks, and ends the daemon when nobody holds one, or after this time.
    pub(super) fn begin_drain(&mut self, ms: u64, now: Time) {
        self.life.draining = Some(Time(now.0.saturating_add(ms * 1_000_000)));
        self.set_draining(true);
        self.step(Tick, now);
        let waiters = self.end_waits(DRAINING, now);
        let holds = self.table.holds();
        say(&format!(
            "draining for at most {ms} ms: {holds} holds, {waiters} waits ended"
        ));
        self.life
            .notify(|notifier| notifier.status("draining: waits for holders"));
    }

    /// Grants locks again; false: there was no drain.
    pub(super) fn abort_drain(&mut self) -> bool {
        let was = self.life.draining.take().is_some();
        if was {
            self.set_draining(false);
            say("the drain was aborted: locks are granted again");
            self.life.notify(|notifier| notifier.status(""));
        }
        was
    }

    /// Whether the daemon waits for holders to finish.
    pub(super) fn is_draining(&self) -> bool {
        self.life.draining.is_some()
    }

    /// Ends the daemon with this turn.
    pub(super) fn end_soon(&mut self) {
        self.life.ending = true;
    }

    /// Whether the loop is to end.
    pub(super) fn is_drained(&self) -> bool {
        let done = |end: Time| self.table.holds() == 0 || self.clock >= end;
        self.life.ending || self.life.draining.is_some_and(done)
    }

    /// Turns the check of commands for the drain on or off, for all connections in their slots.
    fn set_draining(&mut self, draining: bool) {
        for conn in self.conns.iter_mut().flatten() {
            conn.draining = draining;
            conn.update_guard();
        }
    }

    /// Ends all waits for locks, and answers them; returns their number.
    fn end_waits(&mut self, text: &str, now: Time) -> u64 {
        let waiting = self.conns.iter().flatten();
        let waiting = waiting.filter(|conn| self.waits_for_lock(conn));
        let waiting: Vec<ClientId> = waiting.map(|conn| conn.id).collect();
        // Timers that are due may end waits in this step in another way.
        self.step(CancelAll, now);
        let mut end = |client: ClientId| self.unblock(client, |reply| reply.error(text));
        waiting
            .into_iter()
            .map(|client| u64::from(end(client)))
            .sum()
    }

    /// See [`Server::run`].
    pub(super) fn drain(&mut self) -> io::Result<()> {
        self.life.notify(Notifier::stopping);
        self.doors.listeners.clear();
        // Clients whose handshakes are not done have not been let in yet.
        #[cfg(feature = "tls")]
        if let Some(handshakes) = self.doors.handshakes.take() {
            self.stats.handshakes_failed += handshakes.failed();
        }
        let start = self.now();
        // Timers that are due run first, while every connection is in its slot. All
        // waits end before the first lock is released.
        self.step(Tick, start);
        self.end_waits("SHUTDOWN the lock daemon is ending", start);
        // What connections hold goes over to the member of the group that serves next.
        #[cfg(feature = "ha")]
        if self.ha.is_some() {
            self.stop_journal();
        }
        for slot in 0..self.conns.len() {
            let Some(mut conn) = self.conns[slot].take() else {
                continue;
            };
            conn.intake.closing = true;
            let alive = self.flush(&mut conn);
            self.put_back(conn, alive);
        }
        let end = Time(start.0 + self.config.drain_timeout.as_nanos() as u64);
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1024);
        while self.table.clients() > 0 && self.now() < end {
            events.clear();
            let pause = Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(!self.turn.goes_on()) * 50_000_000,
            };
            let _ = self.poll(&mut events, Some(pause));
            for event in &events {
                self.handle(*event);
            }
            self.end_of_turn();
        }
        self.end_audit();
        #[cfg(feature = "ha")]
        self.leave();
        self.promise_last();
        Ok(())
    }
}
