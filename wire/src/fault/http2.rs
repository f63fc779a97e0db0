//! The frames of an HTTP/2 connection, as far as a response's `:status` is concerned.
//!
//! The codes of HPACK's static table are one byte, and come first in a response's field block. Another code of the table can be written
//! over that byte. A code that is spelt out stays as it is: it may be kept in the table that both ends build, and be referred to later.

#![allow(clippy::cast_possible_truncation, reason = "fields are cut out of a header word; checked conversions could panic")]

/// Codes of HPACK's static table, from [`FIRST_STATUS`] on.
pub const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
/// The byte that stands for the first of them.
pub const FIRST_STATUS: u8 = 0x88;
/// Bytes of a frame's header.
pub const FRAME_HEADER: u32 = 9;

const DATA_MAX: u32 = 16_384;
/// The last of the types that are registered.
const KNOWN_KINDS: u8 = 0x10;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// The byte of a code; `None` if the table does not have it.
#[must_use]
pub fn status_byte(status: u16) -> Option<u8> {
    (FIRST_STATUS..).zip(STATUSES).find(|(_, known)| *known == status).map(|(byte, _)| byte)
}

/// Whether a byte stands for a code that another can be written over: one of a response that may have a body.
#[inline(always)]
#[must_use]
pub const fn is_rewritable(byte: u8) -> bool {
    matches!(byte, 0x88 | 0x8a | 0x8c | 0x8d | 0x8e)
}

/// Place in one direction of a connection. All zero is a connection of which nothing is known.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frames {
    /// Bytes of the frame's header that have come.
    acc: u64,
    /// Sequence number of the next byte.
    pub next: u32,
    /// Bytes of the frame's payload that are still to come.
    left: u32,
    /// Bytes before the field block.
    prefix: u8,
    /// How much of the header has come.
    at: u8,
    /// 1 if the next byte of the payload, after the prefix, begins a field block.
    due: u8,
    /// 1 while the place is known.
    known: u8,
    reserved: u32,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// That many bytes of no interest.
    Skip(u32),
    /// A whole header, or its next byte.
    Header,
    /// The first byte of a field block.
    Field,
}

impl Frames {
    /// Whether the place is known.
    #[inline(always)]
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.known != 0
    }

    /// Takes the place of a segment's first byte, where a frame begins.
    #[inline(always)]
    pub fn adopt(&mut self, seq: u32) {
        *self = Self { next: seq, known: 1, ..Self::default() };
    }

    /// Moves to a segment: passes over what is missing if nothing of interest can be in it, and forgets the place otherwise.
    #[inline(always)]
    pub fn reach(&mut self, seq: u32) {
        let missing = seq.wrapping_sub(self.next);
        if missing == 0 || missing > i32::MAX as u32 {
            return;
        }
        if self.prefix == 0 && self.due == 0 && self.left >= missing {
            self.skip(missing);
        } else {
            self.known = 0;
        }
    }

    /// What comes next.
    #[inline(always)]
    #[must_use]
    pub fn next(&self) -> Next {
        if self.prefix > 0 {
            Next::Skip(self.prefix as u32)
        } else if self.due != 0 {
            Next::Field
        } else if self.left > 0 {
            Next::Skip(self.left)
        } else {
            Next::Header
        }
    }

    /// Whether a whole header comes next, of which no byte has come.
    #[inline(always)]
    #[must_use]
    pub const fn at_header(&self) -> bool {
        self.at == 0
    }

    /// Passes over bytes that [`Next::Skip`] spoke of.
    #[inline(always)]
    pub fn skip(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        if count > self.left {
            // Two segments were read at once, on two CPUs: what is here is neither's.
            self.known = 0;
            return;
        }
        self.left -= count;
        if self.prefix > 0 {
            // No more than the prefix, which is at most six.
            self.prefix = self.prefix.wrapping_sub(count as u8);
        }
    }

    /// Takes one byte of a header.
    #[inline(always)]
    pub fn header_byte(&mut self, byte: u8) {
        self.next = self.next.wrapping_add(1);
        if self.at < 8 {
            self.acc = self.acc << 8 | byte as u64;
            self.at += 1;
        } else {
            self.begin(self.acc);
        }
    }

    /// Takes a whole header, of which the first eight bytes are given in network order.
    #[inline(always)]
    pub fn header(&mut self, first: u64) {
        self.next = self.next.wrapping_add(FRAME_HEADER);
        self.begin(first);
    }

    #[inline(always)]
    fn begin(&mut self, first: u64) {
        let (len, kind, flags, stream) = parts(first);
        // An implausible frame is none: the place was lost.
        if kind > KNOWN_KINDS || stream >> 23 != 0 {
            self.known = 0;
        }
        self.at = 0;
        self.acc = 0;
        self.left = len;
        self.prefix = 0;
        self.due = 0;
        if kind == HEADERS {
            let prefix = if flags & PADDED != 0 { 1 } else { 0 } + if flags & PRIORITY != 0 { 5 } else { 0 };
            if len > prefix {
                self.prefix = prefix as u8;
                self.due = 1;
            }
        }
    }

    /// Takes the first byte of a field block. Whether it may be a status: a change of the table's size comes before it.
    #[inline(always)]
    pub fn field(&mut self, byte: u8) -> bool {
        self.next = self.next.wrapping_add(1);
        self.left = self.left.wrapping_sub(1);
        // 001xxxxx, of one byte if not all ones.
        let is_size = byte & 0xe0 == 0x20 && byte != 0x3f && self.left > 0;
        self.due = is_size as u8;
        !is_size
    }
}

