//! Runs that break while they are measured: what was measured before is kept, the run is INVALID in
//! the server's words, and the file ends whole. Standstills that are shorter than a second, and
//! servers that are kept from running.

use crate::common::servers::{redis_server, serves, serves_at};
use crate::common::{Place, Signal, alone, beside, in_some_try, must_be_root, must_have, reason};
use jostle_model::record::{BROKE_OFF, Status};
use jostle_testbed::ports::free_port;
use jostle_testbed::running::{Running as Server, eventually, said};
use jostle_testbed::servers;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// A Redis of the user's, at this port.
fn redis(port: u16) -> Server {
    serves(port, &mut redis_server(port, &[]))
}

fn tell(port: u16, command: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .write_all(format!("{command}\r\n").as_bytes())
        .unwrap();
    // The end of the server is an answer, too.
    let _ = stream.read(&mut [0; 64]);
}

/// Each of these once discarded what was finished: clearing up failed as the run had.
#[test]
fn whatever_breaks_a_run_what_was_finished_is_printed_and_the_file_ends_whole() {
    let _beside = beside();
    // Whether the server refuses the next run before its first worker.
    for (strike, said, breaks_off) in [
        ("CONFIG SET requirepass x", "NOAUTH", true),
        ("REPLICAOF 127.0.0.1 1", "READONLY", false),
        ("CONFIG SET maxmemory 1", "OOM", false),
        ("SHUTDOWN NOSAVE", "onnection", true),
    ] {
        let (place, port) = (Place::new(), free_port().unwrap());
        let _server = redis(port);
        let line = format!("contend redis://127.0.0.1:{port} -w 2:3:4:5:6 -b 1ms -t 1 --runs 1");
        let mut run = place.jostle(&format!("{line} -o points")).in_background();
        run.until_runs("points", 1);
        tell(port, strike);
        let done = run.end().ends_within_a_minute().exits(3).leaves_nothing();
        let again = place.jostle("report points").exits(0);
        let again = again.prints("INVALID").prints(said);
        let runs = place.runs("points");
        let first = &runs[0];
        assert!(
            first.operations > 0 && first.around.errors.is_empty(),
            "{strike}"
        );
        let last = runs.last().unwrap();
        assert_eq!(reason(last, "errors").unwrap().is, Status::Invalid);
        let broke_off = last.around.errors.contains_key(BROKE_OFF);
        assert_eq!(broke_off, breaks_off, "{strike}: {last:?}");
        assert_eq!(runs.len() < 5, breaks_off, "{strike}");
        if breaks_off {
            done.says("finished points are printed above");
            again
                .prints("This experiment ended early")
                .prints("Not measured:");
        }
        let file = place.read("points");
        let end = file.lines().last().unwrap();
        assert!(end.contains(r#""record":"end","exit":3"#), "{end}");
    }
}

/// The first run of a resumed experiment is the one that broke off.
#[test]
fn a_run_that_broke_off_is_measured_again_when_the_server_is_back() {
    let _beside = beside();
    let (place, port) = (Place::new(), free_port().unwrap());
    let _server = redis(port);
    let line = format!("contend redis://127.0.0.1:{port} -w 2:3 -b 1ms -t 1 --runs 2 -o points");
    let mut run = place.jostle(&line).in_background();
    run.until_runs("points", 1);
    tell(port, "CONFIG SET requirepass x");
    run.end().exits(3);
    tell(port, "AUTH x\r\nCONFIG SET requirepass \"\"");
    eventually("it asks for no password", || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).is_ok() && &answer == b"+PONG"
    });
    place.jostle("run points --resume").measures();
    let runs = place.runs("points");
    assert_eq!(runs.len(), 4);
    assert!(runs.iter().all(|run| run.around.errors.is_empty()));
}

/// It was "the target saturates", VALID.
#[test]
fn a_server_that_is_stopped_for_80_of_each_100_ms_is_told_in_each_workload_with_a_window() {
    let _beside = beside();
    let port = free_port().unwrap();
    let server = redis(port);
    let (pid, ended) = (server.0.id(), AtomicBool::new(false));
    /// Ends the stops, also if the test fails.
    struct Over<'o>(&'o AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _over = Over(&ended);
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                crate::common::processes::signal(pid, Signal::STOP);
                std::thread::sleep(Duration::from_millis(80));
                crate::common::processes::signal(pid, Signal::CONT);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        for line in [
            "contend {} -w 2 -b 0 -t 2 --runs 1",
            "rate {} -w 8 --rate 200 -t 2 --runs 1",
            "stream {} -w 2 -n 6000 --runs 1",
            "hold {} -w 2 --keys 3000 --runs 1",
        ] {
            let place = Place::new();
            let line = line.replace("{}", &format!("redis://127.0.0.1:{port}"));
            place.jostle(&format!("{line} -o points")).exits(3);
            let runs = place.runs("points");
            let told = reason(&runs[0], "server_still").expect(&line);
            assert_eq!(told.is, Status::Invalid);
            let part = "of the looks at it; seen beside it: it was stopped by a signal (SIGSTOP)";
            assert!(told.text.contains(part), "{line}: {}", told.text);
        }
    });
}

