//! Whose CPU time it was: the server under test, found behind our connections or named
//! by `--server`, and the programs beside us, by their names.
//!
//! Other programs may run on this machine: what is planted is several times what a test
//! looks for, and stands beside a control.

use crate::common::web::Server;
use crate::common::{
    Jostle, Place, alone, beside, first_line, in_some_try, jostle, must_be_root, must_have,
    python_by_name, reason, rows,
};
use jostle_model::record::{Accounts, Neighbour, Run, Status};
use jostle_testbed::ports::free_port;
use jostle_testbed::running::Running;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

fn accounts(run: &Run) -> &Accounts {
    run.around.accounts.as_deref().unwrap()
}

/// The server's CPU time, as a share of the time between the readings: how many
/// microseconds a request takes is the machine's affair.
fn server_share(accounts: &Accounts) -> f64 {
    accounts.server_s.unwrap() / accounts.between_s
}

/// A busy loop by a name of its own, of more weight than others that may run here.
fn burner(name: &str, cpu: usize) -> Running {
    must_be_root("lower a niceness");
    must_have("taskset", "util-linux");
    let mut command = Command::new("nice");
    command
        .args(["-n", "-5", "taskset", "-c", &cpu.to_string(), "bash", "-c"])
        .arg(format!(
            "exec -a {name} bash -c 'printf {name} > /proc/self/comm; while :; do :; done'"
        ))
        .process_group(0);
    Running(command.spawn().unwrap())
}

/// A thread of this test sleeps for 20 us again and again: a timer each time.
#[test]
fn timers_of_others_are_flagged() {
    let _beside = beside();
    let (over, until) = std::sync::mpsc::channel::<()>();
    let sleeper = std::thread::spawn(move || {
        while let Err(TryRecvError::Empty) = until.try_recv() {
            std::thread::sleep(Duration::from_micros(20));
        }
    });
    let line = "contend null -w 1 -b 0 -i 0 -t 0.2 --runs 1 --quiet --format json";
    in_some_try("interrupts by timers", || {
        let run = jostle(line).run().leaves_nothing().only_run();
        let found = run.around.interference.as_deref()?;
        // A busy machine makes the reading too dear for so short a window.
        found.window.as_ref().and(found.anchor.as_ref())?;
        let text = reason(&run, "interference")?.text.clone();
        text.contains("interrupted a CPU").then_some(())
    });
    drop(over);
    sleeper.join().unwrap();
}

#[test]
fn workers_that_share_a_cpu_preempt_each_other() {
    let _beside = beside();
    let line = "contend null -w 2 -b 0 -i 0 --runs 1 --place same --format json";
    for carrier in ["processes", "threads"] {
        let mut window_ms = 500;
        in_some_try("workers that take turns", || {
            let line = format!("{line} -t {window_ms}ms --as {carrier}");
            window_ms *= 4;
            let run = jostle(&line).run().only_run();
            assert!(run.around.counts.contains_key("page_faults"));
            // A turn lasts a few milliseconds, whatever the scheduler's settings, if they have
            // the CPU at all.
            (run.around.counts["preempted"] >= 2).then_some(())
        });
    }
    // The one thread of tasks counts for all of them.
    let tasks = "contend lockd -w 4 --as tasks -t 100ms -b 0 --runs 1 --format json";
    let run = jostle(tasks).run().only_run();
    assert!(
        run.around.counts.contains_key("preempted"),
        "{:?}",
        run.around.counts
    );
}

/// A master with two processes, each of which serves for a while and is replaced.
const FORKING: &str = "
import os, signal, socket, sys, threading
listening = socket.socket()
listening.bind(('127.0.0.1', 0))
listening.listen(64)
print(listening.getsockname()[1], flush=True)
def serve():
    if os.fork():
        return
    for _ in range(150):
        connection, _ = listening.accept()
        connection.recv(4096)
        sum(range(2000))
        connection.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n')
        connection.close()
    os._exit(0)
def end():
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)
os.setpgid(0, 0)
serve()
threading.Thread(target=end, daemon=True).start()
while True:
    serve()
    os.wait()
";

#[test]
fn a_server_that_cannot_be_watched_is_refused_before_anything_starts() {
    // The second pid is one above the largest number that Linux ever gives a process.
    let table = "
        :{port} => nobody listens there
        pid:1 => first process of the machine
        pid:4194305 => there is no such process
        unix:/nowhere/socket => nobody listens there
        cgroup:/no/such/group => no control group
        6379 => write :PORT, pid:N, unix:PATH or cgroup:PATH";
    let port = free_port().unwrap().to_string();
    for [named, says] in rows(table) {
        let named = named.replace("{port}", &port);
        let line = format!("contend flock -w 1 -t 0.1 --runs 1 --server {named}");
        jostle(&line).run_cleanly().exits(2).says(says);
    }
}

