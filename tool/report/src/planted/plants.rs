//! The plans that are asked first, and the runs of a planted machine.

use super::{Asked, largest};
use crate::made;
use jostle_model::connect::Connections;
use jostle_model::hosts::HostPart;
use jostle_model::open_loop::OpenLoop;
use jostle_model::plan::{Fault, Workload};
use jostle_model::record::{
    Accounts, At, Distribution, Event, FaultSeen, Interference, Interrupts, Kept, Run, Server,
    Slice, Spread, ThreadLoad, Verified, What,
};
use jostle_model::{List, Nanos, Plan};
use jostle_stats::histogram::Histogram;
use jostle_stats::recover::{Seen, found as found_in};

/// `contend flock -w 10`, hold 1 ms, 5 s.
pub(super) fn contend() -> Plan {
    Plan {
        targets: vec!["flock".to_owned()],
        workers: Some(List(vec![10])),
        runs: None,
        ..made::plan()
    }
}

/// Attempts end after a second.
pub(super) fn impatient() -> Plan {
    Plan {
        acquire_timeout: Some(Nanos::from_millis(1_000)),
        ..contend()
    }
}

pub(super) fn alone() -> Plan {
    Plan {
        workers: Some(List(vec![1])),
        ..contend()
    }
}

/// One that does not sleep.
pub(super) fn awake() -> Plan {
    Plan {
        workers: Some(List(vec![1])),
        ..short()
    }
}

/// Without hold and idle.
pub(super) fn short() -> Plan {
    Plan {
        hold: None,
        idle: None,
        ..contend()
    }
}

pub(super) fn profiled() -> Plan {
    Plan {
        during: Some("perf record -a".to_owned()),
        ..contend()
    }
}

pub(super) fn stream() -> Plan {
    Plan {
        operations: Some(List(vec![1_000])),
        workload: Workload::Stream,
        ..alone()
    }
}

/// `hold redis --keys 1000 --for 90s`.
pub(super) fn keeping() -> Plan {
    Plan {
        targets: vec!["redis".to_owned()],
        workers: Some(List(vec![1])),
        keys: Some(List(vec![1_000])),
        keep: Some(Nanos::from_millis(90_000)),
        ..Plan::of(Workload::Hold)
    }
}

/// Locks that are kept by a server that keeps up with a hundred of them.
pub(super) fn keeps(run: &mut Run, asked: &Asked, lapsed: f64, late: f64) {
    let locks = largest(&asked.plan.keys).unwrap_or(1);
    let beyond = |dose: f64| if locks > 100 { dose as u64 } else { 0 };
    run.kept = Some(Box::new(Kept {
        kept_s: 90.0,
        locks,
        lease_s: Some(30.0),
        renewals: 9 * locks,
        late: beyond(late),
        lapsed: beyond(lapsed),
        ..Kept::default()
    }));
}

/// Connections of a plan.
const MANY: u64 = 20_000;

pub(super) fn connect() -> Plan {
    Plan {
        targets: vec!["tcp".to_owned()],
        open: Some(List(vec![MANY])),
        sources: Some(List(vec![1])),
        ..Plan::of(Workload::Connect)
    }
}

pub(super) fn rate() -> Plan {
    Plan {
        rate: Some(List(vec![1_000])),
        workload: Workload::Rate,
        ..contend()
    }
}

pub(super) fn spread() -> Plan {
    Plan {
        targets: vec!["lockd".to_owned()],
        in_flight: Some(100),
        generators: Some(List(vec![3])),
        ..Plan::of(Workload::Spread)
    }
}

pub(super) fn generators() -> Plan {
    Plan {
        generators: Some(List(vec![3, 6])),
        ..spread()
    }
}

/// A clean run of what is asked.
pub(super) fn clean(asked: &Asked) -> Run {
    let plan = &asked.plan;
    let workers = asked.workers();
    let mut run = made::point(
        "flock",
        1,
        945.0,
        38.0,
        &made::queue(workers, 4_720 / workers),
    );
    run.target.clone_from(&plan.targets[0]);
    run.window.window_s = asked.window_s();
    run.at = At {
        workers: plan.workers.as_ref().map(|_| workers),
        operations: largest(&plan.operations),
        keys: largest(&plan.keys).filter(|_| plan.workload == Workload::Hold),
        open: largest(&plan.open),
        rate: largest(&plan.rate),
        generators: largest(&plan.generators),
        ..At::default()
    };
    run
}

