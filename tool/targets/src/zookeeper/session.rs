//! A session with ZooKeeper: how it begins, what set-up asks in it, and how it ends.

use super::jute::{self, Frame, Reader, op};
use crate::address::any;
use crate::prelude::*;
use crate::stream::Stream;
use jostle_sys::files::Errno;
use std::io::{Read, Write};
use std::time::Duration;

/// How long an answer in set-up may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time limit for an answer of a starting server. Such a server may keep a connection open
/// and never answer on it (ZOOKEEPER-5051), but answers on the next one.
const STARTING: Duration = Duration::from_secs(1);

/// Requests that are on their way together.
const AT_ONCE: usize = 500;

/// A session's number, and the password that proves that it is ours.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Identity {
    /// The number that the server gave; 0: none yet.
    pub id: i64,
    pub password: [u8; 16],
}

/// An open session.
#[derive(Debug)]
pub(super) struct Session {
    client: Client,
    /// Its number and password.
    pub identity: Identity,
    /// The session's timeout, after which the server ends a silent session: the requested
    /// time, within the server's bounds.
    pub timeout: Duration,
    xid: i32,
}

impl Session {
    /// Opens a session with the first server that accepts it.
    ///
    /// # Errors
    /// In words for the user: what each of them said.
    pub(super) fn open(
        servers: &[Address],
        timeout: Duration,
        own: &Credentials,
    ) -> Result<Session> {
        any(servers, |server| {
            Session::new(server, timeout, PATIENCE)?.known(own)
        })
    }

    /// Takes a session up with the first server that answers. None if the session has ended.
    ///
    /// # Errors
    /// In words for the user: what each of them said.
    pub(super) fn resume(
        servers: &[Address],
        identity: Identity,
        timeout: Duration,
        own: &Credentials,
    ) -> Result<Option<Session>> {
        any(servers, |server| {
            let resumed = Session::with(server, identity, timeout, STARTING)?;
            resumed.map(|session| session.known(own)).transpose()
        })
    }

    /// With a server that may still be starting: to be tried again and again.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn of_starting(server: &Address, timeout: Duration) -> Result<Session> {
        Session::new(server, timeout, STARTING)
    }

    fn new(server: &Address, timeout: Duration, patience: Duration) -> Result<Session> {
        let session = Session::with(server, Identity::default(), timeout, patience)?;
        session.ok_or_else(|| SetupError(format!("ZooKeeper at {server}: it refuses a session")))
    }

    /// A new session, or the one of this identity; None if the server refuses it.
    fn with(
        server: &Address,
        identity: Identity,
        timeout: Duration,
        patience: Duration,
    ) -> Result<Option<Session>> {
        let said = |what: String| SetupError(format!("ZooKeeper at {server}: {what}"));
        let mut client = Client::connect(server)?;
        let set = client.wait_for(patience);
        set.map_err(|error| said(error.to_string()))?;
        let mut session = Session {
            client,
            identity,
            timeout,
            xid: 0,
        };
        jute::framed(&mut session.client.request, |out| {
            jute::int(out, 0);
            out.extend_from_slice(&0i64.to_be_bytes());
            jute::int(out, timeout.as_millis().min(i32::MAX as u128) as i32);
            out.extend_from_slice(&identity.id.to_be_bytes());
            jute::sized(out, |out| out.extend_from_slice(&identity.password));
            // Any server will do that can write.
            out.push(0);
        });
        let answer = session.client.call("connect", true, |input, call| {
            let whole = jute::content(input, call)?;
            Ok(whole.map(|(content, length)| (Reply::Text(content), length)))
        });
        let answer = match answer {
            Ok(Some(Reply::Text(content))) => content.to_vec(),
            Ok(_) => Vec::new(),
            Err(error) => return Err(said(why(&error))),
        };
        let mut answer = Reader(&answer);
        let told = (answer.int(), answer.int(), answer.long());
        let password = answer.bytes().and_then(|bytes| bytes.try_into().ok());
        let (Some(_), Some(granted_ms), Some(id)) = told else {
            return Err(said("its greeting is none of ZooKeeper's".to_owned()));
        };
        let granted_ms = u64::try_from(granted_ms).unwrap_or(0);
        if granted_ms == 0 || id == 0 {
            return Ok(None);
        }
        session.timeout = Duration::from_millis(granted_ms);
        session.identity = Identity {
            id,
            password: password.unwrap_or_default(),
        };
        Ok(Some(session))
    }

    /// Authenticates with the scheme `digest`. ZooKeeper does not check the password here:
    /// it refuses later requests that need other rights.
    fn known(mut self, own: &Credentials) -> Result<Session> {
        let Some(user) = own.user.as_deref() else {
            return Ok(self);
        };
        let whole = format!("{user}:{}", own.password.as_deref().unwrap_or_default());
        jute::request(&mut self.client.request, jute::AUTH, op::AUTH, |out| {
            jute::int(out, 0);
            jute::sized(out, |out| out.extend_from_slice(b"digest"));
            jute::sized(out, |out| out.extend_from_slice(whole.as_bytes()));
        });
        self.hear(1, |_, frame| match frame.error {
            0 => Ok(()),
            code => Err(format!("it refuses our name: error {code}")),
        })?;
        Ok(self)
    }

    /// The socket, for whoever goes on in another way; the next request's number is 1.
    ///
    /// # Errors
    /// The system's, in words for the user.
    pub(super) fn into_stream(self) -> Result<Stream> {
        let stream = self.client.into_stream();
        let set = stream.set_patience(None);
        set.map_err(|error| {
            SetupError(format!("cannot set how long an answer may take: {error}"))
        })?;
        Ok(stream)
    }

    /// Asks `count` times, several at once; `fill` appends the body of each, and `each`
    /// gets the answers in order.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn ask(
        &mut self,
        op: i32,
        count: usize,
        fill: impl Fn(usize, &mut Vec<u8>),
        mut each: impl FnMut(usize, Frame<'_>) -> Result<(), String>,
    ) -> Result<()> {
        for first in (0..count).step_by(AT_ONCE) {
            let some = count.min(first + AT_ONCE) - first;
            for nth in first..first + some {
                self.xid += 1;
                jute::request(&mut self.client.request, self.xid, op, |out| fill(nth, out));
            }
            self.hear(some, |nth, frame| each(first + nth, frame))?;
        }
        Ok(())
    }

    /// Sends what is to be sent, and gives `each` the answers to so many requests.
    fn hear(
        &mut self,
        count: usize,
        mut each: impl FnMut(usize, Frame<'_>) -> Result<(), String>,
    ) -> Result<()> {
        let said = |what: String| SetupError(format!("ZooKeeper: {what}"));
        let mut refused = Ok(());
        let heard = self.client.exchange("answer", true, count, |nth, input| {
            let whole = jute::reply(input, "answer")?;
            Ok(whole.map(|(frame, length)| {
                if refused.is_ok() {
                    refused = each(nth, frame);
                }
                length
            }))
        });
        heard.map_err(|error| said(why(&error)))?;
        refused.map_err(said)
    }

    /// Ends it: what it owned goes at once.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn close(mut self) -> Result<()> {
        self.ask(op::CLOSE, 1, |_, _| {}, |_, _| Ok(()))
    }
}

