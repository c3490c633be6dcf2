//! The most that one client, or a log that nobody reads, may do without harm to the others. Each
//! test asserts who is served, in which order, and how much work is done at once; none a time that
//! a busy machine could exceed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::JOSTLED;
use crate::common::{Client, Daemon, at_once, eventually, figure, short, tool};
use jostle_resp::Value;

/// A file with an administrator and a user of locks, in a directory.
fn users_file(directory: &std::path::Path) -> String {
    let users = directory.join("users").display().to_string();
    let text = "user boss on >b ~* +@admin\nuser app on >a ~* +@lock\n";
    std::fs::write(&users, text).unwrap();
    users
}

/// A standard error that is full, and that nobody reads; keep the second one open.
fn full_log() -> (Stdio, UnixStream) {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    while ours.write(&[b'x'; 4096]).is_ok() {}
    while ours.write(b"x").is_ok() {}
    ours.set_nonblocking(false).unwrap();
    (Stdio::from(OwnedFd::from(ours)), theirs)
}

/// 125 wrong passwords stopped the daemon for good, SIGTERM included: it wrote to a pipe
/// that nobody read.
#[test]
fn a_log_that_nobody_reads_stops_nobody_and_its_lost_lines_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let (log, _unread) = full_log();
    let mut child = Command::new(JOSTLED)
        .args(["--data", "none", "--listen", "none", "--log-level", "debug"])
        .args(["--audit", "locks", "--unix"])
        .arg(&path)
        .stderr(log)
        .spawn()
        .unwrap();
    let connect = || {
        let stream = UnixStream::connect(&path).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(120)))
            .unwrap();
        Some(Client::new(stream))
    };
    eventually("it listens", || connect().is_some());
    for _ in 0..700 {
        // Each is two lines.
        assert_eq!(connect().unwrap().say("PING"), "PONG");
    }
    let mut client = connect().unwrap();
    eventually("lines are dropped", || client.info("log_lines_dropped") > 0);
    // The audit has a queue of its own, with more room.
    assert_eq!(client.info("audit_lines_dropped"), 0);
    for _ in 0..400 {
        let pairs = "LOCK a\r\nUNLOCK a\r\n".repeat(100);
        client.stream.write_all(pairs.as_bytes()).unwrap();
        for _ in 0..200 {
            assert!(client.read().as_integer().is_some());
        }
    }
    // One line may be on its way to the reader.
    let dropped = 80_000 - (1 << 16);
    let counted = client.info("audit_lines_dropped");
    assert!((dropped - 1..=dropped).contains(&counted), "{counted}");
    let pid = child.id().to_string();
    Command::new("kill").arg(&pid).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Of 100 lines of the audit 36 were on a disk that was full for a time, one of them torn,
/// and none was counted.
#[test]
fn lines_that_do_not_fit_on_the_disk_are_counted_and_reported_when_there_is_room() {
    const LINES: u64 = 100;
    let directory = tempfile::tempdir().unwrap();
    let (log, path) = (
        directory.path().join("log"),
        directory.path().join("socket"),
    );
    // 4 or 8 KiB, as the shell counts.
    let script = format!("ulimit -S -f 8; exec \"$0\" \"$@\" 2>>{}", log.display());
    let mut child = Command::new("sh")
        .args(["-c", &script, JOSTLED])
        .args(["--data", "none", "--listen", "none", "--unix"])
        .arg(&path)
        .spawn()
        .unwrap();
    let connect = || UnixStream::connect(&path).ok().map(Client::new);
    eventually("it listens", || connect().is_some());
    let mut client = connect().unwrap();
    for line in 0..LINES {
        let name = format!("{line:x<80}");
        assert_eq!(client.say(&format!("FORCEUNLOCK {name}")), "0");
    }
    let audited = || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.matches("holders=\"0\"\n").count() as u64
    };
    eventually("each line is written or counted", || {
        audited() + client.info("log_lines_dropped") == LINES
    });
    let dropped = client.info("log_lines_dropped");
    assert!(0 < dropped && dropped < LINES, "{dropped}");
    let limit = ["--fsize=unlimited:", "--pid", &child.id().to_string()];
    assert!(tool("prlimit").args(limit).status().unwrap().success());
    eventually("the loss is reported", || {
        let text = std::fs::read_to_string(&log).unwrap();
        // The torn line has ended before.
        text.contains(&format!(
            "\njostled: warning: {dropped} lines of the log were dropped: "
        ))
    });
    assert_eq!(client.say("FORCEUNLOCK last"), "0");
    eventually("further lines are whole", || {
        audited() == LINES - dropped + 1
    });
    let _ = child.kill();
    child.wait().unwrap();
}

