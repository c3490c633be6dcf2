//! docs/results.md and its parts name every field that a result file can have.
//!
//! The records here are complete: every option is set and nothing is taken from
//! a default, so that a new field does not compile until it stands here, and
//! does not pass until it stands there.

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]

use jostle_model::Remedy;
use jostle_model::connect::*;
use jostle_model::hosts::{HostCeiling, HostHere, HostPart};
use jostle_model::judged::{self, Doubled, Finding, Limit, Thread, Traffic, Turn, Watched};
use jostle_model::open_loop::OpenLoop;
use jostle_model::options::OPTIONS;
use jostle_model::plan::{Fault, Plan, Workload};
use jostle_model::record::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Their keys are data (targets, times, limits, errors), not names of fields.
const KEYED_BY_DATA: [&str; 15] = [
    "codes",
    "decades",
    "errors",
    "file_systems",
    "hash_sizes",
    "histograms",
    "limits",
    "settings",
    "over",
    "own_cost",
    "setup",
    "slab_caches",
    "sockstat",
    "target_facts",
    "truth",
];

fn map<V>(key: &str, value: V) -> BTreeMap<String, V> {
    BTreeMap::from([(key.to_owned(), value)])
}

/// Every option set: each has an example.
fn plan() -> Plan {
    let mut plan = Plan {
        workload: Workload::Contend,
        targets: vec!["flock".to_owned()],
        optional: vec!["redis".to_owned()],
        ..Plan::of(Workload::Contend)
    };
    for option in OPTIONS {
        option.set(&mut plan, option.example).unwrap();
    }
    plan
}

fn environment() -> Environment {
    Environment {
        host: "host".to_owned(),
        kernel: "Linux".to_owned(),
        cpu_model: "model".to_owned(),
        cores: 2,
        governor: Some("performance".to_owned()),
        kernel_clock_source: Some("tsc".to_owned()),
        cpu_accounting: "exact".to_owned(),
        memory_bytes: 1,
        memory_available_bytes: 1,
        steal_share_since_boot: Some(0.0),
        limits: map("pids.max", "500".to_owned()),
        settings: map("preemption", "full".to_owned()),
        cgroup: Some("v2 /".to_owned()),
        file_systems: map("flock", "tmpfs".to_owned()),
        hash_sizes: map("TCP bind", 65_536),
        hosts: vec![HostHere {
            host: "host".to_owned(),
            cpus: 2,
            machine: 0,
            jostle: "0.1.0".to_owned(),
        }],
        jostle: "0.1.0".to_owned(),
        libc: "glibc".to_owned(),
    }
}

fn calibration() -> Calibration {
    let cost = OwnCost {
        pair_ns: 1.0,
        full_ns: 1.0,
        no_stamps_ns: 1.0,
        no_witness_ns: 1.0,
        added_ns: 1.0,
        added_range_ns: [1.0, 1.0],
        stamp_every: 1,
    };
    Calibration {
        clock: "rdtscp".to_owned(),
        stamp_ns: 1.0,
        clock_uncertainty_ns: Some(1.0),
        latencies: Some(Latencies {
            sleep_late_p50_ns: 1.0,
            sleep_late_p90_ns: 1.0,
            wake_same_cpu_ns: 1.0,
            wake_other_cpu_ns: Some(1.0),
            clock_step_ns: 1.0,
        }),
        own_cost: map("flock", cost),
        specimens: None,
        host_ceilings: vec![HostCeiling {
            target: "lockd".to_owned(),
            rank: 0,
            host: "host".to_owned(),
            workers: 1,
            throughput_per_s: 1.0,
            of_median: 1.0,
            busy_share: Some(1.0),
        }],
    }
}

