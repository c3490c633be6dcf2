//! The owners of CPU time where ranks share a machine: pure.
//!
//! The kernel counts the ticks of a whole machine, and each rank on it reads the same ones.
//! For each rank, the CPU time of the other ranks of its machine counts as the tool's own,
//! and not as a foreign program's. A machine's ticks count once, whichever rank reads them.

use super::{Host, Part};
use crate::order::{RunData, Sides};
use jostle_harness::steal_share;
use jostle_model::plan::Place;
use jostle_model::record::{Accounts, Machine, Neighbour, TcpCounts, TcpQueues};
use std::collections::BTreeSet;

/// Each machine's data once: ranks that are the `same` know it together, and the first of
/// them stands for all.
pub(super) fn once<'a, D: Copy>(
    each: &'a [(usize, D)],
    same: impl Fn(usize, usize) -> bool + 'a,
) -> impl Iterator<Item = D> + 'a {
    let placed = each.iter().enumerate();
    placed
        .filter(move |(nth, (rank, _))| {
            let mut earlier = each[..*nth].iter();
            !earlier.any(|(other, _)| same(*other, *rank))
        })
        .map(|(_, (_, data))| *data)
}

/// All machines of the ranks that took part, each counted once.
pub(super) fn together(hosts: &[Host], each: &[(usize, Machine)]) -> Machine {
    let of_all = || each.iter().map(|(_, machine)| machine);
    let once: Vec<Machine> = once(each, |one, other| share(hosts, one, other)).collect();
    let sum = |figure: fn(&Machine) -> u64| once.iter().map(figure).sum::<u64>();
    let (busy, stolen) = (sum(|m| m.busy_ticks), sum(|m| m.stolen_ticks));
    Machine {
        ticks: sum(|m| m.ticks),
        busy_ticks: busy,
        stolen_ticks: stolen,
        softirq_ticks: sum(|m| m.softirq_ticks),
        interrupts: any_sum(once.iter().map(|m| m.interrupts)),
        ticks_per_s: once.first().map_or(0, |m| m.ticks_per_s),
        cores: sum(|m| m.cores),
        harness_cpu_s: of_all().map(|m| m.harness_cpu_s).sum(),
        steal_share: steal_share(busy, stolen),
        throttled_periods: any_sum(of_all().map(|m| m.throttled_periods)),
        repinned: any_sum(of_all().map(|m| m.repinned)),
        halts: any_sum(of_all().map(|m| m.halts)),
        tcp: once
            .iter()
            .filter_map(|m| m.tcp)
            .reduce(|one, other| TcpCounts {
                overflows: one.overflows + other.overflows,
                syn_again: one.syn_again + other.syn_again,
                delayed_acks: one.delayed_acks + other.delayed_acks,
            }),
        tcp_queues: once
            .iter()
            .filter_map(|m| m.tcp_queues)
            .reduce(|one, other| TcpQueues {
                looks: one.looks + other.looks,
                connections: one.connections + other.connections,
                unread: one.unread + other.unread,
                looks_unread: one.looks_unread + other.looks_unread,
                unsent: one.unsent + other.unsent,
            }),
        between_s: between_s(&once),
    }
}

