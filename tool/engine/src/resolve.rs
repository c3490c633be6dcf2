//! From a plan as typed to one that can be run: defaults are filled in, the grid is
//! expanded, and impossible combinations are rejected before anything starts.

/// Refuses a plan of which one of these holds, in the words beside it.
macro_rules! refuse_where {
    ($($holds:expr => $words:literal $(, $of:expr)*;)+) => {
        $(if $holds {
            return refuse(format!($words $(, $of)*));
        })+
    };
}

mod connect;
pub(crate) mod hold;
mod hosts;
pub(crate) mod rate;
pub(crate) mod recover;
mod requests;
mod spread;
pub(crate) mod verify;

use jostle_harness::during;
use jostle_model::options::{DefaultValue, MOST_KEYS, OPTIONS, Opt};
use jostle_model::plan::{Carrier, Names, Place, Plan, Range, Workload};
use jostle_model::time::{Busy, Nanos};
use jostle_model::{List, defaults, record::At};
use jostle_targets::Spec;
use jostle_targets::table::Family;

/// With `--quick`.
const QUICK_WINDOW: Nanos = Nanos::from_millis(250);
const QUICK_WARMUP: Nanos = Nanos::from_millis(100);
const MOST_WORKERS: u64 = 100_000;

pub use hosts::{notes, resolve_over};

/// A plan that asks for something impossible, in words for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

fn refuse<T>(text: impl Into<String>) -> Result<T, UsageError> {
    Err(UsageError(text.into()))
}

/// A resolved plan, and what it means.
#[derive(Debug)]
pub struct Resolved {
    /// Every field filled in that the workload uses.
    pub plan: Plan,
    /// Its targets.
    pub specs: Vec<Spec>,
    /// The swept values are defaults, so that some may be left out.
    pub may_drop: bool,
    /// The window is a default of the workload, and may become as short as this.
    pub may_shorten: Option<Nanos>,
    /// With `--quick`: what the whole experiment may take, whatever else is asked for.
    pub time_limit: Option<Nanos>,
    /// Options of the user that fix how long the runs take, as typed.
    pub given: Vec<String>,
}

impl Resolved {
    /// The points, target by target, in the order of the plan.
    pub fn points(&self) -> Vec<(usize, At)> {
        let ats = At::swept(&self.plan);
        let members = self.plan.members();
        (0..self.specs.len())
            .flat_map(|target| ats.iter().map(move |at| (target, *at)))
            .filter(|(target, at)| {
                let fault = at.fault.into_iter();
                let mut senseless =
                    fault.filter(|f| !recover::makes_sense(*f, &self.specs[*target], members));
                senseless.next().is_none()
            })
            .collect()
    }
}

/// Fills in defaults and refuses what makes no sense. `fresh_seed` serves where
/// the plan has none; `allowed` are the CPUs that we may use.
///
/// # Errors
/// In words for the user: what is impossible, why, and what would do.
pub fn resolve(mut plan: Plan, fresh_seed: u64, allowed: &[usize]) -> Result<Resolved, UsageError> {
    let swept = plan.workload.swept();
    // How long locks are kept is what somebody asked for.
    let asked = (swept.list)(&mut plan).is_some() || plan.keep.is_some();
    let may_drop = plan.workload.facts().may_drop && !asked;
    let may_shorten = match plan.workload {
        Workload::Rate => Some(rate::QUICK_WINDOW),
        Workload::Spread => Some(spread::SHORTEST_WINDOW),
        _ => None,
    };
    let may_shorten = may_shorten.filter(|_| plan.duration.is_none());
    let given = given(&plan);
    check_words(&plan)?;
    check_bounds(&plan)?;
    if plan.workload == Workload::Connect {
        return connect::resolve(plan, fresh_seed, allowed);
    }
    if plan.workload == Workload::Recover {
        return recover::resolve(plan, fresh_seed);
    }
    if plan.workload == Workload::Verify {
        return verify::resolve(plan, fresh_seed);
    }
    debug_assert!(
        plan.optional.is_empty(),
        "whoever can reach them settles them"
    );
    if plan.targets.is_empty() {
        plan.targets = named(defaults::targets(plan.workload));
    }
    rate::fill_in(&mut plan)?;
    plan.fill_from(defaults::swept(plan.workload));
    plan.fill_from(defaults::options(plan.workload));
    if plan.find.is_some() {
        plan.duration = None;
    }
    if plan.carrier == Some(Carrier::Tasks) {
        plan.generator_threads
            .get_or_insert(generator_threads(allowed.len()));
    }
    spread::fill_in(&mut plan, allowed);
    hold::fill_in(&mut plan);
    plan.seed.get_or_insert(fresh_seed);
    let specs = specs(&plan)?;
    requests::fill_in(&mut plan, &specs);
    check_numbers(&plan)?;
    check_place(&plan, allowed)?;
    requests::check(&plan, &specs)?;
    rate::check(&plan)?;
    spread::check(&plan, allowed)?;
    hold::check(&plan)?;
    check_commands(&plan)?;
    specs.iter().try_for_each(|spec| check_pair(&plan, spec))?;
    Ok(Resolved {
        plan,
        specs,
        may_drop,
        may_shorten,
        time_limit: None,
        given,
    })
}

