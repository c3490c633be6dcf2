//! Requests of clients, and checks of the replies.

use super::super::*;
use super::play::Play;
use super::witness::{Held, Queued, ensure, key, owner};
use super::{Name, Violation, bytes_of};

impl Play {
    pub(super) fn lock(&mut self, client: ClientId, name: Name) -> Result<(), Violation> {
        let ms = [1, 2, 3, 64, 65, 1000, 30_000];
        let session = match self.dice.below(20) {
            0 if !self.sessions.is_empty() => Some(self.dice.pick(&self.sessions)),
            1..6 => self.waiting_one(name).or_else(|| self.open_one()),
            6..10 => self.open_one(),
            _ => None,
        };
        let leased = session.is_none() && self.dice.percent(60);
        let ttl_ms = leased.then(|| self.dice.pick(&ms));
        let wait_ms = match self.dice.below(10) {
            0..4 => None,
            4..6 => Some(0),
            _ => Some(self.dice.pick(&ms)),
        };
        let mode = self.mode(name);
        let text = bytes_of(name);
        let session_key = session.map(key);
        let request = LockRequest {
            client,
            name: &text,
            ttl_ms,
            wait_ms,
            mode,
            session: session_key.as_ref(),
        };
        let reply = self.step_wanting(request, vec![name])?;
        self.judge_lock(name, request, session, reply)
            .map_err(|why| format!("{request:?} is answered {reply:?}: {why}"))?;
        self.witness.served(name)
    }

    /// Checks the reply to a LOCK, and updates the witness.
    fn judge_lock(
        &mut self,
        name: Name,
        request: LockRequest<'_>,
        session: Option<u128>,
        reply: Option<Outcome>,
    ) -> Result<(), Violation> {
        let (client, ttl_ms, wait_ms) = (request.client, request.ttl_ms, request.wait_ms);
        let (shared, places) = (request.mode != Mode::Exclusive, request.mode.places());
        let now = self.now;
        let over = session.is_some_and(|session| !self.witness.sessions.contains_key(&session));
        ensure!(
            over == (reply == Some(Outcome::NoSession)),
            "its session is over: {over}"
        );
        if over {
            return Ok(());
        }
        let owner = session.map_or(client, owner);
        let truth = self.witness.locks.entry(name).or_default();
        let owns = |held: &Held| held.client == owner && held.deadline == u64::MAX;
        let owned = truth.holds.values().any(owns);
        let in_turn = truth.queue.is_empty();
        if in_turn && truth.holds.is_empty() {
            truth.places = places;
        }
        let fits = truth.places == places;
        let sharing = truth.holds.values().all(|held| held.shared && shared);
        let free = in_turn && sharing && truth.has_place();
        match reply {
            Some(Outcome::Refused(Refusal::Places(said))) if !fits && said == truth.places => {}
            _ if !fits => return Err(format!("it has {} places", truth.places)),
            Some(Outcome::AlreadyHeld { token, mode, which })
                if owned && which == request.which() =>
            {
                truth.owns(owner, token, mode)?;
                ensure!(
                    session.is_none() || self.table.may_be_known(&bytes_of(name), token),
                    "token {token} was told and is not known to be"
                );
            }
            Some(Outcome::Granted(token)) if !owned && in_turn => {
                self.witness
                    .grant(name, owner, token, shared, ttl_ms, now)?;
                self.remember(name, token);
            }
            Some(Outcome::TimedOut) if !owned && !free && wait_ms == Some(0) => {}
            None if !owned && !free && wait_ms != Some(0) => {
                let deadline = wait_ms.map_or(u64::MAX, |wait| now.after_ms(wait));
                let queued = Queued {
                    client,
                    owner,
                    session,
                    shared,
                    ttl_ms,
                    deadline,
                };
                self.witness.enter(vec![name], queued);
            }
            _ => return Err(format!("owned {owned}, free {free}")),
        }
        Ok(())
    }

