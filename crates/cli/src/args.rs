//! The command line: verbs, options, and how they become a plan.
//!
//! Help, man page and shell completions are generated from these definitions.

mod connect;
mod judge;
mod rate;
mod requests;
mod spread;

pub use connect::Connect;
pub use judge::Judge;
pub use rate::Rate;
pub use requests::{Asked, Call};
pub use spread::Spread;

use clap::{Args, Parser, Subcommand};
use jostle_model::plan::{Carrier, Measure, Names, Place, Plan, Range, Workload};
use jostle_model::time::{Busy, Nanos, Unit};
use jostle_model::{List, ServerAt};
use std::path::PathBuf;

/// Finds out how locks and connections behave when everybody wants in: throughput, waiting,
/// fairness, CPU cost and safety, and how each grows with the contenders.
#[derive(Debug, Parser)]
#[command(name = "jostle", version = crate::VERSION, after_help = AFTER, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

const AFTER: &str = "\
Exit codes: 0 done; 1 it failed; 2 usage; 3 done, but a point is INVALID;
4 compare found a regression; 130 interrupted, 143 terminated (finished points are kept and printed).

Start with: jostle contend";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Workers contend for a lock: acquire, hold, release, idle
    Contend(Box<Contend>),
    /// Each worker does N operations (acquire, release) back to back
    Stream(Box<Stream>),
    /// Starts a command N times: what a call costs, and where it goes
    Call(Box<Call>),
    /// Acquires N different locks, holding all, then releases them
    Hold(Box<Hold>),
    /// Opens N connections and keeps them open: what one more costs
    Connect(Box<Connect>),
    /// Sends requests at a rate, however long they take: response time, lag, knee
    Rate(Box<Rate>),
    /// Keeps so many requests in flight, spread over few or many generators
    Spread(Box<Spread>),
    /// Runs anybody's load generator and reports what its figures are worth
    Judge(Box<Judge>),
    /// Run the experiments of a plan file, or of a result file again
    Run(Run),
    /// Print result files again, in any format
    Report(Report),
    /// Say what differs between two results; exit code 4 on a regression
    Compare(Compare),
    /// Measure specimens whose truth is known: does jostle tell it, on this machine?
    Calibrate(Calibrate),
    /// List the targets and what each can do
    Targets(Targets),
    /// Explain a check: what it asks, its threshold and source, what fools it, what to do
    Explain(Explain),
    /// Show this machine's limits that would bend a measurement, with remedies
    Doctor,
    /// Be a server that a target brings along; the keeper's business
    #[command(hide = true)]
    Serve {
        /// Which
        server: String,
    },
    /// Disturb processes, as `calibrate` plants it; the keeper's business
    #[command(hide = true)]
    Disturb {
        /// What to do, and to whom
        words: Vec<String>,
    },
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of jostle, or of one verb
    Man {
        /// Which verb
        verb: Option<String>,
    },
}

