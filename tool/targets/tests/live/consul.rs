//! The recipe of `consul` on a server of ours that answers as Consul does
//! (`jostle_testbed::fake_consul`): no Consul, which Debian has no package of.

use jostle_sys::clock::monotonic;
use jostle_sys::ledger::Ledger;
use jostle_targets::consul::Consul;
use jostle_targets::signs::sign;
use jostle_targets::{CallError, Lock, Mode, Outcome, Setup, SetupError, Target, Wait};
use jostle_testbed::fake_consul::FakeConsul;
use jostle_testbed::lock_servers as servers;
use std::time::{Duration, Instant};

const GRANTED: Result<Outcome, CallError> = Ok(Outcome::Granted);
const REFUSED: Result<Outcome, CallError> = Ok(Outcome::Refused);

fn prepared(fake: &FakeConsul, ledger: &Ledger) -> Result<Consul, SetupError> {
    let argument = format!("//{}", fake.address);
    Consul::prepare(&Setup {
        argument: Some(&argument),
        ..servers::setup(ledger, 3)
    })
}

fn with(check: impl FnOnce(&FakeConsul, &Consul)) {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let fake = FakeConsul::start().unwrap();
    let target = prepared(&fake, &ledger).unwrap();
    check(&fake, &target);
    target.remove_leftovers().unwrap();
    assert_eq!(fake.left(), [0, 0], "sessions and keys");
    ledger.sweep().unwrap();
}

fn try_for(lock: &mut impl Lock) -> Result<Outcome, CallError> {
    lock.acquire(0, Mode::Exclusive, Wait::Try)
}

fn block() -> Wait {
    Wait::Block {
        last_resort_ns: monotonic() + 60_000_000_000,
    }
}

#[test]
fn the_leader_is_what_is_looked_at_when_something_went_wrong() {
    with(|_, target| assert!(!target.signs().unwrap()[sign::LEADER].eq(&String::new().into())));
}

#[test]
fn a_waiter_is_woken_when_the_key_changes_with_as_many_requests_as_the_recipe_says() {
    with(|fake, target| {
        let mut owner = target.join(0).unwrap();
        let mut waiter = target.join(1).unwrap();
        let before = fake.requests();
        assert_eq!(owner.acquire(0, Mode::Exclusive, block()), GRANTED);
        // Read; acquire and read.
        assert_eq!(fake.requests() - before, 3);
        assert_eq!(owner.traffic().unwrap().round_trips, 2);
        let start = Instant::now();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let granted = waiter.acquire(0, Mode::Exclusive, block());
                (granted, waiter.release(0, Mode::Exclusive))
            });
            // It has read the key, and asks for its change.
            while fake.requests() - before < 5 {
                assert!(start.elapsed() < Duration::from_secs(120));
                std::thread::sleep(Duration::from_millis(2));
            }
            assert_eq!(owner.release(0, Mode::Exclusive), Ok(()));
            assert_eq!(waits.join().unwrap(), (GRANTED, Ok(())));
        });
        assert!(waiter.token() > owner.token(), "{waiter:?}");
        // One more would be that of a wait that was ended by its timeout.
        assert_eq!(waiter.traffic().unwrap().round_trips, 4);
        // Their sessions end with them.
        owner.part().unwrap();
        waiter.part().unwrap();
        assert_eq!(fake.left()[0], 0);
    });
}

#[test]
fn a_session_is_renewed_for_all_locks_at_once_until_it_has_ended() {
    with(|fake, target| {
        let mut owner = target.join(0).unwrap();
        let keeping = owner.keeping().unwrap();
        assert!(keeping.is_session);
        // As the library does.
        assert_eq!(2 * keeping.every_ns, keeping.lease_ns);
        assert_eq!(try_for(&mut owner), GRANTED);
        let (before, mut lapsed) = (fake.requests(), Vec::new());
        assert_eq!(owner.renew(&[0], &mut lapsed), Ok(true));
        assert_eq!(fake.requests() - before, 1);
        fake.end_sessions();
        assert_eq!(owner.renew(&[0], &mut lapsed), Ok(false));
        assert_eq!(lapsed, [0; 0]);
    });
}

#[test]
fn after_a_session_has_ended_nobody_owns_until_the_lock_delay_is_over_and_the_owner_is_told() {
    with(|fake, target| {
        let mut owner = target.join(0).unwrap();
        assert_eq!(try_for(&mut owner), GRANTED);
        fake.end_sessions();
        let mut other = target.join(1).unwrap();
        assert_eq!(try_for(&mut other), REFUSED);
        fake.end_delays();
        assert_eq!(try_for(&mut other), GRANTED);
        let told = owner.release(0, Mode::Exclusive).unwrap_err().to_string();
        assert!(told.contains("our lock was gone"), "{told}");
        let told = try_for(&mut owner);
        assert_eq!(
            told, REFUSED,
            "while another has it, nobody asks for a session"
        );
        assert_eq!(other.release(0, Mode::Exclusive), Ok(()));
        let told = try_for(&mut owner).unwrap_err().to_string();
        assert!(told.contains("the session was over"), "{told}");
    });
}

#[test]
fn a_server_without_a_leader_or_with_a_token_is_told_before_the_start() {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let fake = FakeConsul::start().unwrap();
    fake.wants("s3cret");
    let refused = prepared(&fake, &ledger).unwrap_err().0;
    assert!(refused.contains("set $CONSUL_HTTP_TOKEN"), "{refused}");
    let fake = FakeConsul::start().unwrap();
    fake.lose_leader();
    let refused = prepared(&fake, &ledger).unwrap_err().0;
    assert!(refused.contains("has no leader"), "{refused}");
    ledger.sweep().unwrap();
}
