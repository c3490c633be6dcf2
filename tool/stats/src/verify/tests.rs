//! Planted histories, the definition by single moments, and the speed.

mod model;

use super::history::{Entry, Facts, Kind, Struck};
use super::{Findings, found};
use crate::rng::Rng;
use jostle_model::plan::Fault;
use jostle_model::record::{Belongs, Promise, Violation};

const MS: u64 = 1_000_000;

/// `CLIENT KIND MS [EXTRA]`, each after a comma; a request waits for ever.
fn entries(history: &str) -> Vec<Entry> {
    let kind = |word: &str| match word {
        "ask" => Kind::Ask,
        "granted" => Kind::Granted,
        "refused" => Kind::Refused,
        "failed" => Kind::AskFailed,
        "leased" => Kind::Leased,
        "renew" => Kind::Renew,
        "renewed" => Kind::Renewed,
        "lost" => Kind::RenewLost,
        "release" => Kind::Release,
        "released" => Kind::Released,
        "unreleased" => Kind::ReleaseFailed,
        "left" => Kind::Left,
        "dropped" => Kind::Dropped,
        _ => panic!("no kind: {word}"),
    };
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |nth: usize| words.get(nth).map(|word| word.parse::<u64>().unwrap());
        let kind = kind(words[1]);
        let extra = if kind == Kind::Ask { u64::MAX } else { 0 };
        Entry {
            client: number(0).unwrap() as u32,
            at_ns: number(2).unwrap() * MS,
            kind,
            key: 0,
            extra: number(3).unwrap_or(extra),
        }
    };
    history.split(',').map(entry).collect()
}

/// What struck whom: just before and just after, and when it was over.
type Strike = (Fault, Option<u32>, [u64; 3]);

fn facts(belongs: Belongs, lease_ms: Option<u64>, struck: &[Strike]) -> Facts {
    let struck = struck
        .iter()
        .map(|(fault, client, [from, struck, over])| Struck {
            fault: *fault,
            client: *client,
            from_ns: from * MS,
            struck_ns: struck * MS,
            over_ns: (*over > 0).then_some(over * MS),
        });
    Facts {
        promise: Promise {
            belongs,
            lease_ns: lease_ms.map(|ms| ms * MS),
            tokens: true,
            ..Promise::default()
        },
        keys: 1,
        clients: 4,
        ended_ns: 20_000 * MS,
        struck: struck.collect(),
        ..Facts::default()
    }
}

/// Overlaps, outside, undecided, foreign releases, tokens that fell, late, to the departed.
fn counts(found: &Findings) -> [u64; 7] {
    let v = &found.verified;
    let overlaps = [v.overlaps, v.outside, v.undecided];
    let others = [
        v.foreign_releases,
        v.tokens_fell,
        v.late_grants,
        v.to_the_departed,
    ];
    [overlaps.as_slice(), &others].concat().try_into().unwrap()
}

type Planted = (&'static str, Facts, &'static str, [u64; 7]);

const CLEAN: [u64; 7] = [0; 7];
const OVERLAP: [u64; 7] = [1, 0, 0, 0, 0, 0, 0];
const OUTSIDE: [u64; 7] = [0, 1, 0, 0, 0, 0, 0];
const UNDECIDED: [u64; 7] = [0, 0, 1, 0, 0, 0, 0];
const FOREIGN: [u64; 7] = [0, 0, 0, 1, 0, 0, 0];
const FELL: [u64; 7] = [0, 0, 0, 0, 1, 0, 0];
const LATE: [u64; 7] = [0, 0, 0, 0, 0, 1, 0];
const DEPARTED: [u64; 7] = [0, 0, 0, 0, 0, 0, 1];

