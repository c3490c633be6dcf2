//! `jostle connect`, run for real: every option does what it says, the cliff is
//! found and named, and an interrupt keeps what was finished.
//!
//! Namespaces of their own keep what other programs do to ports and TIME_WAIT
//! out of the counts.

use crate::common::{
    Done, Jostle, Place, Signal, alone, beside, first_line, flat, in_a_network_of_its_own,
    in_some_try, in_some_try_unless_disturbed, jostle, must_have, reason,
};
use jostle_model::connect::Connections;
use jostle_model::record::{Fit, Record, Run};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// One sweep, its records on stdout.
fn sweep(options: &str) -> Jostle {
    jostle(&format!(
        "connect {options} --runs 1 --seed 1 --quiet --format json"
    ))
}

/// Whether jostle says of no point that its server fell behind, or that nobody answered for
/// 5 s, as where one has no CPU.
fn keeps_up(done: &Done) -> bool {
    let behind = |run: &Run| ["accepted", "limit"].map(|check| reason(run, check).is_some());
    let behind = |run: &Run| behind(run).contains(&true);
    !done.runs().iter().any(behind)
}

/// A sweep whose server kept up.
#[track_caller]
fn swept(sweep: impl Fn() -> Jostle) -> Done {
    in_some_try("a server that keeps up", || {
        let done = sweep().run_cleanly();
        keeps_up(&done).then_some(done)
    })
}

/// The runs of a command that must succeed, with how they were closed.
#[track_caller]
fn runs(done: &Done) -> Vec<Run> {
    assert!([0, 3].contains(&done.code()), "{}", done.transcript());
    let mut runs: Vec<Run> = Vec::new();
    for line in done.stdout.lines() {
        match serde_json::from_str(line).unwrap() {
            Record::Run(run) => runs.push(*run),
            Record::Closing(closing) => {
                let added = runs
                    .iter_mut()
                    .filter_map(|p| closing.add_to(p).then_some(()));
                assert_eq!(added.count(), 1, "{line}");
            }
            _ => {}
        }
    }
    for run in &runs {
        let check = run.verdict.reasons.iter().find(|reason| {
            ["deaths", "errors", "limit", "accepted"].contains(&reason.check.as_str())
        });
        assert!(check.is_none(), "{check:?} of {}", done.transcript());
        let connections = connections(run);
        assert_eq!(Some(connections.opened), run.at.open);
        assert_eq!(connections.opened - connections.from, run.operations);
    }
    runs
}

fn connections(run: &Run) -> &Connections {
    run.connections.as_ref().unwrap()
}

fn count(distribution: &Option<jostle_model::record::Distribution>) -> u64 {
    distribution.as_ref().map_or(0, |d| d.count)
}

/// 2000 even ports; the namespace's own, so that a few thousand suffice.
const FEW_PORTS: &str = "echo 32768 36767 > /proc/sys/net/ipv4/ip_local_port_range";

#[test]
fn nothing_said_is_planned_as_one_address_beside_many() {
    let _beside = beside();
    jostle("connect --dry-run")
        .exits(0)
        .prints("targets = [\"tcp\"]")
        .prints("open = [100, 300, 1000, 3000, 10000, 14000, 15000, 20000]")
        .prints("sources = [1, 16]");
}

#[test]
fn many_addresses_and_ports_are_used_in_turn() {
    let _beside = beside();
    // Fewer than wait for a server that gets no CPU.
    let run = || sweep("--open 4000 --sources 4 --ports 2");
    let done = swept(|| in_a_network_of_its_own(run(), FEW_PORTS));
    let run = &runs(&done)[0];
    // 8 pairs of 4000 ports; none needs an odd one.
    assert_eq!(connections(run).pairs, 8);
    assert_eq!(connections(run).parities, Some([4_000, 0]));
    assert_eq!(count(&run.times.bind_ns), 4_000);
}

#[test]
fn bind_alone_connects_to_nobody() {
    let _beside = beside();
    let done = sweep("--only bind --open 1000:3000").run_cleanly();
    let runs = runs(&done);
    assert_eq!(count(&runs[1].times.bind_ns), 2_000);
    assert!(
        runs.iter()
            .all(|p| p.times.connect_ns.is_none() && p.times.accept_ns.is_none())
    );
    assert!(runs.iter().all(|p| p.server.is_none()));
}

