//! Did the lock let two owners in at once, on one host or on two?

use super::{Check, EVERYTHING, Evidence};
use jostle_model::record::{Across, Exclusion, Is, Reason};

/// The check.
pub static CHECK: Check = Check {
    name: "exclusion",
    asks: "Did any acquisition find another owner inside, or overlap with one of another host?",
    threshold: "one violation, one wrong fencing token: INVALID",
    source: "the lock's own contract; so the kernel's locktorture counts writers that meet another",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let sum = |figure: fn(&Exclusion) -> u64| evidence.exclusions().map(figure).sum::<u64>();
    let violations = sum(|exclusion| exclusion.violations);
    let checked = sum(|exclusion| exclusion.checked);
    if violations == 0 {
        return across(evidence);
    }
    let mut text = format!(
        "{violations} of {checked} acquisitions found another owner inside: this lock does not exclude"
    );
    let mut examples = evidence.exclusions().flat_map(|seen| &seen.examples);
    if let Some(example) = examples.next() {
        text.push_str(&format!(" ({example})"));
    }
    Some(CHECK.reason(Is::Invalid, EVERYTHING, text))
}

/// What only the logs of several hosts together show.
fn across(evidence: &Evidence<'_>) -> Option<Reason> {
    let seen: Vec<&Across> = evidence
        .exclusions()
        .filter_map(|exclusion| exclusion.across.as_deref())
        .collect();
    let sum = |figure: fn(&Across) -> u64| seen.iter().map(|across| figure(across)).sum::<u64>();
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
    let found = faults.iter().filter(|(count, _)| *count > 0);
    let said: Vec<String> = found
        .map(|(count, what)| format!("{count} of {checked} acquisitions {what}"))
        .collect();
    let example = seen.iter().flat_map(|across| &across.examples).next();
    let example = example.map_or(String::new(), |example| format!(" ({example})"));
    let text = format!("{}{example}", said.join("; "));
    (!said.is_empty()).then(|| CHECK.reason(Is::Invalid, EVERYTHING, text))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, judge, point};
    use jostle_model::record::{Across, Exclusion, Is};

    fn with(violations: u64, holder_died: u64) -> Is {
        after(&CHECK, |point| {
            point.exclusion = Some(Exclusion {
                checked: 4725,
                violations,
                holder_died,
                ..Exclusion::default()
            });
        })
    }

    #[test]
    fn one_violation_convicts_and_a_dead_holder_does_not() {
        assert_eq!(with(1, 0), Is::Invalid);
        assert_eq!(with(0, 0), Is::Valid);
        assert_eq!(with(0, 7), Is::Valid);
        assert_eq!(after(&CHECK, |point| point.exclusion = None), Is::Valid);
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
    fn what_is_certain_across_hosts_convicts_and_what_is_undecided_does_not() {
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
