//! What clients may rely on, checked apart from the daemons and from etcd, in real time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Name, ORPHAN_MS, Violation, bytes_of};
use crate::table::{Mode, Table};

/// The owner of a hold, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Lease,
    Connection(u64),
    Session(u128),
}

/// A hold of which a client was told.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) name: Name,
    pub(super) mode: Mode,
    pub(super) client: usize,
    pub(super) kind: Kind,
    /// Its end, unless it is that of its session.
    pub(super) until: u64,
    told: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) client: usize,
    pub(super) ttl_ms: u64,
    pub(super) until: u64,
}

#[derive(Default)]
pub(super) struct Witness {
    pub(super) claims: BTreeMap<u64, Claim>,
    pub(super) sessions: BTreeMap<u128, Session>,
    /// Holds that were told to have ended, and when.
    ended: VecDeque<(u64, u64)>,
    /// The greatest token that was told for a name: of any hold, and of any that excludes.
    told: BTreeMap<Name, (u64, u64)>,
    /// The tokens of requests for several locks, and of them those that have ended.
    groups: VecDeque<Vec<u64>>,
    /// An administrator has discarded holds with lower tokens, and sessions with lower numbers.
    discarded: (u64, u128),
    gone: BTreeSet<u64>,
    pub(super) grants: u64,
    pub(super) adopted: u64,
}

macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds { return Err(format!($($text)+)); }
    };
}
pub(super) use ensure;

/// How long a client relies on a lease or session of this length, by its own clock.
pub(super) fn lease_ns(ttl_ms: u64) -> u64 {
    ttl_ms * 990_000
}

/// The same for what its connection holds.
pub(super) const ORPHAN_NS: u64 = ORPHAN_MS * 850_000;

impl Witness {
    fn entitled(&self, claim: &Claim, now: u64) -> bool {
        match claim.kind {
            Kind::Session(id) => self.session_until(id) > now,
            _ => claim.until > now,
        }
    }

    fn session_until(&self, id: u128) -> u64 {
        self.sessions.get(&id).map_or(0, |session| session.until)
    }

    /// Until when a client relies on a hold that no administrator has discarded.
    pub(super) fn relies(&self, token: u64) -> u64 {
        match self.claims.get(&token) {
            Some(claim) if token >= self.discarded.0 => match claim.kind {
                Kind::Session(id) => self.relies_on_session(id),
                _ => claim.until,
            },
            _ => 0,
        }
    }

    /// The same of a session.
    pub(super) fn relies_on_session(&self, id: u128) -> u64 {
        match id >= self.discarded.1 {
            true => self.session_until(id),
            false => 0,
        }
    }

    /// No other client is entitled to what this hold excludes.
    fn alone(&self, token: u64, now: u64) -> Result<(), Violation> {
        let Some(one) = self
            .claims
            .get(&token)
            .filter(|one| self.entitled(one, now))
        else {
            return Ok(());
        };
        let others = self.claims.iter().filter(|(other, claim)| {
            **other != token && claim.name == one.name && self.entitled(claim, now)
        });
        let mut holds = 1;
        for (other, claim) in others {
            holds += 1;
            ensure!(
                claim.mode != Mode::Exclusive && one.mode != Mode::Exclusive,
                "S1: {token} {one:?} beside {other} {claim:?}"
            );
        }
        let places = one.mode.places();
        ensure!(
            places == 1 || holds <= places,
            "S1: {holds} on {places} places: {one:?}"
        );
        Ok(())
    }

    /// A client hears that it has a lock.
    pub(super) fn granted(
        &mut self,
        token: u64,
        (name, mode, client): (Name, Mode, usize),
        kind: Kind,
        until: u64,
        now: u64,
    ) -> Result<(), Violation> {
        self.grants += 1;
        let back = self.ended.iter().find(|(ended, _)| *ended == token);
        ensure!(
            back.is_none(),
            "S3: {token} of {name} has come back: {back:?}"
        );
        let known = self.claims.get(&token);
        ensure!(
            known.is_none_or(|known| (known.name, known.client) == (name, client)),
            "S2: {token} of {name} for {client} is {known:?}"
        );
        let claim = Claim {
            name,
            mode,
            client,
            kind,
            until,
            told: now,
        };
        self.claims.insert(token, claim);
        self.alone(token, now)
    }

    /// The token of a new hold is greater than those of all holds that it excludes, unless
    /// the client hears it too late to rely on it.
    pub(super) fn grows(
        &mut self,
        token: u64,
        (name, mode, _): (Name, Mode, usize),
        until: u64,
        now: u64,
    ) -> Result<(), Violation> {
        if until > now {
            let (any, sole) = self.told.entry(name).or_default();
            let exclusive = mode == Mode::Exclusive;
            let before = if exclusive { *any } else { *sole };
            ensure!(token > before, "S2: {token} of {name} after {before}");
            *any = token.max(*any);
            if exclusive {
                *sole = token;
            }
        }
        Ok(())
    }

