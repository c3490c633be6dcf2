//! The protocol of a client and a lock service, without the socket: the service's requests
//! as bytes, and the meaning of its replies.
//!
//! The owner of a socket drives it: [`RemoteLock`] with a blocking socket of one worker,
//! the engine's generators with thousands of non-blocking ones (`--as tasks`). Both use the
//! same protocol code.
//!
//! [`RemoteLock`]: crate::remote::RemoteLock

use crate::outcome::code_of;
use crate::stream::Stream;
use crate::{CallError, Keeping, Mode, SetupError, Wait};
use jostle_resp::token::{self, Token};
use jostle_sys::clock;
use jostle_sys::files::Errno;

/// The longest reply that is accepted. The services' replies are much shorter.
const LONGEST_REPLY: usize = 1 << 20;

/// How long a service may take to grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// No time.
    Try,
    /// Until it grants.
    Block,
    /// Until this time by `CLOCK_MONOTONIC`.
    Until(u64),
}

impl Asking {
    /// Whether the worker waits no longer after an answer that grants nothing.
    pub fn is_over(self) -> bool {
        match self {
            Asking::Try => true,
            Asking::Block => false,
            Asking::Until(time) => clock::monotonic() >= time,
        }
    }
}

impl From<Wait> for Asking {
    #[inline]
    fn from(wait: Wait) -> Asking {
        match wait {
            Wait::Try => Asking::Try,
            Wait::Block { .. } => Asking::Block,
            Wait::Until(time) => Asking::Until(time),
        }
    }
}

/// The result of a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The lock is ours.
    Granted,
    /// It is another's, or the time was up.
    Taken,
    /// Undecided: [`Wire::go_on`] has the next request, or none if the service sends the
    /// next message.
    Pending,
}

/// The reply that some bytes begin with and how many it takes; None while it is not
/// whole.
pub type Decoded<'a> = Result<Option<(Reply<'a>, usize)>, CallError>;

