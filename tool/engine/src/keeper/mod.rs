//! The keeper: a process forked before any thread, runtime or library that
//! minds forking. It spawns every worker and server, and on its end, or its
//! parent's, kills and removes everything; should both be killed, the cleaner does.
//!
//! This file is the parent's side: a socket, and what the parent cleans up
//! should the keeper itself be killed. `serve` is the keeper's life, `run`
//! one run of a point.

mod cleaner;
mod collect;
mod died;
mod latencies;
mod programs;
mod recent;
mod run;
mod serve;
mod server_log;
mod servers;
mod spread;
mod together;

pub use jostle_harness::accounts::{
    check as check_server, processes as server_processes, unseen as unseen_server,
};
pub use servers::{NOT_LAUNCHED, PASSWORD as SERVE_PASSWORD, VERB as SERVE_VERB};

use crate::order::{
    Closed, CostOrder, Reached, RecoverData, RecoverOrder, Reply, Request, RunData, RunOrder,
    Running, SweepOrder, VerifyData, VerifyOrder,
};
use cleaner::Cleaner;
use jostle_harness::{readable, receive, send};
use jostle_model::Nanos;
use jostle_model::record::Latencies;
use jostle_sys::clock::Clock;
use jostle_sys::ledger;
use jostle_sys::process::{self, Forker};
use jostle_sys::waited;
use recent::Recent;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The run could not be made; the text says what to do.
    #[error("{0}")]
    Failed(String),
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
    /// The keeper has gone.
    #[error(
        "the keeper process (pid {pid}) ended unexpectedly ({how}); its workers are gone, and what they left was removed"
    )]
    Gone {
        /// The child's number.
        pid: u32,
        /// How, as far as is known.
        how: String,
    },
    /// It could not be started.
    #[error("cannot start the keeper process: {0}; check the limit on processes (`jostle doctor`)")]
    Start(#[source] io::Error),
}

/// The outcome of a request to a keeper.
pub type Result<T, E = KeeperError> = std::result::Result<T, E>;

/// The parent's end of the keeper.
#[derive(Debug)]
pub struct Keeper {
    stream: UnixStream,
    pid: u32,
    gone: bool,
    _cleaner: Cleaner,
    costs: Recent<CostOrder, Vec<[f64; 4]>>,
    latencies: Recent<Nanos, Latencies>,
}

impl Keeper {
    /// Forks the keeper. Call it before anything that starts threads.
    ///
    /// # Errors
    /// No processes, no sockets, or no place for the ledger.
    pub fn start(clock: Clock) -> Result<Keeper> {
        let forker = Forker::new().map_err(KeeperError::Start)?;
        // Should the keeper be killed, what workers have started comes to us.
        process::adopt_orphans().map_err(KeeperError::Start)?;
        let cleaner = Cleaner::start(&forker).map_err(KeeperError::Start)?;
        let (ours, theirs) = UnixStream::pair().map_err(KeeperError::Start)?;
        let mut ours = Some(ours);
        let pid = forker
            .fork(|| {
                // Were the keeper to hold its parent's end, it would never see
                // the parent go.
                drop(ours.take());
                serve::serve(theirs, clock)
            })
            .map_err(KeeperError::Start)?;
        let Some(stream) = ours else {
            return Err(KeeperError::Failed("no socket to the keeper".into()));
        };
        let mut keeper = Keeper {
            stream,
            pid: pid.as_raw_nonzero().get() as u32,
            gone: false,
            _cleaner: cleaner,
            costs: Recent::new(),
            latencies: Recent::new(),
        };
        match keeper.reply(&mut || false)? {
            Reply::Ready => Ok(keeper),
            other => Err(unexpected(other)),
        }
    }

    /// The keeper's process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Makes one run. `ended` is asked several times a second whether the user
    /// wants to stop; `running` is told how far it is, where the order is watched.
    ///
    /// # Errors
    /// The error that stopped the run.
    pub fn run(
        &mut self,
        order: &RunOrder,
        ended: &mut dyn FnMut() -> bool,
        running: &mut dyn FnMut(Running),
    ) -> Result<RunData> {
        let mut reply = self.request(&Request::Run(Box::new(order.clone())), ended)?;
        loop {
            match reply {
                Reply::Running(look) => running(*look),
                Reply::Ran(data) => return Ok(*data),
                other => return Err(unexpected(other)),
            }
            reply = self.reply(ended)?;
        }
    }

