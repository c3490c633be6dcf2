//! One worker's side of the recipe, without the socket: the sequence of requests, answers
//! and messages.

use super::bucket;
use super::frames::{Frame, digits, frame, is_marker, number, sequence, status};
use crate::keeping::Keeping;
use crate::names::Names;
use crate::specimen::Random;
use crate::steps::{self, Framed, Steps};
use crate::wire::{Answer, Asking, Decoded, Reply, Wire, push_decimal, refused, wrong_kind};
use crate::{CallError, Mode, surplus};
use jostle_sys::clock;

/// The subject below which a bucket republishes what it has stored. On the keys' own
/// subjects a waiter would get every attempt, including refused ones.
pub(super) const CHANGED: &str = "jostle";

/// Mean time between two reads of a waiter that gets no message. Each interval is random,
/// from 0.5 to 1.5 times the mean. With equal intervals, waiters that begin together would
/// all read just before or just after the end of a lease, by chance.
pub(super) const LOOK_NS: u64 = 250_000_000;

/// The subscription about one lock; that to answers is number 1.
const CHANGES: &[u8] = b"2";

/// Error codes of a publication whose expected sequence number is wrong. Newer servers use
/// the second for streams with replicas.
const WRONG_SEQUENCE: [u64; 2] = [10_071, 10_164];

const CREATE: &str = "create";
const GET: &str = "get";
const UPDATE: &str = "update";
const DELETE: &str = "delete";

/// The state of a key in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyAnswer {
    /// It has this message of ours.
    Stored(u64),
    /// It is at another sequence than the one expected.
    Elsewhere,
    /// It has an owner, by this message.
    Owned(u64),
    /// Its last message marks it as deleted.
    Deleted(u64),
    /// It has no message.
    Nothing,
}

/// One worker's side of the recipe.
#[derive(Debug)]
pub struct NatsWire {
    names: Names,
    bucket: Vec<u8>,
    inbox: Vec<u8>,
    value: Vec<u8>,
    /// When it looks again.
    random: Random,
    keeping: Keeping,
    /// The sequence of our value, lock by lock.
    sequences: Vec<u64>,
    state: State,
    /// The number of the last request.
    number: u64,
    /// The lock that is asked for, and how long for.
    key: usize,
    limit: Asking,
    gives_up: bool,
    /// Messages about that lock come.
    subscribed: bool,
    /// The sequence of the last of them, if it marks the key as deleted; else zero.
    freed: u64,
    /// The sequence number at which the key belonged to another worker, or was taken by
    /// one.
    passed: u64,
    owes_pong: bool,
}

/// The awaited answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing.
    Idle,
    /// Whether the key is ours, in place of the message of this sequence, or of none.
    Taking(u64),
    /// The state of the key.
    Looking,
    /// A release, until this time of `CLOCK_MONOTONIC`.
    Waiting(u64),
    /// That the key is deleted.
    Giving,
    /// That the key is ours no more, since nobody wants it any more.
    GivingBack,
    /// That our value is written again.
    Keeping,
    /// The next request is to be sent, by [`Wire::go_on`].
    Due(Step),
}

/// A request that may follow an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// In place of the message of this sequence.
    Take(u64),
    Look,
    /// [`Step::Look`] after a subscription, so that no release is missed.
    Subscribe,
    GiveBack,
}

impl NatsWire {
    /// For so many keys of this lease, on a connection that is answered on subjects that
    /// begin with `inbox`, of the worker of this run (its seed) and number.
    pub(super) fn new(
        (names, keys): (Names, usize),
        lease_ns: u64,
        inbox: &str,
        (run, worker): (u64, usize),
    ) -> NatsWire {
        NatsWire {
            names,
            bucket: bucket(&names).into_bytes(),
            inbox: inbox.as_bytes().to_vec(),
            value: format!("{run:016x}{worker:08x}").into_bytes(),
            random: Random::new(run, worker),
            keeping: Keeping::each(UPDATE, lease_ns),
            sequences: vec![0; keys],
            state: State::Idle,
            number: 0,
            key: 0,
            limit: Asking::Block,
            gives_up: false,
            subscribed: false,
            freed: 0,
            passed: 0,
            owes_pong: false,
        }
    }

    fn subject(&self, key: usize, out: &mut Vec<u8>) {
        self.path("$KV", key, out);
    }

