//! From the daemon's start to its end, to new settings, or to the program that takes its
//! place.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::config::{Config, ConfigError};
use crate::handover::Program;
use crate::handover::check::Check;
use crate::systemd::Notifier;
use crate::table::{ClientId, Time};

/// From the daemon's start to its end, or to the program that takes its place.
#[derive(Default)]
pub(super) struct Life {
    pub(super) started: Time,
    /// The service manager, which is notified of the daemon's state.
    pub(super) notifier: Option<Notifier>,
    /// The thread that reads the settings again.
    pub(super) reading: Option<JoinHandle<Result<Config, ConfigError>>>,
    /// The handover to another program and its stage, if one is possible.
    pub(super) handover: Option<Handover>,
    /// When this program took over from another, and for how many microseconds no
    /// client was served.
    pub(super) taken_over: Option<(Time, u64)>,
    /// The end of a drain: until then the daemon waits for holders.
    pub(super) draining: Option<Time>,
    /// The loop ends with this turn.
    pub(super) ending: bool,
}

impl Life {
    /// Tells the service manager, if there is one.
    pub(super) fn notify(&self, tell: impl FnOnce(&Notifier)) {
        if let Some(notifier) = &self.notifier {
            tell(notifier);
        }
    }
}

/// When to read the settings again, and how.
pub struct Reload {
    /// Becomes readable when they are to be read. Must not block.
    pub signal: UnixStream,
    /// Reads them, in a thread.
    pub read: Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>,
}

/// The requirements of a handover on the program around the server.
pub struct Successor {
    /// The program that this process is to become.
    pub program: Program,
    /// Becomes readable when a handover is requested.
    pub signal: UnixStream,
    /// Signals with handlers in both programs. They are held back until the new program
    /// has installed its handlers, so that none of them ends the process.
    pub signals: Vec<i32>,
}

/// The handover that is possible, and perhaps in progress.
pub(super) struct Handover {
    pub(super) successor: Successor,
    pub(super) stage: Stage,
    pub(super) asker: Option<ClientId>,
}

pub(super) enum Stage {
    /// No handover is requested.
    Idle,
    /// It begins at the end of this turn, when every connection is in its slot.
    Wanted,
    /// The new program is checking the state; it must answer before this time.
    Checked(Check, Time),
}
