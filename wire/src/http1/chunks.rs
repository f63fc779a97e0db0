//! Chunked bodies: sizes and trailers; the data itself is skipped.

use super::{Machine, Step, phase};

impl Machine {
    #[inline(always)]
    pub(super) fn body_byte(&mut self, phase: u8, b: u8) -> Step {
        match phase {
            phase::CHUNK_SIZE => self.chunk_size(b),
            phase::CHUNK_EXTENSION => {
                if b == b'\n' {
                    self.chunk_follows()
                } else {
                    Step::More
                }
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
    pub(super) fn chunk_size(&mut self, b: u8) -> Step {
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
    pub(super) fn chunk_follows(&mut self) -> Step {
        if self.acc == 0 {
            self.set_phase(phase::TRAILER_START);
            return Step::More;
        }
        self.set_phase(phase::CHUNK);
        Step::Skip
    }
}
