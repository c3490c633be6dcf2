//! The lock table: a pure state machine, `step(state, event, now) -> outputs`.
//!
//! It decides about holders, waiters and the reply to each request. It never reads a
//! clock and never touches a socket: time comes with each event, and effects on other
//! clients leave as [`Output`]s. So a test can play years of leases, crashes and races
//! in a second, and repeat them.
//!
//! # Rules
//!
//! - A lock is free, held by one client exclusively, shared by several, or a semaphore
//!   in which each holder has one place. A free lock takes no memory and has no
//!   waiters, so its number of places is forgotten. (At most one free lock keeps its
//!   name for a moment: the module `idle`.)
//! - A client that wants several locks enters all lines in one step. It gets all locks
//!   in one step, once it is first in all lines and all locks are free. Until then a
//!   free lock in whose line it is first is reserved: it takes memory, and later
//!   requests wait.
//! - Waiters are served in the order of their arrival. A request is granted at
//!   once only if nobody waits before it; a shared one does not overtake a
//!   waiting exclusive one.
//! - A deadline `d` has passed as soon as `now >= d`. Deadlines that have passed take
//!   effect before the event of the step, in their order. A lease and a wait that end
//!   at the same instant both end: the waiter gets nothing. When more than a thousand
//!   deadlines pass at once, the rest follows with the next steps; even then nobody can
//!   use a lease after its deadline.
//! - More than `SERVED_PER_STEP` waiters of one lock that can be served at once are
//!   served by several steps; later requests wait behind them.
//! - A lease starts when it is granted, not when it was asked for.
//! - A session owns what is taken in its name until it ends, by its deadline or because
//!   it is closed. Waiters in its name then get nothing, even if the lock becomes free
//!   at that very instant.
//! - An owner has a lock at most once without a lease. A request for a lock that its
//!   owner has is answered with the token of that hold and makes no second hold. When a
//!   session gets a lock, other waiters for that lock in its name get the same answer.
//! - Tokens grow with each grant, over all names, and come only from the range
//!   that [`Tokens`] has opened.

mod accounts;
mod adopt;
mod ahead;
mod clients;
mod contention;
mod deadlines;
mod entries;
mod events;
mod grants;
mod groups;
mod hash;
mod holders;
mod idle;
mod image;
mod index;
mod journal;
mod lines;
mod lists;
mod locks;
mod restore;
mod sessions;
mod slab;
mod timers;
mod view;

#[cfg(test)]
mod model;
#[cfg(test)]
pub(crate) mod simulator;
#[cfg(test)]
mod stories;

use std::collections::{HashMap, VecDeque};

use accounts::{Account, Left};
use clients::{Client, Closing};
use entries::{Block, ByName, ByOwner, ByToken, Claim, Links, Lock, NEVER, Queue, Side};
use index::Index;
use journal::Journal;
use sessions::Session;
use slab::{NIL, Slab};
use timers::Timers;

pub(crate) use ahead::AHEAD;
pub use events::*;
pub use hash::HashKey;
pub use image::TableImage;
pub(crate) use image::{reading, since_3};
pub(crate) use journal::{Cause, Change, Owner, Record};
pub use restore::BadImage;
pub(crate) use sessions::TEXT_MAX;
pub use view::{BadCursor, Holder, OpenedSession, Waiter};

/// Holds that the end of a client releases in one step; the rest follows with
/// the next ones, so that a client with a million locks stops nobody.
const RELEASES_PER_STEP: usize = 1024;
/// Likewise timers that one step fires or moves: when very many are due at once,
/// the rest follows with the next steps.
const TIMERS_PER_STEP: usize = 1024;

/// Likewise waiters of a line that are served in one step: a lock that 9,000 clients
/// want to share is granted to all of them over several steps.
const SERVED_PER_STEP: usize = 256;

