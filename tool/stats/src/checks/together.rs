//! Did the hosts work at the same time?

use super::{EVERYTHING, Evidence, Found, measured, percent};
use jostle_model::Remedy;
use jostle_model::plan::Shape;
use jostle_model::record::{Claim, Run, Status};

/// Shares of the window.
const SUSPECT: f64 = 0.01;
const INVALID: f64 = 0.1;

check! {
    "together" in "share": "Did all hosts work at the same time?";
    threshold: text!(
        "between the first host's start and the last one's, the uncertainty of their clocks \
         added, median over the runs, above {} of the window: SUSPECT for `absolute`, above \
         {}: INVALID",
        percent(SUSPECT),
        percent(INVALID)
    ),
    source: "each host counts in a window of its own: for so long at either end not all of them \
             were at it, and the figures of all together are wrong by up to that share",
    fooled_by: "a path that is slower in one direction than in the other by more than the least \
                round trip shows: half of that is all that the clocks' offset can be bounded by",
    advice: "a longer window, or more operations",
    words: text!(
        |reason| "the hosts' starts, with what is not known of their clocks, lie {} of the window apart",
        percent(measured(reason))
    ),
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let share = evidence.median(apart).filter(|share| *share > SUSPECT)?;
    let (is, limit, claims): (_, _, &[Claim]) = match share > INVALID {
        true => (Status::Invalid, INVALID, EVERYTHING),
        false => (Status::Suspect, SUSPECT, &[Claim::Absolute]),
    };
    Some(Found::new(is, claims, share, limit).remedy(longer(evidence, share / SUSPECT)))
}

/// So many times as long.
fn longer(evidence: &Evidence<'_>, times: f64) -> Option<Remedy> {
    let at = evidence.runs.first()?.at;
    let more = |option, n: u64| Remedy::with(option, (times * n as f64).ceil());
    let workload = evidence.experiment.plan.workload;
    match workload.shape() {
        Shape::Stream | Shape::Hold | Shape::Connect => {
            let swept = workload.swept();
            (swept.of)(&at).map(|n| more(swept.option, n))
        }
        Shape::Recover | Shape::Verify => None,
        Shape::Contend | Shape::Rate | Shape::Spread => {
            let seconds = (times * evidence.mean_window_s()).ceil();
            Some(Remedy::with("-t", seconds))
        }
    }
}

/// As a share of the window; None of a host alone.
fn apart(run: &Run) -> Option<f64> {
    let edge = |sign: i64| {
        let of = run.hosts.iter();
        of.map(move |row| row.late_ns + sign * row.clock_within_ns as i64)
    };
    let several = run.hosts.len() > 1 && run.window.window_s > 0.0;
    let apart_ns = edge(1).max()?.abs_diff(edge(-1).min()?);
    several.then(|| apart_ns as f64 / 1e9 / run.window.window_s)
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::checks::Evidence;
    use crate::fixtures::{after, experiment, point};
    use jostle_model::hosts::HostPart;
    use jostle_model::plan::Workload;
    use jostle_model::record::Status;

    #[test]
    fn one_and_ten_percent_are_the_limits_uncertainty_included() {
        const MS: i64 = 1_000_000;
        // The window is 5 s: late by, clock within -> verdict.
        for (late_ms, within_ms, is) in [
            (49, 0, Status::Valid),
            (51, 0, Status::Suspect),
            (-51, 0, Status::Suspect),
            (30, 15, Status::Suspect), // 30 + 2 x 15
            (499, 0, Status::Suspect),
            (501, 0, Status::Invalid),
        ] {
            let found = after(&CHECK, |run| {
                let row = |late_ns| HostPart {
                    late_ns,
                    clock_within_ns: within_ms * MS as u64,
                    ..HostPart::default()
                };
                run.hosts = vec![row(0), row(late_ms * MS)];
            });
            assert_eq!(found, is, "{late_ms} {within_ms}");
        }
    }

    #[test]
    fn the_text_says_what_would_do() {
        let mut run = point();
        run.hosts = vec![HostPart::default(), HostPart::default()];
        run.hosts[1].late_ns = 120_500_000;
        (run.at.operations, run.at.open) = (Some(100), Some(100));
        for (workload, remedy) in [
            (Workload::Contend, "(-t 13)"),
            (Workload::Stream, "(-n 241)"),
            (Workload::Connect, "(--open 241)"),
        ] {
            let mut experiment = experiment();
            experiment.plan.workload = workload;
            let evidence = Evidence {
                experiment: &experiment,
                runs: &[&run],
            };
            let text = CHECK.look(&evidence).unwrap().text;
            let expected = format!("2.4 % of the window apart {remedy}");
            assert!(text.ends_with(&expected), "{text}");
        }
    }

    #[test]
    fn a_host_alone_is_not_asked() {
        let found = after(&CHECK, |run| {
            run.hosts = vec![HostPart {
                late_ns: 4_000_000_000,
                ..HostPart::default()
            }];
        });
        assert_eq!(found, Status::Valid);
    }
}
