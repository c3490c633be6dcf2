//! Times in which a lock was certainly free while a client certainly waited for it.

use super::check::{First, Found, Window};
use super::ends::Judge;
use super::history::Entry;
use super::holds::{Hold, NEVER, Outcome, Request};
use jostle_model::plan::Fault;
use jostle_model::record::Violation;
use std::collections::HashMap;

/// What an answer may take beside CPU time: a service that stalls while its disk syncs, or TCP,
/// which sends again after 200, 400 and more milliseconds. A second covers both on machines
/// that are not broken.
const ANSWER_NS: u64 = 1_000_000_000;

/// Disjoint times, in order.
#[derive(Debug, Default)]
struct Spans(Vec<(u64, u64)>);

impl Spans {
    fn of(mut all: Vec<(u64, u64)>) -> Spans {
        all.sort_unstable();
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for (from, until) in all {
            match spans.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => spans.push((from, until)),
            }
        }
        Spans(spans)
    }

    /// Those that end after `from`, and begin before `until`.
    fn within(&self, from: u64, until: u64) -> &[(u64, u64)] {
        let rest = &self.0[self.0.partition_point(|span| span.1 <= from)..];
        &rest[..rest.partition_point(|span| span.0 < until)]
    }

    /// What is left of this time.
    fn without(&self, mut from: u64, until: u64, mut take: impl FnMut(u64, u64)) {
        for span in self.within(from, until) {
            if from < span.0 {
                take(from, span.0);
            }
            from = span.1;
        }
        if from < until {
            take(from, until);
        }
    }
}

/// A client certainly waits.
#[derive(Clone, Copy, Debug)]
struct Wait {
    from: u64,
    until: u64,
    client: u32,
    /// It was granted in the end.
    granted: bool,
}

/// What the checks of all locks have in common.
pub(super) struct Free<'a> {
    judge: &'a Judge<'a>,
    /// Times that are not judged: outages of the service until the bound after them, and
    /// missing entries.
    outages: Spans,
    /// Clients that were stopped or cut off.
    halted: HashMap<u32, Spans>,
    nobody: Spans,
    /// The longest time for which a free lock may not be granted.
    pub bound_ns: u64,
    /// The shortest after which somebody who had gone is taken to have been granted it.
    stuck_ns: u64,
}

