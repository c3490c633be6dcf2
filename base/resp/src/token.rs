//! Replies as a client sees them arrive: one token at a time, borrowed from the
//! buffer. A load generator counts replies with this and never builds a tree;
//! [`crate::value`] builds one where it is wanted.

use crate::line::{end_of_line, parse_i64};

/// The next piece of a reply. An aggregate is its header alone; its elements
/// follow as tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'b> {
    /// `+OK`
    Simple(&'b [u8]),
    /// `-ERR text` and RESP3's `!`
    Error(&'b [u8]),
    /// `:1`
    Integer(i64),
    /// `$1`
    Bulk(&'b [u8]),
    /// `$-1`, `*-1`, `_`
    Nil,
    /// `#t`
    Boolean(bool),
    /// `,1.5`
    Double(f64),
    /// `(123`, its digits
    BigNumber(&'b [u8]),
    /// `=8` and `txt:`: the kind and the text
    Verbatim([u8; 3], &'b [u8]),
    /// `*n`: n elements follow
    Array(u32),
    /// `%n`: n pairs, so 2n elements, follow
    Map(u32),
    /// `~n`
    Set(u32),
    /// `>n`: out of band, not the answer to a request
    Push(u32),
    /// `|n`: n pairs follow, and then the reply that they describe
    Attribute(u32),
}

impl Token<'_> {
    /// How many tokens must follow for the reply to be whole, those of nested
    /// aggregates not counted.
    #[must_use]
    pub fn children(&self) -> u64 {
        match *self {
            Self::Array(n) | Self::Set(n) | Self::Push(n) => u64::from(n),
            Self::Map(n) => 2 * u64::from(n),
            Self::Attribute(n) => 2 * u64::from(n) + 1,
            _ => 0,
        }
    }
}

/// Why bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No reply starts with this byte.
    #[error("no reply starts with '{}'", .0.escape_ascii())]
    Kind(u8),
    /// A number, length, boolean or double is malformed or out of range.
    #[error("malformed number in a reply")]
    Malformed,
    /// The bytes of a string are not followed by `\r\n`.
    #[error("expected CRLF after a string")]
    MissingLineEnd,
    /// A string is longer than the caller's limit, or a line than 64 KiB.
    #[error("reply is too long")]
    TooLong,
    /// A streamed string or aggregate of RESP3 (`$?`), which is not supported.
    #[error("streamed replies are not supported")]
    Streamed,
}

/// The longest line of a status, an error or a number.
const LINE_MAX: usize = 64 * 1024;

/// The token that `buffer` starts with and the bytes it used, or `None` while it
/// is not whole. A string may have at most `bulk_max` bytes.
///
/// # Errors
/// [`TokenError`] when the bytes cannot become a token.
#[inline]
pub fn next(buffer: &[u8], bulk_max: usize) -> Result<Option<(Token<'_>, usize)>, TokenError> {
    let Some(&kind) = buffer.first() else {
        return Ok(None);
    };
    if !b"+-:$*_#,(!=%~>|".contains(&kind) {
        return Err(TokenError::Kind(kind));
    }
    let Some(end) = end_of_line(&buffer[..buffer.len().min(LINE_MAX)], 1) else {
        return if buffer.len() >= LINE_MAX {
            Err(TokenError::TooLong)
        } else {
            Ok(None)
        };
    };
    let (line, used) = (&buffer[1..end], end + 2);
    let token = match kind {
        b'+' => Token::Simple(line),
        b'-' => Token::Error(line),
        b':' => Token::Integer(number(line)?),
        b'_' if line.is_empty() => Token::Nil,
        b'#' if line == b"t" => Token::Boolean(true),
        b'#' if line == b"f" => Token::Boolean(false),
        b',' => Token::Double(double(line)?),
        b'(' => Token::BigNumber(digits(line)?),
        b'$' | b'!' | b'=' => return string(buffer, kind, line, used, bulk_max),
        b'*' | b'%' | b'~' | b'>' | b'|' => aggregate(kind, line)?,
        _ => return Err(TokenError::Malformed),
    };
    Ok(Some((token, used)))
}

fn number(line: &[u8]) -> Result<i64, TokenError> {
    parse_i64(line).ok_or(TokenError::Malformed)
}

/// A length; -1, the nil of RESP2, is `None`.
fn length(line: &[u8]) -> Result<Option<usize>, TokenError> {
    match number(line) {
        Ok(-1) => Ok(None),
        Ok(n) => usize::try_from(n)
            .map(Some)
            .map_err(|_| TokenError::Malformed),
        Err(_) if line == b"?" => Err(TokenError::Streamed),
        Err(error) => Err(error),
    }
}

fn double(line: &[u8]) -> Result<f64, TokenError> {
    let text = std::str::from_utf8(line).map_err(|_| TokenError::Malformed)?;
    text.parse().map_err(|_| TokenError::Malformed)
}

fn digits(line: &[u8]) -> Result<&[u8], TokenError> {
    let unsigned = line.strip_prefix(b"-").unwrap_or(line);
    if unsigned.is_empty() || !unsigned.iter().all(u8::is_ascii_digit) {
        return Err(TokenError::Malformed);
    }
    Ok(line)
}

fn aggregate(kind: u8, line: &[u8]) -> Result<Token<'static>, TokenError> {
    let Some(count) = length(line)? else {
        return if kind == b'*' {
            Ok(Token::Nil)
        } else {
            Err(TokenError::Malformed)
        };
    };
    let count = u32::try_from(count).map_err(|_| TokenError::TooLong)?;
    Ok(match kind {
        b'*' => Token::Array(count),
        b'%' => Token::Map(count),
        b'~' => Token::Set(count),
        b'>' => Token::Push(count),
        _ => Token::Attribute(count),
    })
}

fn string<'b>(
    buffer: &'b [u8],
    kind: u8,
    line: &[u8],
    start: usize,
    bulk_max: usize,
) -> Result<Option<(Token<'b>, usize)>, TokenError> {
    let Some(length) = length(line)? else {
        let nil = Ok(Some((Token::Nil, start)));
        return if kind == b'$' {
            nil
        } else {
            Err(TokenError::Malformed)
        };
    };
    if length > bulk_max {
        return Err(TokenError::TooLong);
    }
    let end = start + length;
    match buffer.get(end..end + 2) {
        Some(b"\r\n") => {}
        Some(_) => return Err(TokenError::MissingLineEnd),
        // The first byte of the line end may be there already, and wrong.
        None if buffer.get(end).is_some_and(|&byte| byte != b'\r') => {
            return Err(TokenError::MissingLineEnd);
        }
        None => return Ok(None),
    }
    let bytes = &buffer[start..end];
    let token = match (kind, bytes) {
        (b'$', _) => Token::Bulk(bytes),
        (b'!', _) => Token::Error(bytes),
        (_, [a, b, c, b':', text @ ..]) => Token::Verbatim([*a, *b, *c], text),
        _ => return Err(TokenError::Malformed),
    };
    Ok(Some((token, end + 2)))
}

