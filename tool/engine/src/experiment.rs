//! One experiment, from its resolved plan to its records: the tool's own cost,
//! pilots, then block after block, each run a record with its verdict. This file
//! is the loop; its parts are files of their own.
//!
//! Nothing here prints or writes files: records go to the caller's sink as they
//! are made, so that a crash loses at most the run in progress.

mod ceilings;
mod faults;
mod find;
mod orders;
mod own_cost;
mod pilots;
mod prepare;
mod records;
mod sweeps;
mod verify;

pub use orders::order;

use crate::hosts;
use crate::keeper::KeeperError;
use crate::order::{RunOrder, Running};
use crate::requested;
use crate::resolve::Resolved;
use crate::run::{self, Which};
use crate::schedule::{self, Asked, Schedule, Timing};
use crate::world::{self, Ran, World};
use jostle_model::Nanos;
use jostle_model::plan::{Plan, Workload};
use jostle_model::record::{
    At, End, Environment, Experiment, Fit, Null, Record, Resumed, Run, Scheduled,
};
use jostle_stats::{intervals, spoilt};
use jostle_sys::clock::Clock;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Exit codes that an experiment can end with.
pub mod exit {
    /// Done.
    pub const DONE: u8 = 0;
    /// It failed.
    pub const FAILED: u8 = 1;
    /// Done, but a point is INVALID.
    pub const INVALID: u8 = 3;
    /// The user ended it, and did not say how.
    pub const INTERRUPTED: u8 = 130;
}

/// Progress reports for the user.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress<'a> {
    /// The tool measures its own cost on a target.
    Cost(&'a str),
    /// One host of several works on a target, alone.
    Alone(&'a str, &'a str),
    /// A pilot for a point.
    Pilot(&'a str, At),
    /// The decisions: how many runs, and what they will take.
    Planned {
        /// Points of a round.
        points: usize,
        /// Rounds: one run of each point.
        rounds: usize,
        /// Altogether.
        takes: Nanos,
        /// How that compares with the budget.
        limits: Limits<'a>,
    },
    /// The first block took much longer than was planned.
    Slower {
        /// One block.
        block: Nanos,
        /// All that are made at least.
        all: Nanos,
    },
    /// A run begins.
    Run(&'a str, At, u32),
    /// How far it is, about once a second, where [`Hooks::watched`] asks for it.
    Running(&'a Running),
    /// A run is done.
    Done(&'a Run),
}

/// How the budget has limited the schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits<'a> {
    /// The concessions made for it, in words.
    pub concessions: &'a [String],
    /// The budget, if the runs will exceed it in spite of the concessions.
    pub over: Option<Over<'a>>,
}

/// A budget that is not kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Over<'a> {
    /// The time that all runs together should take.
    pub budget: Nanos,
    /// Options of the user that fix what takes longer, as typed; none where even the
    /// least that means anything takes longer.
    pub because: &'a [String],
}

/// The caller's side.
pub struct Hooks<'a> {
    /// The exit code with which the user wants to stop, if so; asked several
    /// times a second.
    pub ended: &'a mut dyn FnMut() -> Option<u8>,
    /// Whether runs in progress are reported. The keeper then reads the workers' pages
    /// while they work. With several hosts there are no such reports.
    pub watched: bool,
    /// Told what is going on.
    pub progress: &'a mut dyn FnMut(Progress<'_>),
    /// Takes each record as it is made. An error ends the experiment.
    pub record: &'a mut dyn FnMut(&Record) -> Result<(), String>,
}

/// The command that an experiment belongs to.
#[derive(Debug)]
pub struct Session {
    /// Wall-clock start, RFC 3339 in UTC.
    pub started_at: String,
    /// Boot, program and the plans that follow; the experiment adds its schedule.
    pub scheduled: Scheduled,
    /// The measurements of an earlier command of this experiment, which is then resumed.
    pub earlier: Option<Earlier>,
}

/// The part of an experiment that is measured already.
#[derive(Clone, Debug, PartialEq)]
pub struct Earlier {
    /// As it was recorded.
    pub experiment: Experiment,
    /// Its schedule, which is kept.
    pub scheduled: Scheduled,
    /// The runs of the complete blocks.
    pub runs: Vec<Run>,
    /// Where it was resumed before, and where it goes on now.
    pub resumed: Vec<Resumed>,
    /// The time it took so far.
    pub elapsed: Duration,
}