impl Verb {
    /// Whether every rank of a job has something to do in it.
    pub fn is_of_ranks(&self) -> bool {
        match self {
            Verb::Contend(_) | Verb::Stream(_) | Verb::Call(_) | Verb::Hold(_) => true,
            Verb::Connect(_) | Verb::Rate(_) | Verb::Spread(_) | Verb::Run(_) => true,
            // What a keeper starts is as its rank is.
            Verb::Serve { .. } | Verb::Disturb { .. } => true,
            Verb::Report(_) | Verb::Compare(_) | Verb::Calibrate(_) | Verb::Targets(_) => false,
            Verb::Explain(_) | Verb::Judge(_) => false,
            Verb::Doctor | Verb::Completions { .. } | Verb::Man { .. } => false,
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Lists: 10:100:1000, 1000..10000+1000, 1k..1Mx10. Times: 250us, 1ms, 10s.\n\
    With no target, flock and sysv are compared. `jostle targets` lists all."
)]
pub struct Contend {
    /// What to contend for, such as flock, sysv or flock:/mnt/disk/file
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Contending workers, a list [default: 10:20:50:100:200:500:1000]
    #[arg(short, long, value_name = "LIST")]
    pub workers: Option<List>,
    /// Time the lock is held; bare numbers are us; negative: spin [default: 1ms]
    #[arg(short = 'b', long, value_name = "TIME", allow_hyphen_values = true, value_parser = busy)]
    pub hold: Option<Busy>,
    /// Time between release and next attempt; as -b [default: 10us]
    #[arg(short, long, value_name = "TIME", allow_hyphen_values = true, value_parser = busy)]
    pub idle: Option<Busy>,
    /// Locks; each operation picks one at random [default: 1]
    #[arg(long, value_name = "K")]
    pub keys: Option<u64>,
    /// Share of shared acquisitions, 0 to 1 [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub shared: Option<f64>,
    /// Try, and idle after a refusal, instead of waiting
    #[arg(long = "try")]
    pub try_only: bool,
    /// Give up an attempt after this long
    #[arg(long, value_name = "TIME", value_parser = micros)]
    pub acquire_timeout: Option<Nanos>,
    /// Byte ranges of record locks: same, overlap (neighbours) or disjoint
    #[arg(long, value_name = "HOW")]
    pub range: Option<Range>,
    /// Open and close the file for each acquisition, as lockscale did
    #[arg(long)]
    pub open_each: bool,
    /// Semaphores to which the names of several keys are hashed [default: 16384]
    #[arg(long, value_name = "N")]
    pub slots: Option<u64>,
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(
    after_help = "One operation is one acquire and one release of a lock, without hold or idle, or one\n\
    request of a target that answers requests. A run\n\
    begins when all workers are ready, and ends when the last one has done its operations.\n\
    Lists: 1000:10000, 1000..10000+1000, 1k..1Mx10. With no target, lockd and flock are measured."
)]
pub struct Stream {
    /// What to lock, such as lockd, redis or flock
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Operations of each worker, a list [default: 1000:10000]
    #[arg(short = 'n', long, value_name = "LIST")]
    pub operations: Option<List>,
    /// Workers, a list [default: 1:2]
    #[arg(short, long, value_name = "LIST")]
    pub workers: Option<List>,
    /// One lock for all, or each worker its own: one, own [default: one]
    #[arg(long, value_name = "WHICH")]
    pub names: Option<Names>,
    /// Pairs that are sent before their replies are read [default: 1]
    #[arg(long, value_name = "D")]
    pub pipeline: Option<u64>,
    #[command(flatten)]
    pub asked: Asked,
    #[command(flatten)]
    pub counted: Counted,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Each worker acquires its locks one after the other, holds all of them, and releases them\n\
    in the same order. Growth with the number held shows within a run (ten slices) and between\n\
    runs. Lists: 1000:10000, 1k..1Mx10. With no target, lockd and chained are measured."
)]
pub struct Hold {
    /// What to hold, such as lockd, redis, flock or chained:3000
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Locks that each worker holds, a list [default: 1000:10000]
    #[arg(long, value_name = "LIST")]
    pub keys: Option<List>,
    /// Workers, a list; each holds locks of its own [default: 1]
    #[arg(short, long, value_name = "LIST")]
    pub workers: Option<List>,
    /// Requests that are sent before their replies are read [default: 1]
    #[arg(long, value_name = "D")]
    pub pipeline: Option<u64>,
    /// Semaphores to which the names of the locks are hashed [default: 16384]
    #[arg(long, value_name = "N")]
    pub slots: Option<u64>,
    #[command(flatten)]
    pub counted: Counted,
    #[command(flatten)]
    pub output: Output,
}

