//! The keeper's own life: one request after the other, until its parent goes.

use super::anchor;
use super::connect::Sweep;
use super::latencies::latencies;
use super::recover::Recovery;
use super::run::{Aborted, Run};
use super::servers::Servers;
use super::{readable, receive, send};
use crate::order::{RecoverOrder, Reply, Request, RunOrder, SweepOrder};
use jostle_sys::clock::Clock;
use jostle_sys::cpu;
use jostle_sys::ledger::{self, Ledger};
use jostle_sys::limits::cgroup;
use jostle_sys::process::{self, Ended, Forker};
use jostle_targets::Spec;
use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long killed processes may take to be gone.
const ORPHANS_PATIENCE: Duration = Duration::from_secs(5);

/// What the keeper has at hand for every run.
#[derive(Debug)]
pub(super) struct Context {
    /// To the parent.
    pub stream: UnixStream,
    /// For stamps.
    pub clock: Clock,
    /// The right to fork.
    pub forker: Forker,
    /// Where the CPU quotas that bind us, if any, are accounted.
    quotas: Vec<PathBuf>,
    /// Children of this run that have ended and carried no workers.
    ended: RefCell<Vec<Ended>>,
}

/// Serves until the parent goes. Returns the exit code.
pub(super) fn serve(mut stream: UnixStream, clock: Clock) -> i32 {
    process::set_name("jostle-keeper");
    // Without the terminal's signals: the parent receives them, and sends us a request.
    let _ = process::leave_group();
    let context = match Context::set_up(&stream, clock) {
        Ok(context) => context,
        Err(text) => {
            let _ = send(&mut stream, &Reply::Failed(text));
            return 1;
        }
    };
    if send(&mut stream, &Reply::Ready).is_ok() {
        context.work();
    }
    0
}

impl Context {
    fn set_up(stream: &UnixStream, clock: Clock) -> Result<Context, String> {
        // Where we may not, the ledger knows what to remove.
        let _ = process::private_ipc();
        process::adopt_orphans().map_err(|e| format!("cannot adopt orphans: {e}"))?;
        let forker = Forker::new().map_err(|e| e.to_string())?;
        ledger::mark_started(&forker).map_err(|e| format!("cannot mark what is started: {e}"))?;
        Ok(Context {
            stream: stream
                .try_clone()
                .map_err(|e| format!("cannot share a socket: {e}"))?,
            clock,
            forker,
            quotas: cgroup::Cgroup::read(Path::new("/")).cpu_stats,
            ended: RefCell::default(),
        })
    }

