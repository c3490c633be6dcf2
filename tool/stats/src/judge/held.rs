//! Processes that one lock, or a setting, holds to a number of CPUs.

use super::window::Window;
use super::{BUSY, State, words};
use jostle_model::judged::{Limit, Process};
use std::ops::RangeInclusive;

/// CPUs of which a process that is held to one uses so many.
const HELD: RangeInclusive<f64> = 0.9..=1.05;

/// The CPUs that a program with a known lock uses: it holds none while it is in a system call.
/// Ruby's threads used 1.07 CPUs.
const LOCKED: RangeInclusive<f64> = 0.9..=1.15;

/// How the names of programs begin whose threads all need one lock: they use one CPU. Node.js is
/// none of them, since the one thread of its scripts shows by itself.
const ONE_LOCK: [&str; 4] = ["python", "pypy", "ruby", "ocamlrun"];

/// A generator (0), or a server (1), whose largest process uses one CPU, or as many as GOMAXPROCS
/// allows, in nine tenths of the seconds, while each of its threads has room: a lock that all its
/// threads need (an interpreter's), or the setting, holds it there. A server without either may
/// use one CPU because so much is asked of it.
pub(super) fn held(window: &Window<'_>, which: usize) -> Option<State> {
    let watched = window.watched;
    let (side, name, limit) = match which {
        0 => (&watched.generator, "generator", Limit::Generator),
        _ => (watched.server.as_ref()?, "server", Limit::Server),
    };
    let process = side.largest.as_ref()?;
    if which == 1 && !is_known(&process) {
        return None;
    }
    let cpus = held_to(process)?;
    let parts = window.parts();
    let full = parts.iter();
    let full = full.filter(|part| is_at(process, part, cpus)).count();
    let busiest = window.busiest(side)?;
    (full > 0 && full as f64 >= 0.9 * parts.len() as f64 && busiest.share() < BUSY).then(|| {
        let reason = words::held(name, process, cpus, window.share(&process.cpu_s));
        State::new(limit, reason)
    })
}

/// Whether the cause is known that may hold it: its program's lock, or GOMAXPROCS.
pub(super) fn is_known(process: &&Process) -> bool {
    has_lock(process) || process.gomaxprocs.is_some()
}

/// Whether its program has one lock for all its threads. Python without one ends with a `t`.
fn has_lock(process: &Process) -> bool {
    let program = process.program.as_ref().unwrap_or(&process.name);
    ONE_LOCK.iter().any(|name| program.starts_with(name)) && !program.ends_with('t')
}

/// Whether it uses as many CPUs as it may be held to.
fn is_at(process: &Process, window: &Window<'_>, cpus: f64) -> bool {
    let range = if has_lock(process) { LOCKED } else { HELD };
    range.contains(&(window.share(&process.cpu_s) / cpus))
}

/// The CPUs that a process with several threads cannot exceed, if it is held. None of one
/// with a single thread: that is busy by itself.
fn held_to(process: &Process) -> Option<f64> {
    let cpus = process.gomaxprocs.unwrap_or(1).max(1) as f64;
    (process.threads > 1).then_some(cpus)
}

/// The generator's largest process, if it used as many CPUs as it may be held to.
pub(super) fn may_be_held<'a>(window: &Window<'a>) -> Option<&'a Process> {
    let process = window.watched.generator.largest.as_ref()?;
    let cpus = held_to(process)?;
    is_at(process, window, cpus).then_some(process)
}
