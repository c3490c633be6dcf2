//! The expected state, kept apart from the table and in other structures.

use super::super::accounts::{PLAIN, SESSION_BYTES, bytes_of};
use super::super::*;
use super::{Name, Violation};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The owner that a session's locks are booked to: no client has such a number.
pub(super) fn owner(session: u128) -> ClientId {
    ClientId(1 << 63 | session as u64)
}

/// The account that a client or session belongs to.
pub(super) fn account_of(owner: ClientId) -> usize {
    match owner.0 >> 63 {
        0 => owner.slot() % 3,
        _ => usize::from(owner.0 as u16) % 3,
    }
}

pub(super) fn key(session: u128) -> SessionKey {
    SessionKey {
        user: session as u16 % 3,
        id: session,
    }
}

/// The bytes that a hold, or a place in line, counts for: with a claim unless it is an exclusive
/// hold.
fn bytes_of_one(name: Name, claim: bool) -> u64 {
    bytes_of(super::bytes_of(name).len(), claim.into())
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) client: ClientId,
    pub(super) shared: bool,
    pub(super) deadline: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) client: ClientId,
    /// The owner that the lock is to have: the client, or its session.
    pub(super) owner: ClientId,
    pub(super) session: Option<u128>,
    pub(super) shared: bool,
    pub(super) ttl_ms: Option<u64>,
    pub(super) deadline: u64,
}

#[derive(Default)]
pub(super) struct Truth {
    /// Meaningful while anybody holds or waits.
    pub(super) places: u16,
    /// By token.
    pub(super) holds: BTreeMap<u64, Held>,
    /// By arrival.
    pub(super) queue: BTreeMap<u64, Queued>,
}

impl Truth {
    pub(super) fn has_place(&self) -> bool {
        self.places == 1 || self.holds.len() < self.places.into()
    }

    /// Checks the token and mode that an owner was told for its hold without a lease.
    pub(super) fn owns(&self, owner: ClientId, token: u64, mode: Mode) -> Result<(), Violation> {
        let held = self.holds.get(&token);
        let own = held.is_some_and(|held| held.client == owner && held.deadline == u64::MAX);
        let shared = held.is_some_and(|held| held.shared);
        ensure!(
            own && shared == (mode != Mode::Exclusive) && self.places == mode.places(),
            "{owner:?} is told that it holds {token}, {mode:?}; that is {held:?}"
        );
        Ok(())
    }
}

/// The expected state, kept apart from the table and in other structures.
#[derive(Default)]
pub(super) struct Witness {
    pub(super) locks: HashMap<Name, Truth>,
    /// The names that each wants, and when it came.
    pub(super) waiting: HashMap<ClientId, (Vec<Name>, u64)>,
    pub(super) owned: HashMap<ClientId, BTreeSet<(Name, u64)>>,
    pub(super) leases: BTreeSet<(u64, Name, u64)>,
    pub(super) waits: BTreeSet<(u64, Name, u64)>,
    /// Those that are open, with their deadlines and times to live in ms.
    pub(super) sessions: BTreeMap<u128, (u64, u64)>,
    /// How many wait in the name of each, unless none does.
    pub(super) in_name: BTreeMap<u128, u64>,
    /// How many of those wait for each name, by the session's owner; none: no entry.
    pub(super) in_name_for: HashMap<(ClientId, Name), u64>,
    pub(super) session_ends: BTreeSet<(u64, u128)>,
    pub(super) arrivals: u64,
    pub(super) accounts: [Amounts; 3],
    pub(super) last_token: u64,
    pub(super) holds: u64,
}

/// Returns from a check with this violation, unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds { return Err(format!($($text)+)); }
    };
}
pub(super) use ensure;

