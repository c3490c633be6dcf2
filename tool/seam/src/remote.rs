//! A blocking connection to a service ([`Client`]), and a worker's lock on it
//! ([`RemoteLock`]).

mod lock;

pub use lock::{RemoteLock, granted_at_once};

use crate::address::Address;
use crate::login::{Credentials, Login};
use crate::stream::Stream;
use crate::surplus;
use crate::wire::{Decoded, Reply};
use crate::{CallError, SetupError, Traffic};
use jostle_sys::files::Errno;
use jostle_sys::signal;
use jostle_sys::waited::Patience;
use std::io::{self, Read, Write};
use std::time::Duration;

/// Time limit for an answer during set-up. The message in `receive` repeats this number.
pub(crate) const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// One connection, for requests that are answered one after the other.
#[derive(Debug)]
pub struct Client {
    pub(crate) stream: Stream,
    /// The request that is being put together; empty once it is sent.
    pub request: Vec<u8>,
    pub(crate) input: Vec<u8>,
    pub(crate) filled: usize,
    /// A request was sent and not answered.
    waits: bool,
    /// The server may be one that speaks TLS from the first byte.
    may_want_tls: bool,
    /// How long an answer is waited for where the socket has a time limit.
    pub(crate) patience: Duration,
    pub(crate) traffic: Traffic,
}

/// How a read ended.
pub(crate) enum Heard {
    Bytes,
    End,
    Late,
    Interrupted,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// In words for the user.
    pub fn connect(address: &Address) -> Result<Client, SetupError> {
        let mut client = Client::new(address.connect()?);
        client.may_want_tls = matches!(client.stream, Stream::Tcp(_));
        Ok(client)
    }

    /// Connects without TLS, for a protocol that exchanges messages before
    /// [`Client::secure`].
    ///
    /// # Errors
    /// In words for the user.
    pub fn connect_plainly(address: &Address) -> Result<Client, SetupError> {
        address.connect_plainly().map(Client::new)
    }

    /// On a connected socket.
    pub fn new(stream: Stream) -> Client {
        Client {
            stream,
            request: Vec::with_capacity(256),
            input: vec![0; 4096],
            filled: 0,
            waits: false,
            may_want_tls: false,
            patience: ANSWER_PATIENCE,
            traffic: Traffic::default(),
        }
    }

    /// Encrypts the connection, where the address asks for it.
    ///
    /// # Errors
    /// In words for the user.
    pub fn secure(mut self, address: &Address) -> Result<Client, SetupError> {
        self.stream = address.secured(self.stream)?;
        Ok(self)
    }

    /// As [`Client::connect`]; where there is a password the server must take it.
    ///
    /// # Errors
    /// In words for the user.
    pub fn admitted(login: &Login) -> Result<Client, SetupError> {
        Client::connect(&login.address)?.logged_in(&login.own)
    }

    /// Logs in, where there is a password.
    ///
    /// # Errors
    /// In words for the user.
    pub fn logged_in(mut self, own: &Credentials) -> Result<Client, SetupError> {
        if own.password.is_some() {
            let words = [Some("AUTH"), own.user.as_deref(), own.password.as_deref()];
            let words = words.iter().flatten().map(|word| word.as_bytes());
            self.command(&words.collect::<Vec<_>>())?;
        }
        Ok(self)
    }

    /// The socket.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The socket, for a caller that drives it differently.
    pub fn into_stream(self) -> Stream {
        self.stream
    }