/// The result of an experiment. It holds all runs that were finished, however the
/// experiment ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Absent if it ended before the first run.
    pub experiment: Option<Experiment>,
    /// In the order of the runs.
    pub runs: Vec<Run>,
    /// The decisions before the first run.
    pub scheduled: Scheduled,
    /// Where it was resumed.
    pub resumed: Vec<Resumed>,
    /// How figures grow, where something was swept and all runs were made.
    pub fits: Vec<Fit>,
    /// The concessions made for the budget, in words.
    pub concessions: Vec<String>,
    /// How it ended.
    pub end: End,
}

/// Why it ended early.
enum Stop {
    Keeper(KeeperError),
    /// A run could not be made after others had been: what was measured is kept.
    BrokeOff(String),
    Sink(String),
}

impl From<KeeperError> for Stop {
    fn from(error: KeeperError) -> Stop {
        Stop::Keeper(error)
    }
}

/// Runs it.
pub fn run(
    world: &mut World,
    clock: Clock,
    resolved: &Resolved,
    mut environment: Environment,
    session: Session,
    mut hooks: Hooks<'_>,
) -> Outcome {
    let now = Instant::now();
    let before = session.earlier.as_ref().map(|earlier| earlier.elapsed);
    let started = before.and_then(|before| now.checked_sub(before));
    environment.hosts = hosts::here(world.hosts());
    let mut experiment_loop = ExperimentLoop {
        world,
        resolved,
        clock,
        session,
        started: started.unwrap_or(now),
        block: 0,
        left_out: 0,
        made: Outcome::default(),
        hooks: &mut hooks,
    };
    let stop = experiment_loop.go(environment).err();
    let end = experiment_loop.end(stop);
    Outcome {
        scheduled: experiment_loop.session.scheduled,
        end,
        ..experiment_loop.made
    }
}

struct ExperimentLoop<'a, 'h> {
    world: &'a mut World,
    resolved: &'a Resolved,
    clock: Clock,
    session: Session,
    started: Instant,
    /// The last block that was begun, from 1.
    block: u32,
    /// Runs that do not count, because their block was interrupted.
    left_out: usize,
    made: Outcome,
    hooks: &'a mut Hooks<'h>,
}

impl ExperimentLoop<'_, '_> {
    fn go(&mut self, environment: Environment) -> Result<(), Stop> {
        if self.resolved.plan.workload == Workload::Connect {
            return self.go_connect(environment);
        }
        if self.resolved.plan.workload == Workload::Recover {
            return self.go_recover(environment);
        }
        if self.resolved.plan.workload == Workload::Verify {
            return self.go_verify(environment);
        }
        if self.resolved.plan.find.is_some() {
            return self.go_find(environment);
        }
        let (experiment, schedule) = match self.take_up()? {
            Some(experiment) => (experiment, Schedule::from_record(&self.session.scheduled)),
            None => self.schedule(environment)?,
        };
        let blocks = self.blocks(&experiment, &self.resolved.points(), &schedule);
        if matches!(blocks, Ok(()) | Err(Stop::BrokeOff(_))) {
            self.conclude()?;
        }
        blocks
    }

    /// Measures the tool's own cost and the pilots, decides the schedule and opens the file.
    fn schedule(&mut self, environment: Environment) -> Result<(Experiment, Schedule), Stop> {
        let mut calibration = self.calibrate()?;
        let points = self.resolved.points();
        let left_out = self.ceilings(&points, &mut calibration)?;
        let counted = !self.resolved.plan.workload.has_window();
        let pilots = match counted {
            true => Vec::new(),
            false => self.pilots(&points, &calibration)?,
        };
        let swept = self.resolved.plan.workload.swept();
        let value = |at: &At| (swept.of)(at).unwrap_or(0);
        let columns: Vec<u64> = points.iter().map(|(_, at)| value(at)).collect();
        let asked = self.asked();
        let mut schedule = match counted {
            true => schedule::count(&self.estimates(&points, &calibration)?, &columns, &asked),
            false => schedule::fit(&pilots, &columns, &asked),
        };
        schedule.concessions.extend(left_out);
        self.made.concessions = schedule.concessions.clone();
        let plan = self.plan_as_scheduled(&columns, &schedule);
        self.session.scheduled.blocks = schedule.blocks;
        self.session.scheduled.times = schedule.times();
        let experiment = self.begin(plan, calibration, environment)?;
        Ok((experiment, schedule))
    }

    fn asked(&self) -> Asked {
        let plan = &self.resolved.plan;
        let limit = self.resolved.time_limit;
        let budget = plan.budget();
        let budget = limit.map_or(budget, |limit| limit.min(budget));
        let spent = self.started.elapsed().as_nanos() as u64;
        Asked {
            window: plan.duration,
            warmup: plan.warmup,
            runs: plan.runs,
            budget: Nanos(budget.0.saturating_sub(spent)),
            may_drop: self.resolved.may_drop || limit.is_some(),
            may_shorten: self.resolved.may_shorten,
            option: plan.workload.swept().option,
        }
    }

