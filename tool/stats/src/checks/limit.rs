//! Did a limit end the sweep of connections?

use super::{EVERYTHING, Evidence, Found, seen};

/// Calls that may fail.
const MOST: u64 = 0;

check! {
    "limit" in "calls": "Could as many connections be opened as the point names?";
    threshold: text!(
        "more than {MOST} calls that failed, or connections missing: INVALID; the sweep ends there"
    ),
    source: "a call that fails is quicker than a connection: its ancestor did not look, and got \
             faster beyond the limit",
    fooled_by: "nothing known; connections that opened and were closed again are reported by \
                `lost`",
    advice: "raise the limit that the sentence names, or open fewer connections",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let stopped = evidence
        .runs
        .iter()
        .find_map(|run| run.connections.as_ref()?.stopped.as_ref())?;
    Some(
        Found::invalid(EVERYTHING, (MOST + 1) as f64, MOST as f64)
            .seen(stopped.text.clone())
            .remedy(stopped.remedy.clone()),
    )
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};
    use jostle_model::connect::{Connections, Stopped};
    use jostle_model::record::Status;

    #[test]
    fn one_run_that_was_stopped_is_flagged_in_its_own_words() {
        let mut whole = point();
        whole.connections = Some(Box::default());
        let mut short = point();
        short.connections = Some(Box::new(Connections {
            stopped: Some(Stopped {
                call: "connect".to_owned(),
                error: "EADDRNOTAVAIL".to_owned(),
                text: "EADDRNOTAVAIL: all ports are taken; --sources 2".to_owned(),
                ..Stopped::default()
            }),
            ..Connections::default()
        }));
        assert_eq!(judge(&CHECK, &[whole.clone(), whole.clone()]), None);
        let reason = judge(&CHECK, &[whole, short]).unwrap();
        assert_eq!(reason.is, Status::Invalid);
        assert!(reason.text.contains("--sources 2"), "{}", reason.text);
    }
}
