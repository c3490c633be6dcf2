//! Did a CPU quota stop the workers?

use super::{Check, EVERYTHING, Evidence};
use jostle_model::record::{Is, Reason};

/// The check.
pub static CHECK: Check = Check {
    name: "throttled",
    asks: "Did the cgroup's CPU quota stop us within the window?",
    threshold: "one throttled period: INVALID",
    source: "sched-bwc in the kernel's documentation: a throttled group stands still for the \
             rest of its period (100 ms), owner and waiters alike",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let periods = evidence.sum(|run| run.machine.throttled_periods.unwrap_or(0));
    (periods > 0).then(|| {
        let text = format!(
            "the cgroup's CPU quota stopped the workers in {periods} periods; \
             raise cpu.max (v1: cpu.cfs_quota_us)"
        );
        CHECK.reason(Is::Invalid, EVERYTHING, text)
    })
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::after;
    use jostle_model::record::Is;

    #[test]
    fn one_throttled_period_convicts() {
        let with = |periods| after(&CHECK, |point| point.machine.throttled_periods = periods);
        assert_eq!(with(Some(1)), Is::Invalid);
        assert_eq!(with(Some(0)), Is::Valid);
        assert_eq!(with(None), Is::Valid);
    }
}
