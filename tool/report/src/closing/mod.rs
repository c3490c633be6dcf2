//! The text below the table: one closing sentence for each target, by the workload's own
//! rules, and the comparison of targets.
//!
//! A sentence uses only figures of the table, or the quotient of two of them, so that a
//! reader can check it. If the data are inconclusive, the sentence states this or is
//! omitted. About INVALID figures it only states that they are INVALID.

pub(crate) mod connect;
pub(crate) mod contend;
pub(crate) mod find;
pub(crate) mod growth;
mod kept;
mod path;
pub(crate) mod rate;
pub(crate) mod recover;
mod requested;
pub(crate) mod spread;

use crate::format::{each_once, range};
use crate::workloads::shown;
use jostle_model::plan::Workload;
use jostle_model::record::{At, Experiment};
use jostle_stats::figures::THROUGHPUT;
use jostle_stats::numbers::workers;
use jostle_stats::ratio::{Outcome, Ratio, by_block};
use jostle_stats::summary::PointSummary;

/// One closing sentence for each target, in the order of the summaries: the
/// target, and the text.
pub(crate) fn sentences(
    experiment: &Experiment,
    points: &[PointSummary<'_>],
) -> Vec<(String, String)> {
    let plan = &experiment.plan;
    (shown(plan.workload).closing)(plan, points)
}

/// Other targets that have a sentence each, at most; more share one.
const EACH: usize = 3;

/// A target's throughput over that of the first.
struct Beside<'a> {
    target: &'a str,
    at: At,
    unit: &'static str,
    ratio: Ratio,
}

/// Each other target against the first, at the largest number of workers that both have, if
/// the paired runs decide: "the same" and "differs" are printed, "undecided" is not.
/// INVALID points are left out; `jostle compare --targets` decides whether their ratios are
/// valid.
pub(crate) fn comparison(points: &[PointSummary<'_>]) -> Vec<String> {
    let targets = targets(points);
    // Connections have no rate to compare; the table has their cost. Requests at a rate all
    // have the same rate.
    let no_rate = [Workload::Connect, Workload::Rate, Workload::Recover];
    if points.iter().any(|point| no_rate.contains(&point.workload)) {
        return Vec::new();
    }
    let Some((first, others)) = targets.split_first() else {
        return Vec::new();
    };
    let others = others.iter();
    let beside: Vec<Beside<'_>> = others
        .filter_map(|other| compare(points, first, other))
        .collect();
    let is_one_place = beside.iter().all(|one| one.at == beside[0].at);
    match beside.len() > EACH && is_one_place {
        true => together(first, &beside).into_iter().collect(),
        false => beside
            .iter()
            .filter_map(|one| one.sentence(first))
            .collect(),
    }
}

fn compare<'a>(points: &[PointSummary<'a>], first: &str, other: &'a str) -> Option<Beside<'a>> {
    let find = |target: &str, at: At| {
        points
            .iter()
            .find(|point| point.target == target && point.at == at)
    };
    let common = points
        .iter()
        .filter(|point| point.target == first && find(other, point.at).is_some());
    let at = common
        .max_by_key(|point| (point.at.workers, point.at.operations, point.at.keys))?
        .at;
    let (base, point) = (find(first, at)?, find(other, at)?);
    if base.verdict.is_invalid() || point.verdict.is_invalid() {
        return None;
    }
    let ratio = by_block(base, point, THROUGHPUT)?;
    let unit = match base.requests {
        Some(_) => "requests",
        None => "locks",
    };
    (ratio.outcome != Outcome::Undecided).then_some(Beside {
        target: other,
        at,
        unit,
        ratio,
    })
}

impl Beside<'_> {
    fn sentence(&self, first: &str) -> Option<String> {
        let (target, unit, ratio) = (self.target, self.unit, &self.ratio);
        let said = match ratio.outcome {
            Outcome::Same => format!("{target} does as many {unit}/s as {first}, within 5 %,"),
            _ => format!(
                "{target} does {:.2} times the {unit}/s of {first}",
                ratio.ratio
            ),
        };
        let place = place_in_words(self.at)?;
        let (low, high, blocks) = (ratio.low, ratio.high, ratio.blocks);
        Some(format!(
            "{said} with {place} ({low:.2} to {high:.2}, 95 %, {blocks} blocks)."
        ))
    }
}

