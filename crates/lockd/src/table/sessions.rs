//! Clients that come, give up, and leave with what they own.

use super::entries::{Kind, Links, Ref, Session};
use super::slab::NIL;
use super::{LEAKED_WAITER, Output, RELEASES_PER_STEP, Refusal, Reply, SessionId, Table, Time};

impl<const FAULT: u8> Table<FAULT> {
    pub(super) fn open(&mut self) -> Reply {
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None if self.sessions.len() >> SessionId::SLOT_BITS != 0 => {
                return self.refuse(Refusal::Sessions);
            }
            None => {
                let slot = self.sessions.len() as u32;
                let id = u64::from(slot);
                self.sessions.push(Session {
                    id,
                    open: false,
                    owned: Links::ALONE,
                    waiting: NIL,
                    last: NIL,
                });
                slot
            }
        };
        let head = Ref::new(Kind::Session, slot);
        let session = &mut self.sessions[slot as usize];
        session.owned = Links {
            prev: head,
            next: head,
        };
        session.open = true;
        self.open += 1;
        Reply::Opened(SessionId(session.id))
    }

    fn is_open(&self, session: SessionId) -> bool {
        self.sessions
            .get(session.slot())
            .is_some_and(|found| found.id == session.0 && found.open)
    }

    pub(super) fn cancel(&mut self, session: SessionId, now: Time, outputs: &mut Vec<Output>) {
        let claim = self.sessions[session.slot()].waiting;
        if !self.is_open(session) || claim == NIL || FAULT == LEAKED_WAITER {
            return;
        }
        let lock = self.claims[claim].lock;
        self.counters.wait_cancels += self.give_up(claim);
        self.serve(lock, now.0, now, outputs);
    }

    pub(super) fn close(&mut self, session: SessionId, now: Time, outputs: &mut Vec<Output>) {
        if !self.is_open(session) {
            return;
        }
        self.cancel(session, now, outputs);
        self.sessions[session.slot()].open = false;
        self.open -= 1;
        self.closing.push(session.slot() as u32);
        self.reap(now, outputs);
    }

    /// Releases what closed sessions own, a bounded number of locks at a time.
    pub(super) fn reap(&mut self, now: Time, outputs: &mut Vec<Output>) {
        let mut budget = RELEASES_PER_STEP;
        while let Some(&slot) = self.closing.last() {
            let head = Ref::new(Kind::Session, slot);
            loop {
                let entry = self.sessions[slot as usize].owned.next;
                if entry == head {
                    break;
                }
                if budget == 0 {
                    return;
                }
                budget -= 1;
                let lock = self.end_entry(entry);
                self.counters.released_by_disconnect += 1;
                self.serve(lock, now.0, now, outputs);
            }
            self.closing.pop();
            let session = &mut self.sessions[slot as usize];
            session.owned = Links::ALONE;
            session.waiting = NIL;
            session.id += 1 << SessionId::SLOT_BITS;
            self.free_slots.push(slot);
        }
    }
}
