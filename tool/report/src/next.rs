//! The next command worth typing: one pure rule.
//!
//! An experiment that ended early is run again. One that is not VALID is repeated with the
//! remedy of its worst reason. A VALID one leads to the next question. Only options of the
//! command line are proposed.

use crate::ResultSet;
use crate::command::{command, with, without};
use crate::verify;
use crate::workloads::shown;
use jostle_model::defaults;
use jostle_model::plan::{Arrivals, Measure, Names, Place, Workload};
use jostle_model::record::{Reason, Status};
use jostle_model::text::quoted;
use jostle_model::time::Busy;
use jostle_model::{List, Nanos, Plan, Remedy};
use jostle_stats::checks::{CHECKS, exclusion, lost_update};
use jostle_stats::fit::LEAST_RUNS;
use jostle_stats::summary::PointSummary;
use std::collections::BTreeSet;

/// A plan that follows, or what else to type.
pub(crate) enum Step {
    /// A plan.
    Measure(Box<Plan>),
    /// Another command.
    Type(String),
}

const DOCTOR: &str = "jostle doctor";
const TARGETS: &str = "jostle targets";

/// The command.
pub(crate) fn next(set: &ResultSet, points: &[PointSummary<'_>]) -> String {
    let plan = &set.experiment.plan;
    let ended = set.end.as_ref().is_some_and(|end| end.error.is_none());
    if points.is_empty() || !ended {
        if let Some(resume) = resume(set) {
            return resume;
        }
        let mut again = plan.clone();
        again.seed = None;
        return command(&again);
    }
    // Steps beyond the limit that a search is to find may well be INVALID.
    let cured = [Status::Invalid, Status::Suspect].into_iter();
    let mut cured = cured.filter(|_| plan.find.is_none());
    let shown = verify::again(set).map(|plan| Step::Measure(Box::new(plan)));
    let step = shown.or_else(|| cured.find_map(|is| cure(plan, points, is)));
    match step.unwrap_or_else(|| question(set)) {
        Step::Measure(plan) => command(&plan),
        Step::Type(text) => text,
    }
}

/// The command that measures the rest of an interrupted experiment; None if no file has what
/// it needs.
fn resume(set: &ResultSet) -> Option<String> {
    let file = set.file.as_deref().filter(|file| *file != "-")?;
    let can = set
        .scheduled
        .as_ref()
        .is_some_and(|known| !known.boot.is_empty());
    can.then(|| format!("jostle run {} --resume", quoted(file)))
}

/// A point, and a reason that it has.
type Flagged<'a> = (&'a PointSummary<'a>, &'a Reason);