/// Finds where whole replies end, across reads, without looking at a byte twice
/// (but for a token cut off in the middle).
#[derive(Clone, Debug, Default)]
pub struct Framer {
    /// Tokens that the reply in progress still needs.
    missing: u64,
}

impl Framer {
    /// Takes one token off the front of `buffer`; says whether it ended a reply.
    /// `None` while the token is not whole.
    ///
    /// # Errors
    /// [`TokenError`] when the bytes cannot become a reply.
    #[inline]
    pub fn step<'b>(
        &mut self,
        buffer: &'b [u8],
        bulk_max: usize,
    ) -> Result<Option<(Token<'b>, usize, bool)>, TokenError> {
        let Some((token, used)) = next(buffer, bulk_max)? else {
            return Ok(None);
        };
        // A token fills one open place (or is a reply of its own) and opens as
        // many as it has children; sums of u32 lengths stay far below 2^64.
        self.missing = self
            .missing
            .saturating_sub(1)
            .saturating_add(token.children());
        Ok(Some((token, used, self.missing == 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_both_versions() {
        use Token as T;
        for (bytes, expected) in [
            ("+OK\r\n", Ok(Some(T::Simple(b"OK")))),
            ("-ERR x\r\n", Ok(Some(T::Error(b"ERR x")))),
            (":-7\r\n", Ok(Some(T::Integer(-7)))),
            ("$3\r\na\r\n\r\n", Ok(Some(T::Bulk(b"a\r\n")))),
            ("$-1\r\n", Ok(Some(T::Nil))),
            ("*-1\r\n", Ok(Some(T::Nil))),
            ("_\r\n", Ok(Some(T::Nil))),
            ("#t\r\n", Ok(Some(T::Boolean(true)))),
            (",1.5\r\n", Ok(Some(T::Double(1.5)))),
            (",-inf\r\n", Ok(Some(T::Double(f64::NEG_INFINITY)))),
            (
                "(-12345678901234567890\r\n",
                Ok(Some(T::BigNumber(b"-12345678901234567890"))),
            ),
            ("!5\r\nERR x\r\n", Ok(Some(T::Error(b"ERR x")))),
            ("=6\r\ntxt:hi\r\n", Ok(Some(T::Verbatim(*b"txt", b"hi")))),
            ("*2\r\n", Ok(Some(T::Array(2)))),
            ("%2\r\n", Ok(Some(T::Map(2)))),
            ("~2\r\n", Ok(Some(T::Set(2)))),
            (">2\r\n", Ok(Some(T::Push(2)))),
            ("|1\r\n", Ok(Some(T::Attribute(1)))),
            // Not yet whole.
            ("", Ok(None)),
            ("+OK\r", Ok(None)),
            ("$3\r\nabc", Ok(None)),
            // Wrong.
            ("OK\r\n", Err(TokenError::Kind(b'O'))),
            (":x\r\n", Err(TokenError::Malformed)),
            ("$-2\r\n", Err(TokenError::Malformed)),
            ("%-1\r\n", Err(TokenError::Malformed)),
            ("#x\r\n", Err(TokenError::Malformed)),
            ("_x\r\n", Err(TokenError::Malformed)),
            ("=2\r\nhi\r\n", Err(TokenError::Malformed)),
            ("(1x\r\n", Err(TokenError::Malformed)),
            ("$?\r\n", Err(TokenError::Streamed)),
            ("*?\r\n", Err(TokenError::Streamed)),
            ("$1001\r\n", Err(TokenError::TooLong)),
            ("$3\r\nabcd", Err(TokenError::MissingLineEnd)),
        ] {
            let found = next(bytes.as_bytes(), 1000).map(|found| found.map(|(token, _)| token));
            assert_eq!(found, expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_reply_ends_with_its_last_nested_element() {
        let mut bytes: &[u8] = b"*2\r\n%1\r\n+a\r\n*0\r\n:1\r\n:2\r\n|1\r\n+k\r\n+v\r\n:3\r\n";
        let mut framer = Framer::default();
        let mut ends = Vec::new();
        while let Some((_, used, ended)) = framer.step(bytes, 100).unwrap() {
            ends.push(ended);
            bytes = &bytes[used..];
        }
        let t = true;
        let f = false;
        assert_eq!(ends, [f, f, f, f, t, t, f, f, f, t]);
    }
}
