//! The keeper's readings during a sweep of `connect` at each listed number, and at its closing: CPU
//! clocks, histograms, the kernel's memory.

use crate::crew::Role;
use crate::sweep::Sweep;
use jostle_harness::accounts::{Books, Entry, Known, ServerProcesses};
use jostle_harness::{MachineReading, harness_ns};
use jostle_model::connect::Stopped;
use jostle_model::record::{Accounts, Buckets, Circumstances};
use jostle_stats::histogram::{self, Histogram};
use jostle_sys::clock;
use jostle_sys::limits::net::{self, Counted, KernelMemory};
use jostle_sys::serving;
use jostle_sys::stat::{self, CpuClock};
use jostle_worker::order::{Closed, CpuTimes, Merged, Reached, SideData};
use jostle_worker::workloads::connect::board::{BoardHistogram, Count, Own, Tally};
use jostle_worker::workloads::connect::{LAST, decade};
use std::collections::BTreeMap;

/// Caches that are worth a line: bytes for each connection.
const CACHE_BYTES_EACH: i64 = 8;
/// Connections under which the memory of one is lost in that of the machine.
const LEAST_FOR_MEMORY: u64 = 1_000;

/// Connections of a server that was there before whose owners are looked up: one reading for
/// each descriptor.
const FEW: u64 = 100_000;

/// One side's clocks.
#[derive(Clone, Copy, Debug, Default)]
struct SideClock {
    cpu_ns: u64,
    usage: CpuTimes,
}

/// All clocks at one moment.
#[derive(Clone, Debug, Default)]
struct Clocks {
    client: SideClock,
    server: SideClock,
    machine: MachineReading,
    at_ns: u64,
    /// Time that our processes waited for a CPU.
    waited_ns: Option<u64>,
}

/// The base of the figures of the next number.
pub(crate) struct Figures {
    ramp_ns: u64,
    memory: KernelMemory,
    clocks: Clocks,
    from: u64,
    total_ns: u64,
    own_cpu: BTreeMap<u32, u64>,
    books: Books,
    opened: Entry,
}

impl Figures {
    /// Before the first connection.
    pub(crate) fn begin(sweep: &Sweep<'_>, ramp_ns: u64) -> Figures {
        let order = sweep.order;
        let server = ServerProcesses::find(order.server.as_ref(), &order.target, &[]);
        let mut figures = Figures {
            ramp_ns,
            memory: KernelMemory::read(),
            clocks: Clocks::default(),
            from: 0,
            total_ns: 0,
            own_cpu: BTreeMap::new(),
            books: Books::with(server, order.cpus.clone(), order.together.is_some()),
            opened: Entry::default(),
        };
        figures.go_on(sweep);
        figures
    }

    /// From here on the next number's figures count.
    pub(crate) fn go_on(&mut self, sweep: &Sweep<'_>) {
        self.books.server.look();
        self.opened = self.books.enter();
        self.clocks = self.clocks(sweep);
        self.from = sweep.board.get(Count::Opened);
    }

    fn clocks(&mut self, sweep: &Sweep<'_>) -> Clocks {
        let mut clocks = Clocks {
            machine: MachineReading {
                ticks: stat::machine_ticks().unwrap_or_default(),
                throttled: sweep.context.throttled(),
                tcp: Counted::read(),
                ..MachineReading::default()
            },
            at_ns: sweep.context.clock.now(),
            waited_ns: waited(sweep),
            ..Clocks::default()
        };
        for (pid, (kind, number)) in &sweep.alive {
            let cpu_ns = CpuClock::of(*pid).ok().and_then(CpuClock::read);
            // For a process that died meanwhile, the last reading counts.
            let known = self.own_cpu.entry(*pid).or_default();
            *known = cpu_ns.unwrap_or(*known);
            let side = match kind {
                Role::Client => &mut clocks.client,
                Role::Server => &mut clocks.server,
                Role::Listener => continue,
            };
            side.cpu_ns += *known;
            side.usage.user_ns += sweep.board.own(*number, Own::User);
            side.usage.system_ns += sweep.board.own(*number, Own::System);
        }
        clocks.machine.harness_ns = harness_ns();
        clocks
    }

