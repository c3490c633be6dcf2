//! The result file ([`Writer`], [`read`]) and one writer for each output
//! format, each a pure function of [`ResultSet`]s.
//!
//! This crate neither measures nor judges: figures come from the records; summaries
//! and verdicts from `jostle-stats`. It says in words what they mean, and knows no target.
//!
//! A new format is a file with a function and one line in [`FORMATS`], which
//! help, man page and docs walk.

mod benchmarks;
pub mod calibrated;
mod ceilings;
mod checked;
mod closing;
mod columns;
mod command;
pub mod compare;
mod connect;
mod csv;
mod failures;
mod file;
mod footnotes;
pub mod format;
mod gnuplot;
mod grid;
mod headline;
mod hosts;
mod html;
mod intro;
mod json;
pub mod judged;
mod kept;
mod markdown;
mod names;
mod next;
pub mod openmetrics;
mod over;
mod page;
mod porcupine;
mod rate;
mod recover;
mod requests;
mod spread;
mod summary;
mod table;
mod verify;
mod what;
pub mod words;
mod workloads;

#[cfg(test)]
mod agree;
#[cfg(test)]
mod made;
#[cfg(test)]
mod planted;
#[cfg(test)]
mod questions;

pub use command::command;
pub use csv::tidy;
pub use file::{
    FileError, MOST_LINE_BYTES, Writer, lines, name_of, open, read, read_from, read_whole_lines,
};
pub use html::live;
pub use html::{
    MARK, SvgFile, card, compared as html_of_compared, html, judged as html_of_judged, svg_files,
    svg_files_of_judged,
};
pub use table::render_within as table_within;

use jostle_model::record::{
    At, BROKE_OFF, End, Experiment, Fit, Judged, Record, Resumed, Run, Scheduled,
};
use jostle_stats::summary::{PointSummary, summarize};

/// One experiment with everything that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultSet {
    /// The plan, and where it ran.
    pub experiment: Experiment,
    /// Its runs, in the order in which they were made.
    pub runs: Vec<Run>,
    /// How figures grow; where the file holds none, they are made from the
    /// runs.
    pub fits: Vec<Fit>,
    /// The decisions before the first run; absent in files of older versions.
    pub scheduled: Option<Scheduled>,
    /// Where it was resumed after a break, in order.
    pub resumed: Vec<Resumed>,
    /// How it ended; absent where the file stops before.
    pub end: Option<End>,
    /// Notes for a reader of the file, one sentence each.
    pub notes: Vec<String>,
    /// The name of the result file, for tables of several files. The caller that reads the
    /// file sets it.
    pub file: Option<String>,
    /// The user's name for it (`--label`).
    pub label: Option<String>,
}

impl ResultSet {
    /// As measured; [`read`] makes those of files.
    pub fn new(experiment: Experiment, runs: Vec<Run>, end: Option<End>) -> ResultSet {
        ResultSet {
            experiment,
            runs,
            fits: Vec::new(),
            scheduled: None,
            resumed: Vec::new(),
            end,
            notes: Vec::new(),
            file: None,
            label: None,
        }
    }

    /// Whether a point is INVALID over all its runs.
    pub fn is_invalid(&self) -> bool {
        let points = summarize(&self.experiment, &self.runs);
        points.iter().any(|point| point.verdict.is_invalid())
    }

    /// A sentence about an experiment that ended early, with the cause and the extent of
    /// its results; None for a complete one.
    pub fn ended_early(&self) -> Option<String> {
        let why = match &self.end {
            Some(end) => format!("This experiment ended early: {}", end.error.as_ref()?),
            None => "This experiment has no end: jostle or the machine was stopped".to_owned(),
        };
        let finished = self.runs.iter().filter(|run| !broke_off(run));
        let kept = match finished.count() as u64 {
            1 => "1 run was finished".to_owned(),
            n => format!("{} were finished", format::counted(n, "run")),
        };
        let missing = self.not_measured();
        let missing = match missing.len() {
            0 => String::new(),
            more @ 5.. => format!(" Not measured: {more} points."),
            _ => format!(" Not measured: {}.", missing.join(", ")),
        };
        Some(format!("{why}; {kept}.{missing}"))
    }

    /// The points of the plan that have no run because one before them broke off.
    fn not_measured(&self) -> Vec<String> {
        let plan = &self.experiment.plan;
        if !self.runs.iter().any(broke_off) {
            return Vec::new();
        }
        let ats = At::swept(plan);
        let points = plan.targets.iter();
        let points = points.flat_map(|target| ats.iter().map(move |at| (target, at)));
        let has = |(target, at): &(&String, &At)| {
            let mut runs = self.runs.iter();
            runs.any(|run| run.target == **target && run.at == **at)
        };
        let left = points.filter(|point| !has(point));
        left.map(|(target, at)| match compare::place(*at) {
            place if place.is_empty() => target.clone(),
            place => format!("{target} with {place}"),
        })
        .collect()
    }

