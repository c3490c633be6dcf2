//! Books the CPU time of a run to its owners: workers, processes that they started, the
//! server under test, jostle's other processes, kernel threads, and every other process
//! by its name.
//!
//! Within the window only clocks are read ([`Entry`]). The process behind each clock is
//! identified before the first worker exists and after the window has closed. The source is
//! the scheduler's clocks, never the tick: where idle CPUs halt at once, a quarter of the
//! ticks is missing.

mod owners;
mod queues;
mod server;

pub use queues::Queues;
pub use server::ServerProcesses;
pub use server::{check, processes, unseen};

use jostle_model::record::{Accounts, Neighbour};
use jostle_sys::census::{self, Census, Identity, Whole};
use jostle_sys::exits::{Exit, Exits};
use jostle_sys::serving::sockets_of;
use jostle_sys::sock_diag::{SockDiag, Wanted};
use jostle_sys::stat::{self, MachineTicks};
use jostle_worker::order::{RunOrder, WorkloadOrder};
use owners::{Kin, Owner};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// Neighbours that are named.
const NAMED: usize = 3;

/// The name for programs that began and ended within the window and were not told by name, with the
/// number 0.
const ENDED: &str = "programs that ended";

/// CPU time under which the CPUs of a process are not looked up.
const NOTABLE_NS: u64 = 500_000;

/// The state before a run, and how its clocks are read.
pub struct Books {
    /// The first process of this jostle on this machine.
    top: u32,
    /// Other processes named jostle are ranks of the same job.
    of_a_job: bool,
    /// CPUs of workers and server; empty: all.
    cpus: Vec<usize>,
    whole: Option<Whole>,
    complete: bool,
    /// Where the server's processes are found.
    pub server: ServerProcesses,
    before: Look,
    /// When the window has closed and workers and what they started are still there.
    closing: RefCell<Look>,
    began_ns: u64,
    /// When workers were let go, and when their window had closed.
    worked_ns: [Cell<u64>; 2],
    /// Asks for the segments of connections; None where nothing is asked over them.
    diag: RefCell<Option<SockDiag>>,
    /// The sockets of the workers.
    sockets: RefCell<BTreeSet<u64>>,
    /// Tells of programs that end; None without the right to ask, and where ours start
    /// programs of their own, which telling would delay.
    exits: Option<Exits>,
}

/// All processes at a moment outside of the window.
#[derive(Default)]
struct Look {
    identities: BTreeMap<u32, Identity>,
    census: Census,
}

impl Look {
    fn take() -> Look {
        let census = census::take();
        let pids = census.keys().copied();
        Look {
            identities: pids
                .filter_map(|pid| Some((pid, Identity::of(pid)?)))
                .collect(),
            census,
        }
    }
}

/// All clocks at an edge of the window.
#[derive(Default)]
pub struct Entry {
    census: Census,
    /// That of all tasks, and that of those on our CPUs.
    whole_ns: Option<[u64; 2]>,
    packets: BTreeMap<usize, u64>,
    /// By cookie and inode, those that each TCP connection of this machine has carried.
    segments: BTreeMap<(u64, u32), u64>,
    /// Threads that ended since the entry before.
    ended: Vec<Exit>,
    server: server::Reading,
}

/// Facts from other parts of the run about the time between two entries.
#[derive(Default)]
pub struct Known<'a> {
    /// Time between the readings.
    pub between_ns: u64,
    /// The processes that carry workers.
    pub workers: &'a [u32],
    /// CPU time of the workers.
    pub workers_ns: u64,
    /// CPU time of what they started; None: they start nothing.
    pub requests_ns: Option<u64>,
    /// The time that workers' threads waited for a CPU, and the share that was looked at.
    pub waited: Option<(u64, f64)>,
    /// The machine's ticks at both edges.
    pub machine: Option<(&'a MachineTicks, &'a MachineTicks)>,
}

/// CPU time of the whole machine since boot, by ticks.
pub fn busy_ns() -> Option<u64> {
    let tick_ns = 1_000_000_000 / stat::ticks_per_second().max(1);
    Some(stat::machine_ticks().ok()?.busy * tick_ns)
}

