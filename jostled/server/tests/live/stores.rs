//! `--store file`: what survives the end of the daemon, and files that cannot be used.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use jostle_resp::Value;

use crate::JOSTLED;
use crate::common::{Daemon, eventually, short};

const USERS: &str = "user app on >a ~* +@lock max-locks=9\nuser boss on >b ~* +@lock +@admin\n";

fn flags<'f>(directory: &'f Path, more: &[&'f str]) -> Vec<&'f str> {
    let data = directory.to_str().unwrap();
    let mut flags = vec!["--data", data, "--listen", "127.0.0.1:0"];
    flags.extend(more);
    flags
}

/// A daemon with a data directory and a store.
fn stored(directory: &Path, more: &[&str]) -> Daemon {
    Daemon::start_exactly(&flags(directory, &[&["--store", "file"], more].concat()))
}

/// The log of a start that fails.
fn refused(directory: &Path, more: &[&str]) -> String {
    let mut command = Command::new(JOSTLED);
    let output = command.args(flags(directory, more)).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The milliseconds that are left of a lease.
fn left_ms(holder: &Value) -> i64 {
    let (Value::Array(holders), name) = (holder, Some("ttl-ms")) else {
        panic!("{holder:?}");
    };
    let Value::Array(fields) = &holders[0] else {
        panic!("{holders:?}");
    };
    let at = fields
        .iter()
        .position(|field| field.as_text() == name)
        .unwrap();
    fields[at + 1].as_integer().unwrap()
}

#[test]
fn leases_and_sessions_survive_kill_9_with_their_whole_ttl_and_nothing_waits() {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    std::fs::write(&users, USERS).unwrap();
    let users = ["--users-file", users.to_str().unwrap()];
    let mut daemon = stored(directory.path(), &users);
    let mut client = daemon.client();
    client.say("AUTH app a");
    let session = client.say("SESSION OPEN TTL 600000");
    let lease = client.token("LOCK lease TTL 400000");
    client.say(&format!("RENEW lease {lease} TTL 300000"));
    let kept = client.token(&format!("LOCK kept SESSION {session} SHARED"));
    let place = client.token("LOCK place TTL 600000 OF 2");
    client.ask("LOCKALL 2 one two TTL 600000");
    client.token("LOCK own");
    let gone = client.token("LOCK gone TTL 600000");
    assert_eq!(client.say(&format!("UNLOCK gone {gone}")), "1");
    let ended = client.say("SESSION OPEN TTL 600000");
    client.token(&format!("LOCK theirs SESSION {ended}"));
    assert_eq!(client.say(&format!("SESSION CLOSE {ended}")), "1");

    for _ in 0..3 {
        drop(daemon);
        // Users have other numbers then.
        let lines: Vec<&str> = USERS.lines().rev().collect();
        std::fs::write(users[1], lines.join("\n")).unwrap();
        daemon = stored(directory.path(), &users);
        let (mut app, mut boss) = (daemon.client(), daemon.client());
        app.say("AUTH app a");
        boss.say("AUTH boss b");
        for name in ["loading_ms", "crash_wait_ms"] {
            assert_eq!(boss.info(name), 0, "{name}");
        }
        assert_eq!((boss.info("holds"), boss.info("sessions")), (5, 1));
        for line in [
            "TRYLOCK lease",
            "TRYLOCK kept",
            "TRYLOCK one",
            "LOCK two WAIT 0",
        ] {
            assert_eq!(boss.say(line), "nil", "{line}");
        }
        assert_eq!(boss.say("TRYLOCK place"), "BADLIMIT");
        // Renewed to less than it was stored with, and given that again.
        let left = left_ms(&boss.ask("HOLDER lease"));
        assert!((390_000..=404_000).contains(&left), "{left}");
        // No client has the number under which it was adopted.
        for line in ["UNLOCK lease", "UNLOCK kept", "UNLOCK one"] {
            assert_eq!(app.say(line), "NOTOWNER", "{line}");
        }
        assert_eq!(boss.say(&format!("SESSION RENEW {session}")), "NOSESSION");
        assert_eq!(app.say(&format!("SESSION RENEW {session}")), "1");
        // What was adopted counts for its user.
        let names: Vec<String> = (0..9).map(|name| format!("LOCK q{name}")).collect();
        let refused = names.iter().filter(|line| app.say(line) == "QUOTA").count();
        assert_eq!(refused, 5);
        for name in ["own", "gone", "theirs"] {
            let token = boss.token(&format!("LOCK {name}"));
            assert!(token > gone, "{name}");
        }
    }
    let mut app = daemon.client();
    app.say("AUTH app a");
    for (name, token) in [("lease", lease), ("place", place), ("kept", kept)] {
        assert_eq!(app.say(&format!("UNLOCK {name} {token}")), "1", "{name}");
    }
    assert_eq!(app.say(&format!("RENEW lease {lease} TTL 9")), "NOTOWNER");
    // A clean end leaves the rest, too.
    daemon.signal("-TERM");
    assert_eq!(daemon.finish().0, Some(0));
    let daemon = stored(directory.path(), &users);
    let mut app = daemon.client();
    app.say("AUTH app a");
    assert_eq!(app.info("holds"), 2);
    assert_eq!(app.say(&format!("SESSION CLOSE {session}")), "1");
}

#[test]
fn a_log_that_may_miss_something_is_not_used_and_the_start_waits() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = stored(directory.path(), &[]);
    daemon.client().token("LOCK old TTL 600000");
    drop(daemon);
    // A run without the store: its leases are not in the log.
    let daemon = Daemon::start_exactly(&flags(directory.path(), &["--after-crash", "grant"]));
    daemon.client().token("LOCK new TTL 600000");
    drop(daemon);
    for _ in 0..2 {
        // Not even if the start is killed while it waits.
        let daemon = stored(
            directory.path(),
            &["--after-crash", "grant", "--max-ttl", "900"],
        );
        let mut client = daemon.client();
        assert_eq!(client.say("TRYLOCK old"), "LOADING");
        assert_eq!(client.info("holds"), 0);
    }
    let daemon = stored(directory.path(), &[]);
    assert_eq!(daemon.client().say("LEASES FORGET"), "OK");
    daemon.client().token("LOCK x TTL 600000");
    drop(daemon);
    let daemon = stored(directory.path(), &[]);
    assert_eq!(daemon.client().say("TRYLOCK x"), "nil");
    drop(daemon);

    // Damage: it waits for all that may have been granted, and the log tells why.
    let log = directory.path().join("log");
    let mut bytes = std::fs::read(&log).unwrap();
    let at = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let daemon = stored(directory.path(), &["--max-ttl", "700"]);
    assert!(
        daemon.log.iter().any(|line| line.contains("log.damaged")),
        "{:?}",
        daemon.log
    );
    let left_ms = daemon.info("loading_ms");
    assert!((1..=700_000).contains(&left_ms), "{left_ms}");
    assert_eq!(daemon.client().say("LEASES FORGET"), "OK");
    daemon.client().token("LOCK y TTL 600000");
    drop(daemon);

    // A copy of the directory is refused, and of an accepted one nothing is adopted.
    let copy = tempfile::tempdir().unwrap();
    for name in ["tokens", "log"] {
        std::fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
    }
    assert!(refused(copy.path(), &["--store", "file"]).contains("--restored"));
    let daemon = stored(copy.path(), &["--restored"]);
    assert_eq!(daemon.client().say("TRYLOCK y"), "LOADING");
    assert_eq!(daemon.info("holds"), 0);
}

#[test]
fn files_that_cannot_be_used_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let file = ["--store", "file"];
    let output = Command::new(JOSTLED)
        .args(["--data", "none"])
        .args(file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && text.contains("--data none"),
        "{text}"
    );

    let daemon = stored(path, &[]);
    assert!(refused(path, &file).contains("in use by another jostled"));
    drop(daemon);
    let log = path.join("log");
    let mode = std::os::unix::fs::PermissionsExt::mode(&log.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "it has the ids of sessions");
    let bytes = std::fs::read(&log).unwrap();
    let mut newer = bytes.clone();
    newer[3] = 9;
    for (content, why) in [
        (newer, "a later version"),
        (b"my diary\n".repeat(200), "no log of jostled"),
    ] {
        std::fs::write(&log, content).unwrap();
        let text = refused(path, &file);
        assert!(text.contains(why), "{text}");
    }
    std::fs::remove_file(&log).unwrap();
    // One that it may not write, and a full disk: it leaves no part of a log.
    let script = "ulimit -f 1000; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", script, JOSTLED])
        .args(flags(path, &file));
    let text = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    assert!(text.contains("log: cannot write: File too large"), "{text}");
    assert!(!log.exists());
    if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", JOSTLED];
        command.args(nobody).args(flags(path, &file));
        let text = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
        assert!(text.contains("Permission denied"), "{text}");
    }
    drop(stored(path, &[]));
}

