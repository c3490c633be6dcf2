//! The lines that a worker and a user's own lock exchange, without the pipe:
//! requests as bytes, and what an answer means.

use crate::Mode;
use jostle_model::record::{Belongs, Promise};
use std::fmt::{self, Display, Formatter};
use std::io::Write;

/// Longest line that is read, its end included.
pub(super) const LONGEST_LINE: usize = 1024;

/// A month.
const LONGEST_LEASE_MS: u64 = 30 * 24 * 3_600_000;

/// The greeting's version. It stays the first one, since programs exist that accept no other;
/// [`NUMBERED`] in the answer asks for the second.
const GREETING: &str = "jostle/1";

/// The word after READY by which a program asks for lines with numbers.
pub(super) const NUMBERED: &str = "jostle/2";

/// The requests of the numbered form that a program must list before it gets them.
pub(super) const RENEW_WORD: &str = "renew";
pub(super) const GIVE_UP_WORD: &str = "give-up";

/// A request's bytes, in memory of their own: requests do not allocate.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestLine {
    bytes: [u8; 80],
    filled: usize,
}

/// What a program is asked for after it was greeted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    /// A lock. `ms`: -1 for ever, 0 not at all, else milliseconds.
    Acquire { key: usize, mode: Mode, ms: i64 },
    /// Gives a lock up.
    Release { key: usize },
    /// Renews the lease of a lock, for so many milliseconds from now on.
    Renew { key: usize, ms: u64 },
    /// Waits no longer for the lock that the request with this number has asked for.
    GiveUp { asked: u64 },
}

impl Display for Request {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Request::Acquire { key, mode, ms } => {
                let mode = match mode {
                    Mode::Exclusive => 'x',
                    Mode::Shared => 's',
                };
                write!(f, "A {key} {mode} {ms}")
            }
            Request::Release { key } => write!(f, "U {key}"),
            Request::Renew { key, ms } => write!(f, "W {key} {ms}"),
            Request::GiveUp { asked } => write!(f, "X {asked}"),
        }
    }
}

impl RequestLine {
    fn format(text: fmt::Arguments<'_>) -> RequestLine {
        let mut bytes = [0; 80];
        let mut rest = &mut bytes[..];
        // The longest request, of the largest numbers, has 67 bytes.
        let _ = rest.write_fmt(text);
        let filled = 80 - rest.len();
        RequestLine { bytes, filled }
    }

    /// The first line: who asks, and how many locks there are.
    pub(super) fn hello(worker: usize, keys: usize) -> RequestLine {
        RequestLine::format(format_args!("HELLO {GREETING} {worker} {keys}\n"))
    }

    /// A request, with its number where the program has asked for numbers.
    pub(super) fn of(request: Request, number: Option<u64>) -> RequestLine {
        match number {
            Some(number) => RequestLine::format(format_args!("{number} {request}\n")),
            None => RequestLine::format(format_args!("{request}\n")),
        }
    }

    /// As it is sent.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

/// The number before an answer, and the answer; None where there is none.
pub(super) fn numbered(line: &[u8]) -> Option<(u64, &[u8])> {
    let end = line.iter().position(|byte| *byte == b' ')?;
    Some((number(&line[..end])?, &line[end + 1..]))
}

/// Digits alone: `parse` would take a sign.
fn number(digits: &[u8]) -> Option<u64> {
    let all = digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| all)?;
    text.parse().ok()
}

/// An answer's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    /// `G`, with the fencing token if there is one.
    Granted(Option<u64>),
    /// `R`: refused, or too late; to a renewal: it was no longer the owner's.
    Refused,
    /// `K`: done.
    Done,
    /// `E` and the reason.
    Failed(&'a [u8]),
}

impl Reply<'_> {
    /// Reads a line without its end; None where it is no answer.
    pub(super) fn read(line: &[u8]) -> Option<Reply<'_>> {
        match line {
            b"G" => Some(Reply::Granted(None)),
            b"K" => Some(Reply::Done),
            b"R" => Some(Reply::Refused),
            b"E" => Some(Reply::Failed(b"")),
            [b'G', b' ', token @ ..] => number(token).map(|token| Reply::Granted(Some(token))),
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
    /// `jostle/2`: lines with numbers.
    pub numbered: bool,
    /// `renew`: renewals.
    pub renew: bool,
    /// `give-up`: a wait can be ended.
    pub give_up: bool,
    /// What its owners may rely on: `token`, `fifo`, `lease=MS`, `by=...`, `restart`.
    pub promise: Promise,
    /// All words, as listed.
    pub listed: String,
}

