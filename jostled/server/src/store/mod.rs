//! The state that survives the daemon: leases, sessions and what sessions hold, in a store.
//!
//! The event loop turns the table's journal into [`Entry`]s and hands them, in batches, to
//! a thread that owns the [`Store`]. A reply leaves the daemon only when the batch is
//! committed that has what it tells (`server/gate.rs`). Locks that a connection owns end
//! with the daemon, so a store of one machine leaves them out.

mod file;
mod sectors;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::table::{self, Change, Mode, Record};

pub(crate) use file::FileLog;

/// A session. Users have names here, since their numbers end with the daemon.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Session {
    /// The name of its user.
    pub user: String,
    /// Its random bits.
    pub id: u128,
}

/// The owner whose end ends a hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    /// A connection.
    Connection {
        /// Its number.
        number: u64,
        /// Its user.
        user: String,
    },
    /// The end of a lease.
    Lease {
        /// Its length.
        ttl_ms: u64,
        /// The user that took it.
        user: String,
    },
    /// A session.
    Session(Session),
}

impl Owner {
    /// The name of its user.
    #[must_use]
    pub fn user(&self) -> &str {
        let (Self::Connection { user, .. }
        | Self::Lease { user, .. }
        | Self::Session(Session { user, .. })) = self;
        user
    }
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The lock's name.
    pub name: Vec<u8>,
    /// Its mode.
    pub mode: Mode,
    /// The owner whose end ends it.
    pub owner: Owner,
}

/// A change of what is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// A hold begins.
    Begun(u64, Hold),
    /// The lease of this token begins again, with this length in milliseconds.
    Renewed(u64, u64),
    /// The hold of this token ends.
    Ended(u64),
    /// A session begins, of this length in milliseconds, with this text.
    Opened(Session, u64, String),
    /// A session ends. Its holds have ended then, too, whether their own ends follow or not.
    Closed(Session),
    /// All that follows is of the run of this number. The second one is that of the run
    /// before, if nothing was lost between them; 0: something may have been.
    Run(u64, u64),
    /// The holds of one request follow, so many: they are stored together.
    Together(u64),
}

impl Entry {
    /// The entry for a record of the table; `user` names a user's number.
    pub(crate) fn from_record(record: Record, user: impl Fn(u16) -> String) -> Self {
        let session = |key: table::SessionKey| Session {
            user: user(key.user),
            id: key.id,
        };
        match (record.change, record.owner) {
            (Change::Opened { ttl_ms }, table::Owner::Session(key)) => {
                let text = String::from_utf8_lossy(&record.name);
                Self::Opened(session(key), ttl_ms, text.into_owned())
            }
            (Change::Together { count }, _) => Self::Together(count),
            (Change::Closed, table::Owner::Session(key)) => Self::Closed(session(key)),
            (Change::Renewed { ttl_ms }, _) => Self::Renewed(record.token, ttl_ms),
            (Change::Begun { mode, ttl_ms }, owner) => {
                let number = record.client.number();
                let user_name = || user(record.account.unwrap_or(0));
                let owner = match owner {
                    table::Owner::Connection => Owner::Connection {
                        number,
                        user: user_name(),
                    },
                    table::Owner::Lease => Owner::Lease {
                        ttl_ms,
                        user: user_name(),
                    },
                    table::Owner::Session(key) => Owner::Session(session(key)),
                };
                let name = record.name;
                Self::Begun(record.token, Hold { name, mode, owner })
            }
            _ => Self::Ended(record.token),
        }
    }

    /// More than the bytes that it takes in a store.
    pub(crate) fn bytes(&self) -> usize {
        const NUMBERS: usize = 48;
        NUMBERS
            + match self {
                Self::Begun(_, hold) => hold.bytes(),
                Self::Opened(session, _, text) => session.user.len() + text.len(),
                Self::Closed(session) => session.user.len(),
                _ => 0,
            }
    }
}

impl Hold {
    fn bytes(&self) -> usize {
        self.name.len() + self.owner.user().len()
    }
}

