//! The packet hooks: every TCP segment that leaves a socket or reaches one. They only ever let it pass.

use aya_ebpf::{
    EbpfContext,
    bindings::{__sk_buff, bpf_sock},
    maps::ProgramArray,
    programs::SkBuffContext,
};
use stormdrill_wire::{
    abi::{health, protocol, role},
    conn::{Book, Conn},
    flow::{Flow, Place, Stretch},
    http1::Machine,
    read,
    recogniser::Recogniser,
};

use crate::{
    conns, count, early,
    events::Sender,
    found::{self, Adoption},
    job::BURSTS,
    packet::{self, Packet, Segment},
    scratch::{Scratch, stage, then},
    turn,
};

const PASS: i32 = 1;

/// A function that the verifier goes through once, whoever calls it.
pub type Called = extern "C" fn(*mut __sk_buff) -> u32;

/// Places in the program arrays: the hook itself, one for each protocol that needs a program of its own, and the rest.
pub mod program {
    /// The hook, which also reads HTTP/1.x.
    pub const MAIN: u32 = 0;
    /// Reads nothing: TLS and what is unknown.
    pub const PASSIVE: u32 = 1;
    /// HTTP/2 to PostgreSQL are at the numbers of their protocols.
    pub const DETECT: u32 = 6;
    /// What came too early.
    pub const ORDER: u32 = 7;
    /// A connection without state.
    pub const ADOPT: u32 = 8;
    /// A listener's segment.
    pub const EARLY: u32 = 9;
}

/// What a hook needs to know of a packet before it looks at the connection.
struct Arrival {
    skb: *mut __sk_buff,
    sk: *mut bpf_sock,
    segment: Segment,
}

/// Looks at one packet.
#[inline(always)]
pub fn see(ctx: &SkBuffContext, incoming: bool, programs: &ProgramArray, burst: Called, wait: Called) -> i32 {
    if let Some(conn) = dispatch(ctx, incoming, programs, burst, wait) {
        end_turn(ctx, conn);
    }
    PASS
}

/// What a packet's last program does: what it reads may be read by others again.
#[inline(always)]
pub fn leave(ctx: &SkBuffContext) -> i32 {
    let skb: *mut __sk_buff = ctx.as_ptr().cast();
    // SAFETY: the context.
    if unsafe { Scratch::of(skb).is_held() }
        && let Some(conn) = conns::of(skb)
    {
        end_turn(ctx, conn);
    }
    PASS
}

/// The same where the connection is at hand.
#[inline(always)]
fn end_turn(ctx: &SkBuffContext, conn: *mut Conn) {
    // SAFETY: the context; a non-null value of the storage map.
    unsafe {
        let scratch = Scratch::of(ctx.as_ptr().cast());
        if scratch.is_held() {
            scratch.set_held(false);
            turn::give_back(conn);
        }
    }
}

/// Reads what this program can, or has another one read; the connection, if this program is the last.
#[inline(always)]
fn dispatch(ctx: &SkBuffContext, incoming: bool, programs: &ProgramArray, burst: Called, wait: Called) -> Option<*mut Conn> {
    let skb: *mut __sk_buff = ctx.as_ptr().cast();
    // SAFETY: the context; the arrays hold programs of this type only; `conn` is a non-null value of the storage map.
    unsafe {
        let scratch = Scratch::of(skb);
        let conn = if scratch.stage() == stage::ENTRY {
            let arrival = arrival(ctx, incoming)?;
            let conn = conns::get(arrival.sk);
            if conn.is_null() || conns::is_unfinished(conn) {
                if arrival.segment.len > 0 || arrival.segment.flags & (packet::FIN | packet::RST) != 0 {
                    programs.tail_call(ctx, program::ADOPT);
                }
                return None;
            }
            if !enter(skb, scratch, conn, &arrival.segment, incoming, wait) {
                return None;
            }
            if scratch.stage() == stage::RING {
                programs.tail_call(ctx, program::ORDER);
                return Some(conn);
            }
            conn
        } else {
            conns::of(skb)?
        };
        let protocol = (*conn).book.protocol;
        if protocol == protocol::HTTP1 {
            observe::<Machine>(ctx, scratch, conn, programs, burst);
            return Some(conn);
        }
        let place = if protocol == protocol::ANY {
            program::DETECT
        } else if protocol >= protocol::TLS {
            program::PASSIVE
        } else {
            protocol as u32
        };
        programs.tail_call(ctx, place);
        Some(conn)
    }
}

