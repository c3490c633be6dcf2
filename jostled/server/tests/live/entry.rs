//! Who gets in: passwords, and connections over TLS.

#[cfg(feature = "tls")]
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::common::{Daemon, eventually, short};

#[test]
fn passwords_are_demanded_and_public_addresses_need_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let file = file.to_str().unwrap();
    let daemon = Daemon::start(&["--password-file", file]);
    let mut client = daemon.client();
    for (line, expected) in [
        ("LOCK a", "NOAUTH"),
        ("PING", "NOAUTH"),
        ("NONSENSE", "NOAUTH"),
        ("HELLO 3", "NOAUTH"),
        ("AUTH wrong", "WRONGPASS"),
        ("AUTH other secret", "WRONGPASS"),
        ("LOCK a", "NOAUTH"),
        ("AUTH secret", "OK"),
        ("LOCK a", "1"),
        ("RESET", "RESET"),
        ("UNLOCK a", "NOAUTH"),
        ("AUTH default secret", "OK"),
        ("UNLOCK a", "1"),
    ] {
        assert_eq!(client.say(line), expected, "{line}");
    }
    let mut other = daemon.client();
    other.ask("HELLO 3 AUTH default secret");
    assert_eq!(other.say("PING"), "PONG");

    let refused = std::process::Command::new(crate::JOSTLED)
        .args(["--data", "none", "--listen", "0.0.0.0:0"])
        .env_remove("JOSTLED_PASSWORD")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("no password is set"), "{text}");
}

#[test]
fn a_wrong_password_costs_its_connection_time_and_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let daemon = Daemon::start(&["--password-file", file.to_str().unwrap()]);
    let known = || {
        let mut client = daemon.client();
        assert_eq!(client.say("AUTH secret"), "OK");
        client
    };
    let mut other = known();
    let mut client = daemon.client();
    let start = Instant::now();
    // What stands behind it waits, too, a right password above all.
    client.send("AUTH wrong");
    client.send("HELLO 3 AUTH default wrong");
    client.send("AUTH secret");
    // Others are served, old and new.
    assert_eq!(other.say("PING"), "PONG");
    known();
    assert_eq!(short(&client.read()), "WRONGPASS");
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(short(&client.read()), "WRONGPASS");
    assert!(start.elapsed() >= Duration::from_secs(3));
    assert_eq!(short(&client.read()), "OK");
    assert_eq!(other.info("auth_failures"), 2);
    // A client that leaves meanwhile is removed.
    let mut leaver = daemon.client();
    leaver.send("AUTH wrong");
    eventually("it was tried", || other.info("auth_failures") == 3);
    drop((leaver, client));
    eventually("they are gone", || other.info("connected_clients") == 1);
}

#[cfg(feature = "tls")]
#[test]
fn tls_serves_redis_cli_and_nothing_else() {
    use crate::common::{ELLIPTIC, certificate, output, tool};
    let directory = tempfile::tempdir().unwrap();
    let [cert, key] = &certificate(directory.path(), ELLIPTIC);
    let start = |request_timeout: &str| {
        let plain = ["--data", "none", "--listen", "none"];
        let tls = ["--tls-listen", "127.0.0.1:0", "--tls-cert", cert];
        let more = ["--tls-key", key, "--request-timeout", request_timeout];
        Daemon::start_exactly(&[&plain[..], &tls, &more].concat())
    };
    let daemon = start("120");
    let port = daemon.port.to_string();
    let cli = |script: &str| {
        let line = format!("{script} | redis-cli --tls --cacert {cert} -p {port}");
        output(tool("sh").args(["-c", &line]))
    };
    assert_eq!(cli("printf 'LOCK a\\nECHO b\\n'"), "1\nb\n");
    // Many requests and large replies.
    let text = cli("(for n in $(seq 300); do echo INFO; done; echo ECHO end)");
    assert!(text.ends_with("end\n"));
    // A wait that another connection ends, with a command behind it.
    let script = "(echo LOCK w TTL 100; echo LOCK w WAIT 60000; echo ECHO behind)";
    assert_eq!(cli(script), "2\n3\nbehind\n");
    // A client that does not use TLS is closed: for its invalid bytes, or by the timeout.
    let daemon = start("1");
    let mut plain = daemon.client();
    plain.stream.write_all(b"PING\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = plain.stream.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"+PONG"));
    let mut silent = daemon.client();
    let _ = silent.stream.read_to_end(&mut rest);
}

/// CPU time of a daemon's threads so far, by name, in nanoseconds.
#[cfg(feature = "tls")]
fn cpu_by_thread(daemon: &Daemon) -> std::collections::HashMap<String, u64> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    tasks
        .map(|task| {
            let path = task.unwrap().path();
            let times = read(path.join("schedstat"));
            let ran = times.split(' ').next().unwrap().parse().unwrap();
            (read(path.join("comm")).trim().to_owned(), ran)
        })
        .collect()
}

#[cfg(feature = "tls")]
#[test]
fn handshakes_are_not_made_where_commands_are_executed() {
    use crate::common::{certificate, output, tool};
    let directory = tempfile::tempdir().unwrap();
    // A signature of such a key takes milliseconds.
    let [cert, key] = &certificate(directory.path(), &["rsa:4096"]);
    let tls = [
        "--tls-listen",
        "127.0.0.1:0",
        "--tls-cert",
        cert,
        "--tls-key",
        key,
    ];
    let daemon =
        Daemon::start_exactly(&[&["--data", "none", "--listen", "none"], &tls[..]].concat());
    let port = daemon.port.to_string();
    let before = cpu_by_thread(&daemon);
    for _ in 0..10 {
        let mut cli = tool("redis-cli");
        let asked = cli.args(["--tls", "--cacert", cert, "-p", &port, "PING"]);
        assert_eq!(output(asked), "PONG\n");
    }
    let after = cpu_by_thread(&daemon);
    // A thread that has just begun has not run, and bears no name yet.
    let spent = |name: &str| after[name] - before.get(name).unwrap_or(&0);
    let (loop_ns, handshakes_ns) = (spent("jostled"), spent("handshakes"));
    assert!(
        handshakes_ns > loop_ns,
        "{handshakes_ns} ns, event loop {loop_ns} ns"
    );
}
