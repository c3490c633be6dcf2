//! A lock that was granted, and the threads that keep it.

use crate::line::Line;
use crate::term::Term;
use crate::{Error, Locks, OnLost, Wish, renewal, unlocking};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A lock that is lost.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The lock's name.
    pub name: String,
    /// The token with which it was held.
    pub token: i64,
    /// How it is known.
    pub reason: String,
}

impl Lost {
    fn error(&self) -> Error {
        let Lost {
            name,
            token,
            reason,
        } = self;
        Error::LockLost(format!("{name} (token {token}): {reason}"))
    }
}

const UNRENEWED: &str = "the lease ended, and no renewal was answered";

/// A lock that was granted. Dropping it releases it too, and tells nobody if it was lost.
pub struct Held {
    shared: Arc<Shared>,
    /// Gives its connection back when it ends.
    keeper: Option<JoinHandle<Line>>,
}

/// What the holder and its threads know.
struct Shared {
    locks: Locks,
    name: String,
    token: i64,
    ttl: Option<Duration>,
    on_lost: Option<OnLost>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    term: Term,
    /// Being released, or lost.
    over: bool,
    reason: Option<String>,
}

impl Held {
    pub(crate) fn new(
        locks: &Locks,
        name: &str,
        token: i64,
        wish: &Wish,
        term: Term,
        line: Line,
    ) -> Held {
        let shared = Arc::new(Shared {
            locks: locks.clone(),
            name: name.to_owned(),
            token,
            ttl: wish.ttl,
            on_lost: wish.on_lost.clone(),
            state: Mutex::new(State {
                term,
                over: false,
                reason: None,
            }),
            changed: Condvar::new(),
        });
        if wish.ttl.is_some() {
            // The keeper may be waiting for an answer when the lease ends.
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.watch());
        }
        let keeps = Arc::clone(&shared);
        Held {
            shared,
            keeper: Some(std::thread::spawn(move || keeps.keep(line))),
        }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The fencing token: larger than that of every earlier grant.
    pub fn token(&self) -> i64 {
        self.shared.token
    }

    /// Whether somebody else may hold the lock by now.
    pub fn is_lost(&self) -> bool {
        self.check().is_err()
    }

    /// Call it before what must not happen twice.
    ///
    /// # Errors
    /// [`Error::LockLost`] if the lock is lost.
    pub fn check(&self) -> Result<(), Error> {
        let mut state = self.shared.state();
        if state.reason.is_some() || state.term.is_over() {
            let reason = state.reason.clone().unwrap_or_else(|| UNRENEWED.into());
            return Err(self.shared.lost(reason).error());
        }
        Ok(())
    }

    /// Gives the lock back. If it returns `Ok`, the daemon has confirmed that the
    /// lock was held from its grant to this moment.
    ///
    /// # Errors
    /// [`Error::LockLost`] unless it was held until now.
    pub fn release(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        let Some(keeper) = self.keeper.take() else {
            return Ok(());
        };
        self.shared.state().over = true;
        self.shared.changed.notify_all();
        let line = keeper.join();
        self.check()?;
        let mut line = line.unwrap_or_else(|_| self.shared.locks.line());
        self.shared.unlock(&mut line).map_err(|error| {
            let reason = format!("its release was not confirmed: {error}");
            self.shared.lost(reason).error()
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self, reason: String) -> Lost {
        Lost {
            name: self.name.clone(),
            token: self.token,
            reason,
        }
    }

    fn answer(&self) -> Duration {
        self.state().term.answer
    }

    fn unlock(&self, line: &mut Line) -> Result<(), Error> {
        let words = unlocking(&self.name, self.token);
        match line.ask(Some(self.answer()), &words) {
            // Without a lease the connection is gone, and the lock with it.
            Err(Error::NoAnswer(_)) if self.ttl.is_some() => {
                *line = self.locks.line();
                line.ask(Some(self.answer()), &words).map(|_| ())
            }
            other => other.map(|_| ()),
        }
    }

    /// Renews a lease; without one, asks whether the connection lives.
    fn keep(&self, mut line: Line) -> Line {
        let every = self.state().term.every;
        let mut pause = every;
        while !self.is_over_within(pause) {
            pause = every;
            match self.confirm(&mut line) {
                Ok(()) => {}
                Err(Error::NoAnswer(_)) if self.ttl.is_some() => {
                    line = self.locks.line();
                    pause /= 4;
                }
                Err(error) => self.lose(error.to_string()),
            }
        }
        line
    }

    fn confirm(&self, line: &mut Line) -> Result<(), Error> {
        let sent = Instant::now();
        match self.ttl {
            Some(ttl) => line.ask(Some(self.answer()), &renewal(&self.name, self.token, ttl)),
            None => line.ask(Some(self.answer()), &["PING".into()]),
        }?;
        self.state().term.extend(sent);
        self.changed.notify_all();
        Ok(())
    }

    fn watch(&self) {
        loop {
            let left = self.state().term.left().unwrap_or_default();
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
    fn lose(&self, reason: String) {
        let mut state = self.state();
        if state.over {
            return;
        }
        state.over = true;
        state.reason = Some(reason.clone());
        drop(state);
        self.changed.notify_all();
        if let Some(call) = &self.on_lost {
            call(&self.lost(reason));
        }
    }
}
