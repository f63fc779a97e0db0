//! Books what the reading of a segment finds: counts, and records for user space.

use aya_ebpf::bindings::__sk_buff;
use stormdrill_wire::{
    abi::{EventHeader, MAX_NAMED_EDGES, health, kind},
    conn::{Book, Head, side},
    flow::{Flow, IN_HOLE},
    http1::{Body, Machine},
    read::{Piece, Sink},
};

use crate::{
    count,
    events::{Sender, Subject},
};

/// Books what a run finds.
pub struct Watch {
    pub skb: *mut __sk_buff,
    pub payload: u32,
    pub len: u32,
    pub book: *mut Book,
    pub flow: *mut Flow,
    pub incoming: bool,
    pub sender: Sender,
    pub flags: u32,
}

impl Watch {
    #[inline(always)]
    fn side(&self) -> usize {
        // SAFETY: `book` points into socket storage.
        unsafe { (*self.book).side(self.incoming) }
    }

    #[inline(always)]
    fn wants_events(&self) -> bool {
        // SAFETY: as above.
        count::wants_events(self.flags) && (unsafe { (*self.book).edge } as usize) < MAX_NAMED_EDGES
    }

    #[inline(always)]
    fn count(&self, status: u16) {
        // SAFETY: `counters` points into the counters map.
        unsafe {
            if status == 0 {
                count::add(&raw mut (*self.sender.counters).requests, 1);
            } else {
                count::response(self.sender.counters, status);
            }
        }
    }

    /// Sends a piece and up to `body` bytes of what follows it.
    #[inline(always)]
    fn send(&self, index: u32, status: u16, flags: u8, piece: Piece, body: u64) {
        let kind = if status == 0 { kind::REQUEST } else { kind::RESPONSE };
        let here = (self.len - piece.to) as u64;
        let body = if body > here { here } else { body };
        let subject = Subject { kind, index, status, flags };
        // SAFETY: `flow` points into socket storage.
        let scratch = unsafe { &raw mut (*self.flow).stretch.scratch };
        self.sender.head(self.skb, self.payload, self.book, subject, piece, body as u32, scratch);
    }
}

impl Sink for Watch {
    #[inline(always)]
    fn complete(&mut self, machine: &Machine) -> (Option<Head>, Body) {
        // SAFETY: `book` points into socket storage, apart from the machine's flow.
        unsafe { (*self.book).complete(self.side(), machine) }
    }

    #[inline(always)]
    fn head(&mut self, head: Head, piece: Piece, declared: u64) {
        self.count(head.status);
        if self.wants_events() && !head.orphan {
            self.send(head.index, head.status, EventHeader::COMPLETE, piece, declared);
        }
    }

    #[inline(always)]
    fn part(&mut self, machine: &Machine, piece: Piece) {
        if !self.wants_events() {
            return;
        }
        // SAFETY: as above.
        let (requests, responses) = unsafe { ((*self.book).request_count, (*self.book).response_count) };
        if self.side() == side::REQUEST {
            self.send(requests, 0, 0, piece, 0);
        } else if machine.status_known() && machine.status() >= 200 && responses != requests {
            self.send(responses, machine.status(), 0, piece, 0);
        }
    }

    #[inline(always)]
    fn foreign(&mut self) {
        if self.side() == side::REQUEST {
            // SAFETY: `counters` points into the counters map.
            count::add(unsafe { &raw mut (*self.sender.counters).unparsed_connections }, 1);
            count::health(health::UNPARSED_CONNECTIONS);
        }
    }
}

/// The head in the hole goes on in bytes that passed before: it is taken as complete.
#[inline(always)]
pub unsafe fn assume(watch: &Watch, flow: *mut Flow) {
    count::health(health::ASSUMED_HEADS);
    // SAFETY: the caller's pointers are into socket storage and the counters map.
    unsafe {
        let machine = &raw const (*flow).machines[IN_HOLE];
        let side = watch.side();
        if side == side::RESPONSE && !(*machine).status_known() {
            return;
        }
        let (head, _) = (*watch.book).complete(side, &*machine);
        if let Some(head) = head {
            watch.count(head.status);
        }
    }
}
