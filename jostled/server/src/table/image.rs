//! The whole state of a table as plain data, for a handover to another program.
//!
//! An image contains locks, lines, sessions and clients. The table's own structures for
//! them (indexes, lists, the timer wheel) are built anew, in `restore`. Locks and
//! claims keep their slots, since cursors name them, and clients keep their numbers.

use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};
use std::iter::successors;

use serde::{Deserialize, Deserializer, Serialize};

use super::clients::Closing;
use super::entries::{Claim, EntryKind, Lock, NEVER, Ref};
use super::slab::some;
use super::{Amounts, ClientId, Counters, HashKey, SessionKey, Table, Time};

thread_local! {
    static OLDER: Cell<bool> = const { Cell::new(false) };
}

/// Reads what a program of this format's version 2 wrote, if it is `older`.
pub(crate) fn reading<T>(older: bool, read: impl FnOnce() -> T) -> T {
    OLDER.set(older);
    let read = read();
    OLDER.set(false);
    read
}

/// Reads a field that version 2 did not have.
pub(crate) fn since_3<'d, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'d>,
    T: Deserialize<'d> + Default,
{
    match OLDER.get() {
        true => Ok(T::default()),
        false => T::deserialize(from),
    }
}

/// Accounts; in version 2 they had bounds of locks and of waiters.
fn accounts<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<Amounts>, D::Error> {
    if !OLDER.get() {
        return Vec::deserialize(from);
    }
    let all = Vec::<(u32, u32)>::deserialize(from)?.into_iter();
    let bound = |(locks, waiters)| Amounts {
        locks,
        waiters,
        ..Amounts::ANY
    };
    Ok(all.map(bound).collect())
}

/// Whether a client is open; in version 2 a second word stood behind it, which follows from
/// what else there is.
fn open<'d, D: Deserializer<'d>>(from: D) -> Result<bool, D::Error> {
    match OLDER.get() {
        true => <(bool, bool)>::deserialize(from).map(|(open, _)| open),
        false => bool::deserialize(from),
    }
}

/// The state of a table; see the module's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableImage {
    /// When it was made.
    pub(super) at: u64,
    /// The key of the hash function.
    pub(super) key: HashKey,
    /// How far the timer wheel has come.
    pub(super) tick: u64,
    pub(super) next_token: u64,
    pub(super) tokens_end: u64,
    pub(super) counters: Counters,
    /// Bounds, by account.
    #[serde(deserialize_with = "accounts")]
    pub(super) accounts: Vec<Amounts>,
    /// Closed clients whose leases still count, in order.
    #[serde(deserialize_with = "since_3")]
    pub(super) left: Vec<(u64, u16)>,
    #[serde(deserialize_with = "since_3")]
    pub(super) evicted: Vec<(u16, u32)>,
    /// By slot.
    pub(super) clients: Vec<ClientImage>,
    pub(super) free_slots: Vec<u32>,
    pub(super) sessions: Vec<SessionImage>,
    pub(super) closing: Vec<Closing>,
    pub(super) locks: Vec<LockImage>,
}

/// A client's slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClientImage {
    pub(super) id: u64,
    #[serde(deserialize_with = "open")]
    pub(super) open: bool,
    pub(super) account: u16,
    /// The largest token that it was told in reply to a repeated request.
    pub(super) told: u64,
    /// The holds that it owns without a lease, in the order in which its end releases them.
    pub(super) owned: Vec<HoldRef>,
}

/// A hold: the slot of a lock if it is exclusive, otherwise of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HoldRef {
    Lock(u32),
    Claim(u32),
}

/// A session that is open, or whose end is being worked off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionImage {
    pub(super) place: u32,
    pub(super) key: SessionKey,
    pub(super) client: u64,
    pub(super) ttl_ms: u64,
    /// The text it was opened with.
    #[serde(deserialize_with = "since_3")]
    pub(super) text: String,
    /// The claim that is its timer, and its end; `None`: it is over.
    pub(super) heartbeat: Option<(u32, u64)>,
    /// The claims that wait in its name, in the order in which its end answers them.
    pub(super) waiting: Vec<u32>,
}

