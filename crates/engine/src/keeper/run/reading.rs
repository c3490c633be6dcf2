//! All clocks at an edge of the window: of workers, server, machine and harness.

use super::{Children, Run};
use crate::page::Word;
use crate::work::Work;
use jostle_sys::limits::cgroup::Throttled;
use jostle_sys::limits::cpu_group::CpuGroup;
use jostle_sys::stat::{self, CpuClock, MachineTicks, Scheduled};
use std::collections::BTreeMap;

/// Reading the workers' clocks may take one part in so many of the window.
const READING_PER_WINDOW: u64 = 100;

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

impl<T: Work> Run<'_, T> {
    pub(super) fn read(&self, children: &Children) -> Reading {
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
}
