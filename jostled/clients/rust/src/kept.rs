//! Grants, and the threads that keep them.

use crate::line::Line;
use crate::term::Term;
use crate::{Error, Locks};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const UNRENEWED: &str = "it ended, and no renewal was answered";

/// A grant of the daemon.
#[derive(Clone)]
pub(crate) struct Grant {
    /// Its name in errors.
    pub(crate) title: String,
    /// The commands that renew it, or ask whether its connection lives.
    pub(crate) renewal: Vec<Vec<String>>,
    /// The commands that end it.
    pub(crate) ending: Vec<Vec<String>>,
}

/// Called with the reason when something is lost.
pub(crate) type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// A grant, and what keeps it.
pub(crate) struct Parts {
    pub(crate) locks: Locks,
    pub(crate) grant: Grant,
    /// None for what its connection owns.
    pub(crate) ttl: Option<Duration>,
    pub(crate) term: Term,
    pub(crate) line: Line,
}

/// Something that a connection owns, or that is renewed until it is given back:
/// a lock, several, or a session.
pub(crate) struct Kept {
    shared: Arc<Shared>,
    /// Gives its connection back when it ends.
    keeper: Option<JoinHandle<Line>>,
}

/// The knowledge that the holder and its threads share.
pub(crate) struct Shared {
    locks: Locks,
    grant: Grant,
    ttl: Option<Duration>,
    on_lost: Option<Tell>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    term: Term,
    /// Being released, or lost.
    over: bool,
    reason: Option<String>,
}

impl Kept {
    pub(crate) fn new(parts: Parts, on_lost: Option<Tell>) -> Kept {
        let line = parts.line;
        let shared = Arc::new(Shared {
            locks: parts.locks,
            grant: parts.grant,
            ttl: parts.ttl,
            on_lost,
            state: Mutex::new(State {
                term: parts.term,
                over: false,
                reason: None,
            }),
            changed: Condvar::new(),
        });
        if shared.ttl.is_some() {
            // The keeper may be waiting for an answer when the lease ends.
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.watch());
        }
        let keeps = Arc::clone(&shared);
        Kept {
            shared,
            keeper: Some(std::thread::spawn(move || keeps.keep(line))),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// [`Error::LockLost`] if it is lost.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let mut state = self.shared.state();
        if state.reason.is_some() || state.term.is_over() {
            let reason = state.reason.as_deref().unwrap_or(UNRENEWED);
            return Err(self.shared.lost(reason));
        }
        Ok(())
    }

    /// Gives it back, once; [`Error::LockLost`] unless the daemon confirms that it
    /// was held until now.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        let Some(keeper) = self.keeper.take() else {
            return Ok(());
        };
        self.shared.state().over = true;
        self.shared.changed.notify_all();
        let line = keeper.join();
        self.check()?;
        let mut line = line.unwrap_or_else(|_| self.shared.locks.line());
        self.shared.give_back(&mut line).map_err(|error| {
            let reason = format!("its release was not confirmed: {error}");
            self.shared.lost(&reason)
        })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lost(&self, reason: &str) -> Error {
        Error::LockLost(format!("{}: {reason}", self.grant.title))
    }

    fn answer(&self) -> Duration {
        self.state().term.answer
    }

    fn give_back(&self, line: &mut Line) -> Result<(), Error> {
        match line.ask_all(Some(self.answer()), &self.grant.ending) {
            // Without a lease the connection is gone, and the lock with it.
            Err(Error::NoAnswer(_)) if self.ttl.is_some() => {
                *line = self.locks.line();
                line.ask_all(Some(self.answer()), &self.grant.ending)
            }
            other => other,
        }
        .map(drop)
    }

    /// Renews a lease; without one, asks whether the connection lives.
    fn keep(&self, mut line: Line) -> Line {
        let Term {
            every, again, soon, ..
        } = self.state().term.clone();
        let mut pause = soon;
        while !self.is_over_within(pause) {
            pause = every;
            match self.confirm(&mut line) {
                Ok(()) => {}
                Err(Error::NoAnswer(_)) if self.ttl.is_some() => {
                    line = self.locks.line();
                    pause = again;
                }
                Err(error) => self.lose(error.to_string()),
            }
        }
        line
    }

    fn confirm(&self, line: &mut Line) -> Result<(), Error> {
        let sent = Instant::now();
        let limit = self.answer().min(self.state().term.left());
        line.ask_all(Some(limit), &self.grant.renewal)?;
        self.state().term.extend(sent);
        self.changed.notify_all();
        Ok(())
    }

    fn watch(&self) {
        loop {
            let left = self.state().term.left();
            if left.is_zero() {
                return self.lose(UNRENEWED.into());
            }
            if self.is_over_within(left) {
                return;
            }
        }
    }

    fn is_over_within(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut state = self.state();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if state.over || left.is_zero() {
                return state.over;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Marks it as lost, which is final, and tells once.
    pub(crate) fn lose(&self, reason: String) {
        let mut state = self.state();
        if state.over {
            return;
        }
        state.over = true;
        state.reason = Some(reason.clone());
        drop(state);
        self.changed.notify_all();
        if let Some(call) = &self.on_lost {
            call(&reason);
        }
    }
}
