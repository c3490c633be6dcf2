//! `judge` as on a host of containers: the command in one network namespace, its server in another
//! one and in a PID namespace of its own.
//!
//! Needs root, redis-server, redis-tools, nftables and socat.

use crate::common::cgroup::Cgroup;
use crate::common::loops::Loops;
use crate::common::{Place, in_some_try, must_be_root, must_have, until, watched};
use jostle_model::judged::{Limit, ServerUnseen, Watched};
use jostle_sys::namespaces::spawn_as_host;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where the command lives, and where the server does.
struct Hosts {
    near: Child,
    far: Child,
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in [&mut self.near, &mut self.far] {
            // With the first process goes whatever runs there, and its devices.
            let _ = host.kill();
            let _ = host.wait();
        }
    }
}

fn host(script: &str) -> Child {
    let mut command = Command::new("sh");
    let command = command.args(["-c", script]);
    spawn_as_host(command.stdout(Stdio::null()).stderr(Stdio::null()), 0).unwrap()
}

impl Hosts {
    /// A Redis server at 10.213.78.2:7402; a shell does `before` it.
    fn start(place: &Place, before: &str) -> Hosts {
        must_be_root("make network namespaces");
        for (program, package) in [
            ("redis-server", "redis-server"),
            ("redis-benchmark", "redis-tools"),
            ("nft", "nftables"),
            ("socat", "socat"),
        ] {
            must_have(program, package);
        }
        let server = format!(
            "{before} until ip addr add 10.213.78.2/30 dev far; do sleep 0.1; done; \
             ip link set far up; ip route add default via 10.213.78.1; exec redis-server \
             --port 7402 --protected-mode no --save '' --appendonly no --dir {}",
            place.path().display()
        );
        let hosts = Hosts {
            near: host("exec sleep 600"),
            far: host(&server),
        };
        let (near, far) = (hosts.near.id(), hosts.far.id());
        let link = format!("link add near netns {near} type veth peer name far netns {far}");
        let made = Command::new("ip").args(link.split(' ')).status();
        assert!(made.unwrap().success(), "{link}");
        hosts.near(
            "ip addr add 10.213.78.1/30 dev near; ip link set near up; ip link set lo up; \
             ip addr add 10.213.79.1/32 dev lo; redis-server --port 7403 --save '' &",
        );
        until("a Redis server", Duration::from_secs(60), || {
            let ping =
                |at: &str| hosts.command(&format!("timeout 2 redis-cli {at} ping | grep -q PONG"));
            let is_up = |at: &str| ping(at).status().is_ok_and(|status| status.success());
            (is_up("-h 10.213.78.2 -p 7402") && is_up("-p 7403")).then_some(())
        });
        hosts
    }

