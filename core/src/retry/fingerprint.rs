//! What makes two requests look alike: hashes, so that memory does not hold other people's data.
//!
//! The hashes are the same in every run, so that a sampling by identity can agree with them.

use std::hash::{DefaultHasher, Hash, Hasher};

/// How much of a body is compared.
pub const BODY_PREFIX: usize = 64;

/// Joins two hashes; the order matters, and for one left side no two right sides meet.
#[must_use]
pub const fn join(left: u64, right: u64) -> u64 {
    mix(mix(left.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ right)
}

/// The finaliser of SplitMix64: a bijection that spreads every bit.
const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Hash of some bytes.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Hash of a name that does not depend on case, such as a host.
#[must_use]
pub fn of_caseless(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for part in bytes.chunks(64) {
        let mut lower = [0; 64];
        let lower = &mut lower[..part.len()];
        lower.copy_from_slice(part);
        lower.make_ascii_lowercase();
        hasher.write(lower);
    }
    hasher.finish()
}

/// Hash of what was captured of a message that is `length` bytes long.
///
/// How much is captured depends on how the sender cut its segments. So of what was cut, only the bytes up to a round number are
/// compared: two captures of one message then nearly always agree.
#[must_use]
pub fn of_captured(bytes: &[u8], length: usize) -> u64 {
    let compared = if bytes.len() >= length {
        length
    } else {
        [2048, 1024, 512, 256, 128, 64, 32].into_iter().find(|round| *round <= bytes.len()).unwrap_or(0)
    };
    join(of_bytes(&bytes[..compared]), length as u64)
}

/// What was seen of a body's start.
///
/// How much was seen depends on how the sender cut its segments, so that two different lengths prove nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BodyPrefix {
    /// Bytes seen, at most [`BODY_PREFIX`].
    seen: u8,
    /// Their hash.
    hash: u64,
}

impl BodyPrefix {
    /// Takes the first [`BODY_PREFIX`] bytes of what was captured.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        let prefix = &body[..body.len().min(BODY_PREFIX)];
        if prefix.is_empty() {
            return Self::default();
        }
        Self { seen: u8::try_from(prefix.len()).unwrap_or(u8::MAX), hash: of_bytes(prefix) }
    }

    /// The two prove that their bodies differ.
    #[must_use]
    pub fn contradicts(self, other: Self) -> bool {
        self.seen == other.seen && self.hash != other.hash
    }
}

/// Everything by which one protocol's request is compared with others; two hashes and a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fingerprint {
    /// What is asked of whom: of an HTTP request, method and path without its query.
    pub target: u64,
    /// The whole call but for its body's bytes: of an HTTP request, method, authority, path, query, body length.
    pub call: u64,
    /// The body's start.
    pub body: BodyPrefix,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_depends_on_order_and_on_both_sides() {
        assert_ne!(join(1, 2), join(2, 1));
        assert_ne!(join(1, 2), join(1, 3));
        assert_ne!(join(0, 0), join(0, 1));
    }

    #[test]
    fn few_of_many_joined_small_numbers_collide() {
        let mut seen = std::collections::HashSet::new();
        for edge in 0..64 {
            for caller in 0..2000 {
                seen.insert(join(edge, caller));
            }
        }
        assert_eq!(seen.len(), 64 * 2000);
    }

    #[test]
    fn hosts_compare_without_case() {
        assert_eq!(of_caseless(b"Example.COM:80"), of_caseless(b"example.com:80"));
    }

    #[test]
    fn only_prefixes_of_one_length_can_contradict() {
        let (a, b) = (BodyPrefix::of(b"{\"id\":1}"), BodyPrefix::of(b"{\"id\":2}"));
        assert!(a.contradicts(b));
        assert!(!a.contradicts(a));
        assert!(!a.contradicts(BodyPrefix::of(b"")));
        assert!(!a.contradicts(BodyPrefix::of(b"{\"i")));
    }

    #[test]
    fn captures_of_different_length_agree_up_to_a_round_number() {
        let message: Vec<u8> = (0..200_u8).collect();
        assert_eq!(of_captured(&message[..130], 200), of_captured(&message[..199], 200));
        assert_ne!(of_captured(&message[..130], 200), of_captured(&message[..130], 201), "the length counts");
        assert_ne!(of_captured(&message, 200), of_captured(&message[..199], 200), "what is whole is compared as a whole");
        assert_eq!(of_captured(b"GET a; next message", 5), of_captured(b"GET a", 5));
    }

    #[test]
    fn bytes_after_the_prefix_do_not_matter() {
        let (mut a, mut b) = (vec![b'x'; BODY_PREFIX], vec![b'x'; BODY_PREFIX]);
        a.push(b'1');
        b.push(b'2');
        assert_eq!(BodyPrefix::of(&a), BodyPrefix::of(&b));
    }
}
