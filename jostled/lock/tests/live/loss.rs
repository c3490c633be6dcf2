//! The lock is lost, or one of wrapper and guard is.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use jostle_sys::process::{go_on, is_over, kill, stop};

use crate::common::{Daemon, Relay, Running, both_parts, eventually, lock_at};

const HOLD: &str = "--ttl 2 job -- sleep 1000";

#[test]
fn a_lock_that_cannot_be_renewed_ends_its_command_before_anybody_else_has_it() {
    let daemon = Daemon::start();
    let relay = Relay::to(daemon.port);
    let url = format!("redis://127.0.0.1:{}", relay.port);
    let cut = |yes| relay.cut.store(yes, SeqCst);
    let holder = Running::start(&mut lock_at(&url, HOLD));
    let (_, command) = both_parts(holder.pid());
    cut(true);
    let next = daemon.lock("job -- true").output().unwrap();
    assert!(next.status.success());
    assert!(is_over(command), "it runs beside the next one");
    cut(false);
    let (code, said) = holder.finish();
    assert_eq!(code, Some(75), "{said}");
    assert!(said.contains("could not be renewed in time"), "{said}");
    // One that ignores SIGTERM, and whoever it has started.
    let mut stubborn = lock_at(&url, "--ttl 2 job -c");
    let holder = Running::start(stubborn.arg("trap '' TERM; sleep 1000; sleep 1000"));
    let (_, command) = both_parts(holder.pid());
    cut(true);
    assert!(daemon.lock("job -- true").status().unwrap().success());
    assert!(is_over(command));
    cut(false);
    assert_eq!(holder.finish().0, Some(75));
    // On request it goes on.
    let words = format!("--on-loss warn {HOLD}");
    let holder = Running::start(&mut lock_at(&url, &words));
    let started = || jostle_sys::process::forked_by(holder.pid());
    eventually("the command starts", || started().len() == 1);
    cut(true);
    assert!(daemon.lock("job -- true").status().unwrap().success());
    cut(false);
    let children = started();
    assert!(
        children.len() == 1 && !is_over(children[0]),
        "no guard, and the command goes on"
    );
    kill(children[0]);
    let (code, said) = holder.finish();
    assert_eq!(code, Some(137), "{said}");
    assert!(said.contains("another one can run beside it"), "{said}");
    daemon.await_nothing();
}

#[test]
fn whoever_of_wrapper_and_guard_is_left_acts_for_the_other() {
    let daemon = Daemon::start();
    let holder = Running::start(&mut daemon.lock(HOLD));
    let (guard, command) = both_parts(holder.pid());
    // A guard that is killed is replaced.
    kill(guard);
    eventually("another guard watches", || {
        crate::common::parts(holder.pid())
            .0
            .is_some_and(|other| other != guard)
    });
    // Without the wrapper the command ends, and then the lock.
    kill(holder.pid());
    eventually("its command ends", || is_over(command));
    assert_eq!(holder.finish().0, None);
    daemon.await_nothing();
    // A wrapper that is stopped renews nothing.
    let holder = Running::start(&mut daemon.lock(HOLD));
    let (_, command) = both_parts(holder.pid());
    stop(holder.pid());
    assert!(daemon.lock("job -- true").status().unwrap().success());
    assert!(is_over(command), "it runs beside the next one");
    go_on(holder.pid());
    assert_eq!(holder.finish().0, Some(75));
    // A guard that is stopped leaves it to the wrapper.
    let holder = Running::start(&mut daemon.lock(HOLD));
    let (guard, command) = both_parts(holder.pid());
    stop(guard);
    assert!(daemon.ask("SESSION CLOSE USER default").starts_with(":1"));
    let (code, said) = holder.finish();
    assert_eq!(code, Some(75), "{said}");
    assert!(
        said.contains("jostled has ended the lock's session") && is_over(command),
        "{said}"
    );
}

/// Reads what a wrapper says until it has said this.
#[track_caller]
fn await_word(running: &mut Running, part: &str) {
    let mut lines = BufReader::new(running.0.stderr.as_mut().unwrap()).lines();
    let found = lines.find(|line| line.as_ref().unwrap().contains(part));
    assert!(found.is_some(), "it has not said: {part}");
}

/// The wrapper has told the command to end, and does not live, or run, to see that it does.
#[test]
fn a_command_that_ignores_sigterm_ends_without_its_wrapper_too() {
    for strike in [kill, stop] {
        let daemon = Daemon::start();
        let relay = Relay::to(daemon.port);
        let url = format!("redis://127.0.0.1:{}", relay.port);
        let mut stubborn = lock_at(&url, "--ttl 6 --grace 1.9 job -c");
        let mut holder = Running::start(stubborn.arg("trap '' TERM; sleep 1000; sleep 1000"));
        let (guard, command) = both_parts(holder.pid());
        // So that it is the wrapper who gives up.
        stop(guard);
        relay.cut.store(true, SeqCst);
        await_word(&mut holder, "could not be renewed");
        go_on(guard);
        strike(holder.pid());
        assert!(daemon.lock("job -- true").status().unwrap().success());
        assert!(is_over(command), "it runs beside the next one");
    }
}

