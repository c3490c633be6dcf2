//! Finds the bottleneck of a foreign load generator's run: a pure function of the recorded
//! series.
//!
//! busy = (CPU time + run-queue wait) / wall time of the busiest thread, as for jostle's
//! own generators. If there was nothing to judge, or too little was seen, that is the answer.
//! Else the first row of [`RULES`] that holds decides: each row refutes those below it.
//! With none the load itself was the limit: its connections wait for answers.

mod doubled;
mod held;
mod nothing;
mod planned;
mod printed;
mod rules;
mod waits;
mod window;
mod words;

pub use doubled::{Run, is_open, looks, settle};
pub use printed::{notes, of_server};
pub use rules::{RULES, Rule};
pub(crate) use waits::{OF_CONNECTIONS, UNREAD};
pub use words::{copying, doubling};

use held::{held, is_known, may_be_held};
use jostle_model::judged::{Finding, Hop, Limit, Side, Watched};
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

/// Traffic for less time, or in fewer intervals, tells nothing.
const SHORTEST_S: f64 = 0.5;
const FEWEST: usize = 4;

/// Share of the command's CPU time that has to be seen.
const SEEN: f64 = 0.8;

/// CPUs' worth of time that may be missing all the same.
const MISSING: f64 = 0.05;

/// A generator that is at its limit in so much of the time bends the mean.
const PARTLY: f64 = 0.25;

/// The share of the judged time for which a quota kept a side from running: once for all of its
/// threads that it stops together.
pub fn throttled(watched: &Watched, side: &Side) -> f64 {
    Window::new(watched, window::range(watched)).throttled(side)
}

/// The bottleneck, the reasons, since when and until when, and what it means for the figures.
pub fn find(watched: &Watched) -> Finding {
    let window = Window::new(watched, window::range(watched));
    let generator = window.busiest(&watched.generator);
    let server = watched.server.as_ref();
    let server = server.and_then(|side| window.busiest(side));
    let unseen = nothing::at_all(&window).or_else(|| unseen(&window));
    let is_seen = unseen.is_none();
    // In a single second two threads with room may use one CPU together by chance.
    let is_held = [held(&window, 0), held(&window, 1)].map(|held| held.is_some());
    let mut state = unseen.unwrap_or_else(|| state(&window, is_held));
    let parts = window.parts();
    let limits = parts.iter().map(|part| self::state(part, is_held).limit);
    let limits: Vec<Limit> = limits.collect();
    let of_generator = limits.iter().filter(|limit| **limit == Limit::Generator);
    let of_generator = of_generator.count();
    // A generator that cannot connect is busy trying.
    let connects = state.limit != Limit::Ports && window.gone() < STILL;
    // A quota counts in no second where it does not in the whole.
    let by_quota = still_generator(&window).is_some_and(|state| state.limit != Limit::Generator);
    let decided = is_seen && state.limit != Limit::Generator && connects && !by_quota;
    if decided && of_generator >= 2 && of_generator as f64 >= PARTLY * limits.len() as f64 {
        state = partly(&parts, &limits, is_held, state);
    }
    let state = nothing::failed(&window, state);
    let [since_s, until_s] = match state.limit {
        Limit::Path | Limit::Nothing | Limit::Undecided => [None; 2],
        limit => bounds(&window, &parts, &limits, is_held, limit),
    };
    let output = watched.output.as_ref();
    let short = output.map(|output| planned::short_of(output, &watched.command));
    let mut reasons = short.unwrap_or_default();
    reasons.extend(state.reasons);
    reasons.extend(words::beside(&window, state.limit));
    Finding {
        limit: state.limit,
        since_s: since_s.map(tenths),
        until_s: until_s.map(tenths),
        seconds: match is_seen {
            true => parts.iter().zip(&limits).map(letter).collect(),
            false => String::new(),
        },
        from_s: tenths(window.start_s()),
        to_s: tenths(window.stop_s()),
        generator_busy_share: generator.map(|busy| thousandths(busy.share())),
        server_busy_share: server.map(|busy| thousandths(busy.share())),
        reasons,
        meaning: words::meaning(state.limit, watched).to_owned(),
        next: words::next(state.limit, state.by_copies, watched),
    }
}

