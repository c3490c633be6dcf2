//! A connection of one lock's own; what is not answered in time closes it.

use crate::Error;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, Cmd, Connection, ConnectionAddr, ConnectionInfo};
use redis::{ErrorKind, RedisError, RedisResult, Value};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long one of several addresses of the daemon's name may take to connect.
const PER_ADDRESS: Duration = Duration::from_secs(1);

/// Opened by the first command, once.
pub(crate) struct Line {
    client: Client,
    timeout: Duration,
    state: State,
    /// Where it is connected, if its name has addresses.
    address: Option<SocketAddr>,
    /// The address that was silent last: it is tried last.
    silent: Arc<Mutex<Option<SocketAddr>>>,
}

enum State {
    New,
    Open(Connection),
    Closed,
}

impl Line {
    pub(crate) fn new(
        client: &Client,
        timeout: Duration,
        silent: &Arc<Mutex<Option<SocketAddr>>>,
    ) -> Line {
        Line {
            address: None,
            silent: Arc::clone(silent),
            client: client.clone(),
            timeout,
            state: State::New,
        }
    }

    /// The reply, [`Error::NoAnswer`] or [`Error::Refused`]; without a limit it
    /// waits for ever.
    pub(crate) fn ask(
        &mut self,
        limit: Option<Duration>,
        words: &[String],
    ) -> Result<Value, Error> {
        let mut replies = self.ask_all(limit, &[words.to_vec()])?;
        Ok(replies.pop().unwrap_or(Value::Nil))
    }

    /// The replies to commands that are sent at once; [`Error::Refused`] if one of
    /// them is.
    pub(crate) fn ask_all(
        &mut self,
        limit: Option<Duration>,
        commands: &[Vec<String>],
    ) -> Result<Vec<Value>, Error> {
        match self.exchange(limit, commands) {
            Ok(replies) => replies.into_iter().collect(),
            // It is about the connection: what the daemon says leaves it as it was.
            Err(error) if is_answer(&error) => Err(refused(&error)),
            Err(error) => {
                self.state = State::Closed;
                self.blame(self.address);
                let command = commands.first().and_then(|words| words.first());
                let command = command.map(String::as_str).unwrap_or_default();
                Err(Error::NoAnswer(format!("{command}: {error}")))
            }
        }
    }

    /// Notes that no answer came from there, if there was a connection.
    fn blame(&self, address: Option<SocketAddr>) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        *silent = address.or(*silent);
    }

    /// Tries the addresses of the name, each for as long as one may take.
    fn open(&mut self) -> RedisResult<Connection> {
        // The system ends a connection whose host is gone for 4 s.
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(1));
        #[cfg(target_os = "linux")]
        let keepalive = keepalive
            .with_interval(Duration::from_secs(1))
            .with_retries(3);
        let info = self.client.get_connection_info().clone();
        let settings = info.tcp_settings().clone().set_keepalive(keepalive);
        let info = info.set_tcp_settings(settings);
        let ConnectionAddr::Tcp(host, port) = info.addr() else {
            return Client::open(info)?.get_connection_with_timeout(self.timeout);
        };
        let found = (host.as_str(), *port).to_socket_addrs()?.collect();
        let found = self.in_order(found);
        self.open_any(&info, &found)
    }

    fn in_order(&self, mut found: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let silent = *self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        found.sort_by_key(|address| Some(*address) == silent);
        found
    }

    fn open_any(&mut self, info: &ConnectionInfo, found: &[SocketAddr]) -> RedisResult<Connection> {
        let limit = match found.len() {
            1 => self.timeout,
            _ => self.timeout.min(PER_ADDRESS),
        };
        let mut why = std::io::Error::other("the name has no address").into();
        for &address in found {
            let one = ConnectionAddr::Tcp(address.ip().to_string(), address.port());
            let opened =
                Client::open(info.clone().set_addr(one))?.get_connection_with_timeout(limit);
            match opened {
                Ok(connection) => {
                    self.address = Some(address);
                    return Ok(connection);
                }
                Err(error) if is_answer(&error) => return Err(error),
                Err(error) => {
                    if error.is_timeout() {
                        self.blame(Some(address));
                    }
                    why = error;
                }
            }
        }
        Err(why)
    }

    fn exchange(
        &mut self,
        limit: Option<Duration>,
        commands: &[Vec<String>],
    ) -> RedisResult<Vec<Result<Value, Error>>> {
        if matches!(self.state, State::New) {
            self.state = State::Open(self.open()?);
        }
        let State::Open(connection) = &mut self.state else {
            let gone = std::io::Error::from(std::io::ErrorKind::NotConnected);
            return Err(gone.into());
        };
        connection.set_write_timeout(Some(self.timeout))?;
        let mut bytes = Vec::new();
        for words in commands {
            let mut command = Cmd::new();
            command.arg(words);
            bytes.extend(command.get_packed_command());
        }
        let end = limit.map(|limit| Instant::now() + limit);
        connection.send_packed_command(&bytes)?;
        let mut replies = Vec::with_capacity(commands.len());
        for _ in commands {
            // A limit of zero is an error of the system.
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            connection.set_read_timeout(left.map(|left| left.max(Duration::from_millis(1))))?;
            replies.push(match connection.recv_response() {
                Ok(Value::ServerError(error)) => Err(refused(&error)),
                Ok(reply) => Ok(reply),
                // The other replies are to be read, too.
                Err(error) if is_answer(&error) => Err(refused(&error)),
                Err(error) => return Err(error),
            });
        }
        Ok(replies)
    }
}

/// [`Error::Refused`]; it names the URL's parts where the daemon names commands of the protocol.
fn refused(error: &impl std::fmt::Display) -> Error {
    let text = error.to_string();
    Error::Refused(match text.contains("NOAUTH") {
        true => "NOAUTH give user and password: redis://USER:PASSWORD@HOST:PORT".to_owned(),
        false => text,
    })
}

/// Whether the daemon said this, as opposed to nothing in time.
fn is_answer(error: &RedisError) -> bool {
    error.code().is_some() || error.kind() == ErrorKind::AuthenticationFailed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Answers PONG to whatever comes.
    fn answers(listener: TcpListener) {
        for stream in listener.incoming() {
            let (mut stream, mut bytes) = (stream.unwrap(), [0; 1000]);
            while let Ok(1..) = stream.read(&mut bytes) {
                // redis-rs begins with a pipeline of two.
                let begins = bytes.starts_with(b"*4");
                let reply = "+PONG\r\n".repeat(1 + usize::from(begins));
                stream.write_all(reply.as_bytes()).unwrap();
            }
        }
    }

    #[test]
    fn each_address_is_tried_and_a_silent_one_last() {
        let serving = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = serving.local_addr().unwrap();
        let [closed, quiet] = [3, 2].map(|n| SocketAddr::from(([127, 0, 0, n], good.port())));
        let _silent = TcpListener::bind(quiet).unwrap();
        std::thread::spawn(|| answers(serving));
        let client = Client::open(format!("redis://locks:{}", good.port())).unwrap();
        let silent = Arc::default();
        let mut line = Line::new(&client, Duration::from_secs(60), &silent);
        let found = [closed, quiet, good];
        line.open_any(client.get_connection_info(), &found).unwrap();
        assert_eq!(line.address, Some(good));
        assert_eq!(*silent.lock().unwrap(), Some(quiet));
        // Those that are tried first are in vain no more.
        assert_eq!(line.in_order(vec![quiet, good]), [good, quiet]);
    }
}
