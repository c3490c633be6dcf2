//! Was every connection that was opened accepted too?

use super::{EVERYTHING, Evidence, Found, seen};
use jostle_model::Remedy;

/// Connections that may be missing on one side.
const MOST: i64 = 0;

check! {
    "accepted" in "connections": "Did the server accept as many connections as its clients opened?";
    threshold: text!("a difference of more than {MOST}: INVALID"),
    source: "both sides count every connection of the sweep; the server is ours, and nobody else \
             knows its ports",
    fooled_by: "nothing known of an embedded server; another one is not asked",
    advice: "run it again; where it comes back, look for what else connects there, or whether the \
             server falls behind",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let (opened, accepted, difference) = evidence.runs.iter().find_map(|run| {
        let connections = run.connections.as_ref()?;
        let server = run.server?;
        let difference = server.difference.filter(|n| n.abs() > MOST)?;
        Some((connections.opened, server.counted?, difference))
    })?;
    let seen = format!("{opened} connections were opened and {accepted} accepted");
    let found = Found::invalid(EVERYTHING, difference as f64, MOST as f64);
    Some(found.seen(seen).remedy(Remedy::Again))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::after;
    use jostle_model::record::{Server, Status};

    #[test]
    fn one_apart_is_flagged_either_way_and_locks_are_not_asked() {
        for (difference, is) in [
            (0, Status::Valid),
            (1, Status::Invalid),
            (-1, Status::Invalid),
        ] {
            let found = |connections: bool| {
                after(&CHECK, |run| {
                    run.connections = connections.then(Box::default);
                    run.server = Some(Server {
                        counted: Some(10),
                        difference: Some(difference),
                        ..Server::default()
                    });
                })
            };
            assert_eq!(found(true), is);
            assert_eq!(found(false), Status::Valid);
        }
    }
}
