//! Data that comes with the end of a handshake: because the third packet was lost, or the client waited with it.
//!
//! The ingress hook sees such a segment with the *listener*, and it is not seen again with the new socket. So it is read
//! at once, into state that lies ready on this CPU, and `sock_ops` gives that state to the new socket a moment later, in the
//! same softirq. A segment that TCP drops meanwhile (the accept queue is full) is then given to nobody, and not counted
//! until it comes again.

use aya_ebpf::{
    bindings::{__sk_buff, BPF_RB_NO_WAKEUP},
    helpers::generated::{bpf_ktime_get_ns, bpf_ringbuf_output, bpf_skb_load_bytes},
};
use stormdrill_wire::{
    abi::{Addresses, EventHeader, health, kind, protocol, role},
    conn::{Book, Conn, Head, side},
    flow::{Flow, Place},
    http1::{Body, Machine},
    read::{self, Piece, Rest, Run, Sink},
};

use crate::{
    count,
    events::Sender,
    maps::{CHUNKS, EARLY, EVENTS},
    packet::{self, Bytes, Segment, within},
};

/// Bytes of the first head that are kept for its record; a power of two.
const CAPTURE: usize = 256;

/// A segment that was read before its socket was there.
#[repr(C)]
pub struct Early {
    conn: Conn,
    addresses: Addresses,
    seq: u32,
    /// 1 if the rest is meaningful.
    valid: u32,
    /// Bytes read.
    read: u32,
    /// Bytes of the first head and of the body after it, in this segment; 0 if it does not end here.
    first: u32,
    record: Record,
}

/// What is sent for the first head.
#[repr(C)]
struct Record {
    header: EventHeader,
    data: [u8; CAPTURE],
}

struct Job {
    bytes: Bytes,
    saved: Machine,
    early: *mut Early,
    len: u32,
}

/// Reads a segment that reached a listener.
#[inline(always)]
pub fn keep(skb: *mut __sk_buff, segment: &Segment) {
    let (Some(early), Some(chunk)) = (EARLY.get_ptr_mut(0), CHUNKS.get_ptr_mut(0)) else {
        return;
    };
    // SAFETY: map values; this hook runs in softirq, one at a time on each CPU.
    unsafe {
        (*early).valid = 0;
        (*early).first = 0;
        (*early).conn = Conn::fresh(role::INGRESS, segment.seq, 0);
        (*early).addresses = packet::addresses(skb, segment, true);
        (*early).seq = segment.seq;
        let flow = (&raw mut (*early).conn.flows).cast::<Flow>();
        if let (Place::Old, _) = (*flow).place(segment.seq, segment.len) {
            return;
        }
        let mut job = Job {
            // No socket's cookie is as large.
            bytes: Bytes { skb, payload: segment.payload, chunk, token: !(segment.seq as u64) },
            saved: Machine::requests(),
            early,
            len: segment.len,
        };
        read::begin(&mut *flow);
        job.run();
        let (rest, count) = read::finish(&mut *flow, segment.seq, segment.len);
        (*early).read = count;
        if let Rest::Again = rest {
            // What is left is not read again with the socket, so the place is lost.
            count::health(health::SEGMENTS_OVER_BUDGET);
            (*flow).machines[0].lose();
            (*flow).marks[0] = segment.seq.wrapping_add(segment.len);
        }
        let kept = if segment.len > CAPTURE as u32 { CAPTURE as u32 } else { segment.len };
        let to = (&raw mut (*early).record.data).cast();
        if bpf_skb_load_bytes(skb.cast(), segment.payload, to, within::<CAPTURE>(kept)) == 0 {
            (*early).valid = 1;
        }
    }
}

impl Job {
    #[inline(always)]
    fn run(&mut self) {
        #[expect(clippy::never_loop, reason = "the way to leave a sequence early")]
        loop {
            crate::job::sixteen_each!(step(self); 1 2 3);
            break;
        }
        end(self);
    }
}

#[inline(never)]
fn step(job: &mut Job) -> bool {
    // SAFETY: `early` is a map value; flow and book are apart.
    let (flow, mut watch) = unsafe { parts(job.early, job.len) };
    Run::new(flow, &mut job.saved, unsafe { (*job.early).seq }).step(&mut job.bytes, &mut watch)
}

#[inline(never)]
fn end(job: &mut Job) {
    // SAFETY: as above.
    let (flow, mut watch) = unsafe { parts(job.early, job.len) };
    Run::new(flow, &mut job.saved, unsafe { (*job.early).seq }).end(&mut job.bytes, &mut watch);
}

