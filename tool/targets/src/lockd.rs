//! `lockd`: jostled, by RESP over TCP. Without an address the keeper launches
//! one for the run.

use crate::address::Address;
use crate::argument;
use crate::lockd_lock::{Daemon, DaemonLock};
use crate::table::{Entry, Family, LockCapabilities};
use crate::tls::STACK;
use crate::{Dialled, ServerFigures, Setup, SetupError, Target};
use std::collections::BTreeMap;
use std::path::Path;

/// A jostled.
#[derive(Debug)]
pub struct Lockd(Daemon);

/// What every way to jostled can do.
pub const LOCK: LockCapabilities = LockCapabilities {
    shared: true,
    timeout: true,
    ranges: false,
    open_each: false,
    excludes: true,
    survives_owner: true,
    fifo: true,
    pipeline: true,
    remote: true,
    tasks: true,
    fenced: true,
    ..LockCapabilities::NONE
};

impl Target for Lockd {
    type Lock = DaemonLock;

    const THREAD_STACK: usize = STACK;

    const ENTRY: Entry = Entry {
        name: "lockd",
        aliases: &[],
        argument: Some("//HOST:PORT[?tls]"),
        check_argument: argument::service,
        family: Family::Service,
        summary: "the lock daemon jostled over TCP; without an address, one launched for the run",
        details: "LOCK and UNLOCK on one connection for each worker, which owns what it locks: a \
                  lock goes with its connection. Neither durable nor replicated; each grant \
                  carries a fencing token that only grows; waiters are served in order. `hold --for` with \
                  --lease takes leases instead (LOCK with TTL), and renews each by RENEW. The password \
                  of a server that wants one is $JOSTLED_PASSWORD. ?tls behind the address asks for TLS, \
                  ?ca=FILE for TLS with that authority.",
        lock: LockCapabilities {
            answering: Some("echo"),
            ..LOCK
        },
        no_threads: None,
    };

    fn reach(argument: Option<&str>, _file: Option<&Path>) -> Result<(), SetupError> {
        let Some(place) = argument else {
            return Ok(());
        };
        let address = Address::one(place, None).map_err(SetupError)?;
        address.connect().map(drop)
    }

    fn prepare(setup: &Setup<'_>) -> Result<Lockd, SetupError> {
        let daemon = match setup.argument {
            Some(place) => {
                Daemon::prepare_named(Address::one(place, None).map_err(SetupError)?, setup)
            }
            None => {
                let place = setup.launcher.launch("lockd")?;
                Daemon::prepare(Address::tcp(&place).map_err(SetupError)?, setup)
            }
        };
        daemon.map(Lockd)
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
