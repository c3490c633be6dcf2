//! Requests of clients: to take a lock, to give it back, to renew a lease, to take a lock away from
//! others.

use super::entries::{self, Block, EntryKind, NEVER, Ref, blocks_for};
use super::lines::Wish;
use super::slab::NIL;
use super::{
    Cause, ClientId, LockRequest, Mode, NotReleased, NotRenewed, Outcome, Refusal, Step, Table,
    Time,
};

impl Table {
    #[inline]
    pub(super) fn lock(
        &mut self,
        request: LockRequest<'_>,
        step: &mut Step<'_>,
    ) -> Option<Outcome> {
        if request.name.is_empty() || request.name.len() > self.limits.name_bytes {
            return self.refuse(Refusal::Name);
        }
        debug_assert!(self.clients[request.client.slot()].waiting == NIL);
        let (owner, session) = match request.session {
            None => (request.client.0, NIL),
            Some(key) => match self.live_session(key, step.now) {
                None => return Some(Outcome::NoSession),
                Some(live) => (self.sessions[live].client, live),
            },
        };
        if self.quotas
            && let Some(refusal) = self.over_quota(request.client, &[request.name])
        {
            return self.refuse_over_quota(request, owner, refusal, step);
        }
        if request.mode == Mode::Exclusive && self.idle_has(request.name) {
            return self.lock_idle(request, owner, step.now);
        }
        self.drop_idle();
        let hash = self.hash(request.name);
        match self.look_up(hash, request.name, step) {
            None => self.lock_free(request, owner, hash, step.now),
            Some(id) => self.lock_held(id, request, owner, session, step.now),
        }
    }

    /// Refuses a request over the quota. An owner that has the lock already is still
    /// told its hold.
    #[cold]
    fn refuse_over_quota(
        &mut self,
        request: LockRequest<'_>,
        owner: u64,
        refusal: Refusal,
        step: &mut Step<'_>,
    ) -> Option<Outcome> {
        let hash = self.hash(request.name);
        if let Some(id) = self.look_up(hash, request.name, step)
            && let Some((_, mode)) = self.owned(id, owner)
            && mode.places() == request.mode.places()
            && let Some(held) = self.tell_of_hold(id, owner, request.which())
        {
            return Some(held);
        }
        self.refuse(refusal)
    }

    /// Takes a lock that nobody holds.
    #[inline]
    fn lock_free(
        &mut self,
        request: LockRequest<'_>,
        owner: u64,
        hash: u32,
        now: Time,
    ) -> Option<Outcome> {
        if self.locks.growth() != 0 || request.name.len() > entries::NAME_INLINE {
            let blocks = blocks_for(request.name.len()) * size_of::<Block>();
            let full = self.locks.touched() == Ref::COUNT;
            if full || self.lacks_room(self.locks.growth() + blocks) {
                return self.refuse(Refusal::Memory);
            }
        }
        if request.mode != Mode::Exclusive && self.no_room_for_claim() {
            return self.refuse(Refusal::Memory);
        }
        let Some(token) = self.take_token() else {
            return self.refuse(Refusal::Tokens);
        };
        let id = self.new_lock(hash, request.name);
        self.grant_at_once(id, request.mode, (owner, request.ttl_ms), token, now);
        Some(Outcome::Granted(token))
    }

    /// Takes a lock that is still known by its name.
    #[inline]
    fn lock_idle(&mut self, request: LockRequest<'_>, owner: u64, now: Time) -> Option<Outcome> {
        let Some(token) = self.take_token() else {
            return self.refuse(Refusal::Tokens);
        };
        let id = self.use_idle();
        self.grant_at_once(id, request.mode, (owner, request.ttl_ms), token, now);
        Some(Outcome::Granted(token))
    }

