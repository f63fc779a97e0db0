//! The recognisers on the host: one connection, fed segment by segment as the kernel's hooks would see them.
#![allow(clippy::cast_possible_truncation, reason = "lengths and sequence numbers are meant to be cut; checked conversions could panic")]
//!
//! It runs the very code of the kernel programs, without the kernel's limit on the steps of a run.
//! Tests and the fuzzer use it, and compare the kernel with it.

use crate::abi::{outcome, protocol, role};
use crate::conn::{Book, Conn};
use crate::detect::{self, BY_TEXT, INLINE, LOOKS, MORE, Opening, PASS};
use crate::flow::{Flow, Place, Stretch};
use crate::http1::Machine;
use crate::http2::Http2;
use crate::mysql::Mysql;
use crate::passive::Passive;
use crate::postgres::Postgres;
use crate::read::{self, CHUNK, Payload, Run, Sink};
use crate::recogniser::{Note, Piece, Recogniser, Window, tally};
use crate::redis::Redis;
use crate::ring::{BLOCK, RING, Ranges, Ring};

/// Told what the recogniser finds.
pub trait Observer {
    /// Something is complete, or in part, of a side (see `conn::side`); `piece` tells which bytes of the stream belong to it.
    fn note(&mut self, side: usize, note: &Note, piece: Piece);
}

impl Observer for () {
    fn note(&mut self, _side: usize, _note: &Note, _piece: Piece) {}
}

/// One connection.
#[derive(Debug, Clone)]
pub struct Replay {
    conn: Conn,
    rings: [Ring; 2],
    /// Requests counted.
    pub requests: u64,
    /// Final responses counted.
    pub responses: u64,
    /// Responses without error, where the protocol has no status codes.
    pub ok: u64,
    /// Responses that are errors, where the protocol has no status codes.
    pub errors: u64,
    /// Logins that were answered with an error.
    pub turned_away: u64,
    /// Directions that are not what they were taken for.
    pub foreign: u64,
    /// Gaps that could not be waited for.
    pub gaps: u64,
    /// Bytes of each side, each once.
    pub bytes: [u64; 2],
}

impl Replay {
    /// A connection whose directions begin at these sequence numbers (requests, responses).
    #[must_use]
    pub const fn new(next: [u32; 2]) -> Self {
        Self::of(Conn::fresh(role::INGRESS, next[0], next[1]))
    }

    /// A connection that was open before anybody looked.
    #[must_use]
    pub const fn found() -> Self {
        Self::of(Conn::found(role::INGRESS))
    }

    const fn of(conn: Conn) -> Self {
        let ring = Ring { ranges: Ranges { all: [(0, 0); 8] }, cursor: 0, data: [0; RING + 2 * BLOCK] };
        Self { conn, rings: [ring; 2], requests: 0, responses: 0, ok: 0, errors: 0, turned_away: 0, foreign: 0, gaps: 0, bytes: [0; 2] }
    }

    /// A connection whose protocol is decided beforehand; see [`protocol`].
    #[must_use]
    pub const fn pinned(mut self, protocol: u8) -> Self {
        self.conn.book.protocol = protocol;
        self
    }

    /// The state.
    #[must_use]
    pub const fn conn(&self) -> &Conn {
        &self.conn
    }

    /// A segment of a side (see `conn::side`) at `seq`.
    pub fn segment(&mut self, side: usize, seq: u32, bytes: &[u8], observer: &mut impl Observer) {
        let Ok(len) = u32::try_from(bytes.len()) else { return };
        if len == 0 {
            return;
        }
        // Each round reads something, or gives something up.
        loop {
            let protocol = self.conn.book.protocol;
            let flow = &mut self.conn.flows[side & 1];
            let book = &mut self.conn.book;
            let (place, bridged) = match protocol {
                protocol::HTTP1 => placed::<Machine>(flow, book, side, seq, len),
                protocol::HTTP2 => placed::<Http2>(flow, book, side, seq, len),
                protocol::REDIS => placed::<Redis>(flow, book, side, seq, len),
                protocol::MYSQL => placed::<Mysql>(flow, book, side, seq, len),
                protocol::POSTGRES => placed::<Postgres>(flow, book, side, seq, len),
                protocol::ANY => flow.place_unread(seq, len),
                _ => placed::<Passive>(flow, book, side, seq, len),
            };
            self.bytes[side & 1] += u64::from(bridged);
            match place {
                Place::Old => return,
                Place::New => {
                    if self.read(side, seq, bytes, observer) {
                        break;
                    }
                }
                Place::Ahead => {
                    if self.store(side, seq, bytes) {
                        break;
                    }
                    self.gaps += 1;
                    // Only what is missing is given up, not what came after it.
                    let flow = &mut self.conn.flows[side & 1];
                    let next = self.rings[side & 1].ranges.next_after(flow.mark, seq);
                    flow.give_up(if flow.stored == 0 { seq } else { next });
                    self.drain(side, observer);
                }
            }
        }
        self.drain(side, observer);
    }