    /// A client hears that its lease goes on.
    pub(super) fn renewed(&mut self, token: u64, until: u64, now: u64) -> Result<(), Violation> {
        if let Some(claim) = self.claims.get_mut(&token) {
            (claim.kind, claim.until) = (Kind::Lease, until);
        }
        self.alone(token, now)
    }

    /// A client asks for less.
    pub(super) fn shortens(&mut self, token: u64, until: u64) {
        if let Some(claim) = self.claims.get_mut(&token) {
            claim.until = claim.until.min(until);
        }
    }

    /// A client hears that its session is open.
    pub(super) fn session(
        &mut self,
        id: u128,
        (client, ttl_ms): (usize, u64),
        until: u64,
        now: u64,
    ) -> Result<(), Violation> {
        let session = Session {
            client,
            ttl_ms,
            until,
        };
        self.sessions.insert(id, session);
        self.all_alone(Kind::Session(id), now)
    }

    /// A client has an answer over a connection to what it sent then.
    pub(super) fn answered(&mut self, link: u64, until: u64, now: u64) -> Result<(), Violation> {
        let kind = Kind::Connection(link);
        for claim in self.claims.values_mut().filter(|claim| claim.kind == kind) {
            claim.until = claim.until.max(until);
        }
        self.all_alone(kind, now)
    }

    fn all_alone(&self, kind: Kind, now: u64) -> Result<(), Violation> {
        let mut of_kind = self.claims.iter().filter(|(_, claim)| claim.kind == kind);
        of_kind.try_for_each(|(token, _)| self.alone(*token, now))
    }

    /// A client gives up what its connection has.
    pub(super) fn close(&mut self, link: u64) {
        self.claims
            .retain(|_, claim| claim.kind != Kind::Connection(link));
    }

    /// A client ends its session; the tokens that it had.
    pub(super) fn end_session(&mut self, id: u128) -> Vec<u64> {
        self.sessions.remove(&id);
        let of_it = |claim: &Claim| claim.kind == Kind::Session(id);
        let tokens = self.claims.iter().filter(|(_, claim)| of_it(claim));
        let tokens = tokens.map(|(token, _)| *token).collect();
        self.claims.retain(|_, claim| !of_it(claim));
        tokens
    }

    /// A client hears that its hold has ended.
    pub(super) fn ended(&mut self, token: u64, now: u64) {
        self.ended.push_back((token, now));
        if self.ended.len() > 64 {
            self.ended.pop_front();
        }
    }

    /// Somebody hears who holds a name.
    pub(super) fn read(
        &self,
        name: Name,
        tokens: &[u64],
        sent: u64,
        now: u64,
    ) -> Result<(), Violation> {
        for (token, claim) in self.claims.iter().filter(|(_, claim)| claim.name == name) {
            let known = claim.told < sent && self.relies(*token) > now;
            ensure!(
                !known || tokens.contains(token),
                "S3: a read at {sent} misses {token} {claim:?}"
            );
        }
        for (token, at) in &self.ended {
            let stale = *at < sent && tokens.contains(token);
            ensure!(
                !stale,
                "S3: a read at {sent} shows {token}, which ended at {at}"
            );
        }
        Ok(())
    }

    /// A table grants several locks in one step.
    pub(super) fn group(&mut self, tokens: Vec<u64>) {
        self.groups.push_back(tokens);
        if self.groups.len() > 64 {
            self.groups.pop_front();
        }
    }

    /// A table ends a hold.
    pub(super) fn gone(&mut self, token: u64) {
        self.gone.insert(token);
        if self.gone.len() > 1024 {
            self.gone.pop_first();
        }
    }

    /// An administrator has discarded all that is older.
    pub(super) fn discard(&mut self, token: u64, session: u64) {
        self.discarded = (token, session.into());
    }

    /// A new primary has this table.
    pub(super) fn adopt(
        &mut self,
        table: &Table,
        names: impl Iterator<Item = Name>,
        now: u64,
    ) -> Result<(), Violation> {
        self.adopted += 1;
        let mut held = BTreeSet::new();
        for name in names {
            held.extend(table.holders(&bytes_of(name)).map(|found| found.token));
        }
        for (token, claim) in &self.claims {
            let kept = self.relies(*token) <= now || held.contains(token);
            ensure!(kept, "S3: {token} {claim:?} is not adopted");
        }
        for (token, at) in &self.ended {
            let dead = !held.contains(token);
            ensure!(dead, "S3: {token} is adopted, which ended at {at}");
        }
        for group in &self.groups {
            let is_lost = |token: &&u64| !held.contains(token) && !self.gone.contains(token);
            let lost = group.iter().find(is_lost);
            let any = group.iter().any(|token| held.contains(token));
            ensure!(!any || lost.is_none(), "of {group:?} {lost:?} is lost");
        }
        Ok(())
    }

    /// Forgets what nobody can rely on any more.
    pub(super) fn forget(&mut self, now: u64) {
        self.sessions.retain(|_, session| session.until > now);
        let sessions = &self.sessions;
        self.claims.retain(|_, claim| match claim.kind {
            Kind::Session(id) => sessions.contains_key(&id),
            _ => claim.until > now,
        });
    }
}
