//! Lock services under `contend`, `stream` and `hold`, on every carrier: real
//! servers count what the workers did, nothing stays on them whatever ends a
//! worker, and what bounds a rate is said.

use crate::common::servers::keys_of_redis;
use crate::common::{
    Place, alone, as_json, beside, flat, in_some_try, in_some_try_unless_disturbed, jostle, reason,
};
use jostle_model::record::{Run, Status};
use jostle_testbed::certificate::Certificate;
use jostle_testbed::fake_consul::FakeConsul;
use jostle_testbed::lock_servers as servers;
use std::time::Duration;

const CARRIERS: [&str; 3] = ["processes", "threads", "tasks"];

/// The Redis of this test binary, as typed.
fn redis() -> String {
    format!("redis:{}", servers::argument("redis").unwrap())
}

#[track_caller]
fn has_no_keys_left() {
    let address = servers::argument("redis").unwrap();
    let keys = keys_of_redis(address.trim_start_matches("//"));
    assert_eq!(keys, 0, "keys on the Redis");
}

/// A faultless run that grants: a machine may stand still for a whole window.
#[track_caller]
fn grants(line: &str) -> Run {
    in_some_try("grants in the window", || {
        let run = as_json(line).measures().leaves_nothing().only_run();
        is_faultless(&run);
        (run.operations > 0).then_some(run)
    })
}

/// Every reason is the machine's fault, not that of the server or the tool.
#[track_caller]
fn is_faultless(run: &Run) {
    const OURS: [&str; 5] = [
        "exclusion",
        "lost_update",
        "deaths",
        "errors",
        "server_counts",
    ];
    let flagged = OURS.iter().find_map(|check| reason(run, check));
    assert_eq!(flagged, None, "{} {:?}", run.target, run.at);
}

#[test]
fn a_server_that_wants_a_password_gets_it_from_the_environment() {
    let _beside = beside();
    let [redis, lockd] = servers::guarded("open-sesame");
    let table = [(&redis, "REDISCLI_AUTH"), (&lockd, "JOSTLED_PASSWORD")];
    for (target, variable) in table {
        for carrier in ["processes", "tasks"] {
            let line = format!("stream {target} -n 20 -w 2 --as {carrier}");
            let with = format!("env {variable}=open-sesame");
            let run = as_json(&line).under(&with).measures().only_run();
            assert_eq!(run.operations, 40, "{line}");
            is_faultless(&run);
        }
        let line = format!("stream {target} -n 20");
        as_json(&line).exits(1).says("NOAUTH");
        // From a file, whose password neither results nor messages show.
        let place = Place::new();
        let from_file =
            format!("contend {target} -w 2 -b 1ms -t 0.2 --runs 1 --quiet --credentials own -o");
        std::fs::write(place.file("own"), "\nopen-sesame\n").unwrap();
        place.jostle(&format!("{from_file} well.jsonl")).measures();
        let kept = std::fs::read_to_string(place.file("well.jsonl")).unwrap();
        assert!(!kept.contains("open-sesame"), "{kept}");
        std::fs::write(place.file("own"), "\nwrong-word\n").unwrap();
        let refused = place.jostle(&format!("{from_file} ill.jsonl")).exits(1);
        let refused = refused.says("AUTH: WRONGPASS").leaves_nothing();
        assert!(!refused.stderr.contains("wrong-word"), "{}", refused.stderr);
        let with = format!("env {variable}=wrong");
        as_json(&line).under(&with).exits(1).says("AUTH: WRONGPASS");
    }
}

#[test]
fn streams_and_holds_on_redis_are_whole_and_leave_no_key() {
    let _beside = beside();
    let redis = redis();
    for carrier in CARRIERS {
        for (line, operations) in [
            (format!("stream {redis} -n 200 -w 3"), 600),
            (
                format!("stream {redis} -n 500 -w 3 --names own --pipeline 20"),
                1_500,
            ),
            (format!("hold {redis} --keys 400 -w 3"), 1_200),
            (
                format!("hold {redis} --keys 4000 -w 3 --pipeline 100"),
                12_000,
            ),
        ] {
            let run = as_json(&format!("{line} --as {carrier}"))
                .measures()
                .leaves_nothing()
                .only_run();
            assert_eq!(run.operations, operations, "{line} {carrier}");
            is_faultless(&run);
            has_no_keys_left();
            if line.starts_with("hold") {
                let bytes = run.server.unwrap().bytes_per_held_lock.unwrap();
                assert!(
                    (50.0..2_000.0).contains(&bytes),
                    "{line} {carrier}: {bytes}"
                );
            }
        }
    }
}

