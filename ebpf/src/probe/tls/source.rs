//! The bytes of a plaintext, seen through this CPU's chunk, and what is booked of them.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use stormdrill_wire::{
    abi::{EdgeCounters, protocol},
    conn::Book,
    flow::{Flow, Stretch},
    read::{CHUNK, Payload, Sink},
    recogniser::{Note, Piece, Window},
};

use super::{Key, held};
use crate::{
    events::Fetch,
    job::OnFlow,
    packet::{Chunk, within},
    rings,
    sampling::Asked,
    watch,
};

/// Where the bytes are: in the process's buffer, or held back.
#[derive(Clone, Copy)]
pub struct Origin {
    pub key: Key,
    /// Of what is held back.
    pub direction: u64,
    /// The address that position 0 would have.
    pub address: u64,
}

pub struct Bytes {
    pub origin: Origin,
    pub chunk: *mut Chunk,
    /// What this run signs its chunk with.
    pub token: u64,
}

impl Window for Bytes {
    #[inline(always)]
    fn byte(&self, at: u32) -> u8 {
        // SAFETY: a map value.
        unsafe { Chunk::byte(self.chunk, at) }
    }

    #[inline(always)]
    fn word(&self, at: u32) -> u64 {
        // SAFETY: a map value.
        unsafe { Chunk::word(self.chunk, at) }
    }
}

impl Payload for Bytes {
    #[inline(always)]
    fn load(&mut self, source: u32, at: u32, len: u32) -> u32 {
        // SAFETY: `chunk` has CHUNK bytes, and no more are asked for.
        unsafe {
            let to = Chunk::sign(self.chunk, self.token);
            if source == Stretch::RING {
                let Some(ring) = held::get(&self.origin.key, self.origin.direction) else {
                    return 0;
                };
                rings::copy::<CHUNK>(ring, at, to);
                return len;
            }
            let from = self.origin.address.wrapping_add(at as u64);
            if bpf_probe_read_user(to.cast(), within::<CHUNK>(len), from as *const _) == 0 { len } else { 0 }
        }
    }

    #[inline(always)]
    fn is_intact(&self) -> bool {
        // SAFETY: a map value.
        unsafe { Chunk::is_signed(self.chunk, self.token) }
    }
}

/// The bytes of a record.
struct Source {
    origin: Origin,
    /// See `flow::Stretch`.
    source: u32,
}

impl Fetch for Source {
    #[inline(always)]
    unsafe fn copy<const N: usize>(&self, from: u32, to: *mut u8, len: u32) -> bool {
        // SAFETY: the caller's.
        unsafe {
            if self.source == Stretch::RING {
                let ring = held::get(&self.origin.key, self.origin.direction);
                if let Some(ring) = ring {
                    rings::copy::<N>(ring, from, to);
                }
                return ring.is_some();
            }
            let from = self.origin.address.wrapping_add(from as u64);
            bpf_probe_read_user(to.cast(), within::<N>(len), from as *const _) == 0
        }
    }

    /// The readers' stack has no room for one call more.
    #[inline(always)]
    fn leaves_out(&self, _asked: Asked) -> u32 {
        0
    }
}

/// Books what a run finds.
pub struct Watch {
    pub origin: Origin,
    pub book: *mut Book,
    pub flow: *mut Flow,
    pub side: usize,
}

impl OnFlow for Watch {
    #[inline(always)]
    fn at(&self) -> (*mut Flow, *mut Book, usize) {
        (self.flow, self.book, self.side)
    }
}

impl Sink for Watch {
    #[inline(always)]
    fn note(&mut self, note: &Note, piece: Piece) {
        // SAFETY: `book` and `flow` point into the map of sessions.
        unsafe {
            let count_protocol = |counters, protocol| count_protocol(self.book, counters, protocol);
            watch::take_down(note, piece, self.book, self.flow, count_protocol, |source| Source { origin: self.origin, source });
        }
    }

    #[inline(always)]
    fn foreign(&mut self) {}
}

/// Counts a connection by what its plaintext is, once. One whose plaintext is not known stays TLS.
///
/// # Safety
/// The pointers are into the map of sessions and the counters map.
#[inline(always)]
unsafe fn count_protocol(book: *mut Book, counters: *mut EdgeCounters, protocol: u8) {
    // SAFETY: the caller's.
    unsafe {
        if (*book).counted == 0 && protocol < protocol::TLS {
            watch::count_as(book, counters, protocol);
        }
    }
}
