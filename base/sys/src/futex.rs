//! futex(2): words in shared memory to sleep on, and the small mutex that can
//! be made of one.
//!
//! The calls are the shared kind (no `FUTEX_PRIVATE_FLAG`), since the sleepers
//! are processes. Timeouts are absolute on `CLOCK_MONOTONIC`
//! (`FUTEX_WAIT_BITSET`), so that a retry after a signal does not lengthen a
//! wait. Not for locks that must survive the death of their owner: see
//! [`crate::pthread`].

pub use rustix::io::Errno;

use crate::shared::Lines;
use rustix::thread::futex;
use rustix::time::Timespec;
use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Zeroed 32-bit words in shared memory, each on a [`LINE`](crate::shared::LINE) of its own.
#[derive(Clone, Debug)]
pub struct Words(Lines);

impl Words {
    /// Makes `count` words, all zero.
    ///
    /// # Errors
    /// Those of [`Region::new`](crate::shared::Region::new).
    pub fn new(count: usize) -> io::Result<Words> {
        Lines::new(count).map(Words)
    }

    /// Word number `index`.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU32 {
        // SAFETY: a line of a mapping that is zeroed and stays for as long as `self`; the
        // memory is only reached as atomics.
        unsafe { &*self.0.at(index).cast() }
    }
}

/// Sleeps while `word` holds `expected`, until it is woken or `until`
/// (`CLOCK_MONOTONIC` nanoseconds). May also return for no reason.
///
/// # Errors
/// EAGAIN if the word holds something else, EINTR after a signal, ETIMEDOUT.
#[inline]
pub fn wait(word: &AtomicU32, expected: u32, until: Option<u64>) -> Result<(), Errno> {
    let until = until.map(|nanos| Timespec {
        tv_sec: (nanos / 1_000_000_000) as i64,
        tv_nsec: (nanos % 1_000_000_000) as _,
    });
    futex::wait_bitset(
        word,
        futex::Flags::empty(),
        expected,
        until.as_ref(),
        NonZeroU32::MAX,
    )
}

/// As many as there can be: the kernel counts them in a signed number.
pub const ALL: u32 = i32::MAX as u32;

/// Wakes up to `most` of those that sleep on `word`. It cannot fail: a word
/// that we can borrow is mapped.
#[inline]
pub fn wake(word: &AtomicU32, most: u32) {
    let _ = futex::wake(word, futex::Flags::empty(), most);
}

/// How a wait for the mutex ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The caller owns it.
    Acquired,
    /// The time was up.
    TimedOut,
    /// `ended` returned true.
    Ended,
}

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and somebody may sleep: its release must wake one.
const CONTENDED: u32 = 2;

/// Takes the mutex in `word` if it is free: the uncontended path of "mutex 2"
/// in Drepper, "Futexes Are Tricky" (2011), section 6. Zero is a free mutex.
#[inline]
pub fn try_lock(word: &AtomicU32) -> bool {
    word.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok()
}

/// Waits for the mutex: the contended path, without spinning. `ended` is asked
/// before each sleep, hence after each signal.
///
/// # Errors
/// The errors of futex(2), except ETIMEDOUT, EAGAIN and EINTR.
#[cold]
pub fn lock_contended(
    word: &AtomicU32,
    until: Option<u64>,
    ended: impl Fn() -> bool,
) -> Result<Waited, Errno> {
    loop {
        // From here on the word marks the mutex as contended. If we leave
        // without the mutex, its owner makes at most one needless wake.
        if word.swap(CONTENDED, Acquire) == FREE {
            return Ok(Waited::Acquired);
        }
        if ended() {
            return Ok(Waited::Ended);
        }
        match wait(word, CONTENDED, until) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::TIMEDOUT) => return Ok(Waited::TimedOut),
            Err(errno) => return Err(errno),
        }
    }
}

/// Gives the mutex up and wakes one sleeper, if there may be any.
#[inline]
pub fn unlock(word: &AtomicU32) {
    if word.swap(FREE, Release) == CONTENDED {
        wake(word, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn the_mutex_lets_one_in_at_a_time() {
        const EACH: u64 = 20_000;
        let words = Words::new(2).unwrap();
        let counter = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let word = words.word(1);
                        if !try_lock(word) {
                            let waited = lock_contended(word, None, || false);
                            assert_eq!(waited, Ok(Waited::Acquired));
                        }
                        // Two steps on purpose: an overlap loses an increment.
                        counter.store(counter.load(Relaxed) + 1, Relaxed);
                        unlock(word);
                    }
                });
            }
        });
        assert_eq!(counter.load(Relaxed), 4 * EACH);
        assert_eq!(words.word(1).load(Relaxed), FREE);
        assert_eq!(words.word(0).load(Relaxed), FREE);
    }

    #[test]
    fn a_wait_ends_at_its_time_or_when_told() {
        let words = Words::new(1).unwrap();
        let word = words.word(0);
        assert!(try_lock(word) && !try_lock(word));
        let until = monotonic() + 5_000_000;
        let waited = lock_contended(word, Some(until), || false);
        assert_eq!(waited, Ok(Waited::TimedOut));
        assert!(monotonic() >= until);
        assert_eq!(lock_contended(word, None, || true), Ok(Waited::Ended));
        unlock(word);
        assert!(try_lock(word));
    }
}
