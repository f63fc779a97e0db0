//! Books what the reading of a stretch finds: counts, and records for user space.

use aya_ebpf::bindings::__sk_buff;
use stormdrill_wire::{
    abi::{EdgeCounters, EventHeader, MAX_NAMED_EDGES, Settings, health, outcome, protocol},
    conn::{Book, side},
    flow::Flow,
    read::Sink,
    recogniser::{Note, Piece, tally},
};

use crate::{
    count,
    events::{Fetch, Sender, Source, Subject},
    job::OnFlow,
    sampling::Asked,
    scratch::Scratch,
    tls,
};

/// Books what a run finds.
pub struct Watch {
    pub skb: *mut __sk_buff,
    pub book: *mut Book,
    pub flow: *mut Flow,
    pub side: usize,
    /// Of the ring.
    pub key: u64,
}

impl OnFlow for Watch {
    #[inline(always)]
    fn at(&self) -> (*mut Flow, *mut Book, usize) {
        (self.flow, self.book, self.side)
    }
}

impl Sink for Watch {
    #[inline(always)]
    fn note(&mut self, note: &Note, piece: Piece) {
        // SAFETY: `book` and `flow` point into socket storage, `counters` into the counters map.
        unsafe {
            let count_protocol = |counters, protocol| count_protocol(self.book, counters, protocol);
            take_down(note, piece, self.book, self.flow, count_protocol, |source| {
                let scratch = Scratch::of(self.skb);
                Source { skb: self.skb, payload: scratch.payload(), seq: scratch.seq(), source, key: self.key }
            });
        }
    }

    #[inline(always)]
    fn foreign(&mut self) {
        if self.side != side::REQUEST {
            return;
        }
        // SAFETY: as above.
        unsafe {
            if let Some((epoch, _)) = count::settings()
                && let Some(counters) = count::of_edge(epoch, (*self.book).edge)
            {
                count_protocol(self.book, counters, protocol::UNKNOWN);
            }
        }
    }
}

/// Counts what a note tells, and sends its record if one is wanted. `fetch` makes what the record's bytes come from, given the stretch's source.
///
/// # Safety
/// `book` and `flow` must point into a map.
#[inline(always)]
pub unsafe fn take_down<F: Fetch>(
    note: &Note,
    piece: Piece,
    book: *mut Book,
    flow: *mut Flow,
    count_protocol: impl Fn(*mut EdgeCounters, u8),
    fetch: impl FnOnce(u32) -> F,
) {
    let Some((epoch, flags)) = count::settings() else {
        return;
    };
    // SAFETY: the caller's pointers; `counters` points into the counters map.
    unsafe {
        let Some(counters) = count::of_edge(epoch, (*book).edge) else {
            return;
        };
        if note.turn != 0 {
            count_protocol(counters, note.turn);
        } else if note.tally != tally::NONE {
            count_protocol(counters, (*book).protocol);
            count_message(counters, note);
        }
        if note.kind == 0 || !count::wants_events(flags) || (*book).edge as usize >= MAX_NAMED_EDGES {
            return;
        }
        let source = fetch((*flow).stretch.source);
        if flags & Settings::SAMPLES != 0 && source.leaves_out(Asked::of(note, piece)) != 0 {
            return;
        }
        let subject = Subject { kind: note.kind, index: note.index, status: note.status, flags: note.flags | ended(book) };
        let sender = Sender { epoch, counters };
        if note.bare {
            sender.bare(book, subject);
            return;
        }
        let here = (*flow).stretch.end.wrapping_sub(piece.to);
        let body = if note.body > here { here } else { note.body };
        sender.piece(&source, book, subject, piece, body, &raw mut (*flow).stretch.scratch);
    }
}

/// Which sides have ended, as flags of a record. By arithmetic: branches would be followed by the verifier.
///
/// # Safety
/// `book` must point into a map.
#[inline(always)]
unsafe fn ended(book: *const Book) -> u8 {
    // SAFETY: the caller's pointer.
    unsafe {
        let (local, peer) = ((*book).seen_out & Book::FIN, (*book).seen_in & Book::FIN);
        local * (EventHeader::LOCAL_ENDED / Book::FIN) + peer * (EventHeader::PEER_ENDED / Book::FIN)
    }
}

/// Counts a connection by its protocol, once.
///
/// # Safety
/// The pointers are into socket storage and the counters map.
#[inline(always)]
pub unsafe fn count_protocol(book: *mut Book, counters: *mut EdgeCounters, protocol: u8) {
    // SAFETY: the caller's.
    unsafe {
        if (*book).counted == 0 && !(protocol == protocol::TLS && tls::counts_later(book)) {
            count_as(book, counters, protocol);
        }
    }
}

/// Counts a connection that was not counted yet.
///
/// # Safety
/// As `count_protocol`.
#[inline(always)]
pub unsafe fn count_as(book: *mut Book, counters: *mut EdgeCounters, protocol: u8) {
    // SAFETY: the caller's; the index is masked.
    unsafe {
        (*book).counted = 1;
        count::add((&raw mut (*counters).protocols).cast::<u64>().add(protocol as usize & (protocol::COUNT - 1)), 1);
        if protocol >= protocol::TLS {
            count::add(&raw mut (*counters).unparsed_connections, 1);
            count::lack(book, health::UNPARSED_CONNECTIONS);
        }
    }
}

/// # Safety
/// The pointer is into the counters map.
#[inline(always)]
unsafe fn count_message(counters: *mut EdgeCounters, note: &Note) {
    // SAFETY: the caller's.
    unsafe {
        if note.tally == tally::REQUEST {
            count::add(&raw mut (*counters).requests, note.times as u64);
        } else if note.tally == tally::STATUS {
            count::response(counters, note.status);
        } else if note.tally == tally::TURNED_AWAY {
            count::add(&raw mut (*counters).connect_failures, 1);
        } else {
            count::add(&raw mut (*counters).responses, 1);
            if note.tally == tally::OUTCOME {
                let of = if note.status == outcome::OK { &raw mut (*counters).ok } else { &raw mut (*counters).errors };
                count::add(of, 1);
            }
        }
    }
}

const _: () = assert!(protocol::COUNT.is_power_of_two());
