//! One connection as the kernel keeps it in the socket's storage.
//!
//! The hooks of the two directions may run at the same time on two CPUs, so every field has one writer: the request
//! side, the response side, the ingress hook, the egress hook, or `sock_ops` (which holds the socket). What leaves a socket passes
//! its hook under the socket's lock. What arrives does not: two packets of one connection may be looked at on two CPUs at once,
//! so whoever reads what arrives takes [`Conn::reading`] first.

use crate::abi::{protocol, role};
use crate::flow::Flow;

/// State of one connection: the value of the socket storage map.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conn {
    /// Requests and responses; see [`side`].
    pub flows: [Flow; 2],
    /// What belongs to the connection as a whole.
    pub book: Book,
    /// Held while `reading` is changed: the kernel's own lock, known by its name and place in the map's type information.
    pub lock: bpf_spin_lock,
    /// The CPU that reads what arrives, counted from 1; 0 while nobody does.
    pub reading: u32,
}

/// A lock of the kernel's, for its programs only.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct bpf_spin_lock {
    /// The kernel's.
    pub val: u32,
}

/// The part of [`Conn`] that both directions look at.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Book {
    /// Socket cookie.
    pub cookie: u64,
    /// Each protocol's own. Request side.
    pub ring: [u64; 4],
    /// Complete requests so far. Request side.
    pub request_count: u32,
    /// Final responses to known requests so far. Response side.
    pub response_count: u32,
    /// Each protocol's own. Request side.
    pub of_requests: u32,
    /// Each protocol's own. Response side.
    pub of_responses: u32,
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
    /// What the connection speaks, as far as is known; see [`protocol`]. Whichever side recognises it.
    pub protocol: u8,
    /// 1 once the protocol was counted.
    pub counted: u8,
    /// Segments that were looked at in vain, of a connection that was joined late; or how it was recognised, see [`crate::detect::BY_TEXT`].
    pub looked: u8,
}

/// Which way a message goes.
pub mod side {
    /// From client to server.
    pub const REQUEST: usize = 0;
    /// From server to client.
    pub const RESPONSE: usize = 1;
}

impl Conn {
    /// A connection that begins now, with the first sequence numbers of both directions.
    #[must_use]
    pub const fn fresh(role: u8, next_in: u32, next_out: u32) -> Self {
        let (requests, responses) = if role == role::INGRESS { (next_in, next_out) } else { (next_out, next_in) };
        Self::of([Flow::new(requests), Flow::new(responses)], role)
    }

    /// A connection that was open before. Each direction begins with its next segment.
    #[must_use]
    pub const fn found(role: u8) -> Self {
        Self::of([Flow::joined_late(), Flow::joined_late()], role)
    }

    const fn of(flows: [Flow; 2], role: u8) -> Self {
        Self { flows, book: Book::new(role), lock: bpf_spin_lock { val: 0 }, reading: 0 }
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
    /// The client has closed its side while it waited, and that was told.
    pub const WAITS_NO_MORE: u8 = 128;
    /// In `seen_in`, `seen_out`: a segment with RST passed.
    pub const RST: u8 = 1;
    /// In `seen_in`, `seen_out`: a segment with FIN passed.
    pub const FIN: u8 = 2;

    /// Of a connection with nothing on it yet.
    #[must_use]
    pub const fn new(role: u8) -> Self {
        Self {
            cookie: 0,
            ring: [0; 4],
            request_count: 0,
            response_count: 0,
            of_requests: 0,
            of_responses: 0,
            edge: 0,
            role,
            life: 0,
            seen_in: 0,
            seen_out: 0,
            protocol: protocol::ANY,
            counted: 0,
            looked: 0,
        }
    }

    /// The side that a packet of this connection is on, given its direction; see [`side`].
    #[inline(always)]
    #[must_use]
    pub const fn side(&self, incoming: bool) -> usize {
        // By arithmetic, not by comparison: the verifier then sees one way on, not two.
        ((self.role ^ incoming as u8) & 1) as usize
    }

    /// Answers that were missed are not known: what comes next is taken for the latest request's. Response side.
    #[inline(always)]
    pub const fn forget_answers(&mut self) {
        if self.awaits() {
            self.response_count = self.request_count.wrapping_sub(1);
        }
    }

    /// A request is not answered yet.
    #[inline(always)]
    #[must_use]
    pub const fn awaits(&self) -> bool {
        self.response_count != self.request_count
    }
}

const _: () = assert!(size_of::<Conn>() == 200 && size_of::<Book>() == 64);
// Where the kernel programs look for what is with the flows, given a book.
const _: () = assert!(core::mem::offset_of!(Conn, flows) == 0 && core::mem::offset_of!(Conn, book) == 2 * size_of::<Flow>());
