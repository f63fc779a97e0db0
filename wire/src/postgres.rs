//! The PostgreSQL recogniser: frontend/backend protocol, version 3.
#![allow(clippy::cast_possible_truncation, reason = "lanes of words are meant to be cut; checked conversions could panic")]
//!
//! Requests are Query and Execute. Each ReadyForQuery of the server ends a group of requests: one Query, or the Executes up to a
//! Sync. The request side notes where each group ends; so the response side knows that a Query is answered once for all its
//! statements, and that after an error the Executes up to Sync will never be answered.

use crate::abi::protocol;
use crate::conn::{Book, side};
use crate::recogniser::{Note, Recogniser, Step, Window, part_of};

mod phase {
    /// At a message's type.
    pub(super) const TYPE: u8 = 0;
    /// In a message's length.
    pub(super) const LENGTH: u8 = 1;
    /// In the version or code of a message without a type, which starts a connection.
    pub(super) const CODE: u8 = 2;
    /// At the single byte that answers a request for encryption.
    pub(super) const ANSWER: u8 = 3;
    /// In a message's payload.
    pub(super) const BODY: u8 = 4;
    /// Something is complete.
    pub(super) const DONE: u8 = 5;
    /// Lost.
    pub(super) const LOST: u8 = 6;
    /// Never was PostgreSQL.
    pub(super) const FOREIGN: u8 = 7;
}

const RESPONSE: u8 = 1;
const KNOWN: u8 = 2;
/// Messages have no type yet.
const STARTUP: u8 = 4;
/// The message is part of what will be told as a request; of responses: it is one that matters.
const COUNTS: u8 = 8;
/// Of responses: an error has come, and no ReadyForQuery after it.
const IN_ERROR: u8 = 16;
/// Of responses: the Query's first result has come.
const SEEN: u8 = 32;
/// Of responses: no ReadyForQuery has come yet.
const LOGIN: u8 = 64;
/// The next message decides whether the place was found again.
const TENTATIVE: u8 = 128;

/// Codes instead of a version.
const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const LONGEST: u32 = 1 << 30;

/// Groups that are told apart, and bits of an entry: the number of the request after the group, and whether that is a Query.
const GROUPS: u32 = 16;
const NUMBER: u32 = 0x7fff;
const QUERY: u32 = 0x8000;
/// In `of_requests`: groups so far, requests for encryption above, and whether there were too many groups to be told apart.
const COUNT: u32 = 0xffff;
const ASKED: u32 = 1 << 16;
const ASKED_MASK: u32 = 0xff << 16;
const OVERFLOW: u32 = 1 << 31;

/// State of one direction.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Postgres {
    /// What is left of the message.
    left: u32,
    /// Bytes so far of what will be told.
    head: u32,
    /// The number that is being read; of responses: answers to requests for encryption.
    word: u32,
    phase: u8,
    flags: u8,
    /// Bytes of the number so far.
    at: u8,
    /// The message's type.
    tag: u8,
}

/// Types as bits: letters from `@` on.
const fn set(types: &[u8]) -> u64 {
    let mut bits = 0;
    let mut at = 0;
    while at < types.len() {
        bits |= 1 << (types[at] - b'@');
        at += 1;
    }
    bits
}

#[inline(always)]
const fn is_in(tag: u8, types: u64) -> bool {
    let at = tag.wrapping_sub(b'@');
    at < 64 && types >> at & 1 == 1
}

/// What a client sends.
pub(crate) const FRONTEND: u64 = set(b"QPBDECHSFXpdcf");
/// What leads to an Execute.
const EXTENDED: u64 = set(b"PBDCHE");
/// What a server sends, but for digits.
const BACKEND: u64 = set(b"RKSNACDEGHInstTVWZcdv");
/// What matters of it.
const ANSWERS: u64 = set(b"CIsEZ");

