//! One run of a point, from the keeper's side: prepare what the workers share, fork
//! them, open and close the window, read the CPU clocks at its edges, end what still
//! waits, reap.
//!
//! This file has the course of a run; each of its parts is a file.

mod around;
mod asker;
mod causes;
mod children;
mod cost;
mod counted;
mod drain;
mod fork;
mod keep;
mod reading;
mod slices;
mod sockets;
mod start;
mod stops;
mod watch;

pub(super) use children::Children;
pub(super) use reading::Reading;

use crate::order::{RunData, RunOrder, Wants, WorkloadOrder};
use around::Groups;
use asker::Asker;
use causes::{Looker, Still, is_amiss};
use counted::Peak;
use jostle_harness::accounts::{Books, Queues};
use jostle_harness::during::During;
use jostle_harness::interference::{self, Outside};
use jostle_harness::watch::Watch;
use jostle_harness::{Aborted, Context, LOOK_UP, Result};
use jostle_model::plan::Measure;
use jostle_model::record::{BROKE_OFF, Kept, Look, When};
use jostle_sys::ledger::Ledger;
use jostle_sys::limits::cpu_group::CpuGroup;
use jostle_sys::process::Ended;
use jostle_sys::{clock, futex};
use jostle_targets::{Launcher, ServerFigures, Setup, SetupError, Spec};
use jostle_worker::crew::Crew;
use jostle_worker::grants::Logs;
use jostle_worker::page::{Shared, Stage, Word, phase};
use jostle_worker::witness::Witness;
use jostle_worker::work::Work;
use keep::Keep;
use slices::Slices;
use sockets::Sockets;
use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, Release},
};
use std::time::Duration;
use stops::Stops;

/// Everything of one run that the workers share.
pub(super) struct Run<'a> {
    pub(super) context: &'a Context,
    pub(super) order: &'a RunOrder,
    work: Box<dyn Work + 'a>,
    /// The server's counts before the first worker.
    server: Option<ServerFigures>,
    /// The owners of CPU time on this machine.
    books: Books,
    /// The workers' clocks of waiting, once they are all there.
    queues: RefCell<Queues>,
    pub(super) shared: Shared,
    witness: Witness,
    logs: Logs,
    /// A group for each generator whose CPU time is limited.
    groups: Vec<CpuGroup>,
    /// For whoever watches.
    watch: Watch,
    /// Short looks within the window.
    slices: Slices,
    sockets: Sockets,
    stops: Stops,
    /// Whether interrupts are read at the window's edges.
    counts_interrupts: bool,
    still: Still,
    /// The start of its time.
    began_ns: u64,
    /// The looks before the workers were let go.
    before: RefCell<Vec<Look>>,
    /// Asks the server who holds the locks.
    asker: Asker,
    /// Once the workers are all there.
    server_groups: RefCell<Groups>,
}

/// The keeper's observations, for the collection.
pub(super) struct Seen {
    pub ramp_ns: u64,
    pub drain_ns: u64,
    pub opened: Reading,
    pub closed: Reading,
    /// The window by the keeper's flag, for workers that do not stamp.
    pub flagged: (u64, u64),
    pub children: Children,
    /// The server's counts meanwhile.
    pub server: ServerFigures,
    /// Figures of the moment when all locks were held at once (`hold`).
    pub peak: Option<Peak>,
    /// Figures of the time for which they were kept (`hold --for`).
    pub kept: Option<Kept>,
    /// The program that ran along, and how it ended.
    pub during: Option<String>,
    /// The share of the workers' threads whose run queues were read.
    pub coverage: f64,
}

/// The outcome of driving a run.
struct Driven {
    ramp_ns: u64,
    opened: Reading,
    closed: Reading,
    flagged: (u64, u64),
    peak: Option<Peak>,
    keep: Option<Keep>,
    during: Option<String>,
}

