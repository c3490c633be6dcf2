//! When tasks want to go on by themselves: at most one time for each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times by task. A task that sets a new time, or none, leaves the old entry in
/// the heap, to be passed over when it comes up.
#[derive(Debug)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    /// When each task is due; zero: never.
    due: Vec<u64>,
}

impl Timers {
    /// Timers for so many tasks, none set.
    pub(super) fn new(tasks: usize) -> Timers {
        Timers {
            heap: BinaryHeap::with_capacity(tasks),
            due: vec![0; tasks],
        }
    }

    /// The task's time; zero for none.
    #[inline]
    pub(super) fn set(&mut self, task: usize, at: u64) {
        if self.due[task] != at {
            self.due[task] = at;
            if at > 0 {
                self.heap.push(Reverse((at, task)));
            }
        }
    }

    /// The task's time; zero: none.
    pub(super) fn due(&self, task: usize) -> u64 {
        self.due[task]
    }

    /// The next time that is set.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u64> {
        while let Some(Reverse((at, task))) = self.heap.peek().copied() {
            if self.due[task] == at {
                return Some(at);
            }
            self.heap.pop();
        }
        None
    }

    /// A task whose time has come; it has none then.
    #[inline]
    pub(super) fn pop(&mut self, now: u64) -> Option<usize> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, task)) = self.heap.pop()?;
        self.due[task] = 0;
        Some(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_come_up_in_the_order_of_their_times() {
        let mut timers = Timers::new(3);
        timers.set(0, 30);
        timers.set(1, 10);
        timers.set(2, 20);
        assert_eq!(timers.next(), Some(10));
        assert_eq!(timers.pop(9), None);
        let order: Vec<_> = std::iter::from_fn(|| timers.pop(100)).collect();
        assert_eq!(order, [1, 2, 0]);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_time_that_was_changed_or_taken_back_does_not_come_up() {
        let mut timers = Timers::new(2);
        timers.set(0, 10);
        timers.set(0, 50);
        timers.set(1, 20);
        timers.set(1, 0);
        assert_eq!(timers.pop(40), None);
        assert_eq!(timers.pop(50), Some(0));
        assert_eq!(timers.pop(u64::MAX), None);
    }

    #[test]
    fn the_same_time_set_again_comes_up_once() {
        let mut timers = Timers::new(1);
        timers.set(0, 10);
        timers.set(0, 20);
        timers.set(0, 10);
        assert_eq!(timers.pop(15), Some(0));
        assert_eq!(timers.pop(25), None);
    }
}
