//! The naive model: lists that are searched from end to end, so plainly that they can be
//! checked by reading.

use super::super::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// The client that asked for it.
    pub(super) by: ClientId,
    pub(super) client: ClientId,
    pub(super) token: u64,
    /// Its place among several locks that were granted together.
    pub(super) order: usize,
    pub(super) shared: bool,
    pub(super) deadline: Option<u64>,
}

impl Hold {
    pub(super) fn is_owned_by(&self, client: ClientId) -> bool {
        self.client == client && self.deadline.is_none()
    }

    pub(super) fn already_held(&self, of: u16, which: Which) -> Option<Outcome> {
        let mode = match of {
            _ if !self.shared => Mode::Exclusive,
            1 => Mode::Shared,
            of => Mode::Place { of },
        };
        let token = self.token;
        Some(Outcome::AlreadyHeld { token, mode, which })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) client: ClientId,
    /// The names that it wants together, including this one; empty: this one alone.
    pub(super) group: Vec<Vec<u8>>,
    /// The session that is to own it.
    pub(super) session: Option<u128>,
    pub(super) shared: bool,
    pub(super) ttl_ms: Option<u64>,
    pub(super) deadline: Option<u64>,
}

/// The owner that a session's locks are booked to: no client has such a number.
pub(super) fn owner(session: u128) -> ClientId {
    ClientId(1 << 63 | session as u64)
}

#[derive(Default, Debug)]
pub(super) struct NaiveLock {
    /// Meaningful while there are holds or waits.
    pub(super) places: u16,
    pub(super) holds: Vec<Hold>,
    pub(super) waits: Vec<Wait>,
}

/// The model does not invent tokens; it takes those that the table gave, in
/// the order in which it grants itself, and checks that they grow.
#[derive(Default)]
pub(super) struct Naive {
    pub(super) locks: BTreeMap<Vec<u8>, NaiveLock>,
    /// Those that are open: times to live in ms, and deadlines.
    pub(super) sessions: BTreeMap<u128, (u64, u64)>,
}

/// The outputs that the model expects for others; the tokens are filled in later.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Notice {
    Granted,
    AlreadyHeld,
    NoSession,
    TimedOut,
}

pub(super) type Notices = Vec<(ClientId, Notice)>;

impl Naive {
    pub(super) fn advance(&mut self, now: Time, told: &mut Notices) {
        loop {
            let deadlines = self.locks.values().flat_map(|lock| {
                let holds = lock.holds.iter().filter_map(|hold| hold.deadline);
                holds.chain(lock.waits.iter().filter_map(|wait| wait.deadline))
            });
            let ends = self.sessions.values().map(|(_, deadline)| *deadline);
            let Some(due) = deadlines.chain(ends).min().filter(|due| *due <= now.0) else {
                return;
            };
            let over = |(_, (_, deadline)): &(&u128, &(u64, u64))| *deadline == due;
            let ended = self.sessions.iter().filter(over);
            let ended: Vec<u128> = ended.map(|(session, _)| *session).collect();
            for session in ended {
                self.end_session(session, told);
            }
            for lock in self.locks.values_mut() {
                lock.holds.retain(|hold| hold.deadline != Some(due));
                for wait in lock.waits.extract_if(.., |wait| wait.deadline == Some(due)) {
                    // Once, in however many lines it stood.
                    let end = (wait.client, Notice::TimedOut);
                    if !told.contains(&end) {
                        told.push(end);
                    }
                }
            }
            self.serve(now, told);
        }
    }

    pub(super) fn end_session(&mut self, session: u128, told: &mut Notices) {
        self.sessions.remove(&session);
        for lock in self.locks.values_mut() {
            lock.holds.retain(|hold| hold.client != owner(session));
            let its = |wait: &mut Wait| wait.session == Some(session);
            for wait in lock.waits.extract_if(.., its) {
                // Once, in however many lines it stood.
                let end = (wait.client, Notice::NoSession);
                if !told.contains(&end) {
                    told.push(end);
                }
            }
        }
    }

    /// Whether the first in line can be served.
    pub(super) fn is_ready(&self, name: &[u8]) -> bool {
        let lock = &self.locks[name];
        let Some(first) = lock.waits.first() else {
            return false;
        };
        let can_have = |lock: &NaiveLock| {
            let sharing = lock.holds.iter().all(|hold| hold.shared);
            let place = lock.places == 1 || lock.holds.len() < lock.places.into();
            lock.holds.is_empty() || (sharing && first.shared && place)
        };
        first.group.iter().all(|name| {
            let lock = &self.locks[name];
            let head = lock.waits.first();
            can_have(lock) && head.is_some_and(|wait| wait.client == first.client)
        }) && can_have(lock)
    }

