//! A table made of what a store has kept: sessions and leases, whose connections are gone.

use std::collections::{BTreeMap, HashMap};

use super::image::{
    ClientImage, HoldRef, HolderImage, LockImage, SessionImage, SharerImage, TableImage,
};
use super::timers::Timers;
use super::{
    Amounts, BadImage, ClientId, Counters, HashKey, Limits, Mode, SessionKey, Table, Time,
};
use crate::store::{Owner, Stored};

impl Table {
    /// Adopts each session and lease with its whole TTL from now on, and a hundredth more,
    /// as the clocks of clients run at rates of their own. What connections hold goes on as
    /// a lease of `orphan_ms`; 0: it has ended with them. `number` is that of a user.
    ///
    /// Bounds of memory do not stop it: what was granted stays granted.
    ///
    /// # Errors
    /// No sound table can have left this.
    pub(crate) fn adopt(
        stored: &Stored,
        limits: Limits,
        first_token: u64,
        orphan_ms: u64,
        number: impl Fn(&str) -> u16,
        now: Time,
    ) -> Result<Self, BadImage> {
        let mut adoption = Adoption {
            now,
            orphan_ms,
            number,
            clients: vec![client(0, false, 0)],
            claims: 0,
            sessions: HashMap::new(),
            lessees: BTreeMap::new(),
            locks: BTreeMap::new(),
        };
        let sessions = stored.sessions.iter();
        let sessions =
            sessions.map(|(session, (ttl_ms, text))| adoption.session(session, *ttl_ms, text));
        let sessions = sessions.collect();
        for (token, hold) in &stored.holds {
            adoption.hold(*token, hold)?;
        }
        let accounts = adoption.clients.iter().map(|found| found.account);
        let accounts = usize::from(accounts.max().unwrap_or(0)) + 1;
        let mut locks: Vec<LockImage> = adoption.locks.into_values().collect();
        locks.sort_unstable_by_key(|lock| lock.place);
        let lessees = adoption.lessees.iter();
        let mut left: Vec<_> = lessees
            .map(|(account, slot)| (u64::from(*slot), *account))
            .collect();
        left.sort_unstable();
        // While any account has a bound, leases count for their users, as those of closed
        // connections do. The real bounds come with the users.
        let bound = Amounts {
            bytes: u64::MAX - 1,
            ..Amounts::ANY
        };
        let image = TableImage {
            at: now.0,
            key: HashKey::random(),
            tick: Timers::tick_of(now.0),
            next_token: first_token,
            tokens_end: first_token,
            counters: Counters::default(),
            accounts: vec![bound; accounts],
            left,
            evicted: Vec::new(),
            free_slots: adoption.lessees.values().copied().collect(),
            clients: adoption.clients,
            sessions,
            closing: Vec::new(),
            locks,
        };
        let boundless = Limits {
            memory_bytes: usize::MAX,
            ..limits
        };
        let mut table = Self::from_image(&image, boundless)?;
        table.limits = limits;
        Ok(table)
    }
}

/// An image in the making.
struct Adoption<N> {
    now: Time,
    orphan_ms: u64,
    number: N,
    clients: Vec<ClientImage>,
    claims: u32,
    /// The slots of sessions.
    sessions: HashMap<SessionKey, u32>,
    /// The slot whose former client is said to have taken the leases of an account. No
    /// client will have its number.
    lessees: BTreeMap<u16, u32>,
    locks: BTreeMap<Vec<u8>, LockImage>,
}

fn client(id: u64, open: bool, account: u16) -> ClientImage {
    ClientImage {
        id,
        open,
        account,
        told: 0,
        owned: Vec::new(),
    }
}

impl<N: Fn(&str) -> u16> Adoption<N> {
    fn end(&self, ttl_ms: u64) -> u64 {
        // The whole TTL, and 1 % of it.
        let ns = u128::from(ttl_ms) * 1_010_000;
        let end = u128::from(self.now.0) + ns;
        u64::try_from(end).unwrap_or(u64::MAX).min(u64::MAX - 1)
    }

    fn session(
        &mut self,
        session: &crate::store::Session,
        ttl_ms: u64,
        text: &str,
    ) -> SessionImage {
        let slot = self.clients.len() as u32;
        let user = (self.number)(&session.user);
        let key = SessionKey {
            user,
            id: session.id,
        };
        self.clients.push(client(slot.into(), true, user));
        self.sessions.insert(key, slot);
        self.claims += 1;
        SessionImage {
            place: slot - 1,
            key,
            client: slot.into(),
            ttl_ms,
            heartbeat: Some((slot - 1, self.end(ttl_ms))),
            waiting: Vec::new(),
            text: text.to_owned(),
        }
    }

    /// The owner of a hold, and its deadline; `None`: the hold has ended with its owner.
    fn owner(&mut self, owner: &Owner) -> Option<(u32, Option<u64>)> {
        match owner {
            Owner::Connection { user, .. } => {
                let orphan = (self.orphan_ms != 0).then(|| self.end(self.orphan_ms));
                orphan.map(|end| (self.lessee(user), Some(end)))
            }
            Owner::Session(session) => {
                let user = (self.number)(&session.user);
                let key = SessionKey {
                    user,
                    id: session.id,
                };
                self.sessions.get(&key).map(|slot| (*slot, None))
            }
            Owner::Lease { ttl_ms, user } => Some((self.lessee(user), Some(self.end(*ttl_ms)))),
        }
    }

    /// The slot whose former client has the leases of a user.
    fn lessee(&mut self, user: &str) -> u32 {
        let account = (self.number)(user);
        *self.lessees.entry(account).or_insert_with(|| {
            let slot = self.clients.len() as u32;
            let next = u64::from(slot) + (1 << ClientId::SLOT_BITS);
            self.clients.push(client(next, false, account));
            slot
        })
    }

    /// Adopts a hold; those of one lock come in the order of their tokens.
    fn hold(&mut self, token: u64, hold: &crate::store::Hold) -> Result<(), BadImage> {
        let Some((slot, deadline)) = self.owner(&hold.owner) else {
            return Ok(());
        };
        let place = self.locks.len() as u32;
        let lock = self.locks.entry(hold.name.clone());
        let lock = lock.or_insert_with(|| LockImage {
            place,
            name: hold.name.clone(),
            exclusive: None,
            places: hold.mode.places(),
            sharing: Vec::new(),
            waiting: Vec::new(),
        });
        let holder = HolderImage {
            token,
            client: slot.into(),
            deadline,
            // When it began was lost with the clock of the boot before.
            since: self.now.0,
        };
        let sole = hold.mode == Mode::Exclusive;
        let taken = lock.exclusive.is_some() || sole && !lock.sharing.is_empty();
        if taken || lock.places != hold.mode.places() {
            return Err(BadImage::excluded(&hold.name));
        }
        let entry = match sole {
            true => {
                lock.exclusive = Some(holder);
                HoldRef::Lock(lock.place)
            }
            false => {
                let (place, hold) = (self.claims, holder);
                lock.sharing.push(SharerImage { place, hold });
                self.claims += 1;
                HoldRef::Claim(place)
            }
        };
        if deadline.is_none() {
            self.clients[slot as usize].owned.push(entry);
        }
        Ok(())
    }
}
