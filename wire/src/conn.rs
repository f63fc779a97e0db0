//! One connection as the kernel keeps it in the socket's storage, and the reading of a segment.
//!
//! The hooks of the two directions may run at the same time on two CPUs, so every field has one writer: the request
//! side, the response side, the ingress hook, the egress hook, or `sock_ops` (which holds the socket).

use crate::abi::role;
use crate::flow::{Flow, Merge, Place};
use crate::http1::{Body, Machine, Step};

/// Bytes that are read from a segment at a time.
pub const CHUNK: usize = 128;
/// The same in words.
pub const CHUNK_WORDS: usize = CHUNK / 8;

/// State of one connection: the value of the socket storage map.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conn {
    /// Requests.
    pub requests: Flow,
    /// Responses.
    pub responses: Flow,
    /// What belongs to the connection as a whole.
    pub book: Book,
}

/// The part of [`Conn`] that both directions look at.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Book {
    /// Socket cookie.
    pub cookie: u64,
    /// Bit `index % 64` says that this request's method was HEAD. Request side.
    pub head_ring: u64,
    /// Complete requests so far. Request side.
    pub request_count: u32,
    /// Final responses to known requests so far. Response side.
    pub response_count: u32,
    /// 1 + index of a CONNECT request; 0 is none. Request side.
    pub connect_at: u32,
    /// Edge index.
    pub edge: u8,
    /// See [`role`].
    pub role: u8,
    /// [`Book::ESTABLISHED`] and the like. Written by `sock_ops`, or by the first hook of a connection found open.
    pub life: u8,
    /// [`Book::RST`], [`Book::FIN`]: seen by the ingress hook.
    pub seen_in: u8,
    /// The same by the egress hook.
    pub seen_out: u8,
    /// 1 once the connection stopped being HTTP (upgrade, CONNECT). Response side.
    pub opaque: u8,
    /// Must be zero.
    pub reserved: [u8; 6],
}

/// What a complete head is reported with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Position among the messages of its direction.
    pub index: u32,
    /// Status code; 0 for a request.
    pub status: u16,
    /// A response to a request that was never seen; it has no index.
    pub orphan: bool,
}

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// From client to server.
    Request,
    /// From server to client.
    Response,
}

impl Conn {
    /// A connection that begins now, with the first sequence numbers of both directions.
    #[must_use]
    pub const fn fresh(role: u8, next_in: u32, next_out: u32) -> Self {
        let (requests, responses) = if role == role::INGRESS { (next_in, next_out) } else { (next_out, next_in) };
        Self {
            requests: Flow::new(Machine::requests(), requests),
            responses: Flow::new(Machine::responses(), responses),
            book: Book::new(role),
        }
    }
}

impl Book {
    /// Established under our eyes.
    pub const ESTABLISHED: u8 = 1;
    /// `sock_ops` calls are on; without them, closing and retransmissions are seen by the packet hooks.
    pub const CALLBACKS: u8 = 2;
    /// The closed record was sent.
    pub const CLOSE_SENT: u8 = 4;
    /// This host closed first.
    pub const LOCAL_FIRST: u8 = 8;
    /// The peer closed first.
    pub const PEER_FIRST: u8 = 16;
    /// Was open before the probe.
    pub const FOUND_OPEN: u8 = 32;
    /// Its role stays unknown.
    pub const ROLE_GIVEN_UP: u8 = 64;
    /// In `seen_in`, `seen_out`: a segment with RST passed.
    pub const RST: u8 = 1;
    /// In `seen_in`, `seen_out`: a segment with FIN passed.
    pub const FIN: u8 = 2;

    /// Of a connection with nothing on it yet.
    #[must_use]
    pub const fn new(role: u8) -> Self {
        Self {
            cookie: 0,
            head_ring: 0,
            request_count: 0,
            response_count: 0,
            connect_at: 0,
            edge: 0,
            role,
            life: 0,
            seen_in: 0,
            seen_out: 0,
            opaque: 0,
            reserved: [0; 6],
        }
    }

    /// The side that a packet of this connection is on, given its direction.
    #[inline(always)]
    #[must_use]
    pub const fn side(&self, incoming: bool) -> Side {
        if (self.role == role::INGRESS) == incoming { Side::Request } else { Side::Response }
    }

    /// Books the head that the machine of `side` has just completed and tells what follows it. `None` is an interim
    /// response, which counts for nothing.
    #[inline(always)]
    pub fn complete(&mut self, side: Side, machine: &Machine) -> (Option<Head>, Body) {
        match side {
            Side::Request => (Some(self.complete_request(machine)), Body::AsDeclared),
            Side::Response => self.complete_response(machine.status()),
        }
    }

    #[inline(always)]
    fn complete_request(&mut self, machine: &Machine) -> Head {
        let index = self.request_count;
        let bit = 1u64 << (index & 63);
        self.head_ring = if machine.is_head() { self.head_ring | bit } else { self.head_ring & !bit };
        if machine.is_connect() {
            self.connect_at = index.wrapping_add(1);
        }
        // The response side reads the ring only once the count says that the request is there.
        self.request_count = index.wrapping_add(1);
        Head { index, status: 0, orphan: false }
    }

