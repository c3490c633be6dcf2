//! `echo+unix`: the server that only answers, over a Unix socket; what stands
//! beside `lockd+unix` as `echo` beside `lockd`.

use crate::echo::CLAIMED;
use crate::lockd_lock::{By, Daemon, Way};
use crate::table::Entry;
use crate::{Setup, SetupError};

/// The server that only answers.
pub(crate) type EchoUnix = By<AnswersUnix>;

/// Over a Unix socket.
#[derive(Debug)]
pub(crate) struct AnswersUnix;

impl Way for AnswersUnix {
    const ENTRY: Entry = Entry {
        name: "echo+unix",
        summary: "as `echo`, over a Unix socket: what bounds `lockd+unix`",
        details: "As `echo`; the socket stands among the run's own files.",
        lock: CLAIMED,
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<Daemon, SetupError> {
        Daemon::launch_unix("echo+unix", setup)
    }
}