fn experiment() -> Experiment {
    Experiment {
        schema: SCHEMA.to_owned(),
        plan: plan(),
        environment: environment(),
        calibration: calibration(),
        target_facts: map(
            "pipe:lock",
            TargetFacts {
                answering: Some("echo+pipe".to_owned()),
                path_alone: true,
                descriptor_each: true,
            },
        ),
        started_at: "2026-01-01T00:00:00Z".to_owned(),
    }
}

fn open_loop() -> OpenLoop {
    OpenLoop {
        planned: 10,
        done: 7,
        failed: 1,
        dropped: 1,
        in_flight: 1,
        dropped_with_slot: 0,
        dropped_at_end: 1,
        generator_lag_ns: Some(distribution()),
        target_lag_ns: Some(distribution()),
        canary_lag_ns: Some(distribution()),
        response_kaplan_meier: map("p50", 1),
        response_at_least: map("p99", 1),
    }
}

fn distribution() -> Distribution {
    let percentiles = ["p50", "p90", "p99", "p999"].map(|name| (name.to_owned(), 1));
    Distribution {
        count: 1,
        min: 1,
        max: 1,
        mean: 1.0,
        percentiles: percentiles.into(),
        over: map("1s", 0.0),
    }
}

fn waits() -> Waits {
    Waits {
        granted: distribution(),
        censored: 1,
        kaplan_meier: map("p50", 1),
        at_least: map("p99", 1),
    }
}

fn accounts() -> Accounts {
    Accounts {
        between_s: 1.0,
        cpus: 2,
        workers_s: 0.1,
        requests_s: Some(0.1),
        server_s: Some(0.1),
        tool_s: 0.1,
        others_s: Some(0.1),
        others: vec![Neighbour {
            name: "cargo".to_owned(),
            pid: 812,
            cpu_s: 0.1,
        }],
        machine_s: 0.1,
        whole_s: Some(0.6),
        unexplained_s: Some(0.1),
        waited_s: Some(0.1),
        waited_coverage: Some(1.0),
        stolen_s: Some(0.1),
    }
}

fn machine() -> Machine {
    Machine {
        ticks: 1,
        busy_ticks: 1,
        stolen_ticks: 1,
        softirq_ticks: 1,
        ticks_per_s: 100,
        cores: 2,
        harness_cpu_s: 0.1,
        between_s: Some(0.1),
        steal_share: Some(0.1),
        throttled_periods: Some(1),
        halts: Some(1),
    }
}

fn per_worker() -> PerWorker {
    PerWorker {
        min: 1,
        max: 1,
        mean: 1.0,
        stddev: 0.0,
        jain: 1.0,
        dispersion: 0.0,
        top_half_share: 0.5,
        none: 0,
        rotations: 1.0,
        longest_wait_ns: Some(1),
        longest_wait_worker: Some(1),
        pending: Some(1),
        longest_streak: Some(1),
        longest_streak_while_waited: Some(1),
    }
}

fn exclusion() -> Exclusion {
    Exclusion {
        checked: 1,
        violations: 1,
        holder_died: 1,
        tokens_checked: Some(90),
        tokens_out_of_order: Some(1),
        lost_updates: 1,
        reader_coverage: Some(1.0),
        inner_interval_ns: Some(1),
        examples: vec!["worker 1 met worker 2".to_owned()],
        across: Some(Box::new(Across {
            hosts: 2,
            checked: 1,
            coverage: 1.0,
            violations: 1,
            tokens_repeated: 1,
            tokens_out_of_order: 1,
            lapsed_overlap: 1,
            undecided: 1,
            ordered_by_token: 1,
            within_ns: 1,
            examples: vec!["worker 1 of one met worker 2 of the other".to_owned()],
        })),
    }
}

fn verdict() -> Verdict {
    let reason = Reason {
        check: "neighbours".to_owned(),
        is: Is::Invalid,
        claims: vec![Claim::Absolute],
        measured: Some(0.3),
        limit: Some(0.25),
        unit: "share".to_owned(),
        bound: Some(Bound {
            low: 0.9,
            high: Some(1.3),
        }),
        seen: Some("cc1 (812) 90 %".to_owned()),
        hosts: vec!["h2".to_owned()],
        remedy: Some(Remedy::with("--wait-quiet", "60s")),
        text: "one".to_owned(),
    };
    Verdict {
        is: Is::Invalid,
        reasons: vec![reason],
        limited_by: Some(LimitedBy::Target),
    }
}

