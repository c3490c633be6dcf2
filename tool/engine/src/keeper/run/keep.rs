//! The time for which all locks of `hold --for` are kept, from the keeper's side: all
//! clocks at both ends of it, what the workers counted meanwhile, their connections and
//! the server's memory.

use super::{Children, Reading, Run};
use crate::order::{LEASES, RunOrder, idle_ns};
use jostle_harness::accounts::Known;
use jostle_harness::{Aborted, Result};
use jostle_model::record::Kept;
use jostle_model::time::Nanos;
use jostle_sys::serving;
use jostle_targets::LEASE_FACT;
use jostle_worker::page::{Page, Word};
use jostle_worker::work::Work;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Between two looks while nothing is to be done.
const LOOK: Duration = Duration::from_millis(200);

/// The time for which locks were kept, as the keeper saw it.
pub(super) struct Keep {
    opened: Reading,
    closed: Reading,
    /// The workers' counts at both ends.
    counted: [Counted; 2],
    connections: Option<u64>,
    idle: Option<Idle>,
    /// The memory of the server before the first lock, and at the end of the time for which
    /// all of them were held.
    memory_bytes: Option<(u64, u64)>,
}

/// The clocks at both ends of a time in which the server had no locks.
pub(super) struct Idle(Reading, Reading);

/// Refuses to keep locks for too few of the leases that the service has granted, which may
/// be longer than those that were asked for.
pub(super) fn check(order: &RunOrder, work: &dyn Work) -> Result<()> {
    let span = order.workload.keeps();
    if span == Nanos::ZERO {
        return Ok(());
    }
    let (_, facts) = work.known();
    let lease = facts.get(LEASE_FACT).map_or(0.0, |ns| *ns);
    let lease = Nanos(lease as u64);
    let least = Nanos(lease.0.saturating_mul(LEASES));
    match span < least {
        true => Err(Aborted(format!(
            "{}: it grants leases of {lease}, and locks are kept for at least {LEASES} of them; \
             --for {least}",
            order.target
        ))),
        false => Ok(()),
    }
}

/// The counts on the pages of all workers together.
#[derive(Clone, Copy, Default)]
struct Counted {
    renewals: u64,
    round_trips: u64,
    bytes: u64,
}

impl Run<'_> {
    /// The server's use while workers are connected and hold nothing, before locks are kept for so
    /// long. None where nothing is known of the server.
    pub(super) fn look_at_idle(
        &self,
        span: Nanos,
        children: &mut Children,
    ) -> Result<Option<Idle>> {
        if self.books.server.family().is_empty() {
            return Ok(None);
        }
        let opened = self.read(children);
        let until = opened.at_ns + idle_ns(span);
        while self.now() < until {
            let left = Duration::from_nanos(until.saturating_sub(self.now()));
            self.heed_parent(left.min(LOOK))?;
            children.reap();
            self.refuse_losses(children)?;
        }
        let closed = self.read(children);
        Ok(Some(Idle(opened, closed)))
    }

    /// CPU time of the server between two readings, in seconds.
    fn server_s(&self, from: &Reading, to: &Reading, workers_ns: u64) -> Option<f64> {
        let carriers: Vec<u32> = from.cpu_ns.keys().copied().collect();
        let known = Known {
            between_ns: to.at_ns.saturating_sub(from.at_ns),
            workers: &carriers,
            workers_ns,
            ..Known::default()
        };
        self.books.close(&from.entry, &to.entry, &known).server_s
    }

    /// Lets the workers keep what they hold for so long. `before`: the server's memory
    /// before the first lock.
    pub(super) fn keep(
        &self,
        span: Nanos,
        (before, idle): (Option<u64>, Option<Idle>),
        children: &mut Children,
    ) -> Result<Keep> {
        let connections = self.connections(children);
        let opened = self.read(children);
        let from = self.counted();
        let until = opened.at_ns + span.0;
        while self.now() < until && !children.alive.is_empty() && !self.all_have_failed(children) {
            let now = self.now();
            let left = Duration::from_nanos(until.saturating_sub(now));
            self.heed_parent(left.min(LOOK).min(self.stops.patience(now)))?;
            children.reap();
            self.report(children, self.shared.opens().load(Relaxed), None);
        }
        let counted = [from, self.counted()];
        let closed = self.read(children);
        let after = self.books.server.resident_bytes();
        Ok(Keep {
            opened,
            closed,
            counted,
            connections,
            idle,
            memory_bytes: before.zip(after),
        })
    }

    fn counted(&self) -> Counted {
        let mut all = Counted::default();
        for worker in 0..self.order.workers {
            let page = self.shared.page(worker);
            all.renewals += page.get(Word::Renewals);
            all.round_trips += page.get(Word::RoundTrips);
            all.bytes += page.get(Word::Carried);
        }
        all
    }

    /// TCP connections that workers have and the keeper has not, whose descriptors they
    /// have inherited.
    fn connections(&self, children: &Children) -> Option<u64> {
        let workers: Vec<u32> = children.alive.keys().copied().collect();
        serving::connections_of(&workers, std::process::id()).filter(|_| self.work.is_remote())
    }

    /// The record of keeping, once all workers are gone.
    pub(super) fn kept(&self, keep: &Keep) -> Kept {
        let pages: Vec<Page<'_>> = (0..self.order.workers)
            .map(|worker| self.shared.page(worker))
            .collect();
        let sum = |word: Word| pages.iter().map(|page| page.get(word)).sum::<u64>();
        let [from, to] = keep.counted;
        let seconds = |ns: u64| ns as f64 / 1e9;
        let between_s = |from: &Reading, to: &Reading| seconds(to.at_ns.saturating_sub(from.at_ns));
        // One that has ended before knows nothing of what it used meanwhile.
        let complete = pages.iter().all(|page| page.get(Word::KeptFor) > 0);
        let cpu_ns = complete.then(|| sum(Word::KeptCpu));
        let idle = |Idle(from, to): &Idle| {
            let between_s = Some(between_s(from, to)).filter(|s| *s > 0.0)?;
            Some(1e6 * self.server_s(from, to, 0)? / between_s)
        };
        let first = pages.first().filter(|page| page.get(Word::Lease) > 0);
        let of_first = |word: Word| first.map(|page| page.get(word));
        let asked = to.round_trips > 0;
        Kept {
            kept_s: between_s(&keep.opened, &keep.closed),
            locks: self.order.workers as u64 * self.order.workload.operations().unwrap_or(0),
            lease_s: of_first(Word::Lease).map(seconds),
            renewed_every_s: of_first(Word::RenewedEvery).map(seconds),
            one_session: of_first(Word::OneSession).map(|one| one > 0),
            renewals: to.renewals - from.renewals,
            late: sum(Word::RenewedLate),
            lapsed: sum(Word::Lapsed),
            renewal_late_ns: None,
            round_trips: asked.then_some(to.round_trips - from.round_trips),
            bytes: asked.then_some(to.bytes - from.bytes),
            connections: keep.connections,
            cpu_s: cpu_ns.map(seconds),
            server_cpu_s: self.server_s(&keep.opened, &keep.closed, cpu_ns.unwrap_or(0)),
            server_idle_cpu_us_per_s: keep.idle.as_ref().and_then(idle),
            server_memory_before_bytes: keep.memory_bytes.map(|(before, _)| before),
            server_memory_bytes: keep.memory_bytes.map(|(_, held)| held),
        }
    }
}