pub(super) fn one(asked: &Asked, plant: impl FnOnce(&mut Run)) -> Vec<Run> {
    let mut point = clean(asked);
    plant(&mut point);
    vec![point]
}

pub(super) fn runs(asked: &Asked, count: u32) -> Vec<Run> {
    let run = |run| Run {
        run,
        block: run,
        ..clean(asked)
    };
    (1..=count).map(run).collect()
}

/// So many timers in so many seconds beside the anchor.
pub(super) fn interrupted(between_s: f64, timers: u64) -> Option<Box<Interference>> {
    let anchor = Interrupts {
        between_s,
        timer: vec![timers],
        monitor: vec![0],
        call: vec![0],
    };
    Some(Box::new(Interference {
        anchor: Some(anchor),
        ..Interference::default()
    }))
}

pub(super) fn witness(run: &mut Run) -> &mut jostle_model::record::Exclusion {
    run.exclusion.get_or_insert_default()
}

/// One that counted so many, so many more than its clients did.
pub(super) fn server(counted: u64, difference: i64) -> Option<Server> {
    Some(Server {
        counted: Some(counted),
        difference: Some(difference),
        ..Server::default()
    })
}

pub(super) fn connections(run: &mut Run) -> &mut Connections {
    run.connections.get_or_insert_default()
}

pub(super) fn spread_of(run: &mut Run) -> &mut Spread {
    let spread = run.spread.get_or_insert_default();
    spread.in_flight = 100;
    spread
}

/// So many workers wait from the beginning of the window to its end.
pub(super) fn waits(run: &mut Run, workers: u64) {
    run.acquire_ns.get_or_insert_default().censored = workers;
    let shares = run.per_worker.get_or_insert_default();
    shares.longest_wait_ns = Some((run.window.window_s * 1e9) as u64);
}

/// A server that holds so many connections less than there should be.
pub(super) fn lost(asked: &Asked, dose: f64) -> Vec<Run> {
    one(asked, |point| {
        let opened = largest(&asked.plan.open).unwrap_or(MANY);
        let held = MANY - dose as u64;
        let lost = opened.saturating_sub(held);
        let connections = connections(point);
        connections.opened = opened;
        connections.lost = Some(lost);
        connections.first_lost = (lost > 0).then_some(held + 1);
    })
}

/// Two hosts of which one begins later, by so many nanoseconds.
pub(super) fn apart(asked: &Asked, late_ns: f64) -> Vec<Run> {
    one(asked, |run| {
        run.hosts = vec![HostPart::default(), HostPart::default()];
        run.hosts[1].late_ns = late_ns as i64;
    })
}

pub(super) fn stolen(asked: &Asked, ticks: f64, busy_ticks: u64) -> Vec<Run> {
    one(asked, |run| {
        run.around.machine.busy_ticks = busy_ticks;
        run.around.machine.stolen_ticks = asked.first(ticks) as u64;
    })
}

/// Another program that ran, and kept ours waiting, for so many seconds.
pub(super) fn beside(asked: &Asked, seconds: f64) -> Vec<Run> {
    one(asked, |run| {
        let seconds = asked.first(seconds);
        // The bound ends at the ideal.
        run.of_ideal = None;
        run.around.accounts = Some(Box::new(Accounts {
            between_s: 5.0,
            cpus: 2,
            waited_s: Some(seconds),
            others_s: Some(seconds),
            ..Accounts::default()
        }));
    })
}

/// A worker on its own CPU that asks a server.
pub(super) fn asks(run: &mut Run, busy_share: f64, runqueue_share: f64) {
    run.server = Some(Server::default());
    run.thread_loads = vec![ThreadLoad {
        busy_share,
        runqueue_share,
        process: None,
    }];
}

