//! Reserves ranges of tokens beside the event loop, so that a slow disk stops no client
//! while tokens are left.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::log::{Level, say, write};
use crate::tokens::{END, Promise, RANGE, TokenStore};

/// How long the server waits for the disk.
pub(super) const TOKENS_PATIENCE: Duration = Duration::from_secs(1);
/// How often the store is checked.
const CHECK: Duration = Duration::from_secs(1);

/// A thread that writes, and what it was last asked for.
pub(crate) struct Reserver {
    ask: Sender<Ask>,
    answers: Receiver<io::Result<u64>>,
    bell: Arc<OwnedFd>,
    in_flight: bool,
    /// The promise that the thread was asked to keep, and where it answers.
    promised: Option<(Promise, Receiver<io::Result<()>>)>,
    /// Why the last attempt failed; `None` after a success.
    pub(crate) trouble: Option<String>,
    /// Why the next start would not find what was reserved.
    lost: Arc<Mutex<Option<String>>>,
}

/// Requests to the thread.
enum Ask {
    /// Reserve tokens below this.
    Upto(u64),
    /// Keep this promise, and answer here.
    Promise(Promise, Sender<io::Result<()>>),
    /// Hand out the store's file, and leave it alone until the next request.
    Rest(Sender<io::Result<OwnedFd>>),
    /// Go on after a rest.
    Wake,
}

/// The result of looking for an answer.
pub(crate) enum Reserved {
    /// Tokens below this may be given out.
    Upto(u64),
    /// The attempt failed; see [`Reserver::trouble`].
    Failed,
    /// No answer yet.
    Pending,
}

impl Reserver {
    pub(crate) fn start(store: Box<dyn TokenStore>) -> io::Result<Self> {
        let (ask, asked) = channel::<Ask>();
        let (answer, answers) = channel();
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let bell = Arc::new(eventfd(0, flags)?);
        let keeper = Keeper {
            store,
            asked,
            answer,
            bell: Arc::clone(&bell),
            lost: Arc::default(),
        };
        let lost = Arc::clone(&keeper.lost);
        std::thread::Builder::new()
            .name("tokens".into())
            .spawn(move || keeper.work())?;
        Ok(Self {
            ask,
            answers,
            bell,
            in_flight: false,
            promised: None,
            trouble: None,
            lost,
        })
    }

    /// Why tokens are in danger: a reservation failed, or the next start would
    /// not find what was reserved.
    pub(crate) fn state(&self) -> Option<String> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        self.trouble.clone().or_else(|| lost.clone())
    }

    /// Becomes readable when an answer is there.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(crate) fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// Asks for the range that follows `next`, unless a request is in flight.
    pub(crate) fn request(&mut self, next: u64) {
        if !self.in_flight {
            let end = next.saturating_add(RANGE).min(END);
            self.in_flight = self.ask.send(Ask::Upto(end)).is_ok();
        }
    }

    /// Lets a promise be kept, unless an earlier one is still being kept; returns the one
    /// that is kept by now. `None`: the disk has failed, or does not answer within
    /// `patience`. A disk in trouble is not waited for.
    pub(crate) fn promise(&mut self, promise: Promise, patience: Duration) -> Option<Promise> {
        let (asked, answer) = self.promised.take().unwrap_or_else(|| {
            let (to, from) = channel();
            let _ = self.ask.send(Ask::Promise(promise, to));
            (promise, from)
        });
        let waits = self.trouble.is_none() && !patience.is_zero();
        match answer.recv_timeout(if waits { patience } else { Duration::ZERO }) {
            Ok(Ok(())) => {
                self.trouble = None;
                return Some(asked);
            }
            Ok(Err(error)) => self.trouble = Some(error.to_string()),
            Err(_) => {
                self.promised = Some((asked, answer));
                if waits {
                    self.trouble = Some("the disk does not answer".to_owned());
                }
            }
        }
        None
    }

    /// Makes the thread leave its store alone; returns the store's file.
    pub(super) fn rest(&self) -> Result<OwnedFd, String> {
        if self.in_flight {
            return Err("the disk does not answer".to_owned());
        }
        let (to, from) = channel();
        let _ = self.ask.send(Ask::Rest(to));
        match from.recv_timeout(TOKENS_PATIENCE) {
            Ok(found) => found.map_err(|error| format!("the file of the tokens: {error}")),
            Err(_) => Err("the disk does not answer".to_owned()),
        }
    }

    /// Ends a rest, if there is one.
    pub(crate) fn wake(&self) {
        let _ = self.ask.send(Ask::Wake);
    }

    /// Looks for an answer, and waits for it for at most `patience`.
    pub(crate) fn answer(&mut self, patience: Duration) -> Reserved {
        // Always read the bell first. The thread answers and then rings: an answer that
        // is taken in between leaves a ring behind, which epoll would report for ever.
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
        if !self.in_flight {
            return Reserved::Pending;
        }
        let outcome = match self.answers.recv_timeout(patience) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => return Reserved::Pending,
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("its thread has ended")),
        };
        self.in_flight = false;
        match outcome {
            Ok(end) => {
                self.trouble = None;
                Reserved::Upto(end)
            }
            Err(error) => {
                self.trouble = Some(error.to_string());
                Reserved::Failed
            }
        }
    }
}

