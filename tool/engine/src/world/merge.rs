//! Merges the data of several hosts into one, as if their workers had been one
//! generator's: pure.
//!
//! Distributions are merged bucket by bucket and never by their percentiles. Values of each
//! worker or generator are concatenated in the order of ranks; counts are added. Figures
//! that cannot be known across hosts are left out: tool/docs/method/hosts.md lists them, with
//! reasons.

use super::machines;
use super::{Host, Part};
use crate::order::{
    GeneratorData, Merged, OpenLoopData, RequestData, RunData, RunOrder, SpreadData,
};
use jostle_model::record::{Accounts, Buckets, Count, Counts, Machine};
use std::collections::BTreeMap;

/// Overlaps that are told in words.
const EXAMPLES: usize = 5;

/// What all of them did. The window is the longest one: each host measures its own,
/// by its own clock.
pub(super) fn merge(whole: &RunOrder, hosts: &[Host], parts: &[Part]) -> RunData {
    let all = || parts.iter().map(|part| &part.of.data);
    let most = |figure: fn(&RunData) -> u64| all().map(figure).max().unwrap_or(0);
    let sum = |figure: fn(&RunData) -> u64| all().map(figure).sum::<u64>();
    let known = |figure: fn(&RunData) -> Option<u64>| all().map(figure).sum::<Option<u64>>();
    let mut data = RunData {
        window_ns: most(|one| one.window_ns),
        warmup_ns: most(|one| one.warmup_ns),
        ramp_ns: most(|one| one.ramp_ns),
        drain_ns: most(|one| one.drain_ns),
        start_spread_ns: start_spread(parts),
        operations: one_after_the_other(parts, |one| &one.operations),
        elapsed_ns: one_after_the_other(parts, |one| &one.elapsed_ns),
        longest_wait_ns: one_after_the_other(parts, |one| &one.longest_wait_ns),
        thread_loads: one_after_the_other(parts, |one| &one.thread_loads),
        pending: sum(|one| one.pending),
        phases_ns: phases(parts),
        release_slices: slices(
            parts,
            |one| &one.release_slices,
            |a, b| (a.0 + b.0, a.1 + b.1),
        ),
        slices: slices(
            parts,
            |one| &one.slices,
            |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2),
        ),
        figures: figures(whole, parts),
        censored: merged(all().map(|one| &one.censored)),
        censored_by_mode: all().any(|one| one.censored_by_mode.is_some()).then(|| {
            let of =
                |mode: usize| all().filter_map(move |one| one.censored_by_mode.as_ref()?.get(mode));
            Box::new([merged(of(0)), merged(of(1))])
        }),
        stamped: sum(|one| one.stamped),
        contended: sum(|one| one.contended),
        streak: most(|one| one.streak),
        streak_waited: most(|one| one.streak_waited),
        timeouts: sum(|one| one.timeouts),
        refusals: sum(|one| one.refusals),
        checked: sum(|one| one.checked),
        violations: sum(|one| one.violations),
        holder_died: sum(|one| one.holder_died),
        lost_updates: sum(|one| one.lost_updates),
        tokens: (sum(|one| one.tokens.0), sum(|one| one.tokens.1)),
        reader_coverage: reader_coverage(whole, parts),
        cpu_ns: known(|one| one.cpu_ns),
        spun_ns: sum(|one| one.spun_ns),
        idled: (sum(|one| one.idled.0), sum(|one| one.idled.1)),
        usage_ns: (sum(|one| one.usage_ns.0), sum(|one| one.usage_ns.1)),
        runqueue_wait_ns: known(|one| one.runqueue_wait_ns),
        switches: known(|one| one.switches),
        counts: counts(parts),
        excludes: all().any(|one| one.excludes),
        cpu_read_ns: most(|one| one.cpu_read_ns),
        machine: machines::together(hosts, &machines(parts)),
        accounts: accounts(hosts, parts),
        // Each host that asks is told what all hosts did.
        server_counted: all().find_map(|one| one.server_counted),
        is_remote: all().any(|one| one.is_remote),
        server_binds: all().find_map(|one| one.server_binds),
        server_unbinds: all().find_map(|one| one.server_unbinds),
        server_cpu_ns: all().filter_map(|one| one.server_cpu_ns).max(),
        received: sum(|one| one.received),
        traffic: all()
            .filter_map(|one| one.traffic)
            .reduce(|one, other| (one.0 + other.0, one.1 + other.1)),
        failovers: sum(|one| one.failovers),
        errors: counted(all().map(|one| &one.errors)),
        setup: agreed(parts, |one| &one.setup),
        // The pulse belongs to one machine, and is compared with itself only.
        anchor: parts.first().and_then(|part| part.of.data.anchor),
        spread: spread(hosts, parts),
        requests: requests(parts),
        ..RunData::default()
    };
    words(&mut data, hosts, parts);
    data
}

