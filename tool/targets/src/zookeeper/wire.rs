//! One worker's side of the recipe, without the socket: the sequence of requests and
//! answers.

mod complaints;

use super::jute::{self, EVENT, Frame, PING, Reader, error, flags, op};
use super::session::{Identity, Session};
use crate::prelude::*;
use crate::steps::{self, Framed, Steps};
use crate::stream::Stream;
use crate::surplus;
use crate::wire::Answer;
use complaints::{LAPSED, LOST, SILENT, complaint};
use jostle_sys::clock;
use std::cell::Cell;
use std::io::Write;
use std::time::Duration;

/// Digits that the server appends to a sequential node's name.
const DIGITS: usize = 10;

/// The name before the digits.
const MARK: &[u8] = b"lock-";

/// Pings per session timeout. A server that answers none of them counts as gone.
const PINGS: u64 = 3;

/// The Java library pings as often at least, however long the session lives.
const LONGEST_SILENCE_NS: u64 = 10_000_000_000;

/// Where a session can be taken up again.
#[derive(Debug)]
pub(super) struct Place {
    /// All of the ensemble.
    pub servers: Vec<Address>,
    /// Who asks.
    pub own: Credentials,
}

/// A worker in its session.
#[derive(Debug)]
pub struct ZookeeperWire {
    names: Names,
    session: Identity,
    timeout_ns: u64,
    /// None: it ends with its connection.
    place: Option<Place>,
    /// Our node stands in the queue of `key`, and the attempt is not over.
    is_queued: bool,
    /// The request under way when the connection failed, which may have been done:
    /// [`State::Creating`] or [`State::Releasing`].
    doubt: Option<State>,
    xid: i32,
    state: State,
    /// The lock that is asked for, and how long for.
    key: usize,
    limit: Asking,
    gives_up: bool,
    /// Our node of each lock.
    nodes: Vec<Node>,
    /// How many there were.
    count: u64,
    /// The number of a node of ours that is to be removed.
    stray: u32,
    /// The path of the node that we wait for.
    elder: Vec<u8>,
    token: u64,
    /// When the last request was sent, which shows the server that we live.
    sent_ns: u64,
    /// Pings since the server was last heard. A cell, since [`Wire::decode`] notes it.
    unanswered: Cell<u64>,
}

/// Our node of a lock.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// For its GUID.
    count: u64,
    sequence: u32,
}

/// The awaited answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing.
    Idle,
    /// Our node.
    Creating,
    /// Its parent, which was not there.
    Containing,
    /// The nodes of the lock.
    Listing,
    /// The node before ours, with a watch.
    Looking,
    /// The watch's event.
    Watching,
    /// Our node's end, since the attempt is over.
    Leaving,
    /// The end of a node of ours that we did not know.
    Purging,
    /// Our node's end.
    Releasing,
    /// That the session lives on, and nothing else.
    Pinging,
    /// The next request is to be sent, by [`Wire::go_on`].
    Due(Step),
}

/// A request that may follow an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Contain,
    List,
    Look,
    Leave,
    /// The deletion of a node of ours that we did not know.
    Purge,
}

const CREATE: &str = "create";
const LIST: &str = "getChildren";
const LOOK: &str = "getData";
const DELETE: &str = "delete";
const PING_CALL: &str = "ping";

impl ZookeeperWire {
    /// For a session that has just begun.
    pub(super) fn new(
        names: Names,
        keys: usize,
        (session, timeout_ns): (Identity, u64),
        place: Option<Place>,
    ) -> ZookeeperWire {
        ZookeeperWire {
            names,
            session,
            timeout_ns,
            place,
            is_queued: false,
            doubt: None,
            xid: 0,
            state: State::Idle,
            key: 0,
            limit: Asking::Block,
            gives_up: false,
            nodes: vec![Node::default(); keys],
            count: 0,
            stray: 0,
            elder: Vec::new(),
            token: 0,
            sent_ns: clock::monotonic(),
            unanswered: Cell::new(0),
        }
    }

    fn parent(&self, key: usize, out: &mut Vec<u8>) {
        out.push(b'/');
        out.extend_from_slice(&self.names.name(key));
    }

    /// A node's path without the digits. The part in the place of a GUID has the length of
    /// one, and is unique because session numbers are.
    fn stem(&self, key: usize, out: &mut Vec<u8>) {
        self.parent(key, out);
        let (session, count) = (self.session.id as u64, self.nodes[key].count);
        // Writing to memory does not fail.
        let _ = write!(
            out,
            "/_c_{:08x}-{:04x}-{:04x}-{:04x}-{:012x}-lock-",
            session >> 32,
            session >> 16 & 0xffff,
            session & 0xffff,
            count >> 48,
            count & 0xffff_ffff_ffff,
        );
    }

