//! Limits how many calls of one procedure run at the same time; others wait in line. A
//! procedure that hangs takes its own share of the threads, not all of them.
//!
//! Calls run in the order in which they came. A place that becomes free is kept for the
//! first in line at once, though some time passes until a thread takes up its
//! connection. If the place were open to all until then, a client that pipelines would
//! take it again and again.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One procedure's gate.
#[derive(Debug, Default)]
pub struct Gate(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    running: usize,
    /// Connections whose place is kept until they run.
    called: Vec<u32>,
    waiting: VecDeque<u32>,
}

/// The answer to a call that has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Its place is kept: it became free just now.
    Called,
    /// Wait: too many run.
    Wait,
    /// Refused: too many wait.
    Refused,
}

impl Inner {
    fn is_free(&self, running: usize) -> bool {
        self.waiting.is_empty() && self.running + self.called.len() < running
    }

    /// Keeps a place for the next connection in line; returns it, to be resumed.
    fn call(&mut self) -> Option<u32> {
        let next = self.waiting.pop_front()?;
        self.called.push(next);
        Some(next)
    }

    fn take_called(&mut self, connection: u32) -> bool {
        let at = self.called.iter().position(|called| *called == connection);
        at.map(|at| self.called.swap_remove(at)).is_some()
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call in, if its place is kept, or if fewer than `running` run and
    /// nobody waits. `connection` is in line, if it is `Some`.
    pub fn enter(&self, running: usize, connection: Option<u32>) -> bool {
        let mut inner = self.lock();
        let kept = connection.is_some_and(|connection| inner.take_called(connection));
        let enters = kept || inner.is_free(running);
        inner.running += usize::from(enters);
        enters
    }

    /// Puts a connection in line; it must be ready to be resumed. Checks for a free
    /// place once more, as the last of the running calls may have ended by now.
    pub fn wait(&self, running: usize, waiting: usize, connection: u32) -> Entry {
        let mut inner = self.lock();
        if inner.is_free(running) {
            inner.called.push(connection);
            Entry::Called
        } else if inner.waiting.len() < waiting {
            inner.waiting.push_back(connection);
            Entry::Wait
        } else {
            Entry::Refused
        }
    }

    /// Ends a call; returns the connection whose turn it is.
    pub fn leave(&self) -> Option<u32> {
        let mut inner = self.lock();
        inner.running -= 1;
        inner.call()
    }

    /// Takes a connection out of the line that has not run. If a place was kept for it,
    /// returns the connection whose turn it is instead.
    pub fn give_up(&self, connection: u32) -> Option<u32> {
        let mut inner = self.lock();
        inner.waiting.retain(|waiting| *waiting != connection);
        if inner.take_called(connection) {
            inner.call()
        } else {
            None
        }
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
        assert!(gate.enter(2, None) && gate.enter(2, None) && !gate.enter(2, None));
        assert_eq!(gate.wait(2, 2, 7), Entry::Wait);
        assert_eq!(gate.wait(2, 2, 8), Entry::Wait);
        assert_eq!(gate.wait(2, 2, 9), Entry::Refused);
        assert_eq!(gate.load(), (2, 2));
        assert_eq!(gate.leave(), Some(7));
        assert!(gate.enter(2, Some(7)));
        assert_eq!((gate.leave(), gate.leave()), (Some(8), None));
        assert_eq!(gate.wait(2, 2, 9), Entry::Called);
        assert!(gate.enter(2, Some(9)) && gate.enter(2, Some(8)));
        assert_eq!((gate.leave(), gate.leave()), (None, None));
        assert_eq!(gate.load(), (0, 0));
    }

    /// A client that pipelined kept another one waiting for 274 ms: it was in
    /// again before the one that had been called.
    #[test]
    fn a_place_that_is_free_is_the_first_ones_in_line() {
        let gate = Gate::default();
        assert!(gate.enter(1, None));
        assert_eq!(gate.wait(1, 9, 7), Entry::Wait);
        assert_eq!(gate.leave(), Some(7));
        assert!(!gate.enter(1, None), "it is kept");
        assert_eq!(gate.wait(1, 9, 8), Entry::Wait);
        assert!(!gate.enter(1, Some(8)) && gate.enter(1, Some(7)));
        assert_eq!(gate.leave(), Some(8));
    }

    #[test]
    fn a_place_kept_for_one_who_left_is_the_next_ones() {
        let gate = Gate::default();
        assert!(gate.enter(1, None));
        for connection in [5, 6, 7] {
            assert_eq!(gate.wait(1, 9, connection), Entry::Wait);
        }
        assert_eq!(gate.give_up(6), None);
        assert_eq!(gate.leave(), Some(5));
        assert_eq!(gate.give_up(5), Some(7));
        assert_eq!(gate.give_up(7), None);
        assert!(gate.enter(1, None));
    }
}
