//! Runs in which something else than a busy thread was the limit, and runs with nothing to judge.

use super::*;
use jostle_model::judged::ServerUnseen;

fn network(run: &mut Watched) -> &mut Network {
    run.network.as_mut().unwrap()
}

/// Its largest process has eight threads, none busy, which use so much of a CPU together.
fn threaded(run: &mut Watched, cpu: f64) {
    run.generator.cpu_s = column(cpu);
    run.generator.largest = Some(Process {
        name: "python3".to_owned(),
        pid: 70,
        threads: 8,
        cpu_s: column(cpu),
        ..Process::default()
    });
}

fn largest(run: &mut Watched) -> &mut Process {
    run.generator.largest.as_mut().unwrap()
}

#[test]
fn a_generator_whose_threads_use_one_cpu_together_is_held_to_it() {
    let found = Planted::busy(0.2, 0.3)
        .with(|run| threaded(run, 0.98))
        .is(Limit::Generator, "all the time close to 1");
    assert_eq!(found.seconds, "GGGGGGGGG");
    Planted::busy(0.4, 0.3)
        .with(|run| {
            run.machine.cpus = 4;
            threaded(run, 1.95);
            largest(run).gomaxprocs = Some(2);
        })
        .is(Limit::Generator, "GOMAXPROCS=2 holds it there");
    // System calls run without the lock; a script is known by its interpreter.
    let of = |name: &str, program: Option<&str>| {
        Planted::busy(0.5, 0.3).with(|run| {
            threaded(run, 1.07);
            let largest = largest(run);
            (largest.name, largest.program) = (name.to_owned(), program.map(str::to_owned));
        })
    };
    of("ruby", None).is(Limit::Generator, "all the time close to 1");
    of("locust", Some("python3.11")).is(Limit::Generator, "all the time close to 1");
    of("wrk", None).is(Limit::Path, "neither");
    of("python3.13t", None).is(Limit::Path, "neither");
    // One CPU in the mean: other copies would show.
    let found = Planted::busy(0.3, 0.3)
        .with(|run| {
            threaded(run, 0.7);
            largest(run).cpu_s[LOOKS / 2..].fill(0.12);
        })
        .is(Limit::Undecided, "a lock may hold them");
    let next = "jostle judge --copies 2 -- redis-benchmark -c 50";
    assert_eq!(found.next.as_deref(), Some(next));
    // Two threads that use more, and a server that is busy itself.
    Planted::busy(0.6, 0.3)
        .with(|run| {
            run.machine.cpus = 4;
            threaded(run, 1.2);
        })
        .is(Limit::Path, "neither");
    // Without a lock that is known, and with one.
    let busy = || Planted::busy(0.3, 0.93).with(|run| threaded(run, 0.98));
    let is_native = |run: &mut Watched| largest(run).name = "wrk".to_owned();
    busy().with(is_native).is(Limit::Server, "busy");
    let found = busy().is(Limit::Generator, "all the time close to 1");
    assert!(found.reasons[1].contains("little is left there"));
}

#[test]
fn where_both_are_busy_the_queue_tells_which_is_late() {
    // Requests unread at the server, answers unread at the generator, and connections on which it
    // has not asked again; of 50.
    let busy = |requests: f64, answers: f64, idle: f64| {
        Planted::busy(0.96, 0.97).with(|run| {
            let traffic = traffic(run);
            traffic.server_unread = Some(vec![requests; LOOKS]);
            traffic.generator_unread = Some(vec![answers; LOOKS]);
            traffic.idle = Some(vec![idle; LOOKS]);
        })
    };
    // A compiler in the generator uses what its requests leave.
    busy(40.0, 1.0, 2.0).is(Limit::Server, "the server's busiest thread");
    busy(5.0, 1.0, 2.0).is(Limit::Generator, "busy");
    busy(40.0, 10.0, 2.0).is(Limit::Generator, "busy");
    busy(40.0, 1.0, 10.0).is(Limit::Generator, "busy");
    // A server that waits for a CPU is not at its limit.
    busy(40.0, 1.0, 2.0)
        .with(|run| *server(run) = side("redis-server", 0.7, 0.27))
        .is(Limit::Generator, "busy");
}

