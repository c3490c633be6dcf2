//! The table's input and output: times, requests, events, replies, outputs, bounds,
//! counters. Only data; the rules are elsewhere.

use serde::{Deserialize, Serialize};

use super::entries::NEVER;

/// Nanoseconds of a monotonic clock, from any origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time(pub u64);

impl Time {
    /// Whole milliseconds from `now` until then, rounded up; 0 if it has passed.
    pub(crate) fn ms_from(self, now: Self) -> u64 {
        self.0.saturating_sub(now.0).div_ceil(1_000_000)
    }

    /// Whole milliseconds from then until `now`.
    pub(crate) fn ms_until(self, now: Self) -> u64 {
        now.0.saturating_sub(self.0) / 1_000_000
    }

    /// Whole seconds from then until `now`.
    pub(crate) fn seconds_until(self, now: Self) -> u64 {
        self.ms_until(now) / 1000
    }

    pub(crate) fn after_ms(self, ms: u64) -> u64 {
        // The last instant is taken: it means never.
        self.0
            .saturating_add(ms.saturating_mul(1_000_000))
            .min(NEVER - 1)
    }
}

/// A client's connection, or a session in the place of one, as the table knows it.
/// Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub(super) u64);

impl ClientId {
    pub(super) const SLOT_BITS: u32 = 20;

    /// The client of a number.
    pub(crate) fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// A small number that is unique to this client while it is open: an index for arrays.
    #[inline]
    #[must_use]
    pub fn slot(self) -> usize {
        (self.0 & ((1 << Self::SLOT_BITS) - 1)) as usize
    }

    /// The number as an administrator sees it.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for ClientId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

/// The key of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionKey {
    /// The number of the user that has opened it.
    pub user: u16,
    /// Random bits that nobody can guess.
    pub id: u128,
}

/// Alone, or together with others of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// One holder.
    Exclusive,
    /// Any number of holders.
    Shared,
    /// One of `of` places, at least 2: a semaphore.
    Place {
        /// The number of places, the same for all while anybody holds or waits.
        of: u16,
    },
}

impl Mode {
    /// The places of a lock in this mode: 1 unless it is a semaphore.
    #[inline]
    #[must_use]
    pub fn places(self) -> u16 {
        match self {
            Self::Exclusive | Self::Shared => 1,
            Self::Place { of } => of,
        }
    }

    /// Its name in replies.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Place { .. } => "place",
        }
    }
}

/// A request for a lock.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest<'n> {
    /// The client that asks.
    pub client: ClientId,
    /// Any bytes, 1 to [`Limits::name_bytes`] of them.
    pub name: &'n [u8],
    /// The lease in milliseconds, at least 1; `None`: until the client ends.
    pub ttl_ms: Option<u64>,
    /// How long to wait, in milliseconds; `None`: as long as it takes; 0: not
    /// at all.
    pub wait_ms: Option<u64>,
    /// Alone or shared.
    pub mode: Mode,
    /// The session that is to own the lock in place of the client; then there is
    /// no lease.
    pub session: Option<&'n SessionKey>,
}

impl LockRequest<'_> {
    /// The hold that stands in its way if the owner has the lock already.
    pub(super) fn which(&self) -> Which {
        match self.session {
            Some(_) => Which::OfSession,
            None => Which::OfClient,
        }
    }
}

/// A request for several locks: all of them in one step, or none.
#[derive(Clone, Copy, Debug)]
pub struct LockAllRequest<'n> {
    /// The client that asks.
    pub client: ClientId,
    /// At least one; no two are the same.
    pub names: &'n [&'n [u8]],
    /// As in [`LockRequest::ttl_ms`].
    pub ttl_ms: Option<u64>,
    /// As in [`LockRequest::wait_ms`].
    pub wait_ms: Option<u64>,
    /// Each shared, instead of each exclusive.
    pub shared: bool,
    /// As in [`LockRequest::session`].
    pub session: Option<&'n SessionKey>,
}

/// A client has connected. The reply is its id, or `None` if as many clients are open as
/// can be.
#[derive(Clone, Copy, Debug)]
pub struct Open;

/// A client gives a lock back.
#[derive(Clone, Copy, Debug)]
pub struct Unlock<'n> {
    /// The client that asks.
    pub client: ClientId,
    /// The lock's name.
    pub name: &'n [u8],
    /// The token of the hold that is meant; `None`: the one that this client took.
    pub token: Option<u64>,
}

