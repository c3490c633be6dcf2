//! One run of a point, from the keeper's side: fork the workers, open and close
//! the window, read the CPU clocks at its edges, end what still waits, reap.

use super::during::During;
use super::serve::Desk;
use crate::grants::Logs;
use crate::order::{CostOrder, RunOrder, Yield};
use crate::page::{Shared, Stage, Word, phase};
use crate::witness::Witness;
use crate::work::Work;
use crate::worker::Crew;
use jostle_model::plan::{Carrier, Measure, Workload};
use jostle_sys::ledger::Ledger;
use jostle_sys::limits::cgroup::Throttled;
use jostle_sys::limits::cpu_group::CpuGroup;
use jostle_sys::limits::other_group::OtherGroup;
use jostle_sys::process::{self, Ended};
use jostle_sys::shared::{LINE, Region};
use jostle_sys::stat::{self, CpuClock, MachineTicks, Scheduled};
use jostle_sys::{clock, futex, signal};
use jostle_targets::{Launcher, ServerFigures, Setup, SetupError, Spec, Target};
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use std::time::Duration;

/// A run that came to nothing, in words for the user.
pub struct Aborted(pub String);

/// How often waits look up: for the parent, for workers that died.
pub(super) const LOOK_UP: Duration = Duration::from_millis(20);

/// How long all workers together may take to become ready.
pub(super) const RAMP_PATIENCE_NS: u64 = 120_000_000_000;

/// How long workers with a number of operations may stand still.
const STILL_PATIENCE_NS: u64 = 10_000_000_000;

/// Between two looks at how far they are.
const LOOK_AT_PROGRESS_NS: u64 = 500_000_000;

/// Between two rounds of signals to workers that still wait.
const NUDGE: Duration = Duration::from_millis(10);

/// Reading the workers' clocks may take one part in so many of the window.
const READING_PER_WINDOW: u64 = 100;

/// Memory made beforehand, at most; beyond, pages are made on first touch.
const POPULATE_AT_MOST: usize = 8 << 20;

/// Everything of one run that the workers share.
pub struct Run<'a, T> {
    pub(super) desk: &'a Desk,
    pub(super) order: &'a RunOrder,
    target: T,
    /// What the server told before the first worker.
    server: Option<ServerFigures>,
    /// The control group that the server is said to be in, if it is one of this
    /// machine.
    server_group: Option<OtherGroup>,
    pub(super) shared: Shared,
    witness: Witness,
    logs: Logs,
    /// Of each generator whose CPU time is limited.
    groups: Vec<CpuGroup>,
}

/// What is known of the children as they end.
#[derive(Default)]
pub struct Children {
    /// Of processes still there: which workers they carry; the canary none.
    alive: BTreeMap<u32, std::ops::Range<usize>>,
    /// How the others ended.
    pub ended: Vec<(Ended, std::ops::Range<usize>)>,
    /// Workers that we killed when the run was over.
    pub killed: Vec<usize>,
    /// Looks at which a worker was found to have been stopped or continued.
    pub halts: u64,
}

impl Children {
    pub(super) fn reap(&mut self) {
        while let Some(pid) = process::halted() {
            self.halts += u64::from(self.alive.contains_key(&pid));
        }
        while let Some(ended) = process::reap() {
            if let Some(workers) = self.alive.remove(&ended.pid) {
                self.ended.push((ended, workers));
            }
        }
    }

    fn kill_all(&self) {
        self.alive.keys().for_each(|pid| process::kill(*pid));
    }
}

/// One reading of all clocks.
#[derive(Default)]
pub struct Reading {
    /// When, and how long it took.
    pub at_ns: u64,
    pub took_ns: u64,
    /// By process.
    pub cpu_ns: BTreeMap<u32, u64>,
    /// By worker; absent where the kernel does not count, or too slowly.
    pub scheduled: Option<Vec<Scheduled>>,
    /// The machine.
    pub machine: MachineTicks,
    /// The keeper's own, and its parent's.
    pub harness_ns: u64,
    /// The server's.
    pub server_ns: Option<u64>,
    /// Periods in which a CPU quota stopped us.
    pub throttled: Option<u64>,
    /// The same of each generator that has a quota of its own.
    pub groups: Vec<Throttled>,
}