/// A name that is held or waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LockImage {
    pub(super) place: u32,
    pub(super) name: Vec<u8>,
    pub(super) exclusive: Option<HolderImage>,
    /// The places of a semaphore; 1 for every other lock.
    pub(super) places: u16,
    /// In the order of their grants.
    pub(super) sharing: Vec<SharerImage>,
    /// The next one first.
    pub(super) waiting: Vec<WaiterImage>,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HolderImage {
    pub(super) token: u64,
    pub(super) client: u64,
    /// The end of the lease; `None`: the end of the client.
    pub(super) deadline: Option<u64>,
    /// When it began.
    #[serde(deserialize_with = "since_3")]
    pub(super) since: u64,
}

/// A hold of a shared lock or semaphore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharerImage {
    /// The slot of its claim.
    pub(super) place: u32,
    pub(super) hold: HolderImage,
}

/// A place in a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WaiterImage {
    /// The slot of its claim.
    pub(super) place: u32,
    pub(super) client: u64,
    pub(super) since: u64,
    pub(super) ttl_ms: u64,
    pub(super) deadline: Option<u64>,
    pub(super) exclusive: bool,
    /// The first claim of its group, and the one behind this one.
    pub(super) leader: Option<u32>,
    pub(super) next_in_group: Option<u32>,
    pub(super) session: Option<u32>,
}

fn end(deadline: u64) -> Option<u64> {
    (deadline != NEVER).then_some(deadline)
}

impl Table {
    /// The state as it is between two steps, at the time of the latter or later.
    #[must_use]
    pub fn image(&self, now: Time) -> TableImage {
        TableImage {
            at: now.0,
            key: self.key,
            tick: self.timers.tick(),
            next_token: self.next_token,
            tokens_end: self.tokens_end,
            counters: self.counters,
            accounts: self.accounts.iter().map(|found| found.most).collect(),
            left: self.left_image(),
            evicted: self.evicted.clone(),
            clients: (0..self.clients.len() as u32)
                .map(|slot| self.client_image(slot))
                .collect(),
            free_slots: self.free_slots.clone(),
            sessions: self.session_images(),
            closing: self.closing.clone(),
            locks: self
                .locks
                .iter()
                .filter(|(_, lock)| lock.used)
                .map(|(place, lock)| self.lock_image(place, lock))
                .collect(),
        }
    }

    fn client_image(&self, slot: u32) -> ClientImage {
        let client = &self.clients[slot as usize];
        let head = Ref::new(EntryKind::Client, slot);
        let mut owned = Vec::new();
        let mut at = client.owned.next;
        while at != head && at != Ref::NONE {
            owned.push(match at.kind() {
                EntryKind::Lock => HoldRef::Lock(at.index()),
                _ => HoldRef::Claim(at.index()),
            });
            at = self.next_owned(at);
        }
        ClientImage {
            id: client.id,
            open: client.open,
            account: client.account,
            told: client.told,
            owned,
        }
    }

    fn left_image(&self) -> Vec<(u64, u16)> {
        let all = self.left.iter();
        let mut all: Vec<_> = all.map(|(id, left)| (*id, left.account)).collect();
        all.sort_unstable();
        all
    }

    fn session_images(&self) -> Vec<SessionImage> {
        // Sessions that are over are found in the list of clients being closed.
        let over = self.closing.iter().filter_map(|found| found.session);
        let mut places: Vec<u32> = self.by_key.values().copied().chain(over).collect();
        places.sort_unstable();
        let image = |place: u32| {
            let session = &self.sessions[place];
            let heartbeat = some(session.heartbeat);
            let next = |claim: &u32| some(self.claims[*claim].next_in_session);
            SessionImage {
                place,
                key: session.key,
                client: session.client,
                ttl_ms: session.ttl_ms,
                text: session.text.to_string(),
                heartbeat: heartbeat.map(|claim| (claim, self.claims[claim].deadline)),
                waiting: successors(some(session.waiting), next).collect(),
            }
        };
        places.into_iter().map(image).collect()
    }

