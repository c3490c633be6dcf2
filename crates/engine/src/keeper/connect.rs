//! One sweep of `connect` from the keeper's side: fork clients, servers and
//! other listeners, let connections grow to each listed number, read all figures
//! there, and have everything closed again.

use super::connect_figures::Figures;
use super::during::During;
use super::run::{Aborted, how_it_ended};
use super::serve::Desk;
use crate::order::{Closed, Reached, Reply, SweepOrder};
use crate::workloads::connect::board::{Board, Count, Own, order};
use crate::workloads::connect::client::Client;
use crate::workloads::connect::listener::Listener;
use crate::workloads::connect::server::Server;
use crate::workloads::connect::{Crew, Size, stretches};
use jostle_model::connect::{Accept, Close, Only};
use jostle_sys::ledger::Ledger;
use jostle_sys::limits::net::{self, Net};
use jostle_sys::process::{self, Ended};
use jostle_sys::{clock, cpu, errno, signal, socket};
use jostle_targets::Spec;
use jostle_targets::endpoint::{CALLS, Endpoint, Options, Plug, Wanted, source};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How often waits look up: for the parent, for processes that died.
const LOOK_UP_NS: u64 = 20_000_000;
/// How often the memory that is left is looked at.
const MEMORY_LOOK_NS: u64 = 200_000_000;
/// How long all processes together may take to become ready.
const RAMP_PATIENCE_NS: u64 = 120_000_000_000;
/// How long servers may take to accept what is connected, and to tell their usage.
const SETTLE_NS: u64 = 2_000_000_000;
/// What a listening socket lets wait, where the kernel allows more.
const BACKLOG: u64 = 4_096;

/// Which process is which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Connects.
    Client,
    /// Accepts.
    Server,
    /// Holds other listening sockets.
    Listener,
}

/// One sweep in the making.
pub struct Sweep<'a> {
    pub(super) desk: &'a Desk,
    pub(super) order: &'a SweepOrder,
    pub(super) board: Board,
    pub(super) crew: Crew,
    pub(super) alive: BTreeMap<u32, (Kind, usize)>,
    pub(super) deaths: Vec<String>,
    endpoint: Endpoint,
    listening: Vec<Vec<OwnedFd>>,
    sources: Vec<Ipv4Addr>,
    backlog: u64,
    pub(super) descriptors: Option<u64>,
    memory_look: u64,
}

impl<'a> Sweep<'a> {
    /// Makes what all processes share.
    pub fn prepare(
        desk: &'a Desk,
        ledger: &Ledger,
        order: &'a SweepOrder,
        spec: &Spec,
    ) -> Result<Sweep<'a>, Aborted> {
        let aborted = |text: String| Aborted(format!("{}: {text}", order.target));
        let descriptors = socket::raise_descriptor_limit();
        let net = Net::read();
        let wanted = Wanted {
            argument: spec.argument.as_deref(),
            ledger,
            ports: order.ports as usize,
            avoid: order.port_range.or(net.ports),
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
        let sources = match order.bind_no_port {
            None => Vec::new(),
            Some(_) => (0..order.sources)
                .map(|nth| source(order.sources, order.sweep, nth))
                .collect(),
        };
        Ok(Sweep {
            desk,
            order,
            board,
            crew,
            alive: BTreeMap::new(),
            deaths: Vec::new(),
            endpoint,
            listening,
            sources,
            backlog,
            descriptors,
            memory_look: 0,
        })
    }

    /// Does it, telling the parent at each listed number.
    pub fn perform(
        mut self,
        tell: &mut dyn FnMut(Reply) -> Result<(), Aborted>,
    ) -> Result<Closed, Aborted> {
        let done = self.drive(tell);
        self.clear_away();
        done
    }

    fn drive(
        &mut self,
        tell: &mut dyn FnMut(Reply) -> Result<(), Aborted>,
    ) -> Result<Closed, Aborted> {
        let start = self.desk.clock.now();
        self.fork_all()?;
        self.await_ready()?;
        self.start_servers()?;
        let during = self.start_during()?;
        let mut figures = Figures::begin(self, self.desk.clock.now() - start);
        self.board.order(0, order::WORK);
        let mut reached: Vec<Reached> = Vec::new();
        let mut during = during;
        for (nth, listed) in self.order.open.iter().enumerate() {
            let stopped = self.grow(nth as u64 + 1)?;
            self.settle()?;
            let mut point = figures.read(self, *listed, stopped);
            let last = point.stopped.is_some()
                || !point.deaths.is_empty()
                || nth + 1 == self.order.open.len();
            if last {
                point.during = during.take().map(During::end);
                figures.finish(self, &mut point);
            }
            reached.push(point.clone());
            tell(Reply::Reached(Box::new(point)))?;
            if last {
                break;
            }
            figures.go_on(self);
            self.board.set(Count::Go, nth as u64 + 1);
        }
        self.board.set(Count::Go, u64::MAX);
        if !self.deaths.is_empty() {
            // Nobody passes the turn on any more.
            return Ok(Closed::default());
        }
        self.close_all()?;
        Ok(figures.closed(self, &reached))
    }

