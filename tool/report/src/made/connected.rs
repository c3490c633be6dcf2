//! Results of `connect`.

use super::{Times, around, of_plan, run_of};
use crate::ResultSet;
use jostle_model::connect::{Accept, Close, Connections, NextLimit, Stopped};
use jostle_model::plan::{Place, Workload};
use jostle_model::record::{At, Cpu, Run, Server};
use jostle_model::{List, Nanos, Plan, Remedy};

/// `connect tcp --open 1k:14k:15k --sources 1:16 --runs 6`: the even ports are
/// used up between the last two.
pub(crate) fn connections() -> ResultSet {
    let mut points = Vec::new();
    for run in 1..=6 {
        for (sources, open, from, us, parities) in [
            (1, 1_000, 0, 8.1, [1_000, 0]),
            (1, 14_000, 1_000, 9.2, [13_000, 0]),
            (1, 15_000, 14_000, 548.0, [116, 884]),
            (16, 1_000, 0, 8.0, [1_000, 0]),
            (16, 14_000, 1_000, 8.2, [13_000, 0]),
            (16, 15_000, 14_000, 8.2, [1_000, 0]),
        ] {
            points.push(connected(run, [sources, open, from], us, parities));
        }
    }
    let plan = Plan {
        targets: vec!["tcp".to_owned()],
        open: Some(List(vec![1_000, 14_000, 15_000])),
        sources: Some(List(vec![1, 16])),
        listeners: Some(List(vec![0])),
        ports: Some(1),
        accept: Some(Accept::Shared),
        acceptors: Some(1),
        close: Some(Close::Fin),
        runs: Some(6),
        budget: Some(Nanos::from_millis(50_000)),
        place: Some(Place::Cross),
        ..Plan::of(Workload::Connect)
    };
    of_plan(plan, points)
}

/// The sweep with one source address and a range that ends in between.
pub(crate) fn exhausted() -> ResultSet {
    let mut set = connections();
    set.experiment.plan.sources = Some(List(vec![1]));
    set.runs.retain(|point| point.at.sources == Some(1));
    for run in set.runs.iter_mut().filter(|p| p.at.open == Some(15_000)) {
        if let Some(connections) = &mut run.connections {
            connections.stopped = Some(Stopped {
                call: "connect".to_owned(),
                error: "EADDRNOTAVAIL".to_owned(),
                text: "EADDRNOTAVAIL after 14,500 connections: no port is left; --sources 2"
                    .to_owned(),
                remedy: Some(Remedy::with("--sources", 2)),
            });
        }
    }
    set
}

fn connected(run: u32, [sources, open, from]: [u64; 3], us: f64, parities: [u64; 2]) -> Run {
    let of = |us: f64| around(open - from, us * 1_000.0, [0.9, 1.1, 1.5]);
    let us = us * (1.0 + 0.001 * f64::from(run));
    let at = At {
        open: Some(open),
        listeners: Some(0),
        sources: Some(sources),
        ..At::default()
    };
    let window_s = us * (open - from) as f64 / 1e6;
    Run {
        operations: open - from,
        throughput_per_s: 1e6 / us,
        cpu: Cpu {
            cpu_s: Some(window_s),
            cpu_us_per_operation: Some(us),
            ..Cpu::default()
        },
        times: Times {
            connect_ns: Some(of(us)),
            accept_ns: Some(of(1.0)),
            close_ns: Some(of(4.0)),
            ..Times::default()
        },
        server: Some(Server {
            counted: Some(open),
            difference: Some(0),
            cpu_s: Some(0.01),
            cpu_us_per_operation: Some(3.1),
            ..Server::default()
        }),
        connections: Some(Box::new(Connections {
            from,
            opened: open,
            parities: Some(parities),
            port_range: "32768-60999".parse().ok(),
            pairs: sources,
            slab_bytes_each: Some(7_900.0),
            time_wait_left: (open == 15_000).then_some(15_000),
            next_limits: vec![NextLimit {
                name: "ephemeral ports".to_owned(),
                at: 28_232 * sources,
                remedy: "--sources 2".to_owned(),
            }],
            ..Connections::default()
        })),
        ..run_of("tcp", Workload::Connect, at, run, window_s)
    }
}
