//! The recipe of `etcd` on a real server, which counts the calls that it gets.

use crate::common::{block, settles, until};
use jostle_sys::ledger::Ledger;
use jostle_targets::etcd::{Etcd, Launch};
use jostle_targets::{CallError, Lock, Mode, Outcome, Setup, Target, VERSION_FACT, Wait};
use jostle_testbed::etcd::{current_passes, expected_version};
use jostle_testbed::lock_servers as servers;
use std::io::{Read, Write};
use std::net::TcpStream;

const GRANTED: Result<Outcome, CallError> = Ok(Outcome::Granted);

/// The calls that an acquisition is made of, in the order of all counts here.
const CALLS: [&str; 4] = ["Txn", "Range", "Watch", "DeleteRange"];

type Counts = [u64; CALLS.len()];

/// On a server of the test's own, since nobody else may be counted.
fn with(check: impl FnOnce(&str, &Etcd)) {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let alone = Launch::members(1).unwrap().remove(0);
    let address = servers::followed(&alone).unwrap().address;
    // A server that is down stands before it: the next one is taken.
    let argument = format!("//127.0.0.1:1,{address}");
    let setup = Setup {
        argument: Some(&argument),
        ..servers::setup(&ledger, 3)
    };
    check(&address, &Etcd::prepare(&setup).unwrap());
    ledger.sweep().unwrap();
}

/// How often the server was called. Messages would not tell the same in all versions: a
/// current one counts the end of a stream as one more.
fn called(address: &str) -> Counts {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    CALLS.map(|call| {
        let of_call = format!("grpc_method=\"{call}\"");
        let mut lines = text.lines().filter(|line| {
            line.starts_with("grpc_server_started_total{") && line.contains(&of_call)
        });
        let line = lines.next().unwrap();
        let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        value as u64
    })
}

/// Expects these calls for what `work` does; it is given how to look at them meanwhile.
fn counts(address: &str, expected: Counts, work: impl FnOnce(&dyn Fn() -> Counts)) {
    let before = called(address);
    let since = || {
        let now = called(address);
        std::array::from_fn(|call| now[call] - before[call])
    };
    work(&since);
    settles(&expected, &since);
}

#[test]
fn each_acquisition_makes_as_many_round_trips_as_the_recipe_says() {
    with(|address, target| {
        let (mut one, mut two) = (target.join(0).unwrap(), target.join(1).unwrap());

        // Free: a transaction, which tells that nobody is before us; a delete.
        counts(address, [20, 0, 0, 20], |_| {
            for _ in 0..20 {
                assert_eq!(one.acquire(0, Mode::Exclusive, block()), GRANTED);
                one.release(0, Mode::Exclusive).unwrap();
            }
        });
        // As the client counts them itself.
        assert_eq!(one.traffic().unwrap().round_trips, 40);

        // Taken, and not waited for: a transaction, and the key is taken back.
        assert_eq!(one.acquire(0, Mode::Exclusive, block()), GRANTED);
        counts(address, [1, 0, 0, 1], |_| {
            let refused = two.acquire(0, Mode::Exclusive, Wait::Try);
            assert_eq!(refused, Ok(Outcome::Refused));
        });

        // Taken: a transaction; the key before ours, which is watched; when it is gone, that
        // none is before ours, and that ours is there; a delete. The owner's comes on top.
        counts(address, [1, 3, 1, 1 + 1], |since| {
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let granted = two.acquire(0, Mode::Exclusive, block());
                    granted.map(|_| two.release(0, Mode::Exclusive))
                });
                until(&[1, 1, 1, 0], since);
                one.release(0, Mode::Exclusive).unwrap();
                assert_eq!(waiter.join().unwrap(), Ok(Ok(())));
            });
        });
        assert_eq!(two.traffic().unwrap().round_trips, 2 + 5 + 1);
    });
}

#[test]
fn the_version_that_is_stated_is_that_of_the_first_etcd_in_the_path() {
    let expected = expected_version().unwrap();
    let mut parts = expected.split('.').map(|part| part.parse::<f64>().unwrap());
    let [major, minor, patch] = [(); 3].map(|()| parts.next().unwrap());
    with(|_, target| {
        let stated = target.facts()[VERSION_FACT];
        let expected_number = major + minor / 1e3 + patch / 1e6;
        assert!(
            (stated - expected_number).abs() < 1e-9,
            "{stated}: {expected}"
        );
    });
}

#[test]
#[ignore = "cargo xtask long"]
fn a_current_etcd_passes_the_same() {
    current_passes(&[
        "etcd::each_acquisition_makes_as_many_round_trips_as_the_recipe_says",
        "etcd::the_version_that_is_stated_is_that_of_the_first_etcd_in_the_path",
    ]);
}
