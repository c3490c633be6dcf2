//! The protocol of a session with MariaDB after its start: queries, and results of one
//! column in one row.

use crate::names::Names;
use crate::wire::push_decimal;
use crate::wire::{Answer, Asking, Decoded, Reply, Wire, unexpected, wrong_kind};
use crate::{CallError, Mode};
use jostle_sys::clock;
use jostle_sys::files::Errno;

/// Longest packet that is believed; ours are shorter by far.
const LONGEST: usize = 1 << 20;

/// In seconds: a year, since a wait without an end has no name here.
const FOR_EVER: &[u8] = b"31536000";

/// COM_QUERY.
const QUERY: u8 = 3;

const HEAD: usize = 4;

/// One worker's side.
#[derive(Clone, Copy, Debug)]
pub struct MariadbWire {
    pub(super) names: Names,
    /// The latest request waits for as long as it takes.
    pub(super) blocks: bool,
}

/// A wait of a year that somebody else ended; `0` is how GET_LOCK answers when its time is up.
const NOT_OURS: CallError = CallError::saying(
    "GET_LOCK",
    Errno::TIMEDOUT,
    "it answered before its time was up: the server or a proxy ended the wait (max_statement_time, \
     or KILL QUERY)",
)
.named("wait_ended");

impl Wire for MariadbWire {
    fn names(&self) -> [&'static str; 2] {
        ["GET_LOCK", "RELEASE_LOCK"]
    }

    fn acquire(&mut self, key: usize, _mode: Mode, asking: Asking, out: &mut Vec<u8>) {
        self.blocks = asking == Asking::Block;
        query(out, |out| {
            out.extend_from_slice(b"SELECT GET_LOCK('");
            out.extend_from_slice(&self.names.name(key));
            out.extend_from_slice(b"',");
            match asking {
                Asking::Try => out.push(b'0'),
                Asking::Block => out.extend_from_slice(FOR_EVER),
                // Rounded up: the user's timeout is the least that is waited.
                Asking::Until(time) => {
                    let left_ns = time.saturating_sub(clock::monotonic());
                    seconds(left_ns.div_ceil(1_000), out);
                }
            }
            out.push(b')');
        });
    }

    fn release(&mut self, key: usize, _mode: Mode, out: &mut Vec<u8>) {
        query(out, |out| {
            out.extend_from_slice(b"SELECT RELEASE_LOCK('");
            out.extend_from_slice(&self.names.name(key));
            out.extend_from_slice(b"')");
        });
    }

    fn decode<'a>(&self, input: &'a [u8], call: &'static str) -> Decoded<'a> {
        decode(input, call)
    }

    fn acquired(&mut self, _key: usize, reply: Reply<'_>) -> Result<Answer, CallError> {
        match reply {
            Reply::Text(b"1") => Ok(Answer::Granted),
            Reply::Text(b"0") if !self.blocks => Ok(Answer::Taken),
            Reply::Text(b"0") | Reply::Nil => Err(NOT_OURS),
            other => Err(unexpected("GET_LOCK", other)),
        }
    }

    fn released(&mut self, reply: Reply<'_>) -> Result<(), CallError> {
        match reply {
            Reply::Text(b"1") => Ok(()),
            // 0: another connection's lock; NULL: nobody's.
            Reply::Text(b"0") | Reply::Nil => Err(LOST),
            other => Err(unexpected("RELEASE_LOCK", other)),
        }
    }
}

/// The connection did not have the lock any more.
const LOST: CallError = CallError::saying(
    "RELEASE_LOCK",
    Errno::PERM,
    "the connection does not hold the lock",
);

/// Appends a query whose text `write` appends.
pub(super) fn query(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let from = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, QUERY]);
    write(out);
    let length = (out.len() - from - HEAD) as u32;
    out[from..from + 3].copy_from_slice(&length.to_le_bytes()[..3]);
}

/// `1.000250` for 1,000,250 microseconds.
fn seconds(micros: u64, out: &mut Vec<u8>) {
    push_decimal(micros / 1_000_000, out);
    out.push(b'.');
    let from = out.len();
    push_decimal(1_000_000 + micros % 1_000_000, out);
    out.remove(from);
}

/// A packet: its payload, and the bytes of both.
///
/// # Errors
/// EPROTO where it is none.
pub(super) fn packet<'a>(
    input: &'a [u8],
    call: &'static str,
) -> Result<Option<(&'a [u8], usize)>, CallError> {
    let Some(head) = input.get(..HEAD) else {
        return Ok(None);
    };
    let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
    if length == 0 || length > LONGEST {
        let said = "what answers there does not speak MariaDB's protocol";
        return Err(CallError::saying(call, Errno::PROTO, said));
    }
    let end = HEAD + length;
    Ok(input.get(HEAD..end).map(|payload| (payload, end)))
}

