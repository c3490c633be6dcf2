//! `echo+unix`: the server that only answers, over a Unix socket; what stands
//! beside `lockd+unix` as `echo` beside `lockd`.

use crate::echo::CLAIMED;
use crate::lockd_lock::JostledTarget;
use crate::table::Entry;

/// The server that only answers.
pub type EchoUnix = JostledTarget<true, true>;

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "echo+unix",
    summary: "as `echo`, over a Unix socket: what bounds `lockd+unix`",
    details: "As `echo`; the socket stands among the run's own files.",
    lock: CLAIMED,
    ..Entry::PLAIN
};