impl Witness {
    pub(super) fn grant(
        &mut self,
        name: Name,
        client: ClientId,
        token: u64,
        shared: bool,
        ttl_ms: Option<u64>,
        now: Time,
    ) -> Result<(), Violation> {
        ensure!(
            token > self.last_token,
            "token {token} after {}",
            self.last_token
        );
        self.last_token = token;
        let truth = self.locks.entry(name).or_default();
        let compatible = truth.holds.values().all(|held| held.shared && shared);
        ensure!(
            compatible && truth.has_place(),
            "two owners of {name}: {:?} and {client:?}",
            truth.holds
        );
        let twice = |held: &Held| held.client == client && held.deadline == u64::MAX;
        ensure!(
            ttl_ms.is_some() || !truth.holds.values().any(twice),
            "{client:?} holds {name} twice"
        );
        let deadline = ttl_ms.map_or(u64::MAX, |ttl| now.after_ms(ttl));
        truth.holds.insert(
            token,
            Held {
                client,
                shared,
                deadline,
            },
        );
        self.holds += 1;
        let has = &mut self.accounts[account_of(client)];
        has.locks += 1;
        has.bytes += bytes_of_one(name, shared);
        if ttl_ms.is_some() {
            self.leases.insert((deadline, name, token));
        } else {
            self.owned.entry(client).or_default().insert((name, token));
        }
        Ok(())
    }

    pub(super) fn end(&mut self, name: Name, token: u64) {
        let held = self
            .locks
            .get_mut(&name)
            .and_then(|truth| truth.holds.remove(&token));
        let held = held.expect("the witness ends only what it has seen begin");
        self.holds -= 1;
        let has = &mut self.accounts[account_of(held.client)];
        has.locks -= 1;
        has.bytes -= bytes_of_one(name, held.shared);
        self.leases.remove(&(held.deadline, name, token));
        if let Some(owned) = self.owned.get_mut(&held.client) {
            owned.remove(&(name, token));
        }
    }

    /// Takes a client out of its lines.
    pub(super) fn leave(&mut self, client: ClientId) -> Option<(Vec<Name>, Queued)> {
        let (names, arrival) = self.waiting.remove(&client)?;
        let mut left = None;
        for name in &names {
            let queued = self.locks.get_mut(name)?.queue.remove(&arrival)?;
            self.waits.remove(&(queued.deadline, *name, arrival));
            let has = &mut self.accounts[account_of(client)];
            has.waiters -= 1;
            has.bytes -= PLAIN + bytes_of_one(*name, true);
            left = Some(queued);
        }
        if let Some(session) = left.and_then(|queued| queued.session)
            && let Some(count) = self.in_name.get_mut(&session)
        {
            *count -= 1;
            if *count == 0 {
                self.in_name.remove(&session);
            }
            for name in &names {
                let key = (owner(session), *name);
                if let Some(count) = self.in_name_for.get_mut(&key) {
                    *count -= 1;
                    if *count == 0 {
                        self.in_name_for.remove(&key);
                    }
                }
            }
        }
        Some((names, left?))
    }

    /// Puts a client into the lines of these names.
    pub(super) fn enter(&mut self, names: Vec<Name>, queued: Queued) {
        if let Some(session) = queued.session {
            *self.in_name.entry(session).or_default() += 1;
            for name in &names {
                let key = (owner(session), *name);
                *self.in_name_for.entry(key).or_default() += 1;
            }
        }
        self.arrivals += 1;
        let arrival = self.arrivals;
        for name in &names {
            let truth = self.locks.entry(*name).or_default();
            truth.queue.insert(arrival, queued);
            self.waits.insert((queued.deadline, *name, arrival));
            let has = &mut self.accounts[account_of(queued.client)];
            has.waiters += 1;
            has.bytes += PLAIN + bytes_of_one(*name, true);
        }
        self.waiting.insert(queued.client, (names, arrival));
    }

    /// Ends the leases that have run out; returns the names that they held.
    pub(super) fn lapse(&mut self, now: Time) -> Vec<Name> {
        let mut names = Vec::new();
        while let Some(&(deadline, name, token)) = self.leases.first() {
            if deadline > now.0 {
                break;
            }
            self.end(name, token);
            names.push(name);
        }
        while let Some(&(deadline, session)) = self.session_ends.first() {
            if deadline > now.0 {
                break;
            }
            names.extend(self.end_session(session));
        }
        names
    }

    /// Sets the end of a session, new or not.
    pub(super) fn begin_session(&mut self, session: u128, ttl_ms: u64, now: Time) {
        let deadline = now.after_ms(ttl_ms);
        if let Some((old, _)) = self.sessions.insert(session, (deadline, ttl_ms)) {
            self.session_ends.remove(&(old, session));
        } else {
            let has = &mut self.accounts[account_of(owner(session))];
            has.sessions += 1;
            has.bytes += SESSION_BYTES;
        }
        self.session_ends.insert((deadline, session));
    }

