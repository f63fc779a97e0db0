//! The HTTP/1.x recogniser: a resumable machine over one direction of one connection.
#![allow(clippy::cast_possible_truncation, reason = "lanes of words and sequence numbers are meant to be cut; checked conversions could panic")]
//!
//! It looks at the bytes through a [`Window`], one at a time or eight at once where a line holds nothing of interest. The
//! same code runs in the kernel, in unit tests and in the fuzzer. It neither allocates nor panics, and its 16 bytes of
//! state live in the socket's storage, so that a head may be split at any byte.
//!
//! The phase is read and written as volatile memory. Without that the compiler keeps it in a register across bytes, the
//! verifier follows every value that it may have had, and the program is refused for its size.

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
    /// In a chunk's size.
    pub const CHUNK_SIZE: u8 = 12;
    /// In a chunk's extension.
    pub const CHUNK_EXTENSION: u8 = 13;
    /// In the line end after a chunk's data.
    pub const CHUNK_END: u8 = 14;
    /// At the first byte of a trailer line.
    pub const TRAILER_START: u8 = 15;
    /// In a trailer line.
    pub const TRAILER: u8 = 16;
    /// In a body of known length; [`Machine::skip`](super::Machine::skip) says how much is left.
    pub const BODY: u8 = 17;
    /// In a chunk's data.
    pub const CHUNK: u8 = 18;
    /// In a body that ends with the connection.
    pub const UNTIL_CLOSE: u8 = 19;
    /// After an upgrade or CONNECT: no longer HTTP.
    pub const OPAQUE: u8 = 20;
    /// Lost; waits for a segment that starts like a message.
    pub const LOST: u8 = 21;
    /// The stream never was HTTP/1.x.
    pub const FOREIGN: u8 = 22;
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// All bytes were taken; more are wanted.
    More,
    /// The head's last byte was taken. [`Machine::finish_head`] must be called before the next byte.
    HeadEnd,
    /// A body starts: the next bytes are skipped.
    Skip,
    /// This is not HTTP/1.x.
    Fail,
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
/// A whole head was seen in this direction, or the stream was joined late: failing means lost, not foreign.
const KNOWN: u8 = 32;
/// The last byte was a CR.
const CR: u8 = 64;
/// Reading on after losing the place; the first line decides whether it was found again.
const TENTATIVE: u8 = 128;

const fn big_endian(text: &[u8]) -> u64 {
    let mut word = 0;
    let mut at = 0;
    while at < text.len() {
        word = word << 8 | text[at] as u64;
        at += 1;
    }
    word
}

/// `text` as bytes of words, first byte lowest; position by shifting, since a table would need a bounded index.
const fn letters(text: &[u8], from: usize) -> u64 {
    let mut word = 0;
    let mut at = 0;
    while at < 8 && from + at < text.len() {
        word |= (text[from + at] as u64) << (8 * at);
        at += 1;
    }
    word
}

