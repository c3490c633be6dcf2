//! `pipe`: a lock of the user's own, in any language: a program for each worker, which
//! answers lines on its standard input and output (`tool/docs/own-locks-pipe.md`).

mod guard;
mod line;
mod peer;

use crate::table::{Entry, Family, LockCapabilities, capabilities};
use crate::{CallError, Keeping, Lock, Mode, Outcome, Setup, SetupError, Target, Wait, command};
use jostle_model::record::Promise;
use jostle_sys::files::Errno;
use jostle_sys::{clock, signal};
use line::{Capabilities, Reply, Request};
use peer::{ANSWER_PATIENCE, Patience, Peer};

const NAME: &str = "pipe";

/// The names of the requests, in messages.
const ACQUIRE: &str = "request A";
const RELEASE: &str = "request U";
const RENEW: &str = "request W";

/// The capabilities that a program may have. Each program reports its own. Each worker starts two:
/// the program, and the thread that reads its standard error.
pub const LOCK: LockCapabilities = capabilities!(LockCapabilities::NONE; shared, timeout, excludes,
    survives_owner, renews, starts: 2);

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
    can: Capabilities,
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
        let said = || line::quoted(line, 160);
        let can = Capabilities::read(line).ok_or_else(|| {
            SetupError(format!(
                "the command answered HELLO with {}; it must answer READY, and its capabilities \
                 on the same line",
                said()
            ))
        })?;
        let can = can.map_err(|why| {
            SetupError(format!("the command answered HELLO with {}; {why}", said()))
        })?;
        for (asked, has, option, word) in [
            (self.shared, can.shared, "--shared", "shared"),
            (
                self.timed,
                can.timeout || can.give_up,
                "--acquire-timeout",
                "timeout",
            ),
        ] {
            if asked && !has {
                let listed = line::quoted(can.listed.as_bytes(), 80);
                return Err(SetupError(format!(
                    "the command does not list `{word}` after READY, which {option} needs (it \
                     lists {listed}); leave {option} out, or let the command say it"
                )));
            }
        }
        if can.numbered {
            peer.number_lines();
        }
        Ok(PipeLock {
            peer,
            can,
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
        summary: "your own lock in any language: a program for each worker that answers each line",
        details: "COMMAND is split into words as a shell would, and started without one, once \
                  for each worker; `{worker}` in its words is the worker's number. The worker \
                  writes to its standard input and reads its standard output: `HELLO jostle/1 \
                  WORKER KEYS` is answered by `READY` and the capabilities `shared`, `timeout`, \
                  `token`, `fifo`, as far as it has them, and its promise: `lease=MS`, \
                  `by=process|connection|lease`, `restart`; `A KEY x|s MS` (exclusive or shared; \
                  -1 ms: for ever, 0: not at all) by `G` (granted, with a fencing token if it \
                  has them), `R` (refused, or too late) or `E` and a text; `U KEY` (release) by \
                  `K` or `E` and a text. With `jostle/2` after READY each line begins with the \
                  number of its request, and the program may list `renew` (`W KEY MS`) and \
                  `give-up` (`X REQUEST`). At the end of its input it cleans up and ends within a \
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
            Wait::Until(time) if !self.can.timeout => (-1, Patience::Until(time)),
            Wait::Until(time) => {
                // Rounded up: the user's timeout is the least that is waited.
                let left_ns = time.saturating_sub(clock::monotonic());
                let most = left_ns.saturating_add(ANSWER_PATIENCE.as_nanos() as u64);
                let ms = left_ns.div_ceil(1_000_000) as i64;
                (ms, Patience::OwnersAtMost(most))
            }
        };
        let request = Request::Acquire { key, mode, ms };
        let mut is_given_up = false;
        let line = match self.peer.call(ACQUIRE, request, patience)? {
            Some(line) => line,
            None if !self.can.give_up => return Ok(Outcome::Interrupted),
            None => {
                is_given_up = true;
                match self.peer.give_up()? {
                    Some(line) => line,
                    None => return Ok(Outcome::Interrupted),
                }
            }
        };
        match Reply::read(line) {
            Some(Reply::Granted(token)) if token.is_some() || !self.can.promise.tokens => {
                self.token = token;
                Ok(Outcome::Granted)
            }
            Some(Reply::Refused) if is_given_up && signal::interrupted() => {
                Ok(Outcome::Interrupted)
            }
            Some(Reply::Refused) if ms >= 0 || is_given_up => Ok(Outcome::Refused),
            _ => Err(self.no_answer(ACQUIRE)),
        }
    }

    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        let request = Request::Release { key };
        match self.peer.call(RELEASE, request, Patience::Short)? {
            Some(b"K") => Ok(()),
            Some(b"R") if self.can.numbered => Err(CallError::lost(RELEASE)),
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

    fn promise(&self) -> Option<Promise> {
        Some(self.can.promise.clone())
    }

    fn keeping(&self) -> Option<Keeping> {
        let lease_ns = self.can.promise.lease_ns.filter(|_| self.can.renew)?;
        Some(Keeping::each(RENEW, lease_ns))
    }

    fn renew(&mut self, keys: &[usize], lapsed: &mut Vec<usize>) -> Result<bool, CallError> {
        let ms = self.can.promise.lease_ns.unwrap_or(0) / 1_000_000;
        for &key in keys {
            let request = Request::Renew { key, ms };
            match self.peer.call(RENEW, request, Patience::Short)? {
                Some(b"K") => {}
                Some(b"R") => lapsed.push(key),
                Some(_) => return Err(self.no_answer(RENEW)),
                None => return Err(CallError::new(RENEW, Errno::INTR)),
            }
        }
        Ok(true)
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

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::record::Belongs;

    /// A lock by this shell program, which has read HELLO.
    fn by(program: &str, timed: bool) -> Result<PipeLock, SetupError> {
        let program = format!("read hello; {program}");
        let pipe = Pipe {
            words: ["sh", "-c", &program].map(str::to_owned).to_vec(),
            workers: 1,
            keys: 4,
            shared: false,
            timed,
        };
        pipe.start(0)
    }

    fn soon() -> Wait {
        Wait::Until(clock::monotonic() + 20_000_000)
    }

    /// Every wait is given up: the first is refused, the second was granted meanwhile.
    #[test]
    fn a_wait_is_given_up_a_lease_renewed_and_a_lost_lock_told() {
        let program = "echo READY jostle/2 give-up renew lease=900 token restart later
            while read n verb key rest; do case $verb$key in
                A*) echo $n $verb $key $rest >&2;;
                X1) echo $n K; sleep 0.02; echo $key R;;
                X3) printf '%s G 7\\n%s K\\n' $key $n;;
                W2) echo $n K;;
                W*|U*) echo $n R;;
            esac; done";
        let mut lock = by(program, true).unwrap();
        let acquire = |lock: &mut PipeLock| lock.acquire(2, Mode::Exclusive, soon());
        assert_eq!(acquire(&mut lock), Ok(Outcome::Refused));
        assert_eq!(acquire(&mut lock), Ok(Outcome::Granted));
        assert_eq!(lock.token(), Some(7));
        let keeping = lock.keeping().unwrap();
        assert_eq!(
            (keeping.lease_ns, keeping.every_ns),
            (900_000_000, 300_000_000)
        );
        let mut lapsed = Vec::new();
        assert_eq!(lock.renew(&[2, 3], &mut lapsed), Ok(true));
        assert_eq!(lapsed, [3]);
        assert!(lock.release(2, Mode::Exclusive).unwrap_err().is_lost());
        let promise = lock.promise().unwrap();
        assert_eq!(promise.belongs, Belongs::Lease);
        assert!(promise.restart && promise.tokens);
        assert_eq!(lock.part(), Ok(()));
    }

    #[test]
    fn the_first_form_has_neither_numbers_nor_renewals() {
        let program = "echo READY timeout by=process
            while read verb rest; do case $verb in A) echo G;; U) echo R;; esac; done";
        let mut lock = by(program, true).unwrap();
        let granted = lock.acquire(0, Mode::Exclusive, soon());
        assert_eq!(granted, Ok(Outcome::Granted));
        assert_eq!(lock.keeping(), None);
        let error = lock.release(0, Mode::Exclusive).unwrap_err().to_string();
        assert!(error.contains("answered another request"), "{error}");
    }

    #[test]
    fn lines_with_wrong_numbers_are_quoted() {
        for (answers, says) in [
            (
                "echo G",
                "lists `jostle/2` and sent a line without a number: `G`",
            ),
            ("echo 2 G", "answers no request that is open: `2 G`"),
            (
                "printf '1 G\\n1 G\\n'",
                "a line that no request had asked for",
            ),
            ("echo 1 K", "answered another request than this one"),
            ("echo 1 what", "sent what is no answer: `what`"),
        ] {
            let program = format!("echo READY jostle/2; read line; {answers}; read line");
            let mut lock = by(&program, false).unwrap();
            let wait = Wait::Block { last_resort_ns: 0 };
            let error = lock
                .acquire(0, Mode::Exclusive, wait)
                .unwrap_err()
                .to_string();
            assert!(error.contains(says), "{says}: {error}");
        }
        // The program gives up another request than the one it was asked to.
        let program = "echo READY jostle/2 give-up; read line; read line; echo 9 R; read line";
        let mut lock = by(program, true).unwrap();
        let error = lock.acquire(0, Mode::Exclusive, soon()).unwrap_err();
        let says = "request X: the command sent what answers no request that is open: `9 R`";
        assert!(error.to_string().contains(says), "{error}");
    }

    #[test]
    fn a_promise_that_makes_no_sense_is_refused_at_the_start() {
        let error = by("echo READY by=me; read line", false).unwrap_err();
        let says = "answered HELLO with `READY by=me`; `by=me`: a lock belongs to";
        assert!(error.0.contains(says), "{error}");
        let error = by("echo READY; read line", true).unwrap_err();
        assert!(error.0.contains("does not list `timeout`"), "{error}");
    }
}
