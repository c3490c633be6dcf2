//! Keys and their values: text that `etcdctl get --prefix` shows.
//!
//! - `head`: who is the primary, and the link that each write replaces;
//! - `h/TOKEN`: a hold; `s/ID`: a session;
//! - `m/MEMBER`: a jostled that runs, outside of all transactions.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::Over;
use crate::store::{Entry, Hold, Owner, Session, Stored};
use crate::table::{Mode, Time};

/// The version of these texts.
const FORMAT: u32 = 1;

/// The keys of a cluster of this name.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: String,
}

/// The value of the key `head`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Random bits that name the cluster.
    pub cluster: String,
    /// The version of the texts.
    pub format: u32,
    /// How often the primary has changed.
    pub epoch: u64,
    /// Random bits that name the run of the primary; empty: there is none.
    pub incarnation: String,
    /// Counts the writes.
    pub sequence: u64,
    /// A hash of the last batch.
    pub batch: String,
    /// Tokens below this may have been given out.
    pub tokens: u64,
    /// How long a connection's hold outlives its primary, in milliseconds.
    pub orphan_ms: u64,
    /// Holds were discarded, which may be relied on: a primary grants nothing for this time,
    /// and sets it to 0 then.
    pub loading_ms: u64,
    /// Where clients reach the primary.
    pub addresses: Vec<String>,
    /// The primary's version.
    pub version: String,
    /// A digest of its settings and users.
    pub digest: String,
}

/// The value of a key `m/MEMBER`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its version.
    pub version: String,
    /// Its addresses for clients.
    pub addresses: Vec<String>,
    /// A digest of its settings and users.
    pub digest: String,
    /// Another number each time that it writes this.
    pub beat: u64,
}

/// The value of a key `h/TOKEN`.
#[derive(Default, Serialize, Deserialize)]
struct HoldText {
    name: String,
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<u16>,
    user: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<u64>,
}

/// The value of a key `s/ID`.
#[derive(Serialize, Deserialize)]
struct SessionText {
    user: String,
    ttl_ms: u64,
    text: String,
}

/// A key without its prefix, and its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Head,
    Entry(Entry),
    Other,
}

/// Any bytes as printable ASCII, those that are not by their numbers.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'%' | b'"' | b'\\' | 0..0x20 | 0x7f.. => {
                text.push('%');
                text.push_str(&format!("{byte:02X}"));
            }
            _ => text.push(char::from(*byte)),
        }
    }
    text
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = rest.find('%') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let number = u8::from_str_radix(rest.get(at + 1..at + 3)?, 16);
        bytes.push(number.ok()?);
        rest = &rest[at + 3..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

fn text(value: &impl Serialize) -> Vec<u8> {
    // Maps and strings alone: that cannot fail.
    serde_json::to_vec(value).unwrap_or_default()
}

impl Head {
    /// The head of a cluster that nobody has served.
    pub(super) fn first(cluster: &str, tokens: u64) -> Self {
        Self {
            cluster: cluster.to_owned(),
            format: FORMAT,
            sequence: 1,
            tokens,
            ..Self::default()
        }
    }

    /// Its value.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        text(self)
    }

    /// Reads a value.
    ///
    /// # Errors
    /// It is not one of this version.
    pub fn read(value: &[u8]) -> Result<Self, Over> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let bad = |error: serde_json::Error| Over::Unsound(format!("the head: {error}"));
        let Format { format } = serde_json::from_slice(value).map_err(bad)?;
        if format != FORMAT {
            let text = format!("the head has format {format}, and this jostled knows {FORMAT}");
            return Err(Over::Unsound(text));
        }
        serde_json::from_slice(value).map_err(bad)
    }
}

impl Member {
    /// Its value.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        text(self)
    }
}

impl Keys {
    /// Those below `/jostled/NAME/`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let prefix = format!("/jostled/{name}/");
        Self { prefix }
    }

    fn key(&self, end: &str) -> Vec<u8> {
        format!("{}{end}", self.prefix).into_bytes()
    }

    /// The first of all keys, and the first that is none of them.
    pub(super) fn all(&self) -> (Vec<u8>, Vec<u8>) {
        // A prefix ends with a slash, which 0 follows.
        (
            self.key(""),
            [self.prefix.trim_end_matches('/'), "0"].concat().into(),
        )
    }

    /// The key `head`.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        self.key("head")
    }

    /// A key that never exists.
    pub(super) fn none(&self) -> Vec<u8> {
        self.key("none")
    }

    /// The key of a hold.
    pub(super) fn hold(&self, token: u64) -> Vec<u8> {
        self.key(&format!("h/{token:019}"))
    }

    /// The key of a session.
    pub(super) fn session(&self, id: u128) -> Vec<u8> {
        self.key(&format!("s/{id:032x}"))
    }

    /// The ranges of holds and of sessions.
    pub(super) fn content(&self) -> [(Vec<u8>, Option<Vec<u8>>); 2] {
        ["h", "s"].map(|kind| {
            let key = |end: char| self.key(&format!("{kind}{end}"));
            (key('/'), Some(key('0')))
        })
    }

    /// The key of a member.
    #[must_use]
    pub fn member(&self, name: &str) -> Vec<u8> {
        self.key(&format!("m/{name}"))
    }

    /// The range of all members.
    #[must_use]
    pub fn members(&self) -> (Vec<u8>, Vec<u8>) {
        (self.key("m/"), self.key("m0"))
    }

    /// Reads a key and its value.
    pub(super) fn read(&self, key: &[u8], value: &[u8]) -> Result<Found, Over> {
        let shown = || String::from_utf8_lossy(key).into_owned();
        let bad = || Over::Unsound(format!("{} has no value that makes sense", shown()));
        let end = key.strip_prefix(self.prefix.as_bytes()).ok_or_else(bad)?;
        let end = std::str::from_utf8(end).map_err(|_| bad())?;
        if end == "head" {
            return Ok(Found::Head);
        }
        let entry = match end.split_at_checked(2) {
            Some(("h/", token)) => begun(token, value),
            Some(("s/", id)) => opened(id, value),
            _ => return Ok(Found::Other),
        };
        entry.map(Found::Entry).ok_or_else(bad)
    }
}

