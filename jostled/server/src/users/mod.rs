//! Users: their rights to locks and to administration, and their quotas.
//!
//! A pure list, made from the settings and the users file. What a command needs
//! is decided beside the commands; files are read by the configuration.

mod parse;

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::glob::{Beginning, Pattern};

/// The user of clients that name none.
pub(crate) const DEFAULT: &str = "default";

/// Bounds of what one user has at the same time; `None`: no rule of its own. Then its share
/// applies, if the daemon has several users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Locks held, and places in line for them.
    pub locks: Option<u32>,
    /// Places in line.
    pub waiters: Option<u32>,
    /// Sessions.
    pub sessions: Option<u32>,
    /// Seconds of a lease or a session, which are the longest TTL that it may ask for.
    pub ttl_s: Option<u32>,
    /// Connections.
    pub connections: Option<u32>,
}

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name in AUTH.
    pub name: String,
    /// Whether the user may log in and do anything at all.
    pub on: bool,
    /// Whether any password is accepted.
    pub nopass: bool,
    /// SHA-256 of each of its passwords.
    hashes: Vec<[u8; 32]>,
    /// The patterns of the names that it may use.
    patterns: Vec<Pattern>,
    /// Whether it may take and release locks.
    pub lock: bool,
    /// Whether it may use the commands of administrators.
    pub admin: bool,
    /// The bounds of what it has.
    pub quota: Quota,
}

impl User {
    /// A default user with all rights, with this password or without any.
    fn all_powerful(password: Option<&str>) -> Self {
        Self {
            name: DEFAULT.to_owned(),
            on: true,
            nopass: password.is_none(),
            hashes: password.iter().map(|text| hash(text.as_bytes())).collect(),
            patterns: vec![Pattern::new(b"*")],
            lock: true,
            admin: true,
            quota: Quota::default(),
        }
    }

    /// A user that is no longer listed, without rights.
    pub(crate) fn gone(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Whether it may do everything, so that its commands need no check.
    #[must_use]
    pub(crate) fn is_all_powerful(&self) -> bool {
        self.on && self.lock && self.admin && self.sees_all()
    }

    /// Whether all names match its patterns.
    #[must_use]
    pub fn sees_all(&self) -> bool {
        self.patterns.iter().any(|pattern| pattern.text() == b"*")
    }

    /// The beginning of names that its first pattern allows, if it is short enough for
    /// a quick check.
    pub(crate) fn beginning(&self) -> Option<Beginning> {
        self.patterns.first().and_then(Pattern::beginning)
    }

    /// Whether it may use a lock of this name.
    #[must_use]
    pub(crate) fn may_use(&self, name: &[u8]) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(name))
    }

    /// Whether it can log in with this password. Takes as long for a wrong one as
    /// for a right one.
    fn accepts(&self, given: &[u8]) -> bool {
        let given = hash(given);
        let same = |right: subtle::Choice, known: &[u8; 32]| right | known.ct_eq(&given);
        let right: bool = self.hashes.iter().fold(0.into(), same).into();
        self.on && (self.nopass || right)
    }
}

fn hash(password: &[u8]) -> [u8; 32] {
    Sha256::digest(password).into()
}

/// All users.
#[derive(Clone, Debug)]
pub struct Users {
    list: Vec<Arc<User>>,
    /// The place of each name in the list.
    places: HashMap<String, usize>,
}

impl Users {
    /// The default user alone, who may do everything.
    #[must_use]
    pub fn single(password: Option<&str>) -> Self {
        Self::from_list(vec![User::all_powerful(password)])
    }

    fn from_list(list: Vec<User>) -> Self {
        let names = list.iter().map(|user| user.name.clone());
        Self {
            places: names.zip(0..).collect(),
            list: list.into_iter().map(Arc::new).collect(),
        }
    }

    /// The users of a file. If it does not name the default user, that one may do
    /// everything with the password of the settings, or nothing without one.
    ///
    /// # Errors
    /// The line that cannot be read, and why.
    pub(crate) fn from_text(text: &str, password: Option<&str>) -> Result<Self, String> {
        let mut list = parse::users(text)?;
        if !list.iter().any(|user| user.name == DEFAULT) {
            let mut user = User::all_powerful(password);
            user.on = password.is_some();
            user.nopass = false;
            list.insert(0, user);
        }
        Ok(Self::from_list(list))
    }

    /// The user of a name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Arc<User>> {
        let place = self.places.get(std::str::from_utf8(name).ok()?)?;
        self.list.get(*place)
    }

    /// The user of a name, if this password is right and it is on.
    #[must_use]
    pub fn check(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        self.find(name).filter(|user| user.accepts(password))
    }

    /// The default user, if it needs no password: the user of new connections.
    #[must_use]
    pub fn open(&self) -> Option<&Arc<User>> {
        self.find(DEFAULT.as_bytes())
            .filter(|user| user.on && user.nopass)
    }

    /// Whether several users can log in, so that each has a share of what is bounded.
    #[must_use]
    pub(crate) fn are_several(&self) -> bool {
        self.list.iter().filter(|user| user.on).nth(1).is_some()
    }

    /// Whether nobody can do anything without a password or certificate.
    #[must_use]
    pub(crate) fn all_need_passwords(&self) -> bool {
        !self.list.iter().any(|user| user.on && user.nopass)
    }

    /// All of them, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<User>> {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_right_only_if_it_is_one_of_the_users() {
        let text = "user a on >one >two ~* +@lock\nuser off off >one ~* +@lock";
        let users = Users::from_text(text, None).unwrap();
        for (name, given, right) in [
            ("a", "one", true),
            ("a", "two", true),
            ("a", "onetwo", false),
            ("a", "", false),
            ("a", "one\0", false),
            ("A", "one", false),
            ("off", "one", false),
            ("nobody", "one", false),
            // There is no password of the settings, and the file does not name it.
            ("default", "one", false),
            ("default", "", false),
        ] {
            let found = users.check(name.as_bytes(), given.as_bytes());
            assert_eq!(found.is_some(), right, "{name} {given}");
        }
        assert!(users.open().is_none() && users.all_need_passwords());
        assert!(Users::single(None).open().is_some());
        let with = Users::from_text(text, Some("p")).unwrap();
        assert!(
            with.check(b"default", b"p")
                .is_some_and(|user| user.is_all_powerful())
        );
    }

    #[test]
    fn names_match_by_any_of_the_patterns() {
        let users = Users::from_text("user a on nopass ~job:* ~x +@lock", None).unwrap();
        let user = users.find(b"a").unwrap();
        for (name, may) in [("job:1", true), ("x", true), ("xy", false), ("jobs", false)] {
            assert_eq!(user.may_use(name.as_bytes()), may, "{name}");
        }
        assert!(!user.sees_all() && !user.is_all_powerful() && !users.all_need_passwords());
    }
}