#[test]
fn a_path_is_as_good_as_a_port() {
    let _beside = beside();
    let done = swept(|| sweep("unix --open 1000:3000"));
    let runs = runs(&done);
    assert_eq!(count(&runs[1].times.connect_ns), 2_000);
    assert_eq!(runs[1].server.unwrap().difference, Some(0));
    assert_eq!(connections(&runs[1]).parities, None);
}

#[test]
fn a_tracer_runs_along() {
    let _beside = beside();
    let line = "connect --open 1k --rate 1000 --sources 1 --runs 1 --format json --during";
    // A tracer that gets no CPU for a second says nothing.
    let done = in_some_try("the word of a tracer", || {
        let run = jostle(line).word("sh -c 'cat /proc/{pid}/comm; exec sleep 600'");
        let done = run.run_cleanly();
        let said = done.stderr.contains("jostle-client");
        (said && keeps_up(&done)).then_some(done)
    });
    let run = &runs(&done)[0];
    let during = run.around.during.as_ref().unwrap();
    assert!(during.ends_with("exec sleep 600"), "{during}");
}

#[test]
fn descriptors_decide_how_many_processes_there_are() {
    let _beside = beside();
    let done = swept(|| sweep("--open 1000 --sources 1").under("prlimit --nofile=132:132"));
    let sides = runs(&done).remove(0).connections.unwrap();
    let servers = sides.server.unwrap().processes;
    assert!((8..20).contains(&sides.client.processes), "{servers}");
    assert_eq!(servers, sides.client.processes + 1, "one stands by");
}

#[test]
fn a_server_of_somebody_else_is_measured_from_the_client_s_side() {
    let _beside = beside();
    let place = Place::new();
    let path = place.file("socket");
    let (tcp, unix) = (
        TcpListener::bind("127.0.0.1:0").unwrap(),
        UnixListener::bind(&path).unwrap(),
    );
    let targets = [
        format!("tcp://{}", tcp.local_addr().unwrap()),
        format!("unix:{}", path.display()),
    ];
    // They live as long as the tests, and keep what they have accepted.
    std::thread::spawn(move || tcp.incoming().for_each(std::mem::forget));
    std::thread::spawn(move || unix.incoming().for_each(std::mem::forget));
    for target in targets {
        let done = sweep(&format!("{target} --open 20:60")).run_cleanly();
        let runs = runs(&done);
        assert_eq!(count(&runs[1].times.connect_ns), 40);
        assert!(runs[1].times.accept_ns.is_none() && runs[1].server.is_none());
        assert!(connections(&runs[1]).server.is_none());
    }
}

#[test]
fn a_result_can_be_run_again_and_is_reported_as_it_was_printed() {
    let place = Place::beside_others();
    let line = "connect --open 500:1500 --sources 1:2 --runs 1 --seed 9 -o first.jsonl --quiet";
    let done = place.jostle(line).run_cleanly().measures();
    let again = place.jostle("report first.jsonl").exits(0);
    assert_eq!(done.stdout, again.stdout);
    let done = swept(|| place.jostle("run first.jsonl --quiet --format json"));
    assert_eq!(runs(&done).len(), 4);
    for format in ["csv", "markdown", "gnuplot"] {
        place
            .jostle(&format!("report first.jsonl --format {format}"))
            .exits(0);
    }
}

#[test]
fn an_interrupt_keeps_the_points_that_were_reached() {
    let _beside = beside();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let place = Place::new();
        let line = "connect --open 100:20k --sources 1 --rate 400 --runs 1 -o result.jsonl";
        let mut run = place.jostle(line).in_background();
        run.until_runs("result.jsonl", 1);
        run.signal(signal);
        let done = run.end().exits(code).says("interrupted").leaves_nothing();
        let runs = done.place.runs("result.jsonl");
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0].operations, 100);
        done.prints("100");
    }
}

#[test]
fn whoever_is_killed_nothing_stays_behind() {
    let _beside = beside();
    let line = "connect --open 100:20k --sources 1 --rate 400 --runs 1 -o result.jsonl";
    let started = || {
        let mut run = Place::new().jostle(line).in_background();
        run.until_runs("result.jsonl", 1);
        run
    };
    let mut run = started();
    let keeper = run.keeper();
    run.kill(keeper);
    let says = format!("the keeper process (pid {keeper}) ended unexpectedly (SIGKILL)");
    run.end().exits(1).says(&says).leaves_nothing();
    let mut run = started();
    run.keeper();
    run.signal(Signal::KILL);
    run.end().exits(137).leaves_nothing();
}