    fn lock_image(&self, place: u32, lock: &Lock) -> LockImage {
        let mut name = Vec::with_capacity(lock.name_len());
        lock.name_into(&self.blocks, &mut name);
        let queue = self.queue(lock);
        let sharing = self.line(queue.sharing.head);
        let waiting = self.line(queue.waiting.head);
        LockImage {
            place,
            name,
            exclusive: lock.is_exclusive().then(|| HolderImage {
                token: lock.token,
                client: lock.client,
                deadline: end(lock.deadline),
                since: self.locks.beside(place).since,
            }),
            places: queue.places,
            sharing: sharing
                .map(|(place, claim)| sharer_image(place, claim))
                .collect(),
            waiting: waiting
                .map(|(place, claim)| waiter_image(place, claim))
                .collect(),
        }
    }
}

fn sharer_image(place: u32, claim: &Claim) -> SharerImage {
    let hold = HolderImage {
        token: claim.token,
        client: claim.client,
        deadline: end(claim.deadline),
        since: claim.since,
    };
    SharerImage { place, hold }
}

fn waiter_image(place: u32, claim: &Claim) -> WaiterImage {
    WaiterImage {
        place,
        client: claim.client,
        since: claim.since,
        ttl_ms: claim.ttl_ms,
        deadline: end(claim.deadline),
        exclusive: claim.exclusive,
        leader: some(claim.leader),
        next_in_group: some(claim.next_in_group),
        session: some(claim.session),
    }
}

impl TableImage {
    /// Makes one of this version of one of version 2: there, closed clients whose leases count
    /// kept their slots, and nothing told when a hold began.
    pub(crate) fn adopt_older(&mut self) {
        let closing = self.closing.iter().map(|found| found.slot);
        let taken: HashSet<u32> = self.free_slots.iter().copied().chain(closing).collect();
        for (slot, client) in (0..).zip(&mut self.clients).skip(1) {
            if !client.open && !taken.contains(&slot) {
                self.left.push((client.id, client.account));
                self.free_slots.push(slot);
                client.id += 1 << ClientId::SLOT_BITS;
                (client.account, client.told) = (0, 0);
            }
        }
        self.left.sort_unstable();
        for lock in &mut self.locks {
            let shared = lock.sharing.iter_mut().map(|sharer| &mut sharer.hold);
            for hold in shared.chain(&mut lock.exclusive) {
                hold.since = self.at;
            }
        }
    }

    /// When it was made.
    #[must_use]
    pub fn at(&self) -> Time {
        Time(self.at)
    }

    /// The tokens that are reserved: the next one, and the first that is not.
    #[must_use]
    pub fn tokens(&self) -> (u64, u64) {
        (self.next_token, self.tokens_end)
    }

    /// Its clients that are open, sessions left out.
    pub fn connections(&self) -> impl Iterator<Item = ClientId> {
        let sessions: HashSet<u64> = self.sessions.iter().map(|found| found.client).collect();
        let open = self.clients.iter().filter(|client| client.open);
        let open = open.filter(move |client| !sessions.contains(&client.id));
        open.map(|client| ClientId(client.id))
    }

    /// The tokens of holds that outlive their connections, in order, and the number of
    /// sessions that are open.
    pub(crate) fn outliving(&self) -> (BTreeSet<u64>, usize) {
        let open = self
            .sessions
            .iter()
            .filter(|found| found.heartbeat.is_some());
        let sessions: HashSet<u64> = open.map(|found| found.client).collect();
        let sharing = self.locks.iter().flat_map(|lock| &lock.sharing);
        let sharing = sharing.map(|sharer| &sharer.hold);
        let all = self.locks.iter().filter_map(|lock| lock.exclusive.as_ref());
        let outlives =
            |hold: &&HolderImage| hold.deadline.is_some() || sessions.contains(&hold.client);
        let tokens = all.chain(sharing).filter(outlives).map(|hold| hold.token);
        (tokens.collect(), sessions.len())
    }

    /// The numbers of the clients that wait.
    #[must_use]
    pub(crate) fn waiting_clients(&self) -> HashSet<u64> {
        self.waiters().map(|waiter| waiter.client).collect()
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = &HolderImage> {
        let sharing = self.locks.iter().flat_map(|lock| &lock.sharing);
        let sole = self.locks.iter().filter_map(|lock| lock.exclusive.as_ref());
        sharing.map(|sharer| &sharer.hold).chain(sole)
    }

    pub(super) fn waiters(&self) -> impl Iterator<Item = &WaiterImage> {
        self.locks.iter().flat_map(|lock| &lock.waiting)
    }
}
