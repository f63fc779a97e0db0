//! The MySQL recogniser, MariaDB's protocol included.
#![allow(clippy::cast_possible_truncation, reason = "lanes of words are meant to be cut; checked conversions could panic")]
//!
//! Packets carry their length and a sequence number that starts at 0 with each command, so a command is a client's packet with
//! number 0, and its answer the server's first packet after it. The number of that one is known, and what comes with the same
//! number while no command waits is a row of a long result, whose numbers wrap.

use crate::abi::protocol;
use crate::conn::{Book, side};
use crate::recogniser::{Note, Recogniser, Step, Window, part_of};

mod phase {
    /// In a packet's header.
    pub(super) const HEADER: u8 = 0;
    /// At the first byte of its payload.
    pub(super) const FIRST: u8 = 1;
    /// In the capability flags of a login.
    pub(super) const CAPABILITIES: u8 = 2;
    /// In a payload.
    pub(super) const BODY: u8 = 3;
    /// Something is complete.
    pub(super) const DONE: u8 = 4;
    /// Lost.
    pub(super) const LOST: u8 = 5;
    /// Never was MySQL.
    pub(super) const FOREIGN: u8 = 6;
}

const RESPONSE: u8 = 1;
const KNOWN: u8 = 2;
/// No command has come yet; of responses: the login is not accepted yet.
const LOGIN: u8 = 4;
/// The packet goes on in the next one.
const CONTINUED: u8 = 8;
/// The packet belongs to a command that is answered; of responses: it is the answer, and an error.
const COUNTS: u8 = 16;
/// Of responses: a command waits.
const AWAITS: u8 = 32;
/// Of responses: commands were sent without waiting for answers.
const PIPELINED: u8 = 64;
/// The next packet decides whether the place was found again.
const TENTATIVE: u8 = 128;

const LONGEST: u32 = 0xff_ffff;
const COM_QUIT: u8 = 0x01;
const COM_STMT_SEND_LONG_DATA: u8 = 0x18;
const COM_STMT_CLOSE: u8 = 0x19;
/// The last of MySQL's commands, and the first of MariaDB's own.
const COM_LAST: u8 = 0x20;
const COM_MARIADB: u8 = 0xf0;

const CLIENT_COMPRESS: u32 = 1 << 5;
const CLIENT_SSL: u32 = 1 << 11;
const CLIENT_ZSTD: u32 = 1 << 26;
/// Length of the packet that asks for TLS.
const SSL_REQUEST: u32 = 32;

/// State of one direction.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mysql {
    /// The header that is being read, then what is left of the payload.
    left: u32,
    /// Bytes of the message so far.
    head: u32,
    /// Capability flags of the login; of responses the sequence number that an answer will have, and the last one seen above it.
    word: u32,
    phase: u8,
    flags: u8,
    /// Bytes of header or flags so far.
    at: u8,
    /// The packet's sequence number.
    sequence: u8,
}

impl Mysql {
    /// A header is complete.
    #[inline(always)]
    fn packet(&mut self, length: u32, sequence: u8) -> Step {
        let continued = self.flags & CONTINUED != 0;
        self.flags = if length == LONGEST { self.flags | CONTINUED } else { self.flags & !CONTINUED };
        self.left = length;
        self.at = 0;
        if continued {
            self.head = self.head.saturating_add(4);
        } else {
            self.head = 4;
            self.flags &= !COUNTS;
        }
        if self.flags & RESPONSE != 0 {
            self.word = self.word & 0xff | (self.sequence as u32) << 8;
        } else if self.flags & TENTATIVE != 0 && (sequence != 0 || length == 0) {
            return Step::Fail;
        }
        self.sequence = sequence;
        self.phase = if continued { phase::BODY } else { phase::FIRST };
        if length == 0 { self.payload_ends() } else { Step::More }
    }

    /// The first byte of a message.
    #[inline(always)]
    fn first(&mut self, b: u8) -> Step {
        self.phase = phase::BODY;
        self.head += 1;
        self.left -= 1;
        if self.flags & RESPONSE != 0 {
            let sequence = self.sequence as u32;
            let expected = sequence == self.word & 0xff;
            let goes_on = (self.word >> 8).wrapping_add(1) & 0xff == sequence;
            if !expected && self.flags & TENTATIVE != 0 {
                return Step::Fail;
            }
            if self.flags & LOGIN != 0 {
                if b == 0xff && self.left > 1 {
                    self.flags |= COUNTS;
                } else if b == 0 {
                    self.flags &= !LOGIN;
                }
            } else if expected && self.flags & AWAITS != 0 && !(goes_on && self.flags & PIPELINED != 0) {
                if b != 0xff || self.left == 0 {
                    return Step::Complete;
                }
                self.flags |= COUNTS;
            }
        } else if self.sequence == 0 {
            self.flags &= !LOGIN;
            if b > COM_LAST && b < COM_MARIADB {
                return Step::Fail;
            }
            if b != COM_QUIT && b != COM_STMT_CLOSE && b != COM_STMT_SEND_LONG_DATA {
                self.flags |= COUNTS;
            }
        } else if self.flags & LOGIN != 0 && self.sequence == 1 {
            self.word = b as u32;
            self.at = 1;
            self.phase = phase::CAPABILITIES;
        }
        if self.left == 0 { self.payload_ends() } else { Step::More }
    }

