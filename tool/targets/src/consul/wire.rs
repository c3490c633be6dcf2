//! One worker's side of the recipe, without the socket: the sequence of requests and
//! answers. The requests are HTTP/1.1 on one connection, the answers are read by
//! `httparse`.

use crate::http_head::Head;
use crate::prelude::*;
use crate::wire::{Answer, push_decimal};
use jostle_sys::clock;
use jostle_sys::files::Errno;
use serde_json::Value;

/// The library marks keys of locks with these flags.
const FLAGS: u64 = 0x2ddc_cbc0_58a5_0c18;

/// How long a blocking query lasts at most, beside what is left until the next renewal.
const WAIT_MS: u64 = 15_000;
/// Consul adds up to a sixteenth to that. If it takes longer by this much, it counts as
/// silent.
const SILENCE_NS: u64 = 10_000_000_000;

/// The wait after an acquisition that failed although no session holds the key, because of
/// the lock-delay.
const RETRY_NS: u64 = 5_000_000_000;

/// A worker in its session.
pub struct ConsulWire {
    names: Names,
    /// The lines that each request's head ends with.
    lines: Vec<u8>,
    session: String,
    ttl_ns: u64,
    /// The time of the last renewal that the server has confirmed, and the time of the last
    /// one requested.
    renewed_ns: u64,
    asked_ns: u64,
    /// Requests that the server has not answered, in order.
    due: Vec<Call>,
    key: usize,
    limit: Asking,
    gives_up: bool,
    next: Option<Step>,
    /// There is nothing to ask for until then.
    delayed_until: Option<u64>,
    token: u64,
}

/// Without the token and the session, which are keys to the lock.
impl std::fmt::Debug for ConsulWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a session that awaits {:?}", self.due)
    }
}

/// A request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// That the session lives on.
    Renew,
    /// For the key, at once or when it changes.
    Look,
    /// For the key, with our session.
    Take,
    /// For the key, after that.
    Check,
    /// That the key is ours no more.
    Give,
    /// That the key is ours no more, since nobody wants it any more.
    GiveBack,
    /// A read whose answer is no longer awaited.
    Ignored,
}

/// A request that may follow an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// When the key is of a later index.
    Watch(u64),
    Take,
    GiveBack,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Call::Renew => "session/renew",
            Call::Look | Call::Check | Call::Ignored => "GET kv",
            Call::Take => "PUT kv?acquire",
            Call::Give | Call::GiveBack => "PUT kv?release",
        }
    }
}

/// A request that was answered, and the answer's head and body.
type Heard<'a> = (Call, Head, &'a [u8]);

/// The state of the key in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Whose it is.
    owner: Owner,
    /// Its ModifyIndex.
    modified: u64,
    /// From where on a blocking query waits.
    index: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Nobody,
    Us,
    Another,
}

impl ConsulWire {
    /// For a session of this time to live that was asked for at this time.
    pub fn new(
        names: Names,
        login: &Login,
        (session, ttl_ns): (&str, u64),
        asked_ns: u64,
    ) -> ConsulWire {
        let mut lines = format!(" HTTP/1.1\r\nHost: {}\r\n", login.address);
        if let Some(token) = &login.own.password {
            lines += &format!("X-Consul-Token: {token}\r\n");
        }
        ConsulWire {
            names,
            lines: lines.into_bytes(),
            session: session.to_owned(),
            ttl_ns,
            renewed_ns: asked_ns,
            asked_ns,
            due: Vec::with_capacity(4),
            key: 0,
            limit: Asking::Block,
            gives_up: false,
            next: None,
            delayed_until: None,
            token: 0,
        }
    }

    /// Appends a request without a body.
    fn request(&mut self, call: Call, line: &[&[u8]], out: &mut Vec<u8>) {
        line.iter().for_each(|part| out.extend_from_slice(part));
        out.extend_from_slice(&self.lines);
        out.extend_from_slice(match line[0].starts_with(b"PUT") {
            true => b"Content-Length: 0\r\n\r\n",
            false => b"\r\n",
        });
        self.due.push(call);
    }

    /// Every half of the time to live, as the library does.
    fn renew_in_time(&mut self, out: &mut Vec<u8>) {
        if clock::monotonic().saturating_sub(self.renewed_ns) >= self.every_ns() {
            self.renew_session(out);
        }
    }

