//! Planted records: runs with a known truth, and the required finding.

mod apart;
mod matrix;
mod mended;
mod waiting;

use super::*;
use jostle_model::judged::{
    Doubled, Machine, Network, Output, Peer, Printed, Process, Side, Thread, Traffic, Turn,
};
use jostle_model::record::Neighbour;

/// Looks in a planted run, ten a second.
const LOOKS: usize = 100;
const SPAN_S: f64 = 0.1;

/// A run of ten seconds on two CPUs, the same in each interval.
struct Planted {
    watched: Watched,
}

fn column(share: f64) -> Vec<f64> {
    vec![share * SPAN_S; LOOKS]
}

fn side(name: &str, cpu: f64, queued: f64) -> Side {
    Side {
        processes: 1,
        threads: 1,
        cpu_s: column(cpu),
        queued_s: Some(column(queued)),
        stopped_s: column(0.0),
        busiest: vec![Thread {
            name: name.to_owned(),
            pid: 70,
            tid: 71,
            cpu_s: column(cpu),
            queued_s: column(queued),
        }],
        ..Side::default()
    }
}

impl Planted {
    /// With these shares of time on a CPU, of generator and server.
    fn busy(generator: f64, server: f64) -> Planted {
        let each = |value: f64| vec![value; LOOKS];
        Planted {
            watched: Watched {
                command: ["redis-benchmark", "-c", "50"].map(str::to_owned).to_vec(),
                exit: Some(0),
                end_s: (1..=LOOKS).map(|n| n as f64 * SPAN_S).collect(),
                span_s: each(SPAN_S),
                generator: side("redis-benchmark", generator, 0.01),
                seen_share: Some(0.99),
                server: Some(side("redis-server", server, 0.01)),
                traffic: Some(Traffic {
                    port: 6379,
                    bytes: each(1e5),
                    segments: each(1e3),
                    retransmitted: each(0.0),
                    connections: each(50.0),
                    opened: each(0.0),
                    generator_unread_bytes: each(0.0),
                    server_unread_bytes: Some(each(0.0)),
                    backlog: Some(each(0.0)),
                    backlog_limit: Some(511),
                    time_wait: each(0.0),
                    ports_left: each(28_000.0),
                    ports: 28_232,
                    ..Traffic::default()
                }),
                network: Some(Network {
                    opened: each(0.0),
                    failed: each(0.0),
                    overflows: each(0.0),
                    syn_again: each(0.0),
                    delayed_acks: each(0.0),
                    syn_again_after_s: vec![1.0, 1.0, 2.0],
                    ..Network::default()
                }),
                machine: Machine {
                    cpus: 2,
                    stolen_s: column(0.0),
                    others_s: Some(column(0.02)),
                    behind_s: None,
                    tool_s: column(0.004),
                    neighbours: Vec::new(),
                },
                ..Watched::default()
            },
        }
    }

    fn with(mut self, plant: impl FnOnce(&mut Watched)) -> Planted {
        plant(&mut self.watched);
        self
    }

    #[track_caller]
    fn is(self, limit: Limit, reason: &str) -> Finding {
        let found = find(&self.watched);
        assert_eq!(found.limit, limit, "{found:#?}");
        assert!(found.reasons[0].contains(reason), "{found:#?}");
        found
    }
}

fn queue(side: &mut Side, queued: f64) {
    side.queued_s = Some(column(queued));
    side.busiest[0].queued_s = column(queued);
}

/// A program that runs for this share of a CPU.
fn hog(watched: &mut Watched, share: f64) {
    watched.machine.others_s = Some(column(share));
    watched.machine.neighbours = vec![Neighbour {
        name: "stress".to_owned(),
        pid: 99,
        cpu_s: share * 10.0,
    }];
}

fn server(watched: &mut Watched) -> &mut Side {
    watched.server.as_mut().unwrap()
}

fn traffic(watched: &mut Watched) -> &mut Traffic {
    watched.traffic.as_mut().unwrap()
}

