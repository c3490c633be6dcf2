//! A known delay is found in the wait.

use crate::calibrate::bench::{Bench, Stop};
use crate::calibrate::trial::{Agreement, Trial, differs, noted, runs_of, span, spans};
use jostle_model::record::Run;
use jostle_stats::intervals::median;

/// Of the truth, and at least.
const WITHIN: f64 = 0.01;
const WITHIN_NS: f64 = 5_000.0;

pub(super) fn trial(bench: &mut Bench, time: &str, seconds: f64) -> Result<Trial, Stop> {
    // All that the specimen notes falls into the window.
    let set = bench.measure(&format!(
        "contend delay:{time} null -w 1 -b 0 -i 0 -t {seconds} --warmup 0 --runs 3"
    ))?;
    Ok(judge(
        &runs_of(&set, &format!("delay:{time}")),
        &runs_of(&set, "null"),
    ))
}

fn mean_wait(run: &Run) -> Option<f64> {
    let granted = &run.acquire_ns.as_ref()?.granted;
    (granted.count > 0).then_some(granted.mean)
}

/// The mean delay that the specimen recorded within the window. A delay cut off by the end
/// of the window is left out: it is not among the waits, and it is the longest one if
/// another program had the CPU then.
fn mean_truth(run: &Run) -> Option<f64> {
    let granted = run.acquire_ns.as_ref().map_or(0, |wait| wait.granted.count) as f64;
    let [count, sum, last] = ["count", "sum_ns", "last_ns"].map(|name| noted(run, name));
    match count - granted {
        cut_off if cut_off == 1.0 && count > 1.0 => Some((sum - last) / granted),
        _ => (count > 0.0).then(|| sum / count),
    }
}

fn judge(delayed: &[&Run], null: &[&Run]) -> Trial {
    let truths: Vec<f64> = delayed.iter().filter_map(|run| mean_truth(run)).collect();
    let found: Vec<f64> = delayed.iter().filter_map(|run| mean_wait(run)).collect();
    let control: Vec<f64> = null.iter().filter_map(|run| mean_wait(run)).collect();
    // Run by run, so that a run that was disturbed does not hide in a median.
    let apart = found.iter().zip(&truths);
    let apart: Vec<f64> = apart.map(|(found, truth)| found - truth).collect();
    let whole = !delayed.is_empty() && [truths.len(), found.len()] == [delayed.len(); 2];
    let said = match (whole, median(&truths), median(&apart), median(&control)) {
        (true, Some(truth), Some(apart), Some(control)) => {
            let bound = (WITHIN * truth).max(WITHIN_NS);
            if apart.abs() > bound {
                differs(format!("off by {}, more than {}", span(apart), span(bound)))
            } else if control > bound {
                differs(format!(
                    "`null`, which does nothing, reads as {}",
                    span(control)
                ))
            } else {
                Agreement::Agrees
            }
        }
        _ => differs("the wait, or the specimen's log, is missing"),
    };
    Trial {
        truth: spans(&truths),
        found: spans(&found),
        control: format!("null {}", spans(&control)),
        said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::trial::planted::noting;
    use jostle_model::record::{Circumstances, Waits};

    fn run(truth_ns: f64, found_ns: f64) -> Run {
        let mut wait = Waits::default();
        (wait.granted.count, wait.granted.mean) = (100, found_ns);
        Run {
            around: noting(&[("count", 100.0), ("sum_ns", 100.0 * truth_ns)]),
            acquire_ns: Some(wait),
            ..Run::default()
        }
    }

    fn said(truth_ns: f64, found_ns: f64) -> Agreement {
        let (delayed, null) = (run(truth_ns, found_ns), run(0.0, 20.0));
        judge(&[&delayed, &delayed, &delayed], &[&null]).said
    }

    #[test]
    fn five_microseconds_or_a_hundredth_are_the_bound_both_ways() {
        for (truth, found, right) in [
            (20_050.0, 20_100.0, true),
            (20_050.0, 25_000.0, true),
            (20_050.0, 25_100.0, false),
            (20_050.0, 15_000.0, false),
            (5_000_000.0, 5_049_000.0, true),
            (5_000_000.0, 5_051_000.0, false),
            // By the specimen's log, not by what was asked for.
            (260_000.0, 260_000.0, true),
            (260_000.0, 200_000.0, false),
        ] {
            assert_eq!(
                said(truth, found) == Agreement::Agrees,
                right,
                "{truth} {found}"
            );
        }
    }

    #[test]
    fn a_delay_that_the_end_of_the_window_cut_off_is_no_wait() {
        let cut_off = |last_ns: f64, noted: f64| Run {
            around: noting(&[
                ("count", noted),
                ("sum_ns", 100.0 * 20_050.0 + last_ns),
                ("last_ns", last_ns),
            ]),
            ..run(20_050.0, 20_060.0)
        };
        let null = run(0.0, 20.0);
        let said = |run: &Run| judge(&[run], &[&null]).said;
        assert_eq!(said(&cut_off(4e6, 101.0)), Agreement::Agrees);
        // One within the window counts.
        assert!(said(&cut_off(4e6, 100.0)).is_wrong());
    }

    #[test]
    fn a_control_that_takes_time_or_a_log_that_is_missing_fails() {
        let (delayed, null) = (run(20_000.0, 20_000.0), run(0.0, 6_000.0));
        assert!(judge(&[&delayed], &[&null]).said.is_wrong());
        let silent = Run {
            around: Circumstances::default(),
            ..run(0.0, 20_000.0)
        };
        assert!(judge(&[&silent], &[&delayed]).said.is_wrong());
        assert!(judge(&[], &[]).said.is_wrong());
    }
}
