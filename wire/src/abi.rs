//! What crosses the kernel boundary: map values and ring-buffer records, with their layout pinned.
//!
//! Everything is `#[repr(C)]` with explicit padding, so that no byte is left undefined and both sides agree;
//! the assertions at the end turn a changed layout into a failed build instead of wrong numbers.

/// Most edges that a user can name. Indices from here on are the two collective ones.
pub const MAX_NAMED_EDGES: usize = 62;
/// Counts of accepted connections that match no named ingress edge.
pub const OTHER_INGRESS: u8 = 62;
/// Counts of opened connections that match no named downstream edge.
pub const OTHER_DOWNSTREAM: u8 = 63;
/// All edge slots of one epoch.
pub const EDGE_SLOTS: u32 = 64;
/// Epochs that are counted apart before a slot is used again; a power of two.
pub const EPOCH_SLOTS: u32 = 4;
/// First status code that has a counter of its own.
pub const FIRST_STATUS: u16 = 100;
/// Number of status codes with counters: 100 to 999.
pub const STATUS_CODES: usize = 900;

/// Role values in kernel structures; 0 means that it is not known (yet).
pub mod role {
    /// Not known.
    pub const UNKNOWN: u8 = 0;
    /// The socket was accepted.
    pub const INGRESS: u8 = 1;
    /// The socket was connected.
    pub const DOWNSTREAM: u8 = 2;
}

/// One edge's selector, as the kernel matches it. The first rule that matches decides.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeRule {
    /// Address as an IPv6 or IPv4-mapped one, network byte order within each word.
    pub address: [u32; 4],
    /// Which bits of `address` count.
    pub mask: [u32; 4],
    /// First port.
    pub port_first: u16,
    /// Last port, inclusive.
    pub port_last: u16,
    /// See [`role`].
    pub role: u8,
    /// See [`protocol`].
    pub protocol: u8,
    /// [`EdgeRule::NOT_MAPPED`].
    pub flags: u8,
    /// The edge that a match belongs to.
    pub edge: u8,
}

impl EdgeRule {
    /// The rule is for IPv6 peers only; IPv4-mapped ones do not match.
    pub const NOT_MAPPED: u8 = 1;
}

/// Protocol pins.
pub mod protocol {
    /// Recognised from the content.
    pub const ANY: u8 = 0;
    /// HTTP/1.x.
    pub const HTTP1: u8 = 1;
    /// HTTP/2, gRPC included.
    pub const HTTP2: u8 = 2;
    /// Redis: RESP2, RESP3 and inline commands.
    pub const REDIS: u8 = 3;
    /// MySQL's client/server protocol.
    pub const MYSQL: u8 = 4;
    /// PostgreSQL's frontend/backend protocol, version 3.
    pub const POSTGRES: u8 = 5;
    /// TLS records: nothing within is read.
    pub const TLS: u8 = 6;
    /// None of the above.
    pub const UNKNOWN: u8 = 7;
    /// Number of values.
    pub const COUNT: usize = 8;
}

/// Values of [`EventHeader::status`] in a `RESPONSE` record of a protocol without HTTP's status codes.
pub mod outcome {
    /// Answered.
    pub const OK: u16 = 1;
    /// Answered with an error; which one is in the data.
    pub const ERROR: u16 = 2;
    /// Not done, since an error had answered one before it; counted with the errors.
    pub const SKIPPED: u16 = 3;
}

/// The single element of the settings map.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Counting epoch; its low bits choose the slot.
    pub epoch: u32,
    /// [`Settings::EVENTS`] and the like.
    pub flags: u32,
    /// Rules in use.
    pub rules: u32,
    /// Which identities are told: those whose number, moved on by `turn`, is not above it; see [`crate::sampling`].
    pub share: u32,
    /// See `share`.
    pub turn: u32,
}

impl Settings {
    /// Send heads of requests and responses, and connection events, for named edges.
    pub const EVENTS: u32 = 1;
    /// Connections that were open before the start have been listed: one that is not in the list stays unknown.
    pub const LISTED: u32 = 2;
    /// Plaintext of TLS connections is read: one is counted as TLS only when it has turned out that its own is not.
    pub const READS_TLS: u32 = 4;
    /// Some identities are, or were, left out: `share` and `turn` are looked at.
    pub const SAMPLES: u32 = 8;
}

/// The rules map has one element, so that matching costs one look-up.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Filled from the front; [`Settings::rules`] says how many.
    pub rules: [EdgeRule; MAX_NAMED_EDGES],
}