    #[inline(always)]
    fn capability(&mut self, b: u8) -> Step {
        self.head += 1;
        self.left -= 1;
        self.word |= (b as u32) << (8 * (self.at & 3) as u32);
        self.at += 1;
        if self.at == 4 {
            self.phase = phase::BODY;
        }
        if self.left == 0 { self.payload_ends() } else { Step::More }
    }

    #[inline(always)]
    fn payload_ends(&mut self) -> Step {
        let login = self.at == 4;
        self.at = 0;
        if self.flags & CONTINUED != 0 || (self.flags & COUNTS == 0 && !login) {
            self.phase = phase::HEADER;
            return Step::More;
        }
        self.at = login as u8;
        self.phase = phase::DONE;
        Step::Complete
    }

    /// What the connection goes on with after the login packet.
    #[inline(always)]
    fn after_login(&self) -> u8 {
        if self.word & CLIENT_SSL != 0 && self.head <= SSL_REQUEST + 4 {
            protocol::TLS
        } else if self.word & (CLIENT_COMPRESS | CLIENT_ZSTD) != 0 {
            protocol::UNKNOWN
        } else {
            0
        }
    }
}

// SAFETY: 16 bytes of integers.
unsafe impl Recogniser for Mysql {
    const PROTOCOL: u8 = protocol::MYSQL;

    #[inline(always)]
    fn fresh(side: usize) -> Self {
        Self { left: 0, head: 0, word: 0, phase: phase::HEADER, flags: side as u8 & RESPONSE | LOGIN, at: 0, sequence: 0 }
    }

    #[inline(always)]
    fn late(side: usize) -> Self {
        Self { phase: phase::LOST, flags: side as u8 & RESPONSE | KNOWN, ..Self::fresh(side) }
    }

    #[inline(always)]
    fn begin(&mut self, book: &Book, side: usize) {
        if side == side::RESPONSE {
            self.flags &= !AWAITS;
            if book.awaits() {
                self.flags |= AWAITS;
                self.word = self.word & 0xff00 | book.of_requests & 0xff;
            }
        }
        // An answer begins a segment: the server says nothing while no command waits.
        if self.phase == phase::LOST && (side == side::REQUEST || self.flags & AWAITS != 0) {
            let login = if side == side::RESPONSE { LOGIN } else { 0 };
            self.flags = self.flags & !(CONTINUED | login) | TENTATIVE;
            self.left = 0;
            self.at = 0;
            self.phase = phase::HEADER;
        }
    }

    #[inline(always)]
    fn step(&mut self, window: &impl Window, at: u32, left: u32) -> (u32, Step) {
        let phase = self.phase;
        if phase == phase::HEADER {
            if left >= 4 && self.at == 0 {
                let word = window.word(at);
                return (4, self.packet(word as u32 & LONGEST, (word >> 24) as u8));
            }
            let header = if self.at == 0 { 0 } else { self.left };
            self.left = header | (window.byte(at) as u32) << (8 * (self.at & 3) as u32);
            self.at += 1;
            let header = self.left;
            return (1, if self.at == 4 { self.packet(header & LONGEST, (header >> 24) as u8) } else { Step::More });
        }
        if phase == phase::FIRST {
            return (1, self.first(window.byte(at)));
        }
        if phase == phase::CAPABILITIES {
            return (1, self.capability(window.byte(at)));
        }
        if phase != phase::BODY || self.left > left {
            return (0, Step::Skip);
        }
        let taken = self.left;
        self.head = self.head.saturating_add(taken);
        self.left = 0;
        (taken, self.payload_ends())
    }

    #[inline(always)]
    fn complete(&mut self, book: &mut Book, side: usize) -> Note {
        self.flags = self.flags & !TENTATIVE | KNOWN;
        let error = self.phase == phase::DONE;
        if error {
            self.phase = phase::HEADER;
        }
        if side == side::REQUEST {
            if self.at != 0 {
                self.at = 0;
                return Note { turn: self.after_login(), ..Note::NONE };
            }
            self.flags &= !COUNTS;
            let index = book.request_count;
            book.of_requests = self.sequence.wrapping_add(1) as u32;
            book.request_count = index.wrapping_add(1);
            return Note::request(index);
        }
        self.flags &= !(COUNTS | AWAITS | PIPELINED);
        if self.flags & LOGIN != 0 {
            self.flags &= !LOGIN;
            return Note::turned_away();
        }
        let index = book.response_count;
        book.response_count = index.wrapping_add(1);
        if book.awaits() {
            self.flags |= AWAITS | PIPELINED;
        }
        Note { body: self.left, ..Note::outcome(index, error) }
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
            self.payload_ends();
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
            self.flags &= !LOGIN;
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
        let is_response = self.flags & RESPONSE != 0;
        if self.phase > phase::FIRST || (is_response && self.flags & (LOGIN | AWAITS) == 0) {
            return self.flags & COUNTS != 0 && self.phase < phase::DONE;
        }
        // What may become a command, or an error.
        if self.phase == phase::FIRST { is_response || self.sequence == 0 } else { self.at > 0 && self.flags & CONTINUED == 0 }
    }

    #[inline(always)]
    fn head_len(&self) -> u32 {
        if self.phase == phase::HEADER && self.flags & CONTINUED == 0 { self.at as u32 } else { self.head }
    }

    #[inline(always)]
    fn part(&self, book: &Book, side: usize) -> Note {
        if side == side::RESPONSE && self.flags & LOGIN != 0 {
            return Note::part_of_turning_away();
        }
        if side == side::RESPONSE && book.awaits() { Note::part_of_error(book) } else { part_of(book, side) }
    }
}
