//! Made-up results for tests, fixed to the last digit.

use crate::ResultSet;
use jostle_model::plan::{Carrier, Measure, Place, Range, Workload};
use jostle_model::record::{
    At, Buckets, Calibration, Cpu, Distribution, End, Environment, Exclusion, Experiment, Machine,
    Null, OwnCost, Phase, Run, SCHEMA, Server, Slice, Spread, ThreadLoad, Times, Waits, Window,
    Workers,
};
use jostle_model::{Busy, List, Nanos, Plan};
use jostle_stats::checks::{Evidence, verdict};

mod connected;
mod hosts;
mod rated;
mod recovered;
mod verified;
mod wide;
pub(crate) use connected::{connections, exhausted};
pub(crate) use hosts::hosts;
pub(crate) use rated::rated;
pub(crate) use recovered::recovered;
pub(crate) use verified::verified;
pub(crate) use wide::wide;

/// One of each kind.
pub(crate) const EACH: [fn() -> ResultSet; 8] = [
    set,
    broken,
    counts_only,
    connections,
    exhausted,
    calls,
    spread,
    hosts,
];

/// `contend flock sysv -w 10:1000 -t 5 --runs 6`, resolved, finished.
pub(crate) fn set() -> ResultSet {
    let mut points = Vec::new();
    for run in 1..=6 {
        points.push(point("flock", run, 943.0, 40.0, &queue(10, 472)));
        points.push(point("flock", run, 945.0, 210.0, &starving()));
        points.push(point("sysv", run, 945.0, 38.0, &queue(10, 472)));
        points.push(point("sysv", run, 930.0, 45.0, &queue(1000, 4)));
    }
    finished(experiment(), points)
}

/// The set with windows from which its rates follow, as a file has to have it.
pub(crate) fn recorded() -> ResultSet {
    let mut set = set();
    for run in &mut set.runs {
        run.window.window_s = run.operations as f64 / run.throughput_per_s;
    }
    set
}

/// `contend busted -w 10 -t 5 --runs 6`: a lock that lets two in.
pub(crate) fn broken() -> ResultSet {
    let mut experiment = experiment();
    experiment.plan.targets = vec!["busted".to_owned()];
    experiment.plan.workers = Some(List(vec![10]));
    experiment.environment.file_systems.clear();
    experiment.calibration.own_cost = [("busted".to_owned(), cost(508.0, 132.0))].into();
    let points = (1..=6).map(|run| {
        let mut point = point("busted", run, 943.0, 40.0, &queue(10, 472));
        if let Some(seen) = &mut point.exclusion {
            seen.violations = 1;
            seen.examples = vec!["worker 3 met worker 5 on key 0".to_owned()];
        }
        point
    });
    let points = points.collect();
    finished(experiment, points)
}

/// `contend futex spin -w 2 -b 0 -i 0 --runs 1 --measure counts`.
pub(crate) fn counts_only() -> ResultSet {
    let mut experiment = experiment();
    let plan = &mut experiment.plan;
    plan.targets = vec!["futex".to_owned(), "spin".to_owned()];
    plan.workers = Some(List(vec![2]));
    plan.hold = Some(Busy::Sleep(Nanos::ZERO));
    plan.idle = Some(Busy::Sleep(Nanos::ZERO));
    plan.measure = Some(Measure::Counts);
    plan.runs = Some(1);
    experiment.environment.file_systems.clear();
    experiment.calibration.own_cost = [
        ("futex".to_owned(), cost(21.0, 118.0)),
        ("spin".to_owned(), cost(12.4, 111.0)),
    ]
    .into();
    let points = ["futex", "spin"].map(|target| {
        let full = point(target, 1, 9_000_000.0, 0.21, &[22_000_000, 23_000_000]);
        Run {
            ceiling_per_s: None,
            of_ideal: None,
            acquire_ns: None,
            times: Times::default(),
            blocked_share: None,
            stamp_every: None,
            stamped: None,
            exclusion: None,
            series: Vec::new(),
            histograms: Default::default(),
            per_worker: full.per_worker.map(|mut shares| {
                shares.longest_wait_ns = None;
                shares.longest_wait_worker = None;
                shares
            }),
            ..full
        }
    });
    finished(experiment, points.to_vec())
}

/// Judged as a run is when it is made, and ended.
pub(crate) fn finished(experiment: Experiment, mut runs: Vec<Run>) -> ResultSet {
    for run in &mut runs {
        run.verdict = verdict(&Evidence {
            experiment: &experiment,
            runs: &[run],
        });
    }
    let end = End {
        exit: 0,
        error: None,
        elapsed_s: 130.5,
    };
    ResultSet::new(experiment, runs, Some(end))
}

