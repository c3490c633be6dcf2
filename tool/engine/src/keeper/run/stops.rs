//! Looks, while workers work, at whether the server stands still: stopped by a signal, held by
//! a tracer, or frozen; at what CPU quotas kept it and the workers from running; and whether
//! somebody gave their threads other CPUs.

use super::{Children, Run};
use jostle_model::record::Stood;
use jostle_sys::cpu::{self, CpuSet};
use jostle_sys::limits::cgroup;
use jostle_sys::{process, stat};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Between two looks at a server, in nanoseconds.
const EVERY_NS: u64 = 20_000_000;

/// Between two looks at the quotas of a worker: a period of a quota, usually.
const QUOTAS_NS: u64 = 100_000_000;

/// Time between two looks, by the CPU time that the last one took, as in [`super::slices`].
const REST: u64 = 200;

/// All looks of a run.
#[derive(Default)]
pub(super) struct Stops {
    open: RefCell<Option<Open>>,
    /// The CPUs of each thread of workers and server when all workers were ready.
    cpus: RefCell<Vec<(u32, CpuSet)>>,
}

struct Open {
    /// Processes of the server.
    pids: Vec<u32>,
    quotas: Vec<(PathBuf, u64)>,
    next_ns: u64,
    seen: Stood,
    workers: Workers,
    /// Threads that had other CPUs when the window closed than when they were ready.
    repinned: u64,
}

/// Quotas that bind workers, who may be put into another group at any time.
#[derive(Default)]
struct Workers {
    /// How often each had stopped its group when it was seen first and last.
    stopped: BTreeMap<PathBuf, [u64; 2]>,
    /// The one that is looked at next.
    nth: usize,
    next_ns: u64,
}

impl Workers {
    fn look(&mut self, children: &Children) {
        let carry =
            |(pid, carried): (&u32, &std::ops::Range<usize>)| (!carried.is_empty()).then_some(*pid);
        let pids: Vec<u32> = children.alive.iter().filter_map(carry).collect();
        let Some(pid) = pids.get(self.nth % pids.len().max(1)) else {
            return;
        };
        self.nth += 1;
        for file in cgroup::cpu_stats_of(*pid) {
            let now = cgroup::throttled(std::slice::from_ref(&file)).throttled_periods;
            self.stopped.entry(file).or_insert([now; 2])[1] = now;
        }
    }

    /// None without a quota.
    fn periods(&self) -> Option<u64> {
        let each = self.stopped.values();
        each.map(|[first, last]| last.saturating_sub(*first))
            .reduce(|one, other| one + other)
    }
}

/// The stops seen: of the server, where its processes are known, and in how many periods quotas
/// stopped workers.
#[derive(Default)]
pub(super) struct Taken {
    pub server: Option<Stood>,
    pub throttled_periods: Option<u64>,
    /// Threads that somebody gave other CPUs.
    pub repinned: Option<u64>,
}

impl Stops {
    /// All workers are ready.
    pub(super) fn ready(&self, run: &Run<'_>, children: &Children) {
        let workers = children.alive.iter();
        let workers = workers.flat_map(|(pid, carried)| match carried.len() {
            0 | 1 => vec![*pid],
            _ => stat::threads_of(*pid),
        });
        let pids = run.books.server.roots().into_iter();
        let threads = workers.chain(pids.flat_map(stat::threads_of));
        let cpus = threads.filter_map(|thread| Some((thread, cpu::mask_of(thread)?)));
        *self.cpus.borrow_mut() = cpus.collect();
    }

    /// The window has opened.
    pub(super) fn open(&self, run: &Run<'_>, children: &Children) {
        let pids = run.books.server.roots();
        let quotas = pids.first().map(|pid| cgroup::cpu_stats_of(*pid));
        let quotas = quotas.into_iter().flatten();
        let quotas = quotas.filter_map(|file| cgroup::throttled_ns(&file).map(|ns| (file, ns)));
        let mut workers = Workers {
            next_ns: u64::MAX,
            ..Workers::default()
        };
        // Generators whose quota the plan asked for are in groups of ours.
        if !run.order.limits_generators() {
            workers.look(children);
            workers.next_ns = run.now() + QUOTAS_NS;
        }
        *self.open.borrow_mut() = Some(Open {
            quotas: quotas.collect(),
            next_ns: if pids.is_empty() { u64::MAX } else { 0 },
            pids,
            seen: Stood::default(),
            workers,
            repinned: 0,
        });
    }

    /// How long to sleep at most.
    pub(super) fn patience(&self, now_ns: u64) -> Duration {
        let open = self.open.borrow();
        let next_ns = open
            .as_ref()
            .map_or(u64::MAX, |open| open.next_ns.min(open.workers.next_ns));
        Duration::from_nanos(next_ns.saturating_sub(now_ns))
    }

    /// Looks, if it is time.
    pub(super) fn look(&self, run: &Run<'_>, children: &Children) {
        let (mut open, now_ns) = (self.open.borrow_mut(), run.now());
        let Some(open) = open.as_mut() else {
            return;
        };
        if now_ns >= open.workers.next_ns {
            open.workers.look(children);
            open.workers.next_ns = now_ns + QUOTAS_NS;
        }
        if now_ns < open.next_ns {
            return;
        }
        let began_ns = stat::own_cpu_ns();
        let states = open.pids.iter().map(|pid| process::stands_still(*pid));
        let states: Option<Vec<&str>> = states.collect();
        open.seen.looks += 1;
        if let Some(states) = states {
            open.seen.still += 1;
            open.seen.traced += u64::from(states.contains(&"traced"));
        }
        let took_ns = stat::own_cpu_ns() - began_ns;
        open.next_ns = now_ns + EVERY_NS.max(REST * took_ns);
    }

    /// The window has closed.
    pub(super) fn close(&self, children: &Children) {
        if let Some(open) = self.open.borrow_mut().as_mut() {
            if open.workers.next_ns < u64::MAX {
                open.workers.look(children);
            }
            let is_other = |(thread, before): &&(u32, CpuSet)| {
                cpu::mask_of(*thread).is_some_and(|now| now != *before)
            };
            open.repinned = self.cpus.borrow().iter().filter(is_other).count() as u64;
            let since = |(file, before): &(PathBuf, u64)| {
                Some(cgroup::throttled_ns(file)?.saturating_sub(*before) as f64 / 1e9)
            };
            let longest = open.quotas.iter().filter_map(since).reduce(f64::max);
            open.seen.throttled_s = longest.filter(|s| *s > 0.0);
            (open.next_ns, open.workers.next_ns) = (u64::MAX, u64::MAX);
        }
    }

    pub(super) fn taken(&self) -> Taken {
        let open = self.open.take();
        open.map_or_else(Taken::default, |open| Taken {
            throttled_periods: open.workers.periods(),
            repinned: Some(open.repinned).filter(|threads| *threads > 0),
            server: Some(open.seen).filter(|seen| seen.looks > 0),
        })
    }
}
