//! What an administrator may know: holders, waiters, totals.

use super::entries::{Lock, NEVER, State};
use super::slab::NIL;
use super::{Counters, Mode, SessionId, Table, Time};

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The session that took it; it may be gone, if this is a lease.
    pub session: SessionId,
    /// The fencing token.
    pub token: u64,
    /// Alone or shared.
    pub mode: Mode,
    /// The end of the lease; `None`: the end of the session.
    pub expires: Option<Time>,
}

/// Who waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Whose wait.
    pub session: SessionId,
    /// Alone or shared.
    pub mode: Mode,
    /// The lease that is wanted, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// Since when.
    pub since: Time,
    /// Until when; `None`: as long as it takes.
    pub until: Option<Time>,
}

fn time(deadline: u64) -> Option<Time> {
    (deadline != NEVER).then_some(Time(deadline))
}

impl<const FAULT: u8> Table<FAULT> {
    /// The holders of a lock, in the order of their grants. Empty: it is free.
    pub fn holders(&self, name: &[u8]) -> impl Iterator<Item = Holder> {
        let id = self.find(self.hash(name), name);
        id.into_iter()
            .flat_map(|id| self.holders_of(&self.locks[id]))
    }

    fn holders_of(&self, lock: &Lock) -> impl Iterator<Item = Holder> {
        let sole = lock.exclusive.then_some(Holder {
            session: SessionId(lock.session),
            token: lock.token,
            mode: Mode::Exclusive,
            expires: time(lock.deadline),
        });
        let shared = if lock.queue == NIL {
            NIL
        } else {
            self.queues[lock.queue].sharing.head
        };
        sole.into_iter()
            .chain(self.line(shared).map(|claim| Holder {
                session: SessionId(claim.session),
                token: claim.token,
                mode: Mode::Shared,
                expires: time(claim.deadline),
            }))
    }

    /// The waiters of a lock, the next one first.
    pub fn waiters(&self, name: &[u8]) -> impl Iterator<Item = Waiter> {
        let queue = self
            .find(self.hash(name), name)
            .map_or(NIL, |id| self.locks[id].queue);
        let head = if queue == NIL {
            NIL
        } else {
            self.queues[queue].waiting.head
        };
        self.line(head).map(|claim| Waiter {
            session: SessionId(claim.session),
            mode: if claim.exclusive {
                Mode::Exclusive
            } else {
                Mode::Shared
            },
            ttl_ms: (claim.ttl_ms != 0).then_some(claim.ttl_ms),
            since: Time(claim.since),
            until: time(claim.deadline),
        })
    }

    fn line(&self, mut at: u32) -> impl Iterator<Item = &super::entries::Claim> {
        std::iter::from_fn(move || {
            if at == NIL {
                return None;
            }
            let claim = &self.claims[at];
            debug_assert!(claim.state != State::Vacant);
            at = claim.next();
            Some(claim)
        })
    }

    /// Calls `visit` with the name and a holder of every hold, in no order that
    /// means anything, until it returns false. `name` is a buffer to use.
    pub fn each_hold(&self, name: &mut Vec<u8>, mut visit: impl FnMut(&[u8], Holder) -> bool) {
        for id in 0..self.locks.touched() {
            let lock = &self.locks[id];
            if !lock.used {
                continue;
            }
            name.clear();
            lock.name_into(&self.blocks, name);
            for holder in self.holders_of(lock) {
                if !visit(name, holder) {
                    return;
                }
            }
        }
    }

    /// How often what has happened.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Names that are held.
    #[must_use]
    pub fn names_held(&self) -> u64 {
        u64::from(self.locks.live())
    }

    /// Holds: each holder of a shared lock counts.
    #[must_use]
    pub fn holds(&self) -> u64 {
        self.held
    }

    /// Holds that are leases.
    #[must_use]
    pub fn leases(&self) -> u64 {
        self.leases
    }

    /// Sessions that wait.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        u64::from(self.waiting)
    }

    /// Sessions that are open.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        u64::from(self.open)
    }

    /// Whether a session owns a lock without a lease: whether its end would
    /// release something.
    #[must_use]
    pub fn owns_any(&self, session: SessionId) -> bool {
        use super::entries::{Kind, Ref};
        let head = Ref::new(Kind::Session, session.slot() as u32);
        self.sessions[session.slot()].owned.next != head
    }

    /// Whether a session waits.
    #[must_use]
    pub fn is_waiting(&self, session: SessionId) -> bool {
        self.sessions[session.slot()].waiting != NIL
    }

    /// Bytes that the table holds. They do not shrink: they are kept for the
    /// next peak.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.locks.bytes()
            + self.claims.bytes()
            + self.queues.bytes()
            + self.blocks.bytes()
            + self.names.bytes()
            + self.owners.bytes()
            + self.tokens.bytes()
    }
}
