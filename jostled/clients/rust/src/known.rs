//! This program's knowledge of the locks of a session.
//!
//! A request that got no answer may have been granted. Asked again, the daemon refuses
//! with `ALREADYHELD token mode`. The hold is that of the unanswered request, unless
//! another part of this program has it: each token is given out once. A name is
//! remembered as long as it is held, asked for or in doubt, so that a reply that comes
//! late cannot claim what was released meanwhile.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(crate) struct Known {
    names: Mutex<HashMap<String, Name>>,
}

#[derive(Default)]
struct Name {
    /// The largest token that was claimed.
    last: Option<i64>,
    users: usize,
    in_doubt: bool,
}

impl Name {
    fn claim(&mut self, token: i64) -> bool {
        let new = self.last.is_none_or(|last| last < token);
        if new {
            self.last = Some(token);
            self.users += 1;
        }
        new
    }
}

impl Known {
    fn names(&self) -> MutexGuard<'_, HashMap<String, Name>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request for a name; [`Known::forget`] ends it.
    pub(crate) fn ask(&self, name: &str) {
        self.names().entry(name.to_owned()).or_default().users += 1;
    }

    /// A request got no answer; it may be granted at any later time.
    pub(crate) fn doubt(&self, name: &str) {
        self.names().entry(name.to_owned()).or_default().in_doubt = true;
    }

    /// Whether the token is new; then it is this caller's alone, until
    /// [`Known::forget`].
    pub(crate) fn claim(&self, name: &str, token: i64) -> bool {
        let mut names = self.names();
        names.entry(name.to_owned()).or_default().claim(token)
    }

    /// The token of an unanswered request that was granted, if a refusal tells of one.
    pub(crate) fn adopt(&self, name: &str, mode: &str, refusal: &str) -> Option<i64> {
        // redis-rs puts the first word in quotes.
        let (_, rest) = refusal.split_once("ALREADYHELD")?;
        let mut words = rest.trim_start_matches(['"', ':']).split_whitespace();
        let token = words.next()?.parse().ok()?;
        if words.next() != Some(mode) {
            return None;
        }
        let mut names = self.names();
        let found = names.get_mut(name).filter(|found| found.in_doubt)?;
        found.claim(token).then_some(token)
    }

    /// A request has ended, or a claimed lock was released.
    pub(crate) fn forget(&self, name: &str) {
        let mut names = self.names();
        if let Some(found) = names.get_mut(name) {
            found.users = found.users.saturating_sub(1);
            if found.users == 0 && !found.in_doubt {
                names.remove(name);
            }
        }
    }
}
