//! The exchange of a session with PostgreSQL once it has begun (protocol 3.0, extended queries):
//! the six statements of the locks, and what ends with the server's being ready again.

use super::session::{POOLED, Statement};
use crate::names::Names;
use crate::wire::{Answer, Asking, Decoded, Reply, Wire, refused, unexpected, wrong_kind};
use crate::{CallError, Mode};
use jostle_sys::clock;
use jostle_sys::files::Errno;

/// Between two tries of `postgres-try`.
pub(super) const POLL_NS: u64 = 50_000_000;

/// The error class of a wait that lock_timeout ended (55P03, lock_not_available).
const TOO_LATE: &[u8] = b"55P03";

/// The timeout that ended the wait was set elsewhere: in postgresql.conf, for the role or the
/// database.
const NOT_OURS: CallError = CallError::saying(
    "pg_advisory_lock",
    Errno::TIMEDOUT,
    "canceling statement due to lock timeout: the lock_timeout of the server, role or database \
     ended the wait; set it to 0 for this role, or measure with --acquire-timeout",
)
.named("lock_timeout");

/// Longest message that is believed; ours are shorter by far.
const LONGEST: usize = 1 << 20;

/// Each takes one bigint, but the last, which takes milliseconds.
pub(super) const STATEMENTS: [Statement; 7] = [
    statement("l", "select pg_advisory_lock($1)"),
    statement("u", "select pg_advisory_unlock($1)"),
    statement("t", "select pg_try_advisory_lock($1)"),
    statement("ls", "select pg_advisory_lock_shared($1)"),
    statement("us", "select pg_advisory_unlock_shared($1)"),
    statement("ts", "select pg_try_advisory_lock_shared($1)"),
    statement(
        "w",
        "select set_config('lock_timeout', ($1::bigint)::text, true)",
    ),
];

const fn statement(name: &'static str, query: &'static str) -> Statement {
    Statement { name, query }
}

const RELEASE: &str = "pg_advisory_unlock";

/// One worker's side.
#[derive(Debug)]
pub struct PostgresWire {
    names: Names,
    /// It waits by asking again, not in the server's queue.
    polls: bool,
    /// The latest request waits for as long as it takes.
    blocks: bool,
}

impl PostgresWire {
    pub(super) fn new(names: Names, polls: bool) -> PostgresWire {
        PostgresWire {
            names,
            polls,
            blocks: false,
        }
    }
}

impl Wire for PostgresWire {
    fn names(&self) -> [&'static str; 2] {
        match self.polls {
            true => ["pg_try_advisory_lock", RELEASE],
            false => ["pg_advisory_lock", RELEASE],
        }
    }

    fn acquire(&mut self, key: usize, mode: Mode, asking: Asking, out: &mut Vec<u8>) {
        let number = self.names.number(key);
        let asking = if self.polls { Asking::Try } else { asking };
        self.blocks = asking == Asking::Block;
        if let Asking::Until(time) = asking {
            let left_ns = time.saturating_sub(clock::monotonic());
            // Set for this transaction, which ends with the Sync below. Rounded up, so that
            // the wait is not shorter than the user's timeout; 0 would mean no timeout.
            execute(out, "w", left_ns.div_ceil(1_000_000).max(1));
        }
        let statement = match (asking, mode) {
            (Asking::Try, Mode::Exclusive) => "t",
            (Asking::Try, Mode::Shared) => "ts",
            (_, Mode::Exclusive) => "l",
            (_, Mode::Shared) => "ls",
        };
        execute(out, statement, number);
        out.extend_from_slice(SYNC);
    }

    fn release(&mut self, key: usize, mode: Mode, out: &mut Vec<u8>) {
        let statement = match mode {
            Mode::Exclusive => "u",
            Mode::Shared => "us",
        };
        execute(out, statement, self.names.number(key));
        out.extend_from_slice(SYNC);
    }

    fn decode<'a>(&self, input: &'a [u8], call: &'static str) -> Decoded<'a> {
        decode(input, call)
    }

    fn acquired(&mut self, _key: usize, reply: Reply<'_>) -> Result<Answer, CallError> {
        match reply {
            // The function that waits returns void.
            Reply::Text(b"" | b"t") => Ok(Answer::Granted),
            Reply::Nil if self.blocks => Err(NOT_OURS),
            Reply::Text(b"f") | Reply::Nil => Ok(Answer::Taken),
            other => Err(strange(self.names()[0], other)),
        }
    }

