//! Signals to and of our own processes. SIGINT reaches a program that a shell
//! without job control started in the background only if it is put back to its
//! default ([`heed_interrupts`]).
//!
//! The one signal that ends waits: SIGUSR1, sent by the keeper to workers whose
//! run is over. Its handler sets a flag; it is installed without SA_RESTART, so
//! that blocking calls return EINTR.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
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
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note as *const () as usize;
        // Go, in a library of the user's, runs its threads on stacks too small for a
        // handler; each has another one for signals.
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut())
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes SIGINT end this process again, and what it becomes by exec, whoever had
/// it ignored.
///
/// # Errors
/// The system's.
pub fn heed_interrupts() -> io::Result<()> {
    // SAFETY: a system call with plain numbers; no handler is installed.
    match unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Ends the waits of one thread of another process.
///
/// # Errors
/// ESRCH if it is gone.
pub fn end_waits_of(pid: u32, tid: u32) -> io::Result<()> {
    // SAFETY: a system call with plain numbers.
    let done = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGUSR1) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
