//! All findings about one run.
//!
//! Each lock is swept once in the order of its grants: O(n log n) for the sorting, and no
//! search, since a hold of one client excludes all others: two holds break exclusion if and only if
//! the later one is granted before the earlier one certainly ends. What holds that are open at the
//! same time cost is bounded by the number of clients.

use super::ends::Judge;
use super::excerpt;
use super::free::Free;
use super::history::{Entry, Facts, Kind};
use super::holds::{self, Hold};
use super::overlaps;
use crate::intervals::median;
use jostle_model::plan::Fault;
use jostle_model::record::{FaultSeen, Verified, Violation};
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

/// The findings about one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// All but what the parent knows: `again` and `without`.
    pub verified: Verified,
    /// When the first violation was complete, in nanoseconds since the start of the run.
    pub found_ns: Option<u64>,
}

/// The time and the calls of one client that belong to a violation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub client: u32,
    pub since: u64,
    pub until: u64,
    /// The end of the lease, where it was over before the release.
    pub lease_end: Option<u64>,
}

impl Window {
    pub(super) fn of(judge: &Judge<'_>, hold: &Hold) -> Window {
        let lease_end = judge.lease_end(hold.renewed);
        let end = lease_end.min(judge.facts.ended_ns);
        Window {
            client: hold.ask.client,
            since: hold.ask.at_ns,
            until: hold.over.min(judge.facts.ended_ns),
            lease_end: (lease_end < hold.sent.min(hold.told)).then_some(end),
        }
    }
}

/// The violation that was complete before all others.
#[derive(Clone, Debug)]
pub(super) struct First {
    pub kind: Violation,
    pub key: u16,
    pub from_ns: u64,
    pub until_ns: u64,
    pub windows: Vec<Window>,
}

/// What the checks find as they go.
#[derive(Default)]
pub(super) struct Found {
    pub verified: Verified,
    /// For each fault in the order of time: it struck an owner.
    pub struck_owners: Vec<bool>,
    /// From a fault that struck an owner to the next grant of its lock.
    pub next_grants: BTreeMap<Fault, Vec<f64>>,
    first: Option<(u64, First)>,
}

impl Found {
    /// A violation that was complete at this time.
    pub(super) fn first(&mut self, at: u64, what: impl FnOnce() -> First) {
        if self.first.as_ref().is_none_or(|(first, _)| at < *first) {
            self.first = Some((at, what()));
        }
    }
}

/// Checks the history of a run. The entries of each client come in the order in which they
/// were made, the clients in any order or mixed; entries after the end are left out. What is
/// out of order counts as missing. Entries are read twice if there is a violation, else once.
pub fn found<E>(facts: &Facts, entries: E) -> Findings
where
    E: IntoIterator<Item: Borrow<Entry>> + Clone,
{
    let judge = Judge::new(facts);
    let mut verified = Verified::default();
    let mut said = vec![0; facts.said.len()];
    let all = entries.clone().into_iter();
    let in_time = all.filter(|entry| entry.borrow().at_ns <= facts.ended_ns);
    let counted = in_time.inspect(|entry| count(entry.borrow(), &mut verified, &mut said));
    let history = holds::read(&judge, counted);
    let mut found = Found {
        verified: Verified {
            promise: facts.promise.clone(),
            ran_ns: facts.ended_ns,
            keys: facts.keys,
            clients: facts.clients,
            unknown: history.unknown,
            ..verified
        },
        struck_owners: vec![false; judge.struck.len()],
        ..Found::default()
    };
    for (words, count) in facts.said.iter().zip(said).filter(|(_, count)| *count > 0) {
        *found.verified.said.entry(words.clone()).or_default() += count;
    }
    let free = Free::new(&judge, &history.gaps);
    found.verified.free_bound_ns = Some(free.bound_ns);
    let holds = history.holds.iter().map(|hold| hold.ask.key);
    let keys = holds.chain(history.requests.iter().map(|request| request.ask.key));
    for key in keys.collect::<BTreeSet<u16>>() {
        let holds = of_key(&history.holds, key, |hold| hold.ask.key);
        overlaps::sweep(&judge, holds, &mut found);
        let requests = of_key(&history.requests, key, |request| request.ask.key);
        free.look(key, holds, requests, &mut found);
    }
    found.verified.faults = faults(&judge, &found);
    let first = found.first;
    let found_ns = first.as_ref().map(|(at, _)| *at);
    found.verified.excerpt = first.map(|(at, first)| excerpt::of(&judge, at, &first, entries));
    Findings {
        verified: found.verified,
        found_ns,
    }
}

fn count(entry: &Entry, verified: &mut Verified, said: &mut [u64]) {
    match entry.kind {
        Kind::Ask | Kind::Renew | Kind::Release => verified.calls += 1,
        Kind::Granted => verified.grants += 1,
        Kind::Refused => verified.refused += 1,
        Kind::Renewed => verified.renewals += 1,
        Kind::Dropped => verified.dropped = verified.dropped.saturating_add(entry.extra),
        Kind::AskFailed | Kind::RenewFailed | Kind::ReleaseFailed => {
            verified.errors += 1;
            let words = usize::try_from(entry.extra).ok();
            if let Some(count) = words.and_then(|words| said.get_mut(words)) {
                *count += 1;
            }
        }
        Kind::Leased | Kind::RenewLost | Kind::Released | Kind::ReleaseRefused | Kind::Left => {}
    }
}

/// Those of one key, of all, which are sorted by it.
fn of_key<T>(all: &[T], key: u16, of: impl Fn(&T) -> u16) -> &[T] {
    let from = all.partition_point(|one| of(one) < key);
    let rest = &all[from..];
    &rest[..rest.partition_point(|one| of(one) == key)]
}

fn faults(judge: &Judge<'_>, found: &Found) -> BTreeMap<Fault, FaultSeen> {
    let mut faults: BTreeMap<Fault, FaultSeen> = BTreeMap::new();
    for (struck, owner) in judge.struck.iter().zip(&found.struck_owners) {
        let seen = faults.entry(struck.fault).or_default();
        seen.struck += 1;
        seen.struck_owners += u64::from(*owner);
    }
    for (fault, after) in &found.next_grants {
        let seen = faults.entry(*fault).or_default();
        seen.next_grant_p50_ns = median(after).map(|ns| ns as u64);
        let longest = after.iter().copied().reduce(f64::max);
        seen.next_grant_max_ns = longest.map(|ns| ns as u64);
    }
    faults
}