/// What is known on all hosts.
fn counts(parts: &[Part]) -> Counts {
    let of = |count: &Count| {
        let each = parts
            .iter()
            .map(|part| part.of.data.counts.get(count.name()));
        Some((count.name().to_owned(), each.sum::<Option<u64>>()?))
    };
    Count::ALL.iter().filter_map(of).collect()
}

fn machines(parts: &[Part]) -> Vec<(usize, Machine)> {
    let each = parts.iter();
    each.map(|part| (part.of.rank, part.of.data.machine))
        .collect()
}

fn accounts(hosts: &[Host], parts: &[Part]) -> Option<Box<Accounts>> {
    let each: Option<Vec<(usize, Accounts)>> = parts
        .iter()
        .map(|part| Some((part.of.rank, (**part.of.data.accounts.as_ref()?).clone())))
        .collect();
    machines::accounts_together(hosts, &each?).map(Box::new)
}

/// The time from the first arrival of a worker to the last, as rank 0 sees it, at most: the
/// spread of the hosts' starts with the uncertainty of their clocks, plus the largest
/// spread within one host.
fn start_spread(parts: &[Part]) -> u64 {
    let began = |part: &Part, sign: i64| part.of.late_ns + sign * part.of.clock.within_ns as i64;
    let first = parts.iter().map(|part| began(part, -1)).min();
    let last = parts.iter().map(|part| began(part, 1)).max();
    let hosts = match parts.len() {
        0 | 1 => 0,
        _ => first
            .zip(last)
            .map_or(0, |(first, last)| last.abs_diff(first)),
    };
    let workers = parts.iter().map(|part| part.of.data.start_spread_ns);
    hosts + workers.max().unwrap_or(0)
}

fn one_after_the_other<V: Copy>(parts: &[Part], values: fn(&RunData) -> &Vec<V>) -> Vec<V> {
    let each = parts.iter().flat_map(|part| values(&part.of.data));
    each.copied().collect()
}

fn slices<V: Copy + Default>(
    parts: &[Part],
    values: fn(&RunData) -> &Vec<V>,
    add: fn(V, V) -> V,
) -> Vec<V> {
    let mut sums = Vec::new();
    for part in parts {
        let slices = values(&part.of.data);
        sums.resize(sums.len().max(slices.len()), V::default());
        for (sum, slice) in sums.iter_mut().zip(slices) {
            *sum = add(*sum, *slice);
        }
    }
    sums
}

/// The longest of each; None if one host has none.
fn phases(parts: &[Part]) -> Option<(u64, u64)> {
    let each: Option<Vec<(u64, u64)>> = parts.iter().map(|part| part.of.data.phases_ns).collect();
    each?
        .into_iter()
        .reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
}

/// By name. A host knows which of its own workers had a lock last, not which of
/// another host's had it since: hand-offs are left out where they meet.
fn figures(whole: &RunOrder, parts: &[Part]) -> BTreeMap<String, Merged> {
    let names = parts.iter().flat_map(|part| part.of.data.figures.keys());
    let mut figures = BTreeMap::new();
    for name in names {
        if whole.meets_others() && name.starts_with("handoff_") || figures.contains_key(name) {
            continue;
        }
        let each = parts
            .iter()
            .filter_map(|part| part.of.data.figures.get(name));
        figures.insert(name.clone(), merged(each));
    }
    figures
}

/// Bucket by bucket.
pub(super) fn merged<'a>(parts: impl Iterator<Item = &'a Merged>) -> Merged {
    let mut counts = BTreeMap::new();
    let mut sum: Option<Merged> = None;
    for part in parts.filter(|part| !part.buckets.0.is_empty()) {
        for (floor, count) in &part.buckets.0 {
            *counts.entry(*floor).or_insert(0) += count;
        }
        let sum = sum.get_or_insert_with(|| Merged {
            min: u64::MAX,
            ..Merged::default()
        });
        sum.sum += part.sum;
        sum.min = sum.min.min(part.min);
        sum.max = sum.max.max(part.max);
    }
    let mut sum = sum.unwrap_or_default();
    sum.buckets = Buckets(counts.into_iter().collect());
    sum
}

