//! From one run to the parts of several hosts: pure.
//!
//! Workers, requests in flight and rates are totals of all hosts, dealt as evenly as
//! can be, the remainder to the first ranks. What belongs to a worker (operations,
//! locks that it holds) or to a generator (its quota, its threads) stays as it is.

use crate::order::{RunOrder, Share, WorkloadOrder};
use jostle_model::Nanos;
use jostle_stats::rng::Rng;

/// The order of each rank; those with None sleep. `names` is what the names of locks are made of.
pub(crate) fn split(order: &RunOrder, ranks: usize, names: u64) -> Vec<Option<RunOrder>> {
    let hosts = taking_part(order, ranks);
    (0..ranks)
        .map(|rank| (rank < hosts).then(|| part(order, rank, hosts, names)))
        .collect()
}

/// How many hosts take part: as many as are asked for as generators, else all that
/// there is a worker for and, at a rate, a request a second.
pub(crate) fn taking_part(order: &RunOrder, ranks: usize) -> usize {
    let most = match &order.workload {
        WorkloadOrder::Spread(spread) => spread.generators,
        WorkloadOrder::Rate(rate) => order.workers.min(rate.open_loop.per_s as usize),
        WorkloadOrder::Contend(_)
        | WorkloadOrder::Stream(_)
        | WorkloadOrder::Ask(_)
        | WorkloadOrder::Hold(_) => order.workers,
    };
    most.min(ranks).max(1)
}

/// The order of all of them together, as whoever reads the merged data needs it.
pub(crate) fn whole(order: &RunOrder, ranks: usize, names: u64) -> RunOrder {
    RunOrder {
        share: Some(Share {
            nth: 0,
            hosts: taking_part(order, ranks),
            first_worker: 0,
            workers: order.workers,
            names,
        }),
        ..order.clone()
    }
}

fn part(order: &RunOrder, nth: usize, hosts: usize, names: u64) -> RunOrder {
    let workers = dealt(order.workers as u64, hosts, nth) as usize;
    RunOrder {
        workers,
        generator_threads: order.generator_threads.min(workers),
        workload: workload(&order.workload, nth, hosts),
        share: Some(Share {
            nth,
            hosts,
            first_worker: before(order.workers, hosts, nth),
            workers: order.workers,
            names,
        }),
        // Two hosts with one seed would draw the same locks at the same time.
        seed: match nth {
            0 => order.seed,
            _ => Rng::stream(order.seed, nth as u64).next_u64(),
        },
        ..order.clone()
    }
}

fn workload(workload: &WorkloadOrder, nth: usize, hosts: usize) -> WorkloadOrder {
    let mut part = workload.clone();
    match &mut part {
        // A host is a generator.
        WorkloadOrder::Spread(spread) => spread.generators = 1,
        WorkloadOrder::Rate(rate) => {
            let open = &mut rate.open_loop;
            let gap_ns = 1_000_000_000 / open.per_s.max(1);
            open.first_after = Nanos(nth as u64 * gap_ns);
            open.per_s = dealt(open.per_s, hosts, nth);
        }
        WorkloadOrder::Contend(_)
        | WorkloadOrder::Stream(_)
        | WorkloadOrder::Ask(_)
        | WorkloadOrder::Hold(_) => {}
    }
    part
}

/// The part of host `nth`, where the first ones get the remainder.
pub(crate) fn dealt(total: u64, hosts: usize, nth: usize) -> u64 {
    let (hosts, nth) = (hosts as u64, nth as u64);
    total / hosts + u64::from(nth < total % hosts)
}

/// The sum of what was dealt to those before.
fn before(total: usize, hosts: usize, nth: usize) -> usize {
    nth * (total / hosts) + nth.min(total % hosts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::{order_of, spread_over};
    use crate::order::OpenLoopOrder;
    use jostle_model::plan::Workload;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn order(workload: Workload, workers: usize) -> RunOrder {
        order_of(workload, "lockd://server:2626", workers)
    }

    fn parts(order: &RunOrder, ranks: usize) -> Vec<RunOrder> {
        split(order, ranks, 7).into_iter().flatten().collect()
    }

    #[test]
    fn workers_are_dealt_evenly_and_the_first_ranks_get_the_remainder() {
        // workers, ranks -> each
        let table: [(usize, usize, &[usize]); 4] = [
            (90, 18, &[5; 18]),
            (10, 3, &[4, 3, 3]),
            (2, 3, &[1, 1]), // the third sleeps
            (7, 1, &[7]),
        ];
        for (workers, ranks, each) in table {
            let parts = parts(&order(Workload::Contend, workers), ranks);
            let dealt: Vec<usize> = parts.iter().map(|part| part.workers).collect();
            assert_eq!(dealt, each, "{workers} {ranks}");
        }
    }

    #[test]
    fn generators_are_the_hosts_that_take_part() {
        let orders = split(&spread_over(3, 90), 18, 7);
        assert_eq!(orders.len(), 18);
        assert!(orders[3..].iter().all(Option::is_none));
        for order in orders[..3].iter().flatten() {
            let WorkloadOrder::Spread(spread) = &order.workload else {
                panic!("{order:?}")
            };
            assert_eq!((order.workers, spread.generators), (30, 1));
        }
    }

    #[test]
    fn a_rate_is_a_total_and_hosts_take_turns() {
        let of = |order: &RunOrder| -> OpenLoopOrder {
            let WorkloadOrder::Rate(rate) = &order.workload else {
                panic!("{order:?}")
            };
            rate.open_loop
        };
        let at = |per_s: u64| {
            let mut order = order(Workload::Rate, 64);
            if let WorkloadOrder::Rate(rate) = &mut order.workload {
                rate.open_loop.per_s = per_s;
            }
            order
        };
        let parts = parts(&at(100), 3);
        let each: Vec<_> = parts
            .iter()
            .map(|p| (of(p).per_s, of(p).first_after.0))
            .collect();
        assert_eq!(each, [(34, 0), (33, 10_000_000), (33, 20_000_000)]);
        // One request a second cannot be dealt to three.
        assert_eq!(taking_part(&at(1), 3), 1);
    }

    #[test]
    fn the_part_of_a_host_alone_is_the_whole() {
        let whole = order(Workload::Contend, 10);
        let only = parts(&whole, 1).remove(0);
        assert!(only.share.is_some_and(|share| share.hosts == 1));
        let without = RunOrder {
            share: None,
            ..only
        };
        assert_eq!(without, whole);
    }

    #[test]
    fn hosts_draw_different_numbers_from_one_seed() {
        let parts = parts(&order(Workload::Contend, 10), 5);
        let seeds: BTreeSet<u64> = parts.iter().map(|part| part.seed).collect();
        assert_eq!(seeds.len(), 5);
        assert_eq!(parts[0].seed, 1);
    }

    proptest! {
        /// Nothing is lost and nobody has the number of another: so locks that
        /// belong to one worker alone belong to one of one host alone.
        #[test]
        fn all_workers_have_numbers_of_their_own(workers in 1..500usize, ranks in 1..70usize) {
            let stream = order(Workload::Stream, workers);
            let parts = parts(&stream, ranks);
            let numbers: Vec<usize> = parts
                .iter()
                .flat_map(|part| (0..part.workers).map(|worker| part.number(worker)))
                .collect();
            prop_assert_eq!(numbers, (0..workers).collect::<Vec<_>>());
            let sizes: BTreeSet<usize> = parts.iter().map(|part| part.workers).collect();
            prop_assert!(sizes.len() <= 2 && !sizes.contains(&0));
        }
    }
}
