//! One direction of a connection: which bytes of a segment are new, and the machine that reads them.
//!
//! The egress hook sees a retransmission again, and the ingress hook sees segments before TCP has put them in order. So
//! each direction keeps a mark, the end of what has passed; bytes before it are not read again. The mark moves on over
//! gaps, else one lost segment would stop the count for good. The first gap is remembered as a *hole*, with the machine
//! as it was there: when the missing segment comes it is read in that state.

use crate::http1::Machine;

/// State of one direction.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// Reads what lies at the mark.
    pub machine: Machine,
    /// Reads what lies in the hole.
    pub hole: Machine,
    /// The mark: sequence number after the last byte that passed.
    pub next: u32,
    /// First missing byte of the hole.
    pub hole_start: u32,
    /// End of the hole; equal to `hole_start` when there is none.
    pub hole_end: u32,
    /// 1 once `next` is known.
    pub begun: u32,
}

/// What to do with a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// All of it passed before.
    Old,
    /// Read with `machine`, from this offset in the payload.
    AtMark(u32),
    /// Read with `hole`, from the first offset to the second.
    InHole(u32, u32),
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
        Self { machine, hole: machine, next, hole_start: 0, hole_end: 0, begun: 1 }
    }

    /// The hole's length in bytes.
    #[inline(always)]
    #[must_use]
    pub fn hole_len(&self) -> u32 {
        self.hole_end.wrapping_sub(self.hole_start)
    }

    /// Finds the place of a segment of `len` bytes (1 or more) at `seq`. The second value is true if a gap was met that
    /// could be neither bridged nor remembered.
    #[inline(always)]
    pub fn place(&mut self, seq: u32, len: u32) -> (Place, bool) {
        if self.begun == 0 {
            self.begun = 1;
            self.next = seq;
        }
        let ahead = seq.wrapping_sub(self.next) as i32;
        if ahead == 0 {
            return (Place::AtMark(0), false);
        }
        if ahead > 0 {
            let forgot = self.gap(ahead as u32);
            self.next = seq;
            return (Place::AtMark(0), forgot);
        }
        if self.hole_start != self.hole_end
            && let Some(place) = self.in_hole(seq, len)
        {
            return (place, false);
        }
        let behind = ahead.unsigned_abs();
        if behind >= len { (Place::Old, false) } else { (Place::AtMark(behind), false) }
    }

    /// `missing` bytes at the mark did not come (yet). Whether they were forgotten for good.
    #[inline(always)]
    fn gap(&mut self, missing: u32) -> bool {
        let before = self.machine;
        if self.machine.bridge(missing) {
            return false;
        }
        self.machine.lose();
        if self.hole_start != self.hole_end {
            return true;
        }
        self.hole = before;
        self.hole_start = self.next;
        self.hole_end = self.next.wrapping_add(missing);
        false
    }

    #[inline(always)]
    fn in_hole(&mut self, seq: u32, len: u32) -> Option<Place> {
        let end = seq.wrapping_add(len);
        let from_start = self.hole_start.wrapping_sub(seq) as i32;
        if (end.wrapping_sub(self.hole_start) as i32) <= 0 || (seq.wrapping_sub(self.hole_end) as i32) >= 0 {
            return None;
        }
        let mut from = 0;
        if from_start > 0 {
            from = from_start as u32;
        } else if from_start < 0 {
            // The hole's own beginning is still missing. What was there is bridged or given up.
            if !self.hole.bridge(from_start.unsigned_abs()) {
                self.hole.lose();
            }
            self.hole_start = seq;
        }
        let beyond = end.wrapping_sub(self.hole_end) as i32;
        let to = if beyond > 0 { len - beyond as u32 } else { len };
        Some(Place::InHole(from, to))
    }

    /// `count` bytes at the mark were read.
    #[inline(always)]
    pub fn advance(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
    }

    /// `count` bytes in the hole were read. At its end, what it tells of the state at the mark is carried over.
    #[inline(always)]
    pub fn advance_hole(&mut self, count: u32) -> Merge {
        self.hole_start = self.hole_start.wrapping_add(count);
        if self.hole_start != self.hole_end || !self.machine.is_lost() {
            return Merge::Done;
        }
        let passed = self.next.wrapping_sub(self.hole_end);
        if self.hole.in_head() {
            return Merge::HeadAssumed;
        }
        if self.hole.bridge(passed) || passed == 0 {
            self.machine = self.hole;
        }
        Merge::Done
    }
}

const _: () = assert!(size_of::<Flow>() == 48);