    fn own(&self, key: usize, out: &mut Vec<u8>) {
        self.stem(key, out);
        let _ = write!(out, "{:010}", self.nodes[key].sequence);
    }

    /// The next request's number.
    fn number(&mut self) -> i32 {
        self.xid = self.xid.checked_add(1).unwrap_or(1);
        self.sent_ns = clock::monotonic();
        self.xid
    }

    fn ping(&mut self, out: &mut Vec<u8>) {
        self.sent_ns = clock::monotonic();
        jute::request(out, PING, op::PING, |_| {});
    }

    fn create(&mut self, out: &mut Vec<u8>) {
        let xid = self.number();
        jute::request(out, xid, op::CREATE, |out| {
            jute::create(out, flags::EPHEMERAL_SEQUENTIAL, |out| {
                self.stem(self.key, out)
            });
        });
        self.state = State::Creating;
    }

    fn contain(&mut self, out: &mut Vec<u8>) {
        let xid = self.number();
        jute::request(out, xid, op::CREATE_CONTAINER, |out| {
            jute::create(out, flags::CONTAINER, |out| self.parent(self.key, out));
        });
        self.state = State::Containing;
    }

    fn list(&mut self, out: &mut Vec<u8>) {
        let xid = self.number();
        jute::request(out, xid, op::GET_CHILDREN, |out| {
            jute::sized(out, |out| self.parent(self.key, out));
            out.push(0);
        });
        self.state = State::Listing;
    }

    fn look(&mut self, out: &mut Vec<u8>) {
        let xid = self.number();
        jute::request(out, xid, op::GET_DATA, |out| {
            jute::sized(out, |out| out.extend_from_slice(&self.elder));
            // With a watch.
            out.push(1);
        });
        self.state = State::Looking;
    }

    fn delete(&mut self, key: usize, then: State, out: &mut Vec<u8>) {
        let xid = self.number();
        jute::request(out, xid, op::DELETE, |out| {
            jute::sized(out, |out| self.own(key, out));
            // Whatever its version.
            jute::int(out, -1);
        });
        self.state = then;
    }

    /// Notes a node of ours besides the one that we know, which an earlier request has made
    /// whose answer was lost. False where there is none; then there is none any more. A list
    /// that shows the second one shows the first.
    fn finds_stray(&mut self, body: &[u8]) -> Result<bool, CallError> {
        if self.doubt != Some(State::Creating) {
            return Ok(false);
        }
        let own = self.nodes[self.key].sequence;
        let mut path = Vec::new();
        self.stem(self.key, &mut path);
        let mut at = path.iter();
        let at = at.rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let mut stray = None;
        let read = Reader(body).strings(|name| {
            let is_ours = name.starts_with(&path[at..]);
            stray = stray.or(sequence(name).filter(|other| is_ours && *other != own));
        });
        read.ok_or_else(|| wrong_kind(LIST))?;
        self.stray = stray.unwrap_or_default();
        if stray.is_none() {
            self.doubt = None;
        }
        Ok(stray.is_some())
    }

    fn purge(&mut self, out: &mut Vec<u8>) {
        let own = std::mem::replace(&mut self.nodes[self.key].sequence, self.stray);
        self.delete(self.key, State::Purging, out);
        self.nodes[self.key].sequence = own;
    }

    /// Notes the node just before ours. False where there is none.
    ///
    /// The recipe sorts the names by their digits and takes the one before ours; this is
    /// the same one.
    fn find_elder(&mut self, body: &[u8]) -> Result<bool, CallError> {
        let own = self.nodes[self.key].sequence;
        let (mut is_there, mut elder) = (false, None);
        let read = Reader(body).strings(|name| match sequence(name) {
            Some(other) if other == own => is_there = true,
            Some(other) if other < own && elder.is_none_or(|(last, _)| last < other) => {
                elder = Some((other, name));
            }
            _ => {}
        });
        read.ok_or_else(|| wrong_kind(LIST))?;
        if !is_there {
            self.is_queued = false;
            return Err(LAPSED);
        }
        let Some((_, name)) = elder else {
            return Ok(false);
        };
        let mut path = std::mem::take(&mut self.elder);
        path.clear();
        self.parent(self.key, &mut path);
        path.push(b'/');
        path.extend_from_slice(name);
        self.elder = path;
        Ok(true)
    }
}