/// 50 connections with a pattern of 60,000 letters held up all others for 1.6 s.
#[test]
fn patterns_and_names_of_a_request_are_few_bytes() {
    let daemon = Daemon::start(&["--max-request", "1M"]);
    let mut client = daemon.client();
    let long = "x".repeat(60_000);
    for line in [
        format!("CONFIG GET [{long}]b"),
        format!("CONFIG GET{}", " *".repeat(600)),
        format!("COMMAND DOCS{}", " lock".repeat(300)),
        format!("CLIENT LIST CURSOR 0 MATCH *[{long}]b"),
        format!("HOLDERS {long}*"),
    ] {
        assert_eq!(client.say(&line), "ERR", "{}", &line[..30]);
    }
    for line in [
        "CONFIG GET max*",
        "COMMAND DOCS lock",
        "CLIENT LIST CURSOR 0 MATCH *[a-c]b",
    ] {
        assert_ne!(short(&client.ask(line)), "ERR", "{line}");
    }
}

/// 60 silent connections kept the administrator out until --request-timeout.
#[test]
fn who_has_not_logged_in_makes_room_for_newcomers_the_oldest_first() {
    let directory = tempfile::tempdir().unwrap();
    let users = users_file(directory.path());
    let flags = ["--users-file", &users];
    let daemon = Daemon::start(
        &[
            &flags[..],
            &["--max-connections", "4", "--reserve-connections", "1"],
        ]
        .concat(),
    );
    let mut app = daemon.client();
    assert_eq!(app.say("AUTH app a"), "OK");
    let mut silent: Vec<Client<TcpStream>> = Vec::new();
    for _ in 0..3 {
        let mut client = daemon.client();
        // Answered, so that it was let in before the next one.
        assert_eq!(
            client.say("PING"),
            if silent.len() < 2 { "NOAUTH" } else { "ERR" }
        );
        silent.push(client);
    }
    let mut boss = daemon.client();
    assert_eq!(boss.say("AUTH boss b"), "OK");
    assert!(silent[0].try_read().is_err(), "the oldest has left");
    assert_eq!(silent[1].say("PING"), "NOAUTH");
    assert_eq!(app.say("TRYLOCK x"), "1");
}

#[cfg(feature = "tls")]
#[test]
fn silent_handshakes_make_room_for_newcomers_the_oldest_first() {
    use crate::common::{ELLIPTIC, certificate};
    let directory = tempfile::tempdir().unwrap();
    let [cert, key] = &certificate(directory.path(), ELLIPTIC);
    let users = users_file(directory.path());
    let daemon = Daemon::start(&[
        "--users-file",
        &users,
        "--tls-listen",
        "127.0.0.1:0",
        "--tls-cert",
        cert,
        "--tls-key",
        key,
        "--max-connections",
        "4",
        "--reserve-connections",
        "1",
    ]);
    let mut lines = daemon.log.iter().rev();
    let address = lines.find(|line| line.contains("listening")).unwrap();
    let (_, port) = address.rsplit_once(':').unwrap();
    let mut boss = daemon.client();
    assert_eq!(boss.say("AUTH boss b"), "OK");
    let silent: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(format!("127.0.0.1:{port}")).unwrap())
        .collect();
    // They were accepted before this is read.
    assert_eq!(boss.say("PING"), "PONG");
    let mut newcomer = daemon.client();
    assert_eq!(newcomer.say("AUTH boss b"), "OK");
    daemon.await_info_as(&mut boss, "closed_handshake", 1);
    for stream in &silent {
        stream.set_nonblocking(true).unwrap();
    }
    assert!(matches!((&silent[0]).read(&mut [0; 9]), Ok(0)));
    for stay in [1, 2] {
        assert!((&silent[stay]).read(&mut [0; 9]).is_err());
    }
}

/// 1,500 clients that waited with LOCKALL took 60 MB, and 9.5 were accounted.
#[test]
fn what_clients_wait_for_is_accounted_within_a_tenth() {
    let daemon = Daemon::start(&["--max-name", "1000"]);
    let mut holder = daemon.client();
    let name = |client: usize, n: usize| format!("{client:0>400}{n:0>400}");
    holder.token("LOCK first");
    let bytes = |holder: &mut Client<TcpStream>| {
        let accounted = holder.info("table_memory") + holder.info("buffer_memory");
        (accounted, holder.info("used_memory_rss"))
    };
    let before = bytes(&mut holder);
    let waiters: Vec<_> = (0..400)
        .map(|client| {
            let names: Vec<String> = (1..64).map(|n| name(client, n)).collect();
            let mut waiter = daemon.client();
            waiter.send(&format!("LOCKALL 64 first {} TTL 1000", names.join(" ")));
            waiter
        })
        .collect();
    daemon.await_info("blocked_clients", 64 * waiters.len() as u64);
    let after = bytes(&mut holder);
    let (accounted, resident) = (after.0 - before.0, after.1 - before.1);
    assert!(
        accounted.abs_diff(resident) * 10 <= resident,
        "{accounted} of {resident} bytes are accounted"
    );
}