#[test]
fn a_server_whose_processes_wait_for_its_lock_is_the_limit() {
    let waiting = |of_50: f64| {
        Planted::busy(0.1, 0.1).with(|run| server(run).at_locks = Some(vec![of_50; LOOKS]))
    };
    waiting(49.0).is(
        Limit::Server,
        "49.0 of the server's 1 processes waited for a lock",
    );
    waiting(20.0).is(Limit::Path, "neither");
}

#[test]
fn a_server_that_answers_in_turn_is_the_limit_and_one_that_waits_otherwise_may_be() {
    // Numbers among 50 connections.
    let waiting = |waiting: f64, in_turn: f64, unsent: f64| {
        Planted::busy(0.1, 0.1).with(|run| {
            let traffic = traffic(run);
            traffic.server_unread = Some(vec![0.0; LOOKS]);
            traffic.waiting = Some(vec![waiting; LOOKS]);
            traffic.in_turn = Some(vec![in_turn; LOOKS]);
            traffic.unsent = Some(vec![unsent; LOOKS]);
        })
    };
    let found = waiting(48.0, 46.0, 0.0).is(
        Limit::Server,
        "48 connections waited for answers, which came one after the other at even distances",
    );
    assert_eq!(found.seconds, "SSSSSSSSS");
    let timers = "requests had been read: each waits inside the server";
    waiting(48.0, 30.0, 0.0).is(Limit::Undecided, timers);
    waiting(7.0, 3.0, 0.0)
        .with(|run| traffic(run).connections.fill(8.0))
        .is(Limit::Path, timers);
    // Answers on their way; connections that mostly wait for their generator.
    for run in [waiting(48.0, 46.0, 30.0), waiting(20.0, 20.0, 0.0)] {
        let found = run.is(Limit::Path, "neither");
        assert!(!found.reasons[0].contains(timers), "{found:?}");
    }
    waiting(48.0, 46.0, 0.0)
        .with(|run| *server(run) = side("mariadbd", 0.8, 0.0))
        .is(Limit::Undecided, "nor had both of them room");
}

#[test]
fn a_command_that_failed_for_want_of_ports_says_so() {
    let failed = |exit: i32| {
        Planted::busy(0.3, 0.4).with(|run| {
            let line = "connect: cannot assign requested address".to_owned();
            run.output.get_or_insert_default().no_port = Some(line);
            run.exit = Some(exit);
        })
    };
    failed(1).is(
        Limit::Ports,
        "no port was left for a new connection: `connect: ",
    );
    // Some attempts failed, and the command went on.
    failed(0).is(Limit::Path, "neither");
}

#[test]
fn a_server_that_stands_still_or_ends_at_the_end_of_the_run_is_the_limit() {
    // Stopped from 3.0 to 4.9 s of 5: nothing is carried, and connections stay open.
    let short = |run: &mut Watched| {
        for column in [&mut run.end_s, &mut run.span_s] {
            column.truncate(50);
        }
        traffic(run).bytes[30..].fill(0.0);
    };
    let found = Planted::busy(0.4, 0.5)
        .with(|run| {
            short(run);
            server(run).stopped_s[30..49].fill(SPAN_S);
        })
        .is(Limit::Server, "stopped by a signal for 39 %");
    assert_eq!((found.since_s, found.to_s), (Some(3.0), 5.0));
    assert!(found.seconds.ends_with("SS"), "{found:?}");
    // Killed at 2.6 s of 4, while its generator tries again and again to connect.
    let found = Planted::busy(0.4, 0.5)
        .with(|run| {
            short(run);
            traffic(run).bytes[26..].fill(0.0);
            traffic(run).connections[26..].fill(0.0);
            network(run).failed[26..].fill(500.0);
            run.generator.busiest[0].cpu_s[26..].fill(SPAN_S);
            server(run).gone_s = Some(column(0.0));
            server(run).gone_s.as_mut().unwrap()[26..].fill(SPAN_S);
        })
        .is(Limit::Server, "had ended for 49 % of the time, since 2.6 s");
    assert_eq!(found.since_s, Some(2.6));
    // Silence that nothing explains is no path.
    Planted::busy(0.4, 0.5)
        .with(|run| traffic(run).bytes[50..].fill(0.0))
        .is(Limit::Undecided, "nothing was carried for");
}

