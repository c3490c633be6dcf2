//! Did an update that was made under the lock get lost?

use super::{EVERYTHING, Evidence, Found, measured, seen};
use jostle_model::record::Exclusion;

/// Lost updates.
const MOST: u64 = 0;

check! {
    "lost_update" in "updates":
        "Does the counter that each owner increments agree with the acquisitions?";
    threshold: text!("more than {MOST} lost updates: INVALID"),
    source: "the lock's own contract: a load, an add and a store lose nothing under exclusion",
    fooled_by: "an overlap shorter than the two marks, and a worker killed between its two \
                counters (one lost update for each death is excused)",
    advice: "do not use the lock; fewer workers show whether it takes a crowd",
    words: text!(
        |reason| "{} of {} updates made under the lock were lost",
        measured(reason),
        seen(reason)
    ),
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let sum = |figure: fn(&Exclusion) -> u64| evidence.exclusions().map(figure).sum::<u64>();
    let lost = sum(|exclusion| exclusion.lost_updates);
    (lost > MOST).then(|| {
        Found::invalid(EVERYTHING, lost as f64, MOST as f64)
            .seen(sum(|exclusion| exclusion.checked).to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::after;
    use jostle_model::record::Status;

    #[test]
    fn one_lost_update_is_flagged() {
        let with = |lost| {
            after(&CHECK, |run| {
                run.exclusion.as_mut().unwrap().lost_updates = lost;
            })
        };
        assert_eq!(with(1), Status::Invalid);
        assert_eq!(with(0), Status::Valid);
    }
}
