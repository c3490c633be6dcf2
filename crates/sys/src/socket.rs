//! Socket options that no well-kept crate offers safely.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Lets a listening TCP socket wake its server only once a connection has sent
/// something (tcp(7), TCP_DEFER_ACCEPT): one wake-up instead of two for a client
/// that speaks first. One that stays silent for `seconds` is handed over as it
/// is.
///
/// # Errors
/// The system's.
pub fn defer_accept(listener: impl AsFd, seconds: i32) -> io::Result<()> {
    // SAFETY: the kernel reads one int, whose size is given.
    let done = unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of_val(&seconds) as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
