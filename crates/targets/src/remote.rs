//! A client's connection to a lock service: blocking, one request at a time,
//! with a buffer that is kept.
//!
//! Services speak RESP, whose bytes `jostle-resp` encodes and decodes; this file
//! adds the socket. A signal that ends the run's waits ends a wait for a reply
//! too; the connection is of no use afterwards, since the reply is still to
//! come.

use crate::{CallError, SetupError};
use jostle_resp::token::{self, Token};
use jostle_sys::files::Errno;
use jostle_sys::signal;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Longest reply that is waited for; the services' replies are shorter by far.
const LONGEST_REPLY: usize = 1 << 20;
/// A service that does not accept within this is called unreachable.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Where a service listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `HOST:PORT`
    Tcp(String),
    /// A socket's path.
    Unix(PathBuf),
}

impl Address {
    /// Reads what follows the colon of `service://HOST:PORT`.
    pub fn tcp(argument: &str) -> Result<Address, String> {
        let place = argument.strip_prefix("//").unwrap_or(argument);
        let (host, port) = place.rsplit_once(':').unwrap_or((place, ""));
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err("write //HOST:PORT, such as //127.0.0.1:6379".to_owned());
        }
        Ok(Address::Tcp(place.to_owned()))
    }
}

impl Address {
    /// Whether a process that listens there is one of this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(place) => place
                .to_socket_addrs()
                .is_ok_and(|mut found| found.all(|address| address.ip().is_loopback())),
        }
    }

    /// A server's own word on its process, believed where it can be looked at.
    pub fn process(&self, info: &[u8]) -> Option<u32> {
        let pid = info_figure(info, "process_id")?;
        u32::try_from(pid).ok().filter(|_| self.is_local())
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(place) => f.write_str(place),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A number.
    Integer(i64),
    /// A status or a string.
    Text,
    /// Nothing: a try that was refused, a wait that was over.
    Nil,
    /// The keeper ended the wait; the connection is of no more use.
    Interrupted,
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    /// The request that is being put together.
    pub request: Vec<u8>,
    input: Vec<u8>,
    filled: usize,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// In words for the user.
    pub fn connect(address: &Address) -> Result<Client, SetupError> {
        let stream = match address {
            Address::Tcp(place) => connect_tcp(place).map(Stream::Tcp),
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
        };
        let stream = stream.map_err(|error| {
            SetupError(format!(
                "cannot connect to {address}: {error}; is the server running there?"
            ))
        })?;
        Ok(Client {
            stream,
            request: Vec::with_capacity(256),
            input: vec![0; 4096],
            filled: 0,
        })
    }

    /// Sends `self.request` and waits for one reply.
    ///
    /// # Errors
    /// The call that failed; what the server answered with an error.
    #[inline]
    pub fn call(&mut self, name: &'static str) -> Result<Reply, CallError> {
        self.stream
            .write_all(&self.request)
            .map_err(|error| failed(name, &error))?;
        self.filled = 0;
        loop {
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(CallError::new(name, Errno::CONNRESET)),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if signal::interrupted() {
                        return Ok(Reply::Interrupted);
                    }
                    continue;
                }
                Err(error) => return Err(failed(name, &error)),
            }
            let whole = token::next(&self.input[..self.filled], LONGEST_REPLY)
                .map_err(|_| CallError::new(name, Errno::PROTO))?;
            if let Some((token, _)) = whole {
                return reply(token, name);
            }
            if self.filled == self.input.len() {
                self.input.resize(2 * self.filled, 0);
            }
        }
    }

    /// Sends `self.request`, which asks for `replies` replies, and gives each to
    /// `each` in order. False where the keeper ended the wait.
    ///
    /// # Errors
    /// The call that failed; the first that the server answered with an error,
    /// or that `each` did not like.
    pub fn exchange(
        &mut self,
        name: &'static str,
        replies: usize,
        mut each: impl FnMut(usize, Reply) -> Result<(), CallError>,
    ) -> Result<bool, CallError> {
        self.stream
            .write_all(&self.request)
            .map_err(|error| failed(name, &error))?;
        self.filled = 0;
        let mut seen = 0;
        while seen < replies {
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(CallError::new(name, Errno::CONNRESET)),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if signal::interrupted() {
                        return Ok(false);
                    }
                    continue;
                }
                Err(error) => return Err(failed(name, &error)),
            }
            let mut at = 0;
            while let Some((token, length)) =
                token::next(&self.input[at..self.filled], LONGEST_REPLY)
                    .map_err(|_| CallError::new(name, Errno::PROTO))?
            {
                each(seen, reply(token, name)?)?;
                seen += 1;
                at += length;
            }
            self.input.copy_within(at..self.filled, 0);
            self.filled -= at;
            if self.filled == self.input.len() {
                self.input.resize(2 * self.filled, 0);
            }
        }
        Ok(true)
    }

    /// As [`Client::call`], for the one string that set-up asks for.
    ///
    /// # Errors
    /// In words for the user.
    pub fn ask(&mut self, words: &[&[u8]]) -> Result<Vec<u8>, SetupError> {
        self.request.clear();
        jostle_resp::request::encode(&mut self.request, words);
        let said = |text: String| {
            SetupError(format!(
                "the server's answer to {}: {text}",
                String::from_utf8_lossy(words[0])
            ))
        };
        self.call("ask").map_err(|error| said(error.to_string()))?;
        match token::next(&self.input[..self.filled], LONGEST_REPLY) {
            Ok(Some((
                Token::Bulk(bytes) | Token::Simple(bytes) | Token::Verbatim(_, bytes),
                _,
            ))) => Ok(bytes.to_vec()),
            _ => Err(said("not a string".to_owned())),
        }
    }
}

fn connect_tcp(place: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in place.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cold]
fn failed(name: &'static str, error: &io::Error) -> CallError {
    let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
    CallError {
        call: name,
        errno,
        said: None,
    }
}

#[inline]
fn reply(token: Token<'_>, name: &'static str) -> Result<Reply, CallError> {
    match token {
        Token::Integer(number) => Ok(Reply::Integer(number)),
        Token::Nil => Ok(Reply::Nil),
        Token::Error(text) => Err(refused(name, text)),
        _ => Ok(Reply::Text),
    }
}

/// What the server says ends the worker, so that one leak for each is no leak.
#[cold]
fn refused(name: &'static str, text: &[u8]) -> CallError {
    let said = String::from_utf8_lossy(text).into_owned();
    CallError {
        call: name,
        errno: Errno::PROTO.raw_os_error(),
        said: Some(said.leak()),
    }
}

/// Figures that a server counts, from the lines `name:value` of its INFO.
pub fn info_figure(info: &[u8], name: &str) -> Option<u64> {
    let text = std::str::from_utf8(info).ok()?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().parse().ok()
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
    fn figures_are_found_by_their_whole_name() {
        let info = b"# Locks\r\ngrants_total:7\r\ngrants:12\r\nversion:x\r\n";
        assert_eq!(info_figure(info, "grants"), Some(12));
        assert_eq!(info_figure(info, "version"), None);
        assert_eq!(info_figure(info, "grant"), None);
    }
}
