//! A jostled that waits for its turn: it watches the head, and takes over when the head
//! stands still or names nobody.

use super::call::{Answer, Due, Outcome, Pending, Range, Request, Txn, later};
use super::keys::{Found, Head, Keys};
use super::{Over, Rules};
use crate::store::Stored;
use crate::table::Time;

/// Tokens and sequences that a restored state may be behind.
const LOST: u64 = 1 << 40;
/// Bytes of a pair, as the first page of a load expects it.
const PAIR: usize = 1 << 14;
/// A page is asked for again so often.
const ATTEMPTS: u32 = 3;
/// So many changes of the head show that a primary is at work.
const AT_WORK: u32 = 10;

/// What this jostled puts into the head.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// Random bits, new at each start.
    pub incarnation: String,
    /// How long a connection's hold outlives its primary, in milliseconds.
    pub orphan_ms: u64,
    /// The longest TTL, in milliseconds.
    pub max_ttl_ms: u64,
    /// Where clients reach this jostled.
    pub addresses: Vec<String>,
    /// Its version.
    pub version: String,
    /// A digest of its settings and users.
    pub digest: String,
}

/// What a member knows of its cluster, for its data directory: write it when it has
/// changed, every 10 s at most, away from all else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The cluster's random bits; empty: it has seen none.
    pub cluster: String,
    /// The greatest sequence that it has seen.
    pub sequence: u64,
    /// The end of the tokens that it has seen: a backup may be restored twice.
    pub tokens: u64,
}

impl Memory {
    /// What this head tells.
    #[must_use]
    pub fn of(head: &Head) -> Self {
        Self {
            cluster: head.cluster.clone(),
            sequence: head.sequence,
            tokens: head.tokens,
        }
    }
}

/// A takeover that is known to have succeeded.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The head that was put.
    pub head: Head,
    /// All that is held: the table adopts it.
    pub stored: Stored,
    /// The first token to give out. The end is the head's.
    pub first_token: u64,
    /// How long the holds of connections go on, in milliseconds.
    pub orphan_ms: u64,
    /// When the success was known: adopt as of this time, or later.
    pub at: Time,
    /// All holds were discarded.
    pub discarded: bool,
    /// Nothing may be granted before this time, since holds were discarded, by this takeover
    /// or by one shortly before it.
    pub loading: Time,
}

/// A jostled that watches.
#[derive(Debug)]
pub struct Standby {
    keys: Keys,
    rules: Rules,
    own: Own,
    memory: Memory,
    /// Whether a contradiction is accepted, for so many more changes of the head.
    restored: Option<u32>,
    numbers: u64,
    state: State,
    /// The head, and since when it has been this one.
    seen: Option<(Seen, Time)>,
    /// Since when all reads have succeeded.
    good: Time,
    /// When the head is read next, and since when a load may begin.
    next: Time,
    loads: Time,
    trouble: Option<Over>,
}

#[derive(Debug)]
enum State {
    Watching(Option<Pending>),
    Loading(Load, Pending),
    Taking(Box<Taken>, Pending),
}

/// A head, and the bytes that the next write compares.
#[derive(Clone, Debug)]
struct Seen {
    head: Head,
    value: Vec<u8>,
}

/// A load of all keys, as of one revision.
#[derive(Debug, Default)]
struct Load {
    revision: i64,
    head: Option<Vec<u8>>,
    stored: Stored,
}

impl Load {
    /// Takes a page.
    fn take(&mut self, keys: &Keys, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Over> {
        for (key, value) in pairs {
            match keys.read(key, value)? {
                Found::Head => self.head = Some(value.clone()),
                Found::Entry(entry) => drop(self.stored.apply(&entry)),
                Found::Other => {}
            }
        }
        Ok(())
    }
}

impl Standby {
    /// Begins to watch. With `restored` it accepts an etcd that its memory contradicts; if it
    /// then takes over without having seen a primary at work, all holds are discarded.
    #[must_use]
    pub fn new(keys: Keys, rules: Rules, own: Own, memory: Memory, restored: bool) -> Self {
        Self {
            keys,
            rules,
            own,
            memory,
            restored: restored.then_some(AT_WORK),
            numbers: 0,
            state: State::Watching(None),
            seen: None,
            good: Time(0),
            next: Time(0),
            loads: Time(0),
            trouble: None,
        }
    }

    /// What is to be done now.
    pub fn due(&mut self, now: Time) -> Due {
        if let State::Watching(None) = self.state {
            if now >= self.loads && self.is_silent(now) {
                let load = Load::default();
                let range = self.page(&load, self.keys.all().0, PAIR);
                self.state = State::Loading(load, range.begin(&mut self.numbers, now));
            } else if now >= self.next {
                let range = Range {
                    from: self.keys.head(),
                    to: None,
                    revision: 0,
                    limit: 1,
                };
                self.next = later(now, self.rules.watch_ms);
                self.state = State::Watching(Some(range.begin(&mut self.numbers, now)));
            }
        }
        let pending = match &mut self.state {
            State::Watching(None) => return Due::Wait(self.next),
            State::Watching(Some(pending)) => pending,
            State::Loading(_, pending) | State::Taking(_, pending) => pending,
        };
        let due = pending.due(&self.rules, now);
        if pending.is_late() {
            self.good = now;
        }
        due
    }

