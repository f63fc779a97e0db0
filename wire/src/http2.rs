//! The HTTP/2 recogniser, for gRPC too: frames; header blocks are decoded in user space.
#![allow(clippy::cast_possible_truncation, reason = "lanes of words are meant to be cut; checked conversions could panic")]
//!
//! A request is a stream that the client opens, counted when its header block is complete; a response is the end of a stream by the
//! server.

use crate::abi::{EventHeader, kind, protocol};
use crate::conn::{Book, side};
use crate::recogniser::{Note, Piece, Recogniser, Step, Window, tally};

/// Streams that one loss can hide: a frame that opens one takes ten bytes, and a window of more than 64 KiB is not lost and read on from. A number beyond that
/// was not counted up to; found by the fuzzer, which made a billion requests of one frame.
pub const MOST_MISSED: u32 = 65_536 / 10;

mod phase {
    /// In a frame's header.
    pub(super) const HEADER: u8 = 0;
    /// At the length of the padding.
    pub(super) const PADDING: u8 = 1;
    /// In a header block.
    pub(super) const BLOCK: u8 = 2;
    /// In what else is told of.
    pub(super) const TOLD: u8 = 3;
    /// In what is passed over.
    pub(super) const BODY: u8 = 4;
    /// In what is passed over before a header block.
    pub(super) const PRIORITY: u8 = 5;
    /// A stream's end is to be told.
    pub(super) const DONE: u8 = 6;
    /// Lost.
    pub(super) const LOST: u8 = 7;
    /// Never was HTTP/2.
    pub(super) const FOREIGN: u8 = 8;
}

/// Frame types.
mod frame {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PUSH_PROMISE: u8 = 5;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const WINDOW_UPDATE: u8 = 8;
    pub(super) const CONTINUATION: u8 = 9;
    pub(super) const PRIORITY_UPDATE: u8 = 16;
    /// In the low half of `kind`; the phase is in the high one.
    pub(super) const MASK: u8 = 15;
}

/// Frame flags.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
const OF_FRAME: u8 = END_STREAM | END_HEADERS | PADDED | PRIORITY;
/// In the same byte: the header block that is being read ends its stream.
const BLOCK_ENDS_STREAM: u8 = 2;
/// Bytes were not read: header blocks cannot all be decoded, and streams may have been opened unseen.
const MISSED: u8 = 0x10;
/// A frame was read where it was expected: failing means lost.
const KNOWN: u8 = 0x40;
const RESPONSE: u8 = 0x80;

/// Length of the client's preface, which is passed over.
pub(crate) const PREFACE: u32 = 24;
/// Longest payload that a peer can allow.
const LONGEST: u32 = 0xff_ffff;
/// The same, unless one allows more: what is believed of a first frame.
const LONGEST_AT_FIRST: u32 = 1 << 20;
/// Bytes of a header block that are told at once; a place in a chunk has to fit in a byte.
const BLOCK_CAPTURE: u32 = 240;
/// Bytes of a message's start that are told.
const DATA_CAPTURE: u32 = 128;

/// State of one direction.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Http2 {
    /// What is left of the frame, padding included.
    left: u32,
    stream: u32,
    /// Bytes so far of the header block, after the piece that is told next.
    block: u32,
    /// Frame type, and phase.
    kind: u8,
    flags: u8,
    /// Bytes so far of the frame's header; then of the piece that is told.
    at: u8,
    /// Bytes of padding.
    padding: u8,
}

impl Http2 {
    #[inline(always)]
    fn phase(&self) -> u8 {
        self.kind >> 4
    }

    #[inline(always)]
    fn set_phase(&mut self, phase: u8) {
        self.kind = self.kind & frame::MASK | phase << 4;
    }

    #[inline(always)]
    fn is_response(&self) -> bool {
        self.flags & RESPONSE != 0
    }

