//! The packet hooks: every TCP segment that leaves a socket or reaches one. They only ever let it pass.

use aya_ebpf::{
    EbpfContext,
    bindings::{__sk_buff, bpf_sock},
    helpers::bpf_sk_fullsock,
    maps::ProgramArray,
    programs::SkBuffContext,
};
use stormdrill_wire::{
    abi::{health, role},
    conn::{Book, Conn},
    flow::{AT_MARK, Flow, Place},
    http1::Machine,
    read::{self, Rest},
};

use crate::{
    conns, count, early,
    events::Sender,
    found::{self, Adoption},
    job::Job,
    maps::CHUNKS,
    packet::{self, Bytes, Packet, Segment},
    watch::{self, Watch},
};

const PASS: i32 = 1;

/// Places in the program arrays.
const MAIN: u32 = 0;
const ADOPT: u32 = 1;
const EARLY: u32 = 2;

/// What a hook needs to know of a packet before it looks at the connection.
struct Arrival {
    skb: *mut __sk_buff,
    sk: *mut bpf_sock,
    segment: Segment,
    epoch: u32,
    flags: u32,
}

/// Looks at one packet.
#[inline(always)]
pub fn see(ctx: &SkBuffContext, incoming: bool, programs: &ProgramArray) -> i32 {
    let Some(arrival) = arrival(ctx) else {
        return PASS;
    };
    let conn = conns::get(arrival.sk);
    if conn.is_null() {
        // SAFETY: the array holds programs of this type only.
        unsafe { programs.tail_call(ctx, ADOPT) };
        return PASS;
    }
    if observe(arrival.skb, conn, &arrival.segment, incoming, arrival.epoch, arrival.flags) {
        // SAFETY: as above.
        unsafe { programs.tail_call(ctx, MAIN) };
        over_budget(conn, &arrival.segment, incoming);
    }
    PASS
}

/// Gives a connection without state one if it can, and then has its packet looked at.
#[inline(always)]
pub fn adopt(ctx: &SkBuffContext, incoming: bool, programs: &ProgramArray) -> i32 {
    if let Some(arrival) = arrival(ctx) {
        let next = match found::adopt(arrival.skb, arrival.sk, &arrival.segment, incoming, arrival.epoch, arrival.flags) {
            Adoption::Done => MAIN,
            Adoption::Listener => EARLY,
            Adoption::None => return PASS,
        };
        // SAFETY: the array holds programs of this type only.
        unsafe { programs.tail_call(ctx, next) };
    }
    PASS
}

/// Reads a segment that reached a listener.
#[inline(always)]
pub fn early(ctx: &SkBuffContext) -> i32 {
    if let Some(arrival) = arrival(ctx)
        && arrival.segment.len > 0
    {
        early::keep(arrival.skb, &arrival.segment);
    }
    PASS
}

#[inline(always)]
fn arrival(ctx: &SkBuffContext) -> Option<Arrival> {
    let skb: *mut __sk_buff = ctx.as_ptr().cast();
    let segment = match packet::read(skb) {
        Packet::Tcp(segment) => segment,
        Packet::Other => return None,
        Packet::Unreadable => {
            count::health(health::HEADERS_UNREADABLE);
            return None;
        }
    };
    if segment.len == 0 && segment.flags & (packet::FIN | packet::RST) == 0 {
        return None;
    }
    // SAFETY: fields of a valid context; the helper takes any socket and answers null if it is not a full one.
    let sk = unsafe {
        let sk = (*skb).__bindgen_anon_2.sk;
        if sk.is_null() {
            return None;
        }
        bpf_sk_fullsock(sk)
    };
    if sk.is_null() {
        return None;
    }
    let (epoch, flags) = count::settings()?;
    Some(Arrival { skb, sk, segment, epoch, flags })
}

/// Reads the segment; whether it must be offered again.
#[inline(always)]
fn observe(skb: *mut __sk_buff, conn: *mut Conn, segment: &Segment, incoming: bool, epoch: u32, flags: u32) -> bool {
    // SAFETY: `conn` is a non-null value of the storage map; fields are reached one at a time, so that no two references
    // overlap.
    unsafe {
        let book = &raw mut (*conn).book;
        if segment.flags & (packet::FIN | packet::RST) != 0 {
            note_end(book, segment.flags, incoming);
        }
        if (*book).role == role::UNKNOWN {
            return false;
        }
        let Some(counters) = count::of_edge(epoch, (*book).edge) else {
            return false;
        };
        let sender = Sender { epoch, counters };
        if (*book).life & Book::CALLBACKS == 0 && segment.flags & (packet::FIN | packet::RST) != 0 {
            found::closed(book, &sender, flags);
        }
        if segment.len == 0 {
            return false;
        }
        let flow = flow(conn, incoming);
        if (*book).opaque != 0 {
            (*flow).machines[AT_MARK].make_opaque();
        }
        let (place, forgot) = (*flow).place(segment.seq, segment.len);
        if forgot {
            count::health(health::GAPS);
        }
        if let Place::Old = place {
            if !incoming && (*book).life & Book::CALLBACKS == 0 {
                let segments = (*skb).gso_segs;
                count::add(&raw mut (*counters).retransmits, if segments == 0 { 1 } else { segments as u64 });
            }
            return false;
        }
        let Some(chunk) = CHUNKS.get_ptr_mut(0) else {
            return false;
        };
        // Unlike that of any other run that this one may interrupt, or be interrupted by: those are on other sockets, or
        // on the other direction of this one.
        let token = (*book).cookie << 1 | incoming as u64;
        let mut job = Job {
            bytes: Bytes { skb, payload: segment.payload, chunk, token },
            saved: Machine::requests(),
            seq: segment.seq,
            watch: Watch { skb, payload: segment.payload, len: segment.len, book, flow, incoming, sender, flags },
        };
        read::begin(&mut *flow);
        job.run();
        let (rest, count) = read::finish(&mut *flow, segment.seq, segment.len);
        let bytes = (&raw mut (*counters).request_bytes).add((*book).side(incoming));
        count::add(bytes, count as u64);
        match rest {
            Rest::None => false,
            Rest::Again => true,
            Rest::HeadAssumed => {
                watch::assume(&job.watch, flow);
                false
            }
        }
    }
}

/// The flow of a direction.
#[inline(always)]
unsafe fn flow(conn: *mut Conn, incoming: bool) -> *mut Flow {
    // SAFETY: the caller's pointer; a side is 0 or 1.
    unsafe { (&raw mut (*conn).flows).cast::<Flow>().add((*conn).book.side(incoming)) }
}

/// Remembers that the segment ends the connection. One writer for each direction.
#[inline(always)]
unsafe fn note_end(book: *mut Book, flags: u8, incoming: bool) {
    let mut seen = if flags & packet::RST != 0 { Book::RST } else { 0 };
    if flags & packet::FIN != 0 {
        seen |= Book::FIN;
    }
    // SAFETY: the caller's pointer is into socket storage.
    unsafe {
        if incoming {
            (*book).seen_in |= seen;
        } else {
            (*book).seen_out |= seen;
        }
    }
}

#[inline(always)]
fn over_budget(conn: *mut Conn, segment: &Segment, incoming: bool) {
    count::health(health::SEGMENTS_OVER_BUDGET);
    // SAFETY: as in `observe`.
    unsafe {
        let flow = flow(conn, incoming);
        (*flow).machines[AT_MARK].lose();
        (*flow).marks[AT_MARK] = segment.seq.wrapping_add(segment.len);
    }
}