impl<'a> Run<'a> {
    /// Makes what the workers share.
    pub(super) fn prepare(
        context: &'a Context,
        ledger: &Ledger,
        launcher: &dyn Launcher,
        order: &'a RunOrder,
        spec: &Spec,
    ) -> Result<Run<'a>> {
        let began_ns = context.clock.now();
        let no_memory = |e: std::io::Error| {
            Aborted(format!(
                "no memory for {} workers: {e}; fewer workers (-w), or raise the memory limit",
                order.workers
            ))
        };
        let shared = Shared::new(order.workers).map_err(no_memory)?;
        let wants = order.workload.wants();
        let setup = Setup {
            argument: spec.argument.as_deref(),
            ledger,
            workers: order.workers,
            keys: order.keys,
            shared: wants.shared,
            timed: wants.timed,
            carrier: order.carrier,
            range: wants.range,
            open_each: wants.open_each,
            slots: order.slots,
            members: order.members,
            wait_replicas: order.wait_replicas,
            holds_many: wants.holds_many,
            kept: wants.kept,
            stays: false,
            lease: wants.lease.map(|lease| Duration::from_nanos(lease.0)),
            credentials: order.credentials.as_deref().map(Path::new),
            common_name: order.share.map(|share| share.names),
            seed: order.seed,
            launcher,
        };
        let work = jostle_worker::prepare(spec.entry, &setup, order)
            .map_err(|error| failed(order, error))?;
        keep::check(order, &*work)?;
        let witness = witness(order, work.excludes()).map_err(no_memory)?;
        let logs = Logs::new(order, work.excludes()).map_err(no_memory)?;
        let asks = order.together.is_none_or(|together| together.asks_server);
        let server = asks.then(|| asked(&*work, order)).transpose()?.flatten();
        let looker = Looker {
            clock: context.clock,
            began_ns,
        };
        let before = match asks {
            true => vec![looker.server(&*work, When::Before)],
            false => Vec::new(),
        };
        // Another host's workers would be strangers.
        let asker = match (&order.workload, order.share) {
            (WorkloadOrder::Contend(contend), None) => {
                Asker::start(context, looker, &*work, contend.shared >= 1.0)
            }
            _ => Asker::none(looker),
        };
        let own = server.and_then(|figures| figures.pid).into_iter().collect();
        let processes: Vec<u32> = match launcher.launched() {
            // A cluster; a single server is the one that it names.
            several if several.len() > 1 => several,
            _ => own,
        };
        Ok(Run {
            context,
            order,
            work,
            server,
            books: Books::open(order, &processes),
            queues: RefCell::default(),
            shared,
            witness,
            logs,
            groups: groups(order, ledger)?,
            watch: Watch::new(order.watched),
            slices: Slices::default(),
            sockets: Sockets::default(),
            stops: Stops::default(),
            counts_interrupts: is_cheap(order),
            still: Still::default(),
            began_ns,
            before: RefCell::new(before),
            asker,
            server_groups: RefCell::default(),
        })
    }

    pub(super) fn perform(&self) -> Result<RunData> {
        let mut children = Children::default();
        let result = match self.order.is_counted() {
            true => self.drive_counted(&mut children),
            false => self.drive(&mut children),
        };
        let result = result.and_then(|driven| {
            let drained = self.drain_together(&mut children)?;
            Ok((driven, drained))
        });
        if result.is_err() {
            self.clear_away(&mut children);
            // Why the run came to nothing is what the user needs to hear.
            let _ = self.work.clear();
        }
        self.context.note_ended(&mut children.others);
        let (driven, drained) = result?;
        let stood = self.still.has_looked();
        let looks = self.look_afterwards(&children);
        let (server, broken) = self.end_on_server(&children);
        let seen = Seen {
            ramp_ns: driven.ramp_ns,
            // Workers that all died before the window's end left it early.
            drain_ns: drained.saturating_sub(self.closes(driven.flagged.1)),
            opened: driven.opened,
            closed: driven.closed,
            flagged: driven.flagged,
            children,
            server,
            peak: driven.peak,
            kept: driven.keep.map(|keep| self.kept(&keep)),
            during: driven.during,
            coverage: self.queues.borrow().coverage(),
        };
        let mut data = super::collect::collect(
            self.order,
            &*self.work,
            &self.shared,
            &self.witness,
            &self.books,
            seen,
        );
        if let Some(accounts) = data.around.accounts.as_mut() {
            accounts.readings = self.slices.taken();
        }
        data.around.machine.tcp_queues = self.sockets.taken();
        let stops = self.stops.taken();
        data.around.server_stood = stops.server;
        // Workers may have been put into another group within the window.
        let throttled = &mut data.around.machine.throttled_periods;
        *throttled = (*throttled).max(stops.throttled_periods);
        data.around.machine.repinned = stops.repinned;
        data.grants = self.logs.gather(&self.shared);
        broke_off(&mut data, broken);
        if is_amiss(&data) || stood {
            data.around.looks = looks;
        }
        Ok(data)
    }

    /// Clears away on the server what workers left, and asks it for what it counted. Whatever
    /// fails there takes nothing from what was measured: it is returned in words.
    fn end_on_server(&self, children: &Children) -> (ServerFigures, Vec<String>) {
        let cleared = match self.ended_badly(children) {
            true => self.work.clear(),
            false => Ok(()),
        };
        let counted = self.server_counted();
        let (figures, uncounted) = match counted {
            Ok(figures) => (figures, None),
            Err(error) => (ServerFigures::default(), Some(error)),
        };
        let failed = [cleared.err(), self.work.finish().err(), uncounted];
        let failed = failed.into_iter().flatten().map(|error| error.to_string());
        (figures, failed.collect())
    }

    /// Looks at the outside before the run, and after it.
    pub(super) fn look_outside(&self, outside: &mut Outside) {
        outside.look(self.context, &self.order.cpus, self.books.cpus());
    }

    /// Whether a worker may have left locks on a server.
    fn ended_badly(&self, children: &Children) -> bool {
        let badly = |ended: &Ended| ended.code != Some(0);
        let failed = |worker| self.shared.page(worker).get(Word::Stage) == Stage::Failed as u64;
        !children.killed.is_empty()
            || children.ended.iter().any(|(ended, _)| badly(ended))
            || (0..self.order.workers).any(failed)
    }

    /// The server's counts since those that were asked before the first worker.
    fn server_counted(&self) -> Result<ServerFigures, SetupError> {
        let counts = |figures: ServerFigures| [figures.grants, figures.binds, figures.unbinds];
        let Some(before) = self.server.map(counts) else {
            return Ok(ServerFigures::default());
        };
        if before == [None; 3] {
            return Ok(ServerFigures::default());
        }
        let after = self.work.counts()?.map_or([None; 3], counts);
        let since = |at: usize| Some(after[at]?.saturating_sub(before[at]?));
        Ok(ServerFigures {
            grants: since(0),
            binds: since(1),
            unbinds: since(2),
            ..ServerFigures::default()
        })
    }

    /// Up to the end of the window.
    fn drive(&self, children: &mut Children) -> Result<Driven> {
        let start = self.now();
        self.fork_workers(children)?;
        self.await_ready(children)?;
        let ramp_ns = self.now() - start;
        let during = self.start_during()?;
        self.meet();
        let opens = self.start(children, |_| ())?;
        self.sleep_until(opens, children, None)?;
        self.shared.phase().store(phase::WITHIN, Relaxed);
        let flag_opened = self.now();
        self.watch.opens(flag_opened);
        let opened = self.read(children);
        self.slices.open(self, children);
        self.stops.open(self, children);
        let closes = match self.order.measure {
            Measure::Full => self.closes(0),
            Measure::Counts => flag_opened + self.order.window.0,
        };
        self.sleep_until(closes, children, Some(opens))?;
        self.shared.phase().store(phase::AFTER, Relaxed);
        let flag_closed = self.now();
        let closed = self.read(children);
        self.stops.close(children);
        self.books.look_around(closed.cpu_ns.keys());
        self.still.end(self, children);
        self.turn(self.shared.dismissed());
        Ok(Driven {
            ramp_ns,
            opened,
            closed,
            flagged: (flag_opened, flag_closed),
            peak: None,
            keep: None,
            during: during.map(During::end),
        })
    }

    /// Opens the clocks of the workers' threads, which are all there, and looks for
    /// the server behind their connections.
    fn meet(&self) {
        let threads: Vec<(u32, u32)> = self
            .order
            .threads()
            .into_iter()
            .map(|worker| self.shared.page(worker))
            .map(|page| (page.get(Word::Pid) as u32, page.get(Word::Tid) as u32))
            .collect();
        *self.queues.borrow_mut() = Queues::open(&threads, self.order.window.0);
        self.books.server.look();
        *self.server_groups.borrow_mut() = Groups::find(&self.books.server);
        let groups = self.look_at_groups(When::Before);
        self.before.borrow_mut().extend(groups);
    }

    /// On the workers, or on the one process of theirs, and on the server.
    fn start_during(&self) -> Result<Option<During>> {
        let Some(command) = &self.order.during else {
            return Ok(None);
        };
        let mut pids: Vec<u32> = (0..self.order.workers)
            .map(|worker| self.shared.page(worker).get(Word::Pid) as u32)
            .chain(self.server.and_then(|figures| figures.pid))
            .collect();
        pids.dedup();
        let during = During::start(self.context, command, &pids).map_err(Aborted)?;
        Ok(Some(during))
    }

    fn turn(&self, flag: &AtomicU32) {
        flag.store(1, Release);
        futex::wake(flag, futex::ALL);
    }

    pub(super) fn now(&self) -> u64 {
        self.context.clock.now()
    }

    fn closes(&self, flagged: u64) -> u64 {
        match self.order.measure {
            Measure::Full => self.shared.closes().load(Relaxed),
            Measure::Counts => flagged,
        }
    }

    fn crew(&self) -> Crew<'_> {
        Crew {
            order: self.order,
            clock: self.context.clock,
            shared: &self.shared,
            witness: &self.witness,
            logs: &self.logs,
            keeper: rustix::process::getpid(),
        }
    }

    fn heed_parent(&self, patience: Duration) -> Result<()> {
        match self.context.stopped(patience) {
            true => Err(Aborted("interrupted".into())),
            false => Ok(()),
        }
    }

    fn futex_nap(&self, word: &AtomicU32, seen: u32) {
        let until = clock::monotonic() + LOOK_UP.as_nanos() as u64;
        let _ = futex::wait(word, seen, Some(until));
    }

    /// Sleeps, and listens to the parent. Ends early when no worker is left. `opened`:
    /// when the window opened, if this is the window.
    fn sleep_until(&self, stamp: u64, children: &mut Children, opened: Option<u64>) -> Result<()> {
        loop {
            if let Some(opened) = opened {
                self.report(children, opened, Some(stamp));
            }
            let now = self.now();
            if now >= stamp {
                return Ok(());
            }
            if opened.is_some() {
                self.slices.look(self);
                self.still.look(self, children);
            }
            let patience = Duration::from_nanos(stamp - now).min(self.slices.patience(now));
            let patience = patience.min(self.stops.patience(now));
            self.heed_parent(patience.min(Duration::from_millis(200)))?;
            children.reap();
            if children.alive.is_empty() || self.all_have_failed(children) {
                return Ok(());
            }
        }
    }

    /// Whether no worker works any more, for example because the server has gone: nothing
    /// is left to be measured. The check stops at the first worker that works.
    fn all_have_failed(&self, children: &Children) -> bool {
        let failed = |worker| self.shared.page(worker).get(Word::Stage) == Stage::Failed as u64;
        let ended = |worker| children.ended.iter().any(|(_, of)| of.contains(&worker));
        (0..self.order.workers).all(|worker| failed(worker) || ended(worker))
    }
}

