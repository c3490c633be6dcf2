//! Replies: what a server writes. Each function appends to the caller's buffer.

use crate::line::push_line;

/// The version that a connection has agreed on with `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The version every connection starts with: no maps, one kind of nil.
    #[default]
    Resp2,
    /// Maps, a nil of its own, verbatim text.
    Resp3,
}

impl Protocol {
    /// The number as `HELLO` speaks of it.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Appends replies in one version of the protocol to a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Writer<'a> {
    /// A writer to the end of `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// The version it writes.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// A status such as `OK`. The text holds no line end.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error: a word in capitals, then a sentence. Bytes that would break
    /// the line are replaced, as part of the text may come from the client.
    pub fn error(&mut self, text: &str) {
        self.out.push(b'-');
        let clean = |byte: u8| {
            if byte == b'\r' || byte == b'\n' {
                b' '
            } else {
                byte
            }
        };
        self.out.extend(text.bytes().map(clean));
        self.end();
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        push_line(self.out, b':', value);
    }

    /// A string of bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.end();
    }

    /// Text for people; RESP3 says so, RESP2 sends it as a plain string.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.header(b'=', text.len() + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.end();
            }
        }
    }

    /// Nothing: the null bulk string in RESP2.
    #[inline]
    pub fn nil(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The start of an array; `length` replies follow.
    pub fn array(&mut self, length: usize) {
        self.header(b'*', length);
    }

    /// The start of a map; `pairs` times two replies follow. RESP2 has no maps
    /// and gets them flat, in an array of twice the length.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', pairs * 2),
            Protocol::Resp3 => self.header(b'%', pairs),
        }
    }

    /// The start of a set; `length` replies follow. An array in RESP2.
    pub fn set(&mut self, length: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', length),
            Protocol::Resp3 => self.header(b'~', length),
        }
    }

    #[inline]
    fn header(&mut self, kind: u8, length: usize) {
        push_line(self.out, kind, length as i64);
    }

    #[inline]
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.end();
    }

    #[inline]
    fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl Fn(&mut Writer<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Writer::new(&mut out, protocol));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn replies_in_both_versions() {
        type Write = fn(&mut Writer<'_>);
        let rows: [(Write, &str, &str); 11] = [
            (|w| w.simple("OK"), "+OK\r\n", "+OK\r\n"),
            (|w| w.error("ERR no"), "-ERR no\r\n", "-ERR no\r\n"),
            (|w| w.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|w| w.integer(-12), ":-12\r\n", ":-12\r\n"),
            (
                |w| w.bulk(b"a\r\nb"),
                "$4\r\na\r\nb\r\n",
                "$4\r\na\r\nb\r\n",
            ),
            (|w| w.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (|w| w.verbatim("hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            (|w| w.nil(), "$-1\r\n", "_\r\n"),
            (|w| w.array(3), "*3\r\n", "*3\r\n"),
            (|w| w.map(3), "*6\r\n", "%3\r\n"),
            (|w| w.set(3), "*3\r\n", "~3\r\n"),
        ];
        for (write, resp2, resp3) in rows {
            assert_eq!(written(Protocol::Resp2, write), resp2);
            assert_eq!(written(Protocol::Resp3, write), resp3);
        }
    }
}
