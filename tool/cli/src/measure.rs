//! The measuring verbs: plans in, records to the file, a report to stdout.

use crate::args::Output;
use crate::live::Live;
use crate::progress::{Line, span};
use crate::quiet::Looker;
use crate::ranks::{self, Crew, Place};
use crate::signals::Signals;
use crate::{COMMIT, Failure, VERSION, check_tidy, html, messages, print, print_results, told};
use anyhow::anyhow;
use jostle_engine::environment::environment;
use jostle_engine::experiment::{self, Hooks, Outcome};
use jostle_engine::hosts::Host;
use jostle_engine::keeper;
use jostle_engine::preflight::neighbours::Look;
use jostle_engine::preflight::{self, Need, OneHost};
use jostle_engine::proven;
use jostle_engine::resolve::{self, Resolved, resolve_over};
use jostle_engine::takes;
use jostle_engine::world::{World, launched};
use jostle_model::List;
use jostle_model::defaults::NO_NULL;
use jostle_model::plan::{Carrier, Names, Plan, Workload};
use jostle_model::record::{Environment, Record};
use jostle_model::serial::plans_to_toml;
use jostle_report::{ResultSet, Writer};
use jostle_sys::clock::Clock;
use jostle_sys::limits::Machine;
use jostle_sys::{cpu, files, ledger, spawn};
use jostle_targets::address::Address;
use jostle_targets::table::Family;
use jostle_targets::{Spec, all_installed};
use std::path::Path;
use std::time::{Instant, SystemTime};

/// What a forked worker takes beside its own page: kernel stack, page tables,
/// copied pages. The whole stays under 200 KiB.
const WORKER_BYTES: u64 = 200 << 10;
/// A thread has its stack, which it barely touches, and its page.
const THREAD_BYTES: u64 = 100 << 10;

/// A task has a connection, whose other end may be on this machine too, and the
/// head of its page.
const TASK_BYTES: u64 = 32 << 10;

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
        Place::Alone => measure_here(plans, output, None),
        Place::Served(code) => Ok(code),
        Place::First(mut crew) => {
            // Report errors first: dropping the crew may end all ranks, this process
            // included.
            let code = told(measure_here(plans, output, Some(&mut crew)));
            messages::settle();
            drop(crew);
            Ok(code)
        }
    }
}

/// `crew` is the crew of a job of several ranks, which was started before the plans were
/// read.
fn measure_here(
    plans: Vec<(Plan, String)>,
    output: &Output,
    crew: Option<&mut Crew>,
) -> Result<u8, Failure> {
    check_tidy(&output.format, output.tidy)?;
    let hosts = launched().map_or(1, |launched| launched.size);
    let mut resolved = resolve_all(plans, hosts)?;
    if output.dry_run {
        let plans = resolved.iter().map(|r| r.plan.clone().redacted());
        let plans: Vec<Plan> = plans.collect();
        print(&(format!("# {}\n", takes_in_words(&resolved)) + &plans_to_toml(&plans)))?;
        return Ok(0);
    }
    if hosts > 1 && output.wait_quiet.is_some() {
        return Err(Failure::Usage(WAITS_FOR_ONE.to_owned()));
    }
    // Not with several hosts, because it would check only this one.
    let look = hosts == 1 && (output.wait_quiet.is_some() || !output.quiet);
    let look = look.then(Look::now);
    let machine = Machine::read();
    find_programs(&resolved)?;
    let notes = {
        let hosts = crew.as_ref().map_or(&[][..], |crew| crew.world.hosts());
        preflight_all(&resolved, &machine, hosts)?
    };
    let mut alone;
    let crew = match crew {
        Some(crew) => crew,
        None => {
            alone = Crew::alone()?;
            &mut alone
        }
    };
    // After the fork of the keeper, which would otherwise inherit the open ports.
    let live = Live::open(output)?;
    let (mut writer, page) = html::reserve_both(
        output.output.as_deref(),
        output.overwrite,
        output.html.as_deref(),
    )?;
    let line = Line::new(!output.quiet && !output.no_progress, !output.quiet);
    announce(&line, &notes, &resolved, &machine);
    let waited = look.and_then(|first| {
        let looker = Looker {
            first,
            cpus: machine.cpus.online.len(),
            ours: ours(&resolved),
            wait: output.wait_quiet,
            signals: &crew.signals,
            line: Some(&line),
        };
        looker.settle()
    });
    let sinks = Sinks {
        writer: writer.as_mut(),
        live: live.as_ref(),
    };
    let quick = output.quick;
    let ran = match waited {
        Some(exit) => Ran::interrupted(exit),
        None => run_all(crew, &mut resolved, &machine, sinks, &line, quick),
    };
    drop(line);
    if let Some(live) = live {
        live.end(ran.error.as_deref().unwrap_or("finished"));
    }
    crew.world.keeper().end();
    if let (2.., Some(text)) = (hosts, &ran.error) {
        // Print the error with the host's name first: a launcher that ends the job soon
        // stops reading our output.
        crate::complain(text);
    }
    deliver(ran, page, output, &crew.signals)
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

/// As [`preflight`], of all, with what their plans alone give rise to.
fn preflight_all(
    resolved: &[Resolved],
    machine: &Machine,
    hosts: &[Host],
) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    for experiment in resolved {
        notes.extend(preflight(experiment, machine, hosts)?);
        notes.extend(resolve::notes(experiment, hosts));
    }
    Ok(notes)
}