impl Books {
    /// Before the first worker exists.
    pub fn open(order: &RunOrder, embedded: &[u32]) -> Books {
        let server = ServerProcesses::find(order.server.as_ref(), &order.target, embedded);
        let cpus = match (embedded, server.is_known()) {
            ([_, ..], _) => ours([&order.cpus, &order.server_cpus]),
            // Somebody else's runs where it likes.
            ([], true) => Vec::new(),
            ([], false) => ours([&order.cpus]),
        };
        /// Workers up to which asking for their connections takes well under a millisecond.
        const FEW: usize = 500;
        let asks = server.is_known() && order.workers <= FEW;
        let mut books = Books::with(server, cpus, order.share.is_some());
        if let WorkloadOrder::Contend(_) | WorkloadOrder::Hold(_) = order.workload {
            books.exits = Exits::listen().ok();
        }
        *books.diag.borrow_mut() = asks.then(SockDiag::open).and_then(Result::ok);
        books
    }

    /// `cpus`: those that workers and server may use; empty: all.
    pub fn with(server: ServerProcesses, cpus: Vec<usize>, of_a_job: bool) -> Books {
        let keeper = std::process::id();
        let parent = rustix::process::getppid();
        Books {
            top: parent.map_or(keeper, |pid| pid.as_raw_nonzero().get() as u32),
            of_a_job,
            cpus,
            whole: Whole::find(),
            complete: census::is_complete(),
            server,
            before: Look::take(),
            closing: RefCell::default(),
            began_ns: jostle_sys::clock::monotonic(),
            worked_ns: Default::default(),
            diag: RefCell::default(),
            sockets: RefCell::default(),
            exits: None,
        }
    }

    /// Workers are let go.
    pub fn starts(&self) {
        self.worked_ns[0].set(jostle_sys::clock::monotonic());
    }

