//! Exclusion across hosts: were owners on two hosts inside at the same time?
//!
//! Hosts share no memory, so that the witness of a host sees only its own workers. Overlaps
//! between hosts are found in logs of grants. A log has the time for which a worker was
//! certainly inside, by its host's clock, and the fencing token of the grant, if there is
//! one. Each clock has an uncertainty, and a correct lock must never be flagged: an overlap
//! counts only if it remains for all positions of both clocks within their uncertainties.
//! Pairs that neither overlap nor are ordered for certain are counted as undecided.
//!
//! Owners on one host are not compared here, because the witness checks them exactly. Holds
//! that are not in the log, such as that of a worker that died inside, cannot be compared.

use jostle_model::record::Across;

mod place;
mod tokens;

pub use place::{Clock, Reading};
use place::{Placed, Span};

/// Findings that are told in words.
const EXAMPLES: usize = 5;

/// The largest relative difference in rate of the client's and the server's clock within a
/// lease.
const LEASE_RATE_PPM: u64 = 200;

/// A worker's time as an owner, by its host's `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The lock.
    pub key: u32,
    /// After the grant.
    pub g_ns: u64,
    /// Before the release.
    pub r_ns: u64,
    /// Who, by its number on its host.
    pub worker: u32,
    /// The fencing token granted with the lock.
    pub token: Option<u64>,
    /// Whether it was a shared grant.
    pub shared: bool,
}

/// The log of one host's workers.
#[derive(Clone, Debug)]
pub struct HostLog<'a> {
    /// As it calls itself.
    pub name: &'a str,
    /// Its clock beside the common one.
    pub clock: Clock,
    /// From here to `until_ns`, by the host's own clock, the log is complete.
    pub from_ns: u64,
    /// See `from_ns`.
    pub until_ns: u64,
    /// In any order.
    pub grants: &'a [Grant],
    /// Grants of its window, in the log or not.
    pub made: u64,
    /// How long an unreleased lock lasts; None: for ever.
    pub lease_ns: Option<u64>,
}

