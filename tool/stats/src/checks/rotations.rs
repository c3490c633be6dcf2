//! Is the window long enough for statements about fairness?

use super::{Evidence, Found, measured};
use crate::fairness;
use jostle_model::Remedy;
use jostle_model::record::Claim;

/// Turns that each worker should have had.
pub const LEAST: f64 = 10.0;

check! {
    "rotations" in "rotations": "Could each worker have had enough turns to speak of fairness?";
    threshold: text!(
        "under {LEAST} rotations (acquisitions for each worker, mean over the runs) with \
         several workers: SUSPECT for `distribution`"
    ),
    source: "a perfect queue gives counts that differ by 1, at the window's edges: of 10 turns \
             that is 10 %, of fewer it looks like unfairness",
    fooled_by: "unfairness with a period longer than the window",
    advice: "a longer window",
    words: |reason| {
        let turns = cut(measured(reason));
        let s = if turns == "1" { "" } else { "s" };
        format!("the window holds {turns} rotation{s}; fairness needs {LEAST}")
    },
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    // With a fixed number of operations, each worker gets that number.
    if !evidence.is_contention() {
        return None;
    }
    let workers = evidence.workers();
    let operations = evidence.sum(|run| run.operations);
    let turns = fairness::rotations(workers, operations) / evidence.runs.len().max(1) as f64;
    if workers < 2 || turns >= LEAST {
        return None;
    }
    let enough_s = (LEAST / turns * evidence.mean_window_s()).ceil();
    Some(
        Found::suspect(&[Claim::Distribution], turns, LEAST)
            .remedy((turns > 0.0).then(|| Remedy::with("-t", enough_s))),
    )
}

/// To tenths, cut off, not rounded: 9.97 must not read as the 10 that are needed.
pub fn cut(turns: f64) -> String {
    ((turns * 10.0 + 1e-9).floor() / 10.0).to_string()
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};
    use jostle_model::record::{Claim, Run, Status};

    fn run(workers: u64, operations: u64, window_s: f64) -> Run {
        let mut run = point();
        run.at.workers = Some(workers);
        run.operations = operations;
        run.window.window_s = window_s;
        run
    }

    #[test]
    fn under_ten_rotations_it_says_how_long_a_window_would_do() {
        let table = [
            (
                1000,
                5000,
                5.0,
                Some("5 rotations; fairness needs 10 (-t 10)"),
            ),
            (
                1000,
                4725,
                5.0,
                Some("4.7 rotations; fairness needs 10 (-t 11)"),
            ),
            (
                1000,
                9999,
                10.0,
                Some("9.9 rotations; fairness needs 10 (-t 11)"),
            ),
            (
                1000,
                1000,
                1.0,
                Some("1 rotation; fairness needs 10 (-t 10)"),
            ),
            (1000, 0, 5.0, Some("0 rotations; fairness needs 10")),
            (1000, 10_000, 5.0, None),
            (1, 3, 5.0, None), // one worker has no turns to share
        ];
        for (workers, operations, window_s, expected) in table {
            let text = judge(&CHECK, &[run(workers, operations, window_s)]).map(|r| r.text);
            let expected = expected.map(|rest| format!("the window holds {rest}"));
            assert_eq!(text, expected, "{workers} {operations}");
        }
    }

    #[test]
    fn only_fairness_is_in_doubt_and_the_mean_run_decides() {
        let reason = judge(&CHECK, &[run(10, 99, 1.0), run(10, 100, 1.0)]).unwrap();
        assert_eq!(
            (reason.is, reason.claims),
            (Status::Suspect, vec![Claim::Distribution])
        );
        assert_eq!(judge(&CHECK, &[run(10, 98, 1.0), run(10, 102, 1.0)]), None);
    }
}
