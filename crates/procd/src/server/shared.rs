//! What the threads do to connections that wait: put them in line, take them up,
//! close those that wait for too long.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::Shared;
use super::conn::{Awaits, Conn};
use crate::catalog::Procedure;
use crate::http::Answer;
use crate::stats::count;

impl Shared {
    /// The engine is ending.
    pub(super) fn draining(&self) -> bool {
        self.draining.load(Acquire)
    }

    /// A call has ended: the next one that waits may try.
    pub(super) fn leave(&self, procedure: &Procedure) {
        let mut next = procedure.gate.leave();
        while let Some(slot) = next {
            if self.resume(slot) {
                return;
            }
            next = procedure.gate.next();
        }
    }

    /// Lets a connection go on that waits for its turn. It is made ready to be
    /// taken up by whichever thread is free: sockets can nearly always be
    /// written to.
    pub(super) fn resume(&self, slot: u32) -> bool {
        let place = self.slots.lock(slot);
        let Some(conn) = place.as_ref().filter(|c| c.awaits == Awaits::Turn) else {
            return false;
        };
        self.arm(conn, slot, EventFlags::IN | EventFlags::OUT)
            .is_ok()
    }

    pub(super) fn arm(&self, conn: &Conn, slot: u32, flags: EventFlags) -> Result<(), Errno> {
        let data = EventData::new_u64(slot.into());
        let flags = flags | EventFlags::ONESHOT;
        match epoll::modify(&self.epoll, &conn.fd, data, flags) {
            Err(Errno::NOENT) => epoll::add(&self.epoll, &conn.fd, data, flags),
            other => other,
        }
    }

    /// A connection has ended.
    pub(super) fn close(&self, conn: Box<Conn>) {
        let slot = conn.slot;
        drop(conn);
        if let Some(slot) = slot {
            self.slots.release(slot);
        }
        self.stats.open.fetch_sub(1, Relaxed);
    }

    /// Closes connections that wait for too long.
    pub(super) fn sweep(&self) {
        for slot in 0..self.slots.len() as u32 {
            let mut place = self.slots.lock(slot);
            let late = place.as_ref().is_some_and(|conn| {
                let patience = match conn.awaits {
                    Awaits::Request => self.config.idle_timeout,
                    _ => self.config.request_timeout,
                };
                conn.since.elapsed() > patience
            });
            if !late {
                continue;
            }
            let Some(mut conn) = place.take() else {
                continue;
            };
            drop(place);
            match conn.awaits {
                Awaits::Request => count(&self.stats.idle),
                // It is told, if it listens.
                Awaits::Turn => {
                    let _ = conn.transmit(&mut busy());
                }
                Awaits::Rest | Awaits::Reader => count(&self.stats.slow),
            }
            self.close(conn);
        }
        self.nudge();
    }

    /// Whoever was to go on may just have been closed: then the next one's turn
    /// has come, though nobody left.
    pub(super) fn nudge(&self) {
        for procedure in self.catalog.snapshot().values() {
            let (running, waiting) = procedure.gate.load();
            if waiting > 0 && running < self.config.max_running {
                while procedure.gate.next().is_some_and(|slot| !self.resume(slot)) {}
            }
        }
    }

    /// Closes connections that wait for nothing but a next request.
    pub(super) fn close_idle(&self) {
        for slot in 0..self.slots.len() as u32 {
            let mut place = self.slots.lock(slot);
            if place.as_ref().is_some_and(|c| c.awaits == Awaits::Request)
                && let Some(conn) = place.take()
            {
                drop(place);
                self.close(conn);
            }
        }
    }
}

/// What a call is told for which there is no time.
pub(super) fn busy() -> Vec<u8> {
    let mut out = Vec::new();
    Answer {
        status: "503 Service Unavailable",
        exit_code: None,
        headers: "Failure: busy\r\nRetry-After: 1\r\n",
        body: b"too many calls of this procedure\n",
        head_only: false,
        close: true,
    }
    .write(&mut out);
    out
}
