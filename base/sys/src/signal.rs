//! Signals to and of our own processes. SIGINT reaches a program that a shell
//! without job control started in the background only if it is put back to its
//! default ([`heed_interrupts`]).
//!
//! The one signal that ends waits: SIGUSR1, sent by the keeper to workers whose
//! run is over. Its handler sets a flag; it is installed without SA_RESTART, so
//! that blocking calls return EINTR.

use crate::errno::{check, done};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The descriptor that the handler writes to: that of `BELL`, or -1.
static BELL_NUMBER: AtomicI32 = AtomicI32::new(-1);

/// Both ends of this process's, and which process that is: a child of a fork needs one
/// of its own.
static BELL: Mutex<Option<(u32, [UnixStream; 2])>> = Mutex::new(None);

extern "C" fn note(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
    let bell = BELL_NUMBER.load(Ordering::Relaxed);
    if bell >= 0 {
        let one = [1u8];
        // SAFETY: write(2) is async-signal-safe, and the buffer lives on this stack. The
        // descriptor is that of a socket that is not closed while its number stands
        // there, and does not block. What errno was is put back, since the call that was
        // interrupted has not returned yet.
        unsafe {
            let errno = *libc::__errno_location();
            libc::write(bell, one.as_ptr().cast(), one.len());
            *libc::__errno_location() = errno;
        }
    }
}

/// A socket that becomes readable when the keeper ends this process's waits, for clients
/// that wait for several things at once. Nobody reads it, so that it stays so.
///
/// # Errors
/// The system's.
pub fn bell() -> io::Result<UnixStream> {
    let mut bell = BELL.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((of, [_, heard])) = &*bell
        && *of == process
    {
        return heard.try_clone();
    }
    let (rung, heard) = UnixStream::pair()?;
    rung.set_nonblocking(true)?;
    heard.set_nonblocking(true)?;
    let ours = heard.try_clone()?;
    BELL_NUMBER.store(rung.as_raw_fd(), Ordering::Relaxed);
    *bell = Some((process, [rung, heard]));
    Ok(ours)
}

/// Whether the keeper has ended this process's waits. Loops that spin or retry
/// ask; calls that sleep see EINTR.
#[inline]
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Makes SIGUSR1 end waits in this process from now on.
///
/// # Errors
/// The system's.
pub fn end_waits_on_signal() -> io::Result<()> {
    INTERRUPTED.store(false, Ordering::Relaxed);
    // SAFETY: all-zero is a valid sigaction; the handler only stores to an
    // atomic, which is async-signal-safe.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note as *const () as usize;
        // Go, in a library of the user's, runs its threads on stacks too small for a
        // handler; each has another one for signals.
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut())
    };
    Ok(done(result)?)
}

/// Restores the default action of SIGINT, which ends this process or the program that it
/// becomes by exec, even if it was started with SIGINT ignored.
///
/// # Errors
/// The system's.
pub fn heed_interrupts() -> io::Result<()> {
    set_action(libc::SIGINT, libc::SIG_DFL)
}

/// Ignores SIGXFSZ, so that a write beyond RLIMIT_FSIZE fails with EFBIG and does not end
/// this process, or the program that it becomes by exec.
///
/// # Errors
/// The system's.
pub fn let_large_writes_fail() -> io::Result<()> {
    set_action(libc::SIGXFSZ, libc::SIG_IGN)
}