    /// Looks at who is there once the window has closed and before workers are
    /// dismissed: programs that they have started and kept end with them, and so do their
    /// connections.
    pub fn look_around<'a>(&self, workers: impl Iterator<Item = &'a u32>) {
        self.server.look();
        if self.diag.borrow().is_some() {
            *self.sockets.borrow_mut() = workers.flat_map(|pid| sockets_of(*pid)).collect();
        }
        *self.closing.borrow_mut() = Look::take();
        self.worked_ns[1].set(jostle_sys::clock::monotonic());
    }

    /// CPUs that workers and server may use; empty: all.
    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// CPU time of all processes so far, for whoever watches: exact where the kernel
    /// counts it, by ticks elsewhere.
    pub fn whole_ns(&self) -> Option<u64> {
        let exact = self.whole.as_ref().and_then(|whole| whole.read(&[]));
        exact.map(|[all, _]| all).or_else(busy_ns)
    }

    /// CPU time so far of all tasks on the CPUs that ours may use, by the CPUs' clocks.
    pub fn ours_ns(&self) -> Option<u64> {
        Some(self.whole.as_ref()?.read(&self.cpus)?[1])
    }

    /// Ticks so far that the hypervisor took from these CPUs.
    pub fn stolen(&self) -> u64 {
        stat::machine_ticks().map_or(0, |ticks| ticks.on(&self.cpus)[0])
    }

    /// Packets so far that these CPUs handled.
    pub fn packets(&self) -> u64 {
        self.handled(&stat::packets())
    }

    fn handled(&self, packets: &BTreeMap<usize, u64>) -> u64 {
        let ours = packets.iter();
        ours.filter(|(cpu, _)| self.cpus.is_empty() || self.cpus.contains(cpu))
            .map(|(_, packets)| packets)
            .sum()
    }

    /// At an edge of the window. Processes that carry workers have clocks of their own.
    pub fn enter(&self) -> Entry {
        let server = self.server.read();
        Entry {
            census: census::take(),
            whole_ns: self.whole.as_ref().and_then(|whole| whole.read(&self.cpus)),
            packets: stat::packets(),
            segments: self.segments(),
            ended: self.ended(),
            server,
        }
    }

    /// Empty where more ended than the kernel could tell.
    fn ended(&self) -> Vec<Exit> {
        let told = self.exits.as_ref().map(Exits::drain);
        told.and_then(Result::ok).unwrap_or_default()
    }

    fn segments(&self) -> BTreeMap<(u64, u32), u64> {
        let wanted = Wanted {
            carried: true,
            ..Wanted::default()
        };
        let mut diag = self.diag.borrow_mut();
        let found = diag.as_mut().and_then(|diag| diag.tcp(wanted).ok());
        let each = found.into_iter().flatten();
        each.filter_map(|socket| Some(((socket.cookie, socket.inode), socket.carried?.segments)))
            .collect()
    }

    /// The packets that the workers' connections carried in both directions. None if they have
    /// none, or if one was opened since.
    fn own_packets(&self, opened: &Entry, closed: &Entry) -> Option<u64> {
        let sockets = self.sockets.borrow();
        let ours = closed.segments.iter();
        let ours = ours.filter(|((_, inode), _)| sockets.contains(&u64::from(*inode)));
        let each = ours.map(|(which, to)| Some(to.saturating_sub(*opened.segments.get(which)?)));
        each.sum::<Option<u64>>().filter(|sum| *sum > 0)
    }

    /// After the window, as long as its processes are still there.
    pub fn close(&self, opened: &Entry, closed: &Entry, known: &Known<'_>) -> Accounts {
        let after = Look::take();
        let closing = self.closing.borrow();
        let span_ns = jostle_sys::clock::monotonic().saturating_sub(self.began_ns);
        let share = known.between_ns as f64 / span_ns.max(1) as f64;
        let kin = Kin {
            looks: [&after, &closing, &self.before].map(|look| &look.identities),
            top: self.top,
            of_a_job: self.of_a_job,
            workers: known.workers,
            server: self.server.roots(),
        };
        let edges = [&opened.census, &closed.census];
        let reaped = reaped([&self.before, &closing, &after], edges);
        let mut sums = Sums::default();
        for (pid, to) in &closed.census {
            let used = to.saturating_sub(opened.census.get(pid).copied().unwrap_or(0));
            let reaped = reaped.get(pid).copied().unwrap_or(0);
            let reaped = (reaped as f64 * share.min(1.0)) as u64;
            if used + reaped == 0 {
                continue;
            }
            match kin.owner(*pid) {
                Owner::Worker => {}
                Owner::Request if !after.identities.contains_key(pid) => {
                    let [from, to] = [0, 1].map(|edge| self.worked_ns[edge].get());
                    let share = known.between_ns as f64 / to.saturating_sub(from).max(1) as f64;
                    let ended = closing.identities.get(pid).map_or(0, |peer| peer.reaped_ns);
                    sums.requests_ns += used + (ended as f64 * share.min(1.0)) as u64;
                }
                Owner::Request => sums.requests_ns += used + reaped,
                Owner::Server => sums.server_ns += used + reaped,
                Owner::Tool => sums.tool_ns += used,
                Owner::Kernel => sums.kernel(*pid, &kin.name(*pid), used),
                Owner::Other if self.is_apart(*pid, used) => sums.apart_ns += used + reaped,
                Owner::Other => sums.other(*pid, &kin.name(*pid), used, reaped),
            }
        }
        sums.ended(&closed.ended, &kin, &after);
        self.accounts(opened, closed, known, sums)
    }

    /// Whether a process cannot run on any CPU of ours.
    fn is_apart(&self, pid: u32, used: u64) -> bool {
        if self.cpus.is_empty() || used < NOTABLE_NS {
            return false;
        }
        let allowed = jostle_sys::cpu::allowed_of(pid);
        allowed.is_some_and(|allowed| !allowed.iter().any(|cpu| self.cpus.contains(cpu)))
    }

    fn accounts(
        &self,
        opened: &Entry,
        closed: &Entry,
        known: &Known<'_>,
        mut sums: Sums,
    ) -> Accounts {
        let cpus = match self.cpus.len() {
            0 => jostle_sys::cpu::allowed().len(),
            some => some,
        };
        let server_ns = self
            .server
            .used(&opened.server, &closed.server, sums.server_ns);
        let whole_ns = opened.whole_ns.zip(closed.whole_ns);
        let whole_ns = whole_ns.map(|(from, to)| [0, 1].map(|n| to[n].saturating_sub(from[n])));
        // A program that is started for each request is known by what it used in its
        // life; one that a worker keeps, by its clocks.
        let kept_ns = Some(sums.requests_ns).filter(|ns| *ns > 0);
        let requests_ns = known.requests_ns.or(kept_ns);
        let ours_ns =
            known.workers_ns + requests_ns.unwrap_or(0) + server_ns.unwrap_or(0) + sums.tool_ns;
        let known_ns = ours_ns + sums.kernel_ns + sums.apart_ns + sums.alive_ns;
        let rest_ns = whole_ns.map(|[all, _]| all.saturating_sub(known_ns));
        // A process that began and ended in between is booked to its parent, to a tick, and
        // never with more than is left.
        let most = known.between_ns * cpus as u64;
        let dead_ns = sums.dead_ns.min(rest_ns.unwrap_or(most));
        let told_ns = sums.name_the_dead(dead_ns);
        // Who waited for the rest need not have started them.
        sums.others.push(neighbour(0, ENDED, dead_ns - told_ns));
        let on_ours = |from: &MachineTicks, to: &MachineTicks| {
            let (from, to) = (from.on(&self.cpus), to.on(&self.cpus));
            [0, 1].map(|n| to[n].saturating_sub(from[n]))
        };
        let ticks = known.machine.map(|(from, to)| on_ours(from, to));
        let waited = known.waited.map(|(ns, coverage)| {
            let server = self.server.waited(&opened.server, &closed.server);
            (ns as f64 / coverage + server as f64, coverage)
        });
        Accounts {
            between_s: seconds(known.between_ns),
            cpus: cpus as u64,
            workers_s: seconds(known.workers_ns),
            requests_s: requests_ns.map(seconds),
            server_s: server_ns.map(seconds),
            tool_s: seconds(sums.tool_ns),
            others_s: self.complete.then(|| seconds(sums.alive_ns + dead_ns)),
            others: largest(sums.others),
            machine_s: seconds(sums.kernel_ns),
            kernel_threads: largest(sums.kernel_threads),
            whole_s: whole_ns.map(|[all, _]| seconds(all)),
            unexplained_s: rest_ns.map(|rest| seconds(rest - dead_ns.min(rest))),
            waited_s: waited.map(|(ns, _)| ns / 1e9),
            waited_coverage: waited.map(|(_, coverage)| coverage),
            stolen_s: ticks
                .map(|[stolen, _]| stolen as f64 / stat::ticks_per_second().max(1) as f64),
            foreign_s: whole_ns.map(|[_, on_ours]| seconds(on_ours.saturating_sub(ours_ns))),
            softirq_ticks: ticks.map(|[_, softirq]| softirq),
            packets: (!closed.packets.is_empty()).then(|| {
                // Each CPU counts in 32 bits.
                let [from, to] = [opened, closed].map(|entry| self.handled(&entry.packets));
                to.saturating_sub(from)
            }),
            own_packets: self.own_packets(opened, closed),
            readings: None,
        }
    }
}

