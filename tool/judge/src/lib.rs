//! `jostle judge`: runs somebody's load generator and looks, several times a second, at
//! its threads, its server's, their sockets and the machine.
//!
//! This module does not judge: the meaning of the series follows from the record alone
//! (`jostle_stats::judge`).

mod guard;
mod kin;
mod ours;
mod output;
mod peers;
mod ports;
mod remote;
mod servers;
mod side;
mod sockets;
mod started;
mod store;
mod threads;
mod turns;
mod views;

use guard::{Guard, News};
use jostle_harness::accounts::ServerProcesses;
use jostle_model::ServerAt;
use jostle_model::judged::{Machine, StartedBy, Turn, Watched};
use jostle_model::record::{Environment, Neighbour, SCHEMA};
use jostle_sys::stat::{self, MachineTicks};
use jostle_sys::{census, clock, cpu, files, process};
use kin::{Kin, Whose};
use remote::{Link, Told};
pub use remote::{Reach, Remote, attend_here, build, listen, serve, token};
use side::Watch;
use sockets::Sockets;
use std::collections::BTreeSet;
use std::io;
use store::Store;
use views::inodes;

/// The command to run, and what to watch.
#[derive(Clone, Debug)]
pub struct Order {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Where the server is, if its connections do not tell.
    pub server: Option<ServerAt>,
    /// The command that starts the server, if it is to be started for this run.
    pub start_server: Option<Vec<String>>,
    /// Time between two looks, in nanoseconds, as long as looks are cheap.
    pub every_ns: u64,
    /// The machine, for the record.
    pub environment: Environment,
    /// When it starts, for the record.
    pub started_at: String,
    /// Place within pairs.
    pub pair: Option<Turn>,
    /// Whether the figures that it prints are read: then its output passes through jostle.
    pub parse: bool,
    /// The server's machine, if that is another one.
    pub remote: Option<Remote>,
}

/// Why there is nothing to judge.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// It never ran.
    #[error("cannot start {command}: {cause}; {remedy}")]
    Start {
        /// The program.
        command: String,
        /// In the system's words.
        cause: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// The server of `--start-server` never listened.
    #[error("--start-server: {command} {why}; {remedy}")]
    Server {
        /// The server's command.
        command: String,
        /// What happened.
        why: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// It did not run, because the server's machine cannot be watched.
    #[error("{0}; nothing was started")]
    Remote(String),
    /// It ran, and was lost.
    #[error("{0}")]
    Lost(io::Error),
}

/// What helps where a program cannot be started.
fn remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound => "check its name and PATH, or name its whole path",
        io::ErrorKind::PermissionDenied => "make it executable (chmod +x), or name a program",
        _ => "run it without jostle to see more",
    }
}

/// The words of a command: one that was quoted as a whole is split as a shell would.
pub fn words(command: &[String]) -> Vec<String> {
    match command {
        [whole] if whole.contains(' ') => shlex::split(whole)
            .filter(|words| !words.is_empty())
            .unwrap_or_else(|| command.to_vec()),
        words => words.to_vec(),
    }
}

/// Looks may take one part in so many of the time: watching a long run costs a fifth of a
/// percent of a CPU. A generator and its server that keep a CPU each busy wait for one
/// another, so that both lose what a look takes from one, and up to three times as much
/// where many processes take turns (lab/record/validation-judge.md).
const PART: u64 = 500;

/// The time that looks may take beside that, so that a run of two seconds has enough of them on a
/// machine where a look takes 2 ms.
const HEAD_START_NS: u64 = 10_000_000;

/// However much a look costs, the next one comes after one part in so many of the time so
/// far, so that a short run whose traffic begins late has enough looks. That is some four
/// looks for each doubling of the time, which may exceed [`PART`] in a short run.
const SHARE: u64 = 6;

/// How often the user is asked, however far the next look is.
const ASKED_NS: u64 = 1_000_000_000;

