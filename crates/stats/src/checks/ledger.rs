//! Is every request that was planned accounted for?

use super::{Check, EVERYTHING, Evidence};
use jostle_model::record::{Is, Reason};

/// The check.
pub static CHECK: Check = Check {
    name: "ledger",
    asks: "Is every planned request of an open loop accounted for, once?",
    threshold: "planned other than done + failed + dropped + in flight, by one request in one \
                run: INVALID",
    source: "what is planned is counted from the schedule and what became of it by the workers: \
             a difference is a fault of jostle, and a request that it lost may be the slowest one",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let mut ledgers = evidence
        .runs
        .iter()
        .filter_map(|run| run.open_loop.as_ref());
    let wrong = ledgers.find(|ledger| !ledger.adds_up())?;
    let found = wrong.done + wrong.failed + wrong.dropped + wrong.in_flight;
    let text = format!(
        "{} requests were planned and {found} are accounted for ({} done, {} failed, {} dropped, \
         {} in flight)",
        wrong.planned, wrong.done, wrong.failed, wrong.dropped, wrong.in_flight
    );
    Some(CHECK.reason(Is::Invalid, EVERYTHING, text))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::judge;
    use crate::open_loop::tests::Run;
    use jostle_model::open_loop::OpenLoop;
    use jostle_model::record::Point;
    use proptest::prelude::*;

    fn of(ledger: OpenLoop) -> Point {
        Point {
            open_loop: Some(Box::new(ledger)),
            ..Run::at(100).point()
        }
    }

    proptest! {
        #[test]
        fn a_ledger_that_adds_up_is_acquitted_and_one_request_more_or_less_convicts(
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
            let fine = of(OpenLoop { planned: sum, ..ledger.clone() });
            prop_assert_eq!(judge(&CHECK, &[fine.clone(), of(ledger)]).is_none(), off == 0);
            prop_assert!(judge(&CHECK, &[fine]).is_none());
        }
    }

    #[test]
    fn other_workloads_have_no_ledger() {
        assert_eq!(judge(&CHECK, &[crate::fixtures::point()]), None);
    }
}