#[rustfmt::skip]
fn planted() -> Vec<Planted> {
    use Belongs::{Connection, Lease, Process, Unknown};
    let plain = || facts(Process, None, &[]);
    let leased = || facts(Lease, Some(100), &[]);
    let struck = |belongs, fault, client| facts(belongs, None, &[(fault, client, [40, 45, 60])]);
    let survives = |mut facts: Facts| {
        facts.promise.failover = true;
        facts
    };
    // The second is granted before, while and after something strikes.
    let [before, between, after] = [
        "1 ask 0, 1 granted 1, 2 ask 2, 2 granted 39",
        "1 ask 0, 1 granted 1, 2 ask 2, 2 granted 42",
        "1 ask 0, 1 granted 1, 2 ask 46, 2 granted 50",
    ];
    vec![
        ("handed on", plain(), "1 ask 0, 1 granted 1, 1 release 5, 1 released 7, 2 ask 0, 2 granted 5", CLEAN),
        ("two at once", plain(), "1 ask 0, 1 granted 1, 1 release 6, 1 released 7, 2 ask 0, 2 granted 5", OVERLAP),
        ("both have it in passing", plain(), "1 ask 0, 1 granted 1, 1 release 1, 2 ask 0, 2 granted 1, 2 release 1", CLEAN),
        ("a grant read after its lease", leased(), "1 ask 0, 1 granted 300, 2 ask 0, 2 granted 250", CLEAN),
        ("the lease is over", leased(), "1 ask 0, 1 granted 90, 2 ask 90, 2 granted 100", CLEAN),
        ("the lease is not over", leased(), "1 ask 0, 1 granted 90, 2 ask 90, 2 granted 99", OVERLAP),
        ("asked again later", leased(), "1 ask 0, 1 granted 90, 1 leased 80, 2 ask 90, 2 granted 170", OVERLAP),
        ("renewed", leased(), "1 ask 0, 1 granted 1, 1 renew 50, 1 renewed 51, 2 ask 60, 2 granted 120", OVERLAP),
        ("renewed too late, and confirmed", leased(), "1 ask 0, 1 granted 1, 1 renew 150, 1 renewed 160, 2 ask 110, 2 granted 170", OVERLAP),
        ("in between it was nobody's", leased(), "1 ask 0, 1 granted 1, 1 renew 150, 1 renewed 160, 2 ask 110, 2 granted 120, 2 release 130, 2 released 131", CLEAN),
        ("a renewal says that it is lost", leased(), "1 ask 0, 1 granted 1, 1 renew 40, 1 lost 45, 2 ask 2, 2 granted 42", CLEAN),
        ("it was lost before", leased(), "1 ask 0, 1 granted 1, 1 renew 40, 1 lost 45, 2 ask 2, 2 granted 39", OVERLAP),
        ("the session was given up", plain(), "1 ask 0, 1 granted 1, 1 left 40, 2 ask 2, 2 granted 42", CLEAN),
        ("a release failed", plain(), "1 ask 0, 1 granted 1, 1 release 40, 1 unreleased 45, 2 ask 2, 2 granted 42", CLEAN),
        ("entries are missing", plain(), "1 ask 0, 1 granted 1, 1 dropped 40 2, 1 ask 80, 2 ask 2, 2 granted 42", UNDECIDED),
        ("a killed owner", struck(Process, Fault::Kill, Some(1)), after, CLEAN),
        ("not yet killed", struck(Process, Fault::Kill, Some(1)), before, OVERLAP),
        ("maybe killed", struck(Process, Fault::Kill, Some(1)), between, UNDECIDED),
        ("another was killed", struck(Process, Fault::Kill, Some(3)), after, OVERLAP),
        ("a process without a server", struck(Process, Fault::ServerKill, None), after, OVERLAP),
        ("a stopped owner", struck(Connection, Fault::Stop, Some(1)), after, OVERLAP),
        ("a cut connection", struck(Connection, Fault::CutTo, Some(1)), after, OUTSIDE),
        ("maybe cut", struck(Connection, Fault::Cut, Some(1)), between, UNDECIDED),
        ("not yet cut", struck(Connection, Fault::CutFrom, Some(1)), before, OVERLAP),
        ("a cut, and a lease", struck(Lease, Fault::Cut, Some(1)), after, OVERLAP),
        ("the server was killed", struck(Lease, Fault::ServerKill, None), after, OUTSIDE),
        ("the leader was killed", struck(Lease, Fault::LeaderKill, None), after, OUTSIDE),
        ("the leader stood apart", struck(Lease, Fault::PartitionMinority, None), after, OUTSIDE),
        ("it granted while it stood apart", struck(Lease, Fault::PartitionMinority, None), "1 ask 46, 1 granted 50, 2 ask 51, 2 granted 55", OUTSIDE),
        ("the new leader granted", struck(Lease, Fault::LeaderKill, None), "1 ask 46, 1 granted 50, 2 ask 51, 2 granted 55", OVERLAP),
        ("failover was promised", survives(struck(Lease, Fault::LeaderKill, None)), after, OVERLAP),
        ("a silent connection was cut", struck(Connection, Fault::IdleCut, Some(1)), after, OUTSIDE),
        ("the server was stopped", struck(Lease, Fault::ServerStop, None), after, OVERLAP),
        ("its clock was set", struck(Lease, Fault::Clock, None), after, OVERLAP),
        ("granted before the wipe, or after it", struck(Lease, Fault::ServerWipe, None), "1 ask 0, 1 granted 50, 2 ask 51, 2 granted 55", UNDECIDED),
        ("asked after the wipe", struck(Lease, Fault::ServerWipe, None), "1 ask 46, 1 granted 50, 2 ask 51, 2 granted 55", OVERLAP),
        ("an unknown promise", struck(Unknown, Fault::Stop, Some(1)), after, UNDECIDED),
        ("an unknown promise, undisturbed", struck(Unknown, Fault::Stop, Some(3)), after, OVERLAP),
        ("a killed waiter may own", struck(Process, Fault::Kill, Some(1)), "1 ask 0, 2 ask 1, 2 granted 5000, 2 release 5001, 2 released 5002", DEPARTED),
        ("a killed owner may own", struck(Process, Fault::Kill, Some(1)), "1 ask 0, 1 granted 1, 2 ask 2, 2 granted 5000", CLEAN),
        ("its lease ends it", facts(Lease, Some(100), &[(Fault::Kill, Some(1), [40, 41, 0])]), "1 ask 0, 1 granted 1, 2 ask 2, 2 granted 1250", LATE),
        ("a stopped waiter", struck(Connection, Fault::Stop, Some(2)), "2 ask 30, 2 granted 1078", CLEAN),
        ("a stopped waiter may own", facts(Connection, None, &[(Fault::Stop, Some(1), [40, 41, 3000])]), "1 ask 30, 1 granted 3001, 1 release 3002, 1 released 3003, 2 ask 30, 2 granted 4000", CLEAN),
        ("its end does not reach the service", facts(Connection, None, &[(Fault::Cut, Some(1), [40, 41, 3000])]), "1 ask 30, 1 failed 100, 1 left 101, 3 ask 50, 3 granted 200, 3 release 201, 3 released 202, 2 ask 150, 2 granted 2500", DEPARTED),
        ("released what was another's", leased(), "1 ask 0, 1 granted 1, 2 ask 60, 2 granted 110, 1 release 120, 1 released 125", FOREIGN),
        ("the other got it meanwhile", leased(), "1 ask 0, 1 granted 1, 2 ask 60, 2 granted 122, 1 release 120, 1 released 125", CLEAN),
        ("the release failed", leased(), "1 ask 0, 1 granted 1, 2 ask 60, 2 granted 110, 1 release 120, 1 unreleased 125", CLEAN),
        ("a token fell", plain(), "1 ask 0, 1 granted 1 7, 1 release 2, 1 released 3, 2 ask 4, 2 granted 5 6", FELL),
        ("a token came twice", plain(), "1 ask 0, 1 granted 1 7, 1 release 2, 1 released 3, 2 ask 4, 2 granted 5 7", FELL),
        ("asked at the same time", plain(), "1 ask 0, 1 granted 1 7, 1 release 2, 1 released 3, 2 ask 1, 2 granted 5 6", CLEAN),
        ("tokens were wiped", struck(Lease, Fault::ServerWipe, None), "1 ask 0, 1 granted 1 7, 1 release 2, 1 released 3, 2 ask 50, 2 granted 51 6", CLEAN),
        ("free for too long", plain(), "1 ask 0, 1 granted 1, 1 release 2, 1 released 3, 2 ask 1, 2 granted 1004", LATE),
        ("free for just so long", plain(), "1 ask 0, 1 granted 1, 1 release 2, 1 released 3, 2 ask 1, 2 granted 1003", CLEAN),
        ("nobody waits", plain(), "1 ask 0, 1 granted 1, 1 release 2, 1 released 3, 2 ask 1500, 2 granted 1600", CLEAN),
        ("nobody is ever granted it", plain(), "1 ask 0, 2 ask 0, 2 refused 900", LATE),
        ("a lease and the bound", leased(), "1 ask 0, 1 granted 1, 1 release 2, 1 released 3, 2 ask 1, 2 granted 1103", CLEAN),
        ("beyond the lease and the bound", leased(), "1 ask 0, 1 granted 1, 1 release 2, 1 released 3, 2 ask 1, 2 granted 1105", LATE),
        ("after an outage", struck(Connection, Fault::ServerStop, None), "1 ask 0, 1 granted 1, 1 release 2, 1 released 3, 2 ask 1, 2 granted 1059", CLEAN),
        ("long after an outage", struck(Connection, Fault::ServerStop, None), "1 ask 0, 1 granted 1, 1 release 2, 1 released 3, 2 ask 1, 2 granted 2061", LATE),
        ("a failed request may own", plain(), "1 ask 0, 1 failed 3, 2 ask 1, 2 granted 1004", [0, 0, 0, 0, 0, 0, 1]),
        ("granted to one that gave up", facts(Lease, Some(4000), &[]), "3 ask 0, 3 granted 1, 3 release 100, 3 released 101, 1 ask 1, 1 refused 100, 2 ask 1, 2 granted 4100, 2 release 4101, 2 released 4102", DEPARTED),
        ("nobody gave up", facts(Lease, Some(4000), &[]), "3 ask 0, 3 granted 1, 3 release 100, 3 released 101, 2 ask 1, 2 granted 4100, 2 release 4101, 2 released 4102", CLEAN),
    ]
}

