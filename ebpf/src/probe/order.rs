//! What comes before its turn is kept, and read when its turn has come.

use aya_ebpf::{EbpfContext, bindings::__sk_buff, helpers::generated::bpf_skb_load_bytes, maps::ProgramArray, programs::SkBuffContext};
use stormdrill_wire::{
    abi::{EventHeader, MAX_NAMED_EDGES, health, kind, protocol},
    conn::{Book, side},
    flow::{Flow, Stretch},
    ring::{BLOCK, Ranges, Ring},
};

use crate::{
    conns, count,
    events::{Sender, Subject},
    hook::{self, Called, program},
    packet::within,
    rings,
    scratch::{Scratch, stage, then},
};

/// The parts of the work, each a function that the verifier goes through once: a segment's way through all of them would be looked at for every
/// way to get there, and what a ring holds is eight stretches that each may be anywhere.
pub struct Parts {
    pub keep: Called,
    pub pass_over: Called,
    pub choose: Called,
}

/// Keeps the segment, if it is to be kept; then has read what can be. Lets the packet pass.
#[inline(always)]
pub fn put_in_order(ctx: &SkBuffContext, programs: &ProgramArray, parts: &Parts) -> i32 {
    let skb: *mut __sk_buff = ctx.as_ptr().cast();
    // SAFETY: the context; the array holds programs of this type only.
    unsafe {
        let scratch = Scratch::of(skb);
        if scratch.stage() == stage::SEGMENT {
            (parts.keep)(skb);
        }
        if scratch.stage() == stage::RING {
            (parts.pass_over)(skb);
            (parts.choose)(skb);
        }
        if scratch.stage() != stage::ENTRY {
            programs.tail_call(ctx, program::MAIN);
        }
    }
    hook::leave(ctx)
}

/// What a part works on.
struct Site {
    scratch: Scratch,
    book: *mut Book,
    flow: *mut Flow,
    /// Of the ring.
    key: u64,
}

impl Site {
    /// `None` if the packet's connection has no state; then there is nothing to be done, and the stage says so.
    #[inline(always)]
    fn of(skb: *mut __sk_buff) -> Option<Self> {
        // SAFETY: the context; a non-null value of the storage map.
        unsafe {
            let scratch = Scratch::of(skb);
            let Some(conn) = conns::of(skb) else {
                scratch.set_stage(stage::ENTRY);
                return None;
            };
            let side = scratch.side();
            let book = &raw mut (*conn).book;
            let flow = (&raw mut (*conn).flows).cast::<Flow>().add(side);
            Some(Self { scratch, book, flow, key: (*book).cookie << 1 | side as u64 })
        }
    }
}

/// The first part: keeps the segment at hand.
#[inline(always)]
pub fn keep(skb: *mut __sk_buff) -> u32 {
    if let Some(site) = Site::of(skb) {
        // SAFETY: into socket storage.
        unsafe { keep_segment(skb, site.scratch, site.book, site.flow, site.key) };
    }
    0
}

/// The second: gives up what will not come.
#[inline(always)]
pub fn pass_over(skb: *mut __sk_buff) -> u32 {
    if let Some(site) = Site::of(skb) {
        // SAFETY: into socket storage.
        unsafe { pass_over_missing(site.scratch, site.book, site.flow, rings::get(site.key), site.key) };
    }
    0
}

/// The third: chooses what is to be read.
#[inline(always)]
pub fn choose(skb: *mut __sk_buff) -> u32 {
    if let Some(site) = Site::of(skb) {
        // SAFETY: into socket storage.
        unsafe { choose_at_mark(site.scratch, site.flow, site.key) };
    }
    0
}