    /// Gives a lock to one who has not waited.
    #[inline(always)]
    pub(super) fn grant_at_once(
        &mut self,
        id: u32,
        mode: Mode,
        (owner, ttl_ms): (u64, Option<u64>),
        token: u64,
        now: Time,
    ) {
        self.counters.granted_at_once += 1;
        self.give_to(id, mode, (owner, ttl_ms.unwrap_or(0)), token, now);
    }

    /// Makes an owner a holder, with a lease of this length unless it is 0.
    #[inline(always)]
    pub(super) fn give_to(
        &mut self,
        id: u32,
        mode: Mode,
        (owner, ttl_ms): (u64, u64),
        token: u64,
        now: Time,
    ) {
        match mode {
            Mode::Exclusive => self.hold(id, owner, token, ttl_ms, now),
            mode => {
                let queue = self.queue_of(id);
                self.queues[queue].places = mode.places();
                let claim_id = self.claims.take();
                let claim = &mut self.claims[claim_id];
                (claim.client, claim.lock) = (owner, id);
                self.share(claim_id, token, ttl_ms, now);
            }
        }
    }

    /// A lock that nobody holds yet.
    #[inline]
    pub(super) fn new_lock(&mut self, hash: u32, name: &[u8]) -> u32 {
        let id = self.locks.take();
        self.name_lock(id, hash, name);
        id
    }

    /// Begins the use of a lock's slot.
    #[inline(always)]
    pub(super) fn name_lock(&mut self, id: u32, hash: u32, name: &[u8]) {
        debug_assert!(self.idle == NIL, "it might have this name");
        let lock = &mut self.locks[id];
        lock.used = true;
        lock.hash = hash;
        lock.set_name(&mut self.blocks, name);
        self.names.insert(&mut self.locks, id);
    }

    /// Asks for a lock that somebody holds, or that is reserved.
    fn lock_held(
        &mut self,
        id: u32,
        request: LockRequest<'_>,
        owner: u64,
        session: u32,
        now: Time,
    ) -> Option<Outcome> {
        let lock = &self.locks[id];
        let queue = self.queue(lock);
        let (queued, places, has_place) = (queue.waiting.len, queue.places, queue.has_place());
        if places != request.mode.places() {
            return self.refuse(Refusal::Places(places));
        }
        let held = self.tell_of_hold(id, owner, request.which());
        if held.is_some() {
            return held;
        }
        let in_turn = queued == 0;
        let shares = request.mode != Mode::Exclusive && !self.locks[id].is_exclusive();
        if shares && in_turn && has_place {
            if self.no_room_for_claim() {
                return self.refuse(Refusal::Memory);
            }
            let Some(token) = self.take_token() else {
                return self.refuse(Refusal::Tokens);
            };
            self.grant_at_once(id, request.mode, (owner, request.ttl_ms), token, now);
            return Some(Outcome::Granted(token));
        }
        if request.wait_ms == Some(0) {
            self.counters.busy += 1;
            self.note_refusal(id, now);
            return Some(Outcome::TimedOut);
        }
        if queued >= self.limits.waiters_per_lock {
            return self.refuse(Refusal::WaitersOfLock);
        }
        if self.waiting >= self.limits.waiters {
            return self.refuse(Refusal::Waiters);
        }
        if let Some(refusal) = self.over_waiters(request.client, 1) {
            return self.refuse(refusal);
        }
        if self.no_room_for_claim() {
            return self.refuse(Refusal::Memory);
        }
        let wish = Wish {
            client: request.client.0,
            ttl_ms: request.ttl_ms.unwrap_or(0),
            exclusive: request.mode == Mode::Exclusive,
            session,
        };
        let claim = self.enqueue(id, wish, now);
        self.begin_wait(claim, 1, request.wait_ms, now);
        None
    }

    /// Whether an existing lock has no holder.
    fn is_reserved(&self, id: u32) -> bool {
        let lock = &self.locks[id];
        !lock.is_exclusive() && self.queue(lock).sharing.len == 0
    }

