//! LDAP version 3 as bytes, without a socket (RFC 4511): the requests for bind,
//! search and unbind, and what comes back to them.

use super::ber::{boolean, constructed, context, enumerated, integer, octets, primitive, sequence};
use super::filter::Filter;
use bytes::BytesMut;
use jostle_sys::spawn::Word;
use lber::common::TagClass;
use lber::structure::StructureTag;
use std::ops::Range;

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

/// The first byte of every message.
const SEQUENCE_BYTE: u8 = 0x30;
const INTEGER_BYTE: u8 = 0x02;
const OCTETS_BYTE: u8 = 0x04;
const ENUMERATED_BYTE: u8 = 0x0a;
/// Bits of an operation's tag: the class APPLICATION, and that it has parts.
const APPLICATION: u8 = 0x60;

/// A message that is longer is not waited for.
pub(super) const LONGEST: usize = 64 << 20;

/// How deep below the base a search looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The base alone.
    Base = 0,
    /// Its children.
    OneLevel = 1,
    /// It, and everything below.
    Subtree = 2,
}

/// A search request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Search {
    /// Where.
    pub base: Word,
    /// How deep.
    pub scope: Scope,
    /// The attributes of each entry; empty: everything that users may have put there.
    pub attributes: Vec<String>,
    /// The condition for entries.
    pub filter: Filter,
}

/// The numbers that fill the places in the text of a search.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    /// For `{n}`.
    pub nth: u64,
    /// For `{worker}`.
    pub worker: u64,
}

impl Numbers {
    /// The bytes of this text.
    pub(super) fn fill(self, text: &Word) -> Vec<u8> {
        let mut filled = Vec::with_capacity(32);
        text.write(&mut filled, self.nth, self.worker);
        filled
    }
}

/// A message from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// One that a search found, and where it stands in the input.
    Entry(Range<usize>),
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
pub(super) struct Outcome {
    /// The result code; 0 is success.
    pub code: u32,
    /// The server's comment, if any.
    pub said: String,
}

/// Bytes that are not LDAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

fn message(id: u32, operation: StructureTag, out: &mut BytesMut) {
    let whole = sequence(vec![integer(id.into()), operation]);
    // Writing to memory does not fail.
    let _ = lber::write::encode_into(out, whole);
}

/// Appends a simple bind; anonymous where name and password are empty.
pub(super) fn bind(id: u32, name: &str, password: &[u8], out: &mut BytesMut) {
    let parts = vec![integer(3), octets(name), context(0, password)];
    message(id, constructed(TagClass::Application, BIND, parts), out);
}

/// Appends the request that ends a connection, to which nothing is answered.
pub(super) fn unbind(id: u32, out: &mut BytesMut) {
    message(
        id,
        primitive(TagClass::Application, UNBIND, Vec::new()),
        out,
    );
}

