//! The differences between the targets of an experiment, or the finding about its only one: the
//! first sentence of a result, and the title of its page.
//!
//! A target stands before another only where runs of the same blocks decide it
//! ([`jostle_stats::comparison`]), at one point that both have. INVALID points take no part.
//! The sentences are ordered by how far the first and the last target lie apart.

mod alone;

use crate::ResultSet;
use crate::closing::contend::way_of_service;
use crate::closing::find;
use crate::compare::place;
use crate::format::{counted, grouped, significant, time};
use crate::requests::short;
use jostle_model::plan::{Shape, Workload};
use jostle_model::record::At;
use jostle_stats::comparison::{Change, Compared, How, compare_figure};
use jostle_stats::figures::{Better, FIGURES, Figure, Fold, Over, THROUGHPUT};
use jostle_stats::ratio::{self, Outcome};
use jostle_stats::summary::PointSummary;

/// Sentences, at most.
const SENTENCES: usize = 2;

/// Groups of targets that a sentence names, at most; those between are counted.
const GROUPS: usize = 4;

/// Targets of a group that a sentence names, at most; the table has all.
const NAMED: usize = 3;

/// Blocks without which no pair of targets has an interval.
const FEWEST: usize = 6;

/// The threshold of `compare`.
const WITHIN: f64 = 0.05;

fn rate(per_s: f64, point: &PointSummary<'_>) -> String {
    format!("{} {}s/s", significant(per_s, 3), noun(point))
}

fn turns(point: &PointSummary<'_>) -> String {
    let shares = point.per_worker.unwrap_or_default();
    format!(
        "{} to {} turns for each worker",
        grouped(shares.min),
        grouped(shares.max)
    )
}

fn cpu(us: f64, point: &PointSummary<'_>) -> String {
    format!("{} per {}", time(1e3 * us), noun(point))
}

fn noun(point: &PointSummary<'_>) -> &'static str {
    match (point.requests.is_some(), point.workload) {
        (true, _) => "request",
        (_, Workload::Contend | Workload::Churn) => "lock",
        _ => "operation",
    }
}

/// A figure as its ranking has it.
fn printed(figure: &Figure, value: f64, point: &PointSummary<'_>) -> String {
    match figure.unit {
        "per_s" => rate(value, point),
        "ns" => time(value),
        "index" => turns(point),
        _ => cpu(value, point),
    }
}

/// One target's figure.
struct Ranked<'p, 'a> {
    point: &'p PointSummary<'a>,
    value: f64,
}

/// Targets in groups, the best first: each of a group is decidedly better than each of the
/// groups behind it that it was compared with.
struct Ranking<'p, 'a> {
    figure: &'static Figure,
    groups: Vec<Vec<Ranked<'p, 'a>>>,
}

/// The findings about the targets of a result.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// The sentences, the first of which is the title.
    pub sentences: Vec<String>,
    /// How the title of the figure begins that shows the first; empty of none.
    pub figure: &'static str,
    /// Whether the first tells what was found, not why nothing is decided.
    pub is_decided: bool,
}

impl Findings {
    fn decided(sentences: Vec<String>) -> Findings {
        Findings {
            sentences,
            figure: "",
            is_decided: true,
        }
    }
}