/// Counters of one edge in one epoch slot on one CPU; never reset while the probe is attached.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeCounters {
    /// Complete request heads.
    pub requests: u64,
    /// Complete final response heads.
    pub responses: u64,
    /// Connections established.
    pub connections_opened: u64,
    /// Connections ended.
    pub connections_closed: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Connection attempts that failed, and logins that were answered with an error.
    pub connect_failures: u64,
    /// Payload bytes, request direction, each byte once.
    pub request_bytes: u64,
    /// Payload bytes, response direction, each byte once.
    pub response_bytes: u64,
    /// Ring-buffer records that found no room.
    pub events_lost: u64,
    /// Connections whose bytes are not read: TLS and unknown protocols.
    pub unparsed_connections: u64,
    /// Answers that are no errors, of protocols without HTTP's status codes.
    pub ok: u64,
    /// Answers that are errors, of protocols without HTTP's status codes.
    pub errors: u64,
    /// Connections by the protocol that was recognised on them; see [`protocol`].
    pub protocols: [u64; protocol::COUNT],
    /// Final responses by status code, from [`FIRST_STATUS`].
    pub status: [u64; STATUS_CODES],
}

/// Indices into the per-CPU health counters.
pub mod health {
    /// Ring-buffer records that found no room.
    pub const EVENTS_LOST: u32 = 0;
    /// Connections of named edges whose bytes are not read: TLS and unknown protocols.
    pub const UNPARSED_CONNECTIONS: u32 = 1;
    /// Segments too rich in messages to be read in one go; the rest was skipped.
    pub const SEGMENTS_OVER_BUDGET: u32 = 2;
    /// Stretches of a named edge's stream that were missing when later ones arrived, and could not be waited for.
    pub const GAPS: u32 = 3;
    /// Socket storage that could not be allocated.
    pub const STORAGE_FAILED: u32 = 4;
    /// Packets whose headers could not be read.
    pub const HEADERS_UNREADABLE: u32 = 5;
    /// Connections of unknown role that may belong to a named edge.
    pub const UNKNOWN_ROLE: u32 = 6;
    /// No longer counted: heads were assumed complete where a part had passed out of order.
    pub const ASSUMED_HEADS: u32 = 7;
    /// Requests of which nothing was told, since their identity was left out.
    pub const LEFT_OUT: u32 = 8;
    /// Number of counters.
    pub const COUNT: u32 = 9;
}

/// Kinds of ring-buffer records.
pub mod kind {
    /// Established, or first seen; the data is an [`Addresses`](super::Addresses).
    pub const OPENED: u8 = 1;
    /// `connect()` failed; the data is an [`Addresses`](super::Addresses), `status` the reason.
    pub const CONNECT_FAILED: u8 = 2;
    /// Bytes of a request from its first on: HTTP/1's head and what is there of the body, a Redis command, a MySQL packet with its
    /// header, PostgreSQL's messages from the first Parse or Bind to the Execute. A record with offset 0 begins the request anew: what
    /// was sent before under the same index belonged to messages that are no request.
    pub const REQUEST: u8 = 3;
    /// Bytes of a response from its first on.
    pub const RESPONSE: u8 = 4;
    /// Ended; `status` says how.
    pub const CLOSED: u8 = 5;
    /// HTTP/2: bytes of a header block, HPACK-coded, without padding and priority fields. `index` is the stream, `offset`
    /// counts from the block's first byte over its CONTINUATION frames. [`EventHeader::COMPLETE`](super::EventHeader)
    /// comes with its last byte. Records of one direction come in the order of the stream; a block whose records have a hole was
    /// not captured whole.
    pub const BLOCK: u8 = 6;
    /// HTTP/2: the direction of stream `index` ended with a DATA frame.
    pub const STREAM_END: u8 = 7;
    /// HTTP/2: RST_STREAM for stream `index`; `status` is the error code, 65535 if it is greater.
    pub const STREAM_RESET: u8 = 8;
    /// HTTP/2: the first bytes of a DATA frame of stream `index`.
    pub const STREAM_DATA: u8 = 9;
    /// HTTP/2: GOAWAY; `index` is the last stream.
    pub const GO_AWAY: u8 = 10;
    /// HTTP/2: the payload of a SETTINGS frame that is no acknowledgement.
    pub const SETTINGS: u8 = 11;
    /// HTTP/2: bytes of this direction were not read, so that header blocks may have been missed.
    pub const STREAMS_MISSED: u8 = 12;
    /// Bytes of the error with which a server does not let a client in: in place of its greeting, or before a login is complete.
    pub const TURNED_AWAY: u8 = 13;
    /// The connection goes on as HTTP/2 (`Upgrade: h2c`): request `index` is stream 1, and answered there.
    pub const UPGRADED: u8 = 14;
    /// On a connection that was open before: the client has closed its side with requests unanswered. It is gone, or only asks no more.
    pub const ASKS_NO_MORE: u8 = 15;
}