    fn every_ns(&self) -> u64 {
        self.ttl_ns / 2
    }

    fn renew_session(&mut self, out: &mut Vec<u8>) {
        self.asked_ns = clock::monotonic();
        let session = std::mem::take(&mut self.session);
        self.request(
            Call::Renew,
            &[b"PUT /v1/session/renew/", session.as_bytes()],
            out,
        );
        self.session = session;
    }

    fn look(&mut self, out: &mut Vec<u8>) {
        self.renew_in_time(out);
        let name = self.names.name(self.key);
        self.request(Call::Look, &[b"GET /v1/kv/", &name], out);
    }

    fn watch(&mut self, index: u64, out: &mut Vec<u8>) {
        self.renew_in_time(out);
        let now = clock::monotonic();
        let renewal = (self.asked_ns + self.ttl_ns / 2).saturating_sub(now);
        let limit = match self.limit {
            Asking::Until(time) => time.saturating_sub(now),
            Asking::Try | Asking::Block => u64::MAX,
        };
        let wait_ms = (renewal.min(limit).div_ceil(1_000_000)).clamp(1, WAIT_MS);
        let (mut index_digits, mut wait_digits) = (Vec::new(), Vec::new());
        push_decimal(index, &mut index_digits);
        push_decimal(wait_ms, &mut wait_digits);
        let name = self.names.name(self.key);
        let line: [&[u8]; 7] = [
            b"GET /v1/kv/",
            &name,
            b"?index=",
            &index_digits,
            b"&wait=",
            &wait_digits,
            b"ms",
        ];
        self.request(Call::Look, &line, out);
    }

    /// Acquires the key, and reads it for its ModifyIndex, or for its owner if it was not
    /// acquired. The library also reads it in both cases, but waits for the first answer.
    fn take(&mut self, out: &mut Vec<u8>) {
        self.put(Call::Take, self.key, b"?acquire=", out);
        let name = self.names.name(self.key);
        self.request(Call::Check, &[b"GET /v1/kv/", &name], out);
    }

    fn put(&mut self, call: Call, key: usize, word: &[u8], out: &mut Vec<u8>) {
        let (name, mut flags) = (self.names.name(key), Vec::new());
        push_decimal(FLAGS, &mut flags);
        let session = std::mem::take(&mut self.session);
        let line: [&[u8]; 6] = [
            b"PUT /v1/kv/",
            &name,
            word,
            session.as_bytes(),
            b"&flags=",
            &flags,
        ];
        self.request(call, &line, out);
        self.session = session;
    }

    fn is_late(&self) -> bool {
        self.gives_up || self.limit.is_over()
    }

