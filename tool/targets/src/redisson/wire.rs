//! One worker's side of the recipe, without the socket: the sequence of requests, answers
//! and messages.

use crate::names::{self, Names};
use crate::steps::{self, Framed, Steps};
use crate::wire::{Answer, Asking, Decoded, Reply, Wire, refused, unexpected, wrong_kind};
use crate::{CallError, Keeping, Mode, surplus};
use jostle_resp::request::encode;
use jostle_resp::token::{self, Token};
use jostle_sys::clock;
use jostle_sys::files::Errno;

/// Published at a release.
const FREE: &[u8] = b"0";

/// The name of a lock's channel, before and after the lock's name.
const CHANNEL: [&[u8]; 2] = [b"redisson_lock__channel:{", b"}"];
const CHANNEL_BYTES: usize = CHANNEL[0].len() + names::BYTES + CHANNEL[1].len();

/// The name of a release's latch, before and after the lock's name; a number of the release
/// follows.
const LATCH: [&[u8]; 2] = [b"redisson_unlock_latch:{", b"}:"];
const LATCH_BYTES: usize = LATCH[0].len() + names::BYTES + LATCH[1].len() + 32;

/// How long an unremoved latch stays, in milliseconds: the time for which the library
/// repeats a request.
const LATCH_MS: &[u8] = b"13500";

/// Longest piece of a reply that is waited for.
const LONGEST_PIECE: usize = 1 << 16;

const SCRIPT: &str = "EVALSHA";

/// A whole answer, or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Out of band: its first word, and the channel that it is about.
    push: Option<[&'a [u8]; 2]>,
    /// Its first piece.
    pub reply: Reply<'a>,
}

/// The frame at the start of `input` and the bytes it takes; None while it is not whole.
///
/// # Errors
/// EPROTO in the name of `call` where it is none.
pub(super) fn frame<'a>(input: &'a [u8], call: &'static str) -> Framed<Frame<'a>> {
    let (mut at, mut missing, mut pieces) = (0, 1u64, 0);
    let mut whole = Frame {
        push: None,
        reply: Reply::Nil,
    };
    while missing > 0 {
        let next = token::next(&input[at..], LONGEST_PIECE);
        let Some((piece, length)) = next.map_err(|_| CallError::new(call, Errno::PROTO))? else {
            return Ok(None);
        };
        at += length;
        missing = missing - 1 + piece.children();
        match (piece, pieces, &mut whole.push) {
            (Token::Push(_), 0, push) => *push = Some([b"", b""]),
            (Token::Bulk(text), 1 | 2, Some(words)) => words[pieces - 1] = text,
            (piece, 0, _) => whole.reply = Reply::from_token(piece),
            _ => {}
        }
        pieces += 1;
    }
    Ok(Some((whole, at)))
}

/// One worker's side of the recipe.
#[derive(Debug)]
pub struct RedissonWire {
    names: Names,
    /// In digits.
    lease_ms: Vec<u8>,
    keeping: Keeping,
    /// As the library names a thread of a client.
    worker: Vec<u8>,
    take: Vec<u8>,
    give: Vec<u8>,
    keep: Vec<u8>,
    state: State,
    /// The lock that is asked for, and how long for.
    key: usize,
    limit: Asking,
    gives_up: bool,
    /// The lock about which messages come.
    subscribed: Option<usize>,
    /// Half of the number of each release, which no other worker has.
    latches: [u8; 16],
    releases: u64,
    /// The lock whose last release has left its latch.
    latched: Option<usize>,
    /// Removals of latches that are not answered yet.
    unheeded: usize,
}

/// The awaited answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing.
    Idle,
    /// Whether the lock is ours.
    Taking,
    /// That messages will come.
    Subscribing,
    /// A message, or the end of the lease at this time of `CLOCK_MONOTONIC`.
    Waiting(u64),
    /// That the lock is not ours any more.
    Giving,
    /// That the lock is not ours any more, since nobody wants it any more.
    GivingBack,
    /// Whether the lock is still ours.
    Keeping,
    /// That messages come no longer, since the attempt is over.
    Leaving,
    /// The next request is to be sent, by [`Wire::go_on`].
    Due(Step),
}