#[test]
fn a_server_that_ends_during_the_run_is_an_error_and_no_hang() {
    let _beside = beside();
    let mut server = Server::plain();
    let line = format!(
        "stream http://127.0.0.1:{0}/ -w 1 -n 60000 --runs 1 --quiet --format json --server :{0}",
        server.port
    );
    let mut running = server.place.jostle(&line).in_background();
    running.until("requests", |run| {
        (run.place.read("log").len() > 1_000).then_some(())
    });
    let _ = server.child.kill();
    let done = running.end();
    assert!([1, 3].contains(&done.code()), "{}", done.stderr);
}

/// It was once INVALID: "other programs used 13.9 % of the machine".
#[test]
fn a_web_server_is_the_server_and_no_neighbour() {
    let _beside = beside();
    let server = Server::plain();
    for connection in ["each", "keep"] {
        let run = server.measured("/", &format!("-w 1 -n 300 --connection {connection}"));
        let accounts = accounts(&run);
        assert!(
            accounts.server_s.unwrap() > 0.0,
            "{connection}: {accounts:?}"
        );
        assert!(run.server.unwrap().cpu_us_per_operation.unwrap() > 0.0);
        let pid = u64::from(server.child.id());
        assert!(
            accounts.others.iter().all(|other| other.pid != pid),
            "{connection}: {accounts:?}"
        );
    }
}

/// Scope's question: its CPU time was once "other programs used 60.2 %".
#[test]
fn the_engine_behind_a_thin_client_is_named_by_its_port() {
    let _beside = beside();
    must_have("curl", "curl");
    let server = Server::plain();
    let command = format!("curl -so /dev/null http://127.0.0.1:{}/", server.port);
    let call = |named: &str| {
        let line = format!("call -w 1 -n 60 --null none {named} --runs 1 --quiet --format json");
        let jostle = server.place.jostle(&line).word(&command);
        jostle.measures().only_run()
    };
    assert_eq!(accounts(&call("")).server_s, None);
    for named in [
        format!("--server :{}", server.port),
        format!("--server pid:{}", server.child.id()),
    ] {
        let point = call(&named);
        assert!(
            accounts(&point).server_s.unwrap() > 0.0,
            "{named}: {:?}",
            accounts(&point)
        );
    }
}

/// In a namespace of its own nobody else can be seen, as in a container.
#[test]
fn where_others_cannot_be_seen_that_is_absent_and_a_few_workers_need_no_sight() {
    let _beside = beside();
    must_be_root("make a namespace");
    must_have("unshare", "util-linux");
    let line = "contend flock -w 1 -b 0 -t 0.3 --runs 1 --quiet --format json";
    let point = of_a_worker_with_a_cpu(|| jostle(line).under("unshare --fork --pid --mount-proc"));
    let accounts = accounts(&point);
    assert_eq!((accounts.others_s, accounts.whole_s), (None, None));
    assert!(accounts.waited_s.is_some() && accounts.workers_s > 0.0);
    is_not_doubted(&point);
}

/// A run in which somebody had a CPU at all.
fn of_a_worker_with_a_cpu(measured: impl Fn() -> Jostle) -> Run {
    in_some_try("a worker with a CPU", || {
        let point = measured().measures().only_run();
        (point.operations > 0).then_some(point)
    })
}

/// On a machine where the keeper itself waits for a CPU, that is told, and no more.
#[track_caller]
fn is_not_doubted(point: &Run) {
    let doubted = |text: &str| !text.contains("kept from its CPUs when it read");
    let unchecked = reason(point, "unchecked").filter(|found| doubted(&found.text));
    assert!(unchecked.is_none(), "{:?}", point.verdict);
}

/// Its CPU time was once called another program's without a word.
#[test]
fn a_server_of_another_user_has_to_be_named_and_that_is_said() {
    let _beside = beside();
    let server = Server::plain();
    let place = Place::of_a_plain_user();
    let call = |named: &str| {
        let line = format!("http://127.0.0.1:{}/ -w 1 -n 100 {named}", server.port);
        place.jostle(&format!("stream {line} --runs 1 --format json"))
    };
    let unseen = call("").measures();
    let pid = server.child.id();
    assert!(
        unseen.stderr.contains("--server pid:N"),
        "{}",
        unseen.stderr
    );
    assert_eq!(accounts(&unseen.only_run()).server_s, None);
    let named = call(&format!("--server pid:{pid}")).measures();
    let named = named.does_not_say("--server pid:N").only_run();
    let accounts = accounts(&named);
    assert!(accounts.server_s.unwrap() > 0.0, "{accounts:?}");
    assert!(
        accounts
            .others
            .iter()
            .all(|other| other.pid != u64::from(pid))
    );
}