fn point() -> Point {
    Point {
        target: "flock".to_owned(),
        workload: "contend".to_owned(),
        at: At {
            workers: Some(10),
            operations: Some(1000),
            keys: Some(1000),
            open: Some(1000),
            listeners: Some(1),
            sources: Some(1),
            rate: Some(1_000),
            generators: Some(3),
            fault: Some(Fault::Kill),
        },
        run: 1,
        block: 1,
        window_s: 1.0,
        warmup_s: 1.0,
        ramp_s: 1.0,
        drain_s: 1.0,
        start_spread_ns: 1,
        operations: 1,
        throughput_per_s: 1.0,
        ceiling_per_s: Some(1.0),
        idle_mean_ns: Some(1.0),
        of_ideal: Some(1.0),
        cpu_s: Some(1.0),
        cpu_user_s: Some(1.0),
        cpu_system_s: Some(1.0),
        cpu_split: Some("sampled".to_owned()),
        spun_s: Some(0.1),
        cpu_us_per_operation: Some(1.0),
        cpu_read_share: Some(0.1),
        context_switches: Some(1),
        runqueue_wait_s: Some(1.0),
        placement: "none".to_owned(),
        machine: machine(),
        accounts: Some(Box::new(accounts())),
        spoilt: true,
        per_worker: Some(per_worker()),
        workers: Some(Workers {
            operations: vec![1],
            longest_wait_us: vec![1],
            elapsed_ns: vec![1],
            throughput_per_s: vec![1.0],
        }),
        acquire_ns: Some(waits()),
        hold_ns: Some(distribution()),
        handoff_ns: Some(distribution()),
        handoff_same_cpu_ns: Some(distribution()),
        handoff_cross_cpu_ns: Some(distribution()),
        release_ns: Some(distribution()),
        batch_ns: Some(distribution()),
        release_batch_ns: Some(distribution()),
        names: Some("own".to_owned()),
        acquire_phase_s: Some(1.0),
        release_phase_s: Some(1.0),
        generators: vec![Generator {
            busy_share: 0.5,
            runqueue_share: 0.1,
            process: Some(GeneratorProcess {
                rank: Some(0),
                workers: 1,
                operations: 1,
                cpu_s: Some(1.0),
                throttled_share: Some(0.1),
                still_share: 0.1,
            }),
        }],
        failed_try_ns: Some(distribution()),
        timeouts: Some(1),
        blocked_share: Some(1.0),
        stamp_every: Some(1),
        stamped: Some(1),
        exclusion: Some(exclusion()),
        connect_ns: Some(distribution()),
        connect_even_ns: Some(distribution()),
        connect_odd_ns: Some(distribution()),
        response_ns: Some(distribution()),
        bind_ns: Some(distribution()),
        accept_ns: Some(distribution()),
        close_ns: Some(distribution()),
        server_close_ns: Some(distribution()),
        connections: Some(Box::new(connections())),
        during: Some("perf record -p 7".to_owned()),
        service_ns: Some(distribution()),
        phases: vec![Phase {
            phase: "spawn".to_owned(),
            span: distribution(),
        }],
        failed_ns: Some(distribution()),
        codes: map("0", 1),
        children_user_s: Some(0.1),
        children_system_s: Some(0.1),
        open_loop: Some(Box::new(open_loop())),
        null: Some(Null {
            target: "exec:true".to_owned(),
            service_ns: distribution(),
            cpu_us_per_operation: 1.0,
        }),
        recovery: Some(Box::new(recovery())),
        spread: Some(Box::new(Spread {
            in_flight: 90,
            effective: 89.0,
            at_server: Some(80.0),
            generator_cpu: Some(0.2),
            response_ns: Some(waits()),
            disjoint: Some(true),
            budgets: "by placement".to_owned(),
            by_address: true,
        })),
        traffic: Some(ServerTraffic {
            grants: 100,
            round_trips: 200,
            bytes: 6_400,
        }),
        server: Some(Server {
            counted: Some(1),
            difference: Some(1),
            cpu_s: Some(1.0),
            cpu_us_per_operation: Some(1.0),
            binds: Some(1),
            unbinds: Some(1),
            bytes_per_held_lock: Some(1.0),
        }),
        messages: vec!["flock: No locks available (os error 37)".into()],
        errors: map("ENOLCK", 1),
        deaths: vec!["worker 1".to_owned()],
        series: vec![Slice {
            operations: 1,
            mean_wait_ns: Some(1.0),
            mean_release_ns: Some(1.0),
        }],
        truth: map("planted", 1.0),
        setup: map("slots", 1.0),
        anchor: Some(anchor()),
        hosts: vec![host()],
        histograms: map("acquire_ns", Buckets(vec![(1, 1)])),
        verdict: verdict(),
    }
}