/// Redis does not queue, so that a grant can come after the window.
#[test]
fn contention_on_redis_leaves_no_key() {
    let _beside = beside();
    let redis = redis();
    for carrier in CARRIERS {
        for options in ["", "--acquire-timeout 3ms", "--try", "--measure counts"] {
            let line = format!("contend {redis} -w 20 -b 1ms -t 0.1 --as {carrier} {options}");
            grants(&line);
            has_no_keys_left();
        }
    }
}

/// A waiter whose attempt is over when the lock is granted to it gives it back.
#[test]
fn contention_by_redisson_s_recipe_leaves_no_key() {
    let _beside = beside();
    let redisson = redis().replace("redis:", "redisson:");
    for (carrier, options) in [
        ("processes", ""),
        ("processes", "--acquire-timeout 3ms"),
        ("tasks", ""),
        ("tasks", "--acquire-timeout 3ms"),
        ("tasks", "--try"),
    ] {
        let line = format!("contend {redisson} -w 20 -b 1ms -t 0.1 --as {carrier} {options}");
        grants(&line);
        has_no_keys_left();
    }
}

/// Tasks read and write sockets that never wait; pipelined requests come and go together.
#[test]
fn redis_over_tls_is_measured_on_every_carrier() {
    let place = Place::beside_others();
    let own = Certificate::make(place.path(), "IP:127.0.0.1").unwrap();
    let redis = servers::redis_with_tls(&own);
    for carrier in ["threads", "tasks"] {
        let line = format!("stream {redis} -n 1000 -w 2 --names own --pipeline 50 --as {carrier}");
        let run = as_json(&line).measures().leaves_nothing().only_run();
        is_faultless(&run);
        assert_eq!(run.operations, 2_000, "{line}");
        assert!(run.target.starts_with("rediss"), "{}", run.target);
    }
    let line = format!("contend {redis} -w 50 -b 0 -i 0 -t 0.3 --as tasks");
    grants(&line);
    let plainly = redis
        .replace("rediss:", "redis:")
        .replace("?ca=", "?sslmode=disable&ca=");
    let refused = as_json(&format!("stream {plainly} -n 1")).run();
    refused.exits(1).says("if the server wants TLS, write ?tls");
}

/// On a server of ours that answers as Consul does.
#[test]
fn every_verb_takes_consul_and_leaves_neither_sessions_nor_keys() {
    let _beside = beside();
    let fake = FakeConsul::start().unwrap();
    let consul = format!("consul://{}", fake.address);
    for (line, operations) in [
        ("stream -n 100 -w 2 --as processes", Some(200)),
        ("hold --keys 50 -w 2 --as tasks", Some(100)),
        ("contend -w 8 -b 1ms -t 0.3 --as processes", None),
        (
            "contend -w 8 -b 1ms -t 0.3 --as tasks --acquire-timeout 20ms",
            None,
        ),
    ] {
        let point = grants(&format!("{line} {consul}"));
        assert!(operations.is_none_or(|count| count == point.operations));
        assert_eq!(fake.left(), [0, 0], "{line}: sessions and keys");
    }
}

#[test]
fn thousands_of_tasks_wait_for_one_lock() {
    let _beside = beside();
    let line = "contend lockd -w 3000 -b 100us -i 1ms -t 1 --warmup 0.5 --as tasks";
    let run = as_json(line).measures().leaves_nothing().only_run();
    is_faultless(&run);
    assert_eq!(run.workers.as_ref().unwrap().operations.len(), 3_000);
    assert!(run.per_worker.is_some() && run.blocked_share.is_some());
    assert_eq!(run.thread_loads.len(), 1, "{:?}", run.thread_loads);
}