#[test]
fn planted_histories_are_found() {
    for (what, facts, history, expected) in planted() {
        let findings = found(&facts, &entries(history));
        assert_eq!(counts(&findings), expected, "{what}");
    }
}

#[test]
fn an_excerpt_has_both_holds_the_fault_and_the_end() {
    let facts = facts(
        Belongs::Lease,
        Some(100),
        &[(Fault::Stop, Some(1), [5, 6, 125])],
    );
    let history = "1 ask 0, 1 granted 1 8, 1 renew 2, 1 renewed 3, 1 renew 4, 1 renewed 5, \
        3 ask 7, 3 refused 8, 2 ask 60, 2 granted 110, 1 release 126, 1 released 127, \
        2 release 130, 2 released 131, 1 ask 140, 1 refused 150";
    let findings = found(&facts, &entries(history));
    assert_eq!(findings.found_ns, Some(127 * MS));
    let excerpt = findings.verified.excerpt.unwrap();
    assert_eq!(excerpt.kind, Violation::ForeignRelease);
    assert_eq!((excerpt.from_ns, excerpt.until_ns), (126 * MS, 127 * MS));
    let lines = excerpt.lines.iter().map(|line| {
        let client = line
            .client
            .map_or(String::new(), |client| format!("{client} "));
        let token = line
            .token
            .map_or(String::new(), |token| format!(" {token}"));
        format!("{} {client}{}{token}", line.at_ns / MS, line.what)
    });
    let lines: Vec<String> = lines.collect();
    assert_eq!(
        lines,
        [
            "0 1 asks",
            "1 1 granted 7",
            "4 1 renews",
            "5 1 renewed",
            "6 client 1 stopped",
            "60 2 asks",
            "103 the lease of client 1 ends",
            "110 2 granted",
            "126 1 releases",
            "127 1 released",
            "130 2 releases",
            "131 2 released",
        ]
    );
    let stop = findings.verified.faults[&Fault::Stop];
    assert_eq!((stop.struck, stop.struck_owners), (1, 1));
    assert_eq!(stop.next_grant_max_ns, Some(105 * MS));
}

