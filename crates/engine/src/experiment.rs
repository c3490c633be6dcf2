//! One experiment, from its resolved plan to its records: the tool's own cost,
//! pilots, then block after block, each run a record with its verdict.
//!
//! Nothing here prints or writes files: records go to the caller's sink as they
//! are made, so that a crash loses at most the point in progress.

mod sweeps;

use crate::keeper::KeeperError;
use crate::order::{CostOrder, RunOrder};
use crate::point::{Which, point};
use crate::proven;
use crate::requested;
use crate::resolve::{Resolved, cpus};
use crate::schedule::{self, Asked, Pilot, Schedule, Timing};
use crate::world::{self, Ran, World};
use jostle_model::Nanos;
use jostle_model::plan::{Carrier, Measure, Names, Place, Plan, Range, Workload};
use jostle_model::record::{
    At, Calibration, End, Environment, Experiment, Fit, Is, Null, OwnCost, Point, Record, SCHEMA,
};
use jostle_model::time::Busy;
use jostle_stats::checks::{self, Evidence};
use jostle_stats::rng::Rng;
use jostle_stats::summary;
use jostle_stats::{fit, intervals};
use jostle_sys::clock::{self, Clock};
use jostle_targets::Spec;
use std::collections::BTreeMap;
use std::time::Instant;

/// Blocks of the measurement of the tool's own cost.
const COST_BLOCKS: usize = 9;
/// How long a pilot counts grants to tell their mean time.
const PILOT: Nanos = Nanos::from_millis(200);
const PILOT_WARMUP: Nanos = Nanos::from_millis(50);
/// Of the cycle: what stamping may cost before it is thinned out.
const STAMPS_MAY_COST: f64 = 0.05;
/// Thinner than that, too few operations would be seen.
const STAMP_EVERY_AT_MOST: u64 = 1_000;
/// Starting, stopping and reaping a worker, where no pilot measured it.
const WORKER_OVERHEAD: Nanos = Nanos::from_micros(300);

/// Starting and ending a server of a run's own.
const COUNTED_OVERHEAD: Nanos = Nanos::from_millis(20);

/// Where the offset between CPUs could not be bounded (one CPU, or no quiet
/// moment), no hand-off is called too early. A day is the longest time that an
/// order can carry, and no window is longer.
const UNKNOWN_OFFSET_NS: f64 = 86_400e9;

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