/// The holds and sessions that entries leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// By token.
    pub holds: BTreeMap<u64, Hold>,
    /// Sessions, with their TTLs in milliseconds and their texts.
    pub sessions: BTreeMap<Session, (u64, String)>,
    /// The numbers of [`Entry::Run`].
    pub run: (u64, u64),
    /// More than the bytes that all of it takes in a store.
    bytes: usize,
}

impl Stored {
    /// Applies an entry; whether that changes anything. A renewal does so only if the lease
    /// becomes longer than it is stored, or shorter than half of that: whoever adopts it
    /// gives it its whole TTL again, so that the rest need not be written.
    pub fn apply(&mut self, entry: &Entry) -> bool {
        let bytes = entry.bytes();
        match entry {
            Entry::Begun(token, hold) => {
                self.bytes += bytes;
                self.holds.insert(*token, hold.clone());
            }
            Entry::Renewed(token, new_ms) => {
                let new_ms = *new_ms;
                match self.holds.get_mut(token).map(|hold| &mut hold.owner) {
                    Some(Owner::Lease { ttl_ms, .. }) => {
                        if new_ms <= *ttl_ms && new_ms >= *ttl_ms / 2 {
                            return false;
                        }
                        *ttl_ms = new_ms;
                    }
                    // A connection's hold that was adopted became a lease.
                    Some(owner @ Owner::Connection { .. }) => {
                        *owner = Owner::Lease {
                            ttl_ms: new_ms,
                            user: owner.user().to_owned(),
                        };
                    }
                    _ => return false,
                }
            }
            Entry::Ended(token) => {
                let Some(hold) = self.holds.remove(token) else {
                    return false;
                };
                self.bytes -= bytes + hold.bytes();
            }
            Entry::Opened(session, ttl_ms, text) => {
                self.bytes += bytes;
                let value = (*ttl_ms, text.clone());
                self.sessions.insert(session.clone(), value);
            }
            Entry::Closed(session) => {
                let Some((_, text)) = self.sessions.remove(session) else {
                    return false;
                };
                self.bytes -= bytes + text.len();
            }
            Entry::Run(run, before) => self.run = (*run, *before),
            Entry::Together(_) => return false,
        }
        true
    }

    /// Entries that lead to this.
    fn entries(&self) -> Vec<Entry> {
        let sessions = self.sessions.iter();
        let sessions = sessions
            .map(|(session, (ttl_ms, text))| Entry::Opened(session.clone(), *ttl_ms, text.clone()));
        let holds = self.holds.iter();
        let holds = holds.map(|(token, hold)| Entry::Begun(*token, hold.clone()));
        let run = Entry::Run(self.run.0, self.run.1);
        [run].into_iter().chain(sessions).chain(holds).collect()
    }

    /// Leaves out what a session holds that has ended.
    pub(crate) fn settle(&mut self) {
        let (sessions, bytes) = (&self.sessions, &mut self.bytes);
        self.holds.retain(|token, hold| {
            let stays = match &hold.owner {
                Owner::Session(session) => sessions.contains_key(session),
                _ => true,
            };
            if !stays {
                *bytes -= Entry::Ended(*token).bytes() + hold.bytes();
            }
            stays
        });
    }
}

/// Why nothing was committed.
#[derive(Debug)]
pub enum Failure {
    /// There is no room. The same batch may be tried again.
    Full(String),
    /// The latest commit is not known, or another daemon has the store: this one must end.
    Lost(String),
}

/// Storage that survives the daemon. A thread owns it, and does one thing at a time.
pub trait Store: Send {
    /// Commits the beginning of a batch, if no other daemon has written since this one
    /// began; returns how many entries that are. An empty batch only proves that.
    ///
    /// # Errors
    /// [`Failure`].
    fn commit_if(&mut self, batch: &[Entry]) -> Result<usize, Failure>;

    /// Whether no other daemon can write as long as this one has the store, so that an
    /// empty batch proves nothing new.
    fn fences(&self) -> bool;

    /// Whether it keeps what connections hold.
    fn keeps_connections(&self) -> bool;

    /// Makes room for what may come.
    ///
    /// # Errors
    /// There is none: then nothing may begin.
    fn make_room(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Its file with the lock on it, for a program that takes over.
    ///
    /// # Errors
    /// There is none, or the system's error.
    fn file(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
