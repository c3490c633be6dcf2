//! The administrator's view: holders, waiters, totals.

use std::iter::successors;

use super::accounts::Left;
use super::entries::{Claim, ClaimState, EntryKind, NEVER, Ref};
use super::slab::{NIL, some};
use super::{ClientId, Counters, Mode, SessionKey, Table, Time};

/// A holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The client that took it; it may be gone, if this is a lease.
    pub client: ClientId,
    /// The fencing token.
    pub token: u64,
    /// Alone or shared.
    pub mode: Mode,
    /// The end of the lease; `None`: the end of the client.
    pub expires: Option<Time>,
    /// When the hold began.
    pub since: Time,
}

/// A waiter for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The client that waits.
    pub client: ClientId,
    /// The client or session that is to own the lock.
    pub owner: ClientId,
    /// Alone or shared.
    pub mode: Mode,
    /// The lease that is wanted, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// When the wait began.
    pub since: Time,
    /// When the wait ends; `None`: as long as it takes.
    pub until: Option<Time>,
}

/// A session that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedSession<'t> {
    /// The text it was opened with.
    pub text: &'t str,
    /// The account that has opened it.
    pub account: u16,
    /// Its time to live, in milliseconds.
    pub ttl_ms: u64,
    /// Its end, unless it is renewed.
    pub ends: Time,
    /// Locks that it owns; beyond a thousand they are not counted.
    pub holds: u32,
    /// Requests that wait in its name.
    pub waits: u32,
}

/// A number that no walk can have given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCursor;

/// Holds of a session that a walk counts, each of which costs as much as a slot visited.
const HOLDS_COUNTED: usize = 1000;

/// Where a walk over holds, after all locks, comes to claims: an index behind this.
const CLAIMS: u64 = 1 << 32;

fn time(deadline: u64) -> Option<Time> {
    (deadline != NEVER).then_some(Time(deadline))
}

impl Table {
    /// The longest time, in milliseconds, for which a lease or a session that holds or waits
    /// can still run, or a waiter's lease from its grant on; and the cursor to go on from, if
    /// there are more than `budget` slots. A walk begins at cursor 0, and does not see leases
    /// that a request begins or renews meanwhile. Waiters come first: one that is granted
    /// meanwhile was seen, or its hold will be.
    pub(crate) fn longest_lease_ms(&self, now: Time, from: u64, budget: u64) -> (u64, Option<u64>) {
        let left = |deadline: u64| match deadline {
            NEVER => 0,
            deadline => Time(deadline).ms_from(now),
        };
        let claims = u64::from(self.claims.touched());
        let longest_at = |at: u64| {
            if at >= claims {
                let lock = &self.locks[(at - claims) as u32];
                let held = lock.used && lock.is_exclusive();
                return if held { left(lock.deadline) } else { 0 };
            }
            let claim = &self.claims[at as u32];
            match claim.state {
                ClaimState::Waiting => claim.ttl_ms,
                ClaimState::Heartbeat if !self.is_used(claim.session) => 0,
                ClaimState::Sharing | ClaimState::Heartbeat => left(claim.deadline),
                ClaimState::Vacant => 0,
            }
        };
        let all = claims + u64::from(self.locks.touched());
        let end = all.min(from.saturating_add(budget));
        let longest = (from..end).map(longest_at).max();
        (longest.unwrap_or(0), (end < all).then_some(end))
    }

    /// The holders of a lock, in the order of their grants. Empty: it is free.
    pub fn holders(&self, name: &[u8]) -> impl Iterator<Item = Holder> {
        let id = self.find(self.hash(name), name);
        id.into_iter().flat_map(|id| {
            let sharers = self.line(self.queue(&self.locks[id]).sharing.head);
            let sharers = sharers.map(|(_, claim)| self.sharer(claim));
            self.sole_holder(id).into_iter().chain(sharers)
        })
    }