/// A request that may follow an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Take,
    Subscribe,
    GiveBack,
    Leave,
}

impl RedissonWire {
    /// For a lease of so many milliseconds, by the scripts that take, give and keep, and
    /// with an identity made of 32 digits.
    pub fn new(names: Names, lease_ms: u64, scripts: [Vec<u8>; 3], digits: &str) -> RedissonWire {
        let [take, give, keep] = scripts;
        RedissonWire {
            names,
            lease_ms: lease_ms.to_string().into_bytes(),
            keeping: Keeping::each(SCRIPT, lease_ms * 1_000_000),
            worker: worker(digits),
            take,
            give,
            keep,
            state: State::Idle,
            key: 0,
            limit: Asking::Block,
            gives_up: false,
            subscribed: None,
            latches: std::array::from_fn(|at| digits.as_bytes().get(at).copied().unwrap_or(b'0')),
            releases: 0,
            latched: None,
            unheeded: 0,
        }
    }

    fn take(&mut self, out: &mut Vec<u8>) {
        self.unlatch(out);
        let name = self.names.name(self.key);
        let words: [&[u8]; 6] = [
            b"EVALSHA",
            &self.take,
            b"1",
            &name,
            &self.lease_ms,
            &self.worker,
        ];
        encode(out, &words);
        self.state = State::Taking;
    }

    fn give(&mut self, key: usize, then: State, out: &mut Vec<u8>) {
        self.unlatch(out);
        self.unsubscribe(out);
        self.releases += 1;
        self.latched = Some(key);
        let words: [&[u8]; 10] = [
            b"EVALSHA",
            &self.give,
            b"3",
            &self.names.name(key),
            &self.channel(key),
            &self.latch(key),
            FREE,
            &self.lease_ms,
            &self.worker,
            LATCH_MS,
        ];
        encode(out, &words);
        self.state = then;
    }

    /// Removes the latch of the last release, which has been answered. Like the library, it
    /// does not wait for the answer.
    fn unlatch(&mut self, out: &mut Vec<u8>) {
        if let Some(key) = self.latched.take() {
            encode(out, &[b"DEL", &self.latch(key)]);
            self.unheeded += 1;
        }
    }

    /// That of the last release.
    fn latch(&self, key: usize) -> [u8; LATCH_BYTES] {
        let mut latch = [0; LATCH_BYTES];
        let name = self.names.name(key);
        let number = self.releases.to_be_bytes();
        let digits = number.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let digits = digits.map(|digit| b"0123456789abcdef"[usize::from(digit)]);
        let fixed = [LATCH[0], &name, LATCH[1], &self.latches];
        let all = fixed.into_iter().flatten().copied().chain(digits);
        for (to, byte) in latch.iter_mut().zip(all) {
            *to = byte;
        }
        latch
    }

    /// Ends the subscription, if there is one. The library also does this once it owns the
    /// lock. Here it is sent with the next request, so that no owner waits for it.
    fn unsubscribe(&mut self, out: &mut Vec<u8>) {
        if let Some(key) = self.subscribed.take() {
            encode(out, &[b"UNSUBSCRIBE", &self.channel(key)]);
        }
    }

    fn leave(&mut self, out: &mut Vec<u8>) {
        self.unsubscribe(out);
        self.state = State::Leaving;
    }

    fn channel(&self, key: usize) -> [u8; CHANNEL_BYTES] {
        let mut channel = [0; CHANNEL_BYTES];
        let (before, rest) = channel.split_at_mut(CHANNEL[0].len());
        let (name, after) = rest.split_at_mut(names::BYTES);
        before.copy_from_slice(CHANNEL[0]);
        name.copy_from_slice(&self.names.name(key));
        after.copy_from_slice(CHANNEL[1]);
        channel
    }

