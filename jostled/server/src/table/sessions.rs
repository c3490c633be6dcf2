//! Sessions: one heartbeat for many locks.
//!
//! A session owns locks as a connection does, through a client slot of its own. It ends
//! at its deadline unless it is renewed before. Its timer is a claim that stands in no
//! line. Waiters in its name are told when it ends, and get nothing from that instant
//! on, however many steps its end takes.

use super::clients::Closing;
use super::entries::{ClaimState, EntryKind, Ref};
use super::slab::{NIL, Slot};
use super::{Outcome, Output, Refusal, SessionKey, Table, Time};

/// A session that is open, or whose holds are being released.
pub(crate) struct Session {
    key: SessionKey,
    /// The client that its locks are booked to.
    pub(super) client: u64,
    ttl_ms: u64,
    /// The claim whose deadline is the session's; [`NIL`] once it is over.
    heartbeat: u32,
    /// First of the claims that wait in its name.
    waiting: u32,
    free: u32,
}

impl Slot for Session {
    type Side = ();
    const SIDE: () = ();

    fn vacant() -> Self {
        Self {
            key: SessionKey { user: 0, id: 0 },
            client: 0,
            ttl_ms: 0,
            heartbeat: NIL,
            waiting: NIL,
            free: NIL,
        }
    }

    fn free_link(&mut self) -> &mut u32 {
        &mut self.free
    }
}

impl Session {
    pub(super) fn key(&self) -> SessionKey {
        self.key
    }

    pub(super) fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    pub(super) fn heartbeat(&self) -> u32 {
        self.heartbeat
    }

    pub(super) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Fills a slot: a session without anybody who waits in its name.
    pub(super) fn fill(&mut self, key: SessionKey, client: u64, ttl_ms: u64, heartbeat: u32) {
        (self.key, self.client) = (key, client);
        (self.ttl_ms, self.heartbeat) = (ttl_ms, heartbeat);
    }
}

impl Table {
    #[cold]
    pub(super) fn open_session(
        &mut self,
        key: SessionKey,
        ttl_ms: u64,
        now: Time,
    ) -> Result<(), Refusal> {
        let many = self.sessions.live() >= self.limits.sessions;
        if many || self.by_key.contains_key(&key) {
            return self.refuse_session(Refusal::Sessions);
        }
        let growth = self.claims.growth() + self.sessions.growth();
        if growth != 0 && self.bytes() + growth > self.limits.memory_bytes {
            return self.refuse_session(Refusal::Memory);
        }
        let Some(client) = self.take_client() else {
            return self.refuse_session(Refusal::Clients);
        };
        self.enlist(client, key.user);
        let heartbeat = self.claims.take();
        let session = self.sessions.take();
        let claim = &mut self.claims[heartbeat];
        claim.state = ClaimState::Heartbeat;
        claim.client = client.0;
        claim.session = session;
        self.set_deadline(Ref::new(EntryKind::Claim, heartbeat), now.after_ms(ttl_ms));
        let record = &mut self.sessions[session];
        record.key = key;
        record.client = client.0;
        record.ttl_ms = ttl_ms;
        record.heartbeat = heartbeat;
        self.by_key.insert(key, session);
        Ok(())
    }

    fn refuse_session(&mut self, refusal: Refusal) -> Result<(), Refusal> {
        self.counters.refused += 1;
        Err(refusal)
    }

    #[cold]
    pub(super) fn renew_session(&mut self, key: SessionKey, now: Time) -> bool {
        let Some(session) = self.live_session(&key, now) else {
            return false;
        };
        let record = &self.sessions[session];
        let (heartbeat, ttl_ms) = (Ref::new(EntryKind::Claim, record.heartbeat), record.ttl_ms);
        self.unlink(heartbeat);
        self.set_deadline(heartbeat, now.after_ms(ttl_ms));
        true
    }

    #[cold]
    pub(super) fn close_session(
        &mut self,
        key: SessionKey,
        now: Time,
        outputs: &mut Vec<Output>,
    ) -> bool {
        let session = self.live_session(&key, now);
        if let Some(session) = session {
            self.end_session(session, now.0);
            self.reap(now, outputs);
        }
        session.is_some()
    }

    /// The session of a key, unless its time has passed, whether its timer has
    /// been fired yet or not.
    #[inline(never)]
    pub(super) fn live_session(&self, key: &SessionKey, now: Time) -> Option<u32> {
        let session = *self.by_key.get(key)?;
        (!self.session_is_over(session, now.0)).then_some(session)
    }

    /// Whether a session has ended by an instant.
    pub(super) fn session_is_over(&self, session: u32, at: u64) -> bool {
        match self.sessions[session].heartbeat {
            NIL => true,
            heartbeat => self.claims[heartbeat].deadline <= at,
        }
    }

    /// Ends a session as of an instant. [`Table::reap`] then ends its waits and holds.
    pub(super) fn end_session(&mut self, session: u32, at: u64) {
        let record = &mut self.sessions[session];
        let heartbeat = std::mem::replace(&mut record.heartbeat, NIL);
        let (key, client) = (record.key, record.client);
        self.by_key.remove(&key);
        self.unlink(Ref::new(EntryKind::Claim, heartbeat));
        self.claims.give(heartbeat);
        let slot = super::ClientId(client).slot() as u32;
        self.clients[slot as usize].open = false;
        self.closing.push(Closing { slot, session, at });
    }

    /// Ends one wait in the name of a session that is over. False: there is none left.
    pub(super) fn turn_one_away(
        &mut self,
        session: u32,
        at: u64,
        now: Time,
        outputs: &mut Vec<Output>,
    ) -> bool {
        let claim = self.sessions[session].waiting;
        if claim == NIL {
            return false;
        }
        let lock = self.claims[claim].lock;
        self.turn_away(claim, outputs);
        self.serve(lock, at, now, outputs);
        true
    }

    /// Whether anybody still waits in the name of a session that is over.
    pub(super) fn is_waited_for(&self, session: u32) -> bool {
        session != NIL && self.sessions[session].waiting != NIL
    }

    /// Ends a wait for a session that is over; the lock's line is to be served.
    pub(super) fn turn_away(&mut self, claim: u32, outputs: &mut Vec<Output>) {
        let client = super::ClientId(self.claims[claim].client);
        self.end_wait(claim);
        self.counters.waits_without_session += 1;
        outputs.push(Output {
            client,
            outcome: Outcome::NoSession,
        });
    }

    /// Notes that a claim waits in the name of a session.
    pub(super) fn enter_session(&mut self, session: u32, claim_id: u32) {
        let first = std::mem::replace(&mut self.sessions[session].waiting, claim_id);
        if first != NIL {
            self.claims[first].prev_in_session = claim_id;
        }
        let claim = &mut self.claims[claim_id];
        claim.session = session;
        claim.prev_in_session = NIL;
        claim.next_in_session = first;
    }

    /// The reverse of [`Table::enter_session`].
    pub(super) fn leave_session(&mut self, claim_id: u32) {
        let claim = &mut self.claims[claim_id];
        let session = std::mem::replace(&mut claim.session, NIL);
        let (prev, next) = (claim.prev_in_session, claim.next_in_session);
        match prev {
            NIL => self.sessions[session].waiting = next,
            prev => self.claims[prev].next_in_session = next,
        }
        if next != NIL {
            self.claims[next].prev_in_session = prev;
        }
    }
}
