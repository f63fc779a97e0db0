//! The fast path: whole words of a line, where the slow path would find nothing of interest in them.
#![allow(
    clippy::cast_possible_truncation,
    reason = "lanes of words and sequence numbers are meant to be cut; checked conversions could panic"
)]

use super::words::{ONES, TOPS, bytes_below, bytes_equal, decimal, first_marked, letters};
use super::{CR, HAS_LENGTH, Machine, RESPONSE, Step, Window, phase};

/// Sets bit 5 where there are letters in `content-`, `length:` and `transfer`: lower case.
const CONTENT_CASE: u64 = 0x0020_2020_2020_2020;
const LENGTH_CASE: u64 = 0x0000_2020_2020_2020;
const TRANSFER_CASE: u64 = 0x2020_2020_2020_2020;

impl Machine {
    /// The fast path: what can be told from the next bytes at once. Takes none if they have to be looked at one by one. Never
    /// decides anything that the slow path would decide otherwise.
    #[inline(always)]
    pub(super) fn stride(&mut self, phase: u8, window: &impl Window, at: u32, left: u32) -> (u32, Step) {
        let word = window.word(at);
        if phase == phase::LINE {
            return (self.in_line(word, window, at, left), Step::More);
        }
        if phase == phase::LINE_START {
            return self.new_line(word, window, at, left);
        }
        if phase == phase::TARGET {
            return self.in_target(word, window.word(at + 8), left);
        }
        if phase == phase::LENGTH {
            return (self.whole_length(word, left), Step::More);
        }
        if phase == phase::START && left >= 16 {
            let taken = if self.flags & RESPONSE != 0 { self.status_line(word, window.word(at + 8)) } else { self.get(word) };
            return (taken, Step::More);
        }
        (0, Step::More)
    }

    /// Up to thirty-two bytes of a line, or as many as it still has.
    #[inline(always)]
    fn in_line(&mut self, word: u64, window: &impl Window, at: u32, left: u32) -> u32 {
        let mut before = 0;
        let mut ends = bytes_equal(word, b'\n');
        if ends == 0 {
            before = 8;
            ends = bytes_equal(window.word(at + 8), b'\n');
            if ends == 0 {
                before = 16;
                ends = bytes_equal(window.word(at + 16), b'\n');
                if ends == 0 {
                    before = 24;
                    ends = bytes_equal(window.word(at + 24), b'\n');
                }
            }
        }
        let taken = if ends == 0 { 32 } else { before + first_marked(ends) + 1 };
        if taken > left {
            // What was looked at beyond is not there.
            self.grow(left as u16);
            return left;
        }
        self.grow(taken as u16);
        if ends != 0 {
            self.set_phase(phase::LINE_START);
        }
        taken
    }

    /// The beginning of a header line: the end of the head, one of the two names that matter, or neither.
    #[inline(always)]
    fn new_line(&mut self, word: u64, window: &impl Window, at: u32, left: u32) -> (u32, Step) {
        let first = word as u8;
        if first == b'\r' || first == b'\n' {
            if left >= 2 && word as u16 == u16::from_le_bytes(*b"\r\n") {
                self.grow(2);
                return (2, Step::Complete);
            }
            return (0, Step::More);
        }
        let lower = first | 0x20;
        if lower == b'c' || lower == b't' {
            if left < 16 {
                return (0, Step::More);
            }
            if word | CONTENT_CASE == letters(b"content-", 0) && (window.word(at + 8) | LENGTH_CASE) << 8 == letters(b"length:", 0) << 8 {
                self.grow(15);
                self.begin_value(phase::LENGTH);
                return (15, Step::More);
            }
            if word | TRANSFER_CASE == letters(b"transfer", 0) {
                return (0, Step::More);
            }
        }
        self.set_phase(phase::LINE);
        (self.in_line(word, window, at, left), Step::More)
    }

    /// The whole value of `content-length` where it is one to five digits and the end of the line, after one space or none.
    #[inline(always)]
    fn whole_length(&mut self, word: u64, left: u32) -> u32 {
        if left < 8 || self.acc != 0 || self.flags & HAS_LENGTH != 0 {
            return 0;
        }
        let space = (word as u8 == b' ') as u32;
        let word = word >> (8 * space);
        let digits = word ^ (ONES * b'0' as u64);
        let count = first_marked((((digits & !TOPS) + ONES * 0x76) | digits) & TOPS);
        if count == 0 || count > 5 || (word >> (8 * (count & 7))) as u16 != u16::from_le_bytes(*b"\r\n") {
            return 0;
        }
        self.flags |= HAS_LENGTH;
        self.acc = decimal(digits << ((64 - 8 * count) & 63));
        let taken = space + count + 2;
        self.grow(taken as u16);
        self.set_phase(phase::LINE_START);
        taken
    }

    /// Eight or sixteen bytes of a target and version, or its end.
    #[inline(always)]
    fn in_target(&mut self, word: u64, more: u64, left: u32) -> (u32, Step) {
        if left < 8 || self.flags & CR != 0 {
            return (0, Step::More);
        }
        let controls = bytes_below(word, 0x20);
        if controls == 0 {
            if left >= 16 && bytes_below(more, 0x20) == 0 {
                self.at = (word >> 56) as u8;
                self.acc = more.swap_bytes();
                self.grow(16);
                return (16, Step::More);
            }
            self.at = self.acc as u8;
            self.acc = word.swap_bytes();
            self.grow(8);
            return (8, Step::More);
        }
        let before = first_marked(controls);
        if before == 0 || before > 6 || (word >> (8 * (before & 7))) as u16 != u16::from_le_bytes(*b"\r\n") {
            return (0, Step::More);
        }
        // One to six bytes, then CR LF.
        let bits = 8 * (before & 7);
        self.at = (self.acc >> ((64 - bits) & 63)) as u8;
        self.acc = self.acc << bits | word.swap_bytes() >> ((64 - bits) & 63);
        self.grow(before as u16 + 2);
        (before + 2, self.target_ends())
    }

    /// `GET `, the most frequent beginning.
    #[inline(always)]
    fn get(&mut self, word: u64) -> u32 {
        if word as u32 as u64 != letters(b"GET ", 0) {
            return 0;
        }
        self.begin();
        self.grow(4);
        self.set_phase(phase::TARGET);
        4
    }

    /// `HTTP/1.x NNN` and the byte after it.
    #[inline(always)]
    fn status_line(&mut self, word: u64, more: u64) -> u32 {
        let minor = (word >> 56) as u8;
        let after = (more >> 32) as u8;
        if word << 8 != letters(b"HTTP/1.", 0) << 8 || minor.wrapping_sub(b'0') > 9 || more as u8 != b' ' {
            return 0;
        }
        let hundreds = (more >> 8) as u8;
        let (tens, ones) = ((more >> 16) as u8, (more >> 24) as u8);
        let (hundreds, tens, ones) = (hundreds.wrapping_sub(b'0'), tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
        if hundreds.wrapping_sub(1) > 8 || tens > 9 || ones > 9 || (after != b' ' && after != b'\r') {
            return 0;
        }
        self.begin();
        self.grow(13);
        self.status = hundreds as u16 * 100 + tens as u16 * 10 + ones as u16;
        self.reason_follows();
        13
    }
}
