//! The Redis recogniser: RESP2, RESP3 and inline commands.
#![allow(clippy::cast_possible_truncation, reason = "lanes of words are meant to be cut; checked conversions could panic")]
//!
//! A command is counted at its last byte, a reply at the end of its first line, which says whether it is an error. Nested
//! replies need no stack: an aggregate adds its elements to those that are still to come. Pushed messages and attributes answer
//! nothing, and neither does what comes while no command waits (messages of subscriptions, MONITOR). Only the commands that subscribe and unsubscribe
//! are answered by pushed messages in RESP3, one for each channel: the request side marks them, and the first confirmation is the answer.

use crate::abi::protocol;
use crate::conn::{Book, side};
use crate::detect::BY_TEXT;
use crate::http1::words::{ONES, TOPS, bytes_equal, first_marked, letters};
use crate::recogniser::{Note, Recogniser, Step, Window, part_of};

mod phase {
    /// Between messages.
    pub(super) const START: u8 = 0;
    /// At the first byte of an element.
    pub(super) const ELEMENT: u8 = 1;
    /// In the number of a length or count.
    pub(super) const NUMBER: u8 = 2;
    /// In a line that holds a value, or an inline command.
    pub(super) const LINE: u8 = 3;
    /// In a value of known length.
    pub(super) const BULK: u8 = 4;
    /// In a command's name that may be one of those that subscribe.
    pub(super) const NAME: u8 = 5;
    /// A command is complete.
    pub(super) const DONE: u8 = 6;
    /// Lost.
    pub(super) const LOST: u8 = 7;
    /// Never was Redis.
    pub(super) const FOREIGN: u8 = 8;
}

const RESPONSE: u8 = 1;
/// A message was read: failing means lost.
const KNOWN: u8 = 2;
const NEGATIVE: u8 = 4;
const CR: u8 = 8;
/// What is read is the message itself, not an element of it.
const TOP: u8 = 16;
/// The next message decides whether the place was found again.
const TENTATIVE: u8 = 32;
/// Of responses: nothing but a command in plain text says that this is Redis, so the first answer decides.
const DOUBTED: u8 = 64;
/// Of requests: the next value is the command's name.
const NAMELESS: u8 = 64;
/// Of requests: the command subscribes or unsubscribes. Of responses: the first element of a pushed message is read.
const PUSHES: u8 = 128;

/// What all commands end with that are answered by a pushed message, and the lengths of their names, which are what such a message begins with.
const SUBSCRIBE: &[u8; 9] = b"subscribe";
const SHORTEST_NAME: u32 = 9;
const LONGEST_NAME: u32 = 12;
/// Commands in flight that are told apart.
const MARKS: u32 = 256;

/// In `at`: the stream was joined in its middle, and not read yet.
const JOINED: u8 = 0xff;

/// Longest value, as the server's own limit.
const MOST_BYTES: u32 = 512 << 20;
const MOST_ELEMENTS: u32 = 1 << 24;

/// State of one direction. All zero is a fresh stream of commands.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Redis {
    /// The number that is being read, or what is left of a value and its line end.
    left: u32,
    /// Elements of the message that are still to come, this one included.
    pending: u32,
    /// Bytes of the message so far.
    head: u32,
    phase: u8,
    flags: u8,
    /// Digits of the number so far.
    at: u8,
    /// First byte of the element, or of the message once that was told.
    kind: u8,
}

impl Redis {
    #[inline(always)]
    fn is_response(&self) -> bool {
        self.flags & RESPONSE != 0
    }

    #[inline(always)]
    fn grow(&mut self, by: u32) {
        self.head = self.head.saturating_add(by);
    }

