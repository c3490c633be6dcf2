//! Did a profiler or tracer run along?

use super::{Check, Evidence};
use jostle_model::record::{Claim, Is, Reason};

/// The check.
pub static CHECK: Check = Check {
    name: "profiled",
    asks: "Did a profiler or tracer run along (--during)?",
    threshold: "one run with it: SUSPECT",
    source: "what looks at every call, or interrupts many times a second, takes time of what it \
             looks at",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let command = evidence.runs.iter().find_map(|run| run.during.as_ref())?;
    let text = format!("`{command}` ran along and took its share; leave --during out for figures");
    Some(CHECK.reason(Is::Suspect, &[Claim::Absolute, Claim::Distribution], text))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, judge, point};
    use jostle_model::record::Is;

    #[test]
    fn a_profiler_is_named() {
        assert_eq!(after(&CHECK, |_| {}), Is::Valid);
        let mut run = point();
        run.during = Some("perf record -g -p 7".to_owned());
        let reason = judge(&CHECK, &[point(), run]).unwrap();
        assert_eq!(reason.is, Is::Suspect);
        assert!(reason.text.contains("`perf record -g -p 7` ran along"));
    }
}