    /// At a listed number, or where no more could be opened.
    pub(crate) fn read(
        &mut self,
        sweep: &Sweep<'_>,
        listed: u64,
        stopped: Option<Stopped>,
    ) -> Reached {
        let clocks = self.clocks(sweep);
        self.books.server.look();
        let accounts = self.accounts(sweep, &clocks);
        let board = &sweep.board;
        let (began, ended) = (board.get(Count::Began), board.get(Count::Ended));
        let took_ns = ended.saturating_sub(began);
        self.total_ns += took_ns;
        let opened = board.get(Count::Opened);
        let memory = KernelMemory::read();
        let servers = sweep.crew.servers > 0;
        let mut reached = Reached {
            listed,
            from: self.from,
            opened,
            accepted: servers.then(|| board.get(Count::Accepted)),
            took_ns,
            total_ns: self.total_ns,
            ramp_ns: self.ramp_ns,
            client: self.side(sweep, Role::Client, self.clocks.client, clocks.client),
            server: servers
                .then(|| self.side(sweep, Role::Server, self.clocks.server, clocks.server)),
            lag_ns: sweep.order.rate.map(|_| board.get(Count::Lag)),
            around: Circumstances {
                machine: self.clocks.machine.until(&clocks.machine),
                accounts: Some(Box::new(accounts)),
                deaths: sweep.deaths.clone(),
                ..Circumstances::default()
            },
            slab_bytes: memory.socket_bytes() as i64 - self.memory.socket_bytes() as i64,
            memory_bytes: self.memory.available_bytes as i64 - memory.available_bytes as i64,
            caches: self.caches(&memory, opened),
            sockstat: memory.tcp,
            descriptors: sweep.descriptors,
            stopped,
            began_ns: match began {
                0 => 0,
                began => clock::monotonic().saturating_sub(sweep.context.clock.now() - began),
            },
            ..Reached::default()
        };
        self.distributions(sweep, &mut reached);
        reached
    }

    /// The owners of the CPU time while these connections were opened.
    fn accounts(&self, sweep: &Sweep<'_>, clocks: &Clocks) -> Accounts {
        let pids: Vec<u32> = sweep.alive.keys().copied().collect();
        let used = |clocks: &Clocks| clocks.client.cpu_ns + clocks.server.cpu_ns;
        let waited = self.clocks.waited_ns.zip(clocks.waited_ns);
        let known = Known {
            between_ns: clocks.at_ns.saturating_sub(self.clocks.at_ns),
            workers: &pids,
            workers_ns: used(clocks).saturating_sub(used(&self.clocks)),
            requests_ns: None,
            waited: waited.map(|(from, to)| (to.saturating_sub(from), 1.0)),
            machine: Some((&self.clocks.machine.ticks, &clocks.machine.ticks)),
        };
        let closed = self.books.enter();
        self.books.close(&self.opened, &closed, &known)
    }

    fn side(&self, sweep: &Sweep<'_>, kind: Role, from: SideClock, to: SideClock) -> SideData {
        let processes = sweep.alive.iter().filter(|(_, (other, _))| *other == kind);
        let pids: Vec<u32> = processes.map(|(pid, _)| *pid).collect();
        let large = sweep.board.get(Count::Opened) >= LEAST_FOR_MEMORY;
        let own = || pids.iter().map(|pid| net::own_memory(*pid)).sum();
        SideData {
            processes: pids.len() as u64,
            cpu_ns: to.cpu_ns.saturating_sub(from.cpu_ns),
            usage: to.usage.less(from.usage),
            own_bytes: if large { own() } else { None },
        }
    }

    fn caches(&self, now: &KernelMemory, opened: u64) -> BTreeMap<String, i64> {
        let grown = now.caches.iter().map(|(name, bytes)| {
            let before = self.memory.caches.get(name).copied().unwrap_or(0);
            (name.clone(), *bytes as i64 - before as i64)
        });
        grown
            .filter(|(_, bytes)| {
                opened >= LEAST_FOR_MEMORY && *bytes >= CACHE_BYTES_EACH * opened as i64
            })
            .collect()
    }

    fn distributions(&self, sweep: &Sweep<'_>, reached: &mut Reached) {
        let board = &sweep.board;
        let stretches = || of_interval(board.ends(), reached.from, reached.listed);
        let figures = [
            ("connect_even_ns", BoardHistogram::Even),
            ("connect_odd_ns", BoardHistogram::Odd),
            ("bind_ns", BoardHistogram::Bind),
            ("response_ns", BoardHistogram::Response),
        ];
        let mut found = BTreeMap::new();
        for (name, figure) in figures {
            keep(&mut found, name, board.tallies(stretches(), figure));
        }
        // Where the connections before them are others.
        if let Some(from) = reached.listed.checked_sub(LAST)
            && from > reached.from
        {
            let last = || of_interval(board.ends(), from, reached.listed);
            let mut connects = board.tallies(last(), BoardHistogram::Even);
            connects.add(&board.tallies(last(), BoardHistogram::Odd));
            keep(&mut found, "connect_last_ns", connects);
        }
        let mut accept = Tally::default();
        let mut by = Vec::new();
        for lane in 0..sweep.order.acceptors as usize {
            let of_lane = board.tallies(stretches(), BoardHistogram::Accept(lane));
            by.push(of_lane.count);
            accept.add(&of_lane);
        }
        keep(&mut found, "accept_ns", accept);
        if reached.accepted.is_some() && sweep.order.acceptors > 1 {
            reached.accepted_by = by;
        } else if reached.accepted.is_none() && reached.opened <= FEW {
            reached.accepted_by = self.at_processes();
        }
        reached.figures = found;
    }

