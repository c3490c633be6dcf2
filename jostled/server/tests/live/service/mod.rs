//! jostled as a service: what systemd, probes, the log and an orderly end need.

mod audited;
mod credentials;
mod levels;
mod scrapers;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::JOSTLED;
use crate::common::{Client, Daemon, Manager, eventually, root, short};
#[cfg(feature = "tls")]
use crate::common::{output, tool};

#[test]
fn systemd_is_told_of_readiness_reloads_and_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = Manager::at(&path);
    let flags = ["--data", "none", "--listen", "127.0.0.1:0"];
    let mut command = Command::new(JOSTLED);
    let daemon = Daemon::from_command(command.args(flags).env("NOTIFY_SOCKET", &path));
    assert_eq!(manager.hear(), "READY=1");
    daemon.signal("-HUP");
    let reloading = manager.hear();
    let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    assert!(
        time.is_some_and(|text| text.parse::<u64>().is_ok()),
        "{reloading}"
    );
    assert_eq!(manager.hear(), "READY=1");
    daemon.signal("-TERM");
    assert_eq!(manager.hear(), "STOPPING=1");
    assert_eq!(daemon.finish().0, Some(0));
}

/// Starts the daemon with sockets that listen already, as systemd does.
fn activated(first: OwnedFd, second: OwnedFd, names: &str, flags: &str) -> Daemon {
    let script = format!(
        "exec 3<&0 4<&1 </dev/null >/dev/null; \
         LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES={names} exec {JOSTLED} --data none {flags}"
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
    let daemon = activated(tcp.into(), unix.into(), "main:local", "");
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
    let _daemon = activated(tcp.into(), metrics.into(), "main:metrics", "");
    assert!(get(port, "/metrics").contains("jostled_locks_held 0"));
}

#[cfg(feature = "tls")]
#[test]
fn a_socket_of_systemd_by_the_name_of_tls_is_served_with_tls() {
    use crate::common::{ELLIPTIC, certificate};
    let directory = tempfile::tempdir().unwrap();
    let [cert, key] = certificate(directory.path(), ELLIPTIC);
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tls.local_addr().unwrap().port().to_string();
    let flags = format!("--tls-cert {cert} --tls-key {key}");
    let daemon = activated(plain.into(), tls.into(), "main:tls", &flags);
    let ping = || {
        let mut cli = tool("redis-cli");
        let asked = cli.args(["--tls", "--cacert", &cert, "-p", &port, "PING"]);
        output(asked)
    };
    assert_eq!(ping(), "PONG\n");
    let mut holder = daemon.client();
    assert_eq!(holder.say("LOCK a"), "1");
    // Its certificate is read again, and the next program serves it too.
    daemon.signal("-HUP");
    assert_eq!(ping(), "PONG\n");
    let answer = daemon.client().ask("HANDOVER");
    assert_eq!(short(&answer), "OK", "{answer:?}");
    assert_eq!(ping(), "PONG\n");
    assert_eq!(holder.say("UNLOCK a"), "1");
    daemon.signal("-TERM");
    let (_, log) = daemon.finish();
    assert!(!log.contains("not taken over"), "{log}");
}

#[test]
fn whoever_has_sockets_of_systemd_alone_reads_settings_again_and_hands_over() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    // No address of its own, by `none` or by no setting at all.
    for text in ["listen = [\"none\"]\n", ""] {
        std::fs::write(&file, text).unwrap();
        let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap().into());
        let [one, other] = sockets;
        let daemon = activated(
            one,
            other,
            "one:other",
            &format!("--config {}", file.display()),
        );
        let mut holder = daemon.client();
        assert_eq!(holder.say("LOCK a"), "1");
        daemon.signal("-HUP");
        assert_eq!(daemon.client().say("HANDOVER"), "OK");
        daemon.signal("-HUP");
        assert_eq!(holder.say("UNLOCK a"), "1");
        // The log has what was done before this.
        assert_eq!(daemon.client().say("HANDOVER"), "OK");
        daemon.signal("-TERM");
        let (_, log) = daemon.finish();
        assert_eq!(log.matches("settings read again").count(), 2, "{log}");
        assert!(!log.contains("other settings have changed"), "{log}");
    }
}

#[test]
fn users_without_passwords_are_refused_at_a_public_socket_of_systemd_when_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("user root on >r ~* +@all\n");
    let public = TcpListener::bind("0.0.0.0:0").unwrap();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap();
    let flags = format!("--users-file {}", file.display());
    let daemon = activated(public.into(), metrics.into(), "main:metrics", &flags);
    let mut root = daemon.client();
    assert_eq!(root.say("AUTH root r"), "OK");
    write("user root on >r ~* +@all\nuser guest on nopass ~* +@lock\n");
    let answer = root.ask("ACL LOAD");
    assert!(
        format!("{answer:?}").contains("without a password"),
        "{answer:?}"
    );
    assert_eq!(daemon.client().say("AUTH guest x"), "WRONGPASS");
}

/// The answer over HTTP.
fn get(port: u16, path: &str) -> String {
    request(port, "GET", path)
}

fn request(port: u16, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn head_answers_as_get_does_without_the_body() {
    let daemon = Daemon::start(&["--metrics", "127.0.0.1:0"]);
    let port = daemon.port_of("metrics on http://");
    for (path, status) in [("/metrics", 200), ("/healthz", 200), ("/x", 404)] {
        let (whole, head) = (request(port, "GET", path), request(port, "HEAD", path));
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(head.ends_with("\r\n\r\n"), "{head}");
        assert!(head.contains("Content-Length: ") && whole.len() > head.len());
    }
    assert!(request(port, "PUT", "/metrics").starts_with("HTTP/1.1 405"));
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
fn a_drain_grants_nothing_to_those_behind_whom_it_sends_away() {
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.client();
    holder.token("LOCK a SHARED");
    // A client that could share the lock waits behind the first one; a client that
    // wants a free lock, reserved for the group, waits behind the group.
    let lines = ["LOCK a", "LOCK a SHARED", "LOCKALL 2 a free", "LOCK free"];
    let mut waiters = [(); 4].map(|()| daemon.client());
    for (waiter, line) in waiters.iter_mut().zip(lines) {
        let before = daemon.info("waiters");
        waiter.send(line);
        eventually("it waits", || daemon.info("waiters") > before);
    }
    assert_eq!(holder.say("SHUTDOWN DRAIN 600s"), "OK");
    for (waiter, line) in waiters.iter_mut().zip(lines) {
        assert_eq!(short(&waiter.read()), "SHUTDOWN", "{line}");
    }
    assert_eq!(holder.info("grants_after_wait"), 0);
    assert_eq!(holder.info("waits"), 5);
    assert_eq!(holder.info("wait_cancels"), 5);
}

#[test]
fn a_drain_ends_at_its_time_though_somebody_holds() {
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.client();
    holder.token("LOCK a");
    assert_eq!(daemon.client().say("SHUTDOWN DRAIN 300ms"), "OK");
    holder.set_timeout(Duration::from_secs(120));
    assert!(holder.try_read().is_err(), "its connection ends");
    assert_eq!(daemon.finish().0, Some(0));
    // Nobody holds anything.
    let daemon = Daemon::start(&[]);
    assert_eq!(daemon.client().say("SHUTDOWN DRAIN 600s"), "OK");
    assert_eq!(daemon.finish().0, Some(0));
}

#[test]
fn the_units_name_what_the_daemon_does() {
    let read =
        |name: &str| std::fs::read_to_string(root().join("jostled/dist").join(name)).unwrap();
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
