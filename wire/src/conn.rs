//! One connection as the kernel keeps it in the socket's storage, and the reading of a segment.
#![allow(clippy::cast_possible_truncation, reason = "lanes of words and sequence numbers are meant to be cut; checked conversions could panic")]
//!
//! The hooks of the two directions may run at the same time on two CPUs, so every field has one writer: the request
//! side, the response side, the ingress hook, the egress hook, or `sock_ops` (which holds the socket).

use crate::abi::role;
use crate::flow::{Flow, IN_HOLE, Merge, Stretch};
use crate::http1::{Body, Machine, Step, Window};

/// Bytes that are read from a segment at a time.
pub const CHUNK: usize = 256;

/// State of one connection: the value of the socket storage map.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conn {
    /// Requests and responses; see [`side`].
    pub flows: [Flow; 2],
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

impl Conn {
    /// A connection that begins now, with the first sequence numbers of both directions.
    #[must_use]
    pub const fn fresh(role: u8, next_in: u32, next_out: u32) -> Self {
        let (requests, responses) = if role == role::INGRESS { (next_in, next_out) } else { (next_out, next_in) };
        Self {
            flows: [Flow::new(Machine::requests(), requests), Flow::new(Machine::responses(), responses)],
            book: Book::new(role),
        }
    }

    /// A connection that was open before. Each direction begins with its next segment.
    #[must_use]
    pub const fn found(role: u8) -> Self {
        Self {
            flows: [Flow::joined_late(Machine::requests()), Flow::joined_late(Machine::responses())],
            book: Book::new(role),
        }
    }
}

/// Which way a message goes.
pub mod side {
    /// From client to server.
    pub const REQUEST: usize = 0;
    /// From server to client.
    pub const RESPONSE: usize = 1;
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

    /// The side that a packet of this connection is on, given its direction; see [`side`].
    #[inline(always)]
    #[must_use]
    pub const fn side(&self, incoming: bool) -> usize {
        // By arithmetic, not by comparison: the verifier then sees one way on, not two.
        ((self.role ^ incoming as u8) & 1) as usize
    }

