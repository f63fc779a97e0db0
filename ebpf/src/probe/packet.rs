//! A TCP segment as the cgroup_skb hooks see it: from the IP header on, by direct access to the linear part.
//!
//! Reading the headers directly costs less than half of a helper call a field. The payload of a sent segment is in
//! fragments, though, so it is always fetched with `bpf_skb_load_bytes`.

use core::arch::asm;

use aya_ebpf::{bindings::__sk_buff, helpers::generated::bpf_skb_load_bytes};
use stormdrill_wire::{
    abi::Addresses,
    flow::Stretch,
    read::{CHUNK, Payload},
    recogniser::Window,
};

use crate::rings;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
/// The segment acknowledges something.
pub const ACK: u8 = 16;

/// Protocol numbers and IPv6 extension headers.
const TCP: u8 = 6;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;

/// Where the parts of a segment are.
#[derive(Clone, Copy)]
pub struct Segment {
    /// Sequence number of the first payload byte.
    pub seq: u32,
    /// What it acknowledges.
    pub ack: u32,
    /// Payload bytes.
    pub len: u32,
    /// Offset of the payload from the IP header.
    pub payload: u32,
    /// TCP flags, low six bits.
    pub flags: u8,
    /// Source and destination port.
    pub ports: (u16, u16),
}

/// What a packet is.
pub enum Packet {
    /// Not TCP.
    Other,
    /// TCP, but its headers cannot be read.
    Unreadable,
    /// A segment.
    Tcp(Segment),
}

#[inline(always)]
pub fn read(skb: *mut __sk_buff) -> Packet {
    // SAFETY: the context is valid; the verifier turns these fields into packet pointers and checks every access below
    // against `end`.
    unsafe {
        let data = (*skb).data as usize;
        let end = (*skb).data_end as usize;
        if data + 40 > end {
            return Packet::Other;
        }
        let first = *(data as *const u8);
        let header = if first >> 4 == 4 {
            if *((data + 9) as *const u8) != TCP {
                return Packet::Other;
            }
            (first & 15) as usize * 4
        } else {
            let next = *((data + 6) as *const u8);
            if next == TCP {
                40
            } else if next == HOP_BY_HOP || next == ROUTING || next == DESTINATION {
                // Segments of more than 64 KiB, as between the sockets of one host, come with a hop-by-hop option. One
                // extension is looked through, not a chain of them.
                if data + 48 > end {
                    return Packet::Unreadable;
                }
                let after = *((data + 40) as *const u8);
                if after != TCP {
                    return if after == HOP_BY_HOP || after == ROUTING || after == DESTINATION {
                        Packet::Unreadable
                    } else {
                        Packet::Other
                    };
                }
                48 + *((data + 41) as *const u8) as usize * 8
            } else {
                return Packet::Other;
            }
        };
        let tcp = data + header;
        if tcp + 20 > end {
            return Packet::Unreadable;
        }
        let tcp_header = (*((tcp + 12) as *const u8) >> 4) as u32 * 4;
        let flags = *((tcp + 13) as *const u8);
        let payload = header as u32 + tcp_header;
        let total = (*skb).len;
        let seq = u32::from_be(*((tcp + 4) as *const u32));
        Packet::Tcp(Segment {
            seq: if flags & SYN != 0 { seq.wrapping_add(1) } else { seq },
            ack: u32::from_be(*((tcp + 8) as *const u32)),
            len: total.saturating_sub(payload),
            payload,
            flags,
            ports: (u16::from_be(*(tcp as *const u16)), u16::from_be(*((tcp + 2) as *const u16))),
        })
    }
}

/// Both ends of the connection, from the headers; IPv4 as IPv4-mapped.
#[inline(always)]
pub fn addresses(skb: *mut __sk_buff, segment: &Segment, incoming: bool) -> Addresses {
    let mut found = Addresses::NONE;
    let (mut source, mut destination) = ([0u32; 4], [0u32; 4]);
    // SAFETY: as in `read`; the word of each address is read after a check against `end`.
    unsafe {
        let data = (*skb).data as usize;
        let end = (*skb).data_end as usize;
        if data + 40 > end {
            return found;
        }
        if *(data as *const u8) >> 4 == 4 {
            source = [0, 0, 0xffff_u32.to_be(), *((data + 12) as *const u32)];
            destination = [0, 0, 0xffff_u32.to_be(), *((data + 16) as *const u32)];
        } else {
            let mut at = 0;
            while at < 4 {
                source[at] = *((data + 8 + 4 * at) as *const u32);
                destination[at] = *((data + 24 + 4 * at) as *const u32);
                at += 1;
            }
        }
    }
    let (source_port, destination_port) = segment.ports;
    if incoming {
        (found.remote, found.remote_port, found.local, found.local_port) = (source, source_port, destination, destination_port);
    } else {
        (found.local, found.local_port, found.remote, found.remote_port) = (source, source_port, destination, destination_port);
    }
    found
}