/// Reads what is to be read in a program of its own.
#[inline(always)]
pub fn read_on<M: Recogniser>(ctx: &SkBuffContext, programs: &ProgramArray, burst: Called) -> i32 {
    let skb: *mut __sk_buff = ctx.as_ptr().cast();
    // SAFETY: the context.
    unsafe {
        if let Some(conn) = conns::of(skb) {
            observe::<M>(ctx, Scratch::of(skb), conn, programs, burst);
            end_turn(ctx, conn);
        }
    }
    PASS
}

/// Gives a connection without state one if it can, and then has its packet looked at.
#[inline(always)]
pub fn adopt(ctx: &SkBuffContext, incoming: bool, programs: &ProgramArray, wait: Called) -> i32 {
    if let Some(arrival) = arrival(ctx, incoming)
        && let Some((epoch, flags)) = count::settings()
    {
        let next = match found::adopt(arrival.skb, arrival.sk, &arrival.segment, incoming, epoch, flags) {
            Adoption::Done => program::MAIN,
            Adoption::Listener => program::EARLY,
            Adoption::Elsewhere if wait(arrival.skb) != 0 => program::MAIN,
            Adoption::Elsewhere => return PASS,
            Adoption::None => return PASS,
        };
        // SAFETY: the array holds programs of this type only.
        unsafe { programs.tail_call(ctx, next) };
    }
    PASS
}

/// Keeps a segment that reached a listener.
#[inline(always)]
pub fn early(ctx: &SkBuffContext) -> i32 {
    if let Some(arrival) = arrival(ctx, true)
        && arrival.segment.len > 0
    {
        early::keep(arrival.skb, &arrival.segment);
    }
    PASS
}

#[inline(always)]
fn arrival(ctx: &SkBuffContext, incoming: bool) -> Option<Arrival> {
    let skb: *mut __sk_buff = ctx.as_ptr().cast();
    let segment = match packet::read(skb) {
        Packet::Tcp(segment) => segment,
        Packet::Other => return None,
        Packet::Unreadable => {
            count::health(health::HEADERS_UNREADABLE);
            return None;
        }
    };
    // A bare acknowledgement that leaves may be the first packet after data that came with a handshake.
    if segment.len == 0 && segment.flags & (packet::FIN | packet::RST) == 0 && incoming {
        return None;
    }
    Some(Arrival { skb, sk: conns::socket(skb)?, segment })
}

/// Books what a packet tells besides its data, and notes what is to be done with it; whether that is anything.
#[inline(always)]
unsafe fn enter(skb: *mut __sk_buff, scratch: Scratch, conn: *mut Conn, segment: &Segment, incoming: bool, wait: Called) -> bool {
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
        if (*book).life & Book::CALLBACKS == 0
            && segment.flags & (packet::FIN | packet::RST) != 0
            && let Some((epoch, flags)) = count::settings()
            && let Some(counters) = count::of_edge(epoch, (*book).edge)
        {
            found::closed(book, &Sender { epoch, counters }, flags);
        }
        let side = (*book).side(incoming);
        scratch.fill(segment, side, incoming);
        if incoming {
            let flow = (&raw const (*conn).flows).cast::<Flow>().add(side);
            if segment.len == 0 {
                if (*flow).stored == 0 {
                    return false;
                }
                // The peer ends: nothing else may come that has read what waits.
                scratch.set_stage(stage::RING);
            }
            // The wait is a function that the verifier goes through once.
            let held = !turn::is_too_far(conn, scratch) && turn::take(conn) || wait(skb) != 0;
            scratch.set_held(held);
            return held;
        }
        let other = (&raw const (*conn).flows).cast::<Flow>().add(side ^ 1);
        let then = if (*other).stored == Flow::EARLY {
            // What came early is older than anything that leaves.
            then::OTHER_SIDE
        } else if segment.flags & packet::ACK != 0 && (*other).begun != 0 && (segment.ack.wrapping_sub((*other).mark) as i32) > 1 {
            // One more may be acknowledged than there are bytes: a FIN, which need not have been seen with this socket.
            then::OTHER_SIDE_LATE
        } else {
            then::NOTHING
        };
        if then != then::NOTHING && turn::take(conn) {
            scratch.set_held(true);
            scratch.flip_side();
            scratch.set_then(then);
            scratch.set_stage(stage::RING);
            return true;
        }
        segment.len != 0
    }
}