    fn start_during(&self) -> Result<Option<During>, Aborted> {
        let Some(command) = &self.order.during else {
            return Ok(None);
        };
        let pids: Vec<u32> = (0..self.crew.clients + self.crew.servers)
            .map(|process| self.board.own(process, Own::Pid) as u32)
            .collect();
        let during = During::start(self.desk, command, &pids).map_err(Aborted)?;
        Ok(Some(during))
    }

    fn fork_all(&mut self) -> Result<(), Aborted> {
        let Crew {
            clients,
            servers,
            listeners,
            each,
        } = self.crew;
        for client in 0..clients {
            self.fork(Kind::Client, client, each)?;
        }
        for server in clients..clients + servers {
            self.fork(Kind::Server, server, each)?;
        }
        for listener in 0..listeners {
            self.fork(Kind::Listener, clients + servers + listener, each)?;
        }
        Ok(())
    }

    fn fork(&mut self, kind: Kind, number: usize, each: u64) -> Result<(), Aborted> {
        let keeper = rustix::process::getpid();
        let pid = self.desk.forker.fork(|| {
            process::set_name(match kind {
                Kind::Client => "jostle-client",
                Kind::Server => "jostle-server",
                Kind::Listener => "jostle-listen",
            });
            if process::die_with(keeper).is_err() {
                return 1;
            }
            let _ = process::leave_group();
            match self.settle_in(kind, number) {
                Ok(()) => self.live(kind, number, each),
                Err(_) => 1,
            }
        });
        let pid = pid.map_err(|error| {
            Aborted(format!(
                "cannot fork process {number} of this sweep: {error}; a limit on processes was \
                 reached (ulimit -u, kernel.pid_max, the cgroup's pids.max): raise it, raise the \
                 limit on descriptors (`ulimit -n`), or fewer connections (--open)"
            ))
        })?;
        self.alive
            .insert(pid.as_raw_nonzero().get() as u32, (kind, number));
        if number % 64 == 63 {
            self.heed_parent()?;
        }
        Ok(())
    }

    /// In the process itself.
    fn settle_in(&self, kind: Kind, number: usize) -> std::io::Result<()> {
        signal::end_waits_on_signal()?;
        cpu::set_timer_slack(self.order.timer_slack.0)?;
        let cpus = &self.order.cpus;
        let cpu = match kind {
            _ if cpus.is_empty() => None,
            Kind::Client | Kind::Listener => cpus.first(),
            Kind::Server => cpus.get(1..).filter(|rest| !rest.is_empty()).map_or_else(
                || cpus.first(),
                |rest| rest.get((number - self.crew.clients) % rest.len()),
            ),
        };
        if let Some(cpu) = cpu {
            cpu::pin(&[*cpu])?;
        }
        self.board
            .set_own(number, Own::Pid, u64::from(std::process::id()));
        Ok(())
    }

    /// The life of a forked process. Returns its exit code.
    fn live(&self, kind: Kind, number: usize, each: u64) -> i32 {
        let ready = || {
            self.board.count(Count::Ready).fetch_add(1, Relaxed);
            self.board.ring();
        };
        let (board, clock) = (&self.board, self.desk.clock);
        match kind {
            Kind::Client => {
                let client = Client {
                    board,
                    plug: Plug::new(&self.endpoint, options(self.order), &self.sources),
                    clock,
                    number,
                    clients: self.crew.clients,
                    each,
                    listed: &self.order.open,
                    backlog: (self.crew.servers > 0).then_some(self.backlog),
                    interval_ns: self.order.rate.map(|rate| 1e9 / rate as f64),
                    bind_only: self.order.only == Some(Only::Bind),
                };
                ready();
                client.live()
            }
            Kind::Server => {
                let server = Server {
                    board,
                    listening: &self.listening,
                    accept: self.order.accept,
                    clock,
                    number,
                    first: self.crew.clients,
                    servers: self.crew.servers,
                    each,
                };
                ready();
                server.live()
            }
            Kind::Listener => {
                let nth = (number - self.crew.clients - self.crew.servers) as u64;
                let listener = Listener {
                    board,
                    number,
                    first: nth * each,
                    count: each.min(self.order.listeners - nth * each),
                };
                let Some(fds) = listener.prepare() else {
                    board.ring();
                    return 1;
                };
                ready();
                listener.live(fds)
            }
        }
    }

