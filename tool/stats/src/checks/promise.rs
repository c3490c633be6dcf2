//! Did the lock keep its promise through the faults?

use super::{EVERYTHING, Evidence, Found, seen};
use crate::numbers::counted;
use jostle_model::record::{Belongs, Verified, Violation};

/// Violations.
const MOST: u64 = 0;

check! {
    "promise" in "violations":
        "Did the lock keep its promise while faults struck its clients and its servers?";
    threshold: text!(
        "more than {MOST} violations: INVALID; something undecided: SUSPECT, with --strict INVALID"
    ),
    source: "the promise of the target (`jostle targets NAME`), or that of --promise; holds count \
             from the return of their grant until their release is sent or their entitlement ends",
    fooled_by: "faults that did not strike at the right moment: a longer run and other seeds find \
                more; a promise that states less than the users of the lock rely on",
    advice: "read the excerpt, and run the command of the last line again; where something is \
             undecided, --promise states what the lock promises",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let runs = || evidence.each(|run| run.verified.as_deref());
    let sum = |of: &dyn Fn(&Verified) -> u64| runs().map(of).sum::<u64>();
    let violations = sum(&Verified::violations);
    if violations > MOST {
        let kinds = Violation::ALL.into_iter();
        let kinds = kinds.map(|kind| (sum(&|run| run.of(kind)), kind));
        let found = kinds.filter(|(count, _)| *count > 0);
        let found: Vec<String> = found.map(|(count, kind)| kind.counted(count)).collect();
        let words = format!(
            "its promise is broken: {} in {}",
            found.join(", "),
            counted(sum(&|run| run.grants), "grant")
        );
        return Some(Found::invalid(EVERYTHING, violations as f64, MOST as f64).seen(words));
    }
    let undecided = sum(&|run| run.undecided);
    let unstated = runs().any(|run| run.promise.belongs == Belongs::Unknown);
    let words = format!(
        "{} undecided{}",
        counted(undecided, "overlap"),
        match unstated {
            true => ": nobody has stated what a fault may take away (--promise)",
            false => ": the moment of a fault, a missing stamp or the promise leaves it open",
        }
    );
    let found = match evidence.experiment.plan.strict() {
        true => Found::invalid(EVERYTHING, undecided as f64, MOST as f64),
        false => Found::suspect(EVERYTHING, undecided as f64, MOST as f64),
    };
    (undecided > MOST).then(|| found.seen(words))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{experiment, judge, judge_in, point};
    use jostle_model::record::{Belongs, Run, Status, Verified};

    fn run(change: fn(&mut Verified)) -> Run {
        let mut verified = Verified {
            grants: 48_210,
            ..Verified::default()
        };
        verified.promise.belongs = Belongs::Connection;
        change(&mut verified);
        Run {
            verified: Some(Box::new(verified)),
            ..point()
        }
    }

    #[test]
    fn one_violation_is_enough_and_each_kind_is_told() {
        assert_eq!(judge(&CHECK, &[point()]), None);
        assert_eq!(judge(&CHECK, &[run(|found| found.outside = 9)]), None);
        let bad = run(|found| (found.overlaps, found.tokens_fell) = (2, 1));
        let reason = judge(&CHECK, &[run(|_| {}), bad]).unwrap();
        assert_eq!(reason.is, Status::Invalid);
        assert_eq!(
            reason.text,
            "its promise is broken: 2 overlaps of entitled owners, 1 fencing token that fell in \
             96,420 grants"
        );
    }

    #[test]
    fn what_is_undecided_is_no_pass_and_with_strict_a_failure() {
        let open = [run(|found| found.undecided = 1)];
        let reason = judge(&CHECK, &open).unwrap();
        assert_eq!(reason.is, Status::Suspect);
        assert!(reason.text.starts_with("1 overlap undecided: the moment"));
        let mut strict = experiment();
        strict.plan.strict = Some(true);
        let reason = judge_in(&CHECK, &strict, &open).unwrap();
        assert_eq!(reason.is, Status::Invalid);
        let unstated = run(|found| {
            (found.undecided, found.promise.belongs) = (7, Belongs::Unknown);
        });
        let text = judge(&CHECK, &[unstated]).unwrap().text;
        assert!(text.contains("--promise"), "{text}");
    }
}
