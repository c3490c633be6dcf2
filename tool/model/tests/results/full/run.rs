//! A point with the figures of every workload, and what stands behind the points.

use jostle_model::record::{Circumstances, Cpu, Times, Window};

use super::map;
use jostle_model::Remedy;
use jostle_model::connect::*;
use jostle_model::hosts::HostPart;
use jostle_model::open_loop::OpenLoop;
use jostle_model::plan::Fault;
use jostle_model::record::*;

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
        response_kaplan_meier: [("p50", 1)].into(),
        response_at_least: [("p99", 1)].into(),
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
        kaplan_meier: [("p50", 1)].into(),
        at_least: [("p99", 1)].into(),
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
        kernel_threads: vec![Neighbour::default()],
        whole_s: Some(0.6),
        unexplained_s: Some(0.1),
        foreign_s: Some(0.1),
        softirq_ticks: Some(1),
        packets: Some(1),
        own_packets: Some(1),
        readings: Some(Readings {
            length_us: vec![20_000],
            operations: vec![1],
            foreign_us: vec![0],
            idle_us: vec![0],
            stolen_ticks: vec![0],
            packets: vec![0],
        }),
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
        interrupts: Some(1),
        ticks_per_s: 100,
        cores: 2,
        harness_cpu_s: 0.1,
        between_s: Some(0.1),
        steal_share: Some(0.1),
        throttled_periods: Some(1),
        repinned: Some(2),
        halts: Some(1),
        tcp: Some(TcpCounts {
            overflows: 1,
            syn_again: 1,
            delayed_acks: 1,
        }),
        tcp_queues: Some(TcpQueues {
            looks: 1,
            connections: 1,
            unread: 1,
            looks_unread: 1,
            unsent: 1,
        }),
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
        owner_changes: Some(1),
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

fn causes() -> Causes {
    Causes {
        found: vec!["sleep (812) holds it".to_owned()],
        possible: vec!["the server may have been started anew".to_owned()],
        looked_at: vec!["who else holds it".to_owned()],
        unseen: vec!["what the server says about itself".to_owned()],
    }
}

fn looks() -> Vec<Look> {
    let signs = [
        (sign::MARKER, Sign::Flag(true)),
        (sign::EVICTED, Sign::Number(12)),
        (sign::WALL_CLOCK_MS, Sign::Range([-7, 7])),
        (sign::LIFE, Sign::Text("a".to_owned())),
        (sign::CLIENTS, Sign::Texts(vec!["127.0.0.1:1".to_owned()])),
        (
            sign::OWNERS,
            Sign::Processes(vec![Process {
                pid: 812,
                name: "sleep".to_owned(),
                state: Some("stopped".to_owned()),
                shared: Some(true),
                bytes: Some([0, 9]),
            }]),
        ),
    ];
    vec![Look {
        at: LookedAt::Server,
        when: When::After,
        asked_ns: 1,
        answered_ns: Some(2),
        came: Came::Answered,
        words: Some("NOPERM".to_owned()),
        signs: signs.map(|(name, sign)| (name.to_owned(), sign)).into(),
        host: Some("h2".to_owned()),
    }]
}

pub(super) fn verdict() -> Verdict {
    let reason = Reason {
        check: "neighbours".to_owned(),
        is: Status::Invalid,
        claims: vec![Claim::Absolute],
        measured: Some(0.3),
        limit: Some(0.25),
        unit: "share".to_owned(),
        bound: Some(Bound {
            low: 0.9,
            high: Some(1.3),
        }),
        seen: Some("cc1 (812) 90 %".to_owned()),
        causes: Some(Box::new(causes())),
        hosts: vec!["h2".to_owned()],
        remedy: Some(Remedy::with("--wait-quiet", "60s")),
        text: "one".to_owned(),
    };
    Verdict {
        is: Status::Invalid,
        reasons: vec![reason],
        limited_by: Some(LimitedBy::Target),
    }
}