    pub(super) fn serve(&mut self, now: Time, told: &mut Notices) {
        loop {
            let names: Vec<Vec<u8>> = self.locks.keys().cloned().collect();
            let Some(name) = names.into_iter().find(|name| self.is_ready(name)) else {
                break;
            };
            let first = self.locks[&name].waits[0].clone();
            let names = match &first.group[..] {
                [] => vec![name],
                group => group.to_vec(),
            };
            told.push((first.client, Notice::Granted));
            for (order, name) in names.iter().enumerate() {
                let lock = self.locks.get_mut(name).unwrap();
                let wait = lock.waits.remove(0);
                lock.holds.push(Hold {
                    by: wait.client,
                    client: wait.session.map_or(wait.client, owner),
                    token: 0,
                    order,
                    shared: wait.shared,
                    deadline: wait.ttl_ms.map(|ttl| now.after_ms(ttl)),
                });
            }
            // What else waits in its session's name for one of them waits no more, for none.
            let waits = names.iter().flat_map(|name| &self.locks[name].waits);
            let same = waits.filter(|wait| wait.session.is_some() && wait.session == first.session);
            let others: std::collections::BTreeSet<ClientId> =
                same.map(|wait| wait.client).collect();
            for other in others {
                told.push((other, Notice::AlreadyHeld));
                self.leave(other, false);
            }
        }
        self.locks
            .retain(|_, lock| !lock.holds.is_empty() || !lock.waits.is_empty());
    }

    /// As [`Naive::lock`], of several.
    pub(super) fn lock_all(&mut self, request: LockAllRequest<'_>, now: Time) -> Option<Outcome> {
        let (client, names) = (request.client, request.names);
        let session = request.session.map(|key| key.id);
        if session.is_some_and(|session| !self.sessions.contains_key(&session)) {
            return Some(Outcome::NoSession);
        }
        let owned_by = session.map_or(client, owner);
        for (at, name) in (0..).zip(names) {
            let Some(lock) = self.locks.get(*name) else {
                continue;
            };
            let mut holds = lock.holds.iter();
            if lock.places != 1 {
                return Some(Outcome::Refused(Refusal::Places(lock.places)));
            }
            if let Some(hold) = holds.find(|hold| hold.is_owned_by(owned_by)) {
                let which = Which::OneOf {
                    at,
                    count: names.len() as u16,
                    of_session: session.is_some(),
                };
                return hold.already_held(lock.places, which);
            }
        }
        let free = names.iter().all(|name| {
            self.locks.get(*name).is_none_or(|lock| {
                let mut holds = lock.holds.iter();
                lock.waits.is_empty() && holds.all(|hold| hold.shared && request.shared)
            })
        });
        if !free && request.wait_ms == Some(0) {
            return Some(Outcome::TimedOut);
        }
        for (order, name) in names.iter().enumerate() {
            let lock = self.locks.entry(name.to_vec()).or_default();
            lock.places = 1;
            if free {
                lock.holds.push(Hold {
                    by: client,
                    client: owned_by,
                    token: 0,
                    order,
                    shared: request.shared,
                    deadline: request.ttl_ms.map(|ttl| now.after_ms(ttl)),
                });
            } else {
                lock.waits.push(Wait {
                    client,
                    group: names.iter().map(|name| name.to_vec()).collect(),
                    session,
                    shared: request.shared,
                    ttl_ms: request.ttl_ms,
                    deadline: request.wait_ms.map(|wait| now.after_ms(wait)),
                });
            }
        }
        if free {
            let count = names.len() as u32;
            Some(Outcome::GrantedAll { first: 0, count })
        } else {
            None
        }
    }

