//! A TCP segment's place in its stream, and its payload, a piece at a time.

use core::arch::asm;

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::bpf_skb_load_bytes;
use aya_ebpf::programs::TcContext;
use stormdrill_wire::read::{CHUNK, Payload};
use stormdrill_wire::recogniser::Window;

use crate::packet::{self, Packet};

pub const SYN: u8 = 2;

/// Where the parts of a segment are.
#[derive(Clone, Copy)]
pub struct Segment {
    /// Sequence number of the first payload byte.
    pub seq: u32,
    /// Payload bytes.
    pub len: u32,
    /// Offset of the payload in the packet.
    pub payload: u32,
    /// TCP flags, low six bits.
    pub flags: u8,
}

/// Reads the TCP header; `None` if it is cut off.
#[inline(always)]
pub fn read(ctx: &TcContext, packet: &Packet) -> Option<Segment> {
    // Sequence number, acknowledgement, and the word of the header's length and the flags.
    let [seq, _, word]: [u32; 3] = packet::load(ctx, packet.transport + 4)?;
    let [length, flags, _, _] = word.to_ne_bytes();
    let payload = packet.transport + u32::from(length >> 4) * 4;
    let seq = u32::from_be(seq);
    let seq = if flags & SYN != 0 { seq.wrapping_add(1) } else { seq };
    Some(Segment { seq, len: packet.end.saturating_sub(payload), payload, flags })
}

/// Memory for a piece. One run may interrupt another on the same CPU, so the bytes are signed by the run that loaded them.
#[repr(C)]
pub struct Chunk {
    token: u64,
    bytes: [u8; CHUNK + 16],
}

/// The payload of a segment, seen through this CPU's chunk.
pub struct Bytes {
    pub skb: *mut __sk_buff,
    /// Offset of the payload in the packet.
    pub payload: u32,
    /// Sequence number of its first byte.
    pub seq: u32,
    pub chunk: *mut Chunk,
    /// What this run signs its chunk with; no other run that may be under way on this CPU has the same.
    pub token: u64,
}

impl Window for Bytes {
    #[inline(always)]
    fn byte(&self, at: u32) -> u8 {
        // SAFETY: the index is masked to the chunk.
        unsafe { *(&raw const (*self.chunk).bytes).cast::<u8>().add(at as usize & (CHUNK - 1)) }
    }

    #[inline(always)]
    fn word(&self, at: u32) -> u64 {
        let word: u64;
        // SAFETY: the index is masked to the chunk, which has eight bytes more. As an instruction of its own, since the
        // compiler would assemble an unaligned word from eight bytes.
        unsafe {
            let from = (&raw const (*self.chunk).bytes).cast::<u8>().add(at as usize & (CHUNK - 1));
            asm!("{0} = *(u64 *)({1} + 0)", out(reg) word, in(reg) from, options(readonly, nostack, preserves_flags));
        }
        word
    }
}

impl Payload for Bytes {
    #[inline(always)]
    fn load(&mut self, _source: u32, at: u32, len: u32) -> u32 {
        // SAFETY: the chunk has CHUNK bytes, and no more are asked for.
        unsafe {
            core::ptr::write_volatile(&raw mut (*self.chunk).token, self.token);
            let to = (&raw mut (*self.chunk).bytes).cast();
            let offset = self.payload + at.wrapping_sub(self.seq);
            if bpf_skb_load_bytes(self.skb.cast(), offset, to, within::<CHUNK>(len)) == 0 { len } else { 0 }
        }
    }

    #[inline(always)]
    fn is_intact(&self) -> bool {
        // SAFETY: a map value.
        unsafe { core::ptr::read_volatile(&raw const (*self.chunk).token) == self.token }
    }
}

/// `len`, which is 1 to `N`, a power of two: masked, so that the verifier sees the bounds too. The compiler, which knows
/// them, is made to forget, or it would leave the mask out.
#[inline(always)]
pub fn within<const N: usize>(len: u32) -> u32 {
    let mut less_one = u64::from(len).wrapping_sub(1);
    // SAFETY: a move onto itself. (Without any instruction, two lines share an offset, which the kernel refuses.)
    unsafe { asm!("{0} = {0}", inout(reg) less_one, options(nomem, nostack, preserves_flags)) };
    (less_one & (N as u64 - 1)) as u32 + 1
}

/// Eight bytes anywhere in the packet, in network order.
#[inline(always)]
pub fn load8(skb: *mut __sk_buff, offset: u32) -> Option<u64> {
    let mut word = 0_u64;
    // SAFETY: the helper writes eight bytes, or fails.
    let result = unsafe { bpf_skb_load_bytes(skb.cast(), offset, (&raw mut word).cast(), 8) };
    if result == 0 { Some(u64::from_be(word)) } else { None }
}