#[test]
fn a_client_that_dies_makes_its_point_invalid_and_keeps_the_others() {
    let place = Place::beside_others();
    let line = "connect --open 100:20k --sources 1 --rate 400 --runs 1 -o result.jsonl";
    let mut run = place.jostle(line).in_background();
    run.until_runs("result.jsonl", 1);
    let keeper = run.keeper();
    let children = crate::common::processes::children(keeper);
    let client = children.iter().find(|child| child.name == "jostle-client");
    run.kill(client.unwrap().pid);
    let done = run.end().exits(3).leaves_nothing();
    let runs = done.place.runs("result.jsonl");
    assert_eq!(runs.len(), 2);
    assert!(runs[0].around.deaths.is_empty());
    assert!(
        runs[1].around.deaths[0].contains("client 0"),
        "{:?}",
        runs[1].around.deaths
    );
}

/// Four processes of a server accept at one port, each so many connections and no more.
#[test]
fn connections_at_the_processes_of_another_s_server_are_counted() {
    must_have("python3", "python3");
    let _beside = beside();
    let script = "import os, socket, sys, time\n\
        s = socket.create_server(('127.0.0.1', 0), backlog=1000)\n\
        print(s.getsockname()[1], flush=True)\n\
        most = int(sys.argv[1])\n\
        for of in sys.argv[2:]:\n\
        \x20   if os.fork() == 0: most = int(of); break\n\
        kept = [s.accept() for _ in range(most)]; time.sleep(600)";
    let accepted = |most: [u64; 4], rate: u32| {
        let mut server = Command::new("python3")
            .args(["-c", script])
            .args(most.map(|most| most.to_string()))
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let port = first_line(&mut server);
        let line = format!("tcp://127.0.0.1:{port} --open 200 --rate {rate}");
        let runs = runs(&sweep(&line).run());
        let group = rustix::process::Pid::from_child(&server);
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
        let _ = server.wait();
        let mut accepted = connections(&runs[0]).accepted.clone();
        accepted.sort_by_key(|count| std::cmp::Reverse(*count));
        accepted
    };
    for most in [[50, 50, 50, 50], [185, 5, 5, 5]] {
        // A server that is late has accepted fewer by then.
        let mut rate = 400;
        in_some_try("the connections of each process", || {
            let found = accepted(most, rate);
            rate /= 2;
            (found == most).then_some(())
        });
    }
}

#[test]
fn every_connection_is_counted_on_both_sides_with_ports_by_parity() {
    let _beside = beside();
    let run = || sweep("--open 500:2000:3000 --sources 1");
    let done = swept(|| in_a_network_of_its_own(run(), FEW_PORTS));
    let runs = runs(&done);
    let opened: Vec<u64> = runs.iter().map(|p| p.operations).collect();
    assert_eq!(opened, [500, 1_500, 1_000]);
    for run in &runs {
        assert_eq!(count(&run.times.connect_ns), run.operations);
        assert_eq!(count(&run.times.accept_ns), run.operations);
        assert_eq!(count(&run.times.close_ns), run.operations);
        assert_eq!(count(&run.times.server_close_ns), run.operations);
        let server = run.server.unwrap();
        assert_eq!(server.counted, run.at.open);
        assert_eq!(server.difference, Some(0));
        assert!(run.times.bind_ns.is_none(), "one address is not bound");
    }
    let parities: Vec<[u64; 2]> = runs
        .iter()
        .filter_map(|p| connections(p).parities)
        .collect();
    assert_eq!(parities, [[500, 0], [1_500, 0], [0, 1_000]]);
    let last = connections(&runs[2]);
    assert_eq!(last.time_wait_left, Some(3_000));
    assert_eq!(last.pairs, 1);
    assert_eq!(last.next_limits[0].at, 4_000);
    assert!(last.decades["100..1k"].connect_ns_p50.is_some());
    assert!(last.decades["1k..10k"].close_ns_p50.is_some());
    let own = [&last.client, last.server.as_ref().unwrap()].map(|side| side.own_bytes_each);
    assert!(own.iter().all(Option::is_some), "{own:?}");
    assert!(last.slab_bytes_each.is_some());
}

