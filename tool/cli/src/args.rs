//! The command line: verbs, and their options. Those of the verbs that measure are made
//! from the model's table of options, in `measure.rs`.
//!
//! Help, man page and shell completions are generated from these definitions.

mod judge;
mod measure;
mod verbs;
#[cfg(test)]
mod walk;

pub(crate) use judge::Judge;
pub(crate) use measure::Measure;

use crate::labels::Label;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand};
use jostle_model::List;
use jostle_model::time::{Nanos, Unit};
use jostle_report::calibrated::CALIBRATED_FORMATS;
use jostle_report::compare::COMPARE_FORMATS;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Benchmarks locks, lock services and servers under contention: throughput, waiting, fairness,
/// CPU cost and safety, how each grows with the clients, and whether the result can be trusted.
#[derive(Debug, Parser)]
#[command(name = "jostle", version = crate::VERSION, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

impl Cli {
    /// Reads a command line, the program's name first.
    ///
    /// # Errors
    /// What clap says to the user, help included; of an option of other verbs also which
    /// those are.
    pub(crate) fn read<W: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(words).map_err(measure::explained)
    }
}

const AFTER: &str = "\
Exit codes: 0 done; 1 failed; 2 usage; 3 a point is INVALID, or compare could not decide;
4 compare found a regression; 130 interrupted, 143 terminated (finished points are kept and printed).

Start with: jostle contend";

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    #[command(flatten)]
    Measure(Box<Measure>),
    /// Run any load generator and report whether it, or the server, was the bottleneck
    Judge(Box<Judge>),
    /// Show who holds a lock, who waits, and what would free it; free nothing
    Who(Who),
    /// Run the experiments of a plan file, or repeat those of a result file
    Run(Run),
    /// Print result files again, in any format
    Report(Report),
    /// Compare two results; exit code 4 on a regression
    Compare(Compare),
    /// Test jostle on this machine, against fake locks that log what they really did
    Calibrate(Calibrate),
    /// List the targets and what each can do
    Targets(Targets),
    /// Explain a word of tables and lines, a check (threshold, source, what fools it, what to do) or a
    /// field of a result file
    Explain(Explain),
    /// List what on this machine would distort a measurement, with remedies
    Doctor {
        /// Print the commands that fix the findings, for a root shell; run none of them
        #[arg(long)]
        fix: bool,
        /// Look at the members of an etcd that is to keep jostled's state (--ha-etcd) instead:
        /// http:// addresses, separated by commas
        #[arg(
            long,
            value_name = "URL",
            value_delimiter = ',',
            conflicts_with = "fix"
        )]
        etcd: Vec<String>,
    },
    /// Be a server that a target brings along; the keeper's business
    #[command(hide = true)]
    Serve {
        /// Which
        server: String,
        /// Where it listens
        #[arg(long)]
        at: Option<String>,
        /// Directory of what it must know when it is started again
        #[arg(long)]
        keep: Option<PathBuf>,
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
    pub(crate) fn is_of_ranks(&self) -> bool {
        match self {
            Verb::Measure(_) | Verb::Run(_) => true,
            // What a keeper starts is as its rank is.
            Verb::Serve { .. } | Verb::Disturb { .. } => true,
            Verb::Report(_) | Verb::Compare(_) | Verb::Calibrate(_) | Verb::Targets(_) => false,
            Verb::Explain(_) | Verb::Judge(_) | Verb::Who(_) => false,
            Verb::Doctor { .. } | Verb::Completions { .. } | Verb::Man { .. } => false,
        }
    }
}