    /// Ends a session that is open, and all it owns; returns the names.
    pub(super) fn end_session(&mut self, session: u128) -> Vec<Name> {
        let (deadline, _) = self.sessions.remove(&session).expect("it is open");
        self.session_ends.remove(&(deadline, session));
        let has = &mut self.accounts[account_of(owner(session))];
        has.sessions -= 1;
        has.bytes -= SESSION_BYTES;
        let owned = self.owned.remove(&owner(session)).unwrap_or_default();
        let end = |(name, token)| {
            self.end(name, token);
            name
        };
        owned.into_iter().map(end).collect()
    }

    /// Nobody waits in the name of a session that is over.
    pub(super) fn none_waits_in_vain(&self) -> Result<(), Violation> {
        for (session, count) in &self.in_name {
            ensure!(
                self.sessions.contains_key(session),
                "{count} wait in the name of {session}, which is over"
            );
        }
        Ok(())
    }

    pub(super) fn hear(&mut self, output: &Output, now: Time) -> Result<Vec<Name>, Violation> {
        let client = output.client;
        let Some((names, arrival)) = self.waiting.get(&client).cloned() else {
            return Err(format!(
                "{client:?} is told {:?} but does not wait",
                output.outcome
            ));
        };
        let first = names.iter().all(|name| self.is_first(*name, arrival));
        let Some((_, queued)) = self.leave(client) else {
            return Err(format!("{client:?} waits nowhere"));
        };
        let over = queued
            .session
            .is_some_and(|session| !self.sessions.contains_key(&session));
        ensure!(
            over == (output.outcome == Outcome::NoSession),
            "{queued:?} is told {:?}; its session is over: {over}",
            output.outcome
        );
        let (token, count) = match output.outcome {
            Outcome::NoSession => return Ok(names),
            Outcome::AlreadyHeld { token, mode, which } => {
                let at = match which {
                    Which::OfSession if names.len() == 1 => 0,
                    Which::OneOf {
                        at,
                        count,
                        of_session: true,
                    } if usize::from(count) == names.len() => usize::from(at),
                    other => return Err(format!("{client:?} is told {other:?}")),
                };
                self.locks[&names[at]].owns(queued.owner, token, mode)?;
                return Ok(names);
            }
            Outcome::TimedOut => {
                ensure!(
                    queued.deadline <= now.0,
                    "{client:?} timed out early: {queued:?}"
                );
                return Ok(names);
            }
            Outcome::Granted(token) => (token, 1),
            Outcome::GrantedAll { first, count } => (first, count as usize),
            Outcome::Refused(refusal) => return Err(format!("refused: {refusal:?}")),
        };
        ensure!(first, "{client:?} overtook on {names:?}");
        ensure!(count == names.len(), "{client:?}: {count} of {names:?}");
        for (name, token) in names.iter().zip(token..) {
            self.grant(
                *name,
                queued.owner,
                token,
                queued.shared,
                queued.ttl_ms,
                now,
            )?;
        }
        Ok(names)
    }

    pub(super) fn is_first(&self, name: Name, arrival: u64) -> bool {
        let first = self.locks[&name].queue.first_key_value();
        first.is_some_and(|(first, _)| *first == arrival)
    }

    /// No client waits for a lock that it could have, and no session for one that it has.
    pub(super) fn served(&self, name: Name) -> Result<(), Violation> {
        let Some(truth) = self.locks.get(&name) else {
            return Ok(());
        };
        for held in truth.holds.values() {
            let waits = self.in_name_for.contains_key(&(held.client, name));
            ensure!(!waits, "a session waits for {name}, which it has: {held:?}");
        }
        let Some((arrival, first)) = truth.queue.first_key_value() else {
            return Ok(());
        };
        let (names, _) = &self.waiting[&first.client];
        let blocked = if names.len() > 1 {
            let possible = |name: &Name| {
                let mut holds = self.locks[name].holds.values();
                holds.all(|held| held.shared && first.shared) && self.is_first(*name, *arrival)
            };
            !names.iter().all(possible)
        } else {
            let incompatible = |held: &Held| !held.shared || !first.shared;
            truth.holds.values().any(incompatible) || !truth.has_place()
        };
        ensure!(
            blocked,
            "{:?} waits for {names:?}, which it could have",
            first.client
        );
        Ok(())
    }
}
