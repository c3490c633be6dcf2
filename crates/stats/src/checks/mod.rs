//! Whether a number may be believed: one rule a file, one line a rule.
//!
//! A check looks at all runs of one point: at one while an experiment runs, at
//! all of them in the summary. What is sampled (steal) is pooled
//! over the runs, so that a verdict gains certainty with every run. What a
//! record does not hold is not judged.
//!
//! A new check is a file with a [`Check`] and one line in [`CHECKS`]; METHOD.md
//! has a section for each.

use jostle_model::plan::Workload;
use jostle_model::record::{Claim, Exclusion, Experiment, Is, LimitedBy, Point, Reason, Verdict};

pub mod accepted;
pub mod by_host;
pub mod clock;
pub mod concurrency;
pub mod deaths;
pub mod drift;
pub mod errors;
pub mod exclusion;
pub mod faster;
pub mod few_operations;
pub mod generator;
pub mod halted;
pub mod hold_accuracy;
pub mod lag;
pub mod ledger;
pub mod limit;
pub mod lost;
pub mod lost_update;
pub mod neighbours;
pub mod not_contended;
pub mod own_cost;
pub mod precision;
pub mod profiled;
pub mod rotations;
pub mod server_counts;
pub mod steadiness;
pub mod steal;
pub mod tail_host;
pub mod throttled;
pub mod together;
pub mod unchecked;

/// What a check may look at.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// What was asked for, and where.
    pub experiment: &'a Experiment,
    /// The runs of one (target, point), at least one.
    pub runs: &'a [&'a Point],
}

/// One rule.
#[derive(Debug)]
pub struct Check {
    /// As it stands in a result file.
    pub name: &'static str,
    /// What it asks, in one sentence.
    pub asks: &'static str,
    /// From where on it speaks, and how loudly.
    pub threshold: &'static str,
    /// Where the threshold comes from.
    pub source: &'static str,
    /// The rule; None where nothing speaks against the runs.
    pub judge: fn(&Evidence<'_>) -> Option<Reason>,
}

/// Every check, the gravest first: the order of the reasons in a verdict.
pub static CHECKS: &[&Check] = &[
    &exclusion::CHECK,
    &lost_update::CHECK,
    &deaths::CHECK,
    &errors::CHECK,
    &ledger::CHECK,
    &lost::CHECK,
    &limit::CHECK,
    &concurrency::CHECK,
    &server_counts::CHECK,
    &accepted::CHECK,
    &throttled::CHECK,
    &halted::CHECK,
    &clock::CHECK,
    &together::CHECK,
    &steal::CHECK,
    &neighbours::CHECK,
    &unchecked::CHECK,
    &generator::CHECK,
    &lag::CHECK,
    &faster::CHECK,
    &profiled::CHECK,
    &few_operations::CHECK,
    &hold_accuracy::CHECK,
    &own_cost::CHECK,
    &not_contended::CHECK,
    &precision::CHECK,
    &steadiness::CHECK,
    &drift::CHECK,
    &tail_host::CHECK,
    &rotations::CHECK,
];

/// The verdict of all checks.
pub fn verdict(evidence: &Evidence<'_>) -> Verdict {
    let reasons: Vec<Reason> = CHECKS
        .iter()
        .filter_map(|check| (check.judge)(evidence))
        .collect();
    let reasons = by_host::attribute(reasons, evidence.runs);
    let by_generator = reasons.iter().any(|r| r.check == generator::CHECK.name);
    Verdict {
        limited_by: by_generator
            .then_some(LimitedBy::Generator)
            .or_else(|| lag::limit(evidence)),
        ..Verdict::of(reasons)
    }
}

const EVERYTHING: &[Claim] = &[Claim::Absolute, Claim::Ratio, Claim::Distribution];

impl Check {
    fn reason(&self, is: Is, claims: &[Claim], text: String) -> Reason {
        Reason {
            check: self.name.to_string(),
            is,
            claims: claims.to_vec(),
            text,
        }
    }

    /// A share of the machine's time that was not ours: it bends absolute
    /// figures first, and when it is large the percentiles too; the ratio of
    /// two runs side by side is judged by its own interval.
    fn disturbance(&self, share: f64, limits: Limits, text: String) -> Option<Reason> {
        if share > limits.invalid {
            Some(self.reason(Is::Invalid, &[Claim::Absolute, Claim::Distribution], text))
        } else if share > limits.suspect {
            Some(self.reason(Is::Suspect, &[Claim::Absolute], text))
        } else {
            None
        }
    }
}

/// Shares above which a figure is SUSPECT or INVALID.
#[derive(Clone, Copy, Debug)]
struct Limits {
    suspect: f64,
    invalid: f64,
}

impl Evidence<'_> {
    fn sum(&self, figure: impl Fn(&Point) -> u64) -> u64 {
        self.runs.iter().map(|run| figure(run)).sum()
    }