    /// Books the head that the machine of `side` has just completed and tells what follows it. `None` is an interim
    /// response, which counts for nothing.
    #[inline(always)]
    pub fn complete(&mut self, side: usize, machine: &Machine) -> (Option<Head>, Body) {
        if side == side::REQUEST {
            (Some(self.complete_request(machine)), Body::AsDeclared)
        } else {
            self.complete_response(machine.status())
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

/// A segment's payload, of which a chunk at a time can be looked at.
///
/// In the kernel the chunk lies in memory that all runs on a CPU share, since the stack is too small for it and cannot be
/// indexed before 5.12. A run may be interrupted by another one that takes the chunk; hence `is_intact`.
pub trait Payload: Window {
    /// Loads `len` bytes (1 to [`CHUNK`]) from `offset`; false if that failed.
    fn load(&mut self, offset: u32, len: u32) -> bool;
    /// The chunk still holds what was loaded last.
    fn is_intact(&self) -> bool;
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
    /// A head is complete: books it as [`Book::complete`] does.
    fn complete(&mut self, machine: &Machine) -> (Option<Head>, Body);
    /// Tells of the head that was just booked; `declared` is the length of the body that it announces.
    fn head(&mut self, head: Head, piece: Piece, declared: u64);
    /// The run ends within a head.
    fn part(&mut self, machine: &Machine, piece: Piece);
    /// The stream is not HTTP/1.x.
    fn foreign(&mut self);
}

/// A reader of the stretch of a flow, step by step.
///
/// All that changes from step to step is memory, read and written as volatile: what the kernel's verifier sees before each
/// step is then the same, and it need not follow each way there was to get to it.
pub struct Run<'a> {
    machine: &'a mut Machine,
    /// Sequence number of the chunk's first byte: everything before it is done with.
    mark: &'a mut u32,
    stretch: &'a mut Stretch,
    /// The machine as it was when the chunk was loaded.
    saved: &'a mut Machine,
    /// Sequence number of the payload's first byte.
    seq: u32,
}

#[inline(always)]
fn get<T: Copy>(place: &T) -> T {
    // SAFETY: a reference is valid for reads.
    unsafe { core::ptr::read_volatile(place) }
}

#[inline(always)]
fn set<T: Copy>(place: &mut T, value: T) {
    // SAFETY: a reference is valid for writes.
    unsafe { core::ptr::write_volatile(place, value) }
}

impl<'a> Run<'a> {
    /// Goes on with the stretch that [`Flow::place`] has chosen of a segment at `seq`; or begins it, after [`begin`].
    #[inline(always)]
    pub fn new(flow: &'a mut Flow, saved: &'a mut Machine, seq: u32) -> Self {
        let which = get(&flow.stretch.which) as usize & 1;
        Self {
            machine: &mut flow.machines[which],
            mark: &mut flow.marks[which],
            stretch: &mut flow.stretch,
            saved,
            seq,
        }
    }

    /// Bytes from the mark to the end.
    #[inline(always)]
    fn left(&self) -> u32 {
        get(&self.stretch.end).wrapping_sub(get(self.mark))
    }

    /// Bytes that were read in this run.
    #[inline(always)]
    fn read(&self) -> u32 {
        get(self.mark).wrapping_sub(get(&self.stretch.start))
    }

    #[inline(always)]
    fn advance(&mut self, by: u32) {
        let mark = get(self.mark);
        set(self.mark, mark.wrapping_add(by));
    }

    /// Reads on by one step. False when there is nothing left to read.
    #[inline(always)]
    pub fn step(&mut self, payload: &mut impl Payload, sink: &mut impl Sink) -> bool {
        let loaded = get(&self.stretch.loaded) as u32;
        if loaded == 0 {
            *self.saved = *self.machine;
            return self.next_chunk(payload);
        }
        let cursor = get(&self.stretch.cursor) as u32;
        if cursor >= loaded {
            // Cannot be: every chunk that is used up is committed below.
            return false;
        }
        let (taken, step) = self.machine.step(payload, cursor, loaded - cursor);
        set(&mut self.stretch.cursor, (cursor + taken) as u16);
        if step as u8 == Step::More as u8 && cursor + taken < loaded {
            return true;
        }
        if !payload.is_intact() {
            self.go_back();
            return true;
        }
        self.commit();
        if step as u8 == Step::HeadEnd as u8 {
            let piece = self.piece();
            let declared = self.machine.declared_body();
            let (head, body) = sink.complete(self.machine);
            self.machine.finish_head(body);
            if let Some(head) = head {
                sink.head(head, piece, declared);
            }
        } else if step as u8 == Step::Fail as u8 {
            if self.machine.fail() {
                sink.foreign();
            }
            let rest = self.left();
            self.advance(rest);
            return false;
        }
        true
    }

    /// To be called after the last step of a run, whatever made it the last.
    #[inline(always)]
    pub fn end(&mut self, payload: &mut impl Payload, sink: &mut impl Sink) {
        if get(&self.stretch.loaded) != 0 {
            if payload.is_intact() {
                self.commit();
            } else {
                self.go_back();
            }
        }
        if self.machine.in_head() && self.read() > 0 {
            sink.part(self.machine, self.piece());
        }
    }

    /// The chunk was taken away: to where it was loaded.
    #[inline(always)]
    fn go_back(&mut self) {
        *self.machine = *self.saved;
        set(&mut self.stretch.loaded, 0);
    }

    /// Loads what comes next, or passes over it; false at the end.
    #[inline(always)]
    fn next_chunk(&mut self, payload: &mut impl Payload) -> bool {
        let left = self.left();
        if left == 0 {
            return false;
        }
        if self.machine.skips() {
            let skipped = self.machine.skip(left);
            self.advance(skipped);
            return true;
        }
        if self.machine.is_passive() {
            self.advance(left);
            return false;
        }
        let len = if left > CHUNK as u32 { CHUNK as u32 } else { left };
        if !payload.load(get(self.mark).wrapping_sub(self.seq), len) {
            self.machine.lose();
            self.advance(left);
            return false;
        }
        set(&mut self.stretch.cursor, 0);
        set(&mut self.stretch.loaded, len as u16);
        true
    }

    /// What was read up to the cursor is done with.
    #[inline(always)]
    fn commit(&mut self) {
        let cursor = get(&self.stretch.cursor) as u32;
        self.advance(cursor);
        set(&mut self.stretch.loaded, 0);
    }

    /// The bytes of the current head that were read in this run.
    #[inline(always)]
    fn piece(&self) -> Piece {
        let run = self.read();
        let to = get(self.mark).wrapping_sub(self.seq);
        let head = self.machine.head_len();
        if head <= run { Piece { from: to - head, to, offset: 0 } } else { Piece { from: to - run, to, offset: head - run } }
    }
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

/// Begins a run over the stretch that [`Flow::place`] has chosen.
#[inline(always)]
pub fn begin(flow: &mut Flow) {
    let which = get(&flow.stretch.which) as usize & 1;
    flow.machines[which].at_segment_start();
    let mark = get(&flow.marks[which]);
    set(&mut flow.stretch.start, mark);
    set(&mut flow.stretch.cursor, 0);
    set(&mut flow.stretch.loaded, 0);
}

/// Ends a run over a segment of `len` bytes at `seq`. Tells what is left to do, and how many bytes were read.
#[inline(always)]
pub fn finish(flow: &mut Flow, seq: u32, len: u32) -> (Rest, u32) {
    let which = get(&flow.stretch.which) as usize & 1;
    let end = get(&flow.marks[which]);
    let read = end.wrapping_sub(get(&flow.stretch.start));
    if which == IN_HOLE && let Merge::HeadAssumed = flow.merge() {
        return (Rest::HeadAssumed, read);
    }
    (if end == seq.wrapping_add(len) { Rest::None } else { Rest::Again }, read)
}

const _: () = assert!(size_of::<Conn>() == 184 && size_of::<Book>() == 40);