    /// The tool's own cost on a target as [`Keeper::cost`] has it: measured, unless that
    /// was done a moment ago.
    ///
    /// # Errors
    /// The error that stopped the measurement.
    pub(crate) fn recent_cost(
        &mut self,
        order: &CostOrder,
        ended: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<[f64; 4]>> {
        if let Some(blocks) = self.costs.answer(order, Instant::now()) {
            return Ok(blocks);
        }
        let blocks = self.cost(order, ended)?;
        self.costs
            .keep(order.clone(), blocks.clone(), Instant::now());
        Ok(blocks)
    }

    /// Measures the tool's own cost on a target.
    ///
    /// # Errors
    /// The error that stopped the measurement.
    pub fn cost(
        &mut self,
        order: &CostOrder,
        ended: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<[f64; 4]>> {
        match self.request(&Request::Cost(Box::new(order.clone())), ended)? {
            Reply::Cost(blocks) => Ok(blocks),
            other => Err(unexpected(other)),
        }
    }

    /// The times of this machine's simplest acts, with this timer slack: measured, unless that was
    /// done a moment ago. None where neighbours leave no time for it.
    ///
    /// # Errors
    /// The error that stopped the measurement.
    pub fn latencies(
        &mut self,
        timer_slack: Nanos,
        ended: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Latencies>> {
        if let Some(latencies) = self.latencies.answer(&timer_slack, Instant::now()) {
            return Ok(Some(latencies));
        }
        match self.request(&Request::Latencies { timer_slack }, ended)? {
            Reply::Latencies(latencies) => {
                if let Some(found) = latencies {
                    self.latencies.keep(timer_slack, found, Instant::now());
                }
                Ok(latencies)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Makes one sweep of connections. `reached` gets each listed number as it is reached;
    /// `running` gets progress reports, where the order is watched.
    ///
    /// # Errors
    /// The error that stopped the sweep; listed numbers that were reached have been reported.
    pub fn sweep(
        &mut self,
        order: &SweepOrder,
        ended: &mut dyn FnMut() -> bool,
        reached: &mut dyn FnMut(Reached),
        running: &mut dyn FnMut(Running),
    ) -> Result<Closed> {
        let mut reply = self.request(&Request::Sweep(Box::new(order.clone())), ended)?;
        loop {
            match reply {
                Reply::Running(look) => running(*look),
                Reply::Reached(point) => reached(*point),
                Reply::Closed(closed) => return Ok(*closed),
                other => return Err(unexpected(other)),
            }
            reply = self.reply(ended)?;
        }
    }

    /// Strikes one fault.
    ///
    /// # Errors
    /// The error that stopped the run.
    pub fn recover(
        &mut self,
        order: &RecoverOrder,
        ended: &mut dyn FnMut() -> bool,
    ) -> Result<RecoverData> {
        match self.request(&Request::Recover(Box::new(order.clone())), ended)? {
            Reply::Recovered(data) => Ok(*data),
            other => Err(unexpected(other)),
        }
    }

    /// Lets faults strike for a time. If `ended` is true before, the findings so far are the
    /// result.
    ///
    /// # Errors
    /// The error that stopped the run.
    pub fn verify(
        &mut self,
        order: &VerifyOrder,
        ended: &mut dyn FnMut() -> bool,
    ) -> Result<VerifyData> {
        self.ask(&Request::Verify(Box::new(order.clone())))?;
        match self.any_reply(ended)? {
            (Reply::Verified(data), _) => Ok(*data),
            (_, true) => Err(KeeperError::Interrupted),
            (other, false) => Err(unexpected(other)),
        }
    }

    /// Sends a request and does not wait for the reply.
    ///
    /// # Errors
    /// The keeper has gone.
    pub fn ask(&mut self, request: &Request) -> Result<()> {
        match self.gone {
            false => send(&mut self.stream, request).map_err(|_| self.lost()),
            true => Err(self.lost()),
        }
    }

    /// The keeper's reply, if one comes within `patience`.
    ///
    /// # Errors
    /// The keeper has gone, or stopped in the middle of an answer.
    pub fn look(&mut self, patience: Duration) -> Result<Option<Reply>> {
        /// How long the rest of an answer may take once it has begun.
        const REST: Duration = Duration::from_secs(10);
        if self.gone {
            return Err(self.lost());
        }
        match readable(&self.stream, patience) {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(_) => return Err(self.lost()),
        }
        let answer = self
            .stream
            .set_read_timeout(Some(REST))
            .and_then(|()| receive(&mut self.stream));
        let _ = self.stream.set_read_timeout(None);
        answer.map(Some).map_err(|_| self.lost())
    }

    fn request(&mut self, request: &Request, ended: &mut dyn FnMut() -> bool) -> Result<Reply> {
        self.ask(request)?;
        self.reply(ended)
    }

    fn reply(&mut self, ended: &mut dyn FnMut() -> bool) -> Result<Reply> {
        match self.any_reply(ended)? {
            (_, true) => Err(KeeperError::Interrupted),
            (reply, false) => Ok(reply),
        }
    }

    /// The reply, and whether the run was aborted before it.
    fn any_reply(&mut self, ended: &mut dyn FnMut() -> bool) -> Result<(Reply, bool)> {
        let mut aborted = false;
        loop {
            if !aborted && ended() {
                aborted = true;
                self.ask(&Request::Abort)?;
            }
            match readable(&self.stream, Duration::from_millis(100)) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) => return Err(self.lost()),
            }
            match receive(&mut self.stream) {
                // It crossed the abort, whose own answer is yet to come.
                Ok(Reply::Running(_)) if aborted => {}
                Ok(reply) => return Ok((reply, aborted)),
                Err(_) => return Err(self.lost()),
            }
        }
    }

    /// The keeper is gone and its workers have died with it; the parent cleans up the files.
    fn lost(&mut self) -> KeeperError {
        if std::mem::replace(&mut self.gone, true) {
            let (pid, how) = (self.pid, "earlier".to_owned());
            return KeeperError::Gone { pid, how };
        }
        let ended = self.wait_for_end(Duration::from_secs(2));
        if ended.is_none() {
            // A stopped keeper would outlive us.
            process::kill(self.pid);
        }
        let how = match ended.or_else(|| self.wait_for_end(Duration::from_secs(2))) {
            Some(process::Ended {
                signal: Some(signal),
                ..
            }) => process::signal_name(signal),
            Some(process::Ended {
                code: Some(code), ..
            }) => format!("exit code {code}"),
            _ => "still ending".to_owned(),
        };
        let _ = process::end_children(Duration::from_secs(2));
        let _ = ledger::sweep_dead();
        KeeperError::Gone { pid: self.pid, how }
    }

    fn wait_for_end(&self, patience: Duration) -> Option<process::Ended> {
        let ended = || process::reap().filter(|ended| ended.pid == self.pid);
        waited::within(patience, Duration::from_millis(2), ended)
    }
}

impl Keeper {
    /// Whether it stands still (SIGSTOP, or a debugger).
    pub fn is_halted(&self) -> bool {
        process::is_halted(self.pid)
    }

    /// Whether it has ended, so that nothing more can be measured with it.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Lets the keeper go and waits until it has cleaned up.
    pub fn end(&mut self) {
        if std::mem::replace(&mut self.gone, true) {
            return;
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let patience = match self.is_halted() {
            // A stopped keeper does not notice the shutdown.
            true => Duration::ZERO,
            false => Duration::from_secs(10),
        };
        if self.wait_for_end(patience).is_none() {
            process::kill(self.pid);
            let _ = self.wait_for_end(Duration::from_secs(2));
            let _ = ledger::sweep_dead();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

fn unexpected(reply: Reply) -> KeeperError {
    match reply {
        Reply::Failed(text) => KeeperError::Failed(text),
        _ => KeeperError::Failed("the keeper sent an unexpected reply".into()),
    }
}