/// After so many looks the time between two doubles, so that a long run stays small.
const DENSE: usize = 3_000;

/// How long a command may take to end after it was asked to.
const GRACE_NS: u64 = 3_000_000_000;

/// Neighbours that are named.
const NAMED: usize = 3;

/// Runs the command to its end. `asked` is asked often whether the user wants it to
/// stop, and by which signal: the command gets the same one.
///
/// # Errors
/// Where the command cannot be started, or its guard was killed.
pub fn watch(order: &Order, asked: &mut dyn FnMut() -> Option<i32>) -> Result<Watched, JudgeError> {
    let server = order.start_server.as_ref();
    let server = server.map(|words| started::start(words, order.server.as_ref(), asked));
    let server = server.transpose()?;
    let remote = order.remote.as_ref();
    let link = remote.map(|remote| Link::open(remote, asked)).transpose();
    let link = link.map_err(JudgeError::Remote)?;
    let kin = Kin::new(server.as_ref().map(|guard| [guard.pid, guard.command]));
    let (ends, mut copies) = match order.parse {
        // Without descriptors for it the command is watched all the same.
        true => output::open().ok().unzip(),
        false => (None, None),
    };
    let guard = Guard::start(&order.command, ends, &mut copies, false);
    let mut guard = guard.map_err(|cause| JudgeError::Start {
        command: order.command.first().cloned().unwrap_or_default(),
        remedy: remedy(&cause),
        cause,
    })?;
    // After the fork, so that the command keeps the limit that it would have.
    files::raise_descriptor_limit();
    let copies = copies.map(output::Copies::start);
    let mut sampler = Sampler::new(order, kin, Some(&guard), server, None);
    if let (Some(sockets), Some(_)) = (&mut sampler.sockets, &link) {
        sockets.is_watched_there = true;
    }
    sampler.link = link;
    let ran = sampler.run(&mut guard, asked).map_err(JudgeError::Lost);
    // The guard ends all children of this process.
    let seen = sampler.link.take().map(Link::end);
    let ends = sampler
        .sockets
        .as_mut()
        .map(|sockets| std::mem::take(&mut sockets.ends));
    let began_ns = sampler.began_ns;
    let watched = ran.map(|()| sampler.finish());
    // With the guard goes whoever could still print.
    drop(guard);
    let output = copies.map(output::Copying::end);
    let mut watched = watched?;
    if let Some((host, seen)) = seen {
        remote::join(
            &mut watched,
            host,
            seen,
            &ends.unwrap_or_default(),
            began_ns,
        );
    }
    watched.output = output.map(|mut output| {
        output.notes = jostle_stats::judge::notes(&output, &watched);
        output
    });
    watched.finding = jostle_stats::judge::find(&watched);
    Ok(watched)
}

/// How the command ended.
#[derive(Debug, Default)]
struct End {
    code: Option<i32>,
    signal: Option<i32>,
    cpu_ns: u64,
    at_ns: u64,
}

struct Sampler<'a> {
    order: &'a Order,
    /// To the watcher on the server's machine.
    link: Option<Link>,
    began_ns: u64,
    /// When the next look is due.
    next_ns: u64,
    /// The CPU time of the looks so far, the time in which they were made, and the latest pause.
    spent_ns: u64,
    watched_ns: u64,
    pause_ns: u64,
    /// The end of the latest interval.
    last_ns: u64,
    /// The latest look at all processes.
    around_ns: u64,
    kin: Kin,
    generator: Watch,
    server: Watch,
    /// Where its processes are found, and by what name.
    found: Option<(ServerProcesses, String)>,
    sockets: Option<Sockets>,
    /// The server, if it is one that counts its reads.
    store: Option<Store>,
    ticks: Option<MachineTicks>,
    complete: bool,
    /// What has started the server, once it was seen.
    started_by: Option<StartedBy>,
    /// The guard of the server that jostle has started.
    started: Option<Guard>,
    /// Sockets that the command has from jostle, such as its input and output.
    inherited: BTreeSet<u64>,
    /// The protocols of its own, and whether some may not be looked at.
    protocols: BTreeSet<String>,
    are_hidden: bool,
    /// Programs that forward the connections to the server.
    hops: BTreeSet<u32>,
    /// Whether the server was found through other namespaces.
    is_followed: bool,
    /// CPU time that the latest look spent on finding the server. Few looks do, and it is
    /// no part of what looks may take.
    searched_ns: u64,
    generator_ns: u64,
    /// CPUs' worth of time that the generator used in an interval, at most.
    most_cpus: f64,
    /// The monotonic times at which the command was stopped or went on.
    stops: Vec<(u64, bool)>,
    /// When the command ended, once it has.
    over_ns: Option<u64>,
    end: Option<End>,
    interrupted: bool,
    watched: Watched,
}

