//! Clients: what they ask for, and what they make of the answers.

use super::node::{Reply, Up};
use super::witness::{Kind, ORPHAN_NS, lease_ns};
use super::{Ask, Asked, Link, MS, NAMES, Name, PROBES, Role, Violation, Wish, World};
use crate::table::simulator::dice::Dice;
use crate::table::{Mode, NotRenewed, Outcome};
use std::collections::VecDeque;

pub(super) struct Client {
    /// A thousandth of the rate of its clock.
    rate: u64,
    /// How long it waits for an answer, in milliseconds.
    patience: u64,
    link: Option<u64>,
    /// Requests that are not answered.
    pub(super) asked: VecDeque<Asked>,
}

impl Client {
    pub(super) fn new(dice: &mut Dice) -> Self {
        Self {
            rate: 995 + dice.below(11),
            patience: dice.pick(&[1_000, 1_000, 20_000]),
            link: None,
            asked: VecDeque::new(),
        }
    }

    /// The time at which so much of its own clock has passed.
    fn after(&self, from: u64, ns: u64) -> u64 {
        from + ns * 1000 / self.rate
    }
}

impl World {
    pub(super) fn act_for(&mut self, who: usize) -> Result<(), Violation> {
        let Some(number) = self.clients[who].link else {
            return self.connect(who);
        };
        let Some(link) = self.links.get_mut(&number) else {
            // The daemon has closed it: it is not known what was done.
            let client = &mut self.clients[who];
            (client.link, client.asked) = (None, VecDeque::new());
            return Ok(());
        };
        if let Some(reply) = link.down.pop_front() {
            return self.hear(who, number, &reply);
        }
        let client = &self.clients[who];
        let oldest = client.asked.front().map_or(self.now, |asked| asked.sent);
        let patience = if who == 0 { 1_000 } else { client.patience };
        let stuck = self.now > oldest + patience * MS && self.dice.percent(10);
        if stuck || self.dice.below(1_000) < 3 {
            return self.close(who, number);
        }
        // The first one only asks for free names when faults have ended.
        if client.asked.len() >= 3 || who == 0 && !self.is_calm() {
            return Ok(());
        }
        let count = if self.dice.percent(20) { 2 } else { 1usize };
        let all: Vec<Asked> = (0..count)
            .map(|at| self.think(who, number, at, count))
            .collect();
        self.clients[who].asked.extend(all.iter().cloned());
        if let Some(link) = self.links.get_mut(&number) {
            link.up.push_back(Up::Asked(all));
        }
        Ok(())
    }

    fn connect(&mut self, who: usize) -> Result<(), Violation> {
        let node = self.dice.below(3) as usize;
        let found = &self.nodes[node];
        if let Role::Active(active) = &found.role
            && !active.drains
        {
            let life = found.life;
            let number = self.number();
            self.links.insert(number, Link::new(node, life));
            self.clients[who].link = Some(number);
        }
        Ok(())
    }

    /// A client that closes its connection gives up what that has.
    fn close(&mut self, who: usize, number: u64) -> Result<(), Violation> {
        if let Some(link) = self.links.get_mut(&number) {
            link.up.push_back(Up::Close);
        }
        self.witness.close(number);
        let client = &mut self.clients[who];
        (client.link, client.asked) = (None, VecDeque::new());
        Ok(())
    }

    fn ttl(&mut self) -> u64 {
        self.dice.pick(&[1_000, 1_500, 2_500, 5_000])
    }

    /// The next request of a client, one of several together; then it does not wait.
    fn think(&mut self, who: usize, number: u64, at: usize, count: usize) -> Asked {
        let (sent, joined) = (self.now, count > 1);
        // A name that it may have, or get, it does not give back without a token.
        let asked = &self.clients[who].asked;
        let fresh = !joined && asked.is_empty();
        // Of two renewals under way the later one counts.
        let renewal = |asked: &Asked| matches!(asked.request, Ask::Renew(..));
        let renews = at > 0 || asked.iter().any(renewal);
        let claims = self.witness.claims.iter();
        let own = claims.filter(|(_, claim)| claim.client == who);
        let own: Vec<u64> = own.map(|(token, _)| *token).collect();
        let sessions = self.witness.sessions.iter();
        let sessions = sessions.filter(|(_, session)| session.client == who);
        let sessions: Vec<u128> = sessions.map(|(id, _)| *id).collect();
        let name = self.dice.below(NAMES) as Name;
        let (mut relied, what) = (0, self.dice.below(100));
        let request = match what {
            _ if who == 0 => Ask::Lock(Wish {
                names: vec![PROBES + self.probes % 8],
                mode: Mode::Exclusive,
                ttl_ms: Some(1_500),
                session: None,
                wait_ms: 0,
            }),
            0..75 if own.len() < 4 && (what < 40 || own.is_empty()) => {
                let wait_ms = self.dice.pick(&[0, 0, 200, 2_000]);
                let session = match self.dice.below(3) {
                    0 if !sessions.is_empty() => Some(self.dice.pick(&sessions)),
                    _ => None,
                };
                let mode = match name {
                    7 => Mode::Place { of: 2 },
                    _ if self.dice.percent(30) => Mode::Shared,
                    _ => Mode::Exclusive,
                };
                let both = name < 5 && self.dice.percent(25);
                Ask::Lock(Wish {
                    names: (name..=name + Name::from(both)).collect(),
                    mode,
                    ttl_ms: (session.is_none() && self.dice.percent(60)).then(|| self.ttl()),
                    session,
                    wait_ms: if joined { 0 } else { wait_ms },
                })
            }
            40..60 if !own.is_empty() => {
                let token = self.dice.pick(&own);
                relied = self.witness.relies(token);
                let claim = self.witness.claims.remove(&token);
                let claim = claim.map(|claim| (claim.name, claim.kind));
                let (name, kind) = claim.unwrap_or((name, Kind::Lease));
                let bare = kind == Kind::Connection(number) && self.dice.percent(50);
                Ask::Unlock(name, (!bare).then_some(token))
            }
            60..75 if !own.is_empty() && !renews => {
                let token = self.dice.pick(&own);
                let ttl_ms = self.ttl();
                let until = self.clients[who].after(sent, lease_ns(ttl_ms));
                let claim = &self.witness.claims[&token];
                let (name, kind) = (claim.name, claim.kind);
                if !matches!(kind, Kind::Session(_)) && kind != Kind::Connection(number) {
                    self.witness.shortens(token, until);
                }
                Ask::Renew(name, token, ttl_ms)
            }
            75..79 if sessions.len() < 2 => Ask::Open(self.number().into(), self.ttl()),
            79..88 if !sessions.is_empty() => Ask::RenewSession(self.dice.pick(&sessions)),
            88..90 if !sessions.is_empty() => {
                let id = self.dice.pick(&sessions);
                relied = self.witness.relies_on_session(id);
                Ask::CloseSession(id, self.witness.end_session(id))
            }
            90..93 if fresh && own.is_empty() => Ask::Unlock(name, None),
            _ => Ask::Holders(name),
        };
        Asked {
            request,
            sent,
            relied,
        }
    }