/// The lock table. See the module's head for its rules.
pub struct Table {
    key: HashKey,
    limits: Limits,
    names: Index<ByName>,
    owners: Index<ByOwner>,
    tokens: Index<ByToken>,
    locks: Slab<Lock, Side>,
    claims: Slab<Claim>,
    queues: Slab<Queue>,
    blocks: Slab<Block>,
    /// A lock that the last UNLOCK left to nobody, or [`NIL`]: see the module `idle`.
    idle: u32,
    timers: Timers,
    wheel: Vec<Links>,
    /// The list of the wheel that is being emptied, or [`NIL`].
    cascading: u32,
    /// Whether something that is due has not happened yet.
    behind: bool,
    clients: Vec<Client>,
    free_slots: Vec<u32>,
    /// Accounts by number; the first is for clients without an account.
    accounts: Vec<Account>,
    /// Accounts with a bound of their holds, and whether there are any.
    bound_accounts: u32,
    quotas: bool,
    /// Closed clients whose leases still count, by number.
    left: HashMap<u64, Left>,
    /// Accounts whose sessions are being ended, and the slot to go on from.
    evicted: Vec<(u16, u32)>,
    journal: Option<Box<Journal>>,
    /// Whether holds are counted or recorded.
    booked: bool,
    sessions: Slab<Session>,
    by_key: HashMap<SessionKey, u32>,
    /// Bytes of the texts of sessions.
    text_bytes: usize,
    contention: Option<Box<contention::Contention>>,
    /// Slots of closed clients that still own something.
    closing: Vec<Closing>,
    /// Locks whose lines groups have left in this step.
    unserved: Vec<u32>,
    /// Locks whose lines the next tick serves further, and as of which instant.
    partly: VecDeque<(u32, u64)>,
    open: u32,
    waiting: u32,
    leases: u64,
    held: u64,
    next_token: u64,
    tokens_end: u64,
    counters: Counters,
}

/// One step: when it happens, and what it tells clients whose waits it ends.
pub struct Step<'o> {
    now: Time,
    outputs: &'o mut Vec<Output>,
}

impl Step<'_> {
    fn tell(&mut self, client: u64, outcome: Outcome) {
        let client = ClientId(client);
        self.outputs.push(Output { client, outcome });
    }
}

/// An event of the table: a request or an occurrence, with a reply of its own type.
pub trait Event: Copy + std::fmt::Debug {
    /// The answer to the event's own client.
    type Reply;

    /// Performs the event once all that is due has happened: for [`Table::step`] alone.
    #[doc(hidden)]
    fn apply(self, table: &mut Table, step: &mut Step<'_>) -> Self::Reply;
}

/// Rows of events: a pattern for its fields, its type, its reply, and what it does.
macro_rules! events {
    ($($event:pat, $type:ty => $reply:ty, |$table:ident, $step:ident| $does:expr;)*) => {$(
        impl Event for $type {
            type Reply = $reply;

            #[inline(always)]
            #[allow(unused_variables, reason = "not every event needs it")]
            fn apply(self, $table: &mut Table, $step: &mut Step<'_>) -> $reply {
                let $event = self;
                $does
            }
        }
    )*};
}

events! {
    request, LockRequest<'_> => Option<Outcome>, |table, step| table.lock(request, step);
    request, LockAllRequest<'_> => Option<Outcome>, |table, step| table.lock_all(request, step);
    Unlock { client, name, token }, Unlock<'_> => Result<(), NotReleased>,
        |table, step| table.unlock(client, name, token, step);
    Renew { name, token, ttl_ms }, Renew<'_> => Result<(), NotRenewed>,
        |table, step| table.renew(name, token, ttl_ms, step);
    Force(name), Force<'_> => u64, |table, step| table.force(name, step);
    _, Open => Option<ClientId>, |table, step| table.open();
    Cancel(client), Cancel => (), |table, step| table.cancel(client, step);
    _, CancelAll => (), |table, step| table.cancel_all(step);
    Close(client), Close => (), |table, step| table.close(client, step);
    open, OpenSession<'_> => Result<(), Refusal>, |table, step| table.open_session(open, step.now);
    RenewSession(key), RenewSession => bool, |table, step| table.renew_session(key, step.now);
    CloseSession(key), CloseSession => bool, |table, step| table.close_session(key, step);
    CloseSessionsOf(account), CloseSessionsOf => u32,
        |table, step| table.close_sessions_of(account, step);
    Enlist { client, account }, Enlist => (), |table, step| table.enlist(client, account);
    quota, Quota => (), |table, step| table.set_quota(quota);
    Tokens(end), Tokens => (), |table, step| table.tokens_end = table.tokens_end.max(end);
    _, Tick => (), |table, step| {
        table.evict(step);
        table.reap(step);
        table.serve_partly(step)
    };
}

impl Table {
    /// An empty table whose first token will be `first_token`; none may be
    /// given out before [`Tokens`].
    #[must_use]
    pub fn new(limits: Limits, key: HashKey, first_token: u64) -> Self {
        // Slot 0 stays unused, so that no client has the number 0.
        Self {
            key,
            limits,
            names: Index::new(),
            owners: Index::new(),
            tokens: Index::new(),
            locks: Slab::new(),
            claims: Slab::new(),
            queues: Slab::new(),
            blocks: Slab::new(),
            idle: NIL,
            timers: Timers::new(0),
            wheel: timers::heads(),
            cascading: NIL,
            behind: false,
            clients: vec![Client::vacant(0)],
            free_slots: Vec::new(),
            accounts: vec![Account::UNBOUND],
            bound_accounts: 0,
            quotas: false,
            left: HashMap::new(),
            evicted: Vec::new(),
            journal: None,
            booked: false,
            sessions: Slab::new(),
            by_key: HashMap::new(),
            text_bytes: 0,
            contention: contention::Contention::new(limits.contention_bytes, limits.name_bytes),
            closing: Vec::new(),
            unserved: Vec::new(),
            partly: VecDeque::new(),
            open: 0,
            waiting: 0,
            leases: 0,
            held: 0,
            next_token: first_token,
            tokens_end: first_token,
            counters: Counters::default(),
        }
    }

