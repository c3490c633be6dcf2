//! The names of a run's locks on a service that others use too.
//!
//! Every name is 20 bytes long, `jostle:RUN:LOCK`, so that a server's memory per held lock
//! is that of a name of this length. The locks of a run have names in an order that looks
//! random: consecutive numbers would be neighbours in a server's table and its caches.

use crate::{Setup, SetupError};
use std::hash::{BuildHasher, RandomState};

/// Bytes of every name.
pub const BYTES: usize = 20;

const PREFIX: &[u8; 7] = b"jostle:";
/// Where the lock's own part begins: after the prefix, the run and a colon.
const LOCK_AT: usize = 15;
/// Five characters of five bits.
const LOCK_BITS: u32 = 25;

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Names that no other run has, so that runs at the same time do not share locks. Each name
/// is made when it is needed: making a million names per worker would take longer than
/// locking them.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    first: [u8; BYTES],
    run: u64,
}

impl Names {
    /// The names for this run, from a random number below 2^35. With several hosts, the
    /// coordinator draws the number for all of them.
    ///
    /// # Errors
    /// For more locks than there are names.
    pub fn new(setup: &Setup<'_>) -> Result<Names, SetupError> {
        if setup.keys > 1 << LOCK_BITS {
            return Err(SetupError(format!(
                "{} locks: at most {} have names",
                setup.keys,
                1u64 << LOCK_BITS
            )));
        }
        // The ledger's path belongs to this run alone on this host, and the hash has a
        // random key, so that no other run or host gets the same number.
        let own = || RandomState::new().hash_one(setup.ledger.path());
        Ok(Names::of_run(setup.common_name.unwrap_or_else(own)))
    }

    /// The names of the run of this number.
    pub fn of_run(run: u64) -> Names {
        let mut first = [b':'; BYTES];
        first[..PREFIX.len()].copy_from_slice(PREFIX);
        characters(run, &mut first[PREFIX.len()..LOCK_AT - 1]);
        Names { first, run }
    }

    /// The prefix of all names of this run, and of no other run's.
    pub fn prefix(&self) -> &[u8] {
        &self.first[..LOCK_AT]
    }

    /// A number in place of a name, for services that lock numbers: the run's number is in
    /// the high bits and the lock's in the low bits, so that no two locks of a run share a
    /// number.
    #[inline]
    pub fn number(&self, key: usize) -> u64 {
        self.run << LOCK_BITS | shuffled(key as u64)
    }

    /// The first and the last number that the run's locks can have.
    pub fn numbers(&self) -> [u64; 2] {
        let first = self.run << LOCK_BITS;
        [first, first | ((1 << LOCK_BITS) - 1)]
    }

    /// The name of lock number `key`.
    #[inline]
    pub fn name(&self, key: usize) -> [u8; BYTES] {
        let mut name = self.first;
        characters(shuffled(key as u64), &mut name[LOCK_AT..]);
        name
    }
}

#[inline]
fn characters(mut number: u64, into: &mut [u8]) {
    for place in into.iter_mut().rev() {
        *place = ALPHABET[(number & 31) as usize];
        number >>= 5;
    }
}

/// A permutation of the 25-bit numbers: multiplying by an odd number and XORing the upper
/// bits into the lower ones are both invertible.
#[inline]
fn shuffled(number: u64) -> u64 {
    const MASK: u64 = (1 << LOCK_BITS) - 1;
    let mut n = number & MASK;
    for factor in [0x0a3_2d85, 0x147_a3d9] {
        n = n.wrapping_mul(factor) & MASK;
        n ^= n >> 13;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_have_one_length_and_are_all_different() {
        let names = Names::of_run(0x1234_5678_9abc);
        let all: HashSet<[u8; BYTES]> = (0..1_000_000).map(|key| names.name(key)).collect();
        assert_eq!(all.len(), 1_000_000);
        let text = String::from_utf8(names.name(7).to_vec()).unwrap();
        assert!(text.as_bytes().starts_with(names.prefix()), "{text}");
        assert!(
            text.starts_with("jostle:") && text.as_bytes()[14] == b':',
            "{text}"
        );
    }

    #[test]
    fn numbers_are_all_different_and_of_their_run() {
        let numbers = |run: u64| (0..100_000).map(move |key| Names::of_run(run).number(key));
        let all: HashSet<u64> = numbers(3).chain(numbers(4)).collect();
        assert_eq!(all.len(), 200_000);
    }

    #[test]
    fn another_run_has_other_names() {
        assert_ne!(Names::of_run(1).name(0), Names::of_run(2).name(0));
    }

    #[test]
    fn the_order_looks_random() {
        let names = Names::of_run(1);
        let rises = (0..10_000).filter(|key| names.name(*key) < names.name(key + 1));
        // In a random order half of the steps rise, give or take 50 (one standard
        // deviation is 29).
        let rises = rises.count();
        assert!((4_800..5_200).contains(&rises), "{rises}");
    }
}
