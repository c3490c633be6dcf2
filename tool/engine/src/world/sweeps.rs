//! A sweep of connections by several hosts: from the whole to each one's part, and
//! from what they did up to a listed number to one, as if it had been one host's. Pure.
//!
//! Each host opens its share one connection after the other, all hosts at the same
//! time. What belongs to the order of connections on one host (medians by decade) is
//! left out of the whole.

use super::machines::{once, share, share_network, without_neighbours};
use super::merge::{around, counted};
use super::rows::row;
use super::split::dealt;
use super::{Host, HostDid, Part, name};
use crate::order::{Closed, Lost, Merged, Reached, SideData, SweepOrder};
use jostle_connections::record::{self, Curve};
use jostle_model::hosts::HostPart;
use jostle_model::record::{Experiment, Run};
use jostle_stats::rng::Rng;
use std::collections::BTreeMap;

/// The result of a sweep up to a listed number.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// All hosts together.
    pub data: Reached,
    /// The part of each; empty where there is but this one.
    pub parts: Vec<Part<SweepOrder, Reached>>,
}

impl Step {
    /// A step that this host made alone.
    pub fn alone(data: Reached) -> Step {
        Step {
            data,
            parts: Vec::new(),
        }
    }

    /// A step that several hosts made together; the steps before it took `before_ns`.
    pub fn together(
        hosts: &[Host],
        orders: &[Option<SweepOrder>],
        did: Vec<HostDid<Reached>>,
        before_ns: u64,
    ) -> Step {
        let each = did.into_iter().filter_map(|of| {
            let order = orders.get(of.rank)?.clone()?;
            Some(Part { order, of })
        });
        let parts: Vec<Part<SweepOrder, Reached>> = each.collect();
        let data = merge(hosts, &parts, before_ns);
        Step { data, parts }
    }
}

/// How many hosts take part: those that there is a connection for at the least of the
/// listed numbers and, at a rate, one a second.
pub(crate) fn taking_part(open: &[u64], rate: Option<u64>, ranks: usize) -> usize {
    let least = open.iter().copied().min().unwrap_or(1);
    let most = least.min(rate.unwrap_or(u64::MAX));
    ranks
        .min(usize::try_from(most).unwrap_or(usize::MAX))
        .max(1)
}

/// The order of each rank. Numbers of connections and their rate are totals; what listens beside
/// them, and addresses, are each host's own.
pub(crate) fn split(order: &SweepOrder, ranks: usize) -> Vec<Option<SweepOrder>> {
    let hosts = taking_part(&order.open, order.rate, ranks);
    let part = |nth: usize| SweepOrder {
        open: order.open.iter().map(|n| dealt(*n, hosts, nth)).collect(),
        rate: order.rate.map(|rate| dealt(rate, hosts, nth)),
        seed: match nth {
            0 => order.seed,
            _ => Rng::stream(order.seed, nth as u64).next_u64(),
        },
        ..order.clone()
    };
    let all = (0..ranks).map(|rank| (rank < hosts).then(|| part(rank)));
    all.collect()
}

fn merge(hosts: &[Host], parts: &[Part<SweepOrder, Reached>], before_ns: u64) -> Reached {
    let all = || parts.iter().map(|part| &part.of.data);
    let sum = |figure: fn(&Reached) -> u64| all().map(figure).sum::<u64>();
    let most = |figure: fn(&Reached) -> u64| all().map(figure).max().unwrap_or(0);
    let ranked = || parts.iter().map(|part| (part.of.rank, &part.of.data));
    let ranked: Vec<(usize, &Reached)> = ranked().collect();
    let of_machines = || once(&ranked, |one, other| share(hosts, one, other));
    let of_networks = once(&ranked, |one, other| share_network(hosts, one, other));
    let each = ranked.iter();
    let each: Vec<_> = each.map(|(rank, data)| (*rank, &data.around)).collect();
    let took_ns = most(|one| one.took_ns);
    let stopped = ranked.iter().find_map(|(rank, one)| {
        let mut stopped = one.stopped.clone()?;
        stopped.text = format!("{}: {}", name(hosts, *rank), stopped.text);
        Some(stopped)
    });
    Reached {
        listed: sum(|one| one.listed),
        from: sum(|one| one.from),
        opened: sum(|one| one.opened),
        took_ns,
        total_ns: before_ns + took_ns,
        ramp_ns: most(|one| one.ramp_ns),
        figures: figures(all().map(|one| &one.figures)),
        client: client(all().map(|one| one.client)),
        lag_ns: all().filter_map(|one| one.lag_ns).max(),
        around: around(hosts, &each),
        slab_bytes: of_machines().map(|one| one.slab_bytes).sum(),
        memory_bytes: of_machines().map(|one| one.memory_bytes).sum(),
        caches: counted(of_machines().map(|one| &one.caches)),
        sockstat: counted(of_networks.map(|one| &one.sockstat)),
        descriptors: all().filter_map(|one| one.descriptors).min(),
        lost: lost(all().map(|one| one.lost)),
        stopped,
        ..Reached::default()
    }
}

