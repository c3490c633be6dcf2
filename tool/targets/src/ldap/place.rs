//! The argument behind `ldap:`: where the server is, and what is searched there.
//!
//! `//HOST:PORT/BASE?FILTER`, or all parts of an LDAP URL (RFC 4516):
//! `//HOST:PORT/BASE?ATTRIBUTES?SCOPE?FILTER`.

use super::filter::Filter;
use super::wire::{Scope, Search};
use crate::login::unescaped;
use jostle_sys::spawn::Word;

/// A server and a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// A name or an address, without brackets.
    pub host: String,
    /// The server's port.
    pub port: u16,
    /// The search of every request.
    pub search: Search,
}

impl Place {
    /// Reads it as typed; `usual_port` where none is.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn parse(argument: Option<&str>, usual_port: u16) -> Result<Place, String> {
        const HOW: &str = "write //HOST:PORT/BASE?FILTER, such as \
                           '//127.0.0.1:389/dc=example,dc=org?(uid=user{n})'";
        let text = argument
            .and_then(|text| text.strip_prefix("//"))
            .ok_or_else(|| HOW.to_owned())?;
        let end = text.find(['/', '?']).unwrap_or(text.len());
        let (host, port) = host_and_port(&text[..end], usual_port).ok_or_else(|| HOW.to_owned())?;
        let rest = text[end..].strip_prefix('/').unwrap_or(&text[end..]);
        let (base, rest) = rest.split_once('?').unwrap_or((rest, ""));
        let search = search(base, rest)?;
        Ok(Place { host, port, search })
    }
}

fn host_and_port(text: &str, usual: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(text) => text.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port != 0)?,
        None if port.is_empty() => usual,
        None => return None,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// From the base, and what follows its question mark.
fn search(base: &str, rest: &str) -> Result<Search, String> {
    let words: Vec<&str> = rest.split('?').collect();
    let (attributes, scope, filter) = match words[..] {
        [filter] if filter.contains('=') => ("", "", filter),
        [attributes] => (attributes, "", ""),
        [attributes, scope] => (attributes, scope, ""),
        [attributes, scope, filter] => (attributes, scope, filter),
        _ => return Err("too many question marks; write %3f for one in a filter".to_owned()),
    };
    let scope = match scope {
        "" | "sub" => Scope::Subtree,
        "one" => Scope::OneLevel,
        "base" => Scope::Base,
        other => return Err(format!("there is no scope `{other}`; base, one or sub")),
    };
    let filter = match filter {
        "" => "(objectClass=*)".to_owned(),
        text => decoded(text)?,
    };
    let names = attributes.split(',').filter(|name| !name.is_empty());
    Ok(Search {
        base: Word::from_text(&decoded(base)?),
        scope,
        attributes: names.map(decoded).collect::<Result<_, _>>()?,
        filter: Filter::parse(&filter)?,
    })
}

/// `%20` is a space.
fn decoded(text: &str) -> Result<String, String> {
    unescaped(text).ok_or_else(|| {
        format!(
            "in `{text}` a % wants two hexadecimal digits, as in %25 for %, and the bytes are UTF-8"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Result<Place, String> {
        Place::parse(Some(text), 389)
    }

    #[test]
    fn places_are_read_as_typed() {
        let search = |scope, attributes: &[&str], filter| Search {
            base: Word::from_text("dc=a b"),
            scope,
            attributes: attributes.iter().map(|name| (*name).to_owned()).collect(),
            filter: Filter::parse(filter).unwrap(),
        };
        let all = "(objectClass=*)";
        let table = [
            (
                "//h:1/dc=a%20b?(a=1)",
                ("h", 1),
                search(Scope::Subtree, &[], "(a=1)"),
            ),
            ("//h/dc=a b", ("h", 389), search(Scope::Subtree, &[], all)),
            (
                "//[::1]:9/dc=a b?cn,sn",
                ("::1", 9),
                search(Scope::Subtree, &["cn", "sn"], all),
            ),
            (
                "//h/dc=a b?cn?one?(a=1)",
                ("h", 389),
                search(Scope::OneLevel, &["cn"], "(a=1)"),
            ),
            (
                "//h/dc=a b??base?a=%3f",
                ("h", 389),
                search(Scope::Base, &[], "(a=?)"),
            ),
        ];
        for (text, (host, port), search) in table {
            let found = place(text).unwrap();
            assert_eq!((found.host.as_str(), found.port), (host, port), "{text}");
            assert_eq!(found.search, search, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let table = [
            ("h:1/dc=a", "write //HOST:PORT/BASE?FILTER"),
            ("//", "write //HOST:PORT/BASE?FILTER"),
            ("//:389/dc=a", "write //HOST:PORT/BASE?FILTER"),
            ("//h:x/dc=a", "write //HOST:PORT/BASE?FILTER"),
            ("//h:0/dc=a", "write //HOST:PORT/BASE?FILTER"),
            ("//h/dc=a?cn?all", "no scope `all`"),
            ("//h/dc=a?(a=1", "`)` is missing"),
            ("//h/dc=a?cn?one?(a=1)?x", "too many question marks"),
            ("//h/dc=%2", "two hexadecimal digits"),
        ];
        for (text, part) in table {
            let error = place(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Place::parse(None, 389).is_err());
    }
}
