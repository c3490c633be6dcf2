//! The locks and places in line that each account has at a time.
//!
//! An account is a number; the caller knows its user. Holds are counted only while any
//! account has a bound, so that tables without bounds pay only for checking that.
//! Setting the first bound counts all existing holds in one step.

use super::entries::ClaimState;
use super::{ClientId, Quota, Refusal, Table};

/// What the clients of one user have together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    max_locks: u32,
    max_waiters: u32,
    locks: u32,
    waiters: u32,
}

impl Account {
    pub(super) const UNBOUND: Self = Self {
        max_locks: u32::MAX,
        max_waiters: u32::MAX,
        locks: 0,
        waiters: 0,
    };

    /// The most locks and the most waiters of this user.
    pub(super) fn bounds(&self) -> (u32, u32) {
        (self.max_locks, self.max_waiters)
    }

    /// Whether its locks have a bound.
    fn is_bound(&self) -> bool {
        self.max_locks != u32::MAX
    }

    /// One that has nothing yet.
    pub(super) fn bound_by((max_locks, max_waiters): (u32, u32)) -> Self {
        Self {
            max_locks,
            max_waiters,
            ..Self::UNBOUND
        }
    }
}

impl Table {
    /// Sets the bounds of an account; `None`: none.
    pub(super) fn set_quota(&mut self, quota: Quota) {
        self.account(quota.account);
        let found = &mut self.accounts[usize::from(quota.account)];
        self.bound_accounts -= u32::from(found.is_bound());
        found.max_locks = quota.locks.unwrap_or(u32::MAX);
        found.max_waiters = quota.waiters.unwrap_or(u32::MAX);
        self.bound_accounts += u32::from(found.is_bound());
        let quotas = self.bound_accounts > 0;
        if quotas && !self.quotas {
            self.book_all();
        }
        self.quotas = quotas;
        if !quotas {
            // Closed clients are no longer kept for the count.
            for slot in 0..self.clients.len() {
                if self.clients[slot].lingers {
                    self.free_client(slot as u32);
                }
            }
        }
    }

    /// Books a client, and what it has, to an account.
    pub(super) fn enlist(&mut self, client: ClientId, account: u16) {
        self.account(account);
        let found = &mut self.clients[client.slot()];
        let before = std::mem::replace(&mut found.account, account);
        if self.quotas {
            self.accounts[usize::from(before)].locks -= found.held;
            self.accounts[usize::from(account)].locks += found.held;
        }
    }

    /// Makes room for an account.
    fn account(&mut self, account: u16) {
        let count = self.accounts.len().max(usize::from(account) + 1);
        self.accounts.resize(count, Account::UNBOUND);
    }

    /// Why a client may not ask for `count` locks more. A place in line counts as
    /// a lock, so that no grant can exceed the bound later.
    #[inline]
    pub(super) fn over_quota(&self, client: ClientId, count: u32) -> Option<Refusal> {
        let account = &self.accounts[usize::from(self.clients[client.slot()].account)];
        let has = account.locks.saturating_add(account.waiters);
        let over = has.saturating_add(count) > account.max_locks;
        over.then_some(Refusal::QuotaLocks(account.max_locks))
    }

    /// Why a client may not wait in `count` lines more.
    pub(super) fn over_waiters(&self, client: ClientId, count: u32) -> Option<Refusal> {
        let account = &self.accounts[usize::from(self.clients[client.slot()].account)];
        let over = account.waiters.saturating_add(count) > account.max_waiters;
        over.then_some(Refusal::QuotaWaiters(account.max_waiters))
    }

    /// Counts a place in line.
    pub(super) fn book_wait(&mut self, client: u64, begins: bool) {
        let account = self.clients[ClientId(client).slot()].account;
        let waiters = &mut self.accounts[usize::from(account)].waiters;
        *waiters = if begins { *waiters + 1 } else { *waiters - 1 };
    }

    /// Counts a hold that begins.
    #[inline]
    pub(super) fn book_hold(&mut self, client: u64) {
        if self.quotas {
            self.book(client);
        }
    }

    #[inline(always)]
    fn book(&mut self, client: u64) {
        let found = &mut self.clients[ClientId(client).slot()];
        // The client may be gone; then its account had no bound.
        if found.id == client {
            found.held += 1;
            self.accounts[usize::from(found.account)].locks += 1;
        }
    }

    /// Counts a hold that has ended.
    #[inline]
    pub(super) fn book_end(&mut self, client: u64) {
        if !self.quotas {
            return;
        }
        let slot = ClientId(client).slot();
        let found = &mut self.clients[slot];
        if found.id != client {
            return;
        }
        found.held -= 1;
        self.accounts[usize::from(found.account)].locks -= 1;
        if found.lingers && found.held == 0 {
            self.free_client(slot as u32);
        }
    }

    /// Begins to count if any account has a bound; every lingering client must then
    /// have a hold. False: one has none.
    pub(super) fn book_restored(&mut self) -> bool {
        let bound = self.accounts.iter().filter(|account| account.is_bound());
        self.bound_accounts = bound.count() as u32;
        self.quotas = self.bound_accounts > 0;
        if self.quotas {
            self.book_all();
        }
        let counted = |client: &super::Client| !client.lingers || client.held > 0;
        self.clients.iter().all(counted)
    }

    /// Counts all holds that there are, as the first bound is set.
    fn book_all(&mut self) {
        self.accounts
            .iter_mut()
            .for_each(|account| account.locks = 0);
        self.clients.iter_mut().for_each(|client| client.held = 0);
        for id in 0..self.locks.touched() {
            let lock = &self.locks[id];
            if lock.used && lock.exclusive {
                self.book(lock.client);
            }
        }
        for id in 0..self.claims.touched() {
            let claim = &self.claims[id];
            if claim.state == ClaimState::Sharing {
                self.book(claim.client);
            }
        }
    }

    /// Lets go of a closed client, or, if its account has a bound and it leaves
    /// leases behind, keeps it until they have ended.
    pub(super) fn dismiss(&mut self, slot: u32) {
        if !self.quotas {
            return self.free_client(slot);
        }
        let client = &mut self.clients[slot as usize];
        let account = &mut self.accounts[usize::from(client.account)];
        let bound = account.is_bound();
        if client.held > 0 && bound {
            client.lingers = true;
            return;
        }
        account.locks -= client.held;
        self.free_client(slot);
    }

    /// Locks and places in line that an account has.
    #[cfg(test)]
    pub(super) fn account_has(&self, account: u16) -> (u32, u32) {
        let account = &self.accounts[usize::from(account)];
        (account.locks, account.waiters)
    }
}