/// A run of generators with CPUs of their own that are never busy.
pub(super) fn generated(generators: u64, run: u32, rate: f64) -> Run {
    let at = At {
        generators: Some(generators),
        ..At::default()
    };
    Run {
        operations: rate as u64,
        throughput_per_s: rate,
        thread_loads: vec![ThreadLoad::default()],
        spread: Some(Box::new(Spread {
            in_flight: 100,
            effective: 100.0,
            disjoint: Some(true),
            ..Spread::default()
        })),
        ..made::run_of("lockd", Workload::Spread, at, run, 1.0)
    }
}

/// A fault that so many waiters came too late for, and whose moment is known to this share
/// of the second until the next grant.
pub(super) fn struck(run: &mut Run, late: u64, unsure: f64) {
    const SECOND_NS: u64 = 1_000_000_000;
    const WAITERS: u64 = 9;
    let event = |at_ns: u64, process: u64, what: What| Event {
        at_ns,
        process: Some(process),
        what,
        token: None,
        said: None,
        times: None,
    };
    let asked = |waiter: u64| {
        let at_ns = if waiter <= late {
            3 * SECOND_NS
        } else {
            SECOND_NS / 2
        };
        event(at_ns, waiter, What::Acquire)
    };
    let history: Vec<Event> = std::iter::once(event(1, 0, What::Granted))
        .chain((1..=WAITERS).map(asked))
        .chain([event(2 * SECOND_NS, WAITERS, What::Granted)])
        .collect();
    let (recovery, _) = found_in(&Seen {
        fault: Fault::Kill,
        waiters: WAITERS,
        within_ns: 30 * SECOND_NS,
        lease_ns: None,
        lease_step_ns: None,
        leased_at_ns: None,
        struck: None,
        promised: None,
        struck_ns: (SECOND_NS, SECOND_NS + (unsure * SECOND_NS as f64) as u64),
        returned_ns: None,
        delays: None,
        may_lapse: false,
        history: &history,
    });
    run.recovery = Some(Box::new(recovery));
}

/// The findings of `verify`, in which a fault struck.
pub(super) fn verified(run: &mut Run) -> &mut Verified {
    let seen = FaultSeen {
        struck: 1,
        ..FaultSeen::default()
    };
    let found = Verified {
        faults: [(Fault::Kill, seen)].into(),
        ..Verified::default()
    };
    run.verified.insert(Box::new(found))
}

/// So many operations in 5 s.
pub(super) fn few(asked: &Asked, operations: f64) -> Vec<Run> {
    one(asked, |run| {
        run.operations = (operations * asked.window_s() / 5.0) as u64;
    })
}

/// Holds of so many nanoseconds, until the machine is mended.
pub(super) fn held(asked: &Asked, nanos: f64) -> Vec<Run> {
    let nanos = if asked.again { 1e6 } else { nanos };
    one(asked, |run| {
        run.times.hold_ns = Some(Distribution {
            percentiles: [("p50".to_owned(), nanos as u64)].into(),
            ..Distribution::default()
        });
    })
}

/// A generator at 1000 requests a second whose threads wait so many microseconds for a
/// CPU for each of them; the server takes 400.
pub(super) fn read_late(asked: &Asked, waited_us: f64) -> Vec<Run> {
    let crowded = largest(&asked.plan.rate) >= Some(1_000);
    let mut service = Histogram::new();
    service.record_n(400_000, 1_000);
    let service = service.to_buckets();
    one(asked, |run| {
        run.open_loop = Some(Box::new(OpenLoop {
            planned: 1_000,
            done: 1_000,
            ..OpenLoop::default()
        }));
        run.server = Some(Server::default());
        run.operations = 1_000;
        run.histograms
            .insert("service_ns".to_owned(), service.clone());
        run.cpu.runqueue_wait_s = Some(if crowded { waited_us * 1e-3 } else { 0.0 });
    })
}

pub(super) fn slice(operations: u64, mean_wait_ns: Option<f64>) -> Slice {
    Slice {
        operations,
        mean_wait_ns,
        ..Slice::default()
    }
}

pub(super) fn tail(rank: u64, beyond: u64) -> HostPart {
    HostPart {
        rank,
        host: format!("h{rank}"),
        latency_ns: Some(Distribution {
            count: 1_000,
            ..Distribution::default()
        }),
        beyond_p99: Some(beyond),
        ..HostPart::default()
    }
}
