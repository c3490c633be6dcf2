//! An etcd with its faults: stale reads, a restored backup, lost contents.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::super::{Answer, Range, Request, Txn};
use super::RULES;

pub(super) type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Revisions that are not compacted yet.
const KEPT: usize = 12;

#[derive(Default)]
pub(super) struct Etcd {
    pub(super) revision: i64,
    pub(super) pairs: Rc<Pairs>,
    /// The states of the last revisions.
    past: VecDeque<(i64, Rc<Pairs>)>,
}

impl Etcd {
    /// Answers a request; a read of the newest state may be one of a member that is so many
    /// revisions `behind`.
    pub(super) fn answer(&mut self, request: &Request, behind: usize) -> Answer {
        match request {
            Request::Txn(txn) => self.txn(txn),
            Request::Range(range) => self.range(range, behind),
        }
    }

    fn txn(&mut self, txn: &Txn) -> Answer {
        let count = txn.puts.len() + txn.deletes.len();
        assert!(count <= RULES.operations + 1, "{count} operations");
        let found = self.pairs.get(&txn.key);
        if found != txn.compare.as_ref() {
            return Answer::Refused(found.cloned());
        }
        let mut pairs = (*self.pairs).clone();
        let mut changed = !txn.puts.is_empty();
        for (from, to) in &txn.deletes {
            let to = to
                .clone()
                .unwrap_or_else(|| [from.as_slice(), &[0]].concat());
            let gone: Vec<Vec<u8>> = pairs
                .range(from.clone()..to)
                .map(|(key, _)| key.clone())
                .collect();
            changed |= !gone.is_empty();
            for key in gone {
                pairs.remove(&key);
                let twice = txn.puts.iter().any(|(put, _)| *put == key);
                assert!(!twice, "etcd refuses a key that is put and deleted");
            }
        }
        for (key, value) in &txn.puts {
            pairs.insert(key.clone(), value.clone());
        }
        if changed {
            self.set(self.revision + 1, Rc::new(pairs));
        }
        Answer::Committed
    }

    fn set(&mut self, revision: i64, pairs: Rc<Pairs>) {
        self.past.push_back((revision, Rc::clone(&pairs)));
        if self.past.len() > KEPT {
            self.past.pop_front();
        }
        (self.revision, self.pairs) = (revision, pairs);
    }

    fn range(&self, range: &Range, behind: usize) -> Answer {
        let (at, pairs) = match range.revision {
            0 => match self.past.iter().rev().nth(behind) {
                Some((at, pairs)) => (*at, pairs),
                None => (self.revision, &self.pairs),
            },
            at => match self.past.iter().find(|(revision, _)| *revision == at) {
                Some((at, pairs)) => (*at, pairs),
                // Compacted, or a revision of another state.
                None => return Answer::Unknown,
            },
        };
        let to = range.to.clone();
        let to = to.unwrap_or_else(|| [range.from.as_slice(), &[0]].concat());
        let mut found = pairs.range(range.from.clone()..to);
        let limit = range.limit as usize;
        let pair = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        let pairs = found.by_ref().take(limit).map(pair).collect();
        Answer::Page {
            pairs,
            more: found.next().is_some(),
            revision: at,
        }
    }

    /// Its content is this one now, of this revision; its members know no other.
    pub(super) fn become_that_of(&mut self, revision: i64, pairs: Rc<Pairs>) {
        self.past.clear();
        self.set(revision, pairs);
    }
}