    fn sole_holder(&self, id: u32) -> Option<Holder> {
        let lock = &self.locks[id];
        (lock.used && lock.is_exclusive()).then(|| Holder {
            client: ClientId(lock.client),
            token: lock.token,
            mode: Mode::Exclusive,
            expires: time(lock.deadline),
            since: Time(self.locks.beside(id).since),
        })
    }

    fn sharer(&self, claim: &Claim) -> Holder {
        Holder {
            client: ClientId(claim.client),
            token: claim.token,
            mode: self.queue(&self.locks[claim.lock]).shared_mode(),
            expires: time(claim.deadline),
            since: Time(claim.since),
        }
    }

    /// The waiters of a lock, the next one first.
    pub fn waiters(&self, name: &[u8]) -> impl Iterator<Item = Waiter> {
        let id = self.find(self.hash(name), name);
        let head = id.map(|id| self.queue(&self.locks[id]).waiting.head);
        self.line(head.unwrap_or(NIL))
            .map(|(_, claim)| self.waiter(claim))
    }

    /// The place in a lock's line of a session's first request for it, or of a client's: 1 is
    /// the next one. Beyond `most` it is `most + 1`. `None`: it does not wait for the lock.
    pub(crate) fn place(
        &self,
        name: &[u8],
        of: Result<&SessionKey, ClientId>,
        now: Time,
        most: u32,
    ) -> Option<u32> {
        let id = self.find(self.hash(name), name)?;
        let (first, next): (u32, fn(&Claim) -> u32) = match of {
            Ok(key) => {
                let session = self.live_session(key, now)?;
                (self.sessions[session].waiting, |claim| {
                    claim.next_in_session
                })
            }
            Err(client) => {
                let found = self.clients.get(client.slot())?;
                let waits = found.id == client.0;
                (if waits { found.waiting } else { NIL }, |claim| {
                    claim.next_in_group
                })
            }
        };
        let step = |at: &u32| some(next(&self.claims[*at]));
        // A session's list has the latest first.
        let mine = successors(some(first), step)
            .filter(|at| self.claims[*at].lock == id)
            .last()?;
        let before = successors(Some(mine), |at| some(self.claims[*at].prev));
        Some(before.take(most as usize + 1).count() as u32)
    }

    fn waiter(&self, claim: &Claim) -> Waiter {
        Waiter {
            client: ClientId(claim.client),
            owner: ClientId(match claim.session {
                NIL => claim.client,
                session => self.sessions[session].client,
            }),
            mode: match claim.exclusive {
                true => Mode::Exclusive,
                false => self.queue(&self.locks[claim.lock]).shared_mode(),
            },
            ttl_ms: (claim.ttl_ms != 0).then_some(claim.ttl_ms),
            since: Time(claim.since),
            until: time(self.wait_deadline(claim)),
        }
    }

    /// Walks over all holds, a bounded part at a time. `visit` gets the name and a
    /// holder, and returns the cost of that; each slot visited costs 1 besides. The
    /// walk begins at cursor 0. It returns the cursor to go on from once `budget` is
    /// used up, or `None` at the end. A hold that lasts throughout the walk is visited
    /// at least once, whatever happens in between. `name` is a buffer to use.
    ///
    /// # Errors
    /// [`BadCursor`].
    pub(crate) fn walk_holds(
        &self,
        cursor: u64,
        mut budget: u64,
        name: &mut Vec<u8>,
        mut visit: impl FnMut(&[u8], Holder) -> u64,
    ) -> Result<Option<u64>, BadCursor> {
        if cursor >= 2 * CLAIMS {
            return Err(BadCursor);
        }
        let mut at = cursor;
        // Exclusive holds stand in locks, shared ones in claims; neither moves.
        while budget > 0 {
            let found = if at >= CLAIMS {
                let Some(claim) = self.claims.get(at as u32) else {
                    return Ok(None);
                };
                let shares = claim.state == ClaimState::Sharing;
                shares.then(|| (&self.locks[claim.lock], self.sharer(claim)))
            } else if let Some(lock) = self.locks.get(at as u32) {
                self.sole_holder(at as u32).map(|holder| (lock, holder))
            } else {
                at = CLAIMS;
                continue;
            };
            at += 1;
            budget -= 1;
            if let Some((lock, holder)) = found {
                name.clear();
                lock.name_into(&self.blocks, name);
                budget = budget.saturating_sub(visit(name, holder));
            }
        }
        Ok(Some(at))
    }

