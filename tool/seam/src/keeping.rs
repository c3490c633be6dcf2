//! Upkeep of a lock while it is held.
//!
//! A lock that belongs to a connection or a process needs nothing. A lease has to be
//! renewed before it ends. Either each lock has a lease, or the worker's session has one
//! for all its locks. The targets renew as often as the libraries whose recipes they
//! follow. This module does not schedule renewals; the engine's workers do.

use crate::CallError;
use std::time::Duration;

/// How the locks of one handle are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// The request that renews, for messages.
    pub call: &'static str,
    /// The least time that an unrenewed lock lasts, in nanoseconds. It counts from the
    /// sending of the granted request, or of the last renewal.
    pub lease_ns: u64,
    /// Between two renewals, in nanoseconds.
    pub every_ns: u64,
    /// Whether one renewal keeps all locks of the handle, since they belong to its session.
    pub is_session: bool,
}

/// Renewals per lease: three, so that two may be lost. This is the number of etcd's library
/// (clientv3/lease.go), of ZooKeeper's Java library (half of its read timeout, which is two
/// thirds of the session's) and of Redisson's watchdog.
const RENEWALS: u64 = 3;

impl Keeping {
    /// The lease of each lock is renewed by itself, at a third of it.
    pub const fn each(call: &'static str, lease_ns: u64) -> Keeping {
        Keeping {
            call,
            lease_ns,
            every_ns: lease_ns / RENEWALS,
            is_session: false,
        }
    }

    /// A renewal was answered that the lock, or the session, is not the handle's any more.
    #[cold]
    pub fn lost(&self) -> CallError {
        CallError::lost(self.call)
    }

    /// The lease of the session is renewed at a third of it, for all locks together.
    pub const fn session(call: &'static str, lease_ns: u64) -> Keeping {
        Keeping {
            is_session: true,
            ..Keeping::each(call, lease_ns)
        }
    }
}

/// A lease in milliseconds, rounded up, and never zero.
pub fn whole_millis(lease: Duration) -> u64 {
    lease.as_micros().div_ceil(1_000).max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_renewals_may_be_lost_before_a_lease_ends() {
        let keeping = Keeping::session("ping", 40_000_000_000);
        assert!(2 * keeping.every_ns < keeping.lease_ns);
        assert!(keeping.every_ns * RENEWALS <= keeping.lease_ns);
    }

    #[test]
    fn a_lease_is_never_shorter_than_what_was_asked_for() {
        for (micros, millis) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (30_000_000, 30_000)] {
            assert_eq!(whole_millis(Duration::from_micros(micros)), millis);
        }
    }
}
