//! Requests: what a client sends and a server decodes.
//!
//! A request is an array of bulk strings (`*2\r\n$4\r\nLOCK\r\n$1\r\na\r\n`) or an
//! inline line of words (`LOCK a\r\n`), as a person types it into a terminal.

use crate::line::{end_of_line, parse_i64, push_line};

const FIRST: usize = 8;

/// The arguments of one request, as positions in the buffer that was decoded.
/// Kept by the caller and used again for each request, so that decoding does
/// not allocate once it has grown to the longest request.
#[derive(Debug, Default)]
pub struct Args {
    /// The first of them, as many as almost every request has; and the rest.
    first: [(u32, u32); FIRST],
    more: Vec<(u32, u32)>,
    count: usize,
    /// Words that the buffer does not hold as they are: quoted inline words,
    /// whose escapes are resolved. Empty for every other request.
    unquoted: Vec<u8>,
    /// Whether `spans` point into `unquoted`.
    inline_quoted: bool,
}

impl Args {
    /// No arguments yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many there are, the command's name included.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the request was empty (a bare line, `*0` or `*-1`), which asks
    /// for nothing and gets no reply.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The argument at `index`, taken from the buffer that was decoded.
    #[inline]
    #[must_use]
    pub fn get<'b>(&'b self, buffer: &'b [u8], index: usize) -> Option<&'b [u8]> {
        let (start, end) = match self.first.get(index) {
            _ if index >= self.count => return None,
            Some(span) => *span,
            None => *self.more.get(index - FIRST)?,
        };
        let source = if self.inline_quoted {
            &self.unquoted[..]
        } else {
            buffer
        };
        source.get(start as usize..end as usize)
    }

    /// All of them, in order.
    pub fn iter<'b>(&'b self, buffer: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
        (0..self.len()).filter_map(move |index| self.get(buffer, index))
    }

    #[inline]
    fn push(&mut self, start: u32, end: u32) {
        match self.first.get_mut(self.count) {
            Some(place) => *place = (start, end),
            None => self.more.push((start, end)),
        }
        self.count += 1;
    }

    #[inline]
    fn clear(&mut self) {
        self.count = 0;
        self.more.clear();
        self.unquoted.clear();
        self.inline_quoted = false;
    }
}

/// The bounds of a request. What exceeds them is an error, found from the
/// announced size, before the bytes are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Arguments in one request, the command's name included.
    pub args: usize,
    /// Bytes of one request, its framing included.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            args: 1024,
            bytes: 64 * 1024,
        }
    }
}

/// How far a buffer reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The request is whole and this many bytes long.
    Complete {
        /// Bytes of the buffer that the request used.
        used: usize,
    },
    /// The request cannot be whole before the buffer holds this many bytes;
    /// decoding earlier is a waste (and a slow sender could make it an
    /// expensive one).
    Incomplete {
        /// A lower bound of the request's length in bytes; more than there are.
        needed: usize,
    },
}

/// Why bytes are not a request. The stream cannot be used after it, because
/// where the next request starts is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The count after `*` is not a number, or above the limit.
    #[error("invalid multibulk length")]
    ArrayLength,
    /// An argument does not start with `$`; this is the byte that stands there.
    #[error("expected '$', got '{}'", .0.escape_ascii())]
    ExpectedBulk(u8),
    /// The length after `$` is not a number, negative, or above the limit.
    #[error("invalid bulk length")]
    BulkLength,
    /// The bytes of an argument are not followed by `\r\n`.
    #[error("expected CRLF after an argument")]
    MissingLineEnd,
    /// A quote of an inline request is not closed, or not followed by a space.
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The request is longer than the limit.
    #[error("request is too long")]
    TooLong,
}

/// The longest header line: a sign, 20 digits and a letter are ample.
const HEADER_MAX: usize = 32;
/// The shortest possible argument: `$0\r\n\r\n`.
const ARG_MIN: usize = 6;

/// Decodes the request that `buffer` starts with into `args`.
///
/// A buffer that ends in the middle gives [`Progress::Incomplete`]; ask again
/// when it has grown to `needed`. The outcome never depends on how the bytes
/// arrived.
///
/// # Errors
/// [`RequestError`] when the bytes cannot become a request within the limits.
#[inline]
pub fn decode(buffer: &[u8], limits: Limits, args: &mut Args) -> Result<Progress, RequestError> {
    args.clear();
    match buffer.first() {
        None => Ok(Progress::Incomplete { needed: 1 }),
        Some(b'*') => decode_array(buffer, limits, args),
        Some(_) => decode_inline(buffer, limits, args),
    }
}

