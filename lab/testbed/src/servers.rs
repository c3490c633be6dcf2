//! The servers that validations measure, each on a free port of the loopback.
//!
//! Dropping a [`Running`] ends its server. A server ends, too, when this program
//! does, in whatever way: it has a guardian that waits for the end of its input.

use crate::databases;
use crate::etcd;
use crate::leash::Leash;
use crate::ports::free_port;
use crate::slapd::{self, Slapd};
use crate::stores;
use anyhow::{Context, bail};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// For a server to answer, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Users in the directory of slapd.
const ENTRIES: u32 = 1_000;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The lock daemon.
    Lockd,
    /// A server that sleeps 50 us over each grant, one after the other.
    Slow,
    /// Redis, which writes nothing to disk.
    Redis,
    /// nginx: answers from memory.
    Nginx,
    /// `python3 -m http.server`: a thread for each connection, a file for each
    /// answer.
    Python,
    /// OpenLDAP's directory server.
    Slapd,
    /// PostgreSQL, which lets everybody in.
    Postgres,
    /// MariaDB, which lets everybody in.
    Mariadb,
    /// etcd, a cluster of one.
    Etcd,
    /// An etcd of a current version, which is built ([`crate::etcd`]).
    CurrentEtcd,
    /// ZooKeeper, alone.
    Zookeeper,
    /// memcached.
    Memcached,
    /// Another program, by [`launch`].
    Other,
}

/// Where a server runs: on any CPU, and in our own control group, unless this says
/// otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Placed<'a> {
    /// Its only CPU.
    pub cpu: Option<usize>,
    /// The directory of its control group.
    pub group: Option<&'a Path>,
    /// What its command line begins with, to enter other namespaces.
    pub enter: &'a [String],
    /// Where it listens: a free port of the loopback unless this says otherwise.
    pub address: Option<SocketAddr>,
}

/// Those that are started by their kind alone: as tables print each, and as a target is named that
/// is measured on it; and the Debian packages that it comes from.
const ALL: &[(Server, &str, &[&str])] = &[
    (Server::Lockd, "lockd", &[]),
    (Server::Slow, "slow", &[]),
    (Server::Redis, "redis", &["redis-server"]),
    (Server::Nginx, "nginx", &["nginx-light"]),
    (Server::Python, "python", &["python3-venv"]),
    (Server::Slapd, "slapd", &["slapd", "openssl"]),
    (Server::Postgres, "postgres", &["postgresql"]),
    (Server::Mariadb, "mariadb", &["mariadb-server"]),
    (Server::Etcd, "etcd", &["etcd-server"]),
    (Server::CurrentEtcd, "etcd", &["golang-go"]),
    (Server::Zookeeper, "zookeeper", &["zookeeper"]),
    (Server::Memcached, "memcached", &["memcached"]),
];

impl Server {
    /// The first of this name.
    pub fn named(name: &str) -> Option<Server> {
        let mut all = ALL.iter();
        all.find(|(_, own, _)| *own == name).map(|(one, ..)| *one)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.about().map_or("other", |(_, name, _)| name)
    }

