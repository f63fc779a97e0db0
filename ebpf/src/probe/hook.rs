//! The packet hooks: every TCP segment that leaves a socket or reaches one. They only ever let it pass.

use aya_ebpf::{
    EbpfContext,
    bindings::{__sk_buff, bpf_sock},
    helpers::bpf_sk_fullsock,
    maps::ProgramArray,
    programs::SkBuffContext,
};
use stormdrill_wire::{
    abi::{EventHeader, MAX_NAMED_EDGES, health, kind, role},
    conn::{self, Book, Conn, Piece, Rest, Side, Sink},
    flow::{Flow, Place},
    http1::{Body, Machine},
};

use crate::{
    conns, count,
    events::{Sender, Subject},
    found,
    packet::{self, Bytes, Packet, Segment},
};

/// Steps of one run. A run that needs more calls itself, up to 33 times.
const CHUNKS: usize = 8;

const PASS: i32 = 1;

/// Places in the program arrays.
const MAIN: u32 = 0;
const ADOPT: u32 = 1;

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
    if let Some(arrival) = arrival(ctx)
        && found::adopt(arrival.skb, arrival.sk, &arrival.segment, incoming, arrival.epoch, arrival.flags)
    {
        // SAFETY: the array holds programs of this type only.
        unsafe { programs.tail_call(ctx, MAIN) };
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
        let events = count::wants_events(flags) && ((*book).edge as usize) < MAX_NAMED_EDGES;
        let sender = Sender { epoch, counters };
        if (*book).life & Book::CALLBACKS == 0 && segment.flags & (packet::FIN | packet::RST) != 0 {
            found::closed(book, &sender, events);
        }
        if segment.len == 0 {
            return false;
        }
        let side = (*book).side(incoming);
        let flow = if let Side::Request = side { &raw mut (*conn).requests } else { &raw mut (*conn).responses };
        if (*book).opaque != 0 {
            (*flow).machine.make_opaque();
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
        let mut bytes = Bytes { skb, payload: segment.payload };
        let mut watch = Watch { skb, payload: segment.payload, len: segment.len, book, side, sender, events };
        let (rest, read) = conn::read::<CHUNKS>(&mut *flow, place, segment.len, &mut bytes, &mut watch);
        let total = if let Side::Request = side {
            &raw mut (*counters).request_bytes
        } else {
            &raw mut (*counters).response_bytes
        };
        count::add(total, read as u64);
        match rest {
            Rest::None => false,
            Rest::Again => true,
            Rest::HeadAssumed => {
                assume(&watch, flow);
                false
            }
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

/// The head in the hole goes on in bytes that passed before: it is taken as complete.
#[inline(always)]
unsafe fn assume(watch: &Watch, flow: *mut Flow) {
    count::health(health::ASSUMED_HEADS);
    // SAFETY: the caller's pointers are into socket storage and the counters map.
    unsafe {
        let machine = &raw const (*flow).hole;
        if let Side::Response = watch.side
            && !(*machine).status_known()
        {
            return;
        }
        let (head, _) = (*watch.book).complete(watch.side, &*machine);
        if let Some(head) = head {
            watch.count(head.status);
        }
    }
}

#[inline(always)]
fn over_budget(conn: *mut Conn, segment: &Segment, incoming: bool) {
    count::health(health::SEGMENTS_OVER_BUDGET);
    // SAFETY: as in `observe`.
    unsafe {
        let side = (*conn).book.side(incoming);
        let flow = if let Side::Request = side { &raw mut (*conn).requests } else { &raw mut (*conn).responses };
        (*flow).machine.lose();
        (*flow).next = segment.seq.wrapping_add(segment.len);
    }
}

/// Books what a run finds.
struct Watch {
    skb: *mut __sk_buff,
    payload: u32,
    len: u32,
    book: *mut Book,
    side: Side,
    sender: Sender,
    events: bool,
}

impl Watch {
    #[inline(always)]
    fn count(&self, status: u16) {
        // SAFETY: `counters` points into the counters map.
        unsafe {
            if let Side::Request = self.side {
                count::add(&raw mut (*self.sender.counters).requests, 1);
            } else {
                count::response(self.sender.counters, status);
            }
        }
    }

    #[inline(always)]
    fn send(&self, index: u32, status: u16, flags: u8, piece: Piece, body: u32) {
        let kind = if let Side::Request = self.side { kind::REQUEST } else { kind::RESPONSE };
        self.sender.head(self.skb, self.payload, self.book, Subject { kind, index, status, flags }, piece, body);
    }
}

impl Sink for Watch {
    #[inline(always)]
    fn head(&mut self, machine: &Machine, piece: Piece) -> Body {
        // SAFETY: `book` points into socket storage, apart from the machine's flow.
        let (head, body) = unsafe { (*self.book).complete(self.side, machine) };
        if let Some(head) = head {
            self.count(head.status);
            if self.events && !head.orphan {
                let follows = machine.declared_body();
                let here = (self.len - piece.to) as u64;
                let body = if follows > here { here } else { follows };
                self.send(head.index, head.status, EventHeader::COMPLETE, piece, body as u32);
            }
        }
        body
    }

    #[inline(always)]
    fn part(&mut self, machine: &Machine, piece: Piece) {
        if !self.events {
            return;
        }
        // SAFETY: as above.
        let (requests, responses) = unsafe { ((*self.book).request_count, (*self.book).response_count) };
        if let Side::Request = self.side {
            self.send(requests, 0, 0, piece, 0);
        } else if machine.status_known() && machine.status() >= 200 && responses != requests {
            self.send(responses, machine.status(), 0, piece, 0);
        }
    }

    #[inline(always)]
    fn foreign(&mut self) {
        // SAFETY: `counters` points into the counters map.
        if let Side::Request = self.side {
            count::add(unsafe { &raw mut (*self.sender.counters).unparsed_connections }, 1);
            count::health(health::UNPARSED_CONNECTIONS);
        }
    }
}
