//! From the entries of the clients to holds, and to requests without one.

use super::ends::Judge;
use super::history::{ALL_KEYS, Entry, Kind};
use std::borrow::Borrow;
use std::collections::HashMap;

/// A time that does not come.
pub(super) const NEVER: u64 = u64::MAX;

/// A hold as its client saw it.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// Its request.
    pub ask: Entry,
    /// A renewal was confirmed that was sent after the end of the lease: the hold goes on
    /// from that confirmation (`granted`).
    pub resumed: bool,
    /// Its release was confirmed.
    pub confirmed: bool,
    /// Since then its lease runs: from a later try than `ask`, or with the session.
    pub leased: u64,
    pub granted: u64,
    /// Plus 1; 0: none.
    pub token: u64,
    /// The sending of the last renewal that succeeded, or of what was granted.
    pub renewed: u64,
    /// The last time at which the service may have renewed it.
    pub latest: u64,
    /// The client no longer believes in it.
    pub told: u64,
    /// Entries are missing from then on.
    pub missing: u64,
    /// The sending of its release.
    pub sent: u64,
    /// The service has ended it, or a [`Request`] says for how long it may go on.
    pub over: u64,
}

impl Hold {
    /// The sending of the request that was granted, or of the renewal that was confirmed.
    pub(super) fn tried(&self) -> u64 {
        self.leased.max(self.ask.at_ns)
    }
}

/// What became of a request, or of the end of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Refused, or too late.
    Refused,
    /// It may be granted, to nobody, until the client's session is gone.
    Unknown,
    /// Its hold is over for the client, but maybe not for the service.
    Orphan,
    /// The run ended.
    Open,
}

/// A request without a hold.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub ask: Entry,
    pub outcome: Outcome,
    pub until: u64,
    /// The end of the client's session.
    pub gone: u64,
}

/// All clients together.
#[derive(Debug, Default)]
pub(super) struct History {
    pub holds: Vec<Hold>,
    pub requests: Vec<Request>,
    /// Times in which entries of a client are missing.
    pub gaps: Vec<(u64, u64)>,
    /// Calls without an end.
    pub unknown: u64,
}

#[derive(Debug, Default)]
struct Client {
    last: u64,
    /// The call that has not ended, and when its last try was made.
    open: Option<(Entry, u64)>,
    hold: Option<Hold>,
    /// Entries are missing since then.
    gap: Option<u64>,
    /// Requests that may be granted as long as the session lasts.
    orphans: Vec<usize>,
}

/// All holds and requests, sorted by key, and holds by their grants. The entries of one client
/// come in its order.
pub(super) fn read(judge: &Judge<'_>, entries: impl Iterator<Item: Borrow<Entry>>) -> History {
    let mut clients: HashMap<u32, Client> = HashMap::new();
    let mut history = History::default();
    for entry in entries {
        let client = clients.entry(entry.borrow().client).or_default();
        client.step(entry.borrow(), judge, &mut history);
    }
    for (number, mut client) in clients {
        client.end(judge.killed(number), judge.facts.ended_ns, &mut history);
    }
    let holds = &mut history.holds;
    holds.sort_unstable_by_key(|hold| (hold.ask.key, hold.granted, hold.ask.client));
    history
        .requests
        .sort_unstable_by_key(|request| request.ask.key);
    history
}

impl Client {
    fn step(&mut self, entry: &Entry, judge: &Judge<'_>, history: &mut History) {
        let at = entry.at_ns;
        // Nothing is known of the time around what is out of order.
        if entry.kind == Kind::Dropped || (at < self.last && entry.kind != Kind::Leased) {
            self.lose(at.min(self.last), history);
        }
        self.last = self.last.max(at);
        if entry.kind != Kind::Dropped {
            self.forget(at, history);
        }
        match entry.kind {
            Kind::Ask | Kind::Renew | Kind::Release => {
                self.abandon(at, history);
                self.open = Some((*entry, at));
                match (entry.kind, &mut self.hold) {
                    (Kind::Ask, _) => self.let_go(at, history),
                    (Kind::Release, Some(hold)) if hold.ask.key == entry.key => hold.sent = at,
                    _ => {}
                }
            }
            Kind::Leased => match (&mut self.open, &mut self.hold) {
                (Some((call, tried)), _) if call.kind == Kind::Ask => *tried = at,
                (_, Some(hold)) if hold.renewed == hold.leased => {
                    (hold.leased, hold.renewed) = (at, at);
                }
                _ => {}
            },
            Kind::Granted => self.granted(entry, history),
            Kind::Refused => self.request(at, Outcome::Refused, history),
            Kind::AskFailed => self.request(at, Outcome::Unknown, history),
            Kind::Renewed | Kind::RenewLost | Kind::RenewFailed => {
                if let Some(call) = self.ended(Kind::Renew) {
                    self.renewed(entry, call.at_ns, judge, history);
                }
            }
            Kind::Released | Kind::ReleaseRefused | Kind::ReleaseFailed => {
                let hold = self.ended(Kind::Release).and(self.hold.as_mut());
                let Some(hold) = hold.filter(|hold| hold.sent < NEVER) else {
                    return;
                };
                hold.confirmed = entry.kind == Kind::Released;
                if entry.kind != Kind::ReleaseFailed {
                    hold.over = at;
                }
                self.orphan(at, history);
            }
            Kind::Left => {
                self.abandon(at, history);
                self.let_go(at, history);
                self.gone(at, history);
            }
            Kind::Dropped => {}
        }
    }

