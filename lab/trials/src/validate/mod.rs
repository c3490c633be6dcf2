//! `cargo xtask validate SUBJECT`: a truth is planted, many times over, and what
//! jostle's statistics say is held against it. Each row says how often they were
//! right, with the bound that so many trials allow, and what is required.
//!
//! A new subject is a file and a line in [`Subject`]. What a run printed is kept
//! in `record/`.

/// Rows of a table, each as [`Row::counting`] takes it, with a note behind `=>` where it has one;
/// or those that were counted already.
macro_rules! rows {
    ($($what:expr, $trials:expr, $is:expr, $required:expr $(=> $note:expr)?;)+) => {
        vec![$($crate::validate::Row::counting($what, $trials, $is, $required)$(.noting($note))?),+]
    };
    ($($what:literal: $count:expr; of $trials:expr; $required:expr,)+) => {
        vec![$($crate::validate::Row::counted($what, $count as u64, $trials as u64, $required)),+]
    };
}

mod bench;
mod beside;
mod chain;
mod clean;
mod compare;
mod figures;
mod gate;
mod growth;
pub(crate) mod ha;
mod judge;
mod known_bugs;
mod plants;
mod quiet;
mod recover;
mod saturation;
mod sides;
mod situations;
pub(crate) mod store;
mod verify;

use crate::program;
use jostle_model::record::{Accounts, Environment, Run};
use jostle_stats::binomial::bounds;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use store::Store;

#[derive(clap::Subcommand)]
pub(crate) enum Subject {
    /// Curves of known growth: the laws, cliffs, peaks
    Growth {
        /// Curves of each kind
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        seeds: u64,
    },
    /// Pairs of real sessions, kept beside the build: the same thing twice, and a tenth slower
    Compare {
        /// Pairs to collect in all; those that are there count
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        pairs: u32,
        /// Stop collecting after so many seconds; the next call goes on
        #[arg(long, default_value_t = 3600)]
        seconds: u64,
        /// Measure nothing: judge the sessions of this file
        #[arg(long, value_name = "FILE", conflicts_with_all = ["pairs", "seconds"])]
        judge: Option<PathBuf>,
    },
    /// Calls of tool/ci-gate/gate: two equal libraries, and one that is a tenth slower
    Gate {
        #[command(flatten)]
        collect: Collect,
        /// Two workers in place of one: a lock that is contended
        #[arg(long)]
        contended: bool,
    },
    /// Generators that are throttled, starved or stopped, and the same left alone
    Saturation {
        #[command(flatten)]
        collect: Collect,
        /// One trial of each kind: a look
        #[arg(long)]
        quick: bool,
        /// Runs of two fifths of the usual length
        #[arg(long)]
        short: bool,
    },
    /// Foreign load generators that are held back, or whose servers are: what jostle judge says
    Judge {
        #[command(flatten)]
        series: Series,
        /// Runs of half the length
        #[arg(long)]
        short: bool,
    },
    /// Many load generators and servers, each with a limit that is known: what jostle judge says
    JudgeCases {
        #[command(flatten)]
        series: Series,
        #[command(flatten)]
        how: judge::cases::How,
    },
    /// Foreign load generators on an idle machine, twenty runs each: what jostle judge says
    JudgeIdle(Series),
    /// An idle machine: nearly all of it must be VALID (as root)
    Clean {
        #[command(flatten)]
        series: Series,
        /// Points in all, evenly spread over the table of 312
        #[arg(long, default_value_t = 100)]
        points: usize,
    },
    /// The tests that judge figures of this machine, many times over: how often each passes
    Figures {
        /// How often each is run
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
        repeats: u32,
        /// Only tests whose names contain this
        only: Option<String>,
    },
    /// jostle recover beside an observer of the same run that is not jostle
    Recover(Series),
    /// Jostleds on three hosts, to which something happens: who owns what? (as root)
    Ha {
        #[command(flatten)]
        collect: Collect,
        #[command(flatten)]
        how: ha::How,
    },
    /// jostle verify and locks whose bugs are known, each beside its corrected form
    Verify(Series),
    /// Public reports of bugs of others: what jostle answers to each (as root)
    KnownBugs(Series),
    /// Plants from files beside locks, calls and services: does what is printed hold? (as root)
    Beside {
        #[command(flatten)]
        series: Series,
        #[command(flatten)]
        how: beside::How,
    },
    /// Something goes wrong outside of the lock, or inside: does jostle name that cause? (as root)
    Situations {
        #[command(flatten)]
        series: Series,
        #[command(flatten)]
        how: situations::How,
    },
}