/// How workers run and what is recorded of them.
#[derive(Debug, Args)]
pub struct Conditions {
    /// What carries a worker: processes, threads or, of servers, tasks [default: processes]
    #[arg(long = "as", value_name = "CARRIER")]
    pub carrier: Option<Carrier>,
    /// Threads that carry tasks [default: half of the CPUs]
    #[arg(long, value_name = "N")]
    pub generator_threads: Option<u64>,
    /// CPUs of the workers: none, same, cross, cpus:0-3 (a server that is
    /// launched gets the others) [default: none]
    #[arg(long, value_name = "WHERE")]
    pub place: Option<Place>,
    /// What is recorded: full, or counts for locks quicker than a stamp [default: full]
    #[arg(long, value_name = "HOW")]
    pub measure: Option<Measure>,
    /// The kernel's timer slack of each worker [default: 1ns]
    #[arg(long, value_name = "TIME", value_parser = micros)]
    pub timer_slack: Option<Nanos>,
    /// Print the share of waits above each of these, such as 1ms:1s
    #[arg(long, value_name = "TIMES", value_parser = times)]
    pub over: Option<Times>,
    /// Run a profiler or tracer along; {pid} and {pids} stand for the workers
    #[arg(long, value_name = "COMMAND")]
    pub during: Option<String>,
    /// The server on this machine, if its connections do not tell: :PORT, pid:N, unix:PATH, cgroup:PATH
    #[arg(long, value_name = "WHICH")]
    pub server: Option<ServerAt>,
    /// Seed of every random choice [default: a fresh one, printed]
    #[arg(long)]
    pub seed: Option<u64>,
}

/// What verbs take whose runs end with their operations.
#[derive(Debug, Args)]
#[command(next_help_heading = "How to measure")]
pub struct Counted {
    /// What a run may take at most; bare numbers are seconds [default: 300s]
    #[arg(short = 't', long, value_name = "TIME", value_parser = seconds)]
    pub duration: Option<Nanos>,
    /// Runs of each point [default: 6 to 15, as the spread demands]
    #[arg(long, value_name = "R")]
    pub runs: Option<u32>,
    /// What all runs together should take [default: 50s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub budget: Option<Nanos>,
    #[command(flatten)]
    pub conditions: Conditions,
    /// Three runs of each point
    #[arg(long)]
    pub quick: bool,
}

/// What verbs take whose runs have a window.
#[derive(Debug, Args)]
#[command(next_help_heading = "How to measure")]
pub struct Common {
    /// Window of each run; bare numbers are seconds [default: a pilot decides]
    #[arg(short = 't', long, value_name = "TIME", value_parser = seconds)]
    pub duration: Option<Nanos>,
    /// Runs of each point [default: 6 to 15, as the spread demands]
    #[arg(long, value_name = "R")]
    pub runs: Option<u32>,
    /// Time between the last arrival and the window [default: a pilot decides]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub warmup: Option<Nanos>,
    /// What all runs together may take, where pilots decide [default: 50s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub budget: Option<Nanos>,
    #[command(flatten)]
    pub conditions: Conditions,
    /// Three runs of a quarter of a second for each point: a look, no measurement
    #[arg(long)]
    pub quick: bool,
}

/// Where results go, and what else concerns this call alone and no plan.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct Output {
    /// Also write the result file, record by record, as they are made
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the result file if it exists
    #[arg(long, requires = "output")]
    pub overwrite: bool,
    /// How to print the result
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = formats())]
    pub format: String,
    /// Also write a page with tables and plots for a browser, at the end
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Before the first run wait, for so long at most, until other programs use less than
    /// 3 % of the CPUs for a second; bare numbers are seconds
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub wait_quiet: Option<Nanos>,
    /// Print neither progress nor notes
    #[arg(short, long)]
    pub quiet: bool,
    /// Print no progress
    #[arg(long)]
    pub no_progress: bool,
    /// Print the resolved plan and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct Run {
    /// A plan (TOML), or a result file whose experiments are run again
    pub plan: PathBuf,
    /// Three runs of a quarter of a second for each point: a look, no measurement
    #[arg(long)]
    pub quick: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub struct Report {
    /// Result files; `-` reads standard input
    #[arg(required = true, value_name = "RESULT")]
    pub results: Vec<PathBuf>,
    /// How to print them
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = formats())]
    pub format: String,
    /// Also write a page with tables and plots for a browser, the results overlaid
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Exit with 3 if a point is INVALID
    #[arg(long)]
    pub strict: bool,
}