impl Capabilities {
    /// Reads `READY [capabilities]` without the line's end; None where it is another line. Words
    /// that this version does not know are left alone.
    ///
    /// # Errors
    /// What is wrong with a word, or with several together.
    pub(super) fn read(line: &[u8]) -> Option<Result<Capabilities, String>> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split_ascii_whitespace();
        words.next().filter(|word| *word == "READY")?;
        let words: Vec<&str> = words.collect();
        Some(Capabilities::of(&words))
    }

    fn of(words: &[&str]) -> Result<Capabilities, String> {
        let has = |word: &str| words.contains(&word);
        let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
        let lease_ns = value("lease=").map(|ms| {
            let lease = number(ms.as_bytes()).filter(|ms| (1..=LONGEST_LEASE_MS).contains(ms));
            let said = || format!("`lease={ms}`: a lease is 1 to {LONGEST_LEASE_MS} milliseconds");
            lease.map(|ms| ms * 1_000_000).ok_or_else(said)
        });
        let lease_ns = lease_ns.transpose()?;
        let belongs = match value("by=") {
            Some("process") => Belongs::Process,
            Some("connection") => Belongs::Connection,
            Some("lease") => Belongs::Lease,
            None if lease_ns.is_some() => Belongs::Lease,
            None => Belongs::Unknown,
            Some(other) => {
                let kinds = "`process`, `connection` or `lease`";
                return Err(format!("`by={other}`: a lock belongs to {kinds}"));
            }
        };
        let (numbered, renew, give_up) = (has(NUMBERED), has(RENEW_WORD), has(GIVE_UP_WORD));
        for (wrong, said) in [
            (
                belongs == Belongs::Lease && lease_ns.is_none(),
                "`by=lease` needs `lease=MS`",
            ),
            (
                renew && lease_ns.is_none(),
                "`renew` needs `lease=MS`, by which renewals are due",
            ),
            (
                (renew || give_up) && !numbered,
                "`renew` and `give-up` need `jostle/2`: their requests have numbers",
            ),
        ] {
            if wrong {
                return Err(said.to_owned());
            }
        }
        Ok(Capabilities {
            shared: has("shared"),
            timeout: has("timeout"),
            numbered,
            renew,
            give_up,
            promise: Promise {
                belongs,
                lease_ns,
                restart: has("restart"),
                tokens: has("token"),
                order: has("fifo"),
                ..Promise::default()
            },
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
        let acquire = |key, mode, ms| Request::Acquire { key, mode, ms };
        let longest = acquire(usize::MAX, Mode::Exclusive, i64::MIN);
        let table = [
            (acquire(0, Mode::Exclusive, -1), None, "A 0 x -1\n"),
            (acquire(7, Mode::Shared, 250), Some(1), "1 A 7 s 250\n"),
            (Request::Release { key: 12 }, None, "U 12\n"),
            (Request::Release { key: 12 }, Some(9), "9 U 12\n"),
            (
                Request::Renew { key: 3, ms: 2_000 },
                Some(4),
                "4 W 3 2000\n",
            ),
            (Request::GiveUp { asked: 4 }, Some(5), "5 X 4\n"),
            (
                longest,
                Some(u64::MAX),
                "18446744073709551615 A 18446744073709551615 x -9223372036854775808\n",
            ),
        ];
        for (request, number, expected) in table {
            let line = RequestLine::of(request, number);
            assert_eq!(std::str::from_utf8(line.bytes()).unwrap(), expected);
        }
        for (line, expected) in [
            (RequestLine::hello(3, 2), "HELLO jostle/1 3 2\n"),
            (
                RequestLine::hello(usize::MAX, usize::MAX),
                "HELLO jostle/1 18446744073709551615 18446744073709551615\n",
            ),
        ] {
            assert_eq!(std::str::from_utf8(line.bytes()).unwrap(), expected);
        }
    }

    #[test]
    fn a_number_is_digits_and_a_space() {
        type Numbered<'a> = Option<(u64, &'a [u8])>;
        let table: [(&[u8], Numbered<'_>); 7] = [
            (b"17 G 5", Some((17, b"G 5"))),
            (b"1 E  two", Some((1, b"E  two"))),
            (b"G", None),
            (b"17", None),
            (b" K", None),
            (b"-1 K", None),
            (b"18446744073709551616 K", None),
        ];
        for (line, expected) in table {
            assert_eq!(numbered(line), expected, "{}", line.escape_ascii());
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
            (b"K", Some(Reply::Done)),
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

    fn ready(line: &str) -> Option<Result<Capabilities, String>> {
        Capabilities::read(line.as_bytes())
    }

    #[test]
    fn capabilities_are_words_after_ready() {
        let all = ready("READY shared  timeout token later").unwrap().unwrap();
        assert!(all.shared && all.timeout && all.promise.tokens && !all.numbered);
        assert_eq!(all.listed, "shared timeout token later");
        assert_eq!(ready("READY"), Some(Ok(Capabilities::default())));
        for other in ["", "READYshared", "ready", "G", "OK READY"] {
            assert_eq!(ready(other), None, "{other}");
        }
    }

    #[test]
    fn a_promise_is_listed_and_one_that_makes_no_sense_is_refused() {
        let can = |words: &str| ready(&format!("READY {words}")).unwrap();
        let leased = can("jostle/2 renew give-up lease=1500 restart fifo").unwrap();
        assert!(leased.numbered && leased.renew && leased.give_up);
        let expected = Promise {
            belongs: Belongs::Lease,
            lease_ns: Some(1_500_000_000),
            restart: true,
            order: true,
            ..Promise::default()
        };
        assert_eq!(leased.promise, expected);
        let both = can("by=connection lease=9").unwrap().promise;
        assert_eq!(
            (both.belongs, both.lease_ns),
            (Belongs::Connection, Some(9_000_000))
        );
        assert_eq!(can("").unwrap().promise, Promise::default());
        for (words, said) in [
            ("lease=", "`lease=`: a lease is 1 to"),
            ("lease=0", "`lease=0`"),
            ("lease=2s", "`lease=2s`"),
            ("lease=99999999999", "`lease=99999999999`"),
            ("by=me", "`by=me`: a lock belongs to `process`"),
            ("by=lease", "needs `lease=MS`"),
            ("jostle/2 renew", "needs `lease=MS`"),
            ("renew lease=5", "need `jostle/2`"),
            ("give-up", "need `jostle/2`"),
        ] {
            let error = can(words).unwrap_err();
            assert!(error.contains(said), "{words}: {error}");
        }
    }

    #[test]
    fn what_a_program_prints_is_quoted_without_its_control_characters() {
        assert_eq!(quoted(b"a\x1b[31m\nb", 99), "`a\\u{1b}[31m\\nb`");
        assert_eq!(quoted(b"\xff", 99), "`\u{fffd}`");
        assert_eq!(quoted(b"abcdef", 3), "`abc...`");
    }
}