/// A header line's number and where the next line starts, or `None` while the
/// line has not arrived.
#[inline(always)]
fn header(
    buffer: &[u8],
    from: usize,
    error: RequestError,
) -> Result<Option<(i64, usize)>, RequestError> {
    // Almost every header is one or two digits.
    if let Some(&[a, b, c, d]) = buffer.get(from..).and_then(<[u8]>::first_chunk::<4>)
        && a.is_ascii_digit()
    {
        let a = i64::from(a - b'0');
        if b == b'\r' && c == b'\n' {
            return Ok(Some((a, from + 3)));
        }
        if b.is_ascii_digit() && c == b'\r' && d == b'\n' {
            return Ok(Some((a * 10 + i64::from(b - b'0'), from + 4)));
        }
    }
    long_header(buffer, from, error)
}

/// Any other header, and those that may not be whole.
#[cold]
fn long_header(
    buffer: &[u8],
    from: usize,
    error: RequestError,
) -> Result<Option<(i64, usize)>, RequestError> {
    let window = &buffer[from..buffer.len().min(from + HEADER_MAX)];
    match end_of_line(window, 0) {
        Some(end) => {
            let number = parse_i64(&window[..end]).ok_or(error)?;
            Ok(Some((number, from + end + 2)))
        }
        None if window.len() == HEADER_MAX => Err(error),
        None => Ok(None),
    }
}

#[inline]
fn decode_array(buffer: &[u8], limits: Limits, args: &mut Args) -> Result<Progress, RequestError> {
    let Some((count, mut at)) = header(buffer, 1, RequestError::ArrayLength)? else {
        return Ok(Progress::Incomplete {
            needed: buffer.len() + 1,
        });
    };
    if count <= 0 {
        return Ok(Progress::Complete { used: at });
    }
    let count = usize::try_from(count).map_err(|_| RequestError::ArrayLength)?;
    if count > limits.args {
        return Err(RequestError::ArrayLength);
    }
    for index in 0..count {
        // What must still come after this argument, at the least.
        let after = (count - index - 1) * ARG_MIN;
        match buffer.get(at) {
            None => return incomplete(at + ARG_MIN + after, limits),
            Some(b'$') => {}
            Some(&other) => return Err(RequestError::ExpectedBulk(other)),
        }
        let Some((length, start)) = header(buffer, at + 1, RequestError::BulkLength)? else {
            return incomplete((buffer.len() + 1).max(at + ARG_MIN + after), limits);
        };
        let length = usize::try_from(length).map_err(|_| RequestError::BulkLength)?;
        if length > limits.bytes {
            return Err(RequestError::BulkLength);
        }
        let end = start + length;
        if end + 2 + after > limits.bytes {
            return Err(RequestError::TooLong);
        }
        match buffer.get(end..end + 2) {
            Some(b"\r\n") => {}
            Some(_) => return Err(RequestError::MissingLineEnd),
            None => return half_line_end(buffer, end, after),
        }
        // Bounded by limits.bytes, which is far below 2^32.
        args.push(start as u32, end as u32);
        at = end + 2;
    }
    Ok(Progress::Complete { used: at })
}

/// The end of an argument has not arrived; but if its first byte has, it must
/// be right, so that a wrong one is an error at once however the bytes arrive.
#[cold]
fn half_line_end(buffer: &[u8], end: usize, after: usize) -> Result<Progress, RequestError> {
    match buffer.get(end) {
        None | Some(b'\r') => Ok(Progress::Incomplete {
            needed: end + 2 + after,
        }),
        Some(_) => Err(RequestError::MissingLineEnd),
    }
}

#[cold]
fn incomplete(needed: usize, limits: Limits) -> Result<Progress, RequestError> {
    if needed > limits.bytes {
        return Err(RequestError::TooLong);
    }
    Ok(Progress::Incomplete { needed })
}

/// Words separated by spaces, ended by `\n` (a `\r` before it is dropped).
fn decode_inline(buffer: &[u8], limits: Limits, args: &mut Args) -> Result<Progress, RequestError> {
    let window = &buffer[..buffer.len().min(limits.bytes)];
    let Some(end) = window.iter().position(|&byte| byte == b'\n') else {
        return if buffer.len() >= limits.bytes {
            Err(RequestError::TooLong)
        } else {
            Ok(Progress::Incomplete {
                needed: buffer.len() + 1,
            })
        };
    };
    let line = window[..end].strip_suffix(b"\r").unwrap_or(&window[..end]);
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        unquote(line, args)?;
    } else {
        split_words(line, args);
    }
    if args.len() > limits.args {
        return Err(RequestError::ArrayLength);
    }
    Ok(Progress::Complete { used: end + 1 })
}