    /// The first byte of a message or an element, and the number after it where it is all there.
    #[inline(always)]
    fn element(&mut self, window: &impl Window, at: u32, left: u32) -> (u32, Step) {
        let b = window.byte(at);
        let is_request = !self.is_response();
        if self.phase == phase::START {
            if is_request && (b == b'\r' || b == b'\n') {
                return (1, Step::More);
            }
            self.head = 0;
            self.pending = 1;
            let doubted = !is_request && self.flags & DOUBTED != 0;
            self.flags = self.flags & (RESPONSE | KNOWN | TENTATIVE) | TOP;
            if doubted && !begins_a_reply(b, window.byte(at + 1), left) {
                self.phase = phase::DONE;
                return (0, Step::Complete);
            }
        }
        let top = self.flags & TOP != 0;
        self.kind = b;
        self.left = 0;
        self.at = 0;
        self.flags &= !(NEGATIVE | CR);
        let counted = if is_request {
            if b != b'*' && top {
                if self.flags & TENTATIVE != 0 || b.wrapping_sub(0x20) >= 0x5f {
                    return (1, Step::Fail);
                }
                self.grow(1);
                self.phase = phase::LINE;
                return (1, Step::More);
            }
            b == if top { b'*' } else { b'$' }
        } else {
            is_one_of(b, *b"$*=!~%>|")
        };
        self.grow(1);
        if !counted {
            if is_request || !is_one_of(b, *b"+-:_#,(+") {
                return (1, Step::Fail);
            }
            self.phase = phase::LINE;
            return (1, Step::More);
        }
        self.phase = phase::NUMBER;
        let word = window.word(at + 1);
        let digits = digits(word);
        if digits == 0 || digits > 6 || digits + 3 > left || word >> (8 * digits) as u64 & 0xffff != 0x0a0d {
            return (1, Step::More);
        }
        self.left = decimal(word, digits);
        self.grow(digits + 2);
        (digits + 3, self.number_ends())
    }

    #[inline(always)]
    fn number(&mut self, b: u8) -> Step {
        self.grow(1);
        let digit = b.wrapping_sub(b'0');
        if digit <= 9 && self.flags & CR == 0 {
            if self.at >= 9 {
                return Step::Fail;
            }
            self.at += 1;
            self.left = self.left.wrapping_mul(10).wrapping_add(digit as u32);
            return Step::More;
        }
        if b == b'-' && self.at == 0 && self.flags & (CR | NEGATIVE) == 0 {
            self.flags |= NEGATIVE;
            return Step::More;
        }
        if b == b'\r' && self.at > 0 && self.flags & CR == 0 {
            self.flags |= CR;
            return Step::More;
        }
        if b == b'\n' && self.flags & CR != 0 { self.number_ends() } else { Step::Fail }
    }

    /// A length or a count is complete: in `left`.
    #[inline(always)]
    fn number_ends(&mut self) -> Step {
        let number = self.left;
        let null = self.flags & NEGATIVE != 0;
        let top = self.flags & TOP != 0;
        self.flags &= !TOP;
        let is_value = self.kind == b'$' || self.kind == b'=' || self.kind == b'!';
        if number > if is_value { MOST_BYTES } else { MOST_ELEMENTS } {
            return Step::Fail;
        }
        if !self.is_response() {
            if is_value {
                if null {
                    return Step::Fail;
                }
                self.left = number + 2;
                let may_subscribe = self.flags & NAMELESS != 0 && (SHORTEST_NAME..=LONGEST_NAME).contains(&number);
                self.flags &= !NAMELESS;
                self.phase = if may_subscribe { phase::NAME } else { phase::BULK };
            } else if null || number == 0 {
                // The server answers nothing to it.
                self.phase = phase::START;
                self.head = 0;
            } else {
                self.pending = number;
                self.flags |= NAMELESS;
                self.phase = phase::ELEMENT;
            }
            return Step::More;
        }
        let silent = self.kind == b'>' || self.kind == b'|';
        if is_value && !null {
            self.left = number + 2;
            self.phase = phase::BULK;
        } else {
            self.left = 0;
            let pairs = self.kind == b'%' || self.kind == b'|';
            let more = if null || is_value { 0 } else { number << pairs as u32 };
            // Attributes come before what they belong to, and take no place of their own; those of a message are one of their own.
            let own = (self.kind != b'|' || top) as u32;
            self.pending = self.pending.wrapping_sub(own).wrapping_add(more);
            self.phase = if self.pending == 0 { phase::START } else { phase::ELEMENT };
        }
        if top {
            if self.kind == b'>' {
                self.flags |= PUSHES;
            }
            return if silent { Step::More } else { Step::Complete };
        }
        let begins_a_push = self.flags & PUSHES != 0;
        // No message of a channel (`message`, `pmessage`) is as long.
        if begins_a_push && is_value && (SHORTEST_NAME..=LONGEST_NAME).contains(&number) {
            return Step::Complete;
        }
        self.flags &= !PUSHES;
        Step::More
    }

