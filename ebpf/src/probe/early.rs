//! Data that comes with the end of a handshake: because the third packet was lost, or the client waited with it.
//!
//! The ingress hook sees such a segment with the *listener*, and it is not seen again with the new socket. So it is kept in a
//! ring that lies ready on this CPU, and `sock_ops` gives that ring to the new socket a moment later, in the same softirq; the
//! socket's next packet, at the latest its acknowledgement, has it read. A segment that TCP drops meanwhile (the accept queue is full)
//! is then given to nobody, and not counted until it comes again.

use aya_ebpf::{bindings::__sk_buff, helpers::generated::bpf_get_smp_processor_id};
use stormdrill_wire::{
    abi::{Addresses, health},
    conn::{Conn, side},
    flow::Flow,
    ring::{Ranges, Ring},
};

use crate::{
    count,
    maps::EARLY,
    order,
    packet::{self, Segment},
    rings,
};

/// A segment that was kept before its socket was there.
#[repr(C)]
pub struct Early {
    ring: Ring,
    addresses: Addresses,
    seq: u32,
    len: u32,
    /// 1 if the rest is meaningful.
    valid: u32,
}

/// Keeps a segment that reached a listener.
#[inline(always)]
pub fn keep(skb: *mut __sk_buff, segment: &Segment) {
    // SAFETY: a map value; this hook runs in softirq, one at a time on each CPU.
    unsafe {
        let Some(early) = EARLY.get_ptr_mut(bpf_get_smp_processor_id() as u32) else {
            return;
        };
        (*early).valid = 0;
        (*early).addresses = packet::addresses(skb, segment, true);
        (*early).seq = segment.seq;
        (*early).len = segment.len;
        let end = segment.seq.wrapping_add(segment.len);
        (*early).ring.ranges = Ranges { all: [(0, 0); 8] };
        (*early).ring.ranges.all[0] = (segment.seq, end);
        if Ranges::reaches(segment.seq, end) && order::copy(skb, segment.payload, segment.seq, &raw mut (*early).ring, segment.seq, end) {
            (*early).valid = 1;
        }
    }
}

/// Gives what was kept to the socket that it belongs to.
///
/// # Safety
/// `conn` must point into socket storage.
#[inline(always)]
pub unsafe fn give(conn: *mut Conn, addresses: &Addresses, next: u32) {
    // SAFETY: map values, and the caller's pointer into socket storage.
    unsafe {
        let Some(early) = EARLY.get_ptr_mut(bpf_get_smp_processor_id() as u32) else {
            return;
        };
        if (*early).valid == 0 {
            return;
        }
        (*early).valid = 0;
        // Not always the first data: what came before it may have been lost.
        if !Ranges::reaches(next, (*early).seq.wrapping_add((*early).len)) {
            return;
        }
        let other = (*early).addresses.remote[3] ^ addresses.remote[3]
            | (*early).addresses.remote[0] ^ addresses.remote[0]
            | ((*early).addresses.remote_port ^ addresses.remote_port) as u32
            | ((*early).addresses.local_port ^ addresses.local_port) as u32;
        if other != 0 {
            return;
        }
        let flow = &raw mut (*conn).flows[side::REQUEST];
        if rings::put((*conn).book.cookie << 1 | side::REQUEST as u64, &raw const (*early).ring) {
            (*flow).stored = Flow::EARLY;
        } else {
            count::lack(&raw const (*conn).book, health::GAPS);
            (*flow).give_up((*early).seq.wrapping_add((*early).len));
        }
    }
}