/// Whether a frame plausibly begins with these eight bytes in network order, and how long it is with its header.
///
/// Only frames whose headers leave little to chance count: a body of something else must not pass for one.
#[inline(always)]
#[must_use]
pub fn plausible(header: u64) -> Option<u32> {
    let (len, kind, flags, stream) = parts(header);
    let plausible = match kind {
        DATA => len <= DATA_MAX && flags & !9 == 0 && stream >> 16 == 0,
        HEADERS => len > 0 && len <= DATA_MAX && flags & !0x2d == 0 && flags & 4 != 0 && stream >> 16 == 0,
        SETTINGS => len % 6 == 0 && len < 256 && flags & !1 == 0 && stream == 0,
        PING => len == 8 && flags & !1 == 0 && stream == 0,
        WINDOW_UPDATE => len == 4 && flags == 0 && stream >> 16 == 0,
        _ => false,
    };
    if plausible { Some(len + FRAME_HEADER) } else { None }
}

/// Length, type, flags, and the upper three bytes of the stream's number.
#[inline(always)]
const fn parts(header: u64) -> (u32, u8, u8, u32) {
    ((header >> 40) as u32, (header >> 32) as u8, (header >> 24) as u8, (header & 0xff_ffff) as u32)
}

const _: () = assert!(size_of::<Frames>() == 24);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

    use super::*;

    /// Feeds a stream in pieces; gives the offsets of the bytes that were told as statuses.
    fn statuses(stream: &[u8], pieces: usize) -> Vec<usize> {
        let mut frames = Frames::default();
        let mut first = [0; 8];
        first.copy_from_slice(&stream[..8]);
        assert!(plausible(u64::from_be_bytes(first)).is_some());
        frames.adopt(0);
        let mut found = Vec::new();
        for (n, piece) in stream.chunks(pieces).enumerate() {
            let begin = u32::try_from(n * pieces).unwrap();
            frames.reach(begin);
            let end = begin + u32::try_from(piece.len()).unwrap();
            while frames.next < end {
                let at = frames.next as usize;
                match frames.next() {
                    Next::Skip(count) => frames.skip(count.min(end - frames.next)),
                    Next::Header if frames.at_header() && end - frames.next >= FRAME_HEADER => {
                        first.copy_from_slice(&stream[at..at + 8]);
                        frames.header(u64::from_be_bytes(first));
                    }
                    Next::Header => frames.header_byte(stream[at]),
                    Next::Field => {
                        if frames.field(stream[at]) {
                            found.push(at);
                        }
                    }
                }
            }
        }
        found
    }

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream];
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn statuses_are_found_wherever_the_stream_is_cut() {
        let mut stream = frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]);
        let mut expected = Vec::new();
        for (flags, block, at) in [
            (4, [0x88, 0x61, 0x62].as_slice(), 0),
            (4, &[0x20, 0x8d, 0x61], 1),
            (0x0c, &[2, 0x8e, 0x61, 0, 0], 1),
            (0x24, &[0, 0, 0, 0, 9, 0x88], 5),
            (0x2c, &[1, 0, 0, 0, 0, 9, 0x88, 0], 6),
        ] {
            expected.push(stream.len() + 9 + at);
            stream.extend(frame(1, flags, 1, block));
            stream.extend(frame(0, 1, 1, &[0x88; 40]));
        }
        for pieces in 1..stream.len() + 1 {
            if pieces >= 8 {
                assert_eq!(statuses(&stream, pieces), expected, "{pieces}");
            }
        }
    }

    #[test]
    fn other_protocols_do_not_pass_for_frames() {
        for text in [
            b"HTTP/1.1",
            b"GET / HT",
            b"\x16\x03\x01\x02\x00\x01\x00\x01",
            b"\x00\x00\x00\x01\x00\x00\x00\x01",
            b"\x00\x00\x06\x04\x00\x00\x00\x01",
            b"\x00\x00\x40\x00\x40\x00\x00\x01",
        ] {
            assert!(plausible(u64::from_be_bytes(*text)).is_none(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_gap_within_a_payload_is_passed_and_one_over_a_header_is_not() {
        let mut frames = Frames { known: 1, next: 100, left: 50, ..Frames::default() };
        frames.reach(140);
        assert!(frames.is_known() && frames.next() == Next::Skip(10));
        frames.reach(151);
        assert!(!frames.is_known());
    }

    #[test]
    fn the_table_has_the_codes_of_hpack() {
        assert_eq!(status_byte(200), Some(0x88));
        assert_eq!(status_byte(500), Some(0x8e));
        assert_eq!(status_byte(503), None);
    }
}
