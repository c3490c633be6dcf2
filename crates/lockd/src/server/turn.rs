//! The event loop: what a turn does, and how long it sleeps.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use jostle_resp::Writer;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::Timespec;

use super::conn::Conn;
use super::{BELL, HTTP, KIND_SHIFT, LISTENER, STOP, Server, now};
use crate::table::{Event, Outcome, Reply, Time};

impl Server {
    /// Serves until `stop` becomes readable, then drains: nobody is let in any
    /// more, those who wait are told, and clients get the replies that are
    /// theirs, for as long as [`crate::Config::drain_timeout`] allows.
    ///
    /// # Errors
    /// Of epoll; no client can cause one.
    pub fn run(&mut self, stop: impl AsFd) -> io::Result<()> {
        epoll::add(&self.epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1024);
        loop {
            self.wait(&mut events)?;
            for event in &events {
                if event.data.u64() == STOP {
                    let _ = epoll::delete(&self.epoll, &stop);
                    return self.drain();
                }
                self.handle(*event);
            }
            self.end_of_turn();
        }
    }

    /// Waits for something to do.
    pub(super) fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        events.clear();
        let timeout = self.timeout();
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(events),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// How long to wait at most: until the next deadline, in whole milliseconds,
    /// rounded up, so as not to wake before it.
    pub(super) fn timeout(&self) -> Option<Timespec> {
        let mut next = self.table.next_tick();
        if !self.later.is_empty() {
            next = Some(Time(0));
        }
        if self.table.sessions() > 0 || !self.http.is_empty() || self.deaf || self.no_tokens() {
            next = Some(next.map_or(self.next_sweep, |next| next.min(self.next_sweep)));
        }
        let ns = next?.0.saturating_sub(now().0);
        let ms = ns.div_ceil(1_000_000).min(3_600_000);
        Some(Timespec {
            tv_sec: (ms / 1000) as i64,
            tv_nsec: (ms % 1000 * 1_000_000) as _,
        })
    }

    pub(super) fn handle(&mut self, event: epoll::Event) {
        let data = event.data.u64();
        let index = (data & !(0xf << KIND_SHIFT)) as usize;
        match data & (0xf << KIND_SHIFT) {
            LISTENER => self.accept(index),
            HTTP => self.http_ready(index),
            BELL => self.take_tokens(Duration::ZERO),
            _ => self.client_ready(data, event.flags),
        }
    }

    /// What is left after all ready connections had their turn.
    pub(super) fn end_of_turn(&mut self) {
        let now = now();
        if self.table.next_tick().is_some_and(|tick| tick <= now) {
            self.step(Event::Tick, now);
        }
        if now >= self.next_sweep {
            self.sweep(now);
        }
        self.resumed.append(&mut self.later);
        // Either can wake others, but only by commands that have arrived.
        loop {
            while let Some(session) = self.resumed.pop_front() {
                self.resume(session);
            }
            let Some(session) = self.dirty.pop_front() else {
                return;
            };
            self.deliver(session);
        }
    }

    // The table.

    /// One step of the table; wakes those whose waits it ended.
    #[inline]
    pub(super) fn step(&mut self, event: Event<'_>, now: Time) -> Reply {
        let reply = self.table.step(event, now, &mut self.outputs);
        if !self.outputs.is_empty() {
            self.wake();
        }
        reply
    }

    fn wake(&mut self) {
        let mut outputs = std::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            let Some(mut conn) = self.take_conn(output.session) else {
                continue;
            };
            self.end_wait(&mut conn, output.outcome);
            self.conns[output.session.slot()] = Some(conn);
        }
        self.outputs = outputs;
    }

    fn end_wait(&mut self, conn: &mut Conn, outcome: Outcome) {
        conn.waiting = false;
        let mut reply = Writer::new(&mut conn.output, conn.protocol);
        match outcome {
            Outcome::Granted { token, lease } => {
                reply.integer(token as i64);
                conn.fresh_lease = lease.then_some(token);
            }
            Outcome::TimedOut => reply.nil(),
            Outcome::Refused(refusal) => self.refuse(&mut reply, refusal),
        }
        self.mark_dirty(conn);
        if !conn.input.is_empty() || conn.stream.is_tls() {
            self.resumed.push_back(conn.session);
        }
    }

    fn mark_dirty(&mut self, conn: &mut Conn) {
        if !conn.dirty {
            conn.dirty = true;
            self.dirty.push_back(conn.session);
        }
    }
}
