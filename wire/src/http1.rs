//! The HTTP/1.x recogniser: a resumable machine over one direction of one connection.
#![allow(
    clippy::cast_possible_truncation,
    reason = "lanes of words and sequence numbers are meant to be cut; checked conversions could panic"
)]
//!
//! It looks at the bytes through a [`Window`], one at a time or eight at once where a line holds nothing of interest. The
//! same code runs in the kernel, in unit tests and in the fuzzer. It neither allocates nor panics, and its 16 bytes of
//! state live in the socket's storage, so that a head may be split at any byte.
//!
//! The phase is read and written as volatile memory. Without that the compiler keeps it in a register across bytes, the
//! verifier follows every value that it may have had, and the program is refused for its size.

mod chunks;
mod head;
mod machine;
mod stride;
pub(crate) mod words;

pub use crate::recogniser::{Step, Window};
pub use machine::is_read;

/// What the machine is in the middle of. Ordered: everything from `Body` on passes bytes without looking at them.
pub mod phase {
    /// Between messages; empty lines are skipped.
    pub const START: u8 = 0;
    /// In a request's method.
    pub const METHOD: u8 = 1;
    /// In the rest of a request line.
    pub const TARGET: u8 = 2;
    /// In `HTTP/1.x` of a status line.
    pub const VERSION: u8 = 3;
    /// In the three digits.
    pub const STATUS: u8 = 4;
    /// In the rest of a line that holds nothing of interest.
    pub const LINE: u8 = 5;
    /// At the first byte of a header line.
    pub const LINE_START: u8 = 6;
    /// After the CR of the empty line.
    pub const END: u8 = 7;
    /// Within what may become `content-length`.
    pub const NAME_LENGTH: u8 = 8;
    /// Within what may become `transfer-encoding`.
    pub const NAME_ENCODING: u8 = 9;
    /// In the value of `content-length`.
    pub const LENGTH: u8 = 10;
    /// In the value of `transfer-encoding`.
    pub const ENCODING: u8 = 11;
    /// In the lines of a 101, which say to what the connection is switched.
    pub const SWITCH: u8 = 12;
    /// In a chunk's size.
    pub const CHUNK_SIZE: u8 = 13;
    /// In a chunk's extension.
    pub const CHUNK_EXTENSION: u8 = 14;
    /// In the line end after a chunk's data.
    pub const CHUNK_END: u8 = 15;
    /// At the first byte of a trailer line.
    pub const TRAILER_START: u8 = 16;
    /// In a trailer line.
    pub const TRAILER: u8 = 17;
    /// In a body of known length; [`Machine::pass`](super::Machine::pass) says how much is left.
    pub const BODY: u8 = 18;
    /// In a chunk's data.
    pub const CHUNK: u8 = 19;
    /// In a body that ends with the connection.
    pub const UNTIL_CLOSE: u8 = 20;
    /// After an upgrade or CONNECT: no longer HTTP.
    pub const OPAQUE: u8 = 21;
    /// Lost; waits for a segment that starts like a message.
    pub const LOST: u8 = 22;
    /// The stream never was HTTP/1.x.
    pub const FOREIGN: u8 = 23;
}

/// What follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// As the head's own fields say.
    AsDeclared,
    /// None, whatever the fields say (answers to HEAD; 1xx, 204, 304).
    None,
    /// The connection is no longer HTTP.
    Opaque,
}

/// State of one direction. All zero is a fresh stream of requests.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Machine {
    /// Last bytes of the line, then the content length, then what is left of body or chunk.
    acc: u64,
    /// Status code of the response whose head is being read, or was read last.
    status: u16,
    /// Bytes of the current head so far, at most 65535.
    head: u16,
    /// See [`phase`].
    phase: u8,
    /// Position within a token.
    at: u8,
    flags: u8,
    reserved: u8,
}