impl Search {
    /// Appends the request.
    pub(super) fn encode(&self, id: u32, numbers: Numbers, out: &mut BytesMut) {
        const NEVER_FOLLOW_ALIASES: i64 = 0;
        const NO_LIMIT: i64 = 0;
        let names = self.attributes.iter().map(|name| octets(name.as_str()));
        let parts = vec![
            octets(numbers.fill(&self.base)),
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

/// An element of BER: its tag, its content, and what follows it.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Element<'a> {
    /// The element that `input` begins with; None while it is not whole. Lengths
    /// are definite, in LDAP (RFC 4511, section 5.1), and tags are below 31.
    fn read(input: &'a [u8]) -> Result<Option<Element<'a>>, Malformed> {
        let [tag, first, after @ ..] = input else {
            return Ok(None);
        };
        let (length, after) = match *first {
            short @ 0..0x80 => (usize::from(short), after),
            long => {
                let Some((digits, after)) = after.split_at_checked(usize::from(long & 0x7f)) else {
                    return Ok(None);
                };
                if digits.is_empty() || digits.len() > size_of::<usize>() {
                    return Err(Malformed);
                }
                let add = |sum, digit: &u8| sum << 8 | usize::from(*digit);
                (digits.iter().fold(0, add), after)
            }
        };
        if length > LONGEST {
            return Err(Malformed);
        }
        let whole = after.split_at_checked(length);
        Ok(whole.map(|(content, rest)| Element {
            tag: *tag,
            content,
            rest,
        }))
    }

    /// One that has to be whole, and of this kind.
    fn within(input: &'a [u8], tag: u8) -> Result<Element<'a>, Malformed> {
        let element = Element::read(input)?.ok_or(Malformed)?;
        if element.tag == tag {
            Ok(element)
        } else {
            Err(Malformed)
        }
    }
}

/// The message that `input` begins with, its number and its length; None while it is not
/// whole. It only examines how a request ended, because it runs between two requests.
/// [`entry`] reads an entry's values.
///
/// # Errors
/// Where it is none.
pub(super) fn decode(input: &[u8]) -> Result<Option<(u32, Message, usize)>, Malformed> {
    match input.first() {
        None => return Ok(None),
        // Otherwise the text of another protocol would be taken for the start of a long
        // message.
        Some(first) if *first != SEQUENCE_BYTE => return Err(Malformed),
        Some(_) => {}
    }
    let Some(whole) = Element::read(input)? else {
        return Ok(None);
    };
    let length = input.len() - whole.rest.len();
    let number = Element::within(whole.content, INTEGER_BYTE)?;
    let id = unsigned(number.content).ok_or(Malformed)?;
    let operation = Element::read(number.rest)?.ok_or(Malformed)?;
    let at = length - number.rest.len();
    let message = match u64::from(operation.tag ^ APPLICATION) {
        ENTRY => Message::Entry(at..length - operation.rest.len()),
        DONE => Message::Done(outcome(operation.content)?),
        BOUND => Message::Bound(outcome(operation.content)?),
        EXTENDED => Message::Notice(outcome(operation.content)?),
        REFERENCE | INTERMEDIATE => Message::Aside,
        _ => return Err(Malformed),
    };
    Ok(Some((id, message, length)))
}

/// A number that cannot be negative.
fn unsigned(digits: &[u8]) -> Option<u32> {
    let fits = (1..=4).contains(&digits.len()) && digits[0] < 0x80;
    fits.then(|| {
        digits
            .iter()
            .fold(0, |sum, digit| sum << 8 | u32::from(*digit))
    })
}

/// LDAPResult: code, name as far as it matched, diagnostic message.
fn outcome(content: &[u8]) -> Result<Outcome, Malformed> {
    let code = Element::within(content, ENUMERATED_BYTE)?;
    let matched = Element::within(code.rest, OCTETS_BYTE)?;
    let said = Element::within(matched.rest, OCTETS_BYTE)?;
    Ok(Outcome {
        code: unsigned(code.content).ok_or(Malformed)?,
        said: String::from_utf8_lossy(said.content).into_owned(),
    })
}

/// The name of an entry as it came, and the first value of its attribute, if it has it.
pub(super) fn entry<'a>(input: &'a [u8], attribute: &str) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    let name = Element::within(Element::read(input).ok()??.content, OCTETS_BYTE).ok()?;
    let mut rest = Element::within(name.rest, SEQUENCE_BYTE).ok()?.content;
    while let Ok(Some(next)) = Element::read(rest) {
        rest = next.rest;
        let own = Element::within(next.content, OCTETS_BYTE).ok()?;
        if own.content.eq_ignore_ascii_case(attribute.as_bytes()) {
            let values = Element::read(own.rest).ok()??;
            let first = Element::within(values.content, OCTETS_BYTE).ok()?;
            return Some((name.content, Some(first.content)));
        }
    }
    Some((name.content, None))
}

/// Result codes as RFC 4511 and its registry name them.
pub(super) fn code_name(code: u32) -> Option<&'static str> {
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
                        base: Word::from_text("o=x"),
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

    #[test]
    fn holes_are_filled_and_other_braces_stay() {
        for (text, expected) in [
            ("user{n}", "user17"),
            ("{worker}-{n}-{worker}", "3-17-3"),
            ("{m}{", "{m}{"),
            ("", ""),
        ] {
            let numbers = Numbers { nth: 17, worker: 3 };
            assert_eq!(
                numbers.fill(&Word::from_text(text)),
                expected.as_bytes(),
                "{text}"
            );
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
        let Message::Entry(place) = message else {
            panic!("{message:?}");
        };
        let entry = |attribute| entry(&input[place.clone()], attribute).unwrap();
        assert_eq!(entry("b"), (&b"o=x"[..], Some(&b""[..])));
        assert_eq!(entry("c"), (&b"o=x"[..], None));
    }

    #[test]
    fn what_is_not_ldap_is_refused() {
        let table: [&[u8]; 8] = [
            b"HTTP/1.1 400 Bad Request\r\n",
            b"\x02\x01\x05",                                 // a number alone
            b"\x30\x05\x02\x01\x02\x42\x00",                 // an unbind is no answer
            b"\x30\x07\x02\x01\x02\x65\x02\x0a\x00",         // a result without its parts
            b"\x30\x07\x02\x01\x02\x65\x09\x0a\x00",         // a part longer than the whole
            b"\x30\x80\x02\x01\x02\x65\x00\x00\x00",         // an indefinite length
            b"\x30\x84\x7f\xff\xff\xff",                     // longer than anybody waits for
            b"\x30\x89\x01\x01\x01\x01\x01\x01\x01\x01\x01", // longer than memory
        ];
        for input in table {
            assert_eq!(decode(input), Err(Malformed), "{input:?}");
        }
    }
}