#[test]
fn until_when_a_limit_held_is_told() {
    let found = Planted::busy(0.3, 0.4)
        .with(|run| {
            run.generator.throttled_s = Some(column(0.0));
            run.generator.throttled_s.as_mut().unwrap()[..31].fill(0.05);
        })
        .is(Limit::Generator, "a CPU quota");
    assert_eq!((found.since_s, found.until_s), (Some(0.1), Some(3.1)));
    assert_eq!(found.seconds, "GGG------");
}

#[test]
fn without_a_server_or_traffic_or_success_there_is_nothing_to_judge() {
    let alone = |run: &mut Watched| {
        (run.server, run.traffic) = (None, None);
    };
    Planted::busy(0.95, 0.0)
        .with(alone)
        .is(Limit::Nothing, "opened no TCP connection");
    Planted::busy(0.95, 0.0)
        .with(|run| {
            alone(run);
            network(run).opened.fill(700.0);
            network(run).failed.fill(700.0);
        })
        .is(
            Limit::Nothing,
            "70000 of 70000 attempts to connect failed in this network namespace",
        );
    Planted::busy(0.95, 0.0)
        .with(|run| {
            alone(run);
            network(run).opened.fill(700.0);
            network(run).failed.fill(700.0);
            run.shared_network = Some(false);
        })
        .is(
            Limit::Nothing,
            "nobody listens where the command connects to",
        );
    // Others open connections, some in vain, and the command has none of TCP, or brief ones.
    let busy = |protocols: &[&str]| {
        let names = protocols.iter().map(|name| (*name).to_owned()).collect();
        let with = move |run: &mut Watched| {
            alone(run);
            network(run).opened.fill(700.0);
            network(run).failed.fill(400.0);
            run.shared_network = Some(true);
            run.protocols = Some(names);
        };
        Planted::busy(0.95, 0.0).with(with)
    };
    let udp = "no TCP socket of its own, in 100 looks; it has sockets of UDP";
    busy(&["UDP"]).is(Limit::Nothing, udp);
    busy(&[]).is(Limit::Nothing, "no TCP socket of its own, in 100 looks");
    busy(&["TCP"]).is(Limit::Nothing, "if they are its, nobody listens");
    busy(&["TCP"]).with(|run| network(run).failed.fill(0.0)).is(
        Limit::Undecided,
        "none was met that is surely the command's",
    );
    // Other programs open a connection a second.
    Planted::busy(0.95, 0.0)
        .with(|run| {
            alone(run);
            network(run).opened.fill(0.1);
        })
        .is(Limit::Nothing, "none of the 10 connections");
    Planted::busy(0.95, 0.0)
        .with(|run| {
            alone(run);
            run.unix_sockets = true;
        })
        .is(Limit::Undecided, "Unix sockets");
    let failed = |run: &mut Watched| run.exit = Some(7);
    let found = Planted::busy(0.95, 0.4)
        .with(failed)
        .is(Limit::Nothing, "failed (exit code 7)");
    assert!(found.reasons[1].contains("busy for"), "{found:?}");
    Planted::busy(0.95, 0.4)
        .with(|run| {
            failed(run);
            traffic(run).ports_left[LOOKS - 1] = 3.0;
        })
        .is(Limit::Ports, "3 were left");
    Planted::busy(0.95, 0.4)
        .with(|run| {
            failed(run);
            server(run).gone_s = Some(column(0.0));
            server(run).gone_s.as_mut().unwrap()[LOOKS - 1] = 0.05;
        })
        .is(Limit::Server, "since 9.9 s");
}

