//! Everything that a client without rights may try, at once, and what honest clients notice.

/// Tests that judge figures of this machine.
mod figures {
    use std::io::Write;
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    use crate::common::{Client, Daemon, tool};

    /// 50 clients that take and release locks of their own: the 99th percentile of their
    /// round trips.
    fn honest_p99(port: u16) -> Duration {
        let some = |first: usize| {
            let connect = |_| Client::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
            let mut clients: Vec<_> = (0..10).map(connect).collect();
            clients
                .iter_mut()
                .for_each(|client| assert_eq!(client.say("AUTH app a"), "OK"));
            let mut times = Vec::new();
            for _ in 0..1000 {
                for (number, client) in (first..).zip(&mut clients) {
                    for line in [format!("LOCK app:{number}"), format!("UNLOCK app:{number}")] {
                        let start = Instant::now();
                        client.ask(&line);
                        times.push(start.elapsed());
                    }
                }
            }
            times
        };
        let mut times: Vec<Duration> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..5).map(|n| scope.spawn(move || some(10 * n))).collect();
            let times = threads.into_iter().map(|thread| thread.join().unwrap());
            times.flatten().collect()
        });
        times.sort_unstable();
        times[times.len() * 99 / 100]
    }

    /// What users without rights can do, all of it, until it is over: patterns, lists,
    /// guesses, half requests, silent connections, long shared lines, deaths; and SIGHUP.
    fn attack(daemon: &str, port: u16, over: &AtomicBool) {
        let connect = || TcpStream::connect(("127.0.0.1", port)).ok();
        let write = |stream: &mut TcpStream, text: &str| {
            let _ = stream.write_all(text.as_bytes());
        };
        let pattern = format!("*[{}]b", "a".repeat(900));
        let login = "AUTH low l\r\n";
        let questions = format!(
            "{login}CONFIG GET {pattern}\r\nCOMMAND DOCS\r\nHOLDERS {pattern}\r\n\
             CLIENT LIST CURSOR 0 MATCH {pattern}\r\nLOCK low:x SHARED\r\n"
        );
        let (mut waiters, mut silent) = (Vec::new(), Vec::new());
        let mut holder = connect().unwrap();
        write(&mut holder, &format!("{login}LOCK low:x\r\n"));
        for turn in 1.. {
            if over.load(Relaxed) {
                return;
            }
            silent.extend(connect());
            let (Some(mut waiter), Some(mut guess)) = (connect(), connect()) else {
                continue;
            };
            write(&mut waiter, &questions);
            write(&mut guess, "AUTH boss wrong\r\n*2\r\n$4\r\nLO");
            waiters.push(waiter);
            silent.push(guess);
            if turn % 200 == 0 {
                write(&mut holder, "UNLOCK low:x\r\nLOCK low:x\r\n");
                waiters.clear();
                silent.clear();
                let _ = tool("kill").args(["-HUP", daemon]).status();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The same attack on another daemon is the control: it takes the same CPU time.
    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn honest_clients_wait_at_most_twice_as_long_beside_all_attacks_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let users = directory.path().join("users");
        let many = (0..2000).map(|n| format!("user u{n} on >p{n} ~u{n}:* +@lock\n"));
        let text = "user boss on >b ~* +@admin\nuser app on >a ~app:* +@lock\n\
                    user low on >l ~low:* +@lock\n";
        std::fs::write(&users, many.collect::<String>() + text).unwrap();
        let users = users.to_str().unwrap();
        let flags = ["--users-file", users, "--max-connections", "400"];
        let daemons = [Daemon::start(&flags), Daemon::start(&flags)];
        let (port, over) = (daemons[0].port, AtomicBool::new(false));
        let [beside, under] = [1, 0].map(|attacked| {
            over.store(false, Relaxed);
            let (target, daemon) = (daemons[attacked].port, daemons[attacked].child.id());
            std::thread::scope(|scope| {
                scope.spawn(|| attack(&daemon.to_string(), target, &over));
                let p99 = honest_p99(port);
                over.store(true, Relaxed);
                p99
            })
        });
        assert!(
            under <= 2 * beside,
            "{under:?} under attack, {beside:?} beside"
        );
    }
}