/// Why there is no answer.
fn why(error: &CallError) -> String {
    if error.has_ended() {
        return "it closed the connection, as a server of an ensemble without a quorum does, or one \
                that has as many connections of this host as it takes (maxClientCnxns, 60 by \
                default)"
            .to_owned();
    }
    match error.errno == Errno::TIMEDOUT.raw_os_error() {
        true => "no answer in time".to_owned(),
        false => error.to_string(),
    }
}

/// The server's answer about itself to the four letters `srvr`, which it takes unless its owner has
/// forbidden them.
pub(super) fn told(server: &Address) -> Option<String> {
    let stream = server.connect().ok()?;
    stream.set_patience(Some(PATIENCE)).ok()?;
    (&stream).write_all(b"srvr").ok()?;
    let mut text = String::new();
    (&stream).take(1 << 16).read_to_string(&mut text).ok()?;
    Some(text).filter(|text| text.contains("Zxid"))
}

/// A line `NAME: VALUE` of that.
pub(super) fn line<'a>(told: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = told.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use jostle_sys::waited::{LOOK, leaping};

    #[test]
    fn lines_are_found_by_their_whole_name() {
        let told = "Zookeeper version: 3.8.0--1, built on 2024\nReceived: 12\nZxid: 0x5\n";
        assert_eq!(line(told, "Received"), Some("12"));
        assert_eq!(
            line(told, "Zookeeper version"),
            Some("3.8.0--1, built on 2024")
        );
        assert_eq!(line(told, "Rece"), None);
    }

    #[test]
    fn what_is_no_zookeeper_or_says_nothing_is_told() {
        for (answer, says) in [
            (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "does not speak"),
            (b"\0\0\0\x04abcd", "none of ZooKeeper's"),
            (b"", "maxClientCnxns"),
        ] {
            let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let place = Address::Tcp(listener.local_addr().unwrap().to_string());
            let server = std::thread::spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                // Reads all that the client sends; otherwise closing would send a reset
                // that may overtake the answer.
                stream.read_exact(&mut [0; 49]).unwrap();
                stream.write_all(answer).unwrap();
            });
            let opened = Session::open(&[place], Duration::from_secs(1), &Credentials::default());
            let error = opened.unwrap_err().0;
            assert!(error.contains(says), "{error}");
            server.join().unwrap();
        }
    }

    /// A launched server once took 10 s more in 18 of 60 starts on a crowded machine.
    #[test]
    fn a_starting_server_that_never_answers_is_soon_left() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let place = Address::Tcp(listener.local_addr().unwrap().to_string());
        let (opened, looks) = leaping(|| Session::of_starting(&place, PATIENCE));
        let error = opened.unwrap_err().0;
        assert!(error.contains("no answer in time"), "{error}");
        let patience = STARTING.as_millis() / LOOK.as_millis();
        assert_eq!(u128::from(looks), 1 + patience);
    }
}
