//! The active jostled: batches, barriers, and what they let go.
//!
//! The journal comes in as entries and goes out in batches, one operation at a time. A
//! batch is the longest beginning of the journal that fits; what begins and ends in it
//! leaves nothing. A journal that changes nothing still needs an operation, the *barrier*:
//! the comparison alone, which proves that nobody has taken over.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

use super::call::{Answer, Due, Outcome, Pending, Request, Txn, later};
use super::keys::{self, Head, Keys};
use super::{Over, Rules, Taken};
use crate::store::{Entry, Owner, Stored};
use crate::table::Time;

/// The news that an answer brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// All that was asked for is committed, and an operation has succeeded that began
    /// afterwards: the replies of those turns may be sent.
    pub freed: bool,
    /// Tokens below this may be given out.
    pub tokens: Option<u64>,
}

/// The side of the active jostled that talks to etcd: a thread has it.
#[derive(Clone, Debug)]
pub struct Primary {
    keys: Keys,
    rules: Rules,
    head: Head,
    /// All that was asked for, etcd's state and the journal together.
    stored: Stored,
    journal: VecDeque<Change>,
    /// Holds of sessions that have ended: their keys mean nothing any more.
    void: VecDeque<u64>,
    /// Replies wait for the journal's end and a fresh operation.
    asked: bool,
    released: bool,
    operation: Option<Operation>,
    numbers: u64,
    /// The first token that was not given out.
    next_token: u64,
    /// When the last successful write began.
    wrote: Time,
    /// Until when nothing is granted.
    loading: Time,
    /// Until when writes without content may begin: the loop has turned.
    lives: Time,
    over: Option<Over>,
}

#[derive(Clone, Debug)]
struct Operation {
    pending: Pending,
    /// The head that it puts, or that it finds.
    head: Head,
    writes: bool,
    frees: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Hold(u64),
    Session(u128),
}

/// A change of a key.
#[derive(Clone, Debug)]
struct Change {
    key: Key,
    /// `None`: it is deleted.
    value: Option<Vec<u8>>,
    /// The key did not exist before.
    fresh: bool,
    /// The next one belongs to the same request.
    joined: bool,
}