fn asked(work: &dyn Work, order: &RunOrder) -> Result<Option<ServerFigures>> {
    work.counts().map_err(|error| failed(order, error))
}

/// Adds what failed on the server when the workers had ended. Where none of their calls had
/// failed, this is what makes the run INVALID.
fn broke_off(data: &mut RunData, failed: Vec<String>) {
    data.broke_off = failed.first().cloned();
    if !failed.is_empty() && data.around.errors.is_empty() {
        data.around.errors.insert(BROKE_OFF.to_owned(), 1);
    }
    for text in failed {
        if !data.around.messages.contains(&text) {
            data.around.messages.push(text);
        }
    }
}

/// A target that could not do something, in words.
fn failed(order: &RunOrder, error: SetupError) -> Aborted {
    Aborted(format!("{}: {error}", order.target))
}

fn witness(order: &RunOrder, excludes: bool) -> std::io::Result<Witness> {
    // Holders of different locks do not exclude each other: there is nothing to witness.
    let keys = match order.workload {
        WorkloadOrder::Hold(_) => 1,
        _ => order.keys,
    };
    let Wants { range, shared, .. } = order.workload.wants();
    Witness::new(keys, order.workers, range, excludes, shared)
}

/// Whether two readings of all interrupts take under 1 % of the window.
fn is_cheap(order: &RunOrder) -> bool {
    let cost_ns = interference::cost_ns();
    cost_ns.is_some_and(|ns| order.is_counted() || 200 * ns < order.window.0)
}

/// One for each generator, where their CPU time is limited.
fn groups(order: &RunOrder, ledger: &Ledger) -> Result<Vec<CpuGroup>> {
    let WorkloadOrder::Spread(spread) = &order.workload else {
        return Ok(Vec::new());
    };
    let Some(cpus) = spread.generator_cpu else {
        return Ok(Vec::new());
    };
    (0..spread.generators)
        .map(|_| CpuGroup::create(ledger, cpus))
        .collect::<Result<_, _>>()
        .map_err(|error| Aborted(format!("--generator-cpu: {error}")))
}
