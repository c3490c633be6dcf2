//! jostled as a service: what systemd, probes, the log and an orderly end need.

#![allow(clippy::unwrap_used)] // A helper of a test fails the test.

#[path = "../common/mod.rs"]
mod common;
mod credentials;
mod levels;
mod scrapers;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Client, Daemon, eventually, root, short};

const JOSTLED: &str = env!("CARGO_BIN_EXE_jostled");

#[test]
fn systemd_is_told_of_readiness_reloads_and_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let hear = || {
        let mut bytes = [0; 500];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let flags = ["--data", "none", "--listen", "127.0.0.1:0"];
    let mut command = Command::new(JOSTLED);
    let daemon = Daemon::from_command(command.args(flags).env("NOTIFY_SOCKET", &path));
    assert_eq!(hear(), "READY=1");
    daemon.signal("-HUP");
    let reloading = hear();
    let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    assert!(
        time.is_some_and(|text| text.parse::<u64>().is_ok()),
        "{reloading}"
    );
    assert_eq!(hear(), "READY=1");
    daemon.signal("-TERM");
    assert_eq!(hear(), "STOPPING=1");
    assert_eq!(daemon.finish().0, Some(0));
}

/// Starts the daemon with sockets that listen already, as systemd does.
fn activated(first: OwnedFd, second: OwnedFd, names: &str) -> Daemon {
    let script = format!(
        "exec 3<&0 4<&1 </dev/null >/dev/null; \
         LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES={names} exec {JOSTLED} --data none"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    Daemon::from_command(command.stdin(first).stdout(second))
}

#[test]
fn sockets_of_systemd_are_served_by_their_kind_and_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let unix = UnixListener::bind(&path).unwrap();
    let daemon = activated(tcp.into(), unix.into(), "main:local");
    // Not the address that it would listen on otherwise.
    assert_eq!(daemon.port, port);
    let mut over_tcp = daemon.client();
    assert_eq!(over_tcp.say("LOCK a"), "1");
    let mut over_unix = Client::new(UnixStream::connect(&path).unwrap());
    assert_eq!(over_unix.say("TRYLOCK a"), "nil");
    daemon.signal("-TERM");
    assert_eq!(daemon.finish().0, Some(0));
    // They are systemd's to remove.
    assert!(path.exists());

    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = metrics.local_addr().unwrap().port();
    let _daemon = activated(tcp.into(), metrics.into(), "main:metrics");
    assert!(get(port, "/metrics").contains("jostled_locks_held 0"));
}

/// What HTTP answers.
fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn health_is_what_clients_would_find() {
    let daemon = Daemon::start(&["--metrics", "127.0.0.1:0"]);
    let port = daemon.port_of("metrics on http://");
    let healthy = get(port, "/healthz");
    assert!(
        healthy.starts_with("HTTP/1.1 200") && healthy.ends_with("\r\nok\n"),
        "{healthy}"
    );
    assert!(get(port, "/other").starts_with("HTTP/1.1 404"));
    let mut client = daemon.client();
    client.token("LOCK a");
    assert_eq!(client.say("SHUTDOWN DRAIN 60s"), "OK");
    assert!(get(port, "/healthz").starts_with("HTTP/1.1 503"));
    assert!(get(port, "/metrics").contains("jostled_draining 1"));
    assert_eq!(client.say("SHUTDOWN ABORT"), "OK");
    assert!(get(port, "/healthz").starts_with("HTTP/1.1 200"));
}

#[test]
fn what_takes_something_from_others_is_audited_at_every_level() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "secret").unwrap();
    let file = file.to_str().unwrap();
    let flags = ["--password-file", file, "--log-level", "warn"];
    let texts = [("text", "jostled: audit: "), ("json", "{\"")];
    for (format, start) in texts {
        // The line that tells of readiness is one of level info.
        let socket = directory.path().join(format);
        let child = Command::new(JOSTLED)
            .args(["--data", "none", "--listen", "none", "--log-format", format])
            .args(flags)
            .arg("--unix")
            .arg(&socket)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        eventually("it listens", || UnixStream::connect(&socket).is_ok());
        let connect = || Client::new(UnixStream::connect(&socket).unwrap());
        let mut stranger = connect();
        assert_eq!(stranger.say("AUTH mallory guess"), "WRONGPASS");
        let mut client = connect();
        let mut victim = connect();
        assert_eq!(client.say("AUTH secret"), "OK");
        assert_eq!(victim.say("AUTH secret"), "OK");
        let id = victim.say("CLIENT ID");
        victim.say("LOCK the\nlock");
        assert_eq!(client.say("FORCEUNLOCK the\nlock"), "1");
        assert_eq!(client.say(&format!("CLIENT KILL {id}")), "OK");
        assert_eq!(client.say("SHUTDOWN"), "OK");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let log = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("audit")).collect();
        assert_eq!(lines.len(), 4, "{log}");
        assert!(lines.iter().all(|line| line.starts_with(start)), "{log}");
        assert!(!log.contains("ready") && !log.contains("guess"), "{log}");
        for (line, words) in lines.iter().zip([
            ["authentication failed", "mallory", "unix"],
            ["forceunlock", "the", "default"],
            ["client kill", &id, "default"],
            ["shutdown", "default", "unix"],
        ]) {
            assert!(
                words.iter().all(|word| line.contains(word)),
                "{words:?}: {line}"
            );
        }
    }
}