    fn sum_f64(&self, figure: impl Fn(&Point) -> f64) -> f64 {
        self.runs.iter().map(|run| figure(run)).sum()
    }

    /// What the witness saw, in each run that had one.
    fn exclusions(&self) -> impl Iterator<Item = &Exclusion> {
        self.runs.iter().filter_map(|run| run.exclusion.as_ref())
    }

    /// How many workers contend; the runs are of one point and agree.
    fn workers(&self) -> u64 {
        self.runs
            .first()
            .and_then(|run| run.at.workers)
            .unwrap_or(0)
    }

    /// Whether workers contend for as long as a window is open.
    fn is_contention(&self) -> bool {
        self.experiment.plan.workload == Workload::Contend
    }

    fn mean_window_s(&self) -> f64 {
        self.sum_f64(|run| run.window_s) / self.runs.len().max(1) as f64
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use std::collections::BTreeSet;

    #[test]
    fn every_check_has_a_name_of_its_own_and_says_what_it_does() {
        let names: BTreeSet<_> = CHECKS.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), CHECKS.len());
        for check in CHECKS {
            for text in [check.name, check.asks, check.threshold, check.source] {
                assert!(!text.trim().is_empty(), "{check:?}");
            }
            assert!(check.asks.ends_with('?'), "{}", check.name);
        }
    }

    #[test]
    fn nothing_speaks_against_clean_runs() {
        let experiment = fixtures::experiment();
        let clean = fixtures::point();
        for runs in [1, 6] {
            let runs = vec![&clean; runs];
            let verdict = verdict(&Evidence {
                experiment: &experiment,
                runs: &runs,
            });
            assert_eq!(verdict, Verdict::default());
        }
    }

    #[test]
    fn a_record_that_holds_next_to_nothing_is_only_too_short() {
        let experiment = fixtures::experiment();
        let verdict = verdict(&Evidence {
            experiment: &experiment,
            runs: &[&Point::default()],
        });
        let checks: Vec<_> = verdict.reasons.iter().map(|r| r.check.as_str()).collect();
        assert_eq!(checks, ["few_operations"]);
    }

    #[test]
    fn what_needs_a_window_is_not_asked_of_a_number_of_operations() {
        let mut point = fixtures::point();
        point.at.workers = Some(1000); // 5 rotations
        point.blocked_share = Some(0.0);
        let rising: Vec<u64> = (0..10).map(|at| 300 + 30 * at).collect();
        point.series = fixtures::slices(&rising);
        let mut experiment = fixtures::experiment();
        let mut found = |workload| {
            experiment.plan.workload = workload;
            let verdict = verdict(&Evidence {
                experiment: &experiment,
                runs: &[&point],
            });
            let names = verdict.reasons.iter().map(|reason| reason.check.clone());
            names.collect::<Vec<_>>()
        };
        assert_eq!(
            found(Workload::Contend),
            ["not_contended", "steadiness", "rotations"]
        );
        assert_eq!(found(Workload::Stream), [""; 0]);
        assert_eq!(found(Workload::Hold), [""; 0]);
    }

    #[test]
    fn the_worst_reason_decides_and_all_are_kept() {
        let experiment = fixtures::experiment();
        let mut point = fixtures::point();
        point.errors.insert("ENOLCK".to_string(), 3);
        point.machine.stolen_ticks = 20;
        let verdict = verdict(&Evidence {
            experiment: &experiment,
            runs: &[&point],
        });
        assert_eq!(verdict.is, Is::Invalid);
        let found: Vec<_> = verdict
            .reasons
            .iter()
            .map(|r| (r.check.as_str(), r.is))
            .collect();
        assert_eq!(found, [("errors", Is::Invalid), ("steal", Is::Suspect)]);
    }

    #[test]
    fn reasons_carry_the_name_of_their_check() {
        let mut bad = fixtures::point();
        bad.deaths
            .push("worker 3 was killed by SIGKILL".to_string());
        let exclusion = bad.exclusion.as_mut().unwrap();
        exclusion.violations = 1;
        exclusion.lost_updates = 1;
        bad.machine.throttled_periods = Some(1);
        bad.operations = 5;
        bad.blocked_share = Some(0.0);
        for check in CHECKS {
            if let Some(reason) = fixtures::judge(check, std::slice::from_ref(&bad)) {
                assert_eq!(reason.check, check.name);
                assert!(!reason.claims.is_empty() && !reason.text.is_empty());
            }
        }
    }
}
