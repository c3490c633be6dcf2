//! The beginning and end of a hold, and the choice of the next holder.

use super::entries::{ClaimState, EntryKind, NEVER, Ref};
use super::holders::owner_hash;
use super::slab::NIL;
use super::{Cause, ClientId, Outcome, Refusal, SERVED_PER_STEP, Step, Table, Time};

impl Table {
    #[inline]
    pub(super) fn take_token(&mut self) -> Option<u64> {
        if self.next_token >= self.tokens_end {
            return None;
        }
        let token = self.next_token;
        self.next_token += 1;
        Some(token)
    }

    /// Gives the lock to those at the head of its queue, as far as it can be
    /// given, as of the instant `at`; drops the lock when nobody wants it.
    #[inline]
    pub(super) fn serve(&mut self, id: u32, at: u64, step: &mut Step<'_>) {
        if self.locks[id].queue == NIL {
            if !self.locks[id].is_exclusive() {
                self.drop_lock(id);
            }
            return;
        }
        self.serve_queue(id, at, step);
        if !self.unserved.is_empty() {
            self.serve_others(at, step);
        }
    }

    /// Serves lines that a step before has left half served, a bounded number of waiters
    /// at a time.
    pub(super) fn serve_partly(&mut self, step: &mut Step<'_>) {
        if let Some((id, at)) = self.partly.pop_front() {
            // The lock may be free by now, or another one.
            let lock = &self.locks[id];
            if lock.used && lock.queue != NIL {
                self.serve(id, at, step);
            }
        }
    }

    /// Whether a line goes on to be served with the next [`Tick`].
    pub(crate) fn is_partly_served(&self) -> bool {
        !self.partly.is_empty()
    }

    pub(super) fn serve_queue(&mut self, id: u32, at: u64, step: &mut Step<'_>) {
        for served in 0.. {
            if served == SERVED_PER_STEP {
                if self.partly.iter().all(|(other, _)| *other != id) {
                    self.partly.push_back((id, at));
                }
                return;
            }
            let lock = &self.locks[id];
            let queue = &self.queues[lock.queue];
            let head = queue.waiting.head;
            if head == NIL {
                break;
            }
            let claim = &self.claims[head];
            if self.wait_deadline(claim) <= at {
                self.time_out(head, step);
                continue;
            }
            if lock.is_exclusive() || queue.keeps_out(claim.exclusive) {
                return;
            }
            if claim.session != NIL && self.session_is_over(claim.session, at) {
                self.turn_away(head, step);
                continue;
            }
            match claim.leader {
                NIL => self.grant(id, head, at, step),
                leader if self.group_is_ready(leader) => self.grant_group(leader, at, step),
                // Reserved.
                _ => return,
            }
        }
        let lock = &self.locks[id];
        if self.queues[lock.queue].sharing.len == 0 {
            self.queues.give(lock.queue);
            let exclusive = lock.is_exclusive();
            self.locks[id].queue = NIL;
            if !exclusive {
                self.drop_lock(id);
            }
        }
    }

    /// Ends the wait of the first in line with a grant, or, if there are no
    /// tokens, with a refusal. `at` is the instant that is served.
    pub(super) fn grant(&mut self, id: u32, claim_id: u32, at: u64, step: &mut Step<'_>) {
        let claim = &self.claims[claim_id];
        let (client, ttl_ms, exclusive) = (claim.client, claim.ttl_ms, claim.exclusive);
        let session = claim.session;
        let owner = match session {
            NIL => client,
            session => self.sessions[session].client,
        };
        let waited_ns = step.now.0 - claim.since;
        let outcome = match self.take_token() {
            None => {
                self.counters.refused += 1;
                self.end_wait(claim_id, step.now, false);
                Outcome::Refused(Refusal::Tokens)
            }
            Some(token) => {
                self.counters.waited(waited_ns);
                if exclusive {
                    self.end_wait(claim_id, step.now, true);
                    self.hold(id, owner, token, ttl_ms, step.now);
                } else {
                    self.leave_queue(claim_id, step.now, true);
                    self.claims[claim_id].client = owner;
                    self.share(claim_id, token, ttl_ms, step.now);
                }
                Outcome::Granted(token)
            }
        };
        step.tell(client, outcome);
        if session != NIL && matches!(outcome, Outcome::Granted(_)) {
            self.tell_others_of_session(id, (session, owner), at, step);
        }
    }

    /// Ends the other waits for a lock in the name of a session that has just got it. They would
    /// wait for the session itself, perhaps without end: the granted request may have come over a
    /// connection that broke unnoticed, and a waiting one may be its repetition. A wait that ends
    /// at the same instant `at` is left to its own timer.
    pub(super) fn tell_others_of_session(
        &mut self,
        id: u32,
        (session, owner): (u32, u64),
        at: u64,
        step: &mut Step<'_>,
    ) {
        for claim in self.waiting_in_name(id, session) {
            if self.wait_deadline(&self.claims[claim]) <= at {
                continue;
            }
            let client = self.claims[claim].client;
            let which = self.which_in_group(claim);
            self.counters.waits_already_held += self.give_up(claim, step.now);
            if let Some(outcome) = self.tell_of_hold(id, owner, which) {
                step.tell(client, outcome);
            }
        }
    }

