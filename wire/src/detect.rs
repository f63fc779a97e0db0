//! Which protocol a connection speaks, from the first bytes of either side.
#![allow(clippy::cast_possible_truncation, reason = "lanes of words are meant to be cut; checked conversions could panic")]
//!
//! From the first byte on, each protocol begins in a way of its own, and nothing else is taken for it. A connection that was
//! joined in its middle is recognised by a segment that begins with a message and holds messages to its end. One that may hold no more than the beginning of
//! HTTP/1's or Redis' is kept until the next has come; if that is none, the next is looked at by itself (see `Flow::passes`).

use crate::abi::protocol;
use crate::conn::side;
use crate::http1::words::{ONES, TOPS, big_endian, bytes_equal, first_marked, letters};
use crate::read::{CHUNK, Payload};

/// More bytes are needed; the ones that are there must be kept.
pub const MORE: u8 = 0xff;
/// Nothing can be said; the bytes can be passed over. Only where the connection was joined late.
pub const PASS: u8 = 0xfe;
/// Redis by a command in plain text, which others have too: what answers it decides.
pub const INLINE: u8 = 0xfd;
/// In [`Book::looked`](crate::conn::Book::looked): the connection was taken for Redis by such a command.
pub const BY_TEXT: u8 = 0xff;
/// Segments of a late connection that are looked at in vain, at most.
pub const LOOKS: u8 = 32;

/// The bytes to look at.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    /// Where they lie; see `flow::Stretch`.
    pub source: u32,
    /// Sequence number of the first.
    pub from: u32,
    /// How many there are.
    pub total: u32,
    /// See [`side`].
    pub side: usize,
    /// The connection was joined in its middle.
    pub late: bool,
}

/// What the connection speaks; or [`MORE`], or [`PASS`].
#[inline(always)]
pub fn look(payload: &mut impl Payload, opening: &Opening) -> u8 {
    let want = if opening.total > CHUNK as u32 { CHUNK as u32 } else { opening.total };
    let have = payload.load(opening.source, opening.from, want);
    if have == 0 {
        // They cannot be read, which says nothing about what they are.
        return MORE;
    }
    let found = if opening.side == side::REQUEST { requests(payload, opening, have) } else { responses(payload, opening, have) };
    if opening.late && found == MORE && (opening.side == side::RESPONSE || may_begin(payload.word(0), have)) {
        return MORE;
    }
    if opening.late && (found == MORE || found == protocol::UNKNOWN) { in_the_middle(payload, opening) } else { found }
}

/// Methods of HTTP/1 with the space after them.
const METHODS: [&[u8]; 9] = [b"GET ", b"PUT ", b"POST ", b"HEAD ", b"PATCH ", b"TRACE ", b"DELETE ", b"OPTIONS ", b"CONNECT "];

/// Whether bytes that more are needed of may be the beginning of a request line, or of Redis' `*N`. By arithmetic: each branch would be followed by the
/// kernel's verifier.
#[inline(always)]
fn may_begin(word: u64, have: u32) -> bool {
    let there = u64::MAX >> (64 - 8 * if have < 8 { have } else { 8 }) as u64;
    let mut differs = ((word as u8 != b'*') as u64) << 63;
    let mut at = 0;
    while at < METHODS.len() {
        let method = METHODS[at];
        let known = u64::MAX >> (64 - 8 * method.len() as u64);
        let difference = (word ^ letters(method, 0)) & known & there;
        differs &= difference | difference.wrapping_neg();
        at += 1;
    }
    differs >> 63 == 0
}

/// What a client begins with.
#[inline(always)]
fn requests(payload: &mut impl Payload, opening: &Opening, have: u32) -> u8 {
    let word = payload.word(0);
    let first = word as u8;
    if first == b'*' {
        return redis(word, have);
    }
    if first == 0x16 {
        return tls_hello(word, have);
    }
    if first == 0 && !opening.late {
        return postgres(word, have);
    }
    if (first == b'\r' || first == b'\n') && !opening.late {
        return if have < 3 { MORE } else { protocol::HTTP1 };
    }
    let found = if (first | 0x20).wrapping_sub(b'a') < 26 { text(payload, have) } else { protocol::UNKNOWN };
    // A line in the middle of something else may begin like a command: whole lines must fill the segment.
    let is_whole = opening.total == have && payload.byte(have - 1) == b'\n';
    if found == INLINE && opening.late && !is_whole { protocol::UNKNOWN } else { found }
}

