//! A service's address as the user types it, and connecting to it: without encryption, or
//! over TLS if the address asks for it (`crate::tls`).

use crate::remote::info_figure;
use crate::stream::{Stream, connected};
use crate::tls::Tls;
use crate::{Result, SetupError};
use jostle_sys::files::Errno;
use std::io;
use std::net::{IpAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Time limit for a service to accept a connection. After it the service counts as
/// unreachable.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// How long a look whether somebody is there may take.
const LOOK: Duration = Duration::from_secs(1);

/// Where a service listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `HOST:PORT`
    Tcp(String),
    /// A host and port, over TLS.
    Tls(String, Tls),
    /// A socket's path.
    Unix(PathBuf),
}

impl Address {
    /// Reads what follows the colon of `service://HOST:PORT`.
    pub fn tcp(argument: &str) -> Result<Address, String> {
        let place = argument.strip_prefix("//").unwrap_or(argument);
        let (host, port) = place.rsplit_once(':').unwrap_or((place, ""));
        if host.is_empty() || host.contains('/') || port.parse::<u16>().is_err() {
            return Err("write //HOST:PORT, such as //127.0.0.1:6379".to_owned());
        }
        Ok(Address::Tcp(place.to_owned()))
    }

    /// Reads the servers of `//HOST:PORT[,HOST:PORT...][?TLS]`. A server may have the
    /// prefix of the service's own TLS scheme, such as `https:`.
    pub fn several(argument: &str, tls_scheme: Option<&str>) -> Result<Vec<Address>, String> {
        let (places, query) = argument.split_once('?').unwrap_or((argument, ""));
        let asked = Tls::asked(query)?;
        let server = |place: &str| {
            let behind =
                tls_scheme.and_then(|scheme| place.strip_prefix(scheme)?.strip_prefix(':'));
            Ok(match behind {
                Some(place) => Address::tcp(place)?.over(Some(Tls::implied(asked.clone())?)),
                None => Address::tcp(place)?.over(asked.clone()),
            })
        };
        places.split(',').map(server).collect()
    }

    /// The servers among those of `//HOST:PORT[,HOST:PORT...]` that take no connection, as
    /// known within a second; none if that is no list of servers.
    pub fn dead(argument: &str) -> Vec<String> {
        // Sentinels stand behind the name of a group.
        let places = argument.rsplit('@').next().unwrap_or_default();
        let servers = Address::several(places, Some("https")).unwrap_or_default();
        let reached = reached(&servers);
        let each = servers.iter().zip(reached).filter(|(_, reached)| !reached);
        each.map(|(server, _)| server.to_string()).collect()
    }

    /// Like [`Address::several`], for a service that is a single server.
    pub fn one(argument: &str, tls_scheme: Option<&str>) -> Result<Address, String> {
        let mut servers = Address::several(argument, tls_scheme)?;
        match (servers.pop(), servers.is_empty()) {
            (Some(server), true) => Ok(server),
            _ => Err("write one server, //HOST:PORT".to_owned()),
        }
    }

    /// This address with TLS, if `tls` is given.
    #[must_use]
    pub fn over(self, tls: Option<Tls>) -> Address {
        match (self, tls) {
            (Address::Tcp(place), Some(tls)) => Address::Tls(place, tls),
            (address, _) => address,
        }
    }