    /// Sends `self.request` and waits for one reply. None if the keeper ended the wait;
    /// with `patient` the keeper does not end it.
    ///
    /// # Errors
    /// The call that failed.
    #[inline]
    pub fn call(
        &mut self,
        name: &'static str,
        patient: bool,
        decode: impl for<'a> Fn(&'a [u8], &'static str) -> Decoded<'a>,
    ) -> Result<Option<Reply<'_>>, CallError> {
        self.filled = 0;
        self.send(name)?;
        loop {
            if !self.receive(name, patient)? {
                // Replies are shorter than a packet.
                let said = "half an answer came, and not the rest";
                return match self.filled {
                    0 => Ok(None),
                    _ => Err(CallError::saying(name, Errno::PROTO, said)),
                };
            }
            // Decoded twice, because the borrow checker does not let this first reply
            // outlive a buffer that may grow.
            let whole = decode(&self.input[..self.filled], name);
            if let Some((_, length)) = whole.map_err(|error| self.foreign(error))? {
                if length < self.filled {
                    return Err(surplus::error(name));
                }
                self.waits = false;
                let whole = decode(&self.input[..self.filled], name)?;
                return Ok(whole.map(|(reply, _)| reply));
            }
        }
    }

    /// Sends `self.request`, which gets `replies` replies. `each` gets a reply's number and
    /// the bytes received, and returns the reply's length, or None while it is incomplete.
    /// False if the keeper ended the wait, as in `call`.
    ///
    /// # Errors
    /// The call that failed, or the first error that `each` returned.
    pub fn exchange(
        &mut self,
        name: &'static str,
        patient: bool,
        replies: usize,
        mut each: impl FnMut(usize, &[u8]) -> Result<Option<usize>, CallError>,
    ) -> Result<bool, CallError> {
        self.filled = 0;
        self.send(name)?;
        let mut seen = 0;
        while seen < replies {
            if !self.receive(name, patient)? {
                return Ok(false);
            }
            let mut at = 0;
            while seen < replies
                && let Some(length) = each(seen, &self.input[at..self.filled])?
            {
                seen += 1;
                at += length;
            }
            self.input.copy_within(at..self.filled, 0);
            self.filled -= at;
        }
        if self.filled > 0 {
            return Err(surplus::error(name));
        }
        self.waits = false;
        Ok(true)
    }

    /// The error for a server with another protocol. If it is TLS, whose alert the first
    /// bytes show, the error states that.
    #[cold]
    fn foreign(&self, error: CallError) -> CallError {
        match (&self.stream, &self.input[..self.filled]) {
            (Stream::Tcp(_), [0x15, 3, ..]) => CallError {
                said: Some("the server speaks TLS; write ?tls behind its address"),
                ..error
            },
            _ => error,
        }
    }

    /// Waits so long for an answer from now on.
    ///
    /// # Errors
    /// The system's.
    pub fn wait_for(&mut self, patience: Duration) -> io::Result<()> {
        self.patience = patience;
        self.stream.set_patience(Some(Patience::look(patience)))
    }

    /// Sends `self.request`, when no run is on, and returns the text that answers it; None
    /// for an answer without one.
    ///
    /// # Errors
    /// What the server said, or why it said nothing.
    pub fn asked(
        &mut self,
        name: &'static str,
        decode: impl for<'a> Fn(&'a [u8], &'static str) -> Decoded<'a>,
    ) -> Result<Option<Vec<u8>>, String> {
        let unset = |error| format!("cannot set how long an answer may take: {error}");
        self.wait_for(self.patience).map_err(unset)?;
        let may_want_tls = self.may_want_tls;
        let answer = match self.call(name, true, decode) {
            Ok(Some(Reply::Text(text))) => Ok(Some(text.to_vec())),
            Ok(Some(Reply::Error(text))) => Err(String::from_utf8_lossy(text).into_owned()),
            Ok(_) => Ok(None),
            Err(error) if may_want_tls && error.has_ended() => Err(format!(
                "{error}; if the server wants TLS, write ?tls behind its address"
            )),
            Err(error) => Err(error.to_string()),
        };
        // A lock that is held may take for ever.
        self.stream.set_patience(None).map_err(unset).and(answer)
    }

    /// Ends the connection and checks that no further answer arrives. If the last request
    /// was not answered, there is nothing to check.
    ///
    /// # Errors
    /// EPROTO in the name of a request.
    pub fn part(&mut self, name: &'static str) -> Result<(), CallError> {
        match self.waits {
            true => Ok(()),
            false => self.stream.part(name),
        }
    }

    /// Sends `self.request`, if there is one.
    ///
    /// # Errors
    /// The call that failed.
    #[inline]
    pub(crate) fn send(&mut self, name: &'static str) -> Result<(), CallError> {
        self.waits = true;
        if self.request.is_empty() {
            return Ok(());
        }
        self.traffic.sent(self.request.len());
        let sent = (&self.stream).write_all(&self.request);
        self.request.clear();
        sent.map_err(|error| CallError::from_system(name, &error))
    }

    /// Sends `self.request`, which has no reply.
    ///
    /// # Errors
    /// The call that failed.
    pub fn tell(&mut self, name: &'static str) -> Result<(), CallError> {
        self.send(name)?;
        self.waits = false;
        Ok(())
    }

    /// Reads what has come. False where the keeper ended the wait.
    #[inline]
    fn receive(&mut self, name: &'static str, patient: bool) -> Result<bool, CallError> {
        let mut patience = Patience::of(self.patience);
        loop {
            match self.read(name)? {
                Heard::Bytes => return Ok(true),
                Heard::End => return Err(CallError::new(name, Errno::CONNRESET)),
                Heard::Interrupted if !patient && signal::interrupted() => return Ok(false),
                Heard::Interrupted => {}
                Heard::Late if !patience.is_over() => {}
                Heard::Late => {
                    let said = match self.patience == ANSWER_PATIENCE {
                        true => "the server gave no answer within 10 s; is it overloaded?",
                        false => "the server gave no answer in time",
                    };
                    return Err(CallError::saying(name, Errno::TIMEDOUT, said));
                }
            }
        }
    }

    /// One read.
    ///
    /// # Errors
    /// The call that failed.
    #[inline]
    pub(crate) fn read(&mut self, name: &'static str) -> Result<Heard, CallError> {
        if self.filled == self.input.len() {
            self.input.resize(2 * self.filled, 0);
        }
        match (&self.stream).read(&mut self.input[self.filled..]) {
            Ok(0) => Ok(Heard::End),
            Ok(count) => {
                self.filled += count;
                self.traffic.received(count);
                Ok(Heard::Bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Heard::Interrupted),
            // The socket's time limit has passed.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Heard::Late),
            Err(error) => Err(CallError::from_system(name, &error)),
        }
    }

    /// The string with which the server answers a command, when no run is on.
    ///
    /// # Errors
    /// In words for the user.
    pub fn ask(&mut self, words: &[&[u8]]) -> Result<Vec<u8>, SetupError> {
        self.command(words)?.ok_or_else(|| {
            SetupError(format!(
                "the server's answer to {} is not a string",
                String::from_utf8_lossy(words[0])
            ))
        })
    }

    /// As [`Client::ask`]; None where the answer is no string.
    ///
    /// # Errors
    /// In words for the user.
    pub fn command(&mut self, words: &[&[u8]]) -> Result<Option<Vec<u8>>, SetupError> {
        jostle_resp::request::encode(&mut self.request, words);
        let answer = self.asked("ask", |input, call| Reply::decode(input, call));
        answer.map_err(|said| {
            let word = String::from_utf8_lossy(words[0]);
            SetupError(format!("the server's answer to {word}: {said}"))
        })
    }
}