/// A lease shall end this long from now, be that later or sooner.
#[derive(Clone, Copy, Debug)]
pub struct Renew<'n> {
    /// The lock's name.
    pub name: &'n [u8],
    /// The token of the hold that is meant.
    pub token: u64,
    /// At least 1.
    pub ttl_ms: u64,
}

/// An administrator takes the lock of this name away from all of its holders. The reply is
/// their number.
#[derive(Clone, Copy, Debug)]
pub struct Force<'n>(pub &'n [u8]);

/// A client gives up its wait, without an output for it.
#[derive(Clone, Copy, Debug)]
pub struct Cancel(pub ClientId);

/// All clients give up their waits, without an output for it; no client gets a lock
/// because another one gave up.
#[derive(Clone, Copy, Debug)]
pub struct CancelAll;

/// A client is gone: its wait and its holds without a lease end.
#[derive(Clone, Copy, Debug)]
pub struct Close(pub ClientId);

/// A session begins, which ends after this time unless it is renewed.
#[derive(Clone, Copy, Debug)]
pub struct OpenSession<'n> {
    /// The session's key, which is not in use.
    pub key: SessionKey,
    /// At least 1.
    pub ttl_ms: u64,
    /// Who opens it, for people: at most 255 bytes.
    pub text: &'n str,
}

/// A session's time to live starts anew. The reply is whether the session is open.
#[derive(Clone, Copy, Debug)]
pub struct RenewSession(pub SessionKey);

/// A session ends, and all that it owns. The reply is whether it was open.
#[derive(Clone, Copy, Debug)]
pub struct CloseSession(pub SessionKey);

/// A client, with what it has, belongs to an account from now on.
#[derive(Clone, Copy, Debug)]
pub struct Enlist {
    /// The client.
    pub client: ClientId,
    /// The number of its user.
    pub account: u16,
}

/// All sessions of an account end, and what they own, some with the next steps. The reply
/// is their number.
#[derive(Clone, Copy, Debug)]
pub struct CloseSessionsOf(pub u16);

/// The use of an account, or its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// Locks; as a bound, places in line for them count as well.
    pub locks: u32,
    /// Places in line.
    pub waiters: u32,
    /// Sessions.
    pub sessions: u32,
    /// Bytes of the table for all of that; of what there is, without those that each held
    /// lock has.
    pub bytes: u64,
}

impl Amounts {
    /// Nothing.
    pub const NONE: Self = Self {
        locks: 0,
        waiters: 0,
        sessions: 0,
        bytes: 0,
    };
    /// As a bound: none.
    pub const ANY: Self = Self {
        locks: u32::MAX,
        waiters: u32::MAX,
        sessions: u32::MAX,
        bytes: u64::MAX,
    };
}

/// Sets the bounds of an account.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    /// The account.
    pub account: u16,
    /// Its limits.
    pub most: Amounts,
}

/// Tokens below this may be given out from now on.
#[derive(Clone, Copy, Debug)]
pub struct Tokens(pub u64);

/// Only time passes.
#[derive(Clone, Copy, Debug)]
pub struct Tick;

/// Why a request cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The range of fencing tokens is used up and no further one is reserved.
    Tokens,
    /// The table may not take more memory.
    Memory,
    /// The lock has as many waiters as it may have.
    WaitersOfLock,
    /// All locks together have as many waiters as they may have.
    Waiters,
    /// The name is empty or too long.
    Name,
    /// As many clients are open as can be.
    Clients,
    /// As many sessions are open as may.
    Sessions,
    /// The client's account may have no more than this many locks.
    QuotaLocks(u32),
    /// The client's account may have no more than this many places in line.
    QuotaWaiters(u32),
    /// The account may have no more than this many sessions.
    QuotaSessions(u32),
    /// The account's locks and sessions may take no more than this many bytes.
    QuotaBytes(u64),
    /// The lock has this many places, and the request names another number.
    Places(u16),
}

/// The outcome of a request for a lock, or for several: at once, or at the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lock is held, with this token.
    Granted(u64),
    /// The locks are held, with this token and those that follow it, in the order in which
    /// they were named.
    GrantedAll {
        /// The first lock's token.
        first: u64,
        /// How many locks.
        count: u32,
    },
    /// The time to wait has passed, or the request does not wait and would have to.
    TimedOut,
    /// The session in whose name it was requested is over, or never was.
    NoSession,
    /// The owner, client or session, has the lock already, without a lease. A wait ends so
    /// when its session has got the lock by another request.
    AlreadyHeld {
        /// The token of its hold.
        token: u64,
        /// How it holds the lock.
        mode: Mode,
        /// The hold's place among those of its owner.
        which: Which,
    },
    /// It cannot be granted.
    Refused(Refusal),
}