/// Of no lock: an experiment with this plan, without file systems and costs of locks.
pub(crate) fn of_plan(plan: Plan, runs: Vec<Run>) -> ResultSet {
    let mut experiment = experiment();
    experiment.environment.file_systems.clear();
    experiment.calibration.own_cost.clear();
    experiment.plan = Plan {
        timer_slack: Some(Nanos(1)),
        seed: Some(42),
        ..plan
    };
    finished(experiment, runs)
}

/// The so-manieth run of a point, without figures.
pub(crate) fn run_of(target: &str, workload: Workload, at: At, run: u32, window_s: f64) -> Run {
    Run {
        target: target.to_owned(),
        workload: workload.to_string(),
        at,
        run,
        block: run,
        window: Window {
            window_s,
            ..Window::default()
        },
        placement: "none".to_owned(),
        ..Run::default()
    }
}

/// So many times around these nanoseconds, and the least, p90 and p99 as multiples of them.
pub(crate) fn around(count: u64, ns: f64, [least, p90, p99]: [f64; 3]) -> Distribution {
    Distribution {
        count,
        min: (ns * least) as u64,
        max: (ns * 9.0) as u64,
        mean: ns,
        percentiles: [("p50", 1.0), ("p90", p90), ("p99", p99)]
            .map(|(name, times)| (name.to_owned(), (ns * times) as u64))
            .into(),
        ..Distribution::default()
    }
}

/// The experiment of [`set`].
pub(crate) fn experiment() -> Experiment {
    Experiment {
        schema: SCHEMA.to_owned(),
        plan: plan(),
        environment: Environment {
            host: "reef".to_owned(),
            kernel: "Linux 6.18".to_owned(),
            cpu_model: "Pentium IV".to_owned(),
            cores: 2,
            cpu_accounting: "100 ticks/s".to_owned(),
            memory_bytes: 24 << 30,
            memory_available_bytes: 20 << 30,
            file_systems: [("flock".to_owned(), "tmpfs".to_owned())].into(),
            jostle: "0.1.0".to_owned(),
            libc: "glibc 2.36".to_owned(),
            ..Environment::default()
        },
        calibration: Calibration {
            clock: "rdtscp".to_owned(),
            stamp_ns: 19.0,
            clock_uncertainty_ns: Some(40.5),
            own_cost: [
                ("flock".to_owned(), cost(508.0, 132.0)),
                ("sysv".to_owned(), cost(495.0, 132.2)),
            ]
            .into(),
            ..Calibration::default()
        },
        target_facts: Default::default(),
        started_at: "2026-11-21T00:00:00Z".to_owned(),
    }
}

/// The plan of [`set`], as the engine resolves it.
pub(crate) fn plan() -> Plan {
    Plan {
        targets: vec!["flock".to_owned(), "sysv".to_owned()],
        workers: Some(List(vec![10, 1000])),
        hold: Some(Busy::Sleep(Nanos::from_millis(1))),
        idle: Some(Busy::Sleep(Nanos::from_micros(10))),
        duration: Some(Nanos::from_millis(5000)),
        runs: Some(6),
        budget: Some(Nanos::from_millis(50_000)),
        carrier: Some(Carrier::Processes),
        place: Some(Place::None),
        measure: Some(Measure::Full),
        keys: Some(List(vec![1])),
        shared: Some(0.0),
        range: Some(Range::Same),
        try_only: Some(false),
        open_each: Some(false),
        slots: Some(16_384),
        timer_slack: Some(Nanos(1)),
        seed: Some(42),
        ..Plan::of(Workload::Contend)
    }
}

/// The cost of a target by itself, and that of full measuring.
pub(crate) fn cost(pair_ns: f64, added_ns: f64) -> OwnCost {
    OwnCost {
        pair_ns,
        pair_fastest_ns: None,
        full_ns: pair_ns + added_ns,
        no_stamps_ns: pair_ns + 20.0,
        no_witness_ns: pair_ns + 100.0,
        added_ns,
        added_range_ns: [added_ns - 9.0, added_ns + 14.5],
        stamp_every: 1,
    }
}

/// A run of 5 s in which the workers got these counts, at about this rate and
/// CPU time per lock.
pub(crate) fn point(target: &str, run: u32, rate_per_s: f64, cpu_us: f64, counts: &[u64]) -> Run {
    let mut point = Run {
        window: Window {
            window_s: 5.0,
            warmup_s: 0.5,
            ramp_s: 0.01,
            drain_s: 0.002,
            start_spread_ns: 120_000,
        },
        ceiling_per_s: Some(1000.0),
        cpu: Cpu {
            context_switches: Some(9_450),
            cpu_split: Some("sampled".to_owned()),
            cpu_us_per_operation: Some(cpu_us),
            ..Cpu::default()
        },
        times: Times {
            hold_ns: Some(distribution(1_001_000)),
            handoff_ns: Some(distribution(5_000)),
            release_ns: Some(distribution(700)),
            ..Times::default()
        },
        blocked_share: Some(0.99),
        stamp_every: Some(1),
        series: vec![Slice::default(); 10],
        histograms: [("hold_ns".to_owned(), Buckets(vec![(999_424, 4_000)]))].into(),
        ..run_of(target, Workload::Contend, At::default(), run, 5.0)
    };
    share_out(&mut point, counts);
    // Runs differ by a few thousandths, as real ones do.
    point.throughput_per_s = rate_per_s * (1.0 + 0.002 * f64::from(run % 5));
    point.of_ideal = Some(point.throughput_per_s / 1000.0);
    point
}

