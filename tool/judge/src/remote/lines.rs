//! Lines over a pipe or a socket, none of which is waited for without an end, nor longer than it may
//! be.

use jostle_sys::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use serde::Serialize;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long the other side may take to take a line.
const TAKEN_NS: u64 = 60_000_000_000;

/// The time so many nanoseconds from now.
pub(super) fn after_ns(nanos: u64) -> u64 {
    clock::monotonic().saturating_add(nanos)
}

/// Lines that come in.
#[derive(Debug)]
pub(super) struct Lines {
    from: OwnedFd,
    buffer: Vec<u8>,
    /// So many bytes of it have no end of a line.
    searched: usize,
    most: usize,
}

impl Lines {
    /// From there, none longer than `most` bytes.
    pub(super) fn new(from: OwnedFd, most: usize) -> Lines {
        Lines {
            from,
            buffer: Vec::new(),
            searched: 0,
            most,
        }
    }

    /// The next line, if it comes by then, on the monotonic clock. A signal ends the wait too.
    ///
    /// # Errors
    /// That it is too long, the system's, and that no more can come (`UnexpectedEof`).
    pub(super) fn next(&mut self, until_ns: u64) -> io::Result<Option<String>> {
        loop {
            let fresh = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(at) = fresh.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.searched + at + 1);
                let line = std::mem::replace(&mut self.buffer, rest);
                self.searched = 0;
                return Ok(Some(
                    String::from_utf8_lossy(line.trim_ascii()).into_owned(),
                ));
            }
            self.searched = self.buffer.len();
            if self.searched > self.most {
                return Err(io::Error::other(format!(
                    "a line has more than {} bytes",
                    self.most
                )));
            }
            if !is_ready(self.from.as_fd(), PollFlags::IN, until_ns)? {
                return Ok(None);
            }
            let mut part = [0; 65_536];
            match rustix::io::read(&self.from, &mut part) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.buffer.extend_from_slice(&part[..length]),
                Err(Errno::INTR | Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Writes a line of JSON.
///
/// # Errors
/// The system's, and that nobody takes it.
pub(super) fn send(to: &OwnedFd, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    write(to, &text)
}

/// Writes these bytes.
///
/// # Errors
/// As [`send`].
pub(super) fn write(to: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    fcntl_setfl(to, fcntl_getfl(to)? | OFlags::NONBLOCK)?;
    let until_ns = after_ns(TAKEN_NS);
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let is_taken = is_ready(to.as_fd(), PollFlags::OUT, until_ns)?;
                if !is_taken && clock::monotonic() >= until_ns {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether it can be read or written by then; a signal ends the wait.
fn is_ready(fd: BorrowedFd<'_>, flags: PollFlags, until_ns: u64) -> io::Result<bool> {
    let left = Duration::from_nanos(until_ns.saturating_sub(clock::monotonic()));
    let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
    match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
