//! The clauses about growth, and those of `stream` and `hold`: whether an operation costs the same
//! however many there are (the cost is then linear), and otherwise how its cost grows.
//!
//! The cost of an operation is the run's time by its operations, all workers together. As
//! everywhere, runs of the same blocks decide, and the printed figure is the quotient of
//! printed medians.

use super::beside::targets;
use super::{Values, View, each, listed, shared};
use crate::page::growth as growth_of;
use jostle_model::plan::{Names, Plan, Workload};
use jostle_model::record::{At, Run};
use jostle_stats::figures::{self, Figure};
use jostle_stats::fit;
use jostle_stats::numbers::{self, grouped};
use jostle_stats::ratio::{Outcome, Ratio, by_block};
use jostle_stats::requested::{makes_requests, noun};
use jostle_stats::summary::PointSummary;

/// What an operation costs for how many of them, within a run, and beside another worker.
pub(super) fn sizes(view: &View<'_, '_>) -> Vec<Values> {
    let plan = view.plan();
    let points = &view.points;
    let said = each(points, |points| growth(plan, points)).into_iter();
    let said = said.chain(each(points, |points| within(plan, points)));
    said.chain(each(points, |points| side_by_side(plan, points)))
        .collect()
}

/// What a held lock takes of the server's memory.
pub(super) fn memory_of_each(view: &View<'_, '_>) -> Vec<Values> {
    listed(&view.points, memory)
}

/// The laws of growth.
pub(super) fn laws(view: &View<'_, '_>) -> Vec<Values> {
    let mut said = fit::closing(&growth_of(view.set, view.all));
    // What a law would take is told with `-v`.
    said.retain(|(name, _)| !name.is_empty());
    for (_, text) in &mut said {
        text.truncate(text.trim_end_matches('.').len());
    }
    let is_named = said.len() > 1 || targets(&view.points).len() > 1;
    shared(said, is_named)
}

/// The value swept beside the workers.
fn size(at: At) -> Option<u64> {
    at.operations.or(at.keys)
}

/// The noun for an operation.
fn unit(plan: &Plan) -> &'static str {
    match makes_requests(plan) {
        true => noun(plan),
        false => plan.workload.facts().per,
    }
}

fn counted(plan: &Plan, n: u64) -> String {
    numbers::counted(n, unit(plan))
}