/// Connections lost on all hosts; None where nothing is connected. Which connection was
/// the first belongs to the order of one host.
fn lost(mut each: impl Iterator<Item = Option<Lost>>) -> Option<Lost> {
    each.try_fold(Lost::default(), |sum, one| {
        Some(Lost {
            count: sum.count + one?.count,
            first: None,
        })
    })
}

fn client(each: impl Iterator<Item = SideData>) -> SideData {
    let mut all = SideData::default();
    for one in each {
        // A host with few connections does not know it.
        all.own_bytes = match (all.processes, all.own_bytes, one.own_bytes) {
            (0, _, own) => own,
            (_, Some(all), Some(own)) => Some(all + own),
            _ => None,
        };
        all.processes += one.processes;
        all.cpu_ns += one.cpu_ns;
        all.usage += one.usage;
    }
    all
}

fn figures<'a>(
    each: impl Iterator<Item = &'a BTreeMap<String, Merged>>,
) -> BTreeMap<String, Merged> {
    let mut all: BTreeMap<String, Merged> = BTreeMap::new();
    for (name, figure) in each.flatten() {
        all.entry(name.clone()).or_default().join(figure);
    }
    all
}

/// How all hosts closed what they had opened.
pub(crate) fn closed(hosts: &[Host], order: &SweepOrder, did: &[HostDid<Closed>]) -> Closed {
    let waiting: Vec<(usize, u64)> = did
        .iter()
        .filter_map(|did| Some((did.rank, did.data.time_wait_left?)))
        .collect();
    let steps = did.iter().map(|did| did.data.figures.len()).max();
    let of_step = |nth: usize| {
        let each = did.iter().filter_map(move |did| did.data.figures.get(nth));
        figures(each.map(|(_, figures)| figures))
    };
    let listed = order.open.iter().copied().enumerate();
    Closed {
        figures: listed
            .take(steps.unwrap_or(0))
            .map(|(nth, listed)| (listed, of_step(nth)))
            .collect(),
        time_wait_left: once(&waiting, |one, other| share_network(hosts, one, other))
            .reduce(|a, b| a + b),
        // The pulse belongs to one machine, and is compared with itself only.
        anchor: did.iter().find_map(|did| did.data.anchor),
        ..Closed::default()
    }
}

