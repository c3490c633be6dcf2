//! A link that is really cut: clients on a host of their own, whose link goes
//! down. The host is a network namespace that ends with the test. Needs root,
//! and `unshare`, `nsenter` and `ip`.

use std::fs::File;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Client, Daemon, eventually, output, short, tool};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace and a link to it.
struct Host {
    /// A process in the namespace, which keeps the namespace alive.
    inhabitant: Child,
    interface: String,
    /// The address of this end of the link.
    here: String,
}

impl Host {
    fn new() -> Self {
        let inhabitant = tool("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        // From the range for benchmarks (RFC 2544), which nobody routes; four of
        // them for each process.
        let id = std::process::id();
        let net = id % (1 << 14);
        let address = |end| format!("198.18.{}.{}", net / 64, net % 64 * 4 + end);
        let host = Self {
            inhabitant,
            interface: format!("jl{id}"),
            here: address(1),
        };
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        eventually("there is a namespace (needs root)", || {
            std::fs::read_link(host.namespace()).is_ok_and(|theirs| theirs != own)
        });
        let near = &host.interface;
        host.ip(&format!(
            "link add far type veth peer name {near} netns {id}"
        ));
        host.ip(&format!("addr add {}/30 dev far", address(2)));
        host.ip("link set far up");
        ip(&format!("addr add {}/30 dev {near}", host.here));
        ip(&format!("link set {near} up"));
        host
    }

    fn namespace(&self) -> String {
        format!("/proc/{}/ns/net", self.inhabitant.id())
    }

    fn inside(&self, program: &str) -> Command {
        let mut command = tool("nsenter");
        command.args([&format!("--net={}", self.namespace()), program]);
        command
    }

    fn ip(&self, arguments: &str) {
        output(self.inside("ip").args(arguments.split(' ')));
    }

    /// A connection from there to here.
    fn connect(&self, port: u16) -> TcpStream {
        let namespace = File::open(self.namespace()).unwrap();
        let here = self.here.clone();
        // A socket stays where it was made.
        let connect = move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), kind).unwrap();
            TcpStream::connect((here, port)).unwrap()
        };
        std::thread::spawn(connect).join().unwrap()
    }
}

fn ip(arguments: &str) {
    output(tool("ip").args(arguments.split(' ')));
}

impl Drop for Host {
    fn drop(&mut self) {
        // Sockets that were cut off keep the namespace for a while.
        let _ = tool("ip").args(["link", "del", &self.interface]).status();
        let _ = self.inhabitant.kill();
        let _ = self.inhabitant.wait();
    }
}

#[test]
fn locks_and_places_in_line_of_clients_that_are_cut_off_are_passed_on() {
    let host = Host::new();
    let directory = tempfile::tempdir().unwrap();
    let password = directory.path().join("password");
    std::fs::write(&password, "secret").unwrap();
    let listen = format!("{}:0", host.here);
    let daemon = Daemon::start(&[
        "--listen",
        &listen,
        "--password-file",
        password.to_str().unwrap(),
        // Given up after 4 s.
        "--tcp-keepalive",
        "1",
    ]);
    let port = daemon.port_of(&format!("listening on {}", host.here));
    let known = |stream| {
        let mut client = Client::new(stream);
        assert_eq!(client.say("AUTH secret"), "OK");
        client
    };
    let waiting = |client: &mut Client<TcpStream>, count| {
        eventually("it waits", || client.info("waiters") == count);
    };
    let near = || known(TcpStream::connect(("127.0.0.1", daemon.port)).unwrap());
    let mut watcher = near();
    // Clients on the far host, and near ones behind them in line. The first lock is held on the
    // far host. The second is released here while its far waiter is cut off.
    let mut far: Vec<_> = (0..3).map(|_| known(host.connect(port))).collect();
    let mut lines = Vec::new();
    assert_eq!(short(&far[0].ask("LOCK held")), "1");
    let mut holder = near();
    assert_eq!(short(&holder.ask("LOCK waited")), "2");
    for (at, name) in ["held", "waited"].into_iter().enumerate() {
        far[1 + at].send(&format!("LOCK {name}"));
        waiting(&mut watcher, 2 * at as u64 + 1);
        let mut last = near();
        last.send(&format!("LOCK {name}"));
        last.set_timeout(Duration::from_secs(120));
        waiting(&mut watcher, 2 * at as u64 + 2);
        lines.push(last);
    }
    host.ip("link set far down");
    let cut = Instant::now();
    // A peer that is gone is detected by unacknowledged data as by silence.
    assert_eq!(short(&holder.ask("UNLOCK waited")), "1");
    for client in &mut lines {
        let token = client.read().as_integer();
        assert!(token.is_some());
    }
    // No client is given up at once.
    assert!(
        cut.elapsed() > Duration::from_secs(2),
        "{:?}",
        cut.elapsed()
    );
    assert_eq!(watcher.info("connected_clients"), 4);
    assert_eq!(watcher.info("holds"), 2);
}
