//! Requests that were spread over generators, from the parent's side: what their
//! data add to a record.

use crate::budgets::budgets;
use crate::order::{GeneratorData, RunData, RunOrder, SpreadData, WorkloadOrder};
use jostle_model::record::{GeneratorProcess, Spread, ThreadLoad, Waits};
use jostle_sys::cpu;

/// How busy the generators were, one after the other.
pub(crate) fn thread_loads(
    order: &RunOrder,
    spread: &SpreadData,
    window_ns: u64,
) -> Vec<ThreadLoad> {
    let shared = of_cpus(order, spread, window_ns as f64);
    let each = spread.generators.iter();
    each.map(|generator| thread_load(order, generator, shared, window_ns as f64))
        .collect()
}

/// Share of their CPUs that all generators together used. Of many threads that
/// share a CPU none is busy for long before all are.
fn of_cpus(order: &RunOrder, spread: &SpreadData, window_ns: f64) -> f64 {
    let cpus = match order.cpus.len() {
        0 => cpu::allowed().len(),
        placed => placed,
    };
    let used: u64 = spread.generators.iter().filter_map(|g| g.cpu_ns).sum();
    used as f64 / (cpus.max(1) as f64 * window_ns.max(1.0))
}

fn thread_load(
    order: &RunOrder,
    generator: &GeneratorData,
    shared: f64,
    window_ns: f64,
) -> ThreadLoad {
    let (busiest, queued) = generator.busiest.unwrap_or_default();
    let throttled_share = generator
        .periods
        .map(|(periods, throttled)| throttled as f64 / periods.max(1) as f64);
    ThreadLoad {
        busy_share: busiest
            .max(of_quota(order, generator, window_ns))
            .max(generator.of_cpus.unwrap_or(shared)),
        runqueue_share: queued,
        process: Some(GeneratorProcess {
            rank: generator.rank,
            workers: generator.workers,
            operations: generator.operations,
            cpu_s: generator.cpu_ns.map(|ns| ns as f64 / 1e9),
            throttled_share,
            still_share: generator.still_ns as f64 / window_ns.max(1.0),
        }),
    }
}

/// Share of its quota that a generator used. A throttled thread does not wait for a CPU by
/// the scheduler's count.
fn of_quota(order: &RunOrder, generator: &GeneratorData, window_ns: f64) -> f64 {
    let used = quota(order)
        .zip(generator.cpu_ns)
        .map(|(quota, cpu_ns)| cpu_ns as f64 / (quota * window_ns.max(1.0)));
    used.unwrap_or(0.0)
}

/// CPUs' worth of time that each generator gets; None: no limit.
fn quota(order: &RunOrder) -> Option<f64> {
    match &order.workload {
        WorkloadOrder::Spread(spread) => spread.generator_cpu,
        WorkloadOrder::Contend(_)
        | WorkloadOrder::Stream(_)
        | WorkloadOrder::Ask(_)
        | WorkloadOrder::Hold(_)
        | WorkloadOrder::Rate(_) => None,
    }
}

/// What keeping so many in flight was like.
///
/// Little's law (Operations Research 9, 1961): the mean number in flight is the rate
/// by the mean time in flight. Over a finite window it holds exactly of the time that
/// lies within the window.
pub(crate) fn record(
    order: &RunOrder,
    spread: &SpreadData,
    data: &RunData,
    response_ns: Option<Waits>,
) -> Spread {
    let window_ns = data.window_ns.max(1) as f64;
    let still: f64 = spread
        .generators
        .iter()
        .map(|generator| generator.workers as f64 * generator.still_ns as f64)
        .sum();
    let in_flight = spread.in_flight_ns as f64;
    let own = data.cpu_ns.zip(data.runqueue_wait_ns);
    let budgets = budgets(&spread.sides);
    Spread {
        in_flight: order.workers as u64,
        effective: (in_flight - still).max(0.0) / window_ns,
        at_server: own
            .map(|(cpu, queued)| (in_flight - still - (cpu + queued) as f64).max(0.0) / window_ns),
        generator_cpu: quota(order),
        response_ns,
        disjoint: budgets.disjoint,
        budgets: budgets.text,
        by_address: budgets.by_address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::order_of;
    use jostle_model::plan::Workload;

    #[test]
    fn what_stands_still_keeps_nothing_in_flight() {
        let mut order = order_of(Workload::Spread, "null", 6);
        if let WorkloadOrder::Spread(spread) = &mut order.workload {
            spread.generator_cpu = Some(0.5);
        }
        order.cpus = vec![0];
        let generator = |still_ns, cpu_ns| GeneratorData {
            workers: 3,
            cpu_ns: Some(cpu_ns),
            busiest: Some((0.3, 0.1)),
            still_ns,
            ..GeneratorData::default()
        };
        let spread = SpreadData {
            generators: vec![generator(0, 100), generator(500, 480)],
            in_flight_ns: 6_000,
            ..SpreadData::default()
        };
        let data = RunData {
            window_ns: 1_000,
            cpu_ns: Some(580),
            runqueue_wait_ns: Some(420),
            ..RunData::default()
        };
        let record = record(&order, &spread, &data, None);
        assert_eq!((record.effective, record.at_server), (4.5, Some(3.5)));
        let busy: Vec<f64> = thread_loads(&order, &spread, 1_000)
            .iter()
            .map(|generator| generator.busy_share)
            .collect();
        // All of them used 0.58 of their CPU, and the second 0.96 of its quota.
        assert_eq!(busy, [0.58, 0.96]);
    }
}