/// In a cgroup of 64 MB the kernel ended the daemon at 830,000 locks.
#[test]
fn the_memory_that_a_cgroup_allows_bounds_the_table() {
    let script = format!(
        "mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/memory &&
         echo 67108864 | tee /sys/fs/cgroup/memory.max \
            /sys/fs/cgroup/memory/memory.limit_in_bytes >/dev/null &&
         exec {JOSTLED} --data none --listen 127.0.0.1:0"
    );
    let mut command = tool("unshare");
    let daemon = Daemon::from_command(command.args(["-rm", "sh", "-c", &script]));
    let Value::Array(reply) = daemon.client().ask("CONFIG GET maxmemory") else {
        panic!("no settings");
    };
    assert_eq!(short(&reply[1]), (32 << 20).to_string());
}

/// With 20,000 users nobody was served for 3.7 s. Here the file is a pipe, so that
/// reading it takes as long as the test wants.
#[test]
fn clients_are_served_while_the_users_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("users");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let write = |text: &'static str| {
        let pipe = pipe.clone();
        std::thread::spawn(move || std::fs::write(pipe, text).unwrap())
    };
    let first = write("user default on nopass ~* +@all\n");
    let daemon = Daemon::start(&["--users-file", pipe.to_str().unwrap()]);
    first.join().unwrap();
    let mut client = daemon.client();
    client.set_timeout(Duration::from_secs(120));
    daemon.signal("-HUP");
    // The signal is in its socket before what is sent now.
    for _ in 0..100 {
        assert_eq!(client.say("PING"), "PONG");
    }
    write("user default on nopass ~* +@all\nuser late on >x ~* +@lock\n")
        .join()
        .unwrap();
    eventually("the new user may log in", || {
        !short(&client.ask("ACL LIST")).is_empty() && daemon.client().say("AUTH late x") == "OK"
    });
}

/// 9,000 clients that died held up the others for 59 ms.
#[test]
fn clients_that_die_together_are_closed_after_others_are_served() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    let mut dying: Vec<_> = (0..400).map(|_| daemon.client()).collect();
    for one in &mut dying {
        assert_eq!(one.say("PING"), "PONG");
    }
    at_once(&daemon, || {
        dying.clear();
        // Sent after all of them have left.
        client.send("INFO");
    });
    let connected = figure(&client.read(), "connected_clients");
    assert!(connected > 200, "{connected} are connected");
    daemon.await_info("connected_clients", 2);
}

/// One UNLOCK that granted 9,000 shared waiters held up the others for 67 ms.
#[test]
fn a_long_line_is_granted_in_parts_between_which_others_are_served() {
    const WAITERS: u64 = 1000;
    let daemon = Daemon::start(&[]);
    let (mut holder, mut other) = (daemon.client(), daemon.client());
    let token = holder.token("LOCK x");
    assert_eq!(other.say("PING"), "PONG");
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| daemon.client()).collect();
    for waiter in &mut waiters {
        waiter.send("LOCK x SHARED");
    }
    daemon.await_info("waiters", WAITERS);
    at_once(&daemon, || {
        holder.send(&format!("UNLOCK x {token}"));
        other.send("INFO");
    });
    assert_eq!(short(&holder.read()), "1");
    let waiting = figure(&other.read(), "waiters");
    assert!(waiting > WAITERS / 2, "{waiting} wait");
    for waiter in &mut waiters {
        assert!(waiter.read().as_integer().is_some());
    }
}

#[test]
fn a_limit_of_files_that_leaves_no_client_is_refused() {
    let script = format!("ulimit -n 40; exec {JOSTLED} --data none --listen 127.0.0.1:0");
    let mut command = Command::new("sh");
    let mut child = command
        .args(["-c", &script])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = child.stderr.take().unwrap();
    // A daemon that starts all the same is ended by the test.
    let mut text = String::new();
    let mut bytes = [0; 4096];
    while !text.contains("ready") {
        match log.read(&mut bytes).unwrap() {
            0 => break,
            length => text.push_str(&String::from_utf8_lossy(&bytes[..length])),
        }
    }
    let _ = child.kill();
    child.wait().unwrap();
    assert!(
        text.contains("limit of open files") && !text.contains("ready"),
        "{text}"
    );
}

/// 6,000 connections with half a request left the daemon with 264 MB for good: their buffers
/// were free, but stood below memory in use.
#[test]
fn memory_of_half_requests_goes_back_to_the_system() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    let before = client.info("used_memory_rss");
    let half = format!("*2\r\n$4\r\nLOCK\r\n$60000\r\n{}", "x".repeat(50_000));
    let halves: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = daemon.client().stream;
            stream.write_all(half.as_bytes()).unwrap();
            stream
        })
        .collect();
    eventually("all halves are there", || {
        client.info("buffer_memory") > 50_000_000
    });
    assert!(client.info("used_memory_rss") > before + 50_000_000);
    drop(halves);
    eventually("their memory is free", || {
        client.info("used_memory_rss") < before + 10_000_000
    });
}
