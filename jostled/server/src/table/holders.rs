//! Look-ups of a certain hold among those of a lock.

use super::entries::NEVER;
use super::slab::NIL;
use super::{ClientId, Mode, Outcome, Table, Which, hash};

impl Table {
    // Look-ups among holders.

    /// The token and the mode of a client's hold of the lock without a lease.
    pub(super) fn owned(&self, id: u32, client: u64) -> Option<(u64, Mode)> {
        let lock = &self.locks[id];
        if lock.exclusive {
            let owns = lock.client == client && lock.deadline == NEVER;
            return owns.then_some((lock.token, Mode::Exclusive));
        }
        let mut sharers = self.sharers(id, client);
        let claim = sharers.find(|claim| self.claims[*claim].deadline == NEVER)?;
        let queue = &self.queues[lock.queue];
        let mode = match queue.places {
            1 => Mode::Shared,
            of => Mode::Place { of },
        };
        Some((self.claims[claim].token, mode))
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
        let lock = &self.locks[id];
        let (client, deadline) = if lock.exclusive {
            if lock.token != token {
                return false;
            }
            (lock.client, lock.deadline)
        } else {
            match self.sharer_by_token(id, token) {
                Some(claim) => (self.claims[claim].client, self.claims[claim].deadline),
                None => return false,
            }
        };
        let told = self.clients[ClientId(client).slot()].told;
        deadline == NEVER && token <= told
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
