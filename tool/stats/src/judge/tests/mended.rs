//! Runs that were judged wrong once, each with what tells it from its rival.

use super::*;
use jostle_model::judged::StartedBy;

/// Its server ended 0.2 s before the run did, as the last connections.
fn ended(run: &mut Watched) {
    traffic(run).connections[LOOKS - 2..].fill(0.0);
    traffic(run).bytes[LOOKS - 2..].fill(0.0);
    server(run).gone_s = Some(column(0.0));
    server(run).gone_s.as_mut().unwrap()[LOOKS - 20..].fill(SPAN_S);
}

#[test]
fn a_server_that_ends_with_the_command_that_started_it_is_no_early_end() {
    let own = || {
        Planted::busy(0.3, 0.95).with(|run| {
            ended(run);
            server(run).started_by = Some(StartedBy::Command);
        })
    };
    let found = own().is(Limit::Server, "busy for 96 %");
    assert_eq!((found.from_s, found.to_s), (0.1, 9.7));
    Planted::busy(0.3, 0.95)
        .with(ended)
        .is(Limit::Server, "had ended for 18 %");
    // It is missed.
    own()
        .with(|run| run.network.as_mut().unwrap().failed[LOOKS - 20..].fill(9.0))
        .is(Limit::Server, "had ended for 20 %");
    // `kill $server; wait $server`
    let found = own()
        .with(|run| run.exit = Some(143))
        .is(Limit::Server, "busy");
    assert!(found.reasons[1].contains("exit code 143 may be that of the server"));
    own()
        .with(|run| run.exit = Some(1))
        .is(Limit::Nothing, "the command failed");
    let path = Planted::busy(0.3, 0.3).with(|run| {
        server(run).started_by = Some(StartedBy::Command);
    });
    let next = path.is(Limit::Path, "neither").next.unwrap();
    assert!(next.starts_with("jostle judge --start-server SERVER --double -- LOAD"));
}

#[test]
fn where_no_socket_of_the_server_is_seen_nothing_tells_what_it_waits_for() {
    let unseen = "no connection was seen at the server that was named";
    Planted::busy(0.3, 0.4)
        .with(|run| run.traffic = None)
        .is(Limit::Undecided, unseen);
    let elsewhere = |run: &mut Watched| traffic(run).server_unread_bytes = None;
    Planted::busy(0.3, 0.4)
        .with(elsewhere)
        .is(Limit::Undecided, unseen);
    Planted::busy(0.3, 0.95)
        .with(elsewhere)
        .is(Limit::Server, "busy");
    Planted::busy(0.1, 0.1)
        .with(elsewhere)
        .with(|run| traffic(run).idle = Some(vec![48.0; LOOKS]))
        .is(Limit::Path, "a pace of its own");
}

#[test]
fn requests_that_lie_unread_on_a_few_connections_are_no_path() {
    let pool = |open: f64, unread: f64| {
        Planted::busy(0.1, 0.1).with(|run| {
            let traffic = traffic(run);
            traffic.connections.fill(open);
            traffic.waiting = Some(vec![0.9 * open; LOOKS]);
            traffic.unsent = Some(column(0.0));
            traffic.server_unread = Some(vec![unread; LOOKS]);
        })
    };
    pool(20.0, 3.0).is(Limit::Undecided, "requests lay unread on 3 of them");
    pool(8.0, 1.0).is(Limit::Undecided, "requests lay unread on 1 of them");
    pool(8.0, 0.2).is(Limit::Path, "their requests had been read");
    pool(20.0, 12.0).is(Limit::Server, "requests lay unread at the server on 12");
    // A frontend that accepts no more at a time.
    pool(20.0, 15.0)
        .with(|run| traffic(run).backlog = Some(vec![15.0; LOOKS]))
        .is(Limit::Server, "15 of 20 connections waited to be accepted");
}

