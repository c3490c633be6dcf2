//! A connection to jostled: requests and replies, in plain or by TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use jostle_resp::Value;
use jostle_resp::request::encode;
use jostle_resp::value::ValueLimits;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::server::{Place, Server};
use crate::{Failure, code};

/// For the answer to the first login: that to a wrong password comes after some seconds.
pub(crate) const LOGIN: Duration = Duration::from_secs(70);

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>),
}

/// Does the same for each kind.
macro_rules! each {
    ($stream:expr, $it:ident => $does:expr) => {
        match $stream {
            Stream::Tcp($it) => $does,
            Stream::Unix($it) => $does,
            #[cfg(feature = "tls")]
            Stream::Tls($it) => $does,
        }
    };
}

pub(crate) struct Link {
    stream: Stream,
    bytes: Vec<u8>,
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.sock.as_fd(),
        }
    }
}

/// Waits until one of these is readable, or as long as that, or for a signal; which are.
pub(crate) fn readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    patience: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let patience = patience.and_then(|time| Timespec::try_from(time).ok());
    match poll(&mut fds, patience.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(fds.map(|fd| !fd.revents().is_empty())),
        Err(error) => Err(error.into()),
    }
}

impl Link {
    /// Connects and logs in.
    pub(crate) fn open(server: &Server, patience: Duration) -> Result<Self, Failure> {
        Self::open_slowly(server, patience, patience)
    }

    /// With another patience for the login.
    pub(crate) fn open_slowly(
        server: &Server,
        patience: Duration,
        login: Duration,
    ) -> Result<Self, Failure> {
        let place = &server.place;
        let unreachable = |error: io::Error| {
            let text = format!("cannot reach jostled at {place}: {error}");
            Failure(code::UNAVAILABLE, text)
        };
        let stream = match place {
            Place::Unix(path) => Stream::Unix(UnixStream::connect(path).map_err(unreachable)?),
            Place::Tcp { host, port } => {
                let stream = connect(host, *port, patience)?.map_err(unreachable)?;
                stream.set_nodelay(true).map_err(unreachable)?;
                match &server.tls {
                    None => Stream::Tcp(stream),
                    Some(tls) => secure(stream, tls, host, patience)?,
                }
            }
        };
        match &stream {
            Stream::Tcp(stream) => stream.set_nonblocking(true),
            Stream::Unix(stream) => stream.set_nonblocking(true),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.sock.set_nonblocking(true),
        }
        .map_err(unreachable)?;
        let bytes = Vec::new();
        let mut link = Self { stream, bytes };
        if let Some((user, password)) = server.login() {
            let words = [b"AUTH", user.as_bytes(), password.as_bytes()];
            let reply = link.ask(&words, login).map_err(unreachable)?;
            if let Value::Error(text) = reply {
                let why = match text.starts_with("WRONGPASS") {
                    true => format!("wrong password for user {user} of jostled at {place}"),
                    false => format!("cannot log in to jostled at {place}: {text}"),
                };
                return Err(Failure(code::NO_PERMISSION, why));
            }
        }
        Ok(link)
    }

    /// Sends requests; they are short.
    pub(crate) fn send(&mut self, requests: &[&[&[u8]]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        requests.iter().for_each(|words| encode(&mut bytes, words));
        each!(&mut self.stream, it => it.write_all(&bytes).and_then(|()| it.flush()))
    }

    /// The next reply, if it is there.
    pub(crate) fn take(&mut self) -> io::Result<Option<Value>> {
        loop {
            let found = Value::decode(&self.bytes, ValueLimits::default());
            if let Some((value, used)) = found.map_err(io::Error::other)? {
                self.bytes.drain(..used);
                return Ok(Some(value));
            }
            let mut bytes = [0; 4096];
            match each!(&mut self.stream, it => it.read(&mut bytes)) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.bytes.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the next reply.
    pub(crate) fn await_reply(&mut self, patience: Duration) -> io::Result<Value> {
        let until = Instant::now() + patience;
        loop {
            if let Some(value) = self.take()? {
                return Ok(value);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = format!("no answer within {:.1} s", patience.as_secs_f64());
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
            readable([self.as_fd()], Some(left))?;
        }
    }

    pub(crate) fn ask(&mut self, words: &[&[u8]], patience: Duration) -> io::Result<Value> {
        self.send(&[words])?;
        self.await_reply(patience)
    }
}

/// Outside: the host is not known.
fn connect(host: &str, port: u16, patience: Duration) -> Result<io::Result<TcpStream>, Failure> {
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|_| Failure(code::NO_HOST, format!("there is no host {host}")))?;
    let mut last = Err(ErrorKind::NotFound.into());
    for address in found {
        last = TcpStream::connect_timeout(&address, patience);
        if last.is_ok() {
            break;
        }
    }
    Ok(last)
}

#[cfg(not(feature = "tls"))]
fn secure(_: TcpStream, _: &crate::server::Tls, _: &str, _: Duration) -> Result<Stream, Failure> {
    let text = "this jostle-lock was built without TLS; packages have it, and `cargo build \
                --release -p jostle-lock-command --features tls` makes one that has it";
    Err(Failure(code::USAGE, text.to_owned()))
}

#[cfg(feature = "tls")]
fn secure(
    socket: TcpStream,
    tls: &crate::server::Tls,
    host: &str,
    patience: Duration,
) -> Result<Stream, Failure> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use std::path::Path;

    let file = |path: &Path, error: rustls::pki_types::pem::Error| {
        Failure(code::NO_INPUT, format!("{}: {error}", path.display()))
    };
    let chain = |path: &Path| -> Result<Vec<CertificateDer<'static>>, Failure> {
        let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        found.map_err(|error| file(path, error))
    };
    let failed = |error: &dyn std::fmt::Display| {
        Failure(code::UNAVAILABLE, format!("no TLS with {host}: {error}"))
    };
    let trusted = match &tls.authorities {
        Some(path) => chain(path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(trusted);
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots);
    let config = match &tls.identity {
        None => config.with_no_client_auth(),
        Some([certificate, key]) => {
            let own = PrivateKeyDer::from_pem_file(key).map_err(|error| file(key, error))?;
            let config = config.with_client_auth_cert(chain(certificate)?, own);
            config.map_err(|error| failed(&error))?
        }
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(&error))?;
    let connection = rustls::ClientConnection::new(config.into(), name);
    let mut stream = rustls::StreamOwned::new(connection.map_err(|error| failed(&error))?, socket);
    let limit = |socket: &TcpStream, time| socket.set_read_timeout(time);
    limit(&stream.sock, Some(patience)).map_err(|error| failed(&error))?;
    while stream.conn.is_handshaking() {
        let done = stream.conn.complete_io(&mut stream.sock);
        done.map_err(|error| failed(&error))?;
    }
    Ok(Stream::Tls(Box::new(stream)))
}
