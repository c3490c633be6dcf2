//! State that a handover keeps.

use std::os::unix::net::UnixStream;

use jostle_resp::Value;

use super::{Installed, assert_handed_over, await_waiters, hand_over, sends};
use crate::common::{Client, eventually, short};

#[test]
fn holds_lines_leases_and_sessions_go_on_as_they_were() {
    let installed = Installed::new();
    let daemon = installed.start(&[]);
    let mut holder = daemon.client();
    assert_eq!(holder.say("LOCK line"), "1");
    assert_eq!(holder.say("LOCK lease TTL 60000"), "2");
    assert_eq!(holder.say("LOCK pool OF 2"), "3");
    let session = holder.ask("SESSION OPEN TTL 60000");
    let session = session.as_text().unwrap().to_owned();
    assert_eq!(holder.say(&format!("LOCK owned SESSION {session}")), "4");
    // Three waiters in one line, one of which times out; a group; and a waiter for the
    // lease that ends.
    let mut line: Vec<_> = (0..3).map(|_| daemon.client()).collect();
    for (nth, client) in line.iter_mut().enumerate() {
        client.send(["LOCK line", "LOCK line WAIT 4000", "LOCK line TTL 60000"][nth]);
        // Waits that have begun: on a busy machine the short one may have ended.
        daemon.await_info("waits", nth as u64 + 1);
    }
    let mut group = daemon.client();
    group.send("LOCKALL 2 line free");
    eventually("the group waits", || daemon.info("waits") > 3);
    let mut next = daemon.client();
    assert_eq!(holder.say("LOCK short TTL 60000"), "5");
    let waits = daemon.info("waits");
    next.send("LOCK short");
    daemon.await_info("waits", waits + 1);
    assert_eq!(holder.say("RENEW short 5 TTL 3000"), "1");
    let id = short(&holder.ask("CLIENT ID"));

    assert_handed_over(&daemon, 1);
    assert_handed_over(&daemon, 2);

    assert_eq!(short(&holder.ask("CLIENT ID")), id);
    assert_eq!(daemon.info("holds"), 5);
    assert_eq!(holder.say("LOCK line"), "ALREADYHELD");
    // Deadlines stay the same: that of the lease, and that of the waiter in the line.
    let token = next.read().as_integer();
    assert_eq!(token, Some(6));
    assert_eq!(short(&line[1].read()), "nil");
    assert_eq!(daemon.info("expirations"), 1);
    // Places, the reserved name of the group, and the session.
    let mut other = daemon.client();
    assert_eq!(other.say("TRYLOCK free"), "nil");
    assert_eq!(other.say("TRYLOCK pool OF 2"), "7");
    assert_eq!(other.say("TRYLOCK pool OF 2"), "ALREADYHELD");
    assert_eq!(daemon.client().say("TRYLOCK pool OF 2"), "nil");
    assert_eq!(other.say(&format!("SESSION RENEW {session}")), "1");
    assert_eq!(other.say("RENEW lease 2 TTL 60000"), "1");
    assert_eq!(other.say("UNLOCK owned 4"), "1");
    // The line is served in its order.
    assert_eq!(holder.say("UNLOCK line"), "1");
    assert_eq!(short(&line[0].read()), "8");
    drop(line.remove(0));
    assert_eq!(short(&line[1].read()), "9");
    assert_eq!(other.say("UNLOCK line 9"), "1");
    let tokens = group.read();
    assert_eq!(format!("{tokens:?}"), "Array([Integer(10), Integer(11)])");
    // What is owned without a lease goes with its connection, as ever.
    drop(group);
    daemon.await_info("releases_by_disconnect", 3);
    let mut info = daemon.client();
    let ended: u64 = ["releases", "releases_by_disconnect", "expirations"]
        .map(|name| info.info(name))
        .iter()
        .sum();
    assert_eq!(info.info("grants"), ended + info.info("holds"));
}

#[test]
fn connections_go_on_in_the_middle_of_what_they_say_and_hear() {
    let installed = Installed::new();
    let socket = installed.path("socket");
    let daemon = installed.start(&["--unix", socket.to_str().unwrap(), "--max-output", "64M"]);
    let mut half = daemon.client();
    sends(&mut half, "*2\r\n$4\r\nLOCK\r\n$4\r\nha");
    // What is behind a wait is kept, even if it is cut in the middle.
    let mut holder = Client::new(UnixStream::connect(&socket).unwrap());
    assert_eq!(holder.say("LOCK held"), "1");
    let mut behind = daemon.client();
    sends(&mut behind, "LOCK held\r\nECHO one\r\nLOCK behind\r\nEC");
    await_waiters(&daemon, 1);
    let mut queued = daemon.client();
    queued.ask("HELLO 3 SETNAME me");
    assert_eq!(queued.say("MULTI"), "OK");
    assert_eq!(queued.say("LOCK queued"), "QUEUED");
    // Replies that nobody has read: more than the kernel takes.
    let mut deaf = daemon.client();
    let long = "x".repeat(60_000);
    (0..250).for_each(|_| deaf.send(&format!("ECHO {long}")));
    sends(&mut deaf, "ECHO last\r\n");
    let mut watcher = daemon.client();
    eventually("replies are stuck", || {
        watcher.info("buffer_memory") > 1 << 20
    });

    assert_handed_over(&daemon, 1);

    sends(&mut half, "lf\r\n");
    assert_eq!(short(&half.read()), "2");
    assert_eq!(holder.say("UNLOCK held"), "1");
    let replies: Vec<String> = (0..3).map(|_| short(&behind.read())).collect();
    assert_eq!(replies, ["3", "one", "4"]);
    sends(&mut behind, "HO two\r\n");
    assert_eq!(short(&behind.read()), "two");
    assert_eq!(queued.say("EXEC"), "Array([Integer(5)])");
    let line = queued.ask("CLIENT INFO");
    let line = line.as_text().unwrap();
    assert!(
        line.contains("name=me") && line.contains("resp=3"),
        "{line}"
    );
    for _ in 0..250 {
        assert_eq!(deaf.read().as_text(), Some(&*long));
    }
    assert_eq!(short(&deaf.read()), "last");
    // New ones are let in at both doors, and the file goes with the daemon.
    let mut late = Client::new(UnixStream::connect(&socket).unwrap());
    assert_eq!(late.say("PING"), "PONG");
    daemon.signal("-TERM");
    assert_eq!(daemon.finish().0, Some(0));
    assert!(!socket.exists());
}

