//! Which requests user space is told of, where it could not follow all of them: a share of the *identities*.
//!
//! An identity is what a request and its retries have in common at their beginning, so that all attempts of one, with their answers, are told
//! or left out together. Counts have no part in this: they are exact whatever is told. HTTP/2 is always told of, since each of its header blocks
//! is needed to read the next.

use crate::abi::protocol;
use crate::http1::words::{bytes_equal, first_marked};

/// Words of a request's beginning that are looked at.
pub const WORDS: usize = 8;
/// The same in bytes.
pub const BYTES: usize = 8 * WORDS;

/// The share that leaves nothing out.
pub const EVERYTHING: u32 = u32::MAX;

/// Requests under way of which a connection knows apart whether they are left out.
pub const APART: u32 = 64;

/// Answers come after their number was counted: one less than [`APART`] for the answer that is just told.
const SURELY_APART: u32 = APART - 1;

/// Whether request `index` has the fate of the one that is [`APART`] before it, which may still be under way.
#[inline(always)]
#[must_use]
pub const fn shares_fate(index: u32, answered: u32) -> bool {
    index.wrapping_sub(answered) >= SURELY_APART
}

/// Whether an identity is among those that are told. `turn` moves on which they are: every identity has its turn.
#[inline(always)]
#[must_use]
pub const fn is_told(identity: u32, turn: u32, share: u32) -> bool {
    identity.wrapping_add(turn) <= share
}

const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
const SECOND: u64 = 0xbf58_476d_1ce4_e5b9;

#[inline(always)]
const fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(FIRST);
    hash ^ hash >> 32
}

/// MySQL: the command is byte 4 of its packet.
const COMMAND: u32 = 32;
const PREPARE: u64 = 0x16;
/// The first of the commands that call a prepared statement by its number, in bytes 5 to 8.
const EXECUTE: u64 = 0x17;
const FETCH: u64 = 0x1c;

