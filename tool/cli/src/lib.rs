//! The `jostle` binary: arguments, plan files, wiring. It measures nothing by
//! itself; it hands plans to the engine and records to the report.
//!
//! The other public items are for fuzzers: they start nothing and read no file.

mod args;
mod calibrate;
mod causes;
mod compare;
mod completion;
mod consent;
mod doctor;
mod explain;
mod figures;
mod html;
mod judge;
mod labels;
mod live;
mod measure;
mod messages;
mod plan_file;
mod progress;
mod questions;
mod quiet;
mod ranks;
mod resume;
mod screen;
mod serve;
mod signals;
mod targets;
mod who;

use anyhow::Context;
use args::{Cli, Output, Report, Run, Verb};
use clap::{Command, CommandFactory};
use jostle_engine::experiment::exit;
use jostle_engine::preflight;
use jostle_engine::preflight::busy::{Look, between};
use jostle_engine::takes;
use jostle_engine::world::launched;
use jostle_model::plan::Plan;
use jostle_model::text::{printable, quoted, redacted};
use jostle_report::{ResultSet, judged};
use jostle_sys::limits::Machine;
use ranks::JoinJob;
use resume::Rest;
use screen::Screen;
use std::borrow::Cow;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// This build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built from, where git told the build.
pub const COMMIT: Option<&str> = option_env!("JOSTLE_COMMIT");

/// Why there is no result, or no whole one.
#[derive(Debug)]
pub enum Failure {
    /// The request makes no sense: exit code 2.
    Usage(String),
    /// It failed: exit code 1.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Failed(error)
    }
}

/// The entry point of the program linked with MPI, which joins MPI jobs. Otherwise like
/// [`main`].
pub fn main_of_ranks(join_job: JoinJob) -> ExitCode {
    ranks::join_by(join_job);
    main()
}

/// The program: reads its command line, does what it says, and returns the exit code.
pub fn main() -> ExitCode {
    completion::answer();
    if std::env::args_os().len() < 2 {
        // Exit code 2, because a script that passes no arguments has an error.
        let _ = std::io::stderr().write_all(questions::page().as_bytes());
        return ExitCode::from(2);
    }
    let verb = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli.verb,
        // Rank 0 reports the error.
        Err(_) if ranks::are_others() => return ExitCode::SUCCESS,
        Err(error) => return refused(&error),
    };
    // Verbs that do not measure with all ranks run on rank 0 alone.
    if ranks::are_others() && !verb.is_of_ranks() {
        return ExitCode::SUCCESS;
    }
    let done = match verb {
        Verb::Measure(asked) => {
            messages::hold();
            tell_left_out(&asked.left_out, &asked.output);
            measure::measure(vec![asked.plan], &asked.output)
        }
        Verb::Judge(args) => judge::judge(&args),
        Verb::Run(mut run) => {
            run.output.quick = run.quick;
            run_plan(&run)
        }
        Verb::Report(report) => render(&report),
        Verb::Compare(compare) => compare::compare(&compare),
        Verb::Calibrate(calibrate) => calibrate::calibrate(&calibrate),
        Verb::Targets(targets) => list(&targets),
        Verb::Who(asked) => who::who(&asked),
        Verb::Explain(asked) => explain::explain(&asked),
        Verb::Doctor { fix, etcd } => examine(fix, &etcd),
        Verb::Serve { server, at, keep } => serve::serve(&server, at.as_deref(), keep.as_deref()),
        Verb::Disturb { words } => calibrate::disturb(&words),
        Verb::Completions { shell } => completion::script(shell),
        Verb::Man { verb } => manual(verb.as_deref()),
    };
    let code = told(done);
    messages::settle();
    ExitCode::from(code)
}

/// The plans that a command line asks for, as typed: none for a verb that measures
/// nothing, or that reads them from a file.
///
/// # Errors
/// What clap says to the user.
pub fn plans_of(words: impl Iterator<Item = String>) -> Result<Vec<Plan>, String> {
    let words = std::iter::once("jostle".to_owned()).chain(words);
    let cli = Cli::read(words).map_err(|error| error.to_string())?;
    Ok(match cli.verb {
        Verb::Measure(asked) => vec![asked.plan],
        _ => Vec::new(),
    })
}

/// The plans in the text of a plan file, or of a result file; `path` is its name in
/// messages.
///
/// # Errors
/// File, line, experiment and field, and what is wrong there.
pub fn plans_in(path: &Path, text: &str) -> Result<Vec<Plan>, String> {
    let asked = plan_file::read(path, &mut text.as_bytes()).map_err(|error| match error {
        Failure::Usage(said) => said,
        Failure::Failed(error) => format!("{error:#}"),
    })?;
    Ok(asked.plans.into_iter().map(|(plan, _)| plan).collect())
}

