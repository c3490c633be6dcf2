//! Each limit that connections run into, provoked: its error has its name in the
//! result, ends the curve at that point, and the message says which limit it was
//! and what lifts it. What can be known beforehand is said before the start.
//!
//! ENFILE is not provoked: fs.file-max belongs to the whole machine. What is said
//! of it is tested where it is made, in the engine's preflight.

use crate::common::cgroup::Cgroup;
use crate::common::{
    Done, Jostle, Place, alone, beside, in_a_network_of_its_own, in_some_try, jostle, reason, rows,
};
use jostle_model::record::Status;
use jostle_sys::limits::net::Counted;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::Duration;

/// One sweep, its records on stdout.
fn sweep(options: &str) -> Jostle {
    jostle(&format!(
        "connect {options} --runs 1 --seed 1 --format json"
    ))
}

/// The last point ended early, with this error and these words; those before it did
/// not. Other programs may make any of them INVALID too.
#[track_caller]
fn ends(done: Done, call: &str, error: &str, says: &[&str]) -> Done {
    let done = done.exits(3).leaves_nothing();
    let runs = done.runs();
    let (last, before) = runs.split_last().unwrap();
    assert!(
        before.iter().all(|point| reason(point, "limit").is_none()),
        "{}",
        done.transcript()
    );
    assert_eq!(last.verdict.is, Status::Invalid);
    let connections = last.connections.as_ref().unwrap();
    let stopped = connections.stopped.as_ref().unwrap();
    assert_eq!(
        (stopped.call.as_str(), stopped.error.as_str()),
        (call, error)
    );
    assert_eq!(last.around.errors.get(error), Some(&1));
    assert!(Some(connections.opened) < last.at.open);
    let text = &reason(last, "limit").unwrap().text;
    let start = format!("{error} after {} ", connections.opened);
    assert!(text.starts_with(&start), "{text}");
    for words in says {
        assert!(text.contains(words), "{text} does not say {words:?}");
    }
    done
}

/// The server's accept queue holds few connections, and it takes none until the kernel has
/// refused one: what comes later is connected when its SYN is sent again, after a second.
#[test]
fn a_full_accept_queue_is_named_and_a_longer_one_is_not() {
    let _beside = beside();
    let found = |backlog: i32, refuses: bool| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, backlog).unwrap();
        let address = listener.local_addr().unwrap();
        let overflows = || Counted::read().map_or(0, |counted| counted.overflows);
        let before = overflows();
        std::thread::spawn(move || {
            while refuses && overflows() == before {
                std::thread::sleep(Duration::from_millis(1));
            }
            let kept: Vec<_> = listener.incoming().take(20).collect();
            std::thread::park();
            drop(kept);
        });
        let done = sweep(&format!("tcp://{address} --open 20")).run();
        done.runs()
            .iter()
            .find_map(|point| Some(reason(point, "queues")?.text.clone()))
    };
    let text = in_some_try("a connection that a full queue refused", || found(2, true));
    assert!(text.starts_with("a full accept queue refused "), "{text}");
    assert!(text.contains("give listen() a larger backlog"), "{text}");
    in_some_try("connections that no queue refused", || {
        found(100, false).is_none().then_some(())
    });
}

/// Arguments, and the parts of the message that refuses them.
const SENSELESS: &str = "
connect flock => flock is not a connection; connect takes: tcp, unix
contend tcp => tcp is not a lock; `jostle connect tcp` opens connections
connect tcp://nowhere => HOST:PORT
connect tcp --open 0 => --open: 1 to
connect tcp --open some => some
connect tcp --sources 0 => --sources: 1 to
connect tcp --port-range 9-1 => is not a range of ports; write 40000-49999
connect tcp --accept lottery => shared, epollexclusive, reuseport
connect tcp --accept reuseport => --accept needs several acceptors; use --acceptors 4
connect tcp --close slowly => fin, rst
connect tcp --only dream => bind
connect tcp --only bind --rate 5 => --rate has no effect
connect tcp --rate 1:2 => --rate takes one number
connect unix --sources 2 => neither addresses nor ports; --sources works with: tcp
connect unix --listeners 5 => --listeners opens TCP sockets
connect tcp://127.0.0.1:9 --acceptors 4 => ; --acceptors works with
connect tcp://192.0.2.1:9 --sources 4 => reach this machine only
connect tcp://[::1]:9 --bind-no-port => addresses of --bind-no-port lie in 127.0.0.0/8
connect tcp --runs 0 => --runs: 1 to
connect tcp --budget 0 => --budget 0
connect tcp -w 3 => unexpected argument
";

#[test]
fn what_makes_no_sense_is_refused_with_what_would() {
    let _beside = beside();
    for [line, says] in rows(SENSELESS) {
        jostle(line).exits(2).prints_nothing().says(says);
    }
    // Words of the plan that no option says.
    let place = Place::new();
    std::fs::write(
        place.file("plan.toml"),
        "[[experiment]]\nworkload = \"connect\"\ntargets = [\"tcp\"]\nworkers = \"3\"\n",
    )
    .unwrap();
    place
        .jostle("run plan.toml")
        .exits(2)
        .says("connect has no workers");
    jostle("connect --open 10 --runs 1")
        .word("--during")
        .word("sh -c 'x")
        .exits(2)
        .says("a quote has no end");
    jostle("connect --open 10 --runs 1 --during /no/such/tracer")
        .exits(1)
        .says("--during: cannot run /no/such/tracer")
        .leaves_nothing();
}

