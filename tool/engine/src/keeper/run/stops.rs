//! Looks, while workers work, at whether the server stands still: stopped by a signal, held by
//! a tracer, or frozen; and for how long its CPU quota kept it from running.

use super::Run;
use jostle_model::record::Stood;
use jostle_sys::limits::cgroup;
use jostle_sys::{process, stat};
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

/// Between two looks, in nanoseconds.
const EVERY_NS: u64 = 20_000_000;

/// Time between two looks, by the CPU time that the last one took, as in [`super::slices`].
const REST: u64 = 200;

/// All looks of a run; None where no process of a server is known.
#[derive(Default)]
pub(super) struct Stops(RefCell<Option<Open>>);

struct Open {
    pids: Vec<u32>,
    quotas: Vec<(PathBuf, u64)>,
    next_ns: u64,
    seen: Stood,
}

impl Stops {
    /// The window has opened.
    pub(super) fn open(&self, run: &Run<'_>) {
        let pids = run.books.server.roots();
        let Some(first) = pids.first() else {
            return;
        };
        let quotas = cgroup::cpu_stats_of(*first).into_iter();
        let quotas = quotas.filter_map(|file| cgroup::throttled_ns(&file).map(|ns| (file, ns)));
        *self.0.borrow_mut() = Some(Open {
            quotas: quotas.collect(),
            pids,
            next_ns: 0,
            seen: Stood::default(),
        });
    }

    /// How long to sleep at most.
    pub(super) fn patience(&self, now_ns: u64) -> Duration {
        let open = self.0.borrow();
        let next_ns = open.as_ref().map_or(u64::MAX, |open| open.next_ns);
        Duration::from_nanos(next_ns.saturating_sub(now_ns))
    }

    /// Looks, if it is time.
    pub(super) fn look(&self, run: &Run<'_>) {
        let (mut open, now_ns) = (self.0.borrow_mut(), run.now());
        let Some(open) = open.as_mut().filter(|open| now_ns >= open.next_ns) else {
            return;
        };
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
    pub(super) fn close(&self) {
        if let Some(open) = self.0.borrow_mut().as_mut() {
            let since = |(file, before): &(PathBuf, u64)| {
                Some(cgroup::throttled_ns(file)?.saturating_sub(*before) as f64 / 1e9)
            };
            let longest = open.quotas.iter().filter_map(since).reduce(f64::max);
            open.seen.throttled_s = longest.filter(|s| *s > 0.0);
            open.next_ns = u64::MAX;
        }
    }

    pub(super) fn taken(&self) -> Option<Stood> {
        Some(self.0.take()?.seen).filter(|seen| seen.looks > 0)
    }
}
