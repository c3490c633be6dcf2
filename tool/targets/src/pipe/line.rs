//! The lines that a worker and a user's own lock exchange, without the pipe:
//! requests as bytes, and what an answer means.

use crate::Mode;
use std::io::Write;

/// Longest line that is read, its end included.
pub(super) const LONGEST_LINE: usize = 1024;

/// The version of the protocol, as HELLO names it.
const PROTOCOL: &str = "jostle/1";

/// A request's bytes, in memory of their own: requests do not allocate.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestLine {
    bytes: [u8; 64],
    filled: usize,
}

impl RequestLine {
    fn format(text: std::fmt::Arguments<'_>) -> RequestLine {
        let mut bytes = [0; 64];
        let mut rest = &mut bytes[..];
        // The longest request, of the largest numbers, has 57 bytes.
        let _ = rest.write_fmt(text);
        let filled = 64 - rest.len();
        RequestLine { bytes, filled }
    }

    /// The first line: who asks, and how many locks there are.
    pub(super) fn hello(worker: usize, keys: usize) -> RequestLine {
        RequestLine::format(format_args!("HELLO {PROTOCOL} {worker} {keys}\n"))
    }

    /// Asks for a lock. `ms`: -1 for ever, 0 not at all, else milliseconds.
    pub(super) fn acquire(key: usize, mode: Mode, ms: i64) -> RequestLine {
        let mode = match mode {
            Mode::Exclusive => 'x',
            Mode::Shared => 's',
        };
        RequestLine::format(format_args!("A {key} {mode} {ms}\n"))
    }

    /// Gives a lock up.
    pub(super) fn release(key: usize) -> RequestLine {
        RequestLine::format(format_args!("U {key}\n"))
    }

    /// As it is sent.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

/// An answer's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    /// `G`, with the fencing token if there is one.
    Granted(Option<u64>),
    /// `R`: refused, or too late.
    Refused,
    /// `K`: given up.
    Released,
    /// `E` and the reason.
    Failed(&'a [u8]),
}

impl Reply<'_> {
    /// Reads a line without its end; None where it is no answer.
    pub(super) fn read(line: &[u8]) -> Option<Reply<'_>> {
        match line {
            b"G" => Some(Reply::Granted(None)),
            b"K" => Some(Reply::Released),
            b"R" => Some(Reply::Refused),
            b"E" => Some(Reply::Failed(b"")),
            [b'G', b' ', token @ ..] => {
                // `parse` would take a sign.
                let digits = token.iter().all(u8::is_ascii_digit);
                let token = std::str::from_utf8(token).ok().filter(|_| digits)?;
                token.parse().ok().map(|token| Reply::Granted(Some(token)))
            }
            [b'E', b' ', text @ ..] => Some(Reply::Failed(text)),
            _ => None,
        }
    }
}

/// The capabilities that a lock declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    /// `shared`: requests with mode `s`.
    pub shared: bool,
    /// `timeout`: waits of so many milliseconds.
    pub timeout: bool,
    /// `token`: each grant has a fencing token.
    pub token: bool,
    /// All words, as listed.
    pub listed: String,
}

impl Capabilities {
    /// Reads `READY [capabilities]` without the line's end; None where it is another
    /// line. Words that this version does not know are left alone.
    pub(super) fn read(line: &[u8]) -> Option<Capabilities> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split_ascii_whitespace();
        words.next().filter(|word| *word == "READY")?;
        let words: Vec<&str> = words.collect();
        Some(Capabilities {
            shared: words.contains(&"shared"),
            timeout: words.contains(&"timeout"),
            token: words.contains(&"token"),
            listed: words.join(" "),
        })
    }
}

/// Bytes of another program between backticks, escaped, at most `most` of them:
/// the first ones.
pub(super) fn quoted(bytes: &[u8], most: usize) -> String {
    let cut = &bytes[..bytes.len().min(most)];
    let text = String::from_utf8_lossy(cut);
    let dots = if cut.len() < bytes.len() { "..." } else { "" };
    format!("`{}{dots}`", text.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_lines() {
        let table = [
            (RequestLine::hello(3, 2), "HELLO jostle/1 3 2\n"),
            (RequestLine::acquire(0, Mode::Exclusive, -1), "A 0 x -1\n"),
            (RequestLine::acquire(7, Mode::Shared, 250), "A 7 s 250\n"),
            (RequestLine::release(12), "U 12\n"),
            (
                RequestLine::acquire(usize::MAX, Mode::Exclusive, i64::MIN),
                "A 18446744073709551615 x -9223372036854775808\n",
            ),
            (
                RequestLine::hello(usize::MAX, usize::MAX),
                "HELLO jostle/1 18446744073709551615 18446744073709551615\n",
            ),
        ];
        for (line, expected) in table {
            assert_eq!(std::str::from_utf8(line.bytes()).unwrap(), expected);
        }
    }

    #[test]
    fn answers_are_read_and_nothing_else_is_one() {
        let table: [(&[u8], Option<Reply<'_>>); 16] = [
            (b"G", Some(Reply::Granted(None))),
            (b"G 17", Some(Reply::Granted(Some(17)))),
            (
                b"G 18446744073709551615",
                Some(Reply::Granted(Some(u64::MAX))),
            ),
            (b"R", Some(Reply::Refused)),
            (b"K", Some(Reply::Released)),
            (b"E no such lock", Some(Reply::Failed(b"no such lock"))),
            (b"E", Some(Reply::Failed(b""))),
            (b"", None),
            (b"g", None),
            (b"G\r", None),
            (b"G ", None),
            (b"G -1", None),
            (b"G +1", None),
            (b"G 18446744073709551616", None),
            (b"OK", None),
            (b"Killed", None),
        ];
        for (line, expected) in table {
            assert_eq!(Reply::read(line), expected, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn capabilities_are_words_after_ready() {
        let ready = |line: &str| Capabilities::read(line.as_bytes());
        let all = ready("READY shared  timeout token later").unwrap();
        assert!(all.shared && all.timeout && all.token);
        assert_eq!(all.listed, "shared timeout token later");
        assert_eq!(ready("READY"), Some(Capabilities::default()));
        for other in ["", "READYshared", "ready", "G", "OK READY"] {
            assert_eq!(ready(other), None, "{other}");
        }
    }

    #[test]
    fn what_a_program_prints_is_quoted_without_its_control_characters() {
        assert_eq!(quoted(b"a\x1b[31m\nb", 99), "`a\\u{1b}[31m\\nb`");
        assert_eq!(quoted(b"\xff", 99), "`\u{fffd}`");
        assert_eq!(quoted(b"abcdef", 3), "`abc...`");
    }
}