/// The remedy for the first of these reasons. Reasons that a different measurement would
/// fix come before those caused by the machine.
fn cure(plan: &Plan, points: &[PointSummary<'_>], is: Status) -> Option<Step> {
    let all: Vec<Flagged<'_>> = points
        .iter()
        .flat_map(|point| {
            point
                .verdict
                .reasons
                .iter()
                .map(move |reason| (point, reason))
        })
        .filter(|(_, reason)| reason.is == is)
        .collect();
    let broken = |reason: &Reason| {
        [exclusion::CHECK.name, lost_update::CHECK.name].contains(&reason.check.as_str())
    };
    if all.iter().any(|(_, reason)| broken(reason)) {
        return fewest_workers(plan, &all);
    }
    let (_, first) = all.iter().min_by_key(|(_, reason)| order(reason))?;
    let alike: Vec<Flagged<'_>> = all
        .iter()
        .filter(|(_, reason)| reason.check == first.check)
        .copied()
        .collect();
    Some(applied(plan, first.remedy.as_ref(), &alike))
}

/// Sorts by remedy: an option, waiting, anything else; then by the order of the checks.
fn order(reason: &Reason) -> (usize, Option<usize>) {
    let kind = match &reason.remedy {
        Some(remedy) if *remedy == Remedy::wait_quiet() => 1,
        Some(Remedy::With { .. } | Remedy::Without { .. }) => 0,
        Some(Remedy::Again) => 1,
        Some(Remedy::Command(_)) | None => 2,
    };
    let place = CHECKS.iter().position(|check| check.name == reason.check);
    (kind, place)
}

fn applied(plan: &Plan, remedy: Option<&Remedy>, alike: &[Flagged<'_>]) -> Step {
    let measure = |plan: Option<Plan>| match plan {
        Some(plan) => Step::Measure(Box::new(plan)),
        None => Step::Type(DOCTOR.to_owned()),
    };
    match remedy {
        None => Step::Type(DOCTOR.to_owned()),
        Some(Remedy::Command(command)) => Step::Type(command.clone()),
        Some(Remedy::Again) => measure(Some(follow_up(plan))),
        Some(Remedy::Without { option }) => measure(without(&only(plan, alike), option)),
        Some(wait) if *wait == Remedy::wait_quiet() => {
            Step::Type(format!("{} {wait}", command(&follow_up(plan))))
        }
        Some(Remedy::With { option, .. }) => {
            let strongest = strongest(option, alike);
            measure(strongest.and_then(|value| with(&only(plan, alike), option, &value)))
        }
    }
}

/// The value that suffices for all points: the largest, or the smallest for options whose
/// value has to decrease.
fn strongest(option: &str, alike: &[Flagged<'_>]) -> Option<String> {
    const LESS: [&str; 2] = ["--rate", "--open"];
    let values = alike.iter().filter_map(|(_, reason)| match &reason.remedy {
        Some(Remedy::With { option: of, value }) if of == option => Some(value),
        _ => None,
    });
    let size = |value: &&String| {
        let last = value.rsplit(':').next().unwrap_or(value);
        last.trim_end_matches(char::is_alphabetic)
            .parse::<u64>()
            .unwrap_or(0)
    };
    match LESS.contains(&option) {
        true => values.min_by_key(size).cloned(),
        false => values.max_by_key(size).cloned(),
    }
}

/// The plan for these points only. Warm-up, budget and seed are left out, because they
/// belonged to the whole experiment.
fn only(plan: &Plan, alike: &[Flagged<'_>]) -> Plan {
    let mut plan = follow_up(plan);
    plan.targets
        .retain(|target| alike.iter().any(|(point, _)| point.target == target));
    if let Some(list) = &mut plan.workers {
        list.0.retain(|workers| {
            alike
                .iter()
                .any(|(point, _)| point.at.workers == Some(*workers))
        });
    }
    plan
}

fn follow_up(plan: &Plan) -> Plan {
    Plan {
        warmup: None,
        budget: None,
        seed: None,
        ..plan.clone()
    }
}

/// The next test of a lock that does not exclude: fewer workers. None if there are two
/// already.
fn fewest_workers(plan: &Plan, alike: &[Flagged<'_>]) -> Option<Step> {
    let mut plan = only(plan, alike);
    plan.workers = Some(List(vec![2]));
    let crowds = alike.iter().all(|(point, _)| point.at.workers > Some(2));
    crowds.then(|| Step::Measure(Box::new(plan)))
}

/// The next question after VALID results, with as many runs as its answer needs.
fn question(set: &ResultSet) -> Step {
    let plan = &set.experiment.plan;
    let mut next = follow_up(plan);
    // A comparison of targets leaves out those that others disturbed.
    let enough = match plan.targets.len() {
        1 => LEAST_RUNS as u32,
        _ => 2 * LEAST_RUNS as u32,
    };
    next.runs = plan.runs.map(|runs| match runs < LEAST_RUNS as u32 {
        true => enough,
        false => runs,
    });
    (shown(plan.workload).next)(set, next)
}

/// First a sweep from one worker to many; after that, a measurement without hold.
pub(crate) fn contend_question(plan: &Plan, mut next: Plan) -> Step {
    if plan.workers.as_ref().is_some_and(|list| list.0 == [1]) {
        next.workers = Some(List(vec![1, 10, 100]));
    } else if plan.measure == Some(Measure::Counts) {
        // Do they exclude at all?
        next.measure = None;
    } else if plan.hold.is_some_and(|hold| hold.span() > Nanos::ZERO) {
        // What does the lock itself take, when the hold does not hide it?
        (next.hold, next.idle) = (
            Some(Busy::Sleep(Nanos::ZERO)),
            Some(Busy::Sleep(Nanos::ZERO)),
        );
    } else if plan
        .place
        .as_ref()
        .is_none_or(|place| *place == Place::None)
    {
        // How much of it is the wake-up on another CPU?
        next.place = Some(Place::Same);
    } else {
        return Step::Type(TARGETS.to_owned());
    }
    Step::Measure(Box::new(next))
}

/// Adds a contrast: a lock that survives every fault beside one that does not.
pub(crate) fn recover_question(plan: &Plan, mut next: Plan) -> Step {
    let name = |target: &String| target.split(':').next().unwrap_or_default().to_owned();
    let known: BTreeSet<String> = plan.targets.iter().map(name).collect();
    let mut contrasts = defaults::contrasts(plan.workload).iter();
    match contrasts.find(|other| !known.contains(**other)) {
        Some(other) => {
            next.targets.push((*other).to_owned());
            next.fault = None;
            Step::Measure(Box::new(next))
        }
        None => Step::Type(TARGETS.to_owned()),
    }
}

/// First enough runs to find the bottleneck; after that, twice as many requests in flight.
pub(crate) fn spread_question(set: &ResultSet, mut next: Plan) -> Step {
    let plan = &set.experiment.plan;
    if plan.runs.is_some_and(|runs| runs < 6) {
        next.runs = Some(6);
    } else {
        next.in_flight = plan.in_flight.map(|n| 2 * n);
    }
    Step::Measure(Box::new(next))
}

/// After one worker, several. After that, a longer run, to see whether the figures are
/// stable.
pub(crate) fn requests_question(plan: &Plan, mut next: Plan) -> Step {
    if most(&plan.workers) == Some(1) {
        next.workers = Some(List(vec![1, 2, 4]));
        next.operations = most(&plan.operations).map(|n| List(vec![n]));
    } else {
        next.operations = most(&plan.operations).map(|n| List(vec![n.saturating_mul(10)]));
    }
    Step::Measure(Box::new(next))
}

/// First a million connections. After that, the cost of other listening sockets.
pub(crate) fn connect_question(plan: &Plan, mut next: Plan) -> Step {
    if plan.only.is_some() || plan.targets != defaults::targets(plan.workload) {
        return Step::Type(TARGETS.to_owned());
    }
    if most(&plan.open) < Some(1_000_000) {
        next.open = Some(List(vec![1_000, 10_000, 100_000, 1_000_000]));
        next.sources = Some(List(vec![64]));
        next.ports = Some(8);
    } else if most(&plan.listeners) == Some(0) {
        next.open = Some(List(vec![1_000, 10_000]));
        next.listeners = Some(List(vec![0, 1_000, 10_000]));
    } else {
        return Step::Type(TARGETS.to_owned());
    }
    next.runs = None;
    Step::Measure(Box::new(next))
}

/// After constant arrivals, random ones. After that, higher rates.
pub(crate) fn rate_question(plan: &Plan, mut next: Plan) -> Step {
    let Some(most) = most(&plan.rate).filter(|most| *most <= 1_000_000) else {
        return Step::Type(TARGETS.to_owned());
    };
    match plan.arrivals {
        Some(Arrivals::Poisson) => next.rate = Some(List(vec![most, 2 * most, 4 * most])),
        _ => next.arrivals = Some(Arrivals::Poisson),
    }
    Step::Measure(Box::new(next))
}

/// After streams, the cost of contention, and the cost of the path to the server. After
/// held locks, a hundred times as many, up to a million.
pub(crate) fn counted_question(set: &ResultSet, mut next: Plan) -> Step {
    let plan = &set.experiment.plan;
    let facts = |target: &String| set.experiment.facts(target);
    let mut targets = plan.targets.iter();
    let served = set.runs.iter().any(|run| run.server.is_some())
        || targets.any(|target| facts(target).path_alone().is_some());
    let answering = plan.targets.iter().filter_map(|t| facts(t).answering);
    let answering: BTreeSet<String> = answering.collect();
    let has_one = plan.targets.iter().any(|t| answering.contains(t));
    match (plan.workload, plan.names, &plan.keys) {
        (Workload::Stream, Some(Names::One), _) => next.names = Some(Names::Own),
        (Workload::Stream, ..) if served && !has_one && !answering.is_empty() => {
            next.targets.extend(answering);
        }
        (Workload::Hold, _, Some(List(keys))) => {
            let most = keys.iter().max().copied().unwrap_or(1);
            if most > 10_000 {
                return Step::Type(TARGETS.to_owned());
            }
            // Locks that are kept for minutes grow in smaller steps.
            let times = if plan.keep.is_some() { 10 } else { 100 };
            next.keys = Some(List(vec![most, times * most]));
            next.targets.retain(|target| !facts(target).descriptor_each);
            if next.targets.is_empty() {
                return Step::Type(TARGETS.to_owned());
            }
        }
        _ => return Step::Type(TARGETS.to_owned()),
    }
    Step::Measure(Box::new(next))
}

fn most(list: &Option<List>) -> Option<u64> {
    list.as_ref()?.0.iter().max().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use jostle_model::record::{Accounts, End, Scheduled};
    use jostle_stats::checks::clock;
    use jostle_stats::summary::summarize;

    fn next_of(set: &ResultSet) -> String {
        next(set, &summarize(&set.experiment, &set.runs))
    }

    /// One worker count without a reason against it.
    fn clean() -> ResultSet {
        let mut set = made::set();
        set.runs.retain(|point| point.at.workers == Some(10));
        set.experiment.plan.workers = Some(List(vec![10]));
        set.experiment.plan.duration = None;
        set.experiment.plan.runs = None;
        set
    }

    #[test]
    fn an_interrupted_result_file_is_resumed() {
        let mut set = made::set();
        set.end.as_mut().unwrap().error = Some("interrupted".to_owned());
        set.file = Some("my runs.jsonl".to_owned());
        assert_eq!(
            next_of(&set).split(' ').nth(1),
            Some("contend"),
            "an old file"
        );
        set.scheduled = Some(Scheduled {
            boot: "b".to_owned(),
            ..Scheduled::default()
        });
        assert_eq!(next_of(&set), "jostle run 'my runs.jsonl' --resume");
        set.file = Some("-".to_owned());
        assert_eq!(next_of(&set).split(' ').nth(1), Some("contend"), "a pipe");
    }

    #[test]
    fn a_window_that_is_too_short_is_made_as_long_as_the_footnote_says() {
        let mut set = made::set();
        assert_eq!(
            next_of(&set),
            "jostle contend flock sysv -w 1000 -t 13 --runs 6"
        );
        set.experiment.plan.runs = None;
        // Only one target is still too short.
        for run in set.runs.iter_mut().filter(|p| p.target == "flock") {
            run.operations = 12_000;
        }
        assert_eq!(next_of(&set), "jostle contend sysv -w 1000 -t 12");
    }

    #[test]
    fn what_ended_early_is_run_again() {
        let command = "jostle contend flock sysv -w 10:1000 -t 5 --runs 6";
        let mut set = made::set();
        set.end = None;
        assert_eq!(next_of(&set), command);
        set.end = Some(End {
            exit: 130,
            error: Some("interrupted".to_owned()),
            elapsed_s: 3.0,
        });
        assert_eq!(next_of(&set), command);
        set.runs.clear();
        assert_eq!(next_of(&set), command);
    }

    #[test]
    fn a_lock_that_does_not_exclude_is_asked_with_two_workers() {
        let mut set = made::broken();
        assert_eq!(next_of(&set), "jostle contend busted -w 2 -t 5 --runs 6");
        // With two already, the next question is asked instead.
        for run in &mut set.runs {
            run.at.workers = Some(2);
        }
        set.experiment.plan.workers = Some(List(vec![2]));
        assert_eq!(
            next_of(&set),
            "jostle contend busted -w 2 -b 0 -i 0 -t 5 --runs 6"
        );
    }

    #[test]
    fn what_the_machine_did_is_run_again_and_what_failed_leads_to_the_doctor() {
        let mut set = clean();
        for run in &mut set.runs {
            run.around.machine.stolen_ticks = 20;
        }
        assert_eq!(next_of(&set), "jostle contend flock sysv -w 10");
        let mut set = clean();
        set.runs[0].around.errors.insert("ENOLCK".to_owned(), 1);
        assert_eq!(next_of(&set), "jostle doctor");
    }

    /// Beside programs that took 83 % of the CPUs the next command was `--rate 50`.
    #[test]
    fn a_sweep_of_rates_beside_other_programs_is_asked_again_as_it_was() {
        let after = |others_s: f64| {
            let mut set = made::rated(&[400, 400], 4);
            for run in &mut set.runs {
                run.around.accounts = Some(Box::new(Accounts {
                    between_s: 1.0,
                    cpus: 1,
                    others_s: Some(others_s),
                    ..Accounts::default()
                }));
            }
            next_of(&set)
        };
        // Also where only the canary is late: a lower rate wakes no sooner.
        for others_s in [0.83, 0.01] {
            let next = "jostle rate lockd --rate 100:2000 --wait-quiet 60s";
            assert_eq!(after(others_s), next);
        }
    }

    #[test]
    fn what_can_be_measured_better_comes_before_what_the_machine_imposes() {
        let mut set = made::set();
        for run in &mut set.runs {
            run.around.machine.stolen_ticks = run.around.machine.busy_ticks / 15; // SUSPECT
        }
        assert!(next_of(&set).contains("-t 13"));
        for run in &mut set.runs {
            run.around.machine.stolen_ticks = run.around.machine.busy_ticks; // INVALID
        }
        assert!(!next_of(&set).contains("-t 13"));
    }

    /// The advice once followed the words of a verdict, so that rewording one changed it.
    #[test]
    fn the_words_of_a_reason_change_nothing() {
        let set = made::set();
        let mut points = summarize(&set.experiment, &set.runs);
        let before = next(&set, &points);
        for reason in points
            .iter_mut()
            .flat_map(|point| &mut point.verdict.reasons)
        {
            reason.text = "(-t 99) --sources 7".to_owned();
        }
        assert_eq!(next(&set, &points), before);
    }

    #[test]
    fn locks_that_nobody_waits_for_get_more_to_do() {
        let mut set = clean();
        for run in &mut set.runs {
            run.blocked_share = Some(0.0);
        }
        assert_eq!(next_of(&set), "jostle contend flock sysv -w 100");
        set.experiment.plan.hold = Some(Busy::Sleep(Nanos::ZERO));
        assert_eq!(next_of(&set), "jostle contend flock sysv -w 10"); // 1 ms is the default
    }

    #[test]
    fn a_drifting_rate_gets_a_longer_warm_up() {
        let mut set = clean();
        for run in &mut set.runs {
            for (at, slice) in run.series.iter_mut().enumerate() {
                slice.operations = 300 + 30 * at as u64;
            }
            run.window.warmup_s = 0.7;
        }
        assert_eq!(next_of(&set), "jostle contend flock sysv -w 10 --warmup 2s");
    }

    #[test]
    fn clocks_that_disagree_lead_to_one_cpu() {
        let mut set = clean();
        for run in set.runs.iter_mut().filter(|p| p.target == "sysv") {
            run.around
                .errors
                .insert(clock::BEFORE_RELEASE.to_owned(), 100);
        }
        assert_eq!(next_of(&set), "jostle contend sysv -w 10 --place same");
    }

    #[test]
    fn valid_results_lead_to_the_next_question() {
        let mut set = clean();
        let mut asked = Vec::new();
        for change in [
            (|_| ()) as fn(&mut Plan),
            |plan| plan.hold = Some(Busy::Sleep(Nanos::ZERO)),
            |plan| plan.place = Some(Place::Same),
            |plan| plan.measure = Some(Measure::Counts),
            |plan| plan.workers = Some(List(vec![1])),
        ] {
            change(&mut set.experiment.plan);
            asked.push(next_of(&set));
        }
        assert_eq!(
            asked,
            [
                "jostle contend flock sysv -w 10 -b 0 -i 0",
                "jostle contend flock sysv -w 10 -b 0 --place same",
                "jostle targets",
                "jostle contend flock sysv -w 10 -b 0 --place same",
                "jostle contend flock sysv -w 1:10:100 -b 0 --place same --measure counts",
            ]
        );
    }
}