/// The number at the end of a lock's node.
fn sequence(name: &[u8]) -> Option<u32> {
    let (stem, digits) = name.split_at_checked(name.len().checked_sub(DIGITS)?)?;
    stem.ends_with(MARK).then_some(())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Steps for ZookeeperWire {
    type Frame<'a> = Frame<'a>;

    fn frame<'a>(input: &'a [u8], call: &'static str) -> Framed<Frame<'a>> {
        jute::reply(input, call)
    }

    fn call(&self) -> &'static str {
        match self.state {
            State::Listing | State::Due(Step::List) => LIST,
            State::Looking | State::Watching => LOOK,
            State::Leaving | State::Purging | State::Releasing => DELETE,
            State::Pinging => PING_CALL,
            _ => CREATE,
        }
    }

    /// Whether a frame is what is awaited. Answers to pings beside another request, and
    /// events of watches that nobody waits for any more, are not.
    ///
    /// # Errors
    /// EPROTO for an answer that no request has asked for.
    fn awaits(&self, frame: &Frame<'_>) -> Result<bool, CallError> {
        match frame.xid {
            PING => Ok(self.state == State::Pinging),
            EVENT => {
                let mut event = Reader(frame.body);
                let path = event.int().and_then(|_| event.int());
                let path = path.and_then(|_| event.bytes());
                Ok(self.state == State::Watching && path == Some(&self.elder))
            }
            xid if xid == self.xid
                && !matches!(self.state, State::Idle | State::Watching | State::Pinging) =>
            {
                Ok(true)
            }
            _ => Err(surplus::error(self.call())),
        }
    }

    fn goes_on(&mut self, frame: &Frame<'_>) -> Result<Answer, CallError> {
        let call = self.call();
        let step = match (self.state, frame.error) {
            (State::Creating, 0) => {
                let path = Reader(frame.body).bytes();
                let sequence = path.and_then(sequence).ok_or_else(|| wrong_kind(call))?;
                self.nodes[self.key].sequence = sequence;
                self.token = frame.zxid as u64;
                self.is_queued = true;
                Step::List
            }
            (State::Creating, error::NO_NODE) if self.gives_up => return Ok(Answer::Taken),
            (State::Creating, error::NO_NODE) => Step::Contain,
            (State::Containing, 0 | error::NODE_EXISTS) => Step::Create,
            (State::Listing, 0) if self.finds_stray(frame.body)? => Step::Purge,
            (State::Purging, 0 | error::NO_NODE) => Step::List,
            (State::Listing, 0) => match self.find_elder(frame.body)? {
                false if !self.gives_up => return Ok(Answer::Granted),
                false => Step::Leave,
                true => Step::Look,
            },
            (State::Looking, 0) if self.gives_up => Step::Leave,
            (State::Looking, 0) => {
                self.state = State::Watching;
                return Ok(Answer::Pending);
            }
            (State::Looking, error::NO_NODE) | (State::Watching, _) => Step::List,
            (State::Leaving, 0 | error::NO_NODE) => return Ok(Answer::Taken),
            (State::Listing, error::NO_NODE) => return Err(LAPSED),
            (_, failed) => return Err(complaint(call, failed)),
        };
        let is_over = self.gives_up || (step == Step::Look && self.limit.is_over());
        let has_node = !matches!(step, Step::Create | Step::Contain);
        self.state = match is_over && has_node && step != Step::Purge {
            true => State::Due(Step::Leave),
            false => State::Due(step),
        };
        Ok(Answer::Pending)
    }

    fn rest(&mut self) {
        self.state = State::Idle;
        self.is_queued = false;
    }
}

impl Wire for ZookeeperWire {
    fn names(&self) -> [&'static str; 2] {
        [CREATE, DELETE]
    }

    fn acquire(&mut self, key: usize, _mode: Mode, asking: Asking, out: &mut Vec<u8>) {
        self.key = key;
        self.gives_up = false;
        self.limit = asking;
        if self.is_queued {
            // It has lost its connection while it waited.
            return self.list(out);
        }
        if self.doubt != Some(State::Creating) {
            self.count += 1;
            self.nodes[key].count = self.count;
        }
        self.create(out);
    }

    fn release(&mut self, key: usize, _mode: Mode, out: &mut Vec<u8>) {
        self.delete(key, State::Releasing, out);
    }