/// The options by which the user has fixed how long the runs take, as typed: the window, where runs
/// have one (else -t is a limit and no length), how many they are, and what is swept.
fn given(plan: &Plan) -> Vec<String> {
    let is_swept = |option: &Opt| {
        let used = option.in_workload(plan.workload);
        used.is_some_and(|used| matches!(used.default, DefaultValue::Swept(_)))
    };
    let fixes = |option: &&Opt| match option.word {
        "duration" => plan.workload.has_window(),
        "warmup" | "runs" | "for" => true,
        _ => is_swept(option),
    };
    let given = OPTIONS.iter().filter(|option| option.get(plan).is_some());
    let (swept, fixed): (Vec<&Opt>, _) = given.filter(fixes).partition(|option| is_swept(option));
    let all = fixed.into_iter().chain(swept);
    all.map(Opt::flag).collect()
}

/// Half of the CPUs, at least one: the server under test needs the others, and one thread
/// drives more connections than most servers serve. Where that is too few, the check
/// `generator` reports it.
fn generator_threads(cpus: usize) -> u64 {
    (cpus as u64 / 2).max(1)
}

/// Makes a plan that a person will wait for: three short runs of each point. A
/// look, no measurement; what such windows are too short for becomes a verdict.
pub fn quicken(plan: &mut Plan) {
    if plan.find.is_some() {
        plan.runs = Some(jostle_stats::find::FEWEST);
        return;
    }
    if plan.workload == Workload::Verify {
        plan.keep.get_or_insert(verify::QUICK);
        return;
    }
    plan.runs = Some(match plan.keep {
        None => crate::schedule::FEWEST_BLOCKS,
        Some(_) => hold::RUNS,
    });
    // What ends with its operations has no window; its longest time stays.
    if plan.workload == Workload::Contend {
        plan.duration = Some(quick_window(plan));
        plan.warmup = Some(QUICK_WARMUP);
    }
    if plan.workload == Workload::Rate {
        plan.duration = Some(rate::QUICK_WINDOW);
    }
}

/// Long enough that each of the most workers has its turns. With 200 of them, the default, and
/// holds of 1 ms 250 ms were 1.1 rotations, and no such look could be all VALID. A hold that is
/// not in the plan, and turns for which no window suffices, lengthen none.
fn quick_window(plan: &Plan) -> Nanos {
    let mut filled = plan.clone();
    filled.fill_from(defaults::swept(plan.workload));
    filled.fill_from(defaults::options(plan.workload));
    let workers = filled.workers.iter().flat_map(|list| &list.0).max();
    let hold = filled.hold.map_or(0, |hold| hold.span().0);
    crate::schedule::rotations(workers.copied().unwrap_or(1), Nanos(hold))
        .filter(|window| *window > QUICK_WINDOW)
        .unwrap_or(QUICK_WINDOW)
}

fn named(targets: &[&str]) -> Vec<String> {
    targets.iter().map(|name| (*name).to_owned()).collect()
}

/// Refuses commands of the user that no shell could run either.
fn check_commands(plan: &Plan) -> Result<(), UsageError> {
    let commands = [("during", &plan.during), ("prepare", &plan.prepare)];
    for (option, command) in commands {
        if let Some(command) = command
            && during::words(command, &[]).is_none()
        {
            return refuse(format!(
                "--{option} `{command}`: a quote has no end, or there is no word"
            ));
        }
    }
    Ok(())
}

/// Refuses options of other workloads, which this one would silently ignore.
fn check_words(plan: &Plan) -> Result<(), UsageError> {
    let unknown = |option: &&Opt| option.in_workload(plan.workload).is_none();
    let mut set = OPTIONS.iter().filter(|option| option.get(plan).is_some());
    match set.find(unknown) {
        None => Ok(()),
        Some(option) => {
            let verbs: Vec<&str> = option.workloads().map(Workload::as_str).collect();
            refuse(format!(
                "{} has no {}; leave it out, or use: {}",
                plan.workload,
                option.word,
                verbs.join(", ")
            ))
        }
    }
}

/// Refuses numbers that no plan may have, whatever else it says.
fn check_bounds(plan: &Plan) -> Result<(), UsageError> {
    let mut options = OPTIONS.iter();
    match options.find(|option| option.is_out_of_bounds(plan)) {
        None => Ok(()),
        Some(option) => refuse(format!(
            "{}: {}",
            option.flag(),
            option.range().unwrap_or_default()
        )),
    }
}

