//! Reserves ranges of tokens beside the event loop, so that a slow disk stops
//! nobody while tokens are left.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::{SCRATCH, Server};
use crate::table::Event;
use crate::tokens::{END, RANGE, TokenStore};

/// A next range of tokens is asked for when fewer are left.
const TOKENS_LOW: u64 = RANGE / 2;
/// With fewer left than one read can use, and the next range on its way, the
/// server waits for the disk rather than refuse grants.
const TOKENS_CRITICAL: u64 = SCRATCH as u64;
const TOKENS_PATIENCE: Duration = Duration::from_secs(1);

/// A thread that writes, and what it was last asked for.
pub(crate) struct Reserver {
    ask: Option<Sender<u64>>,
    answers: Receiver<io::Result<u64>>,
    bell: Arc<OwnedFd>,
    in_flight: bool,
    /// Why the last attempt failed; `None` after a success.
    pub(crate) trouble: Option<String>,
}

/// What a look at the answers brought.
pub(crate) enum Reserved {
    /// Tokens below this may be given out.
    Upto(u64),
    /// The attempt failed; see [`Reserver::trouble`].
    Failed,
    /// No answer yet.
    Pending,
}

impl Reserver {
    pub(crate) fn start(mut store: Box<dyn TokenStore>) -> io::Result<Self> {
        let (ask, asked) = channel::<u64>();
        let (answer, answers) = channel();
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let bell = Arc::new(eventfd(0, flags)?);
        let ring = Arc::clone(&bell);
        std::thread::Builder::new()
            .name("tokens".into())
            .spawn(move || {
                for end in asked {
                    let outcome = store.reserve(end).map(|()| end);
                    if answer.send(outcome).is_err() {
                        return;
                    }
                    let _ = rustix::io::write(&ring, &1u64.to_ne_bytes());
                }
            })?;
        Ok(Self {
            ask: Some(ask),
            answers,
            bell,
            in_flight: false,
            trouble: None,
        })
    }

    /// Becomes readable when an answer is there.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(crate) fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// Asks for the range that follows `next`, unless it is being done.
    pub(crate) fn request(&mut self, next: u64) {
        if !self.in_flight
            && let Some(ask) = &self.ask
        {
            let end = next.saturating_add(RANGE).min(END);
            self.in_flight = ask.send(end).is_ok();
        }
    }

    /// Looks for an answer, and waits for it for at most `patience`.
    pub(crate) fn answer(&mut self, patience: Duration) -> Reserved {
        if !self.in_flight {
            return Reserved::Pending;
        }
        let outcome = match self.answers.recv_timeout(patience) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => return Reserved::Pending,
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("its thread has ended")),
        };
        self.in_flight = false;
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
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

impl Server {
    pub(super) fn no_tokens(&self) -> bool {
        self.table.tokens_left() < TOKENS_LOW && self.reserver.is_some()
    }

    pub(super) fn token_trouble(&self) -> String {
        let trouble = self
            .reserver
            .as_ref()
            .and_then(|reserver| reserver.trouble.clone());
        trouble.unwrap_or_else(|| "the disk has not answered yet".to_owned())
    }

    /// Before commands are executed: asks for tokens in time.
    #[inline]
    pub(super) fn provide_tokens(&mut self) {
        let left = self.table.tokens_left();
        if left >= TOKENS_LOW {
            return;
        }
        let Some(reserver) = &mut self.reserver else {
            return;
        };
        // After a failure the sweep tries again, once a second.
        if reserver.trouble.is_none() {
            reserver.request(self.table.next_token() + left);
        }
        if left < TOKENS_CRITICAL && reserver.in_flight() && reserver.trouble.is_none() {
            self.take_tokens(TOKENS_PATIENCE);
        }
    }

    pub(super) fn take_tokens(&mut self, patience: Duration) {
        let Some(reserver) = &mut self.reserver else {
            return;
        };
        match reserver.answer(patience) {
            Reserved::Upto(end) => {
                self.stats.reservations += 1;
                // No later time: commands of this turn may follow.
                self.step(Event::Tokens { end }, self.clock);
            }
            Reserved::Failed => self.stats.reservation_failures += 1,
            Reserved::Pending => {
                if patience >= TOKENS_PATIENCE {
                    reserver.trouble = Some("the disk does not answer".to_owned());
                }
            }
        }
    }
}
