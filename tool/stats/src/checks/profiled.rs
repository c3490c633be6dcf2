//! Did a profiler or tracer run along?

use super::{BUT_RATIO, Evidence, Found, seen};
use jostle_model::Remedy;

/// Runs with one.
const MOST: usize = 0;

check! {
    "profiled" in "runs": "Did a profiler or tracer run along (--during)?";
    threshold: text!("more than {MOST} runs with it: SUSPECT for `absolute` and `distribution`"),
    source: "what looks at every call, or interrupts many times a second, takes time of what it \
             looks at",
    fooled_by: "a profiler that somebody else started; `neighbours` may see it",
    advice: "measure without it, for figures",
    words: text!(|reason| "`{}` ran along and took its share", seen(reason)),
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let commands = || evidence.each(|run| run.around.during.as_ref());
    let runs = commands().count();
    (runs > MOST).then(|| {
        Found::suspect(BUT_RATIO, runs as f64, MOST as f64)
            .seen(commands().next().cloned())
            .remedy(Remedy::without("--during"))
    })
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, judge, point};
    use jostle_model::record::Status;

    #[test]
    fn a_profiler_is_named() {
        assert_eq!(after(&CHECK, |_| {}), Status::Valid);
        let mut run = point();
        run.around.during = Some("perf record -g -p 7".to_owned());
        let reason = judge(&CHECK, &[point(), run]).unwrap();
        assert_eq!(reason.is, Status::Suspect);
        assert!(reason.text.contains("`perf record -g -p 7` ran along"));
    }
}
