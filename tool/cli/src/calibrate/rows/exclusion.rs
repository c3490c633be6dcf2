//! Owners that overlap are found and counted; a correct lock whose owners are
//! killed is not flagged.

use crate::calibrate::bench::{Bench, Stop};
use crate::calibrate::trial::{
    Agreement, Trial, cannot_tell, differs, noted, reason, runs_of, total,
};
use jostle_model::record::{Exclusion, Run, Status};

/// Allowed difference from the planted overlaps, as a share and at least: two intruders at
/// a time hide each other's overlaps, and the witness does not see an overlap shorter than
/// its marks.
const WITHIN: f64 = 0.1;
const AT_LEAST: f64 = 2.0;

/// The window of the lock without its fault, which needs no draws.
const SOUND_S: f64 = 0.3;

pub(super) fn broken(
    bench: &mut Bench,
    target: &str,
    options: &str,
    seconds: f64,
) -> Result<Trial, Stop> {
    let line = |target: &str, seconds: f64| {
        format!("contend {target} {options} -t {seconds} --warmup 0 --runs 1")
    };
    let set = bench.measure(&line(target, seconds))?;
    let sound = bench.measure(&line("busted:0", SOUND_S))?;
    Ok(judge(&runs_of(&set, target), &runs_of(&sound, "busted:0")))
}

fn seen(runs: &[&Run], figure: fn(&Exclusion) -> u64) -> f64 {
    total(runs, |run| run.exclusion.as_ref().map_or(0, figure) as f64)
}

/// Whether a check reported overlaps.
fn is_flagged(runs: &[&Run]) -> bool {
    let checks = ["exclusion", "lost_update"];
    runs.iter()
        .any(|run| checks.iter().any(|check| reason(run, check).is_some()))
}

fn judge(broken: &[&Run], sound: &[&Run]) -> Trial {
    let planted = total(broken, |run| noted(run, "planted"));
    let (violations, checked) = (seen(broken, |e| e.violations), seen(broken, |e| e.checked));
    let (clean_violations, clean_checked) =
        (seen(sound, |e| e.violations), seen(sound, |e| e.checked));
    let flagged = broken
        .iter()
        .any(|run| reason(run, "exclusion").is_some_and(|reason| reason.is == Status::Invalid));
    let said = if planted == 0.0 {
        cannot_tell("chance planted no overlap")
    } else if (violations - planted).abs() > (WITHIN * planted).max(AT_LEAST) {
        differs(format!("{violations} overlaps were found"))
    } else if !flagged && violations > 0.0 {
        differs("the broken lock is not INVALID")
    } else if violations == 0.0 {
        cannot_tell("the few overlaps were too short for the witness")
    } else if clean_violations > 0.0 || is_flagged(sound) {
        differs("the same lock without its fault was flagged")
    } else {
        Agreement::Agrees
    };
    Trial {
        truth: format!("{planted} overlaps"),
        found: format!("{violations} of {checked} grants"),
        control: format!("busted:0: {clean_violations} of {clean_checked}"),
        said,
    }
}

pub(super) fn killed(bench: &mut Bench) -> Result<Trial, Stop> {
    // The owner sleeps on a timer, and waiters sleep in the kernel's queue.
    let line = |seconds: f64| {
        format!("contend flock -w 8 -b 5ms -i 0 -t {seconds} --warmup 50ms --runs 1")
    };
    let set = bench.measure_disturbed(&line(0.7), "kill 5 100 {pids}")?;
    let left = bench.measure(&line(SOUND_S))?;
    Ok(judge_killed(
        &runs_of(&set, "flock"),
        &runs_of(&left, "flock"),
    ))
}

fn judge_killed(killed: &[&Run], left: &[&Run]) -> Trial {
    let deaths: usize = killed.iter().map(|run| run.around.deaths.len()).sum();
    let (violations, lost) = (
        seen(killed, |e| e.violations),
        seen(killed, |e| e.lost_updates),
    );
    let holders = seen(killed, |e| e.holder_died);
    let said = if is_flagged(killed) || violations > 0.0 {
        differs("a lock that works was flagged because its owners died")
    } else if is_flagged(left) {
        differs("a lock that works was flagged")
    } else if holders == 0.0 {
        cannot_tell("no owner was killed while it held the lock")
    } else {
        Agreement::Agrees
    };
    Trial {
        truth: format!("{deaths} killed, by wait(2)"),
        found: format!("{violations} overlaps, {lost} lost, {holders} dead owners met"),
        control: format!("none killed: {} overlaps", seen(left, |e| e.violations)),
        said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::trial::planted::{flagged, noting};
    use jostle_model::record::Verdict;

    fn run(planted: f64, violations: u64) -> Run {
        Run {
            around: noting(&[("planted", planted)]),
            exclusion: Some(Exclusion {
                checked: 100_000,
                violations,
                ..Exclusion::default()
            }),
            verdict: match violations {
                0 => Verdict::default(),
                _ => flagged("exclusion", Status::Invalid),
            },
            ..Run::default()
        }
    }

    fn said(broken: &Run, sound: &Run) -> Agreement {
        judge(&[broken], &[sound]).said
    }

    #[test]
    fn overlaps_must_be_found_and_as_many_as_were_planted() {
        let sound = run(0.0, 0);
        for (planted, found, right) in [
            (100.0, 100, true),
            (100.0, 90, true),
            (100.0, 89, false),
            (100.0, 111, false),
            (3.0, 1, true),
            (3.0, 6, false),
        ] {
            assert_eq!(
                said(&run(planted, found), &sound) == Agreement::Agrees,
                right,
                "{planted} {found}"
            );
        }
        assert!(said(&run(0.0, 0), &sound).is_open());
        assert!(said(&run(2.0, 0), &sound).is_open());
    }

    #[test]
    fn a_flag_that_is_missing_or_on_the_wrong_one_fails() {
        let unflagged = Run {
            verdict: Verdict::default(),
            ..run(100.0, 100)
        };
        assert!(said(&unflagged, &run(0.0, 0)).is_wrong());
        assert!(said(&run(100.0, 100), &run(0.0, 1)).is_wrong());
    }

    #[test]
    fn dead_owners_are_no_overlaps() {
        let mut dead = run(0.0, 0);
        dead.around.deaths = vec!["worker 3 was killed by SIGKILL".to_owned()];
        assert!(judge_killed(&[&dead], &[]).said.is_open());
        dead.exclusion.as_mut().unwrap().holder_died = 1;
        assert_eq!(judge_killed(&[&dead], &[]).said, Agreement::Agrees);
        assert!(judge_killed(&[&run(0.0, 1)], &[]).said.is_wrong());
    }
}
