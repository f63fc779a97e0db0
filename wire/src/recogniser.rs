//! What every protocol's recogniser has in common: a resumable machine of 16 bytes over one direction of one connection.

use crate::abi::{kind, outcome};
use crate::conn::Book;

/// Room for any recogniser's state, in the connection's memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State(pub [u64; 2]);

/// Bytes that are there to be read.
pub trait Window {
    /// The byte at `at`.
    fn byte(&self, at: u32) -> u8;
    /// The eight bytes from `at`, the first lowest. Those that are not there may be anything.
    fn word(&self, at: u32) -> u64;
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The bytes were taken; more are wanted.
    More,
    /// The bytes complete something: [`Recogniser::complete`] must be called before the next byte.
    Complete,
    /// The next bytes are passed over.
    Skip,
    /// The bytes from here on are wanted in one piece.
    Reload,
    /// This is not the protocol.
    Fail,
}

/// What a message counts as.
pub mod tally {
    /// Nothing.
    pub const NONE: u8 = 0;
    /// A request.
    pub const REQUEST: u8 = 1;
    /// A response with an HTTP status.
    pub const STATUS: u8 = 2;
    /// A response with one of the outcomes of `abi`.
    pub const OUTCOME: u8 = 3;
    /// A response whose status is not known here.
    pub const RESPONSE: u8 = 4;
    /// A login that the server has answered with an error: an error of the connection, and no response.
    pub const TURNED_AWAY: u8 = 5;
}

/// What is told of something that is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// Kind of the record to send; 0 is none.
    pub kind: u8,
    /// See [`tally`].
    pub tally: u8,
    /// Flags of the record.
    pub flags: u8,
    /// Nobody asks for the message's bytes: the record goes without.
    pub bare: bool,
    /// The protocol that the connection goes on with; 0 if it stays.
    pub turn: u8,
    /// Status or outcome.
    pub status: u16,
    /// How many requests are counted at once; 1 unless some were missed.
    pub times: u32,
    /// Position among the messages of its direction, or the stream.
    pub index: u32,
    /// Bytes after the piece that belong to the record.
    pub body: u32,
}

impl Note {
    /// Nothing to tell.
    pub const NONE: Self = Self { kind: 0, tally: tally::NONE, flags: 0, bare: false, turn: 0, status: 0, times: 1, index: 0, body: 0 };

    /// A complete request.
    #[inline(always)]
    #[must_use]
    pub const fn request(index: u32) -> Self {
        Self { kind: kind::REQUEST, tally: tally::REQUEST, flags: crate::abi::EventHeader::COMPLETE, index, ..Self::NONE }
    }

    /// The server does not let the client in.
    #[inline(always)]
    #[must_use]
    pub const fn turned_away() -> Self {
        Self {
            kind: kind::TURNED_AWAY,
            tally: tally::TURNED_AWAY,
            flags: crate::abi::EventHeader::COMPLETE,
            status: outcome::ERROR,
            ..Self::NONE
        }
    }

    /// A part of the error that says so.
    #[inline(always)]
    #[must_use]
    pub const fn part_of_turning_away() -> Self {
        Self { kind: kind::TURNED_AWAY, status: outcome::ERROR, ..Self::NONE }
    }

    /// A part of the error that answers the next request.
    #[inline(always)]
    #[must_use]
    pub const fn part_of_error(book: &Book) -> Self {
        Self { kind: kind::RESPONSE, status: outcome::ERROR, index: book.response_count, ..Self::NONE }
    }

    /// No more will be said of the request: an error before it had it passed over.
    #[inline(always)]
    #[must_use]
    pub const fn skipped(index: u32) -> Self {
        Self { status: outcome::SKIPPED, bare: true, ..Self::outcome(index, true) }
    }

    /// A response with an outcome.
    #[inline(always)]
    #[must_use]
    pub const fn outcome(index: u32, error: bool) -> Self {
        Self {
            kind: kind::RESPONSE,
            tally: tally::OUTCOME,
            flags: crate::abi::EventHeader::COMPLETE,
            status: outcome::OK + error as u16,
            index,
            ..Self::NONE
        }
    }
}

/// Bytes that a record is made of, by their sequence numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Of the first.
    pub from: u32,
    /// After the last.
    pub to: u32,
    /// Offset of the first from the message's first byte.
    pub offset: u32,
}

