//! Who has a lock, who waits for it, and what would free it: what `jostle who` prints.

use crate::record::Process;
use serde::Serialize;
use serde_with::skip_serializing_none;

/// How a lock is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nobody has it. Of a process: it waits for nobody.
    Free,
    /// Somebody has it.
    Held,
    /// That cannot be known from here.
    #[default]
    Unknown,
}

/// One who has a lock or waits for it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Party {
    /// In words; absent where it cannot be known.
    pub who: Option<String>,
    /// Its process on this machine.
    pub pid: Option<u32>,
    /// The number of its session or lease at the server.
    pub session: Option<String>,
    /// Where it comes from.
    pub address: Option<String>,
    /// `exclusive`, `shared`, `place`.
    pub mode: Option<String>,
    /// The part of the target: a semaphore, a lock's name.
    pub on: Option<String>,
    /// The first and the last byte.
    pub bytes: Option<[u64; 2]>,
    /// The fencing token.
    pub token: Option<i64>,
    /// For how long it has had it, or has waited.
    pub since_ms: Option<u64>,
    /// How long its lease lasts unless it is renewed.
    pub left_ms: Option<u64>,
    /// Its activity, and since when.
    pub state: Option<String>,
    /// Anything else known, such as signs that prove nothing.
    pub note: Option<String>,
}

impl From<Party> for Process {
    fn from(party: Party) -> Process {
        let session = party.session.and_then(|number| number.parse().ok());
        Process {
            pid: party.pid.or(session).unwrap_or(0),
            name: party.who.or(party.note).unwrap_or_default(),
            state: party.state,
            shared: Some(party.mode.as_deref() == Some("shared")),
            bytes: party.bytes,
        }
    }
}

/// The wait of one thread.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// In words.
    pub who: String,
    /// `flock`, `fcntl`, `socket`, `pipe`, `child`, `futex`, `semaphore`, or what else ends it: `events`, `a timer`.
    pub kind: String,
    /// The file, the address, the other end.
    pub on: Option<String>,
    /// Who could end it; nobody where that cannot be known.
    pub owners: Vec<Party>,
    /// Anything else known about it.
    pub note: Option<String>,
}

/// A command that frees a lock. It is printed, and never run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// For a shell.
    pub command: String,
    /// The damage it does.
    pub breaks: String,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// How it is found.
    pub state: State,
    /// Those who have it.
    pub holders: Vec<Party>,
    /// Those who wait, the next one first where there is an order.
    pub waiters: Vec<Party>,
    /// The waits of a process's threads, and those of whoever they wait for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
    /// The processes that wait for each other and for nobody else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deadlock: Vec<u32>,
    /// Remedies that would free it.
    pub free: Vec<Remedy>,
    /// Gaps in what could be seen, and other things to know.
    pub notes: Vec<String>,
}

impl Answer {
    /// Held by these, or free if there are none.
    pub fn new(holders: Vec<Party>, waiters: Vec<Party>) -> Answer {
        Answer {
            state: match holders.is_empty() {
                true => State::Free,
                false => State::Held,
            },
            holders,
            waiters,
            ..Answer::default()
        }
    }

    /// With a sentence.
    #[must_use]
    pub fn noting(mut self, note: impl Into<String>) -> Answer {
        self.notes.push(note.into());
        self
    }
}