/// Figures that a server counts, from the lines `name:value` of its INFO.
pub fn info_figure(info: &[u8], name: &str) -> Option<u64> {
    info_text(info, name)?.parse().ok()
}

/// The text after a name in INFO.
pub fn info_text<'a>(info: &'a [u8], name: &str) -> Option<&'a str> {
    let mut lines = std::str::from_utf8(info).ok()?.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn figures_are_found_by_their_whole_name() {
        let info = b"# Locks\r\ngrants_total:7\r\ngrants:12\r\nversion:x\r\n";
        assert_eq!(info_figure(info, "grants"), Some(12));
        assert_eq!(info_figure(info, "version"), None);
        assert_eq!(info_figure(info, "grant"), None);
    }

    mod live_tests {
        use super::*;

        /// A client and the other end of its connection.
        fn client() -> (Client, TcpStream) {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let place = listener.local_addr().unwrap().to_string();
            let client = Client::connect(&Address::Tcp(place)).unwrap();
            (client, listener.accept().unwrap().0)
        }

        #[test]
        fn one_reply_more_than_was_asked_for_is_an_error() {
            for (replies, asked, well) in [
                (":1\r\n", 1, true),
                (":1\r\n:1\r\n", 1, false),
                (":1\r\n:1", 1, false),
                (":1\r\n:1\r\n", 2, true),
                (":1\r\n:1\r\n:1\r\n", 2, false),
                (":1\r\n:1\r\n:", 2, false),
            ] {
                let (mut client, mut server) = client();
                server.write_all(replies.as_bytes()).unwrap();
                let answered = match asked {
                    1 => client
                        .call("LOCK", true, |input, call| Reply::decode(input, call))
                        .map(|reply| reply.is_some()),
                    _ => client.exchange("LOCK", true, asked, |_, input| {
                        Ok(Reply::decode(input, "LOCK")?.map(|(_, length)| length))
                    }),
                };
                let expected = match well {
                    true => Ok(true),
                    false => Err(surplus::error("LOCK")),
                };
                assert_eq!(answered, expected, "{replies:?}");
            }
        }

        #[test]
        fn a_reply_too_many_that_comes_later_is_found_when_the_connection_ends() {
            let (mut client, mut server) = client();
            server.write_all(b":1\r\n").unwrap();
            assert!(
                client
                    .call("LOCK", true, |input, call| Reply::decode(input, call))
                    .unwrap()
                    .is_some()
            );
            server.write_all(b":1\r\n").unwrap();
            assert_eq!(client.part("LOCK"), Err(surplus::error("LOCK")));
        }
    }
}