    /// The Debian packages that it comes from.
    pub fn packages(self) -> &'static [&'static str] {
        self.about().map_or(&[], |(.., packages)| packages)
    }

    fn about(self) -> Option<&'static (Server, &'static str, &'static [&'static str])> {
        ALL.iter().find(|(one, ..)| *one == self)
    }

    /// Starts it, on one CPU if that is given. `jostle` is the program that has the
    /// servers of its own.
    ///
    /// # Errors
    /// Where it does not start, or does not answer in time.
    pub fn start(self, jostle: &Path, cpu: Option<usize>) -> anyhow::Result<Running> {
        let placed = Placed {
            cpu,
            ..Placed::default()
        };
        self.start_at(jostle, placed)
    }

    /// Starts the server, placed as asked.
    ///
    /// # Errors
    /// As above; slapd is in no group of its own, and few listen elsewhere than on the loopback.
    pub fn start_at(self, jostle: &Path, placed: Placed<'_>) -> anyhow::Result<Running> {
        let is_elsewhere = placed.address.is_some_and(|at| !at.ip().is_loopback());
        match self {
            Server::Nginx | Server::Redis | Server::Memcached | Server::Other => {}
            _ if is_elsewhere => bail!("{self:?} is started on the loopback only"),
            _ => {}
        }
        match self {
            Server::Lockd => own(self, jostle, "lockd", placed),
            Server::Slow => own(self, jostle, "echo:slow=50us", placed),
            Server::Slapd if placed.group.is_some() => {
                bail!("slapd is not started in a control group of its own")
            }
            Server::Slapd => Ok(Slapd::start(&slapd::Wanted {
                entries: ENTRIES,
                cpu: placed.cpu,
                ..slapd::Wanted::default()
            })?
            .into_running()),
            Server::Other => bail!("another program is launched by its command line"),
            _ => launch(self, placed, |address, directory| {
                words(self, address, directory)
            }),
        }
    }
}

/// A server that answers.
#[derive(Debug)]
pub struct Running {
    /// Its kind.
    pub server: Server,
    /// Where it listens.
    pub address: SocketAddr,
    #[allow(dead_code, reason = "held so that dropping it ends the server")]
    leash: Leash,
}

impl Running {
    /// The target for the verbs that send requests.
    pub fn target(&self) -> String {
        let at = self.address;
        match self.server {
            Server::Slapd => format!("ldap://{at}/{}?(uid=user{{n}})", slapd::BASE),
            Server::Lockd | Server::Slow => format!("lockd://{at}"),
            Server::Postgres => format!("postgres://{}@{at}/postgres", databases::POSTGRES_USER),
            Server::Mariadb => format!("mariadb://{}@{at}", databases::MARIADB_USER),
            Server::Nginx | Server::Python | Server::Other => format!("http://{at}/"),
            _ => format!("{}://{at}", self.server.name()),
        }
    }
}

/// A server of jostle's own: it ends with its standard input.
fn own(server: Server, jostle: &Path, name: &str, placed: Placed<'_>) -> anyhow::Result<Running> {
    let begin = placed.words();
    let mut serve = Command::new(&begin[0]);
    serve
        .args(&begin[1..])
        .arg(jostle)
        .args(["serve", name])
        .stdout(Stdio::piped());
    let mut leash = Leash::start(&mut serve)?;
    let stdout = leash.stdout().context("a server without output")?;
    let mut said = String::new();
    BufReader::new(stdout).read_line(&mut said)?;
    let address = said.trim().parse();
    Ok(Running {
        server,
        address: address.with_context(|| format!("{name} does not start: it printed {said:?}"))?,
        leash,
    })
}

impl Placed<'_> {
    /// The words at the beginning of a command line that keeps to it.
    pub fn words(self) -> Vec<String> {
        let enter = match self.group {
            Some(group) => format!("echo 0 > {}/cgroup.procs && ", group.display()),
            None => String::new(),
        };
        let mut words = ["sh", "-c", &format!("{enter}exec \"$@\""), "sh"]
            .map(str::to_owned)
            .to_vec();
        if let Some(cpu) = self.cpu {
            words.extend(["taskset", "-c", &cpu.to_string()].map(str::to_owned));
        }
        words.extend_from_slice(self.enter);
        words
    }
}

/// Runs a command beside a directory, and ends the one and removes the other when its
/// standard input closes: when whoever started it ends, in whatever way.
const GUARDIAN: &str = r#"
    trap '' INT HUP
    directory=$1; shift
    "$@" &
    read -r never
    kill $!; wait $!
    rm -rf "$directory""#;

/// Launches a program in a directory of its own, and waits until it accepts connections.
/// `words` makes its command line, by where it listens and that directory.
///
/// # Errors
/// Where it does not answer in time, and those of `words`.
pub fn launch(
    server: Server,
    placed: Placed<'_>,
    words: impl FnOnce(SocketAddr, &Path) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<Running> {
    let address = match placed.address {
        Some(address) => address,
        None => SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)),
    };
    launch_at(server, placed, (address, Stdio::null()), words)
}

