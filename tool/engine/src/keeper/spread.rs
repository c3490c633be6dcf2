//! What the generators did over which requests were spread, and which CPUs they and
//! the server may use.

use super::run::{Reading, Seen};
use crate::order::{GeneratorData, RunOrder, Sides, SpreadData, SpreadOrder};
use jostle_harness::accounts::ServerProcesses;
use jostle_sys::cpu;
use jostle_sys::limits::cgroup;
use jostle_targets::Spec;
use jostle_worker::page::{Page, Word};
use jostle_worker::workloads::requests::standstill;
use std::ops::Range;

/// What the generators did in the window from the first stamp to the second.
pub(super) fn collect(
    order: &RunOrder,
    spread: &SpreadOrder,
    pages: &[Page<'_>],
    seen: &Seen,
    server: &ServerProcesses,
    window: (u64, u64),
    remote: bool,
) -> SpreadData {
    let of = spread.generators;
    let generators = (0..of).map(|nth| generator(nth, order.dealt(nth, of), pages, seen, window));
    SpreadData {
        generators: generators.collect(),
        in_flight_ns: pages.iter().map(|page| in_flight(page, window)).sum(),
        sides: vec![sides(order, spread, server, remote)],
    }
}

/// A worker that was killed could not note its last request by itself.
fn in_flight(page: &Page<'_>, (opens, closes): (u64, u64)) -> u64 {
    let pending = page.get(Word::PendingSince);
    let last = match pending {
        0 => 0,
        since => closes.saturating_sub(since.max(opens)),
    };
    page.get(Word::InFlight) + last
}

fn generator(
    nth: usize,
    workers: Range<usize>,
    pages: &[Page<'_>],
    seen: &Seen,
    (opens, closes): (u64, u64),
) -> GeneratorData {
    let (from, to) = (&seen.opened, &seen.closed);
    let between = to.at_ns.saturating_sub(from.at_ns).max(1) as f64;
    let scale = closes.saturating_sub(opens) as f64 / between;
    let first = &pages[workers.start];
    let pid = first.get(Word::Pid) as u32;
    let cpu = |reading: &Reading| reading.cpu_ns.get(&pid).copied();
    let cpu_ns = cpu(from).zip(cpu(to));
    // A generator that stalls at the end cannot record it.
    let attended = first.get(Word::Attended).max(opens);
    let silent = closes.saturating_sub(attended);
    let still = if silent > standstill::LEAST_NS {
        silent
    } else {
        0
    };
    GeneratorData {
        rank: None,
        of_cpus: None,
        workers: workers.len() as u64,
        operations: workers
            .clone()
            .map(|worker| pages[worker].get(Word::Operations))
            .sum(),
        cpu_ns: cpu_ns.map(|(from, to)| (to.saturating_sub(from) as f64 * scale) as u64),
        busiest: busiest(workers, from, to, between),
        periods: from
            .groups
            .get(nth)
            .zip(to.groups.get(nth))
            .map(|(from, to)| {
                (
                    to.periods.saturating_sub(from.periods),
                    to.throttled_periods.saturating_sub(from.throttled_periods),
                )
            }),
        still_ns: first.get(Word::Still) + still,
    }
}

/// The load of the thread with the most CPU time and time on the run queue.
fn busiest(workers: Range<usize>, from: &Reading, to: &Reading, wall: f64) -> Option<(f64, f64)> {
    let (from, to) = (from.scheduled.as_ref()?, to.scheduled.as_ref()?);
    let shares = workers.filter_map(|worker| {
        let (from, to) = (from.get(worker)?, to.get(worker)?);
        let queued = to.waited_ns.saturating_sub(from.waited_ns) as f64;
        let ran = to.ran_ns.saturating_sub(from.ran_ns) as f64;
        Some(((ran + queued) / wall, queued / wall))
    });
    shares.max_by(|one, other| one.0.total_cmp(&other.0))
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
        generator_cpus: match order.cpus.is_empty() {
            true => cpu::allowed(),
            false => order.cpus.clone(),
        },
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
        assert_eq!(busiest(0..2, &from, &to, 1_000.0), Some((0.85, 0.75)));
        assert_eq!(busiest(2..3, &from, &to, 1_000.0), Some((1.0, 0.0)));
        assert_eq!(busiest(0..2, &Reading::default(), &to, 1_000.0), None);
    }
}
