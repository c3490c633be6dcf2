//! The expected time of runs, before the first is made: by short runs of their own.

use super::{ExperimentLoop, Progress, Stop};
use crate::keeper::KeeperError;
use crate::order::{RunData, RunOrder};
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

/// The time that a run of a few operations should take, so that they tell more than its start.
const FEW_TAKE_NS: f64 = 50e6;

/// From one run of a few operations to the next, at most: the start of a run makes its
/// operations look slower than they are, which only makes the next run shorter.
const GROWTH: u64 = 32;

/// The result of a run of a few operations.
#[derive(Clone, Copy, Debug)]
struct Few {
    /// Nanoseconds an operation, all workers together.
    each_ns: f64,
    /// All around the operations: workers and servers that start and end.
    overhead: Nanos,
}

impl ExperimentLoop<'_, '_> {
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

    /// The expected time of runs of so many operations, by runs of a few of them: what a pair costs
    /// alone says little where workers wait for each other.
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
            let kept_ns = self.resolved.plan.keep.map_or(0, |span| span.0);
            timings.push(Timing {
                window: Nanos((operations as f64 * few.each_ns) as u64),
                warmup: Nanos::ZERO,
                overhead: Nanos(few.overhead.0 + nulls_ns as u64 + kept_ns),
            });
        }
        Ok(timings)
    }

    /// Runs of ever more operations of each worker, until they take long enough to tell: what
    /// one alone costs may be a thousandth of what it takes beside busy neighbours.
    fn few(&mut self, target: usize, at: At, calibration: &Calibration) -> Result<Few, Stop> {
        let spec = &self.resolved.specs[target];
        let depth = self.resolved.plan.pipeline();
        (self.hooks.progress)(Progress::Pilot(&spec.typed, at));
        let workers = at.workers.unwrap_or(1);
        let alone_ns = calibration.own_cost.get(&spec.typed);
        let alone_ns = alone_ns.map(|cost| cost.pair_ns);
        let wanted = match alone_ns {
            Some(pair_ns) => enough(pipelined(pair_ns, depth) * workers as f64),
            // The own cost is measured for locks alone.
            None => FEWEST,
        };
        let most = wanted
            .max(depth)
            .min(at.operations.or(at.keys).unwrap_or(1));
        let mut operations = first(most).max(depth).min(most);
        loop {
            let few = self.run_of(operations, target, at, calibration)?;
            match more(operations, most, few.each_ns * workers as f64) {
                Some(next) => operations = next,
                None => return Ok(few),
            }
        }
    }

    fn run_of(
        &mut self,
        operations: u64,
        target: usize,
        at: At,
        calibration: &Calibration,
    ) -> Result<Few, Stop> {
        let mut order = self.order(target, at, 0, 0, calibration);
        order.workload = order.workload.of_at_most(operations).without_keeping();
        order.window = self.resolved.plan.duration.unwrap_or(PILOT);
        order.warmup = Nanos::ZERO;
        let began = Instant::now();
        let data = self.whole(&order)?;
        let took_ns = began.elapsed().as_nanos() as u64;
        let each = order.workload.operations().unwrap_or(1);
        let all = each * at.workers.unwrap_or(1);
        Ok(Few {
            each_ns: data.window.window_ns() as f64 / all as f64,
            overhead: Nanos(took_ns.saturating_sub(data.window.window_ns())),
        })
    }

    /// The data of a run that did not break off.
    fn whole(&mut self, order: &RunOrder) -> Result<RunData, Stop> {
        let data = self.ask(order)?.data;
        match &data.broke_off {
            Some(why) => {
                let why = [data.around.deaths.clone(), vec![why.clone()]].concat();
                Err(KeeperError::Failed(why.join("; then: ")).into())
            }
            None => Ok(data),
        }
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
        let data = self.whole(&order)?;
        let took_ns = began.elapsed().as_nanos() as u64;
        let grants: u64 = data.workers.operations.iter().sum();
        Ok(Pilot {
            workers,
            grant: Nanos(
                data.window
                    .window_ns()
                    .checked_div(grants)
                    .unwrap_or(PILOT.0.max(hold)),
            ),
            // All around the window: workers that start and end, and the machine's pulse.
            overhead: Nanos(took_ns.saturating_sub(data.window.window_ns() + PILOT_WARMUP.0)),
        })
    }
}

/// Operations of each worker that take long enough together, by what one of all
/// workers takes.
fn enough(round_ns: f64) -> u64 {
    ((FEW_TAKE_NS / round_ns.max(1.0)) as u64).max(FEWEST)
}

/// How many operations the first run makes, if at most this many are wanted.
fn first(most: u64) -> u64 {
    (most / (GROWTH * GROWTH)).max(FEWEST)
}

/// How many the next run is of, after one of `operations` that took `round_ns` for one of
/// each worker; none where that run tells enough.
fn more(operations: u64, most: u64, round_ns: f64) -> Option<u64> {
    let is_enough = operations as f64 * round_ns >= FEW_TAKE_NS / 2.0;
    let next = enough(round_ns).min(operations * GROWTH).min(most);
    (!is_enough && next > operations).then_some(next)
}

/// The time of a pair when this many are on their way: they share the way to the server,
/// but not the server's work.
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

    /// However wrong the first guess, in a few runs, of which none takes much longer than
    /// it should.
    #[test]
    fn runs_grow_until_they_tell_and_no_further() {
        for each_ns in [100.0, 30e3, 5e6, 1e9] {
            for most in [1, FEWEST, 1_000, enough(500.0)] {
                let mut took = vec![first(most).min(most)];
                while let Some(next) = more(*took.last().unwrap(), most, each_ns) {
                    took.push(next);
                }
                let last = *took.last().unwrap();
                assert!(took.len() <= 4, "{each_ns} {most}: {took:?}");
                assert!(took.is_sorted(), "{took:?}");
                let tells = last as f64 * each_ns >= FEW_TAKE_NS / 2.0;
                assert!(tells || last == most, "{each_ns} {most}: {took:?}");
                let bound = FEW_TAKE_NS.max((FEWEST.max(most / 1_024)) as f64 * each_ns);
                assert!(last as f64 * each_ns <= bound, "{each_ns} {most}: {took:?}");
            }
        }
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