    /// A key's subject below this one.
    fn path(&self, root: &str, key: usize, out: &mut Vec<u8>) {
        let name = self.names.name(key);
        let own = &name[self.names.prefix().len()..];
        let parts: [&[u8]; 5] = [root.as_bytes(), b".", &self.bucket, b".", own];
        parts.iter().for_each(|part| out.extend_from_slice(part));
    }

    /// The subject on which the next request is answered.
    fn reply_to(&mut self, out: &mut Vec<u8>) {
        self.number += 1;
        out.push(b' ');
        out.extend_from_slice(&self.inbox);
        push_decimal(self.number, out);
        out.push(b' ');
    }

    /// Publishes our value, or a marker, where the key is at this sequence.
    fn publish(&mut self, key: usize, at: u64, deletes: bool, then: State, out: &mut Vec<u8>) {
        const HEAD: &[u8] = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: ";
        let (last, body) = match deletes {
            true => (&b"\r\nKV-Operation: DEL\r\n\r\n"[..], 0),
            false => (&b"\r\n\r\n"[..], self.value.len()),
        };
        let digits = at.checked_ilog10().unwrap_or(0) as usize + 1;
        let head = HEAD.len() + digits + last.len();
        self.pong(out);
        out.extend_from_slice(b"HPUB ");
        self.subject(key, out);
        self.reply_to(out);
        push_decimal(head as u64, out);
        out.push(b' ');
        push_decimal((head + body) as u64, out);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(HEAD);
        push_decimal(at, out);
        out.extend_from_slice(last);
        out.extend_from_slice(&self.value[..body]);
        out.extend_from_slice(b"\r\n");
        self.state = then;
    }

    /// Reads the key's last message.
    fn look(&mut self, out: &mut Vec<u8>) {
        self.pong(out);
        if self.is_late() {
            self.unsubscribe(out);
        }
        out.extend_from_slice(b"PUB $JS.API.DIRECT.GET.KV_");
        out.extend_from_slice(&self.bucket);
        out.push(b'.');
        self.subject(self.key, out);
        self.reply_to(out);
        out.extend_from_slice(b"0\r\n\r\n");
        self.state = State::Looking;
    }

    fn give(&mut self, key: usize, then: State, out: &mut Vec<u8>) {
        self.unsubscribe(out);
        self.publish(key, self.sequences[key], true, then, out);
    }

