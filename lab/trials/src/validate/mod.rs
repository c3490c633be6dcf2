//! `cargo xtask validate SUBJECT`: a truth is planted, many times over, and what
//! jostle's statistics say is held against it. Each row says how often they were
//! right, with the bound that so many trials allow, and what is required.
//!
//! A new subject is a file and a line in [`Subject`]. What a run printed is kept
//! in `record/`.

mod beside;
mod clean;
mod compare;
mod figures;
mod gate;
mod growth;
mod judge;
mod quiet;
mod recover;
mod saturation;
mod store;

use jostle_model::record::{Accounts, Run};
use jostle_stats::binomial::bounds;
use std::path::PathBuf;

#[derive(clap::Subcommand)]
pub(crate) enum Subject {
    /// Curves of known growth: the laws, cliffs, peaks
    Growth {
        /// Curves of each kind
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        seeds: u64,
    },
    /// Pairs of real sessions: the same thing twice, and a tenth slower
    Compare {
        /// Pairs to collect in all; those that are there count
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        pairs: u32,
        /// Stop collecting after so many seconds; the next call goes on
        #[arg(long, default_value_t = 3600)]
        seconds: u64,
        /// Where sessions are kept [default: validate/compare beside the build]
        #[arg(long)]
        directory: Option<std::path::PathBuf>,
        /// Measure nothing: judge the sessions of this file
        #[arg(long, value_name = "FILE", conflicts_with_all = ["pairs", "seconds", "directory"])]
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
        /// Stop collecting after so many seconds; the next call goes on
        #[arg(long, default_value_t = 1800)]
        seconds: u64,
        /// Where runs are kept, a line each; those that are there count
        #[arg(long, value_name = "FILE")]
        save: Option<std::path::PathBuf>,
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
        generators: Generators,
        /// Runs of half the length
        #[arg(long)]
        short: bool,
    },
    /// Many load generators and servers, each with a limit that is known: what jostle judge says
    JudgeCases {
        #[command(flatten)]
        generators: Generators,
        #[command(flatten)]
        how: judge::cases::How,
    },
    /// Foreign load generators on an idle machine, twenty runs each: what jostle judge says
    JudgeIdle(Generators),
    /// Foreign load generators with and without jostle judge: what watching costs
    JudgeCost(Generators),
    /// An idle machine: nearly all of it must be VALID (as root)
    Clean {
        #[command(flatten)]
        collect: Collect,
        /// Points in all, evenly spread over the table of 312
        #[arg(long, default_value_t = 100)]
        points: usize,
        /// Idle CPUs of a virtual machine that halt at once, and that poll first
        /// (guest_halt_poll_ns 0 and 200000, as root; restored at the end)
        #[arg(long)]
        both_halt_settings: bool,
        /// This jostle, as it was built already
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
        /// Only lines whose names contain this
        #[arg(long)]
        only: Option<String>,
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
    Recover {
        #[command(flatten)]
        collect: Collect,
        /// This jostle, as it was built already
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
        /// Only cells whose names contain this
        #[arg(long)]
        only: Option<String>,
    },
    /// Programs, kernel threads, interrupts beside locks and a service: does what is printed hold?
    Beside {
        #[command(flatten)]
        collect: Collect,
        /// This jostle, as it was built already
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
        /// Only cells whose names contain this
        #[arg(long)]
        only: Option<String>,
    },
}

/// How runs of load generators are collected.
#[derive(clap::Args)]
pub(crate) struct Generators {
    #[command(flatten)]
    collect: Collect,
    /// Only generators whose names contain this
    #[arg(long)]
    only: Option<String>,
    /// This jostle, as it was built already
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Generators {
    fn wanted(&self, short: bool) -> judge::Wanted<'_> {
        judge::Wanted {
            seconds: self.collect.seconds,
            save: self.collect.save.as_deref(),
            judge: self.collect.judge.as_deref(),
            only: self.only.as_deref(),
            short,
            program: self.program.as_deref(),
        }
    }
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

/// Share of the CPU time that a run wanted which the hypervisor took instead.
fn stolen(point: &Run) -> f64 {
    match point.accounts.as_deref() {
        Some(Accounts {
            stolen_s: Some(stolen_s),
            between_s,
            cpus,
            ..
        }) => stolen_s / (between_s * *cpus as f64).max(1e-9),
        _ => point.machine.steal_share.unwrap_or(0.0),
    }
}

/// Prints a table; fails if a requirement is missed.
pub(crate) fn run(subject: &Subject) -> anyhow::Result<()> {
    let rows = match subject {
        Subject::Growth { seeds } => growth::rows(*seeds),
        Subject::Compare {
            pairs,
            seconds,
            directory,
            judge,
        } => compare::rows(&compare::Wanted {
            pairs: *pairs,
            seconds: *seconds,
            directory: directory.as_deref(),
            judge: judge.as_deref(),
        })?,
        Subject::Gate { collect, contended } => gate::rows(&gate::Wanted {
            seconds: collect.seconds,
            save: collect.save.as_deref(),
            judge: collect.judge.as_deref(),
            contended: *contended,
        })?,
        Subject::Saturation {
            seconds,
            save,
            quick,
            short,
        } => {
            let length = match short {
                true => saturation::Length::Short,
                false => saturation::Length::Usual,
            };
            saturation::rows(*seconds, save.as_deref(), *quick, length)?
        }
        Subject::Judge { generators, short } => judge::rows(&generators.wanted(*short))?,
        Subject::JudgeCases { generators, how } => {
            judge::cases::rows(&generators.wanted(false), *how)?
        }
        Subject::JudgeIdle(generators) => judge::idle::rows(&generators.wanted(false))?,
        Subject::JudgeCost(generators) => judge::cost::rows(&generators.wanted(false))?,
        Subject::Clean {
            collect,
            points,
            both_halt_settings,
            program,
            only,
        } => clean::rows(&clean::Wanted {
            seconds: collect.seconds,
            points: *points,
            save: collect.save.as_deref(),
            judge: collect.judge.as_deref(),
            both: *both_halt_settings,
            program: program.as_deref(),
            only: only.as_deref(),
        })?,
        Subject::Figures { repeats, only } => figures::rows(*repeats, only.as_deref())?,
        Subject::Beside {
            collect,
            program,
            only,
        } => beside::rows(collect, program.as_deref(), only.as_deref())?,
        Subject::Recover {
            collect,
            program,
            only,
        } => recover::rows(collect, program.as_deref(), only.as_deref())?,
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

#[derive(Clone, Copy)]
pub(crate) enum Required {
    /// A share of the trials, at least.
    AtLeast(f64),
    /// A share of the trials, at most.
    AtMost(f64),
    /// So many at most of so many trials or more, and no greater share of more.
    AtMostOf {
        most: u64,
        of: u64,
    },
    Nothing,
}

fn print(rows: &[Row]) -> anyhow::Result<()> {
    let width = rows
        .iter()
        .map(|row| row.what.chars().count())
        .max()
        .unwrap_or(0);
    println!(
        "{:width$}  {:>11}  {:>7}  {:>14}  required  ",
        "", "count", "share", "95 % bounds"
    );
    let mut missed = 0;
    for row in rows {
        let share = row.count as f64 / row.trials.max(1) as f64;
        let [low, high] = bounds(row.count, row.trials);
        let (required, met) = match row.required {
            Required::AtLeast(least) => (format!(">= {:.0} %", 100.0 * least), share >= least),
            Required::AtMost(most) => (format!("<= {:.0} %", 100.0 * most), share <= most),
            Required::AtMostOf { most, of } => (
                format!("{most} of {of}"),
                row.trials >= of && row.count * of <= most * row.trials,
            ),
            Required::Nothing => (String::new(), true),
        };
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