    /// Connections open at each process of a server that was there before.
    fn at_processes(&self) -> Vec<u64> {
        let family = self.books.server.family();
        if family.len() < 2 {
            return Vec::new();
        }
        let port = self.books.server.ports().first().copied();
        port.map_or_else(Vec::new, |port| serving::shares_of(&family, port))
    }

    /// Adds the figures of the whole sweep, when it grows no more.
    pub(crate) fn finish(&self, sweep: &Sweep<'_>, last: &mut Reached) {
        let mut connects = BTreeMap::<String, (Tally, Tally)>::new();
        for (stretch, end) in sweep.board.ends().iter().enumerate() {
            let (connect, accept) = connects.entry(decade(*end)).or_default();
            let all = match sweep.order.only {
                Some(_) => vec![BoardHistogram::Bind],
                None => vec![BoardHistogram::Even, BoardHistogram::Odd],
            };
            all.into_iter()
                .for_each(|figure| connect.add(&sweep.board.tally(stretch, figure)));
            for lane in 0..sweep.order.acceptors as usize {
                accept.add(&sweep.board.tally(stretch, BoardHistogram::Accept(lane)));
            }
        }
        last.decades = connects
            .into_iter()
            .map(|(name, (connect, accept))| (name, [median(&connect), median(&accept)]))
            .filter(|(_, medians)| medians.iter().any(Option::is_some))
            .collect();
    }

    /// How everything was closed.
    pub(crate) fn closed(&self, sweep: &Sweep<'_>, reached: &[Reached]) -> Closed {
        let board = &sweep.board;
        let server = |stretches: std::ops::Range<usize>| {
            let mut sum = Tally::default();
            for lane in 0..sweep.order.acceptors as usize {
                sum.add(&board.tallies(stretches.clone(), BoardHistogram::ServerClose(lane)));
            }
            sum
        };
        let mut closed = Closed::default();
        for point in reached {
            let stretches = of_interval(board.ends(), point.from, point.listed);
            let mut found = BTreeMap::new();
            let first = board.tallies(stretches.clone(), BoardHistogram::Close);
            keep(&mut found, "close_ns", first);
            keep(&mut found, "server_close_ns", server(stretches));
            closed.figures.push((point.listed, found));
        }
        let mut decades = BTreeMap::<String, Tally>::new();
        for (stretch, end) in board.ends().iter().enumerate() {
            let tally = board.tally(stretch, BoardHistogram::Close);
            decades.entry(decade(*end)).or_default().add(&tally);
        }
        closed.decades = decades
            .into_iter()
            .filter_map(|(name, tally)| Some((name, median(&tally)?)))
            .collect();
        let waiting = |memory: &KernelMemory| memory.tcp.get("tw").copied();
        let after = waiting(&KernelMemory::read());
        closed.time_wait_left = after
            .zip(waiting(&self.memory))
            .map(|(after, before)| after.saturating_sub(before));
        closed
    }
}

/// Time that clients and servers, of one thread each, were runnable and not running;
/// None where the kernel does not count.
fn waited(sweep: &Sweep<'_>) -> Option<u64> {
    let each = sweep.alive.keys().map(|pid| stat::scheduled(*pid, *pid));
    each.map(|scheduled| scheduled.map(|scheduled| scheduled.waited_ns))
        .sum()
}

/// The stretches of connections from + 1 to `listed`; a listed number ends one.
fn of_interval(ends: &[u64], from: u64, listed: u64) -> std::ops::Range<usize> {
    ends.partition_point(|end| *end <= from)..ends.partition_point(|end| *end <= listed)
}

fn keep(figures: &mut BTreeMap<String, Merged>, name: &str, tally: Tally) {
    if let Some(merged) = merged(tally) {
        figures.insert(name.to_owned(), merged);
    }
}

/// None of an empty one.
pub(crate) fn merged(tally: Tally) -> Option<Merged> {
    let buckets = tally.buckets.into_iter();
    (tally.count > 0).then(|| Merged {
        buckets: Buckets(buckets.map(|(at, n)| (histogram::floor(at), n)).collect()),
        sum: tally.sum,
        min: tally.min,
        max: tally.max,
    })
}

fn median(tally: &Tally) -> Option<u64> {
    let mut histogram = Histogram::new();
    for (bucket, count) in &tally.buckets {
        histogram.record_n(histogram::floor(*bucket), *count);
    }
    histogram.quantile(0.5)
}

#[cfg(test)]
mod tests {
    use super::of_interval;

    #[test]
    fn an_interval_is_the_stretches_after_the_number_before() {
        let ends = [10, 100, 1_000, 5_000, 10_000, 14_000];
        for (from, listed, stretches) in [
            (0, 1_000, 0..3),
            (1_000, 5_000, 3..4),
            (5_000, 14_000, 4..6),
        ] {
            assert_eq!(of_interval(&ends, from, listed), stretches);
        }
    }
}