    #[inline]
    pub(super) fn unlock(
        &mut self,
        client: ClientId,
        name: &[u8],
        token: Option<u64>,
        step: &mut Step<'_>,
    ) -> Result<(), NotReleased> {
        let found = match self.last_of(client, name) {
            None => self.look_up(self.hash(name), name, step),
            last => last,
        };
        let Some(id) = found else {
            self.counters.not_held += 1;
            return Err(NotReleased::NotHeld);
        };
        let lock = &self.locks[id];
        if lock.is_exclusive() {
            let meant = match token {
                Some(token) => lock.token == token,
                None => lock.client == client.0,
            };
            if !meant {
                self.counters.not_owner += 1;
                return Err(NotReleased::NotOwner);
            }
            self.end_hold(id, Cause::Released(client), step.now);
            if self.locks[id].queue == NIL {
                self.counters.released += 1;
                self.keep_idle(id);
                return Ok(());
            }
        } else if self.is_reserved(id) {
            self.counters.not_held += 1;
            return Err(NotReleased::NotHeld);
        } else {
            let claim = match token {
                Some(token) => self.sharer_by_token(id, token),
                None => self.sharer_by_client(id, client.0),
            };
            let Some(claim) = claim else {
                self.counters.not_owner += 1;
                return Err(NotReleased::NotOwner);
            };
            self.end_share(claim, Cause::Released(client), step.now);
        }
        self.counters.released += 1;
        self.serve(id, step.now.0, step);
        Ok(())
    }

    /// The lock that a client was granted last, if it has this name. An UNLOCK names it
    /// most often, and then no look-up is needed.
    #[inline]
    fn last_of(&self, client: ClientId, name: &[u8]) -> Option<u32> {
        let last = self.clients[client.slot()].last;
        if last == NIL || self.behind {
            return None;
        }
        let lock = &self.locks[last];
        (lock.used && lock.has_name(&self.blocks, name)).then_some(last)
    }

    pub(super) fn renew(
        &mut self,
        name: &[u8],
        token: u64,
        ttl_ms: u64,
        step: &mut Step<'_>,
    ) -> Result<(), NotRenewed> {
        let found = self.look_up(self.hash(name), name, step);
        let Some(entry) = found.and_then(|id| self.hold_of(id, token)) else {
            self.counters.not_owner += 1;
            return Err(NotRenewed::NotOwner);
        };
        if *self.deadline_of(entry) == NEVER {
            return Err(NotRenewed::NoLease);
        }
        self.unlink(entry);
        self.set_deadline(entry, step.now.after_ms(ttl_ms));
        if self.journal.is_some() {
            self.record_renewal(entry, ttl_ms);
        }
        self.counters.renewed += 1;
        Ok(())
    }

    /// The hold of a lock with this token.
    pub(super) fn hold_of(&self, id: u32, token: u64) -> Option<Ref> {
        let lock = &self.locks[id];
        if lock.is_exclusive() {
            (lock.token == token).then_some(Ref::new(EntryKind::Lock, id))
        } else {
            self.sharer_by_token(id, token)
                .map(|claim| Ref::new(EntryKind::Claim, claim))
        }
    }

    pub(super) fn force(&mut self, name: &[u8], step: &mut Step<'_>) -> u64 {
        let Some(id) = self.look_up(self.hash(name), name, step) else {
            return 0;
        };
        let mut ended = 0;
        if self.locks[id].is_exclusive() {
            self.end_hold(id, Cause::Forced, step.now);
            ended = 1;
        } else {
            let queue = self.locks[id].queue;
            while self.queues[queue].sharing.head != NIL {
                self.end_share(self.queues[queue].sharing.head, Cause::Forced, step.now);
                ended += 1;
            }
        }
        self.counters.forced += ended;
        self.serve(id, step.now.0, step);
        ended
    }

    pub(super) fn refuse(&mut self, refusal: Refusal) -> Option<Outcome> {
        self.counters.refused += 1;
        Some(Outcome::Refused(refusal))
    }
}
