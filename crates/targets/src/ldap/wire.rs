//! LDAP version 3 as bytes, without a socket (RFC 4511): the requests for bind,
//! search and unbind, and what comes back to them.

use super::ber::{
    boolean, bytes, constructed, context, enumerated, integer, number, octets, parts, primitive,
    sequence,
};
use super::filter::Filter;
use super::template::{Numbers, Template};
use bytes::BytesMut;
use lber::common::TagClass;
use lber::structure::StructureTag;

// The operations' tags.
const BIND: u64 = 0;
const BOUND: u64 = 1;
const UNBIND: u64 = 2;
const SEARCH: u64 = 3;
const ENTRY: u64 = 4;
const DONE: u64 = 5;
const REFERENCE: u64 = 19;
const EXTENDED: u64 = 24;
const INTERMEDIATE: u64 = 25;

/// What every message begins with.
const SEQUENCE_BYTE: u8 = 0x30;

/// A message that is longer is not waited for.
pub const LONGEST: usize = 64 << 20;

/// How deep below the base a search looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The base alone.
    Base = 0,
    /// Its children.
    OneLevel = 1,
    /// It, and everything below.
    Subtree = 2,
}

/// What a search asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// Where.
    pub base: Template,
    /// How deep.
    pub scope: Scope,
    /// What of each entry; empty: everything that users may have put there.
    pub attributes: Vec<String>,
    /// Which entries.
    pub filter: Filter,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// One that a search found.
    Entry(StructureTag),
    /// Another server may have more; or a word in between.
    Aside,
    /// The search is over.
    Done(Outcome),
    /// The answer to a bind.
    Bound(Outcome),
    /// The server ends the connection.
    Notice(Outcome),
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The result code; 0 is success.
    pub code: u32,
    /// What the server says about it, if anything.
    pub said: String,
}

/// What came is not LDAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

fn message(id: u32, operation: StructureTag, out: &mut BytesMut) {
    let whole = sequence(vec![integer(id.into()), operation]);
    // Writing to memory does not fail.
    let _ = lber::write::encode_into(out, whole);
}

/// Appends a simple bind; anonymous where name and password are empty.
pub fn bind(id: u32, name: &str, password: &[u8], out: &mut BytesMut) {
    let parts = vec![integer(3), octets(name), context(0, password)];
    message(id, constructed(TagClass::Application, BIND, parts), out);
}

/// Appends the request that ends a connection, to which nothing is answered.
pub fn unbind(id: u32, out: &mut BytesMut) {
    message(
        id,
        primitive(TagClass::Application, UNBIND, Vec::new()),
        out,
    );
}

impl Search {
    /// Appends the request.
    pub fn encode(&self, id: u32, numbers: Numbers, out: &mut BytesMut) {
        const NEVER_FOLLOW_ALIASES: i64 = 0;
        const NO_LIMIT: i64 = 0;
        let names = self.attributes.iter().map(|name| octets(name.as_str()));
        let parts = vec![
            octets(self.base.fill(numbers)),
            enumerated(self.scope as i64),
            enumerated(NEVER_FOLLOW_ALIASES),
            integer(NO_LIMIT),
            integer(NO_LIMIT),
            boolean(false),
            self.filter.encode(numbers),
            sequence(names.collect()),
        ];
        message(id, constructed(TagClass::Application, SEARCH, parts), out);
    }
}

/// The message that `input` begins with, its number and its length; None while
/// it is not whole.
///
/// # Errors
/// Where it is none.
pub fn decode(input: &[u8]) -> Result<Option<(u32, Message, usize)>, Malformed> {
    match input.first() {
        None => return Ok(None),
        // Another protocol's text would be waited for as if it were long.
        Some(first) if *first != SEQUENCE_BYTE => return Err(Malformed),
        Some(_) => {}
    }
    let (rest, whole) = match lber::parse::parse_tag(input) {
        Ok(parsed) => parsed,
        Err(nom) if nom.is_incomplete() && input.len() < LONGEST => return Ok(None),
        Err(_) => return Err(Malformed),
    };
    let (id, message) = read(whole).ok_or(Malformed)?;
    Ok(Some((id, message, input.len() - rest.len())))
}

fn read(whole: StructureTag) -> Option<(u32, Message)> {
    let mut parts = whole.expect_constructed()?.into_iter();
    let id = number(&parts.next()?)?.try_into().ok()?;
    let operation = parts.next()?.match_class(TagClass::Application)?;
    let message = match operation.id {
        ENTRY => Message::Entry(operation),
        REFERENCE | INTERMEDIATE => Message::Aside,
        DONE => Message::Done(outcome(&operation)?),
        BOUND => Message::Bound(outcome(&operation)?),
        EXTENDED => Message::Notice(outcome(&operation)?),
        _ => return None,
    };
    Some((id, message))
}

/// LDAPResult: code, name as far as it matched, diagnostic message.
fn outcome(operation: &StructureTag) -> Option<Outcome> {
    let [code, _, said, ..] = parts(operation)? else {
        return None;
    };
    Some(Outcome {
        code: number(code)?.try_into().ok()?,
        said: String::from_utf8_lossy(bytes(said)?).into_owned(),
    })
}

