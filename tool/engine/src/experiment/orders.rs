//! A run's orders to keepers, from the resolved plan.

use super::ExperimentLoop;
use super::pilots::{PILOT, PILOT_WARMUP};
use crate::order::{
    AskOrder, ContendOrder, HoldOrder, RateOrder, RunOrder, SpreadOrder, StreamOrder,
    WorkloadOrder, cpus,
};
use crate::requested;
use jostle_model::Nanos;
use jostle_model::plan::{Carrier, Names, Place, Plan, Range, Shape, Workload};
use jostle_model::record::{At, Calibration};
use jostle_model::time::Busy;
use jostle_stats::rng::Rng;
use jostle_stats::sleeping;
use jostle_targets::Spec;

/// Where the offset between CPUs could not be bounded (one CPU, or no quiet
/// moment), no hand-off is called too early. A day is the longest time that an
/// order can carry, and no window is longer.
const UNKNOWN_OFFSET_NS: f64 = 86_400e9;

impl ExperimentLoop<'_, '_> {
    /// The order for one run of a point; the caller sets its window and what runs along.
    pub(super) fn order(
        &self,
        target: usize,
        at: At,
        run: u32,
        point: usize,
        calibration: &Calibration,
    ) -> RunOrder {
        let plan = &self.resolved.plan;
        let spec = &self.resolved.specs[target];
        let seed = Rng::stream(plan.seed(), ((point as u64) << 32) + u64::from(run)).next_u64();
        let workers = at.workers.or(plan.in_flight).unwrap_or(1);
        let mut order = order(plan, spec.whole(), at, workers as usize, seed);
        order.stamp_every = calibration
            .own_cost
            .get(&spec.typed)
            .map_or(1, |cost| cost.stamp_every);
        order.clock_uncertainty = Nanos(
            calibration
                .clock_uncertainty_ns
                .unwrap_or(UNKNOWN_OFFSET_NS)
                .ceil() as u64,
        );
        let latencies = calibration.latencies.as_ref();
        let excludes = spec.entry.lock.excludes;
        let spares = match &order.workload {
            WorkloadOrder::Contend(contend) => spares_cpus(&order, contend, excludes),
            _ => false,
        };
        if let WorkloadOrder::Contend(contend) = &mut order.workload {
            contend.renews &= spec.entry.lock.renews;
        }
        if let WorkloadOrder::Contend(contend) = &mut order.workload
            && let (true, Busy::Sleep(span)) = (spares, contend.hold)
        {
            contend.wake_early = sleeping::wake_early(latencies, span);
        }
        order
    }
}

/// Whether there is a CPU for each worker that may hold a lock at the same time. A holder
/// that spins then delays no other holder.
fn spares_cpus(order: &RunOrder, contend: &ContendOrder, excludes: bool) -> bool {
    let one_by_one = excludes && contend.shared == 0.0 && contend.range == Range::Same;
    let holders = match one_by_one {
        true => order.keys.min(order.workers),
        false => order.workers,
    };
    let cpus = match order.cpus.len() {
        0 => jostle_sys::cpu::allowed().len(),
        dealt => dealt,
    };
    holders <= cpus
}

