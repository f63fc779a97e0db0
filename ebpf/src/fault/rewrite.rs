//! Writes another status over the remembered ones that lie in a segment.
//!
//! A byte at a time, wherever it lies: a status may begin at any offset, and a segment that TCP sends again may cut it. The checksum is
//! mended in the 16-bit word that the byte is half of. `bpf_l4_csum_replace` leaves a checksum alone that is still to be computed, and
//! mends a finished one; the plain store keeps the sum of a device that delivered one right, because payload and checksum field change
//! by opposite amounts.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::{bpf_l4_csum_replace, bpf_skb_load_bytes, bpf_skb_store_bytes};
use aya_ebpf::programs::TcContext;
use stormdrill_wire::fault::FaultRule;
use stormdrill_wire::fault::exchange::{ANSWERS, Exchange};

use crate::chain::Place;
use crate::maps;

/// Offset of the checksum in a TCP header.
const CHECKSUM: u32 = 16;

/// Writes what was decided on the statuses in this segment, as long as the lease holds.
#[inline(always)]
pub fn remembered(ctx: &TcContext, place: &Place, exchange: *mut Exchange, rule: &FaultRule) {
    // SAFETY: a map's value, readable for the run of the program.
    let (used, is_http2) = unsafe { ((*exchange).used, (*exchange).frames.is_known()) };
    if used == 0 || !maps::is_leased() {
        return;
    }
    let mut n = 0;
    while n < ANSWERS {
        if used >> n & 1 == 1 {
            // SAFETY: as above.
            let at = unsafe { (*exchange).answers[n & (ANSWERS - 1)] }.wrapping_sub(place.segment.seq);
            if is_http2 {
                write(ctx, place, at, rule.http2_status as u8);
            } else {
                let [a, b, c, _] = rule.status;
                write(ctx, place, at, a);
                write(ctx, place, at.wrapping_add(1), b);
                write(ctx, place, at.wrapping_add(2), c);
            }
        }
        n += 1;
    }
}

/// Writes one byte of the payload, if it is in this segment.
#[inline(never)]
fn write(ctx: &TcContext, place: &Place, at: u32, new: u8) -> i32 {
    if at >= place.segment.len {
        return 0;
    }
    let skb = ctx.as_ptr();
    let offset = place.segment.payload + at;
    let mut old = 0_u8;
    // SAFETY: the helpers check the offsets against the packet, and each has the bytes that are announced. The payload begins at a multiple
    // of four bytes from the TCP header, so that its offset tells which half of a word a byte is.
    unsafe {
        if bpf_skb_load_bytes(skb.cast(), offset, (&raw mut old).cast(), 1) != 0 || old == new {
            return 0;
        }
        let shift = if cfg!(target_endian = "little") == (at & 1 == 0) { 0 } else { 8 };
        let (from, to) = (u64::from(old) << shift, u64::from(new) << shift);
        if bpf_l4_csum_replace(skb.cast(), place.transport + CHECKSUM, from, to, 2) != 0 {
            return 0;
        }
        bpf_skb_store_bytes(skb.cast(), offset, (&raw const new).cast(), 1, 0) as i32
    }
}