    /// A byte of a name, whose last nine decide: the others are `p`, `s`, and `un`.
    #[inline(always)]
    fn name(&mut self, b: u8) -> Step {
        self.grow(1);
        self.left = self.left.wrapping_sub(1);
        // Bytes of the name that are still to come.
        let after = self.left.wrapping_sub(2);
        if after < SHORTEST_NAME {
            let at = SHORTEST_NAME - 1 - after;
            let wanted = if at < 8 { (letters(SUBSCRIBE, 0) >> (8 * at)) as u8 } else { SUBSCRIBE[8] };
            if b | 0x20 != wanted {
                self.phase = phase::BULK;
            } else if after == 0 {
                self.flags |= PUSHES;
                self.phase = phase::BULK;
            }
        }
        Step::More
    }

    /// A value is complete.
    #[inline(always)]
    fn element_ends(&mut self) -> Step {
        self.pending = self.pending.wrapping_sub(1);
        if self.pending != 0 {
            self.phase = phase::ELEMENT;
            return Step::More;
        }
        if self.is_response() {
            self.phase = phase::START;
            return Step::More;
        }
        self.phase = phase::DONE;
        Step::Complete
    }

    /// Up to eight bytes of a line.
    #[inline(always)]
    fn line(&mut self, window: &impl Window, at: u32, left: u32) -> (u32, Step) {
        let ends = bytes_equal(window.word(at), b'\n');
        let taken = if ends == 0 { 8 } else { first_marked(ends) + 1 };
        if taken > left {
            self.grow(left);
            return (left, Step::More);
        }
        self.grow(taken);
        if ends == 0 {
            return (taken, Step::More);
        }
        let top = self.flags & TOP != 0;
        self.flags &= if self.is_response() { !(TOP | PUSHES) } else { !TOP };
        let step = self.element_ends();
        (taken, if top { Step::Complete } else { step })
    }
}

/// Whether the command that is answered next is one that a pushed message answers.
#[inline(always)]
fn is_marked(book: &Book) -> bool {
    let index = book.response_count;
    let in_flight = book.request_count.wrapping_sub(index);
    in_flight != 0 && in_flight <= MARKS && book.ring[(index >> 6) as usize & 3] >> (index & 63) & 1 != 0
}

/// Whether something begins like a reply to a simple command: IRC's messages begin with a colon, too.
#[inline(always)]
fn begins_a_reply(b: u8, next: u8, left: u32) -> bool {
    let number = next.wrapping_sub(b'0') <= 9 || next == b'-' || left < 2;
    b == b'+' || b == b'-' || (is_one_of(b, *b"$*:_%>|~") && (number || b == b'_'))
}

#[inline(always)]
fn is_one_of(b: u8, all: [u8; 8]) -> bool {
    bytes_equal(u64::from_le_bytes(all), b) != 0
}

/// How many of the word's first bytes are digits, 0 to 7.
#[inline(always)]
fn digits(word: u64) -> u32 {
    let off = word ^ (ONES * b'0' as u64);
    let others = (off & !TOPS).wrapping_add(ONES * 0x76) | off;
    first_marked(others & TOPS | 1 << 63)
}

/// The number that the word's first `count` bytes are, 1 to 7 digits.
#[inline(always)]
fn decimal(word: u64, count: u32) -> u32 {
    let lanes = (word << ((64 - 8 * count) & 63)) & (ONES * 15);
    let pairs = (lanes.wrapping_mul(2561) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(6_553_601) >> 16) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(42_949_672_960_001) >> 32) as u32
}

// SAFETY: 16 bytes of integers.
unsafe impl Recogniser for Redis {
    const PROTOCOL: u8 = protocol::REDIS;

    #[inline(always)]
    fn fresh(side: usize) -> Self {
        Self { left: 0, pending: 0, head: 0, phase: phase::START, flags: side as u8 & RESPONSE, at: 0, kind: 0 }
    }

    #[inline(always)]
    fn late(side: usize) -> Self {
        Self { phase: phase::LOST, flags: side as u8 & RESPONSE | KNOWN, at: JOINED, ..Self::fresh(side) }
    }

