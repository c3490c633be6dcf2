//! Clients that connect, give up waits, and leave with what they own.

use serde::{Deserialize, Serialize};

use super::entries::{EntryKind, Links, Ref};
use super::slab::NIL;
use super::{Cause, ClientId, RELEASES_PER_STEP, Step, Table};

/// A client's connection, or a session in the place of one.
pub(crate) struct Client {
    /// The id of the client that has the slot, or of the next one that will.
    pub(crate) id: u64,
    /// Head of the list of what it owns.
    pub(crate) owned: Links,
    /// The claim that it waits with.
    pub(crate) waiting: u32,
    /// The lock that it was granted last, which may be free or held by another client by now.
    pub(crate) last: u32,
    /// The largest token that it was told in reply to a request for a lock that it had.
    pub(crate) told: u64,
    /// Holds, leases included, and their bytes, while any account has a bound.
    pub(crate) held: u32,
    pub(crate) bytes: u64,
    /// The session that it is, or [`NIL`].
    pub(crate) session: u32,
    /// The account that it is booked to.
    pub(crate) account: u16,
    pub(crate) open: bool,
}

/// A client that is closed and still owns something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Closing {
    pub(crate) slot: u32,
    /// The session that it is.
    pub(crate) session: Option<u32>,
    /// The instant as of which its locks go to others.
    pub(crate) at: u64,
}

impl Table {
    pub(super) fn open(&mut self) -> Option<ClientId> {
        let client = self.take_client();
        match client {
            Some(_) => self.open += 1,
            None => self.counters.refused += 1,
        }
        client
    }

    /// A slot for a connection or a session.
    pub(super) fn take_client(&mut self) -> Option<ClientId> {
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None if self.clients.len() >> ClientId::SLOT_BITS != 0 => return None,
            None => {
                let slot = self.clients.len() as u32;
                self.clients.push(Client::vacant(slot.into()));
                slot
            }
        };
        let client = &mut self.clients[slot as usize];
        client.owned = Links::around(Ref::new(EntryKind::Client, slot));
        client.open = true;
        Some(ClientId(client.id))
    }

    fn is_open(&self, client: ClientId) -> bool {
        self.clients
            .get(client.slot())
            .is_some_and(|found| found.id == client.0 && found.open)
    }

    pub(super) fn cancel(&mut self, client: ClientId, step: &mut Step<'_>) {
        let claim = self.clients[client.slot()].waiting;
        if !self.is_open(client) || claim == NIL {
            return;
        }
        let lock = self.claims[claim].lock;
        self.counters.wait_cancels += self.give_up(claim, step.now);
        self.serve(lock, step.now.0, step);
    }

    /// Ends all waits. No waiter is served meanwhile: a lock that one waiter leaves
    /// free would go to the next one.
    pub(super) fn cancel_all(&mut self, step: &mut Step<'_>) {
        for slot in 0..self.clients.len() {
            let claim = self.clients[slot].waiting;
            if claim != NIL {
                self.unserved.push(self.claims[claim].lock);
                self.counters.wait_cancels += self.give_up(claim, step.now);
            }
        }
        // No waiters are left: this drops locks that existed only for their waiters.
        self.serve_others(step.now.0, step);
    }

    pub(super) fn close(&mut self, client: ClientId, step: &mut Step<'_>) {
        if !self.is_open(client) {
            return;
        }
        self.cancel(client, step);
        self.open -= 1;
        self.begin_closing(client, None, step.now.0);
        self.reap(step);
    }

    /// Closes a slot, of a connection or a session. [`Table::reap`] releases what it owns.
    pub(super) fn begin_closing(&mut self, client: ClientId, session: Option<u32>, at: u64) {
        self.clients[client.slot()].open = false;
        let slot = client.slot() as u32;
        self.closing.push(Closing { slot, session, at });
    }

    /// Releases what closed clients own, a bounded number of locks at a time.
    pub(super) fn reap(&mut self, step: &mut Step<'_>) {
        let mut budget = RELEASES_PER_STEP;
        self.reap_some(&mut budget, step);
    }

    pub(super) fn reap_some(&mut self, budget: &mut usize, step: &mut Step<'_>) {
        while let Some(&Closing { slot, session, at }) = self.closing.last() {
            // Its waiters are told before its slot goes to another session.
            while let Some(claim) = session.map(|session| self.sessions[session].waiting)
                && claim != NIL
            {
                if *budget == 0 {
                    return;
                }
                *budget -= 1;
                let lock = self.claims[claim].lock;
                self.turn_away(claim, step);
                self.serve(lock, at, step);
            }
            let head = Ref::new(EntryKind::Client, slot);
            loop {
                let entry = self.clients[slot as usize].owned.next;
                if entry == head {
                    break;
                }
                if *budget == 0 {
                    return;
                }
                *budget -= 1;
                let (cause, count) = match session {
                    None => (
                        Cause::Disconnected,
                        &mut self.counters.released_by_disconnect,
                    ),
                    Some(_) => (Cause::SessionEnded, &mut self.counters.released_by_session),
                };
                *count += 1;
                let lock = self.end_entry(entry, cause, step.now);
                self.serve(lock, at, step);
            }
            self.closing.pop();
            if let Some(session) = session {
                self.book_session(self.sessions[session].key.user, false);
                self.name_session(session, "");
                self.sessions.give(session);
            }
            self.dismiss(slot);
        }
    }

    /// Gives a slot to the next client.
    pub(super) fn free_client(&mut self, slot: u32) {
        let id = self.clients[slot as usize].id + (1 << ClientId::SLOT_BITS);
        self.clients[slot as usize] = Client::vacant(id);
        self.free_slots.push(slot);
    }
}

impl Client {
    /// Nobody yet.
    pub(crate) fn vacant(id: u64) -> Self {
        Self {
            id,
            owned: Links::default(),
            waiting: NIL,
            last: NIL,
            told: 0,
            held: 0,
            bytes: 0,
            session: NIL,
            account: 0,
            open: false,
        }
    }
}