    /// Applies one event. What it means for other clients is appended to
    /// `outputs`. `now` must not be earlier than in the step before.
    ///
    /// Always inlined, like what it calls, so that no event is built in memory.
    #[inline(always)]
    pub fn step<E: Event>(&mut self, event: E, now: Time, outputs: &mut Vec<Output>) -> E::Reply {
        let mut step = Step { now, outputs };
        if now.0 >= self.timers.next() {
            self.run_timers(&mut step);
        }
        event.apply(self, &mut step)
    }

    /// The latest time for the next [`Tick`]; `None`: no tick is needed before
    /// the next event.
    #[inline]
    #[must_use]
    pub fn next_tick(&self) -> Option<Time> {
        let ends = !self.closing.is_empty() || !self.evicted.is_empty();
        if self.behind || ends || self.is_partly_served() {
            return Some(Time(0));
        }
        let next = self.timers.next();
        (next != NEVER).then_some(Time(next))
    }

    /// Tokens that can be given out before [`Tokens`] is needed.
    #[inline]
    #[must_use]
    pub(crate) fn tokens_left(&self) -> u64 {
        self.tokens_end - self.next_token
    }

    /// Gives out no more tokens until [`Tokens`] opens a new range.
    pub(crate) fn withhold_tokens(&mut self) {
        self.tokens_end = self.next_token;
    }

    /// The token that the next grant will have.
    #[must_use]
    pub fn next_token(&self) -> u64 {
        self.next_token
    }

    // Requests.

    #[inline]
    pub(crate) fn hash(&self, name: &[u8]) -> u32 {
        self.key.hash(name) as u32
    }

    #[inline(always)]
    fn find(&self, hash: u32, name: &[u8]) -> Option<u32> {
        let is_it = |lock: &Lock| lock.used && lock.has_name(&self.blocks, name);
        let id = self.names.find(&self.locks, hash, is_it);
        (id != NIL).then_some(id)
    }

    /// The lock of a name, if it is held at this time.
    #[inline(always)]
    fn look_up(&mut self, hash: u32, name: &[u8], step: &mut Step<'_>) -> Option<u32> {
        if self.behind {
            return self.look_up_behind(hash, name, step);
        }
        self.find(hash, name)
    }
}
