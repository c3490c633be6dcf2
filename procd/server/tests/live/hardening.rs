//! Acts of clients and procedures that do no harm to the others.

use crate::common::{Client, Engine, Reply, eventually};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn what_is_malformed_is_refused_and_the_connection_ends() {
    let engine = Engine::start(&["--max-head", "1K", "--max-body", "1K"]);
    let long = "x".repeat(2000);
    for (text, status) in [
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("GET\r\n\r\n".to_owned(), 400),
        ("\x16\x03\x01\x02\x00\x01\r\n\r\n".to_owned(), 400), // TLS
        ("GET /accept HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET accept HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 505),
        ("DELETE /accept HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 405),
        (
            format!("GET /accept?{long} HTTP/1.1\r\nHost: x\r\n\r\n"),
            431,
        ),
        (
            format!("GET /accept HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n"),
            431,
        ),
        (
            format!("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n{long}"),
            413,
        ),
        (
            "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\n".to_owned(),
            400,
        ),
        (
            "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
            501,
        ),
        (
            "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"
                .to_owned(),
            400,
        ),
    ] {
        let mut client = engine.client();
        client.send(&text);
        let reply = client
            .read()
            .unwrap_or_else(|| panic!("no answer to {text:?}"));
        assert_eq!(reply.status, status, "{text:?}");
        assert_eq!(client.read(), None, "the connection stays after {text:?}");
        assert_eq!(engine.get("/accept").exit_code, Some(0));
    }
    assert_eq!(engine.stats()["malformed"], 13);
}

#[test]
fn a_refusal_arrives_though_much_more_was_sent() {
    let engine = Engine::start(&[]);
    let mut client = engine.client();
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n");
    let chunk = "x".repeat(100_000);
    for _ in 0..40 {
        client.send(&chunk);
    }
    assert_eq!(client.read().unwrap().status, 413);
    assert_eq!(client.read(), None);
}

#[test]
fn requests_mean_the_same_wherever_the_network_splits_them() {
    let engine = Engine::start(&[]);
    let stream = "GET /code?1 HTTP/1.1\r\nHost: x\r\n\r\n\
                  POST /echo?a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nxyz\
                  GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let replies =
        |client: &mut Client| -> Vec<Reply> { (0..4).map_while(|_| client.read()).collect() };
    let mut client = engine.client();
    client.send(stream);
    let whole = replies(&mut client);
    let shown: Vec<_> = whole
        .iter()
        .map(|r| (r.status, r.exit_code, r.body.as_str()))
        .collect();
    assert_eq!(shown[0], (200, Some(1), ""));
    assert_eq!(shown[1], (200, Some(0), "a\tnil\txyz\n"));
    assert_eq!((shown.len(), shown[2].0), (3, 404));
    for at in 1..stream.len() {
        let mut client = engine.client();
        client.stream.set_nodelay(true).unwrap();
        client.send(&stream[..at]);
        // So that the engine takes the first part by itself.
        std::thread::sleep(Duration::from_millis(1));
        client.send(&stream[at..]);
        assert_eq!(replies(&mut client), whole, "split at {at}");
    }
}

#[test]
fn clients_that_are_slow_or_silent_are_closed() {
    let engine = Engine::start(&["--request-timeout", "1", "--idle-timeout", "2"]);
    let mut started = engine.client();
    started.send("GET /accept HT");
    let mut trickles = engine.client();
    // Again where the machine stood still until it was closed.
    let answered = |_| {
        let mut idle = engine.client();
        idle.ask("/accept");
        let reply = idle.read()?;
        assert_eq!(reply.exit_code, Some(0));
        Some(idle)
    };
    let mut idle = (0..100).find_map(answered).expect("an answer");
    // It reads nothing of what it asks for.
    let mut deaf = engine.client();
    for _ in 0..400 {
        deaf.ask("/big?60000");
    }
    for _ in 0..40 {
        // The time of a request is not renewed with every byte.
        if trickles.stream.write_all(b"G").is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(started.read(), None);
    assert!(trickles.read().is_none_or(|reply| reply.status == 400));
    assert_eq!(idle.read(), None);
    eventually("all are closed", || engine.stats()["connections_open"] == 1);
    let stats = engine.stats();
    // One that was late with its first byte is idle.
    let closed = ["connections_too_slow", "connections_idle"];
    let [slow, idle] = closed.map(|name| stats[name].as_u64().unwrap());
    assert!(slow >= 1 && idle >= 1 && slow + idle >= 4, "{stats}");
}

#[test]
fn a_slow_reader_gets_everything() {
    let engine = Engine::start(&[]);
    let mut client = engine.client();
    for _ in 0..200 {
        client.ask("/big?60000");
    }
    client.ask("/code?7");
    for _ in 0..200 {
        assert_eq!(client.read().unwrap().body.len(), 60_000);
    }
    assert_eq!(client.read().unwrap().exit_code, Some(7));
}

#[test]
fn connections_beyond_the_limit_are_turned_away() {
    let engine = Engine::start(&["--max-connections", "3"]);
    let mut clients: Vec<Client> = (0..3).map(|_| engine.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/accept").exit_code, Some(0));
    }
    assert_eq!(engine.get("/accept").status, 503);
    clients.pop();
    eventually("there is room again", || {
        engine.get("/accept").status == 200
    });
    let mut kept = clients.pop().unwrap();
    assert!(
        kept.get("/stats")
            .body
            .contains("\"connections_turned_away\": ")
    );
}

/// Calls that are under way, each on a connection of its own.
fn send_calls(engine: &Engine, count: usize, target: &str) -> Vec<Client> {
    let call = |_| {
        let mut client = engine.client();
        client.ask(target);
        client
    };
    (0..count).map(call).collect()
}

#[test]
fn procedures_that_hang_leave_the_others_alone() {
    // Longer than a busy machine takes for all that follows.
    let flags = "--threads 6 --max-running 2 --time-limit 60000";
    let engine = Engine::start(&flags.split(' ').collect::<Vec<_>>());
    let _hanging = send_calls(&engine, 10, "/forever");
    eventually("two hang and eight wait", || {
        let stats = engine.stats_of("forever");
        stats["running"] == 2 && stats["waiting"] == 8
    });
    // The others go on while they hang, serially and at once.
    for _ in 0..50 {
        assert_eq!(engine.get("/code?4").exit_code, Some(4));
        assert_eq!(engine.get("/sizecheck?file=m&max=1").exit_code, Some(1));
    }
    let mut others = send_calls(&engine, 20, "/code?5");
    for other in &mut others {
        assert_eq!(other.read().unwrap().exit_code, Some(5));
    }
    let stats = engine.stats_of("forever");
    assert_eq!(
        (&stats["running"], &stats["errors"]["late"]),
        (&json!(2), &json!(0))
    );
}

#[test]
fn procedures_that_hang_are_cut_off_and_the_next_get_their_turn() {
    let flags = "--threads 6 --max-running 2 --time-limit 500";
    let engine = Engine::start(&flags.split(' ').collect::<Vec<_>>());
    for call in &mut send_calls(&engine, 4, "/forever") {
        let reply = call.read().unwrap();
        assert_eq!(reply.status, 500);
        assert!(reply.head.contains("\r\nFailure: late\r\n"), "{reply:?}");
    }
}

#[test]
fn calls_wait_in_line_and_too_many_are_refused() {
    let start = |time_limit: &str| {
        let flags =
            format!("--threads 2 --max-running 1 --max-waiting 3 --time-limit {time_limit}");
        Engine::start(&flags.split(' ').collect::<Vec<_>>())
    };
    // Longer than a busy machine takes for what follows.
    let engine = start("600000");
    let _first = send_calls(&engine, 1, "/forever");
    eventually("it runs", || engine.stats_of("forever")["running"] == 1);
    let _waiting = send_calls(&engine, 3, "/forever");
    eventually("three wait", || engine.stats_of("forever")["waiting"] == 3);
    let refused = engine.get("/forever");
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("\r\nFailure: busy\r\n") && refused.head.contains("Retry-After"));
    assert_eq!(engine.stats_of("forever")["errors"]["busy"], 1);
    // One that waits is nobody's burden if its client leaves.
    let engine = start("500");
    let mut calls = send_calls(&engine, 4, "/forever");
    drop(calls.remove(1));
    for call in &mut calls {
        assert_eq!(call.read().unwrap().status, 500);
    }
}

#[test]
fn clients_that_pipeline_take_turns_with_others() {
    // A busy machine may wake the other one when all is over.
    let took_turns = (0..20).any(|_| two_clients_take_turns());
    assert!(
        took_turns,
        "all of the other's calls came before, twenty times"
    );
}

/// Whether five calls of one client came before the last of 1,500 that another one had sent
/// ahead.
fn two_clients_take_turns() -> bool {
    let engine = Engine::start(&["--threads", "4", "--max-running", "1"]);
    let mut greedy = engine.client();
    let calls = 1500;
    for _ in 0..calls {
        greedy.ask("/work?100000");
    }
    eventually("it has begun", || {
        engine.stats_of("work")["requests"].as_u64() > Some(0)
    });
    // Each call of another one waits for one of its calls, not for all.
    let mut other = engine.client();
    for _ in 0..5 {
        assert_eq!(other.get("/work?1").exit_code, Some(5));
    }
    let begun = engine.stats_of("work")["requests"].as_u64().unwrap();
    for _ in 0..calls {
        assert_eq!(greedy.read().unwrap().exit_code, Some(5));
    }
    begun < calls
}

#[test]
fn what_a_procedure_says_steers_no_terminal() {
    let engine = Engine::start(&[]);
    engine.install("rude", "error('\\27[2J\\27]0;owned\\7')");
    eventually("it is there", || engine.get("/rude").status == 500);
    let line = engine.await_log("owned");
    assert!(!line.chars().any(char::is_control), "{line:?}");
}

#[test]
fn many_callers_of_one_procedure_are_all_served() {
    let engine = Engine::start(&["--threads", "4", "--max-running", "1"]);
    let clients: Vec<_> = (0..16)
        .map(|number| {
            let mut client = engine.client();
            std::thread::spawn(move || {
                for _ in 0..200 {
                    let reply = client.get(&format!("/code?{number}"));
                    assert_eq!(reply.exit_code, Some(number));
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let stats = engine.stats_of("code");
    let exits: u64 = stats["exits"]
        .as_object()
        .unwrap()
        .values()
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(
        (exits, &stats["running"], &stats["waiting"]),
        (3200, &json!(0), &json!(0))
    );
}

#[test]
fn nothing_outside_the_spool_can_be_read() {
    let engine = Engine::start(&[]);
    engine.install("peek", "print(spool.read(args.file)) return 0");
    eventually("it is there", || engine.get("/peek?file=m").status == 200);
    std::os::unix::fs::symlink("../secret", engine.home.path().join("spool/link")).unwrap();
    let secret = engine.home.path().join("secret").display().to_string();
    for path in [
        "../secret",
        "link",
        "%2e%2e/secret",
        "x/../../secret",
        &secret,
        "/etc/passwd",
    ] {
        let reply = engine.get(&format!("/peek?file={path}"));
        assert!(reply.body.starts_with("nil\t"), "{path}: {}", reply.body);
        let reply = engine.get(&format!("/sizecheck?max=1&file={path}"));
        assert_eq!(reply.status, 404, "{path}");
    }
    let inside = engine.home.path().join("spool/m").display().to_string();
    assert_eq!(
        engine
            .get(&format!("/sizecheck?max=1000&file={inside}"))
            .exit_code,
        Some(0)
    );
}

#[test]
fn at_its_end_calls_that_were_begun_are_answered() {
    let mut engine = Engine::start(&["--time-limit", "60000", "--drain-timeout", "60"]);
    let mut idle = engine.client();
    idle.get("/accept");
    let mut working = send_calls(&engine, 1, "/work?100000000");
    eventually("it works", || engine.stats_of("work")["running"] == 1);
    engine.signal("-TERM");
    let reply = working[0].read().unwrap();
    assert_eq!(reply.exit_code, Some(5));
    assert!(reply.head.contains("Connection: close"), "{reply:?}");
    assert_eq!(idle.read(), None);
    engine.await_log("procd: ended");
    assert_eq!(engine.child.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(("127.0.0.1", engine.port)).is_err());
}

#[test]
fn a_procedure_that_never_ends_does_not_keep_it_from_ending() {
    let mut engine = Engine::start(&["--time-limit", "600000", "--drain-timeout", "1"]);
    let _hanging = send_calls(&engine, 1, "/forever");
    eventually("it hangs", || engine.stats_of("forever")["running"] == 1);
    engine.signal("-TERM");
    assert_eq!(engine.child.wait().unwrap().code(), Some(0));
}

#[test]
fn that_nobody_reads_its_log_does_not_matter() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_procd"))
        .args(["--listen", "127.0.0.1:0", "--unix", "none"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    drop(log);
    let reply = Client::new(TcpStream::connect(address).unwrap()).get("/sizecheck");
    assert_eq!(reply.status, 400);
    let pid = child.id().to_string();
    Command::new("kill").arg(pid).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn killed_it_starts_again_on_the_same_port() {
    let mut engine = Engine::start(&[]);
    let mut client = engine.client();
    client.get("/accept");
    engine.child.kill().unwrap();
    engine.child.wait().unwrap();
    assert_eq!(client.read(), None);
    let (port, home) = (
        engine.port,
        std::mem::replace(&mut engine.home, tempfile::tempdir().unwrap()),
    );
    let engine = Engine::start_in(home, &format!("127.0.0.1:{port}"), &[]);
    assert_eq!(engine.get("/code?3").exit_code, Some(3));
}

#[test]
fn a_client_that_shuts_down_after_asking_is_answered() {
    let engine = Engine::start(&[]);
    let mut client = engine.client();
    client.ask("/code?3");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read().unwrap().exit_code, Some(3));
    assert_eq!(client.read(), None);
}

/// 1,574 failing calls stopped the engine: it wrote to a pipe that nobody read.
#[test]
fn a_log_that_nobody_reads_stops_no_call() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let (mut log, _unread) = UnixStream::pair().unwrap();
    log.set_nonblocking(true).unwrap();
    while log.write(b"x").is_ok() {}
    log.set_nonblocking(false).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_procd"))
        .args(["--listen", "none", "--unix"])
        .arg(&path)
        .stderr(Stdio::from(OwnedFd::from(log)))
        .spawn()
        .unwrap();
    let mut stream = None;
    eventually("it listens", || {
        stream = UnixStream::connect(&path).ok();
        stream.is_some()
    });
    let mut stream = stream.unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(120)))
        .unwrap();
    stream
        .write_all(b"GET /stats HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let kill = Command::new("kill").arg(child.id().to_string()).status();
    assert!(kill.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// 1,100 half requests kept all others out for 10 s.
#[test]
fn the_oldest_half_request_makes_room_for_a_newcomer() {
    let engine = Engine::start(&["--max-connections", "3"]);
    let mut whole = engine.client();
    assert_eq!(whole.get("/code?1").exit_code, Some(1));
    let mut halves = Vec::new();
    for line in ["GET /code?2 HTTP/1.1\r\nHo", "GET /code?3 HTTP/1.1\r\nHo"] {
        let mut client = engine.client();
        client.send(line);
        halves.push(client);
        let open = halves.len() + 1;
        eventually("it is known", || {
            whole
                .get("/stats")
                .body
                .contains(&format!("\"connections_open\": {open}"))
        });
    }
    let mut newcomer = engine.client();
    assert_eq!(newcomer.get("/code?4").exit_code, Some(4));
    halves[1].send("st: x\r\n\r\n");
    let reply = halves[1].read().unwrap();
    assert_eq!(reply.exit_code, Some(3));
    assert_eq!(halves[0].read(), None, "the oldest has left");
    assert_eq!(whole.get("/code?1").exit_code, Some(1));
}