/// The differences between the targets, or why there are none; first that one of them does not
/// exclude.
pub(crate) fn findings(set: &ResultSet, points: &[PointSummary<'_>]) -> Findings {
    let found = ranked(set, points);
    let is_told = |broken: &String| found.sentences.first() != Some(broken);
    let Some(broken) = alone::broken(points).filter(is_told) else {
        return found;
    };
    let ranked = found.sentences.into_iter().filter(|_| found.is_decided);
    let sentences = std::iter::once(broken).chain(ranked);
    Findings::decided(sentences.take(SENTENCES).collect())
}

fn ranked(set: &ResultSet, points: &[PointSummary<'_>]) -> Findings {
    let undecided = |why: &str| Findings {
        sentences: vec![undecided(points, why)],
        ..Findings::default()
    };
    let Some(first) = points.first() else {
        return Findings::default();
    };
    let searched = find::findings(&set.experiment.plan, points);
    if !searched.is_empty() {
        return Findings::decided(searched);
    }
    if points.iter().all(|point| point.target == first.target) {
        return match alone::finding(points) {
            Some(sentence) => Findings::decided(vec![sentence]),
            // Its sentences begin with the jump, or with what one connection costs.
            None if first.workload.shape() == Shape::Connect
                && points.iter().any(PointSummary::is_usable) =>
            {
                Findings::default()
            }
            None => undecided(""),
        };
    }
    let usable: Vec<&PointSummary<'_>> = points.iter().filter(|point| point.is_usable()).collect();
    let Some(at) = common(&usable) else {
        return undecided("");
    };
    let beside: Vec<&PointSummary<'_>> = usable.into_iter().filter(|p| p.at == at).collect();
    let mut why = String::new();
    let ranked = FIGURES.iter().filter(|of| !of.best.is_empty());
    let mut figures: Vec<_> = ranked.filter(|of| is_of(of, beside[0].workload)).collect();
    // Why nothing is decided, what was to be done says before what it cost.
    figures.sort_by_key(|of| of.over == Over::Undisturbed);
    let rankings = figures.into_iter();
    let mut rankings: Vec<Ranking<'_, '_>> = rankings
        .filter_map(|figure| ranking(set, figure, &beside, &mut why))
        .collect();
    rankings.sort_by(|one, other| other.apart().total_cmp(&one.apart()));
    rankings.truncate(SENTENCES);
    let runs = beside.iter().map(|point| point.runs.len()).min();
    let undecided = |why: &str| match ways(set, &beside) {
        Some(ways) => {
            let why = format!("{ways}; which is faster is not decided: {why}.");
            Findings::decided(vec![why])
        }
        None => undecided(why),
    };
    match (rankings.first(), runs) {
        (Some(first), _) => Findings {
            figure: first.figure.lead,
            ..Findings::decided(rankings.iter().map(|one| one.sentence(at)).collect())
        },
        (None, Some(runs)) if runs < FEWEST => {
            let runs = counted(runs as u64, "run");
            undecided(&format!(
                "{runs} of each target, and an order takes {FEWEST} (--runs 12)"
            ))
        }
        (None, _) => undecided(&why),
    }
}

/// `sysv serves its waiters in order, flock and ofd as by a lottery`, where each target's is
/// known by itself, and they differ.
fn ways(set: &ResultSet, points: &[&PointSummary<'_>]) -> Option<String> {
    let mut ways: Vec<(&str, Vec<String>)> = Vec::new();
    for point in points {
        let way = way_of_service(&set.experiment.plan, point)?;
        let target = short(point.target);
        match ways.iter_mut().find(|(known, _)| *known == way) {
            Some((_, targets)) => targets.push(target),
            None => ways.push((way, vec![target])),
        }
    }
    let [(way, first), rest @ ..] = &ways[..] else {
        return None;
    };
    let (verb, whose) = match first.len() {
        1 => ("serves", "its"),
        _ => ("serve", "their"),
    };
    let rest = rest
        .iter()
        .map(|(way, names)| format!(", {} {way}", listed(names)));
    let rest: String = rest.collect();
    (!rest.is_empty()).then(|| format!("{} {verb} {whose} waiters {way}{rest}", listed(first)))
}

/// All rates of `rate` are reached until they are not, and those of `recover` and `connect`
/// are no figures.
fn is_of(figure: &Figure, workload: Workload) -> bool {
    let rated = !matches!(
        workload,
        Workload::Rate | Workload::Recover | Workload::Connect
    );
    figure.name != THROUGHPUT.name || rated
}

/// The point that most targets have, of these the one with the most load; None where no two
/// have the same.
fn common(points: &[&PointSummary<'_>]) -> Option<At> {
    let have = |at: At| points.iter().filter(|point| point.at == at).count();
    let most = points
        .iter()
        .max_by_key(|point| (have(point.at), load(point.at)))?
        .at;
    (have(most) > 1).then_some(most)
}

/// How much is asked for at a point; greater is more.
fn load(at: At) -> At {
    At {
        listeners: None,
        sources: None,
        fault: None,
        ..at
    }
}

/// None where no two targets are told apart by this figure; then `why` has a reason.
fn ranking<'p, 'a>(
    set: &ResultSet,
    figure: &'static Figure,
    points: &[&'p PointSummary<'a>],
    why: &mut String,
) -> Option<Ranking<'p, 'a>> {
    // Generators that could do no more say nothing of their servers.
    let known = points.iter().filter(|point| !point.is_of_generators());
    let known = known.filter_map(|point| {
        let value = value(set, figure, point)?;
        Some(Ranked { point, value })
    });
    let mut ranked: Vec<Ranked<'p, 'a>> = known.collect();
    ranked.sort_by(|one, other| match figure.better {
        Better::More => other.value.total_cmp(&one.value),
        Better::Less => one.value.total_cmp(&other.value),
    });
    let mut groups: Vec<Vec<Ranked<'p, 'a>>> = Vec::new();
    for next in ranked {
        let behind = |before: &Ranked<'p, 'a>| match decided(set, figure, before.point, next.point)
        {
            Ok(is_worse) => is_worse,
            Err(reason) => {
                if why.is_empty() {
                    *why = reason;
                }
                false
            }
        };
        match groups.last_mut() {
            Some(group) if !group.iter().all(behind) => group.push(next),
            _ => groups.push(vec![next]),
        }
    }
    (groups.len() > 1).then_some(Ranking { figure, groups })
}

fn compared(
    set: &ResultSet,
    figure: &'static Figure,
    base: &PointSummary<'_>,
    new: &PointSummary<'_>,
) -> Option<Compared> {
    let how = How {
        within: WITHIN,
        all: true,
        paired: true,
    };
    compare_figure(&set.experiment.plan, figure, base, new, how)
}

fn value(set: &ResultSet, figure: &'static Figure, point: &PointSummary<'_>) -> Option<f64> {
    match figure.fold {
        Fold::OneRun => {
            (figure.of)(point.timed.first()?)?;
            Some(point.per_worker?.jain)
        }
        _ => Some(compared(set, figure, point, point)?.base),
    }
}

/// Whether the second is decidedly worse than the first.
///
/// # Errors
/// Why that is undecided; empty where both are the same.
fn decided(
    set: &ResultSet,
    figure: &'static Figure,
    first: &PointSummary<'_>,
    second: &PointSummary<'_>,
) -> Result<bool, String> {
    if figure.fold == Fold::OneRun {
        let of = |point: &PointSummary<'_>, block: u32| {
            let run = point.timed.iter().find(|run| run.block == block)?;
            (figure.of)(run)
        };
        let pairs = first
            .timed
            .iter()
            .filter_map(|run| Some(((figure.of)(run)?, of(second, run.block)?)));
        let ratio = ratio::paired(&pairs.collect::<Vec<_>>());
        return Ok(
            ratio.is_some_and(|ratio| ratio.outcome == Outcome::Differs && ratio.ratio < 1.0)
        );
    }
    let Some(compared) = compared(set, figure, first, second) else {
        return Ok(false);
    };
    match compared.said {
        Change::Worse => Ok(true),
        Change::Undecided => Err(compared.why.unwrap_or_default()),
        Change::Better | Change::Same => Ok(false),
    }
}

impl Ranking<'_, '_> {
    /// How far the first and the last lie apart, as the logarithm of their ratio.
    fn apart(&self) -> f64 {
        let end = |group: Option<&Vec<Ranked<'_, '_>>>| group.map_or(1.0, |group| group[0].value);
        (end(self.groups.first()) / end(self.groups.last()))
            .ln()
            .abs()
    }

    /// `lockd is the fastest with 40,782 operations/s, before redis with 13,351 operations/s (2 workers).`
    fn sentence(&self, at: At) -> String {
        let verb = if self.groups[0].len() > 1 {
            "are"
        } else {
            "is"
        };
        let best = self.figure.best;
        let (names, values) = self.group(&self.groups[0]);
        let mut behind: Vec<String> = Vec::new();
        let rest = &self.groups[1..];
        for (nth, group) in rest.iter().enumerate() {
            let named = rest.len() < GROUPS || nth + 2 < GROUPS || nth + 1 == rest.len();
            let (names, values) = self.group(group);
            match named {
                true => behind.push(format!("{names} with {values}")),
                false if nth + 2 == GROUPS => {
                    let others = rest[nth..rest.len() - 1]
                        .iter()
                        .map(Vec::len)
                        .sum::<usize>();
                    behind.push(format!("{} more", counted(others as u64, "target")));
                }
                false => {}
            }
        }
        let place = match place(at).as_str() {
            "" => String::new(),
            place => format!(" ({place})"),
        };
        format!(
            "{names} {verb} the {best} with {values}, before {}{place}.",
            listed(&behind)
        )
    }

    fn group(&self, group: &[Ranked<'_, '_>]) -> (String, String) {
        let mut names: Vec<String> = group.iter().map(|one| short(one.point.target)).collect();
        if names.len() > NAMED {
            let more = format!("{} more", names.len() + 1 - NAMED);
            names.splice(NAMED - 1.., [more]);
        }
        let values = group
            .iter()
            .map(|one| printed(self.figure, one.value, one.point));
        let mut values: Vec<String> = values.collect();
        values.dedup();
        let values = match &values[..] {
            [first, _, .., last] => format!("between {first} and {last}"),
            few => listed(few),
        };
        (listed(&names), values)
    }
}

/// `a`, `a and b`, `a, b and c`.
fn listed(parts: &[String]) -> String {
    joined(parts, "and")
}

/// `a`, `a WORD b`, `a, b WORD c`.
fn joined(parts: &[String], word: &str) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} {word} {last}", most.join(", ")),
    }
}

/// Why nothing tells the targets apart.
fn undecided(points: &[PointSummary<'_>], why: &str) -> String {
    let invalid = points.iter().filter(|point| point.verdict.is_invalid());
    let invalid: Vec<_> = invalid
        .filter_map(|point| point.verdict.why_invalid())
        .collect();
    let why = match (invalid.first(), why) {
        (Some(reason), "") => {
            let (few, all) = (invalid.len(), points.len());
            format!("{few} of {all} points are INVALID: {}", reason.text)
        }
        (None, "") => "no figure differs by more than 5 %".to_owned(),
        (_, why) => why.to_owned(),
    };
    format!("Nothing is decided: {}.", why.trim_end_matches(['.', '?']))
}

#[cfg(test)]
mod tests;
