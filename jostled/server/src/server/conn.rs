//! One client's connection: its buffers, its user and its protocol state.

mod carried;

use std::net::SocketAddr;
use std::sync::Arc;

use jostle_resp::Protocol;

use super::gate::Kept;
use super::stream::Stream;
use crate::glob::Beginning;
use crate::handover::state::{Intake, Profile, Transaction};
use crate::table::{ClientId, Time};
use crate::users::User;

pub(crate) struct Conn {
    pub(crate) stream: Stream,
    pub(crate) id: ClientId,
    /// `None` on the Unix socket.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) protocol: Protocol,
    pub(crate) authenticated: bool,
    /// The user; `None` before AUTH.
    pub(crate) user: Option<Arc<User>>,
    /// The number of its user, or of the last one if it has logged out.
    number: u16,
    /// The user is off, or was removed.
    pub(crate) gone: bool,
    /// Admitted on a place reserved for administrators, and not logged in as one yet.
    pub(crate) probation: bool,
    /// The daemon waits for holders before its end.
    pub(crate) draining: bool,
    /// Its commands are to be checked one by one.
    pub(crate) restricted: bool,
    /// Since MULTI.
    pub(crate) transaction: Option<Box<Transaction>>,
    /// Not authenticated, restricted, or in a transaction: combined into one flag, as
    /// every command checks it.
    pub(crate) guarded: bool,
    /// It may take and release locks; only a lock's name can still be forbidden.
    pub(crate) may_lock: bool,
    /// If `may_lock`: names with this beginning are allowed.
    pub(crate) names_begin: Option<Beginning>,
    pub(crate) phase: Phase,
    /// Wrong passwords given.
    pub(crate) wrong_passwords: u32,
    pub(crate) intake: Intake,
    /// Errors replied since it was last turned to.
    pub(crate) errors: usize,
    /// The connection has failed.
    pub(crate) broken: bool,
    /// It is in one of the server's lists of connections that go on.
    pub(crate) later: bool,
    /// Epoll tells when more can be sent.
    pub(crate) watched_for_room: bool,
    /// Replies not yet sent, from `sent` on.
    pub(crate) output: Vec<u8>,
    pub(crate) sent: usize,
    /// With a store: replies that may not be sent yet.
    pub(in crate::server) kept: Option<Box<Kept>>,
    /// The names that the LOCK or LOCKALL in progress wants, if it wants leases.
    pub(crate) wanted: Leases,
    /// Leases granted after a wait, whose replies were not yet sent.
    pub(crate) fresh_leases: Leases,
    /// Bytes of its buffers that the server has counted.
    pub(crate) accounted: usize,
    pub(crate) profile: Profile,
}

/// Capacity that an empty buffer may keep for the next time: enough that
/// commands do not allocate, little enough for 10,000 connections.
const KEEP: usize = 4096;

impl Conn {
    pub(crate) fn new(stream: Stream, id: ClientId, peer: Option<SocketAddr>, now: Time) -> Self {
        Self {
            stream,
            id,
            peer,
            protocol: Protocol::Resp2,
            authenticated: false,
            user: None,
            number: 0,
            gone: false,
            probation: false,
            draining: false,
            restricted: false,
            transaction: None,
            guarded: true,
            may_lock: false,
            names_begin: None,
            phase: Phase::Open,
            wrong_passwords: 0,
            intake: Intake::default(),
            errors: 0,
            broken: false,
            later: false,
            watched_for_room: false,
            output: Vec::new(),
            sent: 0,
            kept: None,
            wanted: Leases::default(),
            fresh_leases: Leases::default(),
            accounted: 0,
            profile: Profile {
                since: now,
                last_request: now,
                incomplete_since: Some(now),
                ..Default::default()
            },
        }
    }