/// Gives each worker its count, and the point the figures that follow.
pub(crate) fn share_out(run: &mut Run, counts: &[u64]) {
    let operations: u64 = counts.iter().sum();
    let wait_ns = if counts.contains(&0) {
        4_987_000_000
    } else {
        1_070_000 * counts.len() as u64
    };
    run.at = At {
        workers: Some(counts.len() as u64),
        ..At::default()
    };
    run.operations = operations;
    run.per_worker = jostle_stats::fairness::per_worker(counts).map(|mut shares| {
        shares.longest_wait_ns = Some(wait_ns);
        shares.longest_wait_worker = Some(0);
        shares
    });
    run.workers = Some(Workers {
        operations: counts.to_vec(),
        longest_wait_us: vec![wait_ns.div_ceil(1000); counts.len()],
        ..Workers::default()
    });
    run.acquire_ns = Some(waits(wait_ns));
    run.stamped = Some(operations);
    run.exclusion = Some(Exclusion {
        checked: operations,
        inner_interval_ns: Some(1_001_000),
        ..Exclusion::default()
    });
    let cpu_s = run.cpu.cpu_us_per_operation.unwrap_or(0.0) * operations as f64 / 1e6;
    run.cpu.cpu_s = Some(cpu_s);
    run.cpu.cpu_user_s = Some(cpu_s * 0.25);
    run.cpu.cpu_system_s = Some(cpu_s * 0.75);
    run.around.machine = machine(cpu_s);
}

/// In which nothing but the workers and the tool ran.
fn machine(cpu_s: f64) -> Machine {
    Machine {
        ticks: 1000,
        busy_ticks: 16 + (100.0 * cpu_s) as u64,
        softirq_ticks: 5,
        ticks_per_s: 100,
        cores: 2,
        harness_cpu_s: 0.1,
        throttled_periods: Some(0),
        halts: Some(0),
        ..Machine::default()
    }
}

fn distribution(p50: u64) -> Distribution {
    Distribution {
        count: 4000,
        min: p50 / 2,
        max: p50 * 3,
        mean: p50 as f64 * 1.01,
        percentiles: [("p50".to_owned(), p50), ("p99".to_owned(), p50 * 2)].into(),
        ..Distribution::default()
    }
}

fn waits(longest_ns: u64) -> Waits {
    Waits {
        granted: Distribution {
            max: longest_ns,
            ..distribution(longest_ns / 4)
        },
        censored: 9,
        kaplan_meier: [("p50".to_owned(), longest_ns / 4)].into(),
        at_least: [("p99".to_owned(), longest_ns / 2)].into(),
    }
}

/// As a queue shares out `mean` turns each, within one.
pub(crate) fn queue(workers: u64, mean: u64) -> Vec<u64> {
    (0..workers).map(|worker| mean + worker % 2).collect()
}

/// 1000 workers of which 100 got nothing and the others 1 to 13 turns.
pub(crate) fn starving() -> Vec<u64> {
    (0..1000u64)
        .map(|worker| match worker % 10 {
            0 => 0,
            1 => 13,
            n => 1 + n % 5,
        })
        .collect()
}

/// `call 'ls /tmp' -n 100:1000 --runs 6`, beside it `true`.
pub(crate) fn calls() -> ResultSet {
    let mut points = Vec::new();
    for run in 1..=6 {
        for (operations, us) in [(100, 500.0), (1_000, 480.0)] {
            points.push(called(run, operations, us + f64::from(run)));
        }
    }
    let plan = Plan {
        targets: vec!["exec:ls /tmp".to_owned()],
        workers: Some(List(vec![1])),
        operations: Some(List(vec![100, 1_000])),
        runs: Some(6),
        budget: Some(Nanos::from_millis(50_000)),
        carrier: Some(Carrier::Processes),
        place: Some(Place::None),
        measure: Some(Measure::Full),
        call_timeout: Some(Nanos::from_millis(10_000)),
        null: Some("exec:true".to_owned()),
        ..Plan::of(Workload::Stream)
    };
    of_plan(plan, points)
}

