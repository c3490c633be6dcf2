//! The use of each account at a time: locks, places in line, sessions, memory of the table.
//!
//! An account is a number; the caller knows its user. Holds and bytes are counted only
//! while any account has a bound of them, so that tables without bounds pay only for
//! checking that. Setting the first bound counts everything in one step.

use serde::{Deserialize, Serialize};

use super::entries::{Block, Claim, ClaimState, EntryKind, Lock, Queue, Ref, Side, blocks_for};
use super::sessions::{Session, TEXT_MAX};
use super::{Amounts, ClientId, Quota, Refusal, Table};

/// The use that the clients of one user make together, and its limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    pub(super) has: Amounts,
    pub(super) most: Amounts,
}

impl Account {
    pub(super) const UNBOUND: Self = Self {
        has: Amounts::NONE,
        most: Amounts::ANY,
    };

    /// Whether its holds have to be counted.
    fn is_bound(&self) -> bool {
        self.most.locks != u32::MAX || self.most.bytes != u64::MAX
    }

    /// Why it may not have `count` locks and so many bytes more. A place in line counts
    /// as a lock, so that no grant can exceed the bound later.
    #[inline]
    fn over(&self, count: u32, bytes: u64) -> Option<Refusal> {
        let locks = self.has.locks.saturating_add(self.has.waiters);
        if locks.saturating_add(count) > self.most.locks {
            return Some(Refusal::QuotaLocks(self.most.locks));
        }
        let plain = u64::from(self.has.locks) * PLAIN;
        let over = (self.has.bytes + plain).saturating_add(bytes) > self.most.bytes;
        over.then_some(Refusal::QuotaBytes(self.most.bytes))
    }
}

/// A closed client whose leases still run and count. It needs no slot: a user could take
/// all of them with leases of connections that are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(super) account: u16,
    pub(super) held: u32,
    pub(super) bytes: u64,
}

/// Bytes of a hold with a short name, 8 of them its share of the index. They are counted by
/// the number of locks, so that most holds change no other count.
pub(super) const PLAIN: u64 = (size_of::<Lock>() + size_of::<Side>() + 8) as u64;

/// Bytes beyond [`PLAIN`] of a hold, or of a place in line, with a name of this length.
/// Waiters and sharers pay for the name each, since any of them can be the last one.
#[inline]
pub(super) fn bytes_of(name_len: usize, claims: usize) -> u64 {
    let names = blocks_for(name_len) * size_of::<Block>();
    (names + claims * (size_of::<Claim>() + size_of::<Queue>())) as u64
}

/// Bytes of a session, with its timer and the longest text.
pub(super) const SESSION_BYTES: u64 = (size_of::<Session>() + size_of::<Claim>() + TEXT_MAX) as u64;

impl Table {
    /// Sets the bounds of an account.
    pub(super) fn set_quota(&mut self, quota: Quota) {
        let found = self.account(quota.account);
        let before = found.is_bound();
        found.most = quota.most;
        let after = found.is_bound();
        self.bound_accounts = self.bound_accounts + u32::from(after) - u32::from(before);
        let quotas = self.bound_accounts > 0;
        if quotas && !self.quotas {
            self.book_all();
        }
        self.quotas = quotas;
        self.note_books();
        if !quotas {
            self.left.clear();
        }
    }

    /// Books a client, and what it has, to an account.
    pub(super) fn enlist(&mut self, client: ClientId, account: u16) {
        self.account(account);
        let found = &mut self.clients[client.slot()];
        let before = std::mem::replace(&mut found.account, account);
        let (held, bytes) = (found.held, found.bytes);
        if self.quotas {
            self.accounts[usize::from(before)].has.locks -= held;
            self.accounts[usize::from(before)].has.bytes -= bytes;
            self.accounts[usize::from(account)].has.locks += held;
            self.accounts[usize::from(account)].has.bytes += bytes;
        }
    }

    /// An account, and room for it.
    pub(super) fn account(&mut self, account: u16) -> &mut Account {
        let count = self.accounts.len().max(usize::from(account) + 1);
        self.accounts.resize(count, Account::UNBOUND);
        &mut self.accounts[usize::from(account)]
    }

    fn account_of(&self, client: ClientId) -> &Account {
        &self.accounts[usize::from(self.clients[client.slot()].account)]
    }

    /// Why a client may not ask for these locks as well.
    #[inline(never)]
    pub(super) fn over_quota(&self, client: ClientId, names: &[&[u8]]) -> Option<Refusal> {
        let bytes = names
            .iter()
            .map(|name| PLAIN + bytes_of(name.len(), 1))
            .sum();
        self.account_of(client).over(names.len() as u32, bytes)
    }

    /// Why a client may not wait in `count` lines more.
    pub(super) fn over_waiters(&self, client: ClientId, count: u32) -> Option<Refusal> {
        let account = self.account_of(client);
        let over = account.has.waiters.saturating_add(count) > account.most.waiters;
        over.then_some(Refusal::QuotaWaiters(account.most.waiters))
    }

    /// Why an account may not open one more session.
    pub(super) fn over_sessions(&mut self, account: u16) -> Option<Refusal> {
        let quotas = self.quotas;
        let found = self.account(account);
        if found.has.sessions >= found.most.sessions {
            return Some(Refusal::QuotaSessions(found.most.sessions));
        }
        found.over(0, SESSION_BYTES).filter(|_| quotas)
    }

