//! Lock services whose servers jostle launches: each is measured on every carrier that
//! it declares, nothing of it is left whatever ends the run, and what is wrong with a
//! server is reported, before the start or in the verdict, without a hang.

use crate::common::{Place, as_json, beside, in_some_try, jostle, reason, rows};
use jostle_model::record::Run;
use jostle_targets::program::{LaunchRecipe, Launched};
use jostle_targets::{
    Entry, Launcher, Mode, Outcome, TABLE, Wait, mariadb, memcached, postgres, prepare,
};
use jostle_testbed::lock_servers as servers;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpListener;

/// Those whose program a Debian package brings.
fn launching() -> impl Iterator<Item = &'static Entry> {
    let packaged = |entry: &&Entry| {
        entry
            .program
            .is_some_and(|program| program.package.is_some())
    };
    TABLE.iter().copied().filter(packaged)
}

/// The run was not the tool's or the server's fault.
#[track_caller]
fn is_faultless(run: &Run) {
    let ours = ["exclusion", "lost_update", "deaths", "errors"];
    let flagged = ours.iter().find_map(|check| reason(run, check));
    assert_eq!(flagged, None, "{} {:?}", run.target, run.at);
}

#[test]
#[ignore = "cargo xtask long"]
fn each_service_is_launched_measured_and_gone_on_every_carrier() {
    let _beside = beside();
    assert!(launching().count() >= 5);
    for carrier in ["processes", "threads", "tasks"] {
        let these = launching().filter(|entry| carrier != "tasks" || entry.carries_tasks());
        let names: Vec<&str> = these.map(|entry| entry.name).collect();
        let line = format!("hold {} --keys 40 -w 3 --as {carrier}", names.join(" "));
        // Each server is started more than once, and some take seconds for it.
        let run = as_json(&line).run();
        let runs = run.measures().leaves_nothing().runs();
        assert_eq!(runs.len(), names.len(), "{line}");
        for run in &runs {
            is_faultless(run);
            assert_eq!(run.operations, 120, "{line}: {}", run.target);
            let server = run.around.accounts.as_ref().unwrap().server_s;
            assert!(server.is_some(), "{line}: {}", run.target);
        }
    }
}

/// A server that processes of its own serve is accounted for with all of them: a
/// statement costs PostgreSQL some 10 us, in the process behind the connection.
#[test]
fn the_cpu_time_of_a_server_is_that_of_all_its_processes() {
    let _beside = beside();
    let line = "stream postgres -n 1000 -w 2 --names own";
    let run = as_json(line).measures().leaves_nothing().only_run();
    is_faultless(&run);
    let server_s = run.around.accounts.unwrap().server_s.unwrap();
    assert!(server_s > 2_000.0 * 5e-6, "{server_s} s for 2000 pairs");
}

/// A cluster of three agrees on each grant, and dies with the run.
fn three_servers_agree(name: &str) {
    let line = format!("contend {name} --members 3 -w 6 -b 1ms -i 0 -t 1 --warmup 500ms");
    let run = in_some_try("grants", || {
        let done = as_json(&line).run();
        let run = done.measures().leaves_nothing().only_run();
        is_faultless(&run);
        (run.operations > 0).then_some(run)
    });
    // Each of three processes has worked for it.
    let server_s = run.around.accounts.unwrap().server_s.unwrap();
    assert!(server_s > 0.0, "{server_s}");
}

#[test]
fn a_cluster_of_etcd_is_launched() {
    let _beside = beside();
    three_servers_agree("etcd");
    let table = "
        contend lockd --members 3 => jostle launches clusters of redis, etcd and zookeeper only
        contend etcd --members 2 => use 1 or 3
        verify lockd --wait-replicas 1 => only clients of redis wait for replicas
        recover redis --wait-replicas 2 => launch more (--members 3)
        contend etcd://127.0.0.1:1 --members 3 => these servers run already
        recover flock --members 2 => jostle launches clusters of redis, etcd and zookeeper only";
    for [line, says] in rows(table) {
        jostle(line).exits(2).says(says).prints_nothing();
    }
}

