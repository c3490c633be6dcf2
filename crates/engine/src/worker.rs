//! A worker's life around its workload: it ties itself to the keeper, takes its
//! place, makes its handle, waits for the common start, works, and leaves its
//! results or its last words in its page.

use crate::grants::Logs;
use crate::order::{CostOrder, RunOrder};
use crate::page::{Page, Shared, Stage, Word};
use crate::witness::Witness;
use crate::work::Work;
use crate::workloads::contend::{Contender, Probe};
use crate::workloads::counted::Course;
use crate::workloads::recorder::Recorder;
use crate::workloads::tally::Tally;
use jostle_model::plan::{Carrier, Workload};
use jostle_sys::clock::{self, Clock};
use jostle_sys::limits::cpu_group::CpuGroup;
use jostle_sys::{cpu, futex, process, signal, stat};
use jostle_targets::{CallError, Lock, SetupError, Target};
use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// What all workers of a run have in common.
pub struct Crew<'a, T> {
    /// What to do.
    pub order: &'a RunOrder,
    /// What they contend for.
    pub target: &'a T,
    /// The scale of their stamps.
    pub clock: Clock,
    /// Their memory.
    pub shared: &'a Shared,
    /// Who watches them.
    pub witness: &'a Witness,
    /// Where they log their grants.
    pub logs: &'a Logs,
    /// The keeper.
    pub keeper: Pid,
}

impl<'a, T> Crew<'a, T> {
    /// What worker number `worker`, of a thread whose first is `first`, notes of its
    /// grants.
    pub fn recorder(&self, worker: usize, first: usize) -> Recorder<'a> {
        let (shared, witness) = (self.shared, self.witness);
        Recorder::new(
            self.order, self.clock, shared, witness, self.logs, worker, first,
        )
    }

    /// The same where the number of operations ends the run.
    pub fn tally(&self, worker: usize, first: usize) -> Tally<'a> {
        let (shared, witness) = (self.shared, self.witness);
        Tally::new(
            self.order, self.clock, shared, witness, self.logs, worker, first,
        )
    }
}