fn specs(plan: &Plan) -> Result<Vec<Spec>, UsageError> {
    let mut specs: Vec<Spec> = Vec::new();
    for typed in &plan.targets {
        let spec = Spec::parse(typed).map_err(UsageError)?;
        refuse_where! {
            specs.iter().any(|known| known.typed == spec.typed) =>
                "`{typed}` is named twice; --runs repeats a target";
        }
        specs.push(spec);
    }
    Ok(specs)
}

fn check_numbers(plan: &Plan) -> Result<(), UsageError> {
    let workers = plan.workers.as_ref().map_or(&[][..], |list| &list.0);
    refuse_where! {
        (workers.is_empty() || workers.contains(&0)) && plan.workload != Workload::Spread =>
            "-w: give at least one worker";
    }
    if let Some(many) = workers.iter().find(|w| **w > MOST_WORKERS) {
        return refuse(format!("-w {many}: at most {MOST_WORKERS} workers"));
    }
    refuse_where! {
        plan.duration == Some(Nanos::ZERO) =>
            "-t 0: a window of zero length measures nothing; leave -t out, and a pilot decides";
    }
    check_lists(plan)?;
    refuse_where! {
        plan.shared.is_some_and(|share| !(0.0..=1.0).contains(&share)) =>
            "--shared: a share from 0 to 1, such as 0.8";
        plan.acquire_timeout == Some(Nanos::ZERO) => "--acquire-timeout 0: use --try";
        plan.acquire_timeout.is_some() && plan.try_only == Some(true) =>
            "--try never waits, so --acquire-timeout has no effect; leave one out";
    }
    check_tasks(plan)?;
    check_spans(plan)
}

/// Refuses spans of no length that no workload can have.
fn check_spans(plan: &Plan) -> Result<(), UsageError> {
    refuse_where! {
        plan.timer_slack == Some(Nanos::ZERO) =>
            "--timer-slack 0: the kernel takes 0 for its default; type 50us for the default, 1ns for \
             the least";
        plan.budget == Some(Nanos::ZERO) => "--budget 0 leaves no time to measure; give more";
    }
    Ok(())
}

fn check_tasks(plan: &Plan) -> Result<(), UsageError> {
    if plan.carrier != Some(Carrier::Tasks) {
        return match plan.generator_threads {
            None => Ok(()),
            Some(_) => refuse("--generator-threads works with --as tasks only; add it"),
        };
    }
    let spins = |busy: Option<Busy>| matches!(busy, Some(Busy::Spin(span)) if span.0 > 0);
    refuse_where! {
        spins(plan.hold) || spins(plan.idle) =>
            "--as tasks: a worker that spins stops all others of its thread; let hold and idle \
             sleep, or use --as processes";
    }
    Ok(())
}

fn check_lists(plan: &Plan) -> Result<(), UsageError> {
    refuse_where! {
        plan.workload == Workload::Contend && plan.keys.as_ref().is_some_and(|k| k.0.len() > 1) =>
            "--keys takes one number here; `jostle hold` takes several";
    }
    let most = |list: &Option<List>| list.as_ref().and_then(|l| l.0.iter().max().copied());
    let held = most(&plan.workers).zip(most(&plan.keys));
    match held.filter(|_| plan.workload == Workload::Hold) {
        Some((workers, keys)) if workers * keys > MOST_KEYS => refuse(format!(
            "-w {workers} --keys {keys} makes {} locks, more than {MOST_KEYS}; use fewer workers or keys",
            workers * keys
        )),
        _ => Ok(()),
    }
}

fn check_place(plan: &Plan, allowed: &[usize]) -> Result<(), UsageError> {
    let places = [
        ("--place", &plan.place),
        ("--server-place", &plan.server_place),
    ];
    for (option, place) in places {
        let Some(Place::Cpus(cpus)) = place else {
            continue;
        };
        if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
            return refuse(format!(
                "{option} {}: CPU {cpu} does not exist or is not allowed here; allowed: {}",
                Place::Cpus(cpus.clone()),
                Place::Cpus(allowed.to_vec())
                    .to_string()
                    .trim_start_matches("cpus:")
            ));
        }
    }
    Ok(())
}

