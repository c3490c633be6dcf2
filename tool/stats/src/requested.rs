//! Requests over the runs of a point: how many, and their phases. Their times are figures
//! (`figures.rs`).

use crate::intervals::estimate;
use crate::summary::Estimate;
use jostle_model::Plan;
use jostle_model::record::{Distribution, Run};

/// The requests of a point. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub struct RequestSummary {
    /// Mean time of each phase, in order.
    pub phases_ns: Vec<(String, Estimate)>,
    /// Requests that were made, over all runs, and those that were no success.
    pub made: u64,
    /// See `made`.
    pub failed: u64,
}

/// None where no requests were made. The times are those of the runs `timed`.
pub fn summarize(runs: &[&Run], timed: &[&Run]) -> Option<RequestSummary> {
    if !runs.iter().any(|run| is_requested(run)) {
        return None;
    }
    let longest = runs.iter().max_by_key(|run| run.phases.len())?;
    let names = longest.phases.iter().map(|phase| phase.phase.clone());
    let phases_ns = names.filter_map(|name| {
        let mean = |run: &Run| {
            let mut phases = run.phases.iter();
            phases.find(|p| p.phase == name).map(|p| p.span.mean)
        };
        let means: Vec<f64> = timed.iter().filter_map(|run| mean(run)).collect();
        let estimate = estimate(&means)?;
        Some((name, estimate))
    });
    let failed = |run: &&Run| {
        run.times
            .failed_ns
            .as_ref()
            .map_or(0, |failed| failed.count)
    };
    let failed: u64 = runs.iter().map(failed).sum();
    Some(RequestSummary {
        phases_ns: phases_ns.collect(),
        made: failed + runs.iter().map(|run| run.operations).sum::<u64>(),
        failed,
    })
}

fn is_requested(run: &Run) -> bool {
    let some = |distribution: &Option<Distribution>| distribution.is_some();
    some(&run.times.service_ns) || some(&run.times.failed_ns) || !run.codes.is_empty()
}

/// Whether a plan makes requests, and takes no locks.
pub fn makes_requests(plan: &Plan) -> bool {
    plan.call_timeout.is_some()
}

/// The word for an operation of a plan of requests.
pub fn noun(plan: &Plan) -> &'static str {
    let mut targets = plan.targets.iter();
    match targets.all(|target| target.starts_with("exec:")) {
        true => "call",
        false => "request",
    }
}

/// Whether requests surely take longer than those that do nothing: a difference is
/// printed as a figure only then.
pub fn is_resolved(net_ns: &Estimate) -> bool {
    net_ns.low > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{self, calls};
    use jostle_model::plan::Workload;

    #[test]
    fn requests_that_failed_were_made_too() {
        let mut points = calls(1, 200.0, 150.0);
        for (point, failed) in points.iter_mut().zip([0, 3, 4, 0, 0, 0]) {
            point.operations = 1_000 - failed;
            point.times.failed_ns = (failed > 0).then(|| Distribution {
                count: failed,
                ..Distribution::default()
            });
        }
        let runs: Vec<&Run> = points.iter().collect();
        let found = super::summarize(&runs, &runs).unwrap();
        assert_eq!((found.made, found.failed), (6_000, 7));
    }

    #[test]
    fn locks_have_no_requests() {
        let points = [fixtures::point()];
        let runs: Vec<&Run> = points.iter().collect();
        assert!(super::summarize(&runs, &runs).is_none());
        assert!(!makes_requests(&Plan::of(Workload::Stream)));
        let calls = Plan {
            targets: vec!["exec:ls".to_owned()],
            ..Plan::of(Workload::Stream)
        };
        assert_eq!(noun(&calls), "call");
    }
}
