//! The work of the generators over which requests were spread, and the CPUs that they and the
//! server may use.

use super::collect::{busiest, thread_load};
use super::run::{Reading, Seen};
use crate::order::{RunOrder, Sides, SpreadData, SpreadOrder};
use jostle_harness::accounts::ServerProcesses;
use jostle_model::record::{GeneratorProcess, ThreadLoad};
use jostle_sys::cpu;
use jostle_sys::limits::cgroup;
use jostle_targets::Spec;
use jostle_worker::page::{Page, Word};
use jostle_worker::workloads::requests::standstill;
use std::ops::Range;

/// The requests in flight in the window from the first stamp to the second.
pub(super) fn in_flight(
    order: &RunOrder,
    spread: &SpreadOrder,
    pages: &[Page<'_>],
    window: (u64, u64),
    server: &ServerProcesses,
    remote: bool,
) -> SpreadData {
    let generators = (0..spread.generators).map(|nth| order.dealt(nth, spread.generators));
    let still = |of: Range<usize>| of.len() as u64 * still_ns(&pages[of.start], window);
    SpreadData {
        in_flight_ns: pages.iter().map(|page| in_flight_ns(page, window)).sum(),
        still_ns: generators.map(still).sum(),
        sides: vec![sides(order, spread, server, remote)],
    }
}

/// A worker that was killed could not note its last request by itself.
fn in_flight_ns(page: &Page<'_>, (opens, closes): (u64, u64)) -> u64 {
    let pending = page.get(Word::PendingSince);
    let last = match pending {
        0 => 0,
        since => closes.saturating_sub(since.max(opens)),
    };
    page.get(Word::InFlight) + last
}

/// How long a generator stood still, by the page of its first worker. One that stalls at the
/// end cannot record it.
fn still_ns(first: &Page<'_>, (opens, closes): (u64, u64)) -> u64 {
    let silent = closes.saturating_sub(first.get(Word::Attended).max(opens));
    let stalls = Some(silent).filter(|silent| *silent > standstill::LEAST_NS);
    first.get(Word::Still) + stalls.unwrap_or(0)
}

/// The work of the generators in that window, one after the other.
pub(super) fn generators(
    order: &RunOrder,
    spread: &SpreadOrder,
    pages: &[Page<'_>],
    seen: &Seen,
    window: (u64, u64),
) -> Vec<ThreadLoad> {
    let each = (0..spread.generators).map(|nth| generator(order, spread, nth, pages, seen, window));
    let mut loads: Vec<ThreadLoad> = each.collect();
    // With several hosts, what all of a machine used is known once their data are one.
    if order.share.is_none() {
        let window_s = window.1.saturating_sub(window.0) as f64 / 1e9;
        share_cpus(&mut loads, cpus(order).len(), window_s);
    }
    loads
}

/// No thread that shares a CPU with many is busy for long before all are.
fn share_cpus(loads: &mut [ThreadLoad], cpus: usize, window_s: f64) {
    let used_s: f64 = loads.iter().filter_map(|load| load.process?.cpu_s).sum();
    let of_cpus = used_s / (cpus.max(1) as f64 * window_s.max(1e-9));
    for load in loads {
        load.busy_share = load.busy_share.max(of_cpus);
    }
}

/// The CPUs of the generators.
fn cpus(order: &RunOrder) -> Vec<usize> {
    match order.cpus.is_empty() {
        true => cpu::allowed(),
        false => order.cpus.clone(),
    }
}

fn generator(
    order: &RunOrder,
    spread: &SpreadOrder,
    nth: usize,
    pages: &[Page<'_>],
    seen: &Seen,
    window: (u64, u64),
) -> ThreadLoad {
    let workers = order.dealt(nth, spread.generators);
    let (from, to) = (&seen.opened, &seen.closed);
    let between_ns = to.at_ns.saturating_sub(from.at_ns).max(1);
    let window_ns = window.1.saturating_sub(window.0) as f64;
    let first = &pages[workers.start];
    let pid = first.get(Word::Pid) as u32;
    let cpu = |reading: &Reading| reading.cpu_ns.get(&pid).copied();
    let scale = window_ns / between_ns as f64;
    let used = |(from, to): (u64, u64)| (to.saturating_sub(from) as f64 * scale).floor();
    let cpu_ns = cpu(from).zip(cpu(to)).map(used);
    // A throttled thread does not wait for a CPU by the scheduler's count.
    let of_quota = spread.generator_cpu.zip(cpu_ns);
    let of_quota = of_quota.map_or(0.0, |(quota, cpu_ns)| cpu_ns / (quota * window_ns.max(1.0)));
    let groups = from.groups.get(nth).zip(to.groups.get(nth));
    let load = busiest_of(workers.clone(), from, to, between_ns).unwrap_or_default();
    let operations = pages[workers.clone()].iter();
    ThreadLoad {
        busy_share: load.busy_share.max(of_quota),
        process: Some(GeneratorProcess {
            rank: None,
            workers: workers.len() as u64,
            operations: operations.map(|page| page.get(Word::Operations)).sum(),
            cpu_s: cpu_ns.map(|ns| ns / 1e9),
            throttled_share: groups.map(|(from, to)| {
                let throttled = to.throttled_periods.saturating_sub(from.throttled_periods);
                throttled as f64 / to.periods.saturating_sub(from.periods).max(1) as f64
            }),
            still_share: still_ns(first, window) as f64 / window_ns.max(1.0),
        }),
        ..load
    }
}

/// The load of the thread with the most CPU time and time on the run queue.
fn busiest_of(
    workers: Range<usize>,
    from: &Reading,
    to: &Reading,
    wall_ns: u64,
) -> Option<ThreadLoad> {
    let (from, to) = (from.scheduled.as_ref()?, to.scheduled.as_ref()?);
    busiest(workers.filter_map(|worker| {
        let (from, to) = (from.get(worker)?, to.get(worker)?);
        let queued = to.waited_ns.saturating_sub(from.waited_ns);
        thread_load(to.ran_ns.saturating_sub(from.ran_ns), queued, wall_ns)
    }))
}

fn sides(order: &RunOrder, spread: &SpreadOrder, server: &ServerProcesses, remote: bool) -> Sides {
    let group = server.group();
    let roots = server.roots();
    let quota = match group {
        Some(group) => group.quota(),
        None => roots.first().copied().and_then(cgroup::cpu_quota_of),
    };
    Sides {
        remote,
        elsewhere: Spec::parse(&order.target).is_ok_and(|spec| spec.is_elsewhere()),
        generator_cpus: cpus(order),
        server_cpus: match group {
            Some(group) => group.cpus(),
            None => allowed_of(&roots),
        },
        generator_quota: spread
            .generator_cpu
            .map(|cpus| cpus * spread.generators as f64),
        server_quota: quota.map(|quota| quota.cpus),
    }
}

/// The CPUs of all of them; None where there are none, or where one cannot be looked at.
fn allowed_of(roots: &[u32]) -> Option<Vec<usize>> {
    let each: Option<Vec<Vec<usize>>> = roots.iter().map(|pid| cpu::allowed_of(*pid)).collect();
    let mut cpus = each?.concat();
    cpus.sort_unstable();
    cpus.dedup();
    (!cpus.is_empty()).then_some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_sys::stat::Scheduled;

    #[test]
    fn a_generator_is_as_busy_as_the_cpus_that_all_share() {
        let load = |busy_share, cpu_s| ThreadLoad {
            busy_share,
            process: Some(GeneratorProcess {
                cpu_s: Some(cpu_s),
                ..GeneratorProcess::default()
            }),
            ..ThreadLoad::default()
        };
        // All of them used 0.58 of their CPU, and the second 0.96 of its quota.
        let mut loads = [load(0.3, 0.10), load(0.96, 0.48)];
        share_cpus(&mut loads, 1, 1.0);
        let busy = loads.map(|load| (load.busy_share * 100.0).round());
        assert_eq!(busy, [58.0, 96.0]);
    }

    #[test]
    fn a_generator_is_as_busy_as_its_busiest_thread_which_may_only_wait_for_a_cpu() {
        let reading = |each: &[(u64, u64)]| Reading {
            scheduled: Some(
                each.iter()
                    .map(|(ran_ns, waited_ns)| Scheduled {
                        ran_ns: *ran_ns,
                        waited_ns: *waited_ns,
                        switches: 0,
                    })
                    .collect(),
            ),
            ..Reading::default()
        };
        let from = reading(&[(100, 10), (100, 10), (0, 0)]);
        let to = reading(&[(400, 20), (200, 760), (1_000, 0)]);
        // The third worker belongs to a second generator.
        let busiest = |workers, from| {
            let load = busiest_of(workers, from, &to, 1_000)?;
            Some((load.busy_share, load.runqueue_share))
        };
        assert_eq!(busiest(0..2, &from), Some((0.85, 0.75)));
        assert_eq!(busiest(2..3, &from), Some((1.0, 0.0)));
        assert_eq!(busiest(0..2, &Reading::default()), None);
    }
}
