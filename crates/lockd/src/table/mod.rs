//! The lock table: a pure state machine, `step(state, event, now) -> outputs`.
//!
//! It decides who holds which lock, who waits, and what a request is answered.
//! It never reads a clock and never touches a socket: time comes with each
//! event, and what concerns other sessions leaves as [`Output`]s. So a test can
//! play years of leases, crashes and races in a second, and repeat them.
//!
//! # Rules
//!
//! - A lock is free, held by one session exclusively, or shared by several.
//!   A free lock takes no memory and nobody waits for it.
//! - Waiters are served in the order of their arrival. A request is granted at
//!   once only if nobody waits before it; a shared one does not overtake a
//!   waiting exclusive one.
//! - A deadline `d` has passed as soon as `now >= d`; what has passed happens
//!   before the event of the step, in the order of the deadlines. A lease and a
//!   wait that end at the same instant both end: the waiter gets nothing. When
//!   more than a thousand deadlines pass at once, the rest follows with the next
//!   steps; a lapsed lease is of no use from its deadline on all the same.
//! - A lease starts when it is granted, not when it was asked for.
//! - Tokens grow with each grant, over all names, and come only from the range
//!   that [`Event::Tokens`] has opened.

mod entries;
mod hash;
mod index;
mod slab;
mod timers;
mod view;

#[cfg(test)]
mod model;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod simulator;

use entries::{
    Block, ByName, ByOwner, ByToken, Claim, Kind, Links, Lock, NEVER, Queue, Ref, Session, State,
    blocks_for,
};
use index::Index;
use slab::{NIL, Slab};
use timers::{Place, Timers};

pub use hash::HashKey;
pub use view::{Holder, Waiter};

/// Nanoseconds of a monotonic clock, from any origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    fn after_ms(self, ms: u64) -> u64 {
        // The last instant is taken: it means never.
        self.0
            .saturating_add(ms.saturating_mul(1_000_000))
            .min(NEVER - 1)
    }
}

/// A client's connection, as the table knows it. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(u64);

impl SessionId {
    const SLOT_BITS: u32 = 20;

    /// A small number that is this session's alone while it is open: a place in
    /// an array.
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

/// Alone, or together with others of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One holder.
    Exclusive,
    /// Any number of holders.
    Shared,
}

/// A wish for a lock.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest<'n> {
    /// Who asks.
    pub session: SessionId,
    /// Any bytes, 1 to [`Limits::name_bytes`] of them.
    pub name: &'n [u8],
    /// The lease in milliseconds, at least 1; `None`: until the session ends.
    pub ttl_ms: Option<u64>,
    /// How long to wait, in milliseconds; `None`: as long as it takes; 0: not
    /// at all.
    pub wait_ms: Option<u64>,
    /// Alone or shared.
    pub mode: Mode,
}

/// What happens to the table.
#[derive(Clone, Copy, Debug)]
pub enum Event<'n> {
    /// A client has connected.
    Open,
    /// A session wants a lock. It must not be waiting already.
    Lock(LockRequest<'n>),
    /// A session gives a lock back.
    Unlock {
        /// Who asks.
        session: SessionId,
        /// Which lock.
        name: &'n [u8],
        /// Of the hold that is meant; `None`: the one that this session took.
        token: Option<u64>,
    },
    /// A lease shall end this long from now, be that later or sooner.
    Renew {
        /// Which lock.
        name: &'n [u8],
        /// Of the hold that is meant.
        token: u64,
        /// At least 1.
        ttl_ms: u64,
    },
    /// An administrator takes a lock away from all of its holders.
    Force {
        /// Which lock.
        name: &'n [u8],
    },
    /// A session gives up its wait, without an output for it.
    Cancel {
        /// Whose.
        session: SessionId,
    },
    /// A client is gone: its wait ends, and what it owns without a lease.
    Close {
        /// Which.
        session: SessionId,
    },
    /// Tokens below this may be given out from now on.
    Tokens {
        /// The first one that may not.
        end: u64,
    },
    /// Only time passes.
    Tick,
}

/// Why a request cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The range of fencing tokens is used up and no further one is reserved.
    Tokens,
    /// The table may not take more memory.
    Memory,
    /// As many wait for this lock as may.
    WaitersOfLock,
    /// As many wait for all locks together as may.
    Waiters,
    /// The name is empty or too long.
    Name,
    /// As many sessions are open as can be.
    Sessions,
}