    fn is_late(&self) -> bool {
        self.gives_up || self.limit.is_over()
    }
}

/// `UUID:THREAD`, of 32 hexadecimal digits.
fn worker(digits: &str) -> Vec<u8> {
    let mut rest = digits;
    let parts = [8, 4, 4, 4, 12].map(|length| {
        let (part, after) = rest.split_at(length);
        rest = after;
        part
    });
    format!("{}:1", parts.join("-")).into_bytes()
}

/// The end of a lease that has `left_ms` left; never if it has no end.
fn until(left_ms: i64) -> u64 {
    match u64::try_from(left_ms) {
        Ok(left_ms) => clock::monotonic().saturating_add(left_ms.saturating_mul(1_000_000)),
        Err(_) => u64::MAX,
    }
}

/// The worker was not the owner any more when it was to give up the lock.
const LAPSED: CallError = CallError::lost(SCRIPT);

impl Steps for RedissonWire {
    type Frame<'a> = Frame<'a>;

    fn unheeded(&self) -> usize {
        self.unheeded
    }

    fn is_answer(frame: &Frame<'_>) -> bool {
        frame.push.is_none()
    }

    fn frame<'a>(input: &'a [u8], call: &'static str) -> Framed<Frame<'a>> {
        frame(input, call)
    }

    /// Whether a frame is what is awaited, or an error in its place.
    ///
    /// # Errors
    /// EPROTO for an answer that no request has asked for.
    fn awaits(&self, frame: &Frame<'_>) -> Result<bool, CallError> {
        let Some([word, channel]) = frame.push else {
            let asked = !matches!(self.state, State::Idle | State::Waiting(_) | State::Due(_));
            return match asked {
                true => Ok(true),
                false => Err(surplus::error(SCRIPT)),
            };
        };
        // An answer already accounts for messages that were published before it.
        let awaited: &[u8] = match self.state {
            State::Subscribing => b"subscribe",
            State::Waiting(_) => b"message",
            State::Leaving => b"unsubscribe",
            _ => return Ok(false),
        };
        Ok(word == awaited && channel == self.channel(self.key))
    }

    fn goes_on(&mut self, frame: &Frame<'_>) -> Result<Answer, CallError> {
        // This frame follows all answers that are not awaited.
        self.unheeded = 0;
        if let Reply::Error(text) = frame.reply {
            return Err(refused(self.call(), text));
        }
        let step = match (self.state, frame.reply) {
            (State::Taking, Reply::Nil) if self.gives_up => Step::GiveBack,
            (State::Taking, Reply::Nil) => return Ok(Answer::Granted),
            (State::Taking, Reply::Integer(left_ms)) => {
                match (self.is_late(), self.subscribed.is_some()) {
                    (true, true) => Step::Leave,
                    (true, false) => return Ok(Answer::Taken),
                    (false, false) => Step::Subscribe,
                    (false, true) => {
                        self.state = State::Waiting(until(left_ms));
                        return Ok(Answer::Pending);
                    }
                }
            }
            (State::Subscribing, _) => {
                self.subscribed = Some(self.key);
                match self.gives_up {
                    true => Step::Leave,
                    false => Step::Take,
                }
            }
            (State::Waiting(_), _) => Step::Take,
            (State::Leaving, _) | (State::GivingBack, Reply::Integer(_) | Reply::Nil) => {
                return Ok(Answer::Taken);
            }
            _ => return Err(wrong_kind(self.call())),
        };
        self.state = State::Due(step);
        Ok(Answer::Pending)
    }

    fn call(&self) -> &'static str {
        match self.state {
            State::Subscribing => "SUBSCRIBE",
            State::Leaving => "UNSUBSCRIBE",
            _ => SCRIPT,
        }
    }

    fn rest(&mut self) {
        self.unheeded = 0;
        self.state = State::Idle;
    }
}

