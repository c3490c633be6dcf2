//! The cleaner: a process that cleans up when keeper and parent are killed at the same time
//! (`kill -9` of a process group, or the kernel's out-of-memory killer). If only one of the
//! two is killed, the other one cleans up.
//!
//! It sleeps in a read of a pipe. The other end is held by the parent, the keeper, and the
//! processes that the keeper forks, which die with the keeper. The cleaner is in a session
//! of its own, and holds none of their files.

use jostle_sys::ledger;
use jostle_sys::process::{self, Forker};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long a killed process may take to be gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// When to look for ledgers of the dead, after the pipe's end: a process closes its files
/// a moment before it counts as dead.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(500),
];

/// A parent's cleaner; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Cleaner {
    pid: u32,
    _held: OwnedFd,
}

impl Cleaner {
    /// Forks it. The keeper must be forked afterwards, so that it holds the pipe too.
    ///
    /// # Errors
    /// The system's, for a pipe or a process.
    pub(super) fn start(forker: &Forker) -> io::Result<Cleaner> {
        let (ends, held) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut held = Some(held);
        let pid = forker.fork(|| {
            drop(held.take());
            clean_at_the_end_of(&ends)
        })?;
        let held = held.ok_or_else(|| io::Error::other("no pipe to the cleaner"))?;
        Ok(Cleaner {
            pid: pid.as_raw_nonzero().get() as u32,
            _held: held,
        })
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        process::end_child(self.pid, PATIENCE);
    }
}

/// The cleaner's own life. Returns the exit code.
fn clean_at_the_end_of(pipe: &OwnedFd) -> i32 {
    process::set_name("jostle-cleaner");
    // It goes on where a group is killed, and keeps nobody waiting for the end of a file.
    let _ = rustix::process::setsid();
    process::close_all_but(pipe);
    while rustix::io::read(pipe, &mut [0]) == Err(Errno::INTR) {}
    for look in LOOKS {
        std::thread::sleep(look);
        if ledger::sweep_dead().is_ok_and(|swept| swept > 0) {
            break;
        }
    }
    0
}
