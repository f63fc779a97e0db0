//! Eight bytes at a time: text as words, and the search for bytes in them.
#![allow(
    clippy::cast_possible_truncation,
    reason = "lanes of words and sequence numbers are meant to be cut; checked conversions could panic"
)]

pub(crate) const fn big_endian(text: &[u8]) -> u64 {
    let mut word = 0;
    let mut at = 0;
    while at < text.len() {
        word = word << 8 | text[at] as u64;
        at += 1;
    }
    word
}

/// `text` as bytes of words, first byte lowest; position by shifting, since a table would need a bounded index.
pub(crate) const fn letters(text: &[u8], from: usize) -> u64 {
    let mut word = 0;
    let mut at = 0;
    while at < 8 && from + at < text.len() {
        word |= (text[from + at] as u64) << (8 * at);
        at += 1;
    }
    word
}

pub(crate) const ONES: u64 = 0x0101_0101_0101_0101;
pub(crate) const TOPS: u64 = 0x8080_8080_8080_8080;

/// Marks with 0x80 the bytes that equal `byte`; above the first of them the marks mean nothing.
#[inline(always)]
pub(crate) const fn bytes_equal(word: u64, byte: u8) -> u64 {
    let zeroed = word ^ (ONES * byte as u64);
    zeroed.wrapping_sub(ONES) & !zeroed & TOPS
}

/// The lowest marked byte, 0 to 7. Without counting zeros, for which BPF has no instruction.
#[inline(always)]
pub(crate) const fn first_marked(marks: u64) -> u32 {
    let lowest = marks & marks.wrapping_neg();
    ((((lowest >> 7).wrapping_sub(1) & ONES).wrapping_mul(ONES)) >> 56) as u32
}

/// Marks with 0x80 the bytes below `limit` (at most 128); above the first of them the marks mean nothing.
#[inline(always)]
pub(crate) const fn bytes_below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(ONES * limit as u64) & !word & TOPS
}

/// The number that eight decimal digits are, each a byte of 0 to 9, the first one lowest.
#[inline(always)]
pub(crate) const fn decimal(digits: u64) -> u64 {
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000 << 32 | 1) >> 32
}
