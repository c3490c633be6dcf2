//! `lockd`: jostled, by RESP over TCP. Without an address the keeper launches
//! one for the run.

use crate::lockd_lock::JostledTarget;
use crate::prelude::*;

/// A jostled.
pub type Lockd = JostledTarget<false, false>;

/// The capabilities common to every way to jostled.
pub const LOCK: LockCapabilities = capabilities!(LockCapabilities::SERVICE; shared, survives_owner,
    fifo, pipeline, fenced);

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "lockd",
    reach: |place, _| address(place)?.connect().map(drop),
    summary: "the lock daemon jostled over TCP; without an address, one launched for the run",
    details: "LOCK and UNLOCK on one connection for each worker, which owns what it locks: a \
              lock goes with its connection. Neither durable nor replicated; each grant \
              carries a fencing token that only grows; waiters are served in order. `hold --for` with \
              --lease takes leases instead (LOCK with TTL), and renews each by RENEW. The password \
              of a server that wants one is $JOSTLED_PASSWORD. ?tls behind the address asks for TLS, \
              ?ca=FILE for TLS with that authority.",
    lock: capabilities!(LOCK; answering: Some("echo")),
    ..Entry::SERVICE
};

pub(crate) fn address(place: &str) -> Result<Address> {
    Address::one(place, None).map_err(SetupError)
}