    /// The name of what is awaited.
    fn call(&self) -> &'static str {
        self.due.first().map_or("GET kv", |call| call.name())
    }

    /// Reads the answer to a request for the key.
    fn seen(&self, head: &Head, body: &[u8]) -> Result<Seen, CallError> {
        let index = head.index.unwrap_or(0);
        if head.status == 404 {
            return Ok(Seen {
                owner: Owner::Nobody,
                modified: 0,
                index,
            });
        }
        let whole: Value = serde_json::from_slice(body).unwrap_or_default();
        let key = &whole[0];
        let modified = key["ModifyIndex"].as_u64();
        Ok(Seen {
            owner: match key["Session"].as_str() {
                None | Some("") => Owner::Nobody,
                Some(session) if session == self.session => Owner::Us,
                Some(_) => Owner::Another,
            },
            modified: modified.ok_or_else(|| wrong_kind(self.call()))?,
            index,
        })
    }

    /// Interprets one answer for the attempt; None where the next one tells.
    fn goes_on(
        &mut self,
        call: Call,
        head: &Head,
        body: &[u8],
    ) -> Result<Option<Answer>, CallError> {
        match call {
            Call::Ignored => Ok(None),
            Call::Renew => match self.lives_on(head, body)? {
                true => Ok(None),
                false => Err(LAPSED),
            },
            // The answer to the next request shows the owner.
            Call::Take => granted(call, head, body).map(|_| None),
            Call::Look | Call::Check => {
                is_good(call, head, body)?;
                let seen = self.seen(head, body)?;
                Ok(Some(self.looked(call, seen)))
            }
            Call::Give | Call::GiveBack => granted(call, head, body).map(|_| Some(Answer::Taken)),
        }
    }

    fn looked(&mut self, call: Call, seen: Seen) -> Answer {
        let step = match (seen.owner, call) {
            (Owner::Us, _) if self.gives_up => Step::GiveBack,
            (Owner::Us, _) => {
                self.token = seen.modified;
                return Answer::Granted;
            }
            _ if self.gives_up => return Answer::Taken,
            (Owner::Nobody, Call::Check) => {
                // No session holds the key, and still it was not granted: the lock-delay.
                return match self.is_late() {
                    true => Answer::Taken,
                    false => {
                        self.delayed_until = Some(clock::monotonic() + RETRY_NS);
                        Answer::Pending
                    }
                };
            }
            (Owner::Nobody, _) => Step::Take,
            (Owner::Another, _) if self.is_late() => return Answer::Taken,
            (Owner::Another, _) => Step::Watch(seen.index),
        };
        self.next = Some(step);
        Answer::Pending
    }

    /// Whether the session still exists, by the answer to a renewal.
    fn lives_on(&mut self, head: &Head, body: &[u8]) -> Result<bool, CallError> {
        if head.status == 404 {
            return Ok(false);
        }
        is_good(Call::Renew, head, body)?;
        self.renewed_ns = self.asked_ns;
        Ok(true)
    }

    /// The answers that have come, each with its request.
    fn answers<'a>(&mut self, input: &'a [u8]) -> Result<Vec<Heard<'a>>, CallError> {
        let (mut rest, mut all) = (input, Vec::with_capacity(self.due.len()));
        for call in std::mem::take(&mut self.due) {
            let head = read(rest, call)?.ok_or_else(|| wrong_kind(call.name()))?;
            let at = head.length;
            let body = &rest[head.head..at];
            all.push((call, head, body));
            rest = &rest[at..];
        }
        Ok(all)
    }
}

/// The head of the answer that has come whole.
fn read(input: &[u8], call: Call) -> Result<Option<Head>, CallError> {
    let said = "what answers there does not speak HTTP";
    Head::read(input).map_err(|_| CallError::saying(call.name(), Errno::PROTO, said))
}

/// Whether the server granted what a PUT had asked for.
fn granted(call: Call, head: &Head, body: &[u8]) -> Result<bool, CallError> {
    is_good(call, head, body)?;
    match body.trim_ascii() {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(wrong_kind(call.name())),
    }
}

