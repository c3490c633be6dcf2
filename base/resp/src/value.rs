//! Whole replies as trees, for clients that look at more than the first token.

use crate::token::{self, Token, TokenError};

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `+OK`
    Simple(String),
    /// `-ERR text` and RESP3's `!`
    Error(String),
    /// `:1`
    Integer(i64),
    /// `$1`, and verbatim text
    Bulk(Vec<u8>),
    /// Nothing.
    Nil,
    /// `#t`
    Boolean(bool),
    /// `,1.5`
    Double(f64),
    /// `(123`, its digits
    BigNumber(String),
    /// `*n`
    Array(Vec<Value>),
    /// `%n`
    Map(Vec<(Value, Value)>),
    /// `~n`
    Set(Vec<Value>),
    /// `>n`
    Push(Vec<Value>),
}

/// The bounds of a reply, which a broken server must not exceed either.
#[derive(Clone, Copy, Debug)]
pub struct ValueLimits {
    /// Bytes of one string.
    pub bulk: usize,
    /// Aggregates inside one another.
    pub depth: usize,
}

impl Default for ValueLimits {
    fn default() -> Self {
        Self {
            bulk: 64 << 20,
            depth: 32,
        }
    }
}

/// Why bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// A token is malformed.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Aggregates are nested more deeply than the limit.
    #[error("reply is nested too deeply")]
    TooDeep,
}

impl Value {
    /// The reply that `buffer` starts with and the bytes it used, or `None`
    /// while it is not whole. Attributes are skipped.
    ///
    /// # Errors
    /// [`ValueError`] when the bytes cannot become a reply.
    pub fn decode(buffer: &[u8], limits: ValueLimits) -> Result<Option<(Self, usize)>, ValueError> {
        let mut reader = Reader {
            buffer,
            at: 0,
            limits,
        };
        Ok(reader.value(0)?.map(|value| (value, reader.at)))
    }

    /// The integer, if it is one.
    #[must_use]
    pub fn as_integer(&self) -> Option<i64> {
        if let Self::Integer(value) = self {
            Some(*value)
        } else {
            None
        }
    }

