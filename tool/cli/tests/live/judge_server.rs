//! The view of `judge` on servers beside their CPUs: their disks, the misses of a store, and the
//! work over a Unix socket.

use crate::common::loops::Loops;
use crate::common::servers::redis_server;
use crate::common::{Done, Place, alone, in_some_try, must_have};
use jostle_model::judged::{Limit, Traffic, Watched};
use jostle_model::record::Record;
use jostle_testbed::running::eventually;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// The records of a run of `judge`.
fn judged(place: &Place, line: &str) -> (Done, Vec<Record>) {
    let line = format!("judge -o judged.jsonl --overwrite {line}");
    let done = place.jostle(&line).run_cleanly();
    let text = place.read("judged.jsonl");
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (done, records.collect())
}

fn first(records: Vec<Record>) -> Watched {
    match records.into_iter().next() {
        Some(Record::Judged(watched)) => *watched,
        other => panic!("{other:?}"),
    }
}

/// A Redis server at this port (0: at the socket `redis` alone).
fn redis(place: &Place, port: u16) -> Loops {
    must_have("redis-benchmark", "redis-tools");
    let socket = place.file("redis");
    let mut command = redis_server(port, &["--appendonly", "no"]);
    command.arg("--dir").arg(place.path());
    command.arg("--unixsocket").arg(&socket);
    let server = command.stdout(Stdio::null()).spawn().unwrap();
    let server = Loops::new(vec![server]);
    eventually("a Redis server", || UnixStream::connect(&socket).is_ok());
    server
}

#[test]
fn misses_of_an_empty_redis_are_told_and_hits_are_not() {
    let place = Place::beside_others();
    let port = jostle_testbed::ports::free_port().unwrap();
    let _server = redis(&place, port);
    let run = |tests: &str| {
        let line = format!("-- redis-benchmark -p {port} -c 10 -n 60000 -t {tests} --csv");
        // A server that is slow to answer is not waited for.
        in_some_try("the server's counts", || {
            let (done, records) = judged(&place, &line);
            let text = done.stderr.replace("\n    ", " ");
            Some((text, first(records).lookups?))
        })
    };
    let (text, lookups) = run("get");
    assert!(lookups.misses > 0 && lookups.hits == 0, "{lookups:?}");
    assert!(
        text.contains("that the server counted were misses"),
        "{text}"
    );
    let (text, lookups) = run("set,get");
    assert!(lookups.hits > 0 && lookups.misses == 0, "{lookups:?}");
    assert!(!text.contains("misses"), "{text}");
}

#[test]
fn pairs_over_a_unix_socket_compare_what_was_printed() {
    let place = Place::beside_others();
    let _server = redis(&place, 0);
    let line = "--double --repeat 1 -- redis-benchmark -s redis -c {5} -n 60000 -t get --csv";
    let (done, records) = judged(&place, line);
    assert!(
        done.stderr.contains("operations/s as printed"),
        "{}",
        done.stderr
    );
    let Some(Record::Doubled(doubled)) = records.last() else {
        panic!("{records:?}")
    };
    assert_eq!(doubled.measure, "printed");
    assert!(
        doubled.rates_per_s[0].iter().all(|rate| *rate > 1.0),
        "{doubled:?}"
    );
}

/// A server of lab/trials/cases/serve.py, and its port.
fn serve(words: &str) -> (Loops, u32, u16) {
    serve_by(&[&format!("{CASES}/serve.py")], words)
}