    fn hear(&mut self, who: usize, number: u64, reply: &Reply) -> Result<(), Violation> {
        let now = self.now;
        let client = &mut self.clients[who];
        let asked = client.asked.pop_front().ok_or("a reply to no request")?;
        let (sent, relied) = (asked.sent, asked.relied);
        let until = |ttl_ms| client.after(sent, lease_ns(ttl_ms));
        let orphaned = client.after(sent, ORPHAN_NS);
        let lost = |until: u64| match until > now {
            true => Err(format!("S3: {asked:?} is answered {reply:?}")),
            false => Ok(()),
        };
        let witness = &mut self.witness;
        match (&asked.request, reply) {
            (_, Reply::Loading) => {}
            (Ask::Lock(wish), Reply::Lock(outcome)) => {
                let name = wish.names[0];
                let own = wish.session.map_or(Kind::Connection(number), Kind::Session);
                let (kind, end) = match (wish.ttl_ms, wish.session) {
                    (Some(ttl_ms), _) => (Kind::Lease, until(ttl_ms)),
                    (None, Some(id)) => (own, witness.relies_on_session(id)),
                    (None, None) => (own, orphaned),
                };
                match *outcome {
                    Outcome::Granted(first) | Outcome::GrantedAll { first, .. } => {
                        for (name, token) in wish.names.iter().zip(first..) {
                            let what = (*name, wish.mode, who);
                            witness.grows(token, what, end, now)?;
                            witness.granted(token, what, kind, end, now)?;
                        }
                        if name >= PROBES && self.probe.take().is_some() {
                            *self.counts.entry("probes").or_default() += 1;
                        }
                    }
                    // It has not asked for its end since.
                    Outcome::AlreadyHeld { token, mode, .. }
                        if wish.names.len() == 1 && client.asked.is_empty() =>
                    {
                        witness.granted(token, (name, mode, who), own, orphaned, now)?;
                    }
                    Outcome::NoSession => {
                        let id = wish.session.unwrap_or_default();
                        lost(witness.relies_on_session(id))?;
                    }
                    _ => {}
                }
            }
            (Ask::Unlock(_, token), Reply::Released(Ok(()))) => {
                token.iter().for_each(|token| witness.ended(*token, now));
            }
            (Ask::Unlock(..), Reply::Released(Err(_))) => lost(relied)?,
            (Ask::Renew(_, token, ttl_ms), Reply::Renewed(Ok(()))) => {
                witness.renewed(*token, until(*ttl_ms), now)?;
            }
            (Ask::Renew(_, token, _), Reply::Renewed(Err(why))) => {
                if *why == NotRenewed::NotOwner {
                    lost(witness.relies(*token))?;
                }
            }
            (Ask::Open(id, ttl_ms), Reply::Session(true)) => {
                witness.session(*id, (who, *ttl_ms), until(*ttl_ms), now)?;
            }
            (Ask::RenewSession(id), Reply::Session(true)) => {
                if let Some(session) = witness.sessions.get(id).copied() {
                    let ttl_ms = session.ttl_ms;
                    witness.session(*id, (who, ttl_ms), until(ttl_ms), now)?;
                }
            }
            (Ask::RenewSession(id), _) => lost(witness.relies_on_session(*id))?,
            (Ask::CloseSession(_, tokens), Reply::Session(true)) => {
                tokens.iter().for_each(|token| witness.ended(*token, now));
            }
            (Ask::CloseSession(..), _) => lost(relied)?,
            (Ask::Holders(name), Reply::Tokens(tokens)) => {
                witness.read(*name, tokens, sent, now)?;
            }
            other => return Err(format!("an answer of another kind: {other:?}")),
        }
        self.witness.answered(number, orphaned, now)
    }
}