/// And leaves nothing behind, where each grant waits for two replicas.
#[test]
fn a_group_of_redis_is_launched() {
    let _beside = beside();
    three_servers_agree("redis --wait-replicas 2");
}

#[test]
#[ignore = "cargo xtask long"]
fn an_ensemble_of_zookeeper_is_launched() {
    let _beside = beside();
    three_servers_agree("zookeeper");
}

/// The recipes' own numbers: one request to acquire and one to release, unless it takes more
/// to know who is first.
#[test]
fn round_trips_are_those_of_the_recipe() {
    let _beside = beside();
    for (target, processes, tasks) in [
        ("redis", 2.0, 2.0),
        // What follows a release goes with the next request there.
        ("redisson", 3.0, 2.0),
        ("lockd", 2.0, 2.0),
        ("etcd", 2.0, 2.0),
        ("zookeeper", 3.0, 3.0),
        // The first of 100 takes two, since the key was never there.
        ("nats", 3.98, 3.98),
    ] {
        for (carrier, expected) in [("processes", processes), ("tasks", tasks)] {
            if (target, carrier) == ("etcd", "tasks") {
                continue;
            }
            let line = format!("stream {target} -n 100 -w 1 --as {carrier}");
            let run = as_json(&line).measures().leaves_nothing().only_run();
            is_faultless(&run);
            let traffic = run.traffic.unwrap();
            assert_eq!(traffic.grants, 100, "{line}");
            let (round_trips, bytes) = traffic.for_each_grant().unwrap();
            // A session is kept alive now and then.
            let is_as_expected = (expected..expected + 0.1).contains(&round_trips);
            assert!(is_as_expected, "{line}: {round_trips}");
            assert!((40.0..2_000.0).contains(&bytes), "{line}: {bytes}");
        }
    }
}

#[test]
fn a_service_that_queues_takes_many_requests_at_once() {
    let _beside = beside();
    for entry in launching().filter(|entry| entry.lock.pipeline && entry.lock.fifo) {
        let line = format!("stream {} -n 100 -w 3 --pipeline 20 --as tasks", entry.name);
        let run = as_json(&line).measures().leaves_nothing().only_run();
        is_faultless(&run);
        assert_eq!(run.operations, 300, "{line}");
    }
}

#[test]
fn a_fenced_service_gives_each_grant_a_greater_token() {
    let _beside = beside();
    let directory = tempfile::tempdir().unwrap();
    let ledger = jostle_sys::ledger::Ledger::create_in(directory.path()).unwrap();
    let tokens = |entry: &Entry| -> Vec<u64> {
        let target = prepare(entry, &servers::setup(&ledger, 2)).unwrap();
        let mut locks = [target.join(0).unwrap(), target.join(1).unwrap()];
        let each = (0..6).map(|nth| {
            let lock = &mut locks[nth % 2];
            let granted = lock.acquire(0, Mode::Exclusive, Wait::Try);
            assert_eq!(granted, Ok(Outcome::Granted));
            let token = lock.token().unwrap();
            lock.release(0, Mode::Exclusive).unwrap();
            token
        });
        each.collect()
    };
    let fenced: Vec<_> = launching().filter(|entry| entry.lock.fenced).collect();
    assert!(!fenced.is_empty());
    for entry in fenced {
        let tokens = tokens(entry);
        assert!(
            tokens.is_sorted_by(|one, next| one < next),
            "{}: {tokens:?}",
            entry.name
        );
    }
    ledger.sweep().unwrap();
}

#[test]
fn whatever_is_killed_nothing_of_a_server_is_left() {
    let _beside = beside();
    for (target, program) in [
        ("postgres", "postgres"),
        ("memcached", "memcached"),
        ("nats", "nats-server"),
        // Each in a network namespace.
        ("etcd --members 3", "etcd"),
    ] {
        for parent_only in [true, false] {
            let place = Place::new();
            let line = format!("contend {target} -w 2 -b 1ms -t 10m --runs 1 --quiet");
            let mut run = place.jostle(&line).in_background();
            run.server(program);
            match parent_only {
                true => {
                    run.signal(Signal::KILL);
                }
                false => run.kill_all_at_once(),
            }
            let done = run.end().exits(137);
            // Where all were killed, the next start removes what is left.
            place
                .jostle("contend null -w 1 -t 0.1 --runs 1 --quiet")
                .run();
            done.leaves_nothing();
        }
    }
}