/// A server of this Python script, whose first word is its port.
fn serve_by(script: &[&str], words: &str) -> (Loops, u32, u16) {
    must_have("python3", "python3");
    let port = jostle_testbed::ports::free_port().unwrap();
    let server = Command::new("python3")
        .args(script)
        .arg(port.to_string())
        .args(words.split(' '))
        .spawn()
        .unwrap();
    let pid = server.id();
    let server = Loops::new(vec![server]);
    eventually("a server", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    (server, pid, port)
}

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/trials/cases");

#[test]
fn servers_behind_the_server_are_no_other_programs() {
    let place = Place::beside_others();
    let (_last, last, at) = serve("gil 2000");
    let (_next, next, at) = serve(&format!("relay {at}"));
    let (_first, _, at) = serve(&format!("relay {at}"));
    // They are looked for three times, which may come late on a busy machine.
    in_some_try("the servers behind", || {
        let (_, records) = judged(
            &place,
            &format!("-- python3 {CASES}/client.py threads {at} 8 3"),
        );
        let machine = first(records).machine;
        let used_s: f64 = machine.behind_s?.iter().sum();
        let mut others = machine.neighbours.iter();
        let is_apart = others.all(|other| ![last, next].map(u64::from).contains(&other.pid));
        (used_s > 0.0 && is_apart).then_some(())
    });
}

#[test]
fn a_server_whose_requests_wait_for_one_lock_is_the_limit_and_one_of_timers_is_not() {
    // Each request holds the lock for so long, or sleeps without it.
    const SCRIPT: &str = "import socketserver, sys, threading, time\n\
        lock, seconds = threading.Lock(), float(sys.argv[3])\n\
        class Handler(socketserver.BaseRequestHandler):\n\
        \x20   def handle(self):\n\
        \x20       while self.request.recv(4096):\n\
        \x20           if sys.argv[2] == 'lock':\n\
        \x20               with lock: time.sleep(seconds)\n\
        \x20           else: time.sleep(seconds)\n\
        \x20           self.request.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n')\n\
        class Server(socketserver.ThreadingTCPServer): daemon_threads, request_queue_size = True, 64\n\
        Server(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()";
    let place = Place::beside_others();
    for (words, is_server) in [("lock 0.02", true), ("sleep 0.16", false)] {
        let (_server, _, at) = serve_by(&["-c", SCRIPT], words);
        in_some_try(words, || {
            let line = format!("-- python3 {CASES}/client.py threads {at} 10 6");
            let (_, records) = judged(&place, &line);
            let finding = first(records).finding;
            let told = finding.reasons[0].contains("one after the other at even distances");
            (told == is_server).then_some(())
        });
    }
}

#[test]
fn of_two_servers_the_one_that_carries_most_is_judged_and_pairs_compare_its_work_alone() {
    // A number of connections to the first server, whose answers come 0.1 s later, and one to the
    // second, which answers at once and so carries far more bytes.
    const SCRIPT: &str = "import socket, sys, threading, time\n\
        end, (one, other, n) = time.monotonic() + 3, map(int, sys.argv[1:])\n\
        def ask(port):\n\
        \x20   with socket.create_connection(('127.0.0.1', port)) as s:\n\
        \x20       while time.monotonic() < end:\n\
        \x20           s.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n'); s.recv(4096)\n\
        for port in [one] * n + [other]: threading.Thread(target=ask, args=(port,)).start()\n";
    let place = Place::beside_others();
    std::fs::write(place.file("load.py"), SCRIPT).unwrap();
    let (_one, _, one) = serve("wait 100");
    let (_other, _, other) = serve("gil 0");
    let line = format!("--double --repeat 1 -- python3 load.py {one} {other} {{4}}");
    // The first is met first, and others are looked for at the third look and the tenth.
    in_some_try("both servers in both runs", || {
        let (_, records) = judged(&place, &line);
        let Some(Record::Doubled(doubled)) = records.last() else {
            panic!("{records:?}")
        };
        assert_eq!(doubled.measure, "bytes");
        let runs = records.iter().filter_map(|record| match record {
            Record::Judged(watched) => watched.traffic.as_ref().zip(Some(watched.elapsed_s)),
            _ => None,
        });
        let mut runs = runs.zip(doubled.rates_per_s[0]);
        let is_other = |((traffic, elapsed_s), rate): ((&Traffic, f64), f64)| {
            let [listed] = &traffic.others[..] else {
                return false;
            };
            let bytes: f64 = traffic.bytes.iter().sum();
            let is_it = traffic.port == u64::from(other) && bytes > 2.0 * listed.bytes as f64;
            is_it && listed.at == format!("127.0.0.1:{one}") && rate * elapsed_s > 0.5 * bytes
        };
        runs.all(is_other).then_some(())
    });
}

/// Tests that judge figures of this machine.
mod figures {
    use super::*;

    /// A server that reads 32 MB of a file from its disk for each request, or reads nothing.
    fn server(file: &str) -> (Loops, String) {
        let script = "import http.server, mmap, os, sys\n\
            if sys.argv[1]:\n\
            \x20   page = mmap.mmap(-1, 32 << 20)\n\
            \x20   f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_DIRECT); os.pwritev(f, [page], 0)\n\
            class Handler(http.server.BaseHTTPRequestHandler):\n\
            \x20   protocol_version = 'HTTP/1.1'\n\
            \x20   def do_GET(self):\n\
            \x20       if sys.argv[1]: os.preadv(f, [page], 0)\n\
            \x20       self.send_response(200); self.send_header('Content-Length', '0'); self.end_headers()\n\
            \x20   def log_message(self, *args): pass\n\
            s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)\n\
            print(s.server_address[1], flush=True); s.serve_forever()";
        Loops::python(script, &[file])
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_server_that_waits_for_its_disk_is_no_limit_itself() {
        let _alone = alone();
        must_have("wrk", "wrk");
        let place = Place::new();
        // Where a temporary directory may be memory.
        let file = format!("{}/on-disk", env!("CARGO_TARGET_TMPDIR"));
        for (file, is_disk) in [(file.as_str(), true), ("", false)] {
            let (_server, port) = server(file);
            in_some_try("a server that waits for its disk", || {
                let line = format!("-- wrk -t1 -c2 -d3s http://127.0.0.1:{port}/");
                let (_, records) = judged(&place, &line);
                let finding = first(records).finding;
                let told = finding.limit == Limit::Downstream
                    && finding.reasons[0].contains("waited for a disk");
                (told == is_disk).then_some(())
            });
        }
        let _ = std::fs::remove_file(&file);
    }
}
