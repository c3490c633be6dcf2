//! One sweep of `connect` from the keeper's side: fork clients, servers and
//! other listeners, let connections grow to each listed number, read all figures
//! there, and have everything closed again.

use crate::crew::Role;
use crate::figures::Figures;
use crate::limits::{explain, memory_floor, remedy};
use crate::processes::{Processes, RESERVE, Size};
use jostle_harness::during::During;
use jostle_harness::watch::Watch;
use jostle_harness::{Aborted, Context, LOOK_UP, Result, anchor, not_removed, opened};
use jostle_model::connect::{Accept, Close, PortRange, Stopped};
use jostle_sys::ledger::Ledger;
use jostle_sys::limits::Machine;
use jostle_sys::limits::cgroup::Cgroup;
use jostle_sys::limits::net::{self, Net};
use jostle_sys::waited::Waited;
use jostle_sys::{clock, cpu, files, signal};
use jostle_targets::Spec;
use jostle_targets::endpoint::{Endpoint, Options, Wanted, source};
use jostle_worker::order::{Closed, Reached, Reply, Request, SweepOrder};
use jostle_worker::workloads::connect::board::{Board, Count, Own, order};
use jostle_worker::workloads::connect::stretches;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// How often the memory that is left is looked at.
const MEMORY_LOOK_NS: u64 = 50_000_000;
/// How long servers may take to accept what is connected, and to tell their usage.
const SETTLE: Duration = Duration::from_secs(2);
/// The connections that a listening socket lets wait, where the kernel allows more.
const BACKLOG: u64 = 4_096;

/// One sweep of connections, for the keeper. Its points are sent as they are reached.
pub fn sweep(context: &Context, order: &SweepOrder) -> Reply {
    let order = &order.clone().here(&cpu::allowed());
    let (spec, ledger) = match opened(&order.target) {
        Ok(opened) => opened,
        Err(failed) => return failed,
    };
    let mut tell = |reply: Reply| context.tell(&reply);
    let passes = || match order.together {
        Some(together) if !together.takes_anchor => None,
        _ => Some(anchor::passes(context, &order.cpus)),
    };
    let before = passes();
    let done = Sweep::prepare(context, &ledger, order, &spec).and_then(|sweep| {
        let mut closed = sweep.perform(&mut tell)?;
        let both = before.zip(passes());
        closed.anchor = both.and_then(|(before, after)| anchor::anchor(&before, &after));
        Ok(closed)
    });
    match (ledger.sweep(), done) {
        (_, Err(Aborted(text))) => Reply::Failed(text),
        (Err(left), _) => not_removed(&left),
        (Ok(()), Ok(closed)) => Reply::Closed(Box::new(closed)),
    }
}

/// One sweep in the making.
pub(crate) struct Sweep<'a> {
    pub(crate) context: &'a Context,
    pub(crate) order: &'a SweepOrder,
    pub(crate) board: Board,
    pub(crate) crew: Processes,
    pub(crate) alive: BTreeMap<u32, (Role, usize)>,
    pub(crate) deaths: Vec<String>,
    pub(crate) endpoint: Endpoint,
    pub(crate) listening: Vec<Vec<OwnedFd>>,
    pub(crate) sources: Vec<Ipv4Addr>,
    pub(crate) backlog: u64,
    pub(crate) descriptors: Option<u64>,
    /// Before the sweep.
    machine: Machine,
    memory_look: u64,
    /// How often clients were told to look at their connections, or to go on.
    pub(crate) turns: u32,
    /// Whether a control group allows less memory than the machine has.
    bounded: bool,
    /// For whoever watches, and when the first connection could begin.
    pub(crate) watch: Watch,
    pub(crate) began_ns: u64,
}