    fn subscribe(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"SUB ");
        self.path(CHANGED, self.key, out);
        out.push(b' ');
        out.extend_from_slice(CHANGES);
        out.extend_from_slice(b"\r\n");
        self.subscribed = true;
    }

    fn unsubscribe(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.subscribed) {
            out.extend_from_slice(b"UNSUB ");
            out.extend_from_slice(CHANGES);
            out.extend_from_slice(b"\r\n");
        }
    }

    fn pong(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.owes_pong) {
            out.extend_from_slice(b"PONG\r\n");
        }
    }

    fn is_late(&self) -> bool {
        self.gives_up || self.limit.is_over()
    }

    /// Reads the state of the key in an answer.
    fn meaning(
        &self,
        head: &[u8],
        body: &[u8],
        call: &'static str,
    ) -> Result<KeyAnswer, CallError> {
        match (status(head), self.state) {
            (Some(404), State::Looking) => return Ok(KeyAnswer::Nothing),
            (Some(503), _) => {
                let text = b"nobody answers; is the run's bucket still there, and JetStream on?";
                return Err(refused(call, text));
            }
            (Some(_), _) => return Err(refused(call, head.trim_ascii())),
            (None, State::Looking) => {
                return match (is_marker(head), sequence(head)) {
                    (false, Some(sequence)) => Ok(KeyAnswer::Owned(sequence)),
                    (true, Some(sequence)) => Ok(KeyAnswer::Deleted(sequence)),
                    (_, None) => Err(wrong_kind(call)),
                };
            }
            (None, _) => {}
        }
        match (number(body, b"\"err_code\":"), number(body, b"\"seq\":")) {
            (Some(code), _) if WRONG_SEQUENCE.contains(&code) => Ok(KeyAnswer::Elsewhere),
            (None, Some(sequence)) => Ok(KeyAnswer::Stored(sequence)),
            (Some(_), _) => Err(refused(call, body)),
            (None, None) => Err(wrong_kind(call)),
        }
    }

    fn wait(&mut self) -> State {
        let look_ns = LOOK_NS / 2 + self.random.below(LOOK_NS);
        State::Waiting(clock::monotonic() + look_ns)
    }

    /// Nobody waits any longer, and the lock is another's: that is the answer, once messages
    /// about it come no more.
    fn is_left(&self) -> Option<Step> {
        self.subscribed.then_some(Step::Look)
    }

    /// Interprets the answer to a request for the attempt.
    fn answered(&mut self, said: KeyAnswer) -> Result<Answer, CallError> {
        let late = self.is_late();
        let step = match (self.state, said) {
            (State::Taking(_), KeyAnswer::Stored(sequence)) => {
                self.sequences[self.key] = sequence;
                match self.gives_up {
                    true => Step::GiveBack,
                    false => return Ok(Answer::Granted),
                }
            }
            // Even a try has to check whether the last message is a marker.
            (State::Taking(0), KeyAnswer::Elsewhere) if !self.gives_up => Step::Look,
            // In the second case another was faster.
            (State::Looking, KeyAnswer::Owned(at)) | (State::Taking(at), KeyAnswer::Elsewhere)
                if !late =>
            {
                self.passed = self.passed.max(at);
                if self.subscribed {
                    self.state = self.wait();
                    return Ok(Answer::Pending);
                }
                Step::Subscribe
            }
            (State::Looking, KeyAnswer::Deleted(sequence)) if !self.gives_up => {
                Step::Take(sequence)
            }
            (State::Looking, KeyAnswer::Nothing) if !self.gives_up => Step::Take(0),
            (State::Looking, KeyAnswer::Owned(_) | KeyAnswer::Deleted(_) | KeyAnswer::Nothing)
            | (State::Taking(_), KeyAnswer::Elsewhere) => match self.is_left() {
                Some(step) => step,
                None => return Ok(Answer::Taken),
            },
            (State::GivingBack, KeyAnswer::Stored(_) | KeyAnswer::Elsewhere) => {
                return Ok(Answer::Taken);
            }
            _ => return Err(wrong_kind(self.call())),
        };
        self.state = State::Due(step);
        Ok(Answer::Pending)
    }

    /// The state of the key in the answer to the only request.
    fn said(&mut self, reply: Reply<'_>, call: &'static str) -> Result<KeyAnswer, CallError> {
        match steps::released(self, reply, call)? {
            Frame::Message { head, body, .. } => self.meaning(head, body, call),
            _ => Err(wrong_kind(call)),
        }
    }
}

impl Steps for NatsWire {
    type Frame<'a> = Frame<'a>;

    fn frame<'a>(input: &'a [u8], call: &'static str) -> Framed<Frame<'a>> {
        frame(input, call)
    }

    /// The name of what is awaited.
    fn call(&self) -> &'static str {
        match self.state {
            State::Looking => GET,
            State::Giving | State::GivingBack => DELETE,
            State::Keeping => UPDATE,
            _ => CREATE,
        }
    }

    /// Whether a frame is what is awaited.
    ///
    /// # Errors
    /// What the server does not like; an answer that no request has asked for.
    fn awaits(&self, frame: &Frame<'_>) -> Result<bool, CallError> {
        let is_waiting = matches!(self.state, State::Waiting(_));
        match frame {
            Frame::Error(text) => Err(refused(self.call(), text)),
            Frame::Ping => Ok(is_waiting),
            Frame::Message {
                subscription, head, ..
            } if *subscription == CHANGES => {
                Ok(is_waiting && is_marker(head) && sequence(head) > Some(self.passed))
            }
            Frame::Message { subject, .. } => {
                let number = subject.strip_prefix(&*self.inbox).and_then(digits);
                let is_asked = !is_waiting && !matches!(self.state, State::Idle | State::Due(_));
                match is_asked && number == Some(self.number) {
                    true => Ok(true),
                    false => Err(surplus::error(self.call())),
                }
            }
            Frame::Pong | Frame::Other => Ok(false),
        }
    }

    fn note(&mut self, frame: &Frame<'_>) -> Result<(), CallError> {
        match frame {
            Frame::Ping => self.owes_pong = true,
            Frame::Message {
                subscription, head, ..
            } if *subscription == CHANGES => {
                let sequence = sequence(head).ok_or_else(|| wrong_kind(self.call()))?;
                self.freed = if is_marker(head) { sequence } else { 0 };
            }
            _ => {}
        }
        Ok(())
    }

    fn goes_on(&mut self, frame: &Frame<'_>) -> Result<Answer, CallError> {
        match frame {
            Frame::Message {
                subscription,
                head,
                body,
                ..
            } if *subscription != CHANGES => {
                let said = self.meaning(head, body, self.call())?;
                self.answered(said)
            }
            _ => Ok(Answer::Pending),
        }
    }

    fn rest(&mut self) {
        self.state = State::Idle;
    }
}