/// The number of what a request of `protocol` asks for, given the first `len` bytes of it (1 or more), of which [`BYTES`] are looked at. `word` gives
/// each of their words, the first byte lowest; bytes beyond `len` may be anything. It is asked for in turn, and once for each.
///
/// `None` if the request must be told in any case: what it prepares is called by a name later, or it calls something by its connection's own name.
///
/// Of HTTP/1 that is the request line: method and target, as far as they are there.
#[inline(always)]
#[must_use]
pub fn identity(word: impl Fn(usize) -> u64, len: u32, protocol: u8) -> Option<u32> {
    let mut first = word(0);
    let mut of_second = u64::MAX;
    if protocol == protocol::MYSQL {
        let command = first >> COMMAND & 0xff;
        if command == PREPARE {
            return None;
        }
        // The same statement has another number on another connection.
        if command.wrapping_sub(EXECUTE) <= FETCH - EXECUTE {
            first &= 0xff_ffff_ffff;
            of_second = !0xff;
        }
    } else if protocol == protocol::POSTGRES {
        let (kind, name) = (first & 0xff, first >> 40 & 0xff);
        if kind != b'Q' as u64 && (kind != b'P' as u64 || name != 0) {
            return None;
        }
    }
    let to_line_end = protocol == protocol::HTTP1;
    let mut hash = SECOND;
    // Written out: before 5.12 the kernel lets some memory be reached at constant places only.
    #[expect(clippy::never_loop, reason = "the way to leave a sequence early")]
    loop {
        macro_rules! each {
            ($($at:literal: $word:expr;)*) => {
                $(
                    let left = len.wrapping_sub(8 * $at);
                    // A length below it has gone round.
                    if left.wrapping_sub(1) >= u32::MAX / 2 {
                        break;
                    }
                    let mut word: u64 = $word;
                    if left < 8 {
                        word &= (1 << (8 * left as u64)) - 1;
                    }
                    let ends = bytes_equal(word, b'\r');
                    if to_line_end && ends != 0 {
                        hash = mix(hash, word & ((1 << (8 * first_marked(ends) as u64)) - 1));
                        break;
                    }
                    hash = mix(hash, word);
                )*
            };
        }
        each! {
            0: first;
            1: word(1) & of_second;
            2: word(2);
            3: word(3);
            4: word(4);
            5: word(5);
            6: word(6);
            7: word(7);
        }
        break;
    }
    Some(((hash ^ hash >> 29).wrapping_mul(SECOND) >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8], protocol: u8) -> Option<u32> {
        // What lies behind the bytes is not theirs.
        let mut padded = [0xa5_u8; BYTES];
        let len = bytes.len().min(BYTES);
        padded[..len].copy_from_slice(&bytes[..len]);
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(padded.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        identity(|at| words[at], u32::try_from(bytes.len()).unwrap_or(u32::MAX), protocol)
    }

    fn http(bytes: &[u8]) -> Option<u32> {
        of(bytes, protocol::HTTP1)
    }

    #[test]
    fn attempts_are_one_identity_whatever_their_headers_and_their_length() {
        let first = http(b"GET /orders/17?a=b HTTP/1.1\r\nx-attempt: 1\r\nhost: a\r\n\r\n");
        assert_eq!(first, http(b"GET /orders/17?a=b HTTP/1.1\r\nx-attempt: 2\r\n\r\n"));
        assert_eq!(first, http(b"GET /orders/17?a=b HTTP/1.1\r"));
        for other in
            ["GET /orders/18?a=b HTTP/1.1\r\n", "PUT /orders/17?a=b HTTP/1.1\r\n", "GET /orders/17 HTTP/1.1\r\n", "GET / HTTP/1.1\r\n"]
        {
            assert_ne!(first, http(other.as_bytes()), "{other}");
        }
        // What is behind the first bytes is not looked at, and what is before is, wherever the line ends.
        for length in 0..BYTES {
            let line = "/".repeat(length);
            assert_eq!(http(format!("{line}\rx").as_bytes()), http(format!("{line}\ry").as_bytes()), "{length}");
            assert_ne!(http(format!("{line}a\r").as_bytes()), http(format!("{line}b\r").as_bytes()), "{length}");
        }
        let long = "/".repeat(BYTES);
        assert_eq!(http(format!("{long}a\r").as_bytes()), http(format!("{long}b\r").as_bytes()));
    }

    #[test]
    fn other_protocols_have_no_lines() {
        let redis = |text: &[u8]| of(text, protocol::REDIS);
        assert_ne!(redis(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"), redis(b"*2\r\n$3\r\nGET\r\n$1\r\nb\r\n"));
        assert_eq!(redis(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"), redis(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"));
    }

    #[test]
    fn a_statement_is_the_same_by_any_number_and_is_always_seen_prepared() {
        let call = |number: u8, parameter: u8| of(&[18, 0, 0, 0, 0x17, number, 1, 2, 3, 0, 1, 0, 0, 0, 0, 1, parameter], protocol::MYSQL);
        assert!(call(1, 7).is_some());
        assert_eq!(call(1, 7), call(2, 7));
        assert_ne!(call(1, 7), call(1, 8));
        assert_eq!(of(b"\x09\0\0\0\x16SELECT 1", protocol::MYSQL), None);
        assert_ne!(of(b"\x09\0\0\0\x03SELECT 1", protocol::MYSQL), of(b"\x09\0\0\0\x03SELECT 2", protocol::MYSQL));
        assert!(of(b"Q\0\0\0\x0dSELECT 1\0", protocol::POSTGRES).is_some());
        assert!(of(b"P\0\0\0\x10\0SELECT $1\0\0\0", protocol::POSTGRES).is_some());
        assert_eq!(of(b"P\0\0\0\x13s_1\0SELECT $1\0\0\0", protocol::POSTGRES), None);
        assert_eq!(of(b"B\0\0\0\x13\0s_1\0\0\0\0\0\0\0", protocol::POSTGRES), None);
    }

    #[test]
    fn a_share_of_the_identities_is_told_and_each_of_them_in_its_turn() {
        let all: Vec<u32> = (0..40_000).filter_map(|at| http(format!("GET /items/{at} HTTP/1.1\r\n").as_bytes())).collect();
        for halvings in 0..6 {
            let share = EVERYTHING >> halvings;
            for turn in (0_u32..5).map(|turn| turn.wrapping_mul(0x9e37_79b9)) {
                let told = all.iter().filter(|&&identity| is_told(identity, turn, share)).count() as f64;
                let expected = 40_000.0 / 2_f64.powi(halvings);
                assert!((told - expected).abs() <= 5.0 * expected.sqrt(), "{told} of {expected}");
                // A smaller share is a part of a larger one.
                assert!(all.iter().all(|&identity| !is_told(identity, turn, share / 2) || is_told(identity, turn, share)));
            }
        }
        assert!(all.iter().all(|&identity| is_told(identity, 77, EVERYTHING)));
    }

    #[test]
    fn a_bit_is_taken_over_while_its_request_may_be_under_way() {
        assert!(!shares_fate(62, 0) && shares_fate(63, 0) && shares_fate(1000, 0));
        assert!(!shares_fate(5, 5));
        assert!(!shares_fate(2, u32::MAX - 3) && shares_fate(70, u32::MAX - 3));
    }
}