/// The first value of an entry's attribute, if it has it.
pub fn value<'a>(entry: &'a StructureTag, attribute: &str) -> Option<&'a [u8]> {
    let [_, attributes] = parts(entry)? else {
        return None;
    };
    let all = parts(attributes)?.iter().filter_map(parts);
    let values = all
        .filter_map(|attribute| <&[StructureTag; 2]>::try_from(attribute).ok())
        .find(|[name, _]| {
            bytes(name).is_some_and(|name| name.eq_ignore_ascii_case(attribute.as_bytes()))
        });
    bytes(parts(&values?[1])?.first()?)
}

/// An entry's name.
pub fn name(entry: &StructureTag) -> Option<&[u8]> {
    bytes(parts(entry)?.first()?)
}

/// Result codes as RFC 4511 and its registry name them.
pub fn code_name(code: u32) -> Option<&'static str> {
    Some(match code {
        0 => "success",
        1 => "operationsError",
        2 => "protocolError",
        3 => "timeLimitExceeded",
        4 => "sizeLimitExceeded",
        7 => "authMethodNotSupported",
        8 => "strongerAuthRequired",
        10 => "referral",
        11 => "adminLimitExceeded",
        12 => "unavailableCriticalExtension",
        13 => "confidentialityRequired",
        16 => "noSuchAttribute",
        17 => "undefinedAttributeType",
        18 => "inappropriateMatching",
        19 => "constraintViolation",
        21 => "invalidAttributeSyntax",
        32 => "noSuchObject",
        33 => "aliasProblem",
        34 => "invalidDNSyntax",
        36 => "aliasDereferencingProblem",
        48 => "inappropriateAuthentication",
        49 => "invalidCredentials",
        50 => "insufficientAccessRights",
        51 => "busy",
        52 => "unavailable",
        53 => "unwillingToPerform",
        54 => "loopDetect",
        80 => "other",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
        let mut out = BytesMut::new();
        write(&mut out);
        out.to_vec()
    }

    /// By RFC 4511, put together by hand.
    #[test]
    fn requests_are_the_bytes_of_the_standard() {
        let table: [(Vec<u8>, &[u8]); 3] = [
            (
                written(|out| bind(1, "cn=a", b"pw", out)),
                b"\x30\x12\x02\x01\x01\x60\x0d\x02\x01\x03\x04\x04cn=a\x80\x02pw",
            ),
            (
                written(|out| unbind(3, out)),
                b"\x30\x05\x02\x01\x03\x42\x00",
            ),
            (
                written(|out| {
                    let search = Search {
                        base: Template::parse("o=x", |piece| Ok(piece.into())).unwrap(),
                        scope: Scope::OneLevel,
                        attributes: vec!["cn".to_owned()],
                        filter: Filter::Present("cn".to_owned()),
                    };
                    search.encode(2, Numbers::default(), out);
                }),
                b"\x30\x23\x02\x01\x02\x63\x1e\x04\x03o=x\x0a\x01\x01\x0a\x01\x00\x02\x01\x00\
                  \x02\x01\x00\x01\x01\x00\x87\x02cn\x30\x04\x04\x02cn",
            ),
        ];
        for (found, expected) in table {
            assert_eq!(found, expected);
        }
    }

    const DONE_BYTES: &[u8] = b"\x30\x0f\x02\x01\x02\x65\x0a\x0a\x01\x20\x04\x00\x04\x03why";

    #[test]
    fn answers_are_read_when_they_are_whole() {
        let done = Outcome {
            code: 32,
            said: "why".to_owned(),
        };
        for short in 0..DONE_BYTES.len() {
            assert_eq!(decode(&DONE_BYTES[..short]), Ok(None), "{short} bytes");
        }
        let more = [DONE_BYTES, b"\x30"].concat();
        assert_eq!(
            decode(&more),
            Ok(Some((2, Message::Done(done), DONE_BYTES.len())))
        );
        // Lengths may be longer than they must be: some servers always write four bytes.
        let long = b"\x30\x84\0\0\0\x10\x02\x01\x02\x65\x84\0\0\0\x07\x0a\x01\x00\x04\x00\x04\x00";
        let (_, message, length) = decode(long).unwrap().unwrap();
        assert_eq!(length, long.len());
        assert!(matches!(message, Message::Done(Outcome { code: 0, .. })));
    }

    #[test]
    fn values_of_an_entry_are_found_by_name() {
        let input =
            b"\x30\x1e\x02\x01\x02\x64\x19\x04\x03o=x\x30\x12\x30\x07\x04\x01a\x31\x02\x04\x00\
                      \x30\x07\x04\x01B\x31\x02\x04\x00";
        let (_, message, _) = decode(input).unwrap().unwrap();
        let Message::Entry(entry) = message else {
            panic!("{message:?}");
        };
        assert_eq!(name(&entry), Some(&b"o=x"[..]));
        assert_eq!(value(&entry, "b"), Some(&b""[..]));
        assert_eq!(value(&entry, "c"), None);
    }

    #[test]
    fn what_is_not_ldap_is_refused() {
        let table: [&[u8]; 4] = [
            b"HTTP/1.1 400 Bad Request\r\n",
            b"\x02\x01\x05",                         // a number alone
            b"\x30\x05\x02\x01\x02\x42\x00",         // an unbind is no answer
            b"\x30\x07\x02\x01\x02\x65\x02\x0a\x00", // a result without its parts
        ];
        for input in table {
            assert_eq!(decode(input), Err(Malformed), "{input:?}");
        }
    }
}
