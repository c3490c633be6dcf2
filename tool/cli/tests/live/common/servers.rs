//! Servers as a user starts them.

use super::must_have;
use jostle_testbed::running::{Running, eventually};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::{Command, Stdio};

/// A program as a user's server, once it accepts connections at this port of the loopback.
pub(crate) fn serves(port: u16, command: &mut Command) -> Running {
    serves_at(("127.0.0.1", port), command)
}

/// A program as a user's server, once it accepts connections there.
pub(crate) fn serves_at(at: (&str, u16), command: &mut Command) -> Running {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    let server = Running(quiet.spawn().unwrap());
    eventually("the server accepts connections", || {
        TcpStream::connect(at).is_ok()
    });
    server
}

/// A Redis that keeps nothing on disk, at this port of the loopback, to be started.
pub(crate) fn redis_server(port: u16, options: &[&str]) -> Command {
    must_have("redis-server", "redis-server");
    let mut command = Command::new("redis-server");
    let port = port.to_string();
    command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port]);
    command.args(options);
    command
}

/// How many keys a Redis has.
pub(crate) fn keys_of_redis(at: impl ToSocketAddrs) -> u64 {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(b"DBSIZE\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim_start_matches(':').trim().parse().unwrap()
}

/// An etcd of one member, with these ports for clients and for peers, to be started.
pub(crate) fn etcd_server(clients: u16, peers: u16, data: &Path) -> Command {
    must_have("etcd", "etcd-server");
    let [clients, peers] = [clients, peers].map(|port| format!("http://127.0.0.1:{port}"));
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(data);
    command.args(["--listen-client-urls", &clients]);
    command.args(["--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers]);
    command.args(["--initial-advertise-peer-urls", &peers]);
    command.args(["--initial-cluster", &format!("default={peers}")]);
    command
}