/// CPUs of workers and server: those that they are given, or else all that they inherit.
fn ours<const N: usize>(given: [&Vec<usize>; N]) -> Vec<usize> {
    let allowed = jostle_sys::cpu::allowed();
    let each = given.map(|cpus| if cpus.is_empty() { &allowed } else { cpus });
    let mut all: Vec<usize> = each.into_iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// By process, the CPU time of the children that it has reaped since the first of three
/// looks, less each child's time at the latest clock reading: that time lies before the
/// window, or is booked to the child itself.
fn reaped(looks: [&Look; 3], edges: [&Census; 2]) -> BTreeMap<u32, u64> {
    let [before, closing, after] = looks;
    let [opened, closed] = edges;
    let mut earlier: BTreeMap<u32, u64> = BTreeMap::new();
    let known = before.identities.keys().chain(closing.identities.keys());
    let known: BTreeSet<u32> = known.copied().collect();
    for pid in known {
        if !after.identities.contains_key(&pid) {
            let latest = [closed, opened, &before.census];
            let clock = latest.iter().find_map(|clocks| clocks.get(&pid));
            let waited_for = before.identities.get(&pid).map_or(0, |one| one.reaped_ns);
            let used = clock.copied().unwrap_or(0) + waited_for;
            *earlier.entry(heir(looks, pid)).or_default() += used;
        }
    }
    let each = after.identities.iter().map(|(pid, identity)| {
        let known = before.identities.get(pid);
        let known = known.map_or(0, |known| known.reaped_ns);
        let less = known + earlier.get(pid).copied().unwrap_or(0);
        (*pid, identity.reaped_ns.saturating_sub(less))
    });
    each.filter(|(_, ns)| *ns > 0).collect()
}

/// The nearest ancestor that is still there: the kernel adds the CPU time of reaped
/// descendants to it, generation by generation.
fn heir([before, closing, after]: [&Look; 3], pid: u32) -> u32 {
    let mut at = pid;
    while !after.identities.contains_key(&at) {
        let known = [closing, before].map(|look| look.identities.get(&at));
        match known.into_iter().flatten().next() {
            Some(identity) if identity.parent > 0 => at = identity.parent,
            _ => break,
        }
    }
    at
}

/// CPU time by owner.
#[derive(Default)]
struct Sums {
    server_ns: u64,
    /// The time of the processes that workers started and that were there at the end.
    requests_ns: u64,
    tool_ns: u64,
    kernel_ns: u64,
    /// Others, on CPUs that are none of ours.
    apart_ns: u64,
    /// Others that were there at the end.
    alive_ns: u64,
    /// Programs that ended, by those that waited for them.
    dead_ns: u64,
    /// Those that the kernel told of, by what they are called here; in ticks.
    dead: BTreeMap<String, u64>,
    others: Vec<Neighbour>,
    kernel_threads: Vec<Neighbour>,
}

impl Sums {
    fn other(&mut self, pid: u32, name: &str, used: u64, reaped: u64) {
        self.alive_ns += used;
        self.dead_ns += reaped;
        self.others.push(neighbour(pid, name, used));
    }

    /// Books what ended to its name and to who started it, if that is nobody of ours.
    fn ended(&mut self, told: &[Exit], kin: &Kin<'_>, after: &Look) {
        let names: BTreeMap<u32, &str> = told.iter().map(|one| (one.pid, &*one.name)).collect();
        for exit in told {
            let is_other = kin.owner(exit.parent) == Owner::Other;
            if !is_other || after.identities.contains_key(&exit.pid) {
                continue;
            }
            let by = match (exit.parent, kin.name(exit.parent)) {
                // It inherits what others started.
                (1, _) => None,
                (ended, unknown) if unknown == "?" => names.get(&ended).map(|name| (*name).into()),
                (pid, name) => Some(format!("{name} ({pid})")),
            };
            let by = by.map_or_else(String::new, |by| format!(" started by {by}"));
            *self.dead.entry(format!("{}{by}", exit.name)).or_default() += 1000 * exit.used_us;
        }
    }

    /// Adds them to the others, with at most that CPU time in all; how much they have.
    fn name_the_dead(&mut self, dead_ns: u64) -> u64 {
        let ticks_ns: u64 = self.dead.values().sum();
        let scale = (dead_ns as f64 / ticks_ns.max(1) as f64).min(1.0);
        let mut told_ns = 0;
        for (name, ns) in std::mem::take(&mut self.dead) {
            let ns = (ns as f64 * scale) as u64;
            told_ns += ns;
            self.others.push(neighbour(0, &name, ns));
        }
        told_ns.min(dead_ns)
    }

    fn kernel(&mut self, pid: u32, name: &str, used: u64) {
        self.kernel_ns += used;
        self.kernel_threads.push(neighbour(pid, name, used));
    }
}

fn neighbour(pid: u32, name: &str, used: u64) -> Neighbour {
    Neighbour {
        name: name.to_owned(),
        pid: u64::from(pid),
        cpu_s: seconds(used),
    }
}

/// The largest of those that used at least a millisecond.
fn largest(mut each: Vec<Neighbour>) -> Vec<Neighbour> {
    each.retain(|one| one.cpu_s >= 0.001);
    each.sort_by(|one, other| other.cpu_s.total_cmp(&one.cpu_s));
    each.truncate(NAMED);
    each
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod live_tests;
