//! The definition, moment by moment and pair by pair, and histories at random to compare with.

use super::{Strike, facts};
use crate::rng::Rng;
use crate::verify::history::{ALL_KEYS, Entry, Facts, Kind, Struck};
use crate::verify::{Findings, found};
use jostle_model::plan::Fault;
use jostle_model::record::Belongs;

const LENGTH: u64 = 150;
const FAULTS: [Fault; 12] = [
    Fault::Kill,
    Fault::Stop,
    Fault::Cut,
    Fault::ServerKill,
    Fault::ServerStop,
    Fault::CutTo,
    Fault::CutFrom,
    Fault::ServerWipe,
    Fault::Clock,
    Fault::LeaderKill,
    Fault::PartitionMinority,
    Fault::IdleCut,
];

/// A history of clients that are granted what they ask for whoever has it, in nanoseconds.
fn random(rng: &mut Rng) -> (Facts, Vec<Entry>) {
    let belongs = [
        Belongs::Process,
        Belongs::Connection,
        Belongs::Lease,
        Belongs::Unknown,
    ];
    let mut facts = facts(belongs[rng.below(4) as usize], None, &[] as &[Strike]);
    facts.promise.lease_ns = (rng.below(3) > 0).then(|| 10 + rng.below(20));
    facts.promise.lease_step_ns = (rng.below(2) > 0).then_some(2);
    facts.promise.restart = rng.below(2) > 0;
    facts.promise.failover = rng.below(2) > 0;
    facts.ended_ns = LENGTH - 10;
    for _ in 0..rng.below(7) {
        let fault = FAULTS[rng.below(12) as usize];
        let from_ns = rng.below(LENGTH);
        let struck_ns = from_ns + rng.below(4);
        let over_ns = (rng.below(4) > 0).then(|| struck_ns + rng.below(20));
        let client = (!fault.is_of_server()).then(|| rng.below(3) as u32);
        let is_second = |other: &Struck| other.fault == Fault::Kill && other.client == client;
        if fault != Fault::Kill || !facts.struck.iter().any(is_second) {
            facts.struck.push(Struck {
                fault,
                client,
                from_ns,
                struck_ns,
                over_ns,
            });
        }
    }
    let mut entries: Vec<Entry> = (0..3).flat_map(|client| of_client(client, rng)).collect();
    entries.retain(|entry| {
        let kill = killed(&facts, entry.client);
        kill.is_none_or(|(from, _)| entry.at_ns <= from)
    });
    (facts, entries)
}

fn of_client(client: u32, rng: &mut Rng) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut at_ns = rng.below(10);
    while at_ns < LENGTH {
        let key = rng.below(2) as u16;
        let mut put = |rng: &mut Rng, kind, key, extra| {
            entries.push(Entry {
                client,
                at_ns,
                kind,
                key,
                extra,
            });
            at_ns += rng.below(6);
        };
        put(rng, Kind::Ask, key, 1);
        match rng.below(8) {
            0 => put(rng, Kind::Refused, key, 0),
            1 => put(rng, Kind::AskFailed, key, 0),
            _ => {
                let token = rng.below(40);
                put(rng, Kind::Granted, key, token);
                for _ in 0..rng.below(4) {
                    let whose = [key, ALL_KEYS][rng.below(2) as usize];
                    put(rng, Kind::Renew, whose, 0);
                    let ends = [
                        Kind::Renewed,
                        Kind::Renewed,
                        Kind::RenewFailed,
                        Kind::RenewLost,
                    ];
                    let end = ends[rng.below(4) as usize];
                    put(rng, end, whose, 0);
                }
                if rng.below(12) == 0 {
                    put(rng, Kind::Dropped, 0, 2);
                }
                match rng.below(6) {
                    0 => put(rng, Kind::Left, 0, 0),
                    1 => {}
                    _ => {
                        put(rng, Kind::Release, key, 0);
                        let ends = [Kind::Released, Kind::ReleaseRefused, Kind::ReleaseFailed];
                        let end = ends[rng.below(3) as usize];
                        put(rng, end, key, 0);
                    }
                }
            }
        }
        at_ns += rng.below(12);
    }
    entries
}

fn killed(facts: &Facts, client: u32) -> Option<(u64, u64)> {
    let mut struck = facts.struck.iter();
    let kill = struck.find(|s| s.fault == Fault::Kill && s.client == Some(client))?;
    Some((kill.from_ns, kill.struck_ns))
}

/// What a client is at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Is {
    Nothing,
    Open,
    LeftOut,
    Owner,
}

