//! Lock services that fail while they are measured: a server that is killed, a disk that
//! is full, a clock that is set. Each run ends soon, with a message that names the
//! server and what was seen or with a verdict, and what was finished is kept.

use crate::common::servers::{etcd_server, keys_of_redis, redis_server, serves};
use crate::common::small_disk::SmallDisk;
use crate::common::{
    Done, Place, Signal, beside, flat, in_some_try, jostle, must_have, processes, reason,
};
use jostle_model::record::{Run, Status};
use jostle_targets::program::LaunchRecipe;
use jostle_targets::{etcd, zookeeper};
use jostle_testbed::clusters::{Cluster, wait_for};
use jostle_testbed::lock_servers::followed;
use jostle_testbed::ports::free_port;
use jostle_testbed::set_clock::SetClock;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// It was once looked at only when the window was over, and was told as a server that
/// refuses connections.
#[test]
fn a_server_that_is_killed_is_named_and_the_run_ends_at_once() {
    let _beside = beside();
    must_have("memcached", "memcached");
    for carrier in ["processes", "threads", "tasks"] {
        let place = Place::new();
        let line = "contend memcached -w 2 -b 1ms -t 10m --runs 1 -o points --quiet";
        let line = format!("{line} --as {carrier}");
        let run = place.jostle(&line);
        let mut run = run.in_background();
        let server = run.server("memcached");
        run.kill(server);
        let done = run.end().ends_within_a_minute();
        let done = done.leaves_nothing();
        is_named(&done, &place.runs("points"), &line);
    }
}

#[test]
fn what_was_finished_before_a_server_died_is_kept() {
    let _beside = beside();
    must_have("memcached", "memcached");
    let line = "contend memcached -w 2 -b 1ms -t 0.3 --runs 200 -o points";
    // One that dies while it is launched is told in other words.
    in_some_try("a server that dies while it is used", || {
        let place = Place::new();
        let mut run = place.jostle(line).in_background();
        run.until_runs("points", 1);
        run.kill_servers("memcached");
        let done = run.end().exits(3).leaves_nothing();
        let done = done.says("finished points are printed above");
        let kept = place.runs("points");
        assert!(kept.iter().any(|run| run.operations > 0), "{kept:?}");
        done.stderr.contains("that jostle launched").then_some(())
    });
}

/// A worker whose call failed makes its point INVALID; before the common start the run cannot be
/// made, which is an error where no other was.
#[track_caller]
fn is_named(done: &Done, runs: &[Run], line: &str) {
    let launched = "that jostle launched";
    match done.code() {
        1 => assert!(done.stderr.contains(launched), "{}", done.transcript()),
        3 => {
            let deaths = reason(&runs[0], "deaths").expect("deaths");
            assert_eq!(deaths.is, Status::Invalid, "{line}");
            assert!(deaths.text.contains(launched), "{}", deaths.text);
        }
        other => panic!("{line}: {other}, {}", done.transcript()),
    }
}

#[test]
#[ignore = "cargo xtask long"]
fn whatever_a_run_does_when_its_server_dies_it_ends_soon_and_names_it() {
    let _beside = beside();
    let verbs = [
        "contend {} -w 3 -b 1ms -t 10m",
        "stream {} -n 10000000 -w 2",
        "hold {} -w 2 --keys 100000",
        "rate {} -w 4 --rate 100 -t 5",
    ];
    for (target, program, carriers) in [
        ("redis", "redis-server", &["processes", "tasks"][..]),
        ("postgres", "postgres", &["processes", "tasks"]),
        ("memcached", "memcached", &["processes"]),
        ("nats", "nats-server", &["processes", "tasks"]),
        ("etcd", "etcd", &["processes"]),
        ("zookeeper", "java", &["processes", "tasks"]),
        ("mariadb", "mariadbd", &["threads"]),
    ] {
        for verb in verbs {
            let carriers = match verb.starts_with("rate") {
                true => &carriers[..1],
                false => carriers,
            };
            for carrier in carriers {
                let place = Place::new();
                let line = verb.replace("{}", target);
                let line = format!("{line} --runs 1 --as {carrier} -o points --quiet");
                let run = place.jostle(&line);
                let mut run = run.in_background();
                run.kill_servers(program);
                let done = run.end().leaves_nothing();
                let done = done.ends_within_a_minute();
                is_named(&done, &place.runs("points"), &line);
            }
        }
    }
}

#[test]
fn a_disk_too_small_for_a_server_is_named_with_the_way_out() {
    let _beside = beside();
    must_have("etcd", "etcd-server");
    let place = Place::new();
    place.make_directory("disk");
    let disk = place.file("disk");
    let _disk = SmallDisk::mount(&disk, "16m");
    let run = place.jostle("contend etcd -w 2 -t 1 --runs 1");
    let run = run.under(&format!("env TMPDIR={}", disk.display()));
    run.exits(1)
        .says("no space left on device")
        .says("set $TMPDIR to a larger disk")
        .leaves_nothing();
    assert_eq!(place.list("disk"), [""; 0]);
}