/// A protocol's machine.
///
/// # Safety
/// The type has 16 bytes, an alignment of 8 at most, and is valid whatever they are.
pub unsafe trait Recogniser: Copy {
    /// See `abi::protocol`.
    const PROTOCOL: u8;

    /// The machine at the beginning of a stream of requests (side 0) or responses (1).
    fn fresh(side: usize) -> Self;
    /// The same, joined in its middle.
    fn late(side: usize) -> Self;
    /// Takes bytes at `at`, of which `left` (1 or more) are there. Returns how many were taken.
    fn step(&mut self, window: &impl Window, at: u32, left: u32) -> (u32, Step);
    /// Books what was just completed.
    fn complete(&mut self, book: &mut Book, side: usize) -> Note;

    /// To be called where a segment starts.
    #[inline(always)]
    fn begin(&mut self, _book: &Book, _side: usize) {}
    /// Something more is to be told before the next byte.
    #[inline(always)]
    fn is_due(&self) -> bool {
        false
    }
    /// Whether the next bytes are passed over.
    fn skips(&self) -> bool;
    /// Passes over as much of `available` as is to be passed over; how much that was.
    fn skip(&mut self, available: u32) -> u32;
    /// Whether `missing` bytes can be passed without reading them; if so they are passed.
    fn bridge(&mut self, missing: u32) -> bool;
    /// Bytes pass unread until the next segment at least.
    fn is_passive(&self) -> bool;
    /// Forgets the place.
    fn lose(&mut self, book: &mut Book, side: usize);
    /// The bytes were not the protocol's. True if they never were.
    fn fail(&mut self) -> bool;
    /// A message that will be told of has begun and not ended.
    fn in_head(&self) -> bool;
    /// Bytes of the current message so far, of the last one when it was just completed.
    fn head_len(&self) -> u32;
    /// What is told of the part of a message that a segment ends with.
    fn part(&self, book: &Book, side: usize) -> Note;
    /// The same, and also of an answer of which nobody reads more than its status.
    #[inline(always)]
    fn early(&self, book: &Book, side: usize) -> Note {
        self.part(book, side)
    }

    /// The bytes of the current message that were read in this run, of `read` bytes up to `to`.
    #[inline(always)]
    fn piece(&self, read: u32, to: u32) -> Piece {
        let head = self.head_len();
        if head <= read {
            Piece { from: to.wrapping_sub(head), to, offset: 0 }
        } else {
            Piece { from: to.wrapping_sub(read), to, offset: head - read }
        }
    }

    /// The machine that lies in a state.
    #[inline(always)]
    fn of(state: &mut State) -> &mut Self {
        const { assert!(size_of::<Self>() == size_of::<State>() && align_of::<Self>() <= align_of::<State>()) };
        // SAFETY: size and alignment are checked above, and the trait promises that any bytes are valid.
        unsafe { &mut *core::ptr::from_mut(state).cast() }
    }

    /// The state that a machine is kept as.
    #[inline(always)]
    fn keep(self) -> State {
        let mut state = State::default();
        *Self::of(&mut state) = self;
        state
    }
}

/// What may pass over missing bytes.
pub trait Bridge {
    /// Whether `missing` bytes can be passed without reading them; if so they are passed.
    fn bridged(state: &mut State, missing: u32) -> bool;
}

impl<M: Recogniser> Bridge for M {
    #[inline(always)]
    fn bridged(state: &mut State, missing: u32) -> bool {
        M::of(state).bridge(missing)
    }
}

/// A stream whose protocol is not known yet: no byte of it can be passed over.
#[derive(Debug, Clone, Copy)]
pub struct Unread;

impl Bridge for Unread {
    #[inline(always)]
    fn bridged(_state: &mut State, _missing: u32) -> bool {
        false
    }
}

/// What is told of a part of request `book.request_count`, or of the response that is next.
#[inline(always)]
pub(crate) const fn part_of(book: &Book, side: usize) -> Note {
    if side == crate::conn::side::REQUEST {
        return Note { kind: kind::REQUEST, index: book.request_count, ..Note::NONE };
    }
    if book.response_count == book.request_count {
        return Note::NONE;
    }
    Note { kind: kind::RESPONSE, index: book.response_count, ..Note::NONE }
}
