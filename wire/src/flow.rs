//! One direction of a connection: which bytes of a segment are new, and the state of the machine that reads them.
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_possible_truncation,
    reason = "differences of sequence numbers are signed, and lanes cut"
)]
//!
//! The egress hook sees a retransmission again, and the ingress hook sees segments before TCP has put them in order. So
//! each direction keeps a mark, the end of what was read; bytes before it are not read again. A segment beyond the mark is kept
//! in a ring until what lies between has come (see `ring`), so that a machine sees the stream in order.

use crate::conn::Book;
use crate::recogniser::{Bridge, Recogniser, State, Unread};

/// State of one direction.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// The machine.
    pub state: State,
    /// The machine as it was when the chunk was loaded.
    pub saved: State,
    /// Sequence number after the last byte that was read.
    pub mark: u32,
    /// 1 once the mark is known.
    pub begun: u8,
    /// Whose state it is; see `abi::protocol`.
    pub protocol: u8,
    /// 1 while bytes from beyond the mark are kept in a ring; [`Flow::EARLY`] if nobody has looked at them yet.
    pub stored: u8,
    /// [`Flow::LATE`], [`Flow::LOST`].
    pub flags: u8,
    /// The stretch that is being read.
    pub stretch: Stretch,
    /// Requests of which nothing is told, by the lower bits of their numbers: the first half of 64 is with the requests, the second with the
    /// responses. Request side, both of them.
    pub left_out: u32,
}

/// A stretch of a stream that is being read. It lies in the connection's memory and not in registers for the sake of the
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
    /// [`Stretch::SEGMENT`] or [`Stretch::RING`].
    pub source: u32,
    /// For the kernel programs, to store what the verifier shall forget.
    pub scratch: u32,
}

impl Stretch {
    /// The bytes are those of the packet at hand.
    pub const SEGMENT: u32 = 0;
    /// The bytes came before, and lie in the ring.
    pub const RING: u32 = 1;
}

/// What to do with a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// All of it was read before.
    Old,
    /// Some of it is to be read; the flow's stretch says what.
    New,
    /// What comes before it is missing.
    Ahead,
}

impl Flow {
    /// In `stored`: bytes came with the end of the handshake.
    pub const EARLY: u8 = 2;
    /// In `flags`: the direction was joined in its middle.
    pub const LATE: u8 = 1;
    /// In `flags`: bytes were given up, and the machine does not know it yet.
    pub const LOST: u8 = 2;
    /// In `flags`: the protocol is looked for in the middle.
    pub const MIDDLE: u8 = Self::LATE | Self::LOST;

    /// A direction whose first byte will have sequence number `next`.
    #[must_use]
    pub const fn new(next: u32) -> Self {
        Self {
            state: State([0; 2]),
            saved: State([0; 2]),
            mark: next,
            begun: 1,
            protocol: 0,
            stored: 0,
            flags: 0,
            stretch: Stretch { start: 0, end: 0, cursor: 0, loaded: 0, source: 0, scratch: 0 },
            left_out: 0,
        }
    }

    /// A direction that was joined in its middle: it begins with the next segment.
    #[must_use]
    pub const fn joined_late() -> Self {
        Self { begun: 0, flags: Self::LATE, ..Self::new(0) }
    }

    /// Makes the state that of a protocol's machine, if it is not yet.
    #[inline(always)]
    pub fn adopt<M: Recogniser>(&mut self, book: &mut Book, side: usize) {
        if self.protocol != M::PROTOCOL {
            // What goes on with another protocol begins that one under our eyes.
            let is_late = self.flags & Self::LATE != 0 && self.protocol == 0;
            self.protocol = M::PROTOCOL;
            self.state = if is_late { M::late(side).keep() } else { M::fresh(side).keep() };
        }
        if self.flags & Self::LOST != 0 {
            self.flags &= !Self::LOST;
            M::of(&mut self.state).lose(book, side);
        }
    }

    /// Finds the place of a segment of `len` bytes (1 or more) at `seq`. Returns also how many missing bytes the machine need not see.
    #[inline(always)]
    pub fn place<M: Bridge>(&mut self, seq: u32, len: u32) -> (Place, u32) {
        if self.begun == 0 {
            self.begun = 1;
            self.mark = seq;
        }
        let end = seq.wrapping_add(len);
        let ahead = seq.wrapping_sub(self.mark) as i32;
        let mut bridged = 0;
        if ahead > 0 {
            if !M::bridged(&mut self.state, ahead.cast_unsigned()) {
                return (Place::Ahead, 0);
            }
            bridged = ahead.cast_unsigned();
            self.mark = seq;
        } else if (end.wrapping_sub(self.mark) as i32) <= 0 {
            return (Place::Old, 0);
        }
        self.stretch.end = end;
        self.stretch.source = Stretch::SEGMENT;
        (Place::New, bridged)
    }

    /// The same before the protocol is known.
    #[inline(always)]
    pub fn place_unread(&mut self, seq: u32, len: u32) -> (Place, u32) {
        self.place::<Unread>(seq, len)
    }

    /// All of the stretch is kept, though it was looked at in the middle of a stream: it may be the beginning of a message.
    #[inline(always)]
    pub fn keeps(&mut self) {
        // Nobody's state yet.
        self.state = State([KEPT | self.stretch.end as u64, 0]);
    }

    /// The stretch is passed over; how many bytes. If some of it was kept before, no more than that: what came since may begin a message itself.
    #[inline(always)]
    pub fn passes(&mut self) -> u32 {
        let State([kept, _]) = self.state;
        self.state = State([0; 2]);
        let (mark, end) = (self.mark, self.stretch.end);
        let past = (kept as u32).wrapping_sub(mark);
        let all = end.wrapping_sub(mark);
        let passed = if kept & KEPT != 0 && past.wrapping_sub(1) < all { past } else { all };
        self.mark = mark.wrapping_add(passed);
        passed
    }

    /// What lies between the mark and `seq` is given up.
    #[inline(always)]
    pub fn give_up(&mut self, seq: u32) {
        self.mark = seq;
        self.flags |= Self::LOST;
    }
}

/// In the state of a stream whose protocol is not known yet: the sequence number below is where what was kept ends.
const KEPT: u64 = 1 << 32;

const _: () = assert!(size_of::<Flow>() == 64);