#[test]
fn a_side_whose_thread_has_no_time_left_is_the_limit() {
    let found = Planted::busy(0.93, 0.5).is(Limit::Generator, "busy for 94 %");
    assert!(found.meaning.contains("at least"), "{found:?}");
    assert_eq!(found.next, None);
    Planted::busy(0.4, 0.95).is(Limit::Server, "the server's busiest thread, redis-server");
    // Around the threshold: CPU and queue together.
    Planted::busy(0.885, 0.5).is(Limit::Undecided, "neither side was at its limit");
    Planted::busy(0.895, 0.5).is(Limit::Generator, "busy");
    // Both: the server does at least this much, and hardly more.
    let found = Planted::busy(0.95, 0.96).is(Limit::Generator, "busy");
    assert!(found.reasons[1].contains("little is left"), "{found:?}");
}

#[test]
fn where_both_have_room_connections_wait_and_doubling_them_would_show() {
    let found = Planted::busy(0.3, 0.4).is(Limit::Path, "neither side was busy");
    assert_eq!(
        found.next.as_deref(),
        Some("jostle judge --double -- redis-benchmark -c {50}")
    );
    // The other run of the pair is known already.
    let turn = Turn {
        block: 1,
        load: 50,
        doubled: false,
        copies: false,
    };
    let found = Planted::busy(0.3, 0.4)
        .with(|run| run.pair = Some(turn))
        .is(Limit::Path, "busy");
    assert_eq!(found.next, None);
    Planted::busy(0.8, 0.5).is(Limit::Undecided, "nor had both of them room");
    let found = Planted::busy(0.3, 0.0)
        .with(|run| run.server = None)
        .is(Limit::Undecided, "not found");
    assert!(found.meaning.contains("without seeing the server"));
}

#[test]
fn a_generator_that_a_quota_or_a_signal_keeps_from_running_is_the_limit() {
    for dose in [0.1, 0.2, 0.5, 0.8] {
        let throttled = |side: &mut Side, group: &str| {
            side.throttled_s = Some(column(dose));
            side.quota_cpus = Some(1.0 - dose);
            side.quota_group = Some(group.to_owned());
        };
        Planted::busy(0.2, 0.1)
            .with(|run| throttled(&mut run.generator, "/g"))
            .is(Limit::Generator, "a CPU quota of");
        Planted::busy(0.2, 0.1)
            .with(|run| throttled(server(run), "/s"))
            .is(Limit::Server, "kept the server from running");
        // One container around both: neither is to blame.
        Planted::busy(0.2, 0.1)
            .with(|run| {
                throttled(&mut run.generator, "/both");
                throttled(server(run), "/both");
            })
            .is(Limit::Machine, "same control group");
        Planted::busy(0.2, 0.1)
            .with(|run| run.generator.stopped_s = column(dose))
            .is(Limit::Generator, "stopped by a signal");
        Planted::busy(0.2, 0.1)
            .with(|run| server(run).stopped_s = column(dose))
            .is(Limit::Server, "stopped by a signal");
    }
    // Throttled in one period of a hundred: as a clean run may be.
    Planted::busy(0.2, 0.1)
        .with(|run| run.generator.throttled_s = Some(column(0.01)))
        .is(Limit::Path, "neither");
}

#[test]
fn throttling_is_counted_once_for_threads_that_are_stopped_together() {
    // Two threads that each lose 4 %: the kernel's sum is 8 % over two CPUs.
    let two = |run: &mut Watched| {
        run.generator.throttled_s = Some(column(0.08));
        let other = run.generator.busiest[0].clone();
        run.generator.busiest.push(other);
    };
    Planted::busy(0.4, 0.1).with(two).is(Limit::Path, "neither");
}

