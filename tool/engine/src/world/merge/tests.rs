use super::super::split;
use super::*;
use crate::experiment::tests::{order_of, spread_over};
use crate::hosts::{HostData, Offset};
use crate::order::{CpuData, EachWorker, Merged, Sides, SliceData, Total, WorkloadOrder};
use jostle_harness::merged::histogram;
use jostle_model::plan::{Names, Workload};
use jostle_model::record::{Machine, Server, Window};
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

fn used(used_ns: Option<u64>) -> CpuData {
    CpuData {
        used_ns,
        ..CpuData::default()
    }
}

fn counted(grants: u64) -> Option<Server> {
    Some(Server {
        counted: Some(grants),
        ..Server::default()
    })
}

/// The result of an order on so many hosts that did this.
fn merged(order: &RunOrder, gathered: Vec<RunData>) -> RunData {
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
        let merged: Merged = each.iter().sum();
        prop_assert_eq!(&merged, &recorded(&all));
        prop_assert_eq!(
            histogram(&merged).distribution(&[]),
            histogram(&recorded(&all)).distribution(&[])
        );
    }
}

#[test]
fn workers_follow_each_other_by_rank_and_counts_add_up() {
    let slice = |operations, count, ns| SliceData {
        operations,
        waits: Total { count, ns },
        ..SliceData::default()
    };
    let one = |operations: &[u64], received, window_s| RunData {
        workers: EachWorker {
            operations: operations.to_vec(),
            ..EachWorker::default()
        },
        slices: vec![slice(1, 2, 3); 2],
        received,
        window: Window {
            window_s,
            ..Window::default()
        },
        cpu: used(Some(10)),
        around: Circumstances {
            errors: BTreeMap::from([("ECONNRESET".to_owned(), 2)]),
            deaths: vec!["worker 0: killed by SIGKILL".to_owned()],
            ..Circumstances::default()
        },
        // Each is told what all did.
        server: counted(60),
        ..RunData::default()
    };
    let gathered = vec![
        one(&[10, 11], 21, 1.0),
        one(&[12], 12, 1.1),
        one(&[13], 14, 0.9),
    ];
    let all = merged(&order(Workload::Contend, 4), gathered);
    assert_eq!(all.workers.operations, [10, 11, 12, 13]);
    assert_eq!(all.slices, [slice(3, 6, 9); 2]);
    assert_eq!((all.received, all.server), (47, counted(60)));
    assert_eq!((all.window.window_s, all.cpu), (1.1, used(Some(30))));
    assert_eq!(all.around.errors["ECONNRESET"], 6);
    assert_eq!(all.around.deaths[2], "h2: worker 0: killed by SIGKILL");
}

#[test]
fn what_one_host_does_not_know_the_whole_does_not() {
    let one = |used_ns| RunData {
        cpu: used(used_ns),
        ..RunData::default()
    };
    let all = merged(&order(Workload::Contend, 2), vec![one(Some(5)), one(None)]);
    assert_eq!(all.cpu.used_ns, None);
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
        let all = merged(&order, vec![one(), one()]);
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
        part.of.data.window.start_spread_ns = own;
    }
    // From -320 to 600, and 70 within a host.
    assert_eq!(start_spread(&parts), 990);
    assert_eq!(start_spread(&parts[..1]), 40);
}

#[test]
fn ranks_of_one_machine_read_the_same_ticks_and_are_not_foreign_to_each_other() {
    let busy = |cpu_s: u64| RunData {
        cpu: used(Some(cpu_s * 1_000_000_000)),
        around: Circumstances {
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
            ..Circumstances::default()
        },
        server: counted(9),
        ..RunData::default()
    };
    let mut hosts = hosts(3);
    hosts[2].boot_id = hosts[0].boot_id.clone();
    let contend = order(Workload::Contend, 3);
    let parts = parts(&contend, vec![busy(4), busy(2), busy(3)]);
    let all = merge(&contend, &hosts, &parts).around.machine;
    // Two machines, three ranks.
    assert_eq!((all.ticks, all.busy_ticks, all.cores), (2_000, 1_800, 4));
    assert_eq!((all.harness_cpu_s, all.throttled_periods), (1.5, Some(3)));
    // As long as one of them, with all of their CPUs.
    assert_eq!(all.between_s, Some(5.0));
    let own = |rank: usize| machines::own_view(&hosts, &parts, &parts[rank]);
    // Its own harness, and all that rank 2 used.
    assert_eq!(own(0).around.machine.harness_cpu_s, 0.5 + 3.5);
    assert_eq!(own(1).around.machine.harness_cpu_s, 0.5);
    assert_eq!(own(0).server.unwrap().counted, None);
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
    let spread = |cpu_s| RunData {
        window: Window {
            window_s: 1.0,
            ..Window::default()
        },
        around: Circumstances {
            machine: Machine {
                cores: 2,
                ..Machine::default()
            },
            ..Circumstances::default()
        },
        thread_loads: vec![ThreadLoad {
            process: Some(GeneratorProcess {
                cpu_s: Some(cpu_s),
                ..GeneratorProcess::default()
            }),
            ..ThreadLoad::default()
        }],
        spread: Some(Box::default()),
        ..RunData::default()
    };
    let order = spread_over(3, 6);
    let parts = parts(&order, vec![spread(0.6), spread(0.5), spread(0.9)]);
    let mut hosts = hosts(3);
    hosts[1].boot_id = hosts[0].boot_id.clone();
    let all = merge(&order, &hosts, &parts).thread_loads;
    let rank = |load: &ThreadLoad| load.process.unwrap().rank;
    let of: Vec<_> = all.iter().map(|l| (rank(l), l.busy_share)).collect();
    // 1.1 of 2 CPUs that both may use, and 0.9 of 2.
    assert_eq!(of, [(Some(0), 0.55), (Some(1), 0.55), (Some(2), 0.45)]);
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
    let sides = machines::sides(&hosts, &parts);
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
