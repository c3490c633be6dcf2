//! `jostle recover`, by the whole binary: what strikes, who is granted the lock next, and
//! who is told.

use crate::common::{
    Done, Place, Signal, beside, flat, in_some_try, jostle, must_be_root, must_have, reason,
};
use crate::own_pipe::broken;
use crate::refusals::refuses_each;
use jostle_model::plan::Fault;
use jostle_model::record::{Event, Recovery, Run, Status, Struck, ToldBy, What};

const MS: u64 = 1_000_000;

/// The runs of a line without its verb, none of which may leave anything.
fn recovers(line: &str) -> Vec<Run> {
    let done = jostle(&format!("recover {line} --format json")).run();
    done.measures().leaves_nothing().runs()
}

/// Whether the old owner acted when another was granted the lock, so that it could be told,
/// right or wrong. On a machine that is late it acts before, or not at all.
fn is_told_late(run: &Recovery) -> bool {
    let has = |what| run.history.iter().any(|event| event.what == what);
    let has_token = run.history.iter().any(|event| event.token.is_some());
    let wrote = run.write_refused.is_some() || !has_token;
    let joined = has(What::JoinedAgain) || run.struck != Some(Struck::Service);
    run.two_believed_ns.is_some()
        && run.two_ran_ns.is_some()
        && run.told.is_some()
        && wrote
        && joined
}

fn recovery(run: &Run) -> &Recovery {
    run.recovery.as_ref().unwrap()
}

#[track_caller]
fn recovery_after(runs: &[Run], target: &str, fault: Fault) -> Recovery {
    let mut found = runs
        .iter()
        .filter(|point| point.target == target && point.at.fault == Some(fault));
    recovery(found.next().unwrap()).clone()
}

/// It was measured as it should be, and the lock let one in at a time.
#[track_caller]
fn is_sound(run: &Run) {
    for check in ["exclusion", "deaths", "errors"] {
        assert_eq!(reason(run, check), None, "{run:?}");
    }
    let struck = reason(run, "struck").map(|reason| reason.is);
    assert!(struck.is_none_or(|is| is == Status::Suspect), "{run:?}");
}

#[test]
fn a_lock_of_the_kernel_is_free_when_its_owner_is_killed_and_kept_while_it_is_stopped() {
    let _beside = beside();
    let points = recovers("flock sysv-undo --runs 1 --waiters 2 --pause 300ms --within 20s");
    assert_eq!(points.len(), 4);
    points.iter().for_each(is_sound);
    for target in ["flock", "sysv-undo"] {
        let killed = recovery_after(&points, target, Fault::Kill);
        assert!(killed.next_grant_ns.is_some(), "{killed:?}");
        assert_eq!((killed.served, killed.two_believed_ns), (2, None));
        assert_eq!((killed.told, killed.write_refused), (None, None));
        let stopped = recovery_after(&points, target, Fault::Stop);
        assert_eq!(stopped.next_grant_ns, None, "{stopped:?}");
        assert!(stopped.after_release_ns.is_some() && stopped.served == 2);
        // It stood still for as long as was asked.
        let still = stopped.returned_at_ns.unwrap() - stopped.struck_at_ns;
        assert!(still >= 300 * MS, "{still}");
        assert_eq!((stopped.told, stopped.two_believed_ns), (None, None));
    }
}

/// On a machine that has run for months the clock has more nanoseconds than a count may
/// have. And seen from another time namespace, all processes have started at other times: the
/// runs that go on must not be taken for dead.
#[test]
fn with_a_clock_months_ahead_results_can_be_read_and_other_runs_are_left_alone() {
    let _beside = beside();
    must_be_root("make time namespaces");
    must_have("unshare", "util-linux");
    must_have("memcached", "memcached");
    let place = Place::new();
    let line = "recover flock --fault kill --runs 1 --within 20s -o result.jsonl";
    let other = jostle("contend memcached -w 2 -b 1ms -t 3 --runs 1 --quiet");
    let mut other = other.in_background();
    other.until_workers(2);
    let done = place
        .jostle(line)
        .under("unshare --fork --time --monotonic 12000000 --boottime 12000000")
        .run();
    done.measures();
    other.end().measures().leaves_nothing();
    let stamp = recovery(&place.runs("result.jsonl")[0]).struck_at_ns;
    assert!(stamp > 12_000_000 * 1_000 * MS, "{stamp}");
    place.jostle("report result.jsonl").exits(0);
}