    /// A shell where the command lives.
    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        let near = self.near.id().to_string();
        command.args(["--net", "--pid", "--target", &near, "sh", "-c", script]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn near(&self, script: &str) {
        assert!(self.command(script).status().unwrap().success(), "{script}");
    }

    /// A run of `judge` from the first PID namespace.
    fn judge(&self, place: &Place, line: &str, script: &str) -> Watched {
        let line = format!("judge -o judged.jsonl --overwrite {line}-- sh -c");
        let under = format!("nsenter --net --target {}", self.near.id());
        place.jostle(&line).word(script).under(&under).run_cleanly();
        watched(&place.read("judged.jsonl"))
    }
}

fn load(at: &str) -> String {
    format!("timeout 3 redis-benchmark {at} -c 8 -n 100000000 -t get --csv; true")
}

#[test]
fn the_server_is_found_in_another_namespace_through_translation_and_forwarders() {
    let place = Place::beside_others();
    let group = Cgroup::with("cpu");
    group.set(
        &[
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "3000"),
        ],
        &[("cpu.max", "3000 100000")],
    );
    let hosts = Hosts::start(&place, &format!("{};", group.enter()));
    let server = u64::from(hosts.far.id());
    let is_it = |watched: &Watched| {
        let side = watched.server.as_ref()?;
        let traffic = watched.traffic.as_ref()?;
        let process = side.largest.as_ref()?;
        let throttled_s: f64 = side.throttled_s.as_ref()?.iter().sum();
        let is_read = side.quota_cpus == Some(0.03) && throttled_s > 0.0;
        let at = traffic.server_address.as_deref();
        let is_there = process.pid == server && at == Some("10.213.78.2:7402");
        let is_served = traffic.backlog_limit > Some(0);
        (is_there && is_read && is_served).then(|| traffic.hops.clone())
    };
    let found = |line: &str, at: &str| {
        // A server that a quota stops is met late.
        in_some_try(at, || is_it(&hosts.judge(&place, line, &load(at))))
    };
    assert!(found("", "-h 10.213.78.2 -p 7402").is_empty());
    assert!(found("--server :7402 ", "-h 10.213.78.2 -p 7402").is_empty());
    hosts.near(
        "nft 'add table ip n; add chain ip n out { type nat hook output priority -100; }; \
         add rule ip n out ip daddr 10.213.79.1 tcp dport 8080 dnat to 10.213.78.2:7402'",
    );
    assert!(found("", "-h 10.213.79.1 -p 8080").is_empty());
    hosts.near(
        "nft 'add chain ip n post { type nat hook postrouting priority 100; }; \
         add rule ip n post oifname near masquerade random'",
    );
    assert!(found("", "-h 10.213.79.1 -p 8080").is_empty());
    hosts.near("socat TCP-LISTEN:8081,fork,reuseaddr,backlog=64 TCP:10.213.78.2:7402 &");
    let hops = found("", "-p 8081");
    assert_eq!(
        hops.iter().map(|hop| &*hop.name).collect::<Vec<_>>(),
        ["socat"]
    );
}

#[test]
fn without_the_right_to_look_there_the_server_is_undecided() {
    let place = Place::of_a_plain_user();
    let hosts = Hosts::start(&place, "");
    let script = "exec python3 -c \"import socket, time\n\
        s, end = socket.create_connection(('10.213.78.2', 7402)), time.monotonic() + 4\n\
        while time.monotonic() < end: s.sendall(b'PING\\r\\n'); s.recv(100); time.sleep(0.01)\"";
    let watched = hosts.judge(&place, "", script);
    assert!(watched.server.is_none() && watched.traffic.is_some());
    assert_eq!(watched.server_unseen, Some(ServerUnseen::Namespaces));
}

#[test]
fn what_other_programs_do_is_nothing_of_the_command_s() {
    let place = Place::beside_others();
    let hosts = Hosts::start(&place, "");
    // A connection for each request.
    let stranger = "redis-benchmark -p 7403 -c 5 -k 0 -n 100000000 -t get -q";
    let _stranger = Loops::new(vec![hosts.command(stranger).spawn().unwrap()]);
    let udp = "python3 -c \"import socket, time\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0))\n\
        end = time.monotonic() + 3\n\
        while time.monotonic() < end: s.sendto(b'x', s.getsockname()); s.recv(10)\"";
    in_some_try("a client of UDP", || {
        let watched = hosts.judge(&place, "", udp);
        assert!(watched.server.is_none() && watched.traffic.is_none());
        assert_eq!(watched.shared_network, Some(true));
        let opened: f64 = watched.network.unwrap().opened.iter().sum();
        // A machine that is busy elsewhere may look too seldom.
        let has_none = watched.finding.reasons[0].contains("it has sockets of UDP");
        (opened > 100.0 && has_none && watched.finding.limit == Limit::Nothing).then_some(())
    });
    in_some_try("a client that keeps its connections", || {
        let watched = hosts.judge(&place, "", &load("-h 10.213.78.2 -p 7402"));
        let traffic = watched.traffic?;
        let opened: f64 = traffic.opened.iter().sum();
        let all: f64 = watched.network?.opened.iter().sum();
        let most = traffic.connections.iter().copied().fold(0.0, f64::max);
        (traffic.port == 7402 && most == 8.0 && all > 500.0 && opened < 0.05 * all).then_some(())
    });
}