/// All texts of a reply.
fn words(reply: &Value, found: &mut Vec<String>) {
    match reply {
        Value::Array(parts) => parts.iter().for_each(|part| words(part, found)),
        other => found.push(short(other)),
    }
}

#[test]
fn a_walk_over_all_holds_goes_on_where_it_was() {
    let installed = Installed::new();
    let daemon = installed.start(&[]);
    let mut holder = daemon.client();
    for number in 0..50 {
        holder.token(&format!("LOCK name{number}"));
    }
    // Holes, which the new program must not close.
    for number in 0..20 {
        assert_eq!(holder.say(&format!("UNLOCK name{number}")), "1");
    }
    let mut seen = Vec::new();
    let mut cursor = "0".to_owned();
    for page in 0.. {
        let reply = holder.ask(&format!("HOLDERS CURSOR {cursor} COUNT 5"));
        let Value::Array(parts) = &reply else {
            panic!("{reply:?}")
        };
        cursor = short(&parts[0]);
        words(&parts[1], &mut seen);
        if cursor == "0" {
            break;
        }
        if page == 2 {
            assert_eq!(hand_over(&daemon), "OK");
        }
    }
    for number in 20..50 {
        let name = format!("name{number}");
        assert!(seen.contains(&name), "{name} is not among {seen:?}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn what_tls_connections_own_ends_and_their_leases_go_on() {
    use rustls::pki_types::pem::PemObject;
    use std::io::Read;
    use std::sync::Arc;
    let installed = Installed::new();
    let path = |name: &str| installed.path(name).to_str().unwrap().to_owned();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    crate::common::output(
        crate::common::tool("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"])
            .args([
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-subj",
                "/CN=localhost",
            ])
            .args(["-addext", "subjectAltName=DNS:localhost", "-addext"])
            .args(["basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", &key, "-out", &cert]),
    );
    let flags = ["--tls-cert", &cert, "--tls-key", &key];
    let daemon = installed.start(&[&flags[..], &["--tls-listen", "127.0.0.1:0"]].concat());
    let mut listening = daemon
        .log
        .iter()
        .filter(|line| line.contains("listening on"));
    let port = listening.next_back().unwrap().rsplit(':').next().unwrap();
    let mut roots = rustls::RootCertStore::empty();
    let root = rustls::pki_types::CertificateDer::from_pem_file(&cert).unwrap();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let encrypted = || {
        let name = "localhost".try_into().unwrap();
        let connection = rustls::ClientConnection::new(config.clone(), name).unwrap();
        let port: u16 = port.parse().unwrap();
        let stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        Client::new(rustls::StreamOwned::new(connection, stream))
    };
    let mut secret = encrypted();
    assert_eq!(secret.say("LOCK owned"), "1");
    assert_eq!(secret.say("LOCK leased TTL 60000"), "2");
    let mut waiting = encrypted();
    waiting.send("LOCK leased");
    let mut plain = daemon.client();
    plain.send("LOCK owned");
    await_waiters(&daemon, 2);

    assert_handed_over(&daemon, 1);

    assert_eq!(short(&plain.read()), "3");
    // A clean end: an error would say that the stream was cut off.
    let mut rest = Vec::new();
    assert_eq!(secret.stream.read_to_end(&mut rest).unwrap(), 0);
    assert!(waiting.try_read().is_err());
    let mut info = daemon.client();
    assert_eq!(info.info("leases"), 1);
    assert_eq!(info.info("waiters"), 0);
    assert_eq!(encrypted().say("UNLOCK leased 2"), "1");
    daemon.signal("-TERM");
    let (_, log) = daemon.finish();
    assert!(log.contains("2 connections with TLS have ended"), "{log}");
}

#[test]
fn waits_that_end_during_the_handover_are_answered_by_the_new_program_at_once() {
    let installed = Installed::new();
    let daemon = installed.start(&[]);
    let mut holder = daemon.client();
    assert_eq!(holder.say("LOCK a"), "1");
    assert_eq!(holder.say("LOCK b TTL 60000"), "2");
    let (mut vain, mut lucky) = (daemon.client(), daemon.client());
    lucky.send("LOCK b");
    daemon.await_info("waits", 1);
    assert_eq!(holder.say("RENEW b 2 TTL 1500"), "1");
    vain.send("LOCK a WAIT 1500");
    // Waits that have begun: on a busy machine they may have ended.
    daemon.await_info("waits", 2);
    // A new program that begins late; it is asked first, and answers that at once.
    let late = format!(
        "#!/bin/sh\ncase \"$*\" in *--take-over*) sleep 3;; esac\nexec {} \"$@\"\n",
        crate::JOSTLED
    );
    installed.put(&late, "700");
    daemon.signal("-USR2");
    // Nobody else wakes the daemon.
    assert_eq!(short(&vain.read()), "nil");
    assert_eq!(short(&lucky.read()), "3");
    assert_eq!(daemon.info("handovers"), 1);
    assert_eq!(holder.say("UNLOCK a"), "1");
}