#[test]
fn jostled_is_asked_again_whatever_strikes_and_its_tokens_fence() {
    let _beside = beside();
    let line = "lockd --runs 1 --waiters 3 --within 30s";
    let others = "kill,stop,cut,server-stop";
    let mut points = recovers(&format!("{line} --pause 400ms --fault {others}"));
    // On a busy machine the next grant comes late.
    points.extend(in_some_try("a late word of the old owner", || {
        let points = recovers(&format!("{line} --pause 4s --fault server-kill"));
        is_told_late(recovery(&points[0])).then_some(points)
    }));
    assert_eq!(points.len(), 5);
    points.iter().for_each(is_sound);
    let killed = recovery_after(&points, "lockd", Fault::Kill);
    assert!(killed.next_grant_ns.is_some() && killed.served == 3);
    assert_eq!(killed.in_order, Some(true));
    let stopped = recovery_after(&points, "lockd", Fault::Stop);
    assert_eq!(
        (stopped.next_grant_ns, stopped.in_order),
        (None, Some(true))
    );
    // The daemon holds a connection for as long as it has not ended.
    let cut = recovery_after(&points, "lockd", Fault::Cut);
    assert_eq!((cut.next_grant_ns, cut.served, cut.told), (None, 3, None));
    assert!(cut.after_release_ns.is_some(), "{cut:?}");
    assert!(cut.returned_at_ns.unwrap() - cut.struck_at_ns >= 400 * MS);
    let frozen = recovery_after(&points, "lockd", Fault::ServerStop);
    assert_eq!((frozen.next_grant_ns, frozen.served), (None, 3));
    // What a connection owned is gone with the server; its owner hears of it late.
    let restarted = recovery_after(&points, "lockd", Fault::ServerKill);
    assert!(restarted.next_grant_ns.is_some(), "{restarted:?}");
    assert!(restarted.two_believed_ns.is_some(), "{restarted:?}");
    assert_eq!(restarted.told, Some(true));
    // What the server must know of tokens it had written down.
    assert_eq!(restarted.write_refused, Some(true));
    assert!(
        restarted
            .history
            .iter()
            .any(|e| e.what == What::JoinedAgain)
    );
}

#[test]
fn of_a_lease_that_ends_while_its_owner_is_stopped_two_believe_to_own() {
    let _beside = beside();
    must_have("redis-server", "redis-server");
    let place = Place::new();
    let line = "recover redis redisson --fault kill,stop --runs 1 --waiters 2 --lease 1s";
    // On a busy machine the next grant comes late.
    let done = in_some_try("grants while the old owners believe", || {
        let run = place.jostle(&format!(
            "{line} --pause 3s --within 20s -o r.jsonl --overwrite"
        ));
        let done = run.measures().leaves_nothing();
        let runs = place.runs("r.jsonl");
        let stopped = runs.iter().filter(|run| run.at.fault == Some(Fault::Stop));
        let late = stopped.filter(|run| {
            let by = match run.target.as_str() {
                "redis" => ToldBy::Release,
                _ => ToldBy::Client,
            };
            is_told_late(recovery(run)) && recovery(run).told_by == Some(by)
        });
        (late.count() == 2).then_some(done)
    });
    done.prints("two owners for up to")
        .prints("the old owner learned it from its release")
        .prints("the old owner learned it from its client");
    let runs = place.runs("r.jsonl");
    runs.iter().for_each(is_sound);
    for target in ["redis", "redisson"] {
        for fault in [Fault::Kill, Fault::Stop] {
            let run = recovery_after(&runs, target, fault);
            assert_eq!(run.lease_ns, Some(1_000 * MS));
            assert!(run.after_lease_ns.unwrap() >= 0, "{run:?}");
            // Nobody keeps a queue.
            assert_eq!(run.served, 2);
        }
        let stopped = recovery_after(&runs, target, Fault::Stop);
        assert_eq!((stopped.told, stopped.write_refused), (Some(true), None));
        let (believed, ran) = (
            stopped.two_believed_ns.unwrap(),
            stopped.two_ran_ns.unwrap(),
        );
        // It stood still for its lease and the pause, and then worked on for the pause.
        // Redisson's watchdog asks sooner.
        let least = if target == "redis" { 3_000 * MS } else { 0 };
        let still = stopped.returned_at_ns.unwrap() - stopped.struck_at_ns;
        assert!(still >= 4_000 * MS, "{stopped:?}");
        assert!(believed >= least && ran <= believed, "{stopped:?}");
        let events = stopped.history.iter();
        let mut failed = events.filter(|event| event.what == What::NotReleased);
        let said = failed.find_map(|event| event.said.clone());
        assert!(said.unwrap().contains("no longer ours"));
    }
}