#[test]
fn neighbours_harm_only_whom_they_keep_waiting_and_are_named() {
    // On the generator's CPU: half of it, and the generator wants all of it.
    let found = Planted::busy(0.5, 0.3)
        .with(|run| {
            queue(&mut run.generator, 0.45);
            hog(run, 0.5);
        })
        .is(Limit::Generator, "45 % waiting for one");
    assert!(
        found.reasons[1].contains("stress (pid 99) 5.0 s"),
        "{found:?}"
    );
    // A fifth of the CPU, of a generator that has room.
    Planted::busy(0.5, 0.3)
        .with(|run| {
            queue(&mut run.generator, 0.18);
            hog(run, 0.2);
        })
        .is(Limit::Generator, "runnable for 18 %");
    // It ran elsewhere: nobody waited for it.
    Planted::busy(0.4, 0.3)
        .with(|run| hog(run, 0.9))
        .is(Limit::Path, "neither");
    // They waited for each other, and nobody else ran.
    Planted::busy(0.4, 0.3)
        .with(|run| queue(&mut run.generator, 0.15))
        .is(Limit::Path, "neither");
    // The server was kept from its CPU: its figures are not its own.
    Planted::busy(0.3, 0.5)
        .with(|run| {
            queue(server(run), 0.45);
            hog(run, 0.5);
        })
        .is(Limit::Machine, "the server's busiest thread");
    // Who ran cannot be seen, as in a container.
    Planted::busy(0.4, 0.3)
        .with(|run| {
            queue(&mut run.generator, 0.3);
            run.machine.others_s = None;
        })
        .is(Limit::Generator, "cannot be seen");
}

#[test]
fn the_machine_is_the_limit_where_its_cpus_or_ports_are_used_up_or_stolen() {
    Planted::busy(0.4, 0.3)
        .with(|run| run.machine.stolen_s = column(0.3))
        .is(Limit::Machine, "the hypervisor took 15 %");
    // Ten backends, none of them busy.
    Planted::busy(0.5, 0.3)
        .with(|run| server(run).cpu_s = column(1.45))
        .is(Limit::Machine, "2 CPUs were all in use");
    Planted::busy(0.05, 0.3)
        .with(|run| server(run).cpu_s = column(1.85))
        .is(Limit::Server, "1.85 of the 2 CPUs");
    // Bound to one CPU, which eight threads share: none of them is busy for long.
    let bound = |side: &mut Side, used: f64| {
        side.cpu_s = column(used);
        side.allowed_cpus = Some(1);
    };
    Planted::busy(0.12, 0.3)
        .with(|run| bound(&mut run.generator, 0.93))
        .is(Limit::Generator, "0.93 of the one CPU that it may run on");
    // Each fills a CPU of its own: that whose threads wait for it longer has the queue.
    for (waits, limit) in [(0.8, Limit::Server), (0.2, Limit::Generator)] {
        Planted::busy(0.12, 0.3)
            .with(|run| {
                bound(&mut run.generator, 0.91);
                run.generator.queued_s = Some(column(0.3));
                bound(server(run), 0.96);
                server(run).queued_s = Some(column(waits));
            })
            .is(limit, "of the one CPU that it may run on");
    }
    Planted::busy(0.12, 0.3)
        .with(|run| bound(&mut run.generator, 0.87))
        .is(Limit::Path, "neither");
    Planted::busy(0.3, 0.12)
        .with(|run| bound(server(run), 0.93))
        .is(Limit::Server, "the server used 0.93 of the one CPU");
}

#[test]
fn a_full_accept_queue_is_the_server_s_and_lost_segments_are_the_path_s() {
    Planted::busy(0.4, 0.3)
        .with(|run| traffic(run).backlog = Some(vec![512.0; LOOKS]))
        .is(Limit::Server, "accept queue was full");
    Planted::busy(0.4, 0.3)
        .with(|run| traffic(run).retransmitted = vec![20.0; LOOKS])
        .is(Limit::Path, "2.0 % of the segments");
    // They tell why nothing is decided where the generator has little room.
    let unread = |run: &mut Watched| traffic(run).generator_unread_bytes = vec![900.0; LOOKS];
    Planted::busy(0.8, 0.3)
        .with(unread)
        .is(Limit::Undecided, "answers lay unread");
    Planted::busy(0.4, 0.3)
        .with(unread)
        .is(Limit::Path, "neither");
}