#[derive(Debug, Args)]
pub struct Explain {
    /// The check, as it stands in a verdict; without it, all are listed
    #[arg(value_name = "CHECK")]
    pub check: Option<String>,
    /// text, or markdown with all checks
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "markdown"])]
    pub format: String,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A figure differs if its interval excludes 1 and it lies beyond the threshold, is the same\n\
    if the whole interval lies within, and is otherwise undecided. Between two results it is\n\
    measured by what the machine itself took before and after each run (docs/compare.md).\n\
    Exit codes: 4 a figure got worse; 3 no figure could be decided, with --strict: not all could,\n\
    or a point is INVALID; 0 none surely got worse; 1 there is nothing to compare."
)]
pub struct Compare {
    /// The result that is compared with
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    /// The result that is judged; without it, --targets names two of BASE
    #[arg(value_name = "NEW")]
    pub new: Option<PathBuf>,
    /// A target of BASE and one of NEW (or of BASE) under another name
    #[arg(long, value_name = "A,B", value_parser = pair)]
    pub targets: Option<Pair>,
    /// Per cent up to which a difference is of no consequence
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    pub threshold: f64,
    /// Compare every figure, not only the throughput (of connections the median)
    #[arg(long)]
    pub all: bool,
    /// Exit with 3 if a figure is undecided or of an INVALID point
    #[arg(long)]
    pub strict: bool,
    /// How to print it
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = compare_formats())]
    pub format: String,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Each row plants something that a specimen records itself, measures it as everything is\n\
    measured, and compares. What the machine or the user's rights do not allow to be tried today\n\
    is said to be so, and is no pass. The outcome is kept, and stands in later results.\n\
    Exit codes: 0 no row failed; 1 one did, or nothing could be measured (docs/calibrate.md)."
)]
pub struct Calibrate {
    /// Many trials of each row, for rates with 95 % bounds instead of a smoke test
    #[arg(long)]
    pub full: bool,
    /// Trials of each row, with --full
    #[arg(long, value_name = "N", default_value_t = 60, requires = "full",
        value_parser = clap::value_parser!(u64).range(2..=10_000))]
    pub trials: u64,
    /// Only these rows, such as 2:6:12 [default: all]
    #[arg(long, value_name = "LIST")]
    pub rows: Option<List>,
    /// Also write a result file: all that was measured, and what was found
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the result file if it exists
    #[arg(long, requires = "output")]
    pub overwrite: bool,
    /// How to print it
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = calibrated_formats())]
    pub format: String,
    /// Print neither progress nor notes
    #[arg(short, long)]
    pub quiet: bool,
    /// Print no progress
    #[arg(long)]
    pub no_progress: bool,
}

fn calibrated_formats() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(
        jostle_report::calibrated::CALIBRATED_FORMATS
            .iter()
            .map(|(name, help)| clap::builder::PossibleValue::new(name).help(help)),
    )
}

/// Two names; a type of its own, so that clap sees one value.
#[derive(Clone, Debug)]
pub struct Pair(pub [String; 2]);

