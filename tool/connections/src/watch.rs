//! One look at a sweep in progress, for whoever watches it.

use crate::crew::Role;
use crate::figures::merged;
use crate::sweep::Sweep;
use jostle_harness::{accounts, harness_ns};
use jostle_sys::stat::CpuClock;
use jostle_worker::order::{Running, Used};
use jostle_worker::workloads::connect::board::{BoardHistogram, Count};

impl Sweep<'_> {
    /// Tells the parent how far the sweep is, where somebody watches and it is time.
    pub(crate) fn report(&self) {
        let began = self.context.clock.now();
        if self.watch.is_due(began, None) {
            let running = self.look_at_board(began.saturating_sub(self.began_ns));
            let now = self.context.clock.now();
            self.watch.tell(self.context, began, now, running);
        }
    }

    fn look_at_board(&self, elapsed_ns: u64) -> Running {
        let stretches = || 0..self.board.ends().len();
        let (name, figures) = match self.order.only {
            Some(_) => ("bind_ns", &[BoardHistogram::Bind][..]),
            None => (
                "connect_ns",
                &[BoardHistogram::Even, BoardHistogram::Odd][..],
            ),
        };
        let mut tally = self.board.tallies(stretches(), figures[0]);
        for figure in &figures[1..] {
            tally.add(&self.board.tallies(stretches(), *figure));
        }
        Running {
            elapsed_ns,
            operations: self.board.get(Count::Opened),
            planned: self.order.open.last().copied(),
            latency: merged(tally).map(|merged| (name.to_owned(), merged)),
            cpu: self.used_so_far(),
            ..Running::default()
        }
    }

    fn used_so_far(&self) -> Used {
        let clock = |pid: u32| CpuClock::of(pid).ok()?.read();
        let of = |wanted: Role| {
            let alive = self.alive.iter();
            let mine = alive.filter(move |(_, (kind, _))| *kind == wanted);
            mine.filter_map(|(pid, _)| clock(*pid)).sum()
        };
        Used {
            workers_ns: of(Role::Client),
            server_ns: (self.crew.servers > 0).then(|| of(Role::Server)),
            tool_ns: harness_ns(),
            whole_ns: accounts::busy_ns(),
        }
    }
}
