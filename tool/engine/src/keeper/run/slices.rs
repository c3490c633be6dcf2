//! Short looks at counters and clocks within the window, so that the slices in which
//! nothing foreign ran can be told from the others.
//!
//! Clocks step by up to a tick while a task runs, but the clock of a CPU and that of the
//! task on it step together: what a CPU ran less what ours used is exact to microseconds.

use super::{Children, Run};
use crate::order::WorkloadOrder;
use jostle_model::record::Readings;
use jostle_sys::stat::{self, CpuClock};
use jostle_worker::page::Word;
use std::cell::RefCell;
use std::time::Duration;

/// Between two looks, in nanoseconds.
const EVERY_NS: u64 = 20_000_000;

/// Time between two looks, by the CPU time that the last one took: with many workers it
/// takes longer, and costs at most 0.5 % of a CPU all the same.
const REST: u64 = 200;

/// All slices of a window.
#[derive(Default)]
pub(super) struct Slices(RefCell<Option<Open>>);

struct Open {
    clocks: Vec<CpuClock>,
    next_ns: u64,
    last: Look,
    rows: Readings,
}

/// Counters and clocks at a moment.
#[derive(Clone, Copy)]
struct Look {
    at_ns: u64,
    operations: u64,
    /// Our CPUs, and what ours used of all.
    cpus_ns: u64,
    ours_ns: u64,
    stolen: u64,
    packets: u64,
}

impl Slices {
    /// The window has opened. Nothing is looked at where the CPUs have no clocks, where
    /// ours start programs of their own, or where other hosts take part.
    pub(super) fn open(&self, run: &Run<'_>, children: &Children) {
        let order = run.order;
        let apart = !matches!(order.workload, WorkloadOrder::Contend(_)) || order.share.is_some();
        if apart || run.books.ours_ns().is_none() {
            return;
        }
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
        let pids = children.alive.keys().copied().chain(parent);
        let clocks = pids.chain(run.books.server.family());
        let clocks = clocks.filter_map(|pid| CpuClock::of(pid).ok());
        let clocks: Vec<CpuClock> = clocks.collect();
        let Some(last) = run.slice(&clocks) else {
            return;
        };
        *self.0.borrow_mut() = Some(Open {
            next_ns: last.at_ns + EVERY_NS,
            clocks,
            last,
            rows: Readings::default(),
        });
    }

    /// How long to sleep at most.
    pub(super) fn patience(&self, now_ns: u64) -> Duration {
        let next_ns = self
            .0
            .borrow()
            .as_ref()
            .map_or(u64::MAX, |open| open.next_ns);
        Duration::from_nanos(next_ns.saturating_sub(now_ns))
    }

    /// Looks, if it is time.
    pub(super) fn look(&self, run: &Run<'_>) {
        let mut open = self.0.borrow_mut();
        let Some(open) = open.as_mut().filter(|open| run.now() >= open.next_ns) else {
            return;
        };
        let began_ns = stat::own_cpu_ns();
        let Some(look) = run.slice(&open.clocks) else {
            return;
        };
        let took_ns = stat::own_cpu_ns() - began_ns;
        open.next_ns = look.at_ns + EVERY_NS.max(REST * took_ns);
        let (from, rows) = (std::mem::replace(&mut open.last, look), &mut open.rows);
        let moved = |of: fn(&Look) -> u64| of(&look).saturating_sub(of(&from));
        let foreign_ns = moved(|l| l.cpus_ns).saturating_sub(moved(|l| l.ours_ns));
        let all_ns = moved(|l| l.at_ns) * run.books.cpus().len() as u64;
        rows.length_us.push(moved(|l| l.at_ns) / 1_000);
        rows.idle_us
            .push(all_ns.saturating_sub(moved(|l| l.cpus_ns)) / 1_000);
        rows.operations.push(moved(|l| l.operations));
        rows.foreign_us.push(foreign_ns / 1_000);
        rows.stolen_ticks.push(moved(|l| l.stolen));
        rows.packets.push(moved(|l| l.packets));
    }

    /// The readings; None where nothing was seen.
    pub(super) fn taken(&self) -> Option<Readings> {
        let rows = self.0.borrow_mut().take()?.rows;
        (!rows.length_us.is_empty()).then_some(rows)
    }
}

impl Run<'_> {
    fn slice(&self, clocks: &[CpuClock]) -> Option<Look> {
        let at_ns = self.now();
        let pages = (0..self.order.workers).map(|worker| self.shared.page(worker));
        let operations = pages.map(|page| page.get(Word::Total)).sum();
        let stolen = self.books.stolen();
        let packets = self.books.packets();
        // Our own clock first: reading it brings that of our CPU up to date.
        let own_ns = stat::own_cpu_ns();
        let cpus_ns = self.books.ours_ns()?;
        // One that has ended keeps no clock: what is missing then looks foreign.
        let others_ns: u64 = clocks.iter().filter_map(|clock| clock.read()).sum();
        Some(Look {
            at_ns,
            operations,
            cpus_ns,
            ours_ns: own_ns + others_ns,
            stolen,
            packets,
        })
    }
}
