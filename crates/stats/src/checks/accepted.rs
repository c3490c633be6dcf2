//! Was every connection that was opened accepted too?

use super::{Check, EVERYTHING, Evidence};
use jostle_model::record::{Is, Reason};

/// The check.
pub static CHECK: Check = Check {
    name: "accepted",
    asks: "Did the server accept as many connections as its clients opened?",
    threshold: "a difference of one: INVALID",
    source: "both sides count every connection of the sweep; the server is ours, and nobody else \
             knows its ports",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let (opened, accepted) = evidence.runs.iter().find_map(|run| {
        let connections = run.connections.as_ref()?;
        let server = run.server?;
        (server.difference? != 0).then_some((connections.opened, server.counted?))
    })?;
    let text = format!(
        "{opened} connections were opened and {accepted} accepted; somebody else used the \
         server's port, or the server fell behind"
    );
    Some(CHECK.reason(Is::Invalid, EVERYTHING, text))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::after;
    use jostle_model::record::{Is, Server};

    #[test]
    fn one_apart_convicts_either_way_and_locks_are_not_asked() {
        for (difference, is) in [(0, Is::Valid), (1, Is::Invalid), (-1, Is::Invalid)] {
            let found = |connections: bool| {
                after(&CHECK, |point| {
                    point.connections = connections.then(Box::default);
                    point.server = Some(Server {
                        counted: Some(10),
                        difference: Some(difference),
                        ..Server::default()
                    });
                })
            };
            assert_eq!(found(true), is);
            assert_eq!(found(false), Is::Valid);
        }
    }
}