    /// The text of a string, status or error.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Simple(text) | Self::Error(text) => Some(text),
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

struct Reader<'b> {
    buffer: &'b [u8],
    at: usize,
    limits: ValueLimits,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Option<Value>, ValueError> {
        if depth > self.limits.depth {
            return Err(ValueError::TooDeep);
        }
        let Some((token, used)) = token::next(&self.buffer[self.at..], self.limits.bulk)? else {
            return Ok(None);
        };
        self.at += used;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Some(match token {
            Token::Simple(bytes) => Value::Simple(text(bytes)),
            Token::Error(bytes) => Value::Error(text(bytes)),
            Token::Integer(value) => Value::Integer(value),
            Token::Bulk(bytes) | Token::Verbatim(_, bytes) => Value::Bulk(bytes.to_vec()),
            Token::Nil => Value::Nil,
            Token::Boolean(value) => Value::Boolean(value),
            Token::Double(value) => Value::Double(value),
            Token::BigNumber(digits) => Value::BigNumber(text(digits)),
            Token::Array(n) => return self.list(n, depth, Value::Array),
            Token::Set(n) => return self.list(n, depth, Value::Set),
            Token::Push(n) => return self.list(n, depth, Value::Push),
            Token::Map(n) => return Ok(self.pairs(n, depth)?.map(Value::Map)),
            Token::Attribute(n) => {
                return match self.pairs(n, depth)? {
                    Some(_) => self.value(depth + 1),
                    None => Ok(None),
                };
            }
        }))
    }

    fn list(
        &mut self,
        length: u32,
        depth: usize,
        wrap: fn(Vec<Value>) -> Value,
    ) -> Result<Option<Value>, ValueError> {
        // Not reserved at once: the announced length is not to be trusted.
        let mut values = Vec::new();
        for _ in 0..length {
            let Some(value) = self.value(depth + 1)? else {
                return Ok(None);
            };
            values.push(value);
        }
        Ok(Some(wrap(values)))
    }

    fn pairs(
        &mut self,
        pairs: u32,
        depth: usize,
    ) -> Result<Option<Vec<(Value, Value)>>, ValueError> {
        let mut values = Vec::new();
        for _ in 0..pairs {
            let Some(key) = self.value(depth + 1)? else {
                return Ok(None);
            };
            let Some(value) = self.value(depth + 1)? else {
                return Ok(None);
            };
            values.push((key, value));
        }
        Ok(Some(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Protocol, Writer};
    use proptest::prelude::*;

    fn decoded(bytes: &[u8]) -> Result<Option<(Value, usize)>, ValueError> {
        Value::decode(
            bytes,
            ValueLimits {
                bulk: 1000,
                depth: 8,
            },
        )
    }

    /// Writes a tree with the server's writer.
    fn write(writer: &mut Writer<'_>, value: &Value) {
        match value {
            Value::Simple(text) => writer.simple(text),
            Value::Error(text) => writer.error(text),
            Value::Integer(value) => writer.integer(*value),
            Value::Bulk(bytes) => writer.bulk(bytes),
            Value::Array(values) => {
                writer.array(values.len());
                values.iter().for_each(|value| write(writer, value));
            }
            Value::Map(pairs) => {
                writer.map(pairs.len());
                for (key, value) in pairs {
                    write(writer, key);
                    write(writer, value);
                }
            }
            Value::Set(values) => {
                writer.set(values.len());
                values.iter().for_each(|value| write(writer, value));
            }
            _ => writer.nil(),
        }
    }

    fn leaf() -> impl Strategy<Value = Value> {
        prop_oneof![
            "[a-zA-Z ]{0,9}".prop_map(Value::Simple),
            "[a-zA-Z ]{0,9}".prop_map(Value::Error),
            any::<i64>().prop_map(Value::Integer),
            proptest::collection::vec(any::<u8>(), 0..20).prop_map(Value::Bulk),
            Just(Value::Nil),
        ]
    }

    fn tree() -> impl Strategy<Value = Value> {
        leaf().prop_recursive(4, 30, 5, |inner| {
            let pair = (inner.clone(), inner.clone());
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
                proptest::collection::vec(inner, 0..5).prop_map(Value::Set),
                proptest::collection::vec(pair, 0..4).prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_the_server_writes_the_client_reads_whole_and_split_at_every_byte(value in tree()) {
            let mut bytes = Vec::new();
            write(&mut Writer::new(&mut bytes, Protocol::Resp3), &value);
            for end in 0..bytes.len() {
                prop_assert_eq!(decoded(&bytes[..end]), Ok(None));
            }
            let length = bytes.len();
            bytes.extend_from_slice(b"+next");
            prop_assert_eq!(decoded(&bytes), Ok(Some((value, length))));
        }

        #[test]
        fn any_bytes_are_decoded_the_same_whole_and_split_at_every_byte(
            bytes in proptest::collection::vec(
                proptest::sample::select(b"*$%~>|+-:_#,(!=\r\n\r\n0123tfa".to_vec()), 0..40),
        ) {
            let split = (0..bytes.len())
                .map(|end| decoded(&bytes[..end]))
                .find(|outcome| *outcome != Ok(None))
                .unwrap_or_else(|| decoded(&bytes));
            // NaN is not equal to itself, and no other value prints alike.
            prop_assert_eq!(format!("{split:?}"), format!("{:?}", decoded(&bytes)));
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let bytes = b"*1\r\n".repeat(100_000);
        assert_eq!(decoded(&bytes), Err(ValueError::TooDeep));
    }

    #[test]
    fn attributes_are_skipped() {
        let found = decoded(b"|1\r\n+k\r\n+v\r\n:3\r\n");
        assert_eq!(found, Ok(Some((Value::Integer(3), 16))));
    }
}
