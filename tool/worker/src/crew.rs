//! State that the workers of a run share, and the steps of a worker's life that are the same for
//! all: it takes its place, waits for the common start, and leaves its results or its last words in
//! its page.

use crate::grants::Logs;
use crate::order::{ContendOrder, RunOrder, WorkloadOrder};
use crate::page::{Page, Shared, Stage, Word};
use crate::recording::Common;
use crate::recording::recorder::Recorder;
use crate::recording::tally::{Counted, Tally};
use crate::witness::Witness;
use jostle_model::plan::Carrier;
use jostle_model::record::Count;
use jostle_sys::clock::{self, Clock};
use jostle_sys::{cpu, futex, process, signal, stat};
use jostle_targets::{CallError, SetupError};
use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// State common to all workers of a run.
pub struct Crew<'a> {
    /// The order of the run.
    pub order: &'a RunOrder,
    /// The scale of their stamps.
    pub clock: Clock,
    /// Their memory.
    pub shared: &'a Shared,
    /// The witness of their locks.
    pub witness: &'a Witness,
    /// Where they log their grants.
    pub logs: &'a Logs,
    /// The keeper.
    pub keeper: Pid,
}

impl<'a> Crew<'a> {
    /// The recorder of the grants of worker number `worker`, of a thread whose first is `first`.
    pub(crate) fn recorder(
        &self,
        contend: &'a ContendOrder,
        worker: usize,
        first: usize,
    ) -> Recorder<'a> {
        Recorder::new(self.common(), contend, worker, first)
    }

    /// The recorder of that worker where the number of operations ends the run.
    pub fn tally(&self, counted: Counted<'a>, worker: usize, first: usize) -> Tally<'a> {
        Tally::new(self.common(), counted, worker, first)
    }

    fn common(&self) -> Common<'a> {
        Common {
            order: self.order,
            clock: self.clock,
            shared: self.shared,
            witness: self.witness,
            logs: self.logs,
        }
    }
}

impl Crew<'_> {
    /// Works for a number of operations from the common start on. The worker records its
    /// own end, and reads its own clocks around its work. `work` returns whether it was
    /// completed. True if all went well.
    pub fn counted(&self, worker: usize, work: impl FnOnce() -> Result<bool, CallError>) -> bool {
        let page = self.shared.page(worker);
        self.await_go(&page);
        let before = Used::read(&page);
        self.arrive(&page);
        self.await_all();
        let done = work();
        if let Ok(true) = done {
            page.set(Word::Finished, self.clock.now());
            Used::read(&page).less(&before).leave(&page);
        }
        // A worker that did not get so far is counted too, so that nobody waits for it.
        let holds = matches!(self.order.workload, WorkloadOrder::Hold(_));
        if holds && page.get(Word::HeldAt) == 0 {
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

    /// Takes the worker's place. Its handle is made next, and then [`Crew::touch`].
    ///
    /// # Errors
    /// In words for the user.
    pub(crate) fn settle(&self, worker: usize) -> Result<(), SetupError> {
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
        Ok(())
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

    /// Prepares a process beside the workers: it ends with the keeper, and runs on the
    /// workers' CPUs.
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
    pub fn count(&self, counter: &AtomicU32) {
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
        each_count(|count, so_far| page.begin_count(count, so_far));
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

    /// Writes the kernel's counts of this thread, of which the page's worker is the first.
    pub(crate) fn count_to_the_end(&self, page: &Page<'_>) {
        each_count(|count, so_far| page.end_count(count, so_far));
    }

    pub(crate) fn leave(&self, page: &Page<'_>, done: Result<(), CallError>) -> bool {
        self.count_to_the_end(page);
        match done {
            Ok(()) => page.set(Word::Stage, Stage::Done as u64),
            Err(error) => page.failed(&error, self.clock.now()),
        }
        page.set(Word::PendingSince, 0);
        self.await_dismissal();
        done.is_ok()
    }

    /// To be called after [`Crew::leave`]: ends the connection or session of a worker that
    /// completed its work. True if all went well.
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

/// Passes on the kernel's counts of this thread so far, one by one.
fn each_count(mut each: impl FnMut(Count, u64)) {
    let so_far = process::thread_counts();
    for count in Count::ALL {
        let value = match count {
            Count::Preempted => so_far.involuntary_switches,
            Count::PageFaults => so_far.page_faults,
        };
        each(*count, value);
    }
}

/// The use of a worker's own thread so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    cpu_ns: u64,
    runqueue_ns: u64,
    switches: u64,
}

impl Used {
    pub(crate) fn read(page: &Page<'_>) -> Used {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let ids = (page.get(Word::Pid) as u32, page.get(Word::Tid) as u32);
        let scheduled = stat::scheduled(ids.0, ids.1);
        Used {
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            runqueue_ns: scheduled.as_ref().map_or(0, |s| s.waited_ns),
            switches: scheduled.as_ref().map_or(0, |s| s.switches),
        }
    }

    pub(crate) fn less(self, before: &Used) -> Used {
        Used {
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

    /// The part of what [`Used::leave`] writes in which locks were only kept.
    pub(crate) fn leave_kept(self, page: &Page<'_>) {
        page.set(Word::KeptCpu, self.cpu_ns);
        page.set(Word::KeptRunqueue, self.runqueue_ns);
        page.set(Word::KeptSwitches, self.switches);
    }
}