fn split_words(line: &[u8], args: &mut Args) {
    let mut start = None;
    for (at, byte) in line.iter().enumerate() {
        match (byte.is_ascii_whitespace(), start) {
            (true, Some(from)) => {
                args.push(from, at as u32);
                start = None;
            }
            (false, None) => start = Some(at as u32),
            _ => {}
        }
    }
    if let Some(from) = start {
        args.push(from, line.len() as u32);
    }
}

/// Words of which some are quoted: `"..."` knows `\n \r \t \b \a \xHH` and takes
/// any other escaped byte as it is; `'...'` knows `\'` alone.
fn unquote(line: &[u8], args: &mut Args) -> Result<(), RequestError> {
    args.inline_quoted = true;
    let mut rest = line.trim_ascii_start();
    while let Some(&first) = rest.first() {
        let from = args.unquoted.len() as u32;
        rest = match first {
            b'"' => double_quoted(&rest[1..], &mut args.unquoted)?,
            b'\'' => single_quoted(&rest[1..], &mut args.unquoted)?,
            _ => {
                let length = rest
                    .iter()
                    .position(|byte| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\''))
                    .unwrap_or(rest.len());
                args.unquoted.extend_from_slice(&rest[..length]);
                &rest[length..]
            }
        };
        if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return Err(RequestError::UnbalancedQuotes);
        }
        args.push(from, args.unquoted.len() as u32);
        rest = rest.trim_ascii_start();
    }
    Ok(())
}

/// Appends the text up to the closing quote; returns what follows it.
fn double_quoted<'b>(mut rest: &'b [u8], out: &mut Vec<u8>) -> Result<&'b [u8], RequestError> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    loop {
        rest = match rest {
            [] => return Err(RequestError::UnbalancedQuotes),
            [b'"', after @ ..] => return Ok(after),
            [b'\\', b'x', high, low, after @ ..]
                if let (Some(high), Some(low)) = (digit(*high), digit(*low)) =>
            {
                out.push((high << 4 | low) as u8);
                after
            }
            [b'\\', escaped, after @ ..] => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [plain, after @ ..] => {
                out.push(*plain);
                after
            }
        };
    }
}

/// Appends the text up to the closing quote; returns what follows it.
fn single_quoted<'b>(mut rest: &'b [u8], out: &mut Vec<u8>) -> Result<&'b [u8], RequestError> {
    loop {
        rest = match rest {
            [] => return Err(RequestError::UnbalancedQuotes),
            [b'\'', after @ ..] => return Ok(after),
            [b'\\', b'\'', after @ ..] => {
                out.push(b'\'');
                after
            }
            [plain, after @ ..] => {
                out.push(*plain);
                after
            }
        };
    }
}