/// A time in which a lease runs, or all of a hold without one.
#[derive(Clone, Debug)]
struct Part {
    client: u32,
    key: u16,
    token: u64,
    resumed: bool,
    tried: u64,
    from: u64,
    lease_end: u64,
    /// The client no longer believes in it, whatever the lease.
    told: u64,
    released: Option<(u64, u64)>,
    sent: u64,
    missing: u64,
}

/// Of the entries of one client.
fn parts(facts: &Facts, entries: &[Entry]) -> Vec<Part> {
    let promise = &facts.promise;
    let lease = |from: u64| match promise.lease_ns {
        None => u64::MAX,
        Some(ns) => from + (ns as f64 * 0.9998) as u64 - promise.lease_step_ns.unwrap_or(0),
    };
    let mut parts = Vec::new();
    for (nth, grant) in entries
        .iter()
        .enumerate()
        .filter(|(_, e)| e.kind == Kind::Granted)
    {
        let asked = entries[nth - 1].at_ns;
        let ends = |e: &Entry| matches!(e.kind, Kind::Ask | Kind::Left);
        let rest = &entries[nth + 1..];
        let missing = rest.iter().position(|e| e.kind == Kind::Dropped);
        let next = rest.iter().position(ends).unwrap_or(rest.len());
        let missing = missing.filter(|place| *place < next);
        // What follows is not known to belong to it.
        let known = &rest[..missing.unwrap_or(next)];
        let over = match missing {
            Some(place) => rest.get(place + 1),
            None => rest.get(next),
        };
        let sending = |end: Kind| {
            known
                .windows(2)
                .find(|e| e[1].kind == end)
                .map(|e| e[0].at_ns)
        };
        let lost = sending(Kind::RenewLost);
        let release = known.iter().position(|e| e.kind == Kind::Release);
        let mut part = Part {
            client: grant.client,
            key: grant.key,
            token: grant.extra,
            resumed: false,
            tried: asked,
            from: grant.at_ns,
            lease_end: lease(asked),
            told: match (lost, release) {
                (Some(lost), _) => lost,
                (None, Some(_)) => u64::MAX,
                (None, None) => over.map_or(u64::MAX, |e| e.at_ns),
            },
            sent: release.map_or(u64::MAX, |place| known[place].at_ns),
            released: None,
            missing: missing.map_or(u64::MAX, |place| entries[nth + place].at_ns),
        };
        for pair in known
            .windows(2)
            .filter(|pair| pair[1].kind == Kind::Renewed)
        {
            if pair[0].at_ns > part.lease_end {
                parts.push(part.clone());
                (part.resumed, part.tried, part.from) = (true, pair[0].at_ns, pair[1].at_ns);
            }
            part.lease_end = lease(pair[0].at_ns);
        }
        let confirmed = release.and_then(|place| known.get(place + 1));
        let confirmed = confirmed.filter(|e| e.kind == Kind::Released);
        part.released = confirmed.map(|e| (part.sent, e.at_ns));
        parts.push(part);
    }
    parts
}

impl Part {
    fn is(&self, facts: &Facts, at: u64) -> Is {
        let end = self.lease_end.min(self.told).min(self.sent);
        if at < self.from || at >= end {
            return Is::Nothing;
        }
        let (mut open, mut between, mut left_out) = (at >= self.missing, false, false);
        let struck = facts
            .struck
            .iter()
            .filter(|s| s.client.is_none_or(|c| c == self.client));
        for s in struck.filter(|s| s.from_ns <= at && self.tried < until(facts, s)) {
            match does(facts, s) {
                _ if s.fault == Fault::Kill && at >= s.struck_ns => return Is::Nothing,
                Some(Is::Nothing) => between = true,
                Some(Is::LeftOut)
                    if self.from > s.from_ns && s.fault != Fault::PartitionMinority =>
                {
                    open = true
                }
                Some(Is::LeftOut) if at < s.struck_ns => between = true,
                Some(Is::LeftOut) => left_out = true,
                _ => open = true,
            }
        }
        match (open, left_out, between) {
            (false, false, false) => Is::Owner,
            (false, true, _) => Is::LeftOut,
            _ => Is::Open,
        }
    }
}

/// What becomes of a hold that this strikes; None: nothing.
fn does(facts: &Facts, s: &Struck) -> Option<Is> {
    use Fault::{Cut, CutFrom, CutTo, IdleCut, Kill, ServerKill, ServerWipe};
    let (belongs, restart) = (facts.promise.belongs, facts.promise.restart);
    match belongs {
        _ if s.fault == Kill => Some(Is::Nothing),
        Belongs::Unknown => Some(Is::Open),
        Belongs::Process => None,
        _ if s.fault == ServerWipe || (s.fault == ServerKill && !restart) => Some(Is::LeftOut),
        Belongs::Connection if [Cut, CutTo, CutFrom, IdleCut].contains(&s.fault) => {
            Some(Is::LeftOut)
        }
        _ if s.fault.is_of_member() && !facts.promise.failover => Some(Is::LeftOut),
        _ => None,
    }
}

