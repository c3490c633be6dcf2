//! Finds the bottleneck of a foreign load generator's run: a pure function of the recorded
//! series.
//!
//! busy = (CPU time + run-queue wait) / wall time of the busiest thread, as for jostle's
//! own generators. The first rule that holds decides, in this order: too little was
//! seen; the generator was stopped, throttled by a quota, or busy; the hypervisor; the
//! server was stopped, throttled or busy; other programs; all CPUs, ports, the accept
//! queue, lost segments. With none of these the load itself was the limit: its
//! connections wait for answers.

mod doubled;
mod printed;
mod window;
mod words;

pub use doubled::{Run, settle};
pub use printed::{notes, shared_out};
pub use words::doubling;

use jostle_model::judged::{Finding, Limit, Side, Watched};
use window::{Busy, Window};

/// A thread that is busy for so much of its time is at its limit.
pub const BUSY: f64 = 0.9;

/// A thread that is busy for at most so much of its time has room.
pub const ROOM: f64 = 0.7;

/// Standing still, by a signal or a quota, for so much of the time matters.
const STILL: f64 = 0.05;

/// Time that other programs took while ours waited for it, from which it matters.
const HARMED: f64 = 0.1;

/// Time in the run queue that matters where nobody knows who else ran.
const QUEUED: f64 = 0.2;

/// Share of all CPUs that the hypervisor took.
const STOLEN: f64 = 0.1;

/// Share of all CPUs that is in use.
const FULL: f64 = 0.95;

/// Share of the segments that were sent again.
const LOST: f64 = 0.01;

/// Ports under which connections fail.
const PORTS: f64 = 64.0;

/// Traffic for less time, or in fewer intervals, tells nothing.
const SHORTEST_S: f64 = 0.5;
const FEWEST: usize = 4;

/// Share of the command's CPU time that has to be seen.
const SEEN: f64 = 0.8;

/// CPUs' worth of time that may be missing all the same.
const MISSING: f64 = 0.05;

/// A generator that is at its limit in so much of the time bends the mean.
const PARTLY: f64 = 0.25;

