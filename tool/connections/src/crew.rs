//! The processes of a sweep of `connect`: forked, made ready, looked after, reaped.

use crate::processes::Processes;
use crate::sweep::{Sweep, options};
use jostle_harness::{Aborted, RAMP_PATIENCE_NS, Result, how_it_ended};
use jostle_model::connect::Only;
use jostle_sys::process::{self, Ended};
use jostle_sys::waited::Waited;
use jostle_sys::{clock, cpu, errno, signal};
use jostle_targets::endpoint::{CALLS, Plug};
use jostle_worker::workloads::connect::board::{Count, Own, order};
use jostle_worker::workloads::connect::client::Client;
use jostle_worker::workloads::connect::listener::Listener;
use jostle_worker::workloads::connect::server::Server;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A process's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Connects.
    Client,
    /// Accepts.
    Server,
    /// Holds other listening sockets.
    Listener,
}

impl Sweep<'_> {
    pub(crate) fn fork_all(&mut self) -> Result<()> {
        let Processes {
            clients,
            servers,
            listeners,
            each,
        } = self.crew;
        for client in 0..clients {
            self.fork(Role::Client, client, each)?;
        }
        for server in clients..clients + servers {
            self.fork(Role::Server, server, each)?;
        }
        for listener in 0..listeners {
            self.fork(Role::Listener, clients + servers + listener, each)?;
        }
        Ok(())
    }

    fn fork(&mut self, kind: Role, number: usize, each: u64) -> Result<()> {
        let keeper = rustix::process::getpid();
        let pid = self.context.forker.fork(|| {
            process::set_name(match kind {
                Role::Client => "jostle-client",
                Role::Server => "jostle-server",
                Role::Listener => "jostle-listen",
            });
            if process::die_with(keeper).is_err() {
                return 1;
            }
            let _ = process::leave_group();
            // If memory runs out all the same, the kernel kills this process rather than
            // another program's.
            let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
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
    fn settle_in(&self, kind: Role, number: usize) -> std::io::Result<()> {
        signal::end_waits_on_signal()?;
        cpu::set_timer_slack(self.order.timer_slack.0)?;
        let cpus = &self.order.cpus;
        let cpu = match kind {
            _ if cpus.is_empty() => None,
            Role::Client | Role::Listener => cpus.first(),
            Role::Server => cpus.get(1..).filter(|rest| !rest.is_empty()).map_or_else(
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
    fn live(&self, kind: Role, number: usize, each: u64) -> i32 {
        let ready = || {
            self.board.count(Count::Ready).fetch_add(1, Relaxed);
            self.board.ring();
        };
        let (board, clock) = (&self.board, self.context.clock);
        match kind {
            Role::Client => {
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
            Role::Server => {
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
            Role::Listener => {
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

    pub(crate) fn await_ready(&mut self) -> Result<()> {
        let all = self.alive.len() as u64;
        let mut waited = Waited::begin();
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
            if waited.so_far().as_nanos() > RAMP_PATIENCE_NS.into() {
                return Err(Aborted(format!(
                    "of {all} processes only {} became ready in time",
                    self.board.get(Count::Ready)
                )));
            }
        }
        Ok(())
    }

    /// One for each acceptor; the others stand by.
    pub(crate) fn start_servers(&mut self) -> Result<()> {
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
        let mut waited = Waited::begin();
        for lane in 0..lanes {
            let server = self.crew.clients + lane;
            while self.board.own(server, Own::Working) == 0 && self.deaths.is_empty() {
                self.nap()?;
                if waited.so_far().as_nanos() > RAMP_PATIENCE_NS.into() {
                    return Err(Aborted("an acceptor did not start in time".into()));
                }
            }
        }
        Ok(())
    }

    /// Sleeps until something happens, and looks after parent and children.
    pub(crate) fn nap(&mut self) -> Result<()> {
        let bell = self.board.get(Count::Bell);
        self.board
            .await_change(Count::Bell, bell, Some(clock::monotonic() + 2_000_000));
        self.look_after()
    }

    pub(crate) fn look_after(&mut self) -> Result<()> {
        self.heed_parent()?;
        self.reap();
        Ok(())
    }

    pub(crate) fn heed_parent(&self) -> Result<()> {
        match self.context.stopped(Duration::ZERO) {
            true => Err(Aborted("interrupted".into())),
            false => Ok(()),
        }
    }

    pub(crate) fn reap(&mut self) {
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

    /// The first process in which a call failed, with the call, the error, and the
    /// connection that it was for.
    pub(crate) fn failure(&self) -> Option<(usize, &'static str, String, u64)> {
        let processes = self.crew.clients + self.crew.servers + self.crew.listeners;
        (0..processes).find_map(|process| {
            let call = self.board.own(process, Own::Call).checked_sub(1)?;
            let name = errno::name(self.board.own(process, Own::Errno) as i32);
            let nth = self.board.own(process, Own::For);
            Some((process, CALLS[call as usize], name, nth))
        })
    }

    pub(crate) fn await_gone(&mut self, kind: Role) -> Result<()> {
        while self.alive.values().any(|(other, _)| *other == kind) {
            self.nap()?;
            if let Some(death) = self.deaths.first() {
                return Err(Aborted(format!("{death}, while closing")));
            }
        }
        Ok(())
    }

    pub(crate) fn clear_away(&mut self) {
        while !self.alive.is_empty() {
            self.alive.keys().for_each(|pid| process::kill(*pid));
            std::thread::sleep(Duration::from_millis(1));
            while let Some(ended) = process::reap() {
                self.alive.remove(&ended.pid);
            }
        }
    }
}

fn death(kind: Role, number: usize, ended: &Ended, crew: &Processes) -> String {
    let (what, nth) = match kind {
        Role::Client => ("client", number),
        Role::Server => ("server", number - crew.clients),
        Role::Listener => ("listener", number - crew.clients - crew.servers),
    };
    format!("{what} {nth} (pid {}): {}", ended.pid, how_it_ended(ended))
}