/// Prints the requested help to stdout, or the error in the command line to stderr. If a
/// word has control characters, the message is escaped and printed without clap's colours,
/// because colours are control characters too.
fn refused(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    let steers = std::env::args_os().any(|word| {
        let word = word.to_string_lossy();
        matches!(printable(&word), Cow::Owned(_))
    });
    // Help quotes nothing that was typed; an error may quote a password.
    let is_help = !error.use_stderr();
    if !steers && (is_help || matches!(shown(&text), Cow::Borrowed(_))) {
        let _ = error.print();
    } else if is_help {
        let _ = print(&text);
    } else {
        let _ = write!(std::io::stderr(), "{}", shown(&text));
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// The text made safe for printing: without passwords of URLs, and with terminal control
/// characters escaped.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    match redacted(text) {
        Cow::Borrowed(text) => printable(text),
        Cow::Owned(text) => Cow::Owned(printable(&text).into_owned()),
    }
}

/// Returns the exit code, and prints the error if there is one.
pub fn told(done: Result<u8, Failure>) -> u8 {
    match done {
        Ok(code) => code,
        Err(Failure::Usage(text)) => {
            complain(&text);
            2
        }
        Err(Failure::Failed(error)) => {
            complain(&format!("{error:#}"));
            1
        }
    }
}

/// Prints to stderr, and ignores errors: if stderr is closed, they cannot be reported.
pub fn complain(text: &str) {
    messages::say(format!("jostle: {}\n", shown(text)));
}

/// Prints to stdout. A closed pipe (`| head`) is no error.
///
/// # Errors
/// Any other failure to write, such as a full disk.
pub fn print(text: &str) -> anyhow::Result<()> {
    write_out(&shown(text))
}