#[test]
fn ports_that_are_used_up_are_the_limit_however_busy_the_generator_is() {
    Planted::busy(0.95, 0.3)
        .with(|run| traffic(run).ports_left[40..60].fill(3.0))
        .is(Limit::Ports, "3 were left");
    Planted::busy(0.4, 0.3)
        .with(|run| traffic(run).ports_left[LOOKS / 2] = 3.0)
        .is(Limit::Path, "neither");
    // After a tenth of a second no connection is opened, and none fails: there is no port.
    Planted::busy(0.9, 0.01)
        .with(|run| {
            let traffic = traffic(run);
            traffic.bytes[1..].fill(0.0);
            traffic.connections[1..].fill(0.0);
            traffic.ports_left[1..].fill(0.0);
        })
        .is(Limit::Ports, "0 were left");
}

#[test]
fn a_server_is_held_to_one_cpu_by_an_interpreter_or_a_setting_only() {
    let of = |name: &str, gomaxprocs: Option<u64>| {
        Planted::busy(0.1, 0.3).with(|run| {
            server(run).cpu_s = column(0.98);
            server(run).largest = Some(Process {
                name: name.to_owned(),
                threads: 8,
                gomaxprocs,
                cpu_s: column(0.98),
                ..Process::default()
            });
        })
    };
    of("python3", None).is(Limit::Server, "the server's process python3");
    of("app", Some(1)).is(Limit::Server, "GOMAXPROCS=1 holds it there");
    of("app", None).is(Limit::Path, "neither");
}

#[test]
fn a_generator_that_waits_for_a_cpu_is_the_limit_only_where_connections_wait_for_it() {
    let beside = |late: f64| {
        Planted::busy(0.2, 0.2).with(|run| {
            queue(&mut run.generator, 0.2);
            run.machine.others_s = Some(column(1.0));
            traffic(run).opened.fill(0.0);
            traffic(run).generator_unread = Some(vec![50.0 * late; LOOKS]);
            traffic(run).idle = Some(column(0.0));
        })
    };
    beside(0.2).is(Limit::Generator, "was runnable for 20 %");
    beside(0.02).is(Limit::Path, "neither");
    // Requests that lie unread at a server with room tell more than a generator that waits.
    beside(0.2)
        .with(|run| traffic(run).server_unread = Some(vec![30.0; LOOKS]))
        .is(
            Limit::Server,
            "requests lay unread at the server on 30 of 50",
        );
}

#[test]
fn a_command_that_keeps_a_pace_is_told_from_connections_that_wait() {
    let reason = |idle: f64| {
        let found = Planted::busy(0.1, 0.1).with(|run| {
            traffic(run).connections.fill(10.0);
            traffic(run).idle = Some(vec![idle; LOOKS]);
        });
        found.is(Limit::Path, "neither").reasons.remove(0)
    };
    assert!(
        reason(9.5).ends_with("on 95 % of the connections: the command keeps a pace of its own")
    );
    assert!(!reason(4.0).contains("pace"));
}

