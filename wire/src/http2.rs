//! The HTTP/2 recogniser, for gRPC too: frames; header blocks are decoded in user space.
#![allow(clippy::cast_possible_truncation, reason = "lanes of words are meant to be cut; checked conversions could panic")]
//!
//! A request is a stream that the client opens, counted when its header block is complete; a response is the end of a stream by the
//! server.

mod machine;

use crate::abi::{EventHeader, kind};
use crate::conn::{Book, side};
use crate::recogniser::{Note, Step, Window, tally};

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
    /// In the client's preface.
    pub(super) const PREFACE: u8 = 7;
    /// Lost.
    pub(super) const LOST: u8 = 8;
    /// Never was HTTP/2.
    pub(super) const FOREIGN: u8 = 9;
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

/// Length of the client's preface, and its words.
pub(crate) const PREFACE: u32 = 24;
const PREFACE_WORDS: [u64; 3] =
    [u64::from_le_bytes(*b"PRI * HT"), u64::from_le_bytes(*b"TP/2.0\r\n"), u64::from_le_bytes(*b"\r\nSM\r\n\r\n")];
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

    /// The next bytes of the preface. After it the connection is HTTP/2, whatever frames come (RFC 9113, 4.1 and 5.5).
    #[inline(always)]
    fn preface(&mut self, window: &impl Window, at: u32, left: u32) -> (u32, Step) {
        let place = PREFACE.wrapping_sub(self.left);
        let words = PREFACE_WORDS;
        let word = if place < 8 {
            words[0]
        } else if place < 16 {
            words[1]
        } else {
            words[2]
        };
        let (taken, differs) = if place & 7 == 0 && left >= 8 {
            (8, window.word(at) != word)
        } else {
            (1, window.byte(at) != (word >> (8 * (place & 7))) as u8)
        };
        if differs {
            return (taken, Step::Fail);
        }
        self.left = self.left.wrapping_sub(taken);
        if self.left == 0 {
            self.flags |= KNOWN;
            self.set_phase(phase::HEADER);
        }
        (taken, Step::More)
    }

    /// A frame's header is complete.
    #[inline(always)]
    fn frame(&mut self, kind: u8, flags: u8) -> Step {
        self.at = 0;
        self.padding = 0;
        self.stream &= 0x7fff_ffff;
        self.flags = self.flags & !OF_FRAME | flags & OF_FRAME;
        if self.flags & MISSED == 0 && kind == frame::SETTINGS && self.stream == 0 {
            // The server's preface. The client's own, which this frame follows, was read before.
            self.flags |= KNOWN;
        }
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