fn set_action(signal: i32, action: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: a system call with plain numbers; no handler is installed.
    match unsafe { libc::signal(signal, action) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Signals that this thread blocks. Dropping it unblocks them, including those that were
/// blocked already by the program that became this one by exec.
pub struct HeldBack(libc::sigset_t);

/// Blocks signals in this thread and in what it starts: a thread, or by exec another
/// program. They stay pending, and arrive when the returned value is dropped.
///
/// # Errors
/// The system's.
pub fn hold_back(signals: &[i32]) -> io::Result<HeldBack> {
    let set = set_of(signals);
    change_mask(libc::SIG_BLOCK, &set)?;
    Ok(HeldBack(set))
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        // It cannot fail: the set is sound, and so is what is asked.
        let _ = change_mask(libc::SIG_UNBLOCK, &self.0);
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: all-zero is a valid sigset_t, and sigemptyset and sigaddset only write to
    // the one that they are given; a number that is no signal changes nothing.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

fn change_mask(how: i32, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set is a valid one, and the old mask is not asked for.
    Ok(check(unsafe {
        libc::pthread_sigmask(how, set, std::ptr::null_mut())
    })?)
}

/// A limit on the waits of the thread that makes it: from its time on they end as if by the
/// keeper's signal, again and again, until it is dropped. Afterwards the thread can wait anew.
#[derive(Debug)]
pub struct WaitLimit(libc::timer_t);

impl WaitLimit {
    /// Between two signals: the first may come just before the thread begins to sleep.
    const AGAIN_NS: i64 = 2_000_000;

    /// Waits end in so many nanoseconds from now. Needs [`end_waits_on_signal`].
    ///
    /// # Errors
    /// The system's: no more timers (RLIMIT_SIGPENDING).
    pub fn after(nanos: u64) -> io::Result<WaitLimit> {
        let spec = |nanos: i64| libc::timespec {
            tv_sec: nanos / 1_000_000_000,
            tv_nsec: nanos % 1_000_000_000,
        };
        let times = libc::itimerspec {
            it_value: spec((nanos.min(i64::MAX as u64) as i64).max(1)),
            it_interval: spec(WaitLimit::AGAIN_NS),
        };
        // SAFETY: all-zero is a valid sigevent and a valid timer_t to be overwritten; all pointers
        // are to live locals.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGUSR1;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = std::mem::zeroed();
            done(libc::timer_create(
                libc::CLOCK_MONOTONIC,
                &raw mut event,
                &raw mut timer,
            ))?;
            let limit = WaitLimit(timer);
            done(libc::timer_settime(timer, 0, &times, std::ptr::null_mut()))?;
            Ok(limit)
        }
    }
}

impl Drop for WaitLimit {
    fn drop(&mut self) {
        // SAFETY: the timer is this value's own, and deleted once.
        unsafe { libc::timer_delete(self.0) };
        INTERRUPTED.store(false, Ordering::Relaxed);
        let bell = BELL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, [_, heard])) = &*bell {
            // It does not block.
            while io::Read::read(&mut &*heard, &mut [0; 64]).is_ok_and(|count| count > 0) {}
        }
    }
}

/// Ends the waits of one thread of another process.
///
/// # Errors
/// ESRCH if it is gone.
pub fn end_waits_of(pid: u32, tid: u32) -> io::Result<()> {
    // SAFETY: a system call with plain numbers.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGUSR1) };
    Ok(done(result as libc::c_int)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    #[test]
    fn a_thread_whose_wait_had_a_limit_can_wait_again() {
        let thread = std::thread::spawn(|| {
            end_waits_on_signal().unwrap();
            let bell = bell().unwrap();
            for _ in 0..2 {
                let limit = WaitLimit::after(5_000_000).unwrap();
                let mut fds = [PollFd::new(&bell, PollFlags::IN)];
                while !interrupted() {
                    let _ = poll(&mut fds, None);
                }
                drop(limit);
                assert!(!interrupted());
                let now = Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                assert_eq!(
                    poll(&mut [PollFd::new(&bell, PollFlags::IN)], Some(&now)),
                    Ok(0)
                );
            }
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_signal_that_is_held_back_comes_later() {
        let signal = libc::SIGUSR2;
        // In a thread of its own, as the mask is a thread's.
        let thread = std::thread::spawn(move || {
            let held = hold_back(&[signal]).unwrap();
            // SAFETY: the handler is `note`, as everywhere in this module.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = note as *const () as usize;
                libc::sigaction(signal, &action, std::ptr::null_mut());
                libc::pthread_kill(libc::pthread_self(), signal);
                let mut pending: libc::sigset_t = std::mem::zeroed();
                libc::sigpending(&raw mut pending);
                assert_eq!(libc::sigismember(&raw const pending, signal), 1);
                drop(held);
                libc::sigpending(&raw mut pending);
                assert_eq!(libc::sigismember(&raw const pending, signal), 0);
            }
        });
        thread.join().unwrap();
    }

    #[test]
    fn the_bell_rings_with_the_signal() {
        end_waits_on_signal().unwrap();
        let bells = [bell().unwrap(), bell().unwrap()];
        let rings = |limit_s: i64| {
            let timeout = Timespec {
                tv_sec: limit_s,
                tv_nsec: 0,
            };
            let mut fds = [0, 1].map(|nth| PollFd::new(&bells[nth], PollFlags::IN));
            poll(&mut fds, Some(&timeout)).unwrap()
        };
        assert_eq!(rings(0), 0);
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        end_waits_of(std::process::id(), tid).unwrap();
        assert_eq!(rings(10), 2);
        assert!(interrupted());
    }
}
