//! The content of one experiment for the formats for people, before layout.

use crate::ResultSet;
use crate::ceilings::ceilings;
use crate::checked;
use crate::closing::{Line, find, lead, lines};
use crate::failures::failures;
use crate::grid::Titled;
use crate::headline::{Headline, headline};
use crate::hosts;
use crate::intro::{intro, latencies};
use crate::next::next;
use crate::over::over;
use crate::requests::accounts;
use crate::spread::tables;
use crate::verify;
use crate::what::what;
use jostle_model::plan::Workload;
use jostle_model::record::Fit;
use jostle_stats::fit::{closing, fits, words};
use jostle_stats::summary::{PointSummary, summarize};

/// One experiment, from top to bottom.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// What was done; of several experiments behind when and where, or a label.
    pub what: String,
    /// None where no run was finished.
    pub headline: Option<Headline>,
    /// Sentences about failures, under [`crate::failures::FAILURES`].
    pub failures: Vec<String>,
    /// Below the headline: what was asked for beside it, and what only `-v` and the page show.
    pub tables: Vec<Titled>,
    /// The answers.
    pub lines: Vec<Line>,
    /// The answer that is the title, and whether it tells what was found.
    pub lead: Option<(String, bool)>,
    /// That it ended early, and why.
    pub ended: Option<String>,
    /// On what machine, and how it was measured.
    pub measured: String,
    /// The cost of measuring and what else `-v` adds.
    pub details: String,
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
            page.what = format!("{when} on {host}: {}", page.what);
        }
    }
    for (page, set) in pages.iter_mut().zip(sets) {
        if let Some(label) = &set.label {
            page.what = format!("{label}: {}", page.what);
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
    tables.extend(find::table(&set.experiment.plan, &points));
    tables.extend(verify::tables(set));
    let lines = lines(set, &points);
    let lead = lead(set, &points, &lines);
    Page {
        what: what(&set.experiment.plan),
        failures: failures(&points),
        tables,
        headline,
        lines,
        lead: lead.map(|lead| (lead.text, lead.is_finding)),
        ended: set.ended_early(),
        measured: intro(set, &points),
        details: details(set, &points),
        next: next(set, &points),
    }
}

/// One paragraph.
fn details(set: &ResultSet, points: &[PointSummary<'_>]) -> String {
    if points.is_empty() {
        return String::new();
    }
    let known = set.experiment.calibration.latencies.as_ref();
    let mut said: Vec<String> = known.map(latencies).into_iter().collect();
    said.extend(checked::details(set, points));
    // The laws of connections, and what a law would take.
    let is_connect = set.experiment.plan.workload == Workload::Connect;
    for (name, text) in closing(&growth(set, points)) {
        match name.is_empty() {
            true => said.push(text),
            false if is_connect => said.push(format!("{name}: {text}")),
            false => {}
        }
    }
    ceilings(set) + &said.join(" ")
}

/// The fits of the file, their sentences made anew. They are computed from the points if the file
/// has none, because the experiment was cut short, or if a point is INVALID, because older
/// versions included such points.
pub(crate) fn growth(set: &ResultSet, points: &[PointSummary<'_>]) -> Vec<Fit> {
    let invalid = points.iter().any(|point| point.verdict.is_invalid());
    if set.fits.is_empty() || invalid {
        return fits(&set.experiment, points);
    }
    let mut fits = set.fits.clone();
    for fit in &mut fits {
        fit.text = words::sentence(&set.experiment.plan, fit);
        fit.text += &words::peak(fit);
    }
    fits
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
    fn only_of_several_each_says_where_it_ran() {
        let one = pages(&[made::set()]);
        assert!(
            one[0]
                .what
                .starts_with("jostle contend flock sysv: 10 and 1,000 processes compete")
        );
        let two = pages(&[made::set(), made::counts_only()]);
        for page in two {
            assert!(
                page.what
                    .starts_with("2026-11-21T00:00:00Z on reef: jostle contend ")
            );
        }
    }
}