impl Wire for RedissonWire {
    fn names(&self) -> [&'static str; 2] {
        [SCRIPT; 2]
    }

    fn acquire(&mut self, key: usize, _mode: Mode, asking: Asking, out: &mut Vec<u8>) {
        self.key = key;
        self.gives_up = false;
        self.limit = asking;
        self.unsubscribe(out);
        self.take(out);
    }

    fn release(&mut self, key: usize, _mode: Mode, out: &mut Vec<u8>) {
        self.give(key, State::Giving, out);
    }

    fn decode<'a>(&self, input: &'a [u8], call: &'static str) -> Decoded<'a> {
        steps::decode(self, input, call)
    }

    fn acquired(&mut self, _key: usize, reply: Reply<'_>) -> Result<Answer, CallError> {
        steps::acquired(self, reply, SCRIPT)
    }

    fn go_on(&mut self, out: &mut Vec<u8>) {
        let State::Due(step) = self.state else { return };
        match step {
            Step::Take => self.take(out),
            Step::Subscribe => {
                encode(out, &[b"SUBSCRIBE", &self.channel(self.key)]);
                self.state = State::Subscribing;
            }
            Step::GiveBack => self.give(self.key, State::GivingBack, out),
            Step::Leave => self.leave(out),
        }
    }

    fn released(&mut self, reply: Reply<'_>) -> Result<(), CallError> {
        let frame = steps::released(self, reply, SCRIPT)?;
        match frame.reply {
            Reply::Integer(1) => Ok(()),
            Reply::Nil => Err(LAPSED),
            other => Err(unexpected(SCRIPT, other)),
        }
    }

    fn keeping(&self) -> Option<Keeping> {
        Some(self.keeping)
    }

    fn renew(&mut self, key: usize, out: &mut Vec<u8>) {
        let name = self.names.name(key);
        let words: [&[u8]; 6] = [
            b"EVALSHA",
            &self.keep,
            b"1",
            &name,
            &self.lease_ms,
            &self.worker,
        ];
        encode(out, &words);
        self.state = State::Keeping;
    }

    fn renewed(&mut self, _key: usize, reply: Reply<'_>) -> Result<bool, CallError> {
        let frame = steps::released(self, reply, SCRIPT)?;
        match frame.reply {
            Reply::Integer(kept @ (0 | 1)) => Ok(kept == 1),
            other => Err(unexpected(SCRIPT, other)),
        }
    }

    fn afterwards(&mut self, out: &mut Vec<u8>) {
        self.unlatch(out);
    }

    fn outlives_connection(&self) -> bool {
        true
    }

    fn patience_ns(&self) -> Option<u64> {
        let State::Waiting(lease_end) = self.state else {
            return None;
        };
        let end = match self.limit {
            Asking::Until(time) => lease_end.min(time),
            Asking::Try | Asking::Block => lease_end,
        };
        (end < u64::MAX).then(|| end.saturating_sub(clock::monotonic()).max(1))
    }

    fn is_on_time(&self) -> bool {
        true
    }

    fn due(&mut self, out: &mut Vec<u8>) -> Result<(), CallError> {
        if let State::Waiting(_) = self.state {
            match self.is_late() {
                true => self.leave(out),
                false => self.take(out),
            }
        }
        Ok(())
    }

    fn cancels(&self) -> bool {
        true
    }

    fn give_up(&mut self, out: &mut Vec<u8>) {
        self.gives_up = true;
        if let State::Waiting(_) = self.state {
            self.leave(out);
        }
    }

    /// The server removes the last latch and closes the connection; a subscription may
    /// bring messages until then.
    fn farewell(&mut self, out: &mut Vec<u8>) -> bool {
        self.unlatch(out);
        encode(out, &[b"QUIT"]);
        true
    }
}

#[cfg(test)]
mod tests;
