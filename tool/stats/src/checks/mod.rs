//! Whether a number may be believed: one rule a file, one line a rule.
//!
//! A check examines runs of one point: a single run while an experiment runs, all of them
//! in the summary. Sampled figures (steal) are pooled over the runs, so that a verdict
//! gains certainty with every run. A figure that a record lacks is not judged.
//!
//! A new check is a file with a [`Check`] and one line in [`CHECKS`];
//! `jostle explain` and tool/docs/verdicts.md are made from that table.

use crate::intervals::median;
use jostle_model::plan::Workload;
use jostle_model::record::{
    BROKE_OFF, Bound, Claim, Exclusion, Experiment, LimitedBy, Reason, Run, Status, Verdict,
};
use jostle_model::{Plan, Remedy};

/// The words of a threshold, or behind `|reason|` of a reason, as a function that formats them.
macro_rules! text {
    (|$reason:ident| $($words:tt)+) => { |$reason| format!($($words)+) };
    ($($words:tt)+) => { || format!($($words)+) };
}

/// `NAME in UNIT: QUESTION;` and the other fields of a [`Check`] whose rule is the file's `judge`.
macro_rules! check {
    ($name:literal in $unit:tt: $asks:literal; $($field:ident $(: $value:expr)?),+ $(,)?) => {
        /// The check.
        pub static CHECK: $crate::checks::Check = $crate::checks::Check {
            name: $name, asks: $asks, unit: $unit, $($field $(: $value)?,)+ judge,
        };
    };
}

/// From the names of the checks' files, the modules and [`CHECKS`].
macro_rules! checks {
    ($($name:ident),+ $(,)?) => {
        $(pub mod $name;)+

        /// Every check, the gravest first.
        pub static CHECKS: &[&Check] = &[$(&$name::CHECK),+];
    };
}

mod because;
pub mod by_host;
mod trending;

/// The data that a check may look at.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The plan, and where it ran.
    pub experiment: &'a Experiment,
    /// The runs of one (target, point), at least one.
    pub runs: &'a [&'a Run],
}

/// One rule.
#[derive(Debug)]
pub struct Check {
    /// As it stands in a result file.
    pub name: &'static str,
    /// Its question, in one sentence.
    pub asks: &'static str,
    /// The unit of what it measures and of its threshold.
    pub unit: &'static str,
    /// The threshold and what follows, in words made from the constants that the rule
    /// itself uses.
    pub threshold: fn() -> String,
    /// Where the threshold comes from.
    pub source: &'static str,
    /// Its known false negatives and false positives.
    pub fooled_by: &'static str,
    /// The advice to the user.
    pub advice: &'static str,
    /// The sentence of its reasons, without the remedy.
    pub words: fn(&Reason) -> String,
    /// The rule; None if it finds nothing.
    pub judge: fn(&Evidence<'_>) -> Option<Found>,
}

// The gravest first: the order of the reasons in a verdict.
checks! {
    exclusion,
    promise,
    lost_update,
    deaths,
    errors,
    leases,
    idle_lock,
    ledger,
    lost,
    struck,
    tried,
    limit,
    concurrency,
    server_counts,
    accepted,
    queues,
    throttled,
    server_still,
    halted,
    clock,
    together,
    steal,
    neighbours,
    selection,
    unchecked,
    interference,
    anchor,
    generator,
    attribution,
    lag,
    faster,
    profiled,
    gave_up,
    few_operations,
    hold_accuracy,
    own_cost,
    not_contended,
    precision,
    steadiness,
    drift,
    tail_host,
    rotations,
}

/// The verdict of all checks.
pub fn verdict(evidence: &Evidence<'_>) -> Verdict {
    // A run that could not be made has nothing that another check could judge.
    let made = |run: &&Run| run.window.window_s > 0.0 || !run.around.errors.contains_key(BROKE_OFF);
    let made: Vec<&Run> = evidence.runs.iter().copied().filter(made).collect();
    let runs_of = |check: &Check| match check.name == errors::CHECK.name {
        true => evidence.runs,
        false => &made[..],
    };
    let reasons = CHECKS.iter().filter_map(|check| {
        let runs = Some(runs_of(check)).filter(|runs| !runs.is_empty())?;
        check.look(&Evidence { runs, ..*evidence })
    });
    let reasons = because::attribute(reasons.collect(), evidence);
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

/// Workers that a remedy asks for at most: what one machine carries.
const MOST_WORKERS: u64 = 10_000;

/// The check of this name.
pub fn named(name: &str) -> Option<&'static Check> {
    CHECKS.iter().copied().find(|check| check.name == name)
}

/// For what a figure is mostly used beside ratios, which both sides of a pair may share.
const BUT_RATIO: &[Claim] = &[Claim::Absolute, Claim::Distribution];

/// A check's finding: the fields of [`Reason`] that it decides for itself.
#[derive(Debug)]
pub struct Found {
    is: Status,
    claims: Vec<Claim>,
    measured: Option<f64>,
    limit: f64,
    unit: Option<&'static str>,
    bound: Option<Bound>,
    seen: Option<String>,
    remedy: Option<Remedy>,
}

impl Found {
    /// Both numbers are in the check's unit.
    fn new(is: Status, claims: &[Claim], measured: f64, limit: f64) -> Found {
        Found {
            is,
            claims: claims.to_vec(),
            measured: Some(measured),
            limit,
            unit: None,
            bound: None,
            seen: None,
            remedy: None,
        }
    }

