//! The processes that carry workers, and the life of a worker with a lock: it ties
//! itself to the keeper, makes its own lock, works, and parts with its server.

use crate::crew::Crew;
use crate::order::{RunOrder, WorkloadOrder};
use crate::recording::tally::Counted;
use crate::work::Work;
use crate::workloads::contend::Probe;
use crate::workloads::counted;
use crate::workloads::locking::{LockOrder, Locking, Loop, WorkerLock};
use crate::workloads::requests::{self, Requesting};
use jostle_sys::limits::cpu_group::CpuGroup;
use jostle_sys::process;
use jostle_targets::{CallError, Entry, Locks, Setup, SetupError};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

impl Crew<'_> {
    /// A process that is one worker. Returns its exit code.
    pub fn worker_process(&self, work: &dyn Work, worker: usize) -> i32 {
        process::set_name("jostle-worker");
        if process::die_with(self.keeper).is_err() {
            return 1;
        }
        let _ = process::leave_group();
        i32::from(!work.live(self, worker))
    }

    /// A process whose threads are these workers, with no more CPU time than a
    /// group gives, if there is one. Returns its exit code.
    pub fn worker_threads(
        &self,
        work: &dyn Work,
        workers: Range<usize>,
        group: Option<&CpuGroup>,
    ) -> i32 {
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
        let fewer = "fewer workers (-w), or raise the limit on threads";
        let kind = (work.thread_stack(), "thread", fewer);
        let well = self.threads(
            workers,
            kind,
            |worker| worker,
            |worker| work.live(self, worker),
        );
        i32::from(!well)
    }

    /// Runs threads of these numbers until all have ended; `kind` is their stack, what they are,
    /// and what to do if one cannot be started, which then fails in the name of a worker. True
    /// if all went well.
    pub(crate) fn threads(
        &self,
        numbers: Range<usize>,
        kind: (usize, &str, &str),
        worker_of: impl Fn(usize) -> usize,
        run: impl Fn(usize) -> bool + Sync,
    ) -> bool {
        let (stack, what, fewer) = kind;
        let run = &run;
        std::thread::scope(|scope| {
            let start = |nth| {
                let thread = std::thread::Builder::new().stack_size(stack);
                let thread = thread.spawn_scoped(scope, move || run(nth));
                if let Err(error) = &thread {
                    let text = format!("cannot start {what} {nth}: {error}; {fewer}");
                    let page = self.shared.page(worker_of(nth));
                    self.give_up(&page, error.raw_os_error().unwrap_or(0), &text);
                }
                thread
            };
            let threads: Vec<_> = numbers.map(start).collect();
            let ends = threads.into_iter();
            let ends = ends.map(|thread| thread.is_ok_and(|t| t.join().unwrap_or(false)));
            ends.filter(|well| !well).count() == 0
        })
    }
}

/// Prepares the target of an entry for the workload of an order, a lock or not.
///
/// # Errors
/// In words for the user.
pub fn prepare<'a>(
    entry: &'static Entry,
    setup: &Setup<'_>,
    order: &'a RunOrder,
) -> Result<Box<dyn Work + 'a>, SetupError> {
    let lock = |asked| -> Result<Box<dyn Work + 'a>, SetupError> {
        Ok(Box::new(Locking::prepare(entry, setup, asked)?))
    };
    let request = |asked| -> Result<Box<dyn Work + 'a>, SetupError> {
        Ok(Box::new(Requesting::prepare(entry, setup, order, asked)?))
    };
    match &order.workload {
        WorkloadOrder::Contend(contend) => lock(LockOrder::Contend(contend)),
        WorkloadOrder::Stream(stream) => lock(LockOrder::Counted(Counted::Stream(stream))),
        WorkloadOrder::Hold(hold) => lock(LockOrder::Counted(Counted::Hold(hold))),
        WorkloadOrder::Ask(ask) => request(requests::Pacing::Ask(ask)),
        WorkloadOrder::Rate(rate) => request(requests::Pacing::Rate(rate)),
        WorkloadOrder::Spread(spread) => request(requests::Pacing::Spread(spread)),
    }
}