#[test]
fn a_thread_that_spins_is_not_full() {
    let spinning = |main: f64| {
        Planted::busy(0.2, main).with(|run| {
            let mut thread = server(run).busiest[0].clone();
            (thread.name, thread.cpu_s) = ("io_thd_1".to_owned(), column(0.99));
            server(run).busiest.insert(0, thread);
            server(run).cpu_s = column(0.99 + main);
            server(run).allowed_cpus = Some(1);
        })
    };
    spinning(0.5).is(
        Limit::Undecided,
        "io_thd_1 (thread 71) was busy for 100 % of the time, but it spins",
    );
    spinning(0.93).is(Limit::Server, "redis-server");
}

#[test]
fn a_quota_of_the_generator_is_the_limit_only_as_far_as_its_server_has_room() {
    let both = |busy: f64| {
        Planted::busy(0.3, busy).with(|run| {
            run.generator.throttled_s = Some(column(0.08));
            run.generator.quota_cpus = Some(0.4);
        })
    };
    both(0.7).is(Limit::Generator, "a CPU quota");
    let found = both(0.95).is(Limit::Undecided, "the server's busiest thread");
    assert!(found.reasons[1].contains("kept the generator from running for 8.0 %"));
    let queue = |run: &mut Watched| {
        traffic(run).server_unread = Some(vec![30.0; LOOKS]);
        traffic(run).generator_unread = Some(vec![1.0; LOOKS]);
        traffic(run).idle = Some(vec![1.0; LOOKS]);
    };
    both(0.95)
        .with(queue)
        .is(Limit::Server, "the server's busiest thread");
}

#[test]
fn a_server_that_shares_out_few_connections_to_an_idle_one_is_the_limit_itself() {
    let pool = |connections: u64, behind: Option<f64>| {
        Planted::busy(0.1, 0.1).with(|run| {
            traffic(run).downstream = vec![Peer {
                at: "127.0.0.1:5432".to_owned(),
                connections,
                bytes: 1_000_000,
                waiting_share: Some(0.9),
            }];
            run.machine.behind_s = behind.map(column);
        })
    };
    pool(2, Some(0.1)).is(
        Limit::Server,
        "which 50 connections of its clients share: what is behind used 0.10",
    );
    pool(2, Some(0.9)).is(Limit::Downstream, "waited for 127.0.0.1:5432");
    pool(2, None).is(Limit::Undecided, "whose CPU time is not seen");
    pool(12, Some(0.1)).is(Limit::Undecided, "unless a lock behind it is");
    pool(40, Some(0.1)).is(Limit::Downstream, "waited for");
}

#[test]
fn locks_of_files_full_cpus_and_silent_connections_are_told() {
    // A session of PHP, asked for by eight clients.
    let session = |waiting: f64| {
        Planted::busy(0.1, 0.1).with(|run| {
            traffic(run).connections.fill(8.0);
            server(run).at_file_locks = Some(vec![waiting; LOOKS]);
        })
    };
    session(7.0).is(
        Limit::Server,
        "7.0 of the server's threads waited for the lock of a file",
    );
    session(1.0).is(Limit::Path, "neither");
    // Threads of both sides wait for each other: mysqlslap and its server.
    let slap = |others: f64| {
        Planted::busy(0.2, 0.3).with(|run| {
            queue(&mut run.generator, 0.72);
            run.generator.cpu_s = column(0.5);
            server(run).cpu_s = column(1.48 - others);
            hog(run, others);
            for side in [&mut run.generator, run.server.as_mut().unwrap()] {
                side.allowed_cpus = Some(2);
            }
        })
    };
    slap(0.0).is(Limit::Machine, "2 CPUs were all in use");
    slap(0.6).is(Limit::Generator, "busy for 92 %");
    // Each opening counts as a byte.
    let silent = |run: &mut Watched| {
        traffic(run).bytes.fill(0.0);
        traffic(run).bytes[0] = 50.0;
    };
    Planted::busy(0.1, 0.1).with(silent).is(
        Limit::Nothing,
        "50 connections were open, and none of them carried a byte",
    );
    Planted::busy(0.1, 0.1)
        .with(silent)
        .with(|run| server(run).stopped_s = column(1.0))
        .is(Limit::Server, "stopped");
}

