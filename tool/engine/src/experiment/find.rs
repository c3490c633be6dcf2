//! The course of `rate --find`: one step after the other, each at the load that those before
//! lead to (`jostle_stats::find`). A step is a block of its own, so that a resumed search goes on
//! behind its last whole one.

use super::{ExperimentLoop, Limits, Progress, Stop};
use crate::schedule::Timing;
use jostle_model::Nanos;
use jostle_model::record::{At, Environment, Experiment, Run};
use jostle_stats::find::{self, Next};

/// Steps of the ladder, of the recovery after misses and of the confirmation that come to
/// those around the limit: for the progress line.
const BESIDE: usize = 24;

impl ExperimentLoop<'_, '_> {
    /// As `go`, for a search.
    pub(super) fn go_find(&mut self, environment: Environment) -> Result<(), Stop> {
        let clock = self.clock.source().name();
        let experiment = self.begin_uncalibrated(clock, environment)?;
        let plan = &self.resolved.plan;
        let workers = plan.workers.as_ref().map_or(0, |list| list.0.len());
        let searches = self.resolved.specs.len() * workers;
        let takes = self.may_take();
        (self.hooks.progress)(Progress::Planned {
            points: searches,
            rounds: plan.runs.unwrap_or(find::AROUND) as usize + BESIDE,
            takes,
            limits: Limits::default(),
        });
        let searched = (0..searches).try_for_each(|nth| self.search(&experiment, nth, searches));
        if matches!(searched, Ok(()) | Err(Stop::BrokeOff(_))) {
            self.conclude()?;
        }
        searched
    }

    /// All searches together.
    fn may_take(&self) -> Nanos {
        let budget = self.resolved.plan.budget();
        let limit = self.resolved.time_limit;
        limit.map_or(budget, |limit| limit.min(budget))
    }

    /// One of them, in its share of the budget.
    fn search(&mut self, experiment: &Experiment, nth: usize, of: usize) -> Result<(), Stop> {
        let ends = self.may_take().0 / of as u64 * (nth as u64 + 1);
        let plan = &self.resolved.plan;
        let (Some(objective), Some(warmup)) = (plan.find.clone(), plan.warmup) else {
            return Ok(());
        };
        loop {
            let runs: Vec<&Run> = self.made.runs.iter().collect();
            let searched = find::searched(plan, &runs).swap_remove(nth);
            let Next::Look(rate, role) = searched.next else {
                return Ok(());
            };
            let timing = Timing {
                window: find::window(&objective, rate, role),
                warmup,
                overhead: Nanos::ZERO,
            };
            let spent = self.started.elapsed().as_nanos() as u64;
            if spent + timing.window.0 + warmup.0 > ends {
                return Ok(());
            }
            let specs = &self.resolved.specs;
            let target = specs.iter().position(|spec| spec.typed == searched.target);
            let at = At {
                workers: Some(searched.workers),
                rate: Some(rate),
                ..At::default()
            };
            self.block += 1;
            self.run(
                experiment,
                (target.unwrap_or(0), at),
                nth,
                self.block,
                timing,
            )?;
        }
    }
}