#[test]
fn ports_that_are_used_up() {
    let _beside = beside();
    let run = sweep("--open 500:2000 --sources 1 --port-range 40000-40999");
    let done = in_a_network_of_its_own(run, "true").run();
    let done = done.says("2000 connections will not be reached: ephemeral ports ends at 1000; --sources 2, --ports 2, or a wider --port-range");
    let done = ends(
        done,
        "connect",
        "EADDRNOTAVAIL",
        &[
            "after 1000 connections: connect(): no port of 40000-40999 is left from 1 source \
             address to 1 destination port",
            "--sources 2, --ports 2, or a wider --port-range",
        ],
    );
    // An odd port is as good as an even one where the socket has a range of its own.
    let parities = done.runs()[1].connections.as_ref().unwrap().parities;
    assert_eq!(parities.map(|[even, odd]| even + odd), Some(500));
    // As many addresses as it says, and they all fit.
    let run = sweep("--open 500:2000 --sources 2 --port-range 40000-40999");
    in_a_network_of_its_own(run, "true").measures();
}

#[test]
fn ports_that_bind_cannot_find() {
    let _beside = beside();
    let few = "echo 40000 40999 > /proc/sys/net/ipv4/ip_local_port_range";
    let table = "
        --only bind => no port of 40000-40999 is left on 1 source address
        --bind-no-port=false --sources 1 --ports 2 => or --bind-no-port, with which connect() shares ports between destinations";
    for [options, says] in rows(table) {
        let run = sweep(&format!("--open 500:2000 {options}"));
        let done = in_a_network_of_its_own(run, few).run();
        ends(done, "bind", "EADDRINUSE", &[says]);
    }
    // Two destinations share each port.
    let run = sweep("--open 500:2000 --bind-no-port --sources 1 --ports 2");
    in_a_network_of_its_own(run, few).measures();
}

#[test]
fn descriptors_that_are_used_up_by_a_lower_limit_than_was_promised() {
    let _beside = beside();
    // Nothing was promised, so that nothing ends: it takes more processes.
    sweep("--open 300:900 --sources 1")
        .under("prlimit --nofile=100:100")
        .measures();
    let done = sweep("--open 10").under("prlimit --nofile=20:20").run();
    done.exits(1)
        .prints_nothing()
        .says("descriptors before its first connection, and its hard limit is 20")
        .says("prlimit --pid $$ --nofile=20000")
        .leaves_nothing();
}

#[test]
fn nobody_listens() {
    let _beside = beside();
    let table = "
        tcp://127.0.0.1:9 => ECONNREFUSED => after 0 connections: connect(): nobody listens there (any more), or the server refuses; start it
        unix:/nowhere/socket => ENOENT => no socket at this path; start the server
        tcp://203.0.113.1:9 => ENETUNREACH => there is no way to this address";
    for [target, error, says] in rows(table) {
        let run = sweep(&format!("{target} --open 10"));
        let done = in_a_network_of_its_own(run, "true").run();
        ends(done, "connect", error, &[says]);
    }
}

#[test]
fn a_backlog_that_nobody_empties() {
    let place = Place::beside_others();
    let path = place.file("socket");
    // Listens with a backlog of 4096 at most, and never accepts.
    let _listens = UnixListener::bind(&path).unwrap();
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let over = somaxconn.trim().parse::<u64>().unwrap().min(4_096) + 1_000;
    let done = sweep(&format!("unix:{} --open 10:{over}", path.display())).run();
    let done = ends(
        done,
        "connect",
        "ETIMEDOUT",
        &[
            "connect(): no answer for 5 s",
            "its backlog is full",
            "look at `ss -lt`",
        ],
    );
    assert!(done.took > Duration::from_secs(5));
}

#[test]
fn a_small_backlog_is_said_and_waited_for() {
    let _beside = beside();
    let run = sweep("--open 1000 --sources 1");
    let done = in_a_network_of_its_own(run, "echo 8 > /proc/sys/net/core/somaxconn").run();
    let done = done
        .measures()
        .says("net.core.somaxconn is 8: clients wait")
        .says("`sysctl -w net.core.somaxconn=4096`");
    assert_eq!(done.only_run().operations, 1_000);
}

/// Tests that have the machine to themselves.
mod alone {
    use super::*;

    #[test]
    fn memory_that_would_run_out() {
        let _alone = alone();
        let group = Cgroup::with("memory");
        let set = |bytes: &str| {
            group.set(
                &[("memory.limit_in_bytes", bytes)],
                &[("memory.max", bytes)],
            )
        };
        set("64M");
        sweep("--open 50k --sources 16")
            .after(&group.enter())
            .exits(1)
            .prints_nothing()
            .says("50000 connections reach memory at ")
            .says("each takes about 9.8 KiB")
            .leaves_nothing();
        set("300M");
        // Whoever looks at the memory may get no CPU until the kernel kills a process.
        let done = in_some_try("a stop before memory runs out", || {
            let run = sweep("--open 2k:200k --sources 16").after(&group.enter());
            let done = run.run();
            (!done.transcript().contains("SIGKILL")).then_some(done)
        });
        let done = done.says("200000 connections will not be reached: memory ends at ");
        ends(
            done,
            "memory",
            "ENOMEM",
            &[
                "stopped by jostle before memory runs out: under 30.0 MiB would be left",
                "fewer connections (--open)",
            ],
        );
    }
}

/// Tests that judge figures of this machine.
mod figures {
    use super::*;

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn clients_that_wait_for_a_small_backlog_have_no_syn_dropped() {
        let _alone = alone();
        let run = sweep("--open 1000 --sources 1");
        let done = in_a_network_of_its_own(run, "echo 8 > /proc/sys/net/core/somaxconn").run();
        let slowest = done.measures().only_run().times.connect_ns.unwrap().max;
        // A SYN that is dropped comes again after a second.
        assert!(slowest < 900_000_000, "{slowest} ns");
    }
}