impl Change {
    fn bytes(&self) -> usize {
        const KEY: usize = 128;
        KEY + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// The keys that a batch changes: new values, and whether they are fresh.
type Batch = BTreeMap<Key, (Option<Vec<u8>>, bool)>;

/// Adds a change to a batch.
fn enter(batch: &mut Batch, change: Change) {
    let fresh = batch.get(&change.key).map(|(_, fresh)| *fresh);
    if change.value.is_none() && fresh == Some(true) {
        batch.remove(&change.key);
    } else {
        let value = (change.value, fresh.unwrap_or(change.fresh));
        batch.insert(change.key, value);
    }
}

impl Primary {
    /// Goes on after a takeover, once its content was cloned for the table.
    #[must_use]
    pub fn new(keys: Keys, rules: Rules, taken: Taken) -> Self {
        let mut stored = taken.stored;
        let all: Vec<u64> = stored.holds.keys().copied().collect();
        stored.settle();
        let ended = |token: &u64| !stored.holds.contains_key(token);
        Self {
            keys,
            rules,
            head: taken.head,
            void: all.into_iter().filter(ended).collect(),
            stored,
            journal: VecDeque::new(),
            asked: false,
            released: false,
            operation: None,
            numbers: 0,
            next_token: taken.first_token,
            wrote: taken.at,
            loading: taken.loading,
            // The loop begins when it has adopted.
            lives: later(taken.at, rules.first_turn_ms),
            over: None,
        }
    }

    /// Asks for the commit of these entries, or for a proof if there are none: once more
    /// after each [`News::freed`].
    pub fn ask(&mut self, entries: Vec<Entry>) {
        if self.released {
            return;
        }
        self.asked = true;
        let mut together = 0;
        for entry in entries {
            if let Entry::Together(count) = entry {
                together = count;
                continue;
            }
            together = u64::saturating_sub(together, 1);
            self.note(entry, together > 0);
        }
    }

    fn note(&mut self, entry: Entry, joined: bool) {
        let before = match &entry {
            Entry::Ended(token) => self.stored.holds.get(token).cloned(),
            _ => None,
        };
        // A renewal that changes no stored TTL is none here.
        if !self.stored.apply(&entry) {
            return;
        }
        let fresh = !matches!(entry, Entry::Renewed(..));
        let (key, value) = match entry {
            Entry::Begun(token, hold) => {
                self.next_token = self.next_token.max(token + 1);
                (Key::Hold(token), Some(keys::hold_text(&hold)))
            }
            Entry::Renewed(token, _) => {
                let hold = self.stored.holds.get(&token);
                (Key::Hold(token), hold.map(keys::hold_text))
            }
            Entry::Ended(token) => {
                if let Some(Owner::Session(session)) = before.map(|hold| hold.owner)
                    && !self.stored.sessions.contains_key(&session)
                {
                    return self.void.push_back(token);
                }
                (Key::Hold(token), None)
            }
            Entry::Opened(session, ..) => {
                let value = keys::session_text(&self.stored, &session);
                (Key::Session(session.id), Some(value))
            }
            Entry::Closed(session) => (Key::Session(session.id), None),
            Entry::Run(..) | Entry::Together(_) => return,
        };
        self.journal.push_back(Change {
            key,
            value,
            fresh,
            joined,
        });
    }

    /// Notes that the event loop turns.
    pub fn turned(&mut self, now: Time) {
        self.lives = self.lives.max(later(now, self.rules.turn_ms));
    }

    /// Gives the place up, once all that was asked for is committed. Later entries, such as
    /// those of connections that close, are left out: their holds go over to the next primary.
    pub fn release(&mut self) {
        self.released = true;
    }

    /// What is to be done now.
    pub fn due(&mut self, now: Time) -> Due {
        let silent = later(self.wrote, self.head.orphan_ms);
        if self.over.is_none() && now >= silent {
            self.over = Some(Over::Silent(self.head.orphan_ms));
        }
        if let Some(over) = &self.over {
            return Due::Over(over.clone());
        }
        if self.operation.is_none() {
            self.operation = self.begin(now);
        }
        let due = match &mut self.operation {
            Some(operation) => operation.pending.due(&self.rules, now),
            None => Due::Wait(match self.beat() {
                beat if beat <= self.lives => beat,
                _ => silent,
            }),
        };
        match due {
            Due::Wait(until) => Due::Wait(until.min(silent)),
            due => due,
        }
    }

    /// When the next write is due that has no content.
    fn beat(&self) -> Time {
        later(self.wrote, self.rules.beat_ms)
    }

    fn begin(&mut self, now: Time) -> Option<Operation> {
        let batch = self.batch();
        let drained = self.journal.is_empty();
        let releases = self.released && drained && !self.asked;
        let beats = now >= self.beat() && now <= self.lives;
        let writes = !batch.is_empty() || beats || releases;
        if !writes && !self.asked {
            return None;
        }
        let mut head = self.head.clone();
        let mut txn = Txn {
            key: self.keys.head(),
            compare: Some(head.text()),
            puts: Vec::new(),
            deletes: Vec::new(),
        };
        for (key, (value, _)) in batch {
            let key = match key {
                Key::Hold(token) => self.keys.hold(token),
                Key::Session(id) => self.keys.session(id),
            };
            match value {
                Some(value) => txn.puts.push((key, value)),
                None => txn.deletes.push((key, None)),
            }
        }
        if writes {
            let mut hasher = DefaultHasher::new();
            (&txn.puts, &txn.deletes).hash(&mut hasher);
            head.batch = format!("{:016x}", hasher.finish());
            head.sequence += 1;
            if head.tokens.saturating_sub(self.next_token) <= self.rules.tokens / 2 {
                head.tokens += self.rules.tokens;
            }
            if now >= self.loading {
                head.loading_ms = 0;
            }
            if releases {
                head.incarnation.clear();
            }
            txn.puts.push((self.keys.head(), head.text()));
        } else {
            // It goes through etcd's log, and makes no revision.
            txn.deletes.push((self.keys.none(), None));
        }
        Some(Operation {
            pending: Pending::new(&mut self.numbers, Request::Txn(txn), now),
            head,
            writes,
            frees: self.asked && drained,
        })
    }

    /// Takes the longest beginning of the journal that fits into one operation, and fills it
    /// with keys that mean nothing any more.
    fn batch(&mut self) -> Batch {
        let (mut batch, mut bytes) = (Batch::new(), 0);
        while !self.journal.is_empty() {
            let joined = self.journal.iter().take_while(|change| change.joined);
            let count = joined.count() + 1;
            let group = self.journal.iter().take(count);
            let (mut more, mut size) = (0, 0);
            for change in group {
                more += usize::from(!batch.contains_key(&change.key));
                size += change.bytes();
            }
            let fits = batch.len() + more <= self.rules.operations;
            if !batch.is_empty() && (!fits || bytes + size > self.rules.bytes) {
                return batch;
            }
            bytes += size;
            for change in self.journal.drain(..count) {
                enter(&mut batch, change);
            }
        }
        while batch.len() < self.rules.operations
            && let Some(token) = self.void.pop_front()
        {
            let change = Change {
                key: Key::Hold(token),
                value: None,
                fresh: false,
                joined: false,
            };
            enter(&mut batch, change);
        }
        batch
    }

    /// Takes the answer to a call of this number.
    pub fn answered(&mut self, number: u64, answer: Answer, now: Time) -> News {
        let mut news = News::default();
        let Some(operation) = &mut self.operation else {
            return news;
        };
        if !operation.pending.is(number) {
            return news;
        }
        let head = operation.head.text();
        let pending = &mut operation.pending;
        match pending.settle(answer, &head, &self.rules, now) {
            Outcome::Open => return news,
            Outcome::Replaced(found) => {
                let found = found.map_or("the head is gone".into(), |found| {
                    String::from_utf8_lossy(&found).into_owned()
                });
                self.over = Some(Over::Deposed(found));
                return news;
            }
            Outcome::Done => {}
        }
        if let Some(operation) = self.operation.take() {
            if operation.writes {
                self.wrote = operation.pending.begun;
                if operation.head.tokens != self.head.tokens {
                    news.tokens = Some(operation.head.tokens);
                }
                self.head = operation.head;
            }
            if self.head.incarnation.is_empty() {
                self.over = Some(Over::Released);
            }
            if operation.frees {
                self.asked = false;
                news.freed = true;
            }
        }
        news
    }

    /// The head as it was last written.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Changes of keys that are not in an operation yet.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.journal.len()
    }
}