impl Postgres {
    /// Type and length are complete.
    #[inline(always)]
    fn message(&mut self, length: u32) -> Step {
        self.at = 0;
        if !(4..=LONGEST).contains(&length) {
            return Step::Fail;
        }
        self.left = length - 4;
        let tag = self.tag;
        self.phase = phase::BODY;
        if self.flags & RESPONSE != 0 {
            if !is_in(tag, BACKEND) && tag.wrapping_sub(b'1') > 2 {
                return Step::Fail;
            }
            self.head = 5;
            self.flags = if is_in(tag, ANSWERS) { self.flags | COUNTS } else { self.flags & !COUNTS };
        } else if self.flags & STARTUP != 0 {
            self.phase = phase::CODE;
            return if self.left < 4 || self.left > 1 << 16 { Step::Fail } else { Step::More };
        } else {
            if !is_in(tag, FRONTEND) {
                return Step::Fail;
            }
            let extended = is_in(tag, EXTENDED);
            if !(extended && self.flags & COUNTS != 0) {
                self.head = 0;
            }
            self.head = self.head.saturating_add(5);
            self.flags = if extended || tag == b'Q' { self.flags | COUNTS } else { self.flags & !COUNTS };
        }
        if self.left == 0 { self.message_ends() } else { Step::More }
    }

    #[inline(always)]
    fn code(&mut self, b: u8) -> Step {
        self.word = self.word << 8 | b as u32;
        self.left -= 1;
        self.at += 1;
        if self.at < 4 {
            return Step::More;
        }
        self.at = 0;
        let is_version = self.word >> 16 == 3;
        if is_version {
            self.flags &= !STARTUP;
        } else if self.word.wrapping_sub(CANCEL_REQUEST) > 2 {
            return Step::Fail;
        }
        self.tag = 0;
        self.phase = phase::BODY;
        if self.left == 0 { self.message_ends() } else { Step::More }
    }

    #[inline(always)]
    fn message_ends(&mut self) -> Step {
        let tag = self.tag;
        let matters = if self.flags & RESPONSE != 0 {
            self.flags & COUNTS != 0
        } else {
            is_in(tag, set(b"QESF")) || (self.flags & STARTUP != 0 && self.word != 0)
        };
        self.phase = if matters { phase::DONE } else { phase::TYPE };
        if matters { Step::Complete } else { Step::More }
    }

    #[inline(always)]
    fn requested(&mut self, book: &mut Book) -> Note {
        self.phase = phase::TYPE;
        if self.flags & STARTUP != 0 {
            if self.word == SSL_REQUEST || self.word == GSS_REQUEST {
                book.of_requests = book.of_requests & !ASKED_MASK | book.of_requests.wrapping_add(ASKED) & ASKED_MASK;
            }
            return Note::NONE;
        }
        self.flags &= !COUNTS;
        let index = book.request_count;
        let counts = self.tag == b'Q' || self.tag == b'E';
        if counts {
            book.request_count = index.wrapping_add(1);
        }
        if self.tag != b'E' {
            let groups = book.of_requests & COUNT;
            if groups.wrapping_sub(book.of_responses) & COUNT >= GROUPS {
                book.of_requests |= OVERFLOW;
            } else {
                let entry = book.request_count & NUMBER | if self.tag == b'Q' { QUERY } else { 0 };
                let bits = 16 * (groups & 3);
                let lane = &mut book.ring[(groups >> 2) as usize & 3];
                *lane = *lane & !(0xffff << bits) | (entry as u64) << bits;
                book.of_requests = book.of_requests & !COUNT | groups.wrapping_add(1) & COUNT;
            }
        }
        if counts { Note::request(index) } else { Note::NONE }
    }

