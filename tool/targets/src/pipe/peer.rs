//! A user's program with a worker's ends of its three streams: how it is started,
//! asked, and ended.
//!
//! A request is one write(2) and one read(2). The keeper's signal ends the read of an
//! answer that may wait for the lock's owners. All other answers have a deadline, which
//! [`Guard`] enforces.

use super::guard::Guard;
use super::line::{LONGEST_LINE, NUMBERED, Request, RequestLine, numbered, quoted};
use crate::command::not_found;
use crate::outcome::code_of;
use crate::surplus::{await_bytes, poll_for};
use crate::{CallError, SetupError};
use jostle_sys::files::Errno;
use jostle_sys::process::{Ended, signal_name};
use jostle_sys::spawn::{Child, Program, Streams};
use jostle_sys::waited::{LOOK, Waited};
use jostle_sys::{clock, signal};
use rustix::io::{read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How long a program may take from its start to READY: a virtual machine on a busy
/// computer takes many seconds, and each that starts beside it delays it.
const READY_PATIENCE: Duration = Duration::from_secs(30);
const READY_PATIENCE_EACH: Duration = Duration::from_millis(500);

/// The keeper waits for two minutes until all workers are ready.
const LONGEST_READY_PATIENCE: Duration = Duration::from_secs(100);

/// Time limit for an answer that does not wait for an owner of the lock.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// How long a program may continue after the end of its input; the second limit is for a
/// program that still waits for a lock and may not notice the end. The keeper waits for two
/// seconds.
const END_PATIENCE: Duration = Duration::from_millis(1_000);
const WAITER_PATIENCE: Duration = Duration::from_millis(500);

/// How long a program that closed its output may take to end.
const DEATH_PATIENCE: Duration = Duration::from_millis(300);

/// Bytes that are quoted of a line, and of standard error: a worker has 384 bytes for
/// what went wrong.
const QUOTED_LINE: usize = 60;
const QUOTED_ERRORS: usize = 160;

/// The names of requests, in messages.
const HELLO: &str = "HELLO";
const GIVE_UP: &str = "request X";

/// How long an answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// As long as it takes, or until the keeper ends the wait.
    Owners,
    /// So many nanoseconds, or until the keeper ends the wait.
    OwnersAtMost(u64),
    /// Until this time of `CLOCK_MONOTONIC`, or until the keeper ends the wait: the program itself
    /// would wait for longer.
    Until(u64),
    /// [`ANSWER_PATIENCE`], whatever the keeper says.
    Short,
}

/// The program of one worker.
#[derive(Debug)]
pub(super) struct Peer {
    child: Option<Child>,
    input: Option<OwnedFd>,
    output: OwnedFd,
    guard: Guard,
    /// Requests so far.
    asked: u64,
    /// When the latest one was sent.
    asked_ns: u64,
    /// Requests whose answers are still to come.
    open: u32,
    /// The latest but one was given up by the latest.
    gives_up: bool,
    /// Each line has the number of its request.
    is_numbered: bool,
    line: [u8; LONGEST_LINE],
    filled: usize,
    /// Where the latest answer is: the end includes the line's.
    begin: usize,
    end: usize,
}