/// 10 million calls: a grant and a release each, renewals, waits that are given up.
#[test]
#[ignore = "cargo xtask long"]
fn ten_million_calls_are_checked_within_a_minute_and_two_gib() {
    const CALLS: u64 = 10_000_000;
    let mut rng = Rng::new(1);
    let mut all = Vec::with_capacity(CALLS as usize * 2);
    let (keys, clients) = (16, 64);
    let mut free_at = vec![0; keys as usize];
    let mut busy_until = vec![0; clients as usize];
    let mut calls = 0;
    while calls < CALLS {
        let (key, client) = (rng.below(keys), rng.below(clients));
        let asked = busy_until[client as usize] + rng.below(1000);
        let granted = asked.max(free_at[key as usize]) + 1 + rng.below(1000);
        let mut push = |at_ns, kind, extra| {
            let (client, key) = (client as u32, key as u16);
            all.push(Entry {
                client,
                at_ns,
                kind,
                key,
                extra,
            });
        };
        push(asked, Kind::Ask, 1_000_000);
        let end = if rng.below(8) == 0 {
            push(asked + 500, Kind::Refused, 0);
            calls += 1;
            asked + 500
        } else {
            push(granted, Kind::Granted, granted + 1);
            push(granted + 10, Kind::Renew, 0);
            push(granted + 20, Kind::Renewed, 0);
            push(granted + 30, Kind::Release, 0);
            push(granted + 40, Kind::Released, 0);
            calls += 3;
            free_at[key as usize] = granted + 30;
            granted + 40
        };
        busy_until[client as usize] = end;
    }
    let mut facts = facts(Belongs::Lease, Some(2_000), &[]);
    facts.ended_ns = u64::MAX;
    let cpu_ns = || {
        let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        times.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let before_ns = cpu_ns();
    let findings = found(&facts, &all);
    let took_s = (cpu_ns() - before_ns) as f64 / 1e9;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak_kib: u64 = peak
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    println!(
        "{} calls, {} entries: {took_s:.1} s, {} MiB",
        calls,
        all.len(),
        peak_kib / 1024
    );
    assert_eq!(findings.verified.violations(), 0, "{:?}", findings.verified);
    assert!(took_s < 60.0 && peak_kib < 2 << 20);
}
