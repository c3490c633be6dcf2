//! The measuring verbs: plans in, records to the file, a report to stdout.

mod before;

use crate::args::Output;
use crate::live::Live;
use crate::progress::{Line, span};
use crate::quiet::{Beside, Looker};
use crate::ranks::{self, Crew, Place};
use crate::resume::{self, Rest};
use crate::signals::Signals;
use crate::{COMMIT, Failure, VERSION, check_tidy, html, messages, print, print_results, told};
use anyhow::anyhow;
use jostle_engine::environment::environment;
use jostle_engine::experiment::{self, Earlier, Hooks, Outcome, Progress, Session};
use jostle_engine::keeper;
use jostle_engine::preflight::busy::Look;
use jostle_engine::proven;
use jostle_engine::resolve::{Resolved, resolve_over};
use jostle_engine::takes;
use jostle_engine::world::{World, launched};
use jostle_model::plan::Plan;
use jostle_model::record::{Environment, Record, Scheduled};
use jostle_model::serial::plans_to_toml;
use jostle_report::{ResultSet, Writer};
use jostle_sys::clock::Clock;
use jostle_sys::limits::Machine;
use jostle_sys::{cpu, files, ledger, spawn};
use jostle_targets::Spec;
use jostle_targets::table::Family;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

/// Printed before the first run if there is no calibration of this build on this machine.
const NOT_CALIBRATED: &str = "this build has not been calibrated on this machine: jostle calibrate";

const WAITS_FOR_ONE: &str = "--wait-quiet looks at one machine: wait for each host before mpirun, \
                             or leave it out";

/// Runs these plans one after the other and returns the exit code.
///
/// # Errors
/// What is impossible, before anything has started; what failed, after the
/// finished points have been printed.
pub(crate) fn measure(plans: Vec<Plan>, output: &Output) -> Result<u8, Failure> {
    let typed = plans.into_iter().map(|plan| (plan, String::new()));
    measure_from(typed.collect(), output)
}

/// Like [`measure`], for plans from a file. Each plan comes with its place in the file,
/// which its error messages begin with.
///
/// # Errors
/// As [`measure`].
pub(crate) fn measure_from(plans: Vec<(Plan, String)>, output: &Output) -> Result<u8, Failure> {
    match ranks::join(output.dry_run)? {
        Place::Alone => measure_here(plans, output, None, None),
        Place::Served(code) => Ok(code),
        Place::Coordinator(mut crew) => {
            // Report errors first: dropping the crew may end all ranks, this process
            // included.
            let code = told(measure_here(plans, output, Some(&mut crew), None));
            messages::settle();
            drop(crew);
            Ok(code)
        }
    }
}

/// Measures what is missing in a result file, and adds it there.
///
/// # Errors
/// As [`measure`], and what differs from when the file was written.
pub(crate) fn resume(rest: Rest, output: &Output) -> Result<u8, Failure> {
    let plans = rest.plans.iter().cloned();
    let plans = plans.map(|plan| (plan, String::new())).collect();
    measure_here(plans, output, None, Some(rest))
}