impl Locking<'_> {
    /// A worker's work with its lock. True if all went well.
    fn work_with(&self, crew: &Crew<'_>, worker: usize, lock: &mut dyn WorkerLock) -> bool {
        let page = crew.shared.page(worker);
        let well = match self.order {
            LockOrder::Counted(counted) => crew.counted(worker, || {
                counted::work(crew, self.lock.locks(), counted, lock, worker)
            }),
            LockOrder::Contend(contend) => {
                crew.wait_for_start(&page);
                let probe = Probe::from(crew.order.measure);
                let done = lock.run(crew, worker, Loop::Contend(contend, probe, u64::MAX));
                // How often the worker asked its server, where its lock knows.
                if let Some(traffic) = lock.lock().traffic() {
                    page.note_traffic(traffic);
                }
                crew.leave(&page, done.map(drop))
            }
        };
        crew.part(&page, well, || lock.lock().part())
    }

    fn measure_cost(
        &self,
        crew: &Crew<'_>,
        lock: &mut dyn WorkerLock,
        blocks: usize,
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
        let LockOrder::Contend(contend) = self.order else {
            return Ok(());
        };
        crew.shared.opens().store(0, Relaxed);
        let mut pass = |probe: Probe, pairs: u64| {
            let start = crew.clock.now();
            lock.run(crew, 0, Loop::Contend(contend, probe, pairs))?;
            Ok((crew.clock.now() - start) as f64 / pairs as f64)
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
        for (block, into) in results.chunks_exact(4).take(blocks).enumerate() {
            for nth in 0..4 {
                let which = if block % 2 == 0 { nth } else { 3 - nth };
                into[which].store(pass(PROBES[which], pairs)?.to_bits(), Relaxed);
            }
        }
        Ok(())
    }
}

impl Work for Locking<'_> {
    fn thread_stack(&self) -> usize {
        self.lock.locks().thread_stack()
    }

    fn excludes(&self) -> bool {
        self.entry.lock.excludes
    }

    fn is_remote(&self) -> bool {
        self.entry.is_remote()
    }

    fn locks(&self) -> Option<&dyn Locks> {
        Some(self.lock.locks())
    }

    fn accounted(&self) -> Option<&dyn Locks> {
        self.locks()
    }

    fn live(&self, crew: &Crew<'_>, worker: usize) -> bool {
        let mut well = false;
        let number = crew.order.number(worker);
        let joined = crew.settle(worker).and_then(|()| {
            self.lock.join(number, &mut |lock| {
                crew.touch(worker);
                well = self.work_with(crew, worker, lock);
            })
        });
        if let Err(error) = joined {
            crew.give_up(&crew.shared.page(worker), 0, &error.to_string());
        }
        well
    }

    fn live_as_tasks(&self, crew: &Crew<'_>) -> i32 {
        self.worker_tasks(crew)
    }

    /// One uncontended worker in four ways, block by block, each block in the
    /// reverse order of the one before, so that a drift of the machine falls on
    /// all alike.
    fn live_as_cost(&self, crew: &Crew<'_>, blocks: usize, results: &[AtomicU64]) -> i32 {
        process::set_name("jostle-cost");
        if process::die_with(crew.keeper).is_err() {
            return 1;
        }
        let mut measured = Ok(());
        let joined = crew.settle(0).and_then(|()| {
            self.lock.join(0, &mut |lock| {
                crew.touch(0);
                measured = self.measure_cost(crew, lock, blocks, results);
                // An answer too many is for the runs to report, as one of theirs.
                let _ = lock.lock().part();
            })
        });
        let measured = joined
            .map_err(|error| error.to_string())
            .and_then(|()| measured.map_err(|error| error.to_string()));
        if let Err(message) = &measured {
            crew.shared.page(0).fail(0, message);
        }
        i32::from(measured.is_err())
    }
}
