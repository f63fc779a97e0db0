//! Bytes that came before others that are still missing: a ring of them, and which ones are there.
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "differences of sequence numbers are signed, and a ring is small"
)]
//!
//! A byte's place in the ring is its sequence number modulo the ring's size. Rings are few and shared by all connections, so one
//! exists only while something is missing.

/// Bytes that one ring holds.
pub const RING: usize = 1 << 16;
/// Bytes are copied in blocks of this size, which never cross the ring's end.
pub const BLOCK: usize = 1 << 12;
/// Stretches that one ring tells apart.
pub const STRETCHES: usize = 8;

/// Which bytes are in a ring. Stretches may overlap; one that ends at or before the mark is free.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ranges {
    /// Sequence number of each stretch's first byte, and the one after its last.
    pub all: [(u32, u32); STRETCHES],
}

/// A ring. The first block is there twice, so that a stretch of a block's length can be read from any place; the block after
/// that is never used, and is there for the verifier, which bounds place and length apart.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ring {
    /// What is in it.
    pub ranges: Ranges,
    /// Where copying into it has got to. In memory for the sake of the verifier.
    pub cursor: u64,
    /// Bytes by sequence number.
    pub data: [u8; RING + 2 * BLOCK],
}

impl core::fmt::Debug for Ring {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ring").field("ranges", &self.ranges).finish_non_exhaustive()
    }
}

impl Ranges {
    /// Whether bytes up to `to` can be kept while `mark` is what is read next.
    #[inline(always)]
    #[must_use]
    pub const fn reaches(mark: u32, to: u32) -> bool {
        to.wrapping_sub(mark) <= RING as u32
    }

    /// Enters a stretch; false if there is no room for one more.
    #[inline(always)]
    pub fn add(&mut self, mark: u32, from: u32, to: u32) -> bool {
        let mut at = 0;
        let mut free = STRETCHES;
        while at < STRETCHES {
            let (first, last) = self.all[at];
            if (last.wrapping_sub(mark) as i32) <= 0 || first == last {
                free = at;
            } else if (from.wrapping_sub(last) as i32) <= 0 && (first.wrapping_sub(to) as i32) <= 0 {
                if (from.wrapping_sub(first) as i32) < 0 {
                    self.all[at].0 = from;
                }
                if (to.wrapping_sub(last) as i32) > 0 {
                    self.all[at].1 = to;
                }
                return true;
            }
            at += 1;
        }
        if free < STRETCHES {
            self.all[free] = (from, to);
        }
        free < STRETCHES
    }

    /// The end of the bytes that are there from `mark` on; `mark` itself if there are none.
    #[inline(always)]
    #[must_use]
    pub fn end_from(&self, mark: u32) -> u32 {
        let mut at = 0;
        let mut end = mark;
        while at < STRETCHES {
            let (first, last) = self.all[at];
            end = choose(!is_beyond(first, mark) & is_beyond(last, end), last, end);
            at += 1;
        }
        end
    }

    /// The first byte beyond `mark` that is there, or `seq` if that comes before: where to go on when what is missing is given up.
    #[inline(always)]
    #[must_use]
    pub fn next_after(&self, mark: u32, seq: u32) -> u32 {
        let mut at = 0;
        let mut next = seq;
        while at < STRETCHES {
            let (first, last) = self.all[at];
            next = choose(is_beyond(first, mark) & is_beyond(next, first) & differ(first, last), first, next);
            at += 1;
        }
        next
    }

    /// Whether nothing is there from `mark` on.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self, mark: u32) -> bool {
        let mut at = 0;
        let mut any = 0;
        while at < STRETCHES {
            let (first, last) = self.all[at];
            any |= is_beyond(last, mark) & differ(first, last);
            at += 1;
        }
        any == 0
    }
}

/// All ones if `seq` comes after `other`, else zero. By arithmetic, here and below, and not by a branch: the verifier would follow both
/// ways of each of a ring's stretches to the end.
#[inline(always)]
fn is_beyond(seq: u32, other: u32) -> u32 {
    is_positive(seq.wrapping_sub(other) as i32 as i64)
}

/// All ones if the two are not the same.
#[inline(always)]
fn differ(one: u32, other: u32) -> u32 {
    is_positive((one ^ other) as i64)
}

/// `one` where the mask has ones, `other` where it has zeroes.
#[inline(always)]
const fn choose(mask: u32, one: u32, other: u32) -> u32 {
    other ^ ((other ^ one) & mask)
}

/// All ones if the number, which is far from overflowing, is above zero. The compiler sees neither the number nor the mask for what it is: it would make
/// a branch of it again.
#[inline(always)]
fn is_positive(number: i64) -> u32 {
    hide(hide(number).wrapping_neg() >> 63) as u32
}

/// A number of which the compiler knows nothing.
#[inline(always)]
fn hide(number: i64) -> i64 {
    #[cfg(target_arch = "bpf")]
    let number = {
        let mut number = number;
        // SAFETY: a move onto itself.
        unsafe { core::arch::asm!("{0} = {0}", inout(reg) number, options(pure, nomem, nostack, preserves_flags)) };
        number
    };
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_touch_become_one_and_others_stay_apart() {
        let mut ranges = Ranges::default();
        assert!(ranges.is_empty(0));
        assert!(ranges.add(0, 10, 20) && ranges.add(0, 30, 40) && ranges.add(0, 20, 25));
        assert_eq!((ranges.end_from(5), ranges.end_from(10), ranges.end_from(30)), (5, 25, 40));
        assert!(ranges.add(0, 25, 30));
        let end = ranges.end_from(10);
        assert_eq!(ranges.end_from(end), 40);
        assert!(!ranges.is_empty(39) && ranges.is_empty(40));
    }

    #[test]
    fn more_stretches_than_are_told_apart_are_refused_until_some_were_read() {
        let mut ranges = Ranges::default();
        for at in 0..8 {
            assert!(ranges.add(0, 100 * at + 1, 100 * at + 2));
        }
        assert!(!ranges.add(0, 900, 901));
        assert!(ranges.add(2, 900, 901));
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut ranges = Ranges::default();
        assert!(ranges.add(u32::MAX - 9, u32::MAX - 4, 5));
        assert_eq!(ranges.end_from(u32::MAX - 4), 5);
        assert!(Ranges::reaches(u32::MAX - 9, 65_526) && !Ranges::reaches(u32::MAX - 9, 65_527));
    }
}
