//! Did the lock let two owners in at once, on one host or on two?

use super::{EVERYTHING, Evidence, Found, seen};
use jostle_model::record::{Across, Exclusion};

/// Violations.
const MOST: u64 = 0;

check! {
    "exclusion" in "acquisitions":
        "Did any acquisition find another owner inside, or overlap with one of another host?";
    threshold: text!("more than {MOST} violations, or wrong fencing tokens: INVALID"),
    source: "the lock's own contract; so the kernel's locktorture counts writers that meet another",
    fooled_by: "overlaps shorter than the time for which the owner's mark stands (printed as \
                \"watched for\"), wrong memory ordering, a reader that was not drawn, and between \
                hosts a clock that is off by more than its uncertainty",
    advice: "do not use the lock; fewer workers show whether it takes a crowd",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let sum = |figure: fn(&Exclusion) -> u64| evidence.exclusions().map(figure).sum::<u64>();
    let violations = sum(|exclusion| exclusion.violations);
    if violations == MOST {
        return behind(evidence).or_else(|| across(evidence));
    }
    let example = evidence.exclusions().flat_map(|seen| &seen.examples).next();
    Some(so_many(
        violations,
        format!(
            "{violations} of {} acquisitions found another owner inside: this lock does not \
             exclude{}",
            sum(|exclusion| exclusion.checked),
            such_as(example)
        ),
    ))
}

fn so_many(violations: u64, seen: String) -> Found {
    Found::invalid(EVERYTHING, violations as f64, MOST as f64).seen(seen)
}

fn such_as(example: Option<&String>) -> String {
    example.map_or(String::new(), |example| format!(" ({example})"))
}

/// A token that does not grow fences off no earlier owner, even if the lock excludes.
fn behind(evidence: &Evidence<'_>) -> Option<Found> {
    let sum = |figure: fn(&Exclusion) -> Option<u64>| -> u64 {
        evidence.exclusions().filter_map(figure).sum()
    };
    let behind = sum(|exclusion| exclusion.tokens_out_of_order);
    let said = format!(
        "{behind} of {} exclusive grants came with a fencing token that was not greater than those \
         before it: it fences off nobody",
        sum(|exclusion| exclusion.tokens_checked)
    );
    (behind > MOST).then(|| so_many(behind, said))
}

/// Violations that only the logs of several hosts together show.
fn across(evidence: &Evidence<'_>) -> Option<Found> {
    let logs: Vec<&Across> = evidence
        .exclusions()
        .filter_map(|exclusion| exclusion.across.as_deref())
        .collect();
    let sum = |figure: fn(&Across) -> u64| logs.iter().map(|across| figure(across)).sum::<u64>();
    let checked = sum(|across| across.checked);
    let faults = [
        (
            sum(|across| across.violations),
            "certainly overlapped with an owner on another host: this lock does not exclude across hosts",
        ),
        (
            sum(|across| across.tokens_repeated),
            "came with a fencing token that another had had: it fences off nobody",
        ),
        (
            sum(|across| across.tokens_out_of_order),
            "came with an older fencing token than that of a hold that was over",
        ),
    ];
    let all: u64 = faults.iter().map(|(count, _)| count).sum();
    let found = faults.iter().filter(|(count, _)| *count > 0);
    let list: Vec<String> = found
        .map(|(count, what)| format!("{count} of {checked} acquisitions {what}"))
        .collect();
    let example = logs.iter().flat_map(|across| &across.examples).next();
    (all > MOST).then(|| so_many(all, list.join("; ") + &such_as(example)))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, judge, point};
    use jostle_model::record::{Across, Exclusion, Status};

    fn with(violations: u64, holder_died: u64) -> Status {
        after(&CHECK, |run| {
            run.exclusion = Some(Exclusion {
                checked: 4725,
                violations,
                holder_died,
                ..Exclusion::default()
            });
        })
    }

    #[test]
    fn one_violation_is_flagged_and_a_dead_holder_is_not() {
        assert_eq!(with(1, 0), Status::Invalid);
        assert_eq!(with(0, 0), Status::Valid);
        assert_eq!(with(0, 7), Status::Valid);
        assert_eq!(after(&CHECK, |run| run.exclusion = None), Status::Valid);
    }

    #[test]
    fn one_bad_run_among_clean_ones_is_enough_and_is_quoted() {
        let mut bad = point();
        let exclusion = bad.exclusion.as_mut().unwrap();
        exclusion.violations = 2;
        exclusion.examples = vec!["worker 3 met worker 5 on key 0".to_string()];
        let reason = judge(&CHECK, &[point(), bad]).unwrap();
        assert_eq!(
            reason.text,
            "2 of 9450 acquisitions found another owner inside: \
             this lock does not exclude (worker 3 met worker 5 on key 0)"
        );
    }

    #[test]
    fn one_token_that_did_not_grow_is_flagged() {
        let judged = |behind: Option<u64>| {
            let mut run = point();
            let exclusion = run.exclusion.as_mut().unwrap();
            (exclusion.tokens_checked, exclusion.tokens_out_of_order) = (Some(500), behind);
            judge(&CHECK, &[run]).map(|reason| reason.text)
        };
        assert_eq!(judged(None), None);
        assert_eq!(
            judged(Some(1)).unwrap(),
            "1 of 500 exclusive grants came with a fencing token that was not greater than those \
             before it: it fences off nobody"
        );
    }

    #[test]
    fn what_is_certain_across_hosts_is_flagged_and_what_is_undecided_is_not() {
        let judged = |across: Across| {
            let mut run = point();
            run.exclusion.as_mut().unwrap().across = Some(Box::new(across));
            judge(&CHECK, &[run]).map(|reason| reason.text)
        };
        let seen = || Across {
            checked: 900,
            undecided: 400,
            lapsed_overlap: 3,
            ordered_by_token: 20,
            ..Across::default()
        };
        assert_eq!(judged(seen()), None);
        let overlaps = Across {
            violations: 2,
            examples: vec!["worker 1 of one met worker 2 of two".to_string()],
            ..seen()
        };
        assert_eq!(
            judged(overlaps).unwrap(),
            "2 of 900 acquisitions certainly overlapped with an owner on another host: this lock \
             does not exclude across hosts (worker 1 of one met worker 2 of two)"
        );
        let tokens = Across {
            tokens_repeated: 1,
            tokens_out_of_order: 5,
            ..seen()
        };
        assert_eq!(
            judged(tokens).unwrap(),
            "1 of 900 acquisitions came with a fencing token that another had had: it fences off \
             nobody; 5 of 900 acquisitions came with an older fencing token than that of a hold \
             that was over"
        );
    }
}