const RESPONSE: u8 = 1;
const HAS_LENGTH: u8 = 2;
const CHUNKED: u8 = 4;
const HEAD: u8 = 8;
const CONNECT: u8 = 16;
/// Of responses: the connection goes on as HTTP/2.
const H2C: u8 = HEAD;
/// A whole head was seen in this direction, or the stream was joined late: failing means lost, not foreign.
const KNOWN: u8 = 32;
/// The last byte was a CR.
const CR: u8 = 64;
/// Reading on after losing the place; the first line decides whether it was found again.
const TENTATIVE: u8 = 128;

impl Machine {
    /// A fresh stream of requests.
    #[must_use]
    pub const fn requests() -> Self {
        Self { acc: 0, status: 0, head: 0, phase: phase::START, at: 0, flags: 0, reserved: 0 }
    }

    /// A fresh stream of responses.
    #[must_use]
    pub const fn responses() -> Self {
        Self { flags: RESPONSE, ..Self::requests() }
    }

    /// The same direction of a stream that was joined in its middle.
    #[must_use]
    pub const fn joined_late(self) -> Self {
        Self { flags: self.flags & RESPONSE | KNOWN, phase: phase::LOST, acc: 0, status: 0, head: 0, at: 0, reserved: 0 }
    }

    /// Which part of the stream is being read; see [`phase`].
    #[inline(always)]
    #[must_use]
    pub fn phase(&self) -> u8 {
        // SAFETY: a reference is valid for reads.
        unsafe { core::ptr::read_volatile(&raw const self.phase) }
    }

    #[inline(always)]
    fn set_phase(&mut self, phase: u8) {
        // SAFETY: a reference is valid for writes.
        unsafe { core::ptr::write_volatile(&raw mut self.phase, phase) }
    }

    /// Status code of the response whose head ended last.
    #[inline(always)]
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the status line was read far enough to know the code.
    #[inline(always)]
    #[must_use]
    pub fn status_known(&self) -> bool {
        let phase = self.phase();
        // After the blank and three digits.
        let is_read = (phase::LINE..=phase::SWITCH).contains(&phase) || (phase == phase::STATUS && self.at == 4);
        self.flags & RESPONSE != 0 && is_read
    }

    /// Bytes of the current head so far; of the last one after [`Step::Complete`].
    #[inline(always)]
    #[must_use]
    pub fn bytes_of_head(&self) -> u32 {
        self.head as u32
    }

