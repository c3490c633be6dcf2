//! The next start after a crash or a clean end, and with a copied data directory. A daemon that is
//! dropped is killed.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::JOSTLED;
use crate::common::{Daemon, eventually, short};

/// A daemon with a data directory.
fn durable(directory: &std::path::Path, more: &[&str]) -> Daemon {
    let data = directory.to_str().unwrap();
    let mut flags = vec!["--data", data, "--listen", "127.0.0.1:0"];
    flags.extend(more);
    Daemon::start_exactly(&flags)
}

/// After a crash another client had the lock after 0.01 s; the first one learned that
/// after 11.5 s.
#[test]
fn after_a_crash_nothing_is_granted_while_leases_may_run() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = durable(directory.path(), &[]);
    let granted = Instant::now();
    let token = daemon.client().token("LOCK x TTL 30000");
    drop(daemon);

    let daemon = durable(directory.path(), &[]);
    let mut client = daemon.client();
    let left_ms = client.info("loading_ms");
    let end_ms = u128::from(left_ms) + granted.elapsed().as_millis();
    assert!(left_ms <= 60_000 && end_ms >= 30_000, "{left_ms}");
    for line in [
        "TRYLOCK x",
        "TRYLOCK y",
        "LOCK x WAIT 0",
        "LOCKALL 2 x y WAIT 0",
    ] {
        assert_eq!(client.say(line), "LOADING", "{line}");
    }
    assert_eq!(
        client.say(&format!("RENEW x {token} TTL 30000")),
        "NOTOWNER"
    );
    assert_eq!(client.say("HANDOVER"), "ERR");
    // A wait ends when its time has passed, by CLIENT UNBLOCK, and with the daemon.
    let sent = Instant::now();
    assert_eq!(client.say("LOCK x WAIT 300"), "nil");
    assert!(sent.elapsed() >= Duration::from_millis(300));
    let mut waiter = daemon.client();
    let id = waiter.say("CLIENT ID");
    waiter.send("LOCK x");
    waiter.send("PING");
    eventually("it is unblocked", || {
        client.say(&format!("CLIENT UNBLOCK {id}")) == "1"
    });
    assert_eq!(
        (short(&waiter.read()), short(&waiter.read())),
        ("nil".into(), "PONG".into())
    );
    waiter.send("LOCK x");
    eventually("it waits", || client.info("cmd_lock") == 4);
    daemon.signal("-TERM");
    assert_eq!(short(&waiter.read()), "SHUTDOWN");
    assert_eq!(daemon.finish().0, Some(0));

    // It still waits for the leases of the first one.
    let daemon = durable(directory.path(), &[]);
    assert_eq!(daemon.client().say("TRYLOCK x"), "LOADING");
    drop(daemon);
    let daemon = durable(directory.path(), &["--after-crash", "grant"]);
    assert!(daemon.client().token("TRYLOCK x") > token);
    // That one promises nothing, so that nothing is known of its leases.
    drop(daemon);
    let mut daemon = durable(directory.path(), &["--max-ttl", "900"]);
    let left_ms = daemon.info("loading_ms");
    assert!((600_000..=900_000).contains(&left_ms), "{left_ms}");

    // An administrator ends the wait; who waits in line is served first.
    waiter = daemon.client();
    waiter.send("LOCK x");
    let mut boss = daemon.client();
    eventually("it waits", || boss.info("cmd_lock") == 1);
    assert_eq!(boss.say("LEASES KEEP"), "ERR");
    assert_eq!(boss.say("LEASES FORGET"), "OK");
    daemon.await_log("audit: leases forgotten user=\"default\"");
    let token = waiter.read().as_integer().unwrap() as u64;
    assert_eq!(boss.token("LOCK y"), token + 1);
    assert_eq!(boss.say("LEASES FORGET"), "ERR");
    // The next start does not wait for them either, unless this one ended too soon.
    let mut daemon = Some(daemon);
    eventually("that is on disk", || {
        drop(daemon.take());
        let next = daemon.insert(durable(directory.path(), &[]));
        next.client().say("LEASES FORGET") == "ERR"
    });
}

