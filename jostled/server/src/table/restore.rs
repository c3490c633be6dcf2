//! Builds a table from an image, and checks the image.
//!
//! An image comes from another program, perhaps of another version, perhaps damaged.
//! Nothing in it is trusted: a state that a sound table could not be in is an error,
//! before any client is served from it.

mod lines;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use super::accounts::{Account, Left};
use super::clients::Client;
use super::entries::{Claim, ClaimState, EntryKind, Links, Lock, NEVER, Ref, Side};
use super::image::{ClientImage, HoldRef, HolderImage, LockImage, SessionImage};
use super::sessions::{Session, TEXT_MAX};
use super::slab::Slab;
use super::timers::Timers;
use super::{Amounts, ClientId, Limits, Table, TableImage};

/// Why an image is not that of a sound table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lock table is not sound: {0}")]
pub struct BadImage(String);

impl BadImage {
    /// A lock has holders that exclude each other.
    pub(super) fn excluded(name: &[u8]) -> Self {
        let name = name.escape_ascii();
        Self(format!("{name} has holders that exclude each other"))
    }
}

/// Returns from a check with this error, unless the condition holds.
macro_rules! ensure {
    ($holds:expr => $($text:tt)+) => {
        if !$holds { return Err(BadImage(format!($($text)+))); }
    };
}
use ensure;

type Checked = Result<(), BadImage>;

impl Table {
    /// Builds the table of an image, under these bounds. They apply to new requests;
    /// only the bound on memory must already hold.
    ///
    /// # Errors
    /// What is wrong with the image.
    pub fn from_image(image: &TableImage, limits: Limits) -> Result<Self, BadImage> {
        ensure!(image.next_token <= image.tokens_end =>
            "its tokens go from {} to {}", image.next_token, image.tokens_end);
        let times = image.waiters().map(|waiter| waiter.since);
        let times = times.chain(image.holders().map(|holder| holder.since));
        let mut times = times.chain(image.closing.iter().map(|found| found.at));
        let past = image.tick <= Timers::tick_of(image.at) && times.all(|time| time <= image.at);
        ensure!(past => "something has happened in the future");
        ensure!(image.counters.are_plausible() => "a counter is out of range");
        let mut table = Self::new(limits, image.key, image.next_token);
        table.tokens_end = image.tokens_end;
        table.counters = image.counters;
        table.timers = Timers::new(image.tick);
        table.restore_slots(image)?;
        table.restore_clients(image)?;
        let mut clients = HashSet::new();
        for session in &image.sessions {
            let sole = clients.insert(session.client);
            ensure!(sole => "two sessions are one client");
            table.restore_session(session)?;
        }
        for lock in &image.locks {
            table.restore_lock(lock)?;
        }
        table.check_groups(image)?;
        for session in &image.sessions {
            table.restore_waits_in_session(session)?;
        }
        for (slot, client) in (0..).zip(&image.clients) {
            table.restore_owned(slot, client)?;
        }
        table.check_totals(image)?;
        for lock in &image.locks {
            table.check_line(lock)?;
        }
        ensure!(table.book_restored() => "a closed client is remembered for nothing");
        Ok(table)
    }

    /// Makes room: each lock, claim and session at its place.
    fn restore_slots(&mut self, image: &TableImage) -> Checked {
        let locks: Vec<u32> = image.locks.iter().map(|lock| lock.place).collect();
        let heartbeats = image.sessions.iter().filter_map(|found| found.heartbeat);
        let mut claims: Vec<u32> = heartbeats.map(|(claim, _)| claim).collect();
        for lock in &image.locks {
            claims.extend(lock.sharing.iter().map(|sharer| sharer.place));
            claims.extend(lock.waiting.iter().map(|waiter| waiter.place));
        }
        let sessions: Vec<u32> = image.sessions.iter().map(|found| found.place).collect();
        let last = [&locks, &claims, &sessions].map(|used| used.iter().max().copied());
        let far = last.iter().flatten().any(|last| *last >= Ref::COUNT);
        ensure!(!far => "a place is out of range");
        let ordered = |places: &[u32]| places.is_sorted_by(|one, next| one < next);
        ensure!(ordered(&locks) && ordered(&sessions) =>
            "its places are out of order, or one is taken twice");
        let bytes = last[0].map_or(0, Slab::<Lock, Side>::bytes_up_to)
            + last[1].map_or(0, Slab::<Claim>::bytes_up_to)
            + last[2].map_or(0, Slab::<Session>::bytes_up_to);
        ensure!(bytes <= self.limits.memory_bytes =>
            "it takes {bytes} bytes, and may take {} (--max-memory)", self.limits.memory_bytes);
        let twice = || BadImage("a place is taken twice".to_owned());
        self.locks = Slab::with_used(&locks).ok_or_else(twice)?;
        self.claims = Slab::with_used(&claims).ok_or_else(twice)?;
        self.sessions = Slab::with_used(&sessions).ok_or_else(twice)?;
        Ok(())
    }

