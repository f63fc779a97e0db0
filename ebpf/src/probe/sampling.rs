//! Leaves requests and their answers out of what user space is told: see `wire::sampling`.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::map, maps::PerCpuArray};
use stormdrill_wire::{
    abi::{health, kind},
    conn::Book,
    flow::Flow,
    recogniser::{Note, Piece},
    sampling::{self, BYTES, WORDS},
};

use crate::{count, events::Fetch, packet::forget};

/// Whether a record is left out. Decided where a request begins, and remembered by its number.
///
/// # Safety
/// `book` must lie in a map value, behind the two flows.
#[inline(always)]
pub unsafe fn leaves_out(note: &Note, piece: Piece, book: *mut Book, source: &impl Fetch) -> bool {
    if note.kind != kind::REQUEST && note.kind != kind::RESPONSE {
        return false;
    }
    // SAFETY: the caller's.
    unsafe {
        // Half of the bits are with each flow, where there is room; the place is masked.
        let flow = book.cast::<Flow>().sub(2).add((forget(note.index) >> 5 & 1) as usize);
        let place = &raw mut (*flow).left_out;
        let bit = 1_u32 << (note.index & 31);
        let marked = core::ptr::read_volatile(place);
        if note.kind == kind::RESPONSE || piece.offset != 0 || sampling::shares_fate(note.index, (*book).response_count) {
            let is_marked = marked & bit != 0;
            if is_marked && note.kind == kind::REQUEST && piece.offset == 0 {
                count::health(health::LEFT_OUT);
            }
            return is_marked;
        }
        let leaves_out = !is_told(piece, (*book).protocol, source);
        core::ptr::write_volatile(place, if leaves_out { marked | bit } else { marked & !bit });
        if leaves_out {
            count::health(health::LEFT_OUT);
        }
        leaves_out
    }
}

/// Whether the request that begins with a piece is among those that are told.
#[inline(always)]
unsafe fn is_told(piece: Piece, protocol: u8, source: &impl Fetch) -> bool {
    let Some((turn, share)) = count::sampling() else {
        return true;
    };
    let told = piece.to.wrapping_sub(piece.from);
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
        if !source.copy::<BYTES>(piece.from, words.cast(), len) {
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
