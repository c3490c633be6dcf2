//! The `jostle` binary: arguments, plan files, wiring. It measures nothing by
//! itself; it hands plans to the engine and records to the report.

mod args;
mod calibrate;
mod compare;
mod doctor;
mod explain;
mod html;
mod measure;
mod plan_file;
mod progress;
mod quiet;
mod ranks;
mod serve;
mod signals;
mod targets;

use anyhow::Context;
use args::{Cli, Report, Run, Verb};
use clap::{CommandFactory, Parser};
use jostle_engine::experiment::exit;
use jostle_engine::preflight;
use jostle_engine::preflight::neighbours::{Look, between};
use jostle_report::ResultSet;
use jostle_sys::limits::Machine;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::Duration;

/// This build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built from, where git told the build.
pub const COMMIT: Option<&str> = option_env!("JOSTLE_COMMIT");

/// Why there is no result, or no whole one.
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

fn main() -> ExitCode {
    let verb = match Cli::try_parse() {
        Ok(cli) => cli.verb,
        // The first says so.
        Err(_) if ranks::are_others() => return ExitCode::SUCCESS,
        Err(error) => error.exit(),
    };
    // What ranks do not measure together the first does alone.
    if ranks::are_others() && !verb.is_of_ranks() {
        return ExitCode::SUCCESS;
    }
    let done = match verb {
        Verb::Contend(contend) => measure::measure(vec![contend.plan()], &contend.output),
        Verb::Stream(stream) => measure::measure(vec![stream.plan()], &stream.output),
        Verb::Call(call) => measure::measure(vec![call.plan()], &call.output),
        Verb::Hold(hold) => measure::measure(vec![hold.plan()], &hold.output),
        Verb::Rate(rate) => measure::measure(vec![rate.plan()], &rate.output),
        Verb::Connect(connect) => measure::measure(vec![connect.plan()], &connect.output),
        Verb::Spread(spread) => measure::measure(vec![spread.plan()], &spread.output),
        Verb::Run(run) => run_plan(&run),
        Verb::Report(report) => render(&report),
        Verb::Compare(compare) => compare::compare(&compare),
        Verb::Calibrate(calibrate) => calibrate::calibrate(&calibrate),
        Verb::Targets(targets) => list(&targets.format),
        Verb::Explain(asked) => explain::explain(&asked),
        Verb::Doctor => examine(),
        Verb::Serve { server } => serve::serve(&server),
        Verb::Disturb { words } => calibrate::disturb(&words),
        Verb::Completions { shell } => complete(shell),
        Verb::Man { verb } => manual(verb.as_deref()),
    };
    ExitCode::from(told(done))
}

/// The exit code; what went wrong is said.
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

/// To stderr; if that is closed, nobody is left to tell.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "jostle: {text}");
}

/// To stdout. A reader that has seen enough (`| head`) is no error.
///
/// # Errors
/// Any other failure to write, such as a full disk.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

fn run_plan(run: &Run) -> Result<u8, Failure> {
    let text = plan_file::load(&run.plan)?;
    let mut plans =
        plan_file::read(&run.plan, &text).map_err(|e| Failure::Usage(format!("{e:#}")))?;
    if run.quick {
        plans.iter_mut().for_each(jostle_engine::resolve::quicken);
    }
    measure::measure(plans, &run.output)
}

fn render(report: &Report) -> Result<u8, Failure> {
    let page = html::reserve(report.html.as_deref())?;
    let mut sets = Vec::new();
    for path in &report.results {
        sets.extend(jostle_report::read(path).map_err(anyhow::Error::from)?);
    }
    sets.iter()
        .flat_map(|set| &set.notes)
        .for_each(|note| complain(note));
    print(&jostle_report::render(&report.format, &sets))?;
    html::write(page, &sets)?;
    let invalid = report.strict && sets.iter().any(ResultSet::is_invalid);
    Ok(if invalid { exit::INVALID } else { exit::DONE })
}

fn list(format: &str) -> Result<u8, Failure> {
    print(&match format {
        "markdown" => targets::markdown(),
        _ => targets::text(),
    })?;
    Ok(0)
}

fn examine() -> Result<u8, Failure> {
    let machine = Machine::read();
    let first = Look::now();
    let last = first.after(Duration::from_millis(500));
    let cpus = machine.cpus.online.len();
    let others = between(&first, &last, &[std::process::id()], cpus);
    print(&doctor::render(&preflight::survey(&machine, &others)))?;
    Ok(0)
}

fn complete(shell: clap_complete::Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "jostle", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(0)
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
                .version(VERSION),
            None => {
                return Err(Failure::Usage(format!(
                    "there is no verb `{verb}`; `jostle help` lists them"
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