#[test]
fn a_command_that_may_outlive_the_lock_outlives_its_wrapper_and_costs_nothing() {
    let mut daemon = Daemon::start();
    let mut holder = Running::start(&mut daemon.lock("--on-loss warn job -- sleep 1000"));
    daemon.await_held();
    assert!(daemon.ask("SESSION CLOSE USER default").starts_with(":1"));
    // At the next renewal.
    await_word(&mut holder, "has ended the lock's session");
    let command = jostle_sys::process::forked_by(holder.pid())[0];
    // A connection that is over is readable for ever.
    daemon.kill();
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", holder.pid())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [user, system] = [11, 12].map(|at: usize| fields[at].parse::<u64>().unwrap());
        user + system
    };
    let before = ticks();
    std::thread::sleep(Duration::from_secs(1));
    assert!(ticks() - before < 5, "it waits, and does not ask");
    kill(holder.pid());
    holder.0.wait().unwrap();
    // A signal would have been sent before; it may take a moment to end the command.
    std::thread::sleep(Duration::from_millis(200));
    assert!(!is_over(command));
    kill(command);
}

/// A wrapper that waited for its login as long as the first one may take, 70 s, would neither
/// see the command's end nor pass signals on.
#[test]
fn a_login_that_is_not_answered_does_not_keep_the_wrapper() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "secret\n").unwrap();
    let daemon = Daemon::start_with(&file.path().display().to_string());
    let relay = Relay::to(daemon.port);
    let url = format!("redis://:secret@127.0.0.1:{}", relay.port);
    let holder = Running::start(&mut lock_at(&url, HOLD));
    let _ = both_parts(holder.pid());
    relay.cut.store(true, SeqCst);
    let begun = Instant::now();
    assert_eq!(holder.finish().0, Some(75));
    assert!(begun.elapsed() < Duration::from_secs(60));
}

/// The release is executed, and the connection breaks before its answer.
#[test]
fn a_release_that_is_repeated_is_no_loss() {
    let daemon = Daemon::start();
    let relay = Relay::to(daemon.port);
    let url = format!("redis://127.0.0.1:{}", relay.port);
    let mut command = lock_at(&url, "--ttl 100 job -- cat");
    let mut holder = Running::start(command.stdin(Stdio::piped()));
    daemon.await_held();
    let _ = both_parts(holder.pid());
    relay.swallow.store(true, SeqCst);
    let _ = holder.0.stdin.take().unwrap().write_all(b"over\n");
    let (code, said) = holder.finish();
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(!relay.swallow.load(SeqCst), "it broke");
    daemon.await_nothing();
}

/// The limit that the page names: nobody is left to act.
#[test]
fn with_both_stopped_the_command_outlives_the_lock() {
    let daemon = Daemon::start();
    let holder = Running::start(&mut daemon.lock(HOLD));
    let (guard, command) = both_parts(holder.pid());
    stop(guard);
    stop(holder.pid());
    assert!(daemon.lock("job -- true").status().unwrap().success());
    assert!(!is_over(command), "an overlap that nothing prevents");
    go_on(holder.pid());
    assert_eq!(holder.finish().0, Some(75));
    assert!(is_over(command));
}

#[test]
fn a_lock_that_was_taken_away_is_reported_at_the_end() {
    let daemon = Daemon::start();
    let holder = Running::start(&mut daemon.lock("job -- sleep 2"));
    let _ = both_parts(holder.pid());
    assert!(daemon.ask("FORCEUNLOCK job").starts_with(":1"));
    let (code, said) = holder.finish();
    assert_eq!(code, Some(75), "{said}");
    assert!(said.contains("taken away while the command ran"), "{said}");
}

/// A daemon that is killed knows nothing of the lock, and grants nothing before its end.
#[test]
fn a_daemon_that_is_killed_ends_the_command_and_lets_waiters_go_on() {
    let mut daemon = Daemon::start();
    let holder = Running::start(&mut daemon.lock(HOLD));
    let (_, command) = both_parts(holder.pid());
    let waiter = Running::start(&mut daemon.lock("--ttl 30 job -- true"));
    eventually("it waits", || {
        daemon.ask("INFO locks").contains("waiters:1\r\n")
    });
    daemon.kill();
    std::thread::sleep(Duration::from_millis(300));
    daemon.again();
    assert_eq!(holder.finish().0, Some(75));
    assert!(is_over(command));
    let (code, said) = waiter.finish();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("lost the connection to jostled"), "{said}");
}