/// As proc(5) has it: others' entries are not shown (hidepid=2), to a plain user. And
/// in a namespace of control groups the top of the hierarchy is another one.
#[test]
fn a_plain_user_whom_the_system_shows_little_is_not_doubted_for_that() {
    let _beside = beside();
    must_be_root("make a namespace");
    must_have("unshare", "util-linux");
    let line = "contend flock -w 1 -b 0 -t 0.3 --runs 1 --quiet --format json";
    for (namespace, script, sees_others) in [
        ("--mount", "mount -t proc -o hidepid=2 proc /proc", false),
        ("--cgroup", "true", true),
    ] {
        let place = Place::of_a_plain_user();
        let point = of_a_worker_with_a_cpu(|| {
            let run = place.jostle(line).after(script);
            run.under(&format!("unshare {namespace}"))
        });
        let accounts = accounts(&point);
        assert_eq!(accounts.others_s.is_some(), sees_others, "{namespace}");
        assert!(accounts.waited_s.is_some() && accounts.workers_s > 0.0);
        is_not_doubted(&point);
    }
}

#[test]
fn a_server_whose_processes_come_and_go_is_still_the_server() {
    let place = Place::beside_others();
    python_by_name(&place.file("forking"));
    let mut python = Command::new(place.file("forking"))
        .args(["-c", FORKING])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = format!(
        "stream http://127.0.0.1:{0}/ -w 1 -n 3000 --connection each --server :{0} \
         --runs 1 --quiet --format json",
        first_line(&mut python)
    );
    let point = jostle(&line).measures().only_run();
    drop(python.stdin.take());
    let _ = python.wait();
    let accounts = accounts(&point);
    assert!(accounts.server_s.unwrap() > 0.0, "{accounts:?}");
    let serves = |other: &Neighbour| other.name == "forking";
    assert!(!accounts.others.iter().any(serves), "{accounts:?}");
}

/// Tests that judge figures of this machine.
mod figures {
    use super::*;

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_web_server_has_its_share_of_the_window() {
        let _alone = alone();
        let server = Server::plain();
        for connection in ["each", "keep"] {
            let run = server.measured("/", &format!("-w 1 -n 300 --connection {connection}"));
            let share = server_share(accounts(&run));
            assert!(share > 0.1, "{connection}: {share}");
            assert!(run.server.unwrap().cpu_us_per_operation.unwrap() > 1.0);
        }
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn programs_on_our_cpu_are_named_and_bound_the_figure_and_those_on_another_are_not() {
        let _alone = alone();
        let allowed = jostle_sys::cpu::allowed();
        let ours = allowed[0];
        // Both workers and what is planted want this CPU all the time.
        let line = format!("contend flock -w 2 -b -1ms -t 0.5 --place cpus:{ours}");
        let measured = || {
            let line = format!("{line} --runs 1 --quiet --format json");
            jostle(&line).run().leaves_nothing().only_run()
        };
        let burners = vec![burner("hog-a", ours), burner("hog-b", ours)];
        let disturbed = measured();
        drop(burners);
        let named: Vec<&str> = accounts(&disturbed)
            .others
            .iter()
            .map(|o| o.name.as_str())
            .collect();
        // The largest three are named; two others may be at work here besides.
        assert!(
            named.iter().any(|name| name.starts_with("hog-")),
            "{named:?}"
        );
        let found = reason(&disturbed, "neighbours").unwrap();
        assert_eq!(found.is, Status::Invalid, "{found:?}");
        assert!(found.text.contains("hog-"), "{found:?}");
        // Most shares were theirs.
        assert!(accounts(&disturbed).others_s.unwrap() > 0.2);
        let quiet = measured();
        let named: Vec<&str> = accounts(&quiet)
            .others
            .iter()
            .map(|o| o.name.as_str())
            .collect();
        assert!(
            !named.iter().any(|name| name.starts_with("hog-")),
            "{named:?}"
        );
        if let Some(other) = allowed.get(1) {
            let burners = vec![burner("hog-c", *other)];
            let beside = measured();
            drop(burners);
            let others = &accounts(&beside).others;
            assert!(others.iter().all(|o| o.name != "hog-c"), "{others:?}");
        }
    }
}