/// The bottleneck, the reasons, since when, and what it means for the figures.
pub fn find(watched: &Watched) -> Finding {
    let window = Window::new(watched, window::of(watched));
    let generator = window.busiest(&watched.generator);
    let server = watched
        .server
        .as_ref()
        .and_then(|side| window.busiest(side));
    let mut state = unseen(&window).unwrap_or_else(|| state(&window));
    let parts = window.parts();
    let limits: Vec<Limit> = parts.iter().map(|part| self::state(part).limit).collect();
    let of_generator = limits
        .iter()
        .filter(|limit| **limit == Limit::Generator)
        .count();
    let decided = !matches!(state.limit, Limit::Generator) && unseen(&window).is_none();
    if decided && of_generator >= 2 && of_generator as f64 >= PARTLY * limits.len() as f64 {
        state = partly(&parts, &limits, state);
    }
    let since_s = matches!(
        state.limit,
        Limit::Generator | Limit::Server | Limit::Machine
    )
    .then(|| since(&window, &parts, &limits, state.limit));
    state.reasons.extend(words::beside(&window, state.limit));
    Finding {
        limit: state.limit,
        since_s: since_s.map(tenths),
        from_s: tenths(window.start_s()),
        to_s: tenths(window.stop_s()),
        generator_busy_share: generator.map(|busy| thousandths(busy.share())),
        server_busy_share: server.map(|busy| thousandths(busy.share())),
        reasons: state.reasons,
        meaning: words::meaning(state.limit, watched).to_owned(),
        next: words::next(state.limit, watched),
    }
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// A limit and why.
struct State {
    limit: Limit,
    reasons: Vec<String>,
}

impl State {
    fn new(limit: Limit, reason: String) -> State {
        State {
            limit,
            reasons: vec![reason],
        }
    }
}

/// Why nothing can be told, if so.
fn unseen(window: &Window<'_>) -> Option<State> {
    let undecided = |reason: String| Some(State::new(Limit::Undecided, reason));
    let watched = window.watched;
    if window.wall_s < SHORTEST_S || window.range.len() < FEWEST {
        return undecided(words::too_short(window));
    }
    if watched.generator.queued_s.is_none() || watched.generator.busiest.is_empty() {
        return undecided(words::NO_SCHEDSTAT.to_owned());
    }
    if let Some(seen) = watched.seen_share.filter(|seen| *seen < SEEN) {
        // A command that hardly runs spends most of its time starting.
        let known_s: f64 = watched.generator.cpu_s.iter().sum();
        let missing_s = known_s / seen.max(f64::MIN_POSITIVE) - known_s;
        if missing_s >= MISSING * watched.elapsed_s.max(window.wall_s) {
            return undecided(words::short_lived(seen));
        }
    }
    None
}

/// The first rule that holds.
fn state(window: &Window<'_>) -> State {
    let watched = window.watched;
    let generator = window.busiest(&watched.generator);
    let server = watched
        .server
        .as_ref()
        .and_then(|side| window.busiest(side));
    still_generator(window)
        .or_else(|| stolen(window))
        .or_else(|| busy_generator(window, generator, server))
        .or_else(|| limited_server(window, server))
        .or_else(|| neighbours(window, generator, server))
        .or_else(|| full(window))
        .or_else(|| network(window))
        .or_else(|| reads_late(window, generator))
        .unwrap_or_else(|| neither(generator, server))
}

fn still_generator(window: &Window<'_>) -> Option<State> {
    let side = &window.watched.generator;
    let stopped = window.share(&side.stopped_s);
    if stopped >= STILL {
        return Some(State::new(
            Limit::Generator,
            words::stopped("generator", stopped),
        ));
    }
    let throttled = window.throttled(side);
    if throttled < STILL {
        return None;
    }
    let server = window.watched.server.as_ref();
    let shared = server.filter(|server| {
        side.quota_group.is_some()
            && server.quota_group == side.quota_group
            && window.throttled(server) >= STILL
    });
    Some(match shared {
        Some(_) => State::new(Limit::Machine, words::shared_quota(side, throttled)),
        None => State::new(
            Limit::Generator,
            words::throttled("generator", side, throttled),
        ),
    })
}

fn stolen(window: &Window<'_>) -> Option<State> {
    let stolen = window.stolen();
    (stolen >= STOLEN).then(|| State::new(Limit::Machine, words::stolen(stolen)))
}

fn busy_generator(
    window: &Window<'_>,
    generator: Option<Busy<'_>>,
    server: Option<Busy<'_>>,
) -> Option<State> {
    let side = &window.watched.generator;
    let Some(busy) = generator.filter(|busy| busy.share() >= BUSY) else {
        return full_cpus(window, side)
            .map(|(used, cpus)| words::all_cpus("generator", used, cpus))
            .map(|reason| State::new(Limit::Generator, reason));
    };
    let mut state = State::new(Limit::Generator, words::busy("generator", busy));
    if harm(window, busy).is_some_and(|harm| harm >= HARMED) {
        state
            .reasons
            .push(words::queued_for(window, "generator", busy));
    }
    if let Some(server) = server.filter(|server| server.share() >= BUSY) {
        state.reasons.push(words::near(server));
    }
    Some(state)
}

fn limited_server(window: &Window<'_>, server: Option<Busy<'_>>) -> Option<State> {
    let side = window.watched.server.as_ref()?;
    let stopped = window.share(&side.stopped_s);
    if stopped >= STILL {
        return Some(State::new(Limit::Server, words::stopped("server", stopped)));
    }
    let throttled = window.throttled(side);
    if throttled >= STILL {
        return Some(State::new(
            Limit::Server,
            words::throttled("server", side, throttled),
        ));
    }
    if let Some(busy) = server.filter(|busy| busy.share() >= BUSY) {
        return Some(match harm(window, busy).filter(|harm| *harm >= HARMED) {
            Some(_) => State::new(Limit::Machine, words::queued_for(window, "server", busy)),
            None => State::new(Limit::Server, words::busy("server", busy)),
        });
    }
    full_cpus(window, side)
        .map(|(used, cpus)| State::new(Limit::Server, words::all_cpus("server", used, cpus)))
}

/// The CPUs that a side uses and those that it may run on, if it uses nearly all of them.
/// This finds a limit that no single thread shows: of eight threads that share a CPU, none
/// need be busy for most of the time.
fn full_cpus(window: &Window<'_>, side: &Side) -> Option<(f64, f64)> {
    let all = window.watched.machine.cpus.max(1);
    let cpus = side.allowed_cpus.unwrap_or(all).clamp(1, all) as f64;
    let used = window.share(&side.cpu_s);
    (used >= BUSY * cpus).then_some((used, cpus))
}

/// Share of the time in which other programs may have run in a thread's place: it waited,
/// and they ran. None where others cannot be seen.
fn harm(window: &Window<'_>, busy: Busy<'_>) -> Option<f64> {
    window.others().map(|others| others.min(busy.queued))
}

fn neighbours(
    window: &Window<'_>,
    generator: Option<Busy<'_>>,
    server: Option<Busy<'_>>,
) -> Option<State> {
    let harmed = |busy: Option<Busy<'_>>| {
        busy.map_or(0.0, |busy| match harm(window, busy) {
            Some(harm) if harm >= HARMED => harm,
            None if busy.queued >= QUEUED => busy.queued,
            _ => 0.0,
        })
    };
    let (of_generator, of_server) = (harmed(generator), harmed(server));
    if of_generator <= 0.0 && of_server <= 0.0 {
        return None;
    }
    // Both sides' waits delay the path. The generator is the bottleneck only if it waited
    // at least twice as long as the server.
    let (limit, side, busy) = match of_generator >= 2.0 * of_server {
        true => (Limit::Generator, "generator", generator),
        false => (Limit::Machine, "server", server),
    };
    Some(State::new(limit, words::queued_for(window, side, busy?)))
}

