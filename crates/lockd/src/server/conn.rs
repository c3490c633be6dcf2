//! One client's connection: its buffers and what it has agreed on.

mod carried;

use std::net::SocketAddr;
use std::sync::Arc;

use jostle_resp::Protocol;

use super::commands::Transaction;
use super::stream::Stream;
use crate::glob::Beginning;
use crate::table::{ClientId, Time};
use crate::users::User;

pub(crate) struct Conn {
    pub(crate) stream: Stream,
    pub(crate) id: ClientId,
    /// `None` on the Unix socket.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) protocol: Protocol,
    pub(crate) authenticated: bool,
    /// Who it is; `None` before AUTH.
    pub(crate) user: Option<Arc<User>>,
    /// The number of its user, also of one it had before.
    number: u16,
    /// Its user is off, or no longer among the users.
    pub(crate) gone: bool,
    /// Let in on a place that is for administrators, and not known as one yet.
    pub(crate) probation: bool,
    /// The daemon waits for holders before its end.
    pub(crate) draining: bool,
    /// Its commands are to be checked one by one.
    pub(crate) restricted: bool,
    /// Since MULTI.
    pub(crate) transaction: Option<Box<Transaction>>,
    /// Not authenticated, restricted, or in a transaction: one question for all, as
    /// every command is asked.
    pub(crate) guarded: bool,
    /// Nothing but the name of a lock can forbid it to take or give it back.
    pub(crate) may_lock: bool,
    /// While it may, names that begin so are allowed.
    pub(crate) names_begin: Option<Beginning>,
    /// Commands are held back while a LOCK waits, or the answer to a wrong
    /// password.
    pub(crate) waiting: bool,
    /// Wrong passwords that it gave, and when the last one is answered; until
    /// then it waits, too.
    pub(crate) wrong_passwords: u32,
    pub(crate) refusal_due: Option<Time>,
    /// To be closed once its replies are sent.
    pub(crate) closing: bool,
    /// Its socket may hold more than was read. Epoll tells of it once only.
    pub(crate) readable: bool,
    /// The client has closed its side, though not all that it sent may be read.
    pub(crate) hung_up: bool,
    /// The client has closed its side; nothing more will come.
    pub(crate) ended: bool,
    /// `input` may hold whole requests, which the next turn executes.
    pub(crate) more: bool,
    /// Stands in the list of those whose turn goes on.
    pub(crate) later: bool,
    /// Epoll tells when more can be sent.
    pub(crate) watched_for_room: bool,
    /// Received and not yet executed.
    pub(crate) input: Vec<u8>,
    /// No request is whole before `input` has so many bytes.
    pub(crate) needed: usize,
    /// Replies not yet sent, from `sent` on.
    pub(crate) output: Vec<u8>,
    pub(crate) sent: usize,
    /// The names that the LOCK or LOCKALL in progress wants, if it wants leases.
    pub(crate) wanted: Wanted,
    /// Leases granted after a wait, whose replies were not yet sent.
    pub(crate) fresh_leases: FreshLeases,
    /// Bytes of its buffers that the server has counted.
    pub(crate) accounted: usize,
    pub(crate) since: Time,
    pub(crate) last_request: Time,
    /// Since when a request is incomplete, or the client not yet known.
    pub(crate) incomplete_since: Option<Time>,
    /// Since when replies wait and none has been taken.
    pub(crate) stuck_since: Option<Time>,
    pub(crate) commands: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
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
            waiting: false,
            wrong_passwords: 0,
            refusal_due: None,
            closing: false,
            readable: false,
            hung_up: false,
            ended: false,
            more: false,
            later: false,
            watched_for_room: false,
            input: Vec::new(),
            needed: 0,
            output: Vec::new(),
            sent: 0,
            wanted: Wanted::default(),
            fresh_leases: FreshLeases::default(),
            accounted: 0,
            since: now,
            last_request: now,
            incomplete_since: Some(now),
            stuck_since: None,
            commands: 0,
            name: Vec::new(),
            library: Vec::new(),
            library_version: Vec::new(),
        }
    }

    /// Is this user's from now on.
    pub(crate) fn log_in(&mut self, user: Arc<User>, number: u16) {
        self.authenticated = true;
        self.incomplete_since = None;
        self.user = Some(user);
        self.number = number;
        self.update_guard();
    }

    /// Is nobody's until somebody logs in.
    pub(crate) fn log_out(&mut self) {
        self.authenticated = false;
        self.update_guard();
    }

    /// To be called when anything has changed that commands are checked for.
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

    /// What was queued since MULTI, if that was said; commands are executed again.
    pub(crate) fn end_transaction(&mut self) -> Option<Box<Transaction>> {
        let transaction = self.transaction.take();
        self.update_guard();
        transaction
    }

    /// Lets a wrong password cost time, twice as much with each: 1 s, 2 s, 4 s.
    /// Nothing else of this connection is executed until then.
    pub(crate) fn delay_refusal(&mut self, now: Time) {
        let seconds = 1 << self.wrong_passwords.min(6);
        self.wrong_passwords += 1;
        self.refusal_due = Some(Time(now.0 + seconds * 1_000_000_000));
        self.waiting = true;
    }

    /// The number of its user.
    pub(crate) fn user_number(&self) -> u16 {
        self.number
    }

    /// Replies that wait to be sent, in bytes.
    pub(crate) fn pending(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Whether replies wait because the client does not take them; else they are
    /// kept back for those of others.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck_since.is_some()
    }

    /// Whether the client is gone, and is owed what nobody else should lack: its
    /// place in a line, or a lease whose token it has not got. What it had queued
    /// may take further locks and must not be executed.
    #[inline]
    pub(crate) fn is_forsaken(&self) -> bool {
        let fresh = !self.fresh_leases.is_empty();
        (self.waiting && self.hung_up) || (fresh && self.stream.peer_is_gone())
    }

    /// Gives the memory of buffers back that are empty.
    pub(crate) fn trim(&mut self) {
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        if self.pending() == 0 {
            (self.output, self.sent) = (Vec::new(), 0);
        }
    }

    /// Bytes of memory in its buffers.
    #[inline]
    pub(crate) fn buffered(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, |queued| queued.bytes());
        self.input.capacity() + self.output.capacity() + queued
    }

    /// Where it comes from, as an administrator reads it.
    pub(crate) fn address(&self) -> String {
        self.peer
            .map_or_else(|| "unix".to_owned(), |peer| peer.to_string())
    }

    /// Sends what waits. An error means that the client is gone.
    pub(crate) fn flush(&mut self, now: Time) -> std::io::Result<()> {
        while self.sent < self.output.len() || self.stream.wants_write() {
            let sent = self.stream.transmit(&self.output[self.sent..])?;
            self.sent += sent;
            let blocked = sent == 0 && self.sent < self.output.len();
            if blocked || self.stream.wants_write() {
                let since = self.stuck_since.get_or_insert(now);
                if sent != 0 {
                    *since = now;
                }
                return Ok(());
            }
        }
        self.stuck_since = None;
        self.sent = 0;
        self.output.clear();
        self.output.shrink_to(KEEP);
        Ok(())
    }

    /// Forgets input that was executed.
    pub(crate) fn consume(&mut self, used: usize) {
        self.input.drain(..used);
        self.input.shrink_to(KEEP.max(self.input.len()));
    }

    /// Whether there is something to read, and room for it.
    #[inline]
    pub(crate) fn can_read(&self, max_input: usize) -> bool {
        self.readable && !self.ended && !self.closing && self.input.len() < max_input
    }
}

/// Names, one behind the other.
#[derive(Default)]
pub(crate) struct Wanted {
    names: Vec<u8>,
    lengths: Vec<usize>,
}

impl Wanted {
    pub(crate) fn set(&mut self, names: &[&[u8]]) {
        self.names.clear();
        self.lengths.clear();
        for name in names {
            self.names.extend_from_slice(name);
            self.lengths.push(name.len());
        }
    }
}

/// Tokens and names of leases.
#[derive(Default)]
pub(crate) struct FreshLeases {
    /// Each with the length of its name.
    tokens: Vec<(u64, usize)>,
    names: Vec<u8>,
}

impl FreshLeases {
    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Adds what was wanted, with this token and those that follow it.
    pub(crate) fn push(&mut self, first: u64, wanted: &Wanted) {
        let lengths = wanted.lengths.iter().copied();
        self.tokens.extend((first..).zip(lengths));
        self.names.extend_from_slice(&wanted.names);
    }

    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
        self.names.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut rest = &self.names[..];
        self.tokens.iter().map(move |(token, length)| {
            let (name, after) = rest.split_at(*length);
            rest = after;
            (*token, name)
        })
    }
}