/// Compares the logs of several hosts. Takes O(n log n) for n grants.
///
/// - *Certain overlap* of a grant A with a grant B of another host: g(A) < r(B) and
///   g(B) < r(A) wherever both clocks may stand. Both conditions are linear in the
///   difference of the clocks, so that looking at the two ends of its range is exact.
/// - *Undecided*: neither a certain overlap nor certainly one after the other.
/// - A lease entitles from g to at most a + lease x (1 - 200 ppm), where a is the time at
///   which the successful request was sent. The log does not have a, but it has the
///   worker's previous release, which precedes a and is used instead. An overlap beyond the
///   time that is certain by this rule is `lapsed_overlap`.
pub fn judge(hosts: &[HostLog<'_>]) -> Across {
    let mut placed = place::all(hosts);
    placed.sort_unstable_by_key(|grant| (grant.key, grant.host, grant.worker, grant.raw));
    place::entitle(&mut placed, hosts);
    let common = place::common(hosts);
    let mut found = Found::default();
    for of_key in placed.chunk_by(|one, other| one.key == other.key) {
        found.look_at(of_key, hosts, common);
    }
    found.record(hosts)
}

/// The violations found so far.
#[derive(Default)]
struct Found {
    across: Across,
    told: Vec<(i64, String)>,
}

impl Found {
    fn look_at(&mut self, of_key: &[Placed], hosts: &[HostLog<'_>], common: Span) {
        let leased = hosts.iter().any(|host| host.lease_ns.is_some());
        let tokens = tokens::look_at(of_key, leased);
        for (at, met) in &tokens.repeated {
            self.across.tokens_repeated += 1;
            self.tell(&of_key[*at], &of_key[*met], hosts, Violation::Repeated);
        }
        for (at, met) in &tokens.out_of_order {
            self.across.tokens_out_of_order += 1;
            self.tell(&of_key[*at], &of_key[*met], hosts, Violation::OutOfOrder);
        }
        if of_key.iter().all(|grant| grant.host == of_key[0].host) {
            return;
        }
        let is_common = |grant: &&Placed| common.contains(grant.g.middle());
        self.across.checked += of_key.iter().filter(is_common).count() as u64;
        for (entrant, met) in overlaps(of_key, Members::Entrants, |grant| grant.entitled) {
            self.across.violations += 1;
            self.tell(&of_key[entrant], &of_key[met], hosts, Violation::Overlap);
        }
        let met = |ends: fn(&Placed) -> Option<Span>| {
            let mut met = vec![false; of_key.len()];
            let pairs = overlaps(of_key, Members::All, ends);
            pairs.into_iter().for_each(|(at, _)| met[at] = true);
            met
        };
        let entitled = met(|grant| grant.entitled);
        let any = met(|grant| Some(grant.r));
        let lapsed = overlaps(of_key, Members::Entrants, |grant| Some(grant.r));
        let lapsed = lapsed.iter().filter(|(entrant, _)| !entitled[*entrant]);
        self.across.lapsed_overlap += lapsed.count() as u64;
        let unclear = unclear(of_key);
        let open = unclear.iter().filter(|at| !any[**at]).count() as u64;
        match of_key.iter().all(|grant| grant.token.is_some()) {
            true => self.across.ordered_by_token += open,
            false => self.across.undecided += open,
        }
    }

    fn tell(&mut self, late: &Placed, early: &Placed, hosts: &[HostLog<'_>], kind: Violation) {
        // The earliest are kept; all are counted.
        let at = late.g.middle();
        let full = self.told.len() == EXAMPLES;
        if full && self.told.last().is_some_and(|(last, _)| *last <= at) {
            return;
        }
        let place = self.told.partition_point(|(other, _)| *other <= at);
        self.told
            .insert(place, (at, kind.words(late, early, hosts)));
        self.told.truncate(EXAMPLES);
    }

    fn record(self, hosts: &[HostLog<'_>]) -> Across {
        let made: u64 = hosts.iter().map(|host| host.made).sum();
        let mut doubts: Vec<u64> = hosts.iter().map(place::doubt).collect();
        doubts.sort_unstable_by(|a, b| b.cmp(a));
        Across {
            hosts: hosts.len() as u64,
            coverage: if made > 0 {
                (self.across.checked as f64 / made as f64).min(1.0)
            } else {
                0.0
            },
            within_ns: doubts
                .iter()
                .take(2)
                .fold(0, |sum, one| sum.saturating_add(*one)),
            examples: self.told.into_iter().map(|(_, words)| words).collect(),
            ..self.across
        }
    }
}

/// How two grants conflict.
#[derive(Clone, Copy)]
enum Violation {
    Overlap,
    Repeated,
    OutOfOrder,
}

impl Violation {
    fn words(self, late: &Placed, early: &Placed, hosts: &[HostLog<'_>]) -> String {
        let who = |grant: &Placed| format!("worker {} of {}", grant.worker, hosts[grant.host].name);
        let origin = hosts[0].clock.place(hosts[0].from_ns).middle();
        let at = (late.g.middle() - origin) as f64 / 1e9;
        let token = |grant: &Placed| grant.token.unwrap_or(0);
        match self {
            Violation::Overlap => format!(
                "{} was let in at {at:.6} s while {} was inside, together for at least {}",
                who(late),
                who(early),
                words(place::together_ns(late, early))
            ),
            Violation::Repeated => format!(
                "{} was let in at {at:.6} s with the token {} that {} had",
                who(late),
                token(late),
                who(early)
            ),
            Violation::OutOfOrder => format!(
                "{} was let in at {at:.6} s with the token {}, when {} had come and gone with {}",
                who(late),
                token(late),
                who(early),
                token(early)
            ),
        }
    }
}

fn words(ns: i64) -> String {
    match ns {
        10_000_000.. => format!("{} ms", ns / 1_000_000),
        10_000.. => format!("{} us", ns / 1_000),
        _ => format!("{ns} ns"),
    }
}

/// The latest end noted so far, and the latest of another host than that one's.
#[derive(Clone, Copy, Default)]
struct Latest {
    first: Option<(i64, usize, usize)>,
    second: Option<(i64, usize, usize)>,
}

impl Latest {
    fn note(&mut self, ends: i64, host: usize, at: usize) {
        let new = Some((ends, host, at));
        match self.first {
            Some((latest, same, _)) if same == host => {
                if ends > latest {
                    self.first = new;
                }
            }
            Some((latest, ..)) if ends <= latest => {
                if self.second.is_none_or(|(second, ..)| ends > second) {
                    self.second = new;
                }
            }
            _ => (self.first, self.second) = (new, self.first),
        }
    }

    /// The latest end on another host, and whose it is.
    fn besides(&self, host: usize) -> Option<(i64, usize)> {
        let of_others = [self.first, self.second].into_iter().flatten();
        let mut of_others = of_others.filter(|(_, of, _)| *of != host);
        of_others.next().map(|(ends, _, at)| (ends, at))
    }
}

/// The latest grants of exclusive owners, and of all.
#[derive(Default)]
struct Inside {
    exclusive: Latest,
    all: Latest,
}

impl Inside {
    fn note(&mut self, grant: &Placed, ends: i64, at: usize) {
        self.all.note(ends, grant.host, at);
        if !grant.shared {
            self.exclusive.note(ends, grant.host, at);
        }
    }

    fn against(&self, grant: &Placed) -> Option<(i64, usize)> {
        let whom = if grant.shared {
            &self.exclusive
        } else {
            &self.all
        };
        whom.besides(grant.host)
    }
}

/// A grant, and one of another host with which it certainly overlaps.
type Pair = (usize, usize);

/// Whose overlaps are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Members {
    /// The grant of each pair that may have come later.
    Entrants,
    /// Both grants of each pair.
    All,
}

/// Grants that certainly overlap with one of another host, each once.
///
/// With x = latest g and y = earliest r, A and B overlap for certain iff x(A) < y(B) and
/// x(B) < y(A). In a sweep along x, this holds for B if a grant entered before y(B) ends
/// after x(B). So that each pair is found once, a grant with y > x queries when it is
/// entered itself. A grant shorter than its clock's uncertainty has y <= x, but still
/// overlaps with a grant that contains all of its possible positions; it queries at y. Of
/// two such grants, neither contains the other.
fn overlaps(grants: &[Placed], of: Members, ends: impl Fn(&Placed) -> Option<Span>) -> Vec<Pair> {
    /// At equal times, grants query before others are entered.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Step {
        Asks,
        Enters,
    }
    let end = |grant: &Placed| ends(grant).map(|span| span.least);
    let asks_early = |grant: &Placed, end: i64| of == Members::All || end <= grant.g.most;
    let mut events = Vec::with_capacity(grants.len());
    for (at, grant) in grants.iter().enumerate() {
        let Some(end) = end(grant) else { continue };
        events.push((grant.g.most, Step::Enters, at, end));
        if asks_early(grant, end) {
            events.push((end, Step::Asks, at, end));
        }
    }
    events.sort_unstable();
    let mut inside = Inside::default();
    let mut found = Vec::new();
    for (_, does, at, end) in events {
        let grant = &grants[at];
        if (does == Step::Asks) == asks_early(grant, end) {
            let met = inside.against(grant);
            let met = met.filter(|(latest, _)| *latest > grant.g.most);
            found.extend(met.map(|(_, by)| (at, by)));
        }
        if does == Step::Enters {
            inside.note(grant, end, at);
        }
    }
    found
}

/// Grants that did not certainly come after every grant of another host that may have begun
/// before them.
fn unclear(grants: &[Placed]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..grants.len()).collect();
    order.sort_unstable_by_key(|at| (grants[*at].g.least, *at));
    let mut inside = Inside::default();
    order.retain(|at| {
        let grant = &grants[*at];
        let met = inside.against(grant);
        inside.note(grant, grant.r.most, *at);
        met.is_some_and(|(latest, _)| latest > grant.g.least)
    });
    order
}

#[cfg(test)]
mod tests;