fn opened(id: &str, value: &[u8]) -> Option<Entry> {
    let id = u128::from_str_radix(id, 16).ok()?;
    let SessionText { user, ttl_ms, text } = serde_json::from_slice(value).ok()?;
    Some(Entry::Opened(Session { user, id }, ttl_ms, text))
}

fn begun(token: &str, value: &[u8]) -> Option<Entry> {
    let found: HoldText = serde_json::from_slice(value).ok()?;
    let mode = match (found.mode.as_str(), found.of) {
        ("exclusive", None) => Mode::Exclusive,
        ("shared", None) => Mode::Shared,
        ("place", Some(of)) => Mode::Place { of },
        _ => return None,
    };
    let user = found.user;
    let owner = match (found.lease_ms, found.session, found.connection) {
        (Some(ttl_ms), None, None) => Owner::Lease { ttl_ms, user },
        (None, Some(id), None) => {
            let id = u128::from_str_radix(&id, 16).ok()?;
            Owner::Session(Session { user, id })
        }
        (None, None, Some(number)) => Owner::Connection { number, user },
        _ => return None,
    };
    let name = unescaped(&found.name)?;
    Some(Entry::Begun(
        token.parse().ok()?,
        Hold { name, mode, owner },
    ))
}

/// The value of a hold.
pub(super) fn hold_text(hold: &Hold) -> Vec<u8> {
    let mut found = HoldText {
        name: escaped(&hold.name),
        mode: hold.mode.word().to_owned(),
        user: hold.owner.user().to_owned(),
        ..HoldText::default()
    };
    if let Mode::Place { of } = hold.mode {
        found.of = Some(of);
    }
    match &hold.owner {
        Owner::Lease { ttl_ms, .. } => found.lease_ms = Some(*ttl_ms),
        Owner::Session(session) => found.session = Some(format!("{:032x}", session.id)),
        Owner::Connection { number, .. } => found.connection = Some(*number),
    }
    text(&found)
}

/// The value of a session.
pub(super) fn session_text(stored: &Stored, session: &Session) -> Vec<u8> {
    let (ttl_ms, about) = stored.sessions.get(session).cloned().unwrap_or_default();
    text(&SessionText {
        user: session.user.clone(),
        ttl_ms,
        text: about,
    })
}

/// The members that run, as one of them sees it.
#[derive(Debug, Default)]
pub struct Members {
    /// The last value of each, by name, and when it was another one before that.
    seen: HashMap<String, (Member, Option<Time>)>,
}

impl Members {
    /// A member that has written nothing new for this time is gone, in milliseconds.
    const GONE_MS: u64 = 15_000;

    /// Takes the pairs of [`Keys::members`]. The first value of a member may be an old one:
    /// a member runs once its value changes.
    pub fn note(&mut self, keys: &Keys, pairs: &[(Vec<u8>, Vec<u8>)], now: Time) {
        for (key, value) in pairs {
            let name = key.strip_prefix(keys.members().0.as_slice());
            let name = name.and_then(|name| std::str::from_utf8(name).ok());
            let member = serde_json::from_slice::<Member>(value).ok();
            let (Some(name), Some(member)) = (name, member) else {
                continue;
            };
            let before = self.seen.get(name);
            let changed = match before {
                Some((known, at)) if *known == member => *at,
                _ => before.map(|_| now),
            };
            self.seen.insert(name.to_owned(), (member, changed));
        }
    }

    /// Those that run, by name, without the one of this name.
    pub fn others(&self, own: &str, now: Time) -> impl Iterator<Item = (&str, &Member)> {
        let runs = move |at: Option<Time>| at.is_some_and(|at| at.ms_until(now) < Self::GONE_MS);
        let all = self.seen.iter();
        all.filter(move |(name, (_, at))| *name != own && runs(*at))
            .map(|(name, (member, _))| (name.as_str(), member))
    }
}
