//! The bottleneck of a lock service in a closed loop, found by comparison with the
//! answering target on the same transport, under the same load, in the same blocks. The
//! file names that target ([`jostle_model::record::TargetFacts::answering`]).
//!
//! If a service reaches nine tenths of that target's rate, its own work hardly affects the
//! figure: the path and the client are measured. This says nothing about the service. If it
//! reaches less, its own work is the bottleneck.

use crate::figures::THROUGHPUT;
use crate::ratio::{Ratio, by_block};
use crate::summary::PointSummary;
use jostle_model::plan::Workload;
use jostle_model::record::{Experiment, LimitedBy, TargetFacts};

/// Share of its throughput from which on a service is bound by the path.
const PATH: f64 = 0.9;

/// Finds the limit of each point that has its answering target beside it.
pub(crate) fn judge(experiment: &Experiment, points: &mut [PointSummary<'_>]) {
    for at in 0..points.len() {
        let facts = experiment.facts(points[at].target);
        let Some(ratio) = beside_answering(points, &points[at], &facts) else {
            continue;
        };
        let point = &mut points[at];
        point.of_echo = Some(ratio);
        point.verdict.limited_by.get_or_insert(limit(&ratio));
    }
}

/// Its throughput by that of the answering target.
fn beside_answering(
    points: &[PointSummary<'_>],
    point: &PointSummary<'_>,
    facts: &TargetFacts,
) -> Option<Ratio> {
    if point.workload == Workload::Rate {
        // At a fixed rate both targets reach the same rate, so that the comparison means
        // nothing.
        return None;
    }
    let served = facts.path_alone().is_some() || point.runs.iter().any(|run| run.server.is_some());
    let answering = facts.answering.as_deref();
    let answering = answering.filter(|_| served && !point.verdict.is_invalid())?;
    let mut others = points.iter();
    let echo = others.find(|other| other.target == answering && other.at == point.at)?;
    if echo.verdict.is_invalid() {
        return None;
    }
    by_block(echo, point, THROUGHPUT)
}

fn limit(ratio: &Ratio) -> LimitedBy {
    match ratio {
        _ if !ratio.interval && ratio.ratio >= PATH => LimitedBy::Path,
        _ if !ratio.interval => LimitedBy::Target,
        _ if ratio.low >= PATH => LimitedBy::Path,
        _ if ratio.high < PATH => LimitedBy::Target,
        _ => LimitedBy::Undecided,
    }
}