    fn released(&mut self, reply: Reply<'_>) -> Result<(), CallError> {
        match reply {
            Reply::Text(b"t") => Ok(()),
            Reply::Text(b"f") => Err(LOST),
            other => Err(strange(RELEASE, other)),
        }
    }

    fn polls_every_ns(&self) -> Option<u64> {
        self.polls.then_some(POLL_NS)
    }
}

/// The error for an unexpected reply, and behind whose back it may have been said.
#[cold]
fn strange(call: &'static str, reply: Reply<'_>) -> CallError {
    match reply {
        Reply::Error(text) if text.windows(18).any(|part| part == b"prepared statement") => {
            refused(call, &[text, POOLED.as_bytes()].concat())
        }
        other => unexpected(call, other),
    }
}

/// The session did not have the lock any more.
const LOST: CallError =
    CallError::saying(RELEASE, Errno::PERM, "the session does not hold the lock");

pub(super) const SYNC: &[u8] = b"S\0\0\0\x04";

/// Appends Bind and Execute of a prepared statement with one bigint.
fn execute(out: &mut Vec<u8>, statement: &str, number: u64) {
    // Length, unnamed portal, name and its end, one format (binary), one value of eight
    // bytes, results as text.
    let length = 4 + 1 + statement.len() + 1 + 4 + 2 + 12 + 2;
    out.push(b'B');
    out.extend_from_slice(&(length as u32).to_be_bytes());
    out.push(0);
    out.extend_from_slice(statement.as_bytes());
    out.extend_from_slice(b"\0\0\x01\0\x01\0\x01\0\0\0\x08");
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(b"\0\0");
    out.extend_from_slice(EXECUTE);
}

/// The unnamed portal, all rows.
pub(super) const EXECUTE: &[u8] = b"E\0\0\0\x09\0\0\0\0\0";

/// The answer up to ReadyForQuery: the first column of the last row, the server's error, or
/// Nil if lock_timeout passed.
pub(super) fn decode<'a>(input: &'a [u8], call: &'static str) -> Decoded<'a> {
    let (mut at, mut reply) = (0, Reply::Nil);
    while let Some((tag, body, length)) = message(&input[at..], call)? {
        at += length;
        match tag {
            b'Z' => return Ok(Some((reply, at))),
            b'D' => reply = Reply::Text(first_column(body).ok_or_else(|| wrong_kind(call))?),
            b'E' => {
                let Complaint { code, text, ends } = Complaint::read(body);
                reply = match code {
                    TOO_LATE => Reply::Nil,
                    _ => Reply::Error(text),
                };
                if ends {
                    // Nothing follows it.
                    return Ok(Some((reply, input.len())));
                }
            }
            _ => {}
        }
    }
    Ok(None)
}

/// A message: its tag, its body and the bytes of both.
pub(super) type Message<'a> = (u8, &'a [u8], usize);

/// The message that `input` begins with; None while it is not whole.
///
/// # Errors
/// EPROTO where it is none.
pub(super) fn message<'a>(
    input: &'a [u8],
    call: &'static str,
) -> Result<Option<Message<'a>>, CallError> {
    const KNOWN: &[u8] = b"RSKZENDCT123nItsA";
    let Some(tag) = input.first() else {
        return Ok(None);
    };
    if !KNOWN.contains(tag) {
        return Err(foreign(call));
    }
    let Some(length) = input.get(1..5).and_then(|b| <[u8; 4]>::try_from(b).ok()) else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(length) as usize;
    if !(4..=LONGEST).contains(&length) {
        return Err(foreign(call));
    }
    Ok(input
        .get(5..1 + length)
        .map(|body| (*tag, body, 1 + length)))
}

#[cold]
fn foreign(call: &'static str) -> CallError {
    let said = "what answers there does not speak PostgreSQL's protocol";
    CallError::saying(call, Errno::PROTO, said)
}

/// Of a DataRow; empty for NULL.
fn first_column(row: &[u8]) -> Option<&[u8]> {
    let length = i32::from_be_bytes(row.get(2..6)?.try_into().ok()?);
    match usize::try_from(length) {
        Ok(length) => row.get(6..6 + length),
        Err(_) => Some(b""),
    }
}