impl<'a> Sweep<'a> {
    /// Makes what all processes share.
    pub(crate) fn prepare(
        context: &'a Context,
        ledger: &Ledger,
        order: &'a SweepOrder,
        spec: &Spec,
    ) -> Result<Sweep<'a>> {
        let aborted = |text: String| Aborted(format!("{}: {text}", order.target));
        let descriptors = files::raise_descriptor_limit();
        let net = Net::read();
        let wanted = Wanted {
            argument: spec.argument.as_deref(),
            ledger,
            ports: order.ports as usize,
            avoid: order.port_range.or(net.ports.map(PortRange::from)),
            seed: order.seed,
        };
        let mut endpoint = Endpoint::prepare(spec, &wanted).map_err(|e| aborted(e.to_string()))?;
        let serves = endpoint.embedded && order.only.is_none();
        let lanes = match order.accept {
            Accept::ReusePort => order.acceptors as usize,
            Accept::Shared | Accept::EpollExclusive => 1,
        };
        let backlog = BACKLOG.min(net.somaxconn.unwrap_or(BACKLOG));
        let listening = match serves {
            true => endpoint
                .listen(lanes, backlog as u32, options(order))
                .map_err(|e| aborted(e.to_string()))?,
            false => Vec::new(),
        };
        let size = Size {
            open: order.open.last().copied().unwrap_or(0),
            listeners: order.listeners,
            acceptors: if serves { order.acceptors } else { 0 },
            // The epoll of a server, and what reading /proc takes.
            reserve: open_descriptors() + 4,
            limit: descriptors,
        };
        let crew = size.crew().ok_or_else(|| {
            aborted(format!(
                "EMFILE: of {} descriptors a process has none left for connections: \
                 `ulimit -n 1024`, or a higher hard limit",
                descriptors.unwrap_or(0)
            ))
        })?;
        let processes = crew.clients + crew.servers + crew.listeners;
        let board = Board::new(processes, order.acceptors as usize, stretches(&order.open))
            .map_err(|e| aborted(format!("no memory for histograms: {e}")))?;
        let bound = order.bind_no_port.is_some();
        let numbers = 0..if bound { order.sources } else { 0 };
        let sources = numbers.map(|nth| source(order.sources, order.sweep, nth));
        Ok(Sweep {
            context,
            order,
            board,
            crew,
            alive: BTreeMap::new(),
            deaths: Vec::new(),
            endpoint,
            listening,
            sources: sources.collect(),
            backlog,
            descriptors,
            machine: Machine::read(),
            memory_look: 0,
            turns: 0,
            bounded: Cgroup::read(Path::new("/")).memory.is_some(),
            watch: Watch::new(order.watched),
            began_ns: 0,
        })
    }

    /// Performs the sweep, telling the parent at each listed number.
    pub(crate) fn perform(mut self, tell: &mut dyn FnMut(Reply) -> Result<()>) -> Result<Closed> {
        let done = self.drive(tell);
        self.clear_away();
        done
    }

    fn drive(&mut self, tell: &mut dyn FnMut(Reply) -> Result<()>) -> Result<Closed> {
        let start = self.context.clock.now();
        self.fork_all()?;
        self.await_ready()?;
        self.start_servers()?;
        let during = self.start_during()?;
        let ramp_ns = self.context.clock.now() - start;
        if self.order.together.is_some() {
            tell(Reply::Prepared)?;
        }
        if !self.await_turn()? {
            return Ok(Closed::default());
        }
        let mut figures = Figures::begin(self, ramp_ns);
        self.began_ns = self.context.clock.now();
        self.watch.opens(self.began_ns);
        self.board.order(0, order::WORK);
        let mut reached: Vec<Reached> = Vec::new();
        let mut during = during;
        for (nth, listed) in self.order.open.iter().enumerate() {
            let stopped = self.grow(nth as u64 + 1)?;
            let stopped = stopped.map(|why| self.explain(why));
            self.settle()?;
            let mut run = figures.read(self, *listed, stopped);
            run.lost = self.lost()?;
            let last = run.stopped.is_some()
                || !run.around.deaths.is_empty()
                || nth + 1 == self.order.open.len();
            if last {
                run.around.during = during.take().map(During::end);
                figures.finish(self, &mut run);
            }
            reached.push(run.clone());
            tell(Reply::Reached(Box::new(run)))?;
            let goes_on = (!last || self.order.together.is_some()) && self.await_turn()?;
            if last || !goes_on {
                break;
            }
            figures.go_on(self);
            self.go_on();
        }
        if !self.deaths.is_empty() {
            // A process has died, so that the turn to close is not passed on.
            return Ok(Closed::default());
        }
        self.close_all()?;
        Ok(figures.closed(self, &reached))
    }

    /// Whether this host goes on, and when all do: at once, where it is alone.
    fn await_turn(&mut self) -> Result<bool> {
        if self.order.together.is_none() {
            return Ok(true);
        }
        loop {
            match self.context.hear(LOOK_UP)? {
                Some(Request::Go { at_ns }) => {
                    clock::sleep_until(at_ns);
                    return Ok(true);
                }
                Some(Request::Conclude) => return Ok(false),
                Some(_) => return Err(Aborted("interrupted".into())),
                // A process that has died is noticed at the next listed number.
                None => self.reap(),
            }
        }
    }

    fn start_during(&self) -> Result<Option<During>> {
        let Some(command) = &self.order.during else {
            return Ok(None);
        };
        let pids: Vec<u32> = (0..self.crew.clients + self.crew.servers)
            .map(|process| self.board.own(process, Own::Pid) as u32)
            .collect();
        let during = During::start(self.context, command, &pids).map_err(Aborted)?;
        Ok(Some(during))
    }

    /// Waits until listed number `nth` is reached. If nothing more can be opened, returns
    /// the call that failed, its error, and the connection that it was for.
    fn grow(&mut self, nth: u64) -> Result<Option<(String, String, u64)>> {
        let (mut seen, mut silent) = (0, Waited::begin());
        loop {
            if self.board.get(Count::Reached) >= nth {
                return Ok(None);
            }
            if self.board.get(Count::Stop) != 0 || self.failure().is_some() {
                return self.stopped().map(Some);
            }
            let bell = self.board.get(Count::Bell);
            if self.board.get(Count::Reached) < nth {
                let until = clock::monotonic() + LOOK_UP.as_nanos() as u64;
                self.board.await_change(Count::Bell, bell, Some(until));
            }
            self.look_after()?;
            self.mind_memory();
            self.report();
            let opened = self.board.get(Count::Opened);
            if opened != seen {
                (seen, silent) = (opened, Waited::begin());
            } else if silent.so_far().as_nanos() > u128::from(self.order.patience.0) {
                // It ends with EINTR, which the client calls ETIMEDOUT.
                self.interrupt_clients();
                silent = Waited::begin();
            }
        }
    }

    fn interrupt_clients(&self) {
        for (pid, (kind, number)) in &self.alive {
            if *kind == Role::Client && self.board.own(*number, Own::Working) != 0 {
                let _ = signal::end_waits_of(*pid, *pid);
            }
        }
    }

    /// The machine must not run out of memory: better no more connections.
    fn mind_memory(&mut self) {
        let now = self.context.clock.now();
        if now < self.memory_look {
            return;
        }
        self.memory_look = now + MEMORY_LOOK_NS;
        let of_group = || Some(Cgroup::read(Path::new("/")).memory?.room());
        let left = [
            net::available_bytes(),
            self.bounded.then(of_group).flatten(),
        ];
        let least = left.into_iter().flatten().min();
        if least.is_some_and(|left| left < memory_floor(&self.machine)) {
            self.board.set(Count::Stop, 2);
        }
    }

    fn explain(&self, (call, error, nth): (String, String, u64)) -> Stopped {
        let load = &self.order.load;
        let (text, remedy) = match self.deaths.first() {
            Some(death) => {
                let opened = self.board.get(Count::Opened);
                (format!("{death}; {opened} connections were open"), None)
            }
            None => (
                explain(&call, &error, nth, load, &self.machine),
                remedy(&error, &call, load),
            ),
        };
        Stopped {
            call,
            error,
            text,
            remedy,
        }
    }

    /// Waits until the client has stopped, and says why: which call failed, with which
    /// error, for which connection.
    fn stopped(&mut self) -> Result<(String, String, u64)> {
        let mut waited = Waited::begin();
        let working = |sweep: &Sweep<'_>| {
            let alive = sweep.alive.values();
            let mut clients = alive.filter(|(kind, _)| *kind == Role::Client);
            clients.any(|(_, number)| sweep.board.own(*number, Own::Working) != 0)
        };
        while working(self) && waited.so_far() < SETTLE {
            self.interrupt_clients();
            self.nap()?;
        }
        let opened = self.board.get(Count::Opened);
        Ok(match (self.failure(), self.board.get(Count::Stop)) {
            _ if !self.deaths.is_empty() => ("process".into(), "died".into(), opened + 1),
            (_, 2) => ("memory".into(), "ENOMEM".into(), opened + 1),
            (Some((_, call, name, nth)), _) => (call.into(), name, nth),
            (None, _) => ("connect".into(), "failed".into(), opened + 1),
        })
    }

    /// Until everything that is connected is accepted too, and servers have told
    /// their usage; not for long, since servers may have failed.
    fn settle(&mut self) -> Result<()> {
        if self.crew.servers == 0 {
            return Ok(());
        }
        let mut waited = Waited::begin();
        while self.board.get(Count::Accepted) < self.board.get(Count::Opened)
            && waited.so_far() < SETTLE
            && self.deaths.is_empty()
        {
            self.nap()?;
        }
        let asked = self.board.get(Count::Report) + 1;
        self.board.set(Count::Report, asked);
        let silent = |sweep: &Sweep<'_>| {
            let alive = sweep.alive.values();
            let mut servers = alive.filter(|(kind, _)| *kind == Role::Server);
            servers.any(|(_, number)| {
                sweep.board.own(*number, Own::Working) != 0
                    && sweep.board.own(*number, Own::Reported) != asked
            })
        };
        while silent(self) && waited.so_far() < SETTLE {
            self.nap()?;
        }
        Ok(())
    }

    /// The side that connected closes first, one process after the other.
    fn close_all(&mut self) -> Result<()> {
        self.board.order(0, order::CLOSE);
        self.await_gone(Role::Client)?;
        if self.crew.servers > 0 {
            // Those in the middle of accepting see it within their look-up.
            let first = self.crew.clients;
            self.board.order(first, order::CLOSE);
            self.await_gone(Role::Server)?;
        }
        for number in self.crew.clients + self.crew.servers.. {
            if number == self.crew.clients + self.crew.servers + self.crew.listeners {
                break;
            }
            self.board.order(number, order::CLOSE);
        }
        self.await_gone(Role::Listener)
    }
}

/// The options of every client socket.
pub(crate) fn options(order: &SweepOrder) -> Options {
    Options {
        sndbuf: order.sndbuf,
        rcvbuf: order.rcvbuf,
        port_range: order.port_range,
        bind_no_port: order.bind_no_port == Some(true),
        reset: order.close == Close::Rst,
    }
}

/// Descriptors that this process has now, and a forked one with it.
fn open_descriptors() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(RESERVE, |fds| fds.count() as u64)
}
