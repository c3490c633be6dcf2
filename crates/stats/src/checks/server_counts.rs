//! Did the server count what its clients counted?

use super::{Check, EVERYTHING, Evidence};
use jostle_model::record::{Is, Point, Reason};

/// The check.
pub static CHECK: Check = Check {
    name: "server_counts",
    asks: "Does the server's own count (of grants, of searches) agree with what the workers received?",
    threshold: "a difference of more than one for each worker, or for each request in flight, in a \
                run: INVALID",
    source: "both sides count from before the first worker to after the last; a worker that is \
             interrupted while it waits may miss the one grant that was on its way",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let (difference, counted, what) = evidence
        .runs
        .iter()
        .filter_map(|run| beyond_flight(run))
        .max_by_key(|(difference, ..)| difference.unsigned_abs())?;
    let (many, side) = match difference {
        d if d > 0 => (d.unsigned_abs(), "more"),
        d => (d.unsigned_abs(), "fewer"),
    };
    let text = format!(
        "the server counted {counted} {what}, {many} {side} than the workers did; \
         somebody else used it, or one of the two miscounts"
    );
    Some(CHECK.reason(Is::Invalid, EVERYTHING, text))
}

fn beyond_flight(run: &Point) -> Option<(i64, u64, &'static str)> {
    let server = run.server?;
    let (difference, counted) = (server.difference?, server.counted?);
    let what = match run.codes.is_empty() {
        true => "grants",
        false => "requests",
    };
    let in_flight = run.spread.as_ref().map(|spread| spread.in_flight);
    let most = run.at.workers.or(in_flight)?;
    (difference.unsigned_abs() > most).then_some((difference, counted, what))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::after;
    use jostle_model::record::{Is, Server};

    #[test]
    fn more_than_what_was_in_flight_convicts_either_way() {
        // The fixture has ten workers.
        for (difference, is) in [
            (0, Is::Valid),
            (10, Is::Valid),
            (11, Is::Invalid),
            (-10, Is::Valid),
            (-11, Is::Invalid),
        ] {
            let found = after(&CHECK, |point| {
                point.server = Some(Server {
                    counted: Some(5_000),
                    difference: Some(difference),
                    ..Server::default()
                });
            });
            assert_eq!(found, is, "{difference}");
        }
    }

    #[test]
    fn a_server_that_does_not_count_is_not_judged() {
        let found = after(&CHECK, |point| point.server = Some(Server::default()));
        assert_eq!(found, Is::Valid);
    }
}
