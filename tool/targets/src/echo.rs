//! `echo`: a server that answers every request at once, as if each lock were
//! free. What is measured on it is the path and the client.

use crate::answering::Fault;
use crate::lockd::LOCK;
use crate::lockd_lock::JostledTarget;
use crate::table::{Entry, LockCapabilities, capabilities};

/// The server that only answers.
pub type Echo = JostledTarget<false, true>;

/// A claim, which the witness shows to be false.
pub(crate) const CLAIMED: LockCapabilities = capabilities!(LOCK; survives_owner: false);

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "echo",
    argument: Some("FAULT"),
    check_argument: |argument| Fault::parse(argument).map(drop),
    summary: "a server that only answers and excludes nobody: the path's and the client's ceiling",
    details: "Launched for the run as `lockd` is, asked as it is, over TCP; it reads each \
              request and answers it at once, whoever owns what. A service that reaches nine \
              tenths of it under the same load is bound by the path (`limited_by`). As a lock \
              it is broken on purpose, and the witness must say so. With a FAULT it is worse: \
              `slow=200us` takes so long over each grant, `lose=100` does not count every \
              hundredth, `double=100` counts it twice; it notes how many grants it answered \
              (`answered`), how long it slept (`slowed_ns`), and what it miscounted (`lost`, \
              `doubled`).",
    lock: CLAIMED,
    ..Entry::PLAIN
};