/// Reads what is to be read.
#[inline(always)]
unsafe fn observe<M: Recogniser>(ctx: &SkBuffContext, scratch: Scratch, conn: *mut Conn, programs: &ProgramArray, burst: Called) {
    // SAFETY: as in `enter`; the arrays hold programs of this type only.
    unsafe {
        let skb: *mut __sk_buff = ctx.as_ptr().cast();
        let side = scratch.side();
        let book = &raw mut (*conn).book;
        let flow = (&raw mut (*conn).flows).cast::<Flow>().add(side);
        (*flow).adopt::<M>(&mut *book, side);
        let mut bridged = 0;
        if scratch.stage() == stage::SEGMENT {
            let (place, missing) = (*flow).place::<M>(scratch.seq(), scratch.len());
            if let Place::Old = place {
                sent_again(skb, book, scratch.incoming());
                return;
            }
            if let Place::Ahead = place {
                programs.tail_call(ctx, program::ORDER);
                return;
            }
            bridged = missing;
        }
        read::begin::<M>(&mut *flow, &*book, side);
        let mut bursts = 0;
        while bursts < BURSTS {
            if burst(skb) == 0 {
                break;
            }
            bursts += 1;
        }
        let (whole, count) = read::finish(&*flow);
        if let Some((epoch, _)) = count::settings()
            && let Some(counters) = count::of_edge(epoch, (*book).edge)
        {
            count::add((&raw mut (*counters).request_bytes).add(side), bridged as u64 + count as u64);
        }
        if !whole {
            if bursts < BURSTS {
                // The connection goes on with another protocol.
                programs.tail_call(ctx, program::MAIN);
                return;
            }
            count::lack(book, health::SEGMENTS_OVER_BUDGET);
            let end = (*flow).stretch.end;
            (*flow).give_up(end);
        }
        to_ring(ctx, scratch, flow, programs);
    }
}

/// After what was read, to what is kept, and to what is to follow it; returns if there is neither.
///
/// # Safety
/// The flow must be in socket storage.
#[inline(always)]
pub unsafe fn to_ring(ctx: &SkBuffContext, scratch: Scratch, flow: *const Flow, programs: &ProgramArray) {
    // SAFETY: the caller's pointer; the array holds programs of this type only.
    unsafe {
        if (*flow).stored | scratch.then() as u8 != 0 {
            scratch.set_stage(stage::RING);
            programs.tail_call(ctx, program::ORDER);
        }
    }
}

/// A connection without `sock_ops` calls sends something again.
#[inline(always)]
unsafe fn sent_again(skb: *mut __sk_buff, book: *const Book, incoming: bool) {
    // SAFETY: the caller's pointer is into socket storage.
    unsafe {
        if incoming || (*book).life & Book::CALLBACKS != 0 {
            return;
        }
        if let Some((epoch, _)) = count::settings()
            && let Some(counters) = count::of_edge(epoch, (*book).edge)
        {
            let segments = (*skb).gso_segs;
            count::add(&raw mut (*counters).retransmits, if segments == 0 { 1 } else { segments as u64 });
        }
    }
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

const _: () = assert!(Stretch::SEGMENT == 0);
