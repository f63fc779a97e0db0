//! Leaves requests and their answers out of what user space is told: see `wire::sampling`.
//!
//! The decision is a global function: the verifier goes through it once, and not at every place where something is told. Such a function is given the
//! context and numbers only (see `job`), so it finds the connection again. Plaintext of TLS is told in full: its readers' stack has no room for one call more.

use aya_ebpf::{bindings::__sk_buff, macros::map, maps::PerCpuArray};
use stormdrill_wire::{
    abi::{health, kind},
    conn::{Book, side},
    flow::Flow,
    recogniser::{Note, Piece},
    sampling::{self, BYTES, WORDS},
};

use crate::{
    conns, count,
    events::{Fetch, Source},
    packet::forget,
    scratch::Scratch,
};

/// What the decision is about.
#[derive(Clone, Copy)]
pub struct Asked {
    /// Kind of the record; above [`BEGINS`] whether it has the message's first bytes, and above [`LEN`] how many of them are looked at.
    pub what: u32,
    /// The request's number.
    pub index: u32,
    /// Sequence number of the first byte of the record.
    pub from: u32,
}

/// In [`Asked::what`], above the kind.
const BEGINS: u32 = 8;
/// Above that.
const LEN: u32 = 16;

impl Asked {
    #[inline(always)]
    pub fn of(note: &Note, piece: Piece) -> Self {
        let begins = (piece.offset == 0) as u32;
        let told = piece.to.wrapping_sub(piece.from);
        let len = if told > BYTES as u32 { BYTES as u32 } else { told };
        Self { what: note.kind as u32 | begins << BEGINS | len << LEN, index: note.index, from: piece.from }
    }

    #[inline(always)]
    fn kind(self) -> u8 {
        self.what as u8
    }

    /// The request's first bytes.
    #[inline(always)]
    fn begins(self) -> bool {
        self.what as u16 == kind::REQUEST as u16 | 1 << BEGINS
    }

    #[inline(always)]
    fn len(self) -> u32 {
        self.what >> LEN
    }
}

/// Whether a record about the packet at hand is left out; 0 if not.
#[inline(always)]
pub fn of_packet(skb: *mut __sk_buff, asked: Asked) -> u32 {
    let Some(conn) = conns::of(skb) else {
        return 0;
    };
    // SAFETY: the context; a non-null value of the storage map, whose fields are reached one at a time.
    unsafe {
        let scratch = Scratch::of(skb);
        let book = &raw mut (*conn).book;
        let flow = (&raw const (*conn).flows).cast::<Flow>().add(scratch.side());
        // As those of a burst.
        let token = || (*book).cookie << 1 | scratch.incoming() as u64;
        let source = || {
            let key = (*book).cookie << 1 | side::REQUEST as u64;
            Source { skb, payload: scratch.payload(), seq: scratch.seq(), source: (*flow).stretch.source, key }
        };
        leaves_out(asked, book, source, token) as u32
    }
}

/// Whether a record is left out. Decided where a request begins, and remembered by its number. `token` is unlike that of any other run that this one may
/// interrupt, or be interrupted by.
///
/// Little lives from one part to the next, so that there is room on the stack, of which all that call each other have 512 bytes together.
///
/// # Safety
/// `book` must lie in a map value, behind the two flows.
#[inline(always)]
unsafe fn leaves_out(asked: Asked, book: *mut Book, source: impl Fn() -> Source, token: impl Fn() -> u64) -> bool {
    if asked.kind() != kind::REQUEST && asked.kind() != kind::RESPONSE {
        return false;
    }
    // SAFETY: the caller's.
    unsafe {
        if asked.begins() {
            if !sampling::shares_fate(asked.index, (*book).response_count) {
                let told = is_told(asked, (*book).protocol, source, token);
                mark(book, asked.index, !told);
            }
            if is_marked(book, asked.index) {
                count::health(health::LEFT_OUT);
            }
        }
        is_marked(book, asked.index)
    }
}

/// Where it is remembered whether a request is left out: half of the bits are with each flow, where there is room.
///
/// # Safety
/// As `leaves_out`, here and below.
#[inline(always)]
unsafe fn place(book: *mut Book, index: u32) -> *mut u32 {
    // SAFETY: the caller's; the place is masked.
    unsafe { &raw mut (*book.cast::<Flow>().sub(2).add((forget(index) >> 5 & 1) as usize)).left_out }
}

#[inline(always)]
unsafe fn is_marked(book: *mut Book, index: u32) -> bool {
    // SAFETY: the caller's.
    unsafe { core::ptr::read_volatile(place(book, index)) >> (index & 31) & 1 != 0 }
}

#[inline(always)]
unsafe fn mark(book: *mut Book, index: u32, leaves_out: bool) {
    let bit = index & 31;
    // SAFETY: the caller's. By arithmetic: a branch would be followed by the verifier.
    unsafe {
        let place = place(book, index);
        core::ptr::write_volatile(place, core::ptr::read_volatile(place) & !(1 << bit) | (leaves_out as u32) << bit);
    }
}

/// Whether the request that begins with a piece is among those that are told.
#[inline(always)]
unsafe fn is_told(asked: Asked, protocol: u8, source: impl Fn() -> Source, token: impl Fn() -> u64) -> bool {
    if asked.len() == 0 {
        return true;
    }
    let Some(head) = HEADS.get_ptr_mut(0) else {
        return true;
    };
    // SAFETY: a map value with room for so many bytes. Another run may interrupt this one and take it, which its token tells.
    unsafe {
        core::ptr::write_volatile(&raw mut (*head).token, token());
        let words = (&raw mut (*head).words).cast::<u64>();
        if !source().copy::<BYTES>(asked.from, words.cast(), asked.len()) {
            return true;
        }
        let Some(identity) = sampling::identity(|at| core::ptr::read_volatile(words.add(at)), asked.len(), protocol) else {
            return true;
        };
        if core::ptr::read_volatile(&raw const (*head).token) != token() {
            return true;
        }
        // Forgotten where there is a turn: else the compiler works it out behind the branch as well, with whatever is in the register, which kernels refuse
        // that cannot tell that there always is one (before 6.15).
        count::sampling().is_none_or(|(turn, share)| forget(sampling::is_told(identity, turn, share) as u32) != 0)
    }
}

/// The beginning of the request that is looked at on a CPU. The stack has no room for it.
#[repr(C)]
pub struct Head {
    /// Whose it is.
    token: u64,
    words: [u64; WORDS],
}

#[map]
static HEADS: PerCpuArray<Head> = PerCpuArray::with_max_entries(1, 0);
