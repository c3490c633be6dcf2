//! The history of a run of `verify`: what each client did, and the faults.
//!
//! A call has two entries of 16 bytes, one before it is made and one after it has ended, so
//! that a call without an end is known to be unknown.

use jostle_model::plan::Fault;
use serde::{Deserialize, Serialize};

/// Bits of an entry's first word that are the time.
const TIME_BITS: u32 = 44;
const KEY_BITS: u32 = 16;

/// The kind of an entry, in the upper four bits of its first word. A new client, with the next
/// number, takes the place of one that has ended, so that a client has at most one open call.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request for a lock begins; `extra`: its patience in nanoseconds, 0: at once,
    /// `u64::MAX`: for ever.
    Ask = 1,
    /// The request was granted; `extra`: the token plus 1, 0: none.
    Granted = 2,
    /// It was refused, or too late; the client waits no longer.
    Refused = 3,
    /// It failed, and nobody knows what became of it; `extra`: the number of what was said.
    AskFailed = 4,
    /// The lease of the hold was asked for at this time: where that is not the time of `Ask`.
    Leased = 5,
    /// A renewal of this lock begins, or of all of the client's locks (`ALL_KEYS`).
    Renew = 6,
    /// It succeeded.
    Renewed = 7,
    /// The service said that the hold is over.
    RenewLost = 8,
    /// It failed, and nobody knows what became of it.
    RenewFailed = 9,
    /// A release begins.
    Release = 10,
    /// It was confirmed.
    Released = 11,
    /// The service refused it: the lock was not the client's.
    ReleaseRefused = 12,
    /// It failed, and nobody knows what became of it.
    ReleaseFailed = 13,
    /// The client gave its session up, and goes on with a new one: it believes in no hold.
    Left = 14,
    /// So many entries of this client are missing from here on (`extra`).
    Dropped = 15,
}

/// The key of a renewal of a whole session.
pub const ALL_KEYS: u16 = u16::MAX;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Who.
    pub client: u32,
    /// Nanoseconds since the start of the run; below 2^44 (4.8 hours).
    pub at_ns: u64,
    /// What.
    pub kind: Kind,
    /// Which lock.
    pub key: u16,
    /// See [`Kind`].
    pub extra: u64,
}

impl Kind {
    /// The kind with this number.
    pub fn of(number: u8) -> Option<Kind> {
        use Kind::*;
        const ALL: [Kind; 15] = [
            Ask,
            Granted,
            Refused,
            AskFailed,
            Leased,
            Renew,
            Renewed,
            RenewLost,
            RenewFailed,
            Release,
            Released,
            ReleaseRefused,
            ReleaseFailed,
            Left,
            Dropped,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

impl Entry {
    /// As two words: what a ring and the file hold; the client stands before a group of them.
    pub fn words(&self) -> [u64; 2] {
        let kind = u64::from(self.kind as u8) << (TIME_BITS + KEY_BITS);
        let key = u64::from(self.key) << TIME_BITS;
        [
            kind | key | (self.at_ns & ((1 << TIME_BITS) - 1)),
            self.extra,
        ]
    }

    /// From its words; None where they are no entry.
    pub fn read(client: u32, [first, extra]: [u64; 2]) -> Option<Entry> {
        Some(Entry {
            client,
            at_ns: first & ((1 << TIME_BITS) - 1),
            kind: Kind::of((first >> (TIME_BITS + KEY_BITS)) as u8)?,
            key: (first >> TIME_BITS) as u16,
            extra,
        })
    }
}

/// A fault that struck.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Struck {
    /// Its kind.
    pub fault: Fault,
    /// The client that it struck; None: the service.
    pub client: Option<u32>,
    /// Just before it struck.
    pub from_ns: u64,
    /// Just after it had struck.
    pub struck_ns: u64,
    /// When what was struck had gone on, or the service answered again; None: it never did, or
    /// not before the end (`kill`: the client has ended).
    pub over_ns: Option<u64>,
}

/// What one run was like, beside its entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// By what holds are judged.
    pub promise: jostle_model::record::Promise,
    /// Locks.
    pub keys: u64,
    /// Clients at the same time.
    pub clients: u64,
    /// The end of the run; nothing is judged beyond it.
    pub ended_ns: u64,
    /// Longest time between two tries of a waiting client, where the lock makes it ask again.
    pub poll_ns: u64,
    /// CPU time that clients and service were ready for and did not get, at most, while one client
    /// waited for a free lock.
    pub delayed_ns: u64,
    /// Faults, in the order of time.
    pub struck: Vec<Struck>,
    /// What failed calls said, by the number in `extra`.
    pub said: Vec<String>,
}