fn recovery() -> Recovery {
    let event = Event {
        at_ns: 1,
        process: Some(0),
        what: What::Granted,
        token: Some(1),
        said: Some("the lease was over".to_owned()),
    };
    Recovery {
        fault: Fault::Stop,
        waiters: 3,
        within_ns: 1,
        lease_ns: Some(1),
        lease_step_ns: Some(1),
        leased_at_ns: Some(1),
        struck_at_ns: 1,
        struck_by_ns: 1,
        returned_at_ns: Some(1),
        next_grant_ns: Some(1),
        after_release_ns: Some(1),
        after_lease_ns: Some(1),
        after_return_ns: Some(1),
        two_believed_ns: Some(1),
        two_ran_ns: Some(1),
        told: Some(true),
        write_refused: Some(true),
        in_order: Some(true),
        served: 1,
        history: vec![event],
    }
}

fn host() -> HostPart {
    HostPart {
        rank: 1,
        host: "host".to_owned(),
        clock_ahead_ns: -1,
        clock_within_ns: 1,
        late_ns: 1,
        workers: 1,
        operations: 1,
        throughput_per_s: 1.0,
        cpu_s: Some(1.0),
        cpu_us_per_operation: Some(1.0),
        busy_share: Some(0.1),
        runqueue_share: Some(0.1),
        generator_lag_ns_p99: Some(1),
        latency_of: Some("service_ns".to_owned()),
        latency_ns: Some(distribution()),
        beyond_p99: Some(1),
        errors: map("ENOLCK", 1),
        verdict: verdict(),
    }
}

fn anchor() -> Anchor {
    Anchor {
        step_ns: 1.0,
        call_ns: 1.0,
        wake_ns: 1.0,
        line_ns: Some(1.0),
    }
}

fn side() -> Side {
    Side {
        processes: 1,
        cpu_s: 1.0,
        cpu_user_s: Some(1.0),
        cpu_system_s: Some(1.0),
        own_bytes_each: Some(1.0),
    }
}

fn decade() -> Decade {
    Decade {
        connect_ns_p50: Some(1),
        accept_ns_p50: Some(1),
        close_ns_p50: Some(1),
    }
}

