//! LOCKALL: several locks in one step, or a place in each of their lines.
//!
//! A group's claims enter all lines in one step. If two groups have several names in
//! common, the same group is first in all of their lines, so they cannot block each
//! other. A claim at the head of its line keeps the lock reserved while its group
//! cannot be served yet: the lock is free, and no other client gets it.

use super::entries::{Block, Ref, blocks_for};
use super::lines::Wish;
use super::slab::{NIL, some};
use super::{LockAllRequest, Mode, Outcome, Refusal, Step, Table, Time, Which};

fn mode(exclusive: bool) -> Mode {
    match exclusive {
        true => Mode::Exclusive,
        false => Mode::Shared,
    }
}

impl Table {
    pub(super) fn lock_all(
        &mut self,
        request: LockAllRequest<'_>,
        step: &mut Step<'_>,
    ) -> Option<Outcome> {
        let names = request.names;
        let fits = |name: &&[u8]| !name.is_empty() && name.len() <= self.limits.name_bytes;
        if !names.iter().all(fits) {
            return self.refuse(Refusal::Name);
        }
        let (owner, session) = match request.session {
            None => (request.client.0, NIL),
            Some(key) => match self.live_session(key, step.now) {
                None => return Some(Outcome::NoSession),
                Some(live) => (self.sessions[live].client, live),
            },
        };
        self.drop_idle();
        // Lapsed holds of these locks end first, which may serve other waiters.
        for name in names {
            self.look_up(self.hash(name), name, step);
        }
        let find = |name: &&[u8]| self.find(self.hash(name), name);
        let found: Vec<Option<u32>> = names.iter().map(find).collect();
        let count = names.len() as u16;
        for (at, id) in (0..).zip(&found) {
            let Some(id) = id else {
                continue;
            };
            let places = self.queue(&self.locks[*id]).places;
            if places != 1 {
                return self.refuse(Refusal::Places(places));
            }
            let which = Which::OneOf {
                at,
                count,
                of_session: session != NIL,
            };
            let held = self.tell_of_hold(*id, owner, which);
            if held.is_some() {
                return held;
            }
        }
        let count = u32::from(count);
        if self.quotas
            && let Some(refusal) = self.over_quota(request.client, names)
        {
            return self.refuse(refusal);
        }
        let shares = |id: u32| {
            let lock = &self.locks[id];
            request.shared && !lock.is_exclusive() && self.queue(lock).waiting.len == 0
        };
        let free = found.iter().all(|id| id.is_none_or(shares));
        if !free && request.wait_ms == Some(0) {
            self.counters.busy += 1;
            for id in found.iter().flatten() {
                self.note_refusal(*id, step.now);
            }
            return Some(Outcome::TimedOut);
        }
        if !free && let Some(refusal) = self.over_waiters(request.client, count) {
            return self.refuse(refusal);
        }
        if let Some(refusal) = self.no_room_for_group(request, &found, free) {
            return self.refuse(refusal);
        }
        if free {
            self.take_all(request, &found, owner, step.now)
        } else {
            self.enqueue_all(request, &found, session, step.now)
        }
    }

    /// Why a group cannot be served, or cannot wait.
    fn no_room_for_group(
        &self,
        request: LockAllRequest<'_>,
        found: &[Option<u32>],
        free: bool,
    ) -> Option<Refusal> {
        let names = request.names;
        let count = names.len() as u32;
        let blocks: usize = names.iter().map(|name| blocks_for(name.len())).sum();
        let mut growth = self.locks.growth_by(count) + blocks * size_of::<Block>();
        if !free || request.shared {
            growth += self.claims.growth_by(count) + self.queues.growth_by(count);
        }
        if !free {
            let queued = |id: &u32| self.queue(&self.locks[*id]).waiting.len;
            let longest = found.iter().flatten().map(queued).max().unwrap_or(0);
            if longest >= self.limits.waiters_per_lock {
                return Some(Refusal::WaitersOfLock);
            }
            if self.waiting + count > self.limits.waiters {
                return Some(Refusal::Waiters);
            }
        } else if self.tokens_left() < u64::from(count) {
            return Some(Refusal::Tokens);
        }
        let full = self.locks.touched() > Ref::COUNT - count;
        (full || self.lacks_room(growth)).then_some(Refusal::Memory)
    }

    /// Takes locks that nobody holds or waits for, or that can be shared at once.
    fn take_all(
        &mut self,
        request: LockAllRequest<'_>,
        found: &[Option<u32>],
        owner: u64,
        now: Time,
    ) -> Option<Outcome> {
        let first = self.next_token;
        self.record_group(owner, request.names.len() as u64);
        for (name, id) in request.names.iter().zip(found) {
            let id = id.unwrap_or_else(|| self.new_lock(self.hash(name), name));
            // As many as are needed are left.
            let token = self.take_token().unwrap_or(first);
            self.grant_at_once(
                id,
                mode(!request.shared),
                (owner, request.ttl_ms),
                token,
                now,
            );
        }
        Some(Outcome::GrantedAll {
            first,
            count: request.names.len() as u32,
        })
    }

