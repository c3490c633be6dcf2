//! Pseudo-terminals, for programs that print otherwise where their output is no terminal.

use crate::errno::done;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

/// The end that reads, and the end that a program has as its terminal. Text passes unchanged:
/// the terminal behind it translates line ends.
///
/// # Errors
/// The system's, such as no more pseudo-terminals.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (mut reads, mut gives) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: both numbers are written by the call; it takes no name, settings or size.
    done(unsafe { libc::openpty(&mut reads, &mut gives, none, none.cast(), none.cast()) })?;
    // SAFETY: the call has opened both, and nobody else knows them.
    let (reads, gives) = unsafe { (OwnedFd::from_raw_fd(reads), OwnedFd::from_raw_fd(gives)) };
    fcntl_setfd(&reads, FdFlags::CLOEXEC)?;
    fcntl_setfd(&gives, FdFlags::CLOEXEC)?;
    let mut settings = tcgetattr(&gives)?;
    settings.make_raw();
    tcsetattr(&gives, OptionalActions::Now, &settings)?;
    Ok((reads, gives))
}

/// Makes one terminal as large as another; without a terminal there it does nothing.
pub fn resize(terminal: impl AsFd, like: impl AsFd) {
    if let Ok(size) = tcgetwinsize(like) {
        let _ = tcsetwinsize(terminal, size);
    }
}
