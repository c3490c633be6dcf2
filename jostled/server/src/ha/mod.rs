//! High availability: one jostled is active, and its state is in etcd.
//!
//! This is the pure core: it has no socket, no clock and no thread. Its user asks
//! [`Primary`] or [`Standby`] what is [`due`](Primary::due), sends it to an etcd, and hands
//! in each [`Answer`] with the time at which it came.
//!
//! All state is below one prefix, and every write is the same transaction: *if the value of
//! `head` is V, put another head, with at most [`OPERATIONS`] puts and deletes*. V names
//! the jostled that wrote it last, so that a jostled which another one has replaced cannot
//! write. A reply leaves the daemon when two conditions hold: what it tells is committed,
//! and an operation has succeeded that began after its turn.

mod call;
mod keys;
mod primary;
#[cfg(test)]
mod simulator;
mod standby;
#[cfg(test)]
mod tests;

pub use call::{Answer, Call, Due, Range, Request, Txn};
pub use keys::{Head, Keys, Member, Members};
pub use primary::{News, Primary};
pub use standby::{Init, Memory, Own, Standby, Taken};

/// Puts and deletes of a transaction, beside that of the head: an etcd takes 128.
pub const OPERATIONS: usize = 126;

/// Times and sizes, which tests make smaller. Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Puts and deletes of a transaction, beside that of the head.
    pub operations: usize,
    /// Bytes of a transaction, roughly. An etcd takes 1.5 MiB.
    pub bytes: usize,
    /// Bytes of a page of a load, roughly.
    pub page: usize,
    /// Tokens that are reserved at a time.
    pub tokens: u64,
    /// An empty write follows the last write after this time.
    pub beat_ms: u64,
    /// It does so only if the loop has turned within this time.
    pub turn_ms: u64,
    /// The same for a primary that has just begun, and may be adopting.
    pub first_turn_ms: u64,
    /// A standby reads the head this often.
    pub watch_ms: u64,
    /// It takes over when the head has stood for this time.
    pub silence_ms: u64,
    /// And all of its own reads within this time have succeeded.
    pub good_ms: u64,
    /// A request without an answer is sent to the next endpoint after this time.
    pub copy_ms: u64,
    /// And after this time when an endpoint has failed.
    pub again_ms: u64,
}

impl Rules {
    /// Those of a daemon.
    pub const REAL: Self = Self {
        operations: OPERATIONS,
        bytes: 1 << 20,
        page: 4 << 20,
        tokens: 1 << 22,
        beat_ms: 500,
        turn_ms: 2_000,
        first_turn_ms: 10_000,
        watch_ms: 250,
        silence_ms: 1_500,
        good_ms: 500,
        copy_ms: 300,
        again_ms: 50,
    };
}

/// Why a jostled must end, or cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    /// Another one is the primary now.
    #[error("another jostled has taken over: {0}")]
    Deposed(String),
    /// Nothing could be written for the orphan time, so that clients must go elsewhere.
    #[error("etcd took no write for {0} ms (does a majority of its members run?)")]
    Silent(u64),
    /// It has given its place up, as it was asked to.
    #[error("released")]
    Released,
    /// The keys were never made, or have gone.
    #[error("etcd has no key {0}: `jostled --ha-init` makes it, once")]
    Uninitialised(String),
    /// They were made before.
    #[error("etcd has the key {0} already, so that nothing is initialised")]
    Initialised(String),
    /// They are those of another cluster than this member's data directory knows.
    #[error(
        "etcd has the cluster {found}, and the data directory is that of {known}: check --ha-etcd \
         and --data; --restored accepts it, and discards all locks"
    )]
    Foreign {
        /// The cluster of the data directory.
        known: String,
        /// That of the etcd.
        found: String,
    },
    /// The etcd has lost something that this member has seen.
    #[error(
        "etcd has state {found}, and this member has seen state {known}: it was restored from \
         a backup, or has lost data; --restored accepts it, and discards all locks"
    )]
    Behind {
        /// The greatest sequence that this member has seen.
        known: u64,
        /// The sequence there.
        found: u64,
    },
    /// A key's value makes no sense to this version.
    #[error("{0}")]
    Unsound(String),
}
