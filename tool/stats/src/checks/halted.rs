//! Did a signal stop the workers?

use super::{EVERYTHING, Evidence, Found, measured};
use jostle_model::Remedy;

/// Stops.
const MOST: u64 = 0;

check! {
    "halted" in "stops": "Was a worker process stopped (SIGSTOP) while it was measured?";
    threshold: text!("more than {MOST} stops that the keeper was told of: INVALID"),
    source: "waitid(2): the kernel tells the parent of each stop; a stopped process neither \
             asks nor waits, and no CPU clock shows it",
    fooled_by: "a frozen control group, and a stop of the whole virtual machine, of which no \
                parent is told",
    advice: "run it again without the program that sends the signal",
    words: text!(
        |reason| "workers were stopped by a signal (SIGSTOP), {} times or more",
        measured(reason)
    ),
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let halts = evidence.sum(|run| run.around.machine.halts.unwrap_or(0));
    (halts > MOST)
        .then(|| Found::invalid(EVERYTHING, halts as f64, MOST as f64).remedy(Remedy::Again))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::after;
    use jostle_model::record::Status;

    #[test]
    fn one_stop_is_flagged() {
        let with = |halts| after(&CHECK, |run| run.around.machine.halts = halts);
        assert_eq!(with(Some(1)), Status::Invalid);
        assert_eq!(with(Some(0)), Status::Valid);
        assert_eq!(with(None), Status::Valid);
    }
}
