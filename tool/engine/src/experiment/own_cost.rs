//! The cost that the tool itself adds to a cycle of each lock, before the first run, and how seldom
//! operations are stamped therefore.

use super::orders::order;
use super::{ExperimentLoop, Progress, Stop};
use crate::order::{ContendOrder, CostOrder, NO_TIME, RunOrder, WorkloadOrder};
use jostle_model::plan::{Plan, Workload};
use jostle_model::record::{At, Calibration, Latencies, OwnCost};
use jostle_model::time::Busy;
use jostle_stats::intervals;
use jostle_sys::clock;
use jostle_targets::Spec;
use std::collections::BTreeMap;

/// Blocks of the measurement of the tool's own cost.
const COST_BLOCKS: usize = 9;

/// Share of a cycle that stamping may cost before it is thinned out.
const STAMPS_MAY_COST: f64 = 0.05;

/// Thinner than that, too few operations would be seen.
const STAMP_EVERY_AT_MOST: u64 = 1_000;

impl ExperimentLoop<'_, '_> {
    pub(super) fn calibrate(&mut self) -> Result<Calibration, Stop> {
        let mut calibration = Calibration {
            clock: self.clock.source().name().to_owned(),
            stamp_ns: self.clock.cost_ns(),
            clock_uncertainty_ns: clock::uncertainty_ns(self.clock, &jostle_sys::cpu::allowed()),
            latencies: self.latencies()?,
            own_cost: BTreeMap::new(),
            specimens: None,
            host_ceilings: Vec::new(),
        };
        // What a pair costs is asked of locks that are measured as such. Beside a session it
        // is little, and no measure of what stamps add.
        let workload = self.resolved.plan.workload;
        let requests = matches!(workload, Workload::Rate | Workload::Spread);
        let pairs = !requests && !workload.facts().session_each;
        let locks = |spec: &&Spec| !spec.entry.is_asked() && pairs;
        for spec in self.resolved.specs.iter().filter(locks) {
            (self.hooks.progress)(Progress::Cost(&spec.typed));
            let costs = match spec.entry.path_alone() {
                None => vec![(spec.typed.as_str(), self.recent_cost(spec.whole())?)],
                Some(path) => {
                    let [lock, path_alone] = self.costs_in_turns([spec.whole(), path])?;
                    vec![(spec.typed.as_str(), lock), (path, path_alone)]
                }
            };
            for (target, blocks) in costs {
                if let Some(cost) = own_cost(&blocks, &self.resolved.plan) {
                    calibration.own_cost.insert(target.to_owned(), cost);
                }
            }
        }
        Ok(calibration)
    }

    /// Enough blocks on one target, which may have been measured a moment ago.
    fn recent_cost(&mut self, target: &str) -> Result<Vec<[f64; 4]>, Stop> {
        let order = self.cost_order(target, COST_BLOCKS);
        let ended = &mut self.hooks.ended;
        let keeper = self.world.keeper();
        Ok(keeper.recent_cost(&order, &mut || ended().is_some())?)
    }

    /// So many blocks on one target: counting alone, full, without stamps, without
    /// witness; in nanoseconds a pair.
    fn cost(&mut self, target: &str, blocks: usize) -> Result<Vec<[f64; 4]>, Stop> {
        let order = self.cost_order(target, blocks);
        let ended = &mut self.hooks.ended;
        let cost = self.world.keeper().cost(&order, &mut || ended().is_some());
        Ok(cost?)
    }

    fn cost_order(&self, target: &str, blocks: usize) -> CostOrder {
        let plan = &self.resolved.plan;
        let run = RunOrder {
            workload: WorkloadOrder::Contend(ContendOrder {
                hold: NO_TIME,
                idle: NO_TIME,
                shared: 0.0,
                ..ContendOrder::from(plan)
            }),
            ..order(plan, target, At::default(), 1, 0)
        };
        CostOrder { run, blocks }
    }

    /// The costs of two targets that are compared: in turns, so that a drift of the machine falls
    /// on both alike.
    fn costs_in_turns(&mut self, targets: [&str; 2]) -> Result<[Vec<[f64; 4]>; 2], Stop> {
        const TURNS: usize = 3;
        let mut costs = [Vec::new(), Vec::new()];
        for _ in 0..TURNS {
            for (target, cost) in targets.iter().zip(&mut costs) {
                cost.extend(self.cost(target, COST_BLOCKS / TURNS)?);
            }
        }
        Ok(costs)
    }

    /// The times of this machine's simplest acts; of several hosts, the first one's.
    pub(super) fn latencies(&mut self) -> Result<Option<Latencies>, Stop> {
        let timer_slack = self.resolved.plan.timer_slack();
        let ended = &mut self.hooks.ended;
        let keeper = self.world.keeper();
        Ok(keeper.latencies(timer_slack, &mut || ended().is_some())?)
    }
}

/// From the blocks (counting alone, full, without stamps, without witness; in
/// ns a pair) to the record.
fn own_cost(blocks: &[[f64; 4]], plan: &Plan) -> Option<OwnCost> {
    let column = |n: usize| intervals::median(blocks.iter().map(|block| block[n]));
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
        pair_fastest_ns: blocks.iter().map(|block| block[0]).reduce(f64::min),
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
mod tests {
    use super::*;

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
