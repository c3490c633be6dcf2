//! NATS's own protocol: lines of text, behind some of which messages stand, with heads of
//! lines.
//!
//! The protocol is that of the client documentation (docs.nats.io, "Client Protocol").

use crate::steps::Framed;
use crate::wire::wrong_kind;

/// Longest line that is waited for: INFO names all servers of a cluster.
const LONGEST_LINE: usize = 1 << 16;
/// Longest message that is waited for; ours are shorter by far.
const LONGEST_MESSAGE: usize = 1 << 20;

/// A frame from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Published by somebody, or an answer.
    Message {
        /// The subject it was published on.
        subject: &'a [u8],
        /// Ours, by its number.
        subscription: &'a [u8],
        /// Lines, or nothing.
        head: &'a [u8],
        /// The payload.
        body: &'a [u8],
    },
    /// To be answered with PONG within minutes.
    Ping,
    /// The answer to our own.
    Pong,
    /// The server's complaint.
    Error(&'a [u8]),
    /// News of the cluster.
    Other,
}

/// The line that `input` begins with, without its end, and its length.
pub(super) fn line<'a>(input: &'a [u8], call: &'static str) -> Framed<&'a [u8]> {
    match input.windows(2).position(|end| end == b"\r\n") {
        Some(end) => Ok(Some((&input[..end], end + 2))),
        None if input.len() > LONGEST_LINE => Err(wrong_kind(call)),
        None => Ok(None),
    }
}

/// The frame that `input` begins with.
///
/// # Errors
/// EPROTO in the name of `call` where it is none.
pub(super) fn frame<'a>(input: &'a [u8], call: &'static str) -> Framed<Frame<'a>> {
    let Some((line, length)) = line(input, call)? else {
        return Ok(None);
    };
    let mut words = line.split(|byte| *byte == b' ');
    let head_comes = match words.next() {
        Some(b"MSG") => false,
        Some(b"HMSG") => true,
        Some(b"PING") => return Ok(Some((Frame::Ping, length))),
        Some(b"PONG") => return Ok(Some((Frame::Pong, length))),
        Some(b"-ERR") => {
            let text = line[4..].trim_ascii();
            let text = text.strip_prefix(b"'").unwrap_or(text);
            let text = text.strip_suffix(b"'").unwrap_or(text);
            return Ok(Some((Frame::Error(text), length)));
        }
        Some(b"INFO" | b"+OK") => return Ok(Some((Frame::Other, length))),
        _ => return Err(wrong_kind(call)),
    };
    let (subject, subscription) = (words.next(), words.next());
    let mut numbers = words.rev().map_while(digits);
    let whole = numbers.next();
    let head = if head_comes { numbers.next() } else { Some(0) };
    let (Some(subject), Some(subscription), Some(whole), Some(head)) =
        (subject, subscription, whole, head)
    else {
        return Err(wrong_kind(call));
    };
    let (whole, head) = (whole as usize, head as usize);
    if head > whole || whole > LONGEST_MESSAGE {
        return Err(wrong_kind(call));
    }
    let rest = &input[length..];
    let Some(end) = rest.get(whole..whole + 2) else {
        return Ok(None);
    };
    if end != b"\r\n" {
        return Err(wrong_kind(call));
    }
    let message = Frame::Message {
        subject,
        subscription,
        head: &rest[..head],
        body: &rest[head..whole],
    };
    Ok(Some((message, length + whole + 2)))
}

pub(super) fn digits(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// The number in the first line of a message's head.
pub(super) fn status(head: &[u8]) -> Option<u64> {
    let rest = head.strip_prefix(b"NATS/1.0 ")?;
    digits(rest.get(..3)?)
}

/// The value of a line of a message's head.
fn field<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut lines = head.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(b":"))?;
    Some(value.trim_ascii())
}

/// Whether a message marks its key as deleted.
pub(super) fn is_marker(head: &[u8]) -> bool {
    matches!(field(head, b"KV-Operation"), Some(b"DEL" | b"PURGE"))
}

/// That of a message, in its head.
pub(super) fn sequence(head: &[u8]) -> Option<u64> {
    field(head, b"Nats-Sequence").and_then(digits)
}

/// The number behind a name in JSON, which is not searched in measured calls.
pub(super) fn number(json: &[u8], name: &[u8]) -> Option<u64> {
    let at = json.windows(name.len()).position(|part| part == name)?;
    let rest = json[at + name.len()..].trim_ascii_start();
    let end = rest.iter().position(|byte| !byte.is_ascii_digit());
    digits(&rest[..end.unwrap_or(rest.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_whole_or_refused() {
        for (input, expected) in [
            ("PING\r\n", Frame::Ping),
            ("PONG\r\n", Frame::Pong),
            ("INFO {\"a\":1}\r\n", Frame::Other),
            ("-ERR 'Slow Consumer'\r\n", Frame::Error(b"Slow Consumer")),
            ("MSG a 1 r 2\r\nhi\r\n", message("a", "", "hi")),
            ("HMSG a 1 3 5\r\nxyzhi\r\n", message("a", "xyz", "hi")),
            ("MSG a 1 0\r\n\r\n", message("a", "", "")),
        ] {
            for cut in 0..input.len() {
                assert_eq!(frame(&input.as_bytes()[..cut], "x"), Ok(None), "{input}");
            }
            assert_eq!(
                frame(input.as_bytes(), "x"),
                Ok(Some((expected, input.len())))
            );
        }
        for wrong in [
            "+\r\n",
            "MSG a 1\r\n",
            "MSG a 1 x\r\n",
            "HMSG a 1 9 5\r\n",
            "MSG a 1 2\r\nhi!!",
            "MSG a 1 99999999\r\n",
        ] {
            assert!(frame(wrong.as_bytes(), "x").is_err(), "{wrong}");
        }
        assert!(frame(&vec![b'x'; LONGEST_LINE + 1], "x").is_err());
    }

    fn message<'a>(subject: &'a str, head: &'a str, body: &'a str) -> Frame<'a> {
        Frame::Message {
            subject: subject.as_bytes(),
            subscription: b"1",
            head: head.as_bytes(),
            body: body.as_bytes(),
        }
    }
}
