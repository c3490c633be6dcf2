//! The content of one experiment for the formats for people, before layout.

use crate::ResultSet;
use crate::ceilings::ceilings;
use crate::checked::checked;
use crate::closing::{self, comparison, sentences};
use crate::failures::failures;
use crate::finding::findings;
use crate::grid::Titled;
use crate::headline::{Headline, headline};
use crate::hosts;
use crate::intro::intro;
use crate::next::next;
use crate::over::over;
use crate::requests::accounts;
use crate::spread::tables;
use jostle_model::plan::Workload;
use jostle_model::record::Fit;
use jostle_stats::fit::{self, fits};
use jostle_stats::summary::{PointSummary, summarize};
use std::borrow::Cow;

/// One experiment, from top to bottom.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// On what machine, and how it was measured.
    pub intro: String,
    /// None where no run was finished.
    pub headline: Option<Headline>,
    /// Sentences about failures, under [`crate::failures::FAILURES`].
    pub failures: Vec<String>,
    /// Below the headline: of requests that were spread, of several hosts, of wall time and CPU
    /// of requests, of the shares of `--over`, and the steps of `--find`.
    pub tables: Vec<Titled>,
    /// The differences between several targets, the most important first.
    pub findings: Vec<String>,
    /// Whether they tell what was found, not why nothing is decided.
    pub is_decided: bool,
    /// For each target what to take away.
    pub sentences: Vec<(String, String)>,
    /// Targets beside the first one.
    pub comparisons: Vec<String>,
    /// How the figures of each target grow.
    pub growth: Vec<(String, String)>,
    /// That it ended early, and why.
    pub ended: Option<String>,
    /// The checks made, and the cost of the measuring.
    pub checked: Option<String>,
    /// A command worth typing.
    pub next: String,
}

/// One page for each experiment; of several each says when and where it ran. A label
/// stands before it.
pub(crate) fn pages(sets: &[ResultSet]) -> Vec<Page> {
    let mut pages: Vec<Page> = sets.iter().map(page).collect();
    if sets.len() > 1 {
        for (page, set) in pages.iter_mut().zip(sets) {
            let (when, host) = (&set.experiment.started_at, &set.experiment.environment.host);
            page.intro = format!("{when} on {host}: {}", page.intro);
        }
    }
    for (page, set) in pages.iter_mut().zip(sets) {
        if let Some(label) = &set.label {
            page.intro = format!("{label}: {}", page.intro);
        }
    }
    pages
}

fn page(set: &ResultSet) -> Page {
    let points = summarize(&set.experiment, &set.runs);
    let times = &set.experiment.plan.over();
    let headline = headline(&points);
    let notes = headline.as_ref().map_or(&[][..], |table| &table.notes);
    let mut tables = tables(times, &points);
    tables.extend(hosts::table(&set.experiment, &points, notes));
    // Requests that were spread have tables of their own.
    let is_spread = set.experiment.plan.workload == Workload::Spread;
    tables.extend(accounts(&points).filter(|_| !is_spread));
    tables.extend(over(times, &points));
    tables.extend(closing::find::table(&set.experiment.plan, &points));
    let found = findings(set, &points);
    let mut sentences = merged(sentences(&set.experiment, &points), &points);
    // The finding has the reason then.
    let all_invalid = points.iter().all(|point| point.verdict.is_invalid());
    sentences.retain(|(_, text)| !(all_invalid && text.starts_with("INVALID")));
    Page {
        intro: intro(set, &points),
        failures: failures(&points),
        tables,
        headline,
        findings: found.sentences,
        is_decided: found.is_decided,
        sentences,
        comparisons: comparison(&points),
        growth: fit::closing(&growth(set, &points)),
        ended: set.ended_early(),
        checked: (!points.is_empty()).then(|| ceilings(set) + &checked(set, &points)),
        next: next(set, &points),
    }
}

/// Targets named before a sentence that they share, at most; the others are counted.
const SHARING: usize = 3;