    /// A frame's header is complete.
    #[inline(always)]
    fn frame(&mut self, kind: u8, flags: u8) -> Step {
        self.at = 0;
        self.padding = 0;
        self.stream &= 0x7fff_ffff;
        self.flags = self.flags & !OF_FRAME | flags & OF_FRAME;
        let tentative = self.flags & KNOWN == 0;
        if tentative && (kind > frame::PRIORITY_UPDATE || self.left > LONGEST_AT_FIRST) {
            return Step::Fail;
        }
        // Extensions are passed over, as a peer that does not know them would.
        let kind = if kind > frame::CONTINUATION { frame::WINDOW_UPDATE } else { kind };
        self.kind = kind;
        let has_stream = self.stream != 0;
        let must_have = kind <= frame::RST_STREAM || kind == frame::PUSH_PROMISE || kind == frame::CONTINUATION;
        if (must_have && !has_stream) || (has_stream && (kind == frame::SETTINGS || kind == frame::PING || kind == frame::GOAWAY)) {
            return Step::Fail;
        }
        if kind == frame::HEADERS || kind == frame::PUSH_PROMISE {
            self.block = 0;
            self.flags &= !BLOCK_ENDS_STREAM;
            if kind == frame::HEADERS && flags & END_STREAM != 0 {
                self.flags |= BLOCK_ENDS_STREAM;
            }
        } else if kind != frame::DATA && kind != frame::CONTINUATION {
            self.flags &= !PADDED;
        }
        if self.left != 0 && flags & PADDED != 0 && (kind <= frame::HEADERS || kind == frame::PUSH_PROMISE) {
            self.set_phase(phase::PADDING);
            return Step::More;
        }
        self.payload()
    }

    /// After the length of the padding, if any.
    #[inline(always)]
    fn payload(&mut self) -> Step {
        let kind = self.kind & frame::MASK;
        if self.padding as u32 > self.left {
            return Step::Fail;
        }
        let rest = self.left - self.padding as u32;
        if kind == frame::HEADERS && self.flags & PRIORITY != 0 || kind == frame::PUSH_PROMISE {
            let by = if kind == frame::PUSH_PROMISE { 4 } else { 5 };
            if rest < by {
                return Step::Fail;
            }
            if kind == frame::PUSH_PROMISE {
                // The promised stream is the server's own; any even number stands for it.
                self.stream = 2;
            }
            self.at = by as u8;
            self.set_phase(phase::PRIORITY);
            return Step::More;
        }
        if kind == frame::HEADERS || kind == frame::CONTINUATION {
            return self.block_begins();
        }
        let told = match kind {
            frame::DATA => !self.is_response() && rest > 0,
            frame::RST_STREAM => rest == 4,
            frame::GOAWAY => rest >= 8,
            frame::SETTINGS => self.flags & ACK == 0 && rest > 0 && rest <= BLOCK_CAPTURE,
            _ => false,
        };
        self.set_phase(if told { phase::TOLD } else { phase::BODY });
        if self.left == 0 { self.frame_ends() } else { Step::More }
    }

    #[inline(always)]
    fn block_begins(&mut self) -> Step {
        self.set_phase(phase::BLOCK);
        if self.left == self.padding as u32 {
            // An empty fragment: it may still be the block's last.
            self.at = 0;
            return Step::Complete;
        }
        Step::More
    }

    /// All of the frame has passed.
    #[inline(always)]
    fn frame_ends(&mut self) -> Step {
        self.at = 0;
        if self.kind & frame::MASK == frame::DATA && self.flags & END_STREAM != 0 {
            self.set_phase(phase::DONE);
            return Step::Complete;
        }
        self.set_phase(phase::HEADER);
        Step::More
    }

    /// To be called when what was told is done with.
    #[inline(always)]
    fn go_on(&mut self) {
        self.at = 0;
        if self.left == 0 {
            self.frame_ends();
        } else {
            self.set_phase(phase::BODY);
        }
    }

    /// The number that a reset or a farewell begins with, over as many segments as it takes: half of it says something else. In `block`, which no
    /// header block needs meanwhile.
    #[inline(always)]
    fn number(&mut self, window: &impl Window, at: u32, left: u32) -> (u32, Step) {
        let taken = if self.at == 0 && left >= 4 {
            self.block = (window.word(at) as u32).swap_bytes();
            4
        } else {
            self.block = self.block << 8 | window.byte(at) as u32;
            1
        };
        self.left -= taken;
        self.at += taken as u8;
        (taken, if self.at < 4 { Step::More } else { Step::Complete })
    }