/// Appends a request.
#[inline]
pub fn encode(out: &mut Vec<u8>, args: &[&[u8]]) {
    push_line(out, b'*', args.len() as i64);
    for arg in args {
        push_line(out, b'$', arg.len() as i64);
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Decoded = Result<Option<(Vec<Vec<u8>>, usize)>, RequestError>;

    fn decoded(bytes: &[u8], limits: Limits) -> Decoded {
        let mut args = Args::new();
        Ok(match decode(bytes, limits, &mut args)? {
            Progress::Complete { used } => {
                Some((args.iter(bytes).map(<[u8]>::to_vec).collect(), used))
            }
            Progress::Incomplete { needed } => {
                assert!(needed > bytes.len(), "needed {needed} of {}", bytes.len());
                None
            }
        })
    }

    fn words(text: &[&str], used: usize) -> Decoded {
        Ok(Some((
            text.iter().map(|word| word.as_bytes().to_vec()).collect(),
            used,
        )))
    }

    #[test]
    fn requests_as_clients_send_them() {
        for (bytes, expected) in [
            // Arrays.
            ("*1\r\n$4\r\nPING\r\n", words(&["PING"], 14)),
            (
                "*2\r\n$4\r\nLOCK\r\n$1\r\na\r\nnext",
                words(&["LOCK", "a"], 21),
            ),
            ("*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", words(&["ECHO", ""], 20)),
            (
                "*1\r\n$12\r\na\r\nb\r\nc\r\nd\r\n\r\n",
                words(&["a\r\nb\r\nc\r\nd\r\n"], 23),
            ),
            ("*0\r\n", words(&[], 4)),
            ("*-1\r\n", words(&[], 5)),
            // Inline.
            ("PING\r\n", words(&["PING"], 6)),
            ("PING\n", words(&["PING"], 5)),
            ("  LOCK   a\t\r\n", words(&["LOCK", "a"], 13)),
            ("\r\n", words(&[], 2)),
            (
                "LOCK \"a b\" 'c\\'d'\r\n",
                words(&["LOCK", "a b", "c'd"], 19),
            ),
            ("LOCK \"\\x41\\n\\q\"\r\n", words(&["LOCK", "A\nq"], 17)),
            ("LOCK \"\"\r\n", words(&["LOCK", ""], 9)),
            // Not yet whole.
            ("", Ok(None)),
            ("*", Ok(None)),
            ("*1\r", Ok(None)),
            ("*1\r\n$4\r\nPI", Ok(None)),
            ("*1\r\n$4\r\nPING", Ok(None)),
            ("*1\r\n$4\r\nPING\r", Ok(None)),
            ("PIN", Ok(None)),
            // Wrong.
            ("*x\r\n", Err(RequestError::ArrayLength)),
            ("*1025\r\n", Err(RequestError::ArrayLength)),
            (
                "*99999999999999999999999999999999999",
                Err(RequestError::ArrayLength),
            ),
            ("*1\r\n:4\r\n", Err(RequestError::ExpectedBulk(b':'))),
            ("*1\r\n$-1\r\n", Err(RequestError::BulkLength)),
            ("*1\r\n$65537\r\n", Err(RequestError::BulkLength)),
            ("*1\r\n$65530\r\n", Err(RequestError::TooLong)),
            ("*1\r\n$4\r\nPINGx", Err(RequestError::MissingLineEnd)),
            ("*1\r\n$4\r\nPING\rx", Err(RequestError::MissingLineEnd)),
            ("LOCK \"a\r\n", Err(RequestError::UnbalancedQuotes)),
            ("LOCK \"a\"b\r\n", Err(RequestError::UnbalancedQuotes)),
            ("LOCK 'a\r\n", Err(RequestError::UnbalancedQuotes)),
        ] {
            assert_eq!(
                decoded(bytes.as_bytes(), Limits::default()),
                expected,
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn an_endless_inline_line_is_refused_at_the_limit() {
        let limits = Limits {
            args: 8,
            bytes: 100,
        };
        assert_eq!(decoded(&[b'a'; 99], limits), Ok(None));
        assert_eq!(decoded(&[b'a'; 100], limits), Err(RequestError::TooLong));
    }

    #[test]
    fn needed_skips_decoding_until_the_announced_bytes_are_there() {
        let mut args = Args::new();
        let bytes = b"*2\r\n$4\r\nLOCK\r\n$500\r\nx";
        let progress = decode(bytes, Limits::default(), &mut args);
        assert_eq!(
            progress,
            Ok(Progress::Incomplete {
                needed: 20 + 500 + 2
            })
        );
    }

    /// Feeds one byte more at a time until an outcome stands.
    fn byte_by_byte(bytes: &[u8], limits: Limits) -> Decoded {
        for end in 0..bytes.len() {
            match decoded(&bytes[..end], limits) {
                Ok(None) => {}
                outcome => return outcome,
            }
        }
        decoded(bytes, limits)
    }

    fn arg() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..30),
            proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'$')], 0..9),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_whole_and_split_at_every_byte(
            args in proptest::collection::vec(arg(), 1..6),
            tail in proptest::collection::vec(any::<u8>(), 0..10),
        ) {
            let borrowed: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            let mut bytes = Vec::new();
            encode(&mut bytes, &borrowed);
            let used = bytes.len();
            bytes.extend_from_slice(&tail);
            let expected = Ok(Some((args, used)));
            prop_assert_eq!(decoded(&bytes, Limits::default()), expected.clone());
            prop_assert_eq!(byte_by_byte(&bytes, Limits::default()), expected);
        }

        #[test]
        fn any_bytes_give_the_same_outcome_whole_and_split_at_every_byte(
            bytes in proptest::collection::vec(
                prop_oneof![
                    4 => proptest::sample::select(b"*$\r\n0123-\"' ax\\".to_vec()),
                    1 => any::<u8>(),
                ],
                0..60,
            ),
        ) {
            let limits = Limits { args: 5, bytes: 50 };
            prop_assert_eq!(decoded(&bytes, limits), byte_by_byte(&bytes, limits));
        }
    }
}