/// The hold that a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// That of the session in whose name the request is.
    OfSession,
    /// The client's.
    OfClient,
    /// The client's or the session's, of one of several locks.
    OneOf {
        /// Its position among the names of the request, from 0 on.
        at: u16,
        /// How many names those are.
        count: u16,
        /// It is the session's.
        of_session: bool,
    },
}

/// Why a hold was not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReleased {
    /// The lock is held, but not by the client or with the token of the request.
    NotOwner,
    /// Nobody holds the lock.
    NotHeld,
}

/// Why a lease was not renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRenewed {
    /// Nobody holds the lock with this token.
    NotOwner,
    /// The hold has no lease: a connection or a session owns it.
    NoLease,
}

/// The end of a client's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// The client that waited.
    pub client: ClientId,
    /// How it ended.
    pub outcome: Outcome,
}

/// Bounds of the table.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a name; at most 65535.
    pub name_bytes: usize,
    /// Waiters of one lock.
    pub waiters_per_lock: u32,
    /// Waiters of all locks together.
    pub waiters: u32,
    /// Bytes of memory for locks, waiters, names and their index.
    pub memory_bytes: usize,
    /// Sessions at the same time.
    pub sessions: u32,
    /// How long a wait may last, in milliseconds, whatever was asked for; `None`:
    /// as long as it takes.
    pub wait_ms: Option<u64>,
    /// Bytes of memory for the names that are waited for most; 0: none is kept.
    pub contention_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            name_bytes: 512,
            waiters_per_lock: 100_000,
            waiters: 1_000_000,
            memory_bytes: 1 << 30,
            sessions: 100_000,
            wait_ms: None,
            contention_bytes: 64 << 10,
        }
    }
}

/// Counts of what has happened since the table exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Locks granted at once.
    pub granted_at_once: u64,
    /// Locks granted after a wait.
    pub granted_after_wait: u64,
    /// Holds ended by UNLOCK.
    pub released: u64,
    /// Holds ended because their connection did.
    pub released_by_disconnect: u64,
    /// Holds ended because their session did.
    pub released_by_session: u64,
    /// Leases that ran out.
    pub expired: u64,
    /// Holds ended by FORCEUNLOCK.
    pub forced: u64,
    /// Leases renewed.
    pub renewed: u64,
    /// Waits begun.
    pub waits: u64,
    /// Waits ended by their time.
    pub wait_timeouts: u64,
    /// Waits ended because the client was gone, by [`Cancel`] or by
    /// [`CancelAll`].
    pub wait_cancels: u64,
    /// Waits ended because their session was over.
    pub waits_without_session: u64,
    /// Waits ended because their session had got the lock by another request.
    pub waits_already_held: u64,
    /// Requests that did not want to wait and would have had to.
    pub busy: u64,
    /// Requests refused, waiting ones included.
    pub refused: u64,
    /// Releases and renewals of a lock that was not the asker's.
    pub not_owner: u64,
    /// Releases of a lock that nobody held.
    pub not_held: u64,
    /// Nanoseconds that granted waits took, together.
    pub waited_ns: u64,
    /// Granted waits of at most 2^0, 2^1, ... 2^15 milliseconds, and longer.
    pub waited_ms_log2: [u64; 17],
}

impl Counters {
    /// All locks granted.
    #[must_use]
    pub fn granted(&self) -> u64 {
        self.granted_at_once + self.granted_after_wait
    }

    /// Whether all of them can have been counted, and go on counting.
    pub(super) fn are_plausible(&self) -> bool {
        let single = [
            self.granted_at_once,
            self.granted_after_wait,
            self.released,
            self.released_by_disconnect,
            self.released_by_session,
            self.expired,
            self.forced,
            self.renewed,
            self.waits,
            self.wait_timeouts,
            self.wait_cancels,
            self.waits_without_session,
            self.waits_already_held,
            self.busy,
            self.refused,
            self.not_owner,
            self.not_held,
        ];
        let all = single.iter().chain(&self.waited_ms_log2);
        all.into_iter().all(|count| *count < 1 << 62)
    }

    pub(super) fn waited(&mut self, ns: u64) {
        self.granted_after_wait += 1;
        self.waited_ns = self.waited_ns.saturating_add(ns);
        let ms = ns.div_ceil(1_000_000).max(1);
        let bucket = (64 - (ms - 1).leading_zeros()) as usize;
        self.waited_ms_log2[bucket.min(16)] += 1;
    }
}