impl<T: Work> Crew<'_, T> {
    /// A process that is one worker. Returns its exit code.
    pub fn worker_process(&self, worker: usize) -> i32 {
        process::set_name("jostle-worker");
        if process::die_with(self.keeper).is_err() {
            return 1;
        }
        let _ = process::leave_group();
        i32::from(!T::live(self, worker))
    }

    /// A process whose threads are these workers, with no more CPU time than a
    /// group gives, if there is one. Returns its exit code.
    pub fn worker_threads(&self, workers: Range<usize>, group: Option<&CpuGroup>) -> i32 {
        process::set_name("jostle-threads");
        if process::die_with(self.keeper).is_err() {
            return 1;
        }
        let _ = process::leave_group();
        if let Some(Err(error)) = group.map(CpuGroup::enter) {
            let text = format!("cannot enter a control group: {error}");
            workers.for_each(|worker| self.give_up(&self.shared.page(worker), 0, &text));
            return 1;
        }
        let well = std::thread::scope(|scope| {
            let threads: Vec<_> = workers
                .map(|worker| {
                    let thread = std::thread::Builder::new()
                        .stack_size(T::THREAD_STACK)
                        .spawn_scoped(scope, move || T::live(self, worker));
                    if let Err(error) = &thread {
                        self.give_up(
                            &self.shared.page(worker),
                            error.raw_os_error().unwrap_or(0),
                            &format!("cannot start thread {worker}: {error}; fewer workers (-w), or raise the limit on threads"),
                        );
                    }
                    thread
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.is_ok_and(|t| t.join().unwrap_or(false)))
                .filter(|well| !well)
                .count()
                == 0
        });
        i32::from(!well)
    }

    /// Works for a number of operations, from the common start on: the worker
    /// itself says when it has ended, and reads its own clocks around its work.
    /// `work` says whether it came to its end. True if all went well.
    pub(crate) fn counted(
        &self,
        worker: usize,
        work: impl FnOnce() -> Result<bool, CallError>,
    ) -> bool {
        let page = self.shared.page(worker);
        self.await_go(&page);
        let before = Load::read(&page);
        self.arrive(&page);
        self.await_all();
        let done = work();
        if let Ok(true) = done {
            page.set(Word::Finished, self.clock.now());
            Load::read(&page).less(&before).leave(&page);
        }
        // Who could not come so far is counted too: nobody waits for it.
        if self.order.workload == Workload::Hold && page.get(Word::HeldAt) == 0 {
            self.count(self.shared.midway());
        }
        self.count(self.shared.finished());
        self.leave(&page, done.map(|_| ()))
    }

    /// A common start means that nobody works before all have arrived.
    pub(crate) fn await_all(&self) {
        while self.shared.opens().load(Acquire) == u64::MAX {
            let arrived = self.shared.arrived().load(Acquire);
            if arrived < self.shared.workers() as u32 {
                let _ = futex::wait(self.shared.arrived(), arrived, None);
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Takes the worker's place, and makes its handle by `join`.
    pub(crate) fn settle<H>(
        &self,
        worker: usize,
        join: impl FnOnce() -> Result<H, SetupError>,
    ) -> Result<H, SetupError> {
        let page = self.shared.page(worker);
        page.set(Word::Pid, u64::from(std::process::id()));
        page.set(
            Word::Tid,
            rustix::thread::gettid().as_raw_nonzero().get() as u64,
        );
        let say = |what: &str, error: std::io::Error| SetupError(format!("cannot {what}: {error}"));
        signal::end_waits_on_signal().map_err(|e| say("install a signal handler", e))?;
        cpu::set_timer_slack(self.order.timer_slack.0)
            .map_err(|e| say("set the timer slack", e))?;
        if !self.order.cpus.is_empty() {
            let cpu = self.order.cpus[worker % self.order.cpus.len()];
            cpu::pin(&[cpu]).map_err(|e| say(&format!("use CPU {cpu}"), e))?;
        }
        let handle = join()?;
        self.touch(worker);
        Ok(handle)
    }

    /// Touches what the worker will write in its window: a process that has just been
    /// forked takes a fault for each page that it touches first.
    pub(crate) fn touch(&self, worker: usize) {
        /// A small part of the smallest stack, of which an array may take twice its size.
        const STACK_BYTES: usize = 8 * 1024;
        std::hint::black_box(&[1u8; STACK_BYTES]);
        self.shared.populate(worker);
        self.witness.populate();
        self.logs.populate(worker);
    }

    /// Of a process beside the workers: it ends with the keeper, and runs where
    /// they do.
    pub(crate) fn settle_beside(&self) -> std::io::Result<()> {
        process::set_name("jostle-canary");
        process::die_with(self.keeper)?;
        let _ = process::leave_group();
        signal::end_waits_on_signal()?;
        cpu::set_timer_slack(self.order.timer_slack.0)?;
        match self.order.cpus.is_empty() {
            true => Ok(()),
            false => cpu::pin(&self.order.cpus),
        }
    }

    pub(crate) fn give_up(&self, page: &Page<'_>, errno: i32, message: &str) {
        page.fail(errno, message);
        self.count_ready();
    }

    fn count_ready(&self) {
        self.count(self.shared.ready());
    }

    /// The last one to be counted wakes the keeper.
    pub(crate) fn count(&self, counter: &AtomicU32) {
        if counter.fetch_add(1, AcqRel) + 1 == self.shared.workers() as u32 {
            futex::wake(counter, futex::ALL);
        }
    }

    /// The last worker to arrive opens the window: it knows best when all are
    /// there, and need not wait for the keeper to be scheduled.
    pub(crate) fn wait_for_start(&self, page: &Page<'_>) {
        self.await_go(page);
        self.arrive(page);
    }

    fn await_go(&self, page: &Page<'_>) {
        self.make_ready(page);
        self.await_start();
    }

    /// Says that this worker waits for the common start.
    pub(crate) fn make_ready(&self, page: &Page<'_>) {
        let usage = match self.order.carrier {
            Carrier::Processes => process::own_usage(),
            Carrier::Threads | Carrier::Tasks => process::Usage::default(),
        };
        page.set(Word::StartUser, usage.user_ns);
        page.set(Word::StartSystem, usage.system_ns);
        page.set(Word::Stage, Stage::Ready as u64);
        self.count_ready();
    }

    /// Until the keeper has seen all of them.
    pub(crate) fn await_start(&self) {
        while self.shared.go().load(Acquire) == 0 {
            let _ = futex::wait(self.shared.go(), 0, None);
        }
    }

    /// Stamps a worker's arrival; the last one sets the window, unless hosts have
    /// agreed on it.
    pub(crate) fn arrive(&self, page: &Page<'_>) {
        let begins = self.shared.begins().load(Relaxed);
        // Each sleeps by itself: timers that end together are served in one go, and
        // a keeper that woke one after the other would be as late as it is scheduled.
        while clock::monotonic() < begins && !signal::interrupted() {
            clock::sleep_until(begins);
        }
        let now = self.clock.now();
        page.set(Word::Arrived, now);
        let arrived = self.shared.arrived().fetch_add(1, AcqRel) + 1;
        if begins == 0 && arrived == self.shared.workers() as u32 {
            let opens = now + self.order.warmup.0;
            self.shared
                .closes()
                .store(opens + self.order.window.0, Relaxed);
            self.shared.opens().store(opens, Release);
            futex::wake(self.shared.arrived(), futex::ALL);
        }
    }

    pub(crate) fn leave(&self, page: &Page<'_>, done: Result<(), CallError>) -> bool {
        page.set(Word::PendingSince, 0);
        match done {
            Ok(()) => page.set(Word::Stage, Stage::Done as u64),
            Err(error) => page.fail(error.errno, &error.to_string()),
        }
        self.await_dismissal();
        done.is_ok()
    }

    /// After [`Crew::leave`]: ends what a worker that came to its end has with a
    /// server. True if all went well.
    pub(crate) fn part(
        &self,
        page: &Page<'_>,
        well: bool,
        part: impl FnOnce() -> Result<(), CallError>,
    ) -> bool {
        let parted = match well {
            true => part(),
            false => Ok(()),
        };
        if let Err(error) = parted {
            page.fail(error.errno, &error.to_string());
        }
        well && parted.is_ok()
    }

    /// Until the keeper has read all clocks.
    pub(crate) fn await_dismissal(&self) {
        while self.shared.dismissed().load(Acquire) == 0 {
            let _ = futex::wait(self.shared.dismissed(), 0, None);
        }
    }
}

impl<T: Target> Crew<'_, T> {
    /// The life of a worker with a lock. True if all went well.
    pub(crate) fn live_with_lock(&self, worker: usize) -> bool {
        let page = self.shared.page(worker);
        let mut lock = match self.settle(worker, || self.target.join(self.order.number(worker))) {
            Ok(lock) => lock,
            Err(error) => {
                self.give_up(&page, 0, &error.to_string());
                return false;
            }
        };
        if self.order.is_counted() {
            let well = self.counted(worker, || self.course(worker, &mut lock));
            return self.part(&page, well, || lock.part());
        }
        self.wait_for_start(&page);
        let mut contender = Contender::new(
            &mut lock,
            self.order,
            self.clock,
            self.shared,
            self.witness,
            self.logs,
            worker,
        );
        let done = contender.run(Probe::from(self.order.measure), u64::MAX);
        let well = self.leave(&page, done);
        self.part(&page, well, || lock.part())
    }

    fn course(&self, worker: usize, lock: &mut T::Lock) -> Result<bool, CallError> {
        let mut course = Course::new(
            lock,
            self.order,
            self.clock,
            self.shared,
            self.witness,
            self.logs,
            worker,
        );
        match self.order.workload {
            Workload::Hold => course.hold(),
            _ => course.stream(),
        }
    }

    /// One uncontended worker in four ways, block by block, each block in the
    /// reverse order of the one before, so that a drift of the machine falls on
    /// all alike. Writes nanoseconds a pair, as the bits of an f64, four to a
    /// block. Returns its exit code.
    pub fn cost_process(&self, cost: &CostOrder, results: &[AtomicU64]) -> i32 {
        process::set_name("jostle-cost");
        if process::die_with(self.keeper).is_err() {
            return 1;
        }
        let page = self.shared.page(0);
        let measured = self
            .settle(0, || self.target.join(0))
            .map_err(|e| e.to_string())
            .and_then(|mut lock| {
                self.measure_cost(&mut lock, cost, results)
                    .map_err(|e| e.to_string())
            });
        if let Err(message) = &measured {
            page.fail(0, message);
        }
        i32::from(measured.is_err())
    }

    fn measure_cost(
        &self,
        lock: &mut T::Lock,
        cost: &CostOrder,
        results: &[AtomicU64],
    ) -> Result<(), CallError> {
        const PROBES: [Probe; 4] = [
            Probe::Counts,
            Probe::Full,
            Probe::NoStamps,
            Probe::NoWitness,
        ];
        /// Long against one stamp, short against a scheduler's slice.
        const PASS_NS: f64 = 2_000_000.0;
        self.shared.opens().store(0, Relaxed);
        let mut pass = |probe: Probe, pairs: u64| {
            let mut contender = Contender::new(
                lock,
                self.order,
                self.clock,
                self.shared,
                self.witness,
                self.logs,
                0,
            );
            let start = self.clock.now();
            contender.run(probe, pairs)?;
            Ok((self.clock.now() - start) as f64 / pairs as f64)
        };
        // The first passes warm caches and find how many pairs fill one of the
        // dearest kind; sized by counting alone, one would last ten times as
        // long on a lock that costs nothing.
        let mut pairs = 1;
        while pass(Probe::Full, pairs)? * (pairs as f64) < PASS_NS / 4.0 && pairs < 1 << 20 {
            pairs *= 2;
        }
        let pairs = ((PASS_NS / pass(Probe::Full, pairs)?) as u64).clamp(1, 1 << 20);
        for probe in PROBES {
            pass(probe, pairs)?;
        }
        for (block, into) in results.chunks_exact(4).take(cost.blocks).enumerate() {
            for nth in 0..4 {
                let which = if block % 2 == 0 { nth } else { 3 - nth };
                into[which].store(pass(PROBES[which], pairs)?.to_bits(), Relaxed);
            }
        }
        Ok(())
    }
}

/// What a worker's own thread has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    cpu_ns: u64,
    runqueue_ns: u64,
    switches: u64,
}

impl Load {
    pub(crate) fn read(page: &Page<'_>) -> Load {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let ids = (page.get(Word::Pid) as u32, page.get(Word::Tid) as u32);
        let scheduled = stat::scheduled(ids.0, ids.1);
        Load {
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            runqueue_ns: scheduled.as_ref().map_or(0, |s| s.waited_ns),
            switches: scheduled.as_ref().map_or(0, |s| s.switches),
        }
    }

    pub(crate) fn less(self, before: &Load) -> Load {
        Load {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            runqueue_ns: self.runqueue_ns.saturating_sub(before.runqueue_ns),
            switches: self.switches.saturating_sub(before.switches),
        }
    }

    pub(crate) fn leave(self, page: &Page<'_>) {
        page.set(Word::Cpu, self.cpu_ns);
        page.set(Word::Runqueue, self.runqueue_ns);
        page.set(Word::Switches, self.switches);
    }
}
