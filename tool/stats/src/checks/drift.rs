//! Did requests become slower, or faster, along the run?

use super::{Evidence, Found, trending};
use crate::trend::{self, Drift};
use jostle_model::Remedy;
use jostle_model::record::Run;

/// Requests of a tenth; of fewer the mean is that of its slowest.
const LEAST_PER_SLICE: u64 = 10;

/// How many times as many operations average a trend out that ends.
const MORE: u64 = 10;

check! {
    "drift" in "share": "Does a request take as long at the end of a run as at its beginning?";
    threshold: text!(
        "over the tenths of a run {} of the mean time: SUSPECT for `absolute` and \
         `distribution`; judged from \
         {LEAST_PER_SLICE} requests a tenth on",
        trending::threshold()
    ),
    source: "the thresholds of `steadiness`; a published rate of 10,000 calls once hid that one \
             of six set-ups had lost 45 % of it along the run",
    fooled_by: "a drift slower than a run; a single slow tenth is none",
    advice: "more operations, so that the trend ends or shows in full",
    words: |reason| {
        trending::words(
            reason,
            "from the beginning of the run to its end the time of a request",
        )
    },
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let runs = evidence.runs.iter();
    let asked = runs.filter(|run| run.times.service_ns.is_some());
    let judged: Vec<Drift> = asked.filter_map(|run| drift(run)).collect();
    let agreed = trend::agreed(&judged)?;
    let operations = evidence.runs.first()?.at.operations;
    let remedy = match operations {
        Some(n) => Remedy::with("-n", n.saturating_mul(MORE)),
        None => Remedy::Again,
    };
    Some(trending::found(&agreed, judged.len(), remedy))
}

/// None where the tenths are too few or too poor.
fn drift(run: &Run) -> Option<Drift> {
    if run.series.iter().any(|s| s.operations < LEAST_PER_SLICE) {
        return None;
    }
    let means: Option<Vec<f64>> = run.series.iter().map(|slice| slice.mean_wait_ns).collect();
    trend::drift(&means?)
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};
    use jostle_model::record::{Distribution, Run, Slice, Status, Times};

    /// Tenths of so many requests, whose time changes evenly by `percent`.
    fn ramp(percent: f64, each: u64) -> Run {
        let slice = |at: u32| Slice {
            operations: each,
            mean_wait_ns: Some(1e6 * (1.0 + percent / 100.0 * (f64::from(at) - 4.5) / 10.0)),
            mean_release_ns: None,
        };
        Run {
            times: Times {
                service_ns: Some(Distribution::default()),
                ..Times::default()
            },
            series: (0..10).map(slice).collect(),
            ..point()
        }
    }

    #[test]
    fn ten_percent_in_two_thirds_of_the_runs_are_the_limit() {
        let cases: [(&[f64], Option<&str>); 6] = [
            (&[10.5], Some("rises by 10 % of its mean in 1 of 1")),
            (&[9.5], None),
            (
                &[-45.0, -45.0, 0.0],
                Some("falls by 45 % of its mean in 2 of 3"),
            ),
            (&[45.0, 0.0, 0.0], None),
            (&[45.0, -45.0], None),
            (&[0.0], None),
        ];
        for (drifts, text) in cases {
            let runs: Vec<Run> = drifts.iter().map(|d| ramp(*d, 100)).collect();
            let reason = judge(&CHECK, &runs);
            assert_eq!(reason.is_some(), text.is_some(), "{drifts:?}");
            if let (Some(reason), Some(text)) = (reason, text) {
                assert_eq!(reason.is, Status::Suspect);
                assert!(reason.text.contains(text), "{}", reason.text);
            }
        }
    }

    #[test]
    fn few_requests_and_locks_are_not_judged() {
        assert!(judge(&CHECK, &[ramp(50.0, 10)]).is_some());
        assert_eq!(judge(&CHECK, &[ramp(50.0, 9)]), None);
        let mut lock = ramp(50.0, 100);
        lock.times.service_ns = None;
        assert_eq!(judge(&CHECK, &[lock]), None);
    }
}