/// `crew` is the crew of a job of several ranks, which was started before the plans were
/// read.
fn measure_here(
    plans: Vec<(Plan, String)>,
    output: &Output,
    crew: Option<&mut Crew>,
    mut rest: Option<Rest>,
) -> Result<u8, Failure> {
    check_tidy(&output.format, output.tidy)?;
    let hosts = launched().map_or(1, |launched| launched.size);
    let mut resolved = resolve_all(plans, hosts)?;
    if output.dry_run {
        print(&plans_in_full(&resolved))?;
        return Ok(0);
    }
    let look = first_look(hosts, output)?;
    let machine = Machine::read();
    let mut session = Parts {
        scheduled: resume::this_session(),
        earlier: None,
        quick: output.quick,
    };
    if let Some(rest) = &mut rest {
        session.earlier = resume::earlier_of(rest, &resolved[0], &machine, &session.scheduled)?;
    }
    before::find_programs(&resolved)?;
    let notes = {
        let hosts = crew.as_ref().map_or(&[][..], |crew| crew.world.hosts());
        before::preflight_all(&resolved, &machine, hosts)?
    };
    let mut alone = None;
    let crew = match crew {
        Some(crew) => crew,
        None => alone.insert(Crew::alone()?),
    };
    // After the fork of the keeper, which would otherwise inherit the open ports.
    let live = Live::open(output)?;
    let mut files = reserve(rest.as_ref(), output)?;
    let line = Line::new(!output.quiet && !output.no_progress, !output.quiet);
    announce(&line, &notes, &resolved, &machine);
    let beside = look.map(|first| beside(first, &machine, &resolved));
    let looker = |beside| Looker {
        beside,
        wait: output.wait_quiet,
        signals: &crew.signals,
        line: Some(&line),
    };
    let waited = beside.as_ref().map(looker).and_then(Looker::settle);
    let sinks = Sinks {
        writer: files.writer.as_mut(),
        live: live.as_ref(),
        line: Some(&line),
        // Whoever waits has decided already.
        beside: beside.as_ref().filter(|_| output.wait_quiet.is_none()),
    };
    let mut ran = match waited {
        Some(exit) => Ran::interrupted(exit),
        None => run_all(crew, &mut resolved, &machine, sinks, session),
    };
    drop(line);
    let finished = rest.map_or_else(Vec::new, |rest| rest.finished);
    ran.follow(finished, files.file.as_deref());
    if let Some(live) = live {
        live.end(ran.error.as_deref().unwrap_or("finished"));
    }
    crew.world.keeper().end();
    if let (2.., Some(text)) = (hosts, &ran.error) {
        // Print the error with the host's name first: a launcher that ends the job soon
        // stops reading our output.
        crate::complain(text);
    }
    deliver(ran, files, output, &crew.signals)
}

fn beside(first: Look, machine: &Machine, resolved: &[Resolved]) -> Beside {
    Beside {
        first,
        cpus: machine.cpus.online.len(),
        ours: ours(resolved),
    }
}

/// A look at the programs that run beside, before anything is started. Not with several hosts, because it
/// would look at this one only.
fn first_look(hosts: usize, output: &Output) -> Result<Option<Look>, Failure> {
    if hosts > 1 && output.wait_quiet.is_some() {
        return Err(Failure::Usage(WAITS_FOR_ONE.to_owned()));
    }
    let look = hosts == 1 && (output.wait_quiet.is_some() || !output.quiet);
    Ok(look.then(Look::now))
}

/// Where results go.
struct Files {
    file: Option<PathBuf>,
    writer: Option<Writer>,
    page: Option<html::Page>,
}

/// Opens the result file, which a resumed run continues, and the page.
fn reserve(rest: Option<&Rest>, output: &Output) -> Result<Files, Failure> {
    let file = rest.map(|rest| rest.path.as_path());
    let file = file.or(output.output.as_deref());
    let open = |path: &Path| match rest {
        Some(rest) => Writer::append(path, rest.bytes.len() as u64),
        None => Writer::create(path, output.overwrite),
    };
    let (writer, page) = html::reserve_both(file, &open, output.html.as_deref())?;
    let file = file.map(Path::to_owned);
    Ok(Files { file, writer, page })
}

/// The output of `--dry-run`.
fn plans_in_full(resolved: &[Resolved]) -> String {
    let plans = resolved.iter().map(|r| r.plan.clone().redacted());
    let plans: Vec<Plan> = plans.collect();
    format!("# {}\n", takes_in_words(resolved)) + &plans_to_toml(&plans)
}

/// The plans that can be run, with their defaults.
///
/// # Errors
/// What is impossible, behind its plan's place; that nothing is left.
fn resolve_all(plans: Vec<(Plan, String)>, hosts: usize) -> Result<Vec<Resolved>, Failure> {
    let allowed = cpu::allowed();
    let mut resolved = Vec::new();
    for (plan, from) in plans {
        let said = |error: String| Failure::Usage(from.clone() + &error);
        if let Some(plan) = settle_optional(plan).map_err(said)? {
            let plan = resolve_over(plan, fresh_seed(), &allowed, hosts);
            resolved.push(plan.map_err(|error| said(error.to_string()))?);
        }
    }
    match resolved.is_empty() {
        true => Err(Failure::Failed(anyhow!("nothing is left to measure"))),
        false => Ok(resolved),
    }
}

