//! A connection of one lock's own; what is not answered in time closes it.

use crate::Error;
use redis::{Client, Cmd, Connection, ConnectionLike, ErrorKind, RedisError, RedisResult, Value};
use std::time::Duration;

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
        match self.exchange(limit, words) {
            Ok(Value::ServerError(error)) => Err(Error::Refused(error.to_string())),
            Ok(reply) => Ok(reply),
            // What the daemon says leaves the connection as it was.
            Err(error) if is_answer(&error) => Err(Error::Refused(error.to_string())),
            Err(error) => {
                self.state = State::Closed;
                Err(Error::NoAnswer(format!("{}: {error}", words[0])))
            }
        }
    }

    fn exchange(&mut self, limit: Option<Duration>, words: &[String]) -> RedisResult<Value> {
        if matches!(self.state, State::New) {
            self.state = State::Open(self.client.get_connection_with_timeout(self.timeout)?);
        }
        let State::Open(connection) = &mut self.state else {
            let gone = std::io::Error::from(std::io::ErrorKind::NotConnected);
            return Err(gone.into());
        };
        // A limit of zero is an error of the system.
        let limit = limit.map(|limit| limit.max(Duration::from_millis(1)));
        connection.set_read_timeout(limit)?;
        connection.set_write_timeout(Some(self.timeout))?;
        let mut command = Cmd::new();
        for word in words {
            command.arg(word);
        }
        connection.req_command(&command)
    }
}

/// Whether the daemon said this, as opposed to nothing in time.
fn is_answer(error: &RedisError) -> bool {
    error.code().is_some() || error.kind() == ErrorKind::AuthenticationFailed
}
