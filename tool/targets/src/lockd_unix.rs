//! `lockd+unix`: jostled over a Unix socket.

use crate::lockd::LOCK;
use crate::lockd_lock::JostledTarget;
use crate::prelude::*;

/// A jostled on this machine.
pub type LockdUnix = JostledTarget<true, false>;

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "lockd+unix",
    argument: Some("PATH"),
    check_argument: argument::path,
    reach: |path, _| Address::Unix(path.into()).connect().map(drop),
    summary: "jostled over a Unix socket; without a path, one launched for the run",
    details: "As `lockd`, without TCP between: what the protocol and the daemon cost by \
              themselves.",
    lock: capabilities!(LOCK; answering: Some("echo+unix")),
    ..Entry::SERVICE
};
