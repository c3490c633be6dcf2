//! The course of `connect`: block after block, in each of which every curve (a
//! target with so many sources and other listeners) is one sweep from no
//! connection to the greatest number. A point is written as it is reached, how
//! it was closed when the sweep is over.

use super::records::judge;
use super::{Course, Limits, Progress, Stop, over};
use crate::connect::{self, Curve};
use crate::order::{SweepOrder, cpus};
use crate::preflight;
use crate::schedule;
use crate::world::{self, Step};
use jostle_model::plan::Plan;
use jostle_model::record::{At, Environment, Experiment, Point, Record};
use jostle_model::{List, Nanos};
use jostle_stats::intervals;
use jostle_stats::rng::Rng;
use jostle_sys::limits::Machine;
use jostle_targets::Spec;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// How long nothing may move before a call is called timed out: longer than the
/// first two retries of a lost SYN.
const PATIENCE: Nanos = Nanos::from_millis(5_000);

/// Blocks from which a median has an interval.
const USUAL_BLOCKS: u32 = 6;

impl Course<'_, '_> {
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
        for point in &self.points {
            by_point
                .entry((&point.target, point.at))
                .or_default()
                .extend(connect::median(point));
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
        let mut order = sweep_order(&self.resolved.plan, spec, at, sweep);
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
        let mut points: Vec<Point> = Vec::new();
        let mut sunk = Ok(());
        let ended = &mut self.hooks.ended;
        let (record, progress) = (&mut self.hooks.record, &mut self.hooks.progress);
        let mut reached = |step: Step| {
            let mut point = connect::point(&curve, &step.data, points.last());
            point.hosts = world::step_rows(experiment, &curve, &point, &hosts, &step.parts);
            judge(experiment, &mut point);
            if sunk.is_ok() {
                sunk = record(&Record::Point(Box::new(point.clone())));
            }
            points.push(point);
        };
        let closed = self.world.sweep(
            &order,
            &mut || ended().is_some(),
            &mut reached,
            &mut |look| progress(Progress::Running(&look)),
        );
        let first = self.points.len();
        self.points.append(&mut points);
        sunk.map_err(Stop::Sink)?;
        let closed = closed.map_err(Stop::Keeper)?;
        for closing in connect::closings(&curve, &closed) {
            let point = self.points[first..]
                .iter_mut()
                .find_map(|point| closing.add_to(point).then_some(()));
            if point.is_some() {
                self.sink(Record::Closing(Box::new(closing)))?;
            }
        }
        if let Some(point) = self.points[first..].last() {
            (self.hooks.progress)(Progress::Done(&point.clone()));
        }
        Ok(())
    }
}

fn sweep_order(plan: &Plan, spec: &Spec, at: At, sweep: u64) -> SweepOrder {
    let listed: BTreeSet<u64> = plan
        .open
        .as_ref()
        .map_or(BTreeSet::new(), |List(open)| open.iter().copied().collect());
    let sources = at.sources.unwrap_or(1);
    let seed = plan.seed();
    SweepOrder {
        target: spec.whole().to_owned(),
        open: listed.into_iter().collect(),
        listeners: at.listeners.unwrap_or(0),
        sources,
        sweep: Rng::stream(seed, u64::MAX).next_u64() % (1 << 20) + sweep,
        ports: plan.ports(),
        accept: plan.accept(),
        acceptors: plan.acceptors(),
        bind_no_port: preflight::bound(plan, sources),
        port_range: plan.port_range,
        close: plan.close(),
        rate: plan.rate.as_ref().and_then(|rate| rate.0.first().copied()),
        sndbuf: plan.sndbuf,
        rcvbuf: plan.rcvbuf,
        only: plan.only,
        cpus: cpus(&plan.place(), &jostle_sys::cpu::allowed()),
        timer_slack: plan.timer_slack(),
        place: plan.place(),
        load: preflight::demand(plan, spec, at),
        patience: PATIENCE,
        during: plan.during.clone(),
        server: plan.server.clone(),
        watched: false,
        together: None,
        seed: Rng::stream(seed, sweep).next_u64(),
    }
}
