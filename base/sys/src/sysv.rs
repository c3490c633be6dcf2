//! System V semaphores: semget(2), semctl(2), semop(2), semtimedop(2), with
//! and without `SEM_UNDO`, and the limits of sysvipc(7).
//!
//! A set outlives its makers until it is removed or its IPC namespace goes, so
//! whoever makes one records its key first (see [`crate::ledger`]).

pub use rustix::io::Errno;

use crate::clock::timespec;
use crate::errno::{done, last_errno};
use crate::limits::text::{self, Semaphores};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::ptr::{null, null_mut};

unsafe extern "C" {
    /// Not declared by the libc crate for glibc.
    fn semtimedop(
        id: libc::c_int,
        operations: *mut libc::sembuf,
        count: libc::size_t,
        timeout: *const libc::timespec,
    ) -> libc::c_int;
}

/// A set of semaphores. Copies, in forked processes too, are the same set;
/// nothing is removed when one is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    id: i32,
    undo: bool,
}

/// A random key that names a set for the other calls: never `IPC_PRIVATE`.
///
/// # Errors
/// Those of getrandom(2).
pub fn random_key() -> io::Result<i32> {
    let mut bytes = [0u8; 4];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    match i32::from_ne_bytes(bytes) {
        libc::IPC_PRIVATE => Ok(1),
        key => Ok(key),
    }
}

impl Set {
    /// Makes the set `key` (`IPC_CREAT | IPC_EXCL`, mode 0600) of `count`
    /// semaphores of value `initial`. With `undo`, the kernel takes back a
    /// process's operations when it ends (`SEM_UNDO`).
    ///
    /// # Errors
    /// EEXIST if the key is in use; ENOSPC beyond `SEMMNI` or `SEMMNS`; EINVAL
    /// beyond `SEMMSL` or for no semaphores; EPERM or ENOSYS where a sandbox
    /// forbids it.
    pub fn create(key: i32, count: usize, initial: u16, undo: bool) -> io::Result<Set> {
        let number = libc::c_int::try_from(count).map_err(|_| Errno::INVAL)?;
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;
        // SAFETY: a system call with plain numbers.
        let id = unsafe { libc::semget(key, number, flags) };
        done(id)?;
        let values = vec![initial; count];
        // SAFETY: SETALL reads as many 16-bit values as the set, which we have
        // just made, has semaphores.
        if let Err(errno) = done(unsafe { libc::semctl(id, 0, libc::SETALL, values.as_ptr()) }) {
            // SAFETY: a system call with plain numbers, on a set of our own.
            unsafe { libc::semctl(id, 0, libc::IPC_RMID) };
            return Err(errno.into());
        }
        Ok(Set { id, undo })
    }

    /// Takes one from semaphore `number`, or sleeps until there is one.
    ///
    /// # Errors
    /// EINTR after a signal, EIDRM if the set has been removed, EFBIG for a
    /// number beyond the set, ENOSPC or ENOMEM for want of undo structures.
    #[inline]
    pub fn wait(self, number: u16) -> Result<(), Errno> {
        self.operate(number, -1, 0)
    }

    /// Takes one if there is one.
    ///
    /// # Errors
    /// EAGAIN if there is none; as [`Set::wait`].
    #[inline]
    pub fn try_wait(self, number: u16) -> Result<(), Errno> {
        self.operate(number, -1, libc::IPC_NOWAIT)
    }

    /// As [`Set::wait`], for at most `nanos` nanoseconds from now:
    /// semtimedop(2) knows no point in time, so a caller that was interrupted
    /// works out what is left.
    ///
    /// # Errors
    /// EAGAIN when the time is up; as [`Set::wait`].
    #[inline]
    pub fn wait_within(self, number: u16, nanos: u64) -> Result<(), Errno> {
        let timeout = timespec(nanos);
        self.call(number, -1, 0, &raw const timeout)
    }

    /// Gives one back to semaphore `number`.
    ///
    /// # Errors
    /// As [`Set::wait`], EINTR apart.
    #[inline]
    pub fn post(self, number: u16) -> Result<(), Errno> {
        self.operate(number, 1, 0)
    }

    #[inline]
    fn operate(self, number: u16, amount: i16, flags: libc::c_int) -> Result<(), Errno> {
        self.call(number, amount, flags, null())
    }

    #[inline]
    fn call(
        self,
        number: u16,
        amount: i16,
        flags: libc::c_int,
        timeout: *const libc::timespec,
    ) -> Result<(), Errno> {
        let undo = if self.undo { libc::SEM_UNDO } else { 0 };
        let mut operation = libc::sembuf {
            sem_num: number,
            sem_op: amount,
            sem_flg: (flags | undo) as libc::c_short,
        };
        // SAFETY: one operation, live during the call; the timeout is null or
        // a live structure.
        done(unsafe { semtimedop(self.id, &raw mut operation, 1, timeout) })
    }
}

/// Whether there is a set of this key in this IPC namespace.
pub fn exists(key: i32) -> bool {
    // SAFETY: a system call with plain numbers.
    key != libc::IPC_PRIVATE && unsafe { libc::semget(key, 0, 0) } != -1
}

/// A set of this IPC namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key for semget(2); 0 for a private set.
    pub key: i32,
    /// Its number for semop(2) and semctl(2).
    pub id: i32,
    /// Semaphores in it.
    pub count: u16,
    /// When the last operation was, in seconds since 1970; 0 before the first.
    pub operated_s: u64,
}