#[test]
fn a_reset_leaves_no_time_wait() {
    let _beside = beside();
    let run = || sweep("--open 2000 --sources 1 --close rst");
    let done = swept(|| in_a_network_of_its_own(run(), "true"));
    assert_eq!(connections(&runs(&done)[0]).time_wait_left, Some(0));
}

#[test]
fn other_listening_sockets_are_there() {
    let _beside = beside();
    let run = || sweep("--open 1000 --listeners 0:2500 --sources 1");
    let done = swept(|| in_a_network_of_its_own(run(), "true"));
    let runs = runs(&done);
    let in_use = |listeners| {
        let point = runs.iter().find(|p| p.at.listeners == Some(listeners));
        connections(point.unwrap()).sockstat["inuse"]
    };
    // Ours, and both ends of each connection.
    assert_eq!([in_use(0), in_use(2_500)], [2_001, 4_501]);
}

#[test]
fn acceptors_share_in_every_way() {
    let _beside = beside();
    for how in ["shared", "epollexclusive", "reuseport"] {
        let line = format!("--open 3000 --sources 1 --acceptors 3 --accept {how}");
        let done = swept(|| sweep(&line));
        let point = &runs(&done)[0];
        let accepted = &connections(point).accepted;
        assert_eq!(accepted.len(), 3, "{how}");
        assert_eq!(accepted.iter().sum::<u64>(), 3_000, "{how}");
        if how == "reuseport" {
            // By hash: the chance that one gets under 800 is less than 1 in 10^15.
            assert!(accepted.iter().all(|n| *n > 800), "{accepted:?}");
        }
    }
}