/// `Times the locks/s of flock with 100 workers (95 %, 6 blocks): ofd as many (0.99 to 1.02),
/// sysv 1.31 (1.30 to 1.32).`
fn together(first: &str, beside: &[Beside<'_>]) -> Option<String> {
    let Beside { at, unit, .. } = beside.first()?;
    let blocks = || beside.iter().map(|one| one.ratio.blocks);
    let (least, most) = (blocks().min()?, blocks().max()?);
    let blocks = range(least.to_string(), &most.to_string());
    let each = beside.iter().map(|one| {
        let (target, ratio) = (one.target, &one.ratio);
        let times = match ratio.outcome {
            Outcome::Same => "as many".to_owned(),
            _ => format!("{:.2}", ratio.ratio),
        };
        format!("{target} {times} ({:.2} to {:.2})", ratio.low, ratio.high)
    });
    Some(format!(
        "Times the {unit}/s of {first} with {} (95 %, {blocks} blocks): {}.",
        place_in_words(*at)?,
        each.collect::<Vec<_>>().join(", ")
    ))
}

/// Each once, in order.
fn targets<'a>(points: &[PointSummary<'a>]) -> Vec<&'a str> {
    each_once(points.iter().map(|point| point.target))
}

/// The sentences about each target's points, in the order of the summaries.
pub(crate) fn of_each<'p, 'a>(
    points: &'p [PointSummary<'a>],
    says: impl Fn(&[&'p PointSummary<'a>]) -> Option<String>,
) -> Vec<(String, String)> {
    let said = targets(points).into_iter().filter_map(|target| {
        let of_target = points.iter().filter(|point| point.target == target);
        Some((target.to_owned(), says(&of_target.collect::<Vec<_>>())?))
    });
    said.collect()
}

/// `2 workers`, `2 workers of 10000 operations`.
fn place_in_words(at: At) -> Option<String> {
    let workers = workers(at.workers?);
    Some(match (at.operations, at.keys) {
        (Some(n), _) => format!("{workers} of {n} operations"),
        (None, Some(n)) => format!("{workers} of {n} held locks"),
        (None, None) => workers,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use jostle_stats::fixtures::{Made, experiment, made, queue};
    use jostle_stats::summary::summarize;

    /// The sentences below made runs.
    pub(super) trait Says {
        /// The closing sentence about a target.
        fn says(&self, target: &str) -> String;
        /// How targets compare.
        fn compares(&self) -> Vec<String>;
    }

    impl Says for Made {
        fn says(&self, target: &str) -> String {
            let experiment = experiment();
            let mut said = sentences(&experiment, &summarize(&experiment, &self.runs));
            said.retain(|(name, _)| name == target);
            said.pop().unwrap().1
        }

        fn compares(&self) -> Vec<String> {
            comparison(&summarize(&experiment(), &self.runs))
        }
    }

    #[test]
    fn targets_are_compared_with_the_first_where_it_is_decided() {
        let beside = |throughput: f64| {
            made(6)
                .with("flock", 500.0, 40.0, &queue(10, 472))
                .with("flock", 1000.0, 40.0, &queue(100, 47))
                .with("sysv", 9999.0, 40.0, &queue(10, 472))
                .with("sysv", throughput, 40.0, &queue(100, 47))
                .with("sysv", 1.0, 40.0, &queue(1000, 4)) // flock has no such point
        };
        assert_eq!(
            beside(1310.0).compares(),
            [
                "sysv does 1.31 times the locks/s of flock with 100 workers \
              (1.30 to 1.32, 95 %, 6 blocks)."
            ]
        );
        assert_eq!(
            beside(1020.0).compares(),
            [
                "sysv does as many locks/s as flock, within 5 %, with 100 workers \
              (1.01 to 1.02, 95 %, 6 blocks)."
            ]
        );
        assert_eq!(beside(1050.0).compares(), Vec::<String>::new());
        let mut untested = beside(1310.0);
        untested.runs.retain(|run| run.block <= 5);
        assert_eq!(untested.compares(), Vec::<String>::new());
    }

    /// 14 targets had 13 sentences, each with the same words.
    #[test]
    fn many_targets_are_compared_in_one_sentence() {
        let mut beside = made(6).with("flock", 1000.0, 40.0, &queue(100, 47));
        for (target, throughput) in [("a", 1310.0), ("b", 1000.0), ("c", 500.0), ("d", 2000.0)] {
            beside = beside.with(target, throughput, 40.0, &queue(100, 47));
        }
        let said = beside.compares();
        assert_eq!(said.len(), 1, "{said:?}");
        let start =
            "Times the locks/s of flock with 100 workers (95 %, 6 blocks): a 1.31 (1.30 to 1.3";
        assert!(said[0].starts_with(start), "{said:?}");
        for next in ["), b as many (", "), c 0.50 (", "), d 2.00 ("] {
            assert!(said[0].contains(next), "{said:?}");
        }
    }

    #[test]
    fn nothing_is_compared_with_an_invalid_point() {
        let mut made = made(6).with("flock", 1000.0, 40.0, &queue(100, 47)).with(
            "sysv",
            1310.0,
            40.0,
            &queue(100, 47),
        );
        for run in &mut made.runs {
            run.around.machine.stolen_ticks = 100;
        }
        assert_eq!(made.compares().len(), 0);
        assert!(
            made.says("sysv")
                .starts_with("INVALID with 100 workers: the hypervisor")
        );
    }
}
