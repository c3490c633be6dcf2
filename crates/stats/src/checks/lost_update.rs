//! Did an update that was made under the lock get lost?

use super::{Check, EVERYTHING, Evidence};
use jostle_model::record::{Exclusion, Is, Reason};

/// The check.
pub static CHECK: Check = Check {
    name: "lost_update",
    asks: "Does the counter that each owner increments agree with the acquisitions?",
    threshold: "one lost update: INVALID",
    source: "the lock's own contract: a load, an add and a store lose nothing under exclusion",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let sum = |figure: fn(&Exclusion) -> u64| evidence.exclusions().map(figure).sum::<u64>();
    let lost = sum(|exclusion| exclusion.lost_updates);
    let checked = sum(|exclusion| exclusion.checked);
    (lost > 0).then(|| {
        let text = format!("{lost} of {checked} updates made under the lock were lost");
        CHECK.reason(Is::Invalid, EVERYTHING, text)
    })
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::after;
    use jostle_model::record::Is;

    #[test]
    fn one_lost_update_convicts() {
        let with = |lost| {
            after(&CHECK, |point| {
                point.exclusion.as_mut().unwrap().lost_updates = lost;
            })
        };
        assert_eq!(with(1), Is::Invalid);
        assert_eq!(with(0), Is::Valid);
    }
}
