//! Which hold is meant, among those of a lock.

use super::entries::NEVER;
use super::slab::NIL;
use super::{Table, hash};

impl<const FAULT: u8> Table<FAULT> {
    // Look-ups among holders.

    /// Whether a client owns the lock, without a lease.
    pub(super) fn owns(&self, id: u32, client: u64) -> bool {
        let lock = &self.locks[id];
        if lock.exclusive {
            return lock.client == client && lock.deadline == NEVER;
        }
        self.sharers(id, client)
            .any(|claim| self.claims[claim].deadline == NEVER)
    }

    /// The shared holds of one client, the latest first.
    fn sharers(&self, id: u32, client: u64) -> impl Iterator<Item = u32> {
        let mut at = self.owners.first(owner_hash(id, client));
        std::iter::from_fn(move || {
            while at != NIL {
                let (claim_id, claim) = (at, &self.claims[at]);
                at = claim.owner_chain();
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
            at = claim.token_chain();
        }
        None
    }

    pub(super) fn queue_of(&mut self, id: u32) -> u32 {
        if self.locks[id].queue == NIL {
            self.locks[id].queue = self.queues.take();
        }
        self.locks[id].queue
    }

    pub(super) fn no_room_for_claim(&self) -> bool {
        let growth = self.claims.growth() + self.queues.growth();
        growth != 0 && self.bytes() + growth > self.limits.memory_bytes
    }
}

pub(super) fn owner_hash(lock: u32, client: u64) -> u32 {
    hash::spread(client ^ u64::from(lock) << 32)
}
