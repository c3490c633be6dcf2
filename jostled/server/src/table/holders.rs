//! Look-ups of a certain hold among those of a lock.

use super::entries::{Claim, ClaimState, EntryKind, Lock, NEVER, Queue};
use super::slab::NIL;
use super::{ClientId, Mode, Outcome, Table, Which, hash};

impl Table {
    // Look-ups among holders.

    /// The token and the mode of a client's hold of the lock without a lease.
    pub(super) fn owned(&self, id: u32, client: u64) -> Option<(u64, Mode)> {
        let lock = &self.locks[id];
        if lock.is_exclusive() {
            let owns = lock.client == client && lock.deadline == NEVER;
            return owns.then_some((lock.token, Mode::Exclusive));
        }
        let mut sharers = self.sharers(id, client);
        let claim = sharers.find(|claim| self.claims[*claim].deadline == NEVER)?;
        Some((self.claims[claim].token, self.queue(lock).shared_mode()))
    }

    /// Like `owned`, as the reply to the client: it knows the token from then on.
    pub(super) fn tell_of_hold(&mut self, id: u32, client: u64, which: Which) -> Option<Outcome> {
        let (token, mode) = self.owned(id, client)?;
        let told = &mut self.clients[ClientId(client).slot()].told;
        *told = token.max(*told);
        Some(Outcome::AlreadyHeld { token, mode, which })
    }

    /// Whether the owner of a hold without a lease may know its token, although the
    /// reply to the granted request was never sent: it may have asked again since. Only
    /// one number is kept for each owner, so tokens told about other locks count, too.
    #[must_use]
    pub fn may_be_known(&self, name: &[u8], token: u64) -> bool {
        let Some(id) = self.find(self.hash(name), name) else {
            return false;
        };
        let Some(hold) = self.hold_of(id, token) else {
            return false;
        };
        let client = match hold.kind() {
            EntryKind::Lock => self.locks[id].client,
            _ => self.claims[hold.index()].client,
        };
        let told = self.clients[ClientId(client).slot()].told;
        *self.deadline_of(hold) == NEVER && token <= told
    }

    /// The shared holds of one client, the latest first.
    fn sharers(&self, id: u32, client: u64) -> impl Iterator<Item = u32> {
        let mut at = self.owners.first(owner_hash(id, client));
        std::iter::from_fn(move || {
            while at != NIL {
                let (claim_id, claim) = (at, &self.claims[at]);
                at = claim.owner_chain;
                if claim.lock == id && claim.client == client {
                    return Some(claim_id);
                }
            }
            None
        })
    }

    /// The shared hold that a client means when it names no token: what its
    /// connection owns, else its latest lease.
    pub(super) fn sharer_by_client(&self, id: u32, client: u64) -> Option<u32> {
        self.sharers(id, client).max_by_key(|&claim| {
            let claim = &self.claims[claim];
            (claim.deadline == NEVER, claim.token)
        })
    }

    pub(super) fn sharer_by_token(&self, id: u32, token: u64) -> Option<u32> {
        let mut at = self.tokens.first(hash::spread(token));
        while at != NIL {
            let claim = &self.claims[at];
            if claim.token == token && claim.lock == id {
                return Some(at);
            }
            at = claim.token_chain;
        }
        None
    }

    /// A lock's waiters and shared holders.
    #[inline]
    pub(super) fn queue(&self, lock: &Lock) -> &Queue {
        match lock.queue {
            NIL => &Queue::EMPTY,
            queue => &self.queues[queue],
        }
    }

    /// The claims of a line, from this one on.
    pub(super) fn line(&self, mut at: u32) -> impl Iterator<Item = (u32, &Claim)> {
        std::iter::from_fn(move || {
            let claim = self.claims.get(at)?;
            debug_assert!(claim.state != ClaimState::Vacant);
            Some((std::mem::replace(&mut at, claim.next), claim))
        })
    }

    /// When a wait ends: the first claim of a group carries its deadline.
    pub(super) fn wait_deadline(&self, claim: &Claim) -> u64 {
        match claim.leader {
            NIL => claim.deadline,
            leader => self.claims[leader].deadline,
        }
    }

    pub(super) fn queue_of(&mut self, id: u32) -> u32 {
        if self.locks[id].queue == NIL {
            self.locks[id].queue = self.queues.take();
        }
        self.locks[id].queue
    }

    pub(super) fn no_room_for_claim(&self) -> bool {
        self.lacks_room(self.claims.growth() + self.queues.growth())
    }

    /// Whether the table may not grow by so many bytes.
    pub(super) fn lacks_room(&self, growth: usize) -> bool {
        growth != 0 && self.bytes() + growth > self.limits.memory_bytes
    }
}

pub(super) fn owner_hash(lock: u32, client: u64) -> u32 {
    hash::spread(client ^ u64::from(lock) << 32)
}