/// An empty session of an hour made the next start wait for an hour.
#[test]
fn only_a_session_that_holds_or_waits_lets_the_next_start_wait() {
    let directory = tempfile::tempdir().unwrap();
    let mut daemon = durable(directory.path(), &[]);
    let mut client = daemon.client();
    let session = client.say("SESSION OPEN TTL 3600000");
    assert_eq!(client.say(&format!("SESSION RENEW {session}")), "1");
    assert_eq!(client.info("crash_wait_ms"), 0);
    daemon.signal("-TERM");
    assert_eq!(daemon.finish().0, Some(0));

    daemon = durable(directory.path(), &[]);
    assert_eq!(daemon.info("loading_ms"), 0);
    client = daemon.client();
    client.token("LOCK x");
    let mut waiter = daemon.client();
    let session = client.say("SESSION OPEN TTL 600000");
    waiter.send(&format!("LOCK x SESSION {session}"));
    eventually("it waits", || client.info("waiters") == 1);
    assert!(client.info("crash_wait_ms") >= 600_000);
    assert_eq!(client.say("UNLOCK x"), "1");
    waiter.read().as_integer().unwrap();
    drop(daemon);
    let left_ms = durable(directory.path(), &[]).info("loading_ms");
    assert!((1..=660_000).contains(&left_ms), "{left_ms}");
}

/// The signal of the limit ended it without a word.
#[test]
fn a_file_that_may_not_grow_is_an_error_that_is_told_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let script = "ulimit -f 1; exec \"$0\" --listen 127.0.0.1:0 --data \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, JOSTLED]).arg(directory.path());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("tokens: cannot create: File too large"),
        "{text}"
    );
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_clean_end_waits_for_the_leases_that_are_left_and_lock_waits_in_line() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = durable(directory.path(), &[]);
    let sent = Instant::now();
    daemon.client().token("LOCK x TTL 2500");
    daemon.signal("-TERM");
    assert_eq!(daemon.finish().0, Some(0));

    let daemon = durable(directory.path(), &[]);
    let (mut first, mut second) = (daemon.client(), daemon.client());
    first.set_timeout(Duration::from_secs(120));
    second.set_timeout(Duration::from_secs(120));
    first.send("LOCK y TTL 60000");
    eventually("the first waits", || daemon.info("cmd_lock") == 1);
    second.send("LOCK y");
    let one = first.read().as_integer().unwrap();
    assert!(sent.elapsed() >= Duration::from_millis(2500));
    assert_eq!(first.say(&format!("UNLOCK y {one}")), "1");
    assert_eq!(second.read().as_integer(), Some(one + 1));
    assert_eq!(second.say("UNLOCK y"), "1");
    daemon.signal("-TERM");
    assert_eq!(daemon.finish().0, Some(0));

    // No lease was left.
    let daemon = durable(directory.path(), &[]);
    assert!(daemon.client().token("TRYLOCK x") > one as u64);
}

#[test]
fn a_lease_is_no_longer_than_a_start_would_wait_for() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = durable(directory.path(), &["--max-ttl", "60"]);
    let mut client = daemon.client();
    let token = client.token("LOCK x TTL 60000");
    for line in [
        "LOCK y TTL 60001",
        "LOCKALL 1 y TTL 60001",
        "SESSION OPEN TTL 60001",
        &format!("RENEW x {token} TTL 60001"),
    ] {
        let reply = client.ask(line);
        let text = format!("{reply:?}");
        assert!(text.contains("--max-ttl"), "{line}: {text}");
    }
    // Without a data directory no start waits.
    assert_eq!(
        Daemon::start(&[])
            .client()
            .token("LOCK y TTL 1099511627776"),
        1
    );
}

/// A backup that was restored gave out the tokens since then once more.
#[test]
fn a_copy_of_the_data_directory_is_refused_until_it_is_accepted() {
    let (own, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let daemon = durable(own.path(), &[]);
    std::fs::copy(own.path().join("tokens"), copy.path().join("tokens")).unwrap();
    let token = daemon.client().token("LOCK x");
    let refused = Command::new(JOSTLED)
        .args(["--listen", "127.0.0.1:0", "--data"])
        .arg(copy.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && text.contains("--restored"),
        "{text}"
    );
    let flags = ["--restored", "--after-crash", "grant"];
    let daemon = durable(copy.path(), &flags);
    assert!(daemon.client().token("LOCK x") > token + (1 << 39));
}
