//! Commits beside the event loop: a thread owns the store.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::log::{self, Level, say, write};
use crate::store::{Entry, Failure, Store};

/// How often a store without room is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The loop's side of the thread.
pub(super) struct Storer {
    ask: Box<dyn Fn(Ask) + Send>,
    answers: Receiver<Answer>,
    bell: Arc<OwnedFd>,
}

/// A request to the thread.
pub(crate) enum Ask {
    /// Commit these entries.
    Commit(Vec<Entry>),
    /// Hand out the store's file, and leave it alone until the next request.
    Rest(Sender<io::Result<OwnedFd>>),
    /// Go on after a rest.
    Wake,
    /// Give the store up to another daemon, once all is committed.
    #[cfg(feature = "ha")]
    Release,
}

/// The thread's report.
#[derive(Debug)]
pub(crate) enum Answer {
    /// All that was asked for is committed; it took so long.
    Committed { entries: u64, ns: u64 },
    /// Nothing more may begin, for this reason; `None`: it may again.
    Room(Option<String>),
    /// Tokens below this may be given out.
    #[cfg(feature = "ha")]
    Tokens(u64),
    /// Another daemon may have the store now.
    #[cfg(feature = "ha")]
    Released,
}

impl Storer {
    pub(super) fn start(store: Box<dyn Store>) -> io::Result<Self> {
        let (ask, asked) = channel();
        let (answer, answers) = channel();
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let bell = Arc::new(eventfd(0, flags)?);
        let keeper = Keeper {
            store,
            asked,
            answer,
            bell: Arc::clone(&bell),
            trouble: None,
        };
        std::thread::Builder::new()
            .name("store".into())
            .spawn(move || keeper.work())?;
        // A thread that has failed has ended the process.
        let ask = move |asked| drop(ask.send(asked));
        Ok(Self::linked(ask, answers, bell))
    }

    /// The loop's side of a thread that runs already.
    pub(super) fn linked(
        ask: impl Fn(Ask) + Send + 'static,
        answers: Receiver<Answer>,
        bell: Arc<OwnedFd>,
    ) -> Self {
        Self {
            ask: Box::new(ask),
            answers,
            bell,
        }
    }

    /// Becomes readable when an answer is there.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(super) fn commit(&self, batch: Vec<Entry>) {
        (self.ask)(Ask::Commit(batch));
    }

    /// The next answer, which is waited for for at most `patience`. The bell is read first:
    /// a later ring is for another answer.
    pub(super) fn answer(&self, patience: Duration) -> Option<Answer> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.answers.recv_timeout(patience).ok()
    }

    /// Makes the thread leave its store alone; returns the store's file.
    pub(super) fn rest(&self, patience: Duration) -> Result<OwnedFd, String> {
        let (to, from) = channel();
        (self.ask)(Ask::Rest(to));
        match from.recv_timeout(patience) {
            Ok(found) => found.map_err(|error| format!("the store's file: {error}")),
            Err(_) => Err("the store does not answer".to_owned()),
        }
    }

    /// Ends a rest, if there is one.
    pub(super) fn wake(&self) {
        (self.ask)(Ask::Wake);
    }

    /// Gives the store up.
    #[cfg(feature = "ha")]
    pub(super) fn release(&self) {
        (self.ask)(Ask::Release);
    }
}

/// The thread's side.
struct Keeper {
    store: Box<dyn Store>,
    asked: Receiver<Ask>,
    answer: Sender<Answer>,
    bell: Arc<OwnedFd>,
    /// Why nothing may begin.
    trouble: Option<String>,
}

impl Keeper {
    fn work(mut self) {
        let mut rests = false;
        loop {
            let asked = match rests || self.trouble.is_none() {
                true => self.asked.recv().map_err(Into::into),
                false => self.asked.recv_timeout(AGAIN),
            };
            match asked {
                Ok(Ask::Rest(to)) => {
                    rests = true;
                    let _ = to.send(self.store.file());
                }
                // A file's lock ends with the process.
                #[cfg(feature = "ha")]
                Ok(Ask::Release) => {}
                Ok(Ask::Wake) => rests = false,
                Ok(Ask::Commit(batch)) => self.commit(&batch),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if !rests {
                match self.store.make_room() {
                    Ok(()) => self.note_room(None),
                    Err(failure) => self.fail(failure),
                }
            }
        }
    }

    fn commit(&mut self, batch: &[Entry]) {
        let (start, mut done) = (Instant::now(), 0);
        loop {
            match self.store.commit_if(&batch[done..]) {
                Ok(count) => done += count,
                Err(failure) => {
                    self.fail(failure);
                    std::thread::sleep(AGAIN);
                    continue;
                }
            }
            if done >= batch.len() {
                break;
            }
        }
        self.tell(Answer::Committed {
            entries: batch.len() as u64,
            ns: start.elapsed().as_nanos() as u64,
        });
    }

    fn fail(&mut self, failure: Failure) {
        match failure {
            Failure::Full(why) => self.note_room(Some(why)),
            Failure::Lost(why) => {
                // Whether it is on disk is not known, so nothing may be told any more. The
                // next start reads what is there.
                write(Level::Error, &format!("{why}: the daemon ends"));
                log::flush();
                std::process::exit(1);
            }
        }
    }

    fn note_room(&mut self, trouble: Option<String>) {
        if trouble.is_some() != self.trouble.is_some() {
            match &trouble {
                Some(why) => write(Level::Error, &format!("nothing is granted: {why}")),
                None => say("the store has room again"),
            }
            self.tell(Answer::Room(trouble.clone()));
            self.trouble = trouble;
        }
    }

    fn tell(&self, answer: Answer) {
        let _ = self.answer.send(answer);
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}