/// A cluster can be launched only of what is one, and where no servers are named. Grants wait for
/// replicas only where there are so many.
fn check_members(plan: &Plan, spec: &Spec) -> Result<(), UsageError> {
    let (name, can, members) = (&spec.typed, &spec.entry.lock, plan.members());
    let (replicas, is_launched) = (plan.wait_replicas(), spec.argument.is_none());
    refuse_where! {
        replicas > 0 && !can.awaits_replicas =>
            "{name} --wait-replicas {replicas}: only clients of redis wait for replicas";
        replicas >= members && replicas > 0 && is_launched =>
            "{name} --wait-replicas {replicas}: --members {members} has {} replicas; launch more \
             (--members {})", members - 1, (replicas + 1) | 1;
        members > 1 && members % 2 == 0 && can.clusters =>
            "{name} --members {members}: an even number outlasts no more failures than one less; \
             use {} or {}", members - 1, members + 1;
    }
    match plan.members {
        None | Some(0 | 1) => Ok(()),
        Some(members) if !can.clusters => refuse(format!(
            "{name} --members {members}: jostle launches clusters of redis, etcd and zookeeper only"
        )),
        Some(members) if spec.argument.is_some() => refuse(format!(
            "{name} --members {members}: these servers run already; `{}` without an address launches a cluster",
            spec.entry.name
        )),
        Some(_) => Ok(()),
    }
}

/// Whether this target can do what the options ask of it.
fn check_pair(plan: &Plan, spec: &Spec) -> Result<(), UsageError> {
    if plan.workload == Workload::Rate {
        rate::check_target(plan, spec)?;
    }
    if spec.entry.is_asked() {
        return requests::check_target(plan, spec);
    }
    check_members(plan, spec)?;
    hold::check_target(plan, spec)?;
    hold::check_lease(plan, spec)?;
    let (name, can) = (&spec.typed, &spec.entry.lock);
    refuse_where! {
        spec.entry.family == Family::Connection =>
            "{name} is not a lock; `jostle connect {name}` opens connections";
    }
    let which = |can: fn(&jostle_targets::Entry) -> bool| -> String {
        let names = jostle_targets::TABLE.iter().filter(|entry| can(entry));
        let names: Vec<&str> = names.map(|entry| entry.name).collect();
        names.join(", ")
    };
    if plan.workload.facts().session_each {
        check_sessions(plan, spec, &which)?;
    }
    if let (Some(Carrier::Threads), Some(why)) = (plan.carrier, spec.entry.no_threads) {
        return refuse(format!("{name} --as threads: {why}"));
    }
    refuse_where! {
        plan.carrier == Some(Carrier::Tasks) && !spec.entry.carries_tasks() =>
            "{name} --as tasks: a call that waits stops all workers of its thread; use \
             --as processes, or one of: {}", which(|e| e.carries_tasks());
        plan.shared() > 0.0 && !can.shared =>
            "{name} has no shared mode; --shared works with: {}", which(|e| e.lock.shared);
    }
    if plan.pipeline() > 1 {
        check_pipeline(plan, spec, &which)?;
    }
    refuse_where! {
        plan.range() != Range::Same && !can.ranges =>
            "{name} locks no byte ranges; --range works with: {}", which(|e| e.lock.ranges);
        plan.open_each == Some(true) && !can.open_each =>
            "{name} opens no file; --open-each works with: {}", which(|e| e.lock.open_each);
        plan.acquire_timeout.is_some() && !can.timeout =>
            "{name} cannot give up after a time, since its system call has no timeout; use --try, \
             which never waits; --acquire-timeout works with: {}",
            which(|e| e.lock.timeout);
    }
    Ok(())
}

/// Whether a worker can open a session, and another one after it.
fn check_sessions(
    plan: &Plan,
    spec: &Spec,
    which: &impl Fn(fn(&jostle_targets::Entry) -> bool) -> String,
) -> Result<(), UsageError> {
    // A program of the user's own is no session of ours.
    fn has(entry: &jostle_targets::Entry) -> bool {
        entry.lock.open_each || (entry.lock.remote && entry.lock.starts == 0)
    }
    refuse_where! {
        !has(spec.entry) =>
            "{spec} has no sessions; {} works with: {}",
            plan.workload, which(has);
        plan.carrier == Some(Carrier::Tasks) =>
            "{} --as tasks: a worker that opens a session stops all others of its thread; use \
             --as processes or threads", plan.workload;
    }
    Ok(())
}

fn check_pipeline(
    plan: &Plan,
    spec: &Spec,
    which: &impl Fn(fn(&jostle_targets::Entry) -> bool) -> String,
) -> Result<(), UsageError> {
    let (name, can) = (&spec.typed, &spec.entry.lock);
    refuse_where! {
        !can.pipeline =>
            "{name} takes one request at a time; --pipeline works with: {}",
            which(|e| e.lock.pipeline);
    }
    let workers = plan.workers.as_ref();
    let several = workers.is_some_and(|list| list.0.iter().any(|w| *w > 1));
    // Without a queue a taken lock is refused, and the requests behind it are
    // on their way already.
    refuse_where! {
        plan.names == Some(Names::One) && several && !can.fifo =>
            "{name} has no queue, so it refuses pipelined requests for one lock; use \
             --names own, -w 1, or one of: {}", which(|e| e.lock.pipeline && e.lock.fifo);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
