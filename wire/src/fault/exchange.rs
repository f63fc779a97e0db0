//! What the kernel remembers of a connection whose answers a fault spoils.
//!
//! The requests are read so that an answer is known by the request that it belongs to, and so that nothing but an answer that is due is
//! touched. What was decided is remembered by the sequence number of the status, so that a segment that TCP sends again, however it is cut,
//! carries the same.

use super::http2::Frames;
use crate::conn::Conn;

/// Answers of a connection whose fate is remembered.
pub const ANSWERS: usize = 16;

/// State of one connection. Its two directions have one writer each, apart from the first segment.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exchange {
    /// Both directions as HTTP/1. The requests count as what arrives.
    pub conn: Conn,
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

impl Exchange {
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

const _: () = assert!(size_of::<Exchange>() == 192 + 8 + 24 + 64 + 8);
