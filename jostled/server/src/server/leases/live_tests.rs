//! How long a promise is, as time passes: the tests turn the clock.

use std::sync::{Arc, Mutex};

use super::*;
use crate::Config;
use crate::table::{ClientId, LockRequest, Mode, Open, Outcome, Unlock};
use crate::tokens::TokenStore;

/// Remembers the last promise.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Promise>>);

impl TokenStore for Memory {
    fn reserve(&mut self, _: u64) -> std::io::Result<()> {
        Ok(())
    }
    fn promise(&mut self, promise: Promise) -> std::io::Result<()> {
        *self.0.lock().unwrap() = promise;
        Ok(())
    }
}

/// A server, its start and what it has promised.
struct Stage(Server, Time, Memory);

impl Stage {
    fn new() -> Self {
        let memory = Memory::default();
        let store = Box::new(memory.clone());
        let server = Server::with_tokens(Config::embedded(), Some(store), 1).unwrap();
        let start = server.clock;
        Self(server, start, memory)
    }

    fn at(&self, seconds: u64) -> Time {
        Time(self.1.0 + seconds * 1_000_000_000)
    }

    /// The longest lease that is promised after a turn at this time.
    fn promised_ms(&mut self, seconds: u64) -> u64 {
        self.0.clock = self.at(seconds);
        self.0.renew_promise();
        // The thread answers in order, and this store has no file.
        assert!(self.0.rest_tokens().is_err());
        self.0.reserver.as_ref().unwrap().wake();
        let promised = *self.2.0.lock().unwrap();
        promised.longest_ms
    }

    /// Asks for a lease of this name, as the command does.
    fn lock(&mut self, name: &str, ttl_ms: u64, seconds: u64) -> Option<u64> {
        let now = self.at(seconds);
        // A slow disk is asked again.
        while !self.0.may_lease(ttl_ms, now) {
            std::thread::yield_now();
        }
        let client: ClientId = self.0.step(Open, now).unwrap();
        let request = LockRequest {
            client,
            name: name.as_bytes(),
            ttl_ms: Some(ttl_ms),
            wait_ms: None,
            mode: Mode::Exclusive,
            session: None,
        };
        match self.0.step(request, now) {
            Some(Outcome::Granted(token)) => Some(token),
            _ => None,
        }
    }

    fn unlock(&mut self, name: &str, token: Option<u64>, seconds: u64) {
        let now = self.at(seconds);
        let unlock = Unlock {
            client: ClientId::from_number(0),
            name: name.as_bytes(),
            token,
        };
        self.0.step(unlock, now).unwrap();
    }
}

/// A lease of an hour that had been released cost the start after a crash an hour.
#[test]
fn a_promise_shrinks_with_what_is_left_of_long_leases_and_waits() {
    let mut stage = Stage::new();
    let hour = stage.lock("a", 3_600_000, 0);
    assert_eq!(stage.promised_ms(0), 3_670_016, "an eighth more at most");
    // It is written seldom: not before half of it is enough.
    assert_eq!(stage.promised_ms(61), 3_670_016);
    assert_eq!(stage.promised_ms(1900), 1_700_000);
    stage.unlock("a", hour, 1910);
    assert_eq!(stage.promised_ms(1920), 1_700_000);
    for seconds in [1961, 2022] {
        assert_eq!(stage.promised_ms(seconds), 0);
    }
    assert_eq!(stage.0.leases.review_at, Time(u64::MAX), "nothing to do");

    let held = stage.lock("a", 200_000, 2030);
    assert_eq!(stage.promised_ms(2030), 212_992);
    // A waiter's lease begins without a command of its own.
    assert_eq!(stage.lock("a", 600_000, 2031), None);
    assert_eq!(stage.promised_ms(2031), 655_360);
    for seconds in [2062, 2067, 2123, 2128] {
        assert!(stage.promised_ms(seconds) >= 600_000, "at {seconds} s");
    }
    stage.unlock("a", held, 2129);
    assert_eq!(stage.promised_ms(2440), 289_000);
    assert_eq!(stage.promised_ms(2501), 289_000);
    assert_eq!(stage.promised_ms(2600), 129_000);
}

#[test]
fn what_is_asked_for_during_a_review_in_parts_stays_promised() {
    let mut stage = Stage::new();
    let first = stage.lock("first", 1000, 0);
    for number in 0..2 * REVIEW_SLOTS {
        stage.lock(&format!("{number}"), 1000, 0);
    }
    assert!(stage.promised_ms(61) <= 1024);
    assert!(stage.0.leases.review.is_some(), "it has further parts");
    // Its slot was searched already.
    stage.unlock("first", first, 0);
    stage.lock("later", 50_000, 61);
    while stage.0.leases.review.is_some() {
        assert!(stage.promised_ms(61) >= 50_000);
    }
    for seconds in [62, 67, 72] {
        assert!(stage.promised_ms(seconds) >= 50_000);
    }
}
