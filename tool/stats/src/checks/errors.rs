//! Did every call succeed?

use super::{Check, EVERYTHING, Evidence, Found, clock, seen};
use jostle_model::plan::Workload;
use jostle_model::record::Run;
use std::collections::BTreeMap;

/// Failed calls.
const MOST: u64 = 0;

/// The check.
pub static CHECK: Check = Check {
    name: "errors",
    asks: "Did any call fail, apart from refused tries and timeouts?",
    unit: "calls",
    threshold: || format!("more than {MOST} failed calls: INVALID"),
    source: "a failed call is quicker than a lock: counting on would make an error look like speed",
    fooled_by: "a lock that reports success without locking; the witness of exclusion sees that",
    advice: "look the error up: the first of each kind stands under the table, in the words of \
             the system or server",
    words: seen,
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    if evidence.experiment.plan.workload == Workload::Connect {
        // In `connect` an error is a limit that was reached, which the check `limit`
        // reports.
        return None;
    }
    let mut failed: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in evidence.runs.iter().flat_map(|run| of_calls(run)) {
        *failed.entry(name).or_default() += count;
    }
    let all: u64 = failed.values().sum();
    let list: Vec<String> = failed
        .iter()
        .map(|(name, count)| format!("{name} {count} times"))
        .collect();
    (all > MOST).then(|| {
        Found::invalid(EVERYTHING, all as f64, MOST as f64).seen(format!(
            "calls failed: {}{}",
            list.join(", "),
            words(evidence)
        ))
    })
}

/// The errors of a run that are failed calls.
fn of_calls(run: &Run) -> impl Iterator<Item = (&str, u64)> {
    // Not a failed call: the check of the clocks judges it.
    let failed = |(name, count): &(&String, &u64)| **count > 0 && *name != clock::BEFORE_RELEASE;
    let all = run.around.errors.iter().filter(failed);
    all.map(|(name, count)| (name.as_str(), *count))
}

/// How many calls of a run failed; in most workloads such a call ends its worker.
pub(super) fn failed_calls(run: &Run) -> u64 {
    of_calls(run).map(|(_, count)| count).sum()
}

/// What the first was, in the words of the system, of the server or of a user's program.
fn words(evidence: &Evidence<'_>) -> String {
    let first = evidence
        .runs
        .iter()
        .flat_map(|run| &run.around.messages)
        .next();
    first.map_or(String::new(), |text| format!("; the first: {text}"))
}

#[cfg(test)]
mod tests {
    use super::{CHECK, clock};
    use crate::fixtures::{after, judge, point};
    use jostle_model::record::Status;

    #[test]
    fn one_failed_call_is_flagged_and_a_counted_zero_is_not() {
        let with = |name: &str, count| {
            after(&CHECK, |run| {
                run.around.errors.insert(name.to_string(), count);
            })
        };
        assert_eq!(with("ENOLCK", 1), Status::Invalid);
        assert_eq!(with("ENOLCK", 0), Status::Valid);
        assert_eq!(with(clock::BEFORE_RELEASE, 9), Status::Valid);
    }

    #[test]
    fn failures_of_all_runs_are_added_up() {
        let mut bad = point();
        bad.around.errors.insert("ENOLCK".to_string(), 2);
        let reason = judge(&CHECK, &[bad.clone(), point(), bad]).unwrap();
        assert_eq!(reason.text, "calls failed: ENOLCK 4 times");
    }

    #[test]
    fn the_first_failure_is_quoted() {
        let mut bad = point();
        bad.around.errors.insert("EPROTO".to_string(), 3);
        bad.around.messages = vec!["request A: the command answered an error".to_string()];
        assert_eq!(
            judge(&CHECK, &[bad]).unwrap().text,
            "calls failed: EPROTO 3 times; the first: request A: the command answered an error"
        );
    }
}
