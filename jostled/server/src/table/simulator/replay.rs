//! The journal, replayed as a store does, must give what the table has.

use std::collections::HashMap;

use super::super::entries::{ClaimState, NEVER};
use super::super::journal::Owner;
use super::super::*;
use super::Violation;
use super::witness::ensure;
use crate::store::{self, Entry, Stored};

/// The journal so far.
#[derive(Default)]
pub(super) struct Replay {
    stored: Stored,
    /// When each lease began, and how long it is.
    leases: HashMap<u64, (Time, u64)>,
}

fn user(number: u16) -> String {
    format!("user {number}")
}

impl Replay {
    /// Applies what a step has recorded, and compares numbers with the table, and each hold
    /// and session if that is to be `thorough`.
    pub(super) fn follow(
        &mut self,
        table: &mut Table,
        now: Time,
        thorough: bool,
    ) -> Result<(), Violation> {
        for record in table.take_records() {
            self.apply(record, now)?;
        }
        let (holds, sessions) = (self.stored.holds.len(), self.stored.sessions.len());
        ensure!(
            table.holds() == holds as u64 && table.by_key.len() == sessions,
            "{} holds and {} sessions, and {holds} and {sessions} in the journal",
            table.holds(),
            table.by_key.len()
        );
        if !thorough {
            return Ok(());
        }
        let mut held = 0;
        for (_, lock) in table.locks.iter().filter(|(_, lock)| lock.used) {
            if lock.is_exclusive() {
                held += 1;
                let hold = (lock.token, lock.client, lock.deadline);
                self.has(table, lock, hold, Mode::Exclusive)?;
            }
            let queue = table.queue(lock);
            for (_, claim) in table.line(queue.sharing.head) {
                held += 1;
                let hold = (claim.token, claim.client, claim.deadline);
                self.has(table, lock, hold, queue.shared_mode())?;
            }
        }
        ensure!(
            held == self.stored.holds.len(),
            "{held} holds, and {} in the journal",
            self.stored.holds.len()
        );
        for (key, place) in &table.by_key {
            let session = store::Session {
                user: user(key.user),
                id: key.id,
            };
            let ttl_ms = self.stored.sessions.get(&session);
            ensure!(
                ttl_ms.map(|(ttl_ms, _)| *ttl_ms) == Some(table.sessions[*place].ttl_ms),
                "a session of {ttl_ms:?} in the journal"
            );
            let heartbeat = &table.claims[table.sessions[*place].heartbeat];
            ensure!(heartbeat.state == ClaimState::Heartbeat, "a lost heartbeat");
        }
        Ok(())
    }

    fn apply(&mut self, record: Record, now: Time) -> Result<(), Violation> {
        let (token, leased) = (record.token, record.owner == Owner::Lease);
        let known = self.stored.holds.get(&token);
        let as_before = match record.change {
            Change::Begun { ttl_ms, .. } => {
                if leased {
                    self.leases.insert(token, (now, ttl_ms));
                }
                known.is_none() && leased == (ttl_ms != 0)
            }
            Change::Renewed { ttl_ms } => {
                let lease = self.leases.insert(token, (now, ttl_ms));
                known.is_some() && lease.is_some()
            }
            Change::Ended(_) => {
                let lease = self.leases.remove(&token);
                known.is_some() && lease.is_some() == leased
            }
            Change::Opened { .. } | Change::Closed | Change::Together { .. } => true,
        };
        ensure!(as_before, "{record:?} after {known:?}");
        self.stored.apply(&Entry::from_record(record, user));
        Ok(())
    }

    /// Whether it has this hold: token, client and deadline. A lease may be stored as
    /// longer than it is, at most twice.
    fn has(
        &self,
        table: &Table,
        lock: &entries::Lock,
        (token, client, deadline): (u64, u64, u64),
        mode: Mode,
    ) -> Result<(), Violation> {
        let found = self.stored.holds.get(&token);
        let Some(found) =
            found.filter(|found| found.mode == mode && lock.has_name(&table.blocks, &found.name))
        else {
            return Err(format!("token {token} is {found:?} in the journal"));
        };
        let slot = &table.clients[ClientId(client).slot()];
        let right = match &found.owner {
            store::Owner::Connection { number, .. } => {
                *number == client && deadline == NEVER && slot.session == slab::NIL
            }
            store::Owner::Session(session) => {
                let key = table.sessions.get(slot.session).map(|found| found.key);
                deadline == NEVER
                    && key.map(|key| (user(key.user), key.id))
                        == Some((session.user.clone(), session.id))
            }
            store::Owner::Lease { ttl_ms, .. } => {
                let (since, last_ms) = self.leases[&token];
                let fits = last_ms <= *ttl_ms && *ttl_ms / 2 <= last_ms;
                fits && since.after_ms(last_ms) == deadline
            }
        };
        ensure!(right, "token {token} ends at {deadline}: {found:?}");
        Ok(())
    }
}
