//! Sessions: one heartbeat for many locks.
//!
//! A session owns locks as a connection does, through a client slot of its own. It ends
//! at its deadline unless it is renewed before. Its timer is a claim that stands in no
//! line. Waiters in its name are told when it ends, and get nothing from that instant
//! on, however many steps its end takes.

use super::entries::{ClaimState, EntryKind, Ref};
use super::slab::{NIL, Slot};
use super::{
    Change, OpenSession, Outcome, RELEASES_PER_STEP, Refusal, SessionKey, Step, Table, Time,
};

/// Bytes of the longest text.
pub(crate) const TEXT_MAX: usize = 255;

/// A session that is open, or whose holds are being released.
pub(crate) struct Session {
    pub(super) key: SessionKey,
    /// Who opened it, in its own words.
    pub(super) text: Box<str>,
    /// The client that its locks are booked to.
    pub(super) client: u64,
    pub(super) ttl_ms: u64,
    /// The claim whose deadline is the session's; [`NIL`] once it is over.
    pub(super) heartbeat: u32,
    /// First of the claims that wait in its name, and how many they are.
    pub(super) waiting: u32,
    pub(super) waits: u32,
    free: u32,
}

impl Slot for Session {
    fn vacant() -> Self {
        Self {
            key: SessionKey { user: 0, id: 0 },
            text: Box::default(),
            client: 0,
            ttl_ms: 0,
            heartbeat: NIL,
            waiting: NIL,
            waits: 0,
            free: NIL,
        }
    }

    fn free_link(&mut self) -> &mut u32 {
        &mut self.free
    }
}

impl Table {
    #[cold]
    pub(super) fn open_session(&mut self, open: OpenSession<'_>, now: Time) -> Result<(), Refusal> {
        let OpenSession { key, ttl_ms, text } = open;
        let many = self.sessions.live() >= self.limits.sessions;
        if many || self.by_key.contains_key(&key) {
            return self.refuse_session(Refusal::Sessions);
        }
        if let Some(refusal) = self.over_sessions(key.user) {
            return self.refuse_session(refusal);
        }
        if self.lacks_room(self.claims.growth() + self.sessions.growth() + text.len()) {
            return self.refuse_session(Refusal::Memory);
        }
        let Some(client) = self.take_client() else {
            return self.refuse_session(Refusal::Clients);
        };
        self.enlist(client, key.user);
        self.book_session(key.user, true);
        let heartbeat = self.claims.take();
        let session = self.sessions.take();
        let record = &mut self.sessions[session];
        (record.key, record.client, record.ttl_ms) = (key, client.0, ttl_ms);
        self.name_session(session, text);
        self.begin_heartbeat(session, heartbeat, now.after_ms(ttl_ms));
        self.record_session(session, Change::Opened { ttl_ms });
        Ok(())
    }

    pub(super) fn name_session(&mut self, session: u32, text: &str) {
        let before = std::mem::replace(&mut self.sessions[session].text, text.into());
        self.text_bytes = self.text_bytes + text.len() - before.len();
    }

    /// The text a session was opened with; empty for a client that is none.
    pub(crate) fn session_text(&self, client: super::ClientId) -> &str {
        let found = self.clients.get(client.slot());
        match found.filter(|found| found.id == client.0 && found.session != NIL) {
            Some(found) => &self.sessions[found.session].text,
            None => "",
        }
    }

    /// Lets a session be open until a deadline; false: there is one with its key.
    pub(super) fn begin_heartbeat(&mut self, session: u32, heartbeat: u32, deadline: u64) -> bool {
        let record = &mut self.sessions[session];
        record.heartbeat = heartbeat;
        self.clients[super::ClientId(record.client).slot()].session = session;
        let claim = &mut self.claims[heartbeat];
        claim.state = ClaimState::Heartbeat;
        (claim.client, claim.session) = (record.client, session);
        let sole = self.by_key.insert(record.key, session).is_none();
        self.set_deadline(Ref::new(EntryKind::Claim, heartbeat), deadline);
        sole
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
    pub(super) fn close_session(&mut self, key: SessionKey, step: &mut Step<'_>) -> bool {
        let session = self.live_session(&key, step.now);
        if let Some(session) = session {
            self.end_session(session, step.now.0);
            self.reap(step);
        }
        session.is_some()
    }

    /// Begins to end all sessions of an account.
    #[cold]
    pub(super) fn close_sessions_of(&mut self, account: u16, step: &mut Step<'_>) -> u32 {
        let sessions = self.account(account).has.sessions;
        self.evicted.retain(|(other, _)| *other != account);
        self.evicted.push((account, 0));
        self.evict(step);
        self.reap(step);
        sessions
    }

    /// Ends sessions of accounts that shall have none, a bounded number of slots at a time:
    /// one user may have very many.
    pub(super) fn evict(&mut self, step: &mut Step<'_>) {
        let Some((account, from)) = self.evicted.pop() else {
            return;
        };
        let end = self.sessions.touched();
        let until = end.min(from.saturating_add(RELEASES_PER_STEP as u32));
        for session in from..until {
            // The time of one that is over has come before.
            let over = self.session_is_over(session, step.now.0);
            if !over && self.sessions[session].key.user == account {
                self.end_session(session, step.now.0);
            }
        }
        if until < end {
            self.evicted.push((account, until));
        }
    }

    /// The session of a key, unless its time has passed, whether its timer has
    /// been fired yet or not.
    #[inline(never)]
    pub(super) fn live_session(&self, key: &SessionKey, now: Time) -> Option<u32> {
        let session = *self.by_key.get(key)?;
        (!self.session_is_over(session, now.0)).then_some(session)
    }

    /// The TTL of a session that is open, and whether it holds a lock or waits for one.
    pub(crate) fn session_ttl_ms(&self, key: &SessionKey, now: Time) -> Option<(u64, bool)> {
        let session = self.live_session(key, now)?;
        Some((self.sessions[session].ttl_ms, self.is_used(session)))
    }

    /// Whether a session holds a lock or waits for one.
    pub(super) fn is_used(&self, session: u32) -> bool {
        let session = &self.sessions[session];
        session.waiting != NIL || self.owns_any(super::ClientId(session.client))
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
        self.record_session(session, Change::Closed);
        self.unlink(Ref::new(EntryKind::Claim, heartbeat));
        self.claims.give(heartbeat);
        self.begin_closing(super::ClientId(client), Some(session), at);
    }

    /// Ends a wait for a session that is over; the lock's line is to be served.
    pub(super) fn turn_away(&mut self, claim: u32, step: &mut Step<'_>) {
        let client = self.claims[claim].client;
        self.counters.waits_without_session += self.give_up(claim, step.now);
        step.tell(client, Outcome::NoSession);
    }

    /// Notes that a claim waits in the name of a session.
    pub(super) fn enter_session(&mut self, session: u32, claim_id: u32) {
        let first = std::mem::replace(&mut self.sessions[session].waiting, claim_id);
        if first != NIL {
            self.claims[first].prev_in_session = claim_id;
        }
        self.sessions[session].waits += 1;
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
        self.sessions[session].waits -= 1;
        match prev {
            NIL => self.sessions[session].waiting = next,
            prev => self.claims[prev].next_in_session = next,
        }
        if next != NIL {
            self.claims[next].prev_in_session = prev;
        }
    }
}