    /// Walks over the waiters of a lock as [`Table::walk_holds`] does over holds,
    /// in no order.
    ///
    /// # Errors
    /// [`BadCursor`].
    pub(crate) fn walk_waiters(
        &self,
        name: &[u8],
        cursor: u64,
        mut budget: u64,
        mut visit: impl FnMut(Waiter) -> u64,
    ) -> Result<Option<u64>, BadCursor> {
        let mut index = u32::try_from(cursor).map_err(|_| BadCursor)?;
        let Some(id) = self.find(self.hash(name), name) else {
            return Ok(None);
        };
        while budget > 0 {
            let Some(claim) = self.claims.get(index) else {
                return Ok(None);
            };
            index += 1;
            budget -= 1;
            if claim.state == ClaimState::Waiting && claim.lock == id {
                budget = budget.saturating_sub(visit(self.waiter(claim)));
            }
        }
        Ok(Some(index.into()))
    }

    /// Walks over open sessions as [`Table::walk_holds`] does over holds.
    ///
    /// # Errors
    /// [`BadCursor`].
    pub(crate) fn walk_sessions<'t>(
        &'t self,
        cursor: u64,
        mut budget: u64,
        mut visit: impl FnMut(OpenedSession<'t>) -> u64,
    ) -> Result<Option<u64>, BadCursor> {
        let mut place = u32::try_from(cursor).map_err(|_| BadCursor)?;
        while budget > 0 {
            let Some(session) = self.sessions.get(place) else {
                return Ok(None);
            };
            (place, budget) = (place + 1, budget - 1);
            if session.heartbeat != NIL {
                let head = Ref::new(EntryKind::Client, ClientId(session.client).slot() as u32);
                let next = |entry: &Ref| Some(self.next_owned(*entry)).filter(|next| *next != head);
                let holds = successors(next(&head), next).take(HOLDS_COUNTED).count() as u32;
                budget = budget.saturating_sub(holds.into());
                let found = OpenedSession {
                    text: &session.text,
                    account: session.key.user,
                    ttl_ms: session.ttl_ms,
                    ends: Time(self.claims[session.heartbeat].deadline),
                    holds,
                    waits: session.waits,
                };
                budget = budget.saturating_sub(visit(found));
            }
        }
        Ok(Some(place.into()))
    }

    /// The table's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Names that are held, or reserved for a client that wants several.
    #[must_use]
    pub(crate) fn names_held(&self) -> u64 {
        u64::from(self.locks.live()) - u64::from(self.idle != NIL)
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

    /// Clients that wait.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        u64::from(self.waiting)
    }

    /// Clients that are open.
    #[must_use]
    pub fn clients(&self) -> u64 {
        u64::from(self.open)
    }

    /// Sessions that are open, or whose end is being worked off.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        u64::from(self.sessions.live())
    }

    /// Whether a client owns a lock without a lease: whether its end would
    /// release something.
    #[must_use]
    pub(crate) fn owns_any(&self, client: ClientId) -> bool {
        let head = Ref::new(EntryKind::Client, client.slot() as u32);
        self.clients[client.slot()].owned.next != head
    }

    /// Whether a client waits.
    #[must_use]
    pub fn is_waiting(&self, client: ClientId) -> bool {
        self.clients[client.slot()].waiting != NIL
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
            + self.sessions.bytes()
            + self.text_bytes
            + self.left.capacity() * size_of::<(u64, Left, u8)>()
    }
}
