//! Locks that are held for longer than their lease: renewed as the engine does it they stay
//! their owner's, and without that they do not. Each on its real server; Consul, whose
//! shortest lease is 10 s, in `consul.rs`.

use crate::common::{Bench, GRANTED, REFUSED, block, prepared_here, with_ledger};
use jostle_sys::clock::monotonic;
use jostle_targets::{Entry, Locks, Mode, Wait};
use std::time::Duration;

use Mode::Exclusive;

/// A lease that etcd and ZooKeeper grant as long as others do, and the shortest that memcached can
/// renew.
const LEASE: Duration = Duration::from_secs(2);

/// Within which a lock is free whose owner did not renew it, on any machine: ZooKeeper looks
/// at its clock once in half a lease.
const FREE_WITHIN: Duration = Duration::from_secs(120);

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

fn leased<R>(entry: &Entry, lease: Duration, check: impl FnOnce(&dyn Locks) -> R) -> R {
    with_ledger(|ledger, _| {
        let bench = Bench {
            keys: 3,
            kept: true,
            lease: Some(lease),
            ..Bench::new(ledger)
        };
        let target = bench.locks(entry);
        let found = check(&*target);
        target.remove_leftovers().unwrap();
        found
    })
}

/// Two leases, and so long that none of them lasts by itself. False: something stood still for
/// longer than a lease, so that the lock may have been lost.
fn keeps(entry: &Entry, lease: Duration) -> bool {
    let name = entry.name;
    leased(entry, lease, |target| {
        let mut renewed_ns = monotonic();
        let mut owner = target.join(0).unwrap();
        let keeping = owner.keeping().unwrap_or_else(|| panic!("{name}"));
        assert!(keeping.lease_ns <= lease.as_nanos() as u64, "{name}");
        assert!(keeping.every_ns < keeping.lease_ns, "{name}");
        let is_late = |since_ns: u64| monotonic() - since_ns >= keeping.lease_ns;
        for key in [0, 2] {
            let granted = owner.acquire(key, Exclusive, block());
            if is_late(renewed_ns) {
                return false;
            }
            assert_eq!(granted, GRANTED, "{name}");
        }
        let end = monotonic() + (lease * 5 / 2).as_nanos() as u64;
        while monotonic() < end {
            std::thread::sleep(Duration::from_nanos(keeping.every_ns));
            let now = monotonic();
            let mut lapsed = Vec::new();
            let kept = owner.renew(&[0, 2], &mut lapsed);
            if is_late(renewed_ns) {
                return false;
            }
            assert_eq!((kept, lapsed), (Ok(true), Vec::new()), "{name}");
            renewed_ns = now;
        }
        let mut other = target.join(1).unwrap();
        let found = [0, 2].map(|key| {
            let tried = other.acquire(key, Exclusive, Wait::Try);
            let released = owner.release(key, Exclusive);
            (tried, released, other.acquire(key, Exclusive, Wait::Try))
        });
        assert!(owner.traffic().unwrap().round_trips > 0, "{name}");
        let parted = owner.part();
        if is_late(renewed_ns) {
            return false;
        }
        for each in found {
            assert_eq!(each, (REFUSED, Ok(()), GRANTED), "{name}");
        }
        assert_eq!(parted, Ok(()), "{name}");
        true
    })
}

/// Longer leases where something stood still for longer than the first ones.
fn with_some_lease(entry: &Entry, check: fn(&Entry, Duration) -> bool) {
    let mut leases = [1, 5, 15].map(|times| LEASE * times).into_iter();
    let checked = leases.any(|lease| check(entry, lease));
    assert!(checked, "{}: each lease was over too early", entry.name);
}

fn is_kept(entry: &Entry) {
    with_some_lease(entry, keeps);
}

#[test]
fn a_lock_that_is_renewed_is_its_owner_s_after_two_leases() {
    each(is_kept, has_leases);
}

/// False as above.
fn loses(entry: &Entry, lease: Duration) -> bool {
    let name = entry.name;
    leased(entry, lease, |target| {
        let owned_ns = monotonic();
        let mut owner = target.join(0).unwrap();
        let keeping = owner.keeping().unwrap();
        // A session is renewed at a third of its lease, so that less than the whole is left.
        let is_late = |since_ns: u64| monotonic() - since_ns >= keeping.lease_ns / 2;
        let granted = owner.acquire(0, Exclusive, block());
        if is_late(owned_ns) {
            return false;
        }
        assert_eq!(granted, GRANTED, "{name}");
        std::thread::sleep(lease / 4);
        let begun_ns = monotonic();
        let mut asked_ns = begun_ns;
        let mut other = target.join(1).unwrap();
        loop {
            let tried = other.acquire(0, Exclusive, Wait::Try);
            if tried == GRANTED {
                break;
            }
            if keeping.is_session && is_late(asked_ns) {
                return false;
            }
            let waited = Duration::from_nanos(monotonic() - begun_ns);
            assert!(waited < FREE_WITHIN, "{name}: {tried:?}");
            std::thread::sleep(Duration::from_millis(50));
            asked_ns = monotonic();
        }
        // It lasts for as long as the handle says, by the clock of its server.
        let lasted_ns = monotonic() - owned_ns;
        assert!(lasted_ns > keeping.lease_ns / 10 * 9, "{name}: {lasted_ns}");
        let mut lapsed = Vec::new();
        // A server may end the connection of a session that has ended.
        match owner.renew(&[0], &mut lapsed) {
            Ok(true) => assert_eq!(lapsed, [0], "{name}"),
            Ok(false) => assert!(keeping.is_session, "{name}"),
            Err(error) => assert!(keeping.is_session, "{name}: {error}"),
        }
        let released = other.release(0, Exclusive);
        if is_late(asked_ns) {
            return false;
        }
        // The next owner keeps what it has.
        assert_eq!(released, Ok(()), "{name}");
        true
    })
}

fn is_lost(entry: &Entry) {
    with_some_lease(entry, loses);
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
