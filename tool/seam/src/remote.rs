//! A worker's blocking connection to a lock service: the protocol of `wire` on a socket.
//!
//! The signal that ends the run's waits also ends a wait for a reply. The connection cannot
//! be used afterwards, because the reply is still to come. Services without a queue answer
//! at once, so that their replies are awaited even then: an unread grant would leave a lock
//! taken.

use crate::address::Address;
use crate::login::Credentials;
use crate::stream::Stream;
use crate::surplus;
use crate::wire::{Answer, Asking, Decoded, Reply, Request, Wire, wrong_kind};
use crate::{BatchKind, CallError, Calls, Keeping, Lock, Mode, Outcome, SetupError, Traffic, Wait};
use jostle_sys::files::Errno;
use jostle_sys::{clock, signal};
use std::io::{self, Read, Write};
use std::time::Duration;

/// Time limit for an answer during set-up. The message in `receive` repeats this number.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// One connection, for requests that are answered one after the other.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    /// The request that is being put together.
    pub request: Vec<u8>,
    input: Vec<u8>,
    filled: usize,
    /// A request was sent and not answered.
    waits: bool,
    traffic: Traffic,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// In words for the user.
    pub fn connect(address: &Address) -> Result<Client, SetupError> {
        address.connect().map(Client::new)
    }

    /// Connects without TLS, for a protocol that exchanges messages before
    /// [`Client::secure`].
    ///
    /// # Errors
    /// In words for the user.
    pub fn connect_plainly(address: &Address) -> Result<Client, SetupError> {
        address.connect_plainly().map(Client::new)
    }

    fn new(stream: Stream) -> Client {
        Client {
            stream,
            request: Vec::with_capacity(256),
            input: vec![0; 4096],
            filled: 0,
            waits: false,
            traffic: Traffic::default(),
        }
    }

    /// Encrypts the connection, where the address asks for it.
    ///
    /// # Errors
    /// In words for the user.
    pub fn secure(mut self, address: &Address) -> Result<Client, SetupError> {
        self.stream = address.secured(self.stream, None)?;
        Ok(self)
    }

    /// As [`Client::connect`]; where there is a password the server must take it.
    ///
    /// # Errors
    /// In words for the user.
    pub fn admitted(address: &Address, own: &Credentials) -> Result<Client, SetupError> {
        let mut client = Client::connect(address)?;
        let words = [own.user.as_deref(), own.password.as_deref()];
        let words = words.iter().flatten().map(|word| word.as_bytes());
        if own.password.is_some() {
            client.command(
                &[b"AUTH".as_slice()]
                    .into_iter()
                    .chain(words)
                    .collect::<Vec<_>>(),
            )?;
        }
        Ok(client)
    }

    /// From now on an answer may take no longer than set-up allows.
    ///
    /// # Errors
    /// The system's.
    pub fn be_patient(&self) -> Result<(), SetupError> {
        self.set_patience(Some(ANSWER_PATIENCE))
    }

    /// From now on an answer may take for ever, as a lock that is held may.
    ///
    /// # Errors
    /// The system's.
    pub fn be_endless(&self) -> Result<(), SetupError> {
        self.set_patience(None)
    }

    fn set_patience(&self, patience: Option<Duration>) -> Result<(), SetupError> {
        let set = self.stream.set_patience(patience);
        set.map_err(|error| SetupError(format!("cannot set how long an answer may take: {error}")))
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
        self.send(name)?;
        loop {
            if !self.receive(name, patient)? {
                return match self.filled {
                    0 => Ok(None),
                    // Replies are shorter than a packet.
                    _ => Err(CallError {
                        said: Some("half an answer came, and not the rest"),
                        ..CallError::new(name, Errno::PROTO)
                    }),
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

    /// The message for an error in set-up. If the server closed the connection, it adds the
    /// likely cause.
    pub fn told(&self, error: CallError) -> String {
        let has_left = [Errno::CONNRESET, Errno::PIPE].map(Errno::raw_os_error);
        match self.stream {
            Stream::Tcp(_) if has_left.contains(&error.errno) => {
                format!("{error}; if the server wants TLS, write ?tls behind its address")
            }
            _ => error.to_string(),
        }
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

    #[inline]
    fn send(&mut self, name: &'static str) -> Result<(), CallError> {
        self.filled = 0;
        self.waits = true;
        self.traffic.sent(self.request.len());
        (&self.stream)
            .write_all(&self.request)
            .map_err(|error| CallError::from_system(name, &error))
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
        if self.filled == self.input.len() {
            self.input.resize(2 * self.filled, 0);
        }
        loop {
            match (&self.stream).read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(CallError::new(name, Errno::CONNRESET)),
                Ok(count) => {
                    self.filled += count;
                    self.traffic.received(count);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if !patient && signal::interrupted() {
                        return Ok(false);
                    }
                }
                // The socket's time limit has passed.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(CallError {
                        said: Some("the server gave no answer within 10 s; is it overloaded?"),
                        ..CallError::new(name, Errno::TIMEDOUT)
                    });
                }
                Err(error) => return Err(CallError::from_system(name, &error)),
            }
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
        self.request.clear();
        jostle_resp::request::encode(&mut self.request, words);
        let said = |text: String| {
            SetupError(format!(
                "the server's answer to {}: {text}",
                String::from_utf8_lossy(words[0])
            ))
        };
        let system = |error: io::Error| said(error.to_string());
        self.stream
            .set_patience(Some(ANSWER_PATIENCE))
            .map_err(system)?;
        let answer = match self.call("ask", true, |input, call| Reply::decode(input, call)) {
            Ok(Some(Reply::Text(text))) => Ok(Some(text.to_vec())),
            Ok(Some(Reply::Error(text))) => Err(said(String::from_utf8_lossy(text).into_owned())),
            Ok(_) => Ok(None),
            Err(error) => Err(said(self.told(error))),
        };
        self.stream.set_patience(None).map_err(system).and(answer)
    }
}

/// One worker's lock on a service, waiting for each reply.
#[derive(Debug)]
pub struct RemoteLock<W> {
    client: Client,
    wire: W,
    token: Option<u64>,
}

impl<W: Wire> RemoteLock<W> {
    /// On this connection, in this protocol.
    pub fn new(mut client: Client, wire: W) -> RemoteLock<W> {
        // The traffic so far belongs to no lock.
        client.traffic = Traffic::default();
        RemoteLock {
            client,
            wire,
            token: None,
        }
    }

    #[inline]
    fn ask(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Option<Answer>, CallError> {
        let asking = Asking::from(wait);
        self.client.request.clear();
        self.wire
            .acquire(key, mode, asking, &mut self.client.request);
        let name = self.wire.name(Request::Acquire);
        let patient = self.wire.polls_every_ns().is_some();
        let wire = &mut self.wire;
        match self
            .client
            .call(name, patient, |input, call| wire.decode(input, call))?
        {
            Some(reply) => {
                let answer = wire.acquired(key, reply)?;
                if answer == Answer::Granted {
                    self.token = wire.token(reply);
                }
                Ok(Some(answer))
            }
            None => Ok(None),
        }
    }
}

impl<W: Wire> Lock for RemoteLock<W> {
    #[inline]
    fn acquire(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        loop {
            match self.ask(key, mode, wait)? {
                Some(Answer::Granted) => return Ok(Outcome::Granted),
                Some(Answer::Taken) => {}
                Some(Answer::Pending) => return Err(wrong_kind(self.wire.name(Request::Acquire))),
                None => return Ok(Outcome::Interrupted),
            }
            let Some(poll) = self.wire.polls_every_ns() else {
                return Ok(Outcome::Refused);
            };
            let left = match wait {
                Wait::Try => 0,
                Wait::Until(until) => until.saturating_sub(clock::monotonic()),
                Wait::Block { .. } => poll,
            };
            match left {
                0 => return Ok(Outcome::Refused),
                _ if signal::interrupted() => return Ok(Outcome::Interrupted),
                left => clock::sleep(left.min(poll), signal::interrupted),
            }
        }
    }

    #[inline]
    fn release(&mut self, key: usize, mode: Mode) -> Result<(), CallError> {
        self.client.request.clear();
        self.wire.release(key, mode, &mut self.client.request);
        let name = self.wire.name(Request::Release);
        let patient = self.wire.polls_every_ns().is_some();
        let wire = &mut self.wire;
        match self
            .client
            .call(name, patient, |input, call| wire.decode(input, call))?
        {
            Some(reply) => wire.released(reply),
            None => Err(CallError::new(name, Errno::INTR)),
        }
    }

    #[inline]
    fn token(&self) -> Option<u64> {
        self.token
    }

    fn keeping(&self) -> Option<Keeping> {
        self.wire.keeping()
    }

    fn renew(&mut self, keys: &[usize], lapsed: &mut Vec<usize>) -> Result<bool, CallError> {
        let RemoteLock { client, wire, .. } = self;
        let Some(Keeping { call, .. }) = wire.keeping() else {
            return Ok(true);
        };
        client.request.clear();
        for key in keys {
            wire.renew(*key, &mut client.request);
        }
        let whole = client.exchange(call, false, keys.len(), |nth, input| {
            let Some((reply, length)) = wire.decode(input, call)? else {
                return Ok(None);
            };
            if !wire.renewed(keys[nth], reply)? {
                lapsed.push(keys[nth]);
            }
            Ok(Some(length))
        })?;
        whole
            .then_some(true)
            .ok_or(CallError::new(call, Errno::INTR))
    }

    fn traffic(&self) -> Option<Traffic> {
        Some(self.client.traffic)
    }

    fn part(&mut self) -> Result<(), CallError> {
        self.client.part(self.wire.name(Request::Release))
    }

    fn batch(&mut self, calls: Calls, _wait: Wait) -> Result<Outcome, CallError> {
        let RemoteLock { client, wire, .. } = self;
        client.request.clear();
        for nth in 0..calls.count {
            if calls.kind != BatchKind::Releases {
                wire.acquire(
                    calls.key(nth),
                    Mode::Exclusive,
                    Asking::Block,
                    &mut client.request,
                );
            }
            if calls.kind != BatchKind::Acquires {
                wire.release(calls.key(nth), Mode::Exclusive, &mut client.request);
            }
        }
        let name = wire.name(Request::Acquire);
        let patient = wire.polls_every_ns().is_some();
        let whole = client.exchange(name, patient, calls.replies(), |nth, input| {
            let Some((reply, length)) = wire.decode(input, name)? else {
                return Ok(None);
            };
            let acquires = match calls.kind {
                BatchKind::Pairs => nth.is_multiple_of(2),
                BatchKind::Acquires => true,
                BatchKind::Releases => false,
            };
            let key = match calls.kind {
                BatchKind::Pairs => calls.first,
                BatchKind::Acquires | BatchKind::Releases => calls.key(nth),
            };
            match acquires {
                true => granted_at_once(wire, key, reply)?,
                false => wire.released(reply)?,
            }
            Ok(Some(length))
        })?;
        Ok(if whole {
            Outcome::Granted
        } else {
            Outcome::Interrupted
        })
    }
}

/// Reads an acquisition's reply among pipelined requests, which rely on the grant.
///
/// # Errors
/// EAGAIN where the lock was taken.
#[inline]
pub fn granted_at_once(
    wire: &mut (impl Wire + ?Sized),
    key: usize,
    reply: Reply<'_>,
) -> Result<(), CallError> {
    match wire.acquired(key, reply)? {
        Answer::Granted => Ok(()),
        Answer::Taken => Err(CallError::new(wire.name(Request::Acquire), Errno::AGAIN)),
        Answer::Pending => Err(wrong_kind(wire.name(Request::Acquire))),
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