    #[inline(always)]
    fn begin(&mut self, book: &Book, side: usize) {
        let by_text = book.looked == BY_TEXT;
        let is_new = self.flags & KNOWN == 0 || self.at == JOINED;
        if by_text && is_new && side == side::RESPONSE {
            self.flags |= DOUBTED;
        }
        if self.phase == phase::LOST {
            // The segment that the protocol was recognised by was looked at whole.
            if !(by_text && is_new && side == side::REQUEST) {
                self.flags |= TENTATIVE;
            }
            self.at = 0;
            self.phase = phase::START;
        }
    }

    #[inline(always)]
    fn step(&mut self, window: &impl Window, at: u32, left: u32) -> (u32, Step) {
        let phase = self.phase;
        if phase <= phase::ELEMENT {
            return self.element(window, at, left);
        }
        if phase == phase::NUMBER {
            return (1, self.number(window.byte(at)));
        }
        if phase == phase::LINE {
            return self.line(window, at, left);
        }
        if phase == phase::NAME {
            return (1, self.name(window.byte(at)));
        }
        if phase != phase::BULK || self.left > left {
            return (0, Step::Skip);
        }
        let taken = self.left;
        self.grow(taken);
        self.left = 0;
        (taken, self.element_ends())
    }

    #[inline(always)]
    fn complete(&mut self, book: &mut Book, side: usize) -> Note {
        let is_first = self.flags & KNOWN == 0;
        self.flags = self.flags & !TENTATIVE | KNOWN;
        if side == side::REQUEST {
            self.phase = phase::START;
            let index = book.request_count;
            let lane = &mut book.ring[(index >> 6) as usize & 3];
            *lane = *lane & !(1 << (index & 63)) | ((self.flags & PUSHES != 0) as u64) << (index & 63);
            // The response side looks at the mark only once the count says that the request is there.
            book.request_count = index.wrapping_add(1);
            return Note::request(index);
        }
        if self.phase == phase::DONE {
            return Note { turn: protocol::UNKNOWN, ..Note::NONE };
        }
        let is_pushed = self.flags & PUSHES != 0;
        self.flags &= !PUSHES;
        if is_pushed && !is_marked(book) {
            return Note::NONE;
        }
        if !book.awaits() {
            return if is_first && self.kind == b'-' { Note::turned_away() } else { Note::NONE };
        }
        let index = book.response_count;
        book.response_count = index.wrapping_add(1);
        let error = self.kind == b'-' || self.kind == b'!';
        Note { body: self.left, bare: !error, ..Note::outcome(index, error) }
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        self.phase == phase::DONE
    }

    #[inline(always)]
    fn skips(&self) -> bool {
        self.phase == phase::BULK
    }

    #[inline(always)]
    fn skip(&mut self, available: u32) -> u32 {
        let taken = if self.left > available { available } else { self.left };
        self.left -= taken;
        self.grow(taken);
        if self.left == 0 {
            self.element_ends();
        }
        taken
    }

    #[inline(always)]
    fn bridge(&mut self, missing: u32) -> bool {
        if self.skips() && self.left >= missing {
            self.skip(missing);
            return true;
        }
        self.phase == phase::FOREIGN
    }

    #[inline(always)]
    fn is_passive(&self) -> bool {
        self.phase >= phase::LOST
    }

    #[inline(always)]
    fn lose(&mut self, book: &mut Book, side: usize) {
        if side == side::RESPONSE {
            book.forget_answers();
        }
        self.phase = phase::LOST;
    }

    #[inline(always)]
    fn fail(&mut self) -> bool {
        let known = self.flags & (KNOWN | TENTATIVE) != 0;
        self.flags = self.flags & !TENTATIVE | if known { KNOWN } else { 0 };
        self.phase = if known { phase::LOST } else { phase::FOREIGN };
        !known
    }

    #[inline(always)]
    fn in_head(&self) -> bool {
        let within = self.phase > phase::START && self.phase < phase::DONE;
        within && (!self.is_response() || self.flags & TOP != 0)
    }

    #[inline(always)]
    fn head_len(&self) -> u32 {
        self.head
    }

    #[inline(always)]
    fn part(&self, book: &Book, side: usize) -> Note {
        if side == side::REQUEST {
            part_of(book, side)
        } else if book.awaits() && (self.kind == b'-' || self.kind == b'!') {
            Note::part_of_error(book)
        } else if self.flags & KNOWN == 0 && self.kind == b'-' && !book.awaits() {
            Note::part_of_turning_away()
        } else {
            Note::NONE
        }
    }
}
