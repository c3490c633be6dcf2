//! The open-loop figures over all runs of a point: lateness, response time, and the share
//! of the plan that was done.

use crate::histogram::{Histogram, PERCENTILES};
use crate::intervals::median;
use jostle_model::open_loop::OpenLoop;
use jostle_model::plan::Workload;
use jostle_model::record::{Distribution, Run};

/// A percentile of the response time over the runs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// The median of the runs, or that of all their requests where a single run
    /// has too few.
    pub ns: f64,
    /// Known only to lie above, since too many requests had no answer.
    pub at_least: bool,
}

/// The outcomes of the planned requests of all runs together.
pub fn ledger(runs: &[&Run]) -> Option<OpenLoop> {
    let mut runs = runs.iter().filter_map(|run| run.open_loop.as_deref());
    let first = OpenLoop {
        planned: 0,
        ..OpenLoop::default()
    };
    let mut any = false;
    let sum = runs.by_ref().fold(first, |sum, run| {
        any = true;
        OpenLoop {
            planned: sum.planned + run.planned,
            done: sum.done + run.done,
            failed: sum.failed + run.failed,
            dropped: sum.dropped + run.dropped,
            in_flight: sum.in_flight + run.in_flight,
            dropped_with_slot: sum.dropped_with_slot + run.dropped_with_slot,
            dropped_at_end: sum.dropped_at_end + run.dropped_at_end,
            ..OpenLoop::default()
        }
    });
    any.then_some(sum)
}

/// Share of the planned requests that were answered as expected.
pub fn share_done(runs: &[&Run]) -> Option<f64> {
    let ledger = ledger(runs)?;
    (ledger.planned > 0).then(|| ledger.done as f64 / ledger.planned as f64)
}

/// A percentile of the response time by its name (`p99`), requests without an
/// answer accounted for.
pub fn response(runs: &[&Run], name: &str) -> Option<Response> {
    let each = runs.iter().map(|run| of_run(run, name));
    let Some(mut each) = each.collect::<Option<Vec<Response>>>() else {
        return pooled_response(runs, name);
    };
    // Values with only a lower bound sort after all others.
    each.sort_by(|a, b| {
        (a.at_least, a.ns)
            .partial_cmp(&(b.at_least, b.ns))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let middle = each.get(each.len().checked_sub(1)? / 2)?;
    let bounded = each.iter().any(|response| response.at_least);
    let values: Vec<f64> = each.iter().map(|response| response.ns).collect();
    match bounded {
        true => Some(*middle),
        false => median(&values).map(|ns| Response {
            ns,
            at_least: false,
        }),
    }
}

fn of_run(run: &Run, name: &str) -> Option<Response> {
    let open = run.open_loop.as_ref()?;
    let known = open.response_kaplan_meier.get(name);
    let bound = open.response_at_least.get(name);
    known.or(bound).map(|ns| Response {
        ns: *ns as f64,
        at_least: known.is_none(),
    })
}

fn pooled_response(runs: &[&Run], name: &str) -> Option<Response> {
    let answered = pooled(runs, "response_ns");
    let unanswered = pooled(runs, "unanswered_ns");
    let waits = crate::censor::waits(&answered, &unanswered, &[])?;
    let known = waits.kaplan_meier.get(name);
    let bound = waits.at_least.get(name);
    known.or(bound).map(|ns| Response {
        ns: *ns as f64,
        at_least: known.is_none(),
    })
}

/// A histogram of all runs together, by its name in the result file.
pub fn pooled(runs: &[&Run], name: &str) -> Histogram {
    let mut all = Histogram::new();
    for buckets in runs.iter().filter_map(|run| run.histograms.get(name)) {
        all.merge(&Histogram::from_buckets(buckets));
    }
    all
}

/// The highest percentile, as a share of one and at most 0.99, that has this many
/// of `count` values beyond it; the median where there is none.
pub fn tail(count: u64) -> f64 {
    (1.0 - BEYOND / count.max(1) as f64).clamp(0.5, 0.99)
}

/// A percentile with fewer values beyond it depends on a few requests: the p99 of 20
/// requests is the slowest one.
const BEYOND: f64 = 10.0;

/// A percentile of a distribution by their names (`service_ns`, `p99`), over the runs: the
/// median of theirs, or that of all their values where a run has too few. None where all
/// runs together have too few.
pub fn percentile(runs: &[&Run], of: &str, name: &str) -> Option<f64> {
    let each = runs.iter().map(|run| {
        let found = distribution(run, of)?.percentiles.get(name)?;
        Some(*found as f64)
    });
    match each.collect::<Option<Vec<f64>>>() {
        Some(each) => median(&each),
        None => {
            let (_, q) = PERCENTILES.iter().find(|(known, _)| *known == name)?;
            pooled(runs, of).published(*q).map(|ns| ns as f64)
        }
    }
}

/// Figures of requests (`figures.rs`), the distributions that they are of, and percentiles.
const OF_REQUESTS: [(&str, &str, &str); 4] = [
    ("response_p50_ns", "response_ns", "p50"),
    ("response_p99_ns", "response_ns", "p99"),
    ("service_p50_ns", "service_ns", "p50"),
    ("service_p99_ns", "service_ns", "p99"),
];

/// A figure of requests at a rate over these runs, where one run may have too few for it; inner
/// None where it is not known, or known only to lie above. Outer None of other figures.
pub fn over_requests(workload: Workload, figure: &str, runs: &[&Run]) -> Option<Option<f64>> {
    let mut all = OF_REQUESTS.iter().filter(|_| workload == Workload::Rate);
    let (_, of, name) = all.find(|(known, ..)| *known == figure)?;
    Some(match *of {
        "response_ns" => response(runs, name)
            .filter(|found| !found.at_least)
            .map(|found| found.ns),
        of => percentile(runs, of, name),
    })
}

fn distribution<'a>(run: &'a Run, of: &str) -> Option<&'a Distribution> {
    let open = run.open_loop.as_deref()?;
    match of {
        "service_ns" => run.times.service_ns.as_ref(),
        "generator_lag_ns" => open.generator_lag_ns.as_ref(),
        "target_lag_ns" => open.target_lag_ns.as_ref(),
        "canary_lag_ns" => open.canary_lag_ns.as_ref(),
        _ => None,
    }
}

/// The 99th percentile of what the generator was late by.
pub fn generator_lag_p99(runs: &[&Run]) -> Option<f64> {
    percentile(runs, "generator_lag_ns", "p99")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Rated;
    use jostle_model::record::Percentiles;

    #[test]
    fn what_was_never_answered_makes_a_percentile_a_lower_bound() {
        let fine = Rated::at(100).run();
        let half = Rated {
            done: 500,
            ..Rated::at(100)
        }
        .run();
        let of = |runs: &[&Run]| response(runs, "p99").unwrap();
        assert!(!of(&[&fine]).at_least);
        assert!(of(&[&half]).at_least);
        assert!(of(&[&half]).ns > 0.9e9);
        // One bad run of three does not move the median.
        assert!(!of(&[&fine, &half, &fine]).at_least);
        assert!(of(&[&half, &half, &fine]).at_least);
        assert_eq!(share_done(&[&fine, &half]), Some(0.75));
    }

    #[test]
    fn runs_too_short_for_a_percentile_are_pooled() {
        let mut short = Rated::at(100).run();
        let open = short.open_loop.as_mut().unwrap();
        open.response_kaplan_meier = Percentiles::default();
        let found = response(&[&short, &short], "p99").unwrap();
        assert!((found.ns - 400_000.0).abs() < 4_000.0, "{found:?}");
    }
}