/// How a validation that takes long is collected.
#[derive(clap::Args)]
pub(crate) struct Collect {
    /// Stop collecting after so many seconds; the next call goes on
    #[arg(long, default_value_t = 1800)]
    seconds: u64,
    /// Where runs are kept, a line each; those that are there count
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Measure nothing: judge what this file has
    #[arg(long, value_name = "FILE", conflicts_with_all = ["save", "seconds"])]
    judge: Option<PathBuf>,
}

impl Collect {
    /// The collection so far, and the time at which to stop; none to judge what is there.
    fn begin<L: Serialize + DeserializeOwned>(&self) -> anyhow::Result<(Store<L>, Instant)> {
        let now = Instant::now();
        match &self.judge {
            Some(path) => Ok((Store::read(path)?, now)),
            None => {
                let until = now + Duration::from_secs(self.seconds);
                Ok((Store::open(self.save.as_deref())?, until))
            }
        }
    }
}

/// The same, of parts with names.
#[derive(clap::Args)]
pub(crate) struct Series {
    #[command(flatten)]
    collect: Collect,
    /// Only lines, cells or generators whose names contain this
    #[arg(long)]
    only: Option<String>,
    /// This jostle, as it was built already
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Series {
    fn has(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.contains(only))
    }

    fn jostle(&self) -> anyhow::Result<PathBuf> {
        let built = self.program.as_deref().map(Path::to_owned);
        built.map_or_else(program::build, Ok)
    }
}

/// The lines of a table, without its comments: columns, separated by tabs.
pub(crate) fn columns<const N: usize>(
    table: &'static str,
) -> impl Iterator<Item = [&'static str; N]> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let words: Vec<&str> = line.split('\t').collect();
        words.try_into().expect("a line has every column")
    })
}

/// Prints columns of these widths, headings first; negative ones begin at the left.
fn grid(between: &str, widths: &[isize], headings: &str, rows: impl Iterator<Item = Vec<String>>) {
    let headings = headings.split('|').map(str::to_owned).collect();
    for row in std::iter::once(headings).chain(rows) {
        let cells = row.iter().zip(widths).map(|(cell, width)| {
            let size = width.unsigned_abs();
            match width.is_negative() {
                true => format!("{cell:<size$}"),
                false => format!("{cell:>size$}"),
            }
        });
        println!("{}", cells.collect::<Vec<_>>().join(between));
    }
}

/// Where and with which jostle something was measured.
fn machine(environment: &Environment) -> String {
    let (model, kernel) = (&environment.cpu_model, &environment.kernel);
    let (cores, jostle) = (environment.cores, &environment.jostle);
    format!("{model}, {kernel}, {cores} cores, jostle {jostle}")
}

/// Share of the CPU time that a run wanted which the hypervisor took instead.
fn stolen(point: &Run) -> f64 {
    match point.around.accounts.as_deref() {
        Some(Accounts {
            stolen_s: Some(stolen_s),
            between_s,
            cpus,
            ..
        }) => stolen_s / (between_s * *cpus as f64).max(1e-9),
        _ => point.around.machine.steal_share.unwrap_or(0.0),
    }
}

/// Prints a table; fails if a requirement is missed.
pub(crate) fn run(subject: &Subject) -> anyhow::Result<()> {
    let rows = match subject {
        Subject::Growth { seeds } => growth::rows(*seeds),
        Subject::Compare {
            pairs,
            seconds,
            judge,
        } => compare::rows(*pairs, *seconds, judge.as_deref())?,
        Subject::Gate { collect, contended } => gate::rows(collect, *contended)?,
        Subject::Saturation {
            collect,
            quick,
            short,
        } => saturation::rows(collect, *quick, *short)?,
        Subject::Judge { series, short } => judge::rows(series, *short)?,
        Subject::JudgeCases { series, how } => judge::cases::rows(series, *how)?,
        Subject::JudgeIdle(series) => judge::idle::rows(series)?,
        Subject::Clean { series, points } => clean::rows(series, *points)?,
        Subject::Figures { repeats, only } => figures::rows(*repeats, only.as_deref())?,
        Subject::Beside { series, how } => beside::rows(series, how)?,
        Subject::Recover(series) => recover::rows(series)?,
        Subject::Ha { collect, how } => ha::rows(collect, how)?,
        Subject::Verify(series) => verify::rows(series)?,
        Subject::KnownBugs(series) => known_bugs::rows(series)?,
        Subject::Situations { series, how } => situations::rows(series, how)?,
    };
    print(&rows)
}