/// It hears nothing, and goes on as if it owned.
#[test]
fn an_owner_whose_connection_is_cut_loses_its_lease_and_hears_of_it_when_it_releases() {
    let _beside = beside();
    must_be_root("cut a connection");
    must_have("redis-server", "redis-server");
    let place = Place::new();
    let line = "recover redis --fault cut --runs 1 --waiters 2 --lease 1s --pause 3s";
    // On a busy machine the next grant comes late.
    let done = in_some_try("a grant while the old owner believes", || {
        let run = place.jostle(&format!("{line} --within 20s -o r.jsonl --overwrite"));
        let done = run.measures().leaves_nothing();
        let runs = place.runs("r.jsonl");
        is_told_late(recovery(&runs[0])).then_some(done)
    });
    done.prints("network cut").prints("Worst case: ");
    let runs = place.runs("r.jsonl");
    runs.iter().for_each(is_sound);
    let cut = recovery_after(&runs, "redis", Fault::Cut);
    assert!(cut.after_lease_ns.unwrap() >= 0, "{cut:?}");
    assert_eq!((cut.served, cut.told), (2, Some(true)), "{cut:?}");
    // It ran all the while.
    assert!(cut.two_believed_ns.is_some(), "{cut:?}");
    assert_eq!(cut.two_ran_ns, cut.two_believed_ns);
}

/// Some kernels let a plain user attach a filter to a socket, others do not.
#[test]
fn a_plain_user_cuts_a_connection_or_is_told_before_anything_starts() {
    let _beside = beside();
    let place = Place::of_a_plain_user();
    let line = "recover lockd --runs 1 --waiters 1 --pause 100ms";
    let asked = place.jostle(&format!("{line} --fault cut")).run();
    let only_root = "this kernel lets only root cut a connection";
    let usual = |done: Done| done.measures().leaves_nothing();
    match asked.code() {
        2 => {
            asked.says(only_root).prints_nothing().leaves_nothing();
            usual(place.jostle(line).run()).says(&format!("without cut, since {only_root}"));
        }
        _ => drop(usual(asked)),
    }
}

#[test]
fn a_robust_mutex_tells_its_next_owner_and_a_plain_one_is_never_granted_again() {
    let _beside = beside();
    let line = "--fault kill --runs 1 --waiters 2 --within";
    // What is granted ends a run; what is not lasts for all of this.
    let mut points = recovers(&format!("pthread-robust {line} 60s"));
    points.extend(recovers(&format!("pthread {line} 500ms")));
    points.iter().for_each(is_sound);
    let robust = recovery_after(&points, "pthread-robust", Fault::Kill);
    assert!(robust.next_grant_ns.is_some() && robust.served == 2);
    let whats = |run: &Recovery| -> Vec<What> {
        let grants = run.history.iter().filter(|event| {
            event.process != Some(0) && matches!(event.what, What::Granted | What::GrantedFromDead)
        });
        grants.map(|event| event.what).collect()
    };
    assert_eq!(whats(&robust), [What::GrantedFromDead, What::Granted]);
    let plain = recovery_after(&points, "pthread", Fault::Kill);
    assert_eq!((plain.next_grant_ns, plain.after_release_ns), (None, None));
    assert_eq!(whats(&plain), []);
}

