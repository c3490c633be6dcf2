//! The closing sentences about requests: what one takes, what of it is the target's own, and
//! what more workers add.

use super::{Values, View, are_requests, each};
use jostle_model::Plan;
use jostle_stats::figures;
use jostle_stats::numbers::time;
use jostle_stats::ratio::{Outcome, by_block};
use jostle_stats::requested::{is_resolved, noun};
use jostle_stats::summary::PointSummary;

/// What a request takes.
pub(super) fn takes(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        let clauses = clauses(view.plan(), points);
        (are_requests(view) && !clauses.is_empty()).then(|| clauses.join("; "))
    })
}

/// About one target: what a request takes with the fewest workers and the most operations, and
/// what more workers add.
fn clauses(plan: &Plan, points: &[&PointSummary<'_>]) -> Vec<String> {
    let alone = points
        .iter()
        .min_by_key(|point| (point.at.workers, std::cmp::Reverse(point.at.operations)));
    let Some(alone) = alone else {
        return Vec::new();
    };
    let mut clauses = Vec::new();
    clauses.extend(what_it_takes(plan, alone));
    clauses.extend(net(alone));
    clauses.extend(more_workers(plan, alone, points));
    clauses
}

fn what_it_takes(plan: &Plan, point: &PointSummary<'_>) -> Option<String> {
    let requests = point.requests.as_ref()?;
    let service = point.median(figures::SERVICE)?;
    let phases = requests.phases_ns.iter();
    let phases = phases.map(|(name, ns)| format!("{name} {}", time(ns.median)));
    let phases: Vec<String> = phases.collect();
    let parts = match phases.len() {
        0 | 1 => String::new(),
        _ => format!(": {}", phases.join(", ")),
    };
    Some(format!("a {} takes {}{parts}", noun(plan), time(service)))
}

/// The part that is the target's own.
fn net(point: &PointSummary<'_>) -> Option<String> {
    let net = point.of(figures::NET)?;
    let null = &point.runs.iter().find_map(|run| run.null.as_ref())?.target;
    let bounds = match net.interval {
        true => format!("95 %: {} to {}", time(net.low), time(net.high)),
        false => format!("range: {} to {}", time(net.low), time(net.high)),
    };
    Some(match net {
        _ if is_resolved(&net) => format!("{} more than {null} ({bounds})", time(net.median)),
        _ if net.high < 0.0 => format!("{null} takes longer, so it is no baseline ({bounds})"),
        _ => format!("the difference to {null} is not resolved ({bounds})"),
    })
}

fn more_workers(
    plan: &Plan,
    alone: &PointSummary<'_>,
    points: &[&PointSummary<'_>],
) -> Option<String> {
    let beside = points
        .iter()
        .filter(|p| p.at.operations == alone.at.operations);
    let many = beside.max_by_key(|point| point.at.workers)?;
    let (few, most) = (alone.at.workers?, many.at.workers?);
    if few == most {
        return None;
    }
    let ratio = by_block(alone, many, figures::THROUGHPUT)?;
    // The reader can check the quotient of the table's figures; the pairs decide.
    let printed = many.median(figures::THROUGHPUT)? / alone.median(figures::THROUGHPUT)?;
    let noun = noun(plan);
    Some(match ratio.outcome {
        Outcome::Same => format!("{most} workers make as many {noun}s/s as {few}, within 5 %"),
        Outcome::Differs if (printed > 1.0) == (ratio.ratio > 1.0) => {
            format!("{most} workers make {printed:.2} times the {noun}s/s of {few}")
        }
        _ => format!("{most} workers make {printed:.2} times the {noun}s/s of {few} (undecided)"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::plan::Workload;
    use jostle_model::record::Run;
    use jostle_model::{List, Nanos};
    use jostle_stats::fixtures::{self, calls};
    use jostle_stats::summary::summarize;

    fn plan() -> Plan {
        Plan {
            targets: vec!["exec:ls".to_owned()],
            workers: Some(List(vec![1, 2])),
            operations: Some(List(vec![1_000])),
            call_timeout: Some(Nanos::from_millis(10_000)),
            ..Plan::of(Workload::Stream)
        }
    }

    fn said(runs: &[Run]) -> String {
        let mut experiment = fixtures::experiment();
        experiment.plan = plan();
        let points = summarize(&experiment, runs);
        clauses(&experiment.plan, &points.iter().collect::<Vec<_>>()).join("; ")
    }

    #[test]
    fn a_call_is_told_by_its_parts_and_by_what_is_its_own() {
        let mut points = calls(1, 200.0, 150.0);
        points.extend(calls(2, 250.0, 150.0));
        assert_eq!(
            said(&points),
            "a call takes 200 us: spawn 150 us, run 50 us; 50 us more than exec:true \
             (95 %: 50 us to 51 us); 2 workers make 1.60 times the calls/s of 1"
        );
        assert!(
            said(&calls(1, 150.0, 150.3))
                .contains("the difference to exec:true is not resolved (95 %: -200 ns to")
        );
        assert!(
            said(&calls(1, 50.0, 150.0))
                .contains("exec:true takes longer, so it is no baseline (95 %: -100 us to")
        );
    }
}
