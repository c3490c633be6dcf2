//! Requests that were spread over generators, from the parent's side: what their
//! data add to a record.

use crate::budgets::budgets;
use crate::order::{RunData, RunOrder, SpreadData, WorkloadOrder};
use jostle_model::record::{Spread, Waits};

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

/// The record of keeping so many in flight.
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
    let window_ns = data.window.window_ns().max(1) as f64;
    let (in_flight, still) = (spread.in_flight_ns as f64, spread.still_ns as f64);
    let own = data.cpu.used_ns.zip(data.cpu.runqueue_wait_ns);
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
    use crate::order::CpuData;
    use jostle_model::plan::Workload;
    use jostle_model::record::Window;

    #[test]
    fn what_stands_still_keeps_nothing_in_flight() {
        let mut order = order_of(Workload::Spread, "null", 6);
        if let WorkloadOrder::Spread(spread) = &mut order.workload {
            spread.generator_cpu = Some(0.5);
        }
        let spread = SpreadData {
            in_flight_ns: 6_000,
            still_ns: 3 * 500,
            ..SpreadData::default()
        };
        let data = RunData {
            window: Window {
                window_s: 1e-6,
                ..Window::default()
            },
            cpu: CpuData {
                used_ns: Some(580),
                runqueue_wait_ns: Some(420),
                ..CpuData::default()
            },
            ..RunData::default()
        };
        let record = record(&order, &spread, &data, None);
        assert_eq!((record.effective, record.at_server), (4.5, Some(3.5)));
    }
}