#[test]
fn redis_on_a_full_disk_is_told_in_its_words_within_a_run_and_before_the_next() {
    let place = Place::beside_others();
    place.make_directory("disk");
    let disk = place.file("disk");
    let _disk = SmallDisk::mount(&disk, "256k");
    let port = free_port().unwrap();
    let options = ["--appendonly", "yes", "--dir", disk.to_str().unwrap()];
    let _server = serves(port, &mut redis_server(port, &options));
    let line = format!("contend redis://127.0.0.1:{port} -w 4 -b 0 -i 0 -t 1 --runs 1 --quiet");
    let mut fill = 0;
    // A slow machine needs more than a second for 256 KB.
    let full = loop {
        let done = place.jostle(&line).run().leaves_nothing();
        if done.code() != 0 {
            break done;
        }
        fill += 1;
        assert!(fill < 20, "{}", done.transcript());
    };
    let said = "MISCONF Errors writing to the AOF file: No space left on device";
    // In a run it is the reason of its verdict, in the measurement before that an error.
    let told = flat(&(full.stdout.clone() + &full.stderr));
    assert!(told.contains(said), "{}", full.transcript());
    let next = place.jostle(&line).exits(1);
    next.says(said).prints_nothing().leaves_nothing();
}

/// Any write is beyond its quota, that of a lease too.
#[test]
fn etcd_whose_quota_is_used_up_is_told_before_the_first_worker_with_the_way_out() {
    let place = Place::beside_others();
    let (own, peers) = (free_port().unwrap(), free_port().unwrap());
    let mut etcd = etcd_server(own, peers, &place.file("data"));
    let _server = serves(own, etcd.args(["--quota-backend-bytes", "1"]));
    let line = format!("stream etcd://127.0.0.1:{own} -n 20 -w 2 --runs 1");
    let done = place.jostle(&line).exits(1).leaves_nothing();
    done.says("mvcc: database space exceeded")
        .says("etcdctl alarm disarm");
}

/// Locks that were kept by a server that stood still for three of their leases.
#[test]
fn leases_that_end_because_the_server_stands_still_are_counted_and_named() {
    let place = Place::beside_others();
    let port = free_port().unwrap();
    let server = serves(port, &mut redis_server(port, &[]));
    let line = format!("hold redis://127.0.0.1:{port} --keys 10 --for 12s --lease 1s -o points");
    let run = place.jostle(&line).in_background();
    // A pilot holds them for a moment only. The eleventh key is the marker beside the locks.
    let mut seen = 0;
    for _ in 0..600 {
        let are_held = keys_of_redis(("127.0.0.1", port)) == 11;
        seen = if are_held { seen + 1 } else { 0 };
        if seen == 10 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(seen, 10, "the locks are never held");
    processes::signal(server.0.id(), Signal::STOP);
    std::thread::sleep(Duration::from_secs(3));
    processes::signal(server.0.id(), Signal::CONT);
    let done = run.end().exits(3).leaves_nothing();
    let runs = place.runs("points");
    let said = reason(&runs[0], "leases").expect("leases");
    assert_eq!(said.is, Status::Invalid, "{}", done.transcript());
    let lapsed = runs[0].kept.as_ref().unwrap().lapsed;
    assert!((1..=10).contains(&lapsed), "{lapsed}");
    let text = format!("the leases of {lapsed} of 10 locks ended while they were held");
    assert!(said.text.starts_with(&text), "{}", said.text);
    assert!(
        runs[0].around.errors.is_empty(),
        "{:?}",
        runs[0].around.errors
    );
    // Beside others it has more reasons, of less gravity.
    done.prints("INVALID[1").prints("[1] the leases of");
}

/// Redis counts leases by the wall clock. Here it is set forward by an hour again and
/// again, so that each lease of 30 s ends while its owner holds.
#[test]
fn leases_that_end_before_their_time_are_seen_by_the_witness() {
    let place = Place::beside_others();
    let clock = SetClock::new();
    let port = free_port().unwrap();
    let _server = serves(port, clock.give(&mut redis_server(port, &[])));
    let line = format!("contend redis://127.0.0.1:{port} -w 2 -b 100ms -t 1 --runs 1");
    let is_over = AtomicBool::new(false);
    // What pairs cost is asked while the clock is right.
    let mut run = place
        .jostle(&format!("{line} --format json"))
        .in_background();
    run.until_workers(2);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            for hours in 1.. {
                if is_over.load(Relaxed) {
                    return;
                }
                clock.set(hours * 3_600);
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        let done = run.end();
        is_over.store(true, Relaxed);
        done
    });
    let run = done.exits(3).leaves_nothing().only_run();
    let exclusion = reason(&run, "exclusion").unwrap();
    assert_eq!(exclusion.is, Status::Invalid);
    let because = "the server's clock was set by +";
    assert!(exclusion.text.contains(because), "{}", exclusion.text);
    let said = &run.around.messages;
    let told = |text: &String| text.contains("no longer ours");
    assert!(said.iter().any(told), "{said:?}");
}