    /// The plan that stands in the file: with the points that are really run.
    fn plan_as_scheduled(&self, columns: &[u64], schedule: &Schedule) -> Plan {
        let mut plan = self.resolved.plan.clone().redacted();
        let kept: Vec<u64> = columns
            .iter()
            .zip(&schedule.points)
            .filter(|(_, timing)| timing.is_some())
            .map(|(c, _)| *c)
            .collect();
        if let Some(list) = (plan.workload.swept().list)(&mut plan) {
            list.0.retain(|value| kept.contains(value));
        }
        plan
    }

    fn blocks(
        &mut self,
        experiment: &Experiment,
        points: &[(usize, At)],
        schedule: &Schedule,
    ) -> Result<(), Stop> {
        let block_takes = schedule.takes().0 / u64::from(schedule.blocks.max(1));
        let kept = schedule.points.iter().flatten().count();
        let left = schedule.blocks.saturating_sub(self.block);
        let takes = Nanos(block_takes * u64::from(left));
        let limits = Limits {
            concessions: &schedule.concessions,
            over: over(self.resolved, !self.asked().holds(takes)),
        };
        (self.hooks.progress)(Progress::Planned {
            points: kept,
            rounds: left as usize,
            takes,
            limits,
        });
        let (began, first) = (Instant::now(), self.block);
        let mut took = Nanos(block_takes);
        while self.block == 0 || self.wants_block(experiment, schedule, took) {
            self.block += 1;
            let block = self.block;
            let seed = experiment.plan.seed();
            for nth in schedule::block_order(points.len(), block, seed) {
                if let Some(timing) = schedule.points[nth] {
                    self.run(experiment, points[nth], nth, block, timing)?;
                }
            }
            took = Nanos(began.elapsed().as_nanos() as u64 / u64::from(block - first));
            if block == 1 {
                self.say_slower(took, Nanos(block_takes), schedule.blocks);
            }
        }
        Ok(())
    }

    /// Whether another block is due. `took`: what one takes.
    fn wants_block(&self, experiment: &Experiment, schedule: &Schedule, took: Nanos) -> bool {
        let repeated = schedule::repeats(schedule.blocks, self.block, self.spoilt_blocks());
        let done = self.block - repeated.min(self.block);
        let block = Nanos(schedule.takes().0 / u64::from(schedule.blocks.max(1)));
        let more =
            done < schedule.blocks || experiment.plan.runs.is_none() && self.goes_on(done, block);
        more && !self.has_spent(done, repeated, took) && !self.is_late(took)
    }

    /// Tells what it will take after all, where the pilots were far off.
    fn say_slower(&mut self, took: Nanos, planned: Nanos, blocks: u32) {
        if schedule::is_slower(took, planned, blocks) {
            let least = match self.resolved.plan.runs {
                Some(runs) => runs,
                None => schedule::FEWEST_BLOCKS,
            };
            (self.hooks.progress)(Progress::Slower {
                block: took,
                all: Nanos(took.0 * u64::from(least)),
            });
        }
    }

    /// Whether another block would exceed the budget, where the plan does not fix the
    /// number of runs. Repetitions of blocks that other programs spoilt do not count.
    fn has_spent(&self, done: u32, repeated: u32, block: Nanos) -> bool {
        let plan = &self.resolved.plan;
        let budget = plan.budget();
        let spent = self.started.elapsed().as_nanos() as u64;
        let with_next = spent.saturating_sub(block.0 * u64::from(repeated)) + block.0;
        plan.runs.is_none()
            && done >= schedule::FEWEST_BLOCKS
            && !schedule::holds(budget, Nanos(with_next))
    }

    /// Whether another block would keep somebody in a hurry (`--quick`) waiting.
    fn is_late(&self, block: Nanos) -> bool {
        let spent = self.started.elapsed().as_nanos() as u64;
        let with_next = Nanos(spent.saturating_add(block.0));
        self.resolved
            .time_limit
            .is_some_and(|limit| !schedule::holds(limit, with_next))
    }

    /// Blocks in which others used so much of the CPUs that they are made again.
    fn spoilt_blocks(&self) -> u32 {
        spoilt::blocks(&self.made.runs).len() as u32
    }

