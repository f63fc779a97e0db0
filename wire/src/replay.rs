//! The recogniser on the host: one connection, fed segment by segment as the kernel's hooks would see them.
#![allow(
    clippy::cast_possible_truncation,
    reason = "lanes of words and sequence numbers are meant to be cut; checked conversions could panic"
)]
//!
//! It runs the very code of the kernel programs, with the kernel's limits left out (steps of a run) or set by the caller.
//! Tests and the fuzzer use it, and compare the kernel with it.

use crate::abi::role;
use crate::conn::{Book, Conn, Head, side};
use crate::flow::{AT_MARK, IN_HOLE, Place};
use crate::http1::{Body, Machine, Window};
use crate::read::{self, CHUNK, Payload, Piece, Rest, Run, Sink};

/// Told what the recogniser finds.
pub trait Observer {
    /// A head was counted. `piece` tells which bytes of the segment belong to it.
    fn head(&mut self, side: usize, head: Head, piece: Piece);
    /// A segment ends within a head; `index` messages were before it.
    fn part(&mut self, side: usize, index: u32, piece: Piece);
}

impl Observer for () {
    fn head(&mut self, _side: usize, _head: Head, _piece: Piece) {}
    fn part(&mut self, _side: usize, _index: u32, _piece: Piece) {}
}

/// One connection.
#[derive(Debug, Clone)]
pub struct Replay {
    conn: Conn,
    /// Requests counted.
    pub requests: u64,
    /// Final responses counted.
    pub responses: u64,
    /// Directions that are not HTTP/1.x.
    pub foreign: u64,
    /// Gaps that were neither bridged nor remembered.
    pub gaps: u64,
    /// Heads counted though a part of each was never read.
    pub assumed: u64,
    /// Bytes read, each once.
    pub bytes: [u64; 2],
    steps: u32,
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
        Self { conn, requests: 0, responses: 0, foreign: 0, gaps: 0, assumed: 0, bytes: [0; 2], steps: u32::MAX }
    }

    /// Breaks every run off after so many steps, as the kernel does. At least 2: loading a chunk is one.
    #[must_use]
    pub const fn with_steps(self, steps: u32) -> Self {
        Self { steps: if steps < 2 { 2 } else { steps }, ..self }
    }

    /// The state.
    #[must_use]
    pub const fn conn(&self) -> &Conn {
        &self.conn
    }

    /// A segment of a side (see [`side`]) at `seq`. Returns the number of runs that it took.
    pub fn segment(&mut self, side: usize, seq: u32, bytes: &[u8], observer: &mut impl Observer) -> u32 {
        let Ok(len) = u32::try_from(bytes.len()) else { return 0 };
        let mut runs = 0;
        if len == 0 {
            return 0;
        }
        loop {
            let Conn { flows, book } = &mut self.conn;
            let flow = &mut flows[side & 1];
            if book.opaque != 0 {
                flow.machines[AT_MARK].make_opaque();
            }
            let (place, forgot) = flow.place(seq, len);
            self.gaps += u64::from(forgot);
            if place == Place::Old {
                return runs;
            }
            runs += 1;
            let mut payload = Slice { bytes, chunk: [b'\n'; CHUNK + 16] };
            let mut watch = Watch { book, side, observer, counted: [0; 2], foreign: 0 };
            let mut saved = Machine::requests();
            read::begin(flow);
            let mut steps = 0;
            while steps < self.steps && Run::new(flow, &mut saved, seq).step(&mut payload, &mut watch) {
                steps += 1;
            }
            Run::new(flow, &mut saved, seq).end(&mut payload, &mut watch);
            let (counted, foreign) = (watch.counted, watch.foreign);
            let (rest, count) = read::finish(flow, seq, len);
            self.requests += counted[side::REQUEST];
            self.responses += counted[side::RESPONSE];
            self.foreign += foreign;
            self.bytes[side & 1] += u64::from(count);
            match rest {
                Rest::None => return runs,
                Rest::Again => {}
                Rest::HeadAssumed => {
                    self.assume(side);
                    return runs;
                }
            }
        }
    }

    fn assume(&mut self, side: usize) {
        let Conn { flows, book } = &mut self.conn;
        let machine = &flows[side & 1].machines[IN_HOLE];
        self.assumed += 1;
        if side == side::RESPONSE && !machine.status_known() {
            return;
        }
        if book.complete(side, machine).0.is_some() {
            if side == side::REQUEST {
                self.requests += 1;
            } else {
                self.responses += 1;
            }
        }
    }
}

struct Slice<'a> {
    bytes: &'a [u8],
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
    fn load(&mut self, offset: u32, len: u32) -> bool {
        let (from, len) = (offset as usize, len as usize);
        match (self.bytes.get(from..from + len), self.chunk.get_mut(..len)) {
            (Some(bytes), Some(chunk)) => {
                chunk.copy_from_slice(bytes);
                true
            }
            _ => false,
        }
    }

    fn is_intact(&self) -> bool {
        true
    }
}

struct Watch<'a, O> {
    book: &'a mut Book,
    side: usize,
    observer: &'a mut O,
    counted: [u64; 2],
    foreign: u64,
}

impl<O: Observer> Sink for Watch<'_, O> {
    fn complete(&mut self, machine: &Machine) -> (Option<Head>, Body) {
        self.book.complete(self.side, machine)
    }

    fn head(&mut self, head: Head, piece: Piece, _declared: u64) {
        self.counted[self.side & 1] += 1;
        self.observer.head(self.side, head, piece);
    }

    fn part(&mut self, _machine: &Machine, piece: Piece) {
        let index = if self.side == side::REQUEST { self.book.request_count } else { self.book.response_count };
        self.observer.part(self.side, index, piece);
    }

    fn foreign(&mut self) {
        self.foreign += 1;
    }
}