    /// Whether the primary is gone.
    fn is_silent(&self, now: Time) -> bool {
        self.seen
            .as_ref()
            .is_some_and(|(Seen { head, .. }, since)| {
                let still = now >= later(*since, self.rules.silence_ms);
                let good = now >= later(self.good, self.rules.good_ms);
                self.trouble.is_none() && (head.incarnation.is_empty() || still && good)
            })
    }

    /// A page of pairs of this size.
    fn page(&self, load: &Load, from: Vec<u8>, size: usize) -> Range {
        Range {
            from,
            to: Some(self.keys.all().1),
            revision: load.revision,
            limit: (self.rules.page / size).max(1) as i64,
        }
    }

    /// Takes the answer to a call of this number. After a takeover [`Primary`](super::Primary)
    /// goes on.
    pub fn answered(&mut self, number: u64, answer: Answer, now: Time) -> Option<Taken> {
        let (State::Watching(Some(pending))
        | State::Loading(_, pending)
        | State::Taking(_, pending)) = &mut self.state
        else {
            return None;
        };
        if !pending.is(number) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Watching(None)) {
            State::Watching(pending) => self.watched(pending, answer, now),
            State::Loading(load, pending) => self.loaded(load, pending, answer, now),
            State::Taking(taken, pending) => return self.taken(taken, pending, answer, now),
        }
        None
    }

    fn watched(&mut self, pending: Option<Pending>, answer: Answer, now: Time) {
        match answer {
            Answer::Page { pairs, .. } => {
                let value = pairs.into_iter().next().map(|(_, value)| value);
                self.see(value.as_deref(), now);
            }
            _ => {
                self.good = now;
                self.state = State::Watching(pending);
                if let State::Watching(Some(pending)) = &mut self.state {
                    pending.fail(&self.rules, now);
                }
            }
        }
    }

    /// Takes a value of the head.
    fn see(&mut self, value: Option<&[u8]>, now: Time) {
        let name = || String::from_utf8_lossy(&self.keys.head()).into_owned();
        let value = value.ok_or_else(|| Over::Uninitialised(name()));
        let read = value.and_then(|value| Ok((Head::read(value)?, value)));
        let (head, value) = match read {
            Ok(read) => read,
            Err(trouble) => {
                (self.trouble, self.seen) = (Some(trouble), None);
                return;
            }
        };
        let before = self.seen.as_ref().map(|(seen, _)| seen);
        if before.is_some_and(|seen| seen.value == value) {
            return;
        }
        if before.is_some_and(|seen| seen.head.sequence < head.sequence) {
            self.restored = match self.restored {
                // A primary is at work, so that its state is the right one.
                Some(0) => {
                    self.memory = Memory::default();
                    None
                }
                restored => restored.map(|more| more - 1),
            };
        }
        self.trouble = self.contradiction(&head);
        if self.trouble.is_none() && self.restored.is_none() {
            self.memory = Memory::of(&head);
        }
        let value = value.to_vec();
        self.seen = Some((Seen { head, value }, now));
    }

    /// Whether this head is not what this member knows. A stale read may be behind, and a
    /// later one then is not.
    fn contradiction(&self, head: &Head) -> Option<Over> {
        let Memory {
            cluster, sequence, ..
        } = &self.memory;
        if self.restored.is_some() {
            None
        } else if !cluster.is_empty() && *cluster != head.cluster {
            Some(Over::Foreign {
                known: cluster.clone(),
                found: head.cluster.clone(),
            })
        } else if head.sequence < *sequence {
            Some(Over::Behind {
                known: *sequence,
                found: head.sequence,
            })
        } else {
            None
        }
    }

    fn loaded(&mut self, mut load: Load, mut pending: Pending, answer: Answer, now: Time) {
        let (pairs, more) = match answer {
            Answer::Page {
                pairs,
                more,
                revision,
            } => {
                if load.revision == 0 {
                    load.revision = revision;
                }
                (pairs, more)
            }
            _ if pending.call.attempt <= ATTEMPTS => {
                pending.fail(&self.rules, now);
                self.state = State::Loading(load, pending);
                return;
            }
            // The revision was compacted, or never was in an etcd that was restored: it
            // begins again.
            _ => {
                self.loads = later(now, self.rules.again_ms);
                return;
            }
        };
        if let Err(trouble) = load.take(&self.keys, &pairs) {
            self.trouble = Some(trouble);
            return;
        }
        if let (true, Some((last, _))) = (more, pairs.last()) {
            let sizes = pairs.iter().map(|(key, value)| key.len() + value.len());
            let each = sizes.sum::<usize>() / pairs.len();
            let mut from = last.clone();
            from.push(0);
            let range = self.page(&load, from, each);
            self.state = State::Loading(load, range.begin(&mut self.numbers, now));
            return;
        }
        match &self.seen {
            Some((seen, _)) if load.head.as_ref() == Some(&seen.value) => {
                self.take_over(seen.clone(), load.stored, now);
            }
            // The primary lives, or another one has taken over.
            _ => self.see(load.head.as_deref(), now),
        }
    }

