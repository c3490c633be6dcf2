//! Did a CPU quota stop the workers?

use super::{EVERYTHING, Evidence, Found, measured};
use jostle_model::Remedy;

/// Periods.
const MOST: u64 = 0;

check! {
    "throttled" in "periods": "Did the cgroup's CPU quota stop us within the window?";
    threshold: text!("more than {MOST} throttled periods: INVALID"),
    source: "sched-bwc in the kernel's documentation: a throttled group stands still for the \
             rest of its period (100 ms), owner and waiters alike",
    fooled_by: "a group into which workers are put for less than 0.1 s, the time between two looks \
                at theirs; a quota of a parent group that is not visible from inside the container: the \
                symptom is a low share of the ideal with idle CPUs",
    advice: "raise the quota: `jostle doctor` names the group and the command (cpu.max; version \
             1: cpu.cfs_quota_us)",
    words: text!(
        |reason| "the cgroup's CPU quota stopped the workers in {} periods",
        measured(reason)
    ),
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let periods = evidence.sum(|run| run.around.machine.throttled_periods.unwrap_or(0));
    (periods > MOST)
        .then(|| Found::invalid(EVERYTHING, periods as f64, MOST as f64).remedy(Remedy::doctor()))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::after;
    use jostle_model::record::Status;

    #[test]
    fn one_throttled_period_is_flagged() {
        let with = |periods| after(&CHECK, |run| run.around.machine.throttled_periods = periods);
        assert_eq!(with(Some(1)), Status::Invalid);
        assert_eq!(with(Some(0)), Status::Valid);
        assert_eq!(with(None), Status::Valid);
    }
}
