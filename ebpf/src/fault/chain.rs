//! The programs that one packet goes through, each reached by a tail call from the one before, and what they hand on.

use aya_ebpf::programs::TcContext;

use crate::maps;
use crate::segment::Segment;

/// Places in the array of programs.
pub const READ: u32 = 0;
pub const FRAMES: u32 = 1;
pub const WRITE: u32 = 2;
/// None of them.
pub const DONE: u32 = 3;

/// After so many tail calls in a row a segment is not read further. Kernels allow 32 or 33; two writings and one more reading may follow.
pub const CALLS: u32 = 28;

/// Where a segment and its connection are, from one program to the next. What these compute from it the verifier then goes through once, and not
/// for each way there is to read a packet's headers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Place {
    /// The connection.
    pub flow: u64,
    pub segment: Segment,
    /// Offset of the TCP header in the packet.
    pub transport: u32,
    /// `side` of the segment.
    pub side: u32,
    /// Statuses that were decided on and are not written yet. With several in a segment they are written before the memory for them is full.
    pub unwritten: u32,
    /// Which program goes on after they are written; [`DONE`] if none.
    pub after: u32,
    /// Tail calls so far.
    pub calls: u32,
    /// What the reading has come upon. It stops there: what is done about a head is then in the program once, not in every step.
    pub found: Found,
}

/// The beginning of a message.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Found {
    /// Whether there is one.
    pub is_there: u32,
    /// Its place among those of its direction.
    pub index: u32,
    /// 0 of a request.
    pub status: u32,
    /// Where it begins in the payload.
    pub at: u32,
}

impl Found {
    pub const NOTHING: Self = Self { is_there: 0, index: 0, status: 0, at: 0 };
}

/// Goes on with another program, and is over; it comes back only if there is none.
#[inline(always)]
pub fn call(ctx: &TcContext, program: u32) {
    if let Some(place) = maps::place() {
        // SAFETY: this CPU's entry, and an array of programs of this type only.
        unsafe {
            (*place).calls += 1;
            maps::NEXT.tail_call(ctx, program);
        }
    }
}