    fn work(&self) {
        let Ok(mut stream) = self.stream.try_clone() else {
            return;
        };
        loop {
            let reply = match receive::<Request>(&mut stream) {
                Ok(Request::Run(order)) => self.run(&order, None),
                Ok(Request::Cost(cost)) => self.run(&cost.run, Some(cost.blocks)),
                Ok(Request::Sweep(sweep)) => self.sweep(&sweep),
                Ok(Request::Recover(order)) => self.recover(&order),
                Ok(Request::Latencies { timer_slack }) => {
                    Reply::Latencies(latencies(self, timer_slack))
                }
                // It crossed the answer of the run that it was meant for.
                Ok(Request::Abort | Request::Go { .. } | Request::Conclude) => continue,
                // Ending without a reply would look like a crash.
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    Reply::Failed(format!("the keeper cannot read its order: {error}"))
                }
                Err(_) => return,
            };
            if send(&mut stream, &reply).is_err() {
                return;
            }
        }
    }

    /// A run, or so many blocks of the tool's own cost.
    fn run(&self, order: &RunOrder, cost_blocks: Option<usize>) -> Reply {
        let order = &order.clone().here(&cpu::allowed());
        // The system may have given their numbers to others.
        self.ended.take();
        let (spec, ledger) = match opened(&order.target) {
            Ok(opened) => opened,
            Err(failed) => return failed,
        };
        let reply = self.run_on(&ledger, order, &spec, cost_blocks);
        swept(&ledger, reply)
    }

    fn run_on(
        &self,
        ledger: &Ledger,
        order: &RunOrder,
        spec: &Spec,
        cost_blocks: Option<usize>,
    ) -> Reply {
        // Declared before the run, so that the servers outlive it.
        let servers = Servers::new(self, ledger, &order.server_cpus);
        let run = Run::prepare(self, ledger, &servers, order, spec);
        let done = run.and_then(|run| match cost_blocks {
            None => self.anchored(&run),
            Some(blocks) => run.cost(blocks).map(Reply::Cost),
        });
        servers.outlived(done)
    }

    /// A run between its two anchors.
    fn anchored(&self, run: &Run<'_>) -> Result<Reply, Aborted> {
        let together = run.order.together;
        if together.is_some_and(|together| !together.takes_anchor) {
            return run.perform().map(|data| Reply::Ran(Box::new(data)));
        }
        let before = anchor::passes(self, &run.order.cpus);
        let mut data = run.perform()?;
        let after = anchor::passes(self, &run.order.cpus);
        data.anchor = anchor::anchor(&before, &after);
        Ok(Reply::Ran(Box::new(data)))
    }

    /// One fault.
    fn recover(&self, order: &RecoverOrder) -> Reply {
        let (spec, ledger) = match opened(&order.target) {
            Ok(opened) => opened,
            Err(failed) => return failed,
        };
        let reply = self.recover_on(&ledger, order, &spec);
        swept(&ledger, reply)
    }

    fn recover_on(&self, ledger: &Ledger, order: &RecoverOrder, spec: &Spec) -> Reply {
        // As above.
        let servers = Servers::new(self, ledger, &[]).lasting();
        let run = Recovery::prepare(self, ledger, &servers, order, spec);
        match run.and_then(Recovery::perform) {
            Ok(data) => Reply::Recovered(Box::new(data)),
            Err(Aborted(text)) => Reply::Failed(text),
        }
    }

    /// One sweep of connections. Its points are sent as they are reached.
    fn sweep(&self, order: &SweepOrder) -> Reply {
        let order = &order.clone().here(&cpu::allowed());
        let (spec, ledger) = match opened(&order.target) {
            Ok(opened) => opened,
            Err(failed) => return failed,
        };
        let mut tell = |reply: Reply| self.tell(&reply);
        let passes = || match order.together {
            Some(together) if !together.takes_anchor => None,
            _ => Some(anchor::passes(self, &order.cpus)),
        };
        let before = passes();
        let done = Sweep::prepare(self, &ledger, order, &spec).and_then(|sweep| {
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

    /// Keeps how children that carried no workers have ended, for [`Context::how_ended`].
    pub(super) fn note_ended(&self, ended: &mut Vec<Ended>) {
        self.ended.borrow_mut().append(ended);
    }

    /// How this child has ended in the run, if it has.
    pub(super) fn how_ended(&self, pid: u32) -> Option<Ended> {
        let noted = self.ended.borrow().iter().find(|e| e.pid == pid).copied();
        noted.or_else(|| process::reap_one(pid))
    }

    /// Periods so far in which a CPU quota stopped us; None without a quota.
    pub(super) fn throttled(&self) -> Option<u64> {
        (!self.quotas.is_empty()).then(|| cgroup::throttled(&self.quotas).throttled_periods)
    }

    /// Tells the parent how far a run is.
    pub(super) fn tell(&self, reply: &Reply) -> Result<(), Aborted> {
        let gone = |error: std::io::Error| Aborted(error.to_string());
        send(&mut self.stream.try_clone().map_err(gone)?, reply).map_err(gone)
    }

    /// The parent's next request, if one comes within `patience`.
    pub(super) fn hear(&self, patience: Duration) -> Result<Option<Request>, Aborted> {
        let gone = |error: std::io::Error| Aborted(error.to_string());
        match readable(&self.stream, patience).map_err(gone)? {
            true => receive(&mut self.stream.try_clone().map_err(gone)?)
                .map(Some)
                .map_err(gone),
            false => Ok(None),
        }
    }

    /// Whether the parent has asked to stop, or has gone.
    pub(super) fn stopped(&self, patience: Duration) -> bool {
        // While workers work the parent sends nothing but an abort.
        readable(&self.stream, patience).unwrap_or(true)
    }
}

/// What every order needs first: its target, and a ledger for what the run makes.
fn opened(target: &str) -> Result<(Spec, Ledger), Reply> {
    let spec = Spec::parse(target).map_err(Reply::Failed)?;
    let ledger = Ledger::create().map_err(|error| {
        Reply::Failed(format!(
            "cannot make a directory for this run's files: {error}; make /dev/shm or $TMPDIR writable"
        ))
    })?;
    Ok((spec, ledger))
}

/// The reply to a run, once everything that the run made is gone.
fn swept(ledger: &Ledger, reply: Reply) -> Reply {
    // Processes that commands have left behind, or that ran when their worker ended.
    let alone = process::end_children(ORPHANS_PATIENCE);
    match ledger.sweep() {
        Err(left) => not_removed(&left),
        Ok(()) if !alone => {
            Reply::Failed("could not end the processes that the run has started".to_owned())
        }
        Ok(()) => reply,
    }
}

fn not_removed(left: &[String]) -> Reply {
    Reply::Failed(format!(
        "could not remove what the run made: {}",
        left.join("; ")
    ))
}