/// Marks with 0x80 the bytes that are neither printable nor CR. Without a branch, each of which the kernel's verifier follows.
#[inline(always)]
const fn unprintable(word: u64) -> u64 {
    let below = !(word | TOPS).wrapping_sub(ONES * 0x20);
    let cr = word ^ (ONES * b'\r' as u64);
    let is_other = (cr & !TOPS).wrapping_add(ONES * 0x7f) | cr;
    (below & is_other | word) & TOPS
}

/// `*N` CR LF `$`.
#[inline(always)]
fn redis(word: u64, have: u32) -> u8 {
    let ends = bytes_equal(word, b'\r');
    let at = if ends == 0 { 8 } else { first_marked(ends) };
    let digits = if at < have { at } else { have };
    // No byte between is anything but a digit.
    let mut others = 0;
    let mut i = 1;
    while i < 7 {
        let b = (word >> (8 * i)) as u8;
        others |= ((i < digits) as u8) & ((b.wrapping_sub(b'0') > 9) as u8);
        i += 1;
    }
    if others != 0 || at > 6 || at == 1 {
        return if others == 0 && at > have.saturating_sub(1) && have < 7 { MORE } else { protocol::UNKNOWN };
    }
    if at + 3 > have {
        return MORE;
    }
    let after = word >> (8 * at as u64);
    if at <= 5 {
        return if after as u32 & 0x00ff_ffff == 0x0024_0a0d { protocol::REDIS } else { protocol::UNKNOWN };
    }
    if after as u16 == 0x0a0d { protocol::REDIS } else { protocol::UNKNOWN }
}

/// A handshake record of SSL 3 or TLS with a ClientHello.
#[inline(always)]
fn tls_hello(word: u64, have: u32) -> u8 {
    let [_, major, minor, _, _, kind, ..] = word.to_le_bytes();
    if (have > 1 && major != 3) || (have > 2 && minor > 4) || (have > 5 && kind != 1) {
        return protocol::UNKNOWN;
    }
    if have < 6 { MORE } else { protocol::TLS }
}

/// A message without type: length, then version 3 or a code.
#[inline(always)]
fn postgres(word: u64, have: u32) -> u8 {
    if have < 8 {
        return if have > 1 && word >> 8 & 0xff != 0 { protocol::UNKNOWN } else { MORE };
    }
    let length = (word as u32).swap_bytes();
    let code = ((word >> 32) as u32).swap_bytes();
    let is_code = code.wrapping_sub(80_877_102) < 3;
    if (8..=1 << 16).contains(&length) && (code >> 16 == 3 || is_code) { protocol::POSTGRES } else { protocol::UNKNOWN }
}