    fn await_ready(&mut self) -> Result<(), Aborted> {
        let all = self.alive.len() as u64;
        let deadline = self.desk.clock.now() + RAMP_PATIENCE_NS;
        while self.board.get(Count::Ready) < all {
            self.nap()?;
            if let Some((number, call, name, nth)) = self.failure() {
                let listens = number >= self.crew.clients + self.crew.servers;
                let what = if listens {
                    "other listening socket"
                } else {
                    "socket"
                };
                return Err(Aborted(format!(
                    "{name}: {call}() failed for {what} {nth}; fewer --listeners"
                )));
            }
            if let Some(death) = self.deaths.first() {
                return Err(Aborted(death.clone()));
            }
            if self.desk.clock.now() > deadline {
                return Err(Aborted(format!(
                    "of {all} processes only {} became ready in time",
                    self.board.get(Count::Ready)
                )));
            }
        }
        Ok(())
    }

    /// One for each acceptor; the others stand by.
    fn start_servers(&mut self) -> Result<(), Aborted> {
        if self.crew.servers == 0 {
            return Ok(());
        }
        let lanes = self.order.acceptors as usize;
        self.board.set(Count::Standby, lanes as u64);
        for lane in 0..lanes {
            let server = self.crew.clients + lane;
            self.board.set_own(server, Own::Lane, lane as u64);
            self.board.order(server, order::WORK);
        }
        let deadline = self.desk.clock.now() + RAMP_PATIENCE_NS;
        for lane in 0..lanes {
            let server = self.crew.clients + lane;
            while self.board.own(server, Own::Working) == 0 && self.deaths.is_empty() {
                self.nap()?;
                if self.desk.clock.now() > deadline {
                    return Err(Aborted("an acceptor did not start in time".into()));
                }
            }
        }
        Ok(())
    }

    /// Sleeps until something happens, and looks after parent and children.
    fn nap(&mut self) -> Result<(), Aborted> {
        let bell = self.board.get(Count::Bell);
        self.board
            .await_change(Count::Bell, bell, Some(clock::monotonic() + 2_000_000));
        self.look_after()
    }

    fn look_after(&mut self) -> Result<(), Aborted> {
        self.heed_parent()?;
        self.reap();
        Ok(())
    }

    pub(super) fn heed_parent(&self) -> Result<(), Aborted> {
        match self.desk.stopped(Duration::ZERO) {
            true => Err(Aborted("interrupted".into())),
            false => Ok(()),
        }
    }

    fn reap(&mut self) {
        while let Some(ended) = process::reap() {
            let Some((kind, number)) = self.alive.remove(&ended.pid) else {
                continue;
            };
            if ended.code != Some(0) && self.board.own(number, Own::Call) == 0 {
                self.deaths.push(death(kind, number, &ended, &self.crew));
                self.board.set(Count::Stop, 1);
            }
        }
    }

    /// The first process that a call failed, the call, the error, and the
    /// connection that it was for.
    fn failure(&self) -> Option<(usize, &'static str, String, u64)> {
        let processes = self.crew.clients + self.crew.servers + self.crew.listeners;
        (0..processes).find_map(|process| {
            let call = self.board.own(process, Own::Call).checked_sub(1)?;
            let name = errno::name(self.board.own(process, Own::Errno) as i32);
            let nth = self.board.own(process, Own::For);
            Some((process, CALLS[call as usize], name, nth))
        })
    }

    /// Until listed number `nth` is reached, or nothing more can be opened: then
    /// which call failed, why, and for which connection.
    fn grow(&mut self, nth: u64) -> Result<Option<(String, String, u64)>, Aborted> {
        let (mut seen, mut since) = (0, self.desk.clock.now());
        loop {
            if self.board.get(Count::Reached) >= nth {
                return Ok(None);
            }
            if self.board.get(Count::Stop) != 0 || self.failure().is_some() {
                return self.stopped().map(Some);
            }
            let bell = self.board.get(Count::Bell);
            if self.board.get(Count::Reached) < nth {
                let until = clock::monotonic() + LOOK_UP_NS;
                self.board.await_change(Count::Bell, bell, Some(until));
            }
            self.look_after()?;
            self.mind_memory();
            let (now, opened) = (self.desk.clock.now(), self.board.get(Count::Opened));
            if opened != seen {
                (seen, since) = (opened, now);
            } else if now.saturating_sub(since) > self.order.patience.0 {
                // It ends with EINTR, which the client calls ETIMEDOUT.
                self.interrupt_clients();
                since = now;
            }
        }
    }