/// An ErrorResponse.
pub(super) struct Complaint<'a> {
    /// SQLSTATE.
    pub code: &'a [u8],
    pub text: &'a [u8],
    /// Whether the connection ends with it.
    pub ends: bool,
}

impl<'a> Complaint<'a> {
    pub(super) fn read(body: &'a [u8]) -> Complaint<'a> {
        let fields = || body.split(|byte| *byte == 0);
        let field = |tag: u8| fields().find_map(|f| f.strip_prefix(&[tag]));
        let severity = field(b'V').or(field(b'S')).unwrap_or_default();
        Complaint {
            code: field(b'C').unwrap_or_default(),
            text: field(b'M').unwrap_or(b"an error without a message"),
            ends: [&b"FATAL"[..], b"PANIC"].contains(&severity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32 + 4).to_be_bytes();
        [&[tag][..], &length, body].concat()
    }

    fn row(value: &[u8]) -> Vec<u8> {
        let length = (value.len() as u32).to_be_bytes();
        framed(b'D', &[&[0, 1][..], &length, value].concat())
    }

    const READY: &[u8] = b"Z\0\0\0\x05I";

    /// 3,100 waits that the server's lock_timeout had ended were "not granted".
    #[test]
    fn a_lock_timeout_that_nobody_asked_for_is_a_failure_with_its_name() {
        let mut wire = PostgresWire::new(Names::of_run(7), false);
        let mut after = |asking| {
            wire.acquire(0, Mode::Exclusive, asking, &mut Vec::new());
            wire.acquired(0, Reply::Nil)
        };
        assert_eq!(after(Asking::Until(u64::MAX)), Ok(Answer::Taken));
        let error = after(Asking::Block).unwrap_err();
        assert_eq!(error.name, Some("lock_timeout"));
    }

    #[test]
    fn an_answer_is_whole_when_the_server_is_ready_again() {
        let late = framed(b'E', b"SERROR\0VERROR\0C55P03\0Mtoo late\0\0");
        let wrong = framed(b'E', b"SERROR\0VERROR\0C42501\0Mno right\0\0");
        let two = [row(b"30"), row(b"")].concat();
        for (messages, expected) in [
            (row(b"t"), Reply::Text(b"t")),
            (row(b"f"), Reply::Text(b"f")),
            (two, Reply::Text(b"")), // set_config's row comes first
            (late, Reply::Nil),
            (wrong, Reply::Error(b"no right")),
        ] {
            let whole = [&messages[..], READY].concat();
            for cut in 0..whole.len() {
                assert_eq!(decode(&whole[..cut], "x"), Ok(None), "{cut}");
            }
            assert_eq!(decode(&whole, "x"), Ok(Some((expected, whole.len()))));
        }
    }

    #[test]
    fn a_statement_that_is_not_there_tells_of_a_pooler() {
        let said = |text: &[u8]| strange("x", Reply::Error(text)).to_string();
        assert!(said(b"prepared statement \"acquire\" does not exist").contains("pooler"));
        assert!(!said(b"no right").contains("pooler"));
    }

    #[test]
    fn what_ends_the_connection_is_not_waited_beyond() {
        let fatal = framed(b'E', b"SFATAL\0VFATAL\0C57P01\0Mshutting down\0\0");
        let reply = Reply::Error(b"shutting down");
        assert_eq!(decode(&fatal, "x"), Ok(Some((reply, fatal.len()))));
    }

    #[test]
    fn another_protocol_is_no_answer() {
        for sad in [
            &b"HTTP/1.1"[..],
            b"-ERR\r\n",
            b"Z\0\0\0\x01",
            b"D\xff\xff\xff\xff",
        ] {
            let error = decode(sad, "x").unwrap_err();
            assert!(error.to_string().contains("does not speak"), "{error}");
        }
        // A row that ends within its column.
        let torn = [framed(b'D', b"\0\x01\0\0\0\x09t"), READY.to_vec()].concat();
        assert!(decode(&torn, "x").is_err());
    }

    #[test]
    fn a_bind_has_the_length_that_it_says() {
        let mut out = Vec::new();
        execute(&mut out, "ls", 7);
        let length = u32::from_be_bytes(out[1..5].try_into().unwrap()) as usize;
        assert_eq!(&out[1 + length..], EXECUTE);
    }
}
