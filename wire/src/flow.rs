//! One direction of a connection: which bytes of a segment are new, and the machine that reads them.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "lanes of words and sequence numbers are meant to be cut; checked conversions could panic"
)]
//!
//! The egress hook sees a retransmission again, and the ingress hook sees segments before TCP has put them in order. So
//! each direction keeps a mark, the end of what has passed; bytes before it are not read again. The mark moves on over
//! gaps, else one lost segment would stop the count for good. The first gap is remembered as a *hole*, with the machine
//! as it was there: when the missing segment comes it is read in that state.

use crate::http1::Machine;

/// Index of what lies at the mark.
pub const AT_MARK: usize = 0;
/// Index of what lies in the hole.
pub const IN_HOLE: usize = 1;

/// State of one direction.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// Read what lies at the mark, and in the hole.
    pub machines: [Machine; 2],
    /// Sequence numbers: after the last byte that passed, and of the first byte that the hole still lacks.
    pub marks: [u32; 2],
    /// End of the hole; equal to its mark when there is none.
    pub hole_end: u32,
    /// 1 once the mark is known.
    pub begun: u8,
    /// Must be zero.
    pub reserved: [u8; 3],
    /// The stretch that is being read.
    pub stretch: Stretch,
}

/// A stretch of a segment that is being read. It lies in the connection's memory and not in registers for the sake of the
/// verifier: it forgets what a stored value was, and so need not follow every way to get to it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stretch {
    /// Sequence number where this run over it started.
    pub start: u32,
    /// Sequence number where it ends.
    pub end: u32,
    /// Place in the bytes that are loaded.
    pub cursor: u16,
    /// How many bytes are loaded from the mark on; 0 if none.
    pub loaded: u16,
    /// [`AT_MARK`] or [`IN_HOLE`].
    pub which: u32,
    /// For the kernel programs, to store what the verifier shall forget.
    pub scratch: u64,
}

/// What to do with a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// All of it passed before.
    Old,
    /// Some of it is to be read; the flow's stretch says what.
    New,
}

/// What became of the hole that was just filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// Nothing to add.
    Done,
    /// The hole's head goes on in bytes that passed before it: it is to be counted as complete.
    HeadAssumed,
}

impl Flow {
    /// A direction whose first byte will have sequence number `next`.
    #[must_use]
    pub const fn new(machine: Machine, next: u32) -> Self {
        Self {
            machines: [machine, machine],
            marks: [next, 0],
            hole_end: 0,
            stretch: Stretch { start: 0, end: 0, cursor: 0, loaded: 0, which: 0, scratch: 0 },
            begun: 1,
            reserved: [0; 3],
        }
    }

    /// A direction that was joined in its middle: it begins with the next segment.
    #[must_use]
    pub const fn joined_late(machine: Machine) -> Self {
        Self { begun: 0, ..Self::new(machine.joined_late(), 0) }
    }

    /// The hole's length in bytes.
    #[inline(always)]
    #[must_use]
    pub fn hole_len(&self) -> u32 {
        self.hole_end.wrapping_sub(self.marks[IN_HOLE])
    }

    /// Finds the place of a segment of `len` bytes (1 or more) at `seq`. The second value is true if a gap was met that
    /// could be neither bridged nor remembered.
    #[inline(always)]
    pub fn place(&mut self, seq: u32, len: u32) -> (Place, bool) {
        if self.begun == 0 {
            self.begun = 1;
            self.marks[AT_MARK] = seq;
        }
        let end = seq.wrapping_add(len);
        let ahead = seq.wrapping_sub(self.marks[AT_MARK]) as i32;
        let mut forgot = false;
        if ahead > 0 {
            forgot = self.gap(ahead as u32);
            self.marks[AT_MARK] = seq;
        } else if ahead < 0 {
            if self.hole_len() != 0 && self.in_hole(seq, end) {
                return (Place::New, false);
            }
            if (end.wrapping_sub(self.marks[AT_MARK]) as i32) <= 0 {
                return (Place::Old, false);
            }
        }
        self.stretch.which = AT_MARK as u32;
        self.stretch.end = end;
        (Place::New, forgot)
    }

    /// `missing` bytes at the mark did not come (yet). Whether they were forgotten for good.
    #[inline(always)]
    fn gap(&mut self, missing: u32) -> bool {
        let before = self.machines[AT_MARK];
        if self.machines[AT_MARK].bridge(missing) {
            return false;
        }
        self.machines[AT_MARK].lose();
        if self.hole_len() != 0 {
            return true;
        }
        self.machines[IN_HOLE] = before;
        self.marks[IN_HOLE] = self.marks[AT_MARK];
        self.hole_end = self.marks[AT_MARK].wrapping_add(missing);
        false
    }

    /// Whether the segment has bytes that the hole lacks.
    #[inline(always)]
    fn in_hole(&mut self, seq: u32, end: u32) -> bool {
        let mark = self.marks[IN_HOLE];
        if (end.wrapping_sub(mark) as i32) <= 0 || (seq.wrapping_sub(self.hole_end) as i32) >= 0 {
            return false;
        }
        let missing = seq.wrapping_sub(mark) as i32;
        if missing > 0 {
            // The hole's own beginning is still missing. What was there is bridged or given up.
            if !self.machines[IN_HOLE].bridge(missing as u32) {
                self.machines[IN_HOLE].lose();
            }
            self.marks[IN_HOLE] = seq;
        }
        let beyond = end.wrapping_sub(self.hole_end) as i32;
        self.stretch.which = IN_HOLE as u32;
        self.stretch.end = if beyond > 0 { self.hole_end } else { end };
        true
    }

    /// To be called when bytes of the hole were read. At its end, what it tells of the state at the mark is carried over.
    #[inline(always)]
    pub fn merge(&mut self) -> Merge {
        if self.hole_len() != 0 || !self.machines[AT_MARK].is_lost() {
            return Merge::Done;
        }
        if self.machines[IN_HOLE].in_head() {
            return Merge::HeadAssumed;
        }
        let passed = self.marks[AT_MARK].wrapping_sub(self.hole_end);
        if self.machines[IN_HOLE].bridge(passed) || passed == 0 {
            self.machines[AT_MARK] = self.machines[IN_HOLE];
        }
        Merge::Done
    }
}

const _: () = assert!(size_of::<Flow>() == 72);
