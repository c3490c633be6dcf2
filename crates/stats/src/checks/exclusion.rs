//! Did the lock let two owners in at once?

use super::{Check, EVERYTHING, Evidence};
use jostle_model::record::{Is, Reason};

/// The check.
pub static CHECK: Check = Check {
    name: "exclusion",
    asks: "Did any acquisition find another owner inside?",
    threshold: "one violation: INVALID",
    source: "the lock's own contract; so the kernel's locktorture counts writers that meet another",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let seen = || {
        evidence
            .runs
            .iter()
            .filter_map(|run| run.exclusion.as_ref())
    };
    let violations: u64 = seen().map(|exclusion| exclusion.violations).sum();
    let checked: u64 = seen().map(|exclusion| exclusion.checked).sum();
    let mut text = format!(
        "{violations} of {checked} acquisitions found another owner inside: this lock does not exclude"
    );
    if let Some(example) = seen().flat_map(|exclusion| &exclusion.examples).next() {
        text.push_str(&format!(" ({example})"));
    }
    (violations > 0).then(|| CHECK.reason(Is::Invalid, EVERYTHING, text))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, judge, point};
    use jostle_model::record::{Exclusion, Is};

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
}