#[test]
fn timers_queues_and_servers_behind_the_server_are_named() {
    // Ten connections that wait for 40 ms after each of their requests.
    let found = Planted::busy(0.02, 0.02)
        .with(|run| {
            traffic(run).connections.fill(10.0);
            network(run).delayed_acks.fill(22.0);
        })
        .is(
            Limit::Timer,
            "delayed acknowledgements (40 ms each) for 88 %",
        );
    assert_eq!(found.seconds, "TTTTTTTTT");
    // Four of ten wait for an accept queue, and send nothing meanwhile.
    let waits = |run: &mut Watched, connecting: f64| {
        let traffic = traffic(run);
        traffic.connections.fill(10.0);
        traffic.connecting = Some(vec![connecting; LOOKS]);
        traffic.unsent = Some(vec![4.5; LOOKS]);
        network(run).delayed_acks.fill(22.0);
    };
    Planted::busy(0.02, 0.02)
        .with(|run| waits(run, 4.0))
        .is(Limit::Timer, "(40 ms each) for 75 %");
    Planted::busy(0.02, 0.02)
        .with(|run| waits(run, 0.0))
        .is(Limit::Path, "neither");
    // Acknowledgements that are late because the answers are: nothing waits for them.
    Planted::busy(0.02, 0.02)
        .with(|run| {
            traffic(run).connections.fill(10.0);
            traffic(run).unsent = Some(column(0.0));
            network(run).delayed_acks.fill(22.0);
        })
        .is(Limit::Path, "neither");
    let refused = |run: &mut Watched, waiting: f64| {
        traffic(run).connecting = Some(vec![waiting; LOOKS]);
        network(run).overflows.fill(2.0);
        network(run).syn_again.fill(1.0);
    };
    Planted::busy(0.1, 0.3).with(|run| refused(run, 23.0)).is(
        Limit::Server,
        "46 % of the connections waited for an answer to their SYN",
    );
    let found = Planted::busy(0.1, 0.3)
        .with(|run| refused(run, 2.0))
        .is(Limit::Path, "neither");
    assert!(
        found.reasons[1].contains("1, 1, 2 s after one another"),
        "{found:?}"
    );
    // No look met a refused connection, and none was refused.
    Planted::busy(0.1, 0.3)
        .with(|run| traffic(run).connecting = Some(vec![23.0; LOOKS]))
        .is(Limit::Path, "neither");
    let unread = |run: &mut Watched| traffic(run).server_unread = Some(vec![40.0; LOOKS]);
    Planted::busy(0.1, 0.3).with(unread).is(
        Limit::Server,
        "requests lay unread at the server on 40 of 50 connections",
    );
    Planted::busy(0.1, 0.8)
        .with(unread)
        .is(Limit::Undecided, "nor had both of them room");
    let behind = |run: &mut Watched, connections: u64, share: f64| {
        unread(run);
        traffic(run).downstream = vec![Peer {
            at: "127.0.0.1:5432".to_owned(),
            connections,
            bytes: 1,
            waiting_share: Some(share),
        }];
    };
    Planted::busy(0.1, 0.3)
        .with(|run| behind(run, 30, 0.9))
        .is(Limit::Downstream, "waited for 127.0.0.1:5432");
    // A queue before the only connection; one that waits for news; and some that are mostly idle.
    Planted::busy(0.1, 0.3)
        .with(|run| behind(run, 1, 1.0))
        .with(|run| traffic(run).downstream[0].bytes = 5_000_000)
        .is(Limit::Downstream, "it has 1 connection there, ");
    Planted::busy(0.1, 0.3)
        .with(|run| behind(run, 1, 1.0))
        .is(Limit::Server, "unread");
    Planted::busy(0.1, 0.3)
        .with(|run| behind(run, 10, 0.2))
        .is(Limit::Server, "unread");
}