    /// Reads what the ring has at the mark.
    fn drain(&mut self, side: usize, observer: &mut impl Observer) {
        while self.conn.flows[side & 1].stored != 0 {
            let flow = &mut self.conn.flows[side & 1];
            let ranges = &self.rings[side & 1].ranges;
            let end = ranges.end_from(flow.mark);
            if end == flow.mark {
                flow.stored = u8::from(!ranges.is_empty(flow.mark));
                return;
            }
            flow.stretch.end = end;
            flow.stretch.source = Stretch::RING;
            let unread = self.conn.book.protocol == protocol::ANY;
            if unread && !self.look(side, 0, &[]) && self.conn.book.protocol == protocol::ANY {
                return;
            }
            if self.conn.book.protocol != protocol::ANY {
                self.adopt(side);
                self.read(side, 0, &[], observer);
            }
        }
    }

    fn adopt(&mut self, side: usize) {
        let Conn { flows, book, .. } = &mut self.conn;
        let flow = &mut flows[side & 1];
        match book.protocol {
            protocol::HTTP1 => flow.adopt::<Machine>(book, side),
            protocol::HTTP2 => flow.adopt::<Http2>(book, side),
            protocol::REDIS => flow.adopt::<Redis>(book, side),
            protocol::MYSQL => flow.adopt::<Mysql>(book, side),
            protocol::POSTGRES => flow.adopt::<Postgres>(book, side),
            _ => flow.adopt::<Passive>(book, side),
        }
    }

    /// Reads the stretch that was chosen. False if the connection turned out to go on with another protocol, or nothing can be said yet.
    fn read(&mut self, side: usize, seq: u32, bytes: &[u8], observer: &mut impl Observer) -> bool {
        match self.conn.book.protocol {
            protocol::HTTP1 => self.run::<Machine>(side, seq, bytes, observer),
            protocol::HTTP2 => self.run::<Http2>(side, seq, bytes, observer),
            protocol::REDIS => self.run::<Redis>(side, seq, bytes, observer),
            protocol::MYSQL => self.run::<Mysql>(side, seq, bytes, observer),
            protocol::POSTGRES => self.run::<Postgres>(side, seq, bytes, observer),
            protocol::ANY => self.look(side, seq, bytes),
            _ => self.run::<Passive>(side, seq, bytes, observer),
        }
    }

    fn look(&mut self, side: usize, seq: u32, bytes: &[u8]) -> bool {
        let flow = &self.conn.flows[side & 1];
        let (mark, Stretch { end, source, .. }) = (flow.mark, flow.stretch);
        let opening = Opening { source, from: mark, total: end.wrapping_sub(mark), side, late: flow.flags & Flow::MIDDLE != 0 };
        let mut payload = Slice { bytes, seq, ring: &self.rings[side & 1], chunk: [b'\n'; CHUNK + 16] };
        let found = detect::look(&mut payload, &opening);
        let from_ring = source == Stretch::RING;
        if found == MORE {
            self.conn.flows[side & 1].keeps();
        }
        match found {
            MORE if !from_ring => {
                let kept = bytes.get(mark.wrapping_sub(seq) as usize..).unwrap_or_default();
                self.store(side, mark, kept);
                true
            }
            MORE => false,
            PASS => {
                self.conn.book.looked += 1;
                self.bytes[side & 1] += u64::from(self.conn.flows[side & 1].passes());
                if self.conn.book.looked >= LOOKS {
                    self.conn.book.protocol = protocol::UNKNOWN;
                }
                true
            }
            found => {
                let protocol = if found == INLINE { protocol::REDIS } else { found };
                if found == INLINE {
                    self.conn.book.looked = BY_TEXT;
                }
                self.conn.book.protocol = protocol;
                self.foreign += u64::from(protocol >= protocol::TLS);
                false
            }
        }
    }

