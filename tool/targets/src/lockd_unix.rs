//! `lockd+unix`: jostled over a Unix socket.

use crate::address::Address;
use crate::lockd::LOCK;
use crate::lockd_lock::{Daemon, DaemonLock};
use crate::table::{Entry, Family, LockCapabilities};
use crate::{Dialled, ServerFigures, Setup, SetupError, Target, argument};
use std::collections::BTreeMap;
use std::path::Path;

/// A jostled on this machine.
#[derive(Debug)]
pub(crate) struct LockdUnix(Daemon);

impl Target for LockdUnix {
    type Lock = DaemonLock;

    const ENTRY: Entry = Entry {
        name: "lockd+unix",
        aliases: &[],
        argument: Some("PATH"),
        check_argument: argument::path,
        family: Family::Service,
        summary: "jostled over a Unix socket; without a path, one launched for the run",
        details: "As `lockd`, without TCP between: what the protocol and the daemon cost by \
                  themselves.",
        lock: LockCapabilities {
            answering: Some("echo+unix"),
            ..LOCK
        },
        no_threads: None,
    };

    fn reach(argument: Option<&str>, _file: Option<&Path>) -> Result<(), SetupError> {
        let Some(path) = argument else {
            return Ok(());
        };
        Address::Unix(path.into()).connect().map(drop)
    }

    fn prepare(setup: &Setup<'_>) -> Result<LockdUnix, SetupError> {
        let daemon = match setup.argument {
            Some(path) => Daemon::prepare_named(Address::Unix(path.into()), setup),
            None => Daemon::launch_unix("lockd+unix", setup),
        };
        daemon.map(LockdUnix)
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

    fn strangers(&self) -> Vec<String> {
        self.0.strangers()
    }

    fn signs(&self) -> crate::signs::Signs {
        self.0.signs()
    }

    fn facts(&self) -> BTreeMap<String, f64> {
        self.0.facts()
    }
}