#[test]
fn since_when_is_told_and_a_part_of_the_time_counts() {
    let from_half = |column: &mut Vec<f64>, value: f64| column[LOOKS / 2..].fill(value);
    let found = Planted::busy(0.4, 0.5)
        .with(|run| {
            from_half(&mut run.generator.busiest[0].cpu_s, 0.095);
            from_half(&mut run.generator.cpu_s, 0.095);
        })
        .is(Limit::Generator, "the generator was at its limit in");
    let since = found.since_s.unwrap();
    assert!((4.0..=6.2).contains(&since), "{since}");
    assert!(found.reasons[1].contains("busy for"), "{found:?}");
    // One second of ten is none of its business.
    Planted::busy(0.4, 0.5)
        .with(|run| run.generator.busiest[0].cpu_s[40..50].fill(0.1))
        .is(Limit::Path, "neither");
    let found = Planted::busy(0.4, 0.95).is(Limit::Server, "busy");
    assert!(found.since_s.unwrap() < 0.2, "{found:?}");
}

#[test]
fn start_and_end_without_traffic_are_left_out() {
    // Two seconds of loading a file, during which its thread is busy, then idle; and
    // one of writing a report.
    let found = Planted::busy(0.3, 0.4)
        .with(|run| {
            traffic(run).bytes[..20].fill(0.0);
            traffic(run).bytes[90..].fill(0.0);
            traffic(run).connections[90..].fill(0.0);
            run.generator.busiest[0].cpu_s[..20].fill(0.1);
            run.generator.busiest[0].cpu_s[90..].fill(0.1);
        })
        .is(Limit::Path, "neither");
    assert_eq!((found.from_s, found.to_s), (2.1, 8.9));
    // A gap in the middle is no end: there the generator may have stood still.
    let found = Planted::busy(0.3, 0.4)
        .with(|run| {
            traffic(run).bytes[40..60].fill(0.0);
            run.generator.stopped_s[40..60].fill(0.1);
        })
        .is(Limit::Generator, "stopped");
    assert_eq!((found.from_s, found.to_s), (0.1, 10.0));
}

#[test]
fn what_was_hardly_seen_is_not_judged() {
    let short = |run: &mut Watched| {
        traffic(run).bytes[3..].fill(0.0);
        traffic(run).connections[3..].fill(0.0);
    };
    Planted::busy(0.95, 0.4)
        .with(short)
        .is(Limit::Undecided, "let the command run");
    Planted::busy(0.95, 0.4)
        .with(|run| run.generator.queued_s = None)
        .is(Limit::Undecided, "schedstat");
    // A loop in a shell that starts a client for each request.
    Planted::busy(0.95, 0.4)
        .with(|run| run.seen_share = Some(0.3))
        .is(Limit::Undecided, "70 % of the command's CPU time");
    // Half of next to nothing is no loss.
    Planted::busy(0.01, 0.4)
        .with(|run| run.seen_share = Some(0.5))
        .is(Limit::Path, "neither");
    // Nothing at all.
    assert_eq!(find(&Watched::default()).limit, Limit::Undecided);
}

#[test]
fn the_number_of_connections_is_found_in_commands_of_known_shape() {
    for (command, doubled) in [
        ("wrk -t2 -c100 http://x/", Some("wrk -t2 -c{100} http://x/")),
        ("ab -n 10 -c 5 x", Some("ab -n 10 -c {5} x")),
        ("k6 run --vus=10 a.js", Some("k6 run --vus={10} a.js")),
        ("tool --clients 7", Some("tool --clients {7}")),
        (
            "mariadb-slap --concurrency=7",
            Some("mariadb-slap --concurrency={7}"),
        ),
        ("sh -c 'wrk", None),
        ("curl x", None),
    ] {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let expected = doubled.map(|doubled| format!("jostle judge --double -- {doubled}"));
        assert_eq!(doubling(&words), expected, "{command}");
    }
}