/// From the fewest to the most, with the fewest workers.
fn growth(plan: &Plan, points: &[&PointSummary<'_>]) -> Option<String> {
    let fewest_workers = points.iter().filter_map(|point| point.at.workers).min();
    let column = || points.iter().filter(|p| p.at.workers == fewest_workers);
    let few = column().min_by_key(|point| size(point.at))?;
    let many = column().max_by_key(|point| size(point.at))?;
    let (least, most) = (size(few.at)?, size(many.at)?);
    // Where a curve can be fitted, its own sentence says more.
    let fewest_runs = column().map(|point| point.runs.len()).min()?;
    let fitted = column().count() >= fit::LEAST_VALUES
        && fewest_runs >= fit::LEAST_RUNS
        && most as f64 / least.max(1) as f64 >= fit::LEAST_SPAN;
    if least == most || fitted {
        return None;
    }
    let ratio = by_block(few, many, &COST)?;
    let printed = few.median(figures::THROUGHPUT)? / many.median(figures::THROUGHPUT)?;
    let unit = unit(plan);
    let (from, to) = (grouped(least), counted(plan, most));
    Some(match ratio.outcome {
        Outcome::Same => {
            format!("linear: each {unit} costs the same from {from} to {to}, within 5 %")
        }
        Outcome::Differs if printed > 1.0 && ratio.ratio > 1.0 => format!(
            "not linear: each {unit} costs {printed:.2} times as much with {to} as with {from}, \
             as the number to the power of {:.2}",
            printed.ln() / (most as f64 / least as f64).ln()
        ),
        Outcome::Differs if printed < 1.0 && ratio.ratio < 1.0 => {
            format!("each {unit} costs less with {to} than with {from} ({printed:.2} times)")
        }
        _ => format!(
            "each {unit} perhaps costs {printed:.2} times as much with {to} as with {from} ({})",
            undecided_between(&ratio)
        ),
    })
}

fn undecided_between(ratio: &Ratio) -> String {
    let between = format!("undecided, {:.2} to {:.2}", ratio.low, ratio.high);
    undecided(ratio, between)
}

/// Why a ratio decides nothing: these words where it has an interval.
pub(super) fn undecided(ratio: &Ratio, with_interval: String) -> String {
    match (ratio.interval, ratio.blocks) {
        (true, _) => with_interval,
        (false, 1) => "one run, not tested".to_owned(),
        (false, runs) => format!("{runs} usable runs, not tested"),
    }
}

/// Seconds an operation, all workers together.
const COST: Figure = Figure {
    of: |run| (run.operations > 0).then(|| run.window.window_s / run.operations as f64),
    ..Figure::TIME
};

/// Growth that shows within a run: the last tenth of the acquisitions against
/// the first, which hold as many locks less.
fn within(plan: &Plan, points: &[&PointSummary<'_>]) -> Option<String> {
    let most = points.iter().max_by_key(|point| size(point.at))?;
    if plan.workload != Workload::Hold || size(most.at)? < LEAST_FOR_SLICES {
        return None;
    }
    let pairs = most.timed.iter().filter_map(|run| {
        let (first, last) = (run.series.first()?, run.series.last()?);
        Some((first.mean_wait_ns?, last.mean_wait_ns?))
    });
    let ratio = jostle_stats::ratio::paired(&pairs.collect::<Vec<_>>())?;
    (ratio.outcome == Outcome::Differs && ratio.ratio > 1.0).then(|| {
        format!(
            "of {} the last tenth takes {:.1} times as long to acquire as the first",
            counted(plan, size(most.at).unwrap_or(0)),
            ratio.ratio
        )
    })
}

/// Under this many a tenth holds too few to have a mean.
const LEAST_FOR_SLICES: u64 = 100;

/// Two workers of N beside one of 2N: the Open Lock Daemon's second test.
fn side_by_side(plan: &Plan, points: &[&PointSummary<'_>]) -> Option<String> {
    if plan.workload != Workload::Stream || makes_requests(plan) {
        return None;
    }
    let find = |workers: u64, operations: u64| {
        points.iter().find(|point| {
            point.at.workers == Some(workers) && point.at.operations == Some(operations)
        })
    };
    let both = points.iter().filter_map(|two| {
        let operations = two.at.operations.filter(|_| two.at.workers == Some(2))?;
        Some((operations, find(1, 2 * operations)?, two))
    });
    let (operations, one, two) = both.max_by_key(|(operations, ..)| *operations)?;
    let window = Figure {
        of: |run| Some(run.window.window_s),
        ..Figure::TIME
    };
    let ratio = by_block(one, two, &window)?;
    let names = match plan.names {
        Some(Names::Own) => "each on its own name",
        _ => "on one name, where they wait for each other",
    };
    let said = match ratio.outcome {
        Outcome::Same => "take as long as".to_owned(),
        Outcome::Differs => format!("take {:.2} times as long as", ratio.ratio),
        Outcome::Undecided => format!(
            "take {:.2} times ({}) as long as",
            ratio.ratio,
            undecided_between(&ratio)
        ),
    };
    // Side by side they would take half as long. A server of one thread is another matter.
    let no_faster = match ratio.outcome {
        Outcome::Same => true,
        Outcome::Differs => ratio.ratio > 1.0,
        Outcome::Undecided => false,
    };
    let share =
        plan.names == Some(Names::Own) && no_faster && two.runs.iter().all(|run| runs_apart(run));
    let why = match share {
        true => format!(": {DISJOINT}"),
        false => String::new(),
    };
    Some(format!(
        "2 workers of {} {names}, {said} 1 of {}{why}",
        grouped(operations),
        grouped(2 * operations)
    ))
}

/// Why operations on several names take as long as those on one.
pub(crate) const DISJOINT: &str =
    "disjoint names wait for one another, by a lock or a stripe that they share";

/// Whether two workers could have worked at once: each on a CPU, and without a server.
pub(crate) fn runs_apart(run: &Run) -> bool {
    let accounts = run.around.accounts.as_deref();
    let cpus = accounts.map_or(run.around.machine.cores, |of| of.cpus);
    let served = run.server.is_some() || accounts.is_some_and(|of| of.server_s.is_some());
    cpus > 1 && run.placement != "same" && !served
}

fn memory(points: &[&PointSummary<'_>]) -> Option<String> {
    let most = points.iter().max_by_key(|point| size(point.at))?;
    let bytes = most.median(figures::HELD_BYTES)?;
    let held = grouped(size(most.at)? * most.at.workers.unwrap_or(1));
    Some(format!("{bytes:.0} bytes ({held} held)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closing::tests::said as line_of;
    use crate::made::run_of;
    use jostle_model::List;
    use jostle_model::record::{Experiment, Server, Slice};
    use jostle_stats::fixtures;

    fn experiment(workload: Workload) -> Experiment {
        let mut experiment = fixtures::experiment();
        experiment.plan = Plan {
            targets: vec!["lockd".to_owned()],
            workers: Some(List(vec![1, 2])),
            names: (workload == Workload::Stream).then_some(Names::One),
            ..Plan::of(workload)
        };
        experiment
    }

    /// Six blocks of a point whose operations cost so many microseconds, give
    /// or take one in a hundred.
    fn runs(workload: Workload, workers: u64, each: u64, us: f64) -> Vec<Run> {
        let at = At {
            workers: Some(workers),
            operations: (workload == Workload::Stream).then_some(each),
            keys: (workload == Workload::Hold).then_some(each),
            ..At::default()
        };
        let operations = workers * each;
        let run = |block: u32| {
            let us = us * (1.0 + 0.002 * f64::from(block));
            let window_s = operations as f64 * us / 1e6;
            Run {
                operations,
                throughput_per_s: operations as f64 / window_s,
                ..run_of("lockd", workload, at, block, window_s)
            }
        };
        (1..=6).map(run).collect()
    }

    fn said(workload: Workload, runs: &[Run]) -> String {
        line_of(&experiment(workload), runs, "Growth")
    }

    #[test]
    fn a_constant_cost_is_linear_and_growth_has_its_exponent() {
        let pair = |few: f64, many: f64| {
            let mut all = runs(Workload::Stream, 1, 1_000, few);
            all.extend(runs(Workload::Stream, 1, 10_000, many));
            said(Workload::Stream, &all)
        };
        let table = [
            (
                20.0,
                20.2,
                "Linear: each operation costs the same from 1,000 to 10,000 operations, within 5 %.",
            ),
            (
                20.0,
                40.0,
                "Not linear: each operation costs 2.00 times as much with 10,000 operations as \
                 with 1,000, as the number to the power of 0.30.",
            ),
            (
                20.0,
                10.0,
                "Each operation costs less with 10,000 operations than with 1,000 (0.50 times).",
            ),
        ];
        for (few, many, text) in table {
            assert_eq!(pair(few, many), text);
        }
    }

    #[test]
    fn under_six_blocks_nothing_is_decided() {
        let mut all = runs(Workload::Stream, 1, 1_000, 20.0);
        all.extend(runs(Workload::Stream, 1, 10_000, 40.0));
        all.retain(|run| run.block <= 3);
        assert_eq!(
            said(Workload::Stream, &all),
            "Each operation perhaps costs 2.00 times as much with 10,000 operations as with 1,000 \
             (3 usable runs, not tested)."
        );
    }

    #[test]
    fn two_of_n_stand_beside_one_of_twice_n() {
        let mut all = runs(Workload::Stream, 1, 20_000, 20.0);
        all.extend(runs(Workload::Stream, 2, 10_000, 20.1));
        assert_eq!(
            said(Workload::Stream, &all),
            "2 workers of 10,000 on one name, where they wait for each other, take as long as 1 of 20,000."
        );
        for run in all.iter_mut().filter(|p| p.at.workers == Some(2)) {
            run.window.window_s *= 1.5;
        }
        assert!(said(Workload::Stream, &all).contains("take 1.51 times as long as 1 of 20,000"));
    }

    #[test]
    fn disjoint_names_that_wait_for_one_another_are_told() {
        let told = |names: Names, two_us: f64, cpus: u64| {
            let mut all = runs(Workload::Stream, 1, 20_000, 20.0);
            all.extend(runs(Workload::Stream, 2, 10_000, two_us));
            for run in &mut all {
                run.around.machine.cores = cpus;
            }
            let mut experiment = experiment(Workload::Stream);
            experiment.plan.names = Some(names);
            let said = line_of(&experiment, &all, "Growth");
            said.ends_with(
                "disjoint names wait for one another, by a lock or a stripe that they share.",
            )
        };
        assert!(told(Names::Own, 20.1, 2) && told(Names::Own, 30.0, 2));
        // Side by side; on one CPU; on one name, where that is what is measured.
        assert!(!told(Names::Own, 10.0, 2) && !told(Names::Own, 20.1, 1));
        assert!(!told(Names::One, 20.1, 2));
    }

    #[test]
    fn growth_with_the_number_held_shows_within_a_run_and_memory_beside_it() {
        let mut runs = runs(Workload::Hold, 1, 10_000, 5.0);
        for run in &mut runs {
            run.series = (1..=10)
                .map(|tenth| Slice {
                    operations: 1_000,
                    mean_wait_ns: Some(100.0 * f64::from(tenth)),
                    ..Slice::default()
                })
                .collect();
            run.server = Some(Server {
                bytes_per_held_lock: Some(88.4),
                ..Server::default()
            });
        }
        assert_eq!(
            said(Workload::Hold, &runs),
            "Of 10,000 locks the last tenth takes 10.0 times as long to acquire as the first."
        );
        assert_eq!(
            line_of(&experiment(Workload::Hold), &runs, "Memory"),
            "The server's memory for each held lock: 88 bytes (10,000 held)."
        );
    }

    #[test]
    fn of_invalid_figures_nothing_is_said() {
        let mut runs = runs(Workload::Stream, 1, 1_000, 20.0);
        runs.extend(self::runs(Workload::Stream, 1, 10_000, 20.0));
        assert!(said(Workload::Stream, &runs).starts_with("Linear"));
        runs[0].around.errors.insert("EPROTO".to_owned(), 1);
        assert_eq!(said(Workload::Stream, &runs), "");
    }
}