/// A whole result: the first column of its last row, Nil where that is NULL or there is
/// no row, or what the server did not like.
pub(super) fn decode<'a>(input: &'a [u8], call: &'static str) -> Decoded<'a> {
    let (mut at, mut ends, mut reply) = (0, 0, Reply::Nil);
    while let Some((payload, length)) = packet(&input[at..], call)? {
        let is_first = at == 0;
        at += length;
        match payload[0] {
            0xff => return Ok(Some((Reply::Error(complaint(payload)), at))),
            // A statement without a result.
            0 if is_first => return Ok(Some((Reply::Nil, at))),
            // The end of the columns, and that of the rows.
            0xfe if payload.len() < 9 => ends += 1,
            _ if ends == 1 => reply = first_column(payload).ok_or_else(|| wrong_kind(call))?,
            _ => {}
        }
        if ends == 2 {
            return Ok(Some((reply, at)));
        }
    }
    Ok(None)
}

fn first_column(row: &[u8]) -> Option<Reply<'_>> {
    match row[0] {
        0xfb => Some(Reply::Nil),
        length @ 0..=0xfa => row.get(1..1 + usize::from(length)).map(Reply::Text),
        0xfc => {
            let length = u16::from_le_bytes(row.get(1..3)?.try_into().ok()?);
            row.get(3..3 + usize::from(length)).map(Reply::Text)
        }
        _ => None,
    }
}

/// The text of an error packet, behind its number and its state.
pub(super) fn complaint(payload: &[u8]) -> &[u8] {
    let text = payload.get(3..).unwrap_or_default();
    match text {
        [b'#', _, _, _, _, _, text @ ..] => text,
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(payloads: &[&[u8]]) -> Vec<u8> {
        let each = payloads.iter().enumerate().map(|(nth, payload)| {
            let length = (payload.len() as u32).to_le_bytes();
            [&length[..3], &[nth as u8 + 1], payload].concat()
        });
        each.collect::<Vec<_>>().concat()
    }

    #[test]
    fn results_are_read_when_they_are_whole() {
        const END: &[u8] = b"\xfe\0\0\x02\0";
        let column: &[u8] = b"\x03def\0\0\0\x01x\0\x0c";
        let rows = |row| packets(&[b"\x01", column, END, row, END]);
        let long = [&b"\xfc\x2c\x01"[..], &[b'x'; 300]].concat();
        for (input, expected) in [
            (rows(b"\x011"), Reply::Text(b"1")),
            (rows(b"\x010"), Reply::Text(b"0")),
            (rows(b"\xfb"), Reply::Nil),
            (rows(&long), Reply::Text(&[b'x'; 300])),
            (packets(&[b"\0\0\0\x02\0\0\0"]), Reply::Nil),
            (packets(&[b"\xff\x10\x04#08004full"]), Reply::Error(b"full")),
            (packets(&[b"\xff\x10\x04full"]), Reply::Error(b"full")),
        ] {
            for cut in 0..input.len() {
                assert_eq!(decode(&input[..cut], "x"), Ok(None), "{cut}");
            }
            assert_eq!(decode(&input, "x"), Ok(Some((expected, input.len()))));
        }
    }

    #[test]
    fn a_wait_that_somebody_else_ended_is_a_failure_with_its_name() {
        let mut wire = MariadbWire {
            names: Names::of_run(7),
            blocks: false,
        };
        let mut after = |asking, reply| {
            wire.acquire(0, Mode::Exclusive, asking, &mut Vec::new());
            wire.acquired(0, reply).map_err(|error| error.name)
        };
        assert_eq!(after(Asking::Try, Reply::Text(b"0")), Ok(Answer::Taken));
        let ended = Err(Some("wait_ended"));
        assert_eq!(after(Asking::Block, Reply::Text(b"0")), ended);
        assert_eq!(after(Asking::Block, Reply::Nil), ended);
    }

    #[test]
    fn another_protocol_is_no_answer() {
        for sad in [&b"\0\0\0\0"[..], b"HTTP/1.1 400"] {
            assert!(decode(sad, "x").is_err(), "{sad:?}");
        }
        let torn = packets(&[b"\x01", b"\x03def", b"\xfe\0\0\x02\0", b"\x091"]);
        assert!(decode(&torn, "x").is_err());
    }

    #[test]
    fn a_timeout_has_its_microseconds() {
        for (micros, text) in [
            (250, "0.000250"),
            (1_000_000, "1.000000"),
            (61_500_000, "61.500000"),
        ] {
            let mut out = Vec::new();
            seconds(micros, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