/// Where results go, and what else concerns this call alone and no plan.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// Also write a result file, record by record, during the run
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the result file if it exists
    #[arg(long, requires = "output")]
    pub overwrite: bool,
    /// How to print the result
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = formats())]
    pub format: String,
    /// In the table every column, and how it was measured in full
    #[arg(short, long)]
    pub verbose: bool,
    /// With --format csv: one row for each point, run and figure
    #[arg(long)]
    pub tidy: bool,
    /// Also write a page with tables and plots for a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Serve a page that shows the runs in progress, and print its address [default: a free port
    /// of this machine]
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true,
        default_missing_value = "127.0.0.1:0", value_parser = address)]
    pub live: Option<SocketAddr>,
    /// Serve metrics for Prometheus during the runs, at /metrics of this address or port
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub metrics: Option<SocketAddr>,
    /// Wait before the first run, at most this long, until other programs use less than 3 % of
    /// the CPUs for a second; bare numbers are seconds
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
    /// Whether `--quick` was given: a minute is kept.
    #[arg(skip)]
    pub quick: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A plan or a result file can name programs to start and libraries to load (--prepare, --during,\n\
    --null, the targets exec:, pipe: and lib:). jostle runs those of a plan. It lists those of a result\n\
    file and asks first; without a terminal they need --yes."
)]
pub(crate) struct Run {
    /// A plan (TOML), a result file whose experiments are repeated, or a built-in plan: cern,
    /// connections, lockscale, old, scope, scope-lan, services
    pub plan: PathBuf,
    /// Three short runs of each point, and as many points as fit into a minute: a first look
    #[arg(long)]
    pub quick: bool,
    /// Measure what a result file lacks after an interrupt or a crash, and add it there; this
    /// needs the same boot and the same program
    #[arg(long, conflicts_with_all = ["quick", "output", "dry_run"])]
    pub resume: bool,
    /// Run the commands and libraries that a result file names without asking
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Result files; `-` reads standard input
    #[arg(required = true, value_name = "RESULT")]
    pub results: Vec<PathBuf>,
    /// How to print them
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = formats())]
    pub format: String,
    /// In the table every column, and how it was measured in full
    #[arg(short, long)]
    pub verbose: bool,
    /// With --format csv: one row for each point, run and figure
    #[arg(long)]
    pub tidy: bool,
    /// Also write a page for a browser, with the results overlaid
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Name of a result, such as old=before.jsonl; once for each file
    #[arg(long, value_name = "NAME=FILE", value_parser = crate::labels::parse)]
    pub label: Vec<Label>,
    /// Also write every figure of the page into this directory, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    pub figures: Option<PathBuf>,
    /// Also write the first figure into this file, as SVG, below the finding and the verdict
    #[arg(long, value_name = "FILE")]
    pub card: Option<PathBuf>,
    /// Exit with 3 if a point is INVALID
    #[arg(long)]
    pub strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// A word above a column, before a line or in a sentence, such as `longest wait`; a check; or a
    /// field or record of a result file, such as of_ideal or run.per_worker [default: list all checks]
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
    /// text, or markdown with all checks
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "markdown"])]
    pub format: String,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A figure differs if its interval excludes 1 and it lies beyond the threshold, is the same if the\n\
    whole interval lies within the threshold, and is otherwise undecided. Between two results, the\n\
    machine's own change of speed is divided out (tool/docs/compare.md).\n\
    Exit codes: 4 a figure got worse; 3 no figure could be decided (with --strict: one could not, or a\n\
    point is INVALID); 0 none surely got worse; 1 there is nothing to compare."
)]
pub(crate) struct Compare {
    /// The result to compare with
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    /// The result to judge; without it, --targets names two targets of BASE
    #[arg(value_name = "NEW")]
    pub new: Option<PathBuf>,
    /// Compare target A of BASE with target B of NEW (or of BASE)
    #[arg(long, value_name = "A,B", value_parser = pair)]
    pub targets: Option<Pair>,
    /// Ignore differences up to this many per cent
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    pub threshold: f64,
    /// Compare every figure, not only throughput (for connections: the median of connect())
    #[arg(long)]
    pub all: bool,
    /// Exit with 3 if a figure is undecided or a point is INVALID
    #[arg(long)]
    pub strict: bool,
    /// How to print it
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = named(COMPARE_FORMATS))]
    pub format: String,
    /// Also write a page for a browser: the finding, the ratios, both results overlaid
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Name of BASE or NEW on that page, such as old=before.jsonl
    #[arg(long, value_name = "NAME=FILE", value_parser = crate::labels::parse)]
    pub label: Vec<Label>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Each row plants an effect that the fake lock itself logs, measures it like any other target, and\n\
    compares. A row that the machine or the user's rights do not allow is reported as not tried, which\n\
    is not a pass. The outcome is kept, and later results quote it.\n\
    Exit codes: 0 no row failed; 1 one did, or nothing could be measured (tool/docs/calibrate.md)."
)]
pub(crate) struct Calibrate {
    /// Try each row many times and print the share of correct trials, with 95 % bounds
    #[arg(long)]
    pub full: bool,
    /// Trials of each row, with --full
    #[arg(long, value_name = "N", default_value_t = 60, requires = "full",
        value_parser = clap::value_parser!(u64).range(2..=10_000))]
    pub trials: u64,
    /// Only these rows, such as 2:6:12 [default: all]
    #[arg(long, value_name = "LIST")]
    pub rows: Option<List>,
    /// Also write a result file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the result file if it exists
    #[arg(long, requires = "output")]
    pub overwrite: bool,
    /// How to print it
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = named(CALIBRATED_FORMATS))]
    pub format: String,
    /// Print neither progress nor notes
    #[arg(short, long)]
    pub quiet: bool,
    /// Print no progress
    #[arg(long)]
    pub no_progress: bool,
}

/// Two names; a type of its own, so that clap sees one value.
#[derive(Clone, Debug)]
pub(crate) struct Pair(pub [String; 2]);

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

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 nobody holds it (pid: it waits for nobody); 3 held; 1 not knowable; 2 usage.\n\
    jostle prints a command that frees the lock, with what it breaks, and never runs it (tool/docs/who.md)."
)]
pub(crate) struct Who {
    /// Where the lock is: flock:FILE, fcntl:FILE, lockfile:FILE, sysv, lockd://HOST:PORT,
    /// redis://HOST:PORT and other services; pid:N: whatever this process waits for
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Its name there: a key, a path, a number; of sysv a set, such as 0x1c2 or 32769:0
    #[arg(value_name = "LOCK", allow_hyphen_values = true)]
    pub lock: Option<String>,
    /// How to print it
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = ["table", "json"])]
    pub format: String,
    /// Look again at this interval and print what has changed; bare numbers are seconds
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub watch: Option<Nanos>,
    /// With pid: read the owners of mutexes from the memory of the processes
    #[arg(long)]
    pub memory: bool,
    /// File with name and password for the service, in two lines
    #[arg(long, value_name = "FILE")]
    pub credentials: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Targets {
    /// One target in full: what it is, what it can do, and what is special about it
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// text, or markdown with all details
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "markdown"])]
    pub format: String,
}