impl<'a> Sampler<'a> {
    /// Without a guard there is no command: its server alone is watched, for the clients of which
    /// it was told.
    fn new(
        order: &'a Order,
        mut kin: Kin,
        guard: Option<&Guard>,
        started: Option<Guard>,
        told: Option<Told>,
    ) -> Sampler<'a> {
        match guard {
            Some(guard) => kin.follow(guard.command, guard.pid),
            None => kin.follow_none(),
        }
        let is_here = order.remote.is_none();
        let own = [Some(std::process::id()), guard.map(|guard| guard.pid)];
        let port = match order.server {
            Some(ServerAt::Port(port)) => Some(port),
            _ => None,
        };
        let began_ns = clock::monotonic();
        let mut sampler = Sampler {
            order,
            link: None,
            began_ns,
            next_ns: began_ns + order.every_ns,
            spent_ns: 0,
            watched_ns: 0,
            pause_ns: order.every_ns,
            last_ns: began_ns,
            around_ns: began_ns,
            kin,
            generator: Watch::default(),
            server: Watch::of_server(),
            found: None,
            sockets: Sockets::open(port, told),
            store: None,
            started_by: None,
            started,
            ticks: stat::machine_ticks().ok(),
            complete: census::is_complete(),
            inherited: inodes(&own.into_iter().flatten().collect::<Vec<u32>>()),
            protocols: BTreeSet::new(),
            are_hidden: false,
            hops: BTreeSet::new(),
            is_followed: false,
            searched_ns: 0,
            generator_ns: 0,
            most_cpus: 0.0,
            stops: Vec::new(),
            over_ns: None,
            end: None,
            interrupted: false,
            watched: Watched {
                schema: SCHEMA.to_owned(),
                command: order.command.clone(),
                start_server: order.start_server.clone(),
                environment: order.environment.clone(),
                started_at: order.started_at.clone(),
                pair: order.pair.clone(),
                ..Watched::default()
            },
        };
        match &order.server {
            Some(named) if is_here => sampler.know(named),
            Some(_) => sampler.sockets.iter_mut().for_each(Sockets::look_elsewhere),
            None => {}
        }
        sampler.generator.begin(&sampler.kin.pids(Whose::Generator));
        sampler.server.begin(&sampler.kin.pids(Whose::Server));
        sampler
    }

    fn run(&mut self, guard: &mut Guard, asked: &mut dyn FnMut() -> Option<i32>) -> io::Result<()> {
        let mut given_up_ns = None;
        while self.end.is_none() {
            let asked_ns = clock::monotonic() + ASKED_NS;
            match guard.news(self.next_ns.min(asked_ns))? {
                Some(News::Stopped { stopped, at_ns }) => self.stops.push((at_ns, stopped)),
                Some(News::Over { at_ns }) => {
                    // The last interval, while its clocks can be read.
                    self.over_ns = Some(at_ns);
                    self.look(at_ns.max(self.last_ns + 1));
                    guard.let_go()?;
                    self.next_ns = u64::MAX;
                }
                Some(News::Ended {
                    code,
                    signal,
                    cpu_ns,
                }) => {
                    self.end = Some(End {
                        code,
                        signal,
                        cpu_ns,
                        at_ns: self.over_ns.unwrap_or(self.last_ns),
                    });
                }
                Some(News::Started { .. } | News::Failed { .. }) | None => {}
            }
            let now_ns = clock::monotonic();
            match (asked(), given_up_ns) {
                (Some(signal), None) => {
                    self.interrupted = true;
                    guard.signal(signal);
                    // A stopped command handles the signal only once it continues.
                    guard.signal(rustix::process::Signal::CONT.as_raw());
                    given_up_ns = Some(now_ns + GRACE_NS);
                }
                (Some(_), Some(deadline)) if now_ns >= deadline => process::kill(guard.command),
                _ => {}
            }
            if self.end.is_none() {
                self.look_if_due();
            }
        }
        Ok(())
    }

    fn look_if_due(&mut self) {
        let now_ns = clock::monotonic();
        if now_ns < self.next_ns {
            return;
        }
        let before_ns = stat::own_cpu_ns();
        let passed_ns = now_ns - self.last_ns;
        self.look(now_ns);
        // Its CPU time: on a busy machine a look may take long and cost little.
        let cost_ns = stat::own_cpu_ns() - before_ns;
        self.spent_ns += cost_ns.saturating_sub(self.searched_ns);
        self.searched_ns = 0;
        // The time for which jostle itself was stopped pays for no looks.
        self.watched_ns += passed_ns.min(self.pause_ns);
        self.pause_ns = self.pause();
        self.next_ns = now_ns + self.pause_ns;
    }

    /// Until the next look, when looks have cost so much in so much time. It is varied by a
    /// fifth, so that what happens at the same pace as the looks is not always or never seen
    /// (golden ratio sequence).
    fn pause(&self) -> u64 {
        let looks = self.watched.end_s.len();
        let every_ns = self.order.every_ns << (looks / DENSE).min(16);
        let every_ns = every_ns.max(owed_ns(self.spent_ns, self.watched_ns));
        let phase = (looks as f64 * 0.618_033_988_75).fract();
        (every_ns as f64 * (0.8 + 0.4 * phase)) as u64
    }

    /// Ends an interval.
    fn look(&mut self, now_ns: u64) {
        let span_s = (now_ns - self.last_ns) as f64 / 1e9;
        let from_ns = self.last_ns;
        self.last_ns = now_ns;
        self.watched
            .end_s
            .push(rounded((now_ns - self.began_ns) as f64 / 1e9));
        self.watched.span_s.push(rounded(span_s));
        let around = self.looks_around(now_ns);
        let used = self.kin.look(around);
        let used = |whose: Whose| used.get(&whose).copied().unwrap_or(0);
        self.generator_ns += used(Whose::Generator);
        let cpus = used(Whose::Generator) as f64 / 1e9 / span_s.max(f64::MIN_POSITIVE);
        self.most_cpus = self.most_cpus.max(cpus);
        let generators = self.kin.pids(Whose::Generator);
        self.generator
            .look(&self.kin, &generators, used(Whose::Generator), span_s);
        self.generator.stopped_for(self.stopped_s(from_ns, now_ns));
        if around {
            let server = self.kin.pids(Whose::Server);
            self.server.look_at_locks(&self.kin, &server);
        }
        self.server.look(
            &self.kin,
            &self.kin.pids(Whose::Server),
            used(Whose::Server),
            span_s,
        );
        if self.kin.server_is_gone() {
            self.server.gone(span_s);
        }
        self.watched
            .machine
            .tool_s
            .push(rounded(used(Whose::Tool) as f64 / 1e9));
        if self.complete {
            let others = self.watched.machine.others_s.get_or_insert_default();
            others.push(rounded(used(Whose::Other) as f64 / 1e9));
        }
        if let Some(behind_s) = &mut self.watched.machine.behind_s {
            behind_s.push(rounded(used(Whose::Behind) as f64 / 1e9));
        }
        self.look_at_machine();
        self.look_at_sockets(&generators, around);
    }

    /// All processes of the machine are looked at twice a second, and at each of the first
    /// looks, when the command starts others.
    fn looks_around(&mut self, now_ns: u64) -> bool {
        const EVERY_NS: u64 = 500_000_000;
        const FIRST: usize = 5;
        let due = now_ns >= self.around_ns + EVERY_NS || self.watched.end_s.len() <= FIRST;
        if due {
            self.around_ns = now_ns;
        }
        due
    }

    /// For how long of this time the command itself was stopped, by its parent's notes.
    fn stopped_s(&self, from_ns: u64, to_ns: u64) -> f64 {
        let mut since = None;
        let mut stopped_ns = 0;
        for (at_ns, stopped) in self.stops.iter().copied().chain([(to_ns, false)]) {
            match (stopped, since) {
                (true, None) => since = Some(at_ns),
                (false, Some(from)) => {
                    stopped_ns += at_ns.min(to_ns).saturating_sub(from_ns.max(from));
                    since = None;
                }
                _ => {}
            }
        }
        stopped_ns as f64 / 1e9
    }

    fn look_at_machine(&mut self) {
        let now = stat::machine_ticks().ok();
        let of = |ticks: &Option<MachineTicks>| ticks.as_ref().map(|ticks| ticks.on(&[])[0]);
        let stolen = of(&now).zip(of(&self.ticks));
        let stolen = stolen.map_or(0, |(now, before)| now.saturating_sub(before));
        self.ticks = now;
        let stolen_s = stolen as f64 / stat::ticks_per_second().max(1) as f64;
        self.watched.machine.stolen_s.push(stolen_s);
    }

    fn finish(mut self) -> Watched {
        let end = self.end.take().unwrap_or_default();
        let intervals = self.watched.end_s.len();
        let most_s = (self.last_ns - self.began_ns) as f64 / 1e9;
        let cpus = cpu::allowed().len();
        let named = self.kin.others().into_iter().take(NAMED);
        let neighbours = named.map(|(pid, name, ns)| Neighbour {
            name,
            pid: pid.into(),
            cpu_s: rounded((ns as f64 / 1e9).min(most_s * cpus as f64)),
        });
        let (hops, is_shared) = (self.hops(), self.is_shared());
        let mut server = self.server.finish(intervals);
        server.started_by = self.started_by;
        // Children that ended in the last interval are in the command's account alone.
        let last_s = self.watched.span_s.last().copied().unwrap_or(0.0);
        let used_s = self.generator.latest_s();
        let possible_s = (self.most_cpus * last_s - used_s).max(0.0);
        let command_ns = self.generator_ns + self.kin.reaped_ns();
        let missing_s = end.cpu_ns.saturating_sub(command_ns) as f64 / 1e9;
        self.generator.credit(missing_s.min(possible_s), last_s);
        let seen_share = seen_share(command_ns, end.cpu_ns, possible_s);
        let lookups = self.store.and_then(|store| store.since());
        if let Some(guard) = self.started {
            guard.end();
        }
        let sockets = self.sockets.take();
        let (traffic, network) = sockets.map(|of| of.into_columns(hops)).unzip();
        let protocols = self.protocols.into_iter().collect();
        let machine = Machine {
            cpus: cpus as u64,
            neighbours: neighbours.collect(),
            ..self.watched.machine
        };
        Watched {
            elapsed_s: rounded(end.at_ns.saturating_sub(self.began_ns) as f64 / 1e9),
            exit: end.code,
            signal: end.signal.map(process::signal_name),
            interrupted: self.interrupted,
            server_at: self.found.map(|(_, name)| name),
            generator: self.generator.finish(intervals),
            seen_share,
            server: (server.processes > 0).then_some(server),
            traffic: traffic.flatten(),
            protocols: (!self.are_hidden).then_some(protocols),
            shared_network: self.watched.shared_network.filter(|is| *is).or(is_shared),
            network,
            machine,
            lookups,
            ..self.watched
        }
    }
}