    fn interrupt_clients(&self) {
        for (pid, (kind, number)) in &self.alive {
            if *kind == Kind::Client && self.board.own(*number, Own::Working) != 0 {
                let _ = signal::end_waits_of(*pid, *pid);
            }
        }
    }

    /// The machine must not run out of memory: better no more connections.
    fn mind_memory(&mut self) {
        let now = self.desk.clock.now();
        if now < self.memory_look {
            return;
        }
        self.memory_look = now + MEMORY_LOOK_NS;
        let short = net::available_bytes().is_some_and(|n| n < self.order.memory_floor_bytes);
        if short {
            self.board.set(Count::Stop, 2);
        }
    }

    /// Waits until the client has stopped, and says why.
    fn stopped(&mut self) -> Result<(String, String, u64), Aborted> {
        let deadline = self.desk.clock.now() + SETTLE_NS;
        let working = |sweep: &Sweep<'_>| {
            let mut clients = sweep
                .alive
                .values()
                .filter(|(kind, _)| *kind == Kind::Client);
            clients.any(|(_, number)| sweep.board.own(*number, Own::Working) != 0)
        };
        while working(self) && self.desk.clock.now() < deadline {
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
    fn settle(&mut self) -> Result<(), Aborted> {
        if self.crew.servers == 0 {
            return Ok(());
        }
        let deadline = self.desk.clock.now() + SETTLE_NS;
        while self.board.get(Count::Accepted) < self.board.get(Count::Opened)
            && self.desk.clock.now() < deadline
            && self.deaths.is_empty()
        {
            self.nap()?;
        }
        let asked = self.board.get(Count::Report) + 1;
        self.board.set(Count::Report, asked);
        let silent = |sweep: &Sweep<'_>| {
            let mut servers = sweep
                .alive
                .values()
                .filter(|(kind, _)| *kind == Kind::Server);
            servers.any(|(_, number)| {
                sweep.board.own(*number, Own::Working) != 0
                    && sweep.board.own(*number, Own::Reported) != asked
            })
        };
        while silent(self) && self.desk.clock.now() < deadline {
            self.nap()?;
        }
        Ok(())
    }

    /// The side that connected closes first, one process after the other.
    fn close_all(&mut self) -> Result<(), Aborted> {
        self.board.order(0, order::CLOSE);
        self.await_gone(Kind::Client)?;
        if self.crew.servers > 0 {
            // Those in the middle of accepting see it within their look-up.
            let first = self.crew.clients;
            self.board.order(first, order::CLOSE);
            self.await_gone(Kind::Server)?;
        }
        for number in self.crew.clients + self.crew.servers.. {
            if number == self.crew.clients + self.crew.servers + self.crew.listeners {
                break;
            }
            self.board.order(number, order::CLOSE);
        }
        self.await_gone(Kind::Listener)
    }

    fn await_gone(&mut self, kind: Kind) -> Result<(), Aborted> {
        while self.alive.values().any(|(other, _)| *other == kind) {
            self.nap()?;
            if let Some(death) = self.deaths.first() {
                return Err(Aborted(format!("{death}, while closing")));
            }
        }
        Ok(())
    }

    fn clear_away(&mut self) {
        while !self.alive.is_empty() {
            self.alive.keys().for_each(|pid| process::kill(*pid));
            std::thread::sleep(Duration::from_millis(1));
            while let Some(ended) = process::reap() {
                self.alive.remove(&ended.pid);
            }
        }
    }
}

fn death(kind: Kind, number: usize, ended: &Ended, crew: &Crew) -> String {
    let (what, nth) = match kind {
        Kind::Client => ("client", number),
        Kind::Server => ("server", number - crew.clients),
        Kind::Listener => ("listener", number - crew.clients - crew.servers),
    };
    format!("{what} {nth} (pid {}): {}", ended.pid, how_it_ended(ended))
}

fn options(order: &SweepOrder) -> Options {
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
    std::fs::read_dir("/proc/self/fd")
        .map_or(crate::workloads::connect::RESERVE, |fds| fds.count() as u64)
}
