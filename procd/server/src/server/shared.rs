//! The threads' work with connections that wait: put them in line, take them up, close those that
//! wait for too long.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::Shared;
use super::conn::{Awaits, Conn};
use super::gate::Gate;
use crate::http::{Answer, Method};
use crate::stats::count;

impl Shared {
    /// The engine is ending.
    pub(super) fn draining(&self) -> bool {
        self.draining.load(Acquire)
    }

    /// A call has ended: the next one that waits may run.
    pub(super) fn leave(&self, gate: &Gate) {
        self.call(gate, gate.leave());
    }

    /// A connection leaves a line, having run or not.
    pub(super) fn give_up(&self, gate: &Gate, slot: u32) {
        self.call(gate, gate.give_up(slot));
    }

    fn call(&self, gate: &Gate, mut next: Option<u32>) {
        while let Some(slot) = next {
            if self.resume(slot) {
                return;
            }
            next = gate.give_up(slot);
        }
    }

    /// Lets a connection that waits for its turn continue. Any free thread can take it
    /// up: it is armed for writing, too, and sockets can nearly always be written to.
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
        let (slot, line) = (conn.slot, conn.line.clone());
        drop(conn);
        if let Some(slot) = slot {
            if let Some(gate) = line {
                self.give_up(&gate, slot);
            }
            self.slots.release(slot);
        }
        self.stats.connections_open.fetch_sub(1, Relaxed);
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
                Awaits::Request => count(&self.stats.connections_idle),
                // The client gets an answer, if it reads.
                Awaits::Turn => {
                    let _ = conn.transmit(&mut busy());
                }
                Awaits::Rest | Awaits::Reader => count(&self.stats.connections_too_slow),
            }
            self.close(conn);
        }
    }

    /// Makes room for a connection: closes the one that has owed the rest of a request,
    /// or a first one, for the longest time. False: there is none.
    pub(super) fn make_room(&self) -> bool {
        let owes = |conn: &Conn| {
            let silent = conn.awaits == Awaits::Request && !conn.answered;
            (silent || conn.awaits == Awaits::Rest).then_some(conn.since)
        };
        let since = |slot| self.slots.lock(slot).as_deref().and_then(owes);
        let slots = 0..self.slots.len() as u32;
        let oldest = slots.filter_map(|slot| Some((since(slot)?, slot))).min();
        let Some((_, slot)) = oldest else {
            return false;
        };
        let mut place = self.slots.lock(slot);
        // It may have sent the rest meanwhile.
        let Some(conn) = place.take_if(|conn| owes(conn).is_some()) else {
            return false;
        };
        drop(place);
        count(&self.stats.connections_too_slow);
        self.close(conn);
        true
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

/// The answer to a call that the engine has no room for.
pub(super) fn busy() -> Vec<u8> {
    let mut out = Vec::new();
    Answer {
        status: "503 Service Unavailable",
        exit_code: None,
        headers: "Failure: busy\r\nRetry-After: 1\r\n",
        body: b"too many calls at the same time; try again\n",
    }
    .write(&mut out, Method::Get, true);
    out
}