    /// Clients, their accounts, and those that are being closed. Each slot is free,
    /// or open, or of one that is closed and still owns something.
    fn restore_clients(&mut self, image: &TableImage) -> Checked {
        let (slots, accounts) = (image.clients.len(), image.accounts.len());
        ensure!((1..=1 << ClientId::SLOT_BITS).contains(&slots) && !image.clients[0].open =>
            "it has {slots} slots of clients");
        ensure!((1..=1 << 16).contains(&accounts) => "it has {accounts} accounts");
        let bound = |most: &Amounts| Account {
            most: *most,
            ..Account::UNBOUND
        };
        self.accounts = image.accounts.iter().map(bound).collect();
        let gone = |id: u64| {
            let slot = image.clients.get(ClientId(id).slot());
            slot.is_some_and(|client| client.id != id)
        };
        let known = |(id, account): &(u64, u16)| gone(*id) && usize::from(*account) < accounts;
        let ordered = image.left.is_sorted_by(|one, next| one.0 < next.0);
        ensure!(ordered && image.left.iter().all(known) =>
            "a closed client has no account, or is open");
        let left = |account| Left {
            account,
            ..Left::default()
        };
        let all = image.left.iter();
        self.left = all.map(|(id, account)| (*id, left(*account))).collect();
        self.evicted.clone_from(&image.evicted);
        self.clients.clear();
        for (slot, found) in image.clients.iter().enumerate() {
            ensure!(found.told < image.next_token.max(1) =>
                "client {} knows a token of the future", found.id);
            ensure!(ClientId(found.id).slot() == slot && usize::from(found.account) < accounts =>
                "client {} stands in slot {slot}", found.id);
            let head = Ref::new(EntryKind::Client, slot as u32);
            let mut client = Client::vacant(found.id);
            client.open = found.open;
            client.account = found.account;
            client.told = found.told;
            client.owned = Links::around(head);
            self.clients.push(client);
        }
        self.open = image.clients.iter().filter(|found| found.open).count() as u32;
        self.free_slots.clone_from(&image.free_slots);
        self.closing.clone_from(&image.closing);
        self.check_slots(image)
    }

    fn check_slots(&self, image: &TableImage) -> Checked {
        let slots = 0..image.clients.len() as u32;
        let closing = image.closing.iter().map(|found| found.slot);
        let open = slots
            .clone()
            .filter(|slot| image.clients[*slot as usize].open);
        let free = image.free_slots.iter().copied().chain([0]);
        let mut all: Vec<u32> = free.chain(closing).chain(open).collect();
        all.sort_unstable();
        let each = slots.eq(all);
        ensure!(each => "a slot of clients is neither free nor in use, or both");
        for slot in image.free_slots.iter().chain(&[0]) {
            let owns = !image.clients[*slot as usize].owned.is_empty();
            ensure!(!owns => "the free slot {slot} owns something");
        }
        Ok(())
    }

    fn restore_session(&mut self, image: &SessionImage) -> Checked {
        let slot = ClientId(image.client).slot();
        let client = self.clients.get(slot).map(|found| (found.id, found.open));
        let live = image.heartbeat.is_some();
        ensure!(client == Some((image.client, live)) => "a session is not in its slot");
        let closing = self.closing.iter();
        let ending = closing.filter(|found| found.session == Some(image.place));
        let mut ending = ending.map(|found| found.slot as usize);
        let ends = (ending.next(), ending.next());
        ensure!(ends == ((!live).then_some(slot), None) => "a session is both open and over");
        ensure!(usize::from(image.key.user) < self.accounts.len() && image.text.len() <= TEXT_MAX =>
            "a session has no account, or too long a text");
        self.book_session(image.key.user, true);
        let record = &mut self.sessions[image.place];
        (record.key, record.client, record.ttl_ms) = (image.key, image.client, image.ttl_ms);
        self.name_session(image.place, &image.text);
        if let Some((claim, deadline)) = image.heartbeat {
            ensure!(deadline != NEVER => "a session never ends");
            let sole = self.begin_heartbeat(image.place, claim, deadline);
            ensure!(sole => "two sessions have one key");
            // A session's client is not a connection.
            self.open -= 1;
        }
        Ok(())
    }