    /// Counts a session, from its begin until nothing of it is left.
    pub(super) fn book_session(&mut self, account: u16, begins: bool) {
        let bytes = if self.quotas { SESSION_BYTES } else { 0 };
        let has = &mut self.account(account).has;
        count(&mut has.sessions, 1, begins);
        count(&mut has.bytes, bytes, begins);
    }

    /// Counts a place in line.
    pub(super) fn book_wait(&mut self, claim: u32, begins: bool) {
        let (client, bytes) = self.booked_to(Ref::new(EntryKind::Claim, claim));
        let account = self.clients[ClientId(client).slot()].account;
        let has = &mut self.accounts[usize::from(account)].has;
        count(&mut has.waiters, 1, begins);
        if self.quotas {
            count(&mut has.bytes, PLAIN + bytes, begins);
        }
    }

    /// The client that a hold or wait is booked to, and its bytes.
    #[inline]
    fn booked_to(&self, entry: Ref) -> (u64, u64) {
        if entry.kind() == EntryKind::Lock {
            let lock = &self.locks[entry.index()];
            return (lock.client, bytes_of(lock.name_len(), 0));
        }
        let claim = &self.claims[entry.index()];
        (claim.client, bytes_of(self.locks[claim.lock].name_len(), 1))
    }

    /// Counts a hold that begins.
    #[inline]
    pub(super) fn book_hold(&mut self, entry: Ref) {
        if self.quotas {
            self.book(entry);
        }
    }

    fn book(&mut self, entry: Ref) {
        let (client, bytes) = self.booked_to(entry);
        let found = &mut self.clients[ClientId(client).slot()];
        // The client may be gone; then it left when nothing was counted.
        if found.id == client {
            let has = &mut self.accounts[usize::from(found.account)].has;
            found.held += 1;
            has.locks += 1;
            if bytes != 0 {
                found.bytes += bytes;
                has.bytes += bytes;
            }
        }
    }

    /// Counts a hold that ends.
    #[inline]
    pub(super) fn book_end(&mut self, entry: Ref) {
        if self.quotas {
            self.unbook(entry);
        }
    }

    fn unbook(&mut self, entry: Ref) {
        let (client, bytes) = self.booked_to(entry);
        let found = &mut self.clients[ClientId(client).slot()];
        let account = if found.id == client {
            found.held -= 1;
            if bytes != 0 {
                found.bytes -= bytes;
            }
            found.account
        } else if let Some(left) = self.left.get_mut(&client) {
            let account = left.account;
            left.held -= 1;
            left.bytes -= bytes;
            if left.held == 0 {
                self.left.remove(&client);
            }
            account
        } else {
            return;
        };
        let has = &mut self.accounts[usize::from(account)].has;
        has.locks -= 1;
        if bytes != 0 {
            has.bytes -= bytes;
        }
    }

    /// Begins to count if any account has a bound; each closed client that is remembered
    /// must then have a hold. False: one has none.
    pub(super) fn book_restored(&mut self) -> bool {
        let bound = self.accounts.iter().filter(|account| account.is_bound());
        self.bound_accounts = bound.count() as u32;
        self.quotas = self.bound_accounts > 0;
        self.note_books();
        if self.quotas {
            self.book_all();
        }
        self.left.values().all(|left| left.held > 0)
    }

    /// Counts everything that there is, as the first bound is set.
    fn book_all(&mut self) {
        for account in &mut self.accounts {
            (account.has.locks, account.has.bytes) = (0, 0);
        }
        for client in &mut self.clients {
            (client.held, client.bytes) = (0, 0);
        }
        for id in 0..self.locks.touched() {
            if self.locks[id].used && self.locks[id].is_exclusive() {
                self.book_anew(Ref::new(EntryKind::Lock, id));
            }
        }
        for id in 0..self.claims.touched() {
            let entry = Ref::new(EntryKind::Claim, id);
            match self.claims[id].state {
                ClaimState::Sharing => self.book_anew(entry),
                ClaimState::Waiting => {
                    let (client, bytes) = self.booked_to(entry);
                    let account = self.clients[ClientId(client).slot()].account;
                    self.account(account).has.bytes += PLAIN + bytes;
                }
                ClaimState::Heartbeat | ClaimState::Vacant => {}
            }
        }
        for account in &mut self.accounts {
            account.has.bytes += u64::from(account.has.sessions) * SESSION_BYTES;
        }
    }

    /// Counts a hold of a client that may have left.
    fn book_anew(&mut self, entry: Ref) {
        let (client, bytes) = self.booked_to(entry);
        self.book(entry);
        if let Some(left) = self.left.get_mut(&client) {
            left.held += 1;
            left.bytes += bytes;
            let has = &mut self.accounts[usize::from(left.account)].has;
            has.locks += 1;
            has.bytes += bytes;
        }
    }

    /// Lets go of a closed client; leases that it leaves behind go on counting.
    pub(super) fn dismiss(&mut self, slot: u32) {
        let client = &self.clients[slot as usize];
        if self.quotas && client.held > 0 {
            let left = Left {
                account: client.account,
                held: client.held,
                bytes: client.bytes,
            };
            self.left.insert(client.id, left);
        }
        self.free_client(slot);
    }

    /// The use of an account.
    #[cfg(test)]
    pub(super) fn account_has(&self, account: u16) -> Amounts {
        self.accounts[usize::from(account)].has
    }
}

/// Adds to a count, or takes from it.
fn count<N: std::ops::AddAssign + std::ops::SubAssign>(place: &mut N, number: N, begins: bool) {
    match begins {
        true => *place += number,
        false => *place -= number,
    }
}