    fn suspect(claims: &[Claim], measured: f64, limit: f64) -> Found {
        Found::new(Status::Suspect, claims, measured, limit)
    }

    fn invalid(claims: &[Claim], measured: f64, limit: f64) -> Found {
        Found::new(Status::Invalid, claims, measured, limit)
    }

    /// This unit, where a check has thresholds in several.
    fn unit(mut self, unit: &'static str) -> Found {
        self.unit = Some(unit);
        self
    }

    /// The undisturbed figure is what was measured, or more.
    fn at_least(self) -> Found {
        Found {
            bound: Some(Bound {
                low: 1.0,
                high: None,
            }),
            ..self
        }
    }

    /// Adds evidence that no number tells.
    fn seen(mut self, seen: impl Into<Option<String>>) -> Found {
        self.seen = seen.into();
        self
    }

    /// Adds the option that would make the check pass.
    fn remedy(mut self, remedy: impl Into<Option<Remedy>>) -> Found {
        self.remedy = remedy.into();
        self
    }
}

impl Check {
    /// Its finding about runs, with its text; None if it finds nothing.
    pub fn look(&self, evidence: &Evidence<'_>) -> Option<Reason> {
        (self.judge)(evidence).map(|found| self.reason(found))
    }

    fn reason(&self, found: Found) -> Reason {
        with_text(Reason {
            check: self.name.to_owned(),
            is: found.is,
            claims: found.claims,
            measured: found.measured,
            limit: Some(found.limit),
            unit: found.unit.unwrap_or(self.unit).to_owned(),
            bound: found.bound,
            seen: found.seen,
            remedy: found.remedy,
            ..Reason::default()
        })
    }
}

/// The reason with the sentence that its data make, the remedy in brackets at its end.
/// A reason without data, of an older file, or of a check that this build does not
/// know, keeps the sentence that it has.
pub fn with_text(mut reason: Reason) -> Reason {
    let Some(check) = named(&reason.check).filter(|_| !reason.unit.is_empty()) else {
        return reason;
    };
    let mut text = (check.words)(&reason);
    text += &because::clause(reason.causes.as_deref());
    if let Some(remedy) = &reason.remedy
        && !text.contains(&remedy.to_string())
    {
        text += &format!(" ({remedy})");
    }
    reason.text = by_host::named(&reason.hosts, &text);
    reason
}

/// A reason's measured value; not a number where it has none.
fn measured(reason: &Reason) -> f64 {
    reason.measured.unwrap_or(f64::NAN)
}

/// A reason's evidence beside its numbers.
fn seen(reason: &Reason) -> String {
    reason.seen.clone().unwrap_or_default()
}

/// Twice as many generators as the most; with CPU quotas, none of these.
fn more_generators(plan: &Plan) -> Option<Remedy> {
    let generators = &plan.generators.as_ref()?.0;
    let most = 2 * generators.iter().max()?;
    if plan.generator_cpu.is_some() {
        return Some(Remedy::without("--generator-cpu"));
    }
    let list = generators.iter().chain([&most]).map(u64::to_string);
    let list: Vec<String> = list.collect();
    (most <= plan.in_flight?).then(|| Remedy::with("--generators", list.join(":")))
}

impl<'a> Evidence<'a> {
    /// This of each run that has it.
    fn each<T>(&self, of: impl Fn(&'a Run) -> Option<T>) -> impl Iterator<Item = T> {
        self.runs.iter().filter_map(move |run| of(run))
    }

    /// The median of this over the runs that have it.
    fn median(&self, of: impl Fn(&'a Run) -> Option<f64>) -> Option<f64> {
        median(self.each(of))
    }

    fn sum(&self, figure: impl Fn(&Run) -> u64) -> u64 {
        self.runs.iter().map(|run| figure(run)).sum()
    }

    fn sum_f64(&self, figure: impl Fn(&Run) -> f64) -> f64 {
        self.runs.iter().map(|run| figure(run)).sum()
    }

    /// The witness's report of each run that had one.
    fn exclusions(&self) -> impl Iterator<Item = &'a Exclusion> {
        self.each(|run| run.exclusion.as_ref())
    }

    /// How many workers contend; the runs are of one point and agree.
    fn workers(&self) -> u64 {
        self.each(|run| run.at.workers).next().unwrap_or(0)
    }

    /// Whether workers contend for as long as a window is open.
    fn is_contention(&self) -> bool {
        self.experiment.plan.workload == Workload::Contend
    }

    fn mean_window_s(&self) -> f64 {
        self.sum_f64(|run| run.window.window_s) / self.runs.len().max(1) as f64
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
            let threshold = (check.threshold)();
            for text in [
                check.name,
                check.asks,
                check.unit,
                &threshold,
                check.source,
                check.fooled_by,
                check.advice,
            ] {
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
            runs: &[&Run::default()],
        });
        let checks: Vec<_> = verdict.reasons.iter().map(|r| r.check.as_str()).collect();
        assert_eq!(checks, ["few_operations"]);
    }

