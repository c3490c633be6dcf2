//! SIGUSR1 ends every wait within a bound. In a process of its own, since the
//! flag that the signal sets is the process's.

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]

#[path = "live/common/mod.rs"]
mod common;

use common::{Bench, GRANTED, block, contends_in_one_process, prepared_here, with_ledger};
use jostle_sys::clock::monotonic;
use jostle_sys::signal;
use jostle_targets::{Entry, Mode, Outcome, Wait};
use std::sync::mpsc;
use std::time::Duration;

/// A wait that nobody's signal can end gives up by itself then.
const LAST_RESORT_NS: u64 = 300_000_000;
/// Beyond that, what a busy machine may add; a wait that nothing ends lasts for ever.
const BOUND_NS: u64 = 60_000_000_000;

fn is_interrupted(entry: &Entry) {
    let name = entry.name;
    with_ledger(|ledger, _| {
        let argument = (name == "busted").then_some("0");
        let bench = Bench {
            argument,
            ..Bench::new(ledger)
        };
        let target = bench.locks(entry);
        let mut owner = target.join(0).unwrap();
        assert_eq!(
            owner.acquire(0, Mode::Exclusive, block()),
            GRANTED,
            "{name}"
        );
        // Clears the flag of the target before.
        signal::end_waits_on_signal().unwrap();
        let (sender, receiver) = mpsc::channel();
        let (outcome, took) = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut lock = target.join(1).unwrap();
                let last_resort_ns = monotonic() + LAST_RESORT_NS;
                let tid = rustix::thread::gettid().as_raw_nonzero().get();
                sender.send((tid as u32, last_resort_ns)).unwrap();
                lock.acquire(0, Mode::Exclusive, Wait::Block { last_resort_ns })
            });
            let (tid, last_resort_ns) = receiver.recv().unwrap();
            std::thread::sleep(Duration::from_millis(30));
            let waits = !waiter.is_finished() || monotonic() >= last_resort_ns;
            assert!(waits, "{name} did not wait");
            let start = monotonic();
            while !waiter.is_finished() && monotonic() - start < 10 * BOUND_NS {
                // Again and again: a signal that comes before the call
                // sleeps ends nothing.
                let _ = signal::end_waits_of(std::process::id(), tid);
                std::thread::sleep(Duration::from_millis(5));
            }
            (waiter.join().unwrap(), monotonic() - start)
        });
        assert_eq!(outcome, Ok(Outcome::Interrupted), "{name}");
        assert!(took < LAST_RESORT_NS + BOUND_NS, "{name}: {took} ns");
        owner.release(0, Mode::Exclusive).unwrap();
    });
}

#[test]
fn every_wait_ends_when_the_keeper_says_so() {
    for entry in prepared_here().filter(|entry| contends_in_one_process(entry)) {
        is_interrupted(entry);
    }
}
