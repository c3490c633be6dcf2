//! `echo+unix`: the server that only answers, over a Unix socket; what stands
//! beside `lockd+unix` as `echo` beside `lockd`.

use crate::echo::CLAIMED;
use crate::lockd_lock::{Daemon, DaemonLock};
use crate::table::{Entry, Family};
use crate::{Dialled, ServerFigures, Setup, SetupError, Target, argument};

/// The server that only answers.
#[derive(Debug)]
pub(crate) struct EchoUnix(Daemon);

impl Target for EchoUnix {
    type Lock = DaemonLock;

    const ENTRY: Entry = Entry {
        name: "echo+unix",
        aliases: &[],
        argument: None,
        check_argument: argument::none,
        family: Family::Specimen,
        summary: "as `echo`, over a Unix socket: what bounds `lockd+unix`",
        details: "As `echo`; the socket stands among the run's own files.",
        lock: CLAIMED,
        no_threads: None,
    };

    fn prepare(setup: &Setup<'_>) -> Result<EchoUnix, SetupError> {
        Daemon::launch_unix("echo+unix", setup).map(EchoUnix)
    }

    fn join(&self, _worker: usize) -> Result<DaemonLock, SetupError> {
        self.0.join()
    }

    fn dial(&self, _worker: usize) -> Result<Option<Dialled>, SetupError> {
        self.0.dial().map(Some)
    }

    fn server(&self) -> Result<Option<ServerFigures>, SetupError> {
        self.0.figures().map(Some)
    }
}
