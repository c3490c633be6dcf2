//! Did every worker live to the end of the window?

use super::{Check, EVERYTHING, Evidence};
use jostle_model::record::{Is, Reason};

/// The check.
pub static CHECK: Check = Check {
    name: "deaths",
    asks: "Did a worker end before its time?",
    threshold: "one death: INVALID",
    source: "the figures are those of the workers that were asked for, or of nothing",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let mut deaths = evidence.runs.iter().flat_map(|run| &run.deaths);
    let first = deaths.next()?;
    let text = match deaths.count() {
        0 => first.clone(),
        more => format!("{first} (and {more} more)"),
    };
    Some(CHECK.reason(Is::Invalid, EVERYTHING, text))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};

    #[test]
    fn one_death_convicts_and_more_are_counted() {
        assert_eq!(judge(&CHECK, &[point()]), None);
        let mut bad = point();
        bad.deaths = vec!["worker 7 was killed by SIGKILL".to_string()];
        let text = |runs: &[_]| judge(&CHECK, runs).unwrap().text;
        assert_eq!(
            text(&[point(), bad.clone()]),
            "worker 7 was killed by SIGKILL"
        );
        assert_eq!(
            text(&[bad.clone(), bad]),
            "worker 7 was killed by SIGKILL (and 1 more)"
        );
    }
}