    /// The open call, if it is of this kind: it has ended.
    fn ended(&mut self, kind: Kind) -> Option<Entry> {
        let call = self.open.take_if(|(call, _)| call.kind == kind);
        call.map(|(call, _)| call)
    }

    fn granted(&mut self, entry: &Entry, history: &mut History) {
        let at = entry.at_ns;
        let asks = |call: &mut (Entry, u64)| call.0.kind == Kind::Ask && call.0.key == entry.key;
        let asked = self.open.take_if(asks);
        let (ask, leased) = asked.unwrap_or_else(|| {
            // Its request is missing.
            let at_ns = self.gap.unwrap_or(0);
            (
                Entry {
                    at_ns,
                    extra: 0,
                    ..*entry
                },
                at_ns,
            )
        });
        self.let_go(at, history);
        // What this client may have had of this lock is one with what it has now.
        self.orphans.retain(|nth| {
            let orphan = &mut history.requests[*nth];
            let same = orphan.ask.key == entry.key;
            orphan.gone = if same { at } else { orphan.gone };
            !same
        });
        self.hold = Some(Hold {
            ask,
            resumed: false,
            confirmed: false,
            leased: leased.min(at),
            granted: at,
            token: entry.extra,
            renewed: leased.min(at),
            latest: at,
            told: NEVER,
            missing: NEVER,
            sent: NEVER,
            over: NEVER,
        });
    }

    /// The open call is a request, and this became of it.
    fn request(&mut self, until: u64, outcome: Outcome, history: &mut History) {
        if let Some(ask) = self.ended(Kind::Ask) {
            self.note(ask, until, outcome, history);
        }
    }

    fn note(&mut self, ask: Entry, until: u64, outcome: Outcome, history: &mut History) {
        if matches!(outcome, Outcome::Unknown | Outcome::Orphan) {
            self.orphans.push(history.requests.len());
        }
        history.requests.push(Request {
            ask,
            outcome,
            until,
            gone: NEVER,
        });
    }

    fn renewed(&mut self, entry: &Entry, sent: u64, judge: &Judge<'_>, history: &mut History) {
        let at = entry.at_ns;
        let of = |hold: &&mut Hold| [hold.ask.key, ALL_KEYS].contains(&entry.key);
        let Some(hold) = self.hold.as_mut().filter(of) else {
            return;
        };
        hold.latest = at;
        match entry.kind {
            Kind::RenewLost => {
                (hold.told, hold.over) = (hold.told.min(sent), hold.over.min(at));
            }
            Kind::Renewed if sent <= judge.lease_end(hold.renewed) => {
                hold.renewed = sent;
            }
            Kind::Renewed => {
                let (resumed, granted) = (true, at);
                let (leased, renewed) = (sent, sent);
                let rest = Hold {
                    resumed,
                    granted,
                    leased,
                    renewed,
                    ..hold.clone()
                };
                hold.over = at;
                history.holds.extend(self.hold.replace(rest));
            }
            _ => {}
        }
    }

    /// The end of the open call is not known.
    fn abandon(&mut self, at: u64, history: &mut History) {
        history.unknown += u64::from(self.open.is_some());
        self.request(at, Outcome::Unknown, history);
        match (self.open.take(), &mut self.hold) {
            (Some((call, _)), _) if call.kind == Kind::Release => self.orphan(at, history),
            (Some(_), Some(hold)) => hold.latest = at,
            _ => {}
        }
    }

    /// The client does not believe in a hold, and it is known what it does.
    fn let_go(&mut self, at: u64, history: &mut History) {
        if let Some(hold) = &mut self.hold {
            hold.told = hold.told.min(at);
            self.orphan(at, history);
        }
        history.gaps.extend(self.gap.take().map(|from| (from, at)));
    }

    /// The hold is over for its client, and for the service only if it said so.
    fn orphan(&mut self, at: u64, history: &mut History) {
        if let Some(mut hold) = self.hold.take() {
            if hold.over == NEVER {
                hold.over = at;
                self.note(
                    Entry {
                        at_ns: at,
                        ..hold.ask
                    },
                    at,
                    Outcome::Orphan,
                    history,
                );
            }
            history.holds.push(hold);
        }
    }

    /// The session has ended.
    fn gone(&mut self, at: u64, history: &mut History) {
        for nth in self.orphans.drain(..) {
            history.requests[nth].gone = at;
        }
    }

    fn lose(&mut self, from: u64, history: &mut History) {
        self.abandon(from, history);
        self.gap.get_or_insert(from);
        if let Some(hold) = &mut self.hold {
            hold.missing = hold.missing.min(from);
        }
    }

    /// What was held before entries are missing may have been released since.
    fn forget(&mut self, at: u64, history: &mut History) {
        if let Some(mut hold) = self.hold.take_if(|hold| hold.missing < NEVER) {
            (hold.told, hold.over) = (hold.told.min(at), hold.over.min(at));
            history.holds.push(hold);
        }
    }

    /// After the last entry, of the client or of the run.
    fn end(&mut self, killed: Option<(u64, u64)>, ended: u64, history: &mut History) {
        if let Some((from, struck)) = killed {
            self.abandon(from, history);
            self.orphan(struck, history);
            self.gone(struck, history);
        }
        history.unknown += u64::from(self.open.is_some());
        self.request(ended, Outcome::Open, history);
        history.holds.extend(self.hold.take());
        let until = killed.map_or(ended, |(_, struck)| struck);
        history
            .gaps
            .extend(self.gap.take().map(|from| (from, until)));
    }
}