/// What is said before the first run.
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

/// What the experiments came to.
struct Ran {
    sets: Vec<ResultSet>,
    /// The gravest of their codes.
    exit: u8,
    /// What ended them early.
    error: Option<String>,
}

impl Ran {
    /// Before the first run.
    fn interrupted(exit: u8) -> Ran {
        Ran {
            sets: Vec::new(),
            exit,
            error: Some("interrupted".to_owned()),
        }
    }
}

/// Runs the experiments, until one ends with an error.
fn run_all(
    crew: &mut Crew,
    resolved: &mut [Resolved],
    machine: &Machine,
    sinks: Sinks<'_>,
    line: &Line,
    quick: bool,
) -> Ran {
    // The wait for other programs does not count.
    let began = Instant::now();
    let Sinks { mut writer, live } = sinks;
    let plans: Vec<Plan> = resolved.iter().map(|r| r.plan.clone()).collect();
    let mut ran = Ran {
        sets: Vec::new(),
        exit: 0,
        error: None,
    };
    for (nth, experiment) in resolved.iter_mut().enumerate() {
        let share = || takes::share(&plans[nth..], began.elapsed());
        experiment.time_limit = quick.then(share);
        let sinks = Sinks {
            writer: writer.as_deref_mut(),
            live,
        };
        let outcome = one(
            &mut crew.world,
            crew.clock,
            experiment,
            machine,
            sinks,
            &crew.signals,
            Some(line),
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
fn deliver(
    ran: Ran,
    page: Option<html::Page>,
    output: &Output,
    signals: &Signals,
) -> Result<u8, Failure> {
    let Ran {
        sets,
        mut exit,
        mut error,
    } = ran;
    let mut lost = Vec::new();
    let mut kept = Kept::Nothing;
    if sets.iter().any(|set| !set.points.is_empty()) {
        // The page comes first: it can be written even where standard output cannot.
        lost.extend(html::write(page, &sets).err());
        let unprinted = print_results(&output.format, output.tidy, &sets).err();
        if let (Some(_), Some(code)) = (&unprinted, signals.exit_code()) {
            exit = worse(exit, code);
            error.get_or_insert_with(|| "interrupted".to_owned());
        }
        kept = match (&unprinted, output.output.as_deref()) {
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
    if !interrupted {
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
}

pub(crate) fn one(
    world: &mut World,
    clock: Clock,
    resolved: &Resolved,
    machine: &Machine,
    sinks: Sinks<'_>,
    signals: &Signals,
    line: Option<&Line>,
) -> Outcome {
    let Sinks { mut writer, live } = sinks;
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
                line.show(progress);
            }
        },
        record: &mut record,
    };
    let started_at = rfc3339(SystemTime::now());
    experiment::run(
        world,
        clock,
        resolved,
        surroundings(resolved, machine),
        started_at,
        hooks,
    )
}

pub(crate) fn result_set(outcome: Outcome) -> Option<ResultSet> {
    Some(ResultSet {
        fits: outcome.fits,
        ..ResultSet::new(outcome.experiment?, outcome.points, Some(outcome.end))
    })
}

fn surroundings(resolved: &Resolved, machine: &Machine) -> Environment {
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
            let existing = path
                .ancestors()
                .find(|p| p.exists() && !p.as_os_str().is_empty());
            let name = files::file_system(existing.unwrap_or(Path::new(".")));
            environment
                .file_systems
                .extend(name.ok().map(|name| (spec.typed.clone(), name)));
        }
    }
    environment
}

/// Rejects experiments that exceed this machine's limits, before anything starts. Returns
/// notes about the others. With several `hosts`, it checks this host's limits against the
/// largest share of a host.
fn preflight(
    resolved: &Resolved,
    machine: &Machine,
    hosts: &[Host],
) -> Result<Vec<String>, Failure> {
    if let Some(server) = &resolved.plan.server {
        keeper::check_server(server).map_err(Failure::Usage)?;
    }
    let one = OneHost::of(&resolved.plan, hosts);
    if resolved.plan.workload == Workload::Connect {
        return forecast(resolved, machine, &one);
    }
    reach_all(resolved)?;
    for spec in &resolved.specs {
        preflight::fits(&need(&resolved.plan, &one, spec, machine), machine).map_err(
            |refusal| Failure::Failed(anyhow!("{}: {}{refusal}", spec.typed, one.whose())),
        )?;
    }
    let mut notes = unseen_servers(resolved);
    notes.extend(dead_members(resolved));
    Ok(notes)
}

/// A note for each server of a cluster that takes no connection.
fn dead_members(resolved: &Resolved) -> Vec<String> {
    let clusters = resolved
        .specs
        .iter()
        .filter(|spec| spec.entry.lock.clusters);
    let dead = clusters.map(|spec| (spec, Address::dead(spec.argument.as_deref().unwrap_or(""))));
    dead.filter(|(_, dead)| !dead.is_empty())
        .map(|(spec, dead)| {
            format!(
                "{}: {} does not take connections; its workers use the other servers",
                spec.typed,
                dead.join(", ")
            )
        })
        .collect()
}

/// A note for each server of this machine whose processes this user cannot find. Lock
/// servers report their process, and need no note.
fn unseen_servers(resolved: &Resolved) -> Vec<String> {
    let named = resolved.plan.server.as_ref();
    let asked = resolved.specs.iter().filter(|spec| spec.entry.is_asked());
    asked
        .filter_map(|spec| keeper::unseen_server(named, &spec.typed))
        .collect()
}

/// The most runs of a point if the plan does not state their number.
const MOST_RUNS: u64 = 15;

/// The number of ports that closed connections occupy while others are opened. Ports stay
/// in TIME_WAIT for a minute, in which all runs may be made. Between two addresses of
/// 127.0.0.0/8 the kernel by default reuses a port after a second, so that only the largest
/// run counts.
fn resting_ports(plan: &Plan, spec: &Spec, machine: &Machine) -> u64 {
    let Some((largest, each)) = plan.sessions().filter(|_| spec.entry.is_over_tcp()) else {
        return 0;
    };
    let reuse = machine.net.time_wait_reuse.unwrap_or(0);
    match reuse == 1 || (reuse == 2 && spec.is_on_loopback()) {
        true => largest,
        false => each * plan.runs.map_or(MOST_RUNS, u64::from),
    }
}

/// What one host needs for the largest point of a target.
fn need(plan: &Plan, one: &OneHost, spec: &Spec, machine: &Machine) -> Need {
    let beside = |plan: &Plan| plan.waiters.map(|waiters| waiters + 1);
    let most_workers = |plan: &Plan| {
        let workers = most(plan.workers.as_ref());
        workers.or(plan.in_flight).or(beside(plan)).unwrap_or(1)
    };
    let workers = most_workers(&one.plan);
    let carrier = match plan.workload {
        Workload::Spread => Carrier::Threads,
        _ => plan.carrier(),
    };
    let keys = most(plan.keys.as_ref()).unwrap_or(1);
    let keys = match (plan.workload, plan.names) {
        // Each worker opens the files of all workers of all hosts, whichever it locks.
        (Workload::Hold, _) | (_, Some(Names::Own)) => keys * most_workers(plan),
        _ => keys,
    };
    let files = spec.entry.family == Family::File;
    Need {
        workers,
        option: match plan.workload {
            Workload::Spread => "--in-flight",
            Workload::Recover => "--waiters",
            _ => "-w",
        },
        hosts: one.hosts,
        ranks: one.ranks,
        carrier,
        generator_threads: plan.generator_threads(),
        started_each: spec.entry.lock.starts,
        descriptors_each: match () {
            () if files => keys,
            () if carrier == Carrier::Tasks => 1,
            () => 0,
        },
        ports: match spec.entry.is_over_tcp() {
            true => workers,
            false => 0,
        },
        resting_ports: resting_ports(&one.plan, spec, machine),
        semaphores: match spec.entry.lock.semaphore_sets {
            true if keys == 1 => 1,
            true => plan.slots(),
            false => 0,
        },
        memory_each_bytes: match carrier {
            Carrier::Processes => WORKER_BYTES,
            Carrier::Threads => THREAD_BYTES,
            Carrier::Tasks => TASK_BYTES,
        },
        shared_bytes: workers * jostle_engine::PAGE_BYTES as u64,
    }
}

fn most(list: Option<&List>) -> Option<u64> {
    list.and_then(|list| list.0.iter().max().copied())
}

/// The same for connections, curve by curve.
fn forecast(resolved: &Resolved, machine: &Machine, one: &OneHost) -> Result<Vec<String>, Failure> {
    let open = one.plan.open.as_ref().map_or(&[][..], |list| &list.0);
    let mut notes = Vec::new();
    for (target, at) in resolved.points() {
        let spec = &resolved.specs[target];
        let load = preflight::demand(&one.plan, spec, at);
        let whose = one.whose();
        let said = preflight::forecast(&load, open, machine)
            .map_err(|refusal| Failure::Failed(anyhow!("{}: {whose}{refusal}", spec.typed)))?;
        let curve = format!("{}, sources {}", spec.typed, at.sources.unwrap_or(1));
        for note in said
            .into_iter()
            .map(|note| format!("{curve}: {whose}{note}"))
        {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    Ok(notes)
}

/// Programs that are missing are an error before anything starts: of all experiments at
/// once, so that one command installs them.
fn find_programs(resolved: &[Resolved]) -> Result<(), Failure> {
    let specs: Vec<&Spec> = resolved.iter().flat_map(|one| &one.specs).collect();
    all_installed(&specs).map_err(|(missing, error)| {
        let names: Vec<&str> = missing.iter().map(|spec| spec.typed.as_str()).collect();
        Failure::Usage(format!("{}: {error}", names.join(", ")))
    })
}

/// A server that does not answer is an error before anything starts.
fn reach_all(resolved: &Resolved) -> Result<(), Failure> {
    let failed = |said: String| Failure::Failed(anyhow!(said));
    let credentials = resolved.plan.credentials.as_deref().map(Path::new);
    // A local lock fails here because of its argument, so that the error is a usage error.
    for spec in resolved.specs.iter().filter(|spec| is_local_lock(spec)) {
        spec.reach(credentials)
            .map_err(|error| Failure::Usage(format!("{}: {error}", spec.typed)))?;
    }
    for spec in resolved.specs.iter().filter(|spec| spec.entry.is_asked()) {
        spec.reach(credentials)
            .map_err(|error| failed(format!("{}: {error}", spec.typed)))?;
    }
    match resolved
        .plan
        .null
        .as_deref()
        .filter(|null| *null != NO_NULL)
    {
        None => Ok(()),
        Some(null) => Spec::parse(null)
            .and_then(|spec| spec.reach(None).map_err(|error| error.to_string()))
            .map_err(|error| failed(format!("--null {null}: {error}"))),
    }
}

/// Whether the target is a lock without a server. An unreachable server is found when its
/// run is prepared.
fn is_local_lock(spec: &Spec) -> bool {
    !matches!(
        spec.entry.family,
        Family::Service | Family::Connection | Family::Server
    )
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

    /// So many hosts, of a machine each.
    fn hosts(count: usize) -> Vec<Host> {
        let host = |nth: usize| Host {
            name: format!("h{}", nth + 1),
            boot_id: format!("{nth}"),
            ..Host::default()
        };
        (0..count).map(host).collect()
    }

    fn resolved(plan: Plan, hosts: usize) -> Resolved {
        resolve_over(plan, 7, &[0, 1], hosts).unwrap()
    }

    #[test]
    fn a_plan_that_hosts_carry_together_need_not_fit_one() {
        let of = |target: &str, change: fn(&mut Plan), count: usize| {
            let mut plan = Plan::of(Workload::Contend);
            plan.targets = vec![target.to_owned()];
            plan.workers = Some(List(vec![90, 1_800]));
            change(&mut plan);
            let resolved = resolved(plan, count);
            let one = OneHost::of(&resolved.plan, &hosts(count));
            need(
                &resolved.plan,
                &one,
                &resolved.specs[0],
                &Machine::default(),
            )
        };
        let whole = of("flock:/mnt/x", |_| {}, 1);
        let part = of("flock:/mnt/x", |_| {}, 18);
        let expected = Need {
            workers: 100,
            hosts: 18,
            shared_bytes: whole.shared_bytes / 18,
            ..whole
        };
        assert_eq!((whole.workers, part), (1_800, expected));
        let spread = |plan: &mut Plan| {
            *plan = Plan {
                targets: plan.targets.clone(),
                in_flight: Some(90),
                generators: Some(List(vec![3, 18])),
                ..Plan::of(Workload::Spread)
            };
        };
        let part = of("http://server/", spread, 18);
        assert_eq!((part.workers, part.option), (30, "--in-flight"));
        // Files of locks of their own are opened by all workers.
        let own = |plan: &mut Plan| {
            *plan = Plan {
                targets: plan.targets.clone(),
                workers: Some(List(vec![6])),
                names: Some(Names::Own),
                ..Plan::of(Workload::Stream)
            };
        };
        let part = of("flock:/mnt/x/", own, 3);
        assert_eq!((part.workers, part.descriptors_each), (2, 6));
    }

    #[test]
    fn a_refusal_says_whose_limits_they_are() {
        let mut plan = Plan::of(Workload::Contend);
        plan.targets = vec!["null".to_owned()];
        plan.workers = Some(List(vec![1_800]));
        let mut machine = Machine::default();
        machine.kernel.pid_max = Some(400);
        let said = |count: usize| {
            let resolved = resolved(plan.clone(), count);
            match preflight(&resolved, &machine, &hosts(count)) {
                Err(Failure::Failed(error)) => error.to_string(),
                _ => String::new(),
            }
        };
        let alone = said(1);
        assert!(
            alone.starts_with("null: 1800 worker processes need"),
            "{alone}"
        );
        let several = said(9);
        assert!(
            several.starts_with(
                "null: by the limits of h1, for its part as one of 9 hosts: 200 worker processes \
                 need 203 pids"
            ) && several.ends_with("or -w at most 873"),
            "{several}"
        );
        assert_eq!(said(20), "", "90 fit");
    }

    #[test]
    fn the_gravest_exit_code_wins() {
        for (one, other, both) in [(0, 3, 3), (3, 0, 3), (1, 3, 1), (3, 130, 130), (0, 0, 0)] {
            assert_eq!(worse(one, other), both);
        }
    }
}