/// "other programs (redis-server 68 %)": the measured server, behind a pair of veth.
#[test]
fn a_server_in_another_network_namespace_is_found() {
    let _beside = beside();
    must_be_root("make a network namespace");
    must_have("ip", "iproute2");
    must_have("redis-server", "redis-server");
    let name = format!("jostle-{}", std::process::id());
    let peer = format!("jv{}", std::process::id());
    let ip = |words: &str| {
        let words = words.replace("NAME", &name).replace("PEER", &peer);
        Command::new("ip")
            .args(words.split(' '))
            .status()
            .unwrap()
            .success()
    };
    struct Removed<'a>(&'a dyn Fn(&str) -> bool);
    impl Drop for Removed<'_> {
        fn drop(&mut self) {
            (self.0)("netns del NAME");
        }
    }
    assert!(ip("netns add NAME"));
    let _removed = Removed(&ip);
    assert!(ip("link add PEERa type veth peer name PEERb netns NAME"));
    assert!(ip("addr add 10.233.59.1/24 dev PEERa") && ip("link set PEERa up"));
    assert!(ip("-n NAME addr add 10.233.59.2/24 dev PEERb") && ip("-n NAME link set PEERb up"));
    let port = free_port().unwrap();
    let mut within = Command::new("ip");
    within.args(["netns", "exec", &name, "redis-server"]);
    within.args(["--save", "", "--port", &port.to_string()]);
    within.args(["--bind", "10.233.59.2", "--protected-mode", "no"]);
    let server = serves_at(("10.233.59.2", port), &mut within);
    let place = Place::new();
    let line = format!("contend redis://10.233.59.2:{port} -w 4 -b 0 -t 2 --runs 1 -o points");
    place.jostle(&line).measures();
    let run = place.runs("points").remove(0);
    let stood = run.around.server_stood.expect("its processes are known");
    assert!(stood.looks > 10 && stood.still == 0, "{stood:?}");
    let accounts = run.around.accounts.unwrap();
    assert!(accounts.server_s.is_some_and(|s| s > 0.0), "{accounts:?}");
    let own = u64::from(server.0.id());
    assert!(
        accounts.others.iter().all(|other| other.pid != own),
        "{accounts:?}"
    );
}

/// Its client has found the name of the lock in the server's list of statements.
#[test]
fn a_connection_that_holds_a_user_lock_of_mariadb_is_named() {
    let _beside = beside();
    must_have("mariadb", "mariadb-client");
    let jostle = Path::new(env!("CARGO_BIN_EXE_jostle"));
    let server = servers::Server::Mariadb.start(jostle, None).unwrap();
    let sql = |text: &str| {
        let mut client = Command::new("mariadb");
        client.env("MYSQL_TCP_PORT", server.address.port().to_string());
        client.args(["-h", "127.0.0.1", "-u", "root", "--skip-ssl", "-BNe", text]);
        client
    };
    let name = || {
        let list = said(&mut sql("select info from information_schema.processlist"));
        let mut words = list.split('\'').map(str::to_owned);
        words.find(|word| word.starts_with("jostle:"))
    };
    let line = format!("contend {} -w 4 -b 1ms -t 8 --runs 1", server.target());
    // It may be granted when the window is nearly over.
    in_some_try("a lock that another keeps", || {
        let place = Place::new();
        let mut run = place.jostle(&format!("{line} -o points")).in_background();
        run.until_workers(4);
        let name = (0..100).find_map(|_| name())?;
        let mut other = sql(&format!("select get_lock('{name}', 60); select sleep(60)"));
        let _other = Server(other.stdout(Stdio::null()).spawn().unwrap());
        run.end();
        let told = &reason(&place.runs("points")[0], "idle_lock")?.text.clone();
        let by = told.contains("seen beside it: a session of root from ");
        (by && told.contains(") held it while nothing was granted")).then_some(())
    });
}

mod figures {
    use super::*;

    /// It was VALID.
    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_standstill_of_half_a_second_is_suspect_with_its_time() {
        let _alone = alone();
        let port = free_port().unwrap();
        let server = redis(port);
        let pid = server.0.id();
        // On a busy machine no CPU is idle.
        in_some_try("a standstill is told", || {
            let place = Place::new();
            let line =
                format!("contend redis://127.0.0.1:{port} -w 4 -b 1ms -t 4 --runs 1 -o points");
            let mut run = place.jostle(&line).in_background();
            run.until_workers(4);
            std::thread::sleep(Duration::from_millis(1_500));
            crate::common::processes::signal(pid, Signal::STOP);
            std::thread::sleep(Duration::from_millis(600));
            crate::common::processes::signal(pid, Signal::CONT);
            run.end();
            let runs = place.runs("points");
            let told = reason(&runs[0], "idle_lock")?;
            assert_eq!(told.is, Status::Suspect);
            assert!(
                told.text.contains("nothing was granted from"),
                "{}",
                told.text
            );
            Some(())
        });
    }
}