    fn enqueue_all(
        &mut self,
        request: LockAllRequest<'_>,
        found: &[Option<u32>],
        session: u32,
        now: Time,
    ) -> Option<Outcome> {
        let wish = Wish {
            client: request.client.0,
            ttl_ms: request.ttl_ms.unwrap_or(0),
            exclusive: !request.shared,
            session,
        };
        let (mut leader, mut last) = (NIL, NIL);
        for (name, id) in request.names.iter().zip(found) {
            let id = id.unwrap_or_else(|| self.new_lock(self.hash(name), name));
            let claim = self.enqueue(id, wish, now);
            if leader == NIL {
                leader = claim;
            } else {
                self.claims[last].next_in_group = claim;
            }
            last = claim;
            self.claims[claim].leader = leader;
        }
        self.begin_wait(leader, request.names.len() as u32, request.wait_ms, now);
        None
    }

    /// The claims of a group, in the order of its names.
    fn group(&self, leader: u32) -> Vec<u32> {
        let next = |claim: &u32| some(self.claims[*claim].next_in_group);
        std::iter::successors(Some(leader), next).collect()
    }

    /// The hold that stands in the way of a claim in the name of a session that has the lock.
    pub(super) fn which_in_group(&self, claim: u32) -> Which {
        let leader = self.claims[claim].leader;
        if leader == NIL {
            return Which::OfSession;
        }
        let group = self.group(leader);
        Which::OneOf {
            at: group.iter().take_while(|other| **other != claim).count() as u16,
            count: group.len() as u16,
            of_session: true,
        }
    }

    /// Whether a group can have all of its locks, and is first in all lines.
    pub(super) fn group_is_ready(&self, leader: u32) -> bool {
        let ready = |claim: &u32| {
            let lock = &self.locks[self.claims[*claim].lock];
            let queue = self.queue(lock);
            let kept_out = lock.is_exclusive() || queue.keeps_out(self.claims[*claim].exclusive);
            !kept_out && queue.waiting.head == *claim
        };
        let claims = self.group(leader);
        claims.iter().all(ready)
    }

    /// Ends the wait of a group that is ready: with all locks, or, if there are
    /// not enough tokens, with a refusal.
    pub(super) fn grant_group(&mut self, leader: u32, at: u64, step: &mut Step<'_>) {
        let claim = &self.claims[leader];
        let (client, ttl_ms, mode) = (claim.client, claim.ttl_ms, mode(claim.exclusive));
        let session = claim.session;
        let owner = match session {
            NIL => client,
            session => self.sessions[session].client,
        };
        let waited_ns = step.now.0 - claim.since;
        let count = self.group(leader).len() as u64;
        let enough = self.tokens_left() >= count;
        let locks = self.end_group(leader, step.now, enough);
        let outcome = if enough {
            let first = self.next_token;
            self.record_group(client, count);
            for id in &locks {
                let token = self.take_token().unwrap_or(first);
                self.counters.waited(waited_ns);
                self.give_to(*id, mode, (owner, ttl_ms), token, step.now);
            }
            Outcome::GrantedAll {
                first,
                count: count as u32,
            }
        } else {
            self.counters.refused += count;
            Outcome::Refused(Refusal::Tokens)
        };
        step.tell(client, outcome);
        if session != NIL && enough {
            for id in locks {
                self.tell_others_of_session(id, (session, owner), at, step);
            }
        }
    }

    /// Takes a group out of all its lines; returns its locks, in the order of its
    /// names. The caller must serve the lines afterwards.
    pub(super) fn end_group(&mut self, leader: u32, now: Time, granted: bool) -> Vec<u32> {
        let claims = self.group(leader);
        let locks: Vec<u32> = claims.iter().map(|id| self.claims[*id].lock).collect();
        for claim in claims {
            self.end_wait(claim, now, granted);
        }
        self.unserved.extend(&locks);
        locks
    }

    /// Takes a waiter out of its line, or its group out of all lines; returns the
    /// number of places given up.
    pub(super) fn give_up(&mut self, claim: u32, now: Time) -> u64 {
        match self.claims[claim].leader {
            NIL => {
                self.end_wait(claim, now, false);
                1
            }
            leader => self.end_group(leader, now, false).len() as u64,
        }
    }

    /// Serves the lines that groups have left.
    #[cold]
    pub(super) fn serve_others(&mut self, at: u64, step: &mut Step<'_>) {
        while let Some(id) = self.unserved.pop() {
            let lock = &self.locks[id];
            if lock.used && lock.queue != NIL {
                self.serve_queue(id, at, step);
            }
        }
    }
}