/// Six pairs over connections whose bytes double by chance, and whose printed rates do not.
fn printed(copies: bool, results: [usize; 2], opened: f64) -> Doubled {
    let run = |block: u64, doubled: bool| {
        let planted = Planted::busy(0.1, 0.1).with(|run| {
            let load = if doubled { 2 } else { 1 };
            run.pair = Some(Turn {
                block,
                load,
                doubled,
                copies,
            });
            traffic(run).connections.fill(8.0);
            traffic(run).bytes.fill(100.0 * load as f64);
            traffic(run).opened.fill(opened);
            let result = Printed {
                figures: [("rate_per_s".to_owned(), 50.0)].into(),
                ..Printed::default()
            };
            let results = vec![result; results[usize::from(doubled)]];
            run.output = Some(Output {
                results,
                ..Output::default()
            });
        });
        Run::from_watched(&planted.watched).unwrap()
    };
    let runs = (1..=6).flat_map(|block| [run(block, false), run(block, true)]);
    settle(&["ab".to_owned()], &runs.collect::<Vec<_>>(), false).unwrap()
}

#[test]
fn pairs_compare_what_was_printed_or_a_count_that_is_the_connections_own() {
    for (copies, results, opened, measure, ratio) in [
        (false, [1, 1], 0.5, "printed", 1.0),
        (true, [1, 2], 0.5, "printed", 2.0),
        // A result of a copy is missing; nothing was printed that is known.
        (true, [1, 1], 0.0, "bytes", 2.0),
        (false, [0, 0], 0.0, "bytes", 2.0),
        (false, [0, 0], 0.6, "connections", 1.0),
    ] {
        let found = printed(copies, results, opened);
        assert_eq!(found.measure, measure, "{copies} {results:?} {opened}");
        assert!((found.ratio - ratio).abs() < 1e-9, "{found:?}");
    }
}

/// Both sides of a script have one CPU, as of a small container; or there is a loop beside them.
#[test]
fn sides_that_wait_for_the_same_cpu_are_limited_by_the_machine() {
    let one_cpu = |cpu: [f64; 2], queued: [f64; 2], others: f64| {
        Planted::busy(cpu[0], cpu[1]).with(|run| {
            hog(run, others);
            let server = run.server.as_mut().unwrap();
            for (side, queued) in [&mut run.generator, server].into_iter().zip(queued) {
                side.allowed_cpus = Some(1);
                queue(side, queued);
            }
        })
    };
    let same = "are bound to the same CPUs";
    one_cpu([0.47, 0.52], [0.35, 0.45], 0.01).is(Limit::Machine, same);
    one_cpu([0.56, 0.40], [0.42, 0.4], 0.01).is(Limit::Machine, same);
    // A quota keeps the server from running, on a CPU of its own.
    let by_quota = one_cpu([0.6, 0.2], [0.05, 0.75], 0.01).with(|run| {
        server(run).throttled_s = Some(column(0.75));
    });
    by_quota.is(Limit::Server, "quota");
    // Whoever waits for others alone.
    one_cpu([0.56, 0.36], [0.4, 0.33], 0.96).is(Limit::Machine, "while other programs used");
    one_cpu([0.5, 0.2], [0.48, 0.05], 0.96).is(Limit::Generator, "busy for 98 %");
    // Nobody is known who ran in its place.
    one_cpu([0.05, 0.5], [0.01, 0.45], 0.01).is(Limit::Server, "busy for 95 %");
}

/// bombardier, for which nobody listens: a look meets an attempt before it is refused.
#[test]
fn attempts_that_are_refused_are_no_traffic() {
    let refused = |failed: f64, bytes: f64| {
        Planted::busy(0.98, 0.0).with(|run| {
            run.server = None;
            run.protocols = Some(vec!["TCP".to_owned()]);
            let each = |value: f64| vec![value; LOOKS];
            let seen = traffic(run);
            (seen.bytes, seen.opened) = (each(bytes), each(1000.0));
            (seen.connections, seen.segments) = (each(1.0), each(2.0));
            let network = run.network.as_mut().unwrap();
            (network.opened, network.failed) = (each(1000.0), each(failed));
        })
    };
    refused(990.0, 0.0).is(Limit::Nothing, "nobody listens");
    refused(10.0, 0.0).is(Limit::Generator, "busy");
    refused(990.0, 100.0).is(Limit::Generator, "busy");
}