/// Six pairs whose doubled runs do `ratio` times the work, with generators so busy.
fn pairs(ratio: f64, busy: f64) -> Vec<Run> {
    let run = |block: u64, doubled: bool| {
        let load = if doubled { 100 } else { 50 };
        let planted = Planted::busy(busy - 0.01, 0.5).with(|run| {
            run.pair = Some(Turn {
                block,
                load,
                doubled,
                copies: false,
            });
            // A percent of noise, as machines have it.
            let noise = 1.0 + 0.01 * (block as f64 - 3.5) / 3.5;
            let factor = if doubled { ratio * noise } else { 1.0 };
            traffic(run)
                .bytes
                .iter_mut()
                .for_each(|bytes| *bytes *= factor);
            run.finding = find(run);
        });
        Run::from_watched(&planted.watched).unwrap()
    };
    (1..=6)
        .flat_map(|block| [run(block, false), run(block, true)])
        .collect()
}

#[test]
fn pairs_settle_what_watching_cannot() {
    let command = ["x".to_owned()];
    for (ratio, busy, limit) in [
        (1.4, 0.3, Limit::Generator),
        (1.08, 0.3, Limit::Generator),
        (1.0, 0.3, Limit::Server),
        (0.98, 0.3, Limit::Server),
        // More load makes it slower: the server is past its best.
        (0.8, 0.3, Limit::Server),
        // The interval reaches across the threshold.
        (1.05, 0.3, Limit::Undecided),
        // No more work, since the generator has no more time.
        (1.0, 0.95, Limit::Generator),
        (1.0, 0.8, Limit::Undecided),
    ] {
        let doubled = settle(&command, &pairs(ratio, busy), false).unwrap();
        assert_eq!(doubled.limit, limit, "{ratio} {busy}: {doubled:#?}");
        assert_eq!(
            (doubled.loads, doubled.measure.as_str()),
            ([50, 100], "bytes")
        );
        assert_eq!(doubled.rates_per_s.len(), 6);
    }
    // Under six pairs there is no interval.
    let few = settle(&command, &pairs(1.4, 0.3)[..8], false).unwrap();
    assert_eq!(few.limit, Limit::Undecided);
    assert!(settle(&command, &pairs(1.4, 0.3)[..1], false).is_none());
}

#[test]
fn where_each_request_has_its_connection_connections_are_the_work() {
    let run = |block: u64, doubled: bool| {
        let planted = Planted::busy(0.3, 0.5).with(|run| {
            run.pair = Some(Turn {
                block,
                load: 50,
                doubled,
                copies: false,
            });
            let traffic = traffic(run);
            // Few live from one look to the next: bytes tell little of the work.
            traffic.bytes.fill(if doubled { 300.0 } else { 500.0 });
            traffic.opened.fill(if doubled { 150.0 } else { 100.0 });
        });
        Run::from_watched(&planted.watched).unwrap()
    };
    let runs: Vec<Run> = (1..=6)
        .flat_map(|block| [run(block, false), run(block, true)])
        .collect();
    let doubled = settle(&["ab".to_owned()], &runs, false).unwrap();
    assert_eq!(doubled.measure, "connections");
    assert!((doubled.ratio - 1.5).abs() < 1e-9, "{doubled:?}");
    assert_eq!(doubled.limit, Limit::Generator);
}

#[test]
fn where_no_connection_is_seen_the_printed_rate_is_the_work() {
    let run = |doubled: bool, rates: &[f64]| {
        let planted = Planted::busy(0.3, 0.5).with(|run| {
            run.pair = Some(Turn {
                doubled,
                ..Turn::default()
            });
            (run.traffic, run.server) = (None, None);
            let result = |rate: &f64| Printed {
                figures: [("rate_per_s".to_owned(), *rate)].into(),
                ..Printed::default()
            };
            let results = rates.iter().map(result).collect();
            run.output = Some(Output {
                results,
                ..Output::default()
            });
        });
        Run::from_watched(&planted.watched)
    };
    let runs = [run(false, &[100.0, 20.0]), run(true, &[180.0])].map(Option::unwrap);
    let doubled = settle(&["wrk".to_owned()], &runs, false).unwrap();
    assert_eq!(doubled.measure, "printed");
    assert_eq!(doubled.rates_per_s, [[120.0, 180.0]]);
    assert!(run(true, &[]).is_none());
}