/// How many of so many trials came out in one way, and what is required of that.
pub(crate) struct Row {
    pub what: String,
    pub count: u64,
    pub trials: u64,
    pub required: Required,
    pub note: String,
}

impl Row {
    /// Those of the trials for which this is so.
    fn counting<T>(
        what: impl Into<String>,
        trials: impl IntoIterator<Item = T>,
        is: impl Fn(&T) -> bool,
        required: Required,
    ) -> Row {
        let trials = trials.into_iter();
        let [count, trials] = trials.fold([0, 0], |[count, all], trial| {
            [count + u64::from(is(&trial)), all + 1]
        });
        Row::counted(what, count, trials, required)
    }

    fn counted(what: impl Into<String>, count: u64, trials: u64, required: Required) -> Row {
        Row {
            what: what.into(),
            count,
            trials,
            required,
            note: String::new(),
        }
    }

    fn noting(self, note: String) -> Row {
        Row { note, ..self }
    }
}

/// The requirement on a share, or on another figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Required {
    AtLeast(f64),
    AtMost(f64),
    /// So many at most of so many trials or more, and no greater share of more.
    AtMostOf {
        most: u64,
        of: u64,
    },
    /// Nothing: printed for comparison.
    Nothing,
}

impl Required {
    /// If none of so many is wrong, surely (95 %) under 1.5 % are.
    const NONE: Required = Required::AtMostOf { most: 0, of: 200 };

    /// If at most two of so many are wrong, surely (95 %) at most 2 % are.
    const FEW: Required = Required::AtMostOf { most: 2, of: 313 };

    /// Whether a figure is as required.
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Required::AtLeast(least) => value >= least,
            Required::AtMost(most) => value <= most,
            Required::AtMostOf { .. } | Required::Nothing => true,
        }
    }

    /// Whether so many trials are enough.
    fn is_enough(self, trials: usize) -> bool {
        match self {
            Required::AtMostOf { of, .. } => trials as u64 >= of,
            _ => true,
        }
    }
}

fn print(rows: &[Row]) -> anyhow::Result<()> {
    let width = rows.iter();
    let width = width.map(|row| row.what.chars().count()).max().unwrap_or(0);
    println!(
        "{:width$}  {:>11}  {:>7}  {:>14}  required  ",
        "", "count", "share", "95 % bounds"
    );
    let mut missed = 0;
    for row in rows {
        let share = row.count as f64 / row.trials.max(1) as f64;
        let [low, high] = bounds(row.count, row.trials);
        let (required, met) = match row.required {
            Required::AtLeast(least) => (format!(">= {:.0} %", 100.0 * least), None),
            Required::AtMost(most) => (format!("<= {:.0} %", 100.0 * most), None),
            Required::AtMostOf { most, of } => {
                let met = row.trials >= of && row.count * of <= most * row.trials;
                (format!("{most} of {of}"), Some(met))
            }
            Required::Nothing => (String::new(), None),
        };
        let met = met.unwrap_or_else(|| row.required.holds(share));
        missed += usize::from(!met);
        let line = format!(
            "{:width$}  {:>11}  {:>5.1} %  {:>5.1} - {:>4.1} %  {:<8}  {}",
            row.what,
            format!("{}/{}", row.count, row.trials),
            100.0 * share,
            100.0 * low,
            100.0 * high,
            required,
            if met { row.note.as_str() } else { "MISSED" },
        );
        println!("{}", line.trim_end());
    }
    match missed {
        0 => Ok(()),
        n => anyhow::bail!("{n} of {} requirements missed", rows.len()),
    }
}
