//! A search's filter: read from its text (RFC 4515), written as BER (RFC 4511,
//! section 4.5.1.7). Nothing here knows what a server makes of it.

use super::ber::{boolean, context, group, octets, sequence};
use super::wire::Numbers;
use crate::login::unescaped_by;
use jostle_sys::spawn::Word;
use lber::structure::StructureTag;

/// Deeper ones are nobody's, and reading them is recursive.
const DEEPEST: usize = 50;

/// The entries that a search asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// All of them (`&`), or one of them (`|`).
    Several { choice: u64, of: Vec<Filter> },
    /// `!`
    Not(Box<Filter>),
    /// `=`, `>=`, `<=`, `~=`
    Compare {
        choice: u64,
        attribute: String,
        value: Word,
    },
    /// `=a*b*c`: the beginning, what comes between, the end.
    Substrings {
        attribute: String,
        pieces: Vec<(u64, Word)>,
    },
    /// `=*`
    Present(String),
    /// `:=`
    Extensible {
        rule: Option<String>,
        attribute: Option<String>,
        value: Word,
        names_too: bool,
    },
}

// The alternatives of Filter in RFC 4511.
const AND: u64 = 0;
const OR: u64 = 1;
const NOT: u64 = 2;
const EQUAL: u64 = 3;
const SUBSTRINGS: u64 = 4;
const AT_LEAST: u64 = 5;
const AT_MOST: u64 = 6;
const PRESENT: u64 = 7;
const ALIKE: u64 = 8;
const EXTENSIBLE: u64 = 9;

// The parts of a SubstringFilter.
const INITIAL: u64 = 0;
const ANY: u64 = 1;
const FINAL: u64 = 2;

impl Filter {
    /// Reads a filter; outer parentheses may be left out, as with ldapsearch.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn parse(text: &str) -> Result<Filter, String> {
        let text = text.trim();
        if !text.starts_with('(') {
            return item(text);
        }
        let (filter, rest) = bracketed(text, DEEPEST)?;
        match rest.trim_start() {
            "" => Ok(filter),
            rest => Err(format!("`{rest}` follows the filter")),
        }
    }

    /// As BER, with the holes filled.
    pub(super) fn encode(&self, numbers: Numbers) -> StructureTag {
        match self {
            Filter::Several { choice, of } => {
                group(*choice, of.iter().map(|one| one.encode(numbers)).collect())
            }
            Filter::Not(filter) => group(NOT, vec![filter.encode(numbers)]),
            Filter::Compare {
                choice,
                attribute,
                value,
            } => group(
                *choice,
                vec![octets(attribute.as_str()), octets(numbers.fill(value))],
            ),
            Filter::Substrings { attribute, pieces } => {
                let pieces = pieces
                    .iter()
                    .map(|(choice, piece)| context(*choice, numbers.fill(piece)));
                group(
                    SUBSTRINGS,
                    vec![octets(attribute.as_str()), sequence(pieces.collect())],
                )
            }
            Filter::Present(attribute) => context(PRESENT, attribute.as_str()),
            Filter::Extensible {
                rule,
                attribute,
                value,
                names_too,
            } => {
                let mut parts = Vec::new();
                parts.extend(rule.iter().map(|rule| context(1, rule.as_str())));
                parts.extend(attribute.iter().map(|name| context(2, name.as_str())));
                parts.push(context(3, numbers.fill(value)));
                if *names_too {
                    let yes = boolean(true);
                    parts.push(StructureTag {
                        class: lber::common::TagClass::Context,
                        id: 4,
                        ..yes
                    });
                }
                group(EXTENSIBLE, parts)
            }
        }
    }
}

/// A filter in parentheses, and what follows it.
fn bracketed(text: &str, deepest: usize) -> Result<(Filter, &str), String> {
    let inner = text
        .strip_prefix('(')
        .ok_or_else(|| format!("`(` should stand before `{text}`"))?;
    if deepest == 0 {
        return Err(format!("it nests more than {DEEPEST} deep"));
    }
    let (filter, rest) = match inner.chars().next() {
        Some('&') => several(AND, &inner[1..], deepest)?,
        Some('|') => several(OR, &inner[1..], deepest)?,
        Some('!') => {
            let (filter, rest) = bracketed(inner[1..].trim_start(), deepest - 1)?;
            (Filter::Not(Box::new(filter)), rest.trim_start())
        }
        _ => {
            let end = inner.find(['(', ')']).unwrap_or(inner.len());
            (item(&inner[..end])?, &inner[end..])
        }
    };
    match rest.strip_prefix(')') {
        Some(rest) => Ok((filter, rest)),
        None => Err(format!("a `)` is missing in `{text}`")),
    }
}

fn several(choice: u64, text: &str, deepest: usize) -> Result<(Filter, &str), String> {
    let mut of = Vec::new();
    let mut rest = text.trim_start();
    while rest.starts_with('(') {
        let (filter, after) = bracketed(rest, deepest - 1)?;
        of.push(filter);
        rest = after.trim_start();
    }
    Ok((Filter::Several { choice, of }, rest))
}

