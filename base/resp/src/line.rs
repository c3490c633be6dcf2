//! Lines and numbers, shared by both decoders.

/// Where the line that starts at `from` ends: the index of its `\r\n`.
/// `None` while it has not arrived whole.
#[inline]
pub(crate) fn end_of_line(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    // Header lines are a few bytes long: a plain loop beats a call to memchr.
    let at = rest.windows(2).position(|two| two == b"\r\n")?;
    Some(from + at)
}

/// A decimal number with an optional minus sign and nothing else: no plus sign,
/// no spaces, no empty text. `None` where it is not one or does not fit.
#[inline]
#[must_use]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let magnitude = parse_u64(digits)?;
    if negative {
        // -2^63 has no positive counterpart.
        0i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// A decimal number of digits alone. `None` where it is not one or does not fit.
#[inline]
#[must_use]
pub fn parse_u64(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    let mut value: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Two digits for each number below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut at = 0;
    while at < 100 {
        pairs[at] = [b'0' + (at / 10) as u8, b'0' + (at % 10) as u8];
        at += 1;
    }
    pairs
};

/// Writes a number so that it ends before `end`; returns where it starts.
/// `end` leaves room for the 20 digits of the largest one.
#[inline]
pub(crate) fn digits_before(buffer: &mut [u8], end: usize, mut value: u64) -> usize {
    let mut at = end;
    while value >= 100 {
        let pair = PAIRS[(value % 100) as usize];
        value /= 100;
        at -= 2;
        buffer[at] = pair[0];
        buffer[at + 1] = pair[1];
    }
    let pair = PAIRS[value as usize];
    at -= 1;
    buffer[at] = pair[1];
    if value >= 10 {
        at -= 1;
        buffer[at] = pair[0];
    }
    at
}

/// Appends a line of a sign of its kind and a number.
#[inline]
pub(crate) fn push_line(out: &mut Vec<u8>, kind: u8, value: i64) {
    // Most are a single digit, and an array of known length is copied without
    // a call of memcpy.
    if (0..10).contains(&value) {
        return out.extend_from_slice(&[kind, b'0' + value as u8, b'\r', b'\n']);
    }
    let mut buffer = [0; 48];
    buffer[22] = b'\r';
    buffer[23] = b'\n';
    let mut at = digits_before(&mut buffer, 22, value.unsigned_abs());
    if value < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    at -= 1;
    buffer[at] = kind;
    // For the same reason always 24 bytes, of which those behind the line go again.
    let end = out.len() + 24 - at;
    if let Some(line) = buffer[at..].first_chunk::<24>() {
        out.extend_from_slice(line);
        out.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_to_their_limits_and_nothing_else_is_a_number() {
        for (text, value) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("007", Some(7)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("", None),
            ("-", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1e3", None),
            ("--1", None),
            ("111111111111111111111", None),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), value, "{text:?}");
        }
        for value in [
            0,
            7,
            9,
            10,
            99,
            100,
            101,
            12345,
            -7,
            -10,
            i64::MAX,
            i64::MIN,
        ] {
            let mut out = Vec::new();
            push_line(&mut out, b':', value);
            assert_eq!(out, format!(":{value}\r\n").into_bytes());
        }
    }

    #[test]
    fn a_line_ends_at_carriage_return_and_newline_together() {
        assert_eq!(end_of_line(b"ab\r\n", 0), Some(2));
        assert_eq!(end_of_line(b"a\rb\n\r\n", 0), Some(4));
        assert_eq!(end_of_line(b"ab\r", 0), None);
        assert_eq!(end_of_line(b"ab", 9), None);
    }
}