    #[test]
    fn what_needs_a_window_is_not_asked_of_a_number_of_operations() {
        let mut run = fixtures::point();
        run.at.workers = Some(1000); // 5 rotations
        run.blocked_share = Some(0.0);
        let rising: Vec<u64> = (0..10).map(|at| 300 + 30 * at).collect();
        run.series = fixtures::slices(&rising);
        let mut experiment = fixtures::experiment();
        let mut found = |workload| {
            experiment.plan.workload = workload;
            let verdict = verdict(&Evidence {
                experiment: &experiment,
                runs: &[&run],
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
        let mut run = fixtures::point();
        run.around.errors.insert("ENOLCK".to_string(), 3);
        run.around.machine.stolen_ticks = 20;
        let verdict = verdict(&Evidence {
            experiment: &experiment,
            runs: &[&run],
        });
        assert_eq!(verdict.is, Status::Invalid);
        let found: Vec<_> = verdict
            .reasons
            .iter()
            .map(|r| (r.check.as_str(), r.is))
            .collect();
        assert_eq!(
            found,
            [("errors", Status::Invalid), ("steal", Status::Suspect)]
        );
    }

    #[test]
    fn reasons_carry_the_name_of_their_check() {
        let mut bad = fixtures::point();
        bad.around
            .deaths
            .push("worker 3 was killed by SIGKILL".to_string());
        let exclusion = bad.exclusion.as_mut().unwrap();
        exclusion.violations = 1;
        exclusion.lost_updates = 1;
        bad.around.machine.throttled_periods = Some(1);
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
