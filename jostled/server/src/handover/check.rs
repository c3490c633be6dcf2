//! The check whether the new program could go on: the old program's question and the
//! new one's answer.
//!
//! The new program gets the state as its standard input. It proves that it has read it
//! by printing the state's checksum. A program that only exits with success, for
//! example one that knows nothing of handovers, proves nothing.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::state::Sealed;
use super::{CHECK_FLAG, Program};

/// Bytes of a program's output that are read.
const WORDS: usize = 400;

/// A program being checked. Dropping this kills it.
pub(crate) struct Check {
    child: Child,
    ended: bool,
    bell: Option<OwnedFd>,
    proof: String,
    stamp: Option<[i64; 5]>,
}

impl Check {
    /// Starts the check of a program.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub(crate) fn begin(program: &Program, state: &Sealed) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot start {}: {error}", program.path.display());
        let mut command = program.command(CHECK_FLAG);
        command
            // The checked program must not report its state to the service manager.
            .env_remove("NOTIFY_SOCKET")
            .stdin(state.file().try_clone().map_err(failed)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Processes that it starts are killed with it.
            .process_group(0);
        let stamp = program.stamp();
        let child = command.spawn().map_err(failed)?;
        let mut check = Self {
            child,
            ended: false,
            bell: None,
            proof: proof(state.checksum()),
            stamp,
        };
        let process = Pid::from_child(&check.child);
        let bell = pidfd_open(process, PidfdFlags::empty());
        check.bell = Some(bell.map_err(|error| failed(error.into()))?);
        Ok(check)
    }

    /// Becomes readable when it has answered.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(AsFd::as_fd)
    }

    /// Waits for its answer. False: it has none yet.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let Some(bell) = self.bell() else {
            return false;
        };
        let start = Instant::now();
        loop {
            let left = patience.saturating_sub(start.elapsed());
            let time = Timespec::try_from(left).ok();
            let mut fds = [PollFd::from_borrowed_fd(bell, PollFlags::IN)];
            match poll(&mut fds, time.as_ref()) {
                // A signal has come; that is no answer.
                Err(Errno::INTR) => {}
                other => return other.is_ok_and(|ready| ready > 0),
            }
        }
    }

    /// Kills the program and what it has started; returns its exit status.
    fn end(&mut self) -> io::Result<ExitStatus> {
        // After the first wait, its number may belong to another process.
        if !std::mem::replace(&mut self.ended, true) {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        self.child.wait()
    }

    /// The result of the check, once the program has ended.
    ///
    /// # Errors
    /// Why the program cannot go on, or why its answer is not valid.
    pub(crate) fn verdict(mut self, program: &Program) -> Result<(), String> {
        let path = program.path.display();
        let status = self.end().map_err(|error| error.to_string())?;
        let said = self.child.stdout.take().map(read_some).unwrap_or_default();
        let words = self.child.stderr.take().map(read_some).unwrap_or_default();
        let words = words.trim().replace(char::is_control, " ");
        if !status.success() {
            return Err(format!("{path} refuses ({status}): {words}"));
        }
        if said.trim_end() != self.proof {
            return Err(format!(
                "{path} does not answer as jostled does: it has not read the state"
            ));
        }
        if program.stamp() != self.stamp {
            return Err(format!("{path} has changed while it was checked"));
        }
        Ok(())
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The first bytes of what was written into a pipe.
fn read_some(pipe: impl AsFd + Read) -> String {
    let _ = rustix::io::ioctl_fionbio(&pipe, true);
    let mut bytes = Vec::new();
    let _ = pipe.take(WORDS as u64).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn proof(checksum: u64) -> String {
    format!("jostled can go on from {checksum:016x}")
}