fn is_good(call: Call, head: &Head, body: &[u8]) -> Result<(), CallError> {
    match (head.status, call) {
        (200, _) | (404, Call::Look | Call::Check) => Ok(()),
        // What it says of a session that is no more.
        (500, Call::Take) if contains(body, b"invalid session") => Err(LAPSED),
        _ => Err(refused(call.name(), body.trim_ascii())),
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The session was not there any more.
const LAPSED: CallError = CallError::saying(
    "PUT kv?acquire",
    Errno::TIMEDOUT,
    "the session was over before the lock was granted",
);

/// The session was gone at the release.
const LOST: CallError = CallError::saying(
    "PUT kv?release",
    Errno::TIMEDOUT,
    "our lock was gone before the release",
);

/// A query was not answered.
const SILENT: CallError = CallError::saying(
    "GET kv",
    Errno::TIMEDOUT,
    "the server has not answered a query whose time is over",
);

impl Wire for ConsulWire {
    fn names(&self) -> [&'static str; 2] {
        [Call::Take.name(), Call::Give.name()]
    }

    fn acquire(&mut self, key: usize, _mode: Mode, asking: Asking, out: &mut Vec<u8>) {
        self.key = key;
        self.gives_up = false;
        self.next = None;
        self.delayed_until = None;
        self.limit = asking;
        self.look(out);
    }

    fn release(&mut self, key: usize, _mode: Mode, out: &mut Vec<u8>) {
        self.renew_in_time(out);
        self.put(Call::Give, key, b"?release=", out);
    }

    /// The answers to all that was asked, once they are there.
    fn decode<'a>(&self, input: &'a [u8], call: &'static str) -> Decoded<'a> {
        let mut at = 0;
        for asked in &self.due {
            match read(&input[at..], *asked)? {
                Some(head) => at += head.length,
                None => return Ok(None),
            }
        }
        match at {
            0 if !input.is_empty() => Err(crate::surplus::error(call)),
            0 => Ok(None),
            at => Ok(Some((Reply::Text(&input[..at]), at))),
        }
    }

    fn acquired(&mut self, _key: usize, reply: Reply<'_>) -> Result<Answer, CallError> {
        let Reply::Text(input) = reply else {
            return Err(wrong_kind(self.call()));
        };
        let mut answer = Answer::Pending;
        for (call, head, body) in self.answers(input)? {
            if let Some(last) = self.goes_on(call, &head, body)? {
                answer = last;
            }
        }
        Ok(answer)
    }

    fn go_on(&mut self, out: &mut Vec<u8>) {
        match self.next.take() {
            Some(Step::Watch(index)) => self.watch(index, out),
            Some(Step::Take) => self.take(out),
            Some(Step::GiveBack) => self.put(Call::GiveBack, self.key, b"?release=", out),
            None => {}
        }
    }

    fn token(&self, _granted: Reply<'_>) -> Option<u64> {
        Some(self.token)
    }

    fn released(&mut self, reply: Reply<'_>) -> Result<(), CallError> {
        let Reply::Text(input) = reply else {
            return Err(wrong_kind(Call::Give.name()));
        };
        let mut is_ours = false;
        for (call, head, body) in self.answers(input)? {
            match call {
                Call::Give => is_ours = granted(call, &head, body)?,
                // The release tells whether the lock was ours.
                Call::Renew if head.status == 404 => {}
                _ => drop(self.goes_on(call, &head, body)?),
            }
        }
        match is_ours {
            true => Ok(()),
            false => Err(LOST),
        }
    }

    fn keeping(&self) -> Option<Keeping> {
        Some(Keeping {
            every_ns: self.every_ns(),
            ..Keeping::session(Call::Renew.name(), self.ttl_ns)
        })
    }

    fn renew(&mut self, _key: usize, out: &mut Vec<u8>) {
        self.renew_session(out);
    }

    fn renewed(&mut self, _key: usize, reply: Reply<'_>) -> Result<bool, CallError> {
        let Reply::Text(input) = reply else {
            return Err(wrong_kind(Call::Renew.name()));
        };
        let mut lives = false;
        for (call, head, body) in self.answers(input)? {
            lives = call == Call::Renew && self.lives_on(&head, body)?;
        }
        Ok(lives)
    }

    fn patience_ns(&self) -> Option<u64> {
        let now = clock::monotonic();
        match (self.delayed_until, self.limit) {
            (None, _) => Some((WAIT_MS * 1_000_000 * 17 / 16).saturating_add(SILENCE_NS)),
            (Some(time), Asking::Until(limit)) => Some(time.min(limit).saturating_sub(now).max(1)),
            (Some(time), _) => Some(time.saturating_sub(now).max(1)),
        }
    }

    fn is_on_time(&self) -> bool {
        self.delayed_until.is_some()
    }

    fn due(&mut self, out: &mut Vec<u8>) -> Result<(), CallError> {
        match self.delayed_until.take() {
            Some(_) => {
                self.look(out);
                Ok(())
            }
            None => Err(SILENT),
        }
    }

    fn cancels(&self) -> bool {
        true
    }

    /// A read changes nothing, so that its answer need not be awaited.
    fn give_up(&mut self, _out: &mut Vec<u8>) {
        self.gives_up = true;
        if self.is_left() {
            self.delayed_until = None;
            self.due.fill(Call::Ignored);
        }
    }

    fn is_left(&self) -> bool {
        let reads = [Call::Look, Call::Renew, Call::Ignored];
        self.gives_up && self.due.iter().all(|call| reads.contains(call))
    }

    fn sent_ns(&self) -> Option<u64> {
        Some(self.renewed_ns)
    }

    /// The session's end frees what it still has, and the server closes the connection.
    fn farewell(&mut self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(b"PUT /v1/session/destroy/");
        out.extend_from_slice(self.session.as_bytes());
        out.extend_from_slice(&self.lines);
        out.extend_from_slice(b"Content-Length: 0\r\nConnection: close\r\n\r\n");
        true
    }
}

#[cfg(test)]
mod tests;