/// The bytes of a stretch, seen through this CPU's chunk.
pub struct Bytes {
    pub skb: *mut __sk_buff,
    /// Offset of the payload from the IP header.
    pub payload: u32,
    /// Sequence number of its first byte.
    pub seq: u32,
    pub chunk: *mut Chunk,
    /// What this run signs its chunk with; no other run that may be under way on this CPU has the same.
    pub token: u64,
    /// Of the ring.
    pub key: u64,
}

/// Memory for a chunk. One run may interrupt another on the same CPU (a softirq, or another task where the kernel is
/// preemptible), so the bytes are signed by the run that loaded them, and looked at again if the signature has changed.
#[repr(C, align(8))]
pub struct Chunk {
    token: u64,
    bytes: [u8; CHUNK + 16],
}

/// A place in the chunk, masked where the verifier sees it: the compiler is made to forget what it knows, or it would leave the
/// mask out.
#[inline(always)]
fn index(at: u32) -> usize {
    forget(at) as usize & (CHUNK - 1)
}

impl Chunk {
    /// # Safety
    /// `chunk` must point to one, as below.
    #[inline(always)]
    pub unsafe fn byte(chunk: *const Self, at: u32) -> u8 {
        // SAFETY: the caller's; the index is masked to the chunk.
        unsafe { *(&raw const (*chunk).bytes).cast::<u8>().add(index(at)) }
    }

    /// # Safety
    /// As `byte`.
    #[inline(always)]
    pub unsafe fn word(chunk: *const Self, at: u32) -> u64 {
        let word: u64;
        // SAFETY: the caller's; the index is masked to the chunk, which has eight bytes more. As an instruction of its own, since the
        // compiler would assemble an unaligned word from eight bytes.
        unsafe {
            let from = (&raw const (*chunk).bytes).cast::<u8>().add(index(at));
            asm!("{0} = *(u64 *)({1} + 0)", out(reg) word, in(reg) from, options(readonly, nostack, preserves_flags));
        }
        word
    }

    /// Signs it for the run with that token, which may then write its bytes: [`CHUNK`] and no more.
    ///
    /// # Safety
    /// As `byte`.
    #[inline(always)]
    pub unsafe fn sign(chunk: *mut Self, token: u64) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe {
            core::ptr::write_volatile(&raw mut (*chunk).token, token);
            (&raw mut (*chunk).bytes).cast()
        }
    }

    /// Whether the run with that token was the last to sign it.
    ///
    /// # Safety
    /// As `byte`.
    #[inline(always)]
    pub unsafe fn is_signed(chunk: *const Self, token: u64) -> bool {
        // SAFETY: the caller's.
        unsafe { core::ptr::read_volatile(&raw const (*chunk).token) == token }
    }
}

/// A number of which the compiler knows nothing more.
#[inline(always)]
pub fn forget(number: u32) -> u64 {
    let mut number = number as u64;
    // SAFETY: a move onto itself. (Without any instruction, two lines share an offset, which the kernel refuses.)
    unsafe { asm!("{0} = {0}", inout(reg) number, options(nomem, nostack, preserves_flags)) };
    number
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
                let ring = rings::get(self.key);
                if ring.is_null() {
                    return 0;
                }
                rings::copy::<CHUNK>(ring, at, to);
                return len;
            }
            let offset = self.payload + at.wrapping_sub(self.seq);
            if bpf_skb_load_bytes(self.skb.cast(), offset, to.cast(), within::<CHUNK>(len)) == 0 { len } else { 0 }
        }
    }

    #[inline(always)]
    fn is_intact(&self) -> bool {
        // SAFETY: a map value.
        unsafe { Chunk::is_signed(self.chunk, self.token) }
    }
}

/// `len`, which is 1 to `N`, a power of two: masked, so that the verifier sees the bounds too. The compiler, which knows
/// them, is made to forget, or it would leave the mask out.
#[inline(always)]
pub fn within<const N: usize>(len: u32) -> u32 {
    let less_one = forget(len.wrapping_sub(1));
    (less_one & (N as u64 - 1)) as u32 + 1
}