/// The answer to the event's own session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The lock is held, with this token.
    Granted(u64),
    /// The session waits; an [`Output`] will end it.
    Queued,
    /// The lock is held by another, or waited for, and the request does not wait.
    Busy,
    /// This session owns the lock already, without a lease.
    AlreadyHeld,
    /// The hold is over.
    Released,
    /// The lock is held, but not by the one who was meant.
    NotOwner,
    /// Nobody holds the lock.
    NotHeld,
    /// The lease has a new end.
    Renewed,
    /// The hold is its connection's: there is no lease to renew.
    NoLease,
    /// So many holders have lost the lock.
    Forced(u64),
    /// A session.
    Opened(SessionId),
    /// Nothing was changed.
    Refused(Refusal),
    /// Done; there is nothing to say.
    Done,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lock is held, with this token.
    Granted {
        /// The fencing token.
        token: u64,
        /// Whether it is a lease, which the end of the session would not end.
        lease: bool,
    },
    /// The time to wait has passed.
    TimedOut,
    /// It can no longer be granted.
    Refused(Refusal),
}

/// The end of a session's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Whose wait.
    pub session: SessionId,
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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            name_bytes: 512,
            waiters_per_lock: 100_000,
            waiters: 1_000_000,
            memory_bytes: 1 << 30,
        }
    }
}

/// How often what has happened, since the table exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Locks granted at once.
    pub granted_at_once: u64,
    /// Locks granted after a wait.
    pub granted_after_wait: u64,
    /// Holds ended by UNLOCK.
    pub released: u64,
    /// Holds ended because their connection did.
    pub released_by_disconnect: u64,
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
    /// Waits ended because the client was gone, or by [`Event::Cancel`].
    pub wait_cancels: u64,
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

    fn waited(&mut self, ns: u64) {
        self.granted_after_wait += 1;
        self.waited_ns = self.waited_ns.saturating_add(ns);
        let ms = ns.div_ceil(1_000_000).max(1);
        let bucket = (64 - (ms - 1).leading_zeros()) as usize;
        self.waited_ms_log2[bucket.min(16)] += 1;
    }
}

/// The sound table. Its tests build others, with one fault planted in each, to
/// see that they would find it; a constant parameter costs the sound one nothing.
const SOUND: u8 = 0;
const EARLY_EXPIRY: u8 = 1;
const TOKEN_REUSE: u8 = 2;
const UNLOCK_WITHOUT_OWNER_CHECK: u8 = 3;
const LOST_WAKE_UP: u8 = 4;
const OVERTAKING: u8 = 5;
const LEAKED_WAITER: u8 = 6;

/// Holds that the end of a session releases in one step; the rest follows with
/// the next ones, so that a client with a million locks stops nobody.
const RELEASES_PER_STEP: usize = 1024;
/// Likewise timers that one step fires or moves: when very many are due at once,
/// the rest follows with the next steps.
const TIMERS_PER_STEP: usize = 1024;

/// The lock table. See the module's head for its rules.
pub struct Table<const FAULT: u8 = SOUND> {
    key: HashKey,
    limits: Limits,
    names: Index<ByName>,
    owners: Index<ByOwner>,
    tokens: Index<ByToken>,
    locks: Slab<Lock>,
    claims: Slab<Claim>,
    queues: Slab<Queue>,
    blocks: Slab<Block>,
    timers: Timers,
    wheel: Vec<Links>,
    /// The list of the wheel that is being emptied, or [`NIL`].
    cascading: u32,
    /// Whether something that is due has not happened yet.
    behind: bool,
    sessions: Vec<Session>,
    free_slots: Vec<u32>,
    /// Slots of closed sessions that still own something.
    closing: Vec<u32>,
    open: u32,
    waiting: u32,
    leases: u64,
    held: u64,
    next_token: u64,
    tokens_end: u64,
    counters: Counters,
}

