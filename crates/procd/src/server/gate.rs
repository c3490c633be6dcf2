//! How many calls of one procedure run at the same time, and who waits: a
//! procedure that hangs takes its own share of the threads, not all of them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One procedure's gate.
#[derive(Debug, Default)]
pub struct Gate(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    running: usize,
    waiting: VecDeque<u32>,
}

/// What a call that arrives is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Run.
    Run,
    /// Wait: too many run.
    Wait,
    /// Go away: too many wait.
    Refused,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call in, if fewer than `running` run.
    pub fn enter(&self, running: usize) -> bool {
        let mut inner = self.lock();
        let free = inner.running < running;
        inner.running += usize::from(free);
        free
    }

    /// Puts a connection in line, which must be ready to be resumed; asks once
    /// more, as the last of those that ran may have left by now.
    pub fn wait(&self, running: usize, waiting: usize, connection: u32) -> Entry {
        let mut inner = self.lock();
        if inner.running < running {
            inner.running += 1;
            Entry::Run
        } else if inner.waiting.len() < waiting {
            inner.waiting.push_back(connection);
            Entry::Wait
        } else {
            Entry::Refused
        }
    }

    /// A call has ended; the connection whose turn it is.
    pub fn leave(&self) -> Option<u32> {
        let mut inner = self.lock();
        inner.running -= 1;
        inner.waiting.pop_front()
    }

    /// The next one in line, if the one before it was gone.
    pub fn next(&self) -> Option<u32> {
        self.lock().waiting.pop_front()
    }

    /// Calls that run and that wait.
    pub fn load(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.running, inner.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_run_so_many_wait_in_line_and_more_are_refused() {
        let gate = Gate::default();
        assert!(gate.enter(2) && gate.enter(2) && !gate.enter(2));
        assert_eq!(gate.wait(2, 2, 7), Entry::Wait);
        assert_eq!(gate.wait(2, 2, 8), Entry::Wait);
        assert_eq!(gate.wait(2, 2, 9), Entry::Refused);
        assert_eq!(gate.load(), (2, 2));
        assert_eq!(gate.leave(), Some(7));
        assert_eq!(gate.wait(2, 2, 9), Entry::Run);
        assert_eq!(gate.next(), Some(8));
        assert_eq!(gate.leave(), None);
        assert_eq!(gate.load(), (1, 0));
    }
}