/// A run by the plan at these swept values; windows, stamps and clock are the caller's
/// to set.
pub fn order(plan: &Plan, target: &str, at: At, workers: usize, seed: u64) -> RunOrder {
    let allowed = jostle_sys::cpu::allowed();
    let cpus = cpus(&plan.place(), &allowed);
    RunOrder {
        target: target.to_owned(),
        workload: workload(plan, target, at),
        workers,
        carrier: match plan.workload {
            Workload::Spread => Carrier::Threads,
            _ => plan.carrier(),
        },
        generator_threads: plan.generator_threads().min(workers as u64) as usize,
        server_cpus: match (&plan.server_place, &plan.place, plan.workload) {
            (Some(asked), ..) => crate::order::cpus(asked, &allowed),
            // Apart from the workers, where there is a CPU left: a server that may
            // run anywhere begins on theirs, and moves away after some thousand
            // requests, which looks as if each of them came to cost more.
            (None, Some(Place::Cpus(_)), _) | (None, Some(_), Workload::Spread) => {
                let others = allowed.iter().filter(|cpu| !cpus.contains(cpu));
                others.copied().collect()
            }
            _ => Vec::new(),
        },
        cpus,
        warmup: PILOT_WARMUP,
        window: PILOT,
        measure: plan.measure(),
        stamp_every: 1,
        keys: keys(plan, at, workers),
        slots: plan.slots() as usize,
        members: plan.members() as usize,
        wait_replicas: plan.wait_replicas() as usize,
        credentials: plan.credentials.clone(),
        timer_slack: plan.timer_slack(),
        during: None,
        server: plan.server.clone(),
        clock_uncertainty: Nanos::ZERO,
        log_grants: 0,
        watched: false,
        together: None,
        place: plan.place(),
        share: None,
        seed,
    }
}

/// The work of the plan's workers on this target.
fn workload(plan: &Plan, target: &str, at: At) -> WorkloadOrder {
    match plan.workload.shape() {
        Shape::Stream if is_asked(target) => WorkloadOrder::Ask(AskOrder {
            operations: each(at),
            requests: requested::order(plan),
        }),
        Shape::Stream => WorkloadOrder::Stream(StreamOrder::new(plan, each(at))),
        Shape::Hold => WorkloadOrder::Hold(HoldOrder {
            operations: each(at),
            pipeline: plan.pipeline() as usize,
            keep: plan.keep(),
            lease: plan.lease,
        }),
        Shape::Rate => WorkloadOrder::Rate(RateOrder {
            requests: requested::order(plan),
            open_loop: requested::open_loop(plan, at),
        }),
        Shape::Spread => WorkloadOrder::Spread(SpreadOrder {
            requests: requested::order(plan),
            generators: at.generators.unwrap_or(1) as usize,
            generator_cpu: plan.generator_cpu,
        }),
        // The other three have no workers, and orders of their own.
        Shape::Contend | Shape::Connect | Shape::Recover | Shape::Verify => {
            WorkloadOrder::Contend(plan.into())
        }
    }
}

fn is_asked(target: &str) -> bool {
    Spec::parse(target).is_ok_and(|spec| spec.entry.is_asked())
}

/// Operations of each worker.
fn each(at: At) -> u64 {
    at.operations.or(at.keys).unwrap_or(1)
}