impl<const FAULT: u8> Table<FAULT> {
    /// An empty table whose first token will be `first_token`; none may be
    /// given out before [`Event::Tokens`].
    #[must_use]
    pub fn new(limits: Limits, key: HashKey, first_token: u64) -> Self {
        // Slot 0 stays unused, so that no session has the number 0.
        let nobody = Session {
            id: 0,
            open: false,
            owned: Links::ALONE,
            waiting: NIL,
        };
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
            timers: Timers::new(),
            wheel: timers::heads(),
            cascading: NIL,
            behind: false,
            sessions: vec![nobody],
            free_slots: Vec::new(),
            closing: Vec::new(),
            open: 0,
            waiting: 0,
            leases: 0,
            held: 0,
            next_token: first_token,
            tokens_end: first_token,
            counters: Counters::default(),
        }
    }

    /// Applies one event. What it means for other sessions is appended to
    /// `outputs`. `now` must not be earlier than in the step before.
    #[inline]
    pub fn step(&mut self, event: Event<'_>, now: Time, outputs: &mut Vec<Output>) -> Reply {
        if now.0 >= self.timers.next() {
            self.run_timers(now, outputs);
        }
        match event {
            Event::Lock(request) => self.lock(request, now, outputs),
            Event::Unlock {
                session,
                name,
                token,
            } => self.unlock(session, name, token, now, outputs),
            Event::Renew {
                name,
                token,
                ttl_ms,
            } => self.renew(name, token, ttl_ms, now, outputs),
            Event::Force { name } => self.force(name, now, outputs),
            Event::Open => self.open(),
            Event::Cancel { session } => {
                self.cancel(session, now, outputs);
                Reply::Done
            }
            Event::Close { session } => {
                self.close(session, now, outputs);
                Reply::Done
            }
            Event::Tokens { end } => {
                self.tokens_end = self.tokens_end.max(end);
                Reply::Done
            }
            Event::Tick => {
                self.reap(now, outputs);
                Reply::Done
            }
        }
    }

    /// When [`Event::Tick`] is due at the latest; `None`: when anything else
    /// happens.
    #[inline]
    #[must_use]
    pub fn next_tick(&self) -> Option<Time> {
        if self.behind || !self.closing.is_empty() {
            return Some(Time(0));
        }
        let next = self.timers.next();
        (next != NEVER).then_some(Time(next))
    }

    /// Tokens that can be given out before [`Event::Tokens`] is needed.
    #[inline]
    #[must_use]
    pub fn tokens_left(&self) -> u64 {
        self.tokens_end - self.next_token
    }

    /// The token that the next grant will have.
    #[must_use]
    pub fn next_token(&self) -> u64 {
        self.next_token
    }

    // Requests.

    #[inline]
    fn hash(&self, name: &[u8]) -> u32 {
        self.key.hash(name) as u32
    }

    #[inline(always)]
    fn find(&self, hash: u32, name: &[u8]) -> Option<u32> {
        let is_it = |lock: &Lock| lock.has_name(&self.blocks, name);
        let id = self.names.find(&self.locks, hash, is_it);
        (id != NIL).then_some(id)
    }

    /// The lock of a name, if it is held at this time.
    #[inline(always)]
    fn look_up(
        &mut self,
        hash: u32,
        name: &[u8],
        now: Time,
        outputs: &mut Vec<Output>,
    ) -> Option<u32> {
        if self.behind {
            return self.look_up_behind(hash, name, now, outputs);
        }
        self.find(hash, name)
    }

    #[inline]
    fn lock(&mut self, request: LockRequest<'_>, now: Time, outputs: &mut Vec<Output>) -> Reply {
        if request.name.is_empty() || request.name.len() > self.limits.name_bytes {
            return self.refuse(Refusal::Name);
        }
        debug_assert!(self.sessions[request.session.slot()].waiting == NIL);
        let hash = self.hash(request.name);
        match self.look_up(hash, request.name, now, outputs) {
            None => self.lock_free(request, hash, now),
            Some(id) => self.lock_held(id, request, now),
        }
    }

    /// Takes a lock that nobody holds.
    #[inline]
    fn lock_free(&mut self, request: LockRequest<'_>, hash: u32, now: Time) -> Reply {
        if self.locks.growth() != 0 || request.name.len() > entries::NAME_INLINE {
            let blocks = blocks_for(request.name.len()) * size_of::<Block>();
            let full = self.locks.touched() == Ref::COUNT;
            if full || self.bytes() + self.locks.growth() + blocks > self.limits.memory_bytes {
                return self.refuse(Refusal::Memory);
            }
        }
        if request.mode == Mode::Shared && self.no_room_for_claim() {
            return self.refuse(Refusal::Memory);
        }
        let Some(token) = self.take_token() else {
            return self.refuse(Refusal::Tokens);
        };
        let id = self.locks.take();
        let lock = &mut self.locks[id];
        lock.used = true;
        lock.hash = hash;
        lock.set_name(&mut self.blocks, request.name);
        self.names.insert(&mut self.locks, id);
        self.counters.granted_at_once += 1;
        let (session, ttl_ms) = (request.session.0, request.ttl_ms.unwrap_or(0));
        match request.mode {
            Mode::Exclusive => self.hold(id, session, token, ttl_ms, now),
            Mode::Shared => self.share_at_once(id, session, token, ttl_ms, now),
        }
        Reply::Granted(token)
    }

    /// Asks for a lock that somebody holds.
    fn lock_held(&mut self, id: u32, request: LockRequest<'_>, now: Time) -> Reply {
        if self.owns(id, request.session.0) {
            return Reply::AlreadyHeld;
        }
        let lock = &self.locks[id];
        let queued = if lock.queue == NIL {
            0
        } else {
            self.queues[lock.queue].waiting.len
        };
        let in_turn = queued == 0 || FAULT == OVERTAKING;
        if request.mode == Mode::Shared && !lock.exclusive && in_turn {
            if self.no_room_for_claim() {
                return self.refuse(Refusal::Memory);
            }
            let Some(token) = self.take_token() else {
                return self.refuse(Refusal::Tokens);
            };
            self.counters.granted_at_once += 1;
            let (session, ttl_ms) = (request.session.0, request.ttl_ms.unwrap_or(0));
            self.share_at_once(id, session, token, ttl_ms, now);
            return Reply::Granted(token);
        }
        if request.wait_ms == Some(0) {
            self.counters.busy += 1;
            return Reply::Busy;
        }
        if queued >= self.limits.waiters_per_lock {
            return self.refuse(Refusal::WaitersOfLock);
        }
        if self.waiting >= self.limits.waiters {
            return self.refuse(Refusal::Waiters);
        }
        if self.no_room_for_claim() {
            return self.refuse(Refusal::Memory);
        }
        self.enqueue(id, request, now);
        Reply::Queued
    }

    fn enqueue(&mut self, id: u32, request: LockRequest<'_>, now: Time) {
        let claim_id = self.claims.take();
        let claim = &mut self.claims[claim_id];
        claim.session = request.session.0;
        claim.since = now.0;
        claim.ttl_ms = request.ttl_ms.unwrap_or(0);
        claim.lock = id;
        claim.state = State::Waiting;
        claim.exclusive = request.mode == Mode::Exclusive;
        let queue = self.queue_of(id);
        self.queues[queue]
            .waiting
            .push_back(&mut self.claims, claim_id);
        if let Some(wait_ms) = request.wait_ms {
            self.set_deadline(Ref::new(Kind::Claim, claim_id), now.after_ms(wait_ms));
        }
        self.sessions[request.session.slot()].waiting = claim_id;
        self.waiting += 1;
        self.counters.waits += 1;
    }

    #[inline]
    fn unlock(
        &mut self,
        session: SessionId,
        name: &[u8],
        token: Option<u64>,
        now: Time,
        outputs: &mut Vec<Output>,
    ) -> Reply {
        let Some(id) = self.look_up(self.hash(name), name, now, outputs) else {
            self.counters.not_held += 1;
            return Reply::NotHeld;
        };
        let lock = &self.locks[id];
        if lock.exclusive {
            let meant = match token {
                Some(token) => lock.token == token,
                None => lock.session == session.0 || FAULT == UNLOCK_WITHOUT_OWNER_CHECK,
            };
            if !meant {
                self.counters.not_owner += 1;
                return Reply::NotOwner;
            }
            self.end_hold(id);
        } else {
            let claim = match token {
                Some(token) => self.sharer_by_token(id, token),
                None => self.sharer_by_session(id, session.0),
            };
            let Some(claim) = claim else {
                self.counters.not_owner += 1;
                return Reply::NotOwner;
            };
            self.end_share(claim);
        }
        self.counters.released += 1;
        self.serve(id, now.0, now, outputs);
        Reply::Released
    }

    fn renew(
        &mut self,
        name: &[u8],
        token: u64,
        ttl_ms: u64,
        now: Time,
        outputs: &mut Vec<Output>,
    ) -> Reply {
        let found = self.look_up(self.hash(name), name, now, outputs);
        let Some(entry) = found.and_then(|id| self.hold_of(id, token)) else {
            self.counters.not_owner += 1;
            return Reply::NotOwner;
        };
        if *self.deadline_of(entry) == NEVER {
            return Reply::NoLease;
        }
        self.unlink(entry);
        self.set_deadline(entry, now.after_ms(ttl_ms));
        self.counters.renewed += 1;
        Reply::Renewed
    }

    /// The hold of a lock that a token means.
    fn hold_of(&self, id: u32, token: u64) -> Option<Ref> {
        let lock = &self.locks[id];
        if lock.exclusive {
            (lock.token == token).then_some(Ref::new(Kind::Lock, id))
        } else {
            self.sharer_by_token(id, token)
                .map(|claim| Ref::new(Kind::Claim, claim))
        }
    }

    fn force(&mut self, name: &[u8], now: Time, outputs: &mut Vec<Output>) -> Reply {
        let Some(id) = self.look_up(self.hash(name), name, now, outputs) else {
            return Reply::Forced(0);
        };
        let mut ended = 0;
        if self.locks[id].exclusive {
            self.end_hold(id);
            ended = 1;
        } else {
            let queue = self.locks[id].queue;
            while self.queues[queue].sharing.head != NIL {
                self.end_share(self.queues[queue].sharing.head);
                ended += 1;
            }
        }
        self.counters.forced += ended;
        self.serve(id, now.0, now, outputs);
        Reply::Forced(ended)
    }

    fn refuse(&mut self, refusal: Refusal) -> Reply {
        self.counters.refused += 1;
        Reply::Refused(refusal)
    }

    // Sessions.

    fn open(&mut self) -> Reply {
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None if self.sessions.len() >> SessionId::SLOT_BITS != 0 => {
                return self.refuse(Refusal::Sessions);
            }
            None => {
                let slot = self.sessions.len() as u32;
                let id = u64::from(slot);
                self.sessions.push(Session {
                    id,
                    open: false,
                    owned: Links::ALONE,
                    waiting: NIL,
                });
                slot
            }
        };
        let head = Ref::new(Kind::Session, slot);
        let session = &mut self.sessions[slot as usize];
        session.owned = Links {
            prev: head,
            next: head,
        };
        session.open = true;
        self.open += 1;
        Reply::Opened(SessionId(session.id))
    }

    fn is_open(&self, session: SessionId) -> bool {
        self.sessions
            .get(session.slot())
            .is_some_and(|found| found.id == session.0 && found.open)
    }

    fn cancel(&mut self, session: SessionId, now: Time, outputs: &mut Vec<Output>) {
        let claim = self.sessions[session.slot()].waiting;
        if !self.is_open(session) || claim == NIL || FAULT == LEAKED_WAITER {
            return;
        }
        self.counters.wait_cancels += 1;
        let lock = self.claims[claim].lock;
        self.end_wait(claim);
        self.serve(lock, now.0, now, outputs);
    }

    fn close(&mut self, session: SessionId, now: Time, outputs: &mut Vec<Output>) {
        if !self.is_open(session) {
            return;
        }
        self.cancel(session, now, outputs);
        self.sessions[session.slot()].open = false;
        self.open -= 1;
        self.closing.push(session.slot() as u32);
        self.reap(now, outputs);
    }

    /// Releases what closed sessions own, a bounded number of locks at a time.
    fn reap(&mut self, now: Time, outputs: &mut Vec<Output>) {
        let mut budget = RELEASES_PER_STEP;
        while let Some(&slot) = self.closing.last() {
            let head = Ref::new(Kind::Session, slot);
            loop {
                let entry = self.sessions[slot as usize].owned.next;
                if entry == head {
                    break;
                }
                if budget == 0 {
                    return;
                }
                budget -= 1;
                let lock = self.end_entry(entry);
                self.counters.released_by_disconnect += 1;
                self.serve(lock, now.0, now, outputs);
            }
            self.closing.pop();
            let session = &mut self.sessions[slot as usize];
            session.owned = Links::ALONE;
            session.waiting = NIL;
            session.id += 1 << SessionId::SLOT_BITS;
            self.free_slots.push(slot);
        }
    }

    // Time.

    #[cold]
    fn run_timers(&mut self, now: Time, outputs: &mut Vec<Output>) {
        let now = if FAULT == EARLY_EXPIRY {
            Time(now.0 + 3_000_000)
        } else {
            now
        };
        self.behind = !self.work_off_timers(now, outputs);
        if self.behind {
            self.timers.hurry();
        } else {
            self.timers.settle();
        }
    }

    /// Does what is due, a bounded amount at a time; false: there is more.
    fn work_off_timers(&mut self, now: Time, outputs: &mut Vec<Output>) -> bool {
        let mut budget = TIMERS_PER_STEP;
        loop {
            while budget > 0
                && let Some((deadline, entry)) = self.timers.pop_due(now.0)
            {
                if *self.deadline_of(entry) == deadline {
                    self.expire(entry, deadline, now, outputs);
                }
                budget -= 1;
            }
            if self.cascading == NIL {
                match self.timers.advance(now.0) {
                    Some(list) => self.cascading = list,
                    None => return budget > 0,
                }
            }
            self.cascade(&mut budget);
            if budget == 0 {
                return false;
            }
        }
    }

    /// Places the entries of the list that time has reached again, nearer to now.
    fn cascade(&mut self, budget: &mut usize) {
        let head = Ref::new(Kind::Wheel, self.cascading);
        while *budget > 0 {
            let entry = self.wheel[self.cascading as usize].next;
            if entry == head {
                self.cascading = NIL;
                return;
            }
            let deadline = *self.deadline_of(entry);
            self.unlink(entry);
            self.set_deadline_link(entry, deadline);
            *budget -= 1;
        }
    }

    /// While timers are behind: ends what is due of the holds of one lock, so
    /// that a lapsed lease is of no use to anybody however late its timer comes.
    #[cold]
    fn look_up_behind(
        &mut self,
        hash: u32,
        name: &[u8],
        now: Time,
        outputs: &mut Vec<Output>,
    ) -> Option<u32> {
        loop {
            let id = self.find(hash, name)?;
            let lock = &self.locks[id];
            let due = |entry: &Ref| *self.deadline_of(*entry) <= now.0;
            let lapsed = if lock.exclusive {
                Some(Ref::new(Kind::Lock, id)).filter(due)
            } else {
                let sharing = self.queues[lock.queue].sharing.head;
                let line = std::iter::successors((sharing != NIL).then_some(sharing), |at| {
                    let next = self.claims[*at].next();
                    (next != NIL).then_some(next)
                });
                line.map(|at| Ref::new(Kind::Claim, at)).find(due)
            };
            let Some(entry) = lapsed else {
                return Some(id);
            };
            let deadline = *self.deadline_of(entry);
            self.expire(entry, deadline, now, outputs);
        }
    }

    /// A deadline has passed. Whoever is served by it is served as of that
    /// instant: a waiter whose time ran until just after it still gets the lock,
    /// however late the step comes.
    fn expire(&mut self, entry: Ref, deadline: u64, now: Time, outputs: &mut Vec<Output>) {
        let waiter =
            entry.kind() == Kind::Claim && self.claims[entry.index()].state == State::Waiting;
        let lock = if waiter {
            let lock = self.claims[entry.index()].lock;
            self.time_out(entry.index(), outputs);
            lock
        } else {
            self.counters.expired += 1;
            self.end_entry(entry)
        };
        if FAULT == LOST_WAKE_UP && !waiter {
            return;
        }
        self.serve(lock, deadline, now, outputs);
    }

    fn time_out(&mut self, claim: u32, outputs: &mut Vec<Output>) {
        let session = SessionId(self.claims[claim].session);
        self.counters.wait_timeouts += 1;
        self.end_wait(claim);
        outputs.push(Output {
            session,
            outcome: Outcome::TimedOut,
        });
    }

    fn deadline_of(&self, entry: Ref) -> &u64 {
        match entry.kind() {
            Kind::Lock => &self.locks[entry.index()].deadline,
            _ => &self.claims[entry.index()].deadline,
        }
    }

    #[inline]
    fn set_deadline(&mut self, entry: Ref, deadline: u64) {
        match entry.kind() {
            Kind::Lock => self.locks[entry.index()].deadline = deadline,
            _ => self.claims[entry.index()].deadline = deadline,
        }
        self.set_deadline_link(entry, deadline);
    }

    #[inline]
    fn set_deadline_link(&mut self, entry: Ref, deadline: u64) {
        if let Place::List(list) = self.timers.place(entry, deadline) {
            self.link(Ref::new(Kind::Wheel, list), entry);
        }
    }

    // Grants.

    #[inline]
    fn take_token(&mut self) -> Option<u64> {
        if self.next_token >= self.tokens_end {
            return None;
        }
        let token = self.next_token;
        self.next_token += 1;
        Some(if FAULT == TOKEN_REUSE && token.is_multiple_of(16) {
            token - 1
        } else {
            token
        })
    }

    /// Gives the lock to those at the head of its queue, as far as it can be
    /// given, as of the instant `at`; drops the lock when nobody wants it.
    #[inline]
    fn serve(&mut self, id: u32, at: u64, now: Time, outputs: &mut Vec<Output>) {
        if self.locks[id].queue == NIL {
            if !self.locks[id].exclusive {
                self.drop_lock(id);
            }
            return;
        }
        self.serve_queue(id, at, now, outputs);
    }

    fn serve_queue(&mut self, id: u32, at: u64, now: Time, outputs: &mut Vec<Output>) {
        loop {
            let lock = &self.locks[id];
            let queue = &self.queues[lock.queue];
            let (head, sharing) = (queue.waiting.head, queue.sharing.len);
            if head == NIL {
                break;
            }
            let claim = &self.claims[head];
            if claim.deadline <= at {
                self.time_out(head, outputs);
                continue;
            }
            if lock.exclusive || (claim.exclusive && sharing != 0) {
                return;
            }
            self.grant(id, head, now, outputs);
        }
        let lock = &self.locks[id];
        if self.queues[lock.queue].sharing.len == 0 {
            self.queues.give(lock.queue);
            let exclusive = lock.exclusive;
            self.locks[id].queue = NIL;
            if !exclusive {
                self.drop_lock(id);
            }
        }
    }

    /// Ends the wait of the first in line with a grant, or, if there are no
    /// tokens, with a refusal.
    fn grant(&mut self, id: u32, claim_id: u32, now: Time, outputs: &mut Vec<Output>) {
        let claim = &self.claims[claim_id];
        let (session, ttl_ms, exclusive) = (claim.session, claim.ttl_ms, claim.exclusive);
        let waited_ns = now.0 - claim.since;
        let outcome = match self.take_token() {
            None => {
                self.counters.refused += 1;
                self.end_wait(claim_id);
                Outcome::Refused(Refusal::Tokens)
            }
            Some(token) => {
                self.counters.waited(waited_ns);
                if exclusive {
                    self.end_wait(claim_id);
                    self.hold(id, session, token, ttl_ms, now);
                } else {
                    self.leave_queue(claim_id);
                    self.share(claim_id, token, ttl_ms, now);
                }
                Outcome::Granted {
                    token,
                    lease: ttl_ms != 0,
                }
            }
        };
        outputs.push(Output {
            session: SessionId(session),
            outcome,
        });
    }

    /// Makes a session the exclusive holder.
    #[inline]
    fn hold(&mut self, id: u32, session: u64, token: u64, ttl_ms: u64, now: Time) {
        let lock = &mut self.locks[id];
        lock.token = token;
        lock.session = session;
        lock.exclusive = true;
        self.own(Ref::new(Kind::Lock, id), session, ttl_ms, now);
    }

    /// Puts a hold under its deadline or into its session's list.
    #[inline]
    fn own(&mut self, entry: Ref, session: u64, ttl_ms: u64, now: Time) {
        self.held += 1;
        if ttl_ms == 0 {
            let slot = SessionId(session).slot() as u32;
            self.link(Ref::new(Kind::Session, slot), entry);
        } else {
            self.leases += 1;
            self.set_deadline(entry, now.after_ms(ttl_ms));
        }
    }

    fn share_at_once(&mut self, id: u32, session: u64, token: u64, ttl_ms: u64, now: Time) {
        let claim_id = self.claims.take();
        let claim = &mut self.claims[claim_id];
        claim.session = session;
        claim.lock = id;
        self.share(claim_id, token, ttl_ms, now);
    }

    /// Makes a claim, which is in no list, one of the holders of its lock.
    fn share(&mut self, claim_id: u32, token: u64, ttl_ms: u64, now: Time) {
        let claim = &mut self.claims[claim_id];
        claim.state = State::Sharing;
        claim.token = token;
        claim.deadline = NEVER;
        let (lock, session) = (claim.lock, claim.session);
        claim.set_owner_hash(owner_hash(lock, session));
        let queue = self.queue_of(lock);
        self.queues[queue]
            .sharing
            .push_back(&mut self.claims, claim_id);
        self.owners.insert(&mut self.claims, claim_id);
        self.tokens.insert(&mut self.claims, claim_id);
        self.own(Ref::new(Kind::Claim, claim_id), session, ttl_ms, now);
    }

    // Ends.

    /// Ends the exclusive hold of a lock.
    #[inline]
    fn end_hold(&mut self, id: u32) {
        self.unlink(Ref::new(Kind::Lock, id));
        let lock = &mut self.locks[id];
        self.held -= 1;
        self.leases -= u64::from(lock.deadline != NEVER);
        lock.deadline = NEVER;
        lock.exclusive = false;
    }

    /// Ends a shared hold.
    fn end_share(&mut self, claim_id: u32) {
        self.unlink(Ref::new(Kind::Claim, claim_id));
        let claim = &self.claims[claim_id];
        self.held -= 1;
        self.leases -= u64::from(claim.deadline != NEVER);
        let queue = self.locks[claim.lock].queue;
        self.queues[queue]
            .sharing
            .remove(&mut self.claims, claim_id);
        self.owners.remove(&mut self.claims, claim_id);
        self.tokens.remove(&mut self.claims, claim_id);
        self.claims.give(claim_id);
    }

    /// Ends a hold of either kind; says of which lock.
    fn end_entry(&mut self, entry: Ref) -> u32 {
        if entry.kind() == Kind::Lock {
            self.end_hold(entry.index());
            return entry.index();
        }
        let lock = self.claims[entry.index()].lock;
        self.end_share(entry.index());
        lock
    }

    /// Takes a waiter out of the queue; its claim stays.
    fn leave_queue(&mut self, claim_id: u32) {
        self.unlink(Ref::new(Kind::Claim, claim_id));
        let claim = &self.claims[claim_id];
        let queue = self.locks[claim.lock].queue;
        self.sessions[SessionId(claim.session).slot()].waiting = NIL;
        self.queues[queue]
            .waiting
            .remove(&mut self.claims, claim_id);
        self.waiting -= 1;
    }

    /// Takes a waiter out of the queue and drops its claim.
    fn end_wait(&mut self, claim_id: u32) {
        self.leave_queue(claim_id);
        self.claims.give(claim_id);
    }

    #[inline]
    fn drop_lock(&mut self, id: u32) {
        self.names.remove(&mut self.locks, id);
        self.locks[id].drop_name(&mut self.blocks);
        self.locks.give(id);
    }

    // Look-ups among holders.

    /// Whether a session owns the lock, without a lease.
    fn owns(&self, id: u32, session: u64) -> bool {
        let lock = &self.locks[id];
        if lock.exclusive {
            return lock.session == session && lock.deadline == NEVER;
        }
        self.sharers(id, session)
            .any(|claim| self.claims[claim].deadline == NEVER)
    }

    /// The shared holds of one session, the latest first.
    fn sharers(&self, id: u32, session: u64) -> impl Iterator<Item = u32> {
        let mut at = self.owners.first(owner_hash(id, session));
        std::iter::from_fn(move || {
            while at != NIL {
                let (claim_id, claim) = (at, &self.claims[at]);
                at = claim.owner_chain();
                if claim.lock == id && claim.session == session {
                    return Some(claim_id);
                }
            }
            None
        })
    }

    /// The shared hold that a session means when it names no token: what its
    /// connection owns, else its latest lease.
    fn sharer_by_session(&self, id: u32, session: u64) -> Option<u32> {
        self.sharers(id, session).max_by_key(|&claim| {
            let claim = &self.claims[claim];
            (claim.deadline == NEVER, claim.token)
        })
    }

    fn sharer_by_token(&self, id: u32, token: u64) -> Option<u32> {
        let mut at = self.tokens.first(hash::spread(token));
        while at != NIL {
            let claim = &self.claims[at];
            if claim.token == token && claim.lock == id {
                return Some(at);
            }
            at = claim.token_chain();
        }
        None
    }

    fn queue_of(&mut self, id: u32) -> u32 {
        if self.locks[id].queue == NIL {
            self.locks[id].queue = self.queues.take();
        }
        self.locks[id].queue
    }

    fn no_room_for_claim(&self) -> bool {
        let growth = self.claims.growth() + self.queues.growth();
        growth != 0 && self.bytes() + growth > self.limits.memory_bytes
    }

    // Circular lists.

    #[inline]
    fn links(&mut self, entry: Ref) -> &mut Links {
        match entry.kind() {
            Kind::Lock => &mut self.locks[entry.index()].links,
            Kind::Claim => &mut self.claims[entry.index()].links,
            Kind::Wheel => &mut self.wheel[entry.index() as usize],
            Kind::Session => &mut self.sessions[entry.index() as usize].owned,
        }
    }

    /// Appends an entry, which is in no list, to the list of `head`.
    #[inline]
    fn link(&mut self, head: Ref, entry: Ref) {
        let last = std::mem::replace(&mut self.links(head).prev, entry);
        self.links(last).next = entry;
        *self.links(entry) = Links {
            prev: last,
            next: head,
        };
    }

    /// Takes an entry out of its list, if it is in one.
    #[inline]
    fn unlink(&mut self, entry: Ref) {
        let links = std::mem::replace(self.links(entry), Links::ALONE);
        if links.prev != Ref::NONE {
            self.links(links.prev).next = links.next;
            self.links(links.next).prev = links.prev;
        }
    }
}

fn owner_hash(lock: u32, session: u64) -> u32 {
    hash::spread(session ^ u64::from(lock) << 32)
}