    /// Makes the connection this user's.
    pub(crate) fn log_in(&mut self, user: Arc<User>, number: u16) {
        self.authenticated = true;
        self.profile.incomplete_since = None;
        self.user = Some(user);
        self.number = number;
        self.update_guard();
    }

    /// Ends the login: the connection is not authenticated until the next one.
    pub(crate) fn log_out(&mut self) {
        self.authenticated = false;
        self.update_guard();
    }

    /// Updates the flags for the checks of commands. Call it after every change to what
    /// they depend on.
    pub(crate) fn update_guard(&mut self) {
        let powerful = |user: &Arc<User>| user.is_all_powerful();
        let free = self.user.as_ref().is_some_and(powerful);
        self.restricted = self.gone || self.probation || self.draining || !free;
        let queues = self.transaction.is_some();
        self.guarded = !self.authenticated || self.restricted || queues;
        let held_back = self.gone || self.probation || self.draining || queues;
        let has_right = self.user.as_ref().is_some_and(|user| user.lock);
        self.may_lock = self.authenticated && has_right && !held_back;
        let user = self.user.as_ref().filter(|_| self.may_lock);
        self.names_begin = user.and_then(|user| user.beginning());
    }

    /// Ends the transaction, if there is one, and returns what it queued. Later
    /// commands are executed at once again.
    pub(crate) fn end_transaction(&mut self) -> Option<Box<Transaction>> {
        let transaction = self.transaction.take();
        self.update_guard();
        transaction
    }

    /// Delays the reply to a wrong password, twice as long with each: 1 s, 2 s, 4 s. No
    /// other command of this connection is executed until then.
    pub(crate) fn delay_refusal(&mut self, now: Time) {
        let seconds = 1 << self.wrong_passwords.min(6);
        self.wrong_passwords += 1;
        self.phase = Phase::Refused(Time(now.0 + seconds * 1_000_000_000));
    }

    /// Whether its commands are held back.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        !matches!(
            self.phase,
            Phase::Open | Phase::Released(_) | Phase::Checked
        )
    }

    pub(crate) fn user_number(&self) -> u16 {
        self.number
    }

    /// Its place in the rounds: that of clients that have not logged in, or its user's.
    pub(crate) fn place(&self) -> usize {
        match self.authenticated {
            true => usize::from(self.number) + 1,
            false => 0,
        }
    }

    /// Bytes of replies that may not be sent yet.
    pub(crate) fn held(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.len())
    }

    /// Replies that wait to be sent, in bytes.
    pub(crate) fn pending(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Whether replies wait because the client does not read them. Other waiting
    /// replies are kept back, to be sent together with those of other clients.
    pub(crate) fn is_stuck(&self) -> bool {
        self.profile.stuck_since.is_some()
    }

    /// Whether the client is gone while others need what it has: its place in a line,
    /// or a lease whose token it has not received. Its remaining requests could take
    /// further locks and must not be executed.
    #[inline]
    pub(crate) fn is_abandoned(&self) -> bool {
        let fresh = !self.fresh_leases.is_empty();
        (self.waits() && self.intake.hung_up) || (fresh && self.stream.peer_is_gone())
    }

    /// Frees the memory of empty buffers.
    pub(crate) fn trim(&mut self) {
        if self.intake.input.is_empty() {
            self.intake.input = Vec::new();
        }
        if self.pending() == 0 {
            (self.output, self.sent) = (Vec::new(), 0);
        }
        if !self.waits() {
            self.wanted = Leases::default();
        }
    }

    /// Bytes of memory in its buffers.
    #[inline]
    pub(crate) fn buffered(&self) -> usize {
        let queued = self.transaction.as_ref();
        let queued = queued.map_or(0, |queued| queued.requests.capacity());
        let leases = self.wanted.bytes() + self.fresh_leases.bytes();
        let bytes = self.intake.input.capacity() + self.output.capacity() + queued + leases;
        match &self.kept {
            None => bytes,
            Some(kept) => bytes + kept.capacity(),
        }
    }

    /// The client's address, as an administrator sees it.
    pub(crate) fn address(&self) -> String {
        self.peer
            .map_or_else(|| "unix".to_owned(), |peer| peer.to_string())
    }

    /// Sends what waits. An error means that the client is gone.
    #[inline(never)]
    pub(crate) fn flush(&mut self, now: Time) -> std::io::Result<()> {
        while self.sent < self.output.len() || self.stream.wants_write() {
            let sent = self.stream.transmit(&self.output[self.sent..])?;
            self.sent += sent;
            self.fresh_leases.retain_from(self.sent);
            let blocked = sent == 0 && self.sent < self.output.len();
            if blocked || self.stream.wants_write() {
                let since = self.profile.stuck_since.get_or_insert(now);
                if sent != 0 {
                    *since = now;
                }
                return Ok(());
            }
        }
        self.profile.stuck_since = None;
        self.fresh_leases.shift(self.sent);
        self.sent = 0;
        self.output.clear();
        self.output.shrink_to(KEEP);
        Ok(())
    }

    /// Forgets input that was executed.
    pub(crate) fn consume(&mut self, used: usize) {
        self.intake.input.drain(..used);
        self.intake
            .input
            .shrink_to(KEEP.max(self.intake.input.len()));
    }

    /// Whether there is something to read, and room for it.
    #[inline]
    pub(crate) fn can_read(&self, max_input: usize) -> bool {
        self.intake.readable
            && !self.intake.ended
            && !self.intake.closing
            && self.intake.input.len() < max_input
    }
}