/// Launches the server at this address; its complaints go there.
pub(crate) fn launch_at(
    server: Server,
    placed: Placed<'_>,
    (address, errors): (SocketAddr, Stdio),
    words: impl FnOnce(SocketAddr, &Path) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<Running> {
    let directory = tempfile::Builder::new()
        .prefix("jostle-validate-")
        .tempdir()?;
    let words = words(address, directory.path())?;
    let mut guardian = Command::new("sh");
    guardian
        .args(["-c", GUARDIAN, "sh"])
        // From here on the guardian removes it.
        .arg(directory.keep())
        .args(placed.words())
        .args(words)
        .stdout(Stdio::null())
        .stderr(errors);
    let running = Running {
        server,
        address,
        leash: Leash::start(&mut guardian)?,
    };
    let began = Instant::now();
    while !answers(server, address) {
        if began.elapsed() > PATIENCE {
            bail!("{server:?} does not answer at {address}; is it installed, and the port free?");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(running)
}

/// PostgreSQL accepts connections before it answers any.
fn answers(server: Server, address: SocketAddr) -> bool {
    let port = address.port().to_string();
    match server {
        Server::Postgres => Command::new("pg_isready")
            .args(["-q", "-h", "127.0.0.1", "-p", &port])
            .status()
            .is_ok_and(|status| status.success()),
        _ => TcpStream::connect(address).is_ok(),
    }
}

/// Its command line; what it needs is written into its directory.
fn words(server: Server, address: SocketAddr, directory: &Path) -> anyhow::Result<Vec<String>> {
    let (place, port) = (directory.display(), address.port());
    let line = match server {
        Server::Redis => format!(
            "redis-server --port {port} --bind {} --protected-mode no --save --appendonly no \
             --dir {place}",
            address.ip()
        ),
        Server::Nginx => {
            std::fs::write(directory.join("nginx.conf"), nginx(address, directory))?;
            format!("/usr/sbin/nginx -p {place} -e stderr -c {place}/nginx.conf")
        }
        Server::Python => {
            std::fs::write(directory.join("index.html"), "hello\n")?;
            format!(
                "python3 -m http.server {port} --bind 127.0.0.1 --protocol HTTP/1.1 \
                 --directory {place}"
            )
        }
        Server::Postgres => databases::postgres(address, directory)?,
        Server::Mariadb => databases::mariadb(address, directory)?,
        Server::Etcd => stores::etcd("etcd", address, directory),
        Server::CurrentEtcd => {
            let program = etcd::current()?.join("etcd");
            stores::etcd(&program.display().to_string(), address, directory)
        }
        Server::Zookeeper => stores::zookeeper(address, directory)?,
        Server::Memcached => stores::memcached(address),
        Server::Lockd | Server::Slow | Server::Slapd | Server::Other => {
            bail!("{server:?} is started in another way")
        }
    };
    Ok(line.split_whitespace().map(str::to_owned).collect())
}

/// One worker that answers from memory and never closes a connection by itself.
fn nginx(address: SocketAddr, directory: &Path) -> String {
    let place = directory.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {place}/{what};"))
        .join(" ");
    format!(
        "daemon off; worker_processes 1; pid {place}/nginx.pid;\n\
         events {{ worker_connections 10000; }}\n\
         http {{ access_log off; {temporary} keepalive_requests 1000000000;\n\
         server {{ listen {address} backlog=4096; location / {{ return 200 'hello\\n'; }} }} }}\n"
    )
}

#[cfg(test)]
mod live_tests {
    use super::*;

    #[test]
    fn a_server_answers_and_is_gone_when_it_is_dropped() {
        let running = Server::Python.start(Path::new("jostle"), Some(0)).unwrap();
        let address = running.address;
        assert_eq!(running.target(), format!("http://{address}/"));
        assert!(TcpStream::connect(address).is_ok());
        drop(running);
        assert!(TcpStream::connect(address).is_err());
    }
}