    #[inline(always)]
    fn complete_response(&mut self, status: u16) -> (Option<Head>, Body) {
        if status < 200 && status != 101 {
            return (None, Body::None);
        }
        let index = self.response_count;
        let orphan = index == self.request_count;
        if !orphan {
            self.response_count = index.wrapping_add(1);
        }
        let head = Head { index, status, orphan };
        let to_connect = !orphan && self.connect_at == index.wrapping_add(1);
        let body = if status == 101 || (to_connect && status < 300) {
            self.opaque = 1;
            Body::Opaque
        } else if status == 204 || status == 304 || (!orphan && self.head_ring >> (index & 63) & 1 == 1) {
            Body::None
        } else {
            Body::AsDeclared
        };
        (Some(head), body)
    }
}

/// A segment's payload.
pub trait Payload {
    /// Copies `len` bytes (1 to [`CHUNK`]) from `offset` to the front of `chunk`; false if that failed. Bytes beyond `len`
    /// may be anything.
    fn load(&mut self, offset: u32, chunk: &mut [u64; CHUNK_WORDS], len: u32) -> bool;
}

/// What a head's bytes in this run are told as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where they begin in the segment's payload.
    pub from: u32,
    /// Where they end.
    pub to: u32,
    /// Offset of the first from the head's first byte.
    pub offset: u32,
}

/// Told what a run finds.
pub trait Sink {
    /// A head is complete. Says what follows it.
    fn head(&mut self, machine: &Machine, piece: Piece) -> Body;
    /// The run ends within a head.
    fn part(&mut self, machine: &Machine, piece: Piece);
    /// The stream is not HTTP/1.x.
    fn foreign(&mut self);
}

/// Reads payload bytes `from` to `to` with the machine, in at most `CHUNKS` steps. Returns how far it came.
#[inline(always)]
pub fn run<const CHUNKS: usize>(machine: &mut Machine, from: u32, to: u32, payload: &mut impl Payload, sink: &mut impl Sink) -> u32 {
    let mut at = from;
    let mut step_count = 0;
    while step_count < CHUNKS {
        step_count += 1;
        if at >= to {
            break;
        }
        if machine.skips() {
            at += machine.skip(to - at);
            continue;
        }
        if machine.is_passive() {
            return to;
        }
        let len = if to - at > CHUNK as u32 { CHUNK as u32 } else { to - at };
        let mut chunk = [0u64; CHUNK_WORDS];
        if !payload.load(at, &mut chunk, len) {
            machine.lose();
            return to;
        }
        let mut fed = 0u32;
        let mut step = Step::More;
        let mut word = 0;
        while word < CHUNK_WORDS {
            let base = word as u32 * 8;
            if base >= len {
                break;
            }
            let count = if len - base > 8 { 8 } else { len - base };
            let (taken, now) = machine.feed(chunk[word], count);
            fed += taken;
            word += 1;
            step = now;
            if now as u8 != Step::More as u8 {
                break;
            }
        }
        at += fed;
        match step {
            Step::HeadEnd => {
                let body = sink.head(machine, piece(machine, from, at));
                machine.finish_head(body);
            }
            Step::Fail => {
                if machine.fail() {
                    sink.foreign();
                }
                return to;
            }
            Step::More | Step::Skip => {}
        }
    }
    if machine.in_head() && at > from {
        sink.part(machine, piece(machine, from, at));
    }
    at
}

/// The bytes of the current head that lie between `from` and `at`.
#[inline(always)]
fn piece(machine: &Machine, from: u32, at: u32) -> Piece {
    let run = at - from;
    let head = machine.head_len();
    if head <= run { Piece { from: at - head, to: at, offset: 0 } } else { Piece { from, to: at, offset: head - run } }
}

/// What is left to do after a run over a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Nothing.
    None,
    /// The same segment must be offered again: the run's budget was used up, or it also has bytes beyond the hole.
    Again,
    /// As `None`, and the hole's head is to be counted as complete.
    HeadAssumed,
}

/// Reads a segment in its place, and tells how many bytes were read. Offer it again while the answer is [`Rest::Again`].
#[inline(always)]
pub fn read<const CHUNKS: usize>(
    flow: &mut Flow,
    place: Place,
    len: u32,
    payload: &mut impl Payload,
    sink: &mut impl Sink,
) -> (Rest, u32) {
    // Written so that `run`, a large body of code in a kernel program, is there only once.
    let (in_hole, from, to) = match place {
        Place::Old => return (Rest::None, 0),
        Place::AtMark(from) => (false, from, len),
        Place::InHole(from, to) => (true, from, to),
    };
    let machine = if in_hole { &mut flow.hole } else { &mut flow.machine };
    machine.at_segment_start();
    let at = run::<CHUNKS>(machine, from, to, payload, sink);
    let read = at - from;
    if in_hole {
        if let Merge::HeadAssumed = flow.advance_hole(read) {
            return (Rest::HeadAssumed, read);
        }
    } else {
        flow.advance(read);
    }
    (if at < len { Rest::Again } else { Rest::None }, read)
}

const _: () = assert!(size_of::<Conn>() == 136 && size_of::<Book>() == 40);
