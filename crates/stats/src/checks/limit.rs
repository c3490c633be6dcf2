//! Did a limit end the sweep of connections?

use super::{Check, EVERYTHING, Evidence};
use jostle_model::record::{Is, Reason};

/// The check.
pub static CHECK: Check = Check {
    name: "limit",
    asks: "Could as many connections be opened as the point names?",
    threshold: "one call that failed, or one connection too few: INVALID; the sweep ends there",
    source: "a call that fails is quicker than a connection: its ancestor did not look, and got \
             faster beyond the limit",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let stopped = evidence
        .runs
        .iter()
        .find_map(|run| run.connections.as_ref()?.stopped.as_ref())?;
    Some(CHECK.reason(Is::Invalid, EVERYTHING, stopped.text.clone()))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};
    use jostle_model::connect::{Connections, Stopped};
    use jostle_model::record::Is;

    #[test]
    fn one_run_that_was_stopped_convicts_in_its_own_words() {
        let mut whole = point();
        whole.connections = Some(Box::default());
        let mut short = point();
        short.connections = Some(Box::new(Connections {
            stopped: Some(Stopped {
                call: "connect".to_owned(),
                error: "EADDRNOTAVAIL".to_owned(),
                text: "EADDRNOTAVAIL: all ports are taken; --sources 2".to_owned(),
            }),
            ..Connections::default()
        }));
        assert_eq!(judge(&CHECK, &[whole.clone(), whole.clone()]), None);
        let reason = judge(&CHECK, &[whole, short]).unwrap();
        assert_eq!(reason.is, Is::Invalid);
        assert!(reason.text.contains("--sources 2"), "{}", reason.text);
    }
}