/// One row for each host that took part in a step. `whole` is the record of all of
/// them.
pub fn rows(
    experiment: &Experiment,
    curve: &Curve<'_>,
    whole: &Run,
    hosts: &[Host],
    parts: &[Part<SweepOrder, Reached>],
) -> Vec<HostPart> {
    let used = |data: &Reached| data.client.cpu_ns as f64 / 1e9 + data.around.machine.harness_cpu_s;
    let used: Vec<(usize, Option<f64>)> = parts
        .iter()
        .map(|part| (part.of.rank, Some(used(&part.of.data))))
        .collect();
    let each = parts.iter().map(|part| {
        let mut data = part.of.data.clone();
        data.around.machine = without_neighbours(hosts, &used, part.of.rank, data.around.machine);
        let order = &part.order;
        let own = record::run(&Curve { order, ..*curve }, &data, None);
        let processes = data.client.processes as usize;
        row(experiment, whole, &own, hosts, &part.of, processes)
    });
    each.collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::hosts::Offset;
    use crate::order::Demand;
    use jostle_model::Nanos;
    use jostle_model::connect::{Accept, Close, Stopped};
    use jostle_model::plan::Place;
    use jostle_model::record::{Buckets, Circumstances};

    /// To open so many connections.
    pub(crate) fn order(open: &[u64]) -> SweepOrder {
        SweepOrder {
            target: "tcp://server:80".to_owned(),
            open: open.to_vec(),
            listeners: 0,
            sources: 1,
            sweep: 0,
            ports: 1,
            accept: Accept::Shared,
            acceptors: 1,
            bind_no_port: None,
            port_range: None,
            close: Close::Fin,
            rate: None,
            sndbuf: None,
            rcvbuf: None,
            only: None,
            cpus: Vec::new(),
            place: Place::None,
            timer_slack: Nanos(1),
            load: Demand::default(),
            patience: Nanos(1),
            during: None,
            server: None,
            watched: false,
            together: None,
            seed: 7,
        }
    }

    fn hosts(machines: &[&str]) -> Vec<Host> {
        let each = machines.iter().enumerate();
        each.map(|(nth, machine)| Host {
            name: format!("h{nth}"),
            boot_id: (*machine).to_owned(),
            ..Host::default()
        })
        .collect()
    }

    fn did<D>(rank: usize, data: D) -> HostDid<D> {
        HostDid {
            rank,
            data,
            clock: Offset::default(),
            late_ns: 0,
        }
    }

    /// connect() took so long, so often.
    fn connects(took: u64, often: u64) -> BTreeMap<String, Merged> {
        let merged = Merged {
            buckets: Buckets(vec![(took, often)]),
            sum: took * often,
            min: took,
            max: took,
        };
        BTreeMap::from([("connect_even_ns".to_owned(), merged)])
    }

    #[test]
    fn numbers_and_rates_are_totals_and_nothing_is_lost() {
        let mut whole = order(&[10, 100, 1_001]);
        whole.rate = Some(20);
        let parts = split(&whole, 3);
        let of = |nth: usize| parts.iter().flatten().map(move |part| part.open[nth]);
        assert_eq!(of(0).collect::<Vec<_>>(), [4, 3, 3]);
        for (nth, listed) in whole.open.iter().enumerate() {
            assert_eq!(of(nth).sum::<u64>(), *listed);
        }
        let rates = parts.iter().flatten().filter_map(|part| part.rate);
        assert_eq!(rates.collect::<Vec<_>>(), [7, 7, 6]);
        // One a second is no rate for three.
        whole.rate = Some(1);
        assert_eq!(split(&whole, 3).iter().flatten().count(), 1);
    }

    #[test]
    fn what_hosts_opened_adds_up_and_the_slowest_ends_it() {
        let one = |took_ns, slab_bytes| Reached {
            listed: 50,
            from: 10,
            opened: 50,
            took_ns,
            total_ns: took_ns + 5,
            slab_bytes,
            figures: connects(took_ns, 40),
            ..Reached::default()
        };
        // Two of one machine, whose memory is the same.
        let hosts = hosts(&["a", "a", "b"]);
        let orders = split(&order(&[30, 150]), 3);
        let all = vec![
            did(0, one(100, 7)),
            did(1, one(300, 9)),
            did(2, one(200, 1)),
        ];
        let step = Step::together(&hosts, &orders, all, 1_000);
        let data = step.data;
        assert_eq!((data.listed, data.from, data.opened), (150, 30, 150));
        assert_eq!((data.took_ns, data.total_ns), (300, 1_300));
        assert_eq!(data.slab_bytes, 8);
        let connects = &data.figures["connect_even_ns"];
        assert_eq!(
            (connects.min, connects.max, connects.sum),
            (100, 300, 24_000)
        );
        assert_eq!(step.parts[2].order.open, [10, 50]);
    }

    #[test]
    fn losses_of_all_hosts_add_up() {
        let one = |lost: Option<u64>| Reached {
            lost: lost.map(|count| Lost {
                count,
                first: Some(3),
            }),
            ..Reached::default()
        };
        let hosts = hosts(&["a", "b"]);
        let orders = split(&order(&[30]), 2);
        for (counts, expected) in [([Some(7), Some(4)], Some(11)), ([None; 2], None)] {
            let all = (0..2).map(|nth| did(nth, one(counts[nth]))).collect();
            let data = Step::together(&hosts, &orders, all, 0).data;
            assert_eq!(data.lost.map(|lost| lost.count), expected);
            assert_eq!(data.lost.and_then(|lost| lost.first), None);
        }
    }

    #[test]
    fn who_had_to_stop_is_named() {
        let stopped = Stopped {
            call: "connect".to_owned(),
            error: "EADDRNOTAVAIL".to_owned(),
            text: "no port is left".to_owned(),
            ..Stopped::default()
        };
        let short = Reached {
            stopped: Some(stopped),
            around: Circumstances {
                deaths: vec!["client 0: killed".to_owned()],
                ..Circumstances::default()
            },
            ..Reached::default()
        };
        let hosts = hosts(&["a", "b"]);
        let orders = split(&order(&[30]), 2);
        let all = vec![did(0, Reached::default()), did(1, short)];
        let data = Step::together(&hosts, &orders, all, 0).data;
        assert_eq!(data.stopped.unwrap().text, "h1: no port is left");
        assert_eq!(data.around.deaths, ["h1: client 0: killed"]);
    }

    #[test]
    fn connections_are_closed_by_all_and_rest_once_a_network() {
        let one = |took| Closed {
            figures: vec![(5, connects(took, 5)), (10, connects(took, 5))],
            time_wait_left: Some(10),
            ..Closed::default()
        };
        let mut hosts = hosts(&["a", "a", "b"]);
        hosts[1].name = hosts[0].name.clone();
        let order = order(&[15, 30, 300]);
        let closed = closed(
            &hosts,
            &order,
            &[did(0, one(1)), did(1, one(2)), did(2, one(3))],
        );
        let listed: Vec<u64> = closed.figures.iter().map(|(listed, _)| *listed).collect();
        assert_eq!(listed, [15, 30], "the last was not reached");
        assert_eq!(closed.figures[0].1["connect_even_ns"].sum, 30);
        assert_eq!(closed.time_wait_left, Some(20));
    }
}
