//! A fixed, fast hash for maps of short keys. Not for untrusted input: numbers are given out by the store, and callers of gates are
//! authenticated.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Makes the hashers of such maps.
pub type QuickState = BuildHasherDefault<KeyHasher>;
/// A map by a short key.
pub type KeyMap<K, V> = HashMap<K, V, QuickState>;
/// A set of short keys.
pub type KeySet<K> = HashSet<K, QuickState>;

const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hash of some bytes; the same in every process.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut h = KeyHasher::default();
    h.write(bytes);
    h.finish()
}

/// The hasher.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyHasher(u64);

impl KeyHasher {
    #[inline]
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(MIX);
    }
}

/// Fewer than eight bytes as a number, as if zeros followed.
#[inline]
fn short(bytes: &[u8]) -> u64 {
    let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) else {
        return bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    };
    // What both have is the same in both.
    u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (bytes.len() - 4))
}

impl Hasher for KeyHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        // The rest is read as part of the last eight bytes: to copy it together first would make the processor wait.
        let rest = match bytes.last_chunk::<8>() {
            _ if rest.is_empty() => 0,
            Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
            None => short(rest),
        };
        self.add(rest ^ ((bytes.len() as u64) << 56));
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }

    #[inline]
    fn write_i64(&mut self, n: i64) {
        self.add(n.cast_unsigned());
    }

    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.add(u64::from(n));
    }

    #[inline]
    fn finish(&self) -> u64 {
        // The map takes the low bits for its place and the high ones for its tags: both must depend on everything.
        let h = self.0 ^ (self.0 >> 32);
        h.wrapping_mul(MIX) ^ (h >> 29)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of Redis keys are made of these: they may not change.
    #[test]
    fn a_hash_stays_what_it_was() {
        let of = |text: &str| hash_bytes(text.as_bytes());
        assert_eq!(
            ["", "a", "seven77", "eight888", "nine99999", "a text of some length, and more"].map(of),
            [
                0x0000_0000_0000_0000,
                0x2390_474f_a419_9125,
                0xd58a_c8e9_cab6_064e,
                0xc2f3_8cb4_bf18_3ff0,
                0x5fb4_7792_b093_60af,
                0x2371_98c7_fde9_80ac
            ]
        );
    }
}
