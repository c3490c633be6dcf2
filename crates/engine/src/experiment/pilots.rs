//! What runs will take, before the first is made: by short runs of their own.

use super::{Course, Progress, Stop};
use crate::requested;
use crate::schedule::{Pilot, Timing};
use jostle_model::Nanos;
use jostle_model::record::{At, Calibration};
use std::collections::BTreeMap;
use std::time::Instant;

/// How long a pilot counts grants to tell their mean time.
pub(super) const PILOT: Nanos = Nanos::from_millis(200);

/// Before it counts.
pub(super) const PILOT_WARMUP: Nanos = Nanos::from_millis(50);

/// Starting, stopping and reaping a worker, where no pilot measured it.
const WORKER_OVERHEAD: Nanos = Nanos::from_micros(300);

/// Operations of each worker from which a mean says anything.
const FEWEST: u64 = 5;

/// What a run of a few operations should take, so that they tell more than its start.
const FEW_TAKE_NS: f64 = 50e6;

/// What a run of a few operations has told.
#[derive(Clone, Copy, Debug)]
struct Few {
    /// Nanoseconds an operation, all workers together.
    each_ns: f64,
    /// All around the operations: workers and servers that start and end.
    overhead: Nanos,
}

impl Course<'_, '_> {
    pub(super) fn pilots(
        &mut self,
        points: &[(usize, At)],
        calibration: &Calibration,
    ) -> Result<Vec<Pilot>, Stop> {
        points
            .iter()
            .map(|(target, at)| self.pilot(*target, *at, calibration))
            .collect()
    }

    /// What runs of so many operations will take, by runs of a few of them: what a pair
    /// costs alone says little where workers wait for each other.
    pub(super) fn estimates(
        &mut self,
        points: &[(usize, At)],
        calibration: &Calibration,
    ) -> Result<Vec<Timing>, Stop> {
        let mut known = BTreeMap::<(usize, Option<u64>), Few>::new();
        let mut timings = Vec::new();
        for (target, at) in points {
            let workers = at.workers.unwrap_or(1);
            let operations = workers * at.operations.or(at.keys).unwrap_or(1);
            let place = (*target, at.workers);
            let few = match known.get(&place) {
                Some(few) => *few,
                None => self.few(*target, *at, calibration)?,
            };
            known.insert(place, few);
            // Requests that do nothing take no longer.
            let nulls = match self.resolved.specs[*target].entry.is_asked() {
                true => requested::nulls(&self.resolved.plan, at.operations.unwrap_or(1)),
                false => 0,
            };
            let nulls_ns = (workers * nulls) as f64 * few.each_ns;
            timings.push(Timing {
                window: Nanos((operations as f64 * few.each_ns) as u64),
                warmup: Nanos::ZERO,
                overhead: Nanos(few.overhead.0 + nulls_ns as u64),
            });
        }
        Ok(timings)
    }

    /// A run of a few operations of each worker.
    fn few(&mut self, target: usize, at: At, calibration: &Calibration) -> Result<Few, Stop> {
        let spec = &self.resolved.specs[target];
        let plan = &self.resolved.plan;
        (self.hooks.progress)(Progress::Pilot(&spec.typed, at));
        let workers = at.workers.unwrap_or(1);
        let depth = plan.pipeline.unwrap_or(1);
        let alone_ns = calibration
            .own_cost
            .get(&spec.typed)
            .map(|cost| cost.pair_ns);
        let wanted = match alone_ns {
            Some(pair_ns) => enough(pipelined(pair_ns, depth) * workers as f64).max(depth),
            // The own cost is measured for locks alone.
            None => FEWEST,
        };
        let mut order = self.order(target, at, 0, 0, calibration);
        order.workload = order.workload.of_at_most(wanted);
        order.window = plan.duration.unwrap_or(PILOT);
        order.warmup = Nanos::ZERO;
        let few = order.workload.operations().unwrap_or(1);
        let began = Instant::now();
        let data = self.ask(&order)?.data;
        let took_ns = began.elapsed().as_nanos() as u64;
        Ok(Few {
            each_ns: data.window_ns as f64 / (few * workers) as f64,
            overhead: Nanos(took_ns.saturating_sub(data.window_ns)),
        })
    }

    /// How long one grant and the overhead of a run take. Where the plan gives
    /// the window, it is obeyed, and a guess will do for the rest.
    fn pilot(&mut self, target: usize, at: At, calibration: &Calibration) -> Result<Pilot, Stop> {
        let plan = &self.resolved.plan;
        let workers = at.workers.or(plan.in_flight).unwrap_or(1);
        let hold = plan.hold.map_or(0, |hold| hold.span().0);
        if plan.duration.is_some() {
            return Ok(Pilot {
                workers,
                grant: Nanos(hold.max(1_000)),
                overhead: Nanos(WORKER_OVERHEAD.0 * workers),
            });
        }
        let typed = &self.resolved.specs[target].typed;
        (self.hooks.progress)(Progress::Pilot(typed, at));
        let mut order = self.order(target, at, 0, 0, calibration);
        (order.window, order.warmup) = (PILOT, PILOT_WARMUP);
        let began = Instant::now();
        let data = self.ask(&order)?.data;
        let took_ns = began.elapsed().as_nanos() as u64;
        let grants: u64 = data.operations.iter().sum();
        Ok(Pilot {
            workers,
            grant: Nanos(
                data.window_ns
                    .checked_div(grants)
                    .unwrap_or(PILOT.0.max(hold)),
            ),
            // All around the window: workers that start and end, and the machine's pulse.
            overhead: Nanos(took_ns.saturating_sub(data.window_ns + PILOT_WARMUP.0)),
        })
    }
}

/// Operations of each worker that take long enough together, by what one of all
/// workers takes.
fn enough(round_ns: f64) -> u64 {
    ((FEW_TAKE_NS / round_ns.max(1.0)) as u64).max(FEWEST)
}

/// What a pair takes with so many on their way: the way to the server is shared,
/// but not what it does.
fn pipelined(pair_ns: f64, depth: u64) -> f64 {
    /// Client and server together, per pair, at the least.
    const WORK_NS: f64 = 1_000.0;
    match depth {
        0 | 1 => pair_ns,
        depth => (pair_ns / depth as f64).max(WORK_NS.min(pair_ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_operations_are_more_of_quick_ones() {
        assert_eq!(enough(50_000.0), 1_000);
        assert_eq!(enough(1e9), FEWEST);
        assert_eq!(enough(0.0), 50_000_000);
    }

    #[test]
    fn requests_that_are_sent_together_share_the_way() {
        for (pair, depth, expected) in [
            (40_000.0, 1, 40_000.0),
            (40_000.0, 16, 2_500.0),
            (40_000.0, 1_000, 1_000.0),
            (600.0, 16, 600.0),
        ] {
            assert_eq!(pipelined(pair, depth), expected, "{pair} {depth}");
        }
    }
}
