//! The share of grants that were waited for: two workers want one of K locks at
//! random, so that one in K attempts finds it taken.

use crate::calibrate::bench::{Bench, Stop};
use crate::calibrate::trial::{Agreement, Trial, differs, noted, percent, reason, runs_of, total};
use jostle_model::record::Run;

/// Points.
const WITHIN: f64 = 0.02;

/// The share below which the tool must report that nothing is contended.
const NOT_CONTENDED: f64 = 0.01;

pub(super) fn trial(bench: &mut Bench, keys: u64) -> Result<Trial, Stop> {
    let set = bench.measure(&format!(
        "contend unfair:queue -w 2 --keys {keys} -b 200us -i 0 -t 0.15 --warmup 0 --runs 3"
    ))?;
    Ok(judge(&runs_of(&set, "unfair:queue"), keys))
}

fn judge(runs: &[&Run], keys: u64) -> Trial {
    let granted = total(runs, |run| noted(run, "granted"));
    let truth = total(runs, |run| noted(run, "handed")) / granted;
    let stamped = total(runs, |run| run.stamped.unwrap_or(0) as f64);
    let contended = total(runs, |run| match run.stamped.unwrap_or(0) {
        0 => 0.0,
        stamped => run.blocked_share.unwrap_or(f64::NAN) * stamped as f64,
    });
    let found = contended / stamped;
    let flagged = runs
        .iter()
        .filter(|run| reason(run, "not_contended").is_some())
        .count();
    let said = if !truth.is_finite() || !found.is_finite() {
        differs("the share, or the lock's log, is missing")
    } else if (found - truth).abs() > WITHIN {
        differs(format!(
            "off by {:.1} points, more than 2",
            100.0 * (found - truth)
        ))
    } else if truth > 2.0 * NOT_CONTENDED && flagged > 0 {
        differs("a contended lock was called not contended")
    } else {
        Agreement::Agrees
    };
    Trial {
        truth: percent(truth),
        found: percent(found),
        // With several locks nobody knows how much of it is meant to be.
        control: match (keys, flagged) {
            (1, 0) => "not called idle".to_owned(),
            (1, n) => format!("called idle in {n} runs"),
            _ => format!("{} by chance", percent(1.0 / keys as f64)),
        },
        said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::trial::planted::{flagged, noting};
    use jostle_model::record::Status;

    fn run(truth: f64, found: f64) -> Run {
        Run {
            around: noting(&[("granted", 1_000.0), ("handed", 1_000.0 * truth)]),
            stamped: Some(1_000),
            blocked_share: Some(found),
            ..Run::default()
        }
    }

    #[test]
    fn two_points_are_the_bound() {
        for (truth, found, right) in [
            (0.0, 0.0, true),
            (0.1, 0.119, true),
            (0.1, 0.121, false),
            (0.5, 0.479, false),
            (1.0, 0.999, true),
            (1.0, 0.97, false),
        ] {
            let said = judge(&[&run(truth, found)], 2).said;
            assert_eq!(said == Agreement::Agrees, right, "{truth} {found}");
        }
        assert!(judge(&[], 1).said.is_wrong(), "nothing was measured");
    }

    #[test]
    fn a_contended_lock_that_is_called_idle_fails() {
        let mut run = run(1.0, 1.0);
        run.verdict = flagged("not_contended", Status::Suspect);
        assert!(judge(&[&run], 1).said.is_wrong());
    }
}
