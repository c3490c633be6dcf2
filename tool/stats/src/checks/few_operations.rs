//! Were there enough operations for a rate?

use super::{EVERYTHING, Evidence, Found, measured, seen};
use jostle_model::Remedy;
use jostle_model::plan::{Shape, Workload};
use jostle_model::record::{Claim, Run};

/// Grants of a window.
const LEAST: u64 = 30;

check! {
    "few_operations" in "operations": "Did enough happen within the window to speak of a rate?";
    threshold: text!(
        "the run with the fewest has fewer than {LEAST} grants: SUSPECT for `absolute`; it has \
         none: INVALID"
    ),
    source: "where a window's edges fall among the grants decides about one of them: of 30 \
             that is 3 %",
    fooled_by: "many grants in one burst; see `steadiness`",
    advice: "a longer window, or more operations",
    words: |reason| match measured(reason) {
        0.0 => seen(reason),
        n => format!("only {n} {}", seen(reason)),
    },
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    // A fault leads to one grant or none, and both are results.
    if evidence.experiment.plan.workload == Workload::Recover {
        return None;
    }
    // If a limit ended the sweep, the check `limit` reports it.
    let ended = |run: &Run| {
        let connections = run.connections.as_ref();
        // A lost lock is not released; the check `leases` reports it.
        let lost = run.kept.as_ref().is_some_and(|kept| kept.lapsed > 0);
        lost || connections.is_some_and(|connections| connections.stopped.is_some())
    };
    let runs = evidence.runs.iter().filter(|run| !ended(run));
    let fewest = runs.min_by_key(|run| run.operations)?;
    if fewest.operations >= LEAST {
        return None;
    }
    let (operations, limit) = (fewest.operations as f64, LEAST as f64);
    if fewest.operations == 0 {
        let what = match fewest.times.failed_ns.is_some() {
            true => "no request was a success".to_owned(),
            false => format!(
                "nothing was granted within a window of {:.1} s",
                fewest.window.window_s
            ),
        };
        return Some(Found::invalid(EVERYTHING, operations, limit).seen(what));
    }
    let what = match evidence.experiment.plan.workload.has_window() {
        true if evidence.is_contention() => "acquisitions within the window",
        true => "answers within the window",
        false => "operations in the whole run",
    };
    let found = Found::suspect(&[Claim::Absolute], operations, limit);
    Some(found.seen(what.to_owned()).remedy(more(evidence, fewest)))
}

/// The remedy that gives enough operations at the same rate.
fn more(evidence: &Evidence<'_>, fewest: &Run) -> Option<Remedy> {
    let each = LEAST.div_ceil(fewest.at.workers.unwrap_or(1).max(1));
    let workload = evidence.experiment.plan.workload;
    match workload.shape() {
        Shape::Stream | Shape::Hold => Some(Remedy::with(workload.swept().option, each)),
        Shape::Verify => {
            let seconds = LEAST as f64 / fewest.operations as f64 * fewest.window.window_s;
            Some(Remedy::with("--for", format!("{}s", seconds.ceil())))
        }
        Shape::Connect | Shape::Recover => None,
        Shape::Contend | Shape::Rate | Shape::Spread => {
            let seconds = (LEAST as f64 / fewest.operations as f64 * fewest.window.window_s).ceil();
            Some(Remedy::with("-t", seconds))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, experiment, judge, judge_in, point};
    use jostle_model::plan::Workload;
    use jostle_model::record::Status;

    #[test]
    fn thirty_grants_are_the_least_and_none_are_no_measurement() {
        let with = |n| after(&CHECK, |run| run.operations = n);
        assert_eq!(with(30), Status::Valid);
        assert_eq!(with(29), Status::Suspect);
        assert_eq!(with(1), Status::Suspect);
        assert_eq!(with(0), Status::Invalid);
    }

    #[test]
    fn what_a_limit_ended_is_the_limit_s_business() {
        use jostle_model::connect::{Connections, Stopped};
        let of = after(&CHECK, |run| {
            run.operations = 0;
            run.connections = Some(Box::new(Connections {
                stopped: Some(Stopped::default()),
                ..Connections::default()
            }));
        });
        assert_eq!(of, Status::Valid);
    }

    #[test]
    fn the_poorest_run_is_quoted_with_the_window_that_would_do() {
        let mut poor = point();
        poor.operations = 7;
        let reason = judge(&CHECK, &[point(), poor]).unwrap();
        // 30 / 7 x 5 s = 21.4 s
        assert_eq!(reason.text, "only 7 acquisitions within the window (-t 22)");
    }

    /// `spread` has a window, and was told to do more operations.
    #[test]
    fn what_would_do_is_a_longer_window_or_more_operations() {
        const LONGER: &str = "only 7 answers within the window (-t 22)";
        let mut poor = point();
        poor.operations = 7;
        for (workload, text) in [
            (Workload::Rate, LONGER),
            (Workload::Spread, LONGER),
            (
                Workload::Stream,
                "only 7 operations in the whole run (-n 3)",
            ),
            (
                Workload::Hold,
                "only 7 operations in the whole run (--keys 3)",
            ),
        ] {
            let mut experiment = experiment();
            experiment.plan.workload = workload;
            let reason = judge_in(&CHECK, &experiment, std::slice::from_ref(&poor)).unwrap();
            assert_eq!(reason.text, text, "{workload}");
        }
    }
}
