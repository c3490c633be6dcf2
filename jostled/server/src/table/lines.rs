//! How a wait begins and ends: a claim's place in the line of a lock.

use super::entries::{ClaimState, EntryKind, Ref};
use super::slab::NIL;
use super::{ClientId, Table, Time};

/// A waiter's request.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    /// The client that waits.
    pub(super) client: u64,
    /// The lease in milliseconds; 0: none.
    pub(super) ttl_ms: u64,
    pub(super) exclusive: bool,
    /// The session that is to own the lock, or [`NIL`].
    pub(super) session: u32,
}

impl Table {
    /// Puts a claim at the end of a lock's line.
    pub(super) fn enqueue(&mut self, id: u32, wish: Wish, now: Time) -> u32 {
        let claim_id = self.claims.take();
        self.enter_line(id, claim_id, wish, now);
        if wish.session != NIL {
            self.enter_session(wish.session, claim_id);
        }
        claim_id
    }

    pub(super) fn enter_line(&mut self, id: u32, claim_id: u32, wish: Wish, since: Time) {
        let claim = &mut self.claims[claim_id];
        claim.client = wish.client;
        claim.since = since.0;
        claim.ttl_ms = wish.ttl_ms;
        claim.lock = id;
        claim.state = ClaimState::Waiting;
        claim.exclusive = wish.exclusive;
        self.book_wait(claim_id, true);
        let queue = self.queue_of(id);
        self.queues[queue]
            .waiting
            .push_back(&mut self.claims, claim_id);
    }

    /// Lets a client wait with `count` claims, of which `first` carries the
    /// deadline.
    pub(super) fn begin_wait(&mut self, first: u32, count: u32, wait_ms: Option<u64>, now: Time) {
        let waits = wait_ms.into_iter().chain(self.limits.wait_ms);
        if let Some(wait_ms) = waits.min() {
            self.set_deadline(Ref::new(EntryKind::Claim, first), now.after_ms(wait_ms));
        }
        let client = ClientId(self.claims[first].client);
        self.clients[client.slot()].waiting = first;
        self.waiting += count;
        self.counters.waits += u64::from(count);
    }

    /// Takes a waiter out of the line; its claim stays.
    pub(super) fn leave_queue(&mut self, claim_id: u32, now: Time, granted: bool) {
        self.note_wait(claim_id, now, granted);
        self.unlink(Ref::new(EntryKind::Claim, claim_id));
        if self.claims[claim_id].session != NIL {
            self.leave_session(claim_id);
        }
        self.book_wait(claim_id, false);
        let claim = &self.claims[claim_id];
        let queue = self.locks[claim.lock].queue;
        self.clients[ClientId(claim.client).slot()].waiting = NIL;
        self.queues[queue]
            .waiting
            .remove(&mut self.claims, claim_id);
        self.waiting -= 1;
    }

    /// Takes a waiter out of the line and drops its claim.
    pub(super) fn end_wait(&mut self, claim_id: u32, now: Time, granted: bool) {
        self.leave_queue(claim_id, now, granted);
        self.claims.give(claim_id);
    }
}
