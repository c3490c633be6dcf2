//! The part of each host in a run, as rows of its record: the same figures and checks as for the
//! whole, on the host's own data.

use super::{Host, HostDid, Part, machines};
use crate::order::WorkloadOrder;
use crate::run::{self, Which};
use jostle_model::hosts::HostPart;
use jostle_model::record::{At, Experiment, Run};
use jostle_stats::checks::{self, Evidence};
use jostle_stats::tail;

/// One row for each host that took part. `whole` is the record of all of them.
pub fn rows(
    experiment: &Experiment,
    which: Which<'_>,
    whole: &Run,
    hosts: &[Host],
    parts: &[Part],
) -> Vec<HostPart> {
    let each = parts.iter();
    each.map(|part| {
        let at = at(which.at, part);
        let data = machines::own_view(hosts, parts, part);
        let own = run::record(&experiment.plan, &part.order, Which { at, ..which }, &data);
        row(experiment, whole, &own, hosts, &part.of, part.order.workers)
    })
    .collect()
}

/// The row of a host whose record, by itself, would be `own`.
pub(super) fn row<D>(
    experiment: &Experiment,
    whole: &Run,
    own: &Run,
    hosts: &[Host],
    did: &HostDid<D>,
    workers: usize,
) -> HostPart {
    let latency_of = tail::figure(whole);
    let buckets = |run: &Run| tail::buckets(run, latency_of?);
    let beyond_p99 = buckets(whole).zip(buckets(own));
    let open_loop = own.open_loop.as_deref();
    let lag = open_loop.and_then(|open| open.generator_lag_ns.as_ref());
    let worked_s = own.window.window_s * workers as f64;
    HostPart {
        rank: did.rank as u64,
        host: super::name(hosts, did.rank),
        clock_ahead_ns: did.clock.ahead_ns,
        clock_within_ns: did.clock.within_ns,
        late_ns: did.late_ns,
        workers: workers as u64,
        operations: own.operations,
        throughput_per_s: own.throughput_per_s,
        cpu_s: own.cpu.cpu_s,
        cpu_us_per_operation: own.cpu.cpu_us_per_operation,
        busy_share: own
            .thread_loads
            .iter()
            .map(|g| g.busy_share)
            .reduce(f64::max),
        runqueue_share: own
            .cpu
            .runqueue_wait_s
            .filter(|_| worked_s > 0.0)
            .map(|waited_s| waited_s / worked_s),
        generator_lag_ns_p99: lag.and_then(|lag| lag.percentiles.get("p99").copied()),
        latency_of: latency_of.map(str::to_owned),
        latency_ns: latency_of.and_then(|figure| tail::distribution(own, figure)),
        beyond_p99: beyond_p99.map(|(whole, own)| tail::beyond_p99(&whole, &own)),
        errors: own.around.errors.clone(),
        verdict: checks::verdict(&Evidence {
            experiment,
            runs: &[own],
        }),
    }
}

/// The swept values as they are on one host.
fn at(whole: At, part: &Part) -> At {
    let rate = match &part.order.workload {
        WorkloadOrder::Rate(rate) => Some(rate.open_loop.per_s),
        _ => None,
    };
    At {
        workers: whole.workers.map(|_| part.order.workers as u64),
        rate: rate.or(whole.rate),
        generators: whole.generators.map(|_| 1),
        ..whole
    }
}

#[cfg(test)]
mod tests {
    use super::super::{merge, split};
    use super::*;
    use crate::hosts::{HostData, Offset};
    use crate::order::{Attempts, CpuData, EachWorker, Merged, RunData};
    use jostle_model::plan::{Plan, Workload};
    use jostle_model::record::{Buckets, Circumstances, Machine, SCHEMA, Status, Window};

    fn experiment() -> Experiment {
        Experiment {
            schema: SCHEMA.to_owned(),
            plan: Plan::of(Workload::Contend),
            environment: Default::default(),
            calibration: Default::default(),
            target_facts: Default::default(),
            started_at: String::new(),
        }
    }

