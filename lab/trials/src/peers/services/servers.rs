//! The servers that are measured: each on a free port, on the server's CPU, in a
//! directory of its own, ended when it is dropped.

use super::Ground;
use anyhow::{Context, bail};
use jostle_testbed::ports::free_port;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As it comes, tokens on disk included, with room for all waiters.
    Jostled,
    /// The same with users, who may use some names and have quotas, and a log of every
    /// connection.
    Governed,
    /// As it comes, but writing nothing to disk.
    Redis,
    /// A server that hands one lock on (`jostle-lab relay`).
    Relays,
    /// A server that only answers (`jostle-lab answer`).
    Answers,
}

/// Who may take jostle's locks, and how many.
const USERS: &str = "user default on nopass ~jostle* +@lock max-locks=100000 max-waiters=100000 \
     max-connections=10000\n";

/// A running one.
pub(super) struct Server {
    child: Child,
    pub port: u16,
    /// Port of the metrics.
    pub metrics: Option<u16>,
    /// Read to its end by nobody, but not closed either.
    _log: Option<BufReader<Box<dyn std::io::Read>>>,
    _directory: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn start(kind: Kind, ground: &Ground) -> anyhow::Result<Server> {
        let directory = tempfile::Builder::new().prefix("jostle-peers-").tempdir()?;
        // taskset becomes the server: the process keeps its number.
        let mut command = Command::new("taskset");
        command.args(["-c", &ground.server_cpu.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        match kind {
            Kind::Jostled | Kind::Governed => {
                command
                    .arg(&ground.jostled)
                    .arg("--data")
                    .arg(directory.path());
                command.args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
                command.args([
                    "--max-connections",
                    "15000",
                    "--max-waiters-per-lock",
                    "15000",
                ]);
                if kind == Kind::Governed {
                    let users = directory.path().join("users");
                    std::fs::write(&users, USERS)?;
                    command.args(["--log-level", "debug", "--users-file"]);
                    command.arg(users);
                }
                command
                    .env_remove("JOSTLED_PASSWORD")
                    .stderr(Stdio::piped());
            }
            Kind::Redis => {
                let port = free_port()?;
                command.args(["redis-server", "--port", &port.to_string()]);
                command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
                command
                    .args(["--maxclients", "15000", "--dir"])
                    .arg(directory.path());
                let child = command.spawn().context("cannot run taskset")?;
                return Server::redis(child, port, directory);
            }
            Kind::Relays | Kind::Answers => {
                let task = match kind {
                    Kind::Relays => "relay",
                    _ => "answer",
                };
                command.arg(&ground.lab).arg(task);
                command.stdout(Stdio::piped());
            }
        }
        let child = command.spawn().context("cannot run taskset")?;
        Server::announced(child, directory)
    }

    /// Waits until a server that says where it listens is ready.
    fn announced(mut child: Child, directory: TempDir) -> anyhow::Result<Server> {
        let said: Box<dyn std::io::Read> = match (child.stdout.take(), child.stderr.take()) {
            (Some(stdout), _) => Box::new(stdout),
            (None, Some(stderr)) => Box::new(stderr),
            (None, None) => bail!("a server that says nothing"),
        };
        let mut server = Server {
            child,
            port: 0,
            metrics: None,
            _log: None,
            _directory: directory,
        };
        let mut log = BufReader::new(said);
        let mut all = String::new();
        loop {
            let start = all.len();
            if log.read_line(&mut all)? == 0 {
                bail!("a server did not start: {all}");
            }
            let line = all[start..].trim_end();
            match () {
                () if line.contains("metrics on ") => server.metrics = port_in(line),
                () if line.contains("listening on ") => server.port = port_in(line).unwrap_or(0),
                () if line.ends_with(" ready") => break,
                () if line.starts_with("ready ") => {
                    server.port = port_in(line).unwrap_or(0);
                    break;
                }
                () => {}
            }
        }
        server._log = Some(log);
        Ok(server)
    }

    /// Redis does not say when it listens: it is dialled until it accepts.
    fn redis(child: Child, port: u16, directory: TempDir) -> anyhow::Result<Server> {
        let mut server = Server {
            child,
            port,
            metrics: None,
            _log: None,
            _directory: directory,
        };
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait()? {
                bail!("redis-server did not start: {status}");
            }
            if Instant::now() > end {
                bail!("redis-server does not listen on port {port}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The number that a line or an address in it ends with.
fn port_in(line: &str) -> Option<u16> {
    let address = line.strip_suffix("/metrics").unwrap_or(line);
    address.rsplit([':', ' ']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_from_what_servers_say() {
        let table = [
            ("jostled: listening on 127.0.0.1:2626", Some(2626)),
            (
                "jostled: metrics on http://127.0.0.1:9100/metrics",
                Some(9100),
            ),
            ("ready 34567", Some(34567)),
            ("jostled: ready", None),
        ];
        for (line, port) in table {
            assert_eq!(port_in(line), port, "{line}");
        }
    }
}