/// Writes a text that is already safe for printing.
fn write_out(text: &str) -> anyhow::Result<()> {
    match messages::write_result(std::io::stdout(), text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

fn run_plan(run: &Run) -> Result<u8, Failure> {
    if run.resume {
        return resume_result(run);
    }
    let asked = plan_file::load(&run.plan)?;
    if asked.is_result && !consent::may_run(run, &asked.plans)? {
        return Ok(0);
    }
    messages::hold();
    let mut plans = asked.plans;
    if run.quick {
        let (mut quick, from): (Vec<Plan>, Vec<String>) = plans.into_iter().unzip();
        let left_out = takes::quicken(&mut quick);
        tell_left_out(&left_out, &run.output);
        plans = quick.into_iter().zip(from).collect();
    }
    measure::measure_from(plans, &run.output)
}

/// Measures what is missing in a result file.
fn resume_result(run: &Run) -> Result<u8, Failure> {
    if launched().is_some_and(|launched| launched.size > 1) {
        return match ranks::are_others() {
            true => Ok(0),
            false => Err(Failure::Usage(
                "--resume works on one host; start it without mpirun".to_owned(),
            )),
        };
    }
    let read = jostle_report::read_whole_lines(&run.plan).map_err(anyhow::Error::from);
    let (sets, bytes) = read?;
    let Some(rest) = Rest::from_sets(&run.plan, sets, bytes) else {
        let file = run.plan.display().to_string();
        let report = quoted(&file);
        complain(&format!(
            "{file} is complete, and nothing was measured; jostle report {report} prints it"
        ));
        return Ok(0);
    };
    let plans = rest.plans.iter().cloned();
    let plans: Vec<(Plan, String)> = plans.map(|plan| (plan, String::new())).collect();
    if !consent::may_run(run, &plans)? {
        return Ok(0);
    }
    messages::hold();
    measure::resume(rest, &run.output)
}

/// Names the points that `--quick` leaves out.
fn tell_left_out(left_out: &[String], output: &Output) {
    let heard = left_out.iter().filter(|_| !output.quiet);
    heard.for_each(|said| complain(said));
}

fn render(report: &Report) -> Result<u8, Failure> {
    check_tidy(&report.format, report.tidy)?;
    let files: Vec<&Path> = report.results.iter().map(PathBuf::as_path).collect();
    labels::check(&report.label, &files)?;
    figures::check_card(report.card.as_deref())?;
    figures::reserve(report.figures.as_deref(), "--figures")?;
    let (mut sets, mut judgements) = (Vec::new(), Vec::new());
    for path in &report.results {
        // Opened once, because what was read from a pipe cannot be read again.
        let mut input = jostle_report::open(path).map_err(anyhow::Error::from)?;
        let name = jostle_report::name_of(path);
        if judged::is_judged(&mut input) {
            let read = judged::read_from(&mut input, &name).map_err(anyhow::Error::from)?;
            read.notes.iter().for_each(|note| complain(note));
            judgements.push(read);
            continue;
        }
        let mut read = jostle_report::read_from(&mut input, &name).map_err(anyhow::Error::from)?;
        labels::apply(&report.label, path, &mut read);
        for set in &read {
            set.notes.iter().for_each(|note| complain(note));
            if let Some(early) = set
                .ended_early()
                .filter(|_| !tells_early_end(&report.format))
            {
                complain(&format!("{}: {early}", path.display()));
            }
        }
        let file = path.display().to_string();
        sets.extend(read.into_iter().map(|set| ResultSet {
            file: Some(file.clone()),
            ..set
        }));
    }
    if !judgements.is_empty() {
        return judge::report(report, &judgements, sets.is_empty());
    }
    let page = html::reserve(report.html.as_deref())?;
    print_results(&report.format, report.tidy, report.verbose, &sets)?;
    html::write(page, &sets)?;
    figures::write(report.figures.as_deref(), || {
        jostle_report::svg_files(&sets)
    })?;
    figures::write_card(report.card.as_deref(), &sets)?;
    let invalid = report.strict && sets.iter().any(ResultSet::is_invalid);
    Ok(if invalid { exit::INVALID } else { exit::DONE })
}

/// Refuses `--tidy` of a format that has no long form.
///
/// # Errors
/// For the user.
pub(crate) fn check_tidy(format: &str, tidy: bool) -> Result<(), Failure> {
    match tidy && format != "csv" {
        true => Err(Failure::Usage(format!(
            "--tidy is a form of csv, and --format is {format}; type --format csv --tidy"
        ))),
        false => Ok(()),
    }
}

/// Prints the results in this format, in its long form with `tidy`. The table is as wide as
/// the terminal, and has every figure with `verbose`.
///
/// # Errors
/// As [`print`].
pub(crate) fn print_results(
    format: &str,
    tidy: bool,
    verbose: bool,
    sets: &[ResultSet],
) -> anyhow::Result<()> {
    match format {
        "csv" if tidy => print(&jostle_report::tidy(sets)),
        "table" => {
            let screen = Screen::here();
            let text = jostle_report::table_within(sets, screen.width, verbose);
            write_out(&screen.paint(&shown(&text)))
        }
        _ => print(&jostle_report::render(format, sets)),
    }
}

/// Whether this format's output states that an experiment ended early.
fn tells_early_end(format: &str) -> bool {
    let mut formats = jostle_report::FORMATS.iter();
    formats.any(|known| known.name == format && known.tells_early_end)
}

fn list(asked: &args::Targets) -> Result<u8, Failure> {
    let markdown = asked.format == "markdown";
    print(&match &asked.name {
        Some(name) => targets::one(name, markdown).map_err(Failure::Usage)?,
        None if markdown => targets::markdown(),
        None => targets::text(),
    })?;
    Ok(0)
}

/// `fix`: as commands for a shell. With members of an etcd, these and not the machine.
fn examine(fix: bool, etcd: &[String]) -> Result<u8, Failure> {
    if !etcd.is_empty() {
        let findings = doctor::etcd::survey(etcd);
        print(&doctor::render(&findings, doctor::etcd::closing(&findings)))?;
        return Ok(0);
    }
    let machine = Machine::read();
    let first = Look::now();
    let last = first.after(Duration::from_millis(500));
    let cpus = machine.cpus.online.len();
    let others = between(&first, &last, &[std::process::id()], cpus);
    let findings = preflight::survey(&machine, &others);
    print(&match fix {
        // The shell whose limits are raised is the parent of this process.
        true => doctor::commands(&findings, std::os::unix::process::parent_id()),
        false => doctor::render(&findings, &doctor::closing(&findings)),
    })?;
    Ok(0)
}

/// The command without its hidden verbs, which clap's completions would offer.
fn visible(command: Command) -> Command {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    Command::new("jostle")
        .version(VERSION)
        .args(command.get_arguments())
        .subcommands(verbs)
}

/// The page of the program, or of one verb under its full name.
fn manual(verb: Option<&str>) -> Result<u8, Failure> {
    let mut command = Cli::command();
    command.build();
    let page_of = match verb {
        None => command,
        Some(verb) => match command.find_subcommand(verb) {
            Some(found) => found
                .clone()
                .name(format!("jostle-{verb}"))
                // The page is the long help.
                .mut_args(|arg| arg.hide_short_help(false))
                .version(VERSION),
            None => {
                return Err(Failure::Usage(format!(
                    "jostle has no verb `{verb}`; `jostle help` lists the verbs"
                )));
            }
        },
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(page_of)
        .render(&mut page)
        .context("cannot make the manual page")?;
    print(&String::from_utf8_lossy(&page))?;
    Ok(0)
}
