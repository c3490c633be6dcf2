//! Did the rate drift within the window?

use super::{Evidence, Found, trending};
use crate::trend::{self, Drift};
use jostle_model::Remedy;
use jostle_model::record::Run;

/// Under this mean a slice's count says little: of 30 the chance deviation of
/// a lottery is 18 %.
const LEAST_PER_SLICE: f64 = 30.0;

check! {
    "steadiness" in "share": "Did the rate drift from the beginning of the window to its end?";
    threshold: text!(
        "over ten slices {} of the mean: SUSPECT for `absolute` and `distribution`; judged from {LEAST_PER_SLICE} acquisitions \
         a slice on",
        trending::threshold()
    ),
    source: "Sen, J. Am. Stat. Assoc. 63 (1968); Mann, Econometrica 13 (1945); p < 0.01 with \
             ten slices flags at most one steady run in a hundred",
    fooled_by: "a change that goes up and down again, or that is slower than the window; drift \
                between runs is what blocks are for",
    advice: "a longer warm-up, so that the drift ends before the window",
    words: |reason| trending::words(reason, "within the window the rate"),
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    // Only for slices of the window: tenths of the operations always have the same number,
    // and in an open loop the slices follow the schedule.
    if !evidence.is_contention() {
        return None;
    }
    let judged: Vec<Drift> = evidence.each(drift).collect();
    let agreed = trend::agreed(&judged)?;
    let warmups = evidence.runs.iter().map(|run| run.window.warmup_s);
    let longer_s = (2.0 * warmups.fold(0.0, f64::max)).ceil().max(1.0);
    let remedy = Remedy::with("--warmup", format!("{longer_s}s"));
    Some(trending::found(&agreed, judged.len(), remedy))
}

/// None where the slices are too few or too poor.
fn drift(run: &Run) -> Option<Drift> {
    let counts: Vec<f64> = run.series.iter().map(|s| s.operations as f64).collect();
    let enough = counts.iter().sum::<f64>() >= LEAST_PER_SLICE * counts.len() as f64;
    trend::drift(&counts).filter(|_| enough)
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point, slices};
    use jostle_model::record::{Run, Status};

    /// A rate that changes evenly by `percent` of its mean over the window, in
    /// thousandths so that no slices tie.
    fn ramp(percent: f64, mean: f64) -> Run {
        let mut run = point();
        let counts: Vec<u64> = (0..10)
            .map(|i| (mean * (1.0 + percent / 100.0 * (f64::from(i) - 4.5) / 10.0)).round() as u64)
            .collect();
        run.series = slices(&counts);
        run
    }

    #[test]
    fn ten_percent_over_the_window_is_the_limit() {
        for percent in [10.5, 30.0, -10.5] {
            let reason = judge(&CHECK, &[ramp(percent, 1e5)]).unwrap();
            assert_eq!(reason.is, Status::Suspect, "{percent}");
        }
        for percent in [0.0, 9.5, -9.5] {
            assert_eq!(judge(&CHECK, &[ramp(percent, 1e5)]), None, "{percent}");
        }
    }

    #[test]
    fn a_change_that_is_no_trend_is_not_flagged() {
        let mut jagged = point();
        jagged.series = slices(&[100, 300, 100, 300, 200, 100, 300, 200, 300, 250]);
        assert_eq!(judge(&CHECK, &[jagged]), None);
    }

    #[test]
    fn one_in_a_hundred_is_the_limit_of_chance() {
        // Ten rising slices with parts turned round. Eight inversions leave
        // S = 29, p = 0.0092; nine leave S = 27, p = 0.0166.
        let with = |order: [u64; 10]| {
            let mut run = point();
            run.series = slices(&order.map(|rank| 1000 + 100 * rank));
            judge(&CHECK, &[run]).is_some()
        };
        assert!(with([3, 2, 1, 0, 5, 4, 7, 6, 8, 9]));
        assert!(!with([3, 2, 1, 0, 6, 5, 4, 7, 8, 9]));
    }

    #[test]
    fn two_thirds_of_the_runs_must_agree() {
        let runs = |rising: usize, steady: usize, falling: usize| {
            let mut runs = vec![ramp(20.0, 1e5); rising];
            runs.extend(vec![ramp(0.0, 1e5); steady]);
            runs.extend(vec![ramp(-20.0, 1e5); falling]);
            judge(&CHECK, &runs).map(|reason| reason.text)
        };
        assert_eq!(
            runs(4, 2, 0).unwrap(),
            "within the window the rate rises by 20 % of its mean in 4 of 6 runs (--warmup 1s)"
        );
        assert!(runs(1, 0, 5).unwrap().contains("falls by 20 % of its mean"));
        assert_eq!(runs(3, 3, 0), None);
        assert_eq!(runs(3, 0, 3), None);
    }

    #[test]
    fn thirty_acquisitions_a_slice_are_the_least() {
        assert!(judge(&CHECK, &[ramp(60.0, 31.0)]).is_some());
        assert_eq!(judge(&CHECK, &[ramp(60.0, 29.0)]), None);
        let mut absent = point();
        absent.series.clear();
        assert_eq!(judge(&CHECK, &[absent]), None);
    }
}