/// Keeps the segment at hand. The stage then says whether it, or the ring, is to be read next.
#[inline(always)]
unsafe fn keep_segment(skb: *mut __sk_buff, scratch: Scratch, book: *mut Book, flow: *mut Flow, key: u64) {
    // SAFETY: the caller's pointers are into socket storage.
    unsafe {
        let (seq, mark) = (scratch.seq(), (*flow).mark);
        let end = seq.wrapping_add(scratch.len());
        let from = if (seq.wrapping_sub(mark) as i32) < 0 { mark } else { seq };
        let ring = if (*flow).stored == 0 { rings::create(key) } else { rings::get(key) };
        if !ring.is_null() {
            (*flow).stored = 1;
            if Ranges::reaches(mark, end) && copy(skb, scratch.payload(), seq, ring, from, end) && (*ring).ranges.add(mark, from, end) {
                scratch.set_stage(stage::RING);
                return;
            }
        }
        // What is missing is given up, but not what came after it.
        missed(book, flow, side_of(key));
        if ring.is_null() {
            (*flow).stored = 0;
            (*flow).give_up(from);
            return;
        }
        (*flow).give_up((*ring).ranges.next_after(mark, from));
        scratch.set_then(then::SEGMENT);
        scratch.set_stage(stage::RING);
    }
}

#[inline(always)]
fn side_of(key: u64) -> usize {
    (key & 1) as usize
}

/// Counts a gap, and tells that header blocks may have been missed.
#[inline(always)]
unsafe fn missed(book: *const Book, flow: *const Flow, side: usize) {
    // SAFETY: the caller's pointers are into socket storage.
    unsafe {
        count::lack(book, health::GAPS);
        if (*flow).protocol != protocol::HTTP2 || (*book).edge as usize >= MAX_NAMED_EDGES {
            return;
        }
        if let Some((epoch, flags)) = count::settings()
            && count::wants_events(flags)
            && let Some(counters) = count::of_edge(epoch, (*book).edge)
        {
            let flags = if side == side::RESPONSE { EventHeader::FROM_SERVER } else { 0 };
            Sender { epoch, counters }.bare(book, Subject { kind: kind::STREAMS_MISSED, index: 0, status: 0, flags });
        }
    }
}

/// Chooses what the ring has at the mark; without any, what follows. A stage of `ENTRY` is the end.
#[inline(always)]
unsafe fn choose_at_mark(scratch: Scratch, flow: *mut Flow, key: u64) {
    // SAFETY: the caller's pointers are into socket storage.
    unsafe {
        let ring = rings::get(key);
        let mark = (*flow).mark;
        if !ring.is_null() {
            let end = (*ring).ranges.end_from(mark);
            if end != mark {
                (*flow).stored = 1;
                (*flow).stretch.end = end;
                (*flow).stretch.source = Stretch::RING;
                return;
            }
            if (*ring).ranges.is_empty(mark) {
                (*flow).stored = 0;
                rings::free(key);
            } else {
                // Looked at: what is missing before it comes with the socket.
                (*flow).stored = 1;
            }
        } else {
            (*flow).stored = 0;
        }
        scratch.go_on();
    }
}

/// Gives up what is missing and will not come. What leaves a socket passes its hook in order, under the socket's lock, so nothing of
/// it can still be on its way; and of what arrives, nothing that TCP has acknowledged.
#[inline(always)]
unsafe fn pass_over_missing(scratch: Scratch, book: *mut Book, flow: *mut Flow, ring: *mut Ring, key: u64) {
    // SAFETY: the caller's pointers are into socket storage, or null in the case of the ring.
    unsafe {
        let mark = (*flow).mark;
        let next = scratch.then();
        let sure = if next == then::OTHER_SIDE_LATE {
            scratch.ack()
        } else if scratch.incoming() || next != then::NOTHING || ring.is_null() {
            return;
        } else {
            scratch.seq()
        };
        if (sure.wrapping_sub(mark) as i32) <= 0 {
            return;
        }
        let next = if ring.is_null() {
            sure
        } else if (*ring).ranges.end_from(mark) == mark {
            (*ring).ranges.next_after(mark, sure)
        } else {
            return;
        };
        missed(book, flow, side_of(key));
        (*flow).give_up(next);
    }
}

/// Copies a segment's bytes into a ring, from one sequence number to another. False if they cannot be read.
///
/// # Safety
/// `ring` must not be null.
#[inline(always)]
pub unsafe fn copy(skb: *mut __sk_buff, payload: u32, seq: u32, ring: *mut Ring, from: u32, to: u32) -> bool {
    // SAFETY: the caller's ring; the helper checks the offset.
    unsafe {
        rings::fill(ring, from, to, |at, place, len| {
            let offset = payload.wrapping_add(at.wrapping_sub(seq));
            bpf_skb_load_bytes(skb.cast(), offset, place.cast(), within::<BLOCK>(len)) == 0
        })
    }
}
