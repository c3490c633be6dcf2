//! One look at a run in progress, for whoever watches it.

use super::{Children, Run};
use crate::order::{Merged, Running, Used, shares};
use jostle_harness::harness_ns;
use jostle_model::plan::Measure;
use jostle_sys::stat::CpuClock;
use jostle_worker::page::{self, Page, PageHistogram, Stage, WRITERS, Word};

impl Run<'_> {
    /// Looks at the sockets, and tells the parent how far the run is, where somebody watches,
    /// each when it is time.
    /// `closes`: the end of the window, if that is known.
    pub(super) fn report(&self, children: &Children, opens: u64, closes: Option<u64>) {
        self.sockets.look(self);
        self.stops.look(self, children);
        let began = self.now();
        if self.watch.is_due(began, closes) {
            let running = self.look(children, began.saturating_sub(opens));
            self.watch.tell(self.context, began, self.now(), running);
        }
    }

    fn look(&self, children: &Children, elapsed_ns: u64) -> Running {
        let pages = || (0..self.order.workers).map(|worker| self.shared.page(worker));
        let each: Vec<u64> = pages().map(|page| self.so_far(&page)).collect();
        let full = self.order.measure == Measure::Full;
        let counted = self.order.workload.operations();
        Running {
            elapsed_ns,
            window_ns: counted.is_none().then_some(self.order.window.0),
            operations: each.iter().sum(),
            planned: counted.map(|each| each * self.order.workers as u64),
            workers: each.len() as u64,
            none: each.iter().filter(|count| **count == 0).count() as u64,
            shares: shares(each),
            latency: full.then(|| self.latency()).flatten(),
            overlaps: (full && self.work.excludes())
                .then(|| pages().map(|page| page.get(Word::Overlaps)).sum()),
            cpu: self.used(children),
            took_ns: 0,
        }
    }

    /// Operations of a worker since the opening. One that only counts notes them when it
    /// ends, and until then its total and where the window began.
    fn so_far(&self, page: &Page<'_>) -> u64 {
        let counts = self.order.measure == Measure::Counts;
        match counts && page.get(Word::Stage) == Stage::Working as u64 {
            true => page.get(Word::Total).saturating_sub(page.get(Word::Base)),
            false => page.get(Word::Operations),
        }
    }

    fn latency(&self) -> Option<(String, Merged)> {
        if let Some((name, merged)) = self.work.latency() {
            return Some((name.to_owned(), merged));
        }
        let name = match self.order.workload.pipeline() {
            0 | 1 => "acquire_ns",
            _ => "batch_ns",
        };
        let figures: &[PageHistogram] = match self.order.has_readers() {
            true => &[PageHistogram::Acquire, WRITERS],
            false => &[PageHistogram::Acquire],
        };
        let pages = (0..self.order.workers).map(|worker| self.shared.page(worker));
        let merged = page::merged(pages, figures);
        (!merged.buckets.0.is_empty()).then(|| (name.to_owned(), merged))
    }

    fn used(&self, children: &Children) -> Used {
        let clock = |pid: u32| CpuClock::of(pid).ok()?.read();
        let workers = children.alive.iter().filter(|(_, of)| !of.is_empty());
        Used {
            workers_ns: workers.filter_map(|(pid, _)| clock(*pid)).sum(),
            server_ns: self.books.server.cpu_ns(),
            tool_ns: harness_ns(),
            whole_ns: self.books.whole_ns(),
        }
    }
}