fn launched(recipe: &dyn LaunchRecipe) -> Launched {
    servers::InProcess.follow(recipe).unwrap()
}

#[test]
fn servers_of_the_user_are_taken_with_their_credentials_and_their_limits() {
    let _beside = beside();
    let postgres = launched(&postgres::Launch {
        connections: 16,
        locks_each: 64,
    });
    let mariadb = launched(&mariadb::Launch { connections: 16 });
    for (name, server, variable) in [
        ("postgres", &postgres, "PGPASSWORD"),
        ("mariadb", &mariadb, "MYSQL_PWD"),
    ] {
        let (address, secret) = (&server.address, &server.secret);
        let database = if name == "postgres" { "/postgres" } else { "" };
        let line = format!("stream {name}://jostle@{address}{database} -n 20 -w 2");
        let with = format!("env {variable}={secret}");
        let done = as_json(&line).under(&with).measures();
        is_faultless(&done.only_run());
        assert!(
            done.only_run().around.accounts.unwrap().server_s.is_some(),
            "{line}"
        );
        // In the address, and never shown.
        let whole = format!("stream {name}://jostle:{secret}@{address}{database} -n 20 -w 2");
        let done = as_json(&whole).measures();
        assert!(!done.stdout.contains(secret.as_str()), "{}", done.stdout);
        for (line, says) in [
            (line.clone(), "set $"),
            (line.replace("jostle@", "jostle:wrong@"), "set $"),
            (whole.replace("-w 2", "-w 50"), "fewer workers (-w)"),
        ] {
            let done = as_json(&line).exits(1).says(says);
            assert!(!done.stderr.contains(secret.as_str()), "{}", done.stderr);
        }
    }
    let line = format!(
        "stream postgres://jostle@{}/nowhere -n 20",
        postgres.address
    );
    let with = format!("env PGPASSWORD={}", postgres.secret);
    let done = as_json(&line).under(&with).exits(1);
    done.says("database \"nowhere\" does not exist");
    let memcached = launched(&memcached::Launch {
        connections: 200,
        mebibytes: 64,
    });
    let line = format!("stream memcached://{} -n 20 -w", memcached.address);
    let with = format!(
        "env MEMCACHED_USER=jostle MEMCACHED_PASSWORD={}",
        memcached.secret
    );
    let workers = |count: usize| as_json(&format!("{line} {count}")).under(&with).run();
    is_faultless(&workers(2).measures().only_run());
    workers(300).exits(1).says("memcached -c");
}

#[test]
fn what_is_another_server_or_none_is_told() {
    let _beside = beside();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let place = listener.local_addr().unwrap();
    // It serves as long as the test binary lives.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = stream.read(&mut [0; 512]);
        }
    });
    for name in "postgres mariadb memcached nats etcd zookeeper consul".split(' ') {
        let line = format!("stream {name}://{place} -n 20");
        let done = as_json(&line).exits(1).leaves_nothing();
        done.says("does not speak");
        let line = format!("stream {name}://127.0.0.1:1 -n 20");
        as_json(&line).exits(1).says("is the server running there?");
    }
}

#[test]
fn a_program_that_is_not_installed_is_a_usage_error_with_its_package() {
    // Several are told at once, each program once, with one command that installs them.
    let table = "
        flock consul => consul: the program `consul` is not installed, and Debian has no package of it; name a server of yours, such as consul://HOST:PORT
        redis redisson consul etcd => redis, redisson, consul, etcd: the programs `redis-server`, `consul`, `etcd` are not installed: `apt install redis-server etcd-server` (Debian, which has no package of `consul`); or name servers of yours, such as redis://HOST:PORT
        flock memcached => memcached: the program `memcached` is not installed: `apt install memcached` (Debian); or name a server of yours, such as memcached://HOST:PORT";
    for [targets, says] in rows(table) {
        let run = jostle(&format!("contend {targets} -w 2 -t 0.1 --runs 1"));
        let done = run.under("env PATH=/nowhere").exits(2);
        done.says(says).prints_nothing();
    }
}
