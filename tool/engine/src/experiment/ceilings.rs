//! The throughput of each of several hosts alone, measured before the first run. Without
//! it, the equality of the hosts as clients would be an assumption.
//!
//! They are measured for workloads whose runs have a window and are not paced: `contend`
//! and `spread`. At a rate a host alone does as it is told, and runs that end with their
//! operations have no window to be cut short.

use super::{ExperimentLoop, Progress, Stop};
use crate::world;
use jostle_model::Nanos;
use jostle_model::plan::Workload;
use jostle_model::record::{At, Calibration};

/// One part in so many of the budget is for this, so that enough is left for the runs.
const BUDGET_PART: u64 = 3;

impl ExperimentLoop<'_, '_> {
    /// Fills `host_ceilings`; returns that they were given up for the budget, if so.
    pub(super) fn ceilings(
        &mut self,
        points: &[(usize, At)],
        calibration: &mut Calibration,
    ) -> Result<Option<String>, Stop> {
        let plan = &self.resolved.plan;
        let hosts = self.world.hosts().len();
        let asked = matches!(plan.workload, Workload::Contend | Workload::Spread);
        if !asked || hosts < 2 {
            return Ok(None);
        }
        let targets = self.resolved.specs.len();
        let budget = plan.budget();
        if !affordable(hosts * targets, budget) {
            return Ok(Some("hosts are not measured alone".to_owned()));
        }
        for target in 0..targets {
            let Some(at) = fullest(points, target) else {
                continue;
            };
            let order = self.order(target, at, 0, 0, calibration);
            let typed = &self.resolved.specs[target].typed;
            let found = self.world.ceilings(
                plan,
                &order,
                &mut |host| (self.hooks.progress)(Progress::Alone(typed, host)),
                &mut || (self.hooks.ended)().is_some(),
            )?;
            calibration.host_ceilings.extend(found);
        }
        Ok(None)
    }
}

fn affordable(runs: usize, budget: Nanos) -> bool {
    runs as u64 * world::ceilings_take().0 <= budget.0 / BUDGET_PART
}

/// The point of a target at which the most hosts take part, and of those the one with
/// the most workers.
fn fullest(points: &[(usize, At)], target: usize) -> Option<At> {
    let of_target = points.iter().filter(|(of, _)| *of == target);
    let of_target = of_target.map(|(_, at)| *at);
    of_target.max_by_key(|at| (at.generators, at.workers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_point_with_the_most_hosts_is_the_one_whose_shares_are_measured() {
        let at = |generators, workers| At {
            generators,
            workers,
            ..At::default()
        };
        let points = [
            (0, at(Some(3), None)),
            (0, at(Some(18), None)),
            (0, at(Some(9), None)),
            (1, at(None, Some(1_000))),
            (1, at(None, Some(10))),
        ];
        assert_eq!(fullest(&points, 0), Some(points[1].1));
        assert_eq!(fullest(&points, 1), Some(points[3].1));
        assert_eq!(fullest(&points, 2), None);
    }

    #[test]
    fn hosts_are_left_out_where_they_would_eat_up_the_budget() {
        // hosts x targets, budget
        for (runs, budget_s, affords) in [
            (18, 50, true),
            (36, 50, true),
            (64, 50, false),
            (64, 120, true),
            (3, 3, false),
        ] {
            let budget = Nanos::from_millis(budget_s * 1_000);
            assert_eq!(affordable(runs, budget), affords, "{runs} {budget_s}");
        }
    }
}