    /// As a result file has them, in order. The verdicts of the points are made from
    /// their runs.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let judged = summarize(&self.experiment, &self.runs);
        let judged: Vec<Judged> = judged.iter().map(PointSummary::judged).collect();
        let verdicts = judged.into_iter().map(Box::new).map(Record::Verdict);
        let experiment = Record::Experiment(Box::new(self.experiment.clone()));
        let scheduled = self.scheduled.clone().map(Box::new).map(Record::Scheduled);
        let mut resumed = self.resumed.iter().peekable();
        let mut runs = Vec::new();
        for run in &self.runs {
            while let Some(here) = resumed.next_if(|resumed| resumed.block <= run.block) {
                runs.push(Record::Resumed(Box::new(here.clone())));
            }
            runs.push(Record::Run(Box::new(run.clone())));
        }
        runs.extend(resumed.cloned().map(Box::new).map(Record::Resumed));
        let fits = self.fits.iter().cloned().map(Box::new).map(Record::Fit);
        let end = self.end.clone().map(Record::End);
        let records = std::iter::once(experiment)
            .chain(scheduled)
            .chain(runs)
            .chain(verdicts)
            .chain(fits);
        records.chain(end)
    }
}

fn broke_off(run: &Run) -> bool {
    run.around.errors.contains_key(BROKE_OFF)
}

/// One way to print results.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// As typed after `--format`.
    pub name: &'static str,
    /// One line for help and docs.
    pub summary: &'static str,
    /// Whether the text states that an experiment ended early. For the other formats the
    /// caller prints [`ResultSet::ended_early`] separately.
    pub tells_early_end: bool,
    /// The whole text, a newline at its end.
    pub render: fn(&[ResultSet]) -> String,
}

/// Every format, the default first.
pub static FORMATS: &[Format] = &[
    Format {
        name: "table",
        summary: "one row for each point, what to take away, and what to try next",
        tells_early_end: true,
        render: table::render,
    },
    Format {
        name: "gnuplot",
        summary: "lockscale's header and nine columns, from the median run of each point",
        tells_early_end: false,
        render: gnuplot::render,
    },
    Format {
        name: "csv",
        summary: "one row for each point with its verdict and figures; with --tidy one for each run and figure",
        tells_early_end: false,
        render: csv::render,
    },
    Format {
        name: "markdown",
        summary: "the table and its sentences for a page or an issue",
        tells_early_end: true,
        render: markdown::render,
    },
    Format {
        name: "json",
        summary: "the records, one a line, as the result file holds them",
        tells_early_end: false,
        render: json::render,
    },
    Format {
        name: "summary",
        summary: "one JSON document: for each point its figures with intervals, and the verdict",
        tells_early_end: false,
        render: summary::render,
    },
    Format {
        name: "openmetrics",
        summary: "finished points as metrics in OpenMetrics' text, as --metrics serves them",
        tells_early_end: false,
        render: openmetrics::render,
    },
    Format {
        name: "benchstat",
        summary: "a line for each run in the format of Go's benchmarks, for benchstat",
        tells_early_end: false,
        render: benchmarks::benchstat,
    },
    Format {
        name: "github-benchmark",
        summary: "the headline of each point as JSON for github-action-benchmark's custom tools",
        tells_early_end: false,
        render: benchmarks::github,
    },
    Format {
        name: "porcupine",
        summary: "the histories of `recover`, a JSON object a line, for Porcupine",
        tells_early_end: false,
        render: porcupine::render,
    },
];

/// The results in the format of this name; as the first of [`FORMATS`] where
/// there is none.
pub fn render(format: &str, sets: &[ResultSet]) -> String {
    let named = FORMATS.iter().find(|candidate| candidate.name == format);
    (named.unwrap_or(&FORMATS[0]).render)(sets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_format_has_a_name_of_its_own_and_one_line() {
        let names: BTreeSet<_> = FORMATS.iter().map(|format| format.name).collect();
        assert_eq!(names.len(), FORMATS.len());
        for format in FORMATS {
            assert!(!format.summary.is_empty() && !format.summary.contains('\n'));
        }
    }

    #[test]
    fn a_format_tells_that_an_experiment_ended_early_or_leaves_it_to_be_said() {
        let mut cut = made::set();
        cut.end = None;
        cut.runs.truncate(3);
        let said = cut.ended_early().unwrap();
        assert_eq!(made::set().ended_early(), None);
        for format in FORMATS {
            // The table breaks its lines.
            let text = (format.render)(std::slice::from_ref(&cut)).replace('\n', " ");
            assert_eq!(
                text.contains(&said),
                format.tells_early_end,
                "{}",
                format.name
            );
        }
    }

    #[test]
    fn every_format_prints_any_result_and_ends_its_last_line() {
        let empty = ResultSet::new(made::experiment(), Vec::new(), None);
        for sets in [vec![], vec![empty.clone()], vec![made::set(), empty]] {
            for format in FORMATS {
                let text = render(format.name, &sets);
                assert!(text.is_empty() || text.ends_with('\n'), "{}", format.name);
                assert_eq!(text, (format.render)(&sets), "{}", format.name);
            }
        }
    }
}
