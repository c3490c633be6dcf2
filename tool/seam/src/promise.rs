//! What a target's locks promise their owners, by its line in the table and the facts of its set-up.

use crate::table::{Entry, Family};
use crate::{LEASE_FACT, LEASE_LAG_FACT, LEASE_STEP_FACT};
use jostle_model::record::{Belongs, Promise};
use std::collections::BTreeMap;

/// The promise. `facts` are those of the target as it was set up, in nanoseconds: with a lease
/// among them, holds last for that. Without any, it is the promise by default.
///
/// Nothing is known about a lock of the user's own: its program or `--promise` states it.
pub fn promise(entry: &Entry, facts: &BTreeMap<String, f64>) -> Promise {
    let lock = &entry.lock;
    if entry.family == Family::Own {
        return Promise::default();
    }
    let fact = |name: &str| facts.get(name).map(|ns| *ns as u64);
    let usual = lock.usual_lease.filter(|_| facts.is_empty());
    let usual = usual.map(|lease| lease.as_nanos() as u64);
    let lease_ns = fact(LEASE_FACT).or(usual).filter(|_| lock.remote);
    let times = |name| fact(name).filter(|_| lease_ns.is_some());
    Promise {
        belongs: match lease_ns {
            Some(_) => Belongs::Lease,
            None if lock.remote => Belongs::Connection,
            None => Belongs::Process,
        },
        lease_ns,
        lease_step_ns: times(LEASE_STEP_FACT),
        lease_lag_ns: times(LEASE_LAG_FACT),
        restart: lock.durable,
        failover: lock.replicated,
        tokens: lock.fenced,
        order: lock.fifo,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{LockCapabilities, capabilities};
    use std::time::Duration;

    #[test]
    fn a_hold_belongs_to_its_lease_else_to_what_reaches_the_lock() {
        let of = |family: Family, lock: LockCapabilities, facts: &[(&str, f64)]| {
            let facts = facts.iter().map(|(name, ns)| ((*name).to_owned(), *ns));
            let entry = Entry {
                family,
                lock,
                ..Entry::PLAIN
            };
            promise(&entry, &facts.collect()).to_string()
        };
        let service = LockCapabilities::SERVICE;
        let leased = capabilities!(service; durable, fenced,
            usual_lease: Some(Duration::from_secs(30)));
        let short = [(LEASE_FACT, 2e9), (LEASE_STEP_FACT, 1e9)];
        for facts in [&[][..], &short] {
            assert_eq!(
                of(Family::File, LockCapabilities::TIMED, facts),
                "by=process"
            );
        }
        assert_eq!(of(Family::Service, service, &[]), "by=connection");
        let renewed = "by=lease,lease=2s,step=1s";
        assert_eq!(of(Family::Service, service, &short), renewed);
        assert_eq!(
            of(Family::Service, leased, &[]),
            "by=lease,lease=30s,restart,tokens"
        );
        assert_eq!(
            of(Family::Service, leased, &short),
            format!("{renewed},restart,tokens")
        );
        assert_eq!(of(Family::Own, LockCapabilities::TIMED, &[]), "by=unknown");
    }
}