/// Prints the announcement before the first run.
fn announce(line: &Line, notes: &[String], resolved: &[Resolved], machine: &Machine) {
    notes.iter().for_each(|note| line.note(note));
    // A single experiment reports its duration by itself, after its pilots.
    if resolved.len() > 1 {
        line.note(&takes_in_words(resolved));
    }
    if let Err(left) = ledger::sweep_dead() {
        line.note(&format!(
            "could not remove what an earlier run left: {}",
            left.join("; ")
        ));
    }
    let here = environment(machine, VERSION, COMMIT);
    if proven::last(&here).is_none() {
        line.note(NOT_CALIBRATED);
    }
}

/// The result of the experiments.
#[derive(Default)]
struct Ran {
    sets: Vec<ResultSet>,
    /// The gravest of their codes.
    exit: u8,
    /// The error that ended them early.
    error: Option<String>,
}

impl Ran {
    /// Before the first run.
    fn interrupted(exit: u8) -> Ran {
        let (sets, error) = (Vec::new(), Some("interrupted".to_owned()));
        Ran { sets, exit, error }
    }

    /// Puts what an earlier session finished before it; all of it stands in `file`.
    fn follow(&mut self, finished: Vec<ResultSet>, file: Option<&Path>) {
        self.sets.splice(..0, finished);
        for set in &mut self.sets {
            set.file = file.map(|path| path.display().to_string());
        }
    }
}

/// State that the experiments of a command share.
struct Parts {
    /// Boot and program.
    scheduled: Scheduled,
    /// The measured part of the first one.
    earlier: Option<Earlier>,
    quick: bool,
}

/// Runs the experiments, until one ends with an error.
fn run_all(
    crew: &mut Crew,
    resolved: &mut [Resolved],
    machine: &Machine,
    sinks: Sinks<'_>,
    mut parts: Parts,
) -> Ran {
    // The wait for other programs does not count.
    let began = Instant::now();
    let Sinks {
        mut writer,
        live,
        line,
        beside,
    } = sinks;
    let plans: Vec<Plan> = resolved.iter().map(|r| r.plan.clone()).collect();
    let mut ran = Ran::default();
    for (nth, experiment) in resolved.iter_mut().enumerate() {
        let share = || takes::share(&plans[nth..], began.elapsed());
        experiment.time_limit = parts.quick.then(share);
        let sinks = Sinks {
            writer: writer.as_deref_mut(),
            live,
            line,
            // Once: what is planned first is what one would end.
            beside: beside.filter(|_| nth == 0),
        };
        let then = plans[nth + 1..].iter().map(|plan| plan.clone().redacted());
        let session = Session {
            started_at: rfc3339(SystemTime::now()),
            scheduled: Scheduled {
                then: then.collect(),
                ..parts.scheduled.clone()
            },
            earlier: parts.earlier.take(),
        };
        let outcome = one(
            &mut crew.world,
            crew.clock,
            experiment,
            machine,
            sinks,
            &crew.signals,
            session,
        );
        ran.exit = worse(ran.exit, outcome.end.exit);
        ran.error = outcome.end.error.clone();
        ran.sets.extend(result_set(outcome));
        if ran.error.is_some() {
            break;
        }
    }
    ran
}

/// Prints the results and writes the page; returns the exit code.
fn deliver(ran: Ran, files: Files, output: &Output, signals: &Signals) -> Result<u8, Failure> {
    let (sets, mut exit, mut error) = (ran.sets, ran.exit, ran.error);
    let mut lost = Vec::new();
    let mut kept = Kept::Nothing;
    if sets.iter().any(|set| !set.runs.is_empty()) {
        // The page comes first: it can be written even where standard output cannot.
        lost.extend(html::write(files.page, &sets).err());
        let unprinted = print_results(&output.format, output.tidy, output.verbose, &sets).err();
        if let (Some(_), Some(code)) = (&unprinted, signals.exit_code()) {
            exit = worse(exit, code);
            error.get_or_insert_with(|| "interrupted".to_owned());
        }
        kept = match (&unprinted, files.file.as_deref()) {
            (_, Some(path)) => Kept::File {
                path,
                printed: unprinted.is_none(),
            },
            (None, None) => Kept::Printed,
            (Some(_), None) => Kept::Lost,
        };
        lost.extend(unprinted);
    }
    // Reported in addition to the error that ended the experiment.
    for lost in &lost {
        crate::complain(&format!("{lost:#}"));
    }
    let concluded = conclude(exit, error, &kept);
    match lost.is_empty() {
        true => concluded,
        false => concluded.map(|code| worse(code, experiment::exit::FAILED)),
    }
}