/// The thread's side.
struct Keeper {
    store: Box<dyn TokenStore>,
    asked: Receiver<Ask>,
    answer: Sender<io::Result<u64>>,
    bell: Arc<OwnedFd>,
    lost: Arc<Mutex<Option<String>>>,
}

impl Keeper {
    fn work(mut self) {
        let mut rests = false;
        loop {
            let asked = match rests {
                false => self.asked.recv_timeout(CHECK),
                true => self.asked.recv().map_err(Into::into),
            };
            rests = matches!(asked, Ok(Ask::Rest(_)));
            match asked {
                Ok(Ask::Rest(to)) => drop(to.send(self.store.file())),
                Ok(Ask::Wake) => {}
                Ok(Ask::Promise(promise, to)) => drop(to.send(self.store.promise(promise))),
                Ok(Ask::Upto(end)) => {
                    let outcome = self.store.reserve(end).map(|()| end);
                    if self.answer.send(outcome).is_err() {
                        return;
                    }
                    let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
                }
                Err(RecvTimeoutError::Timeout) => self.check(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn check(&mut self) {
        let found = self.store.check();
        let now = match &found {
            Ok(_) => None,
            Err(error) => Some(format!("{error}; the next start may repeat fencing tokens")),
        };
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if now != *lost {
            match now.as_deref() {
                Some(trouble) => write(Level::Error, trouble),
                None => say("the data directory is there again"),
            }
        }
        *lost = now;
        if let Ok(true) = found {
            write(
                Level::Warn,
                "the data directory had vanished, and was made anew: tokens go on",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(reserver: &Reserver) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::from_borrowed_fd(reserver.bell(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    /// 8 of 40 daemons that started beside two busy loops used a whole core for ever:
    /// the answer was taken before its ring. Here the test plays the thread.
    #[test]
    fn a_ring_that_comes_after_its_answer_was_taken_is_heard_once() {
        let (answer, answers) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let mut reserver = Reserver {
            ask: channel().0,
            answers,
            bell: Arc::clone(&bell),
            in_flight: true,
            promised: None,
            trouble: None,
            lost: Arc::default(),
        };
        answer.send(Ok(7)).unwrap();
        let taken = reserver.answer(Duration::ZERO);
        assert!(matches!(taken, Reserved::Upto(7)));
        rustix::io::write(&bell, &1u64.to_ne_bytes()).unwrap();
        assert!(rings(&reserver));
        let taken = reserver.answer(Duration::ZERO);
        assert!(matches!(taken, Reserved::Pending));
        assert!(!rings(&reserver));
    }
}