    /// Whatever arrives shows that the server is there. A waiter hears nothing else than
    /// answers to its pings, which are not what it awaits.
    fn decode<'a>(&self, input: &'a [u8], call: &'static str) -> Decoded<'a> {
        if !input.is_empty() {
            self.unanswered.set(0);
        }
        steps::decode(self, input, call)
    }

    fn acquired(&mut self, _key: usize, reply: Reply<'_>) -> Result<Answer, CallError> {
        steps::acquired(self, reply, CREATE)
    }

    fn go_on(&mut self, out: &mut Vec<u8>) {
        let State::Due(step) = self.state else { return };
        match step {
            Step::Create => self.create(out),
            Step::Contain => self.contain(out),
            Step::List => self.list(out),
            Step::Look => self.look(out),
            Step::Leave => self.delete(self.key, State::Leaving, out),
            Step::Purge => self.purge(out),
        }
    }

    fn token(&self, _granted: Reply<'_>) -> Option<u64> {
        Some(self.token)
    }

    fn released(&mut self, reply: Reply<'_>) -> Result<(), CallError> {
        let frame = steps::released(self, reply, DELETE)?;
        let doubt = self.doubt.take();
        match frame.error {
            0 => Ok(()),
            // In a session that lives, nothing else has removed it.
            error::NO_NODE if doubt == Some(State::Releasing) => Ok(()),
            error::NO_NODE => Err(LOST),
            code => Err(complaint(DELETE, code)),
        }
    }

    fn keeping(&self) -> Option<Keeping> {
        let third = Keeping::session(PING_CALL, self.timeout_ns);
        Some(Keeping {
            every_ns: third.every_ns.min(LONGEST_SILENCE_NS),
            ..third
        })
    }

    fn renew(&mut self, _key: usize, out: &mut Vec<u8>) {
        self.ping(out);
        self.state = State::Pinging;
    }

    fn renewed(&mut self, _key: usize, reply: Reply<'_>) -> Result<bool, CallError> {
        let frame = steps::released(self, reply, PING_CALL)?;
        match frame.error {
            0 => Ok(true),
            error::EXPIRED => Ok(false),
            code => Err(complaint(PING_CALL, code)),
        }
    }

    fn patience_ns(&self) -> Option<u64> {
        let ping = self.timeout_ns / PINGS;
        Some(match (self.state, self.limit) {
            (State::Watching, Asking::Until(time)) => {
                ping.min(time.saturating_sub(clock::monotonic())).max(1)
            }
            _ => ping,
        })
    }

    fn due(&mut self, out: &mut Vec<u8>) -> Result<(), CallError> {
        if let (State::Watching, Asking::Until(time)) = (self.state, self.limit)
            && clock::monotonic() >= time
        {
            self.give_up(out);
            return Ok(());
        }
        self.unanswered.set(self.unanswered.get() + 1);
        // As the Java library, an owner looks for another connection when two thirds of the
        // session have passed since it heard the last answer.
        let leaves = self.state == State::Pinging && self.place.is_some();
        if leaves || self.unanswered.get() > PINGS {
            return Err(SILENT);
        }
        self.ping(out);
        Ok(())
    }

    fn cancels(&self) -> bool {
        true
    }

    fn give_up(&mut self, out: &mut Vec<u8>) {
        self.gives_up = true;
        if self.state == State::Watching {
            self.delete(self.key, State::Leaving, out);
        }
    }

    fn sent_ns(&self) -> Option<u64> {
        Some(self.sent_ns)
    }

    /// An answer that was lost may have been about a node whose name we do not know:
    /// `doubt`.
    fn resume(&mut self) -> Result<Option<Stream>> {
        let Some(place) = self.place.as_mut() else {
            return Ok(None);
        };
        place.servers.rotate_left(1);
        let timeout = Duration::from_nanos(self.timeout_ns);
        let resumed = Session::resume(&place.servers, self.session, timeout, &place.own)?;
        let Some(session) = resumed else {
            return Ok(None);
        };
        self.xid = 0;
        self.sent_ns = clock::monotonic();
        self.unanswered.set(0);
        if let State::Creating | State::Releasing = self.state {
            self.doubt = Some(self.state);
        }
        self.state = State::Idle;
        session.into_stream().map(Some)
    }

    /// The server removes what the session owned, and closes the connection.
    fn farewell(&mut self, out: &mut Vec<u8>) -> bool {
        let xid = self.number();
        jute::request(out, xid, op::CLOSE, |_| {});
        true
    }
}

#[cfg(test)]
mod tests;
