//! Did attempts that failed wait for as long as was asked?

use super::{EVERYTHING, Evidence, Found, measured, percent, seen};
use crate::intervals::median;
use crate::numbers::{grouped, time};
use jostle_model::record::Run;

/// Share of the time that was asked for.
const LEAST: f64 = 0.5;
/// Failed attempts of a run whose median says something.
const LEAST_FAILED: u64 = 10;

check! {
    "gave_up" in "share": "Did attempts that failed wait for as long as was asked?";
    threshold: text!(
        "at least {LEAST_FAILED} attempts of a run ended without a grant, in the median after \
         less than {} of --acquire-timeout: SUSPECT",
        percent(LEAST)
    ),
    source: "who asks for five seconds and is refused at once has not waited; such an attempt is \
             no acquisition, and the figures of the others say nothing about it",
    fooled_by: "a server that refuses for another reason, and is right to",
    advice: "look up what the lock does with a timeout: a driver's may be ignored within a \
             transaction, or count in another unit",
    words: text!(
        |reason| "{}, {} of what was asked for",
        seen(reason),
        percent(measured(reason))
    ),
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let asked = evidence.experiment.plan.acquire_timeout?;
    let failed = || evidence.each(failed);
    let after_ns = median(failed().map(|(_, ns)| ns))?;
    let share = after_ns / asked.0 as f64;
    if share >= LEAST {
        return None;
    }
    let count: u64 = failed().map(|(count, _)| count).sum();
    Some(Found::suspect(EVERYTHING, share, LEAST).seen(format!(
        "{} attempts ended without the lock after {} (median)",
        grouped(count),
        time(after_ns)
    )))
}

/// How many attempts of a run failed, and after how many nanoseconds in the median.
fn failed(run: &Run) -> Option<(u64, f64)> {
    let count = run.timeouts.filter(|count| *count >= LEAST_FAILED)?;
    let after = run.times.failed_try_ns.as_ref()?.percentiles.get("p50")?;
    Some((count, *after as f64))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{experiment, judge_in, point};
    use jostle_model::Nanos;
    use jostle_model::record::{Distribution, Percentiles};

    fn text(timeouts: u64, after_ns: u64) -> Option<String> {
        let mut experiment = experiment();
        experiment.plan.acquire_timeout = Some(Nanos::from_millis(5_000));
        let mut run = point();
        run.timeouts = Some(timeouts);
        run.times.failed_try_ns = Some(Distribution {
            percentiles: Percentiles::from_iter([("p50", after_ns)]),
            ..Distribution::default()
        });
        judge_in(&CHECK, &experiment, &[run]).map(|reason| reason.text)
    }

    #[test]
    fn who_is_refused_before_half_of_the_timeout_has_not_waited() {
        assert_eq!(text(20_005, 2_500_000_000), None);
        assert_eq!(text(9, 66_000), None);
        let expected = "20,005 attempts ended without the lock after 66 us (median), 0.0 % of what \
                        was asked for";
        assert_eq!(text(20_005, 66_000).as_deref(), Some(expected));
        assert!(judge_in(&CHECK, &experiment(), &[point()]).is_none());
    }
}
