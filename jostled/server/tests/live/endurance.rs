//! Faults and excesses: crashes, full disks, clients that are slow, silent, greedy or very many,
//! the daemon's end.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Client, Daemon, eventually, short};
use jostle_lockd::tokens::{RANGE, TokenStore};
use jostle_lockd::{Config, Server};

#[test]
fn tokens_never_repeat_or_go_back_over_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let mut last = 0;
    for round in 0..15 {
        let daemon = Daemon::start_exactly(&["--data", data, "--listen", "127.0.0.1:0"]);
        // Killed in the middle of granting, without warning.
        let port = daemon.port;
        let (begun, has_begun) = std::sync::mpsc::channel();
        let granter = std::thread::spawn(move || {
            let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let mut client = Client::new(stream);
            let mut tokens = Vec::new();
            let request = b"*2\r\n$4\r\nLOCK\r\n$1\r\na\r\n*2\r\n$6\r\nUNLOCK\r\n$1\r\na\r\n";
            while client.stream.write_all(&request.repeat(50)).is_ok() {
                for _ in 0..50 {
                    let Ok(token) = client.try_read() else {
                        return tokens;
                    };
                    tokens.push(token.as_integer().unwrap() as u64);
                    let _ = begun.send(());
                    if client.try_read().is_err() {
                        return tokens;
                    }
                }
            }
            tokens
        });
        has_begun.recv().unwrap();
        std::thread::sleep(Duration::from_millis(round * 7));
        daemon.signal("-KILL");
        let tokens = granter.join().unwrap();
        assert!(!tokens.is_empty());
        for token in tokens {
            assert!(token > last, "token {token} after {last}, round {round}");
            last = token;
        }
    }
}

#[test]
fn tokens_go_on_though_the_data_directory_vanished() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let flags = [
        "--data",
        directory.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
    ];
    let daemon = Daemon::start_exactly(&flags);
    let token = daemon.client().token("LOCK a");
    std::fs::remove_dir_all(&directory).unwrap();
    eventually("it is there again", || directory.join("tokens").exists());
    daemon.signal("-KILL");
    daemon.finish();
    let daemon = Daemon::start_exactly(&flags);
    assert!(daemon.client().token("LOCK a") > token);
}

/// The daemon's CPU time, in hundredths of a second.
fn ticks(daemon: &Daemon) -> u64 {
    let path = format!("/proc/{}/stat", daemon.child.id());
    let stat = std::fs::read_to_string(path).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_daemon_with_nothing_to_do_takes_no_cpu() {
    // It once polled for ever when the first tokens were reserved at the wrong moment,
    // which happened in one start of five.
    let idle = |_| {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().to_str().unwrap();
        let daemon = Daemon::start_exactly(&["--data", data, "--listen", "127.0.0.1:0"]);
        daemon.client().token("LOCK a");
        let before = ticks(&daemon);
        std::thread::sleep(Duration::from_secs(1));
        // A process that never sleeps takes a hundred ticks a second.
        let took = ticks(&daemon) - before;
        assert!(took < 20, "{took} ticks");
    };
    std::thread::scope(|scope| {
        (0..10).for_each(|start| drop(scope.spawn(move || idle(start))));
    });
}

#[test]
fn a_log_that_nobody_reads_ends_nothing() {
    let mut daemon = Daemon::start(&[]);
    daemon.close_log();
    let mut client = daemon.client();
    client.token("LOCK a");
    // Each of the next steps logs a line.
    daemon.signal("-HUP");
    assert_eq!(client.say("UNLOCK a"), "1");
    daemon.signal("-TERM");
    assert_eq!(daemon.finish().0, Some(0));
}

#[test]
fn sighup_reads_the_password_again_and_loses_no_lock() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "old").unwrap();
    let mut daemon = Daemon::start(&["--password-file", file.to_str().unwrap()]);
    let mut holder = daemon.client();
    assert_eq!(holder.say("AUTH old"), "OK");
    assert_eq!(holder.say("LOCK a"), "1");
    std::fs::write(&file, "new").unwrap();
    daemon.signal("-HUP");
    eventually("the new password is taken", || {
        daemon.client().say("AUTH new") == "OK"
    });
    // Settings that cannot be adopted change nothing.
    for bad in ["", "\n"] {
        std::fs::write(&file, bad).unwrap();
        daemon.signal("-HUP");
    }
    std::fs::remove_file(&file).unwrap();
    daemon.signal("-HUP");
    assert_eq!(holder.say("PING"), "PONG");
    assert_eq!(daemon.client().say("AUTH new"), "OK");
    assert_eq!(holder.say("UNLOCK a"), "1");
    daemon.await_log("read again");
    daemon.await_log("not taken over");
    daemon.signal("-TERM");
    assert_eq!(daemon.finish().0, Some(0));
}