/// What the keeper saw, for the collection.
pub struct Seen {
    pub ramp_ns: u64,
    pub drain_ns: u64,
    pub opened: Reading,
    pub closed: Reading,
    /// The window by the keeper's flag, for workers that do not stamp.
    pub flagged: (u64, u64),
    pub children: Children,
    /// What the server counted meanwhile.
    pub server: ServerFigures,
    /// What all locks being held at once was like (`hold`).
    pub peak: Option<Peak>,
    /// What ran along, and how it ended.
    pub during: Option<String>,
    /// The server's process, where it can be looked at.
    pub server_pid: Option<u32>,
    /// Its control group.
    pub server_group: Option<OtherGroup>,
}

/// Between the phases of `hold`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peak {
    /// Stamp at which the locks could be released.
    pub resumed: u64,
    /// What the server's memory had grown by.
    pub held_bytes: Option<i64>,
}

/// What driving a run came to.
struct Driven {
    ramp_ns: u64,
    opened: Reading,
    closed: Reading,
    flagged: (u64, u64),
    peak: Option<Peak>,
    during: Option<String>,
}

impl<'a, T: Work> Run<'a, T> {
    /// Makes what the workers share.
    pub fn prepare(
        desk: &'a Desk,
        ledger: &Ledger,
        launcher: &dyn Launcher,
        order: &'a RunOrder,
        spec: &'a Spec,
        make: impl FnOnce(&Setup<'_>) -> Result<T, SetupError>,
    ) -> Result<Run<'a, T>, Aborted> {
        let no_memory = |e: std::io::Error| {
            Aborted(format!(
                "no memory for {} workers: {e}; fewer workers (-w), or raise the memory limit",
                order.workers
            ))
        };
        let shared_mode = order.shared > 0.0;
        let shared = Shared::new(order.workers).map_err(no_memory)?;
        if order.workers * crate::page::PAGE_BYTES <= POPULATE_AT_MOST {
            (0..order.workers).for_each(|worker| shared.populate(worker));
        }
        let target = make(&Setup {
            argument: spec.argument.as_deref(),
            ledger,
            workers: order.workers,
            keys: order.keys,
            carrier: order.carrier,
            range: order.range,
            open_each: order.open_each,
            slots: order.slots,
            holds_many: order.workload == Workload::Hold && order.operations > 1,
            common_name: order.share.map(|share| share.names),
            seed: order.seed,
            launcher,
        })
        .map_err(|error| Aborted(format!("{}: {error}", order.target)))?;
        let witness = Witness::new(
            // Who holds different locks meets nobody whom to witness.
            match order.workload {
                Workload::Hold => 1,
                Workload::Contend
                | Workload::Stream
                | Workload::Connect
                | Workload::Rate
                | Workload::Spread => order.keys,
            },
            order.workers,
            order.range,
            target.excludes(),
            shared_mode,
        )
        .map_err(no_memory)?;
        let logs = Logs::new(order, target.excludes()).map_err(no_memory)?;
        let asks = order.together.is_none_or(|together| together.asks_server);
        let server = asks.then(|| asked(&target, order)).transpose()?.flatten();
        let limited = order
            .generator_cpu
            .filter(|_| order.workload == Workload::Spread);
        let groups = limited.map_or(Ok(Vec::new()), |cpus| {
            let each = (0..order.generators).map(|_| CpuGroup::create(ledger, cpus));
            each.collect::<Result<_, _>>()
                .map_err(|error| Aborted(format!("--generator-cpu: {error}")))
        })?;
        Ok(Run {
            desk,
            order,
            target,
            server,
            server_group: server_group(order),
            shared,
            witness,
            logs,
            groups,
        })
    }