/// All sets of this IPC namespace, from /proc/sysvipc/sem.
pub fn sets() -> Vec<Listed> {
    let text = std::fs::read_to_string("/proc/sysvipc/sem").unwrap_or_default();
    let read = |line: &str| {
        Some(Listed {
            key: text::field(line, 0)?,
            id: text::field(line, 1)?,
            count: text::field(line, 3)?,
            operated_s: text::field(line, 8)?,
        })
    };
    text.lines().skip(1).filter_map(read).collect()
}

/// The state of one semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SemaphoreState {
    /// Its value.
    pub value: u32,
    /// Who did the last operation; 0 if nobody did, or from outside this PID namespace.
    pub last_pid: u32,
    /// How many wait until it is greater.
    pub waiting: u32,
}

/// The state of a semaphore of a set; None where it may not be read, or is gone.
pub fn state(id: i32, number: u16) -> Option<SemaphoreState> {
    let ask = |what| {
        // SAFETY: a system call with plain numbers.
        let answer = unsafe { libc::semctl(id, i32::from(number), what) };
        u32::try_from(answer).ok()
    };
    Some(SemaphoreState {
        value: ask(libc::GETVAL)?,
        last_pid: ask(libc::GETPID)?,
        waiting: ask(libc::GETNCNT)?,
    })
}

/// Removes the set `key` (`IPC_RMID`), if there is one and this user made it;
/// says whether it did.
///
/// # Errors
/// The system's, except that there is no such set.
pub fn remove(key: i32) -> io::Result<bool> {
    if key == libc::IPC_PRIVATE {
        return Ok(false); // semget would make a new set of it
    }
    // SAFETY: a system call with plain numbers.
    let id = unsafe { libc::semget(key, 0, 0) };
    if id == -1 {
        return match last_errno() {
            // A set that refuses us access is another user's.
            Errno::NOENT | Errno::ACCESS => Ok(false),
            errno => Err(errno.into()),
        };
    }
    if !is_ours(id)? {
        return Ok(false);
    }
    // SAFETY: a system call with plain numbers.
    match done(unsafe { libc::semctl(id, 0, libc::IPC_RMID, null_mut::<u8>()) }) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::IDRM) => Ok(false), // somebody was quicker
        Err(errno) => Err(errno.into()),
    }
}

/// `semid_ds`, which the libc crate does not declare for musl. It begins with the
/// owner in every C library; what follows (two times, the count, padding) is at most
/// seven words.
#[repr(C)]
struct Status {
    sem_perm: libc::ipc_perm,
    _rest: [u64; 8],
}

/// Whether the creator of the set is this process's user (`IPC_STAT`).
fn is_ours(id: i32) -> io::Result<bool> {
    // SAFETY: all-zero is a valid Status, and IPC_STAT writes a semid_ds, which is no
    // larger, to the live structure that it is given.
    let (result, status) = unsafe {
        let mut status: Status = std::mem::zeroed();
        let result = libc::semctl(id, 0, libc::IPC_STAT, &raw mut status);
        (done(result), status)
    };
    match result {
        Ok(()) => Ok(status.sem_perm.cuid == rustix::process::geteuid().as_raw()),
        Err(Errno::INVAL | Errno::IDRM | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The limits of this IPC namespace, and what is used of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// kernel.sem.
    pub limits: Semaphores,
    /// `SEMOPM`, also of kernel.sem: operations in a call. Whoever sets the
    /// limits sets all four.
    pub operations: u64,
    /// Sets in use.
    pub sets: u64,
    /// Semaphores in use.
    pub semaphores: u64,
}

impl Usage {
    /// Reads /proc/sys/kernel/sem and /proc/sysvipc/sem; None where /proc does
    /// not show them, as in a kernel without System V IPC.
    pub fn read() -> Option<Usage> {
        let limits = std::fs::read_to_string("/proc/sys/kernel/sem").ok()?;
        let used = std::fs::read_to_string("/proc/sysvipc/sem").ok()?;
        let (sets, semaphores) = text::semaphores_used(&used);
        Some(Usage {
            limits: text::semaphores(&limits)?,
            operations: limits.split_whitespace().nth(2)?.parse().ok()?,
            sets,
            semaphores,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Removes its set even if the test fails.
    struct Removed(i32);

    impl Drop for Removed {
        fn drop(&mut self) {
            let _ = remove(self.0);
        }
    }

    #[test]
    fn a_set_of_ones_admits_one_owner_to_each_semaphore() {
        for undo in [false, true] {
            let removed = Removed(random_key().unwrap());
            let set = Set::create(removed.0, 3, 1, undo).unwrap();
            set.wait(2).unwrap();
            assert_eq!(set.try_wait(2), Err(Errno::AGAIN));
            assert_eq!(set.wait_within(2, 2_000_000), Err(Errno::AGAIN));
            set.try_wait(0).unwrap();
            set.post(2).unwrap();
            set.wait_within(2, 1).unwrap();
            assert_eq!(set.wait(3), Err(Errno::FBIG));
            let again = Set::create(removed.0, 1, 1, undo).unwrap_err();
            assert_eq!(again.raw_os_error(), Some(libc::EEXIST));
        }
    }

    #[test]
    fn a_set_is_removed_once() {
        let key = random_key().unwrap();
        Set::create(key, 1, 1, false).unwrap();
        assert!(exists(key));
        assert!(remove(key).unwrap());
        assert!(!exists(key) && !remove(key).unwrap());
        assert!(!remove(libc::IPC_PRIVATE).unwrap());
    }

    #[test]
    fn what_is_made_counts_as_used() {
        let removed = Removed(random_key().unwrap());
        Set::create(removed.0, 7, 1, false).unwrap();
        let usage = Usage::read().unwrap();
        assert!(usage.sets >= 1 && usage.semaphores >= 7, "{usage:?}");
        assert!(usage.limits.per_set >= 7, "{usage:?}");
    }
}