#[test]
fn many_small_buffers_together_have_a_bound() {
    let daemon = Daemon::start(&["--max-buffers", "1M"]);
    let mut owner = daemon.client();
    owner.token("LOCK a");
    // None above 64 KiB, and 4 MB together.
    let part = format!("*2\r\n$4\r\nECHO\r\n$60000\r\n{}", "x".repeat(50_000));
    let greedy: Vec<_> = (0..80)
        .map(|_| {
            let mut client = daemon.client();
            let _ = client.stream.write_all(part.as_bytes());
            client
        })
        .collect();
    eventually("some are closed", || owner.info("closed_output") >= 50);
    // The bound holds at the end of a turn: the turn that answers this request may just
    // have read from clients that are left.
    eventually("the bound holds", || owner.info("buffer_memory") <= 1 << 20);
    assert_eq!(owner.say("UNLOCK a"), "1");
    drop(greedy);
}

#[test]
fn tokens_go_on_where_several_ranges_were_used() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let flags = ["--data", data, "--listen", "127.0.0.1:0"];
    for round in 0..3 {
        let daemon = Daemon::start_exactly(&flags);
        assert_eq!(daemon.client().token("LOCK a"), 1 + round * RANGE);
        daemon.signal("-KILL");
    }
    // A second daemon on the same directory is refused.
    let _first = Daemon::start_exactly(&flags);
    let second = std::process::Command::new(crate::JOSTLED)
        .args(flags)
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("in use by another jostled"));
}

/// A store whose disk can be filled.
struct Disk(Arc<AtomicBool>);

impl TokenStore for Disk {
    fn reserve(&mut self, _: u64) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(28)); // ENOSPC
        }
        Ok(())
    }
}

#[test]
fn a_full_disk_refuses_grants_and_heals() {
    let full = Arc::new(AtomicBool::new(false));
    let store = Box::new(Disk(Arc::clone(&full)));
    let mut server = Server::with_tokens(Config::embedded(), Some(store), 1).unwrap();
    let address = server.addresses().next().unwrap();
    let (stop, stopper) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || server.run(&stop).unwrap());
    full.store(true, Ordering::Relaxed);

    let mut holder = Client::new(TcpStream::connect(address).unwrap());
    let mut client = Client::new(TcpStream::connect(address).unwrap());
    assert_eq!(holder.token("LOCK held"), 1);
    // Use up what was reserved.
    let batch = b"*2\r\n$4\r\nLOCK\r\n$1\r\na\r\n*2\r\n$6\r\nUNLOCK\r\n$1\r\na\r\n".repeat(1000);
    let mut granted = 1;
    let refusal = 'all: loop {
        client.stream.write_all(&batch).unwrap();
        for _ in 0..1000 {
            let reply = client.read();
            match reply.as_integer() {
                Some(token) => {
                    granted += 1;
                    assert_eq!(token, granted);
                    assert_eq!(client.read().as_integer(), Some(1));
                }
                None => break 'all reply,
            }
        }
        assert!(granted <= RANGE as i64, "tokens beyond the range");
    };
    assert_eq!(granted, RANGE as i64, "all that was reserved, and no more");
    let text = refusal.as_text().unwrap();
    assert!(
        text.starts_with("NOTOKENS") && text.contains("No space left"),
        "{text}"
    );
    // Those who wait are told, too; nothing else has stopped.
    let mut waiter = Client::new(TcpStream::connect(address).unwrap());
    waiter.send("LOCK held");
    eventually("it waits", || holder.info("waiters") == 1);
    assert_eq!(holder.say("UNLOCK held"), "1");
    assert_eq!(short(&waiter.read()), "NOTOKENS");
    assert!(holder.info("token_reservation_failures") > 0);

    full.store(false, Ordering::Relaxed);
    let mut token = String::new();
    eventually("tokens again", || {
        token = holder.say("LOCK b");
        token != "NOTOKENS"
    });
    assert!(token.parse::<i64>().unwrap() > granted);
    drop((holder, client, waiter, stopper));
    thread.join().unwrap();
}

