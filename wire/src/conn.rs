//! One connection as the kernel keeps it in the socket's storage.
#![allow(
    clippy::cast_possible_truncation,
    reason = "lanes of words and sequence numbers are meant to be cut; checked conversions could panic"
)]
//!
//! The hooks of the two directions may run at the same time on two CPUs, so every field has one writer: the request
//! side, the response side, the ingress hook, the egress hook, or `sock_ops` (which holds the socket).

use crate::abi::role;
use crate::flow::Flow;
use crate::http1::{Body, Machine};

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
        Self { flows: [Flow::new(Machine::requests(), requests), Flow::new(Machine::responses(), responses)], book: Book::new(role) }
    }

    /// A connection that was open before. Each direction begins with its next segment.
    #[must_use]
    pub const fn found(role: u8) -> Self {
        Self { flows: [Flow::joined_late(Machine::requests()), Flow::joined_late(Machine::responses())], book: Book::new(role) }
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

const _: () = assert!(size_of::<Conn>() == 184 && size_of::<Book>() == 40);