pub(super) fn run() -> Run {
    Run {
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
        window: Window {
            window_s: 1.0,
            warmup_s: 1.0,
            ramp_s: 1.0,
            drain_s: 1.0,
            start_spread_ns: 1,
        },
        operations: 1,
        throughput_per_s: 1.0,
        ceiling_per_s: Some(1.0),
        idle_mean_ns: Some(1.0),
        of_ideal: Some(1.0),
        cpu: Cpu {
            cpu_s: Some(1.0),
            cpu_user_s: Some(1.0),
            cpu_system_s: Some(1.0),
            cpu_split: Some("sampled".to_owned()),
            spun_s: Some(0.1),
            cpu_us_per_operation: Some(1.0),
            cpu_read_share: Some(0.1),
            context_switches: Some(1),
            runqueue_wait_s: Some(1.0),
            children_user_s: Some(0.1),
            children_system_s: Some(0.1),
        },
        around: Circumstances {
            counts: Count::ALL
                .iter()
                .map(|count| (count.name().to_owned(), 1))
                .collect(),
            machine: machine(),
            server_stood: Some(Stood {
                looks: 1,
                still: 1,
                traced: 1,
                throttled_s: Some(0.1),
            }),
            accounts: Some(Box::new(accounts())),
            during: Some("perf record -p 7".to_owned()),
            messages: vec!["flock: No locks available (os error 37)".into()],
            looks: looks(),
            causes: Some(Box::new(causes())),
            errors: map("ENOLCK", 1),
            deaths: vec!["worker 1".to_owned()],
            truth: map("planted", 1.0),
            setup: map("slots", 1.0),
            anchor: Some(anchor()),
            interference: Some(Box::new(interference())),
        },
        placement: "none".to_owned(),
        spoilt: true,
        per_worker: Some(per_worker()),
        workers: Some(Workers {
            operations: vec![1],
            longest_wait_us: vec![1],
            elapsed_ns: vec![1],
            throughput_per_s: vec![1.0],
        }),
        acquire_ns: Some(waits()),
        reader_wait_ns: Some(Box::new(waits())),
        writer_wait_ns: Some(Box::new(waits())),
        times: Times {
            hold_ns: Some(distribution()),
            handoff_ns: Some(distribution()),
            handoff_same_cpu_ns: Some(distribution()),
            handoff_cross_cpu_ns: Some(distribution()),
            release_ns: Some(distribution()),
            batch_ns: Some(distribution()),
            release_batch_ns: Some(distribution()),
            failed_try_ns: Some(distribution()),
            connect_ns: Some(distribution()),
            connect_last_ns: Some(distribution()),
            connect_even_ns: Some(distribution()),
            connect_odd_ns: Some(distribution()),
            response_ns: Some(distribution()),
            bind_ns: Some(distribution()),
            accept_ns: Some(distribution()),
            close_ns: Some(distribution()),
            server_close_ns: Some(distribution()),
            service_ns: Some(distribution()),
            failed_ns: Some(distribution()),
        },
        names: Some("own".to_owned()),
        acquire_phase_s: Some(1.0),
        release_phase_s: Some(1.0),
        thread_loads: vec![ThreadLoad {
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
        timeouts: Some(1),
        blocked_share: Some(1.0),
        blocked_time_share: Some(1.0),
        stamp_every: Some(1),
        stamped: Some(1),
        exclusion: Some(exclusion()),
        connections: Some(Box::new(connections())),
        phases: vec![Phase {
            phase: "spawn".to_owned(),
            span: distribution(),
        }],
        codes: map("0", 1),
        open_loop: Some(Box::new(open_loop())),
        null: Some(Null {
            target: "exec:true".to_owned(),
            service_ns: distribution(),
            cpu_us_per_operation: 1.0,
        }),
        kept: Some(Box::new(kept())),
        recovery: Some(Box::new(recovery())),
        verified: Some(Box::new(verified())),
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
            failovers: Some(2),
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
        series: vec![Slice {
            operations: 1,
            mean_wait_ns: Some(1.0),
            mean_release_ns: Some(1.0),
        }],
        hosts: vec![host()],
        histograms: map("acquire_ns", Buckets(vec![(1, 1)])),
        verdict: verdict(),
    }
}

fn kept() -> Kept {
    Kept {
        kept_s: 180.0,
        locks: 100,
        lease_s: Some(60.0),
        renewed_every_s: Some(20.0),
        one_session: Some(true),
        renewals: 9,
        late: 1,
        lapsed: 1,
        renewal_late_ns: Some(distribution()),
        round_trips: Some(9),
        bytes: Some(900),
        connections: Some(1),
        cpu_s: Some(0.1),
        server_cpu_s: Some(0.1),
        server_idle_cpu_us_per_s: Some(1.0),
        server_memory_before_bytes: Some(1),
        server_memory_bytes: Some(2),
    }
}

fn verified() -> Verified {
    let seen = FaultSeen {
        struck: 3,
        struck_owners: 2,
        next_grant_p50_ns: Some(1),
        next_grant_max_ns: Some(2),
    };
    Verified {
        promise: Promise {
            belongs: Belongs::Lease,
            lease_ns: Some(1),
            lease_step_ns: Some(1),
            lease_lag_ns: Some(1),
            restart: true,
            failover: true,
            tokens: true,
            order: true,
        },
        ran_ns: 1,
        keys: 3,
        clients: 6,
        calls: 9,
        grants: 4,
        refused: 1,
        errors: 1,
        unknown: 1,
        renewals: 1,
        dropped: 1,
        faults: [(Fault::CutTo, seen)].into(),
        without: [(Fault::Clock, "no compiler".to_owned())].into(),
        overlaps: 1,
        foreign_releases: 1,
        tokens_fell: 1,
        late_grants: 1,
        outside: 1,
        undecided: 1,
        to_the_departed: 1,
        longest_free_ns: 1,
        free_bound_ns: Some(1),
        excerpt: Some(Excerpt {
            kind: Violation::ForeignRelease,
            key: 2,
            from_ns: 1,
            until_ns: 2,
            lines: vec![ExcerptLine {
                at_ns: 1,
                client: Some(1),
                what: "granted".to_owned(),
                token: Some(7),
            }],
        }),
        again: Some((2, 3)),
        said: [("PING: broken pipe".to_owned(), 2)].into(),
    }
}

fn recovery() -> Recovery {
    let event = Event {
        at_ns: 1,
        process: Some(0),
        what: What::Granted,
        token: Some(1),
        said: Some("the lease was over".to_owned()),
        times: Some(2),
    };
    Recovery {
        fault: Fault::Stop,
        waiters: 3,
        within_ns: 1,
        lease_ns: Some(1),
        lease_step_ns: Some(1),
        leased_at_ns: Some(1),
        struck: Some(Struck::Program),
        promised: Some(true),
        keepalive_s: Some(1),
        struck_at_ns: 1,
        struck_by_ns: 1,
        returned_at_ns: Some(1),
        next_grant_ns: Some(1),
        delays: Some(Delays {
            waited_for_cpu_ns: 1,
            stolen_ns: 1,
        }),
        after_release_ns: Some(1),
        after_lease_ns: Some(1),
        after_return_ns: Some(1),
        two_believed_ns: Some(1),
        two_ran_ns: Some(1),
        told: Some(true),
        told_by: Some(ToldBy::Client),
        told_after_ns: Some(1),
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

fn interference() -> Interference {
    let interrupts = Interrupts {
        between_s: 1.0,
        timer: vec![1],
        monitor: vec![1],
        call: vec![1],
    };
    Interference {
        window: Some(interrupts.clone()),
        anchor: Some(interrupts),
        tracers: Some(vec!["perf (7)".to_owned()]),
        traced: Some(vec!["sched:sched_switch".to_owned()]),
        captures: Some(vec!["tcpdump (8)".to_owned()]),
        clock_rate: Some(1.0),
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

pub(super) fn closing() -> Closing {
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

pub(super) fn fit() -> Fit {
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