impl<'a> Free<'a> {
    pub(super) fn new(judge: &'a Judge<'a>, gaps: &[(u64, u64)]) -> Free<'a> {
        let facts = judge.facts;
        let waits = [facts.poll_ns, facts.delayed_ns, ANSWER_NS];
        let answer_ns = waits.into_iter().fold(0, u64::saturating_add);
        let lease = facts.promise.lease_ns.map_or(0, |_| judge.longest_lease());
        let bound_ns = answer_ns.saturating_add(lease);
        let mut outages = gaps.to_vec();
        let mut halted: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
        for struck in &judge.struck {
            let over = struck.over_ns.unwrap_or(NEVER);
            // TCP sends again at the latest after as long again as it has sent in vain.
            let reached = over.saturating_add(over.saturating_sub(struck.from_ns));
            match struck.client {
                None if struck.fault.parts_hosts() => outages.push((struck.from_ns, reached)),
                None => outages.push((struck.from_ns, over)),
                Some(client) if struck.fault != Fault::Kill => {
                    halted
                        .entry(client)
                        .or_default()
                        .push((struck.from_ns, reached));
                }
                Some(_) => {}
            }
        }
        for (_, until) in &mut outages {
            *until = until.saturating_add(bound_ns);
        }
        let halted = halted.into_iter();
        Free {
            judge,
            outages: Spans::of(outages),
            halted: halted
                .map(|(client, all)| (client, Spans::of(all)))
                .collect(),
            nobody: Spans::default(),
            bound_ns,
            stuck_ns: answer_ns.max(facts.promise.lease_ns.unwrap_or(0) / 2),
        }
    }

    fn halted(&self, client: u32) -> &Spans {
        self.halted.get(&client).unwrap_or(&self.nobody)
    }

    /// All that is known of one lock.
    pub(super) fn look(&self, key: u16, holds: &[Hold], requests: &[Request], found: &mut Found) {
        // Times in which the lock may be owned: by known holds, and by requests that failed.
        let (mut owned, mut perhaps) = (Vec::new(), Vec::new());
        // Requests of those who had gone, until when they may have been granted.
        let (mut waits, mut departed) = (Vec::new(), Vec::new());
        for hold in holds {
            let Entry {
                client,
                at_ns: asked,
                ..
            } = hold.ask;
            // Who was halted may have been granted the lock long before it knew.
            let halted = !self.halted(client).within(asked, hold.granted).is_empty();
            let from = if halted && !hold.resumed {
                asked
            } else {
                hold.granted
            };
            let lease_end = hold.latest.saturating_add(self.judge.longest_lease());
            owned.push((from, hold.over.min(lease_end)));
            if !hold.resumed {
                self.waits(&hold.ask, hold.granted, true, &mut waits);
            }
        }
        for request in requests {
            let Request { ask, until, .. } = request;
            let end = |gone| (ask.at_ns, self.may_own(ask.client, gone, holds));
            match request.outcome {
                Outcome::Orphan => owned.push(end(request.gone)),
                Outcome::Unknown => {
                    perhaps.push(end(request.gone));
                    departed.push(end(request.gone));
                }
                Outcome::Refused if ask.extra > 0 => {
                    if !self.halted(ask.client).within(ask.at_ns, *until).is_empty() {
                        perhaps.push(end(*until));
                    }
                    departed.push((ask.at_ns, until.saturating_add(self.stuck_ns)));
                    self.waits(ask, *until, false, &mut waits);
                }
                Outcome::Open => self.waits(ask, *until, false, &mut waits),
                Outcome::Refused => {}
            }
        }
        waits.sort_unstable_by_key(|wait| wait.from);
        if !departed.is_empty() {
            found.verified.to_the_departed += self.stuck(owned.clone(), &waits, departed);
        }
        owned.append(&mut perhaps);
        self.stretches(owned, &waits, |free, wait| {
            let waited_ns = wait.until - wait.from;
            let longest = &mut found.verified.longest_free_ns;
            *longest = waited_ns.max(*longest);
            if waited_ns > self.bound_ns {
                found.verified.late_grants += 1;
                found.first(wait.from + self.bound_ns, || {
                    self.late(key, free.1, wait, holds)
                });
            }
        });
    }

    /// Until when the service may take this client, whose session ended then, for the owner:
    /// until its lease ends, or another is granted the lock after the service knows of the end.
    fn may_own(&self, client: u32, gone: u64, holds: &[Hold]) -> u64 {
        let cut = self.halted(client).within(gone, gone.saturating_add(1));
        let gone = cut.last().map_or(gone, |span| span.1);
        let end = gone.saturating_add(self.judge.longest_lease());
        let mut later = holds[holds.partition_point(|hold| hold.granted <= gone)..].iter();
        let next = later.find(|hold| hold.ask.client != client && !hold.resumed);
        next.map_or(end, |next| next.granted.min(end))
    }

    fn waits(&self, ask: &Entry, until: u64, granted: bool, waits: &mut Vec<Wait>) {
        let until = if ask.extra > 0 { until } else { 0 };
        let client = ask.client;
        self.outages.without(ask.at_ns, until, |from, until| {
            self.halted(client).without(from, until, |from, until| {
                waits.push(Wait {
                    from,
                    until,
                    client,
                    granted,
                });
            });
        });
    }

    /// Times in which nobody is known to have owned, and one who had gone may have been granted
    /// the lock, until somebody was at last.
    fn stuck(&self, owned: Vec<(u64, u64)>, waits: &[Wait], mut departed: Vec<(u64, u64)>) -> u64 {
        departed.sort_unstable();
        let mut departed = departed.into_iter().peekable();
        let (mut latest, mut stuck) = (0, 0);
        let granted: Vec<Wait> = waits.iter().filter(|wait| wait.granted).copied().collect();
        self.stretches(owned, &granted, |(from, until), wait| {
            if wait.until - wait.from > self.stuck_ns {
                while let Some((_, end)) = departed.next_if(|(asked, _)| *asked < until) {
                    latest = end.max(latest);
                }
                stuck += u64::from(latest > from);
            }
        });
        stuck
    }

    /// With the last hold before.
    fn late(&self, key: u16, free_until: u64, wait: Wait, holds: &[Hold]) -> First {
        let before = &holds[..holds.partition_point(|hold| hold.granted < free_until)];
        let owner = before.last().map(|hold| Window::of(self.judge, hold));
        let waiter = Window {
            client: wait.client,
            since: wait.from,
            until: wait.until,
            lease_end: None,
        };
        First {
            kind: Violation::LateGrant,
            key,
            from_ns: wait.from,
            until_ns: wait.until,
            windows: owner.into_iter().chain([waiter]).collect(),
        }
    }

    /// Each time until the end in which nobody owned, with the longest wait in it.
    fn stretches(
        &self,
        mut owned: Vec<(u64, u64)>,
        waits: &[Wait],
        mut take: impl FnMut((u64, u64), Wait),
    ) {
        let ended = self.judge.facts.ended_ns;
        owned.sort_unstable();
        owned.push((ended, ended));
        let mut waits = waits.iter().copied().peekable();
        // Of the waits that began before, the one that lasts longest.
        let mut lasting: Option<Wait> = None;
        let mut free_from = 0;
        for (from, owned_until) in owned {
            let free = (free_from, from.min(ended));
            if free.0 < free.1 {
                let mut longest: Option<Wait> = None;
                let mut next = lasting.or_else(|| waits.next_if(|wait| wait.from < free.1));
                while let Some(wait) = next {
                    let until = wait.until.min(free.1);
                    let part = Wait {
                        from: wait.from.max(free.0),
                        until,
                        ..wait
                    };
                    let ns = |wait: &Wait| wait.until.saturating_sub(wait.from);
                    longest = longest.into_iter().chain([part]).max_by_key(ns);
                    lasting = lasting
                        .into_iter()
                        .chain([wait])
                        .max_by_key(|wait| wait.until);
                    next = waits.next_if(|wait| wait.from < free.1);
                }
                if let Some(wait) = longest.filter(|wait| wait.from < wait.until) {
                    take(free, wait);
                }
            }
            free_from = free_from.max(owned_until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::verify::history::Facts;

    /// The longest of all stretches is the longest run of moments in which nobody owns and one
    /// client waits.
    #[test]
    fn the_longest_wait_is_that_of_single_moments() {
        const END: u64 = 60;
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let facts = Facts {
                ended_ns: END,
                ..Facts::default()
            };
            let judge = Judge::new(&facts);
            let mut spans = |most: u64| -> Vec<(u64, u64)> {
                let span = |_| (rng.below(END), 1 + rng.below(12));
                let spans = (0..most).map(span);
                spans
                    .map(|(from, ns)| (from, (from + ns).min(END)))
                    .collect()
            };
            let (owned, waits) = (spans(6), spans(5));
            let wait = |(client, (from, until)): (usize, &(u64, u64))| Wait {
                from: *from,
                until: *until,
                client: client as u32,
                granted: true,
            };
            let mut all: Vec<Wait> = waits.iter().enumerate().map(wait).collect();
            all.sort_by_key(|wait| wait.from);
            let mut longest = 0;
            Free::new(&judge, &[]).stretches(owned.clone(), &all, |free, wait| {
                assert!(free.0 <= wait.from && wait.until <= free.1, "seed {seed}");
                longest = longest.max(wait.until - wait.from);
            });
            let inside = |spans: &[(u64, u64)], at| spans.iter().any(|s| s.0 <= at && at < s.1);
            let run = |wait: &(u64, u64)| {
                let runs = (wait.0..wait.1).map(|from| {
                    let moments = from..wait.1;
                    moments.take_while(|at| !inside(&owned, *at)).count() as u64
                });
                runs.max().unwrap_or(0)
            };
            let expected = waits.iter().map(run).max();
            assert_eq!(Some(longest), expected, "seed {seed}: {owned:?}, {waits:?}");
        }
    }
}