/// Where the finished points are.
enum Kept<'a> {
    /// None was finished.
    Nothing,
    /// On standard output only.
    Printed,
    /// In this file, and perhaps on standard output, too.
    File { path: &'a Path, printed: bool },
    /// Nowhere, as standard output could not be written.
    Lost,
}

/// An estimate of how long these experiments take, made before anything has started.
fn takes_in_words(resolved: &[Resolved]) -> String {
    let noun = if resolved.len() == 1 {
        "experiment"
    } else {
        "experiments"
    };
    format!(
        "{} {noun}, about {} in all",
        resolved.len(),
        span(takes::takes_resolved(resolved))
    )
}

/// This process and the servers under test. They and their descendants do not count as
/// neighbours.
fn ours(resolved: &[Resolved]) -> Vec<u32> {
    let servers = resolved.iter().flat_map(|experiment| {
        let named = experiment.plan.server.as_ref();
        let specs = experiment.specs.iter();
        specs.flat_map(move |spec| keeper::server_processes(named, spec.whole()))
    });
    servers.chain([std::process::id()]).collect()
}

/// Adds the reachable optional targets to the targets, and reports those that are not. None
/// if nothing is left to measure.
///
/// # Errors
/// For the user: a target that there is not.
fn settle_optional(mut plan: Plan) -> Result<Option<Plan>, String> {
    let optional = std::mem::take(&mut plan.optional);
    let credentials = plan.credentials.clone();
    let credentials = credentials.as_deref().map(Path::new);
    let only_optional = plan.targets.is_empty() && !optional.is_empty();
    for typed in optional {
        let spec = Spec::parse(&typed)?;
        match spec.installed().and_then(|()| spec.reach(credentials)) {
            Ok(()) => plan.targets.push(typed),
            Err(error) => crate::complain(&format!("{spec} is left out: {error}")),
        }
    }
    Ok((!only_optional || !plan.targets.is_empty()).then_some(plan))
}

/// Several experiments end with the gravest of their codes.
fn worse(one: u8, other: u8) -> u8 {
    use experiment::exit;
    let rank = |code: u8| match code {
        exit::DONE => 0,
        exit::INVALID => 1,
        exit::FAILED => 2,
        _ => 3,
    };
    if rank(other) > rank(one) { other } else { one }
}

/// Reports the error that ended the experiment, with where its points are.
fn conclude(exit: u8, error: Option<String>, kept: &Kept<'_>) -> Result<u8, Failure> {
    let Some(text) = error else { return Ok(exit) };
    let interrupted = exit >= experiment::exit::INTERRUPTED - 1;
    let text = match (interrupted, kept) {
        (true, Kept::Nothing) => format!("{text}; no point was finished"),
        (true, Kept::File { path, .. }) => {
            format!("{text}; finished points are kept in {}", path.display())
        }
        // After a failure the file is not named, because it may be what failed.
        (_, Kept::Printed) | (false, Kept::File { printed: true, .. }) => {
            format!("{text}; finished points are printed above")
        }
        (false, Kept::Nothing | Kept::File { printed: false, .. }) | (_, Kept::Lost) => text,
    };
    if exit == experiment::exit::FAILED {
        return Err(Failure::Failed(anyhow!(text)));
    }
    crate::complain(&text);
    Ok(exit)
}

/// Destinations of an experiment's records while it runs.
#[derive(Default)]
pub(crate) struct Sinks<'a> {
    /// The result file.
    pub writer: Option<&'a mut Writer>,
    /// The page and the metrics.
    pub live: Option<&'a Live>,
    /// The line of progress.
    pub line: Option<&'a Line>,
    /// Whose use of the CPUs is told before the first window.
    pub beside: Option<&'a Beside>,
}