fn pair(text: &str) -> Result<Pair, String> {
    match text.split_once(',') {
        Some((one, other)) if !one.is_empty() && !other.is_empty() => {
            Ok(Pair([one.to_owned(), other.to_owned()]))
        }
        _ => Err("two targets with a comma between them, such as flock,sysv".to_owned()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let number: f64 = text
        .trim_end_matches('%')
        .parse()
        .map_err(|_| "a number of per cent, such as 5".to_owned())?;
    match number > 0.0 && number < 100.0 {
        true => Ok(number / 100.0),
        false => Err("more than 0 and less than 100".to_owned()),
    }
}

fn compare_formats() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(
        jostle_report::compare::COMPARE_FORMATS
            .iter()
            .map(|(name, help)| clap::builder::PossibleValue::new(name).help(help)),
    )
}

#[derive(Debug, Args)]
pub struct Targets {
    /// One of them, in full: what it is, what it can do, and what is peculiar about it
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// text, or markdown with all details
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "markdown"])]
    pub format: String,
}

fn formats() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(
        jostle_report::FORMATS
            .iter()
            .map(|format| clap::builder::PossibleValue::new(format.name).help(format.summary)),
    )
}

fn busy(text: &str) -> Result<Busy, String> {
    Busy::parse(text, Unit::Micros)
}

fn micros(text: &str) -> Result<Nanos, String> {
    Nanos::parse(text, Unit::Micros)
}

fn seconds(text: &str) -> Result<Nanos, String> {
    Nanos::parse(text, Unit::Seconds)
}

/// Several times; a type of its own, so that clap sees one value.
#[derive(Clone, Debug)]
pub struct Times(pub Vec<Nanos>);

fn times(text: &str) -> Result<Times, String> {
    text.split(':')
        .map(|time| Nanos::parse(time, Unit::Seconds))
        .collect::<Result<_, _>>()
        .map(Times)
}

impl Conditions {
    fn plan(&self, workload: Workload) -> Plan {
        Plan {
            carrier: self.carrier,
            generator_threads: self.generator_threads,
            place: self.place.clone(),
            measure: self.measure,
            timer_slack: self.timer_slack,
            over: self.over.clone().map(|times| times.0),
            during: self.during.clone(),
            server: self.server.clone(),
            seed: self.seed,
            ..Plan::of(workload)
        }
    }
}

impl Common {
    /// A plan with these options alone; the verb adds its own.
    fn plan(&self, workload: Workload) -> Plan {
        quickened(
            self.quick,
            Plan {
                duration: self.duration,
                runs: self.runs,
                warmup: self.warmup,
                budget: self.budget,
                ..self.conditions.plan(workload)
            },
        )
    }
}

impl Counted {
    /// A plan with these options alone; the verb adds its own.
    fn plan(&self, workload: Workload) -> Plan {
        quickened(
            self.quick,
            Plan {
                duration: self.duration,
                runs: self.runs,
                budget: self.budget,
                ..self.conditions.plan(workload)
            },
        )
    }
}

/// A look instead of a measurement, with `--quick`.
fn quickened(quick: bool, mut plan: Plan) -> Plan {
    if quick {
        jostle_engine::resolve::quicken(&mut plan);
    }
    plan
}

impl Contend {
    /// The plan as typed.
    pub fn plan(&self) -> Plan {
        let flag = |set: bool| set.then_some(true);
        Plan {
            targets: self.targets.clone(),
            workers: self.workers.clone(),
            hold: self.hold,
            idle: self.idle,
            keys: self.keys.map(|keys| List(vec![keys])),
            shared: self.shared,
            range: self.range,
            try_only: flag(self.try_only),
            acquire_timeout: self.acquire_timeout,
            open_each: flag(self.open_each),
            slots: self.slots,
            ..self.common.plan(Workload::Contend)
        }
    }
}

impl Stream {
    /// The plan as typed.
    pub fn plan(&self) -> Plan {
        self.asked.apply(Plan {
            targets: self.targets.clone(),
            workers: self.workers.clone(),
            operations: self.operations.clone(),
            names: self.names,
            pipeline: self.pipeline,
            ..self.counted.plan(Workload::Stream)
        })
    }
}

