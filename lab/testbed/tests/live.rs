//! Hosts on one machine: that they are as far apart as they claim, that links and
//! CPU time are limited where they say so, and that nothing is left of them. Needs
//! root, Open MPI, sshd, python3 and the tools of iproute2 and util-linux.

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]

use jostle_testbed::hosts::{Hosts, Member};
use jostle_testbed::running::{Running, eventually, said};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// At 10 Mbit/s it takes 0.4 s.
const SENT_BYTES: usize = 500_000;

/// A server on srv that takes [`SENT_BYTES`] of each connection, and then sends as
/// many.
fn start_server(hosts: &Hosts) -> Running {
    const SERVER: &str = "
import socket, sys, threading
def serve(c):
    n = int(sys.argv[1])
    while n: n -= len(c.recv(n))
    c.sendall(b'x' * int(sys.argv[1]))
s = socket.create_server(('', 5000))
print('ready', flush=True)
while True: threading.Thread(target=serve, args=(s.accept()[0],)).start()";
    let mut server = hosts.on("srv", "python3");
    server.args(["-c", SERVER, &SENT_BYTES.to_string()]);
    let mut server = Running(server.stdout(Stdio::piped()).spawn().unwrap());
    let mut ready = [0; 5];
    let stdout = server.0.stdout.as_mut().unwrap();
    std::io::Read::read_exact(stdout, &mut ready).unwrap();
    server
}

/// Seconds that the way there and the way back took.
fn transfer_s(hosts: &Hosts, host: &str) -> (f64, f64) {
    const CLIENT: &str = "
import socket, sys, time
n = int(sys.argv[1])
c = socket.create_connection(('srv', 5000), 10)
start = time.monotonic()
c.sendall(b'x' * n)
n -= len(c.recv(1))
there = time.monotonic()
while n: n -= len(c.recv(n))
print(there - start, time.monotonic() - there)";
    let mut client = hosts.on(host, "python3");
    let text = said(client.args(["-c", CLIENT, &SENT_BYTES.to_string()]));
    let (there, back) = text.trim().split_once(' ').unwrap();
    (there.parse().unwrap(), back.parse().unwrap())
}

#[test]
fn mpirun_starts_a_rank_on_each_host_with_a_name_and_a_clock_of_its_own() {
    // Each writes to a file of its own: mpirun mixes what ranks print at the same time.
    const RANK: &str = "import socket, sys, time\n\
        with open(f'{sys.argv[1]}/{socket.gethostname()}', 'x') as file:\n  \
        file.write(str(time.clock_gettime_ns(time.CLOCK_MONOTONIC)))";
    let hosts = Hosts::for_test(3).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let now_ns = || i64::try_from(jostle_sys::clock::monotonic()).unwrap();
    let before = now_ns();
    let mut ranks = hosts.mpirun();
    ranks.args(["-n", "3", "python3", "-c", RANK]);
    said(ranks.arg(folder.path()));
    let after = now_ns();
    let mut seen: Vec<String> = Vec::new();
    for entry in folder.path().read_dir().unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let clock = std::fs::read_to_string(entry.path()).unwrap();
        let member = hosts.member(&name).unwrap();
        let here = clock.parse::<i64>().unwrap() - member.shift_ns;
        assert!(
            (before..after).contains(&here),
            "{before} {name} {clock} {after}"
        );
        // Another host's shift, or none, would be far out of these bounds.
        assert!(member.shift_ns.unsigned_abs() > 1_000_000_000);
        seen.push(name);
    }
    seen.sort_unstable();
    assert_eq!(seen, ["h1", "h2", "h3"]);
    eventually("the ranks' helpers have ended", || {
        hosts
            .members()
            .all(|member| hosts.processes(&member.name).unwrap().is_empty())
    });
}

#[test]
fn a_slow_link_is_slow_in_both_directions() {
    let hosts = Hosts::for_test(2).unwrap();
    let _server = start_server(&hosts);
    let least_s = 8.0 * SENT_BYTES as f64 / 10e6;
    let limited = |host: &str| {
        let queues = said(hosts.on(host, "tc").args(["qdisc", "show", "dev", "eth0"]));
        queues.contains("tbf")
    };
    hosts.slow("h2", Some("10mbit")).unwrap();
    let (there, back) = transfer_s(&hosts, "h2");
    // What passes at once is a small part of it.
    assert!(
        there > 0.9 * least_s && back > 0.9 * least_s,
        "{there} {back}"
    );
    assert!(limited("h2") && !limited("h1"));
    hosts.slow("h2", None).unwrap();
    assert!(!limited("h2"));
    transfer_s(&hosts, "h2");
    assert!(hosts.slow("h2", Some("fast")).is_err());
}

