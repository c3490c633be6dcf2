//! The next command worth typing: one pure rule.
//!
//! What ended early is run again; what is not VALID is asked again so that it
//! would be; what is VALID leads to the next question. Only what the command
//! line knows is proposed.

use crate::ResultSet;
use crate::command::command;
use jostle_model::plan::{Arrivals, Measure, Names, Place, Workload};
use jostle_model::record::{Is, Reason};
use jostle_model::time::Busy;
use jostle_model::{List, Nanos, Plan};
use jostle_stats::path::{answering, only_answers};
use jostle_stats::requested::makes_requests;
use jostle_stats::summary::PointSummary;
use std::collections::BTreeSet;

/// A plan that follows, or what else to type.
enum Step {
    Measure(Box<Plan>),
    Type(&'static str),
}

/// Workers that a follow-up asks for at most: what one machine carries.
const MOST_WORKERS: u64 = 10_000;

/// The command.
pub fn next(set: &ResultSet, points: &[PointSummary<'_>]) -> String {
    let plan = &set.experiment.plan;
    let ended = set.end.as_ref().is_some_and(|end| end.error.is_none());
    if points.is_empty() || !ended {
        let mut again = plan.clone();
        again.seed = None;
        return command(&again);
    }
    let cure = [Is::Invalid, Is::Suspect]
        .into_iter()
        .find_map(|is| cure(plan, points, is));
    match cure.unwrap_or_else(|| question(set)) {
        Step::Measure(plan) => command(&plan),
        Step::Type(text) => text.to_owned(),
    }
}

/// What would help against a reason, given the points that have it.
type Cure = fn(&Plan, &[Afflicted<'_>]) -> Option<Step>;

/// A point and the reason that it has.
struct Afflicted<'a> {
    workers: u64,
    rate: Option<u64>,
    warmup_s: f64,
    target: &'a str,
    reason: &'a Reason,
}

/// By the name of the check. Those that the user can mend by measuring
/// otherwise stand before those that the machine imposes.
static CURES: &[(&str, Cure)] = &[
    ("exclusion", fewest_workers),
    ("lost_update", fewest_workers),
    ("errors", doctor),
    ("server_counts", doctor),
    ("concurrency", more_generators),
    ("deaths", doctor),
    ("throttled", doctor),
    ("halted", again),
    ("clock", one_cpu),
    ("few_operations", longer),
    ("rotations", longer),
    ("together", longer),
    ("tail_host", again),
    ("generator", more_workers),
    ("ledger", again),
    ("lag", slower),
    ("attribution", more_generators),
    ("not_contended", more_contention),
    ("own_cost", counts),
    ("precision", more_runs),
    ("steadiness", longer_warmup),
    ("drift", more_operations),
    ("hold_accuracy", doctor),
    ("lost", doctor),
    ("limit", more_sources),
    ("accepted", doctor),
    ("faster", again),
    ("profiled", unprofiled),
    ("neighbours", doctor),
    ("unchecked", doctor),
    ("selection", again),
    ("steal", doctor),
];

fn cure(plan: &Plan, points: &[PointSummary<'_>], is: Is) -> Option<Step> {
    CURES.iter().find_map(|(check, cure)| {
        let afflicted: Vec<Afflicted<'_>> = points
            .iter()
            .filter_map(|point| {
                let mut reasons = point.verdict.reasons.iter();
                Some(Afflicted {
                    workers: point.at.workers.unwrap_or(0),
                    rate: point.at.rate,
                    warmup_s: point
                        .runs
                        .iter()
                        .map(|run| run.warmup_s)
                        .fold(0.0, f64::max),
                    target: point.target,
                    reason: reasons.find(|reason| reason.check == *check && reason.is == is)?,
                })
            })
            .collect();
        (!afflicted.is_empty()).then(|| cure(plan, &afflicted))?
    })
}

/// The plan for these points only. How long and how often was for the others
/// too, and a seed belongs to one experiment.
fn only(plan: &Plan, afflicted: &[Afflicted<'_>]) -> Plan {
    let mut plan = follow_up(plan);
    plan.targets
        .retain(|target| afflicted.iter().any(|a| a.target == target));
    if let Some(list) = &mut plan.workers {
        list.0
            .retain(|workers| afflicted.iter().any(|a| a.workers == *workers));
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

fn doctor(_: &Plan, _: &[Afflicted<'_>]) -> Option<Step> {
    Some(Step::Type("jostle doctor"))
}

/// As many as the reason proposes.
fn more_sources(plan: &Plan, afflicted: &[Afflicted<'_>]) -> Option<Step> {
    let proposed = afflicted.iter().find_map(|a| {
        let (_, rest) = a.reason.text.split_once("--sources ")?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u64>().ok().filter(|sources| *sources > 1)
    });
    let Some(sources) = proposed else {
        return Some(Step::Type("jostle doctor"));
    };
    let mut next = follow_up(plan);
    next.sources = Some(List(vec![sources]));
    Some(Step::Measure(Box::new(next)))
}

/// Ten times as many: does it go on?
fn more_operations(plan: &Plan, afflicted: &[Afflicted<'_>]) -> Option<Step> {
    let mut next = only(plan, afflicted);
    let most = most(&next.operations)?;
    next.operations = Some(List(vec![most.saturating_mul(10)]));
    Some(Step::Measure(Box::new(next)))
}

/// Twice as many as an interval needs.
fn more_runs(plan: &Plan, afflicted: &[Afflicted<'_>]) -> Option<Step> {
    Some(Step::Measure(Box::new(Plan {
        runs: Some(12),
        ..only(plan, afflicted)
    })))
}

fn again(plan: &Plan, _: &[Afflicted<'_>]) -> Option<Step> {
    Some(Step::Measure(Box::new(follow_up(plan))))
}

/// Up to the highest rate that was sent in time; with none, a tenth of the lowest.
fn slower(plan: &Plan, afflicted: &[Afflicted<'_>]) -> Option<Step> {
    let least = afflicted.iter().filter_map(|a| a.rate).min()?;
    let mut next = follow_up(plan);
    let List(rates) = next.rate.as_mut()?;
    rates.retain(|rate| *rate < least);
    if rates.is_empty() {
        rates.push(least / 10);
    }
    (least >= 10).then(|| Step::Measure(Box::new(next)))
}

fn unprofiled(plan: &Plan, _: &[Afflicted<'_>]) -> Option<Step> {
    let mut next = follow_up(plan);
    next.during = None;
    Some(Step::Measure(Box::new(next)))
}

/// Does it take a crowd to break it?
fn fewest_workers(plan: &Plan, afflicted: &[Afflicted<'_>]) -> Option<Step> {
    let mut plan = only(plan, afflicted);
    plan.workers = Some(List(vec![2]));
    (afflicted.iter().all(|a| a.workers > 2)).then(|| Step::Measure(Box::new(plan)))
}

/// One more than the most, for who is alone at its limit.
fn more_workers(plan: &Plan, afflicted: &[Afflicted<'_>]) -> Option<Step> {
    if plan.workload == Workload::Spread {
        return more_generators(plan, afflicted);
    }
    let most = afflicted.iter().map(|a| a.workers).max()?;
    let mut plan = only(plan, afflicted);
    if let Some(threads) = plan.generator_threads {
        plan.generator_threads = Some(2 * threads);
        return (2 * threads <= most).then(|| Step::Measure(Box::new(plan)));
    }
    plan.workers = Some(List(vec![2 * most]));
    (2 * most <= MOST_WORKERS).then(|| Step::Measure(Box::new(plan)))
}

/// One CPU has one clock.
fn one_cpu(plan: &Plan, afflicted: &[Afflicted<'_>]) -> Option<Step> {
    let mut next = only(plan, afflicted);
    next.place = Some(Place::Same);
    (plan.place != next.place).then(|| Step::Measure(Box::new(next)))
}

/// With the longest window that a reason proposes, so that the footnotes and
/// this line say the same.
fn longer(plan: &Plan, afflicted: &[Afflicted<'_>]) -> Option<Step> {
    let seconds = afflicted
        .iter()
        .filter_map(|a| proposed_seconds(&a.reason.text))
        .max()?;
    let mut plan = only(plan, afflicted);
    plan.duration = Some(Nanos::from_millis(seconds.checked_mul(1000)?));
    Some(Step::Measure(Box::new(plan)))
}

/// 11 of `the window holds 5 rotations; fairness needs 10 (-t 11)`.
fn proposed_seconds(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("(-t ")?;
    rest.split_once(')')?.0.parse().ok()
}

fn more_contention(plan: &Plan, afflicted: &[Afflicted<'_>]) -> Option<Step> {
    let mut plan = only(plan, afflicted);
    if plan.hold.is_none_or(|hold| hold.span() == Nanos::ZERO) {
        plan.hold = Some(Busy::Sleep(Nanos::from_millis(1)));
        return Some(Step::Measure(Box::new(plan)));
    }
    let most = afflicted.iter().map(|a| a.workers).max()?;
    plan.workers = Some(List(vec![most.saturating_mul(10)]));
    (most * 10 <= MOST_WORKERS).then(|| Step::Measure(Box::new(plan)))
}

/// The bare rate; what is shared by all workers stays as it was.
fn counts(plan: &Plan, afflicted: &[Afflicted<'_>]) -> Option<Step> {
    let mut next = only(plan, afflicted);
    next.measure = Some(Measure::Counts);
    Some(Step::Measure(Box::new(next)))
}

fn longer_warmup(plan: &Plan, afflicted: &[Afflicted<'_>]) -> Option<Step> {
    let longest = afflicted.iter().map(|a| a.warmup_s).fold(0.0, f64::max);
    let mut plan = only(plan, afflicted);
    plan.warmup = Some(Nanos::from_secs_f64((2.0 * longest).ceil().max(1.0)));
    Some(Step::Measure(Box::new(plan)))
}

/// What one would ask next of results against which nothing speaks.
fn question(set: &ResultSet) -> Step {
    let plan = &set.experiment.plan;
    let mut next = follow_up(plan);
    if plan.workload == Workload::Connect {
        return connect_question(plan, next);
    }
    if plan.workload == Workload::Rate {
        return rate_question(plan, next);
    }
    if plan.workload == Workload::Spread {
        return spread_question(set, next);
    }
    if makes_requests(plan) {
        return requests_question(plan, next);
    }
    if plan.workload != Workload::Contend {
        return counted_question(set, next);
    }
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
        return Step::Type("jostle targets");
    }
    Step::Measure(Box::new(next))
}

/// What would tell who was the limit; after that, twice as much in flight.
fn spread_question(set: &ResultSet, mut next: Plan) -> Step {
    let plan = &set.experiment.plan;
    if plan.runs.is_some_and(|runs| runs < 6) {
        next.runs = Some(6);
    } else {
        next.in_flight = plan.in_flight.map(|n| 2 * n);
    }
    Step::Measure(Box::new(next))
}

/// After one worker: what several at the same time reach. After that, whether it
/// stays so along a longer run.
fn requests_question(plan: &Plan, mut next: Plan) -> Step {
    if most(&plan.workers) == Some(1) {
        next.workers = Some(List(vec![1, 2, 4]));
        next.operations = most(&plan.operations).map(|n| List(vec![n]));
    } else {
        next.operations = most(&plan.operations).map(|n| List(vec![n.saturating_mul(10)]));
    }
    Step::Measure(Box::new(next))
}

/// With the CPU time that they need, and more of them.
fn more_generators(plan: &Plan, _: &[Afflicted<'_>]) -> Option<Step> {
    let mut next = follow_up(plan);
    let most = most(&next.generators)?;
    match next.generator_cpu {
        Some(_) => next.generator_cpu = None,
        None if 2 * most <= next.in_flight? => next.generators.as_mut()?.0.push(2 * most),
        None => return Some(Step::Type("jostle doctor")),
    }
    Some(Step::Measure(Box::new(next)))
}

/// After one address beside many: what a million cost. After that, what other
/// listening sockets cost.
fn connect_question(plan: &Plan, mut next: Plan) -> Step {
    if plan.only.is_some() || plan.targets.iter().any(|target| target != "tcp") {
        return Step::Type("jostle targets");
    }
    if most(&plan.open) < Some(1_000_000) {
        next.open = Some(List(vec![1_000, 10_000, 100_000, 1_000_000]));
        next.sources = Some(List(vec![64]));
        next.ports = Some(8);
    } else if most(&plan.listeners) == Some(0) {
        next.open = Some(List(vec![1_000, 10_000]));
        next.listeners = Some(List(vec![0, 1_000, 10_000]));
    } else {
        return Step::Type("jostle targets");
    }
    next.runs = None;
    Step::Measure(Box::new(next))
}

/// After equal distances: do random arrivals queue? After that, what is beyond the
/// greatest rate?
fn rate_question(plan: &Plan, mut next: Plan) -> Step {
    let Some(most) = most(&plan.rate).filter(|most| *most <= 1_000_000) else {
        return Step::Type("jostle targets");
    };
    match plan.arrivals {
        Some(Arrivals::Poisson) => next.rate = Some(List(vec![most, 2 * most, 4 * most])),
        _ => next.arrivals = Some(Arrivals::Poisson),
    }
    Step::Measure(Box::new(next))
}

/// Of streams: what contention costs, and how much is the way to the server. Of
/// held locks: what a hundred times as many cost, up to a million.
fn counted_question(set: &ResultSet, mut next: Plan) -> Step {
    let plan = &set.experiment.plan;
    let served = set.points.iter().any(|point| point.server.is_some());
    let targets = plan.targets.iter();
    let echoes: BTreeSet<&str> = targets.filter_map(|target| answering(target)).collect();
    let has_echo = plan.targets.iter().any(|target| only_answers(target));
    match (plan.workload, plan.names, &plan.keys) {
        (Workload::Stream, Some(Names::One), _) => next.names = Some(Names::Own),
        (Workload::Stream, ..) if served && !has_echo && !echoes.is_empty() => {
            next.targets.extend(echoes.into_iter().map(str::to_owned));
        }
        (Workload::Hold, _, Some(List(keys))) => {
            let most = keys.iter().max().copied().unwrap_or(1);
            if most > 10_000 {
                return Step::Type("jostle targets");
            }
            next.keys = Some(List(vec![most, 100 * most]));
            next.targets.retain(|target| !is_file_lock(target));
            if next.targets.is_empty() {
                return Step::Type("jostle targets");
            }
        }
        _ => return Step::Type("jostle targets"),
    }
    Step::Measure(Box::new(next))
}

fn most(list: &Option<List>) -> Option<u64> {
    list.as_ref()?.0.iter().max().copied()
}

/// Those hold a descriptor for each lock.
fn is_file_lock(target: &str) -> bool {
    let name = target.split(':').next().unwrap_or(target);
    ["flock", "ofd", "fcntl", "posix", "lockfile"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use jostle_model::record::End;
    use jostle_stats::checks::CHECKS;
    use jostle_stats::summary::summarize;
    use jostle_stats::{attribution, spoilt};

    fn of(set: &ResultSet) -> String {
        next(set, &summarize(&set.experiment, &set.points))
    }

    /// One worker count without a reason against it.
    fn clean() -> ResultSet {
        let mut set = made::set();
        set.points.retain(|point| point.at.workers == Some(10));
        set.experiment.plan.workers = Some(List(vec![10]));
        set.experiment.plan.duration = None;
        set.experiment.plan.runs = None;
        set
    }

    #[test]
    fn every_check_has_a_cure() {
        for check in CHECKS {
            let known = CURES.iter().any(|(name, _)| *name == check.name);
            assert!(known, "{}", check.name);
        }
        // And what only several points, or all blocks, tell together.
        for name in [attribution::NAME, spoilt::NAME] {
            assert!(CURES.iter().any(|(known, _)| *known == name));
        }
        assert_eq!(CURES.len(), CHECKS.len() + 2);
    }

    #[test]
    fn a_window_that_is_too_short_is_made_as_long_as_the_footnote_says() {
        let mut set = made::set();
        assert_eq!(of(&set), "jostle contend flock sysv -w 1000 -t 13 --runs 6");
        set.experiment.plan.runs = None;
        // Only one target is still too short.
        for point in set.points.iter_mut().filter(|p| p.target == "flock") {
            point.operations = 12_000;
        }
        assert_eq!(of(&set), "jostle contend sysv -w 1000 -t 12");
    }

    #[test]
    fn what_ended_early_is_run_again() {
        let command = "jostle contend flock sysv -w 10:1000 -t 5 --runs 6";
        let mut set = made::set();
        set.end = None;
        assert_eq!(of(&set), command);
        set.end = Some(End {
            exit: 130,
            error: Some("interrupted".to_owned()),
            elapsed_s: 3.0,
        });
        assert_eq!(of(&set), command);
        set.points.clear();
        assert_eq!(of(&set), command);
    }

    #[test]
    fn a_lock_that_does_not_exclude_is_asked_with_two_workers() {
        let mut set = made::broken();
        assert_eq!(of(&set), "jostle contend busted -w 2 -t 5 --runs 6");
        // With two already, the next question is asked instead.
        for point in &mut set.points {
            point.at.workers = Some(2);
        }
        set.experiment.plan.workers = Some(List(vec![2]));
        assert_eq!(
            of(&set),
            "jostle contend busted -w 2 -b 0 -i 0 -t 5 --runs 6"
        );
    }

    #[test]
    fn what_the_machine_did_leads_to_the_doctor() {
        let mut set = clean();
        for point in &mut set.points {
            point.machine.stolen_ticks = 20;
        }
        assert_eq!(of(&set), "jostle doctor");
        let mut set = clean();
        set.points[0].errors.insert("ENOLCK".to_owned(), 1);
        assert_eq!(of(&set), "jostle doctor");
    }

    #[test]
    fn what_can_be_measured_better_comes_before_what_the_machine_imposes() {
        let mut set = made::set();
        for point in &mut set.points {
            point.machine.stolen_ticks = point.machine.busy_ticks / 15; // SUSPECT
        }
        assert!(of(&set).contains("-t 13"));
        for point in &mut set.points {
            point.machine.stolen_ticks = point.machine.busy_ticks; // INVALID
        }
        assert_eq!(of(&set), "jostle doctor");
    }

    #[test]
    fn locks_that_nobody_waits_for_get_more_to_do() {
        let mut set = clean();
        for point in &mut set.points {
            point.blocked_share = Some(0.0);
        }
        assert_eq!(of(&set), "jostle contend flock sysv -w 100");
        set.experiment.plan.hold = Some(Busy::Sleep(Nanos::ZERO));
        assert_eq!(of(&set), "jostle contend flock sysv -w 10"); // 1 ms is the default
    }

    #[test]
    fn a_drifting_rate_gets_a_longer_warm_up() {
        let mut set = clean();
        for point in &mut set.points {
            for (at, slice) in point.series.iter_mut().enumerate() {
                slice.operations = 300 + 30 * at as u64;
            }
            point.warmup_s = 0.7;
        }
        assert_eq!(of(&set), "jostle contend flock sysv -w 10 --warmup 2s");
    }

    #[test]
    fn clocks_that_disagree_lead_to_one_cpu() {
        let reason = Reason {
            check: "clock".to_owned(),
            is: Is::Invalid,
            claims: Vec::new(),
            text: String::new(),
        };
        let afflicted = [Afflicted {
            workers: 1000,
            rate: None,
            warmup_s: 0.0,
            target: "sysv",
            reason: &reason,
        }];
        let Some(Step::Measure(plan)) = one_cpu(&made::plan(), &afflicted) else {
            panic!("it has a cure");
        };
        assert_eq!(
            command(&plan),
            "jostle contend sysv -w 1000 -t 5 --runs 6 --place same"
        );
        assert!(one_cpu(&plan, &afflicted).is_none());
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
            asked.push(of(&set));
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