    pub(super) fn lock_all(&mut self, client: ClientId) -> Result<(), Violation> {
        let ms = [1, 2, 3, 64, 65, 1000, 30_000];
        let mut names: Vec<Name> = Vec::new();
        for _ in 0..2 + self.dice.below(4) {
            let name = self.dice.below(self.world.names) as Name;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let session = match self.dice.below(10) {
            0..2 => self.waiting_one(names[0]).or_else(|| self.open_one()),
            2..4 => self.open_one(),
            _ => None,
        };
        let leased = session.is_none() && self.dice.percent(60);
        let ttl_ms = leased.then(|| self.dice.pick(&ms));
        let shared = self.dice.percent(self.world.shared_percent / 2);
        let wait_ms = match self.dice.below(10) {
            0..3 => None,
            3..5 => Some(0),
            _ => Some(self.dice.pick(&ms)),
        };
        let texts: Vec<Vec<u8>> = names.iter().map(|name| bytes_of(*name)).collect();
        let texts: Vec<&[u8]> = texts.iter().map(|text| &text[..]).collect();
        let session_key = session.map(key);
        let request = LockAllRequest {
            client,
            names: &texts,
            ttl_ms,
            wait_ms,
            shared,
            session: session_key.as_ref(),
        };
        let reply = self.step_wanting(request, names.clone())?;
        let (now, witness) = (self.now, &mut self.witness);
        let over = session.is_some_and(|session| !witness.sessions.contains_key(&session));
        ensure!(
            over == (reply == Some(Outcome::NoSession)),
            "LOCKALL: {reply:?}, its session is over: {over}"
        );
        if over {
            return Ok(());
        }
        let owner = session.map_or(client, owner);
        let (mut free, mut owned, mut places) = (true, false, None);
        for name in &names {
            let truth = witness.locks.entry(*name).or_default();
            if truth.queue.is_empty() && truth.holds.is_empty() {
                truth.places = 1;
                continue;
            }
            let sharing = truth.holds.values().all(|held| held.shared && shared);
            free &= truth.queue.is_empty() && sharing && truth.places == 1;
            let owns = |held: &Held| held.client == owner && held.deadline == u64::MAX;
            if truth.places != 1 {
                places = Some(truth.places);
            }
            owned |= truth.holds.values().any(owns);
        }
        match reply {
            // The order of the names decides which of the two errors is reported.
            Some(Outcome::Refused(Refusal::Places(_))) if places.is_some() => {}
            Some(Outcome::AlreadyHeld {
                token,
                mode,
                which:
                    Which::OneOf {
                        at,
                        count,
                        of_session,
                    },
            }) if owned && usize::from(count) == names.len() && of_session == session.is_some() => {
                let truth = &witness.locks[&names[usize::from(at)]];
                truth.owns(owner, token, mode)?;
            }
            other if owned || places.is_some() => {
                return Err(format!("{request:?} is answered {other:?}"));
            }
            Some(Outcome::GrantedAll { first, count }) if free && count as usize == names.len() => {
                for (name, token) in names.iter().zip(first..) {
                    witness.grant(*name, owner, token, shared, ttl_ms, now)?;
                    self.remembered[0] = (*name, token);
                }
            }
            Some(Outcome::TimedOut) if !free && wait_ms == Some(0) => {}
            None if !free && wait_ms != Some(0) => {
                let deadline = wait_ms.map_or(u64::MAX, |wait| now.after_ms(wait));
                let queued = Queued {
                    client,
                    owner,
                    session,
                    shared,
                    ttl_ms,
                    deadline,
                };
                witness.enter(names.clone(), queued);
            }
            other => return Err(format!("{request:?} is answered {other:?}; free {free}")),
        }
        names.iter().try_for_each(|name| self.witness.served(*name))
    }

    /// Some names are semaphores, mostly.
    pub(super) fn mode(&mut self, name: Name) -> Mode {
        let semaphore = name % 4 == 1 && self.world.shared_percent > 0;
        match self.dice.below(100) {
            0..3 => Mode::Place { of: 2 },
            _ if semaphore => Mode::Place { of: 3 },
            _ if self.dice.percent(self.world.shared_percent) => Mode::Shared,
            _ => Mode::Exclusive,
        }
    }

    pub(super) fn remember(&mut self, name: Name, token: u64) {
        if self.remembered.len() < 500 {
            self.remembered.push((name, token));
        } else {
            let at = self.dice.below(500) as usize;
            self.remembered[at] = (name, token);
        }
    }

    pub(super) fn unlock(&mut self, client: ClientId, name: Name) -> Result<(), Violation> {
        match self.dice.below(3) {
            0 => self.release(client, name, None),
            1 => {
                let (name, token) = self.dice.pick(&self.remembered);
                self.release(client, name, Some(token))
            }
            _ => {
                // What it owns, if anything.
                let owned = self.witness.owned.get(&client);
                let name = owned
                    .and_then(|owned| owned.first())
                    .map_or(name, |held| held.0);
                self.release(client, name, None)
            }
        }
    }

    pub(super) fn release(
        &mut self,
        client: ClientId,
        name: Name,
        token: Option<u64>,
    ) -> Result<(), Violation> {
        // The witness must know of lapsed leases before the table reports grants to
        // waiters behind.
        let lapsed = self.witness.lapse(self.now);
        let truth = self.witness.locks.entry(name).or_default();
        let meant = match token {
            Some(token) => truth.holds.contains_key(&token).then_some(token),
            None => {
                let own = truth.holds.iter().filter(|(_, held)| held.client == client);
                own.max_by_key(|(token, held)| (held.deadline == u64::MAX, **token))
                    .map(|(token, _)| *token)
            }
        };
        let free = truth.holds.is_empty();
        // A waiter for a lease that lapses in this very step is granted in it; the
        // table answers the request after that.
        let regranted = free && !truth.queue.is_empty();
        if let Some(token) = meant {
            self.witness.end(name, token);
        }
        let text = bytes_of(name);
        let mut touched = lapsed;
        touched.push(name);
        let unlock = Unlock {
            client,
            name: &text,
            token,
        };
        let reply = self.step(unlock, touched)?;
        let right = match reply {
            Ok(()) => meant.is_some(),
            Err(NotReleased::NotOwner) => meant.is_none() && (!free || regranted),
            Err(NotReleased::NotHeld) => meant.is_none() && free,
        };
        ensure!(
            right,
            "UNLOCK {name} {token:?} by {client:?} is answered {reply:?}"
        );
        Ok(())
    }

    pub(super) fn renew(&mut self) -> Result<(), Violation> {
        let (name, token) = self.dice.pick(&self.remembered);
        let ttl_ms = self.dice.pick(&[1, 10, 1000]);
        let text = bytes_of(name);
        let renew = Renew {
            name: &text,
            token,
            ttl_ms,
        };
        let reply = self.step(renew, vec![name])?;
        let deadline = self.now.after_ms(ttl_ms);
        let truth = self.witness.locks.entry(name).or_default();
        match (reply, truth.holds.get_mut(&token)) {
            (Err(NotRenewed::NotOwner), None) => {}
            (Err(NotRenewed::NoLease), Some(held)) if held.deadline == u64::MAX => {}
            (Ok(()), Some(held)) if held.deadline != u64::MAX => {
                self.witness.leases.remove(&(held.deadline, name, token));
                held.deadline = deadline;
                self.witness.leases.insert((deadline, name, token));
            }
            (reply, held) => return Err(format!("RENEW {name} of {held:?}: {reply:?}")),
        }
        Ok(())
    }
    /// Opens, renews or closes a session.
    pub(super) fn tend_session(&mut self) -> Result<(), Violation> {
        match self.dice.below(10) {
            _ if self.sessions.is_empty() => self.open_session(),
            0..4 => self.open_session(),
            4..9 => {
                let any = self.dice.pick(&self.sessions);
                let session = self.open_one().unwrap_or(any);
                self.renew_session(session)
            }
            _ if self.dice.percent(5) => self.close_sessions_of_one(),
            _ => {
                let any = self.dice.pick(&self.sessions);
                let session = self.open_one().unwrap_or(any);
                self.close_session(session)
            }
        }
    }

    /// A session that waits for a lock already, as when a request is repeated.
    fn waiting_one(&self, name: Name) -> Option<u128> {
        let queue = &self.witness.locks.get(&name)?.queue;
        let session = queue.values().rev().take(8).find_map(|it| it.session)?;
        self.witness
            .sessions
            .contains_key(&session)
            .then_some(session)
    }

    /// One of the sessions that are open.
    fn open_one(&mut self) -> Option<u128> {
        let count = self.witness.sessions.len() as u64;
        let at = self.dice.below(count.max(1)) as usize;
        self.witness.sessions.keys().nth(at).copied()
    }

    fn open_session(&mut self) -> Result<(), Violation> {
        let session = u128::from(self.dice.roll() >> 1);
        let ttl_ms = self.dice.pick(&[1, 64, 65, 1000, 30_000, 600_000]);
        let key = key(session);
        let text = ["", "host pid 1"][usize::from(ttl_ms > 64)];
        let reply = self.step_wanting(OpenSession { key, ttl_ms, text }, Vec::new())?;
        ensure!(reply.is_ok(), "SESSION OPEN: {reply:?}");
        self.witness.begin_session(session, ttl_ms, self.now);
        if self.sessions.len() < 20 {
            self.sessions.push(session);
        } else {
            let at = self.dice.below(20) as usize;
            self.sessions[at] = session;
        }
        Ok(())
    }

    pub(super) fn renew_session(&mut self, session: u128) -> Result<(), Violation> {
        let renewed = self.step(RenewSession(key(session)), Vec::new())?;
        let open = self.witness.sessions.get(&session).copied();
        ensure!(
            renewed == open.is_some(),
            "SESSION RENEW of {open:?}: {renewed}"
        );
        if let Some((_, ttl_ms)) = open {
            self.witness.begin_session(session, ttl_ms, self.now);
        }
        Ok(())
    }

    pub(super) fn close_session(&mut self, session: u128) -> Result<(), Violation> {
        let closed = self.close_sessions(|other| other == session, CloseSession(key(session)))?;
        ensure!(closed.0 == (closed.1 == 1), "SESSION CLOSE: {closed:?}");
        Ok(())
    }

    /// Ends all sessions of an account.
    fn close_sessions_of_one(&mut self) -> Result<(), Violation> {
        let account = self.dice.below(3) as u16;
        let of_it = |session| key(session).user == account;
        let closed = self.close_sessions(of_it, CloseSessionsOf(account))?;
        ensure!(closed.0 == closed.1, "SESSION CLOSE USER: {closed:?}");
        Ok(())
    }

    /// Ends the sessions that are meant; returns the reply, and their number.
    fn close_sessions<E: Event>(
        &mut self,
        meant: impl Fn(u128) -> bool,
        event: E,
    ) -> Result<(E::Reply, u32), Violation> {
        // What is due by now ends waits for it in other ways.
        self.step(Tick, Vec::new())?;
        let mut touched = self.witness.lapse(self.now);
        let open = self.witness.sessions.keys().copied();
        let open: Vec<u128> = open.filter(|session| meant(*session)).collect();
        for session in &open {
            touched.extend(self.witness.end_session(*session));
        }
        let reply = self.step(event, touched)?;
        self.witness.none_waits_in_vain()?;
        Ok((reply, open.len() as u32))
    }
}
