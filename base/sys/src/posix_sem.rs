//! POSIX semaphores in shared memory: sem_init(3) with `pshared`, sem_wait(3),
//! sem_trywait(3), sem_clockwait (glibc 2.30) on `CLOCK_MONOTONIC`, and
//! sem_post(3). Not for named ones (sem_open(3)), which are the same thing in a
//! file of /dev/shm.

pub use rustix::io::Errno;

use crate::errno::done;
use crate::shared::{LINE, Lines};
use std::io;

const _: () = assert!(size_of::<libc::sem_t>() <= LINE);

unsafe extern "C" {
    /// Not declared by the libc crate.
    fn sem_clockwait(
        semaphore: *mut libc::sem_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> libc::c_int;
}

/// Semaphores shared with every process forked later, each on a [`LINE`] of
/// its own.
#[derive(Clone, Debug)]
pub struct Semaphores(Lines);

impl Semaphores {
    /// Makes `count` semaphores of value `initial`.
    ///
    /// # Errors
    /// Those of [`Region::new`](crate::shared::Region::new), and EINVAL for a value beyond
    /// `SEM_VALUE_MAX`.
    pub fn new(count: usize, initial: u32) -> io::Result<Semaphores> {
        let semaphores = Semaphores(Lines::new(count)?);
        for index in 0..count {
            // SAFETY: fresh memory, aligned and large enough, that nobody else knows yet.
            // glibc's semaphores hold nothing that would have to be destroyed before the
            // memory goes.
            done(unsafe { libc::sem_init(semaphores.at(index), 1, initial) })?;
        }
        Ok(semaphores)
    }

    #[inline]
    fn at(&self, index: usize) -> *mut libc::sem_t {
        self.0.at(index).cast()
    }

    /// sem_wait(3): takes one, or sleeps until there is one.
    ///
    /// # Errors
    /// EINTR after a signal.
    #[inline]
    pub fn wait(&self, index: usize) -> Result<(), Errno> {
        // SAFETY: `at` gives a semaphore that `new` initialised.
        done(unsafe { libc::sem_wait(self.at(index)) })
    }

    /// sem_trywait(3): takes one if there is one.
    ///
    /// # Errors
    /// EAGAIN if there is none.
    #[inline]
    pub fn try_wait(&self, index: usize) -> Result<(), Errno> {
        // SAFETY: as in `wait`.
        done(unsafe { libc::sem_trywait(self.at(index)) })
    }

    /// sem_clockwait: as [`Semaphores::wait`], until `until`
    /// (`CLOCK_MONOTONIC` nanoseconds).
    ///
    /// # Errors
    /// ETIMEDOUT; EINTR after a signal.
    #[inline]
    pub fn wait_until(&self, index: usize, until: u64) -> Result<(), Errno> {
        let until = crate::clock::timespec(until);
        // SAFETY: as in `wait`; the time is a live structure that is only read.
        done(unsafe { sem_clockwait(self.at(index), libc::CLOCK_MONOTONIC, &raw const until) })
    }

    /// sem_post(3): gives one back and wakes a sleeper.
    ///
    /// # Errors
    /// EOVERFLOW.
    #[inline]
    pub fn post(&self, index: usize) -> Result<(), Errno> {
        // SAFETY: as in `wait`.
        done(unsafe { libc::sem_post(self.at(index)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    #[test]
    fn a_semaphore_of_one_admits_one() {
        let semaphores = Semaphores::new(3, 1).unwrap();
        semaphores.wait(2).unwrap();
        assert_eq!(semaphores.try_wait(2), Err(Errno::AGAIN));
        semaphores.try_wait(1).unwrap();
        let until = monotonic() + 3_000_000;
        assert_eq!(semaphores.wait_until(2, until), Err(Errno::TIMEDOUT));
        assert!(monotonic() >= until);
        semaphores.post(2).unwrap();
        semaphores.wait_until(2, 0).unwrap();
    }
}
