//! Leaves requests and their answers out of what user space is told: see `wire::sampling`.
//!
//! The decision is a global function, for packets one and for plaintext another: the verifier goes through each once, and not at every place
//! where something is told. Such a function is given the context and numbers only (see `job`), so it finds the connection again.

use aya_ebpf::{bindings::__sk_buff, helpers::bpf_ktime_get_ns, macros::map, maps::PerCpuArray};
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
    /// Kind of the record, and above [`BEGINS`] whether it is of the message's first bytes.
    pub what: u32,
    /// The request's number.
    pub index: u32,
    /// Sequence numbers of the first byte of the record, and after its last.
    pub from: u32,
    pub to: u32,
}

/// In [`Asked::what`], above the kind.
const BEGINS: u32 = 8;

impl Asked {
    #[inline(always)]
    pub fn of(note: &Note, piece: Piece) -> Self {
        let begins = (piece.offset == 0) as u32;
        Self { what: note.kind as u32 | begins << BEGINS, index: note.index, from: piece.from, to: piece.to }
    }

    #[inline(always)]
    fn kind(self) -> u8 {
        self.what as u8
    }

    /// The request's first bytes.
    #[inline(always)]
    fn begins(self) -> bool {
        self.what == kind::REQUEST as u32 | 1 << BEGINS
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
        let key = (*book).cookie << 1 | side::REQUEST as u64;
        let source = Source { skb, payload: scratch.payload(), seq: scratch.seq(), source: (*flow).stretch.source, key };
        leaves_out(asked, book, &source) as u32
    }
}

/// Whether a record is left out. Decided where a request begins, and remembered by its number.
///
/// # Safety
/// `book` must lie in a map value, behind the two flows.
#[inline(always)]
pub unsafe fn leaves_out(asked: Asked, book: *mut Book, source: &impl Fetch) -> bool {
    if asked.kind() != kind::REQUEST && asked.kind() != kind::RESPONSE {
        return false;
    }
    // SAFETY: the caller's.
    unsafe {
        // Half of the bits are with each flow, where there is room; the place is masked.
        let flow = book.cast::<Flow>().sub(2).add((forget(asked.index) >> 5 & 1) as usize);
        let place = &raw mut (*flow).left_out;
        let bit = 1_u32 << (asked.index & 31);
        let marked = core::ptr::read_volatile(place);
        if !asked.begins() || sampling::shares_fate(asked.index, (*book).response_count) {
            let is_marked = marked & bit != 0;
            if is_marked && asked.begins() {
                count::health(health::LEFT_OUT);
            }
            return is_marked;
        }
        let leaves_out = !is_told(asked, (*book).protocol, source);
        core::ptr::write_volatile(place, if leaves_out { marked | bit } else { marked & !bit });
        if leaves_out {
            count::health(health::LEFT_OUT);
        }
        leaves_out
    }
}

/// Whether the request that begins with a piece is among those that are told.
#[inline(always)]
unsafe fn is_told(asked: Asked, protocol: u8, source: &impl Fetch) -> bool {
    let Some((turn, share)) = count::sampling() else {
        return true;
    };
    let told = asked.to.wrapping_sub(asked.from);
    let len = if told > BYTES as u32 { BYTES as u32 } else { told };
    if len == 0 {
        return true;
    }
    let Some(head) = HEADS.get_ptr_mut(0) else {
        return true;
    };
    // SAFETY: a map value with room for so many bytes. Another run may interrupt this one and take it, which its mark tells.
    unsafe {
        let mark = bpf_ktime_get_ns();
        core::ptr::write_volatile(&raw mut (*head).mark, mark);
        let words = (&raw mut (*head).words).cast::<u64>();
        if !source.copy::<BYTES>(asked.from, words.cast(), len) {
            return true;
        }
        let identity = sampling::identity(|at| core::ptr::read_volatile(words.add(at)), len, protocol);
        let is_told = identity.is_none_or(|identity| sampling::is_told(identity, turn, share));
        is_told || core::ptr::read_volatile(&raw const (*head).mark) != mark
    }
}

/// The beginning of the request that is looked at on a CPU. The stack has no room for it.
#[repr(C)]
pub struct Head {
    /// Whose it is.
    mark: u64,
    words: [u64; WORDS],
}

#[map]
static HEADS: PerCpuArray<Head> = PerCpuArray::with_max_entries(1, 0);
