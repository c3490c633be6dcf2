//! What runs will take, before the first is made: by short runs of their own, or,
//! of runs that end with their operations, by what one operation takes.

use super::{Course, Progress, Stop};
use crate::requested;
use crate::schedule::{Pilot, Timing};
use jostle_model::Nanos;
use jostle_model::record::{At, Calibration};
use std::collections::BTreeMap;

/// How long a pilot counts grants to tell their mean time.
pub(super) const PILOT: Nanos = Nanos::from_millis(200);

/// Before it counts.
pub(super) const PILOT_WARMUP: Nanos = Nanos::from_millis(50);

/// Starting, stopping and reaping a worker, where no pilot measured it.
const WORKER_OVERHEAD: Nanos = Nanos::from_micros(300);

/// Starting and ending a server of a run's own.
const COUNTED_OVERHEAD: Nanos = Nanos::from_millis(20);

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

    /// What runs of so many operations will take: of locks by the cost of a pair
    /// alone, since workers may wait for each other; of requests by a few of them.
    pub(super) fn estimates(
        &mut self,
        points: &[(usize, At)],
        calibration: &Calibration,
    ) -> Result<Vec<Timing>, Stop> {
        let mut known = BTreeMap::<(usize, Option<u64>), f64>::new();
        let mut timings = Vec::new();
        for (target, at) in points {
            let spec = &self.resolved.specs[*target];
            let workers = at.workers.unwrap_or(1);
            let operations = workers * at.operations.or(at.keys).unwrap_or(1);
            let mut overhead = COUNTED_OVERHEAD.0 + WORKER_OVERHEAD.0 * workers;
            let each_ns = if spec.entry.is_asked() {
                let place = (*target, at.workers);
                let each_ns = match known.get(&place) {
                    Some(each_ns) => *each_ns,
                    None => self.few_requests(*target, *at, calibration)?,
                };
                known.insert(place, each_ns);
                // Requests that do nothing take no longer.
                let nulls = requested::nulls(&self.resolved.plan, at.operations.unwrap_or(1));
                overhead += workers * nulls * each_ns as u64;
                each_ns
            } else {
                let cost = calibration.own_cost.get(&spec.typed);
                let depth = self.resolved.plan.pipeline.unwrap_or(1);
                pipelined(cost.map_or(0.0, |c| c.pair_ns), depth)
            };
            timings.push(Timing {
                window: Nanos((operations as f64 * each_ns) as u64),
                warmup: Nanos::ZERO,
                overhead: Nanos(overhead),
            });
        }
        Ok(timings)
    }

    /// Nanoseconds a request, all workers together, from a few of them.
    fn few_requests(
        &mut self,
        target: usize,
        at: At,
        calibration: &Calibration,
    ) -> Result<f64, Stop> {
        /// Of each worker.
        const FEW: u64 = 5;
        let typed = &self.resolved.specs[target].typed;
        (self.hooks.progress)(Progress::Pilot(typed, at));
        let few = at.operations.unwrap_or(1).min(FEW);
        let mut order = self.order(target, at, 0, 0, calibration);
        order.operations = few;
        order.window = self.resolved.plan.duration.unwrap_or(PILOT);
        order.warmup = Nanos::ZERO;
        let data = self.ask(&order)?.data;
        Ok(data.window_ns as f64 / (few * at.workers.unwrap_or(1)) as f64)
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
        let data = self.ask(&order)?.data;
        let grants: u64 = data.operations.iter().sum();
        Ok(Pilot {
            workers,
            grant: Nanos(
                data.window_ns
                    .checked_div(grants)
                    .unwrap_or(PILOT.0.max(hold)),
            ),
            overhead: Nanos(data.ramp_ns + data.start_spread_ns + data.drain_ns),
        })
    }
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
