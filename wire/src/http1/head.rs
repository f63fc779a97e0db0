//! Heads, byte by byte: the slow path, which decides everything.
#![allow(
    clippy::cast_possible_truncation,
    reason = "lanes of words and sequence numbers are meant to be cut; checked conversions could panic"
)]

use super::words::{big_endian, letters};
use super::{CHUNKED, CONNECT, CR, H2C, HAS_LENGTH, HEAD, KNOWN, Machine, RESPONSE, Step, TENTATIVE, phase};

const CONTENT_LENGTH: &[u8] = b"content-length";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding";

impl Machine {
    #[inline(always)]
    pub(super) fn head_byte(&mut self, phase: u8, b: u8) -> Step {
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
                    return Step::Complete;
                }
                self.set_phase(phase::LINE);
                Step::More
            }
            phase::NAME_LENGTH => self.name(b, CONTENT_LENGTH.len() as u8, phase::LENGTH),
            phase::NAME_ENCODING => self.name(b, TRANSFER_ENCODING.len() as u8, phase::ENCODING),
            phase::LENGTH => self.length(b),
            phase::ENCODING => self.encoding(b),
            _ => self.switch(b),
        }
    }

    /// Forgets the last message.
    #[inline(always)]
    pub(super) fn begin(&mut self) {
        self.head = 0;
        self.at = 0;
        self.acc = 0;
        self.flags &= RESPONSE | KNOWN | TENTATIVE;
    }

    #[inline(always)]
    pub(super) fn method(&mut self, b: u8) -> Step {
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
    pub(super) fn target(&mut self, b: u8) -> Step {
        if b == b'\n' {
            return self.target_ends();
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

    /// The request line has ended: `acc` has its last eight bytes, `at` the one before.
    #[inline(always)]
    pub(super) fn target_ends(&mut self) -> Step {
        let minor = (self.acc as u8).wrapping_sub(b'0');
        if self.acc >> 8 != big_endian(b"HTTP/1.") || minor > 9 || self.at != b' ' {
            return Step::Fail;
        }
        self.headers_follow()
    }

    #[inline(always)]
    pub(super) fn headers_follow(&mut self) -> Step {
        self.acc = 0;
        self.at = 0;
        self.flags &= !(CR | TENTATIVE);
        self.set_phase(phase::LINE_START);
        Step::More
    }

    #[inline(always)]
    pub(super) fn version(&mut self, b: u8) -> Step {
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
    pub(super) fn status_digit(&mut self, b: u8) -> Step {
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
            self.headers_follow();
            if self.status == 101 {
                self.acc = b as u64;
                self.set_phase(phase::SWITCH);
            }
            return Step::More;
        }
        if b != b' ' && b != b'\r' {
            return Step::Fail;
        }
        self.reason_follows();
        Step::More
    }

    /// The status is known, and its line goes on.
    #[inline(always)]
    pub(super) fn reason_follows(&mut self) {
        self.headers_follow();
        self.set_phase(if self.status == 101 { phase::SWITCH } else { phase::LINE });
    }

    /// The rest of a 101's head: `acc` has its last bytes. Only `upgrade` can have `h2c` for a value.
    #[inline(always)]
    fn switch(&mut self, b: u8) -> Step {
        let before = self.acc;
        self.acc = before << 8 | b as u64;
        if b != b'\n' {
            return Step::More;
        }
        if before as u8 == b'\n' || before as u16 == u16::from_be_bytes(*b"\n\r") {
            return Step::Complete;
        }
        let value = if before as u8 == b'\r' { before >> 8 } else { before };
        let lead = (value >> 24) as u8;
        if value & 0xff_ffff | 0x20_0020 == big_endian(b"h2c") && (lead == b' ' || lead == b':' || lead == b'\t') {
            self.flags |= H2C;
        }
        Step::More
    }

    #[inline(always)]
    pub(super) fn line_start(&mut self, b: u8) -> Step {
        if b == b'\n' {
            return Step::Complete;
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
    pub(super) fn name(&mut self, b: u8, len: u8, value: u8) -> Step {
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
    pub(super) fn begin_value(&mut self, value: u8) {
        self.set_phase(value);
        self.at = 0;
        if value == phase::LENGTH {
            self.acc = 0;
        }
    }

    /// The line is of no interest after all; `b` may already end it.
    #[inline(always)]
    pub(super) fn leave_for_line(&mut self, b: u8) {
        self.set_phase(if b == b'\n' { phase::LINE_START } else { phase::LINE });
    }

    #[inline(always)]
    pub(super) fn length(&mut self, b: u8) -> Step {
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
    pub(super) fn encoding(&mut self, b: u8) -> Step {
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
}