    fn restore_lock(&mut self, image: &LockImage) -> Checked {
        let name = &image.name[..];
        ensure!((1..=usize::from(u16::MAX)).contains(&name.len()) =>
            "a name has {} bytes", name.len());
        let hash = self.hash(name);
        ensure!(self.find(hash, name).is_none() => "{} stands there twice", name.escape_ascii());
        let of_one = image.exclusive.is_none() || image.sharing.is_empty() && image.places == 1;
        let fits = image.places == 1 || image.sharing.len() <= image.places.into();
        let wanted =
            image.exclusive.is_some() || !image.sharing.is_empty() || !image.waiting.is_empty();
        ensure!(of_one && fits && wanted && image.places >= 1 =>
            "{} has holders that exclude each other, or none", name.escape_ascii());
        let id = image.place;
        self.name_lock(id, hash, name);
        if let Some(holder) = &image.exclusive {
            self.check_holder(holder)?;
            let lock = &mut self.locks[id];
            (lock.token, lock.client) = (holder.token, holder.client);
            self.locks.side(id).since = holder.since;
            self.restore_hold(Ref::new(EntryKind::Lock, id), holder);
        }
        if !image.sharing.is_empty() || !image.waiting.is_empty() {
            let queue = self.queue_of(id);
            self.queues[queue].places = image.places;
        }
        for sharer in &image.sharing {
            self.restore_sharer(id, sharer)?;
        }
        for waiter in &image.waiting {
            self.restore_waiter(id, waiter)?;
        }
        Ok(())
    }

    fn check_holder(&self, holder: &HolderImage) -> Checked {
        let known = ClientId(holder.client).slot() < self.clients.len();
        let given = holder.token != 0 && holder.token < self.next_token;
        ensure!(known && given && holder.deadline != Some(NEVER) =>
            "token {} of client {} was never given", holder.token, holder.client);
        Ok(())
    }

    fn restore_hold(&mut self, entry: Ref, holder: &HolderImage) {
        self.held += 1;
        if let Some(deadline) = holder.deadline {
            self.leases += 1;
            self.set_deadline(entry, deadline);
        }
    }

    /// Restores a client's holds without a lease, in its order.
    fn restore_owned(&mut self, slot: u32, image: &ClientImage) -> Checked {
        for hold in &image.owned {
            let (kind, place, owner) = match *hold {
                HoldRef::Lock(place) => {
                    let held =
                        |lock: &&Lock| lock.used && lock.is_exclusive() && lock.deadline == NEVER;
                    let lock = self.locks.get(place).filter(held);
                    (EntryKind::Lock, place, lock.map(|lock| lock.client))
                }
                HoldRef::Claim(place) => {
                    let shares = |claim: &&Claim| claim.state == ClaimState::Sharing;
                    let claim = self.claims.get(place).filter(shares);
                    let claim = claim.filter(|claim| claim.deadline == NEVER);
                    (EntryKind::Claim, place, claim.map(|claim| claim.client))
                }
            };
            let own = owner == Some(image.id);
            ensure!(own => "client {} owns what is not its own", image.id);
            let entry = Ref::new(kind, place);
            // An entry that is in a list already appears twice in the image.
            let alone = self.links(entry).prev == Ref::NONE;
            ensure!(alone => "client {} owns what is not its own", image.id);
            self.link(Ref::new(EntryKind::Client, slot), entry);
        }
        Ok(())
    }

    /// Checks what only the whole image shows.
    fn check_totals(&self, image: &TableImage) -> Checked {
        let owned: usize = image.clients.iter().map(|client| client.owned.len()).sum();
        ensure!(owned as u64 == self.held - self.leases =>
            "{owned} holds are owned, and {} are no leases", self.held - self.leases);
        let mut tokens: Vec<u64> = image.holders().map(|holder| holder.token).collect();
        tokens.sort_unstable();
        let unique = tokens.is_sorted_by(|one, next| one < next);
        ensure!(unique => "two holds have one token");
        let waiters = image.waiters();
        let in_sessions = waiters.filter(|waiter| waiter.session.is_some()).count();
        let listed: usize = image.sessions.iter().map(|found| found.waiting.len()).sum();
        ensure!(in_sessions == listed =>
            "{in_sessions} wait in the name of sessions, and {listed} are listed");
        let over = self.closing.iter().filter_map(|found| found.session);
        let over = over.count();
        ensure!(over + self.by_key.len() == image.sessions.len() =>
            "a session that is over is not there");
        Ok(())
    }
}