impl Hold {
    /// The plan as typed.
    pub fn plan(&self) -> Plan {
        Plan {
            targets: self.targets.clone(),
            workers: self.workers.clone(),
            keys: self.keys.clone(),
            pipeline: self.pipeline,
            slots: self.slots,
            ..self.counted.plan(Workload::Hold)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    fn plan(line: &str) -> Plan {
        let words = ["jostle"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).unwrap().verb {
            Verb::Contend(contend) => contend.plan(),
            Verb::Stream(stream) => stream.plan(),
            Verb::Hold(hold) => hold.plan(),
            Verb::Connect(connect) => connect.plan(),
            Verb::Call(call) => call.plan(),
            Verb::Rate(rate) => rate.plan(),
            Verb::Spread(spread) => spread.plan(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lockscale_s_command_lines_mean_the_same_here() {
        let lockscale = plan("contend flock fcntl sysv -b -250 -i 10 -t 5 -w 10:20");
        assert_eq!(lockscale.targets, ["flock", "fcntl", "sysv"]);
        assert_eq!(lockscale.hold, Some(Busy::Spin(Nanos::from_micros(250))));
        assert_eq!(lockscale.idle, Some(Busy::Sleep(Nanos::from_micros(10))));
        assert_eq!(lockscale.duration, Some(Nanos::from_millis(5_000)));
        assert_eq!(lockscale.workers, Some(List(vec![10, 20])));
        assert_eq!(plan("contend -b -250us").hold, lockscale.hold);
    }

    #[test]
    fn what_is_not_said_is_left_to_the_plan() {
        for workload in Workload::ALL {
            assert_eq!(plan(workload.as_str()), Plan::of(*workload));
        }
    }

    /// The remedies of the checks, as they are printed.
    #[test]
    fn what_checks_advise_can_be_typed() {
        let contend = plan("contend -t 11 -w 20 -b 1ms --runs 12 --warmup 2s --wait-quiet 60s");
        assert_eq!(contend.duration, Some(Nanos::from_millis(11_000)));
        assert_eq!(contend.warmup, Some(Nanos::from_millis(2_000)));
        let contend = plan("contend --place same --measure counts");
        assert_eq!(contend.place, Some(Place::Same));
        assert_eq!(contend.measure, Some(Measure::Counts));
        for line in [
            "stream -n 10000 --generator-threads 2",
            "hold --keys 30",
            "connect --open 100 --sources 2",
            "rate lockd --rate 100:500",
            "spread lockd --generators 3:6:12",
        ] {
            plan(line);
        }
        Cli::try_parse_from(["jostle", "doctor"]).unwrap();
    }

    #[test]
    fn a_call_is_a_stream_of_a_command() {
        let words = [
            "jostle",
            "call",
            "sh -c 'exit 3'",
            "-n",
            "100:1000",
            "--expect",
            "3",
        ];
        let Verb::Call(call) = Cli::try_parse_from(words).unwrap().verb else {
            panic!("another verb");
        };
        let plan = call.plan();
        assert_eq!(plan.workload, Workload::Stream);
        assert_eq!(plan.targets, ["exec:sh -c 'exit 3'"]);
        assert_eq!(plan.operations, Some(List(vec![100, 1_000])));
        assert_eq!(plan.workers, Some(List(vec![1])));
        assert_eq!(plan.expect, Some(List(vec![3])));
    }

    #[test]
    fn the_old_daemon_s_tests_can_be_typed() {
        let second = plan("stream lockd -n 10000 -w 2 --names one");
        assert_eq!(second.operations, Some(List(vec![10_000])));
        assert_eq!(second.names, Some(Names::One));
        let third = plan("hold lockd --keys 1000..3000+1000 --pipeline 100");
        assert_eq!(third.keys, Some(List(vec![1_000, 2_000, 3_000])));
        assert_eq!(third.pipeline, Some(100));
    }
}