/// The accounts of all machines: what ranks of one machine read of it counts once, what
/// each used adds up. None where a rank has none.
pub(super) fn accounts_together(hosts: &[Host], each: &[(usize, Accounts)]) -> Option<Accounts> {
    let parts: Vec<(usize, &Accounts)> = each.iter().map(|(rank, own)| (*rank, own)).collect();
    let once: Vec<&Accounts> = once(&parts, |one, other| share(hosts, one, other)).collect();
    let all = || each.iter().map(|(_, accounts)| accounts);
    let seen = |figure: fn(&Accounts) -> Option<f64>| once.iter().map(|a| figure(a)).sum();
    let known = |figure: fn(&Accounts) -> Option<f64>| all().map(figure).sum();
    let any = |figure: fn(&Accounts) -> Option<f64>| {
        all().filter_map(figure).reduce(|one, other| one + other)
    };
    let largest = |of: fn(&Accounts) -> &Vec<Neighbour>| {
        let mut each: Vec<Neighbour> = once.iter().flat_map(|a| of(a).clone()).collect();
        each.sort_by(|one, other| other.cpu_s.total_cmp(&one.cpu_s));
        each.truncate(3);
        each
    };
    Some(Accounts {
        between_s: all().map(|a| a.between_s).reduce(f64::max)?,
        cpus: once.iter().map(|a| a.cpus).sum(),
        workers_s: all().map(|a| a.workers_s).sum(),
        requests_s: any(|a| a.requests_s),
        server_s: all().filter_map(|a| a.server_s).reduce(f64::max),
        tool_s: all().map(|a| a.tool_s).sum(),
        others_s: seen(|a| a.others_s),
        others: largest(|a| &a.others),
        machine_s: once.iter().map(|a| a.machine_s).sum(),
        kernel_threads: largest(|a| &a.kernel_threads),
        whole_s: seen(|a| a.whole_s),
        unexplained_s: seen(|a| a.unexplained_s),
        foreign_s: seen(|a| a.foreign_s),
        softirq_ticks: once.iter().map(|a| a.softirq_ticks).sum(),
        packets: once.iter().map(|a| a.packets).sum(),
        own_packets: all().map(|a| a.own_packets).sum(),
        readings: None,
        waited_s: known(|a| a.waited_s),
        waited_coverage: all().filter_map(|a| a.waited_coverage).reduce(f64::min),
        stolen_s: seen(|a| a.stolen_s),
    })
}

/// So long that all CPUs together had the time that they had: the mean over CPUs.
fn between_s(machines: &[Machine]) -> Option<f64> {
    let cores: u64 = machines.iter().map(|m| m.cores).sum();
    let times = machines
        .iter()
        .map(|m| Some(m.between_s? * m.cores as f64))
        .sum::<Option<f64>>()?;
    (cores > 0).then(|| times / cores as f64)
}

/// A host's data as it is judged by itself: the CPU time of the other ranks on its machine
/// counts as that of the tool's other processes, and the server's counts, which are of all
/// hosts, are left out.
pub(super) fn own_view(hosts: &[Host], parts: &[Part], part: &Part) -> RunData {
    let mut data = part.of.data.clone();
    let used: Vec<(usize, Option<f64>)> = parts
        .iter()
        .map(|part| (part.of.rank, used_s(&part.of.data)))
        .collect();
    data.around.machine = without_neighbours(hosts, &used, part.of.rank, data.around.machine);
    let neighbours = || {
        parts
            .iter()
            .filter(|other| is_neighbour(hosts, other.of.rank, part.of.rank))
            .map(|other| &other.of.data)
    };
    let server_s = |data: &RunData| data.server?.cpu_s;
    if server_s(&data).is_none() {
        let seen = neighbours().filter_map(server_s).reduce(f64::max);
        data.around.machine.harness_cpu_s += seen.unwrap_or(0.0);
    }
    if let Some(server) = &mut data.server {
        (server.counted, server.binds, server.unbinds) = (None, None, None);
    }
    if data.spread.is_some() {
        data.thread_loads = super::merge::generators(hosts, parts, part);
    }
    data
}

/// A rank's reading of its machine, where the CPU time that each rank used (None: not known) is
/// that of the tool's own other processes to its neighbours.
pub(super) fn without_neighbours(
    hosts: &[Host],
    used_s: &[(usize, Option<f64>)],
    rank: usize,
    mut machine: Machine,
) -> Machine {
    let neighbours = used_s
        .iter()
        .filter(|(other, _)| is_neighbour(hosts, *other, rank));
    match neighbours.map(|(_, used_s)| *used_s).sum::<Option<f64>>() {
        Some(used_s) => machine.harness_cpu_s += used_s,
        // Without what a neighbour used, the ticks say nothing about others.
        None => {
            (machine.ticks, machine.busy_ticks, machine.stolen_ticks) = (0, 0, 0);
            machine.between_s = None;
        }
    }
    machine
}

