//! The bytes of a plaintext, seen through this CPU's chunk, and what is booked of them.

use core::arch::asm;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use stormdrill_wire::{
    abi::{MAX_NAMED_EDGES, protocol},
    conn::Book,
    flow::{Flow, Stretch},
    read::{CHUNK, Payload, Sink},
    recogniser::{Note, Piece, Window, tally},
};

use super::{Key, held};
use crate::{
    count,
    events::{Fetch, Sender, Subject},
    packet::{forget, within},
    rings, watch,
};

/// Memory for a chunk; see `packet::Chunk`.
#[repr(C, align(8))]
pub struct Chunk {
    token: u64,
    bytes: [u8; CHUNK + 16],
}

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

#[inline(always)]
fn index(at: u32) -> usize {
    forget(at) as usize & (CHUNK - 1)
}

impl Window for Bytes {
    #[inline(always)]
    fn byte(&self, at: u32) -> u8 {
        // SAFETY: the index is masked to the chunk.
        unsafe { *(&raw const (*self.chunk).bytes).cast::<u8>().add(index(at)) }
    }

    #[inline(always)]
    fn word(&self, at: u32) -> u64 {
        let word: u64;
        // SAFETY: the index is masked to the chunk, which has eight bytes more. As an instruction of its own, since the
        // compiler would assemble an unaligned word from eight bytes.
        unsafe {
            let from = (&raw const (*self.chunk).bytes).cast::<u8>().add(index(at));
            asm!("{0} = *(u64 *)({1} + 0)", out(reg) word, in(reg) from, options(readonly, nostack, preserves_flags));
        }
        word
    }
}

impl Payload for Bytes {
    #[inline(always)]
    fn load(&mut self, source: u32, at: u32, len: u32) -> u32 {
        // SAFETY: `chunk` has CHUNK bytes, and no more are asked for.
        unsafe {
            core::ptr::write_volatile(&raw mut (*self.chunk).token, self.token);
            let to = (&raw mut (*self.chunk).bytes).cast::<u8>();
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
        unsafe { core::ptr::read_volatile(&raw const (*self.chunk).token) == self.token }
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
}

/// Books what a run finds.
pub struct Watch {
    pub origin: Origin,
    pub book: *mut Book,
    pub flow: *mut Flow,
}

impl Sink for Watch {
    #[inline(always)]
    fn note(&mut self, note: &Note, piece: Piece) {
        let Some((epoch, flags)) = count::settings() else {
            return;
        };
        // SAFETY: `book` and `flow` point into the map of sessions, `counters` into the counters map.
        unsafe {
            let Some(counters) = count::of_edge(epoch, (*self.book).edge) else {
                return;
            };
            if note.turn != 0 {
                count_protocol(self.book, epoch, note.turn);
            } else if note.tally != tally::NONE {
                count_protocol(self.book, epoch, (*self.book).protocol);
                watch::count_message(counters, note);
            }
            if note.kind == 0 || !count::wants_events(flags) || (*self.book).edge as usize >= MAX_NAMED_EDGES {
                return;
            }
            let subject = Subject { kind: note.kind, index: note.index, status: note.status, flags: note.flags };
            if note.bare {
                Sender { epoch, counters }.bare(self.book, subject);
                return;
            }
            let end = (*self.flow).stretch.end;
            let here = end.wrapping_sub(piece.to);
            let body = if note.body > here { here } else { note.body };
            let source = Source { origin: self.origin, source: (*self.flow).stretch.source };
            let forget = &raw mut (*self.flow).stretch.scratch;
            Sender { epoch, counters }.piece(&source, self.book, subject, piece, body, forget);
        }
    }

    #[inline(always)]
    fn foreign(&mut self) {}
}

/// Counts a connection by what its plaintext is, once. One whose plaintext is not known stays TLS.
///
/// # Safety
/// The pointer is into the map of sessions.
#[inline(always)]
unsafe fn count_protocol(book: *mut Book, epoch: u32, protocol: u8) {
    // SAFETY: the caller's; the index is masked.
    unsafe {
        if (*book).counted != 0 || protocol >= protocol::TLS {
            return;
        }
        let Some(counters) = count::of_edge(epoch, (*book).edge) else {
            return;
        };
        watch::count_as(book, counters, protocol);
    }
}
