//! One connection to a directory server: the protocol of `wire` on a blocking socket, with
//! or without TLS. There is one request at a time, and every wait has a limit.

use super::wire::{self, Message, Numbers, Outcome, Search};
use crate::login::Credentials;
use crate::stream::{self, Stream};
use crate::tls::Trust;
use crate::wire::wrong_kind;
use crate::{CallError, SetupError, surplus};
use bytes::BytesMut;
use jostle_sys::files::Errno;
use jostle_sys::signal;
use jostle_sys::waited::{Patience, Waited};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Room for what comes at once; longer messages make more.
const ROOM: usize = 16 << 10;

/// Where to connect, how, and for how long to wait.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    /// The first of them that answers.
    pub addresses: Vec<SocketAddr>,
    /// With `ldaps`, the certificates that are trusted and the name that is expected.
    pub tls: Option<Trust>,
    /// For one request, all its parts together.
    pub timeout: Duration,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Session {
    stream: Stream,
    input: Vec<u8>,
    /// The part of `input` that was received and not yet read.
    ready: std::ops::Range<usize>,
    output: BytesMut,
    last_id: u32,
    /// Since the request began, and for how long at most.
    waited: Waited,
    timeout: Duration,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// How it ended.
    pub outcome: Outcome,
    /// Entries that came before the end.
    pub entries: u64,
}