/// The share that generators used of the CPUs that this rank's machine allows them. When
/// many threads share a CPU, none of them is busy for long before all are.
pub(super) fn generators_of_cpus(hosts: &[Host], parts: &[Part], rank: usize) -> f64 {
    let here = || parts.iter().filter(|part| share(hosts, part.of.rank, rank));
    let generators = here().flat_map(|part| &part.of.data.thread_loads);
    let used_s: f64 = generators.filter_map(|load| load.process?.cpu_s).sum();
    let windows_s = here().map(|part| part.of.data.window.window_s);
    let window_s = windows_s.reduce(f64::max).unwrap_or(0.0);
    let allowed = || {
        here()
            .filter_map(|part| Some(hosts.get(part.of.rank)?.cpus))
            .sum::<u64>()
    };
    let cpus = match here().next().map(|part| &part.order.place) {
        Some(Place::Cpus(cpus)) => cpus.len() as u64,
        // Ranks that may use the same CPUs each count them.
        _ => {
            let cores = here().map(|part| part.of.data.around.machine.cores).max();
            allowed().min(cores.filter(|cores| *cores > 0).unwrap_or(u64::MAX))
        }
    };
    used_s / (cpus.max(1) as f64 * window_s.max(1e-9))
}

/// The joint knowledge of the ranks of each machine with generators about their CPUs and the
/// server's. The server is here if one rank has found its process, or has its address.
pub(super) fn sides(hosts: &[Host], parts: &[Part]) -> Vec<Sides> {
    let known = |part: &Part| {
        let spread = part.of.data.spread.as_deref()?;
        spread.sides.first().cloned()
    };
    let mut machines: Vec<(usize, Sides)> = Vec::new();
    let parts = parts.iter();
    for (rank, sides) in parts.filter_map(|part| Some((part.of.rank, known(part)?))) {
        let here = |(other, _): &&mut (usize, Sides)| share(hosts, *other, rank);
        match machines.iter_mut().find(here) {
            None => machines.push((rank, sides)),
            Some((_, all)) => join(all, sides),
        }
    }
    machines.into_iter().map(|(_, sides)| sides).collect()
}

fn join(all: &mut Sides, one: Sides) {
    let union = |a: &[usize], b: &[usize]| -> Vec<usize> {
        let both: BTreeSet<usize> = a.iter().chain(b).copied().collect();
        both.into_iter().collect()
    };
    all.remote |= one.remote;
    all.elsewhere &= one.elsewhere;
    all.generator_cpus = union(&all.generator_cpus, &one.generator_cpus);
    all.server_cpus = match (&all.server_cpus, &one.server_cpus) {
        (Some(a), Some(b)) => Some(union(a, b)),
        (a, b) => a.clone().or_else(|| b.clone()),
    };
    let quotas = all.generator_quota.zip(one.generator_quota);
    all.generator_quota = quotas.map(|(a, b)| a + b);
    all.server_quota = match (all.server_quota, one.server_quota) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
}

/// Whether two ranks are of one machine.
pub(super) fn share(hosts: &[Host], one: usize, other: usize) -> bool {
    let id = |rank: usize| hosts.get(rank).map(|host| host.boot_id.as_str());
    one == other || id(one) == id(other) && id(one).is_some_and(|id| !id.is_empty())
}

/// Whether they are of one host too: its network is theirs.
pub(super) fn share_network(hosts: &[Host], one: usize, other: usize) -> bool {
    let name = |rank: usize| hosts.get(rank).map(|host| host.name.as_str());
    share(hosts, one, other) && name(one) == name(other)
}

fn is_neighbour(hosts: &[Host], other: usize, rank: usize) -> bool {
    other != rank && share(hosts, other, rank)
}

/// CPU time of a rank's workers, of what they started, and of its harness.
fn used_s(data: &RunData) -> Option<f64> {
    let children = data.requests.as_ref().map_or(0, |r| r.children.all_ns());
    Some((data.cpu.used_ns? + children) as f64 / 1e9 + data.around.machine.harness_cpu_s)
}

fn any_sum(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values.flatten().reduce(|a, b| a + b)
}