/// A line of text: a request line, HTTP/2's preface, or a Redis command that a person may have typed.
#[inline(always)]
fn text(payload: &impl Payload, have: u32) -> u8 {
    let mut line = have;
    let mut odd = 0;
    let mut at = 0;
    while at < CHUNK as u32 {
        let word = payload.word(at);
        let ends = bytes_equal(word, b'\n');
        // Those before the line's end.
        odd |= unprintable(word) & (ends & ends.wrapping_neg()).wrapping_sub(1);
        if ends != 0 {
            let end = at + first_marked(ends);
            if end < line {
                line = end;
            }
            break;
        }
        at += 8;
    }
    let mut method = 32;
    let mut at = 0;
    while at < 32 {
        let spaces = bytes_equal(payload.word(at), b' ');
        if spaces != 0 {
            method = at + first_marked(spaces);
            break;
        }
        at += 8;
    }
    let word = payload.word(0);
    if line == have {
        // No end of the line yet.
        return if have < CHUNK as u32 {
            MORE
        } else if method < 25 && (word as u8).wrapping_sub(b'A') < 26 && unprintable(word) as u32 == 0 {
            // No number among the first bytes that holds a space, as the length of a PostgreSQL message may.
            protocol::HTTP1
        } else {
            protocol::UNKNOWN
        };
    }
    let end = if line > 0 && payload.byte(line - 1) == b'\r' { line - 1 } else { line };
    if end >= 14 && method < 25 {
        let version = payload.word(end - 8);
        if version << 8 == letters(b"HTTP/1.", 0) << 8 && payload.byte(end - 9) == b' ' && (word as u8).wrapping_sub(b'A') < 26 {
            return protocol::HTTP1;
        }
        if version == u64::from_le_bytes(*b"HTTP/2.0") && word as u32 == u32::from_le_bytes(*b"PRI ") {
            return if have < crate::http2::PREFACE { MORE } else { protocol::HTTP2 };
        }
        if version as u32 == u32::from_le_bytes(*b"HTTP") {
            return protocol::UNKNOWN;
        }
    }
    // A path is what a request of HTTP/0.9 would have here.
    if payload.byte(method + 1) == b'/' || odd != 0 {
        protocol::UNKNOWN
    } else {
        inline_command(word, if method < end { method } else { end })
    }
}

/// Words that a person, or a health check, sends to Redis in plain text.
#[inline(always)]
fn inline_command(word: u64, len: u32) -> u8 {
    if len == 0 || len > 8 {
        return protocol::UNKNOWN;
    }
    let written = word.swap_bytes() >> ((64 - 8 * len) & 63);
    let name = written & !(ONES * 0x20);
    // In small letters these are memcached's, too.
    let in_capitals = written == big_endian(b"GET") || written == big_endian(b"SET") || written == big_endian(b"INCR");
    let known = in_capitals
        || name == big_endian(b"PING")
        || name == big_endian(b"INFO")
        || name == big_endian(b"AUTH")
        || name == big_endian(b"ECHO")
        || name == big_endian(b"SELECT")
        || name == big_endian(b"DBSIZE")
        || name == big_endian(b"COMMAND")
        || name == big_endian(b"CONFIG")
        || name == big_endian(b"CLIENT")
        || name == big_endian(b"MULTI")
        || name == big_endian(b"DEL");
    if known { INLINE } else { protocol::UNKNOWN }
}

/// What a server begins with, before or without a client's word.
#[inline(always)]
fn responses(payload: &impl Payload, opening: &Opening, have: u32) -> u8 {
    let word = payload.word(0);
    if word << 8 == letters(b"HTTP/1.", 0) << 8 && have >= 8 {
        return protocol::HTTP1;
    }
    if opening.late {
        let begins = have < 8 && (word ^ letters(b"HTTP/1.", 0)) << (64 - 8 * have) as u64 == 0;
        return if begins { MORE } else { PASS };
    }
    if have < 9 {
        return if opening.total < 9 { MORE } else { protocol::UNKNOWN };
    }
    // What Redis says to a client that it does not let in, before it has asked for anything.
    if word == u64::from_le_bytes(*b"-ERR max") || word == u64::from_le_bytes(*b"-DENIED ") {
        return protocol::REDIS;
    }
    let [a, b, c, sequence, version, digit, ..] = word.to_le_bytes();
    let length = a as u32 | (b as u32) << 8 | (c as u32) << 16;
    if sequence == 0 && length > 8 && length < 1024 && (version == 0xff || (version == 10 && digit.wrapping_sub(b'0') <= 9)) {
        return protocol::MYSQL;
    }
    // A server may send its settings before the client's preface has come, which then decides.
    let is_settings = a == 0 && word >> 24 & 0xff == 4 && word >> 32 == 0 && payload.byte(8) == 0;
    if is_settings { MORE } else { protocol::UNKNOWN }
}