    #[inline(always)]
    fn base(&self) -> Note {
        let from = if self.is_response() { EventHeader::FROM_SERVER } else { 0 };
        Note { index: self.stream, flags: from, ..Note::NONE }
    }

    /// A piece of a header block.
    #[inline(always)]
    fn block(&mut self, book: &mut Book, side: usize, base: Note) -> Note {
        let mut note = Note { kind: kind::BLOCK, ..base };
        let ends = self.flags & BLOCK_ENDS_STREAM != 0;
        if ends {
            note.flags |= EventHeader::END_STREAM;
        }
        let last = self.left == self.padding as u32;
        if last && self.flags & END_HEADERS != 0 {
            note.flags |= EventHeader::COMPLETE;
            if side == side::REQUEST {
                let before = book.of_requests;
                if self.stream > before && self.stream & 1 == 1 {
                    // Streams are numbered in steps of two: after a loss the numbers tell how many were missed, if that many can have been.
                    let steps = (self.stream - before) >> 1;
                    let opened = if self.flags & MISSED != 0 && before != 0 && steps <= MOST_MISSED { steps } else { 1 };
                    book.of_requests = self.stream;
                    book.request_count = book.request_count.wrapping_add(opened);
                    note.tally = tally::REQUEST;
                    note.times = opened;
                }
            } else if ends && self.stream & 1 == 1 {
                book.response_count = book.response_count.wrapping_add(1);
                note.tally = tally::RESPONSE;
            }
            self.flags &= !BLOCK_ENDS_STREAM;
        }
        if last {
            self.flags &= !END_STREAM;
            self.go_on();
        }
        self.at = 0;
        note
    }
}

// SAFETY: 16 bytes of integers.
unsafe impl Recogniser for Http2 {
    const PROTOCOL: u8 = protocol::HTTP2;

    #[inline(always)]
    fn fresh(side: usize) -> Self {
        let new = Self { left: 0, stream: 0, block: 0, kind: 0, flags: 0, at: 0, padding: 0 };
        if side == side::RESPONSE {
            return Self { flags: RESPONSE, ..new };
        }
        // The preface is passed over as if it were the rest of a frame that means nothing.
        Self { left: PREFACE, kind: phase::BODY << 4 | 8, ..new }
    }

    #[inline(always)]
    fn late(side: usize) -> Self {
        let flags = if side == side::RESPONSE { RESPONSE } else { 0 };
        Self { left: 0, stream: 0, block: 0, kind: phase::LOST << 4, flags: flags | MISSED, at: 0, padding: 0 }
    }

    #[inline(always)]
    fn begin(&mut self, _book: &Book, _side: usize) {
        if self.phase() == phase::LOST {
            self.at = 0;
            self.set_phase(phase::HEADER);
        }
    }

    #[inline(always)]
    fn step(&mut self, window: &impl Window, at: u32, left: u32) -> (u32, Step) {
        let phase = self.phase();
        if phase == phase::HEADER {
            if self.at == 0 && left >= 9 {
                let word = window.word(at);
                self.left = (word as u32).swap_bytes() >> 8;
                self.stream = ((word >> 40) as u32).swap_bytes() & !0xff | window.byte(at + 8) as u32;
                return (9, self.frame((word >> 24) as u8, (word >> 32) as u8));
            }
            let b = window.byte(at) as u32;
            let place = self.at;
            self.at += 1;
            if place == 0 {
                self.left = 0;
                self.stream = 0;
            }
            if place < 3 {
                self.left = self.left << 8 | b;
            } else if place == 3 {
                self.padding = b as u8;
            } else if place == 4 {
                // The last byte of the payload's length has moved up: type and flags wait in spare places.
                self.left |= b << 24;
            } else {
                self.stream = self.stream << 8 | b;
            }
            if self.at < 9 {
                return (1, Step::More);
            }
            let (kind, flags) = (self.padding, (self.left >> 24) as u8);
            self.left &= LONGEST;
            return (1, self.frame(kind, flags));
        }
        if phase == phase::PADDING {
            self.padding = window.byte(at);
            self.left -= 1;
            return (1, self.payload());
        }
        if phase == phase::PRIORITY {
            self.left -= 1;
            self.at -= 1;
            return (1, if self.at == 0 { self.block_begins() } else { Step::More });
        }
        if phase == phase::BLOCK || phase == phase::TOLD {
            let rest = self.left - self.padding as u32;
            let kind = self.kind & frame::MASK;
            if kind == frame::RST_STREAM || kind == frame::GOAWAY {
                return self.number(window, at, left);
            }
            let most = if kind == frame::DATA { DATA_CAPTURE } else { BLOCK_CAPTURE };
            let wanted = if rest > most { most } else { rest };
            if wanted > left && at > 0 {
                return (0, Step::Reload);
            }
            let taken = if wanted > left { left } else { wanted };
            self.left -= taken;
            self.at = taken as u8;
            return (taken, Step::Complete);
        }
        if phase != phase::BODY || self.left > left {
            return (0, Step::Skip);
        }
        let taken = self.left;
        self.left = 0;
        (taken, self.frame_ends())
    }