    fn goes_on(&self, done: u32, block: Nanos) -> bool {
        let budget = self.resolved.plan.budget();
        let left = Nanos(
            budget
                .0
                .saturating_sub(self.started.elapsed().as_nanos() as u64),
        );
        let mut by_point = BTreeMap::<_, Vec<f64>>::new();
        let spoilt = spoilt::blocks(&self.made.runs);
        for run in self.made.runs.iter().filter(|p| !spoilt.contains(&p.block)) {
            by_point
                .entry((&run.target, run.at))
                .or_default()
                .push(run.throughput_per_s);
        }
        let widths: Vec<f64> = by_point
            .values()
            .filter_map(|rates| intervals::relative_half_width(&intervals::estimate(rates)?))
            .collect();
        schedule::goes_on(done, &widths, left, block)
    }

    fn run(
        &mut self,
        experiment: &Experiment,
        (target, at): (usize, At),
        nth: usize,
        block: u32,
        timing: Timing,
    ) -> Result<(), Stop> {
        let typed = &self.resolved.specs[target].typed;
        (self.hooks.progress)(Progress::Run(typed, at, block));
        let mut order = self.order(target, at, block, nth, &experiment.calibration);
        (order.window, order.warmup) = match order.is_counted() {
            // Not what it will take, but what it may.
            true => (
                self.resolved.plan.duration.unwrap_or(timing.window),
                Nanos::ZERO,
            ),
            false => (timing.window, timing.warmup),
        };
        order.during.clone_from(&self.resolved.plan.during);
        order.watched = self.hooks.watched;
        let which = Which {
            target: typed,
            at,
            run: block,
            block,
        };
        let (ran, null) = match self.with_null(&order, block) {
            Err(Stop::Keeper(KeeperError::Failed(text))) if !self.made.runs.is_empty() => {
                self.finish(
                    experiment,
                    run::broken_off(&self.resolved.plan, which, &text),
                )?;
                return Err(Stop::BrokeOff(text));
            }
            done => done?,
        };
        let mut run = run::record(&self.resolved.plan, &ran.order, which, &ran.data);
        run.hosts = world::rows(experiment, which, &run, self.world.hosts(), &ran.parts);
        run.null = null;
        if experiment.environment.cpu_accounting == "exact" {
            run.cpu.cpu_split = run.cpu.cpu_split.map(|_| "exact".to_owned());
        }
        self.finish(experiment, run)
    }

    /// A run, and beside it the requests that do nothing, where the plan has some:
    /// before it in odd blocks, after it in even ones, so that a drift of the
    /// machine falls on both alike.
    fn with_null(&mut self, order: &RunOrder, block: u32) -> Result<(Ran, Option<Null>), Stop> {
        let Some(mut nothing) = requested::null_order(&self.resolved.plan, order) else {
            return Ok((self.ask(order)?, None));
        };
        nothing.watched = false;
        let (ran, null) = if block.is_multiple_of(2) {
            let ran = self.ask(order)?;
            (ran, self.ask(&nothing)?)
        } else {
            let null = self.ask(&nothing)?;
            (self.ask(order)?, null)
        };
        Ok((ran, requested::null(&nothing, &null.data)))
    }

    /// One run, until the user wants to stop.
    fn ask(&mut self, order: &RunOrder) -> Result<Ran, KeeperError> {
        let hooks = &mut *self.hooks;
        let (ended, progress) = (&mut hooks.ended, &mut hooks.progress);
        if let Some(command) = &self.resolved.plan.prepare {
            prepare::run(command, &mut || ended().is_some())?;
        }
        self.world
            .run(order, &mut || ended().is_some(), &mut |look| {
                progress(Progress::Running(&look))
            })
    }
}

/// The budget that will not be kept, and why; with `--quick` it is.
fn over(resolved: &Resolved, is_over: bool) -> Option<Over<'_>> {
    (is_over && resolved.time_limit.is_none()).then(|| Over {
        budget: resolved.plan.budget(),
        because: &resolved.given,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::order::WorkloadOrder;

    /// An order for tests: the defaults of a plan on this target.
    pub(crate) fn order(target: &str) -> RunOrder {
        order_of(Workload::Contend, target, 1)
    }

    /// An order of another workload, with so many workers.
    pub(crate) fn order_of(workload: Workload, target: &str, workers: usize) -> RunOrder {
        orders::order(&Plan::of(workload), target, At::default(), workers, 1)
    }

    /// An order of `spread` with so many generators, and workers in all.
    pub(crate) fn spread_over(generators: usize, workers: usize) -> RunOrder {
        let mut order = order_of(Workload::Spread, "lockd://server:2626", workers);
        let WorkloadOrder::Spread(spread) = &mut order.workload else {
            panic!("{order:?}")
        };
        spread.generators = generators;
        order
    }
}