/// Plays them beside one that asks every 20 ms; how long its answers took.
fn beside_slow_silent_and_greedy_clients() -> Vec<Duration> {
    let daemon = Daemon::start(&[
        "--request-timeout",
        "1",
        "--idle-timeout",
        "3",
        "--max-output",
        "64K",
    ]);
    // Whoever owns a lock may be silent: on a busy machine it may be late for long.
    let mut worker = daemon.client();
    worker.token("LOCK of-the-worker");
    let mut owner = daemon.client();
    owner.token("LOCK owned");
    let mut waiter = daemon.client();
    waiter.send("LOCK owned");
    let mut loris = daemon.client();
    loris
        .stream
        .write_all(b"*2\r\n$4\r\nLOCK\r\n$500\r\n")
        .unwrap();
    let mut silent = daemon.client();
    let mut greedy = daemon.client();
    let mut flood = b"*1\r\n$4\r\nINFO\r\n".repeat(3000);
    flood.extend_from_slice(b"PING\r\n");
    greedy.stream.set_nonblocking(true).unwrap();
    let start = Instant::now();
    let mut pings = Vec::new();
    let mut at = 0;
    // Not less than two idle timeouts, and on a busy machine as long as it
    // takes the greedy one to fill the kernel's buffers.
    let mut closed = 0;
    while start.elapsed() < Duration::from_secs(7)
        || closed < 2 && start.elapsed() < Duration::from_secs(60)
    {
        // It sends and sends and never reads.
        if let Ok(sent) = greedy.stream.write(&flood[at..]) {
            at = (at + sent) % flood.len();
        }
        let _ = loris.stream.write_all(b"C"); // A byte at a time does not help.
        let before = Instant::now();
        assert_eq!(worker.say("PING"), "PONG");
        pings.push(before.elapsed());
        closed = worker.info("closed_output") + worker.info("closed_slow");
        std::thread::sleep(Duration::from_millis(20));
    }
    // A client that does not read meets the bound of its output or of its time, whichever comes
    // first; one that sends byte by byte meets only the bound of its time.
    assert_eq!(closed, 2);
    assert!(worker.info("closed_slow") >= 1);
    assert_eq!(worker.info("closed_idle"), 1);
    let mut byte = [0];
    assert_eq!(silent.stream.read(&mut byte).unwrap(), 0);
    // Owners and waiters may be silent for as long as they like.
    drop(owner);
    assert!(waiter.read().as_integer().is_some());
    pings
}

#[test]
fn slow_silent_and_greedy_clients_are_closed_and_hurt_nobody() {
    beside_slow_silent_and_greedy_clients();
}

#[test]
fn a_client_that_stops_reading_a_small_reply_is_closed_too() {
    let daemon = Daemon::start(&["--request-timeout", "1", "--max-output", "64M"]);
    let client = daemon.client();
    // More replies than the kernel buffers, less than the bound.
    let flood = b"*1\r\n$4\r\nINFO\r\n".repeat(8000);
    (&client.stream).write_all(&flood).unwrap();
    daemon.await_info("closed_slow", 1);
}

#[test]
fn connections_beyond_the_limit_are_told() {
    let daemon = Daemon::start(&["--max-connections", "3"]);
    let mut clients: Vec<_> = (0..3).map(|_| daemon.client()).collect();
    clients
        .iter_mut()
        .for_each(|client| assert_eq!(client.say("PING"), "PONG"));
    let mut fourth = daemon.client();
    assert_eq!(short(&fourth.read()), "ERR");
    assert!(fourth.try_read().is_err());
    assert_eq!(clients[0].info("rejected_connections"), 1);
    clients.pop();
    eventually("there is room again", || {
        let mut next = daemon.client();
        next.send("PING");
        next.try_read().is_ok_and(|reply| short(&reply) == "PONG")
    });
}

/// How long an answer took while they waited, and the daemon's CPU time in ticks for 2,000
/// hand-offs.
fn ten_thousand_clients() -> (Duration, u64) {
    let count = 10_000;
    let max = (count + 10).to_string();
    let daemon = Daemon::start(&["--max-connections", &max, "--max-waiters-per-lock", &max]);
    raise_file_limit(count + 100);
    let mut holder = daemon.client();
    holder.token("LOCK x");
    let mut waiters: Vec<Client<TcpStream>> = Vec::new();
    for n in 0..count {
        let mut client = daemon.client();
        client.send("LOCK x");
        waiters.push(client);
        if n % 500 == 499 {
            // The order of arrival is only known for what has arrived.
            eventually("they wait", || holder.info("waiters") == n as u64 + 1);
        }
    }
    let before = Instant::now();
    assert_eq!(holder.say("PING"), "PONG");
    let answered = before.elapsed();
    holder.say("UNLOCK x");
    let mut last = 1;
    let before = ticks(&daemon);
    for waiter in waiters.iter_mut().take(2000) {
        let token = waiter.read().as_integer().unwrap();
        assert!(token > last);
        last = token;
        waiter.send("UNLOCK x");
    }
    let took = ticks(&daemon) - before;
    // The rest leaves at once.
    drop(waiters);
    eventually("all are gone", || holder.info("connected_clients") == 1);
    assert_eq!(holder.info("holds"), 0);
    assert_eq!(holder.info("waiters"), 0);
    (answered, took)
}