fn called(run: u32, operations: u64, us: f64) -> Run {
    let of = |us: f64| around(operations, us * 1_000.0, [0.9, 1.1, 1.5]);
    let n = operations as f64;
    let at = At {
        workers: Some(1),
        operations: Some(operations),
        ..At::default()
    };
    Run {
        window: Window {
            window_s: us * n / 1e6,
            ramp_s: 0.001,
            drain_s: 0.002,
            ..Window::default()
        },
        operations,
        throughput_per_s: 1e6 / us,
        cpu: Cpu {
            cpu_s: Some(30.0 * n / 1e6),
            cpu_user_s: Some(10.0 * n / 1e6),
            cpu_system_s: Some(20.0 * n / 1e6),
            children_user_s: Some(150.0 * n / 1e6),
            children_system_s: Some(250.0 * n / 1e6),
            cpu_us_per_operation: Some(430.0),
            ..Cpu::default()
        },
        times: Times {
            service_ns: Some(of(us)),
            ..Times::default()
        },
        phases: [("spawn", 0.4), ("run", 0.59), ("reap", 0.01)]
            .map(|(phase, share)| Phase {
                phase: phase.to_owned(),
                span: of(us * share),
            })
            .into(),
        codes: [("0".to_owned(), operations)].into(),
        null: Some(Null {
            target: "exec:true".to_owned(),
            service_ns: of(300.0),
            cpu_us_per_operation: 250.0,
        }),
        ..run_of("exec:ls /tmp", Workload::Stream, at, run, 0.0)
    }
}

/// `spread lockd --generators 3:6:18`: three generators at their limit, six that do
/// more, and eighteen beside which the server is the limit.
pub(crate) fn spread() -> ResultSet {
    let mut points = Vec::new();
    for run in 1..=6 {
        for (generators, rate, busy_share, effective) in [
            (3, 8_487.0, 0.97, 60.0),
            (6, 13_485.0, 0.62, 89.9),
            (18, 13_641.0, 0.31, 89.8),
        ] {
            points.push(spread_over(generators, run, rate, busy_share, effective));
        }
    }
    let plan = Plan {
        targets: vec!["lockd".to_owned()],
        in_flight: Some(90),
        generators: Some(List(vec![3, 6, 18])),
        duration: Some(Nanos::from_millis(1_000)),
        warmup: Some(Nanos::from_millis(500)),
        runs: Some(6),
        budget: Some(Nanos::from_millis(50_000)),
        place: Some(Place::Cpus(vec![0])),
        over: Some(vec![Nanos::from_millis(20)]),
        ..Plan::of(Workload::Spread)
    };
    of_plan(plan, points)
}

fn spread_over(generators: u64, run: u32, rate: f64, busy_share: f64, effective: f64) -> Run {
    let rate = rate * (1.0 + 0.001 * f64::from(run));
    let count = rate as u64;
    let of = |ms: f64| Distribution {
        over: [("20ms".to_owned(), 0.0123)].into(),
        ..around(count, ms * 1e6, [0.5, 1.5, 3.0])
    };
    let response = of(effective / rate * 1e3);
    // One burst, in the fourth tenth.
    let tenth = |nth: u32| Slice {
        operations: count / 10,
        mean_wait_ns: Some(response.mean * if nth == 3 { 2.5 } else { 1.0 }),
        ..Slice::default()
    };
    let at = At {
        generators: Some(generators),
        ..At::default()
    };
    let load = ThreadLoad {
        busy_share,
        runqueue_share: 0.1,
        process: None,
    };
    Run {
        window: Window {
            window_s: 1.0,
            warmup_s: 0.5,
            ..Window::default()
        },
        operations: count,
        throughput_per_s: rate,
        cpu: Cpu {
            cpu_s: Some(0.3),
            cpu_us_per_operation: Some(21.0),
            ..Cpu::default()
        },
        placement: "cpus:0".to_owned(),
        times: Times {
            service_ns: Some(response.clone()),
            ..Times::default()
        },
        phases: ["acquire", "release"]
            .map(|phase| Phase {
                phase: phase.to_owned(),
                span: of(effective / rate * 500.0),
            })
            .into(),
        series: (0..10).map(tenth).collect(),
        thread_loads: vec![load; generators as usize],
        spread: Some(Box::new(Spread {
            in_flight: 90,
            effective,
            at_server: Some(effective * (1.0 - busy_share)),
            response_ns: Some(Waits {
                kaplan_meier: response.percentiles.clone(),
                granted: response,
                censored: 90,
                ..Waits::default()
            }),
            disjoint: Some(true),
            budgets: "by placement: generators on CPU 0, the server on CPU 1".to_owned(),
            by_address: false,
            ..Spread::default()
        })),
        server: Some(Server {
            counted: Some(2 * count),
            difference: Some(0),
            cpu_s: Some(0.9),
            cpu_us_per_operation: Some(60.0),
            ..Server::default()
        }),
        ..run_of("lockd", Workload::Spread, at, run, 1.0)
    }
}