    fn run<M: Recogniser>(&mut self, side: usize, seq: u32, bytes: &[u8], observer: &mut impl Observer) -> bool {
        let Conn { flows, book, .. } = &mut self.conn;
        let flow = &mut flows[side & 1];
        let ring = &self.rings[side & 1];
        let mut payload = Slice { bytes, seq, ring, chunk: [b'\n'; CHUNK + 16] };
        let mut watch = Watch { side, observer, requests: 0, responses: [0; 3], turned_away: 0, foreign: 0 };
        read::begin::<M>(flow, book, side);
        while Run::<M>::new(flow, book, side).step(&mut payload, &mut watch) {}
        Run::<M>::new(flow, book, side).end(&mut payload, &mut watch);
        self.requests += watch.requests;
        self.responses += watch.responses.iter().sum::<u64>();
        self.ok += watch.responses[1];
        self.errors += watch.responses[2];
        self.turned_away += watch.turned_away;
        self.foreign += watch.foreign;
        let (whole, count) = read::finish(flow);
        self.bytes[side & 1] += u64::from(count);
        whole
    }

    /// Keeps bytes that cannot be read yet.
    fn store(&mut self, side: usize, seq: u32, bytes: &[u8]) -> bool {
        let flow = &mut self.conn.flows[side & 1];
        let ring = &mut self.rings[side & 1];
        if flow.stored == 0 {
            ring.ranges = Ranges::default();
        }
        let to = seq.wrapping_add(bytes.len() as u32);
        if !Ranges::reaches(flow.mark, to) || !ring.ranges.add(flow.mark, seq, to) {
            return false;
        }
        for (offset, &byte) in (0_u32..).zip(bytes) {
            let at = seq.wrapping_add(offset) as usize % RING;
            if let Some(place) = ring.data.get_mut(at) {
                *place = byte;
            }
        }
        flow.stored = 1;
        true
    }
}

fn placed<M: Recogniser>(flow: &mut Flow, book: &mut Book, side: usize, seq: u32, len: u32) -> (Place, u32) {
    flow.adopt::<M>(book, side);
    flow.place::<M>(seq, len)
}

struct Slice<'a> {
    bytes: &'a [u8],
    /// Sequence number of the first.
    seq: u32,
    ring: &'a Ring,
    chunk: [u8; CHUNK + 16],
}

impl Window for Slice<'_> {
    fn byte(&self, at: u32) -> u8 {
        self.chunk.get(at as usize).copied().unwrap_or(0)
    }

    fn word(&self, at: u32) -> u64 {
        let from = at as usize;
        self.chunk.get(from..from + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
    }
}

impl Payload for Slice<'_> {
    fn load(&mut self, source: u32, at: u32, len: u32) -> u32 {
        if source == Stretch::RING {
            let places = (0_u32..).map(|offset| at.wrapping_add(offset) as usize % RING);
            for (to, from) in self.chunk.iter_mut().take(len as usize).zip(places) {
                *to = self.ring.data.get(from).copied().unwrap_or(0);
            }
            return len;
        }
        let from = at.wrapping_sub(self.seq) as usize;
        match (self.bytes.get(from..from + len as usize), self.chunk.get_mut(..len as usize)) {
            (Some(bytes), Some(chunk)) => {
                chunk.copy_from_slice(bytes);
                len
            }
            _ => 0,
        }
    }

    fn is_intact(&self) -> bool {
        true
    }
}

struct Watch<'a, O> {
    side: usize,
    observer: &'a mut O,
    requests: u64,
    /// With a status or none, without error, with one.
    responses: [u64; 3],
    turned_away: u64,
    foreign: u64,
}

impl<O: Observer> Sink for Watch<'_, O> {
    fn note(&mut self, note: &Note, piece: Piece) {
        match note.tally {
            tally::REQUEST => self.requests += u64::from(note.times),
            tally::STATUS | tally::RESPONSE => self.responses[0] += 1,
            tally::OUTCOME if note.status != outcome::OK => self.responses[2] += 1,
            tally::OUTCOME => self.responses[1] += 1,
            tally::TURNED_AWAY => self.turned_away += 1,
            _ => {}
        }
        self.observer.note(self.side, note, piece);
    }

    fn foreign(&mut self) {
        self.foreign += 1;
    }
}