/// As [`Finding::seconds`] has it.
fn letter((part, limit): (&Window<'_>, &Limit)) -> char {
    match limit {
        Limit::Generator => 'G',
        Limit::Server => 'S',
        Limit::Downstream => 'D',
        Limit::Machine => 'M',
        Limit::Ports => 'P',
        Limit::Timer => 'T',
        _ if part.is_silent() => '.',
        Limit::Path => '-',
        Limit::Undecided | Limit::Nothing => '?',
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
    /// Whether more copies of the generator would decide, rather than more load.
    by_copies: bool,
}

impl State {
    fn new(limit: Limit, reason: String) -> State {
        State {
            limit,
            reasons: vec![reason],
            by_copies: false,
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

/// The limit by the first rule that holds. `is_held`: whether the generator, and the server, are held
/// to one CPU over the whole run.
fn state(window: &Window<'_>, is_held: [bool; 2]) -> State {
    let [generator, server] = rules::busiest(window);
    let first = rules::first(window, is_held, RULES);
    first.map_or_else(|| neither(window, generator, server), |(_, state)| state)
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
    // Groups of two machines may have one name.
    let shared = server.filter(|_| window.far().is_none()).filter(|server| {
        side.quota_group.is_some()
            && server.quota_group == side.quota_group
            && window.throttled(server) >= STILL
    });
    // Without the quota the rate rises only as far as the server has room.
    if let (None, Some(full)) = (&shared, limited_server(window, rules::busiest(window)[1]))
        && full.limit == Limit::Server
    {
        let mut reasons = full.reasons;
        reasons.push(words::throttled("generator", side, throttled));
        let limit = match waits::only_at_server(window) {
            true => Limit::Server,
            false => Limit::Undecided,
        };
        return Some(State {
            reasons,
            ..State::new(limit, String::new())
        });
    }
    Some(match shared {
        Some(_) => State::new(Limit::Machine, words::shared_quota(side, throttled)),
        None => State::new(
            Limit::Generator,
            words::throttled("generator", side, throttled),
        ),
    })
}

fn stolen(window: &Window<'_>) -> Option<State> {
    window.machines().find_map(|(machine, name)| {
        let stolen = window.stolen(machine);
        (stolen >= STOLEN).then(|| State::new(Limit::Machine, words::stolen(stolen, name)))
    })
}

/// A generator that is busy, or held to one CPU by something that is known, whether its server is
/// busy too or not. Not one that is never late while requests queue at its busy server: that one
/// is busy with other work, such as compiling itself.
fn busy_generator(
    window: &Window<'_>,
    generator: Option<Busy<'_>>,
    server: Option<Busy<'_>>,
    is_held: bool,
) -> Option<State> {
    let side = &window.watched.generator;
    let near = server.filter(|server| server.share() >= BUSY);
    if near.is_some_and(|server| server.cpu >= BUSY) && waits::only_at_server(window) {
        return None;
    }
    let busy = generator.filter(|busy| busy.share() >= BUSY);
    let used = |side: Option<&Side>| side.map_or(0.0, |side| window.share(&side.cpu_s));
    let server_uses_more = used(window.watched.server.as_ref()) > used(Some(side));
    let is_crowded = |busy: &Busy<'_>| {
        server_uses_more && crowded(window, side, *busy).is_some()
            || both_wait(window, *busy, server)
    };
    let mut state = if let Some(busy) = busy.filter(|busy| !is_crowded(busy)) {
        let mut state = State::new(Limit::Generator, words::busy("generator", busy));
        if harm(window, side, busy).is_some_and(|harm| harm >= HARMED) {
            let queued = words::queued_for(window, "generator", side, busy);
            state.reasons.push(queued);
        }
        state
    } else if let Some((used, cpus)) = full_cpus(window, side) {
        if queues_at_server(window) {
            return None;
        }
        let reason = words::all_cpus("generator", used, cpus);
        State::new(Limit::Generator, reason)
    } else {
        let process = side.largest.as_ref().filter(|_| is_held);
        process.filter(is_known).and_then(|_| held(window, 0))?
    };
    state.reasons.extend(near.map(words::near));
    Some(state)
}

/// A generator that tries to connect again and again is busy while its server is gone.
fn still_server(window: &Window<'_>) -> Option<State> {
    let side = window.watched.server.as_ref()?;
    let gone = window.gone();
    if gone >= STILL {
        return Some(State::new(Limit::Server, words::gone(window, gone)));
    }
    let stopped = window.share(&side.stopped_s);
    (stopped >= STILL).then(|| State::new(Limit::Server, words::stopped("server", stopped)))
}

fn limited_server(window: &Window<'_>, server: Option<Busy<'_>>) -> Option<State> {
    let side = window.watched.server.as_ref()?;
    let throttled = window.throttled(side);
    if throttled >= STILL {
        return Some(State::new(
            Limit::Server,
            words::throttled("server", side, throttled),
        ));
    }
    if let Some(busy) = server.filter(|busy| busy.share() >= BUSY) {
        if let Some(crowded) = crowded(window, side, busy) {
            return Some(crowded);
        }
        let is_harmed = match harm(window, side, busy) {
            Some(harm) => harm >= HARMED,
            None => crowded_out(window, side, busy),
        };
        return Some(match is_harmed {
            true => State::new(
                Limit::Machine,
                words::queued_for(window, "server", side, busy),
            ),
            false => State::new(Limit::Server, words::busy("server", busy)),
        });
    }
    let full = full_cpus(window, side).filter(|_| window.spinning(side).is_none());
    full.map(|(used, cpus)| State::new(Limit::Server, words::all_cpus("server", used, cpus)))
}

/// All CPUs are in use, and this thread waits for one for most of its busy time, though not for
/// other programs: both sides take them from each other.
fn crowded(window: &Window<'_>, side: &Side, busy: Busy<'_>) -> Option<State> {
    let is_alone = busy.cpu < ROOM && harm(window, side, busy).is_some_and(|harm| harm < HARMED);
    full(window).filter(|_| is_alone)
}

/// Whether the generator is busy by waiting for CPUs that others use, and so is the server: then it
/// is no more the limit than that.
fn both_wait(window: &Window<'_>, generator: Busy<'_>, server: Option<Busy<'_>>) -> bool {
    let watched = window.watched;
    let harmed = |side: Option<&Side>, busy: Option<Busy<'_>>| {
        let (side, busy) = side.zip(busy)?;
        let is_free = busy.cpu < ROOM && window.throttled(side) < STILL;
        harm(window, side, busy).filter(|harm| is_free && *harm >= HARMED)
    };
    let of_generator = harmed(Some(&watched.generator), Some(generator));
    let of_server = harmed(watched.server.as_ref(), server);
    matches!((of_generator, of_server), (Some(one), Some(other)) if one < 2.0 * other)
}

/// The busiest thread of a side that is bound to CPUs waits for one for longer than other programs
/// and the side's other threads ran: the other side did, which is bound to the same CPUs. What a
/// quota keeps from running waits too, on any CPUs.
fn same_cpus(
    window: &Window<'_>,
    generator: Option<Busy<'_>>,
    server: Option<Busy<'_>>,
) -> Option<State> {
    let machine = &window.watched.machine;
    let of_server = window.watched.server.as_ref();
    let of_server = of_server.filter(|_| window.far().is_none())?;
    let sides = [&window.watched.generator, of_server];
    let is_bound = |side: &&Side| side.allowed_cpus.is_some_and(|cpus| cpus < machine.cpus);
    let used = sides.map(|side| window.share(&side.cpu_s));
    let others = window
        .others(machine)
        .filter(|_| sides.iter().all(is_bound))?;
    let waits = |busy: &Busy<'_>, own: usize| {
        let waited = busy.queued - others - (used[own] - busy.cpu);
        let is_it = busy.share() >= BUSY && busy.cpu < ROOM && waited >= QUEUED;
        is_it && used[1 - own] >= ROOM * waited && window.throttled(sides[own]) < STILL
    };
    let server = server.filter(|busy| waits(busy, 1));
    let busy = server.or_else(|| generator.filter(|busy| waits(busy, 0)))?;
    Some(State::new(Limit::Machine, words::same_cpus(busy, used)))
}

/// The CPUs that a side uses and those that it may run on, if it uses nearly all of them.
/// This finds a limit that no single thread shows: of eight threads that share a CPU, none
/// need be busy for most of the time.
fn full_cpus(window: &Window<'_>, side: &Side) -> Option<(f64, f64)> {
    let all = window.machine_of(side).cpus.max(1);
    let cpus = side.allowed_cpus.unwrap_or(all).clamp(1, all) as f64;
    let used = window.share(&side.cpu_s);
    (used >= BUSY * cpus).then_some((used, cpus))
}

/// Whether both sides fill the CPUs that each has for itself, and the server's threads wait for
/// theirs twice as long as the generator's: what both have to do queues there.
fn queues_at_server(window: &Window<'_>) -> bool {
    let generator = &window.watched.generator;
    let Some(server) = &window.watched.server else {
        return false;
    };
    let apart = [generator, server].map(|side| side.allowed_cpus.unwrap_or(u64::MAX));
    let apart =
        window.far().is_some() || apart[0].saturating_add(apart[1]) <= window.watched.machine.cpus;
    let queued = |side: &Side| side.queued_s.as_ref().map(|queued| window.share(queued));
    apart
        && full_cpus(window, server).is_some()
        && queued(server)
            .zip(queued(generator))
            .is_some_and(|(server, generator)| server >= 2.0 * generator)
}

/// Share of the time in which other programs may have run in a thread's place: it waited,
/// and they ran. None where others cannot be seen.
///
/// Where both sides may run on all CPUs, a thread also waits for the other threads of both: of
/// its waiting, others cause as large a part as their part of the CPU time that all of these
/// used. Of a side that is bound to CPUs nobody knows whom it shares them with.
fn harm(window: &Window<'_>, side: &Side, busy: Busy<'_>) -> Option<f64> {
    let machine = window.machine_of(side);
    let others = window.others(machine)?;
    let watched = window.watched;
    let sides = [Some(&watched.generator), watched.server.as_ref()];
    let sides = || {
        let all = sides.into_iter().flatten();
        all.filter(|side| std::ptr::eq(window.machine_of(side), machine))
    };
    let is_everywhere = |side: &Side| side.allowed_cpus == Some(machine.cpus);
    let rivals = match sides().all(is_everywhere) {
        true => {
            let ours = sides().map(|side| window.share(&side.cpu_s)).sum::<f64>();
            ours + window.behind(machine) - busy.cpu
        }
        false => 0.0,
    };
    let part = others / (others + rivals.max(0.0)).max(f64::MIN_POSITIVE);
    Some(others.min(busy.queued * part))
}

/// Where nobody knows who else ran on the server's own machine: its busiest thread waits for a CPU,
/// and its threads together leave much of the CPUs that they may run on to somebody else.
fn crowded_out(window: &Window<'_>, server: &Side, busy: Busy<'_>) -> bool {
    let cpus = window.machine_of(server).cpus;
    let cpus = server.allowed_cpus.unwrap_or(cpus).clamp(1, cpus.max(1)) as f64;
    let is_left = window.share(&server.cpu_s) <= ROOM * cpus;
    window.far().is_some() && busy.queued >= QUEUED && is_left
}

fn neighbours(
    window: &Window<'_>,
    generator: Option<Busy<'_>>,
    server: Option<Busy<'_>>,
) -> Option<State> {
    let harmed = |side: Option<&Side>, busy: Option<Busy<'_>>| {
        let Some((side, busy)) = side.zip(busy) else {
            return 0.0;
        };
        match harm(window, side, busy) {
            Some(harm) if harm >= HARMED => harm,
            None if busy.queued >= QUEUED => busy.queued,
            _ => 0.0,
        }
    };
    let sides = [
        Some(&window.watched.generator),
        window.watched.server.as_ref(),
    ];
    // A generator that waits for a CPU delays the connections that wait for it, and no others.
    let is_late = waits::late(window).is_none_or(|late| late >= HARMED);
    let of_generator = if is_late {
        harmed(sides[0], generator)
    } else {
        0.0
    };
    let of_server = harmed(sides[1], server);
    if of_generator <= 0.0 && of_server <= 0.0 {
        return None;
    }
    // Both sides' waits delay the path. The generator is the bottleneck only if it waited
    // at least twice as long as the server.
    let (limit, name, side, busy) = match of_generator >= 2.0 * of_server {
        true => (Limit::Generator, "generator", sides[0], generator),
        false => (Limit::Machine, "server", sides[1], server),
    };
    Some(State::new(
        limit,
        words::queued_for(window, name, side?, busy?),
    ))
}

fn full(window: &Window<'_>) -> Option<State> {
    let watched = window.watched;
    window.machines().find_map(|(machine, name)| {
        let used = |side: Option<&Side>| {
            let side = side.filter(|side| std::ptr::eq(window.machine_of(side), machine));
            side.map_or(0.0, |side| window.share(&side.cpu_s))
        };
        let (generator, server) = (
            used(Some(&watched.generator)),
            used(watched.server.as_ref()),
        );
        let others = window.others(machine).unwrap_or(0.0);
        let behind = window.behind(machine);
        let cpus = machine.cpus.max(1) as f64;
        (generator + server + behind + others >= FULL * cpus).then(|| {
            let reason = words::full(name, cpus, generator, server, behind, others);
            State::new(Limit::Machine, reason)
        })
    })
}

fn network(window: &Window<'_>) -> Option<State> {
    let traffic = window.watched.traffic.as_ref()?;
    let within = |column: &[f64]| -> Vec<f64> {
        column
            .get(window.range.clone())
            .unwrap_or_default()
            .to_vec()
    };
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

/// Undecided: nothing was carried for whole seconds, and no rule says why.
fn silent(window: &Window<'_>) -> Option<State> {
    let parts = window.parts();
    let silent: Vec<&Window<'_>> = parts.iter().filter(|part| part.is_silent()).collect();
    let silent_s: f64 = silent.iter().map(|part| part.wall_s).sum();
    let first = silent.first()?;
    (silent_s >= HARMED * window.wall_s)
        .then(|| State::new(Limit::Undecided, words::silent(silent_s, first.start_s())))
}

fn neither(window: &Window<'_>, generator: Option<Busy<'_>>, server: Option<Busy<'_>>) -> State {
    let Some(generator) = generator else {
        return State::new(Limit::Undecided, words::NO_SCHEDSTAT.to_owned());
    };
    let Some(server) = server else {
        return State::new(
            Limit::Undecided,
            words::no_server(window.watched, generator),
        );
    };
    let side = window.watched.server.as_ref();
    if let Some(spinning) = side.and_then(|side| window.spinning(side)) {
        return State::new(Limit::Undecided, words::spins(spinning, server));
    }
    let hops = window
        .watched
        .traffic
        .iter()
        .flat_map(|traffic| &traffic.hops);
    let share = |hop: &Hop| hop.cpu_s / window.watched.elapsed_s.max(f64::MIN_POSITIVE);
    if let Some(hop) = hops.max_by(|a, b| a.cpu_s.total_cmp(&b.cpu_s))
        && share(hop) > ROOM
    {
        return State::new(Limit::Undecided, words::hop(hop, share(hop)));
    }
    if let Some(process) = may_be_held(window) {
        let reason = words::perhaps_held(process, window.share(&process.cpu_s));
        return State {
            by_copies: true,
            ..State::new(Limit::Undecided, reason)
        };
    }
    if generator.share() > ROOM || server.share() > ROOM {
        return State::new(Limit::Undecided, words::between(generator, server));
    }
    if let Some(idle) = waits::idle(window).filter(|idle| *idle >= waits::MOSTLY) {
        return State::new(Limit::Path, words::paced(idle, generator, server));
    }
    let idle = words::idle(generator, server);
    let traffic = window.watched.traffic.as_ref();
    if traffic.is_none_or(|traffic| traffic.server_unread_bytes.is_none()) {
        return State::new(Limit::Undecided, words::unseen_sockets(&idle));
    }
    let Some(inside) = waits::inside(window) else {
        return State::new(Limit::Path, idle);
    };
    // More of a few connections carry more; behind many, a pool or a lock may be at its limit.
    let limit = match inside.open > waits::FEW || inside.unread > 0.0 {
        true => Limit::Undecided,
        false => Limit::Path,
    };
    State::new(limit, format!("{idle}; {}", words::inside(&inside)))
}

/// The generator was at its limit in a part of the time only.
fn partly(parts: &[Window<'_>], limits: &[Limit], is_held: [bool; 2], whole: State) -> State {
    let of_generator = || {
        parts
            .iter()
            .zip(limits)
            .filter(|(_, limit)| **limit == Limit::Generator)
    };
    let time_s: f64 = of_generator().map(|(part, _)| part.wall_s).sum();
    let all_s: f64 = parts.iter().map(|part| part.wall_s).sum();
    let why = of_generator()
        .next()
        .map(|(part, _)| state(part, is_held).reasons);
    let mut reasons = vec![words::partly(time_s, all_s)];
    reasons.extend(why.into_iter().flatten().take(1));
    reasons.extend(whole.reasons);
    State {
        limit: Limit::Generator,
        reasons,
        by_copies: false,
    }
}

/// Since when the limit holds: in four fifths of the parts from there on. Until when, if it
/// ended a second or more before the run did.
fn bounds(
    whole: &Window<'_>,
    parts: &[Window<'_>],
    limits: &[Limit],
    is_held: [bool; 2],
    limit: Limit,
) -> [Option<f64>; 2] {
    let holds = |at: &usize| {
        let rest = &limits[*at..];
        let same = rest.iter().filter(|other| **other == limit).count();
        limits[*at] == limit && same as f64 >= 0.8 * rest.len() as f64
    };
    let is_it = |other: &Limit| *other == limit;
    let first = (0..limits.len()).find(holds);
    let first = first.or_else(|| limits.iter().position(is_it));
    let last = limits.iter().rposition(is_it);
    // To the look: a part is a second.
    let looks = |at: usize| {
        let part = parts.get(at)?;
        let each = part.range.clone();
        let each = each.map(|at| Window::new(whole.watched, at..at + 1));
        let held = each.filter(|look| state(look, is_held).limit == limit);
        let (from_s, to_s) = held.fold((f64::INFINITY, 0.0_f64), |(from, to), look| {
            (from.min(look.start_s()), to.max(look.stop_s()))
        });
        Some(match from_s < to_s {
            true => [from_s, to_s],
            false => [part.start_s(), part.stop_s()],
        })
    };
    let since_s = first.and_then(looks).map(|[from_s, _]| from_s);
    let until_s = last.and_then(looks).map(|[_, to_s]| to_s);
    [
        Some(since_s.unwrap_or(whole.start_s())),
        until_s.filter(|until_s| *until_s <= whole.stop_s() - 1.0),
    ]
}

#[cfg(test)]
mod tests;
