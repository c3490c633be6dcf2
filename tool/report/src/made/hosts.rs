//! The made-up result of several hosts.

use super::{finished, spread};
use crate::ResultSet;
use jostle_model::hosts::{HostHere, HostPart};
use jostle_model::record::{Claim, Distribution, Reason, Run, Status, Verdict};

/// [`spread`] over three, six and eighteen hosts of one machine. Among six the third
/// owns the tail; among eighteen the seventh is weak, and the tenth had company in
/// half of the runs.
pub(crate) fn hosts() -> ResultSet {
    let mut set = spread();
    let here = |rank: u64| HostHere {
        host: format!("h{}", rank + 1),
        cpus: 2,
        machine: 0,
        jostle: "0.1.0".to_owned(),
    };
    set.experiment.environment.hosts = (0..18).map(here).collect();
    for run in &mut set.runs {
        let all = run.at.generators.unwrap_or(0);
        run.hosts = (0..all).map(|rank| part(run, rank, all)).collect();
    }
    finished(set.experiment, set.runs)
}

fn part(run: &Run, rank: u64, all: u64) -> HostPart {
    let (tail, weak) = ((all, rank) == (6, 2), (all, rank) == (18, 6));
    let share = match weak {
        true => 0.5,
        false => 1.0 + 0.01 * (rank % 7) as f64,
    };
    let rate = (run.throughput_per_s / all as f64 * share).floor();
    let ms = if tail { 9.4 } else { 6.6 };
    let latency = Distribution {
        count: rate as u64,
        min: 900_000,
        max: 80_000_000,
        mean: ms * 1e6,
        percentiles: [("p50", 1.0), ("p99", 3.0)]
            .map(|(name, times)| (name.to_owned(), (ms * 1e6 * times) as u64))
            .into(),
        ..Distribution::default()
    };
    HostPart {
        rank,
        host: format!("h{}", rank + 1),
        clock_ahead_ns: match rank {
            0 => 0,
            odd if odd % 2 == 1 => -10_000_000_000 - odd as i64,
            even => 1_000_000_000_000 + even as i64,
        },
        clock_within_ns: if rank == 0 { 0 } else { 5_000 + 110 * rank },
        late_ns: 60_000 + 30_000 * rank as i64 - if rank == 1 { 120_000 } else { 0 },
        workers: 90 / all,
        operations: rate as u64,
        throughput_per_s: rate,
        cpu_s: Some(rate * 21e-6),
        cpu_us_per_operation: Some(21.0),
        busy_share: Some(if weak { 0.97 } else { 0.31 }),
        runqueue_share: Some(0.1),
        latency_of: Some("service_ns".to_owned()),
        latency_ns: Some(latency),
        beyond_p99: Some(if tail { 100 } else { 3 }),
        verdict: Verdict::of(reasons(run, rank, all).into_iter().collect()),
        ..HostPart::default()
    }
}

fn reasons(point: &Run, rank: u64, all: u64) -> Option<Reason> {
    let run = point.run;
    let (check, is, text) = match (all, rank) {
        (18, 6) => (
            "generator",
            Status::Invalid,
            format!("the busiest generator was busy for 97.{run} % of its time"),
        ),
        (18, 9) if run.is_multiple_of(2) => (
            "neighbours",
            Status::Suspect,
            format!("other programs kept it from its CPUs for up to 1{run} % of the time"),
        ),
        _ => return None,
    };
    Some(Reason {
        check: check.to_owned(),
        is,
        claims: vec![Claim::Absolute],
        text,
        ..Reason::default()
    })
}
