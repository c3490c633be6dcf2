//! All clocks at an edge of the window: of workers, server, machine and harness.

use super::{Children, Run};
use jostle_harness::accounts::Entry;
use jostle_harness::interference;
use jostle_harness::{MachineReading, harness_ns};
use jostle_sys::limits::cgroup::Throttled;
use jostle_sys::limits::cpu_group::CpuGroup;
use jostle_sys::limits::net::Counted;
use jostle_sys::stat::{self, CpuClock, Scheduled};
use std::collections::BTreeMap;

/// One reading of all clocks.
#[derive(Default)]
pub(crate) struct Reading {
    /// When, and how long it took.
    pub at_ns: u64,
    pub took_ns: u64,
    /// By process.
    pub cpu_ns: BTreeMap<u32, u64>,
    /// By thread of workers, or of an even sample of them; absent where the kernel does
    /// not count, and where they read their own.
    pub scheduled: Option<Vec<Scheduled>>,
    /// Clocks of all other processes and of the server's threads.
    pub entry: Entry,
    /// The machine; canary and asker are of the harness.
    pub machine: MachineReading,
    /// Interrupts; None where the kernel does not tell, or where reading them would take too much
    /// of the window.
    pub interrupts: Option<interference::Reading>,
    /// How often each generator that has a quota of its own was stopped by it.
    pub groups: Vec<Throttled>,
}

impl Run<'_> {
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
        let scheduled = self.queues.borrow().read();
        let ticks = stat::machine_ticks().unwrap_or_default();
        let entry = self.books.enter();
        let counts_interrupts = self.counts_interrupts;
        let interrupts = counts_interrupts
            .then(interference::Reading::take)
            .flatten();
        Reading {
            at_ns,
            took_ns: self.now() - at_ns,
            cpu_ns,
            scheduled,
            entry,
            machine: MachineReading {
                ticks,
                harness_ns: harness_ns() + canary_ns + self.asker.cpu_ns(),
                throttled: self.context.throttled(),
                tcp: self.work.is_remote().then(Counted::read).flatten(),
            },
            interrupts,
            groups: self.groups.iter().map(CpuGroup::throttled).collect(),
        }
    }
}