/// What is going on, for whoever waits.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress<'a> {
    /// The tool measures its own cost on a target.
    Cost(&'a str),
    /// A pilot for a point.
    Pilot(&'a str, At),
    /// What was decided: runs in all, and what they will take.
    Planned {
        /// Of all points.
        runs: usize,
        /// Altogether.
        takes: Nanos,
        /// What was given up for the budget.
        concessions: &'a [String],
    },
    /// A run begins.
    Run(&'a str, At, u32),
    /// A run is done.
    Done(&'a Point),
}

/// The caller's side.
pub struct Hooks<'a> {
    /// The exit code with which the user wants to stop, if so; asked several
    /// times a second.
    pub ended: &'a mut dyn FnMut() -> Option<u8>,
    /// Told what is going on.
    pub progress: &'a mut dyn FnMut(Progress<'_>),
    /// Takes each record as it is made. An error ends the experiment.
    pub record: &'a mut dyn FnMut(&Record) -> Result<(), String>,
}

/// What came of it. Points that were finished are here, whatever came after.
#[derive(Debug)]
pub struct Outcome {
    /// Absent if it ended before the first run.
    pub experiment: Option<Experiment>,
    /// In the order of the runs.
    pub points: Vec<Point>,
    /// How figures grow, where something was swept and all runs were made.
    pub fits: Vec<Fit>,
    /// What was given up for the budget, in words.
    pub concessions: Vec<String>,
    /// How it ended.
    pub end: End,
}

/// Why it ended early.
enum Stop {
    Keeper(KeeperError),
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
    started_at: String,
    mut hooks: Hooks<'_>,
) -> Outcome {
    let started = Instant::now();
    environment.hosts = world::here(world.hosts());
    let mut course = Course {
        world,
        resolved,
        clock,
        started,
        experiment: None,
        points: Vec::new(),
        fits: Vec::new(),
        concessions: Vec::new(),
        hooks: &mut hooks,
    };
    let stop = course.go(environment, started_at).err();
    let end = course.end(stop);
    let Course {
        experiment,
        points,
        fits,
        concessions,
        ..
    } = course;
    Outcome {
        experiment,
        points,
        fits,
        concessions,
        end,
    }
}

struct Course<'a, 'h> {
    world: &'a mut World,
    resolved: &'a Resolved,
    clock: Clock,
    started: Instant,
    experiment: Option<Experiment>,
    points: Vec<Point>,
    fits: Vec<Fit>,
    concessions: Vec<String>,
    hooks: &'a mut Hooks<'h>,
}

impl Course<'_, '_> {
    fn go(&mut self, environment: Environment, started_at: String) -> Result<(), Stop> {
        if self.resolved.plan.workload == Workload::Connect {
            return self.go_connect(environment, started_at);
        }
        let mut calibration = self.calibrate()?;
        calibration.specimens = proven::last(&environment);
        let points = self.resolved.points();
        let counted = !matches!(
            self.resolved.plan.workload,
            Workload::Contend | Workload::Rate | Workload::Spread
        );
        let pilots = match counted {
            true => Vec::new(),
            false => self.pilots(&points, &calibration)?,
        };
        let columns: Vec<u64> = points
            .iter()
            .map(|(_, at)| at.workers.or(at.generators).unwrap_or(0))
            .collect();
        let asked = self.asked();
        let schedule = match counted {
            true => schedule::count(&self.estimates(&points, &calibration)?, &asked),
            false => schedule::fit(&pilots, &columns, &asked),
        };
        self.concessions = schedule.concessions.clone();
        let experiment = Experiment {
            schema: SCHEMA.to_owned(),
            plan: self.plan_as_scheduled(&columns, &schedule),
            environment,
            calibration,
            started_at,
        };
        self.sink(Record::Experiment(Box::new(experiment.clone())))?;
        self.experiment = Some(experiment.clone());
        self.blocks(&experiment, &points, &schedule)?;
        self.fit()
    }

    fn asked(&self) -> Asked {
        let plan = &self.resolved.plan;
        let budget = plan.budget.unwrap_or_default();
        let spent = self.started.elapsed().as_nanos() as u64;
        Asked {
            window: plan.duration,
            warmup: plan.warmup,
            runs: plan.runs,
            budget: Nanos(budget.0.saturating_sub(spent)),
            may_drop: self.resolved.may_drop,
        }
    }

    /// The plan that stands in the file: with the points that are really run.
    fn plan_as_scheduled(&self, columns: &[u64], schedule: &Schedule) -> Plan {
        let mut plan = self.resolved.plan.clone();
        let kept: Vec<u64> = columns
            .iter()
            .zip(&schedule.points)
            .filter(|(_, timing)| timing.is_some())
            .map(|(c, _)| *c)
            .collect();
        if let Some(list) = &mut plan.workers {
            list.0.retain(|workers| kept.contains(workers));
        }
        plan
    }

    fn sink(&mut self, record: Record) -> Result<(), Stop> {
        (self.hooks.record)(&record).map_err(Stop::Sink)
    }

    fn calibrate(&mut self) -> Result<Calibration, Stop> {
        let mut calibration = Calibration {
            clock: self.clock.source().name().to_owned(),
            stamp_ns: self.clock.cost_ns(),
            clock_uncertainty_ns: clock::uncertainty_ns(self.clock, &jostle_sys::cpu::allowed()),
            own_cost: BTreeMap::new(),
            specimens: None,
            host_ceilings: Vec::new(),
        };
        // What a pair costs is asked of locks that are measured as such.
        let requests = matches!(
            self.resolved.plan.workload,
            Workload::Rate | Workload::Spread
        );
        let locks = |spec: &&Spec| !spec.entry.is_asked() && !requests;
        for spec in self.resolved.specs.iter().filter(locks) {
            (self.hooks.progress)(Progress::Cost(&spec.typed));
            let mut run = order(&self.resolved.plan, &spec.typed, 1, 0);
            (run.hold, run.idle, run.shared) =
                (Busy::Sleep(Nanos::ZERO), Busy::Sleep(Nanos::ZERO), 0.0);
            let blocks = self.world.keeper().cost(
                &CostOrder {
                    run,
                    blocks: COST_BLOCKS,
                },
                &mut || (self.hooks.ended)().is_some(),
            )?;
            if let Some(cost) = own_cost(&blocks, &self.resolved.plan) {
                calibration.own_cost.insert(spec.typed.clone(), cost);
            }
        }
        Ok(calibration)
    }

    fn pilots(
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
    fn estimates(
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

    fn order(
        &self,
        target: usize,
        at: At,
        run: u32,
        point: usize,
        calibration: &Calibration,
    ) -> RunOrder {
        let plan = &self.resolved.plan;
        let typed = &self.resolved.specs[target].typed;
        let seed = Rng::stream(
            plan.seed.unwrap_or(0),
            ((point as u64) << 32) + u64::from(run),
        )
        .next_u64();
        let workers = at.workers.or(plan.in_flight).unwrap_or(1);
        let mut order = order(plan, typed, workers as usize, seed);
        let each = at.operations.or(at.keys).unwrap_or(1);
        order.operations = each;
        order.keys = match (plan.workload, order.names) {
            (Workload::Hold, _) => order.workers * each as usize,
            (Workload::Stream | Workload::Rate, Names::Own) | (Workload::Spread, _) => {
                order.workers
            }
            _ => order.keys,
        };
        if let Some(request) = &mut order.requests {
            request.open_loop = requested::open_loop(plan, at);
        }
        if let Some(generators) = at.generators {
            order.generators = generators as usize;
        }
        order.stamp_every = calibration
            .own_cost
            .get(typed)
            .map_or(1, |cost| cost.stamp_every);
        order.clock_uncertainty = Nanos(
            calibration
                .clock_uncertainty_ns
                .unwrap_or(UNKNOWN_OFFSET_NS)
                .ceil() as u64,
        );
        order
    }

    fn blocks(
        &mut self,
        experiment: &Experiment,
        points: &[(usize, At)],
        schedule: &Schedule,
    ) -> Result<(), Stop> {
        let block_takes: u64 = schedule
            .points
            .iter()
            .flatten()
            .map(|t| t.window.0 + t.warmup.0 + t.overhead.0)
            .sum();
        let kept = schedule.points.iter().flatten().count();
        (self.hooks.progress)(Progress::Planned {
            runs: kept * schedule.blocks as usize,
            takes: Nanos(block_takes * u64::from(schedule.blocks)),
            concessions: &schedule.concessions,
        });
        let mut block = 0;
        loop {
            block += 1;
            let seed = experiment.plan.seed.unwrap_or(0);
            for nth in schedule::block_order(points.len(), block, seed) {
                if let Some(timing) = schedule.points[nth] {
                    self.run(experiment, points[nth], nth, block, timing)?;
                }
            }
            let more = block < schedule.blocks
                || experiment.plan.runs.is_none() && self.goes_on(block, Nanos(block_takes));
            if !more {
                return Ok(());
            }
        }
    }

    fn goes_on(&self, done: u32, block: Nanos) -> bool {
        let budget = self.resolved.plan.budget.unwrap_or_default();
        let left = Nanos(
            budget
                .0
                .saturating_sub(self.started.elapsed().as_nanos() as u64),
        );
        let mut by_point = BTreeMap::<_, Vec<f64>>::new();
        for point in &self.points {
            by_point
                .entry((&point.target, point.at))
                .or_default()
                .push(point.throughput_per_s);
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
        let (ran, null) = self.with_null(&order, block)?;
        let which = Which {
            target: typed,
            at,
            run: block,
            block,
        };
        let mut point = point(&self.resolved.plan, &ran.order, which, &ran.data);
        point.hosts = world::rows(experiment, which, &point, self.world.hosts(), &ran.parts);
        point.null = null;
        if experiment.environment.cpu_accounting == "exact" {
            point.cpu_split = point.cpu_split.map(|_| "exact".to_owned());
        }
        point.verdict = checks::verdict(&Evidence {
            experiment,
            runs: &[&point],
        });
        self.sink(Record::Point(Box::new(point.clone())))?;
        (self.hooks.progress)(Progress::Done(&point));
        self.points.push(point);
        Ok(())
    }

    /// A run, and beside it the requests that do nothing, where the plan has some:
    /// before it in odd blocks, after it in even ones, so that a drift of the
    /// machine falls on both alike.
    fn with_null(&mut self, order: &RunOrder, block: u32) -> Result<(Ran, Option<Null>), Stop> {
        let Some(nothing) = requested::null_order(&self.resolved.plan, order) else {
            return Ok((self.ask(order)?, None));
        };
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
        self.world
            .run(order, &mut || (self.hooks.ended)().is_some())
    }

    /// How the figures grow over what was swept.
    fn fit(&mut self) -> Result<(), Stop> {
        let Some(experiment) = &self.experiment else {
            return Ok(());
        };
        let points = summary::summarize(experiment, &self.points);
        self.fits = fit::fits(experiment, &points);
        for fit in self.fits.clone() {
            self.sink(Record::Fit(Box::new(fit)))?;
        }
        Ok(())
    }

    fn end(&mut self, stop: Option<Stop>) -> End {
        // By the verdicts that a reader of the file will see: of all runs of a
        // point together.
        let invalid = self.experiment.as_ref().is_some_and(|experiment| {
            let points = summary::summarize(experiment, &self.points);
            points.iter().any(|point| point.verdict.is == Is::Invalid)
        });
        let (exit, error) = match &stop {
            None if invalid => (exit::INVALID, None),
            None => (exit::DONE, None),
            Some(Stop::Keeper(KeeperError::Interrupted)) => (
                (self.hooks.ended)().unwrap_or(exit::INTERRUPTED),
                Some("interrupted".to_owned()),
            ),
            Some(Stop::Keeper(error)) => (exit::FAILED, Some(error.to_string())),
            Some(Stop::Sink(text)) => (exit::FAILED, Some(text.clone())),
        };
        let end = End {
            exit,
            error,
            elapsed_s: self.started.elapsed().as_secs_f64(),
        };
        let written = self.experiment.is_some() && !matches!(stop, Some(Stop::Sink(_)));
        if written && let Err(text) = (self.hooks.record)(&Record::End(end.clone())) {
            return End {
                exit: exit::FAILED,
                error: Some(text),
                ..end
            };
        }
        end
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

/// A run by the plan; windows, stamps and clock are the caller's to set.
fn order(plan: &Plan, target: &str, workers: usize, seed: u64) -> RunOrder {
    let allowed = jostle_sys::cpu::allowed();
    let cpus = cpus(plan.place.as_ref().unwrap_or(&Place::None), &allowed);
    RunOrder {
        target: target.to_owned(),
        workload: plan.workload,
        workers,
        operations: 1,
        names: plan.names.unwrap_or(Names::One),
        pipeline: plan.pipeline.unwrap_or(1) as usize,
        carrier: match plan.workload {
            Workload::Spread => Carrier::Threads,
            _ => plan.carrier.unwrap_or(Carrier::Processes),
        },
        generators: plan.generator_threads.unwrap_or(1).min(workers as u64) as usize,
        generator_cpu: plan.generator_cpu,
        server_cpus: match (&plan.place, plan.workload) {
            // Apart from the workers, where there is a CPU left: a server that may
            // run anywhere begins on theirs, and moves away after some thousand
            // requests, which looks as if each of them came to cost more.
            (Some(Place::Cpus(_)), _) | (Some(_), Workload::Spread) => {
                let others = allowed.iter().filter(|cpu| !cpus.contains(cpu));
                others.copied().collect()
            }
            _ => Vec::new(),
        },
        cpus,
        hold: plan.hold.unwrap_or(Busy::Sleep(Nanos::ZERO)),
        idle: plan.idle.unwrap_or(Busy::Sleep(Nanos::ZERO)),
        warmup: PILOT_WARMUP,
        window: PILOT,
        measure: plan.measure.unwrap_or(Measure::Full),
        stamp_every: 1,
        keys: match plan.workload {
            Workload::Contend => plan.key_count() as usize,
            Workload::Stream
            | Workload::Hold
            | Workload::Connect
            | Workload::Rate
            | Workload::Spread => 1,
        },
        shared: plan.shared.unwrap_or(0.0),
        range: plan.range.unwrap_or(Range::Same),
        try_only: plan.try_only.unwrap_or(false),
        acquire_timeout: plan.acquire_timeout,
        open_each: plan.open_each.unwrap_or(false),
        slots: plan.slots.unwrap_or(1) as usize,
        timer_slack: plan.timer_slack.unwrap_or(Nanos(1)),
        during: None,
        clock_uncertainty: Nanos::ZERO,
        requests: requested::order(plan, target),
        log_grants: 0,
        together: None,
        place: plan.place.clone().unwrap_or(Place::None),
        share: None,
        seed,
    }
}

/// From the blocks (counting alone, full, without stamps, without witness; in
/// ns a pair) to the record.
fn own_cost(blocks: &[[f64; 4]], plan: &Plan) -> Option<OwnCost> {
    let column =
        |n: usize| intervals::median(&blocks.iter().map(|block| block[n]).collect::<Vec<_>>());
    let added: Vec<f64> = blocks.iter().map(|block| block[1] - block[0]).collect();
    let stamps: Vec<f64> = blocks.iter().map(|block| block[1] - block[2]).collect();
    let pair_ns = column(0)?;
    let busy = |time: Option<Busy>| time.map_or(0.0, |time| time.span().0 as f64);
    let cycle_ns = pair_ns + busy(plan.hold) + busy(plan.idle);
    let (least, most) = added
        .iter()
        .fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
    Some(OwnCost {
        pair_ns,
        full_ns: column(1)?,
        no_stamps_ns: column(2)?,
        no_witness_ns: column(3)?,
        added_ns: intervals::median(&added)?,
        added_range_ns: [least, most],
        stamp_every: stamp_every(intervals::median(&stamps)?, cycle_ns),
    })
}

/// One operation in so many is stamped that the stamps add at most a twentieth
/// to the mean cycle.
fn stamp_every(stamps_ns: f64, cycle_ns: f64) -> u64 {
    let share = stamps_ns / (STAMPS_MAY_COST * cycle_ns.max(1.0));
    (share.ceil() as u64).clamp(1, STAMP_EVERY_AT_MOST)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use jostle_model::plan::Workload;

    /// An order for tests: the defaults of a plan on this target.
    pub fn order(target: &str) -> RunOrder {
        super::order(&Plan::of(Workload::Contend), target, 1, 1)
    }

    /// 10^18 ns was once refused as longer than a day, and every run of a busy
    /// machine failed.
    #[test]
    fn an_unknown_offset_reaches_the_keeper() {
        let mut sent = order("null");
        sent.clock_uncertainty = Nanos(UNKNOWN_OFFSET_NS as u64);
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<RunOrder>(&text).unwrap(), sent);
    }

    #[test]
    fn stamps_are_thinned_where_they_would_weigh_on_the_cycle() {
        // stamps ns, cycle ns -> one in
        for (stamps, cycle, every) in [
            (100.0, 1_010_508.0, 1), // a hold of 1 ms hides them
            (100.0, 2_000.0, 1),
            (100.0, 1_999.0, 2),
            (100.0, 508.0, 4),
            (100.0, 21.0, 96),
            (-3.0, 500.0, 1), // noise
        ] {
            assert_eq!(stamp_every(stamps, cycle), every, "{stamps} {cycle}");
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

    #[test]
    fn the_own_cost_is_the_median_of_paired_differences() {
        let blocks = [
            [100.0, 230.0, 120.0, 210.0],
            [200.0, 330.0, 220.0, 310.0],
            [100.0, 260.0, 120.0, 210.0],
        ];
        let cost = own_cost(&blocks, &Plan::of(Workload::Contend)).unwrap();
        assert_eq!(
            (cost.pair_ns, cost.added_ns, cost.added_range_ns),
            (100.0, 130.0, [130.0, 160.0])
        );
    }
}
