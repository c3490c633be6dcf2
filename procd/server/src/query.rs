//! A caller's arguments, from the target of a request.
//!
//! `/NAME?ARG&ARG...`: an argument with a `=` is a named one, any other a
//! positional one. An empty one keeps its place, so that behind a `?` is at
//! least one. Everything may be percent-encoded (RFC 3986); `+` is a plus.

/// A procedure's arguments, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Args {
    /// Those without a name, in order.
    pub positional: Vec<Vec<u8>>,
    /// Those with one, in order; of several with the same name the last counts.
    pub named: Vec<(Vec<u8>, Vec<u8>)>,
    /// The client's statement about its caller: `directory`, `user`, `terminal`.
    pub caller: Vec<(&'static str, Vec<u8>)>,
}

impl Args {
    /// Takes the part behind the `?` apart, if there is one.
    ///
    /// # Errors
    /// [`BadEncoding`].
    pub(crate) fn parse(query: Option<&[u8]>) -> Result<Args, BadEncoding> {
        let mut args = Args::default();
        let Some(query) = query else {
            return Ok(args);
        };
        for part in query.split(|byte| *byte == b'&') {
            match memchr::memchr(b'=', part) {
                Some(at) => {
                    let pair = (decode(&part[..at])?, decode(&part[at + 1..])?);
                    args.named.push(pair);
                }
                None => args.positional.push(decode(part)?),
            }
        }
        Ok(args)
    }

    /// The value of a name.
    #[must_use]
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self
            .named
            .iter()
            .rev()
            .find(|(key, _)| key == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }
}

/// A `%` without two hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a `%` in the request's target is not followed by two hexadecimal digits")]
pub(crate) struct BadEncoding;

/// Undoes percent-encoding.
///
/// # Errors
/// [`BadEncoding`].
pub(crate) fn decode(text: &[u8]) -> Result<Vec<u8>, BadEncoding> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'%', rest) {
        decoded.extend_from_slice(&rest[..at]);
        let digits = rest.get(at + 1..at + 3).ok_or(BadEncoding)?;
        decoded.push(digit(digits[0])? << 4 | digit(digits[1])?);
        rest = &rest[at + 3..];
    }
    decoded.extend_from_slice(rest);
    Ok(decoded)
}

fn digit(byte: u8) -> Result<u8, BadEncoding> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err(BadEncoding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_positional_or_named_and_decoded() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for (query, positional, named) in [
            ("", &[""][..], &[][..]),
            ("&&", &["", "", ""], &[]),
            ("a&&b", &["a", "", "b"], &[]),
            ("a&b", &["a", "b"], &[]),
            ("file=/x/y&max=10", &[], &[("file", "/x/y"), ("max", "10")]),
            ("a=1=2", &[], &[("a", "1=2")]),
            ("a=", &[], &[("a", "")]),
            ("=v", &[], &[("", "v")]),
            ("a+b", &["a+b"], &[]),
            ("%26%3D%25", &["&=%"], &[]),
            ("n%61me=%2fx", &[], &[("name", "/x")]),
        ] {
            let args = Args::parse(Some(query.as_bytes())).unwrap();
            let found: Vec<String> = args.positional.iter().map(|arg| text(arg)).collect();
            assert_eq!(found, positional, "{query}");
            let found: Vec<_> = args.named.iter().map(|(k, v)| (text(k), text(v))).collect();
            let named: Vec<_> = named
                .iter()
                .map(|(k, v)| ((*k).into(), (*v).into()))
                .collect();
            assert_eq!(found, named, "{query}");
        }
        assert_eq!(Args::parse(None), Ok(Args::default()));
        for query in ["%", "%4", "a=%zz", "%%41"] {
            assert_eq!(
                Args::parse(Some(query.as_bytes())),
                Err(BadEncoding),
                "{query}"
            );
        }
        assert_eq!(
            Args::parse(Some(b"a=1&a=2")).unwrap().get("a"),
            Some(&b"2"[..])
        );
    }
}
