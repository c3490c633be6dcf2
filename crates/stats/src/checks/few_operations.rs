//! Did enough happen to speak of a rate?

use super::{Check, EVERYTHING, Evidence};
use jostle_model::record::{Claim, Is, Point, Reason};

const LEAST: u64 = 30;

/// The check.
pub static CHECK: Check = Check {
    name: "few_operations",
    asks: "Did enough happen within the window to speak of a rate?",
    threshold: "a window with fewer than 30 grants: SUSPECT, without any: INVALID",
    source: "where a window's edges fall among the grants decides about one of them: of 30 \
             that is 3 %",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    // Where a limit ended a sweep, that is why.
    let ended = |run: &Point| {
        let connections = run.connections.as_ref();
        connections.is_some_and(|connections| connections.stopped.is_some())
    };
    let runs = evidence.runs.iter().filter(|run| !ended(run));
    let fewest = runs.min_by_key(|run| run.operations)?;
    let window_s = fewest.window_s;
    match fewest.operations {
        0 if fewest.failed_ns.is_some() => {
            let text = "no request was a success".to_owned();
            Some(CHECK.reason(Is::Invalid, EVERYTHING, text))
        }
        0 => {
            let text = format!("nothing was granted within a window of {window_s:.1} s");
            Some(CHECK.reason(Is::Invalid, EVERYTHING, text))
        }
        n if n < LEAST => {
            if !evidence.experiment.plan.workload.has_window() {
                let text = format!("only {n} operations in the whole run; do more of them");
                return Some(CHECK.reason(Is::Suspect, &[Claim::Absolute], text));
            }
            let seconds = (LEAST as f64 / n as f64 * window_s).ceil();
            let what = match evidence.is_contention() {
                true => "acquisitions",
                false => "answers",
            };
            let text = format!("only {n} {what} within the window (-t {seconds})");
            Some(CHECK.reason(Is::Suspect, &[Claim::Absolute], text))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, experiment, judge, judge_in, point};
    use jostle_model::plan::Workload;
    use jostle_model::record::Is;

    #[test]
    fn thirty_grants_are_the_least_and_none_are_no_measurement() {
        let with = |n| after(&CHECK, |point| point.operations = n);
        assert_eq!(with(30), Is::Valid);
        assert_eq!(with(29), Is::Suspect);
        assert_eq!(with(1), Is::Suspect);
        assert_eq!(with(0), Is::Invalid);
    }

    #[test]
    fn what_a_limit_ended_is_the_limit_s_business() {
        use jostle_model::connect::{Connections, Stopped};
        let of = after(&CHECK, |point| {
            point.operations = 0;
            point.connections = Some(Box::new(Connections {
                stopped: Some(Stopped::default()),
                ..Connections::default()
            }));
        });
        assert_eq!(of, Is::Valid);
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
        const MORE: &str = "only 7 operations in the whole run; do more of them";
        let mut poor = point();
        poor.operations = 7;
        for (workload, text) in [
            (Workload::Rate, LONGER),
            (Workload::Spread, LONGER),
            (Workload::Stream, MORE),
            (Workload::Hold, MORE),
        ] {
            let mut experiment = experiment();
            experiment.plan.workload = workload;
            let reason = judge_in(&CHECK, &experiment, std::slice::from_ref(&poor)).unwrap();
            assert_eq!(reason.text, text, "{workload}");
        }
    }
}
