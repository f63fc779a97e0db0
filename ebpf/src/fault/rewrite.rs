//! Writes another status code over an HTTP/1 response in flight.
//!
//! The code's digits begin at an odd offset. Four bytes from the space before them are replaced instead, so that the checksum can be
//! mended in whole 16-bit words. `bpf_l4_csum_replace` leaves a checksum alone that is still to be computed, and mends a finished one;
//! the plain store keeps the sum of a device that delivered one right, because payload and checksum field change by opposite amounts.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::{bpf_l4_csum_replace, bpf_skb_store_bytes};
use aya_ebpf::programs::TcContext;
use stormdrill_wire::fault::{AddressKey, STATUS_LINE, draw, mix, rewritable_status};

use crate::maps;
use crate::packet::{self, Packet, TCP};
use crate::select::Selected;

/// Offset of the space before the digits.
const SPACE: u32 = 8;
/// Offset of the checksum in a TCP header.
const CHECKSUM: u32 = 16;

/// Rewrites the response that begins in this packet, if one does and the draw says so.
#[inline(always)]
pub fn status(ctx: &TcContext, selected: &Selected) {
    let packet = &selected.packet;
    if packet.protocol != TCP || !packet.has_ports {
        return;
    }
    // Sequence number, acknowledgement, and the word whose first half-byte is the header's length.
    let Some([sequence, _, length]) = packet::load::<[u32; 3]>(ctx, packet.transport + 4) else {
        return;
    };
    let payload = packet.transport + u32::from(length.to_ne_bytes()[0] >> 4) * 4;
    let Some(line) = packet::load::<[u8; STATUS_LINE]>(ctx, payload) else {
        return;
    };
    if rewritable_status(&line).is_none() || !selected.lease_holds() {
        return;
    }
    let sequence = u32::from_be(sequence);
    let flow = flow(packet);
    let is_new = maps::is_new_response(flow, sequence);
    if is_new {
        selected.count_selected();
    }
    if u64::from(draw(selected.rule.seed, flow, sequence)) >= selected.rule.threshold {
        return;
    }
    let [a, b, c, _] = selected.rule.status;
    let old = [line[8], line[9], line[10], line[11]];
    let new = [line[8], a, b, c];
    if write(ctx, packet.transport + CHECKSUM, payload + SPACE, old, new) && is_new {
        selected.count_hit();
    }
}

#[inline(always)]
fn write(ctx: &TcContext, checksum: u32, offset: u32, old: [u8; 4], new: [u8; 4]) -> bool {
    let (from, to) = (u64::from(u32::from_ne_bytes(old)), u64::from(u32::from_ne_bytes(new)));
    // SAFETY: both helpers check the offsets against the packet; `new` has the four bytes that are announced.
    unsafe {
        bpf_l4_csum_replace(ctx.as_ptr().cast(), checksum, from, to, 4) == 0
            && bpf_skb_store_bytes(ctx.as_ptr().cast(), offset, new.as_ptr().cast(), 4, 0) == 0
    }
}

/// One number for the connection and its direction.
#[inline(always)]
fn flow(packet: &Packet) -> u64 {
    let state = address(address(0, &packet.source), &packet.destination);
    mix(state, u64::from(packet.source_port) << 16 | u64::from(packet.destination_port))
}

#[inline(always)]
fn address(state: u64, key: &AddressKey) -> u64 {
    let [_, a, b, c, d] = *key;
    mix(mix(state, u64::from(a) << 32 | u64::from(b)), u64::from(c) << 32 | u64::from(d))
}
