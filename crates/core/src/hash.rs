//! A fixed, fast hash for maps of short keys. Not for untrusted input: numbers are given out by the store, and callers of gates are
//! authenticated.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map by a short key.
pub type KeyMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;
/// A set of short keys.
pub type KeySet<K> = HashSet<K, BuildHasherDefault<KeyHasher>>;

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
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(MIX);
    }
}

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let mut eight = [0; 8];
            eight.copy_from_slice(word);
            self.add(u64::from_le_bytes(eight));
        }
        let rest = words.remainder();
        let mut eight = [0; 8];
        eight[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(eight) ^ ((bytes.len() as u64) << 56));
    }

    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }

    fn write_i64(&mut self, n: i64) {
        self.add(n.cast_unsigned());
    }

    fn write_u32(&mut self, n: u32) {
        self.add(u64::from(n));
    }

    fn finish(&self) -> u64 {
        // The map takes the low bits for its place and the high ones for its tags: both must depend on everything.
        let h = self.0 ^ (self.0 >> 32);
        h.wrapping_mul(MIX) ^ (h >> 29)
    }
}