    fn take_over(&mut self, seen: Seen, stored: Stored, now: Time) {
        let Seen { head: old, value } = seen;
        let discarded = self.restored.is_some();
        let (first_token, sequence) = match discarded {
            true => (
                old.tokens.max(self.memory.tokens) + LOST,
                old.sequence.max(self.memory.sequence) + LOST,
            ),
            false => (old.tokens, old.sequence),
        };
        let own = self.own.clone();
        let head = Head {
            epoch: old.epoch + 1,
            incarnation: own.incarnation,
            sequence: sequence + 1,
            batch: String::new(),
            tokens: first_token + self.rules.tokens,
            orphan_ms: own.orphan_ms,
            loading_ms: match discarded {
                true => old.loading_ms.max(own.max_ttl_ms),
                false => old.loading_ms,
            },
            addresses: own.addresses,
            version: own.version,
            digest: own.digest,
            ..old.clone()
        };
        let txn = Txn {
            key: self.keys.head(),
            compare: Some(value),
            puts: vec![(self.keys.head(), head.text())],
            deletes: match discarded {
                true => self.keys.content().to_vec(),
                false => Vec::new(),
            },
        };
        let taken = Taken {
            head,
            stored: match discarded {
                true => Stored::default(),
                false => stored,
            },
            first_token,
            orphan_ms: old.orphan_ms,
            at: now,
            discarded,
            loading: now,
        };
        let pending = Pending::new(&mut self.numbers, Request::Txn(txn), now);
        self.state = State::Taking(Box::new(taken), pending);
    }

    fn taken(
        &mut self,
        mut taken: Box<Taken>,
        mut pending: Pending,
        answer: Answer,
        now: Time,
    ) -> Option<Taken> {
        match pending.settle(answer, &taken.head.text(), &self.rules, now) {
            Outcome::Open => self.state = State::Taking(taken, pending),
            Outcome::Replaced(found) => self.see(found.as_deref(), now),
            Outcome::Done => {
                self.memory = Memory::of(&taken.head);
                // Waits are counted from here: until now the primary before may have served.
                taken.at = now;
                // As leases, with a hundredth more.
                taken.loading = later(now, taken.head.loading_ms.saturating_mul(101) / 100);
                return Some(*taken);
            }
        }
        None
    }

    /// The head as it was last seen.
    #[must_use]
    pub fn head(&self) -> Option<&Head> {
        self.seen.as_ref().map(|(seen, _)| &seen.head)
    }

    /// Why it does not take over, whatever happens.
    #[must_use]
    pub fn trouble(&self) -> Option<&Over> {
        self.trouble.as_ref()
    }

    /// What it knows of the cluster.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Range {
    fn begin(self, numbers: &mut u64, now: Time) -> Pending {
        Pending::new(numbers, Request::Range(self), now)
    }
}

/// The making of a cluster's keys.
#[derive(Debug)]
pub struct Init {
    rules: Rules,
    head: Head,
    pending: Pending,
    over: Option<Over>,
}

impl Init {
    /// Makes the head, unless there is one. `cluster`: random bits; `first_token`: this
    /// machine gave out tokens below it.
    #[must_use]
    pub fn new(keys: &Keys, rules: Rules, cluster: &str, first_token: u64, now: Time) -> Self {
        let head = Head::first(cluster, first_token);
        let txn = Txn {
            key: keys.head(),
            compare: None,
            puts: vec![(keys.head(), head.text())],
            deletes: keys.content().to_vec(),
        };
        Self {
            rules,
            head,
            pending: Pending::new(&mut 0, Request::Txn(txn), now),
            over: None,
        }
    }

    /// What is to be done now.
    pub fn due(&mut self, now: Time) -> Due {
        match &self.over {
            Some(over) => Due::Over(over.clone()),
            None => self.pending.due(&self.rules, now),
        }
    }

    /// Takes an answer; the head that was made.
    pub fn answered(&mut self, answer: Answer, now: Time) -> Option<Head> {
        let text = self.head.text();
        match self.pending.settle(answer, &text, &self.rules, now) {
            Outcome::Open => None,
            Outcome::Done => Some(self.head.clone()),
            Outcome::Replaced(found) => {
                let found = found.unwrap_or_default();
                let found = String::from_utf8_lossy(&found).into_owned();
                self.over = Some(Over::Initialised(found));
                None
            }
        }
    }
}