#[test]
fn each_generator_thread_is_accounted_for() {
    let _beside = beside();
    for line in [
        "stream lockd -n 2000 -w 7 --names own --as tasks --generator-threads 3",
        "contend lockd -w 7 -b 0 -i 0 -t 0.3 --as tasks --generator-threads 3",
    ] {
        let run = as_json(line).measures().leaves_nothing().only_run();
        is_faultless(&run);
        assert_eq!(run.thread_loads.len(), 3, "{line}");
        for generator in &run.thread_loads {
            let busy = generator.busy_share;
            assert!(busy > 0.0, "{line}: {generator:?}");
            assert!(generator.runqueue_share <= busy, "{line}: {generator:?}");
        }
        // What the threads used is what the workers used.
        assert!(run.cpu.cpu_s.unwrap() > 0.0, "{line}");
    }
}

/// Streams on one name wait for each other, and are said to.
#[test]
fn a_stream_on_one_name_tells_how_many_waited() {
    let _beside = beside();
    for carrier in CARRIERS {
        let waited = |options: &str| {
            let line = format!("stream lockd -n 300 {options} --as {carrier}");
            as_json(&line).measures().only_run()
        };
        let together = waited("-w 10");
        let share = together.blocked_share.unwrap();
        assert!(share > 0.0, "{carrier}: {share}");
        assert!(together.times.handoff_ns.unwrap().count > 0);
        for apart in ["-w 10 --names own", "-w 1"] {
            assert_eq!(waited(apart).blocked_share, None, "{carrier} {apart}");
        }
    }
}

/// Kills the worker process that lives longest, which is that of the long run.
fn killed_in_the_middle(place: &Place, line: &str) -> Vec<Run> {
    let line = format!("{line} -o points --runs 1 --quiet");
    let run = place.jostle(&line);
    let mut run = run.in_background();
    let victim = run.until("a worker in the middle of its run", |run| {
        let before = run.workers().first()?.pid;
        std::thread::sleep(Duration::from_millis(400));
        let after = run.workers();
        after
            .iter()
            .any(|worker| worker.pid == before)
            .then_some(before)
    });
    run.kill(victim);
    run.end().exits(3).leaves_nothing();
    place.runs("points")
}

#[test]
#[ignore = "cargo xtask long"]
fn a_worker_that_is_killed_in_the_middle_makes_its_point_invalid_and_no_other() {
    let _beside = beside();
    let redis = redis();
    for carrier in ["processes", "tasks"] {
        for line in [
            "stream lockd -n 50:60000 -w 2".to_owned(),
            "hold lockd --keys 50:60000 -w 2".to_owned(),
            format!("hold {redis} --keys 50:60000 -w 2"),
        ] {
            let place = Place::new();
            let points = killed_in_the_middle(&place, &format!("{line} --as {carrier}"));
            assert_eq!(points.len(), 2, "{line} {carrier}");
            for point in &points {
                let long = point.at.operations.or(point.at.keys) == Some(60_000);
                let deaths = reason(point, "deaths");
                assert_eq!(deaths.is_some(), long, "{line} {carrier}: {point:?}");
                match deaths {
                    None => is_faultless(point),
                    Some(why) => {
                        assert_eq!(why.is, Status::Invalid);
                        assert!(why.text.contains("SIGKILL"), "{}", why.text);
                    }
                }
            }
            has_no_keys_left();
        }
    }
}

/// Tests that judge figures of this machine.
mod figures {
    use super::*;

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn thousands_of_tasks_are_served_in_order() {
        let _alone = alone();
        let line = "contend lockd -w 3000 -b 100us -i 1ms -t 1 --warmup 0.5 --as tasks";
        let point = as_json(line).measures().leaves_nothing().only_run();
        let shares = point.per_worker.unwrap();
        assert!(shares.max - shares.min <= 3, "a queue: {shares:?}");
        let blocked = point.blocked_share.unwrap();
        assert!(blocked > 0.99, "{blocked}");
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_service_beside_one_that_only_answers_is_told_what_bounds_it() {
        let _alone = alone();
        // A busy machine may leave too little; of a point that is INVALID nothing is said.
        in_some_try_unless_disturbed("a word on the path", || {
            let line = "stream lockd echo -n 2000 -w 2 --names own --as tasks --runs 6 --quiet";
            let done = jostle(line).measures().leaves_nothing();
            let found = flat(&done.stdout).contains("% of a server that only answers");
            (done, found)
        });
        let alone = "stream lockd -n 200 -w 2 --names own --runs 1 --quiet";
        let done = jostle(alone).measures();
        assert!(!done.stdout.contains("only answers"), "{}", done.stdout);
    }
}