#[test]
fn a_server_that_waits_for_its_disk_or_for_swap_is_told_where_a_counter_shows_it() {
    let waits = |run: &mut Watched, every: usize, bytes: u64, faults: f64| {
        let side = server(run);
        let on_disk = (0..LOOKS).map(|look| f64::from(u8::from(look % every == 1 % every)));
        side.on_disk = Some(on_disk.collect());
        side.major_faults = Some(vec![faults; LOOKS]);
        side.disk_bytes = Some(bytes);
    };
    Planted::busy(0.1, 0.3)
        .with(|run| waits(run, 1, 12_000_000, 0.0))
        .is(
            Limit::Downstream,
            "the server's threads waited for a disk in 100 % of the looks (1.0 threads in the \
             mean), while its busiest thread was busy for 31 % of the time; its processes read \
             and wrote 12.0 MB meanwhile",
        );
    Planted::busy(0.1, 0.3)
        .with(|run| waits(run, 2, 12_000_000, 40.0))
        .is(
            Limit::Downstream,
            "pages that were in swap or on a disk in 51 %",
        );
    // Seldom; of another cause; of a server that is nearly busy, and of a command that waits.
    Planted::busy(0.1, 0.3)
        .with(|run| waits(run, 3, 12_000_000, 0.0))
        .is(Limit::Path, "neither");
    Planted::busy(0.1, 0.3)
        .with(|run| waits(run, 1, 0, 0.0))
        .is(Limit::Path, "neither");
    Planted::busy(0.1, 0.8)
        .with(|run| waits(run, 1, 12_000_000, 0.0))
        .is(Limit::Undecided, "nor had both of them room");
    Planted::busy(0.1, 0.3)
        .with(|run| waits(run, 1, 12_000_000, 0.0))
        .with(|run| traffic(run).idle = Some(vec![45.0; LOOKS]))
        .is(Limit::Path, "keeps a pace of its own");
}

#[test]
fn what_the_server_asks_uses_cpus_and_is_no_other_program() {
    let behind = |run: &mut Watched, cpu: f64| run.machine.behind_s = Some(column(cpu));
    // A full machine, nobody else's CPU time.
    let found = Planted::busy(0.5, 0.3)
        .with(|run| server(run).cpu_s = column(0.5))
        .with(|run| behind(run, 0.9))
        .is(Limit::Machine, "0.90 by what the server asks, 0.02 by");
    assert!(!found.reasons[0].contains("unread"), "{found:?}");
    // The server waits for CPUs that those behind it use, and other programs use few.
    let waits = |run: &mut Watched, cpu: f64| {
        for side in [&mut run.generator, run.server.as_mut().unwrap()] {
            side.allowed_cpus = Some(2);
        }
        queue(server(run), 0.2);
        hog(run, 0.2);
        behind(run, cpu);
    };
    Planted::busy(0.1, 0.1)
        .with(|run| waits(run, 1.0))
        .is(Limit::Path, "neither");
    Planted::busy(0.1, 0.1)
        .with(|run| waits(run, 0.0))
        .is(Limit::Machine, "the server's busiest thread");
}

#[test]
fn a_wait_for_a_cpu_that_both_sides_share_is_not_all_of_other_programs() {
    let both = |run: &mut Watched, others: f64| {
        for side in [&mut run.generator, run.server.as_mut().unwrap()] {
            side.allowed_cpus = Some(2);
            queue(side, 0.28);
        }
        run.generator.cpu_s = column(0.9);
        hog(run, others);
    };
    Planted::busy(0.4, 0.4)
        .with(|run| both(run, 0.2))
        .is(Limit::Path, "neither");
    Planted::busy(0.4, 0.3)
        .with(|run| both(run, 0.65))
        .is(Limit::Machine, "while other programs used 0.65 CPUs");
}

/// Pairs whose doubled runs do `ratio` times the work, where `change` was done to each run.
fn changed(ratio: f64, change: impl Fn(&mut Watched)) -> Doubled {
    let run = |block: u64, doubled: bool| {
        let planted = Planted::busy(0.2, 0.3).with(|run| {
            run.pair = Some(Turn {
                block,
                doubled,
                load: 50,
                ..Turn::default()
            });
            if doubled {
                traffic(run).bytes.fill(1e5 * ratio);
            }
            change(run);
            run.finding = find(run);
        });
        Run::from_watched(&planted.watched).unwrap()
    };
    let runs = (1..=6).flat_map(|block| [run(block, false), run(block, true)]);
    settle(&["x".to_owned()], &runs.collect::<Vec<_>>(), false).unwrap()
}

