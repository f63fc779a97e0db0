//! HTTP/2 among the protocols: how its frames are walked through, and what is told of them.
#![allow(clippy::cast_possible_truncation, reason = "lanes of words are meant to be cut; checked conversions could panic")]

use super::{BLOCK_CAPTURE, DATA_CAPTURE, END_STREAM, Http2, KNOWN, LONGEST, MISSED, PREFACE, RESPONSE, frame, phase};
use crate::abi::{EventHeader, kind, protocol};
use crate::conn::{Book, side};
use crate::recogniser::{Note, Piece, Recogniser, Step, Window, tally};

// SAFETY: 16 bytes of integers.
unsafe impl Recogniser for Http2 {
    const PROTOCOL: u8 = protocol::HTTP2;

    #[inline(always)]
    fn fresh(side: usize) -> Self {
        let new = Self { left: 0, stream: 0, block: 0, kind: 0, flags: 0, at: 0, padding: 0 };
        if side == side::RESPONSE {
            return Self { flags: RESPONSE, ..new };
        }
        Self { left: PREFACE, kind: phase::PREFACE << 4, ..new }
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
        if phase == phase::PREFACE {
            return self.preface(window, at, left);
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