const CONTENT_LENGTH: &[u8] = b"content-length";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding";

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
        self.flags & RESPONSE != 0 && (phase::LINE..=phase::ENCODING).contains(&phase)
    }

    /// Bytes of the current head so far; of the last one after [`Step::HeadEnd`].
    #[inline(always)]
    #[must_use]
    pub fn head_len(&self) -> u32 {
        self.head as u32
    }

    /// The request's method is HEAD.
    #[inline(always)]
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.flags & HEAD != 0
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
    pub fn in_head(&self) -> bool {
        let phase = self.phase();
        (phase::METHOD..=phase::ENCODING).contains(&phase)
    }

    /// Bytes pass unread until the connection ends, or until a segment that starts like a message.
    #[inline(always)]
    #[must_use]
    pub fn is_passive(&self) -> bool {
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
    pub fn lose(&mut self) {
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
    pub fn fail(&mut self) -> bool {
        let known = self.flags & (KNOWN | TENTATIVE) != 0;
        self.set_phase(if known { phase::LOST } else { phase::FOREIGN });
        !known
    }

    /// Whether the next bytes are skipped.
    #[inline(always)]
    #[must_use]
    pub fn skips(&self) -> bool {
        let phase = self.phase();
        phase == phase::BODY || phase == phase::CHUNK
    }

    /// Passes over as much of `available` as the body or chunk still has; how much that was.
    #[inline(always)]
    pub fn skip(&mut self, available: u32) -> u32 {
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
    pub fn bridge(&mut self, missing: u32) -> bool {
        if self.skips() && self.acc >= missing as u64 {
            self.skip(missing);
            return true;
        }
        self.is_passive() && !self.is_lost()
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
                if self.acc == 0 { phase::START } else { phase::BODY }
            }
            Body::AsDeclared if declared & RESPONSE != 0 => phase::UNTIL_CLOSE,
            Body::AsDeclared => phase::START,
        };
        self.set_phase(phase);
    }

    /// Takes one byte or more at `at`, of which `left` (1 or more) are there. Returns how many were taken.
    #[inline(always)]
    pub fn step(&mut self, window: &impl Window, at: u32, left: u32) -> (u32, Step) {
        let phase = self.phase();
        if left >= 16 && phase <= phase::LINE_START {
            let taken = self.stride(phase, window, at);
            if taken > 0 {
                return (taken, Step::More);
            }
        }
        let step = self.byte(window.byte(at));
        (1, step)
    }

    /// The fast path: what can be told from the next sixteen bytes at once. 0 if it has to be looked at byte by byte. Never
    /// decides anything that the slow path would decide otherwise.
    #[inline(always)]
    fn stride(&mut self, phase: u8, window: &impl Window, at: u32) -> u32 {
        let word = window.word(at);
        if phase == phase::LINE {
            return self.in_line(word, window.word(at + 8));
        }
        if phase == phase::LINE_START {
            let first = word as u8 | 0x20;
            if first == b'c' {
                let more = window.word(at + 8);
                if word | LETTERS_8 == letters(b"content-", 0) && (more | letters(b"\x20\x20\x20\x20\x20\x20", 0)) << 8 == letters(b"length:", 0) << 8 {
                    self.grow(15);
                    self.begin_value(phase::LENGTH);
                    return 15;
                }
            } else if first == b't' {
                if word | LETTERS_8 | 0x20 << 56 == letters(b"transfer", 0) {
                    return 0;
                }
            } else if word as u8 == b'\r' || word as u8 == b'\n' {
                return 0;
            }
            self.set_phase(phase::LINE);
            return self.in_line(word, window.word(at + 8));
        }
        if phase == phase::TARGET {
            // Control bytes need a closer look: they end the line or refuse it.
            if has_below(word, 0x20) || self.flags & CR != 0 {
                return 0;
            }
            self.at = self.acc as u8;
            self.acc = word.swap_bytes();
            self.grow(8);
            return 8;
        }
        if phase == phase::START {
            return if self.flags & RESPONSE != 0 { self.status_line(word, window.word(at + 8)) } else { self.get(word) };
        }
        0
    }

    /// Sixteen bytes of a line, or as many as it still has.
    #[inline(always)]
    fn in_line(&mut self, word: u64, more: u64) -> u32 {
        let mut before = 0;
        let mut ends = bytes_equal(word, b'\n');
        if ends == 0 {
            before = 8;
            ends = bytes_equal(more, b'\n');
            if ends == 0 {
                self.grow(16);
                return 16;
            }
        }
        let taken = before + first_marked(ends) + 1;
        self.grow(taken as u16);
        self.set_phase(phase::LINE_START);
        taken
    }

    /// `GET `, the most frequent beginning.
    #[inline(always)]
    fn get(&mut self, word: u64) -> u32 {
        if word as u32 as u64 != letters(b"GET ", 0) {
            return 0;
        }
        self.begin();
        self.grow(4);
        self.set_phase(phase::TARGET);
        4
    }

    /// `HTTP/1.x NNN` and the byte after it.
    #[inline(always)]
    fn status_line(&mut self, word: u64, more: u64) -> u32 {
        let minor = (word >> 56) as u8;
        let after = (more >> 32) as u8;
        if word << 8 != letters(b"HTTP/1.", 0) << 8 || minor.wrapping_sub(b'0') > 9 || more as u8 != b' ' {
            return 0;
        }
        let hundreds = (more >> 8) as u8;
        let (tens, ones) = ((more >> 16) as u8, (more >> 24) as u8);
        let (hundreds, tens, ones) = (hundreds.wrapping_sub(b'0'), tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
        if hundreds.wrapping_sub(1) > 8 || tens > 9 || ones > 9 || (after != b' ' && after != b'\r') {
            return 0;
        }
        self.begin();
        self.grow(13);
        self.status = hundreds as u16 * 100 + tens as u16 * 10 + ones as u16;
        self.headers_follow();
        self.set_phase(phase::LINE);
        13
    }

    #[inline(always)]
    fn grow(&mut self, by: u16) {
        let head = self.head as u32 + by as u32;
        self.head = if head > 0xffff { 0xffff } else { head as u16 };
    }

    #[inline(always)]
    fn byte(&mut self, b: u8) -> Step {
        let phase = self.phase();
        if phase <= phase::ENCODING { self.head_byte(phase, b) } else { self.body_byte(phase, b) }
    }

    #[inline(always)]
    fn head_byte(&mut self, phase: u8, b: u8) -> Step {
        if phase == phase::START {
            if b == b'\r' || b == b'\n' {
                return Step::More;
            }
            self.begin();
            self.set_phase(if self.flags & RESPONSE != 0 { phase::VERSION } else { phase::METHOD });
        }
        self.grow(1);
        match self.phase() {
            phase::METHOD => self.method(b),
            phase::TARGET => self.target(b),
            phase::VERSION => self.version(b),
            phase::STATUS => self.status_digit(b),
            phase::LINE => {
                if b == b'\n' {
                    self.set_phase(phase::LINE_START);
                }
                Step::More
            }
            phase::LINE_START => self.line_start(b),
            phase::END => {
                if b == b'\n' {
                    return Step::HeadEnd;
                }
                self.set_phase(phase::LINE);
                Step::More
            }
            phase::NAME_LENGTH => self.name(b, CONTENT_LENGTH.len() as u8, phase::LENGTH),
            phase::NAME_ENCODING => self.name(b, TRANSFER_ENCODING.len() as u8, phase::ENCODING),
            phase::LENGTH => self.length(b),
            _ => self.encoding(b),
        }
    }

    /// Forgets the last message.
    #[inline(always)]
    fn begin(&mut self) {
        self.head = 0;
        self.at = 0;
        self.acc = 0;
        self.flags &= RESPONSE | KNOWN | TENTATIVE;
    }

    #[inline(always)]
    fn method(&mut self, b: u8) -> Step {
        if b == b' ' && self.at > 0 {
            if self.acc == big_endian(b"HEAD") {
                self.flags |= HEAD;
            } else if self.acc == big_endian(b"CONNECT") {
                self.flags |= CONNECT;
            } else if self.acc == big_endian(b"PRI") {
                return Step::Fail;
            }
            self.acc = 0;
            self.at = 0;
            self.set_phase(phase::TARGET);
            return Step::More;
        }
        let is_method = b.wrapping_sub(b'A') < 26 || b == b'-' || b == b'_';
        if !is_method || self.at >= 24 {
            return Step::Fail;
        }
        self.acc = self.acc << 8 | b as u64;
        self.at += 1;
        Step::More
    }

    #[inline(always)]
    fn target(&mut self, b: u8) -> Step {
        if b == b'\n' {
            let version = self.acc >> 8;
            let minor = (self.acc as u8).wrapping_sub(b'0');
            if version != big_endian(b"HTTP/1.") || minor > 9 || self.at != b' ' {
                return Step::Fail;
            }
            return self.headers_follow();
        }
        if self.flags & CR != 0 || (b < 0x20 && b != b'\r') {
            return Step::Fail;
        }
        if b == b'\r' {
            self.flags |= CR;
        } else {
            self.at = (self.acc >> 56) as u8;
            self.acc = self.acc << 8 | b as u64;
        }
        Step::More
    }

    #[inline(always)]
    fn headers_follow(&mut self) -> Step {
        self.acc = 0;
        self.at = 0;
        self.flags &= !(CR | TENTATIVE);
        self.set_phase(phase::LINE_START);
        Step::More
    }

    #[inline(always)]
    fn version(&mut self, b: u8) -> Step {
        self.acc = self.acc << 8 | b as u64;
        self.at += 1;
        if self.at == 1 && b != b'H' {
            return Step::Fail;
        }
        if self.at == 8 {
            if self.acc >> 8 != big_endian(b"HTTP/1.") || b.wrapping_sub(b'0') > 9 {
                return Step::Fail;
            }
            self.at = 0;
            self.status = 0;
            self.set_phase(phase::STATUS);
        }
        Step::More
    }

    #[inline(always)]
    fn status_digit(&mut self, b: u8) -> Step {
        self.at += 1;
        if self.at == 1 {
            return if b == b' ' { Step::More } else { Step::Fail };
        }
        if self.at <= 4 {
            let digit = b.wrapping_sub(b'0');
            if digit > 9 || (self.at == 2 && digit == 0) {
                return Step::Fail;
            }
            self.status = self.status * 10 + digit as u16;
            return Step::More;
        }
        if b == b'\n' {
            return self.headers_follow();
        }
        if b != b' ' && b != b'\r' {
            return Step::Fail;
        }
        self.headers_follow();
        self.set_phase(phase::LINE);
        Step::More
    }

    #[inline(always)]
    fn line_start(&mut self, b: u8) -> Step {
        if b == b'\n' {
            return Step::HeadEnd;
        }
        self.at = 1;
        let lower = b | 0x20;
        self.set_phase(if b == b'\r' {
            phase::END
        } else if lower == b'c' {
            phase::NAME_LENGTH
        } else if lower == b't' {
            phase::NAME_ENCODING
        } else {
            phase::LINE
        });
        Step::More
    }

    #[inline(always)]
    fn name(&mut self, b: u8, len: u8, value: u8) -> Step {
        let at = self.at;
        if at >= len {
            if b == b':' {
                self.begin_value(value);
            } else {
                self.leave_for_line(b);
            }
            return Step::More;
        }
        let is_length = value == phase::LENGTH;
        let word = if at < 8 {
            if is_length { letters(CONTENT_LENGTH, 0) } else { letters(TRANSFER_ENCODING, 0) }
        } else if at < 16 {
            if is_length { letters(CONTENT_LENGTH, 8) } else { letters(TRANSFER_ENCODING, 8) }
        } else {
            letters(TRANSFER_ENCODING, 16)
        };
        let wanted = (word >> (8 * (at & 7) as u32)) as u8;
        let lower = if b.wrapping_sub(b'A') < 26 { b | 0x20 } else { b };
        if lower == wanted {
            self.at = at + 1;
        } else {
            self.leave_for_line(b);
        }
        Step::More
    }

    #[inline(always)]
    fn begin_value(&mut self, value: u8) {
        self.set_phase(value);
        self.at = 0;
        if value == phase::LENGTH {
            self.acc = 0;
        }
    }

    /// The line is of no interest after all; `b` may already end it.
    #[inline(always)]
    fn leave_for_line(&mut self, b: u8) {
        self.set_phase(if b == b'\n' { phase::LINE_START } else { phase::LINE });
    }

    #[inline(always)]
    fn length(&mut self, b: u8) -> Step {
        let digit = b.wrapping_sub(b'0');
        if digit <= 9 {
            self.flags |= HAS_LENGTH;
            self.acc = if self.acc > u64::MAX / 100 { self.acc } else { self.acc * 10 + digit as u64 };
        } else if b != b' ' && b != b'\t' {
            self.leave_for_line(b);
        }
        Step::More
    }

    /// Only the last coding decides, so the value's last seven letters are compared at its end. `at` walks over "chunked".
    #[inline(always)]
    fn encoding(&mut self, b: u8) -> Step {
        if b == b'\n' {
            if self.at == 7 {
                self.flags |= CHUNKED;
            }
            self.set_phase(phase::LINE_START);
        } else if b == b' ' || b == b'\t' || b == b'\r' {
            if self.at != 7 {
                self.at = 0;
            }
        } else {
            let wanted = (letters(b"chunked", 0) >> (8 * (self.at & 7) as u32)) as u8;
            let lower = if b.wrapping_sub(b'A') < 26 { b | 0x20 } else { b };
            self.at = if self.at < 7 && lower == wanted {
                self.at + 1
            } else if b == b',' {
                0
            } else {
                // No prefix of "chunked" occurs inside it, so a wrong letter spoils the token until the next comma or space.
                8
            };
        }
        Step::More
    }

    #[inline(always)]
    fn body_byte(&mut self, phase: u8, b: u8) -> Step {
        match phase {
            phase::CHUNK_SIZE => self.chunk_size(b),
            phase::CHUNK_EXTENSION => {
                if b == b'\n' { self.chunk_follows() } else { Step::More }
            }
            phase::CHUNK_END => {
                if b == b'\n' {
                    self.acc = 0;
                    self.at = 0;
                    self.set_phase(phase::CHUNK_SIZE);
                    return Step::More;
                }
                if b == b'\r' { Step::More } else { Step::Fail }
            }
            phase::TRAILER_START => {
                if b == b'\n' {
                    self.set_phase(phase::START);
                } else if b != b'\r' {
                    self.set_phase(phase::TRAILER);
                }
                Step::More
            }
            phase::TRAILER => {
                if b == b'\n' {
                    self.set_phase(phase::TRAILER_START);
                }
                Step::More
            }
            // Body, chunk and the passive phases are never stepped through.
            _ => Step::Skip,
        }
    }

    #[inline(always)]
    fn chunk_size(&mut self, b: u8) -> Step {
        let decimal = b.wrapping_sub(b'0');
        let letter = (b | 0x20).wrapping_sub(b'a');
        if decimal <= 9 || letter < 6 {
            if self.at >= 15 {
                return Step::Fail;
            }
            let digit = if decimal <= 9 { decimal } else { letter + 10 };
            self.acc = self.acc << 4 | digit as u64;
            self.at += 1;
            return Step::More;
        }
        if self.at == 0 {
            return Step::Fail;
        }
        if b == b'\n' {
            return self.chunk_follows();
        }
        if b == b';' || b == b' ' || b == b'\t' {
            self.set_phase(phase::CHUNK_EXTENSION);
        } else if b != b'\r' {
            return Step::Fail;
        }
        Step::More
    }

    #[inline(always)]
    fn chunk_follows(&mut self) -> Step {
        if self.acc == 0 {
            self.set_phase(phase::TRAILER_START);
            return Step::More;
        }
        self.set_phase(phase::CHUNK);
        Step::Skip
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// Turns `c`, `o`, … into lower case where they are letters in `content-`; the eighth byte is left alone.
const LETTERS_8: u64 = 0x0020_2020_2020_2020;

/// Marks with 0x80 the bytes that equal `byte`; above the first of them the marks mean nothing.
#[inline(always)]
const fn bytes_equal(word: u64, byte: u8) -> u64 {
    let zeroed = word ^ (ONES * byte as u64);
    zeroed.wrapping_sub(ONES) & !zeroed & TOPS
}

/// The lowest marked byte, 0 to 7. Without counting zeros, for which BPF has no instruction.
#[inline(always)]
const fn first_marked(marks: u64) -> u32 {
    let lowest = marks & marks.wrapping_neg();
    ((((lowest >> 7).wrapping_sub(1) & ONES).wrapping_mul(ONES)) >> 56) as u32
}

/// Whether any of the eight bytes is below `limit` (at most 128).
#[inline(always)]
const fn has_below(word: u64, limit: u8) -> bool {
    word.wrapping_sub(ONES * limit as u64) & !word & TOPS != 0
}

/// Bytes that are there to be read.
pub trait Window {
    /// The byte at `at`.
    fn byte(&self, at: u32) -> u8;
    /// The eight bytes from `at`, the first lowest.
    fn word(&self, at: u32) -> u64;
}

const _: () = assert!(size_of::<Machine>() == 16);
