//! Did the hosts work at the same time?

use super::{Check, EVERYTHING, Evidence, percent};
use crate::intervals::median;
use jostle_model::plan::Workload;
use jostle_model::record::{Claim, Is, Point, Reason};

const SUSPECT: f64 = 0.01;
const INVALID: f64 = 0.1;

/// The check.
pub static CHECK: Check = Check {
    name: "together",
    asks: "Did all hosts work at the same time?",
    threshold: "between the first host's start and the last one's, the uncertainty of their \
                clocks added, median over the runs, above 1 % of the window: SUSPECT, above 10 %: \
                INVALID",
    source: "each host counts in a window of its own: for so long at either end not all of them \
             were at it, and the figures of all together are wrong by up to that share",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let apart: Vec<f64> = evidence.runs.iter().filter_map(|run| apart(run)).collect();
    let share = median(&apart).filter(|share| *share > SUSPECT)?;
    let remedy = match evidence.experiment.plan.workload {
        Workload::Stream | Workload::Hold => "more operations (-n, --keys)".to_owned(),
        Workload::Connect => "more connections (--open)".to_owned(),
        _ => {
            let enough_s = share * evidence.mean_window_s() / SUSPECT;
            format!("a longer window (-t {})", enough_s.ceil())
        }
    };
    let text = format!(
        "the hosts' starts, with what is not known of their clocks, lie {} of the window apart; \
         {remedy}",
        percent(share)
    );
    Some(match share > INVALID {
        true => CHECK.reason(Is::Invalid, EVERYTHING, text),
        false => CHECK.reason(Is::Suspect, &[Claim::Absolute], text),
    })
}

/// As a share of the window; None of a host alone.
fn apart(run: &Point) -> Option<f64> {
    let edge = |sign: i64| {
        let of = run.hosts.iter();
        of.map(move |row| row.late_ns + sign * row.clock_within_ns as i64)
    };
    let several = run.hosts.len() > 1 && run.window_s > 0.0;
    let apart_ns = edge(1).max()?.abs_diff(edge(-1).min()?);
    several.then(|| apart_ns as f64 / 1e9 / run.window_s)
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::checks::Evidence;
    use crate::fixtures::{after, experiment, point};
    use jostle_model::hosts::HostPart;
    use jostle_model::plan::Workload;
    use jostle_model::record::Is;

    #[test]
    fn one_and_ten_percent_are_the_limits_uncertainty_included() {
        const MS: i64 = 1_000_000;
        // The window is 5 s: late by, clock within -> verdict.
        for (late_ms, within_ms, is) in [
            (49, 0, Is::Valid),
            (51, 0, Is::Suspect),
            (-51, 0, Is::Suspect),
            (30, 15, Is::Suspect), // 30 + 2 x 15
            (499, 0, Is::Suspect),
            (501, 0, Is::Invalid),
        ] {
            let found = after(&CHECK, |point| {
                let row = |late_ns| HostPart {
                    late_ns,
                    clock_within_ns: within_ms * MS as u64,
                    ..HostPart::default()
                };
                point.hosts = vec![row(0), row(late_ms * MS)];
            });
            assert_eq!(found, is, "{late_ms} {within_ms}");
        }
    }

    #[test]
    fn the_text_says_what_would_do() {
        let mut run = point();
        run.hosts = vec![HostPart::default(), HostPart::default()];
        run.hosts[1].late_ns = 120_000_000;
        for (workload, remedy) in [
            (Workload::Contend, "a longer window (-t 12)"),
            (Workload::Stream, "more operations (-n, --keys)"),
            (Workload::Connect, "more connections (--open)"),
        ] {
            let mut experiment = experiment();
            experiment.plan.workload = workload;
            let evidence = Evidence {
                experiment: &experiment,
                runs: &[&run],
            };
            let text = (CHECK.judge)(&evidence).unwrap().text;
            let expected = format!("2.4 % of the window apart; {remedy}");
            assert!(text.ends_with(&expected), "{text}");
        }
    }

    #[test]
    fn a_host_alone_is_not_asked() {
        let found = after(&CHECK, |point| {
            point.hosts = vec![HostPart {
                late_ns: 4_000_000_000,
                ..HostPart::default()
            }];
        });
        assert_eq!(found, Is::Valid);
    }
}
