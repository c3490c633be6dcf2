//! The course of `connect`: block after block, in each of which every curve (a
//! target with so many sources and other listeners) is one sweep from no
//! connection to the greatest number. A point is written as it is reached, how
//! it was closed when the sweep is over.

use super::records::judge;
use super::{ExperimentLoop, Limits, Progress, Stop, over};
use crate::schedule;
use crate::world::{self, Step};
use jostle_connections::record::{self, Curve};
use jostle_model::Nanos;
use jostle_model::record::{At, Environment, Experiment, Record, Run};
use jostle_stats::intervals;
use jostle_sys::limits::Machine;
use std::collections::BTreeMap;
use std::time::Instant;

/// Blocks from which a median has an interval.
const USUAL_BLOCKS: u32 = 6;

impl ExperimentLoop<'_, '_> {
    /// As `go`, for connections.
    pub(super) fn go_connect(&mut self, environment: Environment) -> Result<(), Stop> {
        let clock = self.clock.source().name();
        let experiment = self.begin_uncalibrated(clock, environment)?;
        let curves = self.curves();
        let mut took = Nanos::ZERO;
        while self.block == 0 || self.wants_sweeps(took) {
            self.block += 1;
            let block = self.block;
            let began = Instant::now();
            let seed = experiment.plan.seed();
            for nth in schedule::block_order(curves.len(), block, seed) {
                let sweep = u64::from(block - 1) * curves.len() as u64 + nth as u64;
                self.sweep(&experiment, curves[nth], block, sweep)?;
            }
            let is_first = took == Nanos::ZERO;
            took = Nanos(began.elapsed().as_nanos() as u64);
            if is_first {
                self.say_planned(curves.len(), took);
            }
        }
        self.conclude()
    }

    /// Whether another block is due, when one takes so long.
    fn wants_sweeps(&self, took: Nanos) -> bool {
        let planned = self.resolved.plan.runs.unwrap_or(USUAL_BLOCKS);
        let repeated = schedule::repeats(planned, self.block, self.spoilt_blocks());
        self.another_block(self.block - repeated.min(self.block), took) && !self.is_late(took)
    }

    /// A target with so many sources and other listeners.
    fn curves(&self) -> Vec<(usize, At)> {
        let mut curves = Vec::new();
        for (target, at) in self.resolved.points() {
            let curve = (target, At { open: None, ..at });
            if !curves.contains(&curve) {
                curves.push(curve);
            }
        }
        curves
    }

    /// After the first block, which is the only pilot of a sweep.
    fn say_planned(&mut self, curves: usize, block: Nanos) {
        let budget = self.resolved.plan.budget();
        let fitting = u32::try_from(budget.0 / block.0.max(1)).unwrap_or(u32::MAX);
        let usual = fitting.clamp(schedule::FEWEST_BLOCKS, USUAL_BLOCKS);
        let blocks = self.resolved.plan.runs.unwrap_or(usual);
        let takes = Nanos(block.0 * u64::from(blocks));
        (self.hooks.progress)(Progress::Planned {
            points: curves,
            rounds: blocks as usize,
            takes,
            limits: Limits {
                concessions: &[],
                over: over(self.resolved, !schedule::holds(budget, takes)),
            },
        });
    }

    fn another_block(&self, done: u32, block: Nanos) -> bool {
        if let Some(runs) = self.resolved.plan.runs {
            return done < runs;
        }
        let budget = self.resolved.plan.budget();
        let spent = self.started.elapsed().as_nanos() as u64;
        let left = Nanos(budget.0.saturating_sub(spent));
        match done {
            0..schedule::FEWEST_BLOCKS => true,
            n if n < USUAL_BLOCKS => left >= block,
            _ => schedule::goes_on(done, &self.widths(), left, block),
        }
    }

    /// Half the widths of the medians' intervals.
    fn widths(&self) -> Vec<f64> {
        let mut by_point = BTreeMap::<_, Vec<f64>>::new();
        for run in &self.made.runs {
            by_point
                .entry((&run.target, run.at))
                .or_default()
                .extend(record::median(run));
        }
        let widths = by_point
            .values()
            .filter_map(|values| intervals::relative_half_width(&intervals::estimate(values)?));
        widths.collect()
    }

    fn sweep(
        &mut self,
        experiment: &Experiment,
        (target, at): (usize, At),
        block: u32,
        sweep: u64,
    ) -> Result<(), Stop> {
        let spec = &self.resolved.specs[target];
        let machine = Machine::read();
        let hosts = self.world.hosts().to_vec();
        let mut order = jostle_connections::sweep_order(&self.resolved.plan, spec, at, sweep);
        order.watched = self.hooks.watched && hosts.is_empty();
        let curve = Curve {
            target: &spec.typed,
            at,
            run: block,
            order: &order,
            machine: &machine,
            hosts: hosts.len(),
        };
        let last = order.open.last().copied();
        (self.hooks.progress)(Progress::Run(&spec.typed, At { open: last, ..at }, block));
        let mut runs: Vec<Run> = Vec::new();
        let mut sunk = Ok(());
        let ended = &mut self.hooks.ended;
        let (record, progress) = (&mut self.hooks.record, &mut self.hooks.progress);
        let mut reached = |step: Step| {
            let mut run = record::run(&curve, &step.data, runs.last());
            run.hosts = world::step_rows(experiment, &curve, &run, &hosts, &step.parts);
            judge(experiment, &mut run);
            if sunk.is_ok() {
                sunk = record(&Record::Run(Box::new(run.clone())));
            }
            runs.push(run);
        };
        let closed = self.world.sweep(
            &order,
            &mut || ended().is_some(),
            &mut reached,
            &mut |look| progress(Progress::Running(&look)),
        );
        let first = self.made.runs.len();
        self.made.runs.append(&mut runs);
        sunk.map_err(Stop::Sink)?;
        let closed = closed.map_err(Stop::Keeper)?;
        for closing in record::closings(&curve, &closed) {
            let mut run = self.made.runs[first..].iter_mut();
            let run = run.find_map(|run| closing.add_to(run).then_some(()));
            if run.is_some() {
                self.sink(Record::Closing(Box::new(closing)))?;
            }
        }
        if let Some(run) = self.made.runs[first..].last() {
            (self.hooks.progress)(Progress::Done(&run.clone()));
        }
        Ok(())
    }
}