/// Tests that judge figures of this machine.
mod figures {
    use super::*;

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_connection_takes_its_known_share_of_the_kernel_s_memory() {
        let _alone = alone();
        let run = sweep("--open 3000 --sources 1");
        let done = in_a_network_of_its_own(run, FEW_PORTS).run_cleanly();
        let runs = runs(&done);
        let last = connections(&runs[0]);
        let own = [&last.client, last.server.as_ref().unwrap()].map(|side| side.own_bytes_each);
        // Mostly what a process takes by itself.
        let few = |each: &Option<f64>| each.is_some_and(|bytes| bytes * 3_000.0 < 8e6);
        assert!(own.iter().all(few), "{own:?}");
        let slab = last.slab_bytes_each.unwrap();
        assert!((4_000.0..20_000.0).contains(&slab), "{slab}");
        assert!(last.slab_caches["TCP"] > 3_000.0, "{:?}", last.slab_caches);
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn one_source_address_stands_beside_many_and_the_cliff_is_named() {
        let _alone = alone();
        in_some_try("the cliff", || {
            let run = jostle("connect --open 1k:1900:2500:3500 --quick --quiet");
            let done = in_a_network_of_its_own(run, FEW_PORTS).run();
            let text = flat(&done.stdout);
            let figures = [
                "tcp from 1 source: connect() takes",
                "times as long with 2,500 open as with 1,900",
                "the 2,000 even ports of 32768-36767 are used up, and each call looks at all of them \
                 again before it tries the odd ones.",
                "bind to several source addresses: --sources 16 has no cliff here",
                "tcp from 16 sources: connect()",
            ];
            let counts = [
                "21,000 connections, each accepted.",
                "The next limit: ephemeral ports at 4,000 (tcp from 1 source); ephemeral ports at 64,000",
            ];
            // Other programs may leave no figure to speak of.
            let figures = if done.is_disturbed() {
                &[][..]
            } else {
                &figures
            };
            let mut named = figures.iter().chain(&counts);
            let missing = named.find(|words| !text.contains(**words));
            if let Some(words) = missing {
                eprintln!("no {words:?} in {}", done.transcript());
            }
            done.leaves_nothing();
            missing.is_none().then_some(())
        });
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn an_offered_rate_is_kept_and_timed_from_the_intended_start() {
        let _alone = alone();
        in_some_try("a rate that is kept", || {
            let done = sweep("--open 500:2000 --sources 1 --rate 4000").run_cleanly();
            let mut is_kept = true;
            for run in runs(&done) {
                let least_s = (run.operations - 1) as f64 / 4_000.0;
                assert!(
                    run.window.window_s >= 0.999 * least_s,
                    "{} s",
                    run.window.window_s
                );
                // Who is late catches up, unless it was at the end; and each interval begins
                // anew after a rest.
                is_kept &= run.window.window_s < 1.25 * least_s + 0.02;
                assert_eq!(count(&run.times.response_ns), run.operations);
                let (response, connect) = (
                    run.times.response_ns.unwrap(),
                    run.times.connect_ns.unwrap(),
                );
                assert!(response.mean > connect.mean);
                assert!(run.connections.unwrap().lag_ns.is_some());
            }
            is_kept.then_some(())
        });
    }

    /// A million a second is more than any machine opens: each is later than the one
    /// before, and only from the intended start can that be seen.
    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_rate_that_is_not_kept_shows_in_the_response_and_not_in_connect() {
        let _alone = alone();
        let done = sweep("--open 2000 --sources 1 --rate 1000000").run_cleanly();
        let run = runs(&done).remove(0);
        let (response, connect) = (
            run.times.response_ns.unwrap(),
            run.times.connect_ns.unwrap(),
        );
        assert!(
            response.mean > 20.0 * connect.mean,
            "{response:?} {connect:?}"
        );
        let lag_ns = run.connections.unwrap().lag_ns.unwrap();
        assert!(lag_ns as f64 > 0.9 * response.mean, "{lag_ns} {response:?}");
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn the_growth_of_the_cliff_is_a_bend_and_no_smooth_law() {
        let _alone = alone();
        in_some_try_unless_disturbed("the bend", || {
            let line = "connect -v --open 100:500:1000:1500:1900:2200:2500:3000:3500 --sources 1 \
                        --runs 6 --quiet -o cliff.jsonl";
            let place = Place::new();
            let done = in_a_network_of_its_own(place.jostle(line), FEW_PORTS).run_cleanly();
            let done = done.measures();
            let fits: Vec<Fit> = place
                .read("cliff.jsonl")
                .lines()
                .filter_map(|line| match serde_json::from_str(line).unwrap() {
                    Record::Fit(fit) => Some(*fit),
                    _ => None,
                })
                .collect();
            // None, or one of fewer points, where points are INVALID.
            let whole = |fit: &&Fit| fit.figure == "connect_p50_ns" && fit.values == 9;
            let Some(fit) = fits.iter().find(whole) else {
                return (done, false);
            };
            assert_eq!((fit.over.as_str(), fit.from, fit.to), ("open", 100, 3_500));
            // Sweeps that other programs spoilt are made again.
            assert!(fit.runs >= 6, "{fit:?}");
            let words = "time in connect() follows no simple law from 100 to 3,500 connections: it \
                         bends between 1,900 and 2,200";
            let is_told = flat(&done.stdout).contains(words);
            let found = fit.finding == "bends" && fit.laws.is_empty() && is_told;
            (done, found)
        });
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn two_results_are_compared_by_the_median_of_connect() {
        let _alone = alone();
        let place = Place::new();
        let sweep = |file: &str| {
            let line = format!("connect --open 300:1000 --sources 1 --runs 6 --quiet -o {file}");
            place.jostle(&line).run_cleanly().measures();
        };
        in_some_try("an anchor of each point", || {
            let _ = std::fs::remove_file(place.file("base.jsonl"));
            sweep("base.jsonl");
            let records = place.read("base.jsonl");
            let mut anchored: BTreeMap<u32, Vec<bool>> = BTreeMap::new();
            for line in records.lines() {
                if let Record::Closing(point) = serde_json::from_str(line).unwrap() {
                    let of_run = anchored.entry(point.run).or_default();
                    of_run.push(point.anchor.is_some());
                }
            }
            // A block that other programs spoilt is made again.
            assert!(anchored.len() >= 6, "{anchored:?}");
            // A sweep whose CPUs were taken away for half a second has no anchor.
            let whole = |of_run: &Vec<bool>| *of_run == [true; 2] || *of_run == [false; 2];
            assert!(anchored.values().all(whole), "{anchored:?}");
            anchored.into_values().flatten().any(|is| is).then_some(())
        });
        sweep("new.jsonl");
        let done = place.jostle("compare base.jsonl new.jsonl --all").run();
        // On a busy machine nothing may be decided.
        assert!([0, 3, 4].contains(&done.code()), "{}", done.transcript());
        done.prints("1,000 connections, 1 source address  connect ns")
            .prints("kernel bytes")
            .prints("accept ns");
        let done = place.jostle("compare base.jsonl new.jsonl").run();
        assert_eq!(done.stdout.matches("connect ns").count(), 2);
        assert!(!done.stdout.contains("ops/s"), "{}", done.transcript());
    }
}