/// The worker was not the owner any more when it was to give up the lock.
const LAPSED: CallError = CallError::lost(DELETE);

impl Wire for NatsWire {
    fn names(&self) -> [&'static str; 2] {
        [CREATE, DELETE]
    }

    fn acquire(&mut self, key: usize, _mode: Mode, asking: Asking, out: &mut Vec<u8>) {
        self.unsubscribe(out);
        self.key = key;
        (self.freed, self.passed) = (0, 0);
        self.gives_up = false;
        self.limit = asking;
        self.publish(key, 0, false, State::Taking(0), out);
    }

    fn release(&mut self, key: usize, _mode: Mode, out: &mut Vec<u8>) {
        self.give(key, State::Giving, out);
    }

    fn decode<'a>(&self, input: &'a [u8], call: &'static str) -> Decoded<'a> {
        steps::decode(self, input, call)
    }

    fn acquired(&mut self, _key: usize, reply: Reply<'_>) -> Result<Answer, CallError> {
        let answer = steps::acquired(self, reply, CREATE)?;
        // What came last decides: another worker may have taken what a marker before it freed.
        if matches!(self.state, State::Waiting(_)) && self.freed > self.passed {
            self.state = State::Due(Step::Take(self.freed));
        }
        Ok(answer)
    }

    fn go_on(&mut self, out: &mut Vec<u8>) {
        let State::Due(step) = self.state else {
            return self.pong(out);
        };
        match step {
            Step::Take(at) => self.publish(self.key, at, false, State::Taking(at), out),
            Step::Look => self.look(out),
            Step::Subscribe => {
                self.subscribe(out);
                self.look(out);
            }
            Step::GiveBack => self.give(self.key, State::GivingBack, out),
        }
    }

    fn token(&self, _granted: Reply<'_>) -> Option<u64> {
        Some(self.sequences[self.key])
    }

    fn released(&mut self, reply: Reply<'_>) -> Result<(), CallError> {
        match self.said(reply, DELETE)? {
            KeyAnswer::Stored(_) => Ok(()),
            KeyAnswer::Elsewhere => Err(LAPSED),
            _ => Err(wrong_kind(DELETE)),
        }
    }

    fn keeping(&self) -> Option<Keeping> {
        Some(self.keeping)
    }

    fn renew(&mut self, key: usize, out: &mut Vec<u8>) {
        self.publish(key, self.sequences[key], false, State::Keeping, out);
    }

    fn renewed(&mut self, key: usize, reply: Reply<'_>) -> Result<bool, CallError> {
        match self.said(reply, UPDATE)? {
            KeyAnswer::Stored(sequence) => {
                self.sequences[key] = sequence;
                Ok(true)
            }
            KeyAnswer::Elsewhere => Ok(false),
            _ => Err(wrong_kind(UPDATE)),
        }
    }

    fn outlives_connection(&self) -> bool {
        true
    }

    fn patience_ns(&self) -> Option<u64> {
        let State::Waiting(until) = self.state else {
            return None;
        };
        let end = match self.limit {
            Asking::Until(time) => until.min(time),
            Asking::Try | Asking::Block => until,
        };
        Some(end.saturating_sub(clock::monotonic()).max(1))
    }

    fn is_on_time(&self) -> bool {
        true
    }

    fn due(&mut self, out: &mut Vec<u8>) -> Result<(), CallError> {
        if let State::Waiting(_) = self.state {
            self.look(out);
        }
        Ok(())
    }

    fn cancels(&self) -> bool {
        true
    }

    fn give_up(&mut self, out: &mut Vec<u8>) {
        self.gives_up = true;
        if let State::Waiting(_) = self.state {
            self.look(out);
        }
    }

    /// The end of the connection is the end of it all; until then the server asks now and
    /// then whether we are there.
    fn farewell(&mut self, _out: &mut Vec<u8>) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
