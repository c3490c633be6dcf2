//! Did a signal stop the workers?

use super::{Check, EVERYTHING, Evidence};
use jostle_model::record::{Is, Reason};

/// The check.
pub static CHECK: Check = Check {
    name: "halted",
    asks: "Was a worker process stopped (SIGSTOP) while it was measured?",
    threshold: "one stop that the keeper was told of: INVALID",
    source: "waitid(2): the kernel tells the parent of each stop; whoever is stopped neither \
             asks nor waits, and no CPU clock shows it",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let halts = evidence.sum(|run| run.machine.halts.unwrap_or(0));
    (halts > 0).then(|| {
        let text = format!(
            "workers were stopped by a signal (SIGSTOP), {halts} times or more; \
             measure again without whoever did it"
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
    fn one_stop_convicts() {
        let with = |halts| after(&CHECK, |point| point.machine.halts = halts);
        assert_eq!(with(Some(1)), Is::Invalid);
        assert_eq!(with(Some(0)), Is::Valid);
        assert_eq!(with(None), Is::Valid);
    }
}