/// One worker's side of a service's protocol.
pub trait Wire: std::fmt::Debug + Send + 'static {
    /// The names of the requests for a lock and to give it up, for messages.
    fn names(&self) -> [&'static str; 2];

    /// Appends the request for lock number `key`.
    fn acquire(&mut self, key: usize, mode: Mode, asking: Asking, out: &mut Vec<u8>);

    /// Appends the request that gives it up.
    fn release(&mut self, key: usize, mode: Mode, out: &mut Vec<u8>);

    /// The reply that `input` begins with and the bytes it takes; None while it is
    /// not whole. Redis's protocol, unless the service speaks another.
    ///
    /// # Errors
    /// EPROTO in the name of `call` where it is none.
    #[inline]
    fn decode<'a>(&self, input: &'a [u8], call: &'static str) -> Decoded<'a> {
        Reply::decode(input, call)
    }

    /// Interprets the reply to [`Wire::acquire`] of this lock.
    ///
    /// # Errors
    /// What the service answered with an error.
    fn acquired(&mut self, key: usize, reply: Reply<'_>) -> Result<Answer, CallError>;

    /// The fencing token in a reply that granted, if it is a number; None where the service
    /// sends none.
    #[inline]
    fn token(&self, granted: Reply<'_>) -> Option<u64> {
        match granted {
            // They count up to 2^63.
            Reply::Integer(token) => Some(token as u64),
            _ => None,
        }
    }

    /// Interprets the reply to [`Wire::release`].
    ///
    /// # Errors
    /// What the service answered with an error; a lock that was lost before.
    fn released(&mut self, reply: Reply<'_>) -> Result<(), CallError>;

    /// Its locks' upkeep while they are held; None where nothing has to be renewed.
    fn keeping(&self) -> Option<Keeping> {
        None
    }

    /// Appends the request that renews the lease of lock number `key`, which is held, or
    /// that of the session.
    fn renew(&mut self, _key: usize, _out: &mut Vec<u8>) {}

    /// Whether the reply to [`Wire::renew`] says that it was renewed; false where the
    /// lock was not ours any more, or the session had ended.
    ///
    /// # Errors
    /// What the service answered with another error.
    fn renewed(&mut self, _key: usize, _reply: Reply<'_>) -> Result<bool, CallError> {
        Ok(true)
    }

    /// After [`Wire::released`], appends the requests that follow a release and whose
    /// answers are not awaited.
    fn afterwards(&mut self, _out: &mut Vec<u8>) {}

    /// Time between two tries, for a service that has no queue and answers at once. None if
    /// it has a queue: then the end of a connection gives up its place in the queue and its
    /// locks.
    #[inline]
    fn polls_every_ns(&self) -> Option<u64> {
        None
    }

    /// Whether a grant outlives the connection on which it was requested. The answer is
    /// then awaited, and the lock released.
    fn outlives_connection(&self) -> bool {
        self.polls_every_ns().is_some()
    }

    /// After [`Answer::Pending`], appends the next request of the acquisition, if there is
    /// one to send.
    fn go_on(&mut self, _out: &mut Vec<u8>) {}

    /// How long to wait for a reply before calling [`Wire::due`], for sessions that have to
    /// be kept alive; None: for ever.
    fn patience_ns(&self) -> Option<u64> {
        None
    }

    /// Whether the patience has to end exactly, to the millisecond, because the request
    /// that follows must not be late.
    fn is_on_time(&self) -> bool {
        false
    }

    /// Called at the end of the patience: appends the request that keeps the session alive,
    /// or ends an attempt whose time is up.
    ///
    /// # Errors
    /// ETIMEDOUT where the service is silent for too long.
    fn due(&mut self, _out: &mut Vec<u8>) -> Result<(), CallError> {
        Ok(())
    }

    /// Whether an attempt can be cancelled ([`Wire::give_up`]), so that the connection can be
    /// used further: the services whose acquisitions take several messages.
    #[inline]
    fn cancels(&self) -> bool {
        false
    }

    /// Cancels the attempt: appends the request that cancels it. The answer is
    /// [`Answer::Taken`].
    fn give_up(&mut self, _out: &mut Vec<u8>) {}

    /// Whether a cancelled attempt leaves nothing behind, so that its answer need not be
    /// awaited.
    fn is_left(&self) -> bool {
        false
    }

    /// When the last request that keeps the session alive was made, by `CLOCK_MONOTONIC`;
    /// None if there is no session.
    fn sent_ns(&self) -> Option<u64> {
        None
    }

    /// A new connection to the same session, after the old one has failed; None if there is
    /// no such session, or it has ended.
    ///
    /// # Errors
    /// In words: no server can be reached yet.
    fn resume(&mut self) -> Result<Option<Stream>, SetupError> {
        Ok(None)
    }

    /// Appends the request that ends the session, if the protocol has one. False if only
    /// the end of the connection ends the session and the service sends nothing without a
    /// request: anything received later is then a surplus answer. True if the service may
    /// send unsolicited messages until the end.
    fn farewell(&mut self, _out: &mut Vec<u8>) -> bool {
        false
    }
}

/// A server's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A number.
    Integer(i64),
    /// A status or a string.
    Text(&'a [u8]),
    /// Nothing: a try that was refused, a wait that was over.
    Nil,
    /// An error of the service.
    Error(&'a [u8]),
}

impl<'a> Reply<'a> {
    /// The reply that `input` begins with and the bytes it takes; None while it
    /// is not whole.
    ///
    /// # Errors
    /// EPROTO in the name of `call` where it is none.
    #[inline]
    pub fn decode(input: &'a [u8], call: &'static str) -> Decoded<'a> {
        let whole =
            token::next(input, LONGEST_REPLY).map_err(|_| CallError::new(call, Errno::PROTO))?;
        Ok(whole.map(|(token, length)| (Reply::from_token(token), length)))
    }

    /// The reply in a piece of Redis's protocol that is one by itself; the header of an aggregate
    /// is an empty text.
    #[inline]
    pub fn from_token(token: Token<'a>) -> Reply<'a> {
        match token {
            Token::Integer(number) => Reply::Integer(number),
            Token::Nil => Reply::Nil,
            Token::Error(text) => Reply::Error(text),
            Token::Bulk(text) | Token::Simple(text) | Token::Verbatim(_, text) => Reply::Text(text),
            _ => Reply::Text(b""),
        }
    }
}

/// The leaked text is at most one per worker, because such an error ends the worker.
#[cold]
pub fn refused(call: &'static str, text: &[u8]) -> CallError {
    let said: &str = String::from_utf8_lossy(text).into_owned().leak();
    CallError {
        name: code_of(said),
        ..CallError::saying(call, Errno::PROTO, said)
    }
}

/// The answer does not fit this request.
#[cold]
pub fn wrong_kind(call: &'static str) -> CallError {
    let said = "the server's answer is of another kind than this request has";
    CallError::saying(call, Errno::PROTO, said)
}

/// The error of an answer that is none of the expected ones.
#[cold]
pub fn unexpected(call: &'static str, reply: Reply<'_>) -> CallError {
    match reply {
        Reply::Error(text) => refused(call, text),
        _ => wrong_kind(call),
    }
}

/// Appends a number's digits.
#[inline]
pub fn push_decimal(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_over_when_its_worker_waits_no_longer() {
        let now = clock::monotonic();
        for (asking, over) in [
            (Asking::Try, true),
            (Asking::Block, false),
            (Asking::Until(now), true),
            (Asking::Until(now + 60_000_000_000), false),
            (Asking::Until(u64::MAX), false),
        ] {
            assert_eq!(asking.is_over(), over, "{asking:?}");
        }
    }

    #[test]
    fn an_error_has_the_name_that_the_server_gives_it() {
        for (text, name) in [
            ("NOAUTH Authentication required.", Some("NOAUTH")),
            ("SERVER_ERROR out of memory", Some("SERVER_ERROR")),
            ("EARLY", Some("EARLY")),
            ("ERR unknown command", None),
            ("Access denied", None),
            ("A key", None),
            ("", None),
        ] {
            assert_eq!(refused("SET", text.as_bytes()).name, name, "{text}");
        }
    }

    #[test]
    fn replies_are_read_as_they_come() {
        type Case<'a> = (&'a [u8], Option<(Reply<'a>, usize)>);
        let table: [Case<'_>; 6] = [
            (b":12\r\n:1\r\n", Some((Reply::Integer(12), 5))),
            (b"+OK\r\n", Some((Reply::Text(b"OK"), 5))),
            (b"$-1\r\n", Some((Reply::Nil, 5))),
            (b"-ERR no\r\n", Some((Reply::Error(b"ERR no"), 9))),
            (b"$3\r\nab", None),
            (b"", None),
        ];
        for (input, expected) in table {
            assert_eq!(Reply::decode(input, "LOCK").unwrap(), expected);
        }
        let error = Reply::decode(b"?\r\n", "LOCK").unwrap_err();
        assert_eq!(
            (error.call, error.errno),
            ("LOCK", Errno::PROTO.raw_os_error())
        );
    }
}
