//! `pipe`: a lock of the user's own, in any language: a program for each worker, which
//! answers lines on its standard input and output (`tool/docs/own-locks-pipe.md`).

mod guard;
mod line;
mod peer;

use crate::table::{Entry, Family, LockCapabilities, capabilities};
use crate::{CallError, Lock, Mode, Outcome, Setup, SetupError, Target, Wait, command};
use jostle_sys::clock;
use jostle_sys::files::Errno;
use line::{Capabilities, Reply, RequestLine};
use peer::{ANSWER_PATIENCE, Patience, Peer};

const NAME: &str = "pipe";

/// The names of the requests, in messages.
const ACQUIRE: &str = "request A";
const RELEASE: &str = "request U";

/// The capabilities that a program may have. Each program reports its own. Each worker starts two:
/// the program, and the thread that reads its standard error.
pub const LOCK: LockCapabilities = capabilities!(LockCapabilities::NONE; shared, timeout, excludes,
    survives_owner, starts: 2);

/// Why threads would add nothing.
pub(crate) const NO_THREADS: &str =
    "each worker starts a program of its own in any case; --as processes";

/// The command that all workers start, and its capabilities.
#[derive(Debug)]
pub(crate) struct Pipe {
    words: Vec<String>,
    workers: usize,
    keys: usize,
    shared: bool,
    timed: bool,
}

/// One worker's program.
#[derive(Debug)]
pub(crate) struct PipeLock {
    peer: Peer,
    has_tokens: bool,
    token: Option<u64>,
}

impl Pipe {
    /// Locks by the program of these words.
    pub(crate) fn new(words: Vec<String>, setup: &Setup<'_>) -> Pipe {
        Pipe {
            words,
            workers: setup.workers,
            keys: setup.keys,
            shared: setup.shared,
            timed: setup.timed,
        }
    }

    /// Starts the program for a worker, and refuses one that cannot do what the run
    /// asks for.
    ///
    /// # Errors
    /// In words for the user.
    pub(crate) fn start(&self, worker: usize) -> Result<PipeLock, SetupError> {
        let mut peer = Peer::start(&self.words, worker)?;
        let greeted = peer.greet((worker, self.workers), self.keys);
        let line = greeted.map_err(|error| SetupError(error.to_string()))?;
        let Some(can) = Capabilities::read(line) else {
            let said = line::quoted(line, 160);
            return Err(SetupError(format!(
                "the command answered HELLO with {said}; it must answer READY, and its \
                 capabilities on the same line"
            )));
        };
        for (asked, has, option, word) in [
            (self.shared, can.shared, "--shared", "shared"),
            (self.timed, can.timeout, "--acquire-timeout", "timeout"),
        ] {
            if asked && !has {
                let listed = line::quoted(can.listed.as_bytes(), 80);
                return Err(SetupError(format!(
                    "the command does not list `{word}` after READY, which {option} needs (it \
                     lists {listed}); leave {option} out, or let the command say it"
                )));
            }
        }
        Ok(PipeLock {
            peer,
            has_tokens: can.token,
            token: None,
        })
    }
}

impl Target for Pipe {
    type Lock = PipeLock;

    const ENTRY: Entry = Entry {
        name: NAME,
        argument: Some("COMMAND"),
        check_argument: |argument| match argument {
            None => Ok(()),
            some => command::words(NAME, some).map(drop),
        },
        family: Family::Own,
        reach: |command, _| command::found(NAME, Some(command)).map(drop),
        summary: "your own lock in any language: a program for each worker that answers lines",
        details: "COMMAND is split into words as a shell would, and started without one, once \
                  for each worker; `{worker}` in its words is the worker's number. The worker \
                  writes to its standard input and reads its standard output: `HELLO jostle/1 \
                  WORKER KEYS` is answered by `READY` and the capabilities `shared`, `timeout`, \
                  `token`, `fifo`, as far as it has them; `A KEY x|s MS` (exclusive or shared; \
                  -1 ms: for ever, 0: not at all) by `G` (granted, with a fencing token if it \
                  has them), `R` (refused, or too late) or `E` and a text; `U KEY` (release) by \
                  `K` or `E` and a text. At the end of its input it cleans up and ends within a \
                  second. tool/docs/own-locks-pipe.md is a walk through it. The figures include the \
                  way there and back: `echo+pipe` is that way alone. In the table, timeout, \
                  shared and survives owner mean that a program may have them.",
        lock: capabilities!(LOCK; answering: Some("echo+pipe"), path_alone),
        no_threads: Some(NO_THREADS),
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<Pipe, SetupError> {
        Ok(Pipe::new(command::found(NAME, setup.argument)?, setup))
    }

    fn join(&self, worker: usize) -> Result<PipeLock, SetupError> {
        self.start(worker)
    }
}

impl Lock for PipeLock {
    fn acquire(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let (ms, patience) = match wait {
            Wait::Try => (0, Patience::Short),
            Wait::Block { .. } => (-1, Patience::Owners),
            Wait::Until(time) => {
                // Rounded up: the user's timeout is the least that is waited.
                let left_ns = time.saturating_sub(clock::monotonic());
                let most = left_ns.saturating_add(ANSWER_PATIENCE.as_nanos() as u64);
                let ms = left_ns.div_ceil(1_000_000) as i64;
                (ms, Patience::OwnersAtMost(most))
            }
        };
        let request = RequestLine::acquire(key, mode, ms);
        let Some(line) = self.peer.call(ACQUIRE, &request, patience)? else {
            return Ok(Outcome::Interrupted);
        };
        match Reply::read(line) {
            Some(Reply::Granted(token)) if token.is_some() || !self.has_tokens => {
                self.token = token;
                Ok(Outcome::Granted)
            }
            Some(Reply::Refused) if ms >= 0 => Ok(Outcome::Refused),
            _ => Err(self.no_answer(ACQUIRE)),
        }
    }

    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        let request = RequestLine::release(key);
        match self.peer.call(RELEASE, &request, Patience::Short)? {
            Some(b"K") => Ok(()),
            Some(_) => Err(self.no_answer(RELEASE)),
            None => Err(CallError::new(RELEASE, Errno::INTR)),
        }
    }

    fn token(&self) -> Option<u64> {
        self.token
    }

    fn gives_up(&self) -> bool {
        false
    }

    fn owner_group(&self) -> Option<u32> {
        self.peer.group()
    }

    fn part(&mut self) -> Result<(), CallError> {
        self.peer.end()
    }
}

impl PipeLock {
    /// The error for the line that has come.
    #[cold]
    fn no_answer(&self, name: &'static str) -> CallError {
        let line = self.peer.answer();
        match Reply::read(line) {
            Some(Reply::Failed(text)) => self.peer.failed(name, text),
            Some(Reply::Granted(None)) if name == ACQUIRE => {
                self.peer
                    .refuse(name, "lists `token` and granted without one:", line)
            }
            Some(Reply::Refused) if name == ACQUIRE => self.peer.refuse(
                name,
                "refused a lock that may be waited for without end (-1):",
                line,
            ),
            Some(_) => self.peer.refuse(
                name,
                "answered another request than this one, an earlier one twice perhaps:",
                line,
            ),
            None => self.peer.refuse(name, "sent what is no answer:", line),
        }
    }
}