/// ZooKeeper's clients ping while they hold. Its session is of 6 s at most here.
#[test]
fn a_hold_that_outlasts_its_session_is_kept_by_pings_and_lost_without() {
    let _beside = beside();
    must_have("/usr/share/java/zookeeper.jar", "zookeeper");
    let alone = zookeeper::Launch::members(1, Duration::from_millis(600)).unwrap();
    let address = followed(&alone[0]).unwrap().address;
    let line = "-w 1 -b 7s -t 8 --runs 1 --format json";
    for (how, kept) in [
        ("--as processes", true),
        ("--as tasks", true),
        ("--renew no", false),
    ] {
        // A client that gets no CPU for as long as a session pings too late.
        in_some_try(how, || {
            let run = jostle(&format!("contend zookeeper://{address} {line} {how}")).run();
            let point = run.leaves_nothing().only_run();
            let is_faultless = reason(&point, "errors").is_none();
            (is_faultless == kept && (point.operations > 0) == kept).then_some(())
        });
    }
}

/// The member of an etcd cluster that leads, by its own metrics.
fn leader(cluster: &Cluster) -> Option<usize> {
    let leads = |address: &String| {
        let mut stream = TcpStream::connect(address).ok()?;
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.contains("etcd_server_is_leader 1").then_some(())
    };
    cluster
        .addresses
        .iter()
        .position(|address| leads(address).is_some())
}

/// Kills a member of the cluster while a run of `contend` is under way. The point.
fn loses_a_member<R: LaunchRecipe>(
    name: &str,
    recipes: &[R],
    member: impl Fn(&Cluster) -> Option<usize>,
) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(directory.path(), recipes);
    let line = "-w 3 -b 5ms -i 0 -t 14 --runs 1 --format json";
    let line = format!("contend {name}:{} {line}", cluster.argument());
    let mut run = jostle(&line).in_background();
    // A pilot's workers live for less.
    let (mut seen, mut since) = (Vec::new(), Instant::now());
    run.until("the workers of the run", |run| {
        let now: Vec<u32> = run.workers().iter().map(|worker| worker.pid).collect();
        if now != seen || now.len() < 3 {
            (seen, since) = (now, Instant::now());
        }
        (since.elapsed() > Duration::from_secs(4)).then_some(())
    });
    let mut found = None;
    wait_for("a member to be killed", || {
        found = member(&cluster);
        found.is_some()
    });
    drop(cluster.members.remove(found.unwrap()));
    run.end().leaves_nothing().only_run()
}

/// The member may be killed when the window is over, and the machine stand still at its end.
#[track_caller]
fn goes_on_elsewhere(mut measure: impl FnMut() -> Run) {
    let run = &in_some_try("grants after a member was killed", || {
        let run = measure();
        let is_told = run.traffic?.failovers.is_some();
        (is_told && run.series.last()?.operations > 0).then_some(run)
    });
    assert_eq!(
        run.around.errors,
        Default::default(),
        "{:?}",
        run.around.messages
    );
    assert!(run.traffic.unwrap().failovers.is_some(), "{run:?}");
    let said = format!("{:?}", run.verdict);
    assert!(!said.contains("wake-up"), "{said}");
    let slices = &run.series;
    assert!(slices.last().unwrap().operations > 0, "{slices:?}");
}

/// Workers once stayed at the server that was gone, which was told as a lost wake-up.
#[test]
fn workers_go_on_at_another_member_of_etcd_when_their_leader_is_killed() {
    let _beside = beside();
    must_have("etcd", "etcd-server");
    let members = etcd::Launch::members(3).unwrap();
    goes_on_elsewhere(|| loses_a_member("etcd", &members, leader));
}

#[test]
#[ignore = "cargo xtask long"]
fn workers_go_on_at_another_server_of_zookeeper_when_theirs_is_killed() {
    let _beside = beside();
    must_have("/usr/share/java/zookeeper.jar", "zookeeper");
    let members = zookeeper::Launch::members(3, Duration::from_secs(4)).unwrap();
    goes_on_elsewhere(|| loses_a_member("zookeeper", &members, |_| Some(0)));
}

/// Half a minute of silence once preceded a run with a member that was gone, which nothing
/// mentioned.
#[test]
fn a_member_that_is_gone_is_named_before_the_start_and_passed_over() {
    let _beside = beside();
    must_have("etcd", "etcd-server");
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(directory.path(), &etcd::Launch::members(3).unwrap());
    let argument = cluster.argument();
    drop(cluster.members.remove(0));
    let dead = format!("{} does not take connections", cluster.addresses[0]);
    for line in [
        "contend etcd:{} -w 2 -t 0.3 --runs 1",
        "stream etcd:{} -n 5 -w 2 --runs 1",
    ] {
        let done = jostle(&line.replace("{}", &argument)).run();
        done.leaves_nothing().says(&dead);
    }
}