#[test]
fn pairs_know_what_watching_found() {
    let timer = |run: &mut Watched| network(run).delayed_acks.fill(120.0);
    assert_eq!(changed(2.0, timer).limit, Limit::Timer);
    assert_eq!(
        changed(1.0, |run| threaded(run, 0.98)).limit,
        Limit::Generator
    );
    let wavering = |run: &mut Watched| {
        threaded(run, 0.7);
        largest(run).cpu_s[LOOKS / 2..].fill(0.12);
    };
    let found = changed(1.0, wavering);
    assert_eq!(found.limit, Limit::Undecided);
    assert!(found.reason.contains("--copies 2"), "{found:?}");
    // More copies are what settles that.
    let copies = |run: &mut Watched| {
        run.pair.as_mut().unwrap().copies = true;
        wavering(run);
    };
    let found = changed(1.0, copies);
    assert_eq!(found.limit, Limit::Server, "{found:?}");
    assert!(found.reason.starts_with("50 copies did 1.00"), "{found:?}");
    // Connections that the command opened to another server are none of this one's work.
    let other = |run: &mut Watched| network(run).opened.fill(5_000.0);
    let found = changed(1.9, other);
    assert_eq!(
        (found.limit, found.measure.as_str()),
        (Limit::Generator, "bytes")
    );
}

#[test]
fn a_sequence_of_pairs_ends_when_an_interval_of_all_its_looks_decides() {
    assert_eq!(looks().collect::<Vec<_>>(), [6, 9, 12]);
    let doubled = |low: f64, high: f64| Doubled {
        low,
        high,
        ..Doubled::default()
    };
    for (low, high, open) in [
        (1.06, 1.5, false),
        (0.96, 1.04, false),
        (0.5, 0.94, false),
        (0.94, 1.02, true),
        (1.0, 1.2, true),
        (0.8, 1.3, true),
    ] {
        assert_eq!(is_open(&doubled(low, high)), open, "{low} to {high}");
    }
    // At nine pairs a sequence has the wider interval.
    let mut runs = Vec::new();
    for block in 1..=9 {
        for is_double in [false, true] {
            let planted = Planted::busy(0.2, 0.3).with(|run| {
                run.pair = Some(Turn {
                    block,
                    load: 1,
                    doubled: is_double,
                    ..Turn::default()
                });
                let factor = if is_double {
                    1.0 + 0.1 * block as f64
                } else {
                    1.0
                };
                traffic(run).bytes.fill(1e5 * factor);
            });
            runs.push(Run::from_watched(&planted.watched).unwrap());
        }
    }
    let [fixed, sequence] =
        [false, true].map(|at_looks| settle(&["x".to_owned()], &runs, at_looks).unwrap());
    assert!(
        sequence.low < fixed.low && sequence.high > fixed.high,
        "{sequence:?} {fixed:?}"
    );
}

#[test]
fn where_the_server_is_not_seen_the_reason_is_told() {
    let unseen = |why| {
        let with = move |run: &mut Watched| {
            run.server = None;
            run.server_unseen = Some(why);
            traffic(run).hops = vec![Hop {
                name: "slirp4netns".to_owned(),
                pid: 7,
                cpu_s: 0.0,
            }];
        };
        Planted::busy(0.5, 0.0).with(with)
    };
    for (why, words) in [
        (ServerUnseen::Machine, "was not found on this machine"),
        (ServerUnseen::Namespaces, "run judge as root on the host"),
        (ServerUnseen::Owner, "or as the server's user"),
        (ServerUnseen::Forwarder, "through slirp4netns (pid 7)"),
    ] {
        unseen(why).is(Limit::Undecided, words);
    }
    // A forwarder that works as much as a thread may be the limit.
    let forwarder = |cpu_s| {
        let with = move |run: &mut Watched| {
            run.elapsed_s = 10.0;
            traffic(run).hops = vec![Hop {
                name: "docker-proxy".to_owned(),
                pid: 8,
                cpu_s,
            }];
        };
        Planted::busy(0.5, 0.4).with(with)
    };
    forwarder(9.0).is(Limit::Undecided, "docker-proxy (pid 8), which forwards");
    forwarder(6.0).is(Limit::Path, "neither side was busy");
}
