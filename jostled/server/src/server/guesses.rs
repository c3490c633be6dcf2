//! Guesses of passwords. Each connection delays its own replies (`Conn::delay_refusal`);
//! a new connection for each guess would avoid that. So guesses are also counted for each
//! address and user: beyond a few, one is checked in some seconds, and the others are
//! refused unchecked, the right password too.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::table::Time;

/// Wrong passwords in a row that cost no delay.
const FREE: u32 = 10;
/// The longest delay.
const LONGEST_NS: u64 = 8_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Addresses and users that are remembered.
const KNOWN: usize = 4096;

/// Where guesses come from, and for whom.
type Source = (Option<IpAddr>, Vec<u8>);

/// The wrong passwords of late.
#[derive(Debug, Default)]
pub(super) struct Guesses(HashMap<Source, Wrong>);

#[derive(Clone, Copy, Debug, Default)]
struct Wrong {
    count: u32,
    /// Nothing is checked before.
    until: Time,
}

impl Guesses {
    /// Seconds until a password of this source is checked; 0: now.
    pub(super) fn delay_s(&self, source: &Source, now: Time) -> u64 {
        let until = self.0.get(source).map_or(0, |wrong| wrong.until.0);
        until.saturating_sub(now.0).div_ceil(SECOND_NS)
    }

    /// Notes a wrong password.
    pub(super) fn wrong(&mut self, source: Source, now: Time) {
        if self.0.len() >= KNOWN && !self.0.contains_key(&source) {
            self.forget(now);
        }
        let found = self.0.entry(source).or_default();
        let ns = match found.count.checked_sub(FREE) {
            None => 0,
            Some(doubled) => LONGEST_NS.min(SECOND_NS << doubled.min(8)),
        };
        found.count += 1;
        found.until = Time(now.0 + ns);
    }

    /// Notes a right one.
    pub(super) fn right(&mut self, source: &Source) {
        if !self.0.is_empty() {
            self.0.remove(source);
        }
    }

    /// Makes room: sources whose delay is over a minute ago are forgotten, or all, if
    /// there are none of them.
    fn forget(&mut self, now: Time) {
        self.0
            .retain(|_, wrong| wrong.until.0 + 60 * SECOND_NS > now.0);
        if self.0.len() >= KNOWN {
            self.0.clear();
        }
    }
}

/// The source of a guess: of an IPv6 address the network counts.
pub(super) fn source(address: Option<IpAddr>, user: &[u8]) -> Source {
    let address = address.map(|address| match address {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_none() => {
            IpAddr::V6((six.to_bits() >> 64 << 64).into())
        }
        other => other,
    });
    (address, user[..user.len().min(128)].to_vec())
}

/// The most failed logins logged in one second. Any client that can connect can cause
/// them, and a slow log must not stop the daemon.
const FAILURES: u64 = 20;

/// How many failed logins were noted lately.
#[derive(Debug, Default)]
pub(super) struct Failures {
    second: u64,
    noted: u64,
    left_out: u64,
}

impl Failures {
    /// `Some` if one more failed login is to be logged, with the number left out before it.
    pub(super) fn note(&mut self, second: u64) -> Option<u64> {
        if second != self.second {
            (self.second, self.noted) = (second, 0);
        }
        if self.noted == FAILURES {
            self.left_out += 1;
            return None;
        }
        self.noted += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10,658 guesses a second were checked, each on a connection of its own.
    #[test]
    fn few_guesses_of_one_source_are_checked_and_others_are_not_delayed() {
        let mut guesses = Guesses::default();
        let of = |address: &str, user: &[u8]| source(Some(address.parse().unwrap()), user);
        let guesser = of("192.0.2.1", b"a");
        // A guess each millisecond for 100 s.
        let mut checked = 0;
        for ms in 0..100_000 {
            let now = Time(ms * 1_000_000);
            if guesses.delay_s(&guesser, now) == 0 {
                guesses.wrong(guesser.clone(), now);
                checked += 1;
            }
        }
        assert_eq!(checked, 10 + 3 + 12);
        let now = Time(100_000 * 1_000_000);
        assert!(guesses.delay_s(&guesser, now) > 0);
        assert_eq!(guesses.delay_s(&of("192.0.2.1", b"b"), now), 0);
        assert_eq!(guesses.delay_s(&of("192.0.2.2", b"a"), now), 0);
        guesses.right(&guesser);
        assert_eq!(guesses.delay_s(&guesser, now), 0);
        assert_eq!(of("2001:db8::1", b"a"), of("2001:db8::2", b"a"));
        for number in 0..10 * KNOWN {
            guesses.wrong(source(None, number.to_string().as_bytes()), now);
        }
        assert!(guesses.0.len() <= KNOWN);
    }

    #[test]
    fn failures_beyond_a_number_a_second_are_counted() {
        let mut failures = Failures::default();
        let noted = (0..100).filter(|_| failures.note(7).is_some()).count();
        assert_eq!(noted as u64, FAILURES);
        assert_eq!(failures.note(8), Some(100 - FAILURES));
        assert_eq!(failures.note(8), Some(0));
    }
}