#[inline(always)]
unsafe fn parts<'a>(early: *mut Early, len: u32) -> (&'a mut Flow, Watch) {
    // SAFETY: the caller's map value.
    unsafe { (&mut *(&raw mut (*early).conn.flows).cast::<Flow>(), Watch { early, len }) }
}

/// Counts on the state only; what it comes to is booked when the socket is there.
struct Watch {
    early: *mut Early,
    len: u32,
}

impl Sink for Watch {
    #[inline(always)]
    fn complete(&mut self, machine: &Machine) -> (Option<Head>, Body) {
        // SAFETY: a map value; the book lies apart from the flow.
        let book = unsafe { &mut (*self.early).conn.book };
        book.complete(side::REQUEST, machine)
    }

    #[inline(always)]
    fn head(&mut self, head: Head, piece: Piece, declared: u64) {
        if head.index == 0 {
            let here = (self.len - piece.to) as u64;
            let body = if declared > here { here } else { declared };
            // SAFETY: a map value.
            unsafe { (*self.early).first = piece.to + body as u32 };
        }
    }

    #[inline(always)]
    fn part(&mut self, _machine: &Machine, _piece: Piece) {}

    #[inline(always)]
    fn foreign(&mut self) {}
}

/// Gives what was read early to the socket that it belongs to, and books it.
#[inline(always)]
pub unsafe fn give(conn: *mut Conn, addresses: &Addresses, next: u32, sender: &Sender, events: bool) {
    let Some(early) = EARLY.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: map values, and the caller's pointer into socket storage.
    unsafe {
        if (*early).valid == 0 {
            return;
        }
        (*early).valid = 0;
        let other = (*early).seq ^ next
            | (*early).addresses.remote[3] ^ addresses.remote[3]
            | (*early).addresses.remote[0] ^ addresses.remote[0]
            | ((*early).addresses.remote_port ^ addresses.remote_port) as u32
            | ((*early).addresses.local_port ^ addresses.local_port) as u32;
        if other != 0 {
            return;
        }
        (*conn).flows[side::REQUEST] = (*early).conn.flows[side::REQUEST];
        let book = &raw mut (*conn).book;
        (*book).head_ring = (*early).conn.book.head_ring;
        (*book).connect_at = (*early).conn.book.connect_at;
        let requests = (*early).conn.book.request_count;
        (*book).request_count = requests;
        count::add(&raw mut (*sender.counters).requests, requests as u64);
        count::add(&raw mut (*sender.counters).request_bytes, (*early).read as u64);
        if (*conn).flows[side::REQUEST].machines[0].is_foreign() {
            count::add(&raw mut (*sender.counters).unparsed_connections, 1);
            count::health(health::UNPARSED_CONNECTIONS);
        }
        if events {
            send(early, book, sender, requests);
        }
    }
}

/// Sends the first head; the others, if the segment had more, are counted as lost events.
#[inline(always)]
unsafe fn send(early: *mut Early, book: *const Book, sender: &Sender, requests: u32) {
    // SAFETY: as above. The header is written to the kept record, which is then copied whole.
    unsafe {
        let whole = if requests > 0 { (*early).first } else { (*early).read };
        if whole == 0 {
            return;
        }
        let len = if whole > CAPTURE as u32 { CAPTURE as u32 } else { whole };
        let header = &raw mut (*early).record.header;
        (*header).at_ns = bpf_ktime_get_ns();
        (*header).cookie = (*book).cookie;
        (*header).epoch = sender.epoch;
        (*header).index = 0;
        (*header).offset = 0;
        (*header).len = len as u16;
        (*header).status = 0;
        (*header).edge = (*book).edge;
        (*header).role = (*book).role;
        (*header).kind = kind::REQUEST;
        (*header).flags = if requests > 0 { EventHeader::COMPLETE } else { 0 };
        if whole > CAPTURE as u32 {
            (*header).flags |= EventHeader::TRUNCATED;
        }
        (*header).protocol = protocol::HTTP1;
        (*header).reserved = [0; 3];
        let size = size_of::<EventHeader>() as u64 + within::<CAPTURE>(len) as u64;
        let sent =
            bpf_ringbuf_output((&raw const EVENTS).cast_mut().cast(), (&raw mut (*early).record).cast(), size, BPF_RB_NO_WAKEUP as u64);
        if sent != 0 {
            sender.lost();
        }
        let mut more = 1;
        while more < 8 && more < requests {
            sender.lost();
            more += 1;
        }
    }
}