/// A segment of a connection that was joined in its middle.
#[inline(always)]
fn in_the_middle(payload: &mut impl Payload, opening: &Opening) -> u8 {
    let word = payload.word(0);
    let [kind, major, minor, high, low, ..] = word.to_le_bytes();
    if kind.wrapping_sub(0x14) < 4 && major == 3 && minor.wrapping_sub(1) < 3 && opening.total > 5 {
        let length = (high as u32) << 8 | low as u32;
        // Nothing that is encrypted is shorter, and neither has a MySQL command's first byte in this place.
        if (length > 15 && length <= (1 << 14) + 2048) || length == 1 || length == 2 {
            return protocol::TLS;
        }
    }
    if opening.side == side::REQUEST {
        if is_mysql(word, payload.word(8), opening.total) {
            return protocol::MYSQL;
        }
        if is_postgres(payload, opening) {
            return protocol::POSTGRES;
        }
    }
    if is_http2(payload, opening) { protocol::HTTP2 } else { PASS }
}

/// One command of MySQL that fills the segment, or is longer than it.
#[inline(always)]
fn is_mysql(word: u64, more: u64, total: u32) -> bool {
    let length = word as u32 & 0xff_ffff;
    let sequence = (word >> 24) as u8;
    let command = (word >> 32) as u8;
    let next = (word >> 40) as u8;
    if sequence != 0 || length == 0 || length + 4 < total {
        return false;
    }
    let exact = length + 4 == total;
    match command {
        // Text follows.
        0x02 | 0x03 | 0x16 => length > 1 && next >= b'\t' && (exact || total > 512),
        // Statement, flags, and an iteration count that is always 1.
        0x17 => length >= 10 && (more >> 16) as u32 == 1 && (exact || total > 512),
        0x01 | 0x09 | 0x0e | 0x1f => exact && length == 1,
        0x19 | 0x1a => exact && length == 5,
        0x1b => exact && length == 3,
        0x1c => exact && length == 9,
        _ => false,
    }
}

/// Messages of PostgreSQL's client to the end of the segment, or two of them at least.
#[inline(always)]
fn is_postgres(payload: &mut impl Payload, opening: &Opening) -> bool {
    let mut at = 0;
    let mut found = 0;
    while found < 6 {
        let left = opening.total - at;
        let want = if left > 8 { 8 } else { left };
        if want < 5 || payload.load(opening.source, opening.from.wrapping_add(at), want) < 5 {
            return found >= 2;
        }
        let word = payload.word(0);
        let length = ((word >> 8) as u32).swap_bytes();
        let tag = (word as u8).wrapping_sub(b'@');
        if tag >= 64 || crate::postgres::FRONTEND >> tag & 1 == 0 || !(4..=1 << 24).contains(&length) {
            return false;
        }
        found += 1;
        if length + 1 == left {
            return true;
        }
        if length + 1 > left {
            return found >= 2;
        }
        at += length + 1;
    }
    true
}

/// Two sane frames at least, or one that fills the segment.
#[inline(always)]
fn is_http2(payload: &mut impl Payload, opening: &Opening) -> bool {
    let mut at = 0;
    let mut found = 0;
    while found < 4 {
        let left = opening.total - at;
        let want = if left > 9 { 9 } else { left };
        if want < 9 || payload.load(opening.source, opening.from.wrapping_add(at), want) < 9 {
            return found >= 2;
        }
        let word = payload.word(0);
        let length = (word as u32).swap_bytes() >> 8;
        let (kind, flags) = ((word >> 24) as u8, (word >> 32) as u8);
        let stream = ((word >> 40) as u32).swap_bytes() & !0xff | payload.byte(8) as u32;
        let odd = stream & 1 == 1;
        let sane = length <= 1 << 16
            && stream >> 31 == 0
            && match kind {
                0 => odd && flags & !0x09 == 0 && length > 0,
                1 => odd && flags & !0x2d == 0 && length > 0,
                3 => odd && length == 4 && flags == 0,
                4 => stream == 0 && length.is_multiple_of(6) && flags <= 1 && length <= 240,
                6 => stream == 0 && length == 8 && flags <= 1,
                7 => stream == 0 && length >= 8 && flags == 0,
                8 => length == 4 && flags == 0,
                9 => odd && flags & !4 == 0,
                _ => false,
            };
        if !sane {
            return false;
        }
        found += 1;
        if length + 9 == left {
            return true;
        }
        if length + 9 > left {
            return found >= 2;
        }
        at += length + 9;
    }
    true
}
