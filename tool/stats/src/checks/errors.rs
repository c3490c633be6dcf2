//! Did every call succeed?

use super::{EVERYTHING, Evidence, Found, clock, seen};
use jostle_model::plan::Workload;
use jostle_model::record::{BROKE_OFF, Run};
use std::collections::BTreeMap;

/// Failed calls.
const MOST: u64 = 0;

check! {
    "errors" in "calls": "Did any call fail, apart from refused tries and timeouts?";
    threshold: text!("more than {MOST} failed calls: INVALID"),
    source: "a failed call is quicker than a lock: counting on would make an error look like speed",
    fooled_by: "a lock that reports success without locking; the witness of exclusion sees that",
    advice: "look the error up: the first of each kind stands under the table, in the words of \
             the system or server",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    if evidence.experiment.plan.workload == Workload::Connect {
        // In `connect` an error is a limit that was reached, which the check `limit`
        // reports.
        return None;
    }
    let mut failed: BTreeMap<&str, u64> = BTreeMap::new();
    // A search counts failed requests against the load.
    let counts = |name: &str| evidence.experiment.plan.find.is_none() || name == BROKE_OFF;
    let all = evidence.runs.iter().flat_map(|run| of_calls(run));
    for (name, count) in all.filter(|(name, _)| counts(name)) {
        *failed.entry(name).or_default() += count;
    }
    let all: u64 = failed.values().sum();
    let broke_off = failed.remove(BROKE_OFF).is_some();
    let list: Vec<String> = failed
        .iter()
        .map(|(name, count)| format!("{name} {count} times"))
        .collect();
    let calls = (!list.is_empty()).then(|| {
        format!(
            "calls failed: {}{}",
            list.join(", "),
            words(evidence, false)
        )
    });
    let broke_off = broke_off.then(|| format!("a run broke off{}", words(evidence, true)));
    let text: Vec<String> = calls.into_iter().chain(broke_off).collect();
    (all > MOST).then(|| Found::invalid(EVERYTHING, all as f64, MOST as f64).seen(text.join("; ")))
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

/// The first error in the words of the system, of the server or of a user's program: of a run that
/// broke off, or of the calls.
fn words(evidence: &Evidence<'_>, broke_off: bool) -> String {
    let has = |run: &&&Run| run.around.errors.contains_key(BROKE_OFF) == broke_off;
    let mut runs = evidence.runs.iter().filter(has);
    let first = runs.find_map(|run| run.around.messages.first());
    let between = if broke_off { ": " } else { "; the first: " };
    first.map_or(String::new(), |text| format!("{between}{text}"))
}

#[cfg(test)]
mod tests {
    use super::{CHECK, clock};
    use crate::fixtures::{after, judge, point};
    use jostle_model::record::{BROKE_OFF, Run, Status};

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

    /// NOAUTH in mid-run once discarded the finished points.
    #[test]
    fn a_run_that_broke_off_is_invalid_in_the_server_s_words() {
        let broken = |name: &str, text: &str| {
            let mut run = point();
            run.around.errors.insert(name.to_owned(), 1);
            run.around.messages = vec![text.to_owned()];
            run
        };
        let off = broken(BROKE_OFF, "redis: NOAUTH");
        let text = |runs: &[Run]| judge(&CHECK, runs).unwrap().text;
        assert_eq!(
            text(&[point(), off.clone()]),
            "a run broke off: redis: NOAUTH"
        );
        let both =
            "calls failed: EPROTO 1 times; the first: SET: OOM; a run broke off: redis: NOAUTH";
        assert_eq!(text(&[off, broken("EPROTO", "SET: OOM")]), both);
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