/// 64 names of 60,000 bytes are 3.8 MB of log at once, and soon more than a half of it may have.
#[test]
fn on_a_full_disk_nothing_begins_while_ends_and_renewals_go_on() {
    let directory = tempfile::tempdir().unwrap();
    // Dash counts in blocks of 512 bytes: the log has 32 MiB, and cannot grow.
    let script = "ulimit -f 70000; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    let large = [
        "--max-name",
        "65535",
        "--max-request",
        "8M",
        "--store",
        "file",
    ];
    command
        .args(["-c", script, JOSTLED])
        .args(flags(directory.path(), &large));
    let daemon = Daemon::from_command(&mut command);
    let mut client = daemon.client();
    let names = |set: u32| -> Vec<String> {
        let name = |number| format!("{set}-{number:060000}");
        (0..64).map(name).collect()
    };
    let mut tokens = Vec::new();
    for set in 0..9 {
        let line = format!("LOCKALL 64 {} TTL 600000", names(set).join(" "));
        match client.ask(&line) {
            Value::Array(granted) => tokens.push(granted),
            refused => {
                assert_eq!(short(&refused), "NOTOKENS", "{refused:?}");
                break;
            }
        }
        // The store's thread notices after its reply.
        client.info("holds");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!((1..4).contains(&tokens.len()), "{}", tokens.len());
    for begins in ["LOCK other", "SESSION OPEN TTL 600000"] {
        assert_eq!(client.say(begins), "NOTOKENS", "{begins}");
    }
    for (set, granted) in (0..).zip(&tokens) {
        for (name, token) in names(set).iter().zip(granted) {
            let token = token.as_integer().unwrap();
            assert_eq!(
                client.say(&format!("RENEW {name} {token} TTL 1200000")),
                "1"
            );
        }
    }
    for (set, granted) in (0..).zip(&tokens) {
        for (name, token) in names(set).iter().zip(granted).skip(1) {
            let token = token.as_integer().unwrap();
            assert_eq!(client.say(&format!("UNLOCK {name} {token}")), "1");
        }
    }
    eventually("there is room again", || {
        client.say("LOCK other TTL 600000") != "NOTOKENS"
    });
    let kept = tokens.len() as u64 + 1;
    drop(daemon);
    let daemon = stored(directory.path(), &large[..4]);
    assert_eq!(daemon.info("holds"), kept);
}