    /// The request's method is HEAD.
    #[inline(always)]
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.flags & HEAD != 0
    }

    /// The response, a 101, switches to HTTP/2.
    #[inline(always)]
    #[must_use]
    pub fn is_to_h2c(&self) -> bool {
        self.flags & (RESPONSE | H2C) == RESPONSE | H2C && self.status == 101
    }

    /// The request's method is CONNECT.
    #[inline(always)]
    #[must_use]
    pub fn is_connect(&self) -> bool {
        self.flags & CONNECT != 0
    }

    /// A head has begun and not ended.
    #[inline(always)]
    #[must_use]
    pub fn is_in_head(&self) -> bool {
        let phase = self.phase();
        (phase::METHOD..=phase::SWITCH).contains(&phase)
    }

    /// Bytes pass unread until the connection ends, or until a segment that starts like a message.
    #[inline(always)]
    #[must_use]
    pub fn looks_at_nothing(&self) -> bool {
        self.phase() >= phase::UNTIL_CLOSE
    }

    /// The stream is not HTTP/1.x.
    #[inline(always)]
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.phase() == phase::FOREIGN
    }

    /// The place in the stream is not known.
    #[inline(always)]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.phase() == phase::LOST
    }

    /// Nothing after is HTTP.
    #[inline(always)]
    pub fn make_opaque(&mut self) {
        self.set_phase(phase::OPAQUE);
    }

    /// Forgets the place; the next segment that starts like a message finds it again.
    #[inline(always)]
    pub fn forget_place(&mut self) {
        self.flags |= KNOWN;
        self.set_phase(phase::LOST);
    }

    /// To be called where a segment starts: a lost stream looks for a message there. Whether it does.
    #[inline(always)]
    pub fn at_segment_start(&mut self) -> bool {
        let lost = self.is_lost();
        if lost {
            self.flags |= TENTATIVE;
            self.set_phase(phase::START);
        }
        lost
    }

    /// The bytes were not HTTP/1.x. A stream that was recognised before is lost; a new one is foreign (then true).
    #[inline(always)]
    pub fn give_up(&mut self) -> bool {
        let known = self.flags & (KNOWN | TENTATIVE) != 0;
        self.set_phase(if known { phase::LOST } else { phase::FOREIGN });
        !known
    }

    /// Whether the next bytes are skipped.
    #[inline(always)]
    #[must_use]
    pub fn has_body(&self) -> bool {
        let phase = self.phase();
        phase == phase::BODY || phase == phase::CHUNK
    }

    /// Passes over as much of `available` as the body or chunk still has; how much that was.
    #[inline(always)]
    pub fn pass(&mut self, available: u32) -> u32 {
        let left = self.acc;
        if left > available as u64 {
            self.acc = left - available as u64;
            return available;
        }
        self.acc = 0;
        self.at = 0;
        self.set_phase(if self.phase() == phase::CHUNK { phase::CHUNK_END } else { phase::START });
        left as u32
    }

    /// Whether `missing` bytes can be passed without reading them; if so they are passed.
    #[inline(always)]
    pub fn pass_missing(&mut self, missing: u32) -> bool {
        if self.has_body() && self.acc >= missing as u64 {
            self.pass(missing);
            return true;
        }
        self.looks_at_nothing() && !self.is_lost()
    }

    /// Bytes of body that the head just read announces; `u64::MAX` if it does not say how many.
    #[inline(always)]
    #[must_use]
    pub fn declared_body(&self) -> u64 {
        if self.flags & CHUNKED != 0 {
            u64::MAX
        } else if self.flags & HAS_LENGTH != 0 {
            self.acc
        } else if self.flags & RESPONSE != 0 {
            u64::MAX
        } else {
            0
        }
    }

    /// Decides what follows the head whose end was just reported.
    #[inline(always)]
    pub fn finish_head(&mut self, body: Body) {
        let declared = self.flags;
        self.flags = declared & RESPONSE | KNOWN;
        self.at = 0;
        let phase = match body {
            Body::Opaque => phase::OPAQUE,
            Body::None => phase::START,
            Body::AsDeclared if declared & CHUNKED != 0 => {
                self.acc = 0;
                phase::CHUNK_SIZE
            }
            Body::AsDeclared if declared & HAS_LENGTH != 0 => {
                if self.acc == 0 {
                    phase::START
                } else {
                    phase::BODY
                }
            }
            Body::AsDeclared if declared & RESPONSE != 0 => phase::UNTIL_CLOSE,
            Body::AsDeclared => phase::START,
        };
        self.set_phase(phase);
    }

    /// Takes one byte or more at `at`, of which `left` (1 or more) are there. Returns how many were taken.
    #[inline(always)]
    pub fn take(&mut self, window: &impl Window, at: u32, left: u32) -> (u32, Step) {
        let phase = self.phase();
        if phase <= phase::LINE_START || phase == phase::LENGTH {
            let (taken, step) = self.stride(phase, window, at, left);
            if taken > 0 {
                return (taken, step);
            }
        }
        let step = self.byte(window.byte(at));
        (1, step)
    }

    #[inline(always)]
    fn grow(&mut self, by: u16) {
        let head = self.head as u32 + by as u32;
        self.head = if head > 0xffff { 0xffff } else { head as u16 };
    }

    #[inline(always)]
    fn byte(&mut self, b: u8) -> Step {
        let phase = self.phase();
        if phase <= phase::SWITCH { self.head_byte(phase, b) } else { self.body_byte(phase, b) }
    }
}

const _: () = assert!(size_of::<Machine>() == 16);