/// Locks of all workers.
fn keys(plan: &Plan, at: At, workers: usize) -> usize {
    match (plan.workload.shape(), plan.names()) {
        (Shape::Contend, _) => plan.key_count() as usize,
        (Shape::Hold, _) => workers * each(at) as usize,
        (Shape::Stream | Shape::Rate, Names::Own) | (Shape::Spread, _) => workers,
        (Shape::Stream | Shape::Rate, Names::One) => 1,
        (Shape::Connect | Shape::Recover | Shape::Verify, _) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::order;

    #[test]
    fn holds_end_on_time_where_each_holder_has_a_cpu() {
        let table = [
            // workers, keys, share of readers, range, excludes, CPUs
            (1_000, 1, 0.0, Range::Same, true, 1, true),
            (2, 2, 0.0, Range::Same, true, 2, true),
            (2, 64, 0.0, Range::Same, true, 2, true), // no more holders than workers
            (64, 3, 0.0, Range::Same, true, 2, false),
            (10, 1, 0.5, Range::Same, true, 2, false), // readers hold together
            (10, 1, 0.0, Range::Disjoint, true, 2, false),
            (10, 1, 0.0, Range::Same, false, 2, false), // a specimen lets everybody in
        ];
        for (workers, keys, shared, range, excludes, cpus, spares) in table {
            let mut order = order("flock");
            (order.workers, order.keys) = (workers, keys);
            order.cpus = (0..cpus).collect();
            let contend = ContendOrder {
                shared,
                range,
                ..ContendOrder::bare()
            };
            let found = spares_cpus(&order, &contend, excludes);
            assert_eq!(
                found, spares,
                "{workers} {keys} {shared} {range:?} {excludes}"
            );
        }
    }

    #[test]
    fn a_server_gets_the_cpus_that_the_plan_names_or_those_that_are_left() {
        let allowed = jostle_sys::cpu::allowed();
        let (first, others) = allowed.split_first().unwrap();
        let cpus = |workload, place: Option<Place>, server_place: Option<Place>| {
            let mut plan = Plan::of(workload);
            (plan.place, plan.server_place) = (place, server_place);
            super::order(&plan, "lockd", At::default(), 1, 7).server_cpus
        };
        use Workload::{Rate, Spread, Stream};
        let on_first = || Some(Place::Cpus(vec![*first]));
        assert_eq!(cpus(Stream, None, None), [0; 0]);
        assert_eq!(cpus(Stream, on_first(), None), others);
        assert_eq!(cpus(Spread, on_first(), None), others);
        assert_eq!(cpus(Rate, None, on_first()), [*first]);
        assert_eq!(cpus(Stream, on_first(), Some(Place::Same)), [*first]);
        assert_eq!(cpus(Stream, on_first(), Some(Place::Cross)), allowed);
        assert_eq!(cpus(Spread, on_first(), Some(Place::None)), [0; 0]);
    }

    #[test]
    fn each_workload_has_an_order_of_its_own_and_so_many_locks() {
        let at = At {
            operations: Some(500),
            rate: Some(70),
            generators: Some(3),
            ..At::default()
        };
        type Predicate = fn(&WorkloadOrder) -> bool;
        let table: [(Workload, &str, Names, Predicate, usize); 8] = [
            (
                Workload::Contend,
                "flock",
                Names::One,
                |w| matches!(w, WorkloadOrder::Contend(_)),
                1,
            ),
            (
                Workload::Stream,
                "flock",
                Names::One,
                |w| matches!(w, WorkloadOrder::Stream(s) if s.operations == 500),
                1,
            ),
            (
                Workload::Stream,
                "flock",
                Names::Own,
                |w| matches!(w, WorkloadOrder::Stream(s) if s.names == Names::Own),
                4,
            ),
            // What is asked is no lock, whatever the word of the workload.
            (
                Workload::Stream,
                "exec:true",
                Names::One,
                |w| matches!(w, WorkloadOrder::Ask(a) if a.operations == 500),
                1,
            ),
            (
                Workload::Hold,
                "lockd",
                Names::One,
                |w| matches!(w, WorkloadOrder::Hold(h) if h.operations == 500),
                2_000,
            ),
            (
                Workload::Rate,
                "lockd",
                Names::Own,
                |w| matches!(w, WorkloadOrder::Rate(r) if r.open_loop.per_s == 70),
                4,
            ),
            (
                Workload::Rate,
                "exec:true",
                Names::One,
                |w| matches!(w, WorkloadOrder::Rate(_)),
                1,
            ),
            (
                Workload::Spread,
                "lockd",
                Names::One,
                |w| matches!(w, WorkloadOrder::Spread(s) if s.generators == 3),
                4,
            ),
        ];
        for (word, target, names, is, keys) in table {
            let mut plan = Plan::of(word);
            plan.names = Some(names);
            let order = super::order(&plan, target, at, 4, 7);
            assert!(is(&order.workload), "{word} {target}: {order:?}");
            assert_eq!(order.keys, keys, "{word} {target}");
            let counted = matches!(word, Workload::Stream | Workload::Hold);
            assert_eq!(
                order.workload.operations(),
                counted.then_some(500),
                "{target}"
            );
            let few = order.workload.of_at_most(9).operations();
            assert_eq!(few, counted.then_some(9), "{target}");
        }
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
}