#[test]
fn a_drain_waits_for_holders_and_grants_nothing() {
    let daemon = Daemon::start(&[]);
    let (mut admin, mut holder, mut waiter) = (daemon.client(), daemon.client(), daemon.client());
    holder.token("LOCK a");
    assert_eq!(holder.say("LOCK l TTL 600000"), "2");
    let session = holder.say("SESSION OPEN TTL 600000");
    waiter.send("LOCK a");
    daemon.await_info("waiters", 1);
    for bad in [
        "SHUTDOWN DRAIN",
        "SHUTDOWN DRAIN soon",
        "SHUTDOWN LATER",
        "SHUTDOWN ABORT",
    ] {
        assert_eq!(admin.say(bad), "ERR", "{bad}");
    }
    // Once in vain, so that everything works as before.
    assert_eq!(admin.say("SHUTDOWN DRAIN 600s"), "OK");
    assert_eq!(short(&waiter.read()), "SHUTDOWN");
    assert_eq!(admin.say("SHUTDOWN ABORT"), "OK");
    assert_eq!(waiter.say("LOCK b"), "3");
    assert_eq!(waiter.say("UNLOCK b"), "1");
    waiter.send("LOCK a");
    daemon.await_info("waiters", 1);
    assert_eq!(admin.say("SHUTDOWN DRAIN 600s"), "OK");
    assert_eq!(short(&waiter.read()), "SHUTDOWN");
    let mut late = daemon.client();
    for client in [&mut admin, &mut holder, &mut waiter, &mut late] {
        for line in [
            "LOCK x",
            "TRYLOCK x",
            "LOCKALL 1 x",
            "SESSION OPEN TTL 1000",
        ] {
            assert_eq!(client.say(line), "SHUTDOWN", "{line}");
        }
    }
    assert_eq!(late.say("MULTI"), "OK");
    assert_eq!(late.say("LOCK x"), "SHUTDOWN");
    assert_eq!(late.say("EXEC"), "EXECABORT");
    // Holders go on, over any connection.
    assert_eq!(late.say("RENEW l 2 TTL 600000"), "1");
    assert_eq!(late.say(&format!("SESSION RENEW {session}")), "1");
    assert_eq!(holder.say("UNLOCK a"), "1");
    assert_eq!(admin.say("PING"), "PONG");
    assert_eq!(late.say("UNLOCK l 2"), "1");
    assert_eq!(daemon.finish().0, Some(0));
}

#[test]
fn a_drain_ends_at_its_time_though_somebody_holds() {
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.client();
    holder.token("LOCK a");
    assert_eq!(daemon.client().say("SHUTDOWN DRAIN 300ms"), "OK");
    holder.set_timeout(Duration::from_secs(20));
    assert!(holder.try_read().is_err(), "its connection ends");
    assert_eq!(daemon.finish().0, Some(0));
    // Nobody holds anything.
    let daemon = Daemon::start(&[]);
    assert_eq!(daemon.client().say("SHUTDOWN DRAIN 600s"), "OK");
    assert_eq!(daemon.finish().0, Some(0));
}

#[test]
fn the_units_name_what_the_daemon_does() {
    let read = |name: &str| std::fs::read_to_string(root().join("dist").join(name)).unwrap();
    let unit = read("jostled.service");
    for line in [
        "Type=notify",
        "ExecReload=/bin/sh -c 'kill -HUP $MAINPID'",
        "LoadCredential=jostled.users",
        "LoadCredential=jostled.ca",
    ] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
    let socket = read("jostled.socket");
    assert!(socket.contains("ListenStream=127.0.0.1:2626"));
    // The port that the daemon has by itself.
    assert!(jostle_lockd::config::DEFAULT_LISTEN.ends_with(":2626"));
}
