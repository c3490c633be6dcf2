//! Do the runs agree on the figure?

use super::{Evidence, Found, measured, percent};
use crate::clean::clean;
use crate::intervals::{estimate, relative_half_width};
use jostle_model::Remedy;
use jostle_model::plan::Workload;
use jostle_model::record::{Claim, Run};

/// Half of the interval, or of the range under six runs, by the median.
const WIDEST: f64 = 0.25;

/// Twice as many as an interval needs.
const MORE_RUNS: usize = 12;

check! {
    "precision" in "share": "Do the runs agree on the figure?";
    threshold: text!(
        "half of the median's interval (of the range under six runs) above {} of the \
         median: SUSPECT for `absolute`",
        percent(WIDEST)
    ),
    source: "a figure that is off by a quarter either way orders nothing; a sweep beside three \
             busy loops once printed +-256 % as VALID",
    fooled_by: "runs that are all wrong alike",
    advice: "more runs, longer ones (-t), or a quieter machine (--wait-quiet 60s)",
    words: text!(
        |reason| "the runs lie apart by ±{:.0} %",
        100.0 * measured(reason)
    ),
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    // In `recover` each run is shown separately, and their spread is the result.
    if evidence.experiment.plan.workload == Workload::Recover {
        return None;
    }
    let connects = evidence.experiment.plan.workload == Workload::Connect;
    let figure = |run: &Run| match connects {
        true => {
            let measured = run
                .times
                .connect_ns
                .as_ref()
                .or(run.times.bind_ns.as_ref())?;
            measured.percentiles.get("p50").map(|ns| *ns as f64)
        }
        false => Some(run.throughput_per_s),
    };
    let values: Vec<f64> = match clean(evidence.runs) {
        Some(clean) => clean.per_s.into_iter().flatten().collect(),
        None => evidence.each(figure).collect(),
    };
    let half_width = relative_half_width(&estimate(&values)?)?;
    if values.len() < 2 || half_width <= WIDEST {
        return None;
    }
    Some(
        Found::suspect(&[Claim::Absolute], half_width, WIDEST)
            .remedy(Remedy::with("--runs", MORE_RUNS.max(2 * values.len()))),
    )
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{experiment, judge, judge_in, point};
    use jostle_model::plan::Workload;
    use jostle_model::record::{Distribution, Run, Status, Times};

    fn runs(rates: &[f64]) -> Vec<Run> {
        let run = |rate: &f64| Run {
            throughput_per_s: *rate,
            ..point()
        };
        rates.iter().map(run).collect()
    }

    #[test]
    fn a_quarter_either_way_is_the_limit() {
        let found = |rates: &[f64]| judge(&CHECK, &runs(rates)).map_or(Status::Valid, |r| r.is);
        assert_eq!(found(&[75.0, 100.0, 125.0]), Status::Valid);
        assert_eq!(found(&[74.0, 100.0, 125.0]), Status::Suspect);
        assert_eq!(found(&[1.0]), Status::Valid);
        // With nine runs the extremes do not count.
        let nine = [1.0, 90.0, 99.0, 100.0, 100.0, 100.0, 101.0, 110.0, 900.0];
        assert_eq!(found(&nine), Status::Valid);
    }

    #[test]
    fn of_connections_and_binds_the_medians_are_compared() {
        let mut connect = experiment();
        connect.plan.workload = Workload::Connect;
        let took = |us: u64| Distribution {
            percentiles: [("p50".to_owned(), 1_000 * us)].into(),
            ..Distribution::default()
        };
        let binds = [2, 10, 40].map(|us| Run {
            times: Times {
                bind_ns: Some(took(us)),
                ..Times::default()
            },
            ..point()
        });
        let connects = [2, 10, 40].map(|us| Run {
            times: Times {
                connect_ns: Some(took(us)),
                ..Times::default()
            },
            ..point()
        });
        for runs in [binds, connects] {
            let reason = judge_in(&CHECK, &connect, &runs).unwrap();
            assert_eq!(reason.is, Status::Suspect);
        }
    }

    #[test]
    fn the_width_is_stated() {
        let reason = judge(&CHECK, &runs(&[50.0, 100.0, 562.0])).unwrap();
        assert!(reason.text.contains("±256 %"), "{}", reason.text);
    }
}
