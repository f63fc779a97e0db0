//! Connections whose protocol is not known yet.

use aya_ebpf::{EbpfContext, bindings::__sk_buff, maps::ProgramArray, programs::SkBuffContext};
use stormdrill_wire::{
    abi::protocol,
    detect::{self, BY_TEXT, INLINE, LOOKS, MORE, Opening, PASS},
    flow::{Flow, Place, Stretch},
    read::Payload as _,
};

use crate::{
    conns, count,
    hook::{self, program},
    maps::CHUNKS,
    packet::Bytes,
    scratch::{Scratch, stage},
    watch,
};

/// Looks at the beginning of what there is to read. Lets the packet pass.
#[inline(always)]
pub fn look(ctx: &SkBuffContext, programs: &ProgramArray) -> i32 {
    look_at(ctx, programs);
    hook::leave(ctx)
}

#[inline(always)]
fn look_at(ctx: &SkBuffContext, programs: &ProgramArray) {
    let skb: *mut __sk_buff = ctx.as_ptr().cast();
    let Some(conn) = conns::of(skb) else {
        return;
    };
    let Some(chunk) = CHUNKS.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: the context; `conn` is a non-null value of the storage map.
    unsafe {
        let scratch = Scratch::of(skb);
        let side = scratch.side();
        let book = &raw mut (*conn).book;
        let flow = (&raw mut (*conn).flows).cast::<Flow>().add(side);
        let from_segment = scratch.stage() == stage::SEGMENT;
        if from_segment {
            let (place, _) = (*flow).place_unread(scratch.seq(), scratch.len());
            if let Place::Old = place {
                return;
            }
            if let Place::Ahead = place {
                programs.tail_call(ctx, program::ORDER);
                return;
            }
        }
        let (mark, end) = ((*flow).mark, (*flow).stretch.end);
        let source = if from_segment { Stretch::SEGMENT } else { Stretch::RING };
        let total = end.wrapping_sub(mark);
        let opening = Opening { source, from: mark, total, side, late: (*flow).flags & Flow::MIDDLE != 0 };
        let token = (*book).cookie << 1 | scratch.incoming() as u64;
        let key = (*book).cookie << 1 | side as u64;
        let mut bytes = Bytes { skb, payload: scratch.payload(), seq: scratch.seq(), chunk, token, key };
        let mut found = detect::look(&mut bytes, &opening);
        if !bytes.is_intact() {
            // Another run has taken the chunk.
            found = detect::look(&mut bytes, &opening);
        }
        if found == MORE {
            (*flow).keeps();
            if from_segment {
                programs.tail_call(ctx, program::ORDER);
            } else if scratch.go_on() {
                programs.tail_call(ctx, program::MAIN);
            }
            return;
        }
        let Some((epoch, _)) = count::settings() else {
            return;
        };
        let Some(counters) = count::of_edge(epoch, (*book).edge) else {
            return;
        };
        if found == PASS {
            let passed = (*flow).passes();
            count::add((&raw mut (*counters).request_bytes).add(side), passed as u64);
            (*book).looked = (*book).looked.wrapping_add(1);
            if (*book).looked < LOOKS {
                hook::to_ring(ctx, scratch, flow, programs);
                return;
            }
        }
        if found == INLINE {
            (*book).looked = BY_TEXT;
            found = protocol::REDIS;
        }
        let protocol = if found == PASS { protocol::UNKNOWN } else { found & 7 };
        (*book).protocol = protocol;
        if protocol >= protocol::TLS {
            watch::count_protocol(book, counters, protocol);
        }
        if found != PASS {
            programs.tail_call(ctx, program::MAIN);
        }
    }
}