    /// Does it.
    pub fn perform(&self) -> Result<Yield, Aborted> {
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
            let _ = self.target.clear();
        }
        let (driven, drained) = result?;
        let Driven {
            ramp_ns,
            opened,
            closed,
            flagged,
            peak,
            during,
        } = driven;
        if self.ended_badly(&children) {
            self.target
                .clear()
                .map_err(|error| Aborted(format!("{}: {error}", self.order.target)))?;
        }
        let seen = Seen {
            ramp_ns,
            // Workers that all died before the window's end left it early.
            drain_ns: drained.saturating_sub(self.closes(flagged.1)),
            opened,
            closed,
            flagged,
            children,
            server: self.server_counted()?,
            peak,
            during,
            server_pid: self.server.and_then(|figures| figures.pid),
            server_group: self.server_group.clone(),
        };
        let mut data =
            super::collect::collect(self.order, &self.target, &self.shared, &self.witness, seen);
        data.grants = self.logs.gather(&self.shared);
        Ok(data)
    }

    /// Whether a worker may have left locks on a server.
    fn ended_badly(&self, children: &Children) -> bool {
        let badly = |ended: &Ended| ended.code != Some(0);
        let failed = |worker| self.shared.page(worker).get(Word::Stage) == Stage::Failed as u64;
        !children.killed.is_empty()
            || children.ended.iter().any(|(ended, _)| badly(ended))
            || (0..self.order.workers).any(failed)
    }

    /// What was counted since the figures that were asked before the first worker.
    fn server_counted(&self) -> Result<ServerFigures, Aborted> {
        let counts = |figures: ServerFigures| [figures.grants, figures.binds, figures.unbinds];
        let Some(before) = self.server.map(counts) else {
            return Ok(ServerFigures::default());
        };
        if before == [None; 3] {
            return Ok(ServerFigures::default());
        }
        let after = asked(&self.target, self.order)?.map_or([None; 3], counts);
        let since = |at: usize| Some(after[at]?.saturating_sub(before[at]?));
        Ok(ServerFigures {
            grants: since(0),
            binds: since(1),
            unbinds: since(2),
            ..ServerFigures::default()
        })
    }

    /// Up to the end of the window.
    fn drive(&self, children: &mut Children) -> Result<Driven, Aborted> {
        let start = self.now();
        self.fork_workers(children)?;
        self.await_ready(children)?;
        let ramp_ns = self.now() - start;
        let during = self.start_during()?;
        let opens = self.start(children, |_| ())?;
        self.sleep_until(opens, children)?;
        self.shared.phase().store(phase::WITHIN, Relaxed);
        let flag_opened = self.now();
        let opened = self.read(children);
        let closes = match self.order.measure {
            Measure::Full => self.closes(0),
            Measure::Counts => flag_opened + self.order.window.0,
        };
        self.sleep_until(closes, children)?;
        self.shared.phase().store(phase::AFTER, Relaxed);
        let flag_closed = self.now();
        let closed = self.read(children);
        self.turn(self.shared.dismissed());
        Ok(Driven {
            ramp_ns,
            opened,
            closed,
            flagged: (flag_opened, flag_closed),
            peak: None,
            during: during.map(During::end),
        })
    }

    /// Up to the end of the last worker. The clocks are read before anybody
    /// starts and after all have ended: what lies between is theirs.
    fn drive_counted(&self, children: &mut Children) -> Result<Driven, Aborted> {
        let start = self.now();
        self.fork_workers(children)?;
        self.await_ready(children)?;
        let ramp_ns = self.now() - start;
        let before = match self.order.workload {
            Workload::Hold => self.server_memory()?,
            _ => None,
        };
        let during = self.start_during()?;
        let mut opened = Reading::default();
        let opens = self.start(children, |children| opened = self.read(children))?;
        let peak = match self.order.workload {
            Workload::Hold => Some(self.peak(before, children)?),
            _ => None,
        };
        self.await_all(self.shared.finished(), children)?;
        let closed = self.read(children);
        let ends = (0..self.order.workers).map(|w| self.shared.page(w).get(Word::Finished));
        // None has ended only if all have failed or died.
        let closes = ends.max().filter(|end| *end > 0).unwrap_or(closed.at_ns);
        self.shared.closes().store(closes, Relaxed);
        self.turn(self.shared.dismissed());
        Ok(Driven {
            ramp_ns,
            opened,
            closed,
            flagged: (opens, closes),
            peak,
            during: during.map(During::end),
        })
    }

    /// On the workers, or on the one process of theirs, and on the server.
    fn start_during(&self) -> Result<Option<During>, Aborted> {
        let Some(command) = &self.order.during else {
            return Ok(None);
        };
        let mut pids: Vec<u32> = (0..self.order.workers)
            .map(|worker| self.shared.page(worker).get(Word::Pid) as u32)
            .chain(self.server.and_then(|figures| figures.pid))
            .collect();
        pids.dedup();
        let during = During::start(self.desk, command, &pids).map_err(Aborted)?;
        Ok(Some(during))
    }

    fn turn(&self, flag: &AtomicU32) {
        flag.store(1, std::sync::atomic::Ordering::Release);
        futex::wake(flag, futex::ALL);
    }

    /// Waits until all locks are held, asks for the server's memory, and lets
    /// the workers release them.
    fn peak(&self, before: Option<u64>, children: &mut Children) -> Result<Peak, Aborted> {
        self.await_all(self.shared.midway(), children)?;
        let after = self.server_memory()?;
        let resumed = self.now();
        self.turn(self.shared.resumed());
        Ok(Peak {
            resumed,
            held_bytes: before
                .zip(after)
                .map(|(before, after)| after as i64 - before as i64),
        })
    }

    fn server_memory(&self) -> Result<Option<u64>, Aborted> {
        if self.server.is_none() {
            return Ok(None);
        }
        Ok(asked(&self.target, self.order)?.and_then(|figures| figures.memory_bytes))
    }

    /// Until all workers are counted who have not died or failed. Gives up where
    /// nothing moves any more, and after the longest that a run may take.
    fn await_all(&self, counter: &AtomicU32, children: &mut Children) -> Result<(), Aborted> {
        let deadline = self.shared.opens().load(Relaxed) + self.order.window.0;
        let (mut moved, mut done) = (self.now(), 0);
        let mut look = self.now();
        loop {
            let seen = counter.load(Acquire);
            if seen as usize + self.lost(children) >= self.order.workers {
                return Ok(());
            }
            self.futex_nap(counter, seen);
            self.heed_parent(Duration::ZERO)?;
            children.reap();
            let now = self.now();
            // Their pages are theirs to write: they are looked at seldom.
            if now < look {
                continue;
            }
            look = now + LOOK_AT_PROGRESS_NS;
            let so_far = self.progress();
            if so_far != done {
                (moved, done) = (now, so_far);
            }
            self.lose_patience(now, moved, deadline, done)?;
        }
    }

    /// Workers that will not be counted any more.
    fn lost(&self, children: &Children) -> usize {
        let dead = children
            .ended
            .iter()
            .flat_map(|(_, workers)| workers.clone());
        dead.filter(|worker| self.shared.page(*worker).get(Word::Finished) == 0)
            .count()
    }

    fn progress(&self) -> u64 {
        let of = |worker| {
            let page = self.shared.page(worker);
            page.get(Word::Total) + page.get(Word::Operations)
        };
        (0..self.order.workers).map(of).sum()
    }

    fn lose_patience(&self, now: u64, moved: u64, deadline: u64, done: u64) -> Result<(), Aborted> {
        let still = now.saturating_sub(moved);
        if still > STILL_PATIENCE_NS + self.order.call_timeout().0 {
            return Err(Aborted(format!(
                "{}: no worker got any further for {} s, after {done} calls in all; is a lock \
                 taken by somebody else, or its owner dead?",
                self.order.target,
                still / 1_000_000_000
            )));
        }
        if now > deadline {
            return Err(Aborted(format!(
                "{}: the run did not end within {:.0} s, after {done} calls in all; fewer \
                 operations, or a longer -t",
                self.order.target,
                self.order.window.as_secs_f64()
            )));
        }
        Ok(())
    }

    pub(super) fn now(&self) -> u64 {
        self.desk.clock.now()
    }

    fn closes(&self, flagged: u64) -> u64 {
        match self.order.measure {
            Measure::Full => self.shared.closes().load(Relaxed),
            Measure::Counts => flagged,
        }
    }

    fn crew(&self) -> Crew<'_, T> {
        Crew {
            order: self.order,
            target: &self.target,
            clock: self.desk.clock,
            shared: &self.shared,
            witness: &self.witness,
            logs: &self.logs,
            keeper: rustix::process::getpid(),
        }
    }

    fn fork_workers(&self, children: &mut Children) -> Result<(), Aborted> {
        let crew = self.crew();
        let count = self.order.workers;
        if self.target.has_canary() {
            let canary = self.desk.forker.fork(|| T::live_as_canary(&crew));
            let pid = canary.map_err(|error| {
                Aborted(format!(
                    "cannot fork the canary: {error}; raise the limit on processes (ulimit -u)"
                ))
            })?;
            let pid = pid.as_raw_nonzero().get() as u32;
            children.alive.insert(pid, count..count);
        }
        let spread = self.order.workload == Workload::Spread;
        let fork = |workers: std::ops::Range<usize>, children: &mut Children| {
            let group = self.groups.get(children.alive.len());
            let pid = match self.order.carrier {
                Carrier::Processes => self.desk.forker.fork(|| crew.worker_process(workers.start)),
                Carrier::Threads => self
                    .desk
                    .forker
                    .fork(|| crew.worker_threads(workers.clone(), group)),
                Carrier::Tasks => self.desk.forker.fork(|| T::live_as_tasks(&crew)),
            };
            let pid = pid.map_err(|error| {
                Aborted(format!(
                    "cannot fork worker {} of {count}: {error}; a limit on processes was reached \
                     (ulimit -u, kernel.pid_max, the cgroup's pids.max): raise it, or fewer workers (-w)",
                    workers.start
                ))
            })?;
            children
                .alive
                .insert(pid.as_raw_nonzero().get() as u32, workers);
            Ok(())
        };
        if spread {
            let mut generators = (0..self.order.generators).map(|nth| self.order.generator(nth));
            return generators.try_for_each(|workers| fork(workers, children));
        }
        if self.order.carrier != Carrier::Processes {
            return fork(0..count, children);
        }
        for worker in 0..count {
            fork(worker..worker + 1, children)?;
            if worker % 64 == 63 {
                self.heed_parent(Duration::ZERO)?;
            }
        }
        Ok(())
    }

    fn heed_parent(&self, patience: Duration) -> Result<(), Aborted> {
        match self.desk.stopped(patience) {
            true => Err(Aborted("interrupted".into())),
            false => Ok(()),
        }
    }

    /// Until all are ready. One that cannot become so ends the run: a point
    /// with fewer workers than it says would be a lie.
    fn await_ready(&self, children: &mut Children) -> Result<(), Aborted> {
        let deadline = self.now() + RAMP_PATIENCE_NS;
        loop {
            let ready = self.shared.ready().load(Acquire);
            if ready as usize >= self.order.workers {
                break;
            }
            self.futex_nap(self.shared.ready(), ready);
            self.heed_parent(Duration::ZERO)?;
            children.reap();
            self.refuse_losses(children)?;
            if self.now() > deadline {
                return Err(Aborted(format!(
                    "only {ready} of {} workers became ready within {} s; fewer workers (-w)",
                    self.order.workers,
                    RAMP_PATIENCE_NS / 1_000_000_000
                )));
            }
        }
        children.reap();
        self.refuse_losses(children)
    }

    pub(super) fn refuse_losses(&self, children: &Children) -> Result<(), Aborted> {
        let failed = (0..self.order.workers).find_map(|worker| {
            let page = self.shared.page(worker);
            (page.get(Word::Stage) == Stage::Failed as u64)
                .then(|| page.message())
                .flatten()
        });
        if let Some(message) = failed {
            return Err(Aborted(format!("{}: {message}", self.order.target)));
        }
        match children.ended.first() {
            Some((ended, workers)) => Err(Aborted(format!(
                "worker {} (pid {}) was lost before the start: {}",
                workers.start,
                ended.pid,
                how_it_ended(ended)
            ))),
            None => Ok(()),
        }
    }

    fn futex_nap(&self, word: &std::sync::atomic::AtomicU32, seen: u32) {
        let until = clock::monotonic() + LOOK_UP.as_nanos() as u64;
        let _ = futex::wait(word, seen, Some(until));
    }

    /// The common start; returns when the window opens. `just_before` looks at the
    /// workers while nobody works yet.
    fn start(
        &self,
        children: &mut Children,
        just_before: impl FnOnce(&Children),
    ) -> Result<u64, Aborted> {
        match self.order.together {
            None => {
                just_before(children);
                let now = self.relate_clocks();
                self.release_workers(now);
                self.await_arrivals(children)
            }
            Some(_) => {
                let begins = self.await_go(children)?;
                self.relate_clocks();
                let opens = self.agree(begins);
                self.release_workers(begins);
                just_before(children);
                Ok(opens)
            }
        }
    }

    /// Notes how far stamps are from `CLOCK_MONOTONIC`, and returns what that shows.
    fn relate_clocks(&self) -> u64 {
        let (stamp, monotonic) = (self.now(), clock::monotonic());
        let apart = monotonic.wrapping_sub(stamp);
        self.shared.to_monotonic().store(apart, Relaxed);
        monotonic
    }

    /// Lets them go, so that they begin at `begins` of `CLOCK_MONOTONIC`.
    fn release_workers(&self, begins: u64) {
        let run = self.order.warmup.0 + self.order.window.0;
        self.shared.last_resort().store(
            begins + RAMP_PATIENCE_NS / 10 + run + self.order.patience().0,
            Relaxed,
        );
        self.shared
            .go()
            .store(1, std::sync::atomic::Ordering::Release);
        futex::wake(self.shared.go(), futex::ALL);
    }

    /// Until the last one has arrived and set the window; returns its opening.
    fn await_arrivals(&self, children: &mut Children) -> Result<u64, Aborted> {
        let deadline = self.now() + RAMP_PATIENCE_NS;
        loop {
            let arrived = self.shared.arrived().load(Acquire);
            let opens = self.shared.opens().load(Acquire);
            if opens != u64::MAX {
                return Ok(opens);
            }
            self.futex_nap(self.shared.arrived(), arrived);
            self.heed_parent(Duration::ZERO)?;
            children.reap();
            self.refuse_losses(children)?;
            if self.now() > deadline {
                return Err(Aborted(format!(
                    "only {arrived} of {} workers came to the common start; fewer workers (-w)",
                    self.order.workers
                )));
            }
        }
    }

    /// Sleeps, and listens to the parent. Ends early when no worker is left.
    fn sleep_until(&self, stamp: u64, children: &mut Children) -> Result<(), Aborted> {
        loop {
            let now = self.now();
            if now >= stamp {
                return Ok(());
            }
            self.heed_parent(Duration::from_nanos(stamp - now).min(Duration::from_millis(200)))?;
            children.reap();
            if children.alive.is_empty() {
                return Ok(());
            }
        }
    }

    fn read(&self, children: &Children) -> Reading {
        let at_ns = self.now();
        let clock = |pid: u32| CpuClock::of(pid).ok()?.read();
        let (workers, canary): (Vec<_>, Vec<_>) =
            children.alive.iter().partition(|(_, w)| !w.is_empty());
        let cpu_ns = workers
            .into_iter()
            .filter_map(|(pid, _)| Some((*pid, clock(*pid)?)))
            .collect();
        let canary_ns: u64 = canary.into_iter().filter_map(|(pid, _)| clock(*pid)).sum();
        let scheduled = self.read_schedulers(at_ns);
        let parent = rustix::process::getppid()
            .and_then(|pid| CpuClock::of(pid.as_raw_nonzero().get() as u32).ok()?.read());
        Reading {
            at_ns,
            took_ns: self.now() - at_ns,
            cpu_ns,
            scheduled,
            machine: stat::machine_ticks().unwrap_or_default(),
            harness_ns: stat::own_cpu_ns() + parent.unwrap_or(0) + canary_ns,
            throttled: self.desk.throttled(),
            groups: self.groups.iter().map(CpuGroup::throttled).collect(),
            server_ns: match &self.server_group {
                Some(group) => group.cpu_ns(),
                None => self.server.and_then(|figures| clock(figures.pid?)),
            },
        }
    }

    /// What the scheduler counts of each worker; given up, all of it, where the
    /// reading would take more than its share of the window.
    fn read_schedulers(&self, since: u64) -> Option<Vec<Scheduled>> {
        if self.order.is_counted() {
            // Those read their own.
            return None;
        }
        let deadline = since + self.order.window.0 / READING_PER_WINDOW;
        let threads = self.order.threads().into_iter();
        threads
            .map(|worker| {
                let page = self.shared.page(worker);
                let read = stat::scheduled(page.get(Word::Pid) as u32, page.get(Word::Tid) as u32);
                read.filter(|_| self.now() < deadline)
            })
            .collect()
    }

    /// Ends every wait, repeatedly; whoever does not come back is killed, and
    /// everybody at once when the parent no longer wants the result. What they
    /// measured is in shared memory.
    pub(super) fn drain(&self, children: &mut Children) {
        let from = self.now() + self.order.grace().0;
        let deadline = from + self.order.patience().0;
        children.reap();
        while !children.alive.is_empty() && self.now() < deadline {
            // A hold in progress may last for minutes.
            if self.heed_parent(Duration::ZERO).is_err() {
                break;
            }
            if self.now() >= from {
                self.nudge(children);
            }
            std::thread::sleep(
                NUDGE.min(Duration::from_millis(1 + children.alive.len() as u64 / 100)),
            );
            children.reap();
        }
        if !children.alive.is_empty() {
            children.killed = children.alive.values().cloned().flatten().collect();
            self.clear_away(children);
        }
    }

    /// A signal to each worker that waits for a grant or idles; owners finish.
    fn nudge(&self, children: &Children) {
        let mut last = 0;
        for worker in children.alive.values().cloned().flatten() {
            let page = self.shared.page(worker);
            let waits = page.get(Word::PendingSince) != 0 || page.get(Word::Idling) != 0;
            let unstamped = self.order.measure == Measure::Counts;
            let tid = page.get(Word::Tid);
            // One signal wakes all tasks of a thread.
            if (waits || unstamped) && tid != last {
                last = tid;
                let _ = signal::end_waits_of(page.get(Word::Pid) as u32, tid as u32);
            }
        }
    }

    fn clear_away(&self, children: &mut Children) {
        while !children.alive.is_empty() {
            children.kill_all();
            std::thread::sleep(Duration::from_millis(1));
            children.reap();
        }
    }
}

