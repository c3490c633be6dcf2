//! `lockd+unix`: jostled over a Unix socket.

use crate::lockd::LOCK;
use crate::lockd_lock::{Daemon, DaemonLock};
use crate::remote::Address;
use crate::table::{Entry, Family};
use crate::{Dialled, ServerFigures, Setup, SetupError, Target, argument};

/// A jostled on this machine.
#[derive(Debug)]
pub struct LockdUnix(Daemon);

impl Target for LockdUnix {
    type Lock = DaemonLock;

    const ENTRY: Entry = Entry {
        name: "lockd+unix",
        aliases: &[],
        argument: Some("PATH"),
        check_argument: |argument| match argument {
            None => {
                Err("it needs the path of jostled's socket; `lockd` launches its own".to_owned())
            }
            some => argument::path(some),
        },
        family: Family::Service,
        summary: "the lock daemon jostled over the Unix socket at PATH",
        details: "As `lockd`, without TCP between: what the protocol and the daemon cost by \
                  themselves.",
        lock: LOCK,
        no_threads: None,
    };

    fn reach(argument: Option<&str>) -> Result<(), SetupError> {
        let address = Address::Unix(argument.unwrap_or_default().into());
        address.connect().map(drop)
    }

    fn prepare(setup: &Setup<'_>) -> Result<LockdUnix, SetupError> {
        let path = setup.argument.unwrap_or_default();
        Daemon::prepare(Address::Unix(path.into()), setup).map(LockdUnix)
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
