//! A hasher for keys that are one word: socket cookies, which count up, and hashes. One multiplication each.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds [`WordHasher`]s.
pub(crate) type ByWord = BuildHasherDefault<WordHasher>;

/// Hashes one `u64`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(word ^ self.0 ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f_u128;
        #[expect(clippy::cast_possible_truncation, reason = "both halves of the product are folded into one word")]
        let folded = product as u64 ^ (product >> 64) as u64;
        self.0 = folded;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn consecutive_words_differ_in_their_high_and_low_bits() {
        // The standard map takes its bucket from the low bits and its tag from the top seven.
        let by_word = ByWord::default();
        let low: std::collections::HashSet<u64> = (0..1024_u64).map(|word| by_word.hash_one(word) & 0x3ff).collect();
        let high: std::collections::HashSet<u64> = (0..1024_u64).map(|word| by_word.hash_one(word) >> 57).collect();
        assert!(low.len() > 500, "{}", low.len());
        assert!(high.len() > 100, "{}", high.len());
    }
}