#[test]
fn ten_thousand_clients_wait_and_are_served_in_order() {
    ten_thousand_clients();
}

fn raise_file_limit(files: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < files as u64) {
        let raised = Rlimit {
            current: Some(files as u64),
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, raised).expect("the test needs 10,100 open files (ulimit -n)");
    }
}

#[test]
fn sigterm_drains() {
    for signal in ["-TERM", "-INT"] {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let daemon = Daemon::start(&["--unix", socket.to_str().unwrap(), "--drain-timeout", "2"]);
        let (mut holder, mut waiter) = (daemon.client(), daemon.client());
        holder.token("LOCK x");
        waiter.send("LOCK x");
        waiter.send("PING");
        daemon.await_info("waiters", 1);
        daemon.signal(signal);
        assert_eq!(short(&waiter.read()), "SHUTDOWN");
        assert!(
            waiter.try_read().is_err(),
            "what was behind the LOCK is not executed"
        );
        assert!(holder.try_read().is_err());
        let (code, log) = daemon.finish();
        assert_eq!(code, Some(0));
        assert!(log.contains("ended"), "{log}");
        assert!(!socket.exists());
    }
}

#[test]
fn the_unix_socket_has_its_mode_and_serves() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let path = socket.to_str().unwrap();
    for (flags, mode) in [(&[][..], 0o600), (&["--unix-mode", "660"][..], 0o660)] {
        let mut all = vec!["--data", "none", "--listen", "none", "--unix", path];
        all.extend(flags);
        let daemon = Daemon::start_exactly(&all);
        let found = std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode);
        let mut client = Client::new(UnixStream::connect(&socket).unwrap());
        assert_eq!(client.say("LOCK a"), "1");
        // Killed: it leaves its socket behind, which the next start replaces.
        daemon.signal("-KILL");
        daemon.finish();
        assert!(socket.exists());
    }
}

#[test]
fn metrics_are_served_to_prometheus() {
    let daemon = Daemon::start(&["--metrics", "127.0.0.1:0"]);
    daemon.client().token("LOCK a TTL 60000");
    let port = daemon.port_of("metrics on http://");
    let get = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let text = get("/metrics");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    for line in [
        "jostled_grants_total 1",
        "jostled_leases 1",
        "jostled_requests_total{command=\"lock\"} 1",
        "jostled_wait_seconds_bucket{le=\"+Inf\"} 0",
        "# TYPE jostled_wait_seconds histogram",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is not in\n{text}"
        );
    }
    assert!(get("/").starts_with("HTTP/1.1 404"));
    // Each name once, each with its help.
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    let mut types: Vec<_> = body
        .lines()
        .filter(|line| line.starts_with("# TYPE"))
        .collect();
    let before = types.len();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), before);
    // A scraper that never ends its request does not stop the others.
    let _loris: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    assert!(get("/metrics").starts_with("HTTP/1.1 200"));
}

/// Tests that judge figures of this machine.
mod figures {
    use super::*;

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn answers_beside_slow_silent_and_greedy_clients_are_quick() {
        let mut pings = beside_slow_silent_and_greedy_clients();
        // The middle one: single ones are late for other reasons.
        pings.sort_unstable();
        let middle = pings[pings.len() / 2];
        assert!(middle < Duration::from_millis(50), "{middle:?}");
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn ten_thousand_who_wait_make_neither_answers_nor_hand_offs_dear() {
        let (answered, ticks) = ten_thousand_clients();
        assert!(answered < Duration::from_millis(500), "{answered:?}");
        // A hand-off costs the same however long the line is. CPU time is asserted because two
        // wake-ups of each hand-off take milliseconds on a busy machine.
        assert!(ticks < 50, "2000 hand-offs took {ticks} ticks of CPU time");
    }
}
