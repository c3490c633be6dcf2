//! `lockd+unix`: jostled over a Unix socket.

use crate::address::Address;
use crate::lockd::LOCK;
use crate::lockd_lock::{By, Daemon, Way};
use crate::table::{Entry, LockCapabilities};
use crate::{Setup, SetupError, argument};

/// A jostled on this machine.
pub(crate) type LockdUnix = By<OverUnix>;

/// By a path.
#[derive(Debug)]
pub(crate) struct OverUnix;

impl Way for OverUnix {
    const ENTRY: Entry = Entry {
        name: "lockd+unix",
        argument: Some("PATH"),
        check_argument: argument::path,
        reach: |path, _| Address::Unix(path.into()).connect().map(drop),
        summary: "jostled over a Unix socket; without a path, one launched for the run",
        details: "As `lockd`, without TCP between: what the protocol and the daemon cost by \
                  themselves.",
        lock: LockCapabilities {
            answering: Some("echo+unix"),
            ..LOCK
        },
        ..Entry::SERVICE
    };

    fn prepare(setup: &Setup<'_>) -> Result<Daemon, SetupError> {
        match setup.argument {
            Some(path) => Daemon::named(Address::Unix(path.into()), setup),
            None => Daemon::launch_unix("lockd+unix", setup),
        }
    }
}