    #[inline(always)]
    fn complete(&mut self, book: &mut Book, side: usize) -> Note {
        let mut base = self.base();
        if self.flags & MISSED != 0 {
            base.flags |= EventHeader::JOINED_LATE;
        }
        self.flags |= KNOWN;
        let phase = self.phase();
        if phase == phase::BLOCK {
            self.block = self.block.wrapping_add(self.at as u32);
            return self.block(book, side, base);
        }
        if phase == phase::DONE {
            self.set_phase(phase::HEADER);
            self.flags &= !END_STREAM;
            base.flags |= EventHeader::END_STREAM;
            let answers = side == side::RESPONSE && self.stream & 1 == 1;
            if answers {
                book.response_count = book.response_count.wrapping_add(1);
            }
            return Note { kind: kind::STREAM_END, tally: if answers { tally::RESPONSE } else { tally::NONE }, ..base };
        }
        let of = self.kind & frame::MASK;
        let number = self.block;
        self.go_on();
        if of == frame::RST_STREAM || of == frame::GOAWAY {
            self.block = 0;
            if of == frame::GOAWAY {
                return Note { kind: kind::GO_AWAY, bare: true, index: number & 0x7fff_ffff, ..base };
            }
            // Codes that do not fit are nobody's.
            let code = if number > u16::MAX as u32 { u16::MAX } else { number as u16 };
            return Note { kind: kind::STREAM_RESET, bare: true, status: code, ..base };
        }
        Note { kind: if of == frame::DATA { kind::STREAM_DATA } else { kind::SETTINGS }, ..base }
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        self.phase() == phase::DONE
    }

    #[inline(always)]
    fn skips(&self) -> bool {
        self.phase() == phase::BODY
    }

    #[inline(always)]
    fn skip(&mut self, available: u32) -> u32 {
        let taken = if self.left > available { available } else { self.left };
        self.left -= taken;
        if self.left == 0 {
            self.frame_ends();
        }
        taken
    }

    #[inline(always)]
    fn bridge(&mut self, missing: u32) -> bool {
        if self.skips() && self.left >= missing {
            self.skip(missing);
            return true;
        }
        self.phase() == phase::FOREIGN
    }

    #[inline(always)]
    fn is_passive(&self) -> bool {
        self.phase() >= phase::LOST
    }

    #[inline(always)]
    fn lose(&mut self, _book: &mut Book, _side: usize) {
        self.flags = self.flags & !KNOWN | MISSED;
        self.set_phase(phase::LOST);
    }

    #[inline(always)]
    fn fail(&mut self) -> bool {
        let known = self.flags & (KNOWN | MISSED) != 0;
        self.flags = self.flags & !KNOWN | MISSED;
        self.set_phase(if known { phase::LOST } else { phase::FOREIGN });
        !known
    }

    #[inline(always)]
    fn in_head(&self) -> bool {
        false
    }

    #[inline(always)]
    fn head_len(&self) -> u32 {
        self.at as u32
    }

    #[inline(always)]
    fn piece(&self, _read: u32, to: u32) -> Piece {
        let len = if self.phase() == phase::DONE { 0 } else { self.at as u32 };
        let offset = if self.phase() == phase::BLOCK { self.block } else { 0 };
        Piece { from: to.wrapping_sub(len), to, offset }
    }

    #[inline(always)]
    fn part(&self, _book: &Book, _side: usize) -> Note {
        Note::NONE
    }
}
