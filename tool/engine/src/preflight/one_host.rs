//! One host's part of a plan for several hosts: pure.
//!
//! Only the size of the largest part, for checks of one machine's limits. `world::split`
//! deals out the runs; a test keeps the two consistent.

use crate::hosts::{Host, here};
use jostle_model::List;
use jostle_model::plan::{Plan, Workload};

/// The first host's part of a plan, which is the largest.
#[derive(Clone, Debug, PartialEq)]
pub struct OneHost {
    /// The plan, with parts in place of the totals that hosts share (workers, requests
    /// in flight, rates, connections), each as large as in any point. What belongs to
    /// each host stays, as sources, ports and other listeners do.
    pub plan: Plan,
    /// Workers are dealt among so many hosts where a host gets the most of them.
    pub hosts: u64,
    /// How many of these hosts may be on this machine, itself among them.
    pub ranks: u64,
    /// The host whose limits are checked; empty where there is but this host.
    whose: String,
}

impl OneHost {
    /// The part of one among all `hosts` by rank; with none this one is alone.
    pub fn new(plan: &Plan, hosts: &[Host]) -> OneHost {
        let all = hosts.len().max(1) as u64;
        let machines = here(hosts);
        let of_first = machines.iter().filter(|h| h.machine == machines[0].machine);
        let (part, taking) = dealt(plan, all);
        OneHost {
            plan: part,
            hosts: taking,
            ranks: (of_first.count() as u64).clamp(1, taking),
            whose: match hosts {
                [first, _, ..] => format!(
                    "by the limits of {}, for its part as one of {all} hosts: ",
                    first.name
                ),
                _ => String::new(),
            },
        }
    }

    /// The words before a sentence about limits, such as `by the limits of h1, for its part as one
    /// of 18 hosts: `; nothing where there is but this host.
    pub fn whose(&self) -> &str {
        &self.whose
    }
}

/// The largest part, and among how many hosts workers are then dealt.
fn dealt(plan: &Plan, hosts: u64) -> (Plan, u64) {
    let mut part = plan.clone();
    let fewest = match plan.workload {
        Workload::Spread => least(&plan.generators),
        // A host sends at least one request a second.
        Workload::Rate => least(&plan.rate),
        // Those that open the fewest go on to the most.
        Workload::Connect => least(&plan.open).into_iter().chain(least(&plan.rate)).min(),
        _ => None,
    };
    let taking = fewest.map_or(hosts, |fewest| fewest.clamp(1, hosts));
    if hosts > 1 && plan.workload == Workload::Spread {
        // A host is a generator.
        part.generators = Some(List(vec![1]));
    }
    deal(&mut part.workers, taking);
    deal(&mut part.open, taking);
    part.in_flight = plan.in_flight.map(|all| all.div_ceil(taking));
    let sending = least(&plan.workers).map(|workers| workers.clamp(1, hosts));
    deal(&mut part.rate, sending.unwrap_or(taking));
    (part, taking)
}

fn least(list: &Option<List>) -> Option<u64> {
    list.as_ref()?.0.iter().min().copied()
}