#[test]
fn a_handover_keeps_the_store_and_a_store_comes_and_goes_with_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = stored(directory.path(), &[]);
    let mut client = daemon.client();
    let session = client.say("SESSION OPEN TTL 600000");
    client.token(&format!("LOCK kept SESSION {session}"));
    let (over, pairs) = (AtomicBool::new(false), 200);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (mut other, over) = (daemon.client(), &over);
            scope.spawn(move || {
                let mut done = 0;
                while done < pairs || !over.load(Relaxed) {
                    let token = other.token(&format!("LOCK busy{number} TTL 60000"));
                    assert_eq!(other.say(&format!("UNLOCK busy{number} {token}")), "1");
                    done += 1;
                }
            });
        }
        for _ in 0..3 {
            assert_eq!(daemon.client().say("HANDOVER"), "OK");
        }
        over.store(true, Relaxed);
    });
    assert_eq!(client.info("handovers"), 3);
    client.token("LOCK after TTL 600000");
    drop(daemon);
    let daemon = stored(directory.path(), &[]);
    assert_eq!((daemon.info("holds"), daemon.info("sessions")), (2, 1));
    drop(daemon);

    let config = directory.path().join("jostled.toml");
    std::fs::write(&config, "").unwrap();
    let file = config.to_str().unwrap();
    let daemon = Daemon::start_exactly(&flags(directory.path(), &["--config", file]));
    daemon.client().say("LEASES FORGET");
    std::fs::write(&config, "store = \"file\"\n").unwrap();
    let reply = daemon.client().ask("HANDOVER");
    assert!(
        reply.as_text().unwrap().contains("--store is another one"),
        "{reply:?}"
    );
    std::fs::write(&config, "").unwrap();
    assert_eq!(daemon.client().say("HANDOVER"), "OK");
}

/// Nothing is told that may not be on disk; what the next start finds there goes on.
#[test]
fn a_sync_that_fails_ends_the_daemon_and_tells_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    let mut command = crate::common::tool("strace");
    // The start syncs the tokens and the log some times before.
    let inject = "inject=fdatasync:error=EIO:when=12";
    command
        .args(["-f", "-e", "trace=fdatasync", "-e", inject, "-o"])
        .arg(&trace);
    command
        .arg(JOSTLED)
        .args(flags(directory.path(), &["--store", "file"]));
    let daemon = Daemon::from_command(&mut command);
    let mut client = daemon.client();
    let mut told = 0;
    loop {
        client.send(&format!("LOCK x{told} TTL 600000"));
        match client.try_read() {
            Ok(_) => told += 1,
            Err(_) => break,
        }
    }
    let (code, log) = daemon.finish();
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains("the log cannot be written: Input/output error"),
        "{log}"
    );
    let daemon = stored(directory.path(), &[]);
    let mut client = daemon.client();
    assert!(told > 0);
    for number in 0..told {
        assert_eq!(client.say(&format!("TRYLOCK x{number}")), "nil");
    }
    let found = client.info("holds");
    assert!((told..=told + 1).contains(&found), "{found} of {told}");
}
