//! Process-shared mutexes of the C library in shared memory:
//! pthread_mutex_lock(3p), pthread_mutex_trylock(3p), pthread_mutex_clocklock
//! (glibc 2.34) on `CLOCK_MONOTONIC`, pthread_mutex_unlock(3p) and
//! pthread_mutex_consistent(3); plain, robust, or with priority inheritance.
//!
//! No signal ends a wait for such a mutex: only its time does.

pub use rustix::io::Errno;

use crate::errno::check;
use crate::shared::{LINE, Lines};
use rustix::thread::futex;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU32;

const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= LINE);

unsafe extern "C" {
    /// Not declared by the libc crate.
    fn pthread_mutex_clocklock(
        mutex: *mut libc::pthread_mutex_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> libc::c_int;
}

/// A mutex's properties beyond exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutexKind {
    /// Nothing: the default kind.
    Plain,
    /// `PTHREAD_MUTEX_ROBUST`: tells the next owner if the last one died.
    Robust,
    /// `PTHREAD_PRIO_INHERIT`: the kernel hands it over by priority.
    PriorityInheritance,
}

/// How a mutex was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// From its free state.
    Clean,
    /// Its last owner died holding it (EOWNERDEAD); it has been made
    /// consistent again.
    OwnerDied,
}

/// Mutexes shared with every process forked later, each on a [`LINE`] of its
/// own. They are used through a [`Handle`].
#[derive(Clone, Debug)]
pub struct Mutexes {
    kind: MutexKind,
    lines: Lines,
}

impl Mutexes {
    /// Makes `count` free mutexes.
    ///
    /// # Errors
    /// Those of [`Region::new`](crate::shared::Region::new), and ENOTSUP or EINVAL where the C library
    /// lacks the kind; for priority inheritance also ENOSYS where the kernel
    /// (before 5.14) or glibc (before 2.35) cannot wait for such a mutex on
    /// `CLOCK_MONOTONIC`.
    pub fn new(kind: MutexKind, count: usize) -> io::Result<Mutexes> {
        if kind == MutexKind::PriorityInheritance && !waits_on_monotonic_with_pi() {
            return Err(Errno::NOSYS.into());
        }
        let lines = Lines::new(count)?;
        let attributes = Attributes::new(kind)?;
        for index in 0..count {
            let mutex = lines.at(index).cast();
            // SAFETY: fresh memory, aligned and large enough,
            // that nobody else knows yet; the attributes are initialised.
            check(unsafe { libc::pthread_mutex_init(mutex, attributes.0.as_ptr()) })?;
        }
        Ok(Mutexes { kind, lines })
    }

    /// A handle for the calling thread.
    pub fn handle(&self) -> Handle {
        Handle {
            mutexes: self.clone(),
            of_thread: PhantomData,
        }
    }
}

/// The attributes of a process-shared mutex.
struct Attributes(MaybeUninit<libc::pthread_mutexattr_t>);

impl Attributes {
    fn new(kind: MutexKind) -> io::Result<Attributes> {
        let mut attributes = MaybeUninit::uninit();
        let at = attributes.as_mut_ptr();
        // SAFETY: `init` initialises what `at` points to, the other calls set
        // values in it.
        unsafe {
            check(libc::pthread_mutexattr_init(at))?;
            check(libc::pthread_mutexattr_setpshared(
                at,
                libc::PTHREAD_PROCESS_SHARED,
            ))?;
            check(match kind {
                MutexKind::Plain => 0,
                MutexKind::Robust => {
                    libc::pthread_mutexattr_setrobust(at, libc::PTHREAD_MUTEX_ROBUST)
                }
                MutexKind::PriorityInheritance => {
                    libc::pthread_mutexattr_setprotocol(at, libc::PTHREAD_PRIO_INHERIT)
                }
            })?;
        }
        Ok(Attributes(attributes))
    }
}

/// One thread's access to [`Mutexes`]. It stays with its thread, since a mutex
/// belongs to the thread that took it.
#[derive(Debug)]
pub struct Handle {
    mutexes: Mutexes,
    /// Keeps the handle from other threads.
    of_thread: PhantomData<*mut ()>,
}

impl Handle {
    #[inline]
    fn at(&self, index: usize) -> *mut libc::pthread_mutex_t {
        self.mutexes.lines.at(index).cast()
    }

    /// pthread_mutex_lock(3p): takes it, however long that takes. A plain mutex
    /// that the caller holds already is waited for without end.
    ///
    /// # Errors
    /// EDEADLK if the caller holds it (priority inheritance, robust);
    /// ENOTRECOVERABLE.
    #[inline]
    pub fn lock(&mut self, index: usize) -> Result<Locked, Errno> {
        let mutex = self.at(index);
        // SAFETY: `at` gives a mutex that `Mutexes::new` initialised and that
        // `mutexes` keeps mapped.
        self.taken(mutex, unsafe { libc::pthread_mutex_lock(mutex) })
    }

