//! Timers of TCP: their lengths, and the sentences on what made them run.

use crate::numbers::grouped;

/// How long an acknowledgement is delayed on a connection that answers nothing
/// (TCP_DELACK_MIN, include/net/tcp.h).
pub(crate) const DELAYED_S: f64 = 0.04;

/// When the first segment of a connection is sent again, at the earliest (TCP_TIMEOUT_INIT).
pub(crate) const SYN_AGAIN_S: f64 = 1.0;

pub(crate) const NAGLE: &str = "one end writes a message in two parts without TCP_NODELAY; write \
                                it at once, or set TCP_NODELAY";

pub(crate) const BACKLOG: &str = "give listen() a larger backlog, and raise net.core.somaxconn";

pub(crate) fn refused(overflows: f64, again: f64) -> String {
    format!(
        "a full accept queue refused {} connections, and {} SYNs were sent again",
        grouped(overflows as u64),
        grouped(again as u64)
    )
}