/// It grants no shorter lease than 2 s, and gives it anew when it is started again.
#[test]
fn a_lease_of_etcd_is_longer_than_was_asked_for_and_begins_anew_with_the_server() {
    let _beside = beside();
    must_have("etcd", "etcd-server");
    let points = recovers(
        "etcd --fault server-kill --runs 1 --waiters 1 --lease 1s --pause 4s --within 40s --renew no",
    );
    points.iter().for_each(is_sound);
    let run = recovery_after(&points, "etcd", Fault::ServerKill);
    assert_eq!(run.lease_ns, Some(2_000 * MS));
    // The owner, which nothing has struck, did not renew what it held.
    let lease_anew_ns = run.after_return_ns.unwrap();
    assert!(
        lease_anew_ns >= 0 && run.after_lease_ns.unwrap() > 0,
        "{run:?}"
    );
    assert_eq!((run.told, run.told_by), (Some(true), Some(ToldBy::Release)));
}

/// As the field's clients, which renew while they hold and take up their sessions again.
#[test]
fn who_stays_keeps_its_lock_through_a_restart_of_the_service() {
    let _beside = beside();
    must_have("etcd", "etcd-server");
    must_have("/usr/share/java/zookeeper.jar", "zookeeper");
    // A lease that a busy machine does not outlast.
    let line = "zookeeper etcd --fault server-kill --runs 1 --waiters 2 --lease 10s --pause 1s";
    let points = recovers(&format!("{line} --within 5s"));
    points.iter().for_each(is_sound);
    for target in ["zookeeper", "etcd"] {
        let run = recovery_after(&points, target, Fault::ServerKill);
        assert_eq!((run.next_grant_ns, run.told), (None, None), "{run:?}");
        let whats = |process: u64| -> Vec<What> {
            let of = run.history.iter().filter(|e| e.process == Some(process));
            of.map(|event| event.what).collect()
        };
        let owner = whats(0);
        assert!(owner.contains(&What::CutOff), "{run:?}");
        assert!(owner.contains(&What::JoinedAgain), "{run:?}");
        assert!(owner.ends_with(&[What::Release, What::Released]), "{run:?}");
        // The waiters have kept their places.
        let tokens: Vec<u64> = run.history.iter().filter_map(|event| event.token).collect();
        assert!(tokens.is_sorted(), "{run:?}");
    }
}

#[test]
fn the_next_owner_of_etcd_waits_for_the_lease_of_the_one_that_was_killed() {
    let _beside = beside();
    must_have("etcd", "etcd-server");
    let line = "etcd --fault kill --runs 1 --waiters 2 --lease 2s --within 40s";
    let points = recovers(line);
    points.iter().for_each(is_sound);
    let run = recovery_after(&points, "etcd", Fault::Kill);
    assert_eq!(run.lease_ns, Some(2_000 * MS));
    assert!(run.after_lease_ns.is_some_and(|ns| ns >= 0), "{run:?}");
    assert_eq!((run.served, run.two_believed_ns), (2, None));
}

/// A session ends at a tick of the server, which is half of the lease here.
#[test]
fn of_a_session_that_ends_while_its_owner_is_stopped_the_older_token_is_refused() {
    let _beside = beside();
    must_have("/usr/share/java/zookeeper.jar", "zookeeper");
    // A long pause: a busy machine may keep the server's ticks waiting.
    let line = "zookeeper --fault stop --runs 1 --waiters 2 --lease 1s --pause 4s --within 40s";
    let points = in_some_try("a grant while the old owner believes", || {
        let points = recovers(line);
        let run = recovery(&points[0]);
        // It asked its client before it released.
        let is_told = is_told_late(run) && run.told_by == Some(ToldBy::Client);
        (is_told && run.served == 2).then_some(points)
    });
    points.iter().for_each(is_sound);
    let stopped = recovery_after(&points, "zookeeper", Fault::Stop);
    assert_eq!(stopped.lease_ns, Some(1_000 * MS));
    assert!(stopped.after_lease_ns.unwrap() >= 0, "{stopped:?}");
    assert!(stopped.two_believed_ns.is_some(), "{stopped:?}");
    assert_eq!(
        (stopped.told, stopped.write_refused),
        (Some(true), Some(true))
    );
    assert!(stopped.told_after_ns.unwrap() >= 5_000 * MS);
    // On a busy machine a waiter's session may end as well, so that it comes again.
    assert_ne!(stopped.in_order, Some(false));
    let tokens: Vec<u64> = stopped
        .history
        .iter()
        .filter(|event| event.what == What::Granted)
        .filter_map(|event| event.token)
        .collect();
    assert!(
        tokens.len() >= 3 && tokens.is_sorted_by(|a, b| a < b),
        "{tokens:?}"
    );
}

