//! A sweep's order, from the plan.

use crate::limits;
use jostle_model::plan::Plan;
use jostle_model::record::At;
use jostle_model::{List, Nanos};
use jostle_stats::rng::Rng;
use jostle_targets::Spec;
use jostle_worker::order::{SweepOrder, cpus};
use std::collections::BTreeSet;

/// How long nothing may move before a call is called timed out: longer than the
/// first two retries of a lost SYN.
const PATIENCE: Nanos = Nanos::from_millis(5_000);

/// Sweep number `sweep` of the experiment.
pub fn sweep_order(plan: &Plan, spec: &Spec, at: At, sweep: u64) -> SweepOrder {
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
        bind_no_port: limits::bound(plan, sources),
        port_range: plan.port_range,
        close: plan.close(),
        rate: plan.rate.as_ref().and_then(|rate| rate.0.first().copied()),
        sndbuf: plan.sndbuf,
        rcvbuf: plan.rcvbuf,
        only: plan.only,
        cpus: cpus(&plan.place(), &jostle_sys::cpu::allowed()),
        timer_slack: plan.timer_slack(),
        place: plan.place(),
        load: limits::demand(plan, spec, at),
        patience: PATIENCE,
        during: plan.during.clone(),
        server: plan.server.clone(),
        watched: false,
        together: None,
        seed: Rng::stream(seed, sweep).next_u64(),
    }
}