impl Peer {
    /// Starts the program of these words for this worker.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn start(words: &[String], worker: usize) -> Result<Peer, SetupError> {
        let limit = |error: Errno| {
            SetupError(format!(
                "cannot make a pipe: {error}; raise the limit on descriptors (ulimit -n)"
            ))
        };
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(limit);
        let ((its_input, input), (output, its_output)) = (pipe()?, pipe()?);
        let (errors, its_errors) = pipe()?;
        let streams = Streams {
            input: its_input.as_fd(),
            output: its_output.as_fd(),
            errors: its_errors.as_fd(),
        };
        let program = Program::with_streams(words, &streams);
        let child = program.and_then(|mut program| program.start(0, worker as u64));
        let child = child.map_err(|error| not_found(&words[0], &error))?;
        let guard = match Guard::start(child.pid(), errors) {
            Ok(guard) => guard,
            Err(error) => {
                let _ = child.kill();
                return Err(SetupError(format!(
                    "cannot start a thread: {error}; raise the limit on processes (ulimit -u)"
                )));
            }
        };
        Ok(Peer {
            child: Some(child),
            input: Some(input),
            output,
            guard,
            asked: 0,
            asked_ns: 0,
            open: 0,
            gives_up: false,
            is_numbered: false,
            line: [0; LONGEST_LINE],
            filled: 0,
            begin: 0,
            end: 1,
        })
    }

    /// The program's process group, while it runs.
    pub(super) fn group(&self) -> Option<u32> {
        self.child.as_ref().map(Child::pid)
    }

    /// Says HELLO and returns the line that follows. `workers` start theirs at the same
    /// time.
    ///
    /// # Errors
    /// The program's end, in words; ETIMEDOUT if it says nothing.
    pub(super) fn greet(
        &mut self,
        (worker, workers): (usize, usize),
        keys: usize,
    ) -> Result<&[u8], CallError> {
        let others = workers.saturating_sub(1).min(1_000) as u32;
        let patience = READY_PATIENCE + others * READY_PATIENCE_EACH;
        let patience = patience.min(LONGEST_READY_PATIENCE);
        self.send(HELLO, &RequestLine::hello(worker, keys))?;
        if !self.await_line(HELLO, patience)? {
            return Err(self.lost(HELLO, Some(patience)));
        }
        self.open = 0;
        // An answer before any request would be taken for the first one.
        let mut more = [0; QUOTED_LINE];
        if await_bytes(self.output.as_fd(), 0)
            && let Ok(count @ 1..) = read(&self.output, &mut more[..])
        {
            return Err(surplus(HELLO, &more[..count]));
        }
        Ok(self.answer())
    }

    /// From now on each line has a number, in both directions.
    pub(super) fn number_lines(&mut self) {
        self.is_numbered = true;
    }

    /// Sends a request and returns the line that answers it. None if the keeper ended the
    /// wait, or its time was up; every later call then returns None too, unless the request is
    /// given up.
    ///
    /// # Errors
    /// The program's end, in words; EPROTO for what is no line.
    pub(super) fn call(
        &mut self,
        name: &'static str,
        request: Request,
        patience: Patience,
    ) -> Result<Option<&[u8]>, CallError> {
        if self.open > 0 {
            return Ok(None);
        }
        self.asked += 1;
        match patience {
            Patience::Owners | Patience::Until(_) => {}
            Patience::OwnersAtMost(ns) => self.guard.watch(self.asked, ns),
            Patience::Short => self
                .guard
                .watch(self.asked, ANSWER_PATIENCE.as_nanos() as u64),
        }
        self.ask(name, request)?;
        loop {
            if let Patience::Until(time) = patience
                && !self.is_answering(time)
            {
                return Ok(None);
            }
            if self.receive(name)? {
                break;
            }
            if patience != Patience::Short && signal::interrupted() {
                self.guard.rest();
                return Ok(None);
            }
            if self.filled > 0 {
                // Only the program itself can delay the rest of a line.
                self.guard
                    .watch(self.asked, ANSWER_PATIENCE.as_nanos() as u64);
            }
        }
        self.guard.rest();
        self.open = 0;
        if self.answered(name)? != self.asked {
            return Err(self.astray(name));
        }
        Ok(Some(self.answer()))
    }

    /// Gives up the latest request, whose answer is still to come, and returns that answer: the
    /// program may have granted it meanwhile. None if it has no answer when the run is over.
    ///
    /// # Errors
    /// As [`Peer::call`]; ETIMEDOUT if it does not answer in time.
    pub(super) fn give_up(&mut self) -> Result<Option<&[u8]>, CallError> {
        if self.open != 1 || self.gives_up {
            return Ok(None);
        }
        self.guard.rest();
        let waiting = self.asked;
        self.gives_up = true;
        self.asked += 1;
        self.ask(GIVE_UP, Request::GiveUp { asked: waiting })?;
        let is_over = signal::interrupted();
        let patience = if is_over {
            WAITER_PATIENCE
        } else {
            ANSWER_PATIENCE
        };
        let (mut answer, mut is_confirmed) = (None, false);
        while self.open > 0 {
            if !self.await_line(GIVE_UP, patience)? {
                return match is_over {
                    true => Ok(None),
                    false => Err(self.lost(GIVE_UP, Some(patience))),
                };
            }
            match self.answered(GIVE_UP)? {
                number if number == waiting && answer.is_none() => {
                    answer = Some(self.answer().to_vec());
                }
                number if number == self.asked && !is_confirmed && self.answer() == b"K" => {
                    is_confirmed = true;
                }
                _ => return Err(self.astray(GIVE_UP)),
            }
            self.open -= 1;
            self.line.copy_within(self.end..self.filled, 0);
            self.filled -= self.end;
        }
        self.gives_up = false;
        let answer = answer.unwrap_or_default();
        (self.begin, self.end) = (0, answer.len() + 1);
        self.line[..answer.len()].copy_from_slice(&answer);
        Ok(Some(self.answer()))
    }

    /// The line that has come, without its number and its end.
    pub(super) fn answer(&self) -> &[u8] {
        &self.line[self.begin..self.end - 1]
    }

    /// The number of the request that the line answers.
    fn answered(&mut self, name: &'static str) -> Result<u64, CallError> {
        self.begin = 0;
        if !self.is_numbered {
            return Ok(self.asked);
        }
        let line = &self.line[..self.end - 1];
        let Some((number, answer)) = numbered(line) else {
            let how = format!("lists `{NUMBERED}` and sent a line without a number:");
            return Err(self.refuse(name, &how, line));
        };
        self.begin = line.len() - answer.len();
        Ok(number)
    }

    #[cold]
    fn astray(&self, name: &'static str) -> CallError {
        let line = &self.line[..self.end - 1];
        let how = "sent what answers no request that is open:";
        self.refuse(name, how, line)
    }

    fn ask(&mut self, name: &'static str, request: Request) -> Result<(), CallError> {
        let number = self.is_numbered.then_some(self.asked);
        self.send(name, &RequestLine::of(request, number))
    }

    fn send(&mut self, name: &'static str, request: &RequestLine) -> Result<(), CallError> {
        if self.open == 0 {
            self.filled = 0;
        }
        self.open += 1;
        self.asked_ns = clock::monotonic();
        let Some(input) = &self.input else {
            return Err(CallError::new(name, Errno::PIPE));
        };
        loop {
            match write(input, request.bytes()) {
                // A line is shorter than what a pipe takes at once.
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE) => {
                    // Lines that it sent before it closed its input may contain the cause.
                    if await_bytes(self.output.as_fd(), 0) {
                        self.filled = read(&self.output, &mut self.line[..]).unwrap_or(0);
                    }
                    return Err(self.lost(name, None));
                }
                Err(errno) => return Err(CallError::new(name, errno)),
            }
        }
    }

    /// Whether bytes have come before this time, and before the keeper's signal.
    fn is_answering(&self, until_ns: u64) -> bool {
        loop {
            let left = until_ns.saturating_sub(clock::monotonic());
            match poll_for(self.output.as_fd(), left) {
                Ok(has_come) => return has_come,
                Err(Errno::INTR) if !signal::interrupted() => {}
                Err(_) => return false,
            }
        }
    }

    /// Waits for a line, and returns whether one came in this time. The keeper's signals do not
    /// end this wait.
    fn await_line(&mut self, name: &'static str, patience: Duration) -> Result<bool, CallError> {
        let mut waited = Waited::begin();
        if self.completes(name, 0)? {
            return Ok(true);
        }
        loop {
            let look = clock::monotonic() + LOOK.as_nanos() as u64 / 2;
            if await_bytes(self.output.as_fd(), look) {
                if self.receive(name)? {
                    return Ok(true);
                }
            } else if waited.so_far() >= patience {
                return Ok(false);
            }
        }
    }

    /// Reads what has come. True if it is a line; false also after a signal.
    fn receive(&mut self, name: &'static str) -> Result<bool, CallError> {
        let from = self.filled;
        match read(&self.output, &mut self.line[from..]) {
            Ok(0) => Err(self.lost(name, None)),
            Ok(count) => {
                self.filled += count;
                self.completes(name, from)
            }
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(CallError::new(name, errno)),
        }
    }

    /// Whether a line ends in what has come from this byte on.
    fn completes(&mut self, name: &'static str, from: usize) -> Result<bool, CallError> {
        let came = &self.line[from..self.filled];
        match came.iter().position(|byte| *byte == b'\n') {
            // The next line may be the answer to the other request.
            Some(end) if end + 1 == came.len() || self.open > 1 => {
                self.end = from + end + 1;
                Ok(true)
            }
            Some(_) => Err(surplus(name, &self.line[..self.filled])),
            None if self.filled == LONGEST_LINE => Err(self.too_long(name)),
            None => Ok(false),
        }
    }

    #[cold]
    fn too_long(&self, name: &'static str) -> CallError {
        let begins = quoted(&self.line, QUOTED_LINE);
        let text = format!(
            "the command sent a line of more than {LONGEST_LINE} bytes, which begins {begins}"
        );
        failure(name, Errno::PROTO, &text)
    }

    /// The program's own words for a failure, and how long it took.
    #[cold]
    pub(super) fn failed(&self, name: &'static str, said: &[u8]) -> CallError {
        let took_ms = (clock::monotonic() - self.asked_ns) as f64 / 1e6;
        let own: &str = String::from_utf8_lossy(said).into_owned().leak();
        CallError {
            name: code_of(own),
            ..self.refuse(
                name,
                &format!("answered an error after {took_ms:.1} ms:"),
                said,
            )
        }
    }

    /// An answer that is none to this request, in words.
    #[cold]
    pub(super) fn refuse(&self, name: &'static str, how: &str, said: &[u8]) -> CallError {
        let text = format!("the command {how} {}", quoted(said, QUOTED_ERRORS));
        failure(name, Errno::PROTO, &text)
    }

    /// The error for a missing answer: how the program ended, and its last words. Kills the
    /// program if it still runs. `late` is how long its answer was awaited.
    #[cold]
    fn lost(&mut self, name: &'static str, late: Option<Duration>) -> CallError {
        let late = late.or_else(|| self.guard.gave_up());
        let ended = match late {
            Some(_) => self.finish(Duration::ZERO),
            None => self.finish(DEATH_PATIENCE),
        };
        let mut text = match (late, ended) {
            (Some(late), _) => format!(
                "the command did not answer within {} s, and was killed",
                (late.as_secs_f64() * 10.0).round() / 10.0
            ),
            (None, Some((ended, true))) => format!("the command {}", how(&ended)),
            (None, _) => "the command closed its output, and was killed".to_owned(),
        };
        if self.filled > 0 {
            let sent = quoted(&self.line[..self.filled], QUOTED_LINE);
            text += &format!("; it had sent {sent}");
        } else if late.is_some() {
            text += "; does it flush its output after each line?";
        }
        text += &self.last_words();
        let errno = match late {
            Some(_) => Errno::TIMEDOUT,
            None => Errno::PIPE,
        };
        failure(name, errno, &text)
    }

    fn last_words(&self) -> String {
        match self.guard.last_words(QUOTED_ERRORS) {
            words if words.is_empty() => String::new(),
            words => format!("; its last words: {}", quoted(&words, QUOTED_ERRORS)),
        }
    }

    /// Ends its input, so that it cleans up, and waits for its end.
    ///
    /// # Errors
    /// EPROTO for a line that no request had asked for; how the program ended, if
    /// not with exit code 0. Nothing where an answer was still to come.
    pub(super) fn end(&mut self) -> Result<(), CallError> {
        const NAME: &str = "end of input";
        if self.child.is_none() {
            return Ok(());
        }
        self.input = None;
        let patience = if self.open > 0 {
            WAITER_PATIENCE
        } else {
            END_PATIENCE
        };
        let until = clock::monotonic() + patience.as_nanos() as u64;
        let mut spoke = 0;
        while await_bytes(self.output.as_fd(), until) {
            match read(&self.output, &mut self.line[..]) {
                Ok(0) => break,
                Ok(count) => spoke = count,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let left = until.saturating_sub(clock::monotonic());
        let ended = self.finish(Duration::from_nanos(left));
        match ended {
            _ if self.open > 0 => Ok(()),
            _ if spoke > 0 => Err(surplus(NAME, &self.line[..spoke])),
            Some((ended, true)) if ended.code != Some(0) => {
                let text = format!("the command {}{}", how(&ended), self.last_words());
                Err(failure(NAME, Errno::PROTO, &text))
            }
            _ => Ok(()),
        }
    }

    /// Reaps the program when it ends, or kills it and its descendants after this time.
    /// Returns how it ended, and whether it ended by itself.
    fn finish(&mut self, patience: Duration) -> Option<(Ended, bool)> {
        let child = self.child.take()?;
        self.input = None;
        let until = clock::monotonic() + patience.as_nanos() as u64;
        let by_itself = loop {
            let left = until.saturating_sub(clock::monotonic());
            match child.await_end(Some(Duration::from_nanos(left))) {
                Ok(true) => break true,
                // A signal, or no more time.
                Ok(false) if left > 0 => {}
                _ => break false,
            }
        };
        // The group's number can be reused after its leader is reaped, so that the guard
        // must not kill by that number afterwards.
        self.guard.stop();
        child.kill().ok().map(|ended| (ended, by_itself))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // There is no caller to report an error to.
        let _ = self.end();
    }
}

fn how(ended: &Ended) -> String {
    match (ended.code, ended.signal) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by {}", signal_name(signal)),
        (None, None) => "ended".to_owned(),
    }
}

/// A line too many, such as a banner before READY.
#[cold]
fn surplus(name: &'static str, sent: &[u8]) -> CallError {
    let text = format!(
        "the command sent a line that no request had asked for: it answered twice, or too early; \
         it had sent {}",
        quoted(sent, QUOTED_LINE)
    );
    failure(name, Errno::PROTO, &text)
}

/// A failure ends the worker, so that one leak for each is no leak.
#[cold]
fn failure(call: &'static str, errno: Errno, text: &str) -> CallError {
    CallError::saying(call, errno, text.to_owned().leak())
}