#[test]
fn never_within_the_limit_is_an_answer() {
    let _beside = beside();
    let done = jostle("recover lockfile --fault kill --runs 2 --within 300ms").run();
    done.exits(0)
        .leaves_nothing()
        .prints(">300 ms")
        .prints("None within 300 ms in 2 of 2 runs (owner killed)");
}

#[test]
fn a_lock_that_lets_two_in_is_caught() {
    let _beside = beside();
    let done = jostle("recover --fault kill --waiters 1 --runs 1 --format json")
        .word(&broken("lets two in"))
        .run();
    let run = done.exits(3).leaves_nothing().only_run();
    assert_eq!(reason(&run, "exclusion").unwrap().is, Status::Invalid);
    let example = &run.exclusion.unwrap().examples[0];
    assert!(
        example.starts_with("waiter 1 was granted the lock"),
        "{example}"
    );
}

/// The program of a peer owns, not the worker that asks it. A program whose worker was killed
/// would release at the end of its input.
#[test]
fn the_fault_strikes_the_program_that_owns_the_lock_and_its_lease_goes_on() {
    let _beside = beside();
    let pause: u64 = 3_000;
    for fault in [Fault::Kill, Fault::Stop] {
        let place = Place::new();
        let line = format!("recover --fault {fault} --pause {pause}ms --waiters 1 --runs 1");
        let done = place
            .jostle(&format!("{line} --within 30s --format json"))
            .word(&peer("lock 2"))
            .run();
        let point = done.measures().leaves_nothing().only_run();
        is_sound(&point);
        let run = recovery(&point);
        assert_eq!(run.struck, Some(Struck::Program));
        let log = std::fs::read_to_string(place.file("lock.log")).unwrap();
        let stamps = |worker: &str, what: &str| -> Vec<u64> {
            let words = log.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            let of = words.filter(|words| words[..2] == [worker, what]);
            of.map(|words| words[2].parse().unwrap()).collect()
        };
        let (owned, next) = (stamps("0", "granted")[0], stamps("1", "granted")[0]);
        assert!(next >= owned + 2_000 * MS, "{log}");
        let granted = run.struck_at_ns + run.next_grant_ns.unwrap();
        assert!(granted >= next, "{run:?}");
        let worked = stamps("0", "works");
        match fault {
            Fault::Kill => {
                let late = run.struck_by_ns + 1_000 * MS;
                assert!(worked.iter().all(|at| *at < late), "{log}");
                assert_eq!(stamps("0", "end"), [0; 0]);
                assert_eq!((run.told, run.two_believed_ns), (None, None));
            }
            _ => {
                // It stood still for the whole pause, although the next grant came before,
                // and then worked on for as long.
                let returned = run.returned_at_ns.unwrap();
                assert!(returned >= run.struck_at_ns + pause * MS, "{run:?}");
                let still = run.struck_by_ns + 1_000 * MS..returned;
                assert!(!worked.iter().any(|at| still.contains(at)), "{log}");
                assert!(worked.iter().any(|at| *at >= returned), "{log}");
                let (two, ran) = (run.two_believed_ns.unwrap(), run.two_ran_ns.unwrap());
                assert!(ran > 0, "{run:?}");
                assert!(two >= returned - granted + pause * MS, "{run:?}");
                assert_eq!(run.told, Some(true));
                let told = |event: &Event| event.what == What::NotReleased;
                let told = run.history.iter().find(|event| told(event)).unwrap();
                assert!(told.said.as_ref().unwrap().contains("the lease was over"));
            }
        }
    }
}

/// The lock of a peer whose file is `lock`, with these words behind it.
fn peer(words: &str) -> String {
    must_have("python3", "python3-venv");
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/leased_peer.py");
    format!("pipe:python3 '{program}' {words}")
}

