//! An attempt's request, and how it ends: granted, refused, interrupted, or by an error.

use crate::{tls, wire};
use jostle_sys::files::{Errno, LockKind};
use jostle_sys::signal;
use std::io;

/// How an acquisition excludes others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One owner.
    Exclusive,
    /// Many owners, unless one is exclusive.
    Shared,
}

impl From<Mode> for LockKind {
    #[inline]
    fn from(mode: Mode) -> LockKind {
        match mode {
            Mode::Exclusive => LockKind::Exclusive,
            Mode::Shared => LockKind::Shared,
        }
    }
}

/// How long an attempt may take. Times are `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Try,
    /// Until granted. The keeper interrupts waiters with a signal when the run
    /// is over; a lock whose wait no signal ends gives up at `last_resort_ns`.
    Block {
        /// After the end of the run, when nobody waits for a grant any more.
        last_resort_ns: u64,
    },
    /// Until this time: the user's `--acquire-timeout`.
    Until(u64),
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The caller owns the lock.
    Granted,
    /// The caller owns the lock, and its last owner died holding it.
    GrantedFromDead,
    /// A try found it taken, or the time was up.
    Refused,
    /// The keeper ended the wait.
    Interrupted,
}

/// The message of a release that found the lock to be another's, or nobody's.
const LOST: &str = "the lock was no longer ours";

/// A failed call and its errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {}", said.map_or_else(|| io::Error::from_raw_os_error(*errno).to_string(), str::to_owned))]
pub struct CallError {
    /// The system or library call, or the request.
    pub call: &'static str,
    /// Its errno; EPROTO where a server refused.
    pub errno: i32,
    /// The server's error message.
    pub said: Option<&'static str>,
    /// The refusing side's name for it, such as Redis's NOAUTH; None: it has no other name than its
    /// errno.
    pub name: Option<&'static str>,
}

/// The code that an error message begins with: `NOAUTH Authentication required`. None where it
/// begins with a word, and for Redis's `ERR`, which names nothing.
pub fn code_of(said: &'static str) -> Option<&'static str> {
    let first = said.split([' ', ':']).next().unwrap_or_default();
    let is_code = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let starts = first.starts_with(|letter: char| letter.is_ascii_uppercase());
    let is_named = first.len() > 1 && starts && first.bytes().all(is_code) && first != "ERR";
    is_named.then_some(first)
}

impl CallError {
    /// An error with an errno and no message.
    pub fn new(call: &'static str, errno: Errno) -> CallError {
        CallError {
            call,
            errno: errno.raw_os_error(),
            said: None,
            name: None,
        }
    }

    /// An error with words of its own.
    pub const fn saying(call: &'static str, errno: Errno, said: &'static str) -> CallError {
        CallError {
            call,
            errno: errno.raw_os_error(),
            said: Some(said),
            name: None,
        }
    }

    /// Gives the error the name that the refusing side has for it.
    pub const fn named(mut self, name: &'static str) -> CallError {
        self.name = Some(name);
        self
    }

    /// A release or renewal that found the lock no longer ours. Why, the table of causes says.
    pub const fn lost(call: &'static str) -> CallError {
        CallError::saying(call, Errno::TIMEDOUT, LOST)
    }

    /// Whether it is one.
    pub fn is_lost(&self) -> bool {
        self.said == Some(LOST)
    }

    /// A call that the system refused.
    #[cold]
    pub fn from_system(call: &'static str, error: &io::Error) -> CallError {
        if let Some(failure) = tls::cause(error) {
            return wire::refused(call, failure.as_bytes());
        }
        CallError {
            call,
            errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
            said: None,
            name: None,
        }
    }

    /// Whether the other side has ended the connection.
    #[cold]
    pub fn has_ended(&self) -> bool {
        let errnos = [Errno::CONNRESET, Errno::PIPE];
        errnos.map(Errno::raw_os_error).contains(&self.errno)
    }

    /// Whether the keeper ended the wait, which is no failure of the target.
    #[cold]
    pub fn is_interrupted(&self) -> bool {
        self.errno == Errno::INTR.raw_os_error()
    }

    /// Whether the client waited no longer for an answer, so that nobody knows what the server
    /// did.
    #[cold]
    pub fn is_out_of_patience(&self) -> bool {
        self.errno == Errno::TIME.raw_os_error()
    }

    /// Whether the connection failed, or its server cannot serve now, so that another server
    /// of the same service may.
    #[cold]
    pub fn is_of_this_server(&self) -> bool {
        let errnos = [Errno::HOSTUNREACH, Errno::TIME];
        self.has_ended() || errnos.map(Errno::raw_os_error).contains(&self.errno)
    }

    /// The error for a kind of wait that the lock's table entry excludes.
    #[cold]
    pub fn unsupported(call: &'static str) -> CallError {
        CallError::new(call, Errno::OPNOTSUPP)
    }
}

/// Repeats a call that any signal ends with EINTR, until it is granted or fails. Only the
/// keeper's signal ends the wait.
#[inline]
pub fn until_granted(
    call: &'static str,
    mut attempt: impl FnMut() -> Result<(), Errno>,
) -> Result<Outcome, CallError> {
    loop {
        return match attempt() {
            Ok(()) => Ok(Outcome::Granted),
            Err(Errno::INTR) if !signal::interrupted() => continue,
            Err(Errno::INTR) => Ok(Outcome::Interrupted),
            // EACCES is what fcntl(2) may say instead of EAGAIN.
            Err(Errno::AGAIN | Errno::ACCESS | Errno::TIMEDOUT) => Ok(Outcome::Refused),
            Err(errno) => Err(CallError::new(call, errno)),
        };
    }
}

/// A target could not be set up. The text for the user has the failed operation, the system's
/// message, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(pub String);

/// Shared memory could not be had.
pub fn no_memory(error: io::Error) -> SetupError {
    SetupError(format!(
        "cannot make shared memory: {error}; use fewer keys, or raise the memory limit"
    ))
}