impl Session {
    /// Connects, which is a part of the first request.
    ///
    /// # Errors
    /// The call that failed.
    pub(super) fn connect(dial: &Dial) -> Result<Session, CallError> {
        let waited = Waited::begin();
        let mut last = CallError::new("connect", Errno::ADDRNOTAVAIL);
        for address in &dial.addresses {
            match connected(address, dial.timeout) {
                Ok(stream) => {
                    return Ok(Session {
                        stream: Stream::Tcp(stream),
                        input: vec![0; ROOM],
                        ready: 0..0,
                        output: BytesMut::with_capacity(512),
                        last_id: 0,
                        waited,
                        timeout: dial.timeout,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Shakes hands, where the connection is to be encrypted.
    ///
    /// # Errors
    /// The call that failed; EPROTO with what TLS says against the server.
    pub(super) fn secure(mut self, dial: &Dial) -> Result<Session, CallError> {
        self.stream = match (&dial.tls, self.stream) {
            (Some(trust), Stream::Tcp(socket)) => {
                let shaken = trust.shake(socket, dial.timeout);
                Stream::Tls(Box::new(shaken.map_err(|error| failed("TLS", &error))?))
            }
            (_, stream) => stream,
        };
        Ok(self)
    }

    /// The next request begins.
    pub(super) fn begin(&mut self) {
        self.waited = Waited::begin();
    }

    /// An error once the request has taken too long, as far as this process could listen.
    fn heed_time(&mut self, call: &'static str) -> Result<(), CallError> {
        match self.waited.so_far() >= self.timeout {
            true => Err(late(call)),
            false => Ok(()),
        }
    }

    /// Says who asks.
    ///
    /// # Errors
    /// The call that failed. A server's refusal is none: its code says so.
    pub(super) fn bind(&mut self, credentials: &Credentials) -> Result<Outcome, CallError> {
        const CALL: &str = "bind";
        let id = self.next_id();
        let name = credentials.user.as_deref().unwrap_or_default();
        let password = credentials.password.as_deref().unwrap_or_default();
        wire::bind(id, name, password.as_bytes(), &mut self.output);
        self.send(CALL)?;
        loop {
            match self.receive(CALL, id)? {
                Message::Bound(outcome) => {
                    self.expect_silence(CALL)?;
                    return Ok(outcome);
                }
                Message::Aside => {}
                _ => return Err(wrong_kind(CALL)),
            }
        }
    }

    /// Searches, and reads the answer to its end.
    ///
    /// # Errors
    /// The call that failed, as with [`Session::bind`].
    pub(super) fn search(
        &mut self,
        search: &Search,
        numbers: Numbers,
        mut each: impl FnMut(&[u8]),
    ) -> Result<Found, CallError> {
        const CALL: &str = "search";
        let id = self.next_id();
        search.encode(id, numbers, &mut self.output);
        self.send(CALL)?;
        let mut entries = 0;
        loop {
            match self.receive(CALL, id)? {
                Message::Entry(place) => {
                    each(&self.input[place]);
                    entries += 1;
                }
                Message::Aside => {}
                Message::Done(outcome) => {
                    self.expect_silence(CALL)?;
                    return Ok(Found { outcome, entries });
                }
                _ => return Err(wrong_kind(CALL)),
            }
        }
    }

    /// Takes leave; the server does not answer.
    ///
    /// # Errors
    /// The call that failed; EPROTO where an answer came that no request had asked
    /// for.
    pub(super) fn unbind(mut self) -> Result<(), CallError> {
        const CALL: &str = "unbind";
        if self.speaks() {
            self.fill(CALL)?;
            self.expect_silence(CALL)?;
        }
        self.take_leave()
    }

    /// Unbinds after the last request, and reads until the server has closed the
    /// connection. If the connection is closed already, there is nothing to read.
    ///
    /// # Errors
    /// EPROTO where an answer came that no request had asked for.
    pub(super) fn part(mut self) -> Result<(), CallError> {
        const CALL: &str = "unbind";
        self.expect_silence(CALL)?;
        if self.take_leave().is_err() {
            return Ok(());
        }
        self.stream.part(CALL)
    }

    /// Refuses a server that sends before it is asked. With TLS this cannot be checked.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn refuse_who_speaks_first(&self, place: &str) -> Result<(), SetupError> {
        match &self.stream {
            Stream::Tcp(stream) => surplus::refuse_who_speaks_first(stream, place),
            _ => Ok(()),
        }
    }

    /// Whether bytes wait to be read. With TLS they need not be an answer.
    fn speaks(&self) -> bool {
        matches!(&self.stream, Stream::Tcp(stream) if surplus::is_waiting(stream))
    }

    /// Before any request a server may only send a notice of disconnection.
    fn hear_unasked(&self, call: &'static str) -> Result<(), CallError> {
        match wire::decode(&self.input[self.ready.clone()]) {
            Ok(None) => Ok(()),
            Ok(Some((_, Message::Notice(outcome), _))) => Err(disconnects(call, &outcome)),
            Ok(Some(_)) => Err(surplus::error(call)),
            Err(_) => Err(not_ldap(call)),
        }
    }

    /// After an answer only a notice of disconnection may follow; the next request will
    /// report it.
    fn expect_silence(&self, call: &'static str) -> Result<(), CallError> {
        match wire::decode(&self.input[self.ready.clone()]) {
            Ok(None | Some((_, Message::Notice(_), _))) => Ok(()),
            Ok(Some(_)) | Err(_) => Err(surplus::error(call)),
        }
    }

    fn take_leave(&mut self) -> Result<(), CallError> {
        let id = self.next_id();
        wire::unbind(id, &mut self.output);
        match &self.stream {
            Stream::Tls(stream) => stream.end(&self.output),
            _ => return self.send("unbind"),
        }
        .map_err(|error| failed("unbind", &error))
    }

    fn next_id(&mut self) -> u32 {
        // Numbers of messages end at 2^31 - 1; zero is the server's own.
        self.last_id = if self.last_id == i32::MAX as u32 {
            1
        } else {
            self.last_id + 1
        };
        self.output.clear();
        self.last_id
    }

    fn send(&mut self, call: &'static str) -> Result<(), CallError> {
        if self.last_id == 1 && self.speaks() {
            self.fill(call)?;
            self.hear_unasked(call)?;
        }
        let mut sent = 0;
        while sent < self.output.len() {
            match (&self.stream).write(&self.output[sent..]) {
                Ok(0) => return Err(CallError::new(call, Errno::PIPE)),
                Ok(count) => sent += count,
                Err(error) if is_look(&error) => self.heed_time(call)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => interrupted(call)?,
                Err(error) => return Err(failed(call, &error)),
            }
        }
        while let Err(error) = (&self.stream).flush() {
            match is_look(&error) {
                true => self.heed_time(call)?,
                false => return Err(failed(call, &error)),
            }
        }
        Ok(())
    }

    /// The next message that answers request `id`.
    fn receive(&mut self, call: &'static str, id: u32) -> Result<Message, CallError> {
        loop {
            let decoded =
                wire::decode(&self.input[self.ready.clone()]).map_err(|_| not_ldap(call))?;
            let Some((of, message, length)) = decoded else {
                self.fill(call)?;
                continue;
            };
            let at = self.ready.start;
            self.ready.start += length;
            match message {
                Message::Entry(place) if of == id => {
                    return Ok(Message::Entry(at + place.start..at + place.end));
                }
                Message::Notice(outcome) => return Err(disconnects(call, &outcome)),
                message if of == id => return Ok(message),
                _ => {
                    return Err(said(
                        call,
                        "the server answered another request than the one that was sent",
                    ));
                }
            }
        }
    }

    /// Reads what has come, or waits for it.
    fn fill(&mut self, call: &'static str) -> Result<(), CallError> {
        if self.ready.start > 0 {
            self.input.copy_within(self.ready.clone(), 0);
            self.ready = 0..self.ready.len();
        }
        if self.ready.end == self.input.len() {
            self.input.resize(2 * self.ready.end, 0);
        }
        loop {
            match (&self.stream).read(&mut self.input[self.ready.end..]) {
                Ok(0) => return Err(CallError::new(call, Errno::CONNRESET)),
                Ok(count) => {
                    self.ready.end += count;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => interrupted(call)?,
                Err(error) if is_look(&error) => self.heed_time(call)?,
                Err(error) => return Err(failed(call, &error)),
            }
        }
        // A server that sends a few bytes at a time is waited for no longer.
        self.heed_time(call)
    }
}

/// A socket whose every wait ends at [`Patience::look`].
fn connected(address: &SocketAddr, timeout: Duration) -> Result<TcpStream, CallError> {
    let stream = stream::connected(address, timeout, signal::interrupted);
    let stream = stream.map_err(|(call, errno)| match errno {
        Errno::TIMEDOUT => late(call),
        errno => CallError::new(call, errno),
    })?;
    let set = stream.set_read_timeout(Some(Patience::look(timeout)));
    let set = set.and_then(|()| stream.set_nodelay(true));
    set.map_err(|error| failed("connect", &error))?;
    Ok(stream)
}

/// Whether a wait of the socket ended at its limit.
fn is_look(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Goes on after a signal, unless it is the keeper's.
fn interrupted(call: &'static str) -> Result<(), CallError> {
    match signal::interrupted() {
        true => Err(CallError::new(call, Errno::INTR)),
        false => Ok(()),
    }
}

fn late(call: &'static str) -> CallError {
    let said = "the server did not answer within --call-timeout";
    CallError::saying(call, Errno::TIMEDOUT, said)
}

#[cold]
fn failed(call: &'static str, error: &io::Error) -> CallError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => late(call),
        // The peer closed the connection without ending TLS.
        io::ErrorKind::UnexpectedEof => CallError::new(call, Errno::CONNRESET),
        io::ErrorKind::Interrupted => CallError::new(call, Errno::INTR),
        _ => match error.raw_os_error() {
            Some(errno) => CallError::new(call, Errno::from_raw_os_error(errno)),
            None => said(call, &error.to_string()),
        },
    }
}

fn disconnects(call: &'static str, outcome: &Outcome) -> CallError {
    said(call, &format!("the server disconnects: {}", outcome.said))
}

fn not_ldap(call: &'static str) -> CallError {
    said(call, "the server's answer is not LDAP")
}

/// An error with a text from the server. Each distinct text is kept once.
#[cold]
fn said(call: &'static str, text: &str) -> CallError {
    CallError::saying(call, Errno::PROTO, kept(text))
}

/// Leaks the text. Servers usually repeat their texts; after 64 different ones, further
/// texts are not quoted.
fn kept(text: &str) -> &'static str {
    const AT_MOST: usize = 64;
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(text) {
        return known;
    }
    if kept.len() >= AT_MOST {
        return "the server answered wrongly, in many ways";
    }
    let text: &'static str = text.to_owned().leak();
    kept.insert(text);
    text
}