    /// Whether the process that listens at this address runs on this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(place) | Address::Tls(place, _) => place
                .to_socket_addrs()
                .is_ok_and(|mut found| found.all(|address| is_here(address.ip()))),
        }
    }

    /// Connects, and performs the TLS handshake if the address asks for TLS.
    ///
    /// # Errors
    /// In words for the user.
    pub fn connect(&self) -> Result<Stream> {
        self.secured(self.connect_plainly()?)
    }

    /// Connects without TLS, for a protocol that exchanges messages before TLS begins.
    ///
    /// # Errors
    /// In words for the user.
    pub fn connect_plainly(&self) -> Result<Stream> {
        self.open().map_err(|error| {
            SetupError(match error.raw_os_error() {
                Some(errno) if errno == Errno::ADDRNOTAVAIL.raw_os_error() => format!(
                    "cannot connect to {self}: no port is left for one more connection from here \
                     (EADDRNOTAVAIL): a closed connection keeps its port for a minute \
                     (TIME_WAIT), or for a second with `sysctl -w net.ipv4.tcp_tw_reuse=1`; open \
                     fewer, or widen net.ipv4.ip_local_port_range"
                ),
                _ => format!("cannot connect to {self}: {error}; is the server running there?"),
            })
        })
    }

    /// Encrypts a connection to this address if the address asks for TLS.
    ///
    /// # Errors
    /// In words for the user.
    pub fn secured(&self, stream: Stream) -> Result<Stream> {
        match (self, stream) {
            (Address::Tls(place, tls), Stream::Tcp(socket)) => {
                let stream = tls.secure(socket, place)?;
                Ok(Stream::Tls(Box::new(stream)))
            }
            (_, stream) => Ok(stream),
        }
    }

    /// A socket, not encrypted yet.
    ///
    /// # Errors
    /// The system's.
    pub fn open(&self) -> io::Result<Stream> {
        match self {
            Address::Tcp(place) | Address::Tls(place, _) => {
                connect_within(place, CONNECT_PATIENCE).map(Stream::Tcp)
            }
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
        }
    }

    /// Whether something takes connections there, as known within a second. A member of a
    /// cluster whose machine is gone answers nothing at all.
    pub fn accepts(&self) -> bool {
        match self {
            Address::Tcp(place) | Address::Tls(place, _) => connect_within(place, LOOK).is_ok(),
            Address::Unix(path) => UnixStream::connect(path).is_ok(),
        }
    }

    /// The process id that the server reports in its INFO. None if the server is not on this
    /// machine, because the process could not be read there.
    pub fn process(&self, info: &[u8]) -> Option<u32> {
        let pid = info_figure(info, "process_id")?;
        u32::try_from(pid).ok().filter(|_| self.is_local())
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(place) | Address::Tls(place, _) => f.write_str(place),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The result of the first server that succeeds.
///
/// # Errors
/// What each of them said.
pub fn any<T>(servers: &[Address], ask: impl Fn(&Address) -> Result<T>) -> Result<T> {
    let mut refused = Vec::new();
    for server in servers {
        match ask(server) {
            Ok(given) => return Ok(given),
            Err(SetupError(said)) => refused.push(said),
        }
    }
    Err(SetupError(refused.join("; ")))
}

/// For each server, whether it takes connections: all are tried at once.
fn reached(servers: &[Address]) -> Vec<bool> {
    std::thread::scope(|scope| {
        let looks: Vec<_> = servers
            .iter()
            .map(|server| scope.spawn(|| server.accepts()))
            .collect();
        let ends = looks.into_iter();
        ends.map(|look| look.join().unwrap_or(false)).collect()
    })
}

/// The servers of one service, which workers take in turn.
#[derive(Clone, Debug)]
pub struct Members {
    /// Those that took a connection first.
    servers: Vec<Address>,
    reached: usize,
}

impl Members {
    /// Looks which of them take connections, if there are several.
    pub fn look(servers: Vec<Address>) -> Members {
        let reached = match servers.len() {
            0 | 1 => vec![true; servers.len()],
            _ => reached(&servers),
        };
        let mut order: Vec<(Address, bool)> = servers.into_iter().zip(reached).collect();
        order.sort_by_key(|(_, reached)| !reached);
        Members {
            reached: order.iter().filter(|(_, reached)| *reached).count(),
            servers: order.into_iter().map(|(server, _)| server).collect(),
        }
    }

    /// All of them.
    pub fn all(&self) -> &[Address] {
        &self.servers
    }

    /// The order in which worker number `worker` tries them.
    pub fn for_worker(&self, worker: usize) -> Vec<Address> {
        let mut servers = self.servers.clone();
        servers.rotate_left(worker % self.reached.max(1));
        servers
    }
}

/// Connects to a host and port; nobody is impatient while this process stands still.
///
/// # Errors
/// The system's.
pub fn connect_within(place: impl ToSocketAddrs, patience: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in place.to_socket_addrs()? {
        match connected(&address, patience, || false) {
            Ok(stream) => {
                stream.set_write_timeout(None)?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err((_, errno)) => last = errno.into(),
        }
    }
    Err(last)
}

/// Whether an address belongs to this host: sockets can be bound only to such addresses.
pub fn is_here(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_typed() {
        let tcp = |text: &str| Ok(Address::Tcp(text.to_owned()));
        assert_eq!(Address::tcp("//localhost:6379"), tcp("localhost:6379"));
        assert_eq!(Address::tcp("//[::1]:80"), tcp("[::1]:80"));
        for sad in ["", "//", "//host", "//:80", "//host:", "//host:99999"] {
            assert!(Address::tcp(sad).is_err(), "{sad}");
        }
    }

    #[test]
    fn servers_of_a_cluster_are_read_as_typed() {
        let count = |text: &str| Address::several(text, None).map(|servers| servers.len());
        assert_eq!(count("//a:2181"), Ok(1));
        assert_eq!(count("//a:2181,b:2181,[::1]:2182"), Ok(3));
        for sad in ["", "//a", "//a:1,", "//a:1,b"] {
            assert!(Address::several(sad, None).is_err(), "{sad}");
        }
    }

    #[test]
    fn an_address_asks_for_tls_by_its_scheme_or_behind_a_question_mark() {
        let tls = |text: &str| {
            let servers = Address::several(text, Some("https")).unwrap();
            let is_tls = |server: &Address| matches!(server, Address::Tls(..));
            let servers = servers
                .iter()
                .map(|server| (server.to_string(), is_tls(server)));
            servers.collect::<Vec<_>>()
        };
        let place = |place: &str, is_tls| (place.to_owned(), is_tls);
        assert_eq!(tls("//a:1"), [place("a:1", false)]);
        assert_eq!(tls("//a:1?tls"), [place("a:1", true)]);
        assert_eq!(tls("https://a:1?ca=/x"), [place("a:1", true)]);
        let both = [place("a:1", true), place("b:1", true)];
        assert_eq!(tls("//a:1,b:1?ca=/x/y"), both);
        assert_eq!(tls("https://a:1,https://b:1"), both);
        for sad in [
            "https://a",
            "rediss://a:1",
            "//a:1?ca",
            "//a:1?sslmode=prefer",
        ] {
            assert!(Address::several(sad, Some("https")).is_err(), "{sad}");
        }
        assert!(Address::one("//a:1,b:1", None).is_err());
    }
}
