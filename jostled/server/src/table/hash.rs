//! SipHash-1-3 with a secret key.
//!
//! Names come from clients. With a hash that they could compute, a few thousand
//! chosen names would share one bucket and make every look-up a long walk.
//! (The standard library has this function too, but not with a key of one's
//! own, which a test needs to be repeatable.)

use serde::{Deserialize, Serialize};

/// The key of a table's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashKey(pub u64, pub u64);

struct Sip {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl Sip {
    #[inline]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }

    #[inline]
    fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
    }
}

impl HashKey {
    /// A key from the operating system, by way of the standard library.
    #[must_use]
    pub fn random() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let state = RandomState::new();
        Self(state.hash_one(0u8), state.hash_one(1u8))
    }

    /// SipHash-1-3 of `bytes`.
    #[inline]
    #[must_use]
    pub fn hash(self, bytes: &[u8]) -> u64 {
        let mut sip = Sip {
            v0: self.0 ^ 0x736f_6d65_7073_6575,
            v1: self.1 ^ 0x646f_7261_6e64_6f6d,
            v2: self.0 ^ 0x6c79_6765_6e65_7261,
            v3: self.1 ^ 0x7465_6462_7974_6573,
        };
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            sip.absorb(u64::from_le_bytes(*word));
        }
        // The last word holds what is left and the length. Where there is a
        // word before it, one load that overlaps it saves a call to memcpy.
        let last = match bytes.last_chunk::<8>() {
            Some(_) if rest.is_empty() => 0,
            Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
            None => rest
                .iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        sip.absorb(last | (bytes.len() as u64) << 56);
        sip.v2 ^= 0xff;
        sip.round();
        sip.round();
        sip.round();
        sip.v0 ^ sip.v1 ^ sip.v2 ^ sip.v3
    }
}

/// Spreads a number over 32 bits (the finaliser of SplitMix64). For numbers that
/// the table gives out itself and that no client can choose.
#[inline]
pub(crate) fn spread(number: u64) -> u32 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_siphash_1_3() {
        // The standard library's hasher is SipHash-1-3 with a key of zeros.
        use std::hash::Hasher;
        for length in 0..64u8 {
            let bytes: Vec<u8> = (0..length).collect();
            let mut reference = std::collections::hash_map::DefaultHasher::new();
            reference.write(&bytes);
            assert_eq!(
                HashKey(0, 0).hash(&bytes),
                reference.finish(),
                "length {length}"
            );
        }
    }
}
