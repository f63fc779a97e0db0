//! A TCP segment as the cgroup_skb hooks see it: from the IP header on, by direct access to the linear part.
//!
//! Reading the headers directly costs less than half of a helper call a field. The payload of a sent segment is in
//! fragments, though, so it is always fetched with `bpf_skb_load_bytes`.

use aya_ebpf::{bindings::__sk_buff, helpers::generated::bpf_skb_load_bytes};
use stormdrill_wire::{
    abi::Addresses,
    conn::{CHUNK, CHUNK_WORDS, Payload},
};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;

/// Where the parts of a segment are.
#[derive(Clone, Copy)]
pub struct Segment {
    /// Sequence number of the first payload byte.
    pub seq: u32,
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
            if *((data + 9) as *const u8) != 6 {
                return Packet::Other;
            }
            (first & 15) as usize * 4
        } else {
            if *((data + 6) as *const u8) != 6 {
                return Packet::Other;
            }
            40
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

/// The payload of a packet.
pub struct Bytes {
    pub skb: *mut __sk_buff,
    /// Offset of the payload from the IP header.
    pub payload: u32,
}

impl Payload for Bytes {
    #[inline(always)]
    fn load(&mut self, offset: u32, chunk: &mut [u64; CHUNK_WORDS], len: u32) -> bool {
        // The bounds are known here, but the verifier of 5.10 has to be shown them next to the call.
        if len == 0 || len > CHUNK as u32 {
            return false;
        }
        // SAFETY: `chunk` has CHUNK bytes and `len` is no more.
        unsafe { bpf_skb_load_bytes(self.skb.cast(), self.payload + offset, chunk.as_mut_ptr().cast(), len) == 0 }
    }
}