fn connections() -> Connections {
    Connections {
        from: 0,
        opened: 1,
        total_s: 1.0,
        to_previous: Some(1.0),
        client: side(),
        server: Some(side()),
        accepted: vec![1],
        parities: Some([1, 0]),
        port_range: "1-2".parse().ok(),
        pairs: 1,
        slab_bytes_each: Some(1.0),
        slab_caches: map("TCP", 1.0),
        memory_bytes_each: Some(1.0),
        sockstat: map("tw", 1),
        time_wait_left: Some(1),
        lag_ns: Some(1),
        next_limits: vec![NextLimit {
            name: "memory".to_owned(),
            at: 1,
            remedy: "free some".to_owned(),
        }],
        lost: Some(1),
        first_lost: Some(1),
        loss_seen_at: Some(1),
        stopped: Some(Stopped {
            call: "connect".to_owned(),
            error: "EADDRNOTAVAIL".to_owned(),
            text: "no port is left".to_owned(),
            remedy: Some(Remedy::without("--port-range")),
        }),
        decades: map("1..10", decade()),
    }
}

fn closing() -> Closing {
    Closing {
        target: "tcp".to_owned(),
        at: At::default(),
        run: 1,
        close_ns: Some(distribution()),
        server_close_ns: Some(distribution()),
        time_wait_left: Some(1),
        anchor: Some(anchor()),
        decades: map("1..10", decade()),
        histograms: map("close_ns", Buckets(vec![(1, 1)])),
    }
}

fn interval() -> Interval {
    Interval {
        estimate: 1.0,
        low: 0.9,
        high: 1.1,
    }
}

fn fit() -> Fit {
    let law = FitLaw {
        law: "N".to_owned(),
        a: 1.0,
        b: 1.0,
        p: 0.5,
    };
    Fit {
        target: "flock".to_owned(),
        figure: "time_per_operation_ns".to_owned(),
        over: "workers".to_owned(),
        at: At::default(),
        values: 7,
        runs: 6,
        from: 10,
        to: 1000,
        finding: "laws".to_owned(),
        ratio: Some(interval()),
        laws: vec![law.clone()],
        exponent: Some(interval()),
        bends: vec![FitBend {
            after: 10,
            before: 20,
        }],
        parts: vec![FitPart {
            from: 10,
            to: 1000,
            ratio: Some(interval()),
            laws: vec![law],
        }],
        usl: Some(Usl {
            rate_per_s: 1.0,
            contention: 0.1,
            coherence: 0.1,
            suspect: Some("superlinear".to_owned()),
        }),
        peak: Some(10),
        text: "it grows".to_owned(),
    }
}

fn judged() -> Judged {
    Judged {
        target: "flock".to_owned(),
        at: At::default(),
        figure: Some(Figure {
            of: "throughput_per_s".to_owned(),
            median: 2.0,
            low: 1.0,
            high: 3.0,
            runs: 6,
        }),
        verdict: verdict(),
    }
}

fn watched_side() -> judged::Side {
    judged::Side {
        processes: 1,
        threads: 1,
        cpu_s: vec![0.1],
        queued_s: Some(vec![0.0]),
        stopped_s: vec![0.0],
        throttled_s: Some(vec![0.0]),
        quota_cpus: Some(0.5),
        quota_group: Some("/g".to_owned()),
        allowed_cpus: Some(1),
        busiest: vec![Thread {
            name: "wrk".to_owned(),
            pid: 7,
            tid: 8,
            cpu_s: vec![0.1],
            queued_s: vec![0.0],
        }],
    }
}

fn traffic() -> Traffic {
    Traffic {
        port: 80,
        bytes: vec![1.0],
        segments: vec![1.0],
        retransmitted: vec![0.0],
        connections: vec![1.0],
        opened: vec![1.0],
        generator_unread_bytes: vec![0.0],
        server_unread_bytes: Some(vec![0.0]),
        backlog: Some(vec![0.0]),
        backlog_limit: Some(511),
        time_wait: vec![0.0],
        ports_left: vec![28_000.0],
        ports: 28_232,
    }
}

