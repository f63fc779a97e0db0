//! What the probe tells user space about single requests, decoded from the ring buffer.
//!
//! Counts never come from here: the kernel counts exactly on its own (see [`crate::window::EdgeCounts`]).
//! Events carry what a count cannot: identity, status, latency, and so the retries.

use std::net::SocketAddr;

use crate::edge::{EdgeId, Protocol, Role};

/// A connection's identity: the kernel's socket cookie, unique while the host is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Number of the window that the kernel was told to count under when the event happened.
pub type Epoch = u32;

/// One thing that happened on one connection.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeEvent {
    /// Nanoseconds of the kernel's monotonic clock.
    pub at_ns: u64,
    /// Counting epoch, in step with the kernel's counters.
    pub epoch: Epoch,
    /// The connection.
    pub conn: ConnId,
    /// The edge it belongs to.
    pub edge: EdgeId,
    /// Which end it is; `None` when that is unknown.
    pub role: Option<Role>,
    /// What the connection's bytes were recognised as; `None` if they were not, or not yet.
    pub protocol: Option<Protocol>,
    /// What happened.
    pub kind: ProbeEventKind,
}

/// The kinds of [`ProbeEvent`].
#[derive(Debug, Clone, PartialEq)]
pub enum ProbeEventKind {
    /// The connection was established, or first seen.
    Opened {
        /// This host's address.
        local: SocketAddr,
        /// The peer's address.
        peer: SocketAddr,
    },
    /// `connect()` ended without a connection.
    ConnectFailed {
        /// The peer's address.
        peer: SocketAddr,
        /// Why.
        reason: ConnectFailure,
    },
    /// The server answered the login with an error, or gave one in place of its greeting: bytes of it.
    TurnedAway {
        /// The bytes.
        piece: HeadPiece,
    },
    /// A request's head, or the next piece of one that spans segments.
    RequestHead {
        /// How many requests were on this connection and direction before it.
        index: u32,
        /// The piece.
        piece: HeadPiece,
    },
    /// A response's head, or the next piece of one.
    ResponseHead {
        /// How many final responses were on this connection before it.
        index: u32,
        /// HTTP's status code, 100 to 999, where interim 1xx (save 101) never appear. Of protocols without such codes,
        /// [`ANSWERED`], [`ANSWERED_ERROR`] or [`SKIPPED`].
        status: u16,
        /// The requester had ended its side before. Either it is gone, and resets what still comes, or it only asks no more.
        requester_ended: bool,
        /// The piece.
        piece: HeadPiece,
    },
    /// The connection ended.
    Closed {
        /// How.
        how: Close,
    },
    /// An HTTP/1 connection goes on as HTTP/2: a request is stream 1 from here on, and answered there.
    Upgraded {
        /// How many requests were on this connection before it.
        index: u32,
    },
    /// On a connection that was open before the probe, the requester has ended its side with requests unanswered: it is gone, or only asks no more.
    AsksNoMore,
    /// Something on a stream of an HTTP/2 connection.
    Stream(StreamEvent),
}

/// Status of an answer that is no error, of protocols without HTTP's codes.
pub const ANSWERED: u16 = 1;
/// Status of an answer that is an error; which one is in its bytes.
pub const ANSWERED_ERROR: u16 = 2;
/// Status of a request that was not done, since an error had answered one before it.
pub const SKIPPED: u16 = 3;

/// What happened on an HTTP/2 connection, in one direction. Events of one direction come in the order of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    /// The stream; the last one processed in a [`StreamEventKind::GoAway`], 0 where none is meant.
    pub stream: u32,
    /// Sent by the server.
    pub from_server: bool,
    /// The sender's direction of the stream ends with this.
    pub ends: bool,
    /// The connection was joined in its middle: the compression's table is not known.
    pub joined_late: bool,
    /// What.
    pub kind: StreamEventKind,
}

/// The kinds of [`StreamEvent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEventKind {
    /// Bytes of a header block, compressed.
    Block(HeadPiece),
    /// The first bytes of a DATA frame.
    Data(Vec<u8>),
    /// The direction ended with a DATA frame.
    End,
    /// RST_STREAM with its error code.
    Reset(u32),
    /// GOAWAY: streams above the number were not processed.
    GoAway,
    /// The payload of a SETTINGS frame.
    Settings(Vec<u8>),
    /// Bytes of this direction were not read: header blocks may have been missed.
    Missed,
}

/// A stretch of a head's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadPiece {
    /// Offset of `bytes` from the head's first byte.
    pub offset: u32,
    /// The bytes as captured; may include the start of the body in the last piece.
    pub bytes: Vec<u8>,
    /// The head ends within this piece (its blank line was seen by the kernel).
    pub complete: bool,
    /// The kernel captured fewer bytes than passed.
    pub truncated: bool,
}

/// Why a connection could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectFailure {
    /// The peer answered with RST.
    Refused,
    /// No answer.
    TimedOut,
    /// The connection was made, and the server did not let the client in: it answered the login with an error.
    TurnedAway,
    /// Anything else (interrupted, unreachable, closed by the caller).
    Other,
}

impl ConnectFailure {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Refused, Self::TimedOut, Self::TurnedAway, Self::Other];

    /// The word used in JSON and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::TurnedAway => "turned_away",
            Self::Other => "other",
        }
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Close {
    /// This host closed first.
    Local,
    /// The peer closed first.
    Peer,
    /// This host reset it.
    LocalReset,
    /// The peer reset it.
    PeerReset,
}