/// Sums by name.
pub(super) fn counted<'a>(
    parts: impl Iterator<Item = &'a BTreeMap<String, u64>>,
) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, count) in parts.flatten() {
        *sums.entry(name.clone()).or_insert(0) += count;
    }
    sums
}

/// Facts that all hosts state alike.
fn agreed(parts: &[Part], facts: fn(&RunData) -> &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let Some((first, others)) = parts.split_first() else {
        return BTreeMap::new();
    };
    let alike = |name: &String, value: &f64| {
        let mut others = others.iter().map(|part| facts(&part.of.data).get(name));
        others.all(|other| other == Some(value))
    };
    let mut all = facts(&first.of.data).clone();
    all.retain(|name, value| alike(name, value));
    all
}

/// A writer looks at the readers of its own host only: of workers of which a host
/// has the share s, s of the writers look at s of the readers.
fn reader_coverage(whole: &RunOrder, parts: &[Part]) -> Option<f64> {
    if !whole.workload.wants().shared || !parts.iter().any(|part| part.of.data.checked > 0) {
        return None;
    }
    let all: usize = parts.iter().map(|part| part.order.workers).sum();
    let seen = parts.iter().map(|part| {
        let share = part.order.workers as f64 / all.max(1) as f64;
        share * share * part.of.data.reader_coverage.unwrap_or(1.0)
    });
    Some(seen.sum())
}

/// The texts of all hosts, each with its host's name.
fn words(data: &mut RunData, hosts: &[Host], parts: &[Part]) {
    for part in parts {
        let name = super::name(hosts, part.of.rank);
        let said = |texts: &[String]| -> Vec<String> {
            texts.iter().map(|text| format!("{name}: {text}")).collect()
        };
        let one = &part.of.data;
        data.examples.extend(said(&one.examples));
        data.messages.extend(said(&one.messages));
        if let Some(causes) = &one.causes {
            let all = data.causes.get_or_insert_default();
            all.found.extend(said(&causes.found));
            all.looked_at.extend(said(&causes.looked_at));
        }
        data.deaths.extend(said(&one.deaths));
        if let Some(during) = &one.during {
            let all = data.during.get_or_insert_default();
            let gap = if all.is_empty() { "" } else { "; " };
            *all = format!("{all}{gap}{name}: {during}");
        }
    }
    data.examples.truncate(EXAMPLES);
}

fn spread(hosts: &[Host], parts: &[Part]) -> Option<Box<SpreadData>> {
    let each: Vec<&SpreadData> = parts
        .iter()
        .filter_map(|part| part.of.data.spread.as_deref())
        .collect();
    each.first()?;
    let generators = parts.iter().flat_map(|part| generators(hosts, parts, part));
    Some(Box::new(SpreadData {
        generators: generators.collect(),
        in_flight_ns: each.iter().map(|one| one.in_flight_ns).sum(),
        sides: machines::sides(hosts, parts),
    }))
}

/// Those of one host, who share their CPUs with those of the same machine.
pub(super) fn generators(hosts: &[Host], parts: &[Part], part: &Part) -> Vec<GeneratorData> {
    let of_cpus = machines::generators_of_cpus(hosts, parts, part.of.rank);
    let spread = part.of.data.spread.as_deref();
    let each = spread.map_or(&[][..], |spread| &spread.generators).iter();
    each.map(|generator| GeneratorData {
        rank: Some(part.of.rank as u64),
        of_cpus: Some(of_cpus),
        ..generator.clone()
    })
    .collect()
}

