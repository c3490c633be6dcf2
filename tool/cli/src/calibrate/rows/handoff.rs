//! A hand-off between two processes takes as long as the lock itself has noted,
//! and is known to be of one CPU or of two.

use crate::calibrate::bench::{Bench, Stop};
use crate::calibrate::trial::{Agreement, Trial, differs, noted, span, spans};
use jostle_model::record::{Distribution, Run};
use jostle_report::ResultSet;
use jostle_stats::intervals::median;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    Same,
    Cross,
}

/// Of the truth, and at least: the lock's log and the stamps around it read two
/// clocks, one after the other, at either end.
const WITHIN: f64 = 0.05;
const WITHIN_NS: f64 = 500.0;

/// Hand-offs that the scheduler may have put on the other kind.
const STRAY: f64 = 0.01;

pub(super) fn trial(bench: &mut Bench, place: Place) -> Result<Trial, Stop> {
    if place == Place::Cross && bench.cpus().len() < 2 {
        return Err(Stop::CannotTell("there is one CPU".to_owned()));
    }
    let word = if place == Place::Same {
        "same"
    } else {
        "cross"
    };
    let set = bench.measure(&format!(
        "contend unfair:queue -w 1:2 -b 100us -i 0 -t 0.15 --warmup 0 --runs 3 --place {word}"
    ))?;
    let with = |workers| -> Vec<&Run> {
        let runs = set.runs.iter();
        runs.filter(|run| run.at.workers == Some(workers)).collect()
    };
    Ok(judge(&with(2), &with(1), place, uncertainty(&set)))
}

fn uncertainty(set: &ResultSet) -> f64 {
    set.experiment
        .calibration
        .clock_uncertainty_ns
        .unwrap_or(0.0)
}

fn judge(two: &[&Run], alone: &[&Run], place: Place, u: f64) -> Trial {
    let count =
        |figure: &Option<Distribution>| figure.as_ref().map_or(0, |figure| figure.count) as f64;
    let truths: Vec<f64> = two
        .iter()
        .map(|run| noted(run, "handoff_sum_ns") / noted(run, "handoffs"))
        .filter(|mean| mean.is_finite())
        .collect();
    let means = two.iter().filter_map(|run| run.times.handoff_ns.as_ref());
    let found: Vec<f64> = means.map(|figure| figure.mean).collect();
    let apart = found.iter().zip(&truths);
    let apart: Vec<f64> = apart.map(|(found, truth)| found - truth).collect();
    let all: f64 = two.iter().map(|run| count(&run.times.handoff_ns)).sum();
    let stray: f64 = two
        .iter()
        .map(|run| match place {
            Place::Same => count(&run.times.handoff_cross_cpu_ns),
            Place::Cross => count(&run.times.handoff_same_cpu_ns),
        })
        .sum();
    let of_one: f64 = alone.iter().map(|run| count(&run.times.handoff_ns)).sum();
    let whole = !two.is_empty() && [truths.len(), found.len()] == [two.len(); 2];
    let said = match (whole, median(&truths), median(&apart)) {
        (true, Some(truth), Some(apart)) => {
            let bound = (WITHIN * truth).max(WITHIN_NS + u);
            if apart.abs() > bound {
                differs(format!("off by {}, more than {}", span(apart), span(bound)))
            } else if stray > STRAY * all {
                differs(format!("{stray} of {all} were taken for the other kind"))
            } else if of_one > 0.0 {
                differs(format!("{of_one} hand-offs of a worker that was alone"))
            } else {
                Agreement::Agrees
            }
        }
        _ => differs("hand-offs, or the lock's log of them, are missing"),
    };
    Trial {
        truth: spans(&truths),
        found: spans(&found),
        control: format!("one worker: {of_one} hand-offs"),
        said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::trial::planted::noting;
    use jostle_model::record::Times;

    fn run(truth_ns: f64, found_ns: f64, on_one: u64, between: u64) -> Run {
        let of = |count| {
            (count > 0).then(|| Distribution {
                count,
                mean: found_ns,
                ..Distribution::default()
            })
        };
        Run {
            around: noting(&[("handoffs", 100.0), ("handoff_sum_ns", 100.0 * truth_ns)]),
            times: Times {
                handoff_ns: of(on_one + between),
                handoff_same_cpu_ns: of(on_one),
                handoff_cross_cpu_ns: of(between),
                ..Times::default()
            },
            ..Run::default()
        }
    }

    fn said(two: &Run, alone: &Run) -> bool {
        judge(&[two], &[alone], Place::Cross, 60.0).said == Agreement::Agrees
    }

    #[test]
    fn the_lock_s_own_log_is_the_truth() {
        let alone = Run::default();
        for (truth, found, right) in [
            (5_000.0, 5_150.0, true),
            (5_000.0, 5_570.0, false),
            (5_000.0, 4_430.0, false),
            (50_000.0, 52_400.0, true),
            (50_000.0, 52_600.0, false),
        ] {
            assert_eq!(
                said(&run(truth, found, 0, 1_000), &alone),
                right,
                "{truth} {found}"
            );
        }
    }

    #[test]
    fn hand_offs_of_the_wrong_kind_or_of_nobody_fail() {
        let alone = Run::default();
        assert!(said(&run(5e3, 5e3, 9, 991), &alone));
        assert!(!said(&run(5e3, 5e3, 20, 980), &alone));
        assert!(!said(&run(5e3, 5e3, 0, 1_000), &run(5e3, 5e3, 1, 0)));
        assert!(!said(&Run::default(), &alone), "nothing was seen");
    }
}
