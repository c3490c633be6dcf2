//! The processes that carry workers, and the life of a worker with a lock: it ties
//! itself to the keeper, makes its handle, works, and parts with its server.

use crate::crew::Crew;
use crate::order::ContendOrder;
use crate::page::Page;
use crate::work::Work;
use crate::workloads::contend::{Contender, Probe};
use crate::workloads::counted::Course;
use crate::workloads::locking::{Does, Locking};
use jostle_sys::limits::cpu_group::CpuGroup;
use jostle_sys::process;
use jostle_targets::{CallError, Lock, ServerFigures, SetupError, Target};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

impl<T: Work> Crew<'_, T> {
    /// A process that is one worker. Returns its exit code.
    pub(crate) fn worker_process(&self, worker: usize) -> i32 {
        process::set_name("jostle-worker");
        if process::die_with(self.keeper).is_err() {
            return 1;
        }
        let _ = process::leave_group();
        i32::from(!T::live(self, worker))
    }

    /// A process whose threads are these workers, with no more CPU time than a
    /// group gives, if there is one. Returns its exit code.
    pub(crate) fn worker_threads(&self, workers: Range<usize>, group: Option<&CpuGroup>) -> i32 {
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
}

impl<T: Target> Crew<'_, Locking<'_, T>> {
    /// The life of a worker with a lock. True if all went well.
    pub(crate) fn live_with_lock(&self, worker: usize) -> bool {
        let page = self.shared.page(worker);
        let mut lock = match self.settle(worker, || {
            self.target.target.join(self.order.number(worker))
        }) {
            Ok(lock) => lock,
            Err(error) => {
                self.give_up(&page, 0, &error.to_string());
                return false;
            }
        };
        match self.target.does {
            Does::Counted(counted) => {
                let well = self.counted(worker, || {
                    Course::new(self, counted, &mut lock, worker).run()
                });
                self.part(&page, well, || lock.part())
            }
            Does::Contend(contend) => {
                self.wait_for_start(&page);
                let mut contender = Contender::new(self, contend, &mut lock, worker);
                let done = contender.run(Probe::from(self.order.measure), u64::MAX);
                note_traffic(&page, &lock);
                let well = self.leave(&page, done);
                self.part(&page, well, || lock.part())
            }
        }
    }

    /// One uncontended worker in four ways, block by block, each block in the
    /// reverse order of the one before, so that a drift of the machine falls on
    /// all alike. Writes nanoseconds a pair, as the bits of an f64, four to a
    /// block. Returns its exit code.
    pub(crate) fn cost_process(
        &self,
        contend: &ContendOrder,
        blocks: usize,
        results: &[AtomicU64],
    ) -> i32 {
        process::set_name("jostle-cost");
        if process::die_with(self.keeper).is_err() {
            return 1;
        }
        let page = self.shared.page(0);
        let measured = self
            .settle(0, || self.target.target.join(0))
            .map_err(|e| e.to_string())
            .and_then(|mut lock| {
                let measured = self.measure_cost(&mut lock, contend, blocks, results);
                // An answer too many is for the runs to report, as one of theirs.
                let _ = lock.part();
                measured.map_err(|e| e.to_string())
            });
        if let Err(message) = &measured {
            page.fail(0, message);
        }
        i32::from(measured.is_err())
    }

    fn measure_cost(
        &self,
        lock: &mut T::Lock,
        contend: &ContendOrder,
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
        self.shared.opens().store(0, Relaxed);
        let mut pass = |probe: Probe, pairs: u64| {
            let mut contender = Contender::new(self, contend, lock, 0);
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
        for (block, into) in results.chunks_exact(4).take(blocks).enumerate() {
            for nth in 0..4 {
                let which = if block % 2 == 0 { nth } else { 3 - nth };
                into[which].store(pass(PROBES[which], pairs)?.to_bits(), Relaxed);
            }
        }
        Ok(())
    }
}

/// How often a worker asked its server, where its handle knows.
fn note_traffic(page: &Page<'_>, lock: &impl Lock) {
    if let Some(traffic) = lock.traffic() {
        page.note_traffic(traffic);
    }
}

impl<T: Target> Work for Locking<'_, T> {
    const THREAD_STACK: usize = <T as Target>::THREAD_STACK;

    fn excludes(&self) -> bool {
        T::ENTRY.lock.excludes
    }

    fn is_remote(&self) -> bool {
        T::ENTRY.is_remote()
    }

    fn counts(&self) -> Result<Option<ServerFigures>, SetupError> {
        self.target.server()
    }

    fn clear(&self) -> Result<(), SetupError> {
        self.target.remove_leftovers()
    }

    fn finish(&self) -> Result<(), SetupError> {
        self.target.finish()
    }

    fn strangers(&self) -> Vec<String> {
        self.target.strangers()
    }

    fn known(&self) -> (BTreeMap<String, f64>, BTreeMap<String, f64>) {
        (self.target.truth(), self.target.facts())
    }

    fn live(crew: &Crew<'_, Self>, worker: usize) -> bool {
        crew.live_with_lock(worker)
    }

    fn live_as_tasks(crew: &Crew<'_, Self>) -> i32 {
        crew.worker_tasks()
    }
}