fn full(window: &Window<'_>) -> Option<State> {
    let machine = &window.watched.machine;
    let generator = window.share(&window.watched.generator.cpu_s);
    let server = window
        .watched
        .server
        .as_ref()
        .map_or(0.0, |side| window.share(&side.cpu_s));
    let others = window.others().unwrap_or(0.0);
    let cpus = machine.cpus.max(1) as f64;
    (generator + server + others >= FULL * cpus)
        .then(|| State::new(Limit::Machine, words::full(cpus, generator, server, others)))
}

fn network(window: &Window<'_>) -> Option<State> {
    let traffic = window.watched.traffic.as_ref()?;
    let within = |column: &[f64]| -> Vec<f64> {
        column
            .get(window.range.clone())
            .unwrap_or_default()
            .to_vec()
    };
    let least = within(&traffic.ports_left)
        .into_iter()
        .fold(f64::INFINITY, f64::min);
    if traffic.ports > 0 && least < PORTS {
        let time_wait = within(&traffic.time_wait).into_iter().fold(0.0, f64::max);
        return Some(State::new(
            Limit::Machine,
            words::ports(traffic.ports, least, time_wait),
        ));
    }
    let limit = traffic.backlog_limit.unwrap_or(0) as f64;
    let backlog = within(traffic.backlog.as_deref().unwrap_or_default());
    let full = backlog
        .iter()
        .filter(|waiting| limit > 0.0 && **waiting >= limit)
        .count();
    if full as f64 >= HARMED * backlog.len().max(1) as f64 && full > 1 {
        return Some(State::new(Limit::Server, words::backlog(limit)));
    }
    let lost = window.sum(&traffic.retransmitted) / window.sum(&traffic.segments).max(1.0);
    (lost >= LOST).then(|| State::new(Limit::Path, words::lost(lost)))
}

/// Undecided: answers lie unread at most looks, and the generator is nearly busy. Either
/// the generator is held up, or it is the bottleneck only while a disturbed server runs. No
/// rule that named the generator was right in both cases (lab/record/validation-judge.md).
fn reads_late(window: &Window<'_>, generator: Option<Busy<'_>>) -> Option<State> {
    let busy = generator.filter(|busy| busy.share() > ROOM)?;
    let late = words::unread(window)?;
    (late >= 0.5).then(|| State::new(Limit::Undecided, words::reads_late(late, busy)))
}

fn neither(generator: Option<Busy<'_>>, server: Option<Busy<'_>>) -> State {
    let Some(generator) = generator else {
        return State::new(Limit::Undecided, words::NO_SCHEDSTAT.to_owned());
    };
    let Some(server) = server else {
        return State::new(Limit::Undecided, words::no_server(generator));
    };
    match generator.share() <= ROOM && server.share() <= ROOM {
        true => State::new(Limit::Path, words::idle(generator, server)),
        false => State::new(Limit::Undecided, words::between(generator, server)),
    }
}

/// The generator was at its limit in a part of the time only.
fn partly(parts: &[Window<'_>], limits: &[Limit], whole: State) -> State {
    let of_generator = || {
        parts
            .iter()
            .zip(limits)
            .filter(|(_, limit)| **limit == Limit::Generator)
    };
    let time_s: f64 = of_generator().map(|(part, _)| part.wall_s).sum();
    let all_s: f64 = parts.iter().map(|part| part.wall_s).sum();
    let why = of_generator().next().map(|(part, _)| state(part).reasons);
    let mut reasons = vec![words::partly(time_s, all_s)];
    reasons.extend(why.into_iter().flatten().take(1));
    reasons.extend(whole.reasons);
    State {
        limit: Limit::Generator,
        reasons,
    }
}

/// The first part from which on the limit holds in four fifths of the parts.
fn since(whole: &Window<'_>, parts: &[Window<'_>], limits: &[Limit], limit: Limit) -> f64 {
    let holds = |at: &usize| {
        let rest = &limits[*at..];
        let same = rest.iter().filter(|other| **other == limit).count();
        limits[*at] == limit && same as f64 >= 0.8 * rest.len() as f64
    };
    let first = (0..limits.len()).find(holds);
    let first = first.or_else(|| limits.iter().position(|other| *other == limit));
    first
        .and_then(|at| parts.get(at))
        .map_or(whole.start_s(), Window::start_s)
}

#[cfg(test)]
mod tests;
