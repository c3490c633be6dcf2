//! The course of `recover`: block after block, in each of which every fault strikes every
//! target for which it makes sense, once.

use super::{ExperimentLoop, Limits, Progress, Stop, prepare};
use crate::order::{RecoverData, RecoverOrder};
use crate::{schedule, takes};
use jostle_model::Nanos;
use jostle_model::plan::Renew;
use jostle_model::record::{At, Circumstances, Environment, Experiment, Run, Struck, Window};
use jostle_stats::recover::{Seen, found};
use jostle_stats::rng::Rng;
use jostle_targets::table::Family;
use jostle_targets::{Spec, promise};
use std::time::Instant;

impl ExperimentLoop<'_, '_> {
    /// As `go`, for faults.
    pub(super) fn go_recover(&mut self, environment: Environment) -> Result<(), Stop> {
        // Its stamps are the processes' own, which read the common clock.
        let experiment = self.begin_uncalibrated("monotonic", environment)?;
        let points = self.resolved.points();
        let runs = self.resolved.plan.runs.unwrap_or(1);
        let plan = &self.resolved.plan;
        let takes: u64 = points
            .iter()
            .map(|(target, at)| takes::fault_ns(plan, &self.resolved.specs[*target], at.fault))
            .sum();
        let left = runs.saturating_sub(self.block);
        (self.hooks.progress)(Progress::Planned {
            points: points.len(),
            rounds: left as usize,
            takes: Nanos(takes * u64::from(left)),
            limits: Limits {
                concessions: &[],
                over: None,
            },
        });
        let seed = experiment.plan.seed();
        for block in self.block + 1..=runs {
            let began = Instant::now();
            for nth in schedule::block_order(points.len(), block, seed) {
                let stream = u64::from(block - 1) * points.len() as u64 + nth as u64;
                self.strike(&experiment, points[nth], block, Rng::stream(seed, stream))?;
            }
            if self.is_late(Nanos(began.elapsed().as_nanos() as u64)) {
                break;
            }
        }
        self.conclude()
    }

    fn strike(
        &mut self,
        experiment: &Experiment,
        (target, at): (usize, At),
        block: u32,
        mut rng: Rng,
    ) -> Result<(), Stop> {
        let spec = &self.resolved.specs[target];
        let Some(fault) = at.fault else {
            return Ok(());
        };
        (self.hooks.progress)(Progress::Run(&spec.typed, at, block));
        let plan = &self.resolved.plan;
        let order = RecoverOrder {
            target: spec.whole().replace(
                "{run}",
                &(self.made.runs.len() + self.left_out + 1).to_string(),
            ),
            fault,
            waiters: plan.waiters() as usize,
            within: plan.within(),
            pause: plan.pause(),
            lease: plan.lease(),
            renews: plan.renew != Some(Renew::No),
            members: plan.members() as usize,
            wait_replicas: plan.wait_replicas() as usize,
            credentials: plan.credentials.clone(),
            timer_slack: plan.timer_slack(),
            seed: rng.next_u64(),
        };
        let ended = &mut self.hooks.ended;
        if let Some(command) = &plan.prepare {
            prepare::run(command, &mut || ended().is_some())?;
        }
        let data = self
            .world
            .keeper()
            .recover(&order, &mut || ended().is_some())?;
        let run = record(spec, at, block, &order, data);
        self.finish(experiment, run)
    }
}

/// The record, without its verdict.
fn record(spec: &Spec, at: At, block: u32, order: &RecoverOrder, data: RecoverData) -> Run {
    let (mut recovery, exclusion) = found(&Seen {
        fault: order.fault,
        waiters: order.waiters as u64,
        within_ns: order.within.0,
        lease_ns: data.lease_ns,
        lease_step_ns: data.lease_step_ns,
        leased_at_ns: data.leased_at_ns,
        struck: Some(data.struck),
        promised: (data.struck == Struck::Member)
            .then(|| promise(spec.entry, &data.setup).failover),
        struck_ns: data.struck_ns,
        returned_ns: data.returned_ns,
        delays: data.delays,
        // The guarantees of a user's own lock are not known here.
        may_lapse: spec.entry.family == Family::Own && data.lease_ns.is_none(),
        history: &data.history,
    });
    recovery.keepalive_s = data.keepalive_s;
    let window_s = data.took_ns as f64 / 1e9;
    let operations = recovery.served + 1;
    Run {
        target: spec.typed.clone(),
        workload: jostle_model::plan::Workload::Recover.to_string(),
        at,
        run: block,
        block,
        window: Window {
            window_s,
            ramp_s: data.ramp_ns as f64 / 1e9,
            ..Window::default()
        },
        operations,
        throughput_per_s: match window_s > 0.0 {
            true => operations as f64 / window_s,
            false => 0.0,
        },
        placement: "none".to_owned(),
        exclusion: Some(exclusion),
        around: Circumstances {
            deaths: data.deaths,
            setup: data.setup,
            ..Circumstances::default()
        },
        recovery: Some(Box::new(recovery)),
        ..Run::default()
    }
}