fn watched() -> Watched {
    Watched {
        schema: SCHEMA.to_owned(),
        command: vec!["wrk".to_owned()],
        server_at: Some(":80".to_owned()),
        environment: environment(),
        started_at: "2026-11-22T00:00:00Z".to_owned(),
        elapsed_s: 1.0,
        exit: Some(0),
        signal: Some("SIGKILL".to_owned()),
        interrupted: true,
        pair: Some(Turn {
            block: 1,
            load: 50,
            doubled: true,
        }),
        end_s: vec![0.1],
        span_s: vec![0.1],
        generator: watched_side(),
        seen_share: Some(1.0),
        server: Some(watched_side()),
        traffic: Some(traffic()),
        machine: judged::Machine {
            cpus: 2,
            stolen_s: vec![0.0],
            others_s: Some(vec![0.0]),
            tool_s: vec![0.0],
            neighbours: vec![Neighbour::default()],
        },
        finding: Finding {
            limit: Limit::Generator,
            since_s: Some(0.1),
            from_s: 0.1,
            to_s: 0.9,
            generator_busy_share: Some(0.95),
            server_busy_share: Some(0.5),
            reasons: vec!["busy".to_owned()],
            meaning: "at least".to_owned(),
            next: Some("jostle judge".to_owned()),
        },
    }
}

fn doubled() -> Doubled {
    Doubled {
        command: vec!["wrk".to_owned()],
        loads: [50, 100],
        measure: "bytes".to_owned(),
        rates_per_s: vec![[1.0, 2.0]],
        ratio: 2.0,
        low: 1.9,
        high: 2.1,
        limit: Limit::Generator,
        reason: "twice the work".to_owned(),
        meaning: "at least".to_owned(),
    }
}

fn records() -> [Value; 8] {
    let end = End {
        exit: 0,
        error: Some("interrupted".to_owned()),
        elapsed_s: 1.0,
    };
    [
        Record::Experiment(Box::new(experiment())),
        Record::Point(Box::new(point())),
        Record::Closing(Box::new(closing())),
        Record::Verdict(Box::new(judged())),
        Record::Fit(Box::new(fit())),
        Record::End(end),
        Record::Judged(Box::new(watched())),
        Record::Doubled(Box::new(doubled())),
    ]
    .map(|record| serde_json::to_value(record).unwrap())
}

fn names(value: &Value, are_fields: bool, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                if are_fields {
                    into.insert(key.clone());
                }
                names(value, !KEYED_BY_DATA.contains(&key.as_str()), into);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, true, into)),
        _ => {}
    }
}

/// docs/results.md and the pages of its parts, one after the other; the options of a plan
/// have a generated page.
const PAGES: [&str; 11] = [
    "results.md",
    "results-plan.md",
    "results-machine.md",
    "results-point.md",
    "results-recover.md",
    "results-hosts.md",
    "results-judge.md",
    "results-locks.md",
    "results-requests.md",
    "results-verdicts.md",
    "options.md",
];

fn page() -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    PAGES
        .iter()
        .map(|name| {
            let path = docs.join(name);
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        })
        .collect()
}

#[test]
fn every_field_is_described() {
    let page = page();
    let mut fields = BTreeSet::new();
    for record in records() {
        names(&record, true, &mut fields);
    }
    assert!(fields.len() > 100, "{}", fields.len());
    let missing: Vec<_> = fields
        .iter()
        .filter(|field| !page.contains(&format!("`{field}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/results*.md and docs/options.md do not describe these fields: {missing:?}"
    );
}

#[test]
fn the_page_is_of_this_version() {
    assert!(page().contains(&format!("`schema` is `{SCHEMA}`")));
}

#[test]
fn the_example_shows_no_field_that_a_point_does_not_have() {
    let page = page();
    let (_, example) = page.split_once("```json\n").unwrap();
    let example: Value = serde_json::from_str(example.lines().next().unwrap()).unwrap();
    let [_, point, ..] = records();
    let (mut shown, mut known) = (BTreeSet::new(), BTreeSet::new());
    names(&example, true, &mut shown);
    names(&point, true, &mut known);
    assert!(shown.is_subset(&known), "{:?}", &shown - &known);
}