fn formats() -> PossibleValuesParser {
    let formats = jostle_report::FORMATS.iter();
    listed(formats.map(|format| (format.name, format.summary)))
}

fn named(formats: &'static [(&'static str, &'static str)]) -> PossibleValuesParser {
    listed(formats.iter().copied())
}

/// Formats, each with its help.
fn listed(formats: impl Iterator<Item = (&'static str, &'static str)>) -> PossibleValuesParser {
    formats
        .map(|(name, help)| PossibleValue::new(name).help(help))
        .into()
}

/// An address with or without a port, or a port of this machine.
fn address(text: &str) -> Result<SocketAddr, String> {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let text = match text.strip_prefix("localhost") {
        Some(rest) => format!("{here}{rest}"),
        None => text.to_owned(),
    };
    let port = || Some(SocketAddr::new(here, text.parse().ok()?));
    let whole = || text.parse().ok();
    let host = || Some(SocketAddr::new(text.parse().ok()?, 0));
    port()
        .or_else(whole)
        .or_else(host)
        .ok_or_else(|| "an address of this machine such as 127.0.0.1:9464, or a port".to_owned())
}

fn seconds(text: &str) -> Result<Nanos, String> {
    Nanos::parse(text, Unit::Seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use jostle_model::Busy;
    use jostle_model::plan::{Arrivals, Measure, Names, Place, Plan, Workload};

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    fn read(words: &[&str]) -> Result<Plan, String> {
        let words = ["jostle"].iter().chain(words);
        match Cli::read(words).map_err(|error| error.to_string())?.verb {
            Verb::Measure(measure) => Ok(measure.plan),
            other => panic!("{other:?}"),
        }
    }

    fn plan(line: &str) -> Plan {
        read(&line.split_whitespace().collect::<Vec<_>>()).unwrap()
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
        Cli::try_parse_from(["jostle", "doctor", "--fix"]).unwrap();
    }

    #[test]
    fn an_address_needs_no_host_and_the_page_not_even_a_port() {
        let output = |line: &str| {
            let words = ["jostle"].into_iter().chain(line.split(' '));
            match Cli::read(words).map_err(|error| error.to_string())?.verb {
                Verb::Measure(measure) => Ok((measure.output.live, measure.output.metrics)),
                other => Err(format!("{other:?}")),
            }
        };
        let at = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        for (line, live, metrics) in [
            ("contend flock", None, None),
            ("contend --live flock", at("127.0.0.1:0"), None),
            ("contend --live=8000 flock", at("127.0.0.1:8000"), None),
            ("contend --live=0.0.0.0:8000", at("0.0.0.0:8000"), None),
            ("contend --live=[::1]:80", at("[::1]:80"), None),
            (
                "contend --metrics localhost:9464",
                None,
                at("127.0.0.1:9464"),
            ),
            ("contend --metrics 10.0.0.7", None, at("10.0.0.7:0")),
        ] {
            assert_eq!(output(line), Ok((live, metrics)), "{line}");
        }
        for line in [
            "contend --metrics",
            "contend --metrics lab7",
            "contend --live=99999",
        ] {
            output(line).unwrap_err();
        }
    }

    #[test]
    fn a_call_is_a_stream_of_a_command() {
        let plan = read(&["call", "sh -c 'exit 3'", "-n", "100:1000", "--expect", "3"]).unwrap();
        assert_eq!(plan.workload, Workload::Stream);
        assert_eq!(plan.targets, ["exec:sh -c 'exit 3'"]);
        assert_eq!(plan.operations, Some(List(vec![100, 1_000])));
        assert_eq!(plan.workers, Some(List(vec![1])));
        assert_eq!(plan.expect, Some(List(vec![3])));
    }

    #[test]
    fn a_call_has_no_options_of_locks_and_needs_a_command() {
        let plan = read(&["call", "true"]).unwrap();
        assert_eq!(plan.operations, Some(List(vec![100, 1_000])));
        for words in [&["call"][..], &["call", "true", "--names", "own"]] {
            read(words).unwrap_err();
        }
    }

    #[test]
    fn a_sweep_of_rates_is_typed_as_a_list() {
        let plan =
            plan("rate lockd --rate 100:1k:10k --arrivals poisson -t 5 -w 32 --drop-after 0.5");
        assert_eq!(plan.workload, Workload::Rate);
        assert_eq!(plan.rate, Some(List(vec![100, 1_000, 10_000])));
        assert_eq!(plan.arrivals, Some(Arrivals::Poisson));
        assert_eq!(plan.workers, Some(List(vec![32])));
        assert_eq!(plan.drop_after, Some(Nanos::from_millis(500)));
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