#[test]
fn a_lock_that_somebody_holds_before_the_start_is_told_within_the_limit() {
    let place = Place::beside_others();
    // Another's, for a century.
    std::fs::write(place.file("lock"), "other 3155760000000000000").unwrap();
    let says = |line: &str, within: &str| {
        let done = place.jostle(line).word(&peer("lock 2")).exits(1);
        done.says(&format!(
            "the first request was not granted within {within}: somebody holds it already"
        ))
        .leaves_nothing();
    };
    let recover = "recover --fault kill --waiters 1 --within 1s --runs 1";
    says(recover, "1s");
    let contend = "contend -w 1 -b 0 -i 0 -t 1 --runs 1";
    says(contend, "10 s");
}

#[test]
fn each_run_is_prepared_and_may_name_a_lock_of_its_own() {
    let place = Place::beside_others();
    let line = "recover --fault kill --waiters 1 --runs 2 --within 20s";
    let done = place
        .jostle(line)
        .word("--prepare")
        .word("sh -c 'echo x >> prepared'");
    done.word(&peer("lock{run} 1")).measures().leaves_nothing();
    let read = |name: &str| std::fs::read_to_string(place.file(name)).unwrap();
    assert_eq!(read("prepared"), "x\nx\n");
    for name in ["lock1.log", "lock2.log"] {
        assert!(read(name).contains("1 granted"), "{name}");
    }
}

/// It filled the board with a thousand events, and was printed nowhere.
#[test]
fn an_error_that_persists_is_printed_once_with_its_count() {
    let place = Place::beside_others();
    let line = "recover --fault kill --waiters 1 --runs 1 --within 6s -o r.jsonl";
    let done = place.jostle(line).word(&peer("lock 60 fails")).run();
    let done = done.exits(0).leaves_nothing();
    let said = flat(&done.stdout);
    let failed =
        "None within 6.0 s in 1 of 1 runs (owner killed). Errors Requests failed again and again";
    assert_eq!(said.matches(failed).count(), 1, "{said}");
    assert_eq!(said.matches("`no such lock`").count(), 1, "{said}");
    let run = recovery(&place.runs("r.jsonl")[0]).clone();
    let mut failed = run.history.iter().filter(|e| e.what == What::NotGranted);
    assert_eq!(failed.clone().count(), 3, "{run:?}");
    assert!(failed.next_back().unwrap().times.unwrap() > 1, "{run:?}");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
    let table = "
        recover flock --fault server-kill => 2 => it has no server
        recover redis://127.0.0.1:1 --fault server-stop => 2 => jostle strikes only servers that it launches
        recover lockd+unix --fault cut => 2 => no network lies between its workers and their server
        recover flock --fault murder => 2 => `murder` is none of: kill, stop
        recover exec:true => 2 => is not a lock
        recover null => 2 => grants everybody
        recover flock --within 0 => 2 => --within 0
        recover redis --lease 5ms => 2 => --lease 5ms may end before the fault strikes; give at least 1s
        recover flock --waiters 0 => 2 => --waiters";
    refuses_each(&Place::new(), table);
}

#[test]
fn what_is_left_out_is_said_and_a_dry_run_is_a_plan() {
    let _beside = beside();
    let done = jostle("recover flock --runs 1 --waiters 1 --pause 100ms --dry-run").run();
    done.exits(0)
        .prints("workload = \"recover\"")
        .prints("fault = [")
        .leaves_nothing();
    jostle("recover flock lockd --fault kill,server-kill --runs 1 --waiters 1 --pause 100ms")
        .measures()
        .says("flock: without server-kill, since it has no server")
        .leaves_nothing();
}

#[test]
fn nothing_is_left_of_a_run_that_is_interrupted_while_its_server_stands_still() {
    let _beside = beside();
    let line = "recover lockd --fault server-stop --pause 100s --within 300s --runs 1";
    let mut run = jostle(line).in_background();
    run.until("a server that stands still", |run| {
        let all = crate::common::processes::marked(run.mark());
        let halted = |p: &crate::common::Process| jostle_sys::process::is_halted(p.pid);
        all.iter().any(halted).then_some(())
    });
    run.signal(Signal::INT);
    run.end().exits(130).leaves_nothing();
}