    #[inline(always)]
    fn responded(&mut self, book: &mut Book) -> Note {
        if self.flags & LOGIN != 0 && is_in(self.tag, set(b"EZ")) {
            self.flags &= !LOGIN;
            if self.tag == b'E' {
                self.phase = phase::TYPE;
                return Note::turned_away();
            }
        }
        let requests = book.of_requests;
        if requests & OVERFLOW != 0 {
            return self.responded_to_one_each(book);
        }
        let next = book.response_count;
        if self.tag != b'Z' && self.tag != b'E' {
            // A Sync that the server did not heed (in COPY) has left a group that is answered and was never ended.
            if book.of_responses & COUNT != requests & COUNT && group(book) & (NUMBER | QUERY) == next & NUMBER && book.awaits() {
                book.of_responses = book.of_responses.wrapping_add(1) & COUNT;
            }
        }
        let known = is_known(book);
        let group = group(book);
        let left = awaited(book);
        let is_query = known && group & QUERY != 0 && left == 1;
        if self.tag == b'Z' {
            if left != 0 && known {
                book.response_count = next.wrapping_add(1);
                if left > 1 {
                    // The next one is told in the next step.
                    return self.ended(next);
                }
            }
            self.phase = phase::TYPE;
            let ended = self.ended(next);
            self.flags &= !(IN_ERROR | SEEN);
            if known {
                book.of_responses = book.of_responses.wrapping_add(1) & COUNT;
                if left != 0 {
                    return ended;
                }
            }
            return Note::NONE;
        }
        self.phase = phase::TYPE;
        let error = self.tag == b'E';
        if error {
            self.flags |= IN_ERROR;
        } else {
            self.flags |= SEEN;
        }
        if left == 0 || (is_query && !error) {
            return Note::NONE;
        }
        book.response_count = next.wrapping_add(1);
        Note::outcome(next, error)
    }

    /// What is told of a request that had no answer when its group ended.
    #[inline(always)]
    fn ended(&self, index: u32) -> Note {
        if self.flags & IN_ERROR != 0 { Note::skipped(index) } else { Note::outcome(index, false) }
    }

    /// Without knowing the groups: each result or error answers one request.
    #[inline(always)]
    fn responded_to_one_each(&mut self, book: &mut Book) -> Note {
        self.phase = phase::TYPE;
        if self.tag == b'Z' || !book.awaits() {
            return Note::NONE;
        }
        let next = book.response_count;
        book.response_count = next.wrapping_add(1);
        Note::outcome(next, self.tag == b'E')
    }
}

/// The entry of the group that is being answered.
#[inline(always)]
fn group(book: &Book) -> u32 {
    let at = book.of_responses;
    (book.ring[(at >> 2) as usize & 3] >> (16 * (at & 3))) as u32 & 0xffff
}

/// The group that is being answered has ended, on the requests' side.
#[inline(always)]
fn is_known(book: &Book) -> bool {
    (book.of_responses ^ book.of_requests) & COUNT != 0
}

/// How many requests of the group that is being answered wait for their answers.
#[inline(always)]
fn awaited(book: &Book) -> u32 {
    let next = book.response_count;
    if is_known(book) && book.of_requests & OVERFLOW == 0 {
        group(book).wrapping_sub(next) & NUMBER
    } else {
        book.request_count.wrapping_sub(next)
    }
}

// SAFETY: 16 bytes of integers.
unsafe impl Recogniser for Postgres {
    const PROTOCOL: u8 = protocol::POSTGRES;

    #[inline(always)]
    fn fresh(side: usize) -> Self {
        let (phase, flags) = if side == side::REQUEST { (phase::LENGTH, STARTUP) } else { (phase::TYPE, RESPONSE | LOGIN) };
        Self { left: 0, head: 0, word: 0, phase, flags, at: 0, tag: 0 }
    }

    #[inline(always)]
    fn late(side: usize) -> Self {
        Self { left: 0, head: 0, word: 0, phase: phase::LOST, flags: side as u8 & RESPONSE | KNOWN, at: 0, tag: 0 }
    }

    #[inline(always)]
    fn begin(&mut self, book: &Book, side: usize) {
        if self.phase == phase::LOST {
            self.flags = self.flags & !(COUNTS | STARTUP | LOGIN) | TENTATIVE;
            self.at = 0;
            self.phase = phase::TYPE;
        }
        if side == side::RESPONSE && self.phase == phase::TYPE && (book.of_requests & ASKED_MASK) >> 16 != self.word {
            self.phase = phase::ANSWER;
        }
    }