fn requests(parts: &[Part]) -> Option<Box<RequestData>> {
    let each: Vec<&RequestData> = parts
        .iter()
        .filter_map(|part| part.of.data.requests.as_deref())
        .collect();
    let first = each.first()?;
    let all = |figure: fn(&RequestData) -> &Merged| merged(each.iter().map(|one| figure(one)));
    let phase = |nth: usize| merged(each.iter().filter_map(|one| Some(&one.phases.get(nth)?.1)));
    let names = first.phases.iter().map(|(name, _)| name).enumerate();
    Some(Box::new(RequestData {
        phases: names
            .map(|(nth, name)| (name.clone(), phase(nth)))
            .collect(),
        service: all(|one| &one.service),
        failed: all(|one| &one.failed),
        codes: counted(each.iter().map(|one| &one.codes)),
        children_ns: each.iter().fold((0, 0), |sum, one| {
            (sum.0 + one.children_ns.0, sum.1 + one.children_ns.1)
        }),
        open_loop: open_loop(&each),
    }))
}

fn open_loop(each: &[&RequestData]) -> Option<Box<OpenLoopData>> {
    let each: Vec<&OpenLoopData> = each
        .iter()
        .filter_map(|one| one.open_loop.as_deref())
        .collect();
    each.first()?;
    let sum = |figure: fn(&OpenLoopData) -> u64| each.iter().map(|one| figure(one)).sum();
    let all = |figure: fn(&OpenLoopData) -> &Merged| merged(each.iter().map(|one| figure(one)));
    Some(Box::new(OpenLoopData {
        planned: sum(|one| one.planned),
        done: sum(|one| one.done),
        failed: sum(|one| one.failed),
        dropped: sum(|one| one.dropped),
        dropped_with_slot: sum(|one| one.dropped_with_slot),
        dropped_at_end: sum(|one| one.dropped_at_end),
        in_flight: sum(|one| one.in_flight),
        response: all(|one| &one.response),
        unanswered: all(|one| &one.unanswered),
        generator_lag: all(|one| &one.generator_lag),
        target_lag: all(|one| &one.target_lag),
        canary_lag: all(|one| &one.canary_lag),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::split;
    use super::*;
    use crate::experiment::tests::{order_of, spread_over};
    use crate::hosts::{HostData, Offset};
    use crate::merged::histogram;
    use crate::order::{Sides, WorkloadOrder};
    use jostle_model::plan::{Names, Workload};
    use jostle_stats::histogram::Histogram;
    use proptest::prelude::*;

    fn order(workload: Workload, workers: usize) -> RunOrder {
        order_of(workload, "lockd://server:2626", workers)
    }

    fn hosts(count: usize) -> Vec<Host> {
        let host = |nth: usize| Host {
            name: format!("h{nth}"),
            cpus: 2,
            boot_id: format!("machine {nth}"),
            version: String::new(),
        };
        (0..count).map(host).collect()
    }

    /// What became of an order on so many hosts that did this.
    fn of(order: &RunOrder, gathered: Vec<RunData>) -> RunData {
        let hosts = hosts(gathered.len());
        let parts = parts(order, gathered);
        merge(&split::whole(order, hosts.len(), 7), &hosts, &parts)
    }

    fn parts(order: &RunOrder, gathered: Vec<RunData>) -> Vec<Part> {
        let orders = split::split(order, gathered.len(), 7);
        let each = orders.into_iter().flatten().zip(gathered).enumerate();
        each.map(|(rank, (order, data))| Part {
            order,
            of: HostData {
                rank,
                data,
                clock: Offset::default(),
                late_ns: 0,
            },
        })
        .collect()
    }

    fn recorded(values: &[u64]) -> Merged {
        let mut histogram = Histogram::new();
        values.iter().for_each(|value| histogram.record(*value));
        Merged {
            buckets: histogram.to_buckets(),
            sum: values.iter().sum(),
            min: values.iter().min().copied().unwrap_or(0),
            max: values.iter().max().copied().unwrap_or(0),
        }
    }

    proptest! {
        /// Whoever recorded a value, the whole has it: percentiles come of all values,
        /// not of the hosts' percentiles.
        #[test]
        fn distributions_of_hosts_are_the_distribution_of_all_values(
            values in prop::collection::vec((0..5usize, 0..10_000_000_000u64), 0..300),
        ) {
            let of_host = |host: usize| -> Vec<u64> {
                values.iter().filter(|(h, _)| *h == host).map(|(_, v)| *v).collect()
            };
            let each: Vec<Merged> = (0..5).map(|host| recorded(&of_host(host))).collect();
            let all: Vec<u64> = values.iter().map(|(_, value)| *value).collect();
            let merged = merged(each.iter());
            prop_assert_eq!(&merged, &recorded(&all));
            prop_assert_eq!(
                histogram(&merged).distribution(&[]),
                histogram(&recorded(&all)).distribution(&[])
            );
        }
    }

    #[test]
    fn workers_follow_each_other_by_rank_and_counts_add_up() {
        let one = |operations: &[u64], received, window_ns| RunData {
            operations: operations.to_vec(),
            slices: vec![(1, 2, 3); 2],
            received,
            window_ns,
            cpu_ns: Some(10),
            errors: BTreeMap::from([("ECONNRESET".to_owned(), 2)]),
            deaths: vec!["worker 0: killed by SIGKILL".to_owned()],
            // Each is told what all did.
            server_counted: Some(60),
            ..RunData::default()
        };
        let gathered = vec![
            one(&[10, 11], 21, 1_000),
            one(&[12], 12, 1_100),
            one(&[13], 14, 900),
        ];
        let all = of(&order(Workload::Contend, 4), gathered);
        assert_eq!(all.operations, [10, 11, 12, 13]);
        assert_eq!(all.slices, [(3, 6, 9); 2]);
        assert_eq!((all.received, all.server_counted), (47, Some(60)));
        assert_eq!((all.window_ns, all.cpu_ns), (1_100, Some(30)));
        assert_eq!(all.errors["ECONNRESET"], 6);
        assert_eq!(all.deaths[2], "h2: worker 0: killed by SIGKILL");
    }

    #[test]
    fn what_one_host_does_not_know_the_whole_does_not() {
        let one = |cpu_ns| RunData {
            cpu_ns,
            ..RunData::default()
        };
        let all = of(&order(Workload::Contend, 2), vec![one(Some(5)), one(None)]);
        assert_eq!(all.cpu_ns, None);
    }

    #[test]
    fn hand_offs_are_known_only_where_hosts_do_not_meet() {
        let one = || RunData {
            figures: BTreeMap::from([
                ("handoff_cross_cpu_ns".to_owned(), recorded(&[1_000])),
                ("hold_ns".to_owned(), recorded(&[5_000])),
            ]),
            ..RunData::default()
        };
        let mut own = order(Workload::Stream, 2);
        if let WorkloadOrder::Stream(stream) = &mut own.workload {
            stream.names = Names::Own;
        }
        for (order, known) in [(order(Workload::Contend, 2), false), (own, true)] {
            let all = of(&order, vec![one(), one()]);
            assert_eq!(all.figures.contains_key("handoff_cross_cpu_ns"), known);
            assert_eq!(all.figures["hold_ns"].buckets.0[0].1, 2);
        }
    }

    #[test]
    fn a_start_is_spread_over_hosts_and_their_clocks() {
        let contend = order(Workload::Contend, 6);
        let mut parts = parts(&contend, vec![RunData::default(); 3]);
        for (part, (late, within, own)) in
            parts
                .iter_mut()
                .zip([(0, 0, 40), (-300, 20, 70), (500, 100, 10)])
        {
            (part.of.late_ns, part.of.clock.within_ns) = (late, within);
            part.of.data.start_spread_ns = own;
        }
        // From -320 to 600, and 70 within a host.
        assert_eq!(start_spread(&parts), 990);
        assert_eq!(start_spread(&parts[..1]), 40);
    }

    #[test]
    fn ranks_of_one_machine_read_the_same_ticks_and_are_not_foreign_to_each_other() {
        let busy = |cpu_s: u64| RunData {
            cpu_ns: Some(cpu_s * 1_000_000_000),
            machine: Machine {
                ticks: 1_000,
                busy_ticks: 900,
                stolen_ticks: 10,
                ticks_per_s: 100,
                cores: 2,
                harness_cpu_s: 0.5,
                throttled_periods: Some(1),
                between_s: Some(5.0),
                ..Machine::default()
            },
            server_counted: Some(9),
            ..RunData::default()
        };
        let mut hosts = hosts(3);
        hosts[2].boot_id = hosts[0].boot_id.clone();
        let contend = order(Workload::Contend, 3);
        let parts = parts(&contend, vec![busy(4), busy(2), busy(3)]);
        let all = machines::together(&hosts, &machines(&parts));
        // Two machines, three ranks.
        assert_eq!((all.ticks, all.busy_ticks, all.cores), (2_000, 1_800, 4));
        assert_eq!((all.harness_cpu_s, all.throttled_periods), (1.5, Some(3)));
        // As long as one of them, with all of their CPUs.
        assert_eq!(all.between_s, Some(5.0));
        let own = |rank: usize| machines::own_view(&hosts, &parts, &parts[rank]);
        // Its own harness, and all that rank 2 used.
        assert_eq!(own(0).machine.harness_cpu_s, 0.5 + 3.5);
        assert_eq!(own(1).machine.harness_cpu_s, 0.5);
        assert_eq!(own(0).server_counted, None);
        assert_eq!(crate::hosts::numbers(&hosts), [0, 1, 0]);
    }

    #[test]
    fn what_a_machine_s_ranks_see_of_it_counts_once_and_what_they_use_adds_up() {
        let one = |workers_s, others_s| Accounts {
            between_s: 5.0,
            cpus: 2,
            workers_s,
            others_s,
            waited_s: Some(0.5),
            stolen_s: Some(0.1),
            ..Accounts::default()
        };
        let mut hosts = hosts(3);
        hosts[2].boot_id = hosts[0].boot_id.clone();
        let each = [
            (0, one(1.0, Some(0.3))),
            (1, one(2.0, Some(0.4))),
            (2, one(3.0, Some(0.3))),
        ];
        let all = machines::accounts_together(&hosts, &each).unwrap();
        assert_eq!((all.cpus, all.workers_s, all.waited_s), (4, 6.0, Some(1.5)));
        assert_eq!((all.others_s, all.stolen_s), (Some(0.7), Some(0.2)));
        // One that cannot see the others on its machine.
        let each = [(0, one(1.0, None)), (1, one(2.0, Some(0.4)))];
        assert_eq!(
            machines::accounts_together(&hosts, &each).unwrap().others_s,
            None
        );
        assert_eq!(machines::accounts_together(&hosts, &[]), None);
    }

    #[test]
    fn generators_share_the_cpus_of_their_machine() {
        let spread = |cpu_ns| RunData {
            window_ns: 1_000,
            machine: Machine {
                cores: 2,
                ..Machine::default()
            },
            spread: Some(Box::new(SpreadData {
                generators: vec![GeneratorData {
                    cpu_ns: Some(cpu_ns),
                    ..GeneratorData::default()
                }],
                ..SpreadData::default()
            })),
            ..RunData::default()
        };
        let order = spread_over(3, 6);
        let parts = parts(&order, vec![spread(600), spread(500), spread(900)]);
        let mut hosts = hosts(3);
        hosts[1].boot_id = hosts[0].boot_id.clone();
        let all = super::spread(&hosts, &parts).unwrap();
        let of: Vec<_> = all.generators.iter().map(|g| (g.rank, g.of_cpus)).collect();
        // 1100 of 2 CPUs that both may use, and 900 of 2.
        assert_eq!(
            of,
            [
                (Some(0), Some(0.55)),
                (Some(1), Some(0.55)),
                (Some(2), Some(0.45))
            ]
        );
    }

    #[test]
    fn what_one_rank_knows_of_a_server_holds_for_its_machine() {
        let with = |cpu, server: Option<Vec<usize>>| RunData {
            spread: Some(Box::new(SpreadData {
                sides: vec![Sides {
                    remote: true,
                    // The address is of one rank's network, and not of the other's.
                    elsewhere: server.is_none(),
                    generator_cpus: vec![cpu],
                    server_cpus: server,
                    generator_quota: Some(0.25),
                    ..Sides::default()
                }],
                ..SpreadData::default()
            })),
            ..RunData::default()
        };
        let order = spread_over(3, 6);
        let parts = parts(
            &order,
            vec![with(0, Some(vec![3])), with(0, None), with(1, None)],
        );
        let mut hosts = hosts(3);
        hosts[1].boot_id = hosts[0].boot_id.clone();
        let sides = super::spread(&hosts, &parts).unwrap().sides;
        assert_eq!(sides.len(), 2);
        assert_eq!(
            (&sides[0].server_cpus, sides[0].elsewhere),
            (&Some(vec![3]), false)
        );
        assert_eq!(
            (&sides[0].generator_cpus, sides[0].generator_quota),
            (&vec![0], Some(0.5))
        );
        assert_eq!((&sides[1].server_cpus, sides[1].elsewhere), (&None, true));
    }
}
