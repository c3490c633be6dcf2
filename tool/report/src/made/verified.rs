//! Results of `verify`.

use super::{experiment, finished, run_of};
use crate::ResultSet;
use jostle_model::plan::{Fault, Workload};
use jostle_model::record::{
    At, Excerpt, ExcerptLine, FaultSeen, Promise, Run, Verified, Violation,
};
use jostle_model::{List, Nanos, Plan};

const SECOND: u64 = 1_000_000_000;

/// `verify flock memcached`, of which one let two own.
pub(crate) fn verified() -> ResultSet {
    let seen = |struck: u64, struck_owners: u64, p50_ms: u64| FaultSeen {
        struck,
        struck_owners,
        next_grant_p50_ns: Some(p50_ms * 1_000_000),
        next_grant_max_ns: Some(3 * p50_ms * 1_000_000),
    };
    let without = |faults: &[Fault], why: &str| {
        let faults = faults.iter();
        faults.map(|fault| (*fault, why.to_owned())).collect()
    };
    let promise = |typed: &str| typed.parse::<Promise>().unwrap_or_default();
    let plain = Verified {
        ran_ns: 60 * SECOND,
        keys: 3,
        clients: 6,
        calls: 120_000,
        grants: 48_210,
        refused: 9_000,
        unknown: 12,
        longest_free_ns: 1_200_000,
        free_bound_ns: Some(80_000_000),
        ..Verified::default()
    };
    let flock = Verified {
        promise: promise("by=process"),
        faults: [
            (Fault::Kill, seen(12, 9, 2)),
            (Fault::Stop, seen(10, 4, 700)),
        ]
        .into(),
        without: without(
            &[
                Fault::Cut,
                Fault::ServerKill,
                Fault::ServerStop,
                Fault::CutTo,
                Fault::CutFrom,
                Fault::ServerWipe,
                Fault::Clock,
            ],
            "no server keeps it",
        ),
        ..plain.clone()
    };
    let line = |at_ms: u64, client: Option<u64>, what: &str, token: Option<u64>| ExcerptLine {
        at_ns: 12 * SECOND + at_ms * 1_000_000,
        client,
        what: what.to_owned(),
        token,
    };
    let memcached = Verified {
        promise: promise("by=lease,lease=2s,step=1s,tokens"),
        grants: 30_100,
        errors: 410,
        renewals: 5_000,
        faults: [
            (Fault::Kill, seen(12, 9, 1_900)),
            (Fault::ServerWipe, seen(10, 8, 90)),
            (Fault::Clock, seen(9, 7, 40)),
        ]
        .into(),
        without: without(
            &[Fault::Cut, Fault::CutTo, Fault::CutFrom],
            "this kernel lets only root cut a connection",
        ),
        overlaps: 2,
        outside: 3,
        undecided: 1,
        longest_free_ns: 2_300_000_000,
        free_bound_ns: Some(4_100_000_000),
        excerpt: Some(Excerpt {
            kind: Violation::Overlap,
            key: 2,
            from_ns: 12 * SECOND + 345_678_000,
            until_ns: 12 * SECOND + 420_000_000,
            lines: vec![
                line(100, Some(1), "asks", None),
                line(101, Some(1), "granted", Some(71)),
                line(300, None, "clock set 5 s ahead", None),
                line(310, Some(4), "asks", None),
                line(345, Some(4), "granted", Some(72)),
                line(420, Some(1), "releases", None),
            ],
        }),
        again: Some((2, 3)),
        ..plain
    };
    let run = |target: &str, verified: Verified| Run {
        operations: verified.grants,
        throughput_per_s: verified.grants as f64 / 60.0,
        verified: Some(Box::new(verified)),
        ..run_of(target, Workload::Verify, At::default(), 1, 60.0)
    };
    let mut experiment = experiment();
    experiment.environment.file_systems.clear();
    experiment.calibration.own_cost.clear();
    experiment.plan = Plan {
        targets: vec!["flock".to_owned(), "memcached".to_owned()],
        workers: Some(List(vec![6])),
        keys: Some(List(vec![3])),
        keep: Some(Nanos(60 * SECOND)),
        lease: Some(Nanos(2 * SECOND)),
        fault: Some(vec![
            Fault::Kill,
            Fault::Stop,
            Fault::ServerWipe,
            Fault::Clock,
        ]),
        strict: Some(false),
        runs: Some(1),
        seed: Some(7),
        ..Plan::of(Workload::Verify)
    };
    let runs = vec![run("flock", flock), run("memcached", memcached)];
    finished(experiment, runs)
}