impl<T: Target> Run<'_, T> {
    /// Measures the tool's own cost; see [`Crew::cost_process`].
    pub fn cost(&self, cost: &CostOrder) -> Result<Vec<[f64; 4]>, Aborted> {
        const PATIENCE_NS: u64 = 60_000_000_000;
        let region = Region::new(cost.blocks * 4 * 8 + LINE).map_err(|e| Aborted(e.to_string()))?;
        let results: &[AtomicU64] = region.words64(0, cost.blocks * 4);
        let crew = self.crew();
        let pid = self
            .desk
            .forker
            .fork(|| crew.cost_process(cost, results))
            .map_err(|e| {
                Aborted(format!(
                    "cannot fork a worker: {e}; raise the limit on processes"
                ))
            })?;
        let mut children = Children::default();
        children
            .alive
            .insert(pid.as_raw_nonzero().get() as u32, 0..1);
        let deadline = self.now() + PATIENCE_NS;
        while !children.alive.is_empty() {
            if let Err(stopped) = self.heed_parent(Duration::from_millis(2)) {
                self.clear_away(&mut children);
                return Err(stopped);
            }
            if self.now() > deadline {
                children.kill_all();
            }
            children.reap();
        }
        match (self.shared.page(0).message(), children.ended.first()) {
            (Some(message), _) => Err(Aborted(format!("{}: {message}", self.order.target))),
            (None, Some((ended, _))) if ended.code != Some(0) => Err(Aborted(format!(
                "{}: the worker that measures the tool's own cost ended early: {}",
                self.order.target,
                how_it_ended(ended)
            ))),
            _ => Ok(results
                .chunks_exact(4)
                .map(|block| std::array::from_fn(|n| f64::from_bits(block[n].load(Relaxed))))
                .collect()),
        }
    }
}

fn asked<T: Work>(target: &T, order: &RunOrder) -> Result<Option<ServerFigures>, Aborted> {
    target
        .counts()
        .map_err(|error| Aborted(format!("{}: {error}", order.target)))
}

/// Where it is not on this machine, another host may know it.
fn server_group(order: &RunOrder) -> Option<OtherGroup> {
    let place = order.requests.as_ref()?.server_cgroup.as_deref()?;
    OtherGroup::find(place).ok()
}

/// In words.
pub fn how_it_ended(ended: &Ended) -> String {
    match (ended.signal, ended.code) {
        (Some(signal), _) => format!("killed by {}", process::signal_name(signal)),
        (None, Some(101)) => "it panicked".to_owned(),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "for reasons unknown".to_owned(),
    }
}