/// A sentence that is true of several targets once, under their names. The notes of the table
/// have the reasons for INVALID, so that several targets with the same one are counted.
fn merged(sentences: Vec<(String, String)>, points: &[PointSummary<'_>]) -> Vec<(String, String)> {
    let why = |target: &str| {
        let mut of_it = points.iter().filter(|point| point.target == target);
        of_it.find_map(|point| Some(point.verdict.why_invalid()?.check.as_str()))
    };
    let mut all: Vec<(Vec<String>, Option<&str>, String)> = Vec::new();
    for (target, text) in sentences {
        let check = text.starts_with("INVALID").then(|| why(&target)).flatten();
        let same =
            |other: &Option<&str>, said: &str| said == text || (check.is_some() && *other == check);
        match all.iter_mut().find(|(_, other, said)| same(other, said)) {
            Some((targets, ..)) if !target.is_empty() => targets.push(target),
            _ => all.push((vec![target], check, text)),
        }
    }
    let named = all.into_iter().map(|(targets, check, text)| {
        let text = match check {
            Some(check) if targets.len() > 1 => invalid_of(&targets, check, points),
            _ => text,
        };
        let more = targets.len().saturating_sub(SHARING);
        let named = targets[..targets.len() - more].join(", ");
        match more {
            0 => (named, text),
            more => (format!("{named} and {more} more"), text),
        }
    });
    named.collect()
}

/// How many points of these targets are INVALID by this check.
fn invalid_of(targets: &[String], check: &str, points: &[PointSummary<'_>]) -> String {
    let of_them = points
        .iter()
        .filter(|point| targets.iter().any(|t| t == point.target));
    let of_them: Vec<_> = of_them.collect();
    let by = of_them.iter().filter(|point| {
        let why = point.verdict.why_invalid();
        why.is_some_and(|reason| reason.check == check)
    });
    format!(
        "INVALID ({check}): {} of {} points.",
        by.count(),
        of_them.len()
    )
}

/// The fits of the file. They are computed from the points if the file has none, because
/// the experiment was cut short, or if a point is INVALID, because older versions included
/// such points.
pub(crate) fn growth<'a>(set: &'a ResultSet, points: &[PointSummary<'_>]) -> Cow<'a, [Fit]> {
    let invalid = points.iter().any(|point| point.verdict.is_invalid());
    match set.fits.is_empty() || invalid {
        true => Cow::Owned(fits(&set.experiment, points)),
        false => Cow::Borrowed(&set.fits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use jostle_model::List;
    use jostle_model::record::{BROKE_OFF, End};

    #[test]
    fn an_early_end_is_said() {
        let mut set = made::set();
        assert_eq!(page(&set).ended, None);
        set.end = None;
        assert_eq!(
            page(&set).ended.unwrap(),
            "This experiment has no end: jostle or the machine was stopped; 24 runs were finished."
        );
        set.runs.truncate(1);
        set.end = Some(End {
            exit: 130,
            error: Some("interrupted".to_owned()),
            elapsed_s: 7.0,
        });
        assert_eq!(
            page(&set).ended.unwrap(),
            "This experiment ended early: interrupted; 1 run was finished."
        );
    }

    #[test]
    fn points_that_a_broken_run_left_out_are_named() {
        let mut set = made::set();
        set.experiment.plan.workers = Some(List(vec![10, 200]));
        set.runs
            .retain(|run| run.at.workers == Some(10) && run.target == "flock");
        set.end.as_mut().unwrap().error = Some("redis: NOAUTH".to_owned());
        let kept = set.runs.len();
        let ended = |set: &ResultSet| page(set).ended.unwrap();
        assert!(!ended(&set).contains("Not measured"), "{}", ended(&set));
        let last = set.runs.last_mut().unwrap();
        last.around.errors = [(BROKE_OFF.to_owned(), 1)].into();
        let text = format!(
            "This experiment ended early: redis: NOAUTH; {} runs were finished. Not measured: flock \
             with 200 workers, sysv with 10 workers, sysv with 200 workers.",
            kept - 1
        );
        assert_eq!(ended(&set), text);
    }

    #[test]
    fn a_sentence_of_several_targets_stands_once() {
        let of = |all: &[(&str, &str)]| {
            let all = all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
            merged(all.collect(), &[])
        };
        let all = ["a", "b", "c", "d", "e"].map(|target| (target, "holds to 10."));
        let expected = ("a, b, c and 2 more".to_owned(), "holds to 10.".to_owned());
        assert_eq!(of(&all), [expected]);
        // Other figures are other findings.
        let two = [
            ("a", "holds to 10."),
            ("b", "holds to 20."),
            ("c", "holds to 10."),
        ];
        assert_eq!(of(&two)[0], ("a, c".to_owned(), "holds to 10.".to_owned()));
        assert_eq!(of(&two).len(), 2);
    }

    #[test]
    fn targets_that_are_invalid_for_one_reason_are_counted() {
        let mut set = made::set();
        for run in set.runs.iter_mut().filter(|p| p.at.workers == Some(10)) {
            run.around.machine.stolen_ticks = 1000;
        }
        let said = page(&set).sentences;
        let [(targets, text)] = &said[..] else {
            panic!("{said:?}")
        };
        assert_eq!(targets, "flock, sysv");
        assert_eq!(text, "INVALID (steal): 2 of 4 points.");
    }

    #[test]
    fn only_of_several_each_says_where_it_ran() {
        let one = pages(&[made::set()]);
        assert!(one[0].intro.starts_with("2 cores, "));
        let two = pages(&[made::set(), made::counts_only()]);
        for page in two {
            assert!(
                page.intro
                    .starts_with("2026-11-21T00:00:00Z on reef: 2 cores, ")
            );
        }
    }
}
