//! Locks that are held for longer than their lease: renewed as the engine does it they stay
//! their owner's, and without that they do not. Each on its real server; Consul, whose
//! shortest lease is 10 s, in `consul.rs`.

use crate::common::{Bench, GRANTED, REFUSED, block, prepared_here, with_ledger};
use jostle_sys::clock::monotonic;
use jostle_targets::{Entry, Locks, Mode, Wait};
use std::time::Duration;

use Mode::Exclusive;

/// What etcd and ZooKeeper grant beside others, and the shortest that memcached can renew.
const LEASE: Duration = Duration::from_secs(2);

/// Two leases, and so long that none of them lasts by itself.
const HELD: Duration = Duration::from_secs(5);

/// Within which a lock is free whose owner did not renew it: ZooKeeper looks at its clock
/// once in half a lease.
const FREE_WITHIN: Duration = Duration::from_secs(15);

fn has_leases(entry: &Entry) -> bool {
    entry.name != "consul" && (entry.lock.usual_lease.is_some() || entry.name.starts_with("lockd"))
}

/// Each target on a thread of its own: most of the time is spent asleep.
fn each(check: fn(&Entry), which: fn(&Entry) -> bool) {
    std::thread::scope(|scope| {
        let mut count = 0;
        for entry in prepared_here().filter(|entry| which(entry)) {
            scope.spawn(move || check(entry));
            count += 1;
        }
        assert!(count > 0);
    });
}

fn leased(entry: &Entry, check: impl FnOnce(&dyn Locks)) {
    with_ledger(|ledger, _| {
        let bench = Bench {
            keys: 3,
            kept: true,
            lease: Some(LEASE),
            ..Bench::new(ledger)
        };
        let target = bench.locks(entry);
        check(&*target);
        target.remove_leftovers().unwrap();
    });
}

fn is_kept(entry: &Entry) {
    let name = entry.name;
    leased(entry, |target| {
        let mut owner = target.join(0).unwrap();
        let keeping = owner.keeping().unwrap_or_else(|| panic!("{name}"));
        assert!(keeping.lease_ns <= LEASE.as_nanos() as u64, "{name}");
        assert!(keeping.every_ns < keeping.lease_ns, "{name}");
        for key in [0, 2] {
            assert_eq!(owner.acquire(key, Exclusive, block()), GRANTED, "{name}");
        }
        let end = monotonic() + HELD.as_nanos() as u64;
        while monotonic() < end {
            std::thread::sleep(Duration::from_nanos(keeping.every_ns));
            let mut lapsed = Vec::new();
            let kept = owner.renew(&[0, 2], &mut lapsed);
            assert_eq!((kept, lapsed), (Ok(true), Vec::new()), "{name}");
        }
        let mut other = target.join(1).unwrap();
        for key in [0, 2] {
            assert_eq!(other.acquire(key, Exclusive, Wait::Try), REFUSED, "{name}");
            assert_eq!(owner.release(key, Exclusive), Ok(()), "{name}");
            assert_eq!(other.acquire(key, Exclusive, Wait::Try), GRANTED, "{name}");
        }
        assert!(owner.traffic().unwrap().round_trips > 0, "{name}");
        assert_eq!(owner.part(), Ok(()), "{name}");
    });
}

#[test]
fn a_lock_that_is_renewed_is_its_owner_s_after_two_leases() {
    each(is_kept, has_leases);
}

fn is_lost(entry: &Entry) {
    let name = entry.name;
    leased(entry, |target| {
        let mut owner = target.join(0).unwrap();
        assert_eq!(owner.acquire(0, Exclusive, block()), GRANTED, "{name}");
        // It lasts for as long as the handle says.
        std::thread::sleep(LEASE / 4);
        let mut other = target.join(1).unwrap();
        assert_eq!(other.acquire(0, Exclusive, Wait::Try), REFUSED, "{name}");
        let until = monotonic() + FREE_WITHIN.as_nanos() as u64;
        while other.acquire(0, Exclusive, Wait::Try) != GRANTED {
            assert!(monotonic() < until, "{name}: nobody renews it");
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut lapsed = Vec::new();
        // A server may end the connection of a session that has ended.
        match owner.renew(&[0], &mut lapsed) {
            Ok(true) => assert_eq!(lapsed, [0], "{name}"),
            Ok(false) => assert!(owner.keeping().unwrap().is_session, "{name}"),
            Err(error) => assert!(owner.keeping().unwrap().is_session, "{name}: {error}"),
        }
        // The next owner keeps what it has.
        assert_eq!(other.release(0, Exclusive), Ok(()), "{name}");
    });
}

#[test]
fn a_lock_that_nobody_renews_is_another_s_and_the_renewal_says_so() {
    each(is_lost, has_leases);
}

fn has_its_lease(entry: &Entry) {
    let name = entry.name;
    with_ledger(|ledger, _| {
        let bench = Bench {
            kept: true,
            holds_many: true,
            ..Bench::new(ledger)
        };
        let target = bench.locks(entry);
        let keeping = target.join(0).unwrap().keeping();
        let lease_ns = keeping.map(|keeping| keeping.lease_ns as f64);
        match entry.lock.usual_lease {
            None => assert_eq!(keeping, None, "{name}"),
            // One that counts in seconds may end so much earlier.
            Some(usual) => {
                let of_usual = lease_ns.unwrap() / usual.as_nanos() as f64;
                assert!((0.9..=1.0).contains(&of_usual), "{name}: {of_usual}");
            }
        }
    });
}

/// By it `hold --for` is refused before anything starts.
#[test]
fn a_target_s_locks_have_the_lease_that_its_entry_names() {
    each(has_its_lease, |_| true);
}
