//! Did the server count what its clients counted?

use super::{EVERYTHING, Evidence, Found, seen};
use jostle_model::Remedy;
use jostle_model::record::Run;

/// For each worker, or each request in flight, of a run.
const MOST_EACH: u64 = 1;

check! {
    "server_counts" in "operations":
        "Does the server's own count (of grants, of searches) agree with what the workers received?";
    threshold: text!(
        "a difference of more than {MOST_EACH} for each worker, or for each request in \
         flight, in a run: INVALID"
    ),
    source: "both sides count from before the first worker to after the last; a worker that is \
             interrupted while it waits may miss the one grant that was on its way",
    fooled_by: "a server that counts wrongly in step with its clients, and one that does not count \
                (Redis counts commands, not locks: there is nothing to compare)",
    advice: "let nobody else use the server, and run it again",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let apart = evidence.each(beyond_flight);
    let worst = apart.max_by_key(|apart| apart.difference.unsigned_abs())?;
    let (many, side) = match worst.difference {
        d if d > 0 => (d.unsigned_abs(), "more"),
        d => (d.unsigned_abs(), "fewer"),
    };
    Some(
        Found::invalid(EVERYTHING, worst.difference as f64, worst.most as f64)
            .seen(format!(
                "the server counted {} {}, {many} {side} than the workers did: another client used \
             it, or one of the two miscounts",
                worst.counted, worst.what
            ))
            .remedy(Remedy::Again),
    )
}

/// The server's count less the workers', where that is more than was in flight.
struct Apart {
    difference: i64,
    counted: u64,
    most: u64,
    what: &'static str,
}

fn beyond_flight(run: &Run) -> Option<Apart> {
    let server = run.server?;
    let in_flight = run.spread.as_ref().map(|spread| spread.in_flight);
    let most = MOST_EACH * run.at.workers.or(in_flight)?;
    let difference = server.difference.filter(|d| d.unsigned_abs() > most)?;
    Some(Apart {
        difference,
        counted: server.counted?,
        most,
        what: match run.codes.is_empty() {
            true => "grants",
            false => "requests",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::after;
    use jostle_model::record::{Server, Status};

    #[test]
    fn more_than_what_was_in_flight_is_flagged_either_way() {
        // The fixture has ten workers.
        for (difference, is) in [
            (0, Status::Valid),
            (10, Status::Valid),
            (11, Status::Invalid),
            (-10, Status::Valid),
            (-11, Status::Invalid),
        ] {
            let found = after(&CHECK, |run| {
                run.server = Some(Server {
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
        let found = after(&CHECK, |run| run.server = Some(Server::default()));
        assert_eq!(found, Status::Valid);
    }
}
