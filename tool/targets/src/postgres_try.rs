//! `postgres-try`: PostgreSQL's advisory locks without its queue, as helpers of many
//! libraries take them: `pg_try_advisory_lock`, asked again after a while.

use crate::postgres::{self, Advisory, LOCK};
use crate::table::{Entry, capabilities};

/// A PostgreSQL that is polled.
pub type PostgresTry = Advisory<true>;

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "postgres-try",
    summary: "the same locks polled: pg_try_advisory_lock every 50 ms",
    details: "As `postgres`, but a worker that finds the lock taken asks again every 50 ms \
              (`poll_ns` in the result), as helpers of many libraries do: there is no queue, and \
              nobody who asks later is kept behind.",
    lock: capabilities!(LOCK; fifo: false),
    ..postgres::ENTRY
};