/// Share of the command's CPU time that belongs to processes that were seen. After the last
/// look they may have used so many seconds more. None where the whole is not known.
fn seen_share(seen_ns: u64, all_ns: u64, rest_s: f64) -> Option<f64> {
    let seen_s = seen_ns as f64 / 1e9 + rest_s;
    (all_ns > 0).then(|| rounded((seen_s * 1e9 / all_ns as f64).min(1.0)))
}

/// How long no look may follow, where looks have cost so much in so much time.
fn owed_ns(spent_ns: u64, elapsed_ns: u64) -> u64 {
    let beyond_ns = spent_ns.saturating_sub(HEAD_START_NS);
    let owed_ns = (beyond_ns * PART).saturating_sub(elapsed_ns);
    owed_ns.min(elapsed_ns / SHARE)
}

/// To a tenth of a millisecond, which keeps the record short.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Looks in so many seconds, where each takes so long.
    fn looks(cost_ns: u64, seconds: u64) -> u64 {
        let (mut at_ns, mut spent_ns, mut looks) = (0, 0, 0);
        while at_ns < seconds * SECOND_NS {
            looks += 1;
            spent_ns += cost_ns;
            at_ns += owed_ns(spent_ns, at_ns).max(SECOND_NS / 10);
        }
        looks
    }

    #[test]
    fn what_is_used_after_the_last_look_is_no_process_that_was_not_seen() {
        const HALF_NS: u64 = SECOND_NS / 2;
        // A loop that starts programs: its own CPU time is a tenth of the whole.
        assert_eq!(seen_share(HALF_NS / 10, HALF_NS, 0.0), Some(0.1));
        // A generator whose last look came 0.4 s before its end.
        assert_eq!(seen_share(HALF_NS, SECOND_NS, 0.4), Some(0.9));
        assert_eq!(seen_share(HALF_NS, SECOND_NS, 0.6), Some(1.0));
        assert_eq!(seen_share(HALF_NS, 0, 0.4), None);
    }

    #[test]
    fn a_short_run_is_looked_at_often_and_a_long_one_cheaply() {
        // A look of 2 ms: some 13 in the first two seconds, a fifth of a percent of a CPU
        // in the long run.
        assert!(
            (11..=15).contains(&looks(2_000_000, 2)),
            "{}",
            looks(2_000_000, 2)
        );
        let long = looks(2_000_000, 100);
        let share = (long * 2_000_000 - HEAD_START_NS) as f64 / (100 * SECOND_NS) as f64;
        assert!((0.0018..=0.0023).contains(&share), "{share}");
        // Cheap ones come as asked.
        assert_eq!(looks(100_000, 100), 1_000);
    }

    #[test]
    fn however_dear_a_look_is_a_long_run_keeps_the_budget() {
        // A look's time, the run's, the greatest share of a CPU, and the fewest looks. With
        // 500 processes and 2,000 connections a look takes 27 ms: once a second would be 2.7 %
        // of a CPU.
        let table = [
            (2_000_000, 60, 0.0024, 50),
            (27_000_000, 60, 0.017, 30),
            (27_000_000, 600, 0.0025, 45),
            (27_000_000, 3_600, 0.0022, 250),
            (50_000_000, 3_600, 0.0024, 130),
        ];
        for (cost_ns, seconds, share, fewest) in table {
            let looks = looks(cost_ns, seconds);
            let used = (looks * cost_ns) as f64 / (seconds * SECOND_NS) as f64;
            let case = format!("{cost_ns} ns in {seconds} s: {looks} looks, {used}");
            assert!(used <= share && looks >= fewest, "{case}");
        }
    }
}
