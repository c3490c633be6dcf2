//! The lines before the points.

use super::map;
use jostle_model::hosts::{HostCeiling, HostHere};
use jostle_model::options::OPTIONS;
use jostle_model::plan::{Plan, Workload};
use jostle_model::record::*;

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

pub(super) fn environment() -> Environment {
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
        programs: map("lib:x.so", "0123456789abcdef-9".to_owned()),
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
        pair_fastest_ns: Some(1.0),
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

pub(super) fn experiment() -> Experiment {
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

pub(super) fn scheduled() -> Scheduled {
    let times = RunTimes {
        window_ns: 1,
        warmup_ns: 1,
        overhead_ns: 1,
    };
    Scheduled {
        boot: "boot".to_owned(),
        program: "1-1".to_owned(),
        blocks: 6,
        times: vec![times],
        then: vec![plan()],
    }
}
