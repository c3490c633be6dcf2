//! The records that `judge` writes.

use super::experiment::environment;
use super::run::verdict;
use jostle_model::judged::{
    self, Doubled, Finding, Limit, Lookups, Network, Output, Peer, Printed, Process, ServerHost,
    Thread, Traffic, Turn, Watched,
};
use jostle_model::record::*;

pub(super) fn judged() -> Judged {
    Judged {
        target: "flock".to_owned(),
        at: At::default(),
        figure: Some(MainFigure {
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
        on_disk: Some(vec![1.0]),
        major_faults: Some(vec![1.0]),
        disk_bytes: Some(4_096),
        gone_s: Some(vec![0.0]),
        largest: Some(Process {
            name: "wrk".to_owned(),
            pid: 7,
            threads: 1,
            program: Some("python3.11".to_owned()),
            gomaxprocs: Some(1),
            cpu_s: vec![0.1],
        }),
        throttled_s: Some(vec![0.0]),
        quota_cpus: Some(0.5),
        quota_group: Some("/g".to_owned()),
        at_locks: Some(vec![1.0]),
        at_file_locks: Some(vec![1.0]),
        started_by: Some(judged::StartedBy::Judge),
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
        address: Some("198.18.1.1".to_owned()),
        server_address: Some("10.88.0.2:80".to_owned()),
        hops: vec![judged::Hop {
            name: "docker-proxy".to_owned(),
            pid: 812,
            cpu_s: 0.1,
        }],
        bytes: vec![1.0],
        segments: vec![1.0],
        retransmitted: vec![0.0],
        connections: vec![1.0],
        opened: vec![1.0],
        connecting: Some(vec![0.0]),
        generator_unread_bytes: vec![0.0],
        generator_unread: Some(vec![0.0]),
        server_unread_bytes: Some(vec![0.0]),
        server_unread: Some(vec![0.0]),
        unsent: Some(vec![0.0]),
        idle: Some(vec![0.0]),
        waiting: Some(vec![0.0]),
        in_turn: Some(vec![0.0]),
        backlog: Some(vec![0.0]),
        backlog_limit: Some(511),
        at_processes: vec![755, 245],
        time_wait: vec![0.0],
        ports_left: vec![28_000.0],
        ports: 28_232,
        others: vec![peer()],
        downstream: vec![peer()],
    }
}

fn peer() -> Peer {
    Peer {
        at: "127.0.0.1:81".to_owned(),
        connections: 1,
        bytes: 1,
        waiting_share: Some(1.0),
    }
}

fn network() -> Network {
    let each = || vec![0.0];
    Network {
        opened: each(),
        failed: each(),
        overflows: each(),
        dropped: each(),
        syn_again: each(),
        delayed_acks: each(),
        syn_again_after_s: vec![1.0],
    }
}

fn machine() -> judged::Machine {
    judged::Machine {
        cpus: 2,
        stolen_s: vec![0.0],
        others_s: Some(vec![0.0]),
        behind_s: Some(vec![0.0]),
        tool_s: vec![0.0],
        neighbours: vec![Neighbour::default()],
    }
}

pub(super) fn watched() -> Watched {
    Watched {
        schema: SCHEMA.to_owned(),
        command: vec!["wrk".to_owned()],
        server_at: Some(":80".to_owned()),
        start_server: Some(vec!["nginx".to_owned()]),
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
            copies: true,
        }),
        end_s: vec![0.1],
        span_s: vec![0.1],
        generator: watched_side(),
        seen_share: Some(1.0),
        server: Some(watched_side()),
        server_unseen: Some(judged::ServerUnseen::Owner),
        traffic: Some(traffic()),
        network: Some(network()),
        shared_network: Some(true),
        protocols: Some(vec!["UDP".to_owned()]),
        unix_sockets: true,
        machine: machine(),
        server_host: Some(ServerHost {
            host: "db1".to_owned(),
            machine: Some(machine()),
            seen: Some([0, 1]),
            ahead_s: Some(25_200.0),
            ahead_error_s: Some(0.01),
            aligned_by: Some("connections".to_owned()),
            bounds: Some(99),
            unseen: Some("the watcher ended".to_owned()),
        }),
        lookups: Some(Lookups { hits: 1, misses: 2 }),
        output: Some(Output {
            bytes: 318,
            stalled_s: 0.1,
            results: vec![Printed {
                tool: "wrk".to_owned(),
                test: Some("get".to_owned()),
                figures: [("rate_per_s".to_owned(), 1.0)].into(),
            }],
            no_port: Some("cannot assign requested address".to_owned()),
            notes: vec!["waited".to_owned()],
        }),
        finding: Finding {
            limit: Limit::Generator,
            since_s: Some(0.1),
            until_s: Some(0.5),
            seconds: "G".to_owned(),
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

pub(super) fn doubled() -> Doubled {
    Doubled {
        command: vec!["wrk".to_owned()],
        copies: true,
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