    #[inline(always)]
    fn step(&mut self, window: &impl Window, at: u32, left: u32) -> (u32, Step) {
        let phase = self.phase;
        if phase == phase::TYPE {
            let word = window.word(at);
            self.tag = word as u8;
            if self.flags & STARTUP != 0 {
                self.phase = phase::LENGTH;
                return (0, Step::More);
            }
            if left >= 5 {
                return (5, self.message(((word >> 8) as u32).swap_bytes()));
            }
            self.phase = phase::LENGTH;
            return (1, Step::More);
        }
        if phase == phase::LENGTH {
            // In `left`, since `word` is kept over messages.
            let before = if self.at == 0 { 0 } else { self.left };
            self.left = before << 8 | window.byte(at) as u32;
            self.at += 1;
            let length = self.left;
            return (1, if self.at == 4 { self.message(length) } else { Step::More });
        }
        if phase == phase::CODE {
            return (1, self.code(window.byte(at)));
        }
        if phase == phase::ANSWER {
            let answer = window.byte(at);
            self.tag = answer;
            self.phase = phase::TYPE;
            self.word = self.word.wrapping_add(1) & 0xff;
            if answer == b'S' || answer == b'G' {
                self.phase = phase::ANSWER;
                return (1, Step::Complete);
            }
            return ((answer == b'N') as u32, Step::More);
        }
        if phase != phase::BODY || self.left > left {
            return (0, Step::Skip);
        }
        let taken = self.left;
        self.head = self.head.saturating_add(taken);
        self.left = 0;
        (taken, self.message_ends())
    }

    #[inline(always)]
    fn complete(&mut self, book: &mut Book, side: usize) -> Note {
        self.flags = self.flags & !TENTATIVE | KNOWN;
        if side == side::REQUEST {
            return self.requested(book);
        }
        if self.phase == phase::ANSWER {
            let turn = if self.tag == b'S' { protocol::TLS } else { protocol::UNKNOWN };
            return Note { turn, ..Note::NONE };
        }
        self.responded(book)
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        self.phase == phase::DONE
    }

    #[inline(always)]
    fn skips(&self) -> bool {
        self.phase == phase::BODY
    }

    #[inline(always)]
    fn skip(&mut self, available: u32) -> u32 {
        let taken = if self.left > available { available } else { self.left };
        self.left -= taken;
        self.head = self.head.saturating_add(taken);
        if self.left == 0 {
            self.message_ends();
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
            // Only the last group can still be open.
            let groups = book.of_requests & COUNT;
            if groups != book.of_responses & COUNT {
                book.of_responses = groups.wrapping_sub(1) & COUNT;
            }
            self.flags &= !(IN_ERROR | SEEN | LOGIN);
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
        if self.flags & RESPONSE != 0 {
            return self.tag == b'E' && (self.phase == phase::LENGTH || self.phase == phase::BODY);
        }
        self.flags & STARTUP == 0 && (self.phase == phase::LENGTH || (self.flags & COUNTS != 0 && self.phase < phase::DONE))
    }

    #[inline(always)]
    fn head_len(&self) -> u32 {
        if self.phase != phase::LENGTH {
            return self.head;
        }
        // A header that is not complete belongs to what it may continue.
        let before = if self.flags & (COUNTS | RESPONSE) == COUNTS { self.head } else { 0 };
        before.saturating_add(1 + self.at as u32)
    }

    #[inline(always)]
    fn part(&self, book: &Book, side: usize) -> Note {
        if side == side::REQUEST {
            part_of(book, side)
        } else if self.flags & LOGIN != 0 {
            Note::part_of_turning_away()
        } else if awaited(book) != 0 {
            Note::part_of_error(book)
        } else {
            // Of a statement that was not executed.
            Note::NONE
        }
    }
}