/// Where there is less than one for each host, one is the largest part.
fn deal(list: &mut Option<List>, hosts: u64) {
    let all = list.iter_mut().flat_map(|list| &mut list.0);
    all.for_each(|total| *total = total.div_ceil(hosts));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::order_of;
    use crate::order::{RunOrder, WorkloadOrder};
    use crate::world::split::split;
    use crate::world::sweeps;
    use proptest::prelude::*;

    fn list(values: &[u64]) -> Option<List> {
        (!values.is_empty()).then(|| List(values.to_vec()))
    }

    /// So many hosts, of a machine each.
    fn hosts(count: usize) -> Vec<Host> {
        let host = |nth: usize| Host {
            name: format!("h{}", nth + 1),
            boot_id: format!("{nth}"),
            ..Host::default()
        };
        (0..count).map(host).collect()
    }

    #[test]
    fn totals_are_dealt_and_rounded_up() {
        use Workload::{Contend, Hold, Rate, Spread, Stream};
        // workload, workers, in flight, generators or rates, hosts -> workers, hosts
        type Row = (
            Workload,
            &'static [u64],
            &'static [u64],
            usize,
            &'static [u64],
            u64,
        );
        let table: [Row; 9] = [
            (Contend, &[10, 1_000], &[], 1, &[10, 1_000], 1),
            (Contend, &[10, 1_000], &[], 18, &[1, 56], 18),
            (Stream, &[2], &[], 3, &[1], 3), // the third sleeps
            (Hold, &[7], &[], 3, &[3], 3),
            (Rate, &[64], &[100], 3, &[22], 3),
            // One request a second is one host's, with all who may send it.
            (Rate, &[64], &[1, 1_000], 3, &[64], 1),
            // Three hosts have more each than eighteen.
            (Spread, &[90], &[3, 6, 9, 18], 18, &[30], 3),
            (Spread, &[90], &[18], 18, &[5], 18),
            (Spread, &[90], &[3, 18], 1, &[90], 1),
        ];
        for (workload, workers, second, count, parts, taking) in table {
            let mut plan = Plan::of(workload);
            match workload {
                Spread => (plan.in_flight, plan.generators) = (Some(workers[0]), list(second)),
                _ => (plan.workers, plan.rate) = (list(workers), list(second)),
            }
            let one = OneHost::new(&plan, &hosts(count));
            let found = one.plan.workers.clone();
            let found = found.or(one.plan.in_flight.map(|n| List(vec![n])));
            assert_eq!(found, list(parts), "{plan:?} on {count}");
            assert_eq!(one.hosts, taking, "{plan:?} on {count}");
        }
    }

    #[test]
    fn connections_are_dealt_and_what_each_host_has_of_its_own_is_not() {
        let mut plan = Plan::of(Workload::Connect);
        (plan.open, plan.rate) = (list(&[10, 1_000, 100_000]), list(&[1_000]));
        (plan.listeners, plan.sources) = (list(&[0, 500]), list(&[1, 4]));
        (plan.ports, plan.port_range) = (Some(8), "1024-65535".parse().ok());
        // Ten hosts take part from the first number to the last.
        let expected = Plan {
            open: list(&[1, 100, 10_000]),
            rate: list(&[100]),
            ..plan.clone()
        };
        assert_eq!(OneHost::new(&plan, &hosts(18)).plan, expected);
        for (open, rate) in [
            (&[10, 1_000, 100_000][..], Some(1_000)),
            (&[100, 101], Some(3)),
            (&[100, 107], None),
        ] {
            (plan.open, plan.rate) = (list(open), rate.map(|rate| List(vec![rate])));
            let mut order = sweeps::tests::order(open);
            order.rate = rate;
            let first = sweeps::split(&order, 18).remove(0).unwrap();
            let one = OneHost::new(&plan, &hosts(18)).plan;
            assert_eq!(one.open, Some(List(first.open)));
            assert_eq!(one.rate, first.rate.map(|rate| List(vec![rate])));
        }
        for alone in [0, 1] {
            assert_eq!(OneHost::new(&plan, &hosts(alone)).plan, plan);
        }
    }

    #[test]
    fn ranks_of_one_machine_share_its_limits() {
        let mut plan = Plan::of(Workload::Spread);
        (plan.in_flight, plan.generators) = (Some(90), list(&[3, 18]));
        let mut all = hosts(18);
        assert_eq!(OneHost::new(&plan, &all).ranks, 1);
        for nth in [5, 17] {
            all[nth].boot_id = all[0].boot_id.clone();
        }
        assert_eq!(OneHost::new(&plan, &all).ranks, 3);
        for host in &mut all {
            host.boot_id = "one".to_owned();
        }
        // No more than take part where a host gets the most.
        assert_eq!(OneHost::new(&plan, &all).ranks, 3);
        plan.generators = list(&[18]);
        assert_eq!(OneHost::new(&plan, &all).ranks, 18);
    }

    #[test]
    fn whose_limits_they_are_is_said_where_there_are_several() {
        let plan = Plan::of(Workload::Contend);
        let said = |count| OneHost::new(&plan, &hosts(count)).whose().to_owned();
        assert_eq!(
            said(18),
            "by the limits of h1, for its part as one of 18 hosts: "
        );
        assert_eq!((said(0), said(1)), Default::default());
    }

    /// The order of one point.
    fn order(workload: Workload, workers: u64, second: u64) -> RunOrder {
        let mut order = order_of(workload, "lockd://server:2626", workers as usize);
        match &mut order.workload {
            WorkloadOrder::Spread(spread) => spread.generators = second as usize,
            WorkloadOrder::Rate(rate) => rate.open_loop.per_s = second,
            _ => {}
        }
        order
    }

    fn per_s(order: &RunOrder) -> Option<u64> {
        match &order.workload {
            WorkloadOrder::Rate(rate) => Some(rate.open_loop.per_s),
            _ => None,
        }
    }

    proptest! {
        /// The largest part is looked for over all points and all hosts.
        #[test]
        fn the_part_is_the_largest_that_a_run_is_split_into(
            workload in proptest::sample::select(vec![
                Workload::Contend, Workload::Rate, Workload::Spread,
            ]),
            workers in proptest::collection::vec(1..500u64, 1..4),
            second in proptest::collection::vec(1..100u64, 1..4),
            count in 1..70usize,
        ) {
            let mut plan = Plan::of(workload);
            let workers = match workload {
                Workload::Spread => workers[..1].to_vec(),
                _ => workers,
            };
            match workload {
                Workload::Spread => {
                    (plan.in_flight, plan.generators) = (Some(workers[0]), list(&second));
                }
                Workload::Rate => (plan.workers, plan.rate) = (list(&workers), list(&second)),
                _ => plan.workers = list(&workers),
            }
            let orders = workers.iter().flat_map(|w| second.iter().map(|s| order(workload, *w, *s)));
            let parts: Vec<RunOrder> = orders
                .flat_map(|order| split(&order, count, 7).into_iter().flatten())
                .collect();
            let one = OneHost::new(&plan, &hosts(count)).plan;
            let most = |list: &Option<List>| list.as_ref().and_then(|l| l.0.iter().max().copied());
            let largest = parts.iter().map(|part| part.workers as u64).max();
            prop_assert_eq!(most(&one.workers).or(one.in_flight), largest);
            prop_assert_eq!(most(&one.rate), parts.iter().filter_map(per_s).max());
        }
    }
}