pub(crate) fn one(
    world: &mut World,
    clock: Clock,
    resolved: &Resolved,
    machine: &Machine,
    sinks: Sinks<'_>,
    signals: &Signals,
    session: Session,
) -> Outcome {
    let Sinks {
        mut writer,
        live,
        line,
        beside,
    } = sinks;
    if let (Some(live), Some(earlier)) = (live, &session.earlier) {
        live.record(&Record::Experiment(Box::new(earlier.experiment.clone())));
        let runs = earlier.runs.iter().cloned().map(Box::new);
        runs.map(Record::Run).for_each(|run| live.record(&run));
    }
    line.inspect(|line| line.restart());
    let mut record = |record: &Record| {
        live.inspect(|live| live.record(record));
        match writer.as_mut() {
            Some(writer) => writer.write(record).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    };
    let hooks = Hooks {
        ended: &mut || {
            line.inspect(|line| line.beat());
            live.inspect(|live| live.beat(|| line.map_or_else(String::new, Line::text)));
            signals.exit_code()
        },
        watched: live.is_some(),
        progress: &mut |progress| {
            live.inspect(|live| live.show(&progress));
            if let Some(line) = line {
                let is_planned = matches!(progress, Progress::Planned { .. });
                let warning = beside.filter(|_| is_planned).and_then(Beside::warning);
                line.show(progress);
                warning.inspect(|warning| line.note(warning));
            }
        },
        record: &mut record,
    };
    experiment::run(
        world,
        clock,
        resolved,
        surroundings(resolved, machine),
        session,
        hooks,
    )
}

pub(crate) fn result_set(outcome: Outcome) -> Option<ResultSet> {
    Some(ResultSet {
        fits: outcome.fits,
        scheduled: Some(outcome.scheduled),
        resumed: outcome.resumed,
        ..ResultSet::new(outcome.experiment?, outcome.runs, Some(outcome.end))
    })
}

pub(crate) fn surroundings(resolved: &Resolved, machine: &Machine) -> Environment {
    let mut environment = environment(machine, VERSION, COMMIT);
    for spec in &resolved.specs {
        let words = spec.argument.as_deref().unwrap_or_default();
        let first = words.split(['?', ' ']).next().unwrap_or_default();
        let mark = spawn::find(first).or_else(|_| Path::new(first).canonicalize());
        let mark = mark.ok().and_then(|path| files::program_mark(&path));
        environment
            .programs
            .extend(mark.map(|mark| (spec.typed.clone(), mark)));
        if spec.entry.family == Family::File {
            let usual = ledger::usual_place();
            let typed = spec.argument.as_deref();
            let typed = typed.map(|path| path.replace(jostle_targets::WORKER, "0"));
            let path = typed.as_deref().map_or(usual.as_path(), Path::new);
            let mut existing = path.ancestors();
            let existing = existing.find(|p| p.exists() && !p.as_os_str().is_empty());
            let name = files::file_system(existing.unwrap_or(Path::new(".")));
            environment
                .file_systems
                .extend(name.ok().map(|name| (spec.typed.clone(), name)));
        }
    }
    environment
}

/// A seed that differs from run to run; it is printed with the result.
pub(crate) fn fresh_seed() -> u64 {
    let nanos = jostle_sys::clock::monotonic() ^ u64::from(std::process::id()).rotate_left(32);
    // 53 bits, so that every JSON reader keeps it exactly.
    jostle_stats::rng::Rng::new(nanos).next_u64() >> 11
}

/// A wall-clock label in UTC, such as `2026-11-21T02:03:04Z`; before 1970, its beginning.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time.max(SystemTime::UNIX_EPOCH)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn labels_are_dates() {
        for (seconds, label) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_827_696, "2000-02-29T12:34:56Z"),
            (1_795_219_200, "2026-11-21T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), label);
        }
    }

    #[test]
    fn the_gravest_exit_code_wins() {
        for (one, other, both) in [(0, 3, 3), (3, 0, 3), (1, 3, 1), (3, 130, 130), (0, 0, 0)] {
            assert_eq!(worse(one, other), both);
        }
    }
}