    /// The reply that the table must give, except for the token.
    pub(super) fn lock(&mut self, request: LockRequest<'_>, now: Time) -> Option<Outcome> {
        let session = request.session.map(|key| key.id);
        if session.is_some_and(|session| !self.sessions.contains_key(&session)) {
            return Some(Outcome::NoSession);
        }
        let lock = self.locks.entry(request.name.to_vec()).or_default();
        let shared = request.mode != Mode::Exclusive;
        let client = session.map_or(request.client, owner);
        if lock.holds.is_empty() && lock.waits.is_empty() {
            lock.places = request.mode.places();
        }
        if lock.places != request.mode.places() {
            return Some(Outcome::Refused(Refusal::Places(lock.places)));
        }
        let mut holds = lock.holds.iter();
        if let Some(hold) = holds.find(|hold| hold.is_owned_by(client)) {
            return hold.already_held(lock.places, request.which());
        }
        let place = lock.places == 1 || lock.holds.len() < lock.places.into();
        let compatible = lock.holds.iter().all(|hold| hold.shared && shared) && place;
        if compatible && lock.waits.is_empty() {
            let deadline = request.ttl_ms.map(|ttl| now.after_ms(ttl));
            lock.holds.push(Hold {
                by: request.client,
                client,
                token: 0,
                order: 0,
                shared,
                deadline,
            });
            return Some(Outcome::Granted(0));
        }
        if request.wait_ms == Some(0) {
            return Some(Outcome::TimedOut);
        }
        let deadline = request.wait_ms.map(|wait| now.after_ms(wait));
        lock.waits.push(Wait {
            client: request.client,
            session,
            group: Vec::new(),
            shared,
            ttl_ms: request.ttl_ms,
            deadline,
        });
        None
    }

    pub(super) fn unlock(
        &mut self,
        client: ClientId,
        name: &[u8],
        token: Option<u64>,
    ) -> Result<(), NotReleased> {
        let Some(lock) = self
            .locks
            .get_mut(name)
            .filter(|lock| !lock.holds.is_empty())
        else {
            return Err(NotReleased::NotHeld);
        };
        let meant = |hold: &Hold| match token {
            Some(token) => hold.token == token,
            None => hold.client == client,
        };
        let mut candidates: Vec<usize> = (0..lock.holds.len())
            .filter(|&at| meant(&lock.holds[at]))
            .collect();
        candidates.sort_by_key(|&at| (lock.holds[at].deadline.is_none(), lock.holds[at].token));
        match candidates.last() {
            None => Err(NotReleased::NotOwner),
            Some(&at) => {
                lock.holds.remove(at);
                Ok(())
            }
        }
    }

    pub(super) fn renew(
        &mut self,
        name: &[u8],
        token: u64,
        deadline: u64,
    ) -> Result<(), NotRenewed> {
        let lock = self.locks.get_mut(name);
        let hold = lock.and_then(|lock| lock.holds.iter_mut().find(|hold| hold.token == token));
        match hold {
            None => Err(NotRenewed::NotOwner),
            Some(Hold { deadline: None, .. }) => Err(NotRenewed::NoLease),
            Some(hold) => {
                hold.deadline = Some(deadline);
                Ok(())
            }
        }
    }

    pub(super) fn leave(&mut self, client: ClientId, closed: bool) {
        for lock in self.locks.values_mut() {
            lock.waits.retain(|wait| wait.client != client);
            if closed {
                lock.holds
                    .retain(|hold| hold.client != client || hold.deadline.is_some());
            }
        }
    }

    pub(super) fn force(&mut self, name: &[u8]) -> u64 {
        let lock = self.locks.get_mut(name);
        lock.map_or(0, |lock| lock.holds.drain(..).count() as u64)
    }

    pub(super) fn renew_session(&mut self, session: u128, now: Time) -> bool {
        let found = self.sessions.get_mut(&session);
        found.is_some_and(|(ttl_ms, deadline)| {
            *deadline = now.after_ms(*ttl_ms);
            true
        })
    }

    pub(super) fn close_session(&mut self, session: u128, told: &mut Notices) -> bool {
        let open = self.sessions.contains_key(&session);
        if open {
            self.end_session(session, told);
        }
        open
    }

    /// The first hold of this client that has no token yet.
    pub(super) fn name_token(&mut self, client: ClientId, token: u64) {
        let holds = self.locks.values_mut().flat_map(|lock| &mut lock.holds);
        let unnamed = holds.filter(|hold| hold.by == client && hold.token == 0);
        if let Some(hold) = unnamed.min_by_key(|hold| hold.order) {
            hold.token = token;
        }
    }

    pub(super) fn is_waiting(&self, client: ClientId) -> bool {
        self.locks
            .values()
            .any(|lock| lock.waits.iter().any(|wait| wait.client == client))
    }
}
