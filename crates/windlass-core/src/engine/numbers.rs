//! A quick hash for keys that are numbers we made ourselves or ids that are random already.

use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by such numbers.
pub type NumberMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Multiplies and folds; not for keys that an adversary may choose freely in number and value.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let folded = product ^ (product >> 64);
        self.0 = u64::from_le_bytes(folded.to_le_bytes()[..8].try_into().unwrap_or_default());
    }

    fn write_u128(&mut self, value: u128) {
        let bytes = value.to_le_bytes();
        self.write(&bytes);
    }
}
