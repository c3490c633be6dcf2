//! A connection of one lock's own; what is not answered in time closes it.

use crate::Error;
use redis::{Client, Cmd, Connection, ErrorKind, RedisError, RedisResult, Value};
use std::time::{Duration, Instant};

/// Opened by the first command, once.
pub(crate) struct Line {
    client: Client,
    timeout: Duration,
    state: State,
}

enum State {
    New,
    Open(Connection),
    Closed,
}

impl Line {
    pub(crate) fn new(client: &Client, timeout: Duration) -> Line {
        Line {
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
                let command = commands.first().and_then(|words| words.first());
                let command = command.map(String::as_str).unwrap_or_default();
                Err(Error::NoAnswer(format!("{command}: {error}")))
            }
        }
    }

    fn exchange(
        &mut self,
        limit: Option<Duration>,
        commands: &[Vec<String>],
    ) -> RedisResult<Vec<Result<Value, Error>>> {
        if matches!(self.state, State::New) {
            self.state = State::Open(self.client.get_connection_with_timeout(self.timeout)?);
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
