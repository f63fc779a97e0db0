//! What the kernel remembers of a connection whose answers a fault spoils.
//!
//! The requests are read so that an answer is known by the request that it belongs to, and so that nothing but an answer that is due is
//! touched. What was decided is remembered by the sequence number of the status, so that a segment that TCP sends again, however it is cut,
//! carries the same.

use super::http2::Frames;
use crate::conn::Book;
use crate::flow::{Flow, Place, Stretch};
use crate::http1::Machine;
use crate::recogniser::Recogniser as _;

/// Answers of a connection whose fate is remembered.
pub const ANSWERS: usize = 16;

/// State of one connection. Its two directions have one writer each, apart from the first segment.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exchange {
    /// Both directions as HTTP/1. The requests count as what arrives.
    pub flows: [Flow; 2],
    /// What belongs to the connection as a whole.
    pub book: Book,
    /// The first gap of each direction, with the machine as it was there: a segment that comes late is read in that state. Nothing is
    /// kept back here, unlike in the probe, since an answer has to be decided on when it passes.
    pub holes: [Flow; 2],
    /// Where the gaps end; at their marks if there is none.
    pub hole_ends: [u32; 2],
    /// Bit `index % 64` says that this request is one of those whose answers are selected. Request side.
    pub asked: u64,
    /// The response side as HTTP/2.
    pub frames: Frames,
    /// Sequence numbers of the statuses that are written over, the oldest overwritten by the next. Response side.
    pub answers: [u32; ANSWERS],
    /// Bit `index % 16`: the answer is in use.
    pub used: u32,
    /// How many were remembered so far.
    pub count: u32,
}

/// Which bytes of a segment are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// None: all of it passed before.
    Nothing,
    /// What lies at the mark.
    AtMark,
    /// What fills the gap.
    InHole,
}

impl Exchange {
    /// Chooses what is read of a segment of `len` bytes (1 or more) at `seq`.
    #[inline(always)]
    pub fn choose(&mut self, side: usize, seq: u32, len: u32) -> Chosen {
        let book = &mut self.book;
        let (flow, hole, hole_end) = (&mut self.flows[side & 1], &mut self.holes[side & 1], &mut self.hole_ends[side & 1]);
        flow.adopt::<Machine>(book, side);
        let last = seq.wrapping_add(len);
        let signed = |number: u32| number.cast_signed();
        if flow.begun != 0
            && signed(seq.wrapping_sub(flow.mark)) < 0
            && hole.mark != *hole_end
            && signed(last.wrapping_sub(hole.mark)) > 0
            && signed(seq.wrapping_sub(*hole_end)) < 0
        {
            let missing = seq.wrapping_sub(hole.mark);
            if signed(missing) > 0 {
                let machine = Machine::of(&mut hole.state);
                if !machine.bridge(missing) {
                    machine.forget_place();
                }
                hole.mark = seq;
            }
            hole.stretch.end = if signed(last.wrapping_sub(*hole_end)) > 0 { *hole_end } else { last };
            hole.stretch.source = Stretch::SEGMENT;
            return Chosen::InHole;
        }
        match flow.place::<Machine>(seq, len).0 {
            Place::Old => return Chosen::Nothing,
            Place::New => return Chosen::AtMark,
            Place::Ahead => {}
        }
        if hole.mark == *hole_end {
            *hole = *flow;
            *hole_end = seq;
        }
        Machine::of(&mut flow.state).forget_place();
        flow.mark = seq;
        flow.stretch.end = last;
        flow.stretch.source = Stretch::SEGMENT;
        Chosen::AtMark
    }

    /// To be called when bytes of the gap were read. At its end, what it tells of the state at the mark is carried over.
    #[inline(always)]
    pub fn merge(&mut self, side: usize) {
        let (flow, hole) = (&mut self.flows[side & 1], &mut self.holes[side & 1]);
        if hole.mark != self.hole_ends[side & 1] || !Machine::of(&mut flow.state).is_lost() {
            return;
        }
        let passed = flow.mark.wrapping_sub(hole.mark);
        if passed == 0 || Machine::of(&mut hole.state).bridge(passed) {
            flow.state = hole.state;
        }
    }

    /// Remembers a status that is to be written over.
    #[inline(always)]
    pub fn remember(&mut self, seq: u32) {
        let at = self.count as usize % ANSWERS;
        self.answers[at] = seq;
        self.used |= 1 << at;
        self.count = self.count.wrapping_add(1);
    }

    /// Notes whether a request is one of those that the fault is about.
    #[inline(always)]
    pub fn ask(&mut self, index: u32, is_meant: bool) {
        let bit = 1u64 << (index & 63);
        self.asked = if is_meant { self.asked | bit } else { self.asked & !bit };
    }

    /// Whether the answer with that index belongs to a request that the fault is about.
    #[inline(always)]
    #[must_use]
    pub const fn is_meant(&self, index: u32) -> bool {
        self.asked >> (index & 63) & 1 == 1
    }
}

const _: () = assert!(size_of::<Exchange>() == 192 + 128 + 8 + 8 + 24 + 64 + 8);
