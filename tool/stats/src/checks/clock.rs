//! Do the CPUs' clocks agree well enough to time a hand-off?

use super::{Evidence, Found, measured, percent};
use jostle_model::Remedy;
use jostle_model::record::Claim;

/// The name, among a point's errors, of the count of hand-offs that ended before they began
/// by more than the clocks' uncertainty. They are in no histogram.
pub const BEFORE_RELEASE: &str = "handoff_before_release";

/// Share of the hand-offs.
const MOST: f64 = 0.001;

check! {
    "clock" in "share": "Did hand-offs end before they began?";
    threshold: text!(
        "above {} of the hand-offs: INVALID for `distribution`; not judged where owners overlapped, which \
         explains it without the clocks",
        percent(MOST)
    ),
    source: "no grant precedes the release that allowed it (Lamport, CACM 21, 1978); \
             up to 0.1 % leaves p99 in place",
    fooled_by: "an offset below the clocks' known uncertainty; where that could not be measured, \
                no hand-off counts as early",
    advice: "put all workers on one CPU, which has one clock",
    words: text!(
        |reason| "{} of the hand-offs ended before they began: the CPUs' clocks disagree",
        percent(measured(reason))
    ),
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let overlaps = evidence.sum(|run| run.exclusion.as_ref().map_or(0, |e| e.violations));
    if overlaps > 0 {
        return None;
    }
    let early = evidence.sum(|run| run.around.errors.get(BEFORE_RELEASE).copied().unwrap_or(0));
    let handoffs = evidence.sum(|run| run.times.handoff_ns.as_ref().map_or(0, |d| d.count));
    let share = early as f64 / handoffs.max(early).max(1) as f64;
    (share > MOST).then(|| {
        Found::invalid(&[Claim::Distribution], share, MOST).remedy(Remedy::with("--place", "same"))
    })
}

#[cfg(test)]
mod tests {
    use super::{BEFORE_RELEASE, CHECK};
    use crate::fixtures::after;
    use jostle_model::record::Status;

    #[test]
    fn more_than_one_early_hand_off_in_a_thousand_is_flagged() {
        let with = |early| {
            after(&CHECK, |run| {
                run.times.handoff_ns.as_mut().unwrap().count = 4000;
                run.around.errors.insert(BEFORE_RELEASE.to_string(), early);
            })
        };
        assert_eq!(with(0), Status::Valid);
        assert_eq!(with(4), Status::Valid);
        assert_eq!(with(5), Status::Invalid);
    }

    #[test]
    fn a_lock_that_lets_two_in_is_not_blamed_on_the_clocks() {
        let found = after(&CHECK, |run| {
            run.around.errors.insert(BEFORE_RELEASE.to_string(), 50);
            run.exclusion.as_mut().unwrap().violations = 1;
        });
        assert_eq!(found, Status::Valid);
    }
}