/// What is asked for from then on is not struck by it.
fn until(facts: &Facts, s: &Struck) -> u64 {
    match does(facts, s) {
        None => 0,
        Some(Is::LeftOut) if s.client.is_none() && s.fault != Fault::PartitionMinority => {
            s.struck_ns
        }
        Some(Is::Nothing) => s.struck_ns,
        Some(_) => s.over_ns.unwrap_or(u64::MAX),
    }
}

/// Overlaps, outside, undecided, foreign releases and tokens that fell, by definition.
fn defined(facts: &Facts, entries: &[Entry]) -> [u64; 5] {
    let mut all: Vec<Part> = Vec::new();
    for client in 0..3 {
        let of = |e: &&Entry| e.client == client && e.at_ns <= facts.ended_ns;
        let own: Vec<Entry> = entries.iter().filter(of).copied().collect();
        all.extend(parts(facts, &own));
    }
    all.sort_by_key(|part| (part.key, part.from, part.client));
    let mut counts = [0; 5];
    for (nth, later) in all.iter().enumerate() {
        let own = later.is(facts, later.from);
        let earlier = all[..nth].iter().filter(|part| part.key == later.key);
        let each = earlier
            .clone()
            .map(|part| part.is(facts, later.from).min(own));
        match each.max().unwrap_or(Is::Nothing) {
            Is::Nothing => {}
            Is::Owner => counts[0] += 1,
            Is::LeftOut => counts[1] += 1,
            Is::Open => counts[2] += 1,
        }
        if let Some((sent, over)) = later.released {
            let owns = |part: &Part| {
                let whole = (sent..=over).all(|at| part.is(facts, at) == Is::Owner);
                part.key == later.key && part.client != later.client && part.from < sent && whole
            };
            let ended = later.lease_end.min(later.told) <= sent;
            counts[3] += u64::from(ended && all.iter().any(owns));
        }
        let is_before = |part: &Part| {
            let mut of_service = facts.struck.iter().filter(|s| s.client.is_none());
            let disturbs = |s: &Struck| s.from_ns < later.from && until(facts, s) > part.tried;
            part.key == later.key
                && part.from < later.tried
                && part.token > 0
                && !part.resumed
                && part.token >= later.token
                && !of_service.any(|s| does(facts, s).is_some() && disturbs(s))
        };
        if later.token > 0 && !later.resumed {
            counts[4] += u64::from(all.iter().any(is_before));
        }
    }
    counts
}

fn counted(found: &Findings) -> [u64; 5] {
    let v = &found.verified;
    [
        v.overlaps,
        v.outside,
        v.undecided,
        v.foreign_releases,
        v.tokens_fell,
    ]
}

#[test]
fn the_sweep_finds_what_the_definition_finds() {
    let mut sum = [0; 5];
    for seed in 0..3_000 {
        let mut rng = Rng::new(seed);
        let (facts, entries) = random(&mut rng);
        let findings = found(&facts, &entries);
        let expected = defined(&facts, &entries);
        assert_eq!(
            counted(&findings),
            expected,
            "seed {seed}: {facts:?}\n{entries:?}"
        );
        sum.iter_mut()
            .zip(expected)
            .for_each(|(sum, count)| *sum += count);
        // Clients may come mixed.
        let mut mixed = entries.clone();
        mixed.sort_by_key(|entry| entry.at_ns);
        assert_eq!(found(&facts, &mixed), findings, "seed {seed}");
    }
    assert!(sum.iter().all(|count| *count > 50), "{sum:?}");
}

/// A fault that the promise leaves out explains violations, and makes none.
#[test]
fn one_more_fault_outside_of_the_promise_adds_no_violation() {
    for seed in 0..1_000 {
        let mut rng = Rng::new(seed);
        let (mut facts, entries) = random(&mut rng);
        let before = found(&facts, &entries).verified;
        let from_ns = rng.below(LENGTH);
        let (struck_ns, over_ns) = (from_ns + 2, Some(from_ns + 9));
        let fault = Fault::ServerWipe;
        facts.struck.push(Struck {
            fault,
            client: None,
            from_ns,
            struck_ns,
            over_ns,
        });
        let after = found(&facts, &entries).verified;
        let violations = |v: &jostle_model::record::Verified| {
            [v.overlaps, v.foreign_releases, v.tokens_fell, v.late_grants]
        };
        let mut pairs = violations(&after).into_iter().zip(violations(&before));
        assert!(pairs.all(|(after, before)| after <= before), "seed {seed}");
    }
}
