//! The ceiling of each host by itself, from the orders of runs in which it is alone to the rows of
//! the record: pure.

use super::{Host, Part, machines, name, split};
use crate::order::RunOrder;
use crate::run::{self, Which};
use jostle_model::Nanos;
use jostle_model::hosts::HostCeiling;
use jostle_model::plan::Plan;
use jostle_model::record::{At, Run};
use jostle_model::text::redacted;
use jostle_stats::intervals;

const WINDOW: Nanos = Nanos::from_millis(250);
const WARMUP: Nanos = Nanos::from_millis(50);

/// Agreeing on a start, asking clocks and gathering, of one run.
const OVERHEAD: Nanos = Nanos::from_millis(120);

/// Below this count, chance alone makes an error of a tenth (the root of a Poisson count),
/// which is the difference by which hosts are told apart.
const ENOUGH: f64 = 100.0;

/// The time of one host, alone on one target.
pub fn takes() -> Nanos {
    Nanos(WINDOW.0 + WARMUP.0 + OVERHEAD.0)
}

/// The orders of one short run after the other: in that of rank n only n has one, the
/// part that it has where all take part.
pub(super) fn orders(order: &RunOrder, ranks: usize, names: u64) -> Vec<Vec<Option<RunOrder>>> {
    let mut short = order.clone();
    (short.window, short.warmup) = (WINDOW, WARMUP);
    let all = split::split(&short, ranks, names);
    let only = |rank: usize| {
        let mut orders = vec![None; ranks];
        orders[rank].clone_from(&all[rank]);
        orders
    };
    (0..split::taking_part(order, ranks)).map(only).collect()
}

/// One row for each host, of the runs in which each was alone. None where half of the
/// hosts did less than [`ENOUGH`].
pub(super) fn rows(plan: &Plan, hosts: &[Host], alone: &[Part]) -> Vec<HostCeiling> {
    let runs: Vec<Run> = alone.iter().map(|part| run(plan, hosts, part)).collect();
    let median = |figure: fn(&Run) -> f64| {
        let each: Vec<f64> = runs.iter().map(figure).collect();
        intervals::median(&each).unwrap_or(0.0)
    };
    if median(|run| run.operations as f64) < ENOUGH {
        return Vec::new();
    }
    let usual = median(|point| point.throughput_per_s);
    let each = alone.iter().zip(&runs);
    each.map(|(part, run)| HostCeiling {
        target: redacted(&part.order.target).into_owned(),
        rank: part.of.rank as u64,
        host: name(hosts, part.of.rank),
        workers: part.order.workers as u64,
        throughput_per_s: run.throughput_per_s,
        of_median: run.throughput_per_s / usual,
        busy_share: run
            .thread_loads
            .iter()
            .map(|load| load.busy_share)
            .reduce(f64::max),
    })
    .collect()
}

/// Nobody else worked, whatever machines the hosts share.
fn run(plan: &Plan, hosts: &[Host], part: &Part) -> Run {
    let which = Which {
        target: &part.order.target,
        at: At::default(),
        run: 0,
        block: 0,
    };
    let data = machines::own_view(hosts, std::slice::from_ref(part), part);
    run::record(plan, &part.order, which, &data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::spread_over;
    use crate::hosts::{HostData, Offset};
    use crate::order::{EachWorker, RunData};
    use crate::world::parts;
    use jostle_model::plan::Workload;
    use jostle_model::record::{ThreadLoad, Window};

    fn hosts(count: usize) -> Vec<Host> {
        let host = |nth: usize| Host {
            name: format!("h{nth}"),
            cpus: 2,
            ..Host::default()
        };
        (0..count).map(host).collect()
    }

    /// A host that does so many requests, whose busiest thread is never idle.
    fn did(rank: usize, operations: u64) -> HostData {
        let generator = ThreadLoad {
            busy_share: 1.0,
            runqueue_share: 0.5,
            process: None,
        };
        HostData {
            rank,
            data: RunData {
                window: Window {
                    window_s: WINDOW.as_secs_f64(),
                    ..Window::default()
                },
                workers: EachWorker {
                    operations: vec![operations],
                    ..EachWorker::default()
                },
                thread_loads: vec![generator],
                spread: Some(Box::default()),
                ..RunData::default()
            },
            clock: Offset::default(),
            late_ns: 0,
        }
    }

    /// Rows of hosts that do so much each, whoever else is asleep.
    fn rows_of(operations: &[u64]) -> Vec<HostCeiling> {
        let (all, order) = (hosts(operations.len()), spread_over(operations.len(), 10));
        let runs = orders(&order, all.len(), 7);
        let done = runs.into_iter().flat_map(|orders| {
            let taking = (0..all.len()).filter(|rank| orders[*rank].is_some());
            let gathered = taking.map(|rank| did(rank, operations[rank])).collect();
            parts(orders, gathered).unwrap()
        });
        let done: Vec<Part> = done.collect();
        rows(&Plan::of(Workload::Spread), &all, &done)
    }

    #[test]
    fn each_host_is_alone_once_with_the_share_that_it_has_among_all() {
        let whole = spread_over(3, 10);
        let runs = orders(&whole, 4, 7);
        // The fourth takes no part.
        assert_eq!(runs.len(), 3);
        let together = split::split(&whole, 4, 7);
        for (rank, orders) in runs.iter().enumerate() {
            let taking: Vec<usize> = (0..4).filter(|rank| orders[*rank].is_some()).collect();
            assert_eq!(taking, [rank]);
            let alone = orders[rank].clone().unwrap();
            assert_eq!((alone.window, alone.warmup), (WINDOW, WARMUP));
            let with_all = together[rank].clone().unwrap();
            let (window, warmup) = (with_all.window, with_all.warmup);
            let alone = RunOrder {
                window,
                warmup,
                ..alone
            };
            assert_eq!(alone, with_all);
        }
        let workers: Vec<usize> = runs.iter().flatten().flatten().map(|o| o.workers).collect();
        assert_eq!(workers, [4, 3, 3]);
    }

    #[test]
    fn a_host_s_ceiling_stands_beside_the_median_of_all() {
        let rows = rows_of(&[250, 200, 150]);
        let figures: Vec<_> = rows
            .iter()
            .map(|row| (row.rank, row.workers, row.throughput_per_s, row.of_median))
            .collect();
        assert_eq!(
            figures,
            [
                (0, 4, 1_000.0, 1.25),
                (1, 3, 800.0, 1.0),
                (2, 3, 600.0, 0.75)
            ]
        );
        assert_eq!(rows[2].host, "h2");
        assert_eq!(rows[2].busy_share, Some(1.0));
    }

    #[test]
    fn too_few_operations_tell_no_host_from_another() {
        for (operations, told) in [([99, 99, 500], 0), ([100, 100, 3], 3), ([0, 0, 0], 0)] {
            assert_eq!(rows_of(&operations).len(), told, "{operations:?}");
        }
    }
}