    /// A host's second of `contend`: so many waits of 1 us and of 1 ms.
    fn did(quick: u64, slow: u64, throttled: u64) -> RunData {
        let buckets = [(1_000, quick), (1_000_000, slow)];
        let waits = Merged {
            buckets: Buckets(buckets.into_iter().filter(|(_, n)| *n > 0).collect()),
            sum: quick * 1_000 + slow * 1_000_000,
            min: 1_000,
            max: 1_000_000,
        };
        RunData {
            window: Window {
                window_s: 1.0,
                ..Window::default()
            },
            workers: EachWorker {
                operations: vec![quick + slow],
                ..EachWorker::default()
            },
            figures: [("acquire_ns".to_owned(), waits)].into(),
            attempts: Attempts {
                stamped: quick + slow,
                ..Attempts::default()
            },
            cpu: CpuData {
                runqueue_wait_ns: Some(250_000_000),
                ..CpuData::default()
            },
            around: Circumstances {
                machine: Machine {
                    throttled_periods: Some(throttled),
                    ..Machine::default()
                },
                ..Circumstances::default()
            },
            excludes: true,
            ..RunData::default()
        }
    }

    fn point_of(gathered: Vec<RunData>) -> Run {
        let mut order = crate::experiment::tests::order("lockd://server:2626");
        order.workers = gathered.len();
        let hosts: Vec<Host> = (0..gathered.len())
            .map(|nth| Host {
                name: format!("h{nth}"),
                boot_id: format!("b{nth}"),
                ..Host::default()
            })
            .collect();
        let orders = split::split(&order, hosts.len(), 7);
        let parts: Vec<Part> = orders
            .into_iter()
            .flatten()
            .zip(gathered)
            .enumerate()
            .map(|(rank, (order, data))| Part {
                order,
                of: HostData {
                    rank,
                    data,
                    clock: Offset {
                        ahead_ns: 1_000_000 * rank as i64,
                        within_ns: 30_000,
                    },
                    late_ns: 10,
                },
            })
            .collect();
        let experiment = experiment();
        let which = Which {
            target: "lockd://server:2626",
            at: At {
                workers: Some(hosts.len() as u64),
                ..At::default()
            },
            run: 1,
            block: 1,
        };
        let whole = split::whole(&order, hosts.len(), 7);
        let data = merge::merge(&whole, &hosts, &parts);
        let mut run = run::record(&experiment.plan, &whole, which, &data);
        run.hosts = rows(&experiment, which, &run, &hosts, &parts);
        run.verdict = checks::verdict(&Evidence {
            experiment: &experiment,
            runs: &[&run],
        });
        run
    }

    #[test]
    fn each_host_has_its_figures_beside_the_whole() {
        let run = point_of(vec![did(1_000, 0, 0), did(1_490, 10, 0)]);
        assert_eq!((run.operations, run.hosts.len()), (2_500, 2));
        let row = &run.hosts[1];
        assert_eq!((row.rank, row.host.as_str(), row.workers), (1, "h1", 1));
        assert_eq!((row.operations, row.throughput_per_s), (1_500, 1_500.0));
        assert_eq!(
            (row.clock_ahead_ns, row.clock_within_ns),
            (1_000_000, 30_000)
        );
        assert_eq!(row.runqueue_share, Some(0.25));
        assert_eq!(row.latency_of.as_deref(), Some("acquire_ns"));
        assert_eq!(row.latency_ns.as_ref().unwrap().count, 1_500);
        // What one host alone was let in after, it does not know.
        assert_eq!(run.blocked_share, None);
        assert_eq!(run.times.handoff_ns, None);
    }

    #[test]
    fn a_throttled_host_flags_the_whole_by_its_name() {
        let run = point_of(vec![did(1_000, 0, 0), did(1_000, 0, 3), did(1_000, 0, 0)]);
        let is: Vec<Status> = run.hosts.iter().map(|row| row.verdict.is).collect();
        assert_eq!(is[1], Status::Invalid);
        assert!(is[0] < Status::Invalid && is[2] < Status::Invalid);
        assert_eq!(run.verdict.is, Status::Invalid);
        let reason = &run.verdict.reasons[0];
        assert_eq!(reason.check, "throttled");
        assert!(reason.text.starts_with("h1: "), "{}", reason.text);
    }

    #[test]
    fn a_host_that_owns_the_tail_is_named() {
        let run = point_of(vec![did(4_000, 0, 0), did(3_950, 50, 0), did(4_000, 0, 0)]);
        let rows = run.hosts.iter().map(|row| row.beyond_p99);
        assert_eq!(rows.collect::<Vec<_>>(), [Some(0), Some(50), Some(0)]);
        let reasons = &run.verdict.reasons;
        let tail = reasons.iter().find(|r| r.check == "tail_host").unwrap();
        assert!(tail.text.starts_with("h1: 33.3 %"), "{}", tail.text);
    }
}