#[test]
fn nothing_passes_a_cut_link_until_it_is_mended() {
    const CONNECT: &str = "import socket, sys\n\
        socket.create_connection(('srv', 5000), float(sys.argv[1])).close()";
    let hosts = Hosts::for_test(2).unwrap();
    let _server = start_server(&hosts);
    let connects = |host: &str, patience_s: &str| {
        let mut client = hosts.on(host, "python3");
        let client = client
            .args(["-c", CONNECT, patience_s])
            .stderr(Stdio::null());
        client.status().unwrap().success()
    };
    assert!(connects("h2", "10"));
    hosts.cut("h2").unwrap();
    assert!(!connects("h2", "0.5"));
    assert!(connects("h1", "10"), "the others are not cut");
    let link = said(hosts.on("h2", "cat").arg("/proc/net/dev"));
    assert!(link.contains("eth0"), "the interface stays: {link}");
    hosts.mend("h2").unwrap();
    assert!(connects("h2", "10"));
}

#[test]
fn ranks_on_a_host_with_little_cpu_time_get_no_more() {
    // CPU time of a loop of a second, by the host's name.
    const LOOP: &str = "
import socket, time
began, end = time.process_time(), time.monotonic() + 1
while time.monotonic() < end: pass
print(socket.gethostname(), time.process_time() - began, flush=True)";
    let hosts = Hosts::for_test(2).unwrap();
    hosts.cpu("h2", Some(0.1)).unwrap();
    let text = said(hosts.mpirun().args(["-n", "2", "python3", "-c", LOOP]));
    let line = text.lines().find(|line| line.starts_with("h2 ")).unwrap();
    let used_s: f64 = line[3..].parse().unwrap();
    // A tenth of a second, and what of a period falls outside of the loop.
    assert!(used_s < 0.2, "{text}");
    let group = PathBuf::from(&hosts.member("h2").unwrap().group);
    // One below it, so that in version 2 too others can be made beside that, inside the limit.
    let own = said(hosts.on("h2", "cat").arg("/proc/self/cgroup"));
    let inner = |line: &str| {
        let above = line
            .rsplit_once(":/")
            .and_then(|(_, path)| path.strip_suffix("/all"));
        above.is_some_and(|above| group.ends_with(above))
    };
    assert!(own.lines().any(inner), "{own}");
    let throttled = || {
        let counts = std::fs::read_to_string(group.join("cpu.stat")).unwrap();
        let line = counts.lines().find(|line| line.starts_with("nr_throttled"));
        line.unwrap().to_owned()
    };
    hosts.cpu("h2", None).unwrap();
    let before = throttled();
    said(hosts.on("h2", "python3").args(["-c", LOOP]));
    assert_eq!(throttled(), before);
    assert!(hosts.cpu("h2", Some(0.0)).is_err());
}

/// The traces of hosts: processes in their namespaces, files, groups.
fn traces(hosts: &[Member], directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let namespace = std::fs::read_link(entry.path().join("ns/pid"));
        let namespace = namespace.unwrap_or_default().display().to_string();
        // What ends has no host name any more, and no place but for the number.
        let lives = std::fs::read_link(entry.path().join("ns/uts")).is_ok();
        if lives && hosts.iter().any(|host| host.namespace == namespace) {
            found.push(format!("{} in {namespace}", entry.path().display()));
        }
    }
    let groups = hosts.iter().map(|host| PathBuf::from(&host.group));
    let places = groups.chain([directory.to_owned()]);
    found.extend(
        places
            .filter(|p| p.exists())
            .map(|p| p.display().to_string()),
    );
    found
}

#[test]
fn nothing_stays_of_hosts_that_are_taken_down() {
    let hosts = Hosts::for_test(2).unwrap();
    let directory = hosts.directory().to_owned();
    let all: Vec<_> = hosts.members().cloned().collect();
    // One that its parent has left, and that does not end when it is asked to.
    let stubborn = "trap '' TERM; setsid sleep 1000 >/dev/null 2>&1 &";
    said(hosts.on("h2", "sh").args(["-c", stubborn]));
    // The shell may be ending still, and the other one not have become `sleep` yet.
    eventually("one process is left", || {
        let left = hosts.processes("h2").unwrap();
        matches!(&left[..], [(_, sleep)] if sleep.ends_with("sleep 1000"))
    });
    assert!(traces(&all, &directory).len() >= 3);
    hosts.down().unwrap();
    assert_eq!(traces(&all, &directory), [""; 0]);
}