/// Reads the text between innermost parentheses.
fn item(text: &str) -> Result<Filter, String> {
    let wrong = || format!("`{text}` is not ATTRIBUTE=VALUE");
    let at = text.find('=').ok_or_else(wrong)?;
    let (left, value) = (&text[..at], &text[at + 1..]);
    let (choice, attribute) = match left.as_bytes().last() {
        Some(b':') => return extensible(&left[..at - 1], value).ok_or_else(wrong)?,
        Some(b'>') => (AT_LEAST, &left[..at - 1]),
        Some(b'<') => (AT_MOST, &left[..at - 1]),
        Some(b'~') => (ALIKE, &left[..at - 1]),
        _ => (EQUAL, left),
    };
    let attribute = description(attribute).ok_or_else(wrong)?;
    match choice {
        EQUAL if value == "*" => Ok(Filter::Present(attribute)),
        EQUAL if value.contains('*') => Ok(Filter::Substrings {
            attribute,
            pieces: pieces(value)?,
        }),
        _ => Ok(Filter::Compare {
            choice,
            attribute,
            value: template(value)?,
        }),
    }
}

/// `attribute[:dn][:rule]`, with the attribute or the rule left out.
fn extensible(left: &str, value: &str) -> Option<Result<Filter, String>> {
    let mut words = left.split(':');
    let attribute = words.next().filter(|name| !name.is_empty());
    let mut words = words.peekable();
    let names_too = words
        .next_if(|word| word.eq_ignore_ascii_case("dn"))
        .is_some();
    let rule = words.next();
    if words.next().is_some() || (attribute.is_none() && rule.is_none()) {
        return None;
    }
    let described =
        |word: Option<&str>| word.map_or(Some(None), |word| description(word).map(Some));
    let (rule, attribute) = (described(rule)?, described(attribute)?);
    Some(template(value).map(|value| Filter::Extensible {
        rule,
        attribute,
        value,
        names_too,
    }))
}

fn pieces(value: &str) -> Result<Vec<(u64, Word)>, String> {
    let words: Vec<&str> = value.split('*').collect();
    let last = words.len() - 1;
    let choice = |at| match at {
        0 => INITIAL,
        at if at == last => FINAL,
        _ => ANY,
    };
    let words = words.iter();
    let all = words.enumerate().filter(|(_, word)| !word.is_empty());
    all.map(|(at, word)| Ok((choice(at), template(word)?)))
        .collect()
}

/// An attribute's name or number, with options.
fn description(text: &str) -> Option<String> {
    let text = text.trim();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-.;_".contains(&byte);
    (!text.is_empty() && text.bytes().all(fits)).then(|| text.to_owned())
}

fn template(value: &str) -> Result<Word, String> {
    Word::parse(value, unescape)
}

/// `\28` is `(`: a backslash and two hexadecimal digits are a byte.
fn unescape(text: &str) -> Result<Vec<u8>, String> {
    unescaped_by(b'\\', text).ok_or_else(|| {
        format!("in `{text}` a backslash wants two hexadecimal digits, as in \\2a for *")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;

    fn encoded(text: &str) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        lber::write::encode_into(&mut bytes, filter.encode(Numbers { nth: 7, worker: 0 })).unwrap();
        bytes.to_vec()
    }

    /// Tags and lengths by RFC 4511, put together by hand.
    #[test]
    fn filters_become_the_bytes_of_the_standard() {
        let table: [(&str, &[u8]); 10] = [
            ("(uid=u{n})", b"\xa3\x09\x04\x03uid\x04\x02u7"),
            ("uid=u{n}", b"\xa3\x09\x04\x03uid\x04\x02u7"), // as ldapsearch
            ("(uid=*)", b"\x87\x03uid"),
            ("(a>=1)", b"\xa5\x06\x04\x01a\x04\x011"),
            (
                "(&(a=1)(!(b~=2)))",
                b"\xa0\x12\xa3\x06\x04\x01a\x04\x011\xa2\x08\xa8\x06\x04\x01b\x04\x012",
            ),
            ("(&)", b"\xa0\x00"), // always true: RFC 4526
            (
                "(cn=a*b{n}*c)",
                b"\xa4\x10\x04\x02cn\x30\x0a\x80\x01a\x81\x02b7\x82\x01c",
            ),
            ("(cn=*x*)", b"\xa4\x09\x04\x02cn\x30\x03\x81\x01x"),
            (
                r"(cn=\28\2a\29\C3\A4=)",
                b"\xa3\x0c\x04\x02cn\x04\x06(*)\xc3\xa4=",
            ),
            (
                "(o:dn:2.5.13.5:=x)",
                b"\xa9\x13\x81\x082.5.13.5\x82\x01o\x83\x01x\x84\x01\xff",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(encoded(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_filter_is_said() {
        let table = [
            ("", "not ATTRIBUTE=VALUE"),
            ("(uid)", "not ATTRIBUTE=VALUE"),
            ("(=x)", "not ATTRIBUTE=VALUE"),
            ("(a b=x)", "not ATTRIBUTE=VALUE"),
            ("(:=x)", "not ATTRIBUTE=VALUE"),
            ("(uid=1", "`)` is missing"),
            ("(&(a=1)", "`)` is missing"),
            ("(!a=1)", "`(` should stand before"),
            ("(a=1)(b=2)", "`(b=2)` follows"),
            (r"(a=\2)", "two hexadecimal digits"),
        ];
        for (text, part) in table {
            let error = Filter::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let deep = format!("{}(a=1){}", "(!".repeat(60), ")".repeat(60));
        assert!(Filter::parse(&deep).unwrap_err().contains("50 deep"));
    }
}
