//! A generator that is kept from working is flagged if that moved the headline figure; the
//! same generator is not flagged when undisturbed.
//!
//! Only harm counts: a disturbance that cost less than a tenth against the
//! interleaved control need not be flagged.

use crate::calibrate::bench::{Bench, Stop};
use crate::calibrate::trial::{Agreement, Trial, cannot_tell, differs, percent};
use jostle_model::record::Run;
use jostle_report::ResultSet;
use jostle_stats::intervals::median;

/// Checks that flag the generator.
const OF_THE_GENERATOR: [&str; 3] = ["generator", "throttled", "halted"];

/// The least loss of throughput for which the planted fault must be flagged.
const HARM: f64 = 0.1;

/// Pairs of a run with the fault and one without.
const PAIRS: usize = 2;

/// One connection, on one CPU: a generator that mostly waits for its server.
fn line(bench: &Bench) -> String {
    let cpu = bench.cpus().last().copied().unwrap_or(0);
    format!("stream lockd -n 2500 -w 1 --as tasks --place cpus:{cpu} --runs 1")
}

fn pairs(
    bench: &mut Bench,
    mut plant: impl FnMut(&mut Bench, &str) -> Result<(ResultSet, String), Stop>,
) -> Result<Trial, Stop> {
    let line = line(bench);
    let (mut planted, mut clean, mut truth) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..PAIRS {
        clean.extend(bench.measure(&line)?.runs);
        let (set, noted) = plant(bench, &line)?;
        planted.extend(set.runs);
        truth = noted;
    }
    Ok(judge(&planted, &clean, truth))
}

pub(super) fn starved(bench: &mut Bench) -> Result<Trial, Stop> {
    if bench.cpus().len() < 2 {
        return Err(Stop::CannotTell(
            "with one CPU the server starves as well".to_owned(),
        ));
    }
    let how = format!("burn 2 {}", bench.cpus().last().copied().unwrap_or(0));
    pairs(bench, |bench, line| {
        let set = bench.measure_disturbed(line, &how)?;
        let queued = set.runs.iter().flat_map(|run| &run.thread_loads);
        let queued = queued.map(|generator| generator.runqueue_share);
        let queued = queued.fold(0.0, f64::max);
        Ok((
            set,
            format!("{} of its time runnable only", percent(queued)),
        ))
    })
}

pub(super) fn paused(bench: &mut Bench) -> Result<Trial, Stop> {
    pairs(bench, |bench, line| {
        let set = bench.measure_disturbed(line, "pause 20 20 {pid}")?;
        let halts = set.runs.iter().filter_map(|run| run.around.machine.halts);
        let halts = halts.sum::<u64>();
        Ok((set, format!("{halts} stops, by wait(2)")))
    })
}

pub(super) fn throttled(bench: &mut Bench) -> Result<Trial, Stop> {
    pairs(bench, |bench, line| {
        let (set, periods) = bench.measure_throttled(line, 0.4)?;
        Ok((set, format!("{periods} periods, by cpu.stat")))
    })
}

fn is_flagged(run: &Run) -> bool {
    let mut reasons = run.verdict.reasons.iter();
    reasons.any(|reason| OF_THE_GENERATOR.contains(&reason.check.as_str()))
}

fn judge(planted: &[Run], clean: &[Run], truth: String) -> Trial {
    let rate = |runs: &[Run]| median(runs.iter().map(|run| run.throughput_per_s)).unwrap_or(0.0);
    let harms: Vec<f64> = planted
        .iter()
        .zip(clean)
        .map(|(planted, clean)| 1.0 - planted.throughput_per_s / clean.throughput_per_s)
        .collect();
    let harm = harms.iter().copied().fold(f64::INFINITY, f64::min);
    let flagged = planted.iter().filter(|run| is_flagged(run)).count();
    let clean_flagged = clean.iter().filter(|run| is_flagged(run)).count();
    let said = if planted.is_empty() || clean.is_empty() {
        cannot_tell("nothing was measured")
    } else if clean_flagged > 0 {
        differs("a generator that was left alone was flagged")
    } else if flagged == planted.len() {
        Agreement::Agrees
    } else if harm < HARM {
        cannot_tell(format!("what was planted cost only {}", percent(harm)))
    } else {
        differs("a generator that was kept from working was not flagged")
    };
    Trial {
        truth,
        found: format!(
            "flagged in {flagged} of {}, {:.0}/s",
            planted.len(),
            rate(planted)
        ),
        control: format!(
            "in {clean_flagged} of {}, {:.0}/s",
            clean.len(),
            rate(clean)
        ),
        said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::trial::planted::flagged;
    use jostle_model::record::{Status, Verdict};

    fn run(rate: f64, check: Option<&str>) -> Run {
        let flagged = |check| flagged(check, Status::Suspect);
        Run {
            throughput_per_s: rate,
            verdict: check.map_or_else(Verdict::default, flagged),
            ..Run::default()
        }
    }

    fn said(planted: Run, clean: Run) -> Agreement {
        judge(&[planted], &[clean], String::new()).said
    }

    #[test]
    fn only_harm_counts() {
        let clean = || run(1_000.0, None);
        assert_eq!(
            said(run(500.0, Some("generator")), clean()),
            Agreement::Agrees
        );
        assert_eq!(said(run(500.0, Some("halted")), clean()), Agreement::Agrees);
        // Another check does not flag the generator.
        assert!(said(run(500.0, Some("steal")), clean()).is_wrong());
        assert!(said(run(500.0, None), clean()).is_wrong());
        assert!(said(run(950.0, None), clean()).is_open());
        assert!(judge(&[], &[], String::new()).said.is_open());
    }

    #[test]
    fn a_generator_left_alone_passes() {
        let flagged = run(1_000.0, Some("generator"));
        assert!(said(run(500.0, Some("generator")), flagged).is_wrong());
    }
}
