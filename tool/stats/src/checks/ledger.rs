//! Is every request that was planned accounted for?

use super::{EVERYTHING, Evidence, Found, seen};
use jostle_model::Remedy;

/// Requests of a run that may be missing or counted twice.
const MOST: u64 = 0;

check! {
    "ledger" in "requests": "Is every planned request of an open loop accounted for, once?";
    threshold: text!(
        "planned other than done + failed + dropped + in flight, by more than {MOST} requests \
         in one run: INVALID"
    ),
    source: "what is planned is counted from the schedule and what became of it by the workers: \
             a difference is a fault of jostle, and a request that it lost may be the slowest one",
    fooled_by: "two faults that cancel",
    advice: "run it again, and report it: it is a fault of jostle",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let mut ledgers = evidence.each(|run| run.open_loop.as_ref());
    let known = |ledger: &jostle_model::open_loop::OpenLoop| {
        ledger.done + ledger.failed + ledger.dropped + ledger.in_flight
    };
    let wrong = ledgers.find(|ledger| ledger.planned.abs_diff(known(ledger)) > MOST)?;
    Some(
        Found::invalid(
            EVERYTHING,
            wrong.planned.abs_diff(known(wrong)) as f64,
            MOST as f64,
        )
        .seen(format!(
            "{} requests were planned and {} are accounted for ({} done, {} failed, {} dropped, \
             {} in flight)",
            wrong.planned,
            known(wrong),
            wrong.done,
            wrong.failed,
            wrong.dropped,
            wrong.in_flight
        ))
        .remedy(Remedy::Again),
    )
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::Rated;
    use crate::fixtures::judge;
    use jostle_model::open_loop::OpenLoop;
    use jostle_model::record::Run;
    use proptest::prelude::*;

    fn run(ledger: OpenLoop) -> Run {
        Run {
            open_loop: Some(Box::new(ledger)),
            ..Rated::at(100).run()
        }
    }

    proptest! {
        #[test]
        fn a_ledger_that_adds_up_passes_and_one_request_more_or_less_is_flagged(
            done in 0..1_000_000u64,
            failed in 0..1_000u64,
            dropped in 0..1_000u64,
            in_flight in 0..100u64,
            off in -3..=3i64,
        ) {
            let sum = done + failed + dropped + in_flight;
            prop_assume!(sum as i64 + off >= 0);
            let ledger = OpenLoop {
                planned: (sum as i64 + off) as u64,
                done,
                failed,
                dropped,
                in_flight,
                ..OpenLoop::default()
            };
            let fine = run(OpenLoop { planned: sum, ..ledger.clone() });
            prop_assert_eq!(judge(&CHECK, &[fine.clone(), run(ledger)]).is_none(), off == 0);
            prop_assert!(judge(&CHECK, &[fine]).is_none());
        }
    }

    #[test]
    fn other_workloads_have_no_ledger() {
        assert_eq!(judge(&CHECK, &[crate::fixtures::point()]), None);
    }
}