/// Whether a connection's commands are executed, or what they wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    /// They are executed as they come.
    Open,
    /// A LOCK waits in the table, or a HANDOVER for its outcome.
    Waiting,
    /// The first request waits until locks are granted again.
    Parked(Parked),
    /// The first request has waited for that, and is executed next.
    Released(Parked),
    /// The first request gives a password, which is checked later.
    Unchecked,
    /// The first request has waited for that, and is executed next.
    Checked,
    /// The reply to a wrong password is sent at this time.
    Refused(Time),
}

/// A request that waits before it is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parked {
    /// The end of its wait.
    pub(crate) until: Option<Time>,
    /// Its bytes, at the start of the input.
    pub(crate) length: usize,
}

/// Names of leases and their tokens, 0 for those that are only wanted.
#[derive(Default)]
pub(crate) struct Leases {
    /// Each token with the length of its name, and where its reply begins: in the output,
    /// or behind it in what may not be sent yet.
    tokens: Vec<(u64, usize, usize)>,
    /// The names, one behind the other.
    names: Vec<u8>,
}

impl Leases {
    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Bytes of memory.
    fn bytes(&self) -> usize {
        self.names.capacity() + self.tokens.capacity() * size_of::<(u64, usize, usize)>()
    }

    pub(crate) fn push(&mut self, token: u64, name: &[u8], at: usize) {
        self.tokens.push((token, name.len(), at));
        self.names.extend_from_slice(name);
    }

    /// Forgets those whose replies have been sent, be it in part: the client may know them.
    fn retain_from(&mut self, sent: usize) {
        let known = self.tokens.iter().take_while(|(.., at)| *at < sent);
        let (count, bytes) = known.fold((0, 0), |(count, bytes), (_, length, _)| {
            (count + 1, bytes + length)
        });
        self.tokens.drain(..count);
        self.names.drain(..bytes);
    }

    /// The output loses this many bytes at its beginning.
    fn shift(&mut self, bytes: usize) {
        self.tokens.iter_mut().for_each(|(.., at)| *at -= bytes);
    }

    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
        self.names.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u8], usize)> {
        let mut rest = &self.names[..];
        self.tokens.iter().map(move |(token, length, at)| {
            let (name, after) = rest.split_at(*length);
            rest = after;
            (*token, name, *at)
        })
    }
}
