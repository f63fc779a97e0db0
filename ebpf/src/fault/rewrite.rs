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
    let Some((source, destination)) = packet.ports else {
        return;
    };
    if packet.protocol != TCP {
        return;
    }
    // Sequence number, acknowledgement, header length: bytes 4 to 12 of the header.
    let Some(header) = packet::bytes::<9>(ctx, packet.transport + 4) else {
        return;
    };
    let payload = packet.transport + u32::from(header[8] >> 4) * 4;
    let Some(line) = packet::bytes::<STATUS_LINE>(ctx, payload) else {
        return;
    };
    if rewritable_status(&line).is_none() || !selected.lease_holds() {
        return;
    }
    let sequence = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    let flow = flow(packet, source, destination);
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
fn flow(packet: &Packet, source: u16, destination: u16) -> u64 {
    let state = address(address(0, &packet.source), &packet.destination);
    mix(state, u64::from(source) << 16 | u64::from(destination))
}

#[inline(always)]
fn address(state: u64, key: &AddressKey) -> u64 {
    let high = u64::from_ne_bytes([key[4], key[5], key[6], key[7], key[8], key[9], key[10], key[11]]);
    let low = u64::from_ne_bytes([key[12], key[13], key[14], key[15], key[16], key[17], key[18], key[19]]);
    mix(mix(state, high), low)
}