    /// pthread_mutex_trylock(3p): takes it if it is free.
    ///
    /// # Errors
    /// EBUSY if it is not; as [`Handle::lock`].
    #[inline]
    pub fn try_lock(&mut self, index: usize) -> Result<Locked, Errno> {
        let mutex = self.at(index);
        // SAFETY: as in `lock`.
        self.taken(mutex, unsafe { libc::pthread_mutex_trylock(mutex) })
    }

    /// pthread_mutex_clocklock: as [`Handle::lock`], until `until`
    /// (`CLOCK_MONOTONIC` nanoseconds).
    ///
    /// # Errors
    /// ETIMEDOUT; as [`Handle::lock`].
    #[inline]
    pub fn lock_until(&mut self, index: usize, until: u64) -> Result<Locked, Errno> {
        let mutex = self.at(index);
        let until = crate::clock::timespec(until);
        // SAFETY: as in `lock`; the time is a live structure that is only read.
        let result =
            unsafe { pthread_mutex_clocklock(mutex, libc::CLOCK_MONOTONIC, &raw const until) };
        self.taken(mutex, result)
    }

    #[inline]
    fn taken(
        &mut self,
        mutex: *mut libc::pthread_mutex_t,
        result: libc::c_int,
    ) -> Result<Locked, Errno> {
        match result {
            0 => Ok(Locked::Clean),
            libc::EOWNERDEAD => self.recover(mutex),
            errno => Err(Errno::from_raw_os_error(errno)),
        }
    }

    #[cold]
    fn recover(&mut self, mutex: *mut libc::pthread_mutex_t) -> Result<Locked, Errno> {
        // SAFETY: an initialised mutex that the caller holds since EOWNERDEAD.
        check(unsafe { libc::pthread_mutex_consistent(mutex) })?;
        Ok(Locked::OwnerDied)
    }

    /// pthread_mutex_unlock(3p), by its owner.
    ///
    /// # Errors
    /// EPERM if the caller is not its owner (priority inheritance, robust);
    /// a plain mutex does not look.
    #[inline]
    pub fn unlock(&mut self, index: usize) -> Result<(), Errno> {
        let mutex = self.at(index);
        // SAFETY: as in `lock`. A plain mutex that somebody else holds is set
        // free, which breaks the exclusion but no memory: glibc keeps nothing
        // but words in the mutex itself.
        check(unsafe { libc::pthread_mutex_unlock(mutex) })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The thread's robust list may point at a mutex that it still holds;
        // glibc writes to it at the next lock, so the memory must not go.
        // Counting what is held would cost every operation more than this.
        if self.mutexes.kind == MutexKind::Robust {
            std::mem::forget(self.mutexes.clone());
        }
    }
}

/// Whether a mutex with priority inheritance can be waited for on
/// `CLOCK_MONOTONIC`: `FUTEX_LOCK_PI2` of Linux 5.14, which glibc uses from
/// 2.35 on. Without it `pthread_mutex_clocklock` fails, but only once it has
/// to wait.
fn waits_on_monotonic_with_pi() -> bool {
    let kernel = futex::lock_pi2(&AtomicU32::new(0), futex::Flags::empty(), None).is_ok();
    kernel && glibc() >= Some((2, 35))
}

/// The version of glibc that runs; None with another C library.
fn glibc() -> Option<(u32, u32)> {
    let library = crate::limits::libc_version();
    let (major, rest) = library.strip_prefix("glibc ")?.split_once('.')?;
    let minor = rest.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    const KINDS: [MutexKind; 3] = [
        MutexKind::Plain,
        MutexKind::Robust,
        MutexKind::PriorityInheritance,
    ];

    #[test]
    fn another_thread_is_refused_until_it_is_free() {
        for kind in KINDS {
            let mutexes = Mutexes::new(kind, 2).unwrap();
            let mut mine = mutexes.handle();
            assert_eq!(mine.lock(1), Ok(Locked::Clean), "{kind:?}");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut theirs = mutexes.handle();
                    assert_eq!(theirs.try_lock(1), Err(Errno::BUSY), "{kind:?}");
                    let until = monotonic() + 3_000_000;
                    assert_eq!(
                        theirs.lock_until(1, until),
                        Err(Errno::TIMEDOUT),
                        "{kind:?}"
                    );
                    assert!(monotonic() >= until);
                    assert_eq!(theirs.try_lock(0), Ok(Locked::Clean), "{kind:?}");
                    theirs.unlock(0).unwrap();
                });
            });
            mine.unlock(1).unwrap();
            assert_eq!(mine.try_lock(1), Ok(Locked::Clean), "{kind:?}");
            mine.unlock(1).unwrap();
        }
    }

    #[test]
    fn a_robust_mutex_tells_of_the_death_of_its_owner_once() {
        let mutexes = Mutexes::new(MutexKind::Robust, 1).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| mutexes.handle().lock(0).unwrap());
        });
        let mut mine = mutexes.handle();
        // The kernel marks the mutex while the thread exits, which may be
        // after it has been joined; until then it is merely taken.
        let until = monotonic() + 5_000_000_000;
        assert_eq!(mine.lock_until(0, until), Ok(Locked::OwnerDied));
        mine.unlock(0).unwrap();
        assert_eq!(mine.lock(0), Ok(Locked::Clean));
        mine.unlock(0).unwrap();
    }
}