/// Values of [`EventHeader::status`] in a `CONNECT_FAILED` record.
pub mod failure {
    /// Answered with RST.
    pub const REFUSED: u16 = 1;
    /// The SYN was repeated and never answered.
    pub const TIMED_OUT: u16 = 2;
    /// Unreachable, interrupted, or given up before the first repeat.
    pub const OTHER: u16 = 3;
}

/// Values of [`EventHeader::status`] in a `CLOSED` record.
pub mod close {
    /// This host closed first.
    pub const LOCAL: u16 = 1;
    /// The peer closed first.
    pub const PEER: u16 = 2;
    /// This host reset it.
    pub const LOCAL_RESET: u16 = 3;
    /// The peer reset it.
    pub const PEER_RESET: u16 = 4;
}

/// Starts every ring-buffer record; `len` bytes of data follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventHeader {
    /// Monotonic clock, nanoseconds.
    pub at_ns: u64,
    /// Socket cookie.
    pub cookie: u64,
    /// Epoch that the event was counted under.
    pub epoch: u32,
    /// Position of the message on its connection.
    pub index: u32,
    /// Offset of the data from the head's first byte.
    pub offset: u32,
    /// Bytes of data that follow.
    pub len: u16,
    /// Status code, error code, or reason.
    pub status: u16,
    /// Edge index.
    pub edge: u8,
    /// See [`role`].
    pub role: u8,
    /// See [`kind`].
    pub kind: u8,
    /// [`EventHeader::COMPLETE`] and the like.
    pub flags: u8,
    /// See [`protocol`].
    pub protocol: u8,
    /// Must be zero.
    pub reserved: [u8; 3],
}

impl EventHeader {
    /// The head's end lies in this record.
    pub const COMPLETE: u8 = 1;
    /// Fewer bytes were captured than passed.
    pub const TRUNCATED: u8 = 2;
    /// HTTP/2: the direction of the stream ends with this.
    pub const END_STREAM: u8 = 4;
    /// HTTP/2: sent by the server.
    pub const FROM_SERVER: u8 = 8;
    /// HTTP/2: the connection was joined in its middle: the decoder's table is not known.
    pub const JOINED_LATE: u8 = 16;
    /// This host had ended its side of the connection, with a FIN. Of heads.
    pub const LOCAL_ENDED: u8 = 32;
    /// The peer had.
    pub const PEER_ENDED: u8 = 64;
}

/// Both ends of a connection; IPv4 as IPv4-mapped.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Addresses {
    /// This host's address, network byte order.
    pub local: [u32; 4],
    /// The peer's.
    pub remote: [u32; 4],
    /// This host's port, host byte order.
    pub local_port: u16,
    /// The peer's.
    pub remote_port: u16,
}

impl Addresses {
    /// Where they are not told.
    pub const NONE: Self = Self { local: [0; 4], remote: [0; 4], local_port: 0, remote_port: 0 };
}

/// Bytes of a request's head (and the start of its body) that one record can carry.
pub const REQUEST_CAPTURE: u32 = 512;
/// The same for a response.
pub const RESPONSE_CAPTURE: u32 = 256;
/// Bytes of one head that are captured at most, over all its records.
pub const HEAD_CAPTURE: u32 = 2048;

const _: () = {
    assert!(size_of::<EdgeRule>() == 40);
    assert!(size_of::<Rules>() == 40 * MAX_NAMED_EDGES);
    assert!(size_of::<Settings>() == 20);
    assert!(size_of::<EdgeCounters>() == 96 + 8 * protocol::COUNT + 8 * STATUS_CODES);
    assert!(core::mem::offset_of!(EdgeCounters, status) == 96 + 8 * protocol::COUNT);
    assert!(size_of::<EventHeader>() == 40);
    assert!(core::mem::offset_of!(EventHeader, edge) == 32);
    assert!(size_of::<Addresses>() == 36);
    assert!(EPOCH_SLOTS.is_power_of_two());
};

#[cfg(feature = "user")]
mod pod {
    //! Permission for aya to copy these types to and from maps.
    use super::{EdgeCounters, EdgeRule, Rules, Settings};

    // SAFETY: all are `repr(C)` of integers without implicit padding (asserted above): any bit pattern is valid.
    unsafe impl aya::Pod for EdgeRule {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Rules {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Settings {}
    // SAFETY: as above.
    unsafe impl aya::Pod for EdgeCounters {}
}