    /// The claims that wait for a lock in the name of a session, the first in line
    /// first. The line and the session's list are walked side by side until the
    /// shorter one ends, so that neither a long line nor a session with many waiters
    /// alone makes a grant slow.
    fn waiting_in_name(&self, id: u32, session: u32) -> Vec<u32> {
        let mut in_line = self.queues[self.locks[id].queue].waiting.head;
        let mut in_session = self.sessions[session].waiting;
        let (mut of_line, mut of_session) = (Vec::new(), Vec::new());
        while in_line != NIL && in_session != NIL {
            if self.claims[in_line].session == session {
                of_line.push(in_line);
            }
            if self.claims[in_session].lock == id {
                of_session.push(in_session);
            }
            in_line = self.claims[in_line].next;
            in_session = self.claims[in_session].next_in_session;
        }
        if in_line == NIL {
            of_line
        } else {
            // A session's list has the latest first.
            of_session.reverse();
            of_session
        }
    }

    /// Makes a client the exclusive holder.
    #[inline]
    pub(super) fn hold(&mut self, id: u32, client: u64, token: u64, ttl_ms: u64, now: Time) {
        let lock = &mut self.locks[id];
        lock.token = token;
        lock.client = client;
        self.clients[ClientId(client).slot()].last = id;
        self.own(Ref::new(EntryKind::Lock, id), client, ttl_ms, now);
        self.locks.side(id).since = now.0;
    }

    /// Puts a hold under its deadline or into its client's list.
    #[inline(always)]
    pub(super) fn own(&mut self, entry: Ref, client: u64, ttl_ms: u64, now: Time) {
        self.held += 1;
        if self.booked {
            self.book_begin(entry, client, ttl_ms);
        }
        if ttl_ms == 0 {
            let slot = ClientId(client).slot() as u32;
            self.link(Ref::new(EntryKind::Client, slot), entry);
        } else {
            self.leases += 1;
            self.set_deadline(entry, now.after_ms(ttl_ms));
        }
    }

    /// Makes a claim, which is in no list, one of the holders of its lock.
    pub(super) fn share(&mut self, claim_id: u32, token: u64, ttl_ms: u64, now: Time) {
        let claim = &mut self.claims[claim_id];
        (claim.deadline, claim.since) = (NEVER, now.0);
        self.enter_sharers(claim_id, token);
        let client = self.claims[claim_id].client;
        self.own(Ref::new(EntryKind::Claim, claim_id), client, ttl_ms, now);
    }

    /// Enters a claim, which has its lock and client, where shared holds are looked up.
    pub(super) fn enter_sharers(&mut self, claim_id: u32, token: u64) {
        let claim = &mut self.claims[claim_id];
        (claim.state, claim.token) = (ClaimState::Sharing, token);
        claim.owner_hash = owner_hash(claim.lock, claim.client);
        let lock = claim.lock;
        let queue = self.queue_of(lock);
        self.queues[queue]
            .sharing
            .push_back(&mut self.claims, claim_id);
        self.owners.insert(&mut self.claims, claim_id);
        self.tokens.insert(&mut self.claims, claim_id);
    }

    // Ends.

    /// Ends the exclusive hold of a lock.
    #[inline(always)]
    pub(super) fn end_hold(&mut self, id: u32, cause: Cause, now: Time) {
        let entry = Ref::new(EntryKind::Lock, id);
        self.unlink(entry);
        let lock = &mut self.locks[id];
        if lock.refused != 0 || lock.queue != NIL {
            self.note_hold(id, entry, now);
        }
        let lock = &mut self.locks[id];
        self.held -= 1;
        self.leases -= u64::from(lock.deadline != NEVER);
        let deadline = std::mem::replace(&mut lock.deadline, NEVER);
        let client = lock.client;
        if self.booked {
            self.book_ended(entry, client, deadline, cause);
        }
        self.locks[id].token = 0;
    }

    /// Ends a shared hold.
    pub(super) fn end_share(&mut self, claim_id: u32, cause: Cause, now: Time) {
        let entry = Ref::new(EntryKind::Claim, claim_id);
        self.note_hold(self.claims[claim_id].lock, entry, now);
        self.unlink(entry);
        let claim = &self.claims[claim_id];
        self.held -= 1;
        self.leases -= u64::from(claim.deadline != NEVER);
        let (queue, client) = (self.locks[claim.lock].queue, claim.client);
        let deadline = claim.deadline;
        self.queues[queue]
            .sharing
            .remove(&mut self.claims, claim_id);
        self.owners.remove(&mut self.claims, claim_id);
        self.tokens.remove(&mut self.claims, claim_id);
        if self.booked {
            self.book_ended(entry, client, deadline, cause);
        }
        self.claims.give(claim_id);
    }

    /// Ends a hold of either kind; returns its lock.
    pub(super) fn end_entry(&mut self, entry: Ref, cause: Cause, now: Time) -> u32 {
        if entry.kind() == EntryKind::Lock {
            self.end_hold(entry.index(), cause, now);
            return entry.index();
        }
        let lock = self.claims[entry.index()].lock;
        self.end_share(entry.index(), cause, now);
        lock
    }

    #[inline(always)]
    pub(super) fn drop_lock(&mut self, id: u32) {
        self.names.remove(&mut self.locks, id);
        self.locks[id].drop_name(&mut self.blocks);
        self.locks.give(id);
    }
}
