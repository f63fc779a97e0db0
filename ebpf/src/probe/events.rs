//! Records for user space. Nothing here wakes the reader: it drains on a timer, since a wake-up costs more than a record.

use aya_ebpf::{
    bindings::{__sk_buff, BPF_RB_NO_WAKEUP},
    helpers::{bpf_ktime_get_ns, generated::bpf_skb_load_bytes},
};
use stormdrill_wire::{
    abi::{Addresses, EdgeCounters, EventHeader, HEAD_CAPTURE, REQUEST_CAPTURE, RESPONSE_CAPTURE, health, kind},
    conn::Book,
    flow::Stretch,
    recogniser::Piece,
};

use crate::{count, leave_out, maps::EVENTS, packet::within, rings, sampling::Asked};

/// A record with data.
#[repr(C)]
struct Record<const N: usize> {
    header: EventHeader,
    data: [u8; N],
}

/// A record with addresses.
#[repr(C)]
struct AddressRecord {
    header: EventHeader,
    addresses: Addresses,
}

/// What all records of a run have in common.
#[derive(Clone, Copy)]
pub struct Sender {
    pub epoch: u32,
    pub counters: *mut EdgeCounters,
}

/// What a record is about.
#[derive(Clone, Copy)]
pub struct Subject {
    pub kind: u8,
    pub index: u32,
    pub status: u16,
    pub flags: u8,
}

impl Sender {
    /// Fills in a header where it lies: a copy on the stack would be 40 of its 512 bytes.
    #[inline(always)]
    unsafe fn header(&self, to: *mut EventHeader, book: *const Book, subject: Subject, offset: u32, len: u16) {
        // SAFETY: `to` is a reservation, `book` points into socket storage; the helper reads a clock.
        unsafe {
            (*to).at_ns = bpf_ktime_get_ns();
            (*to).cookie = (*book).cookie;
            (*to).epoch = self.epoch;
            (*to).index = subject.index;
            (*to).offset = offset;
            (*to).len = len;
            (*to).status = subject.status;
            (*to).edge = (*book).edge;
            (*to).role = (*book).role;
            (*to).kind = subject.kind;
            (*to).flags = subject.flags;
            (*to).protocol = (*book).protocol;
            (*to).reserved = [0; 3];
        }
    }

    #[inline(always)]
    pub fn lost(&self) {
        // SAFETY: `counters` points into the counters map.
        count::add(unsafe { &raw mut (*self.counters).events_lost }, 1);
        count::health(health::EVENTS_LOST);
    }

    /// Opened, failed or closed, with both addresses where they are known.
    #[inline(always)]
    pub fn connection(&self, book: *const Book, subject: Subject, addresses: &Addresses) {
        let Some(mut record) = EVENTS.reserve::<AddressRecord>(0) else {
            self.lost();
            return;
        };
        let at = record.as_mut_ptr();
        // SAFETY: the reservation has room for both.
        unsafe {
            self.header(&raw mut (*at).header, book, subject, 0, size_of::<Addresses>() as u16);
            (&raw mut (*at).addresses).write(*addresses);
        }
        record.submit(BPF_RB_NO_WAKEUP as u64);
    }

    /// A record without data.
    #[inline(always)]
    pub fn bare(&self, book: *const Book, subject: Subject) {
        let Some(mut record) = EVENTS.reserve::<EventHeader>(0) else {
            self.lost();
            return;
        };
        // SAFETY: the reservation has room for a header.
        unsafe { self.header(record.as_mut_ptr(), book, subject, 0, 0) };
        record.submit(BPF_RB_NO_WAKEUP as u64);
    }

    /// A piece of a message with up to `body` bytes of what follows it, as far as the capture limits allow.
    #[inline(always)]
    pub fn piece(&self, source: &impl Fetch, book: *const Book, subject: Subject, piece: Piece, body: u32, scratch: *mut u32) {
        let is_head = subject.kind <= kind::RESPONSE;
        let limit = if subject.kind == kind::REQUEST { REQUEST_CAPTURE } else { RESPONSE_CAPTURE };
        let room = if is_head { HEAD_CAPTURE.saturating_sub(piece.offset) } else { RESPONSE_CAPTURE };
        let told = piece.to.wrapping_sub(piece.from);
        let whole = told.wrapping_add(body);
        let mut len = if whole > limit { limit } else { whole };
        if len > room {
            len = room;
        }
        if len == 0 && is_head && subject.flags & EventHeader::COMPLETE == 0 {
            return;
        }
        let mut subject = subject;
        let truncated = (len < told) as u8;
        // By arithmetic, and then forgotten: so many ways to get here would each be followed to the end.
        let (len, flags) = forget(scratch, len, subject.flags | truncated << 1);
        subject.flags = flags;
        let sent = if len <= 128 {
            self.send::<128>(source, piece.from, len, book, subject, piece.offset)
        } else if len <= 256 {
            self.send::<256>(source, piece.from, len, book, subject, piece.offset)
        } else {
            self.send::<512>(source, piece.from, len, book, subject, piece.offset)
        };
        if !sent {
            self.lost();
        }
    }

    /// Sizes of reservations are constants to the verifier, hence the classes.
    #[inline(always)]
    fn send<const N: usize>(&self, source: &impl Fetch, from: u32, len: u32, book: *const Book, subject: Subject, offset: u32) -> bool {
        let Some(mut record) = EVENTS.reserve::<Record<N>>(0) else {
            return false;
        };
        let at = record.as_mut_ptr();
        // SAFETY: the reservation has room for the header and N bytes, and no more are asked for.
        unsafe {
            self.header(&raw mut (*at).header, book, subject, offset, len as u16);
            if len > 0 && !source.copy::<N>(from, (&raw mut (*at).data).cast(), len) {
                (*at).header.len = 0;
                (*at).header.flags |= EventHeader::TRUNCATED;
            }
        }
        record.submit(BPF_RB_NO_WAKEUP as u64);
        true
    }
}

/// What the bytes of a record are copied from.
pub trait Fetch {
    /// Copies `len` (1 to `N`) bytes from a sequence number; whether that worked.
    ///
    /// # Safety
    /// `to` must have room for `N` bytes.
    unsafe fn copy<const N: usize>(&self, from: u32, to: *mut u8, len: u32) -> bool;

    /// Whether a record of them is left out, since others of the kind are told of; 0 if not.
    fn leaves_out(&self, asked: Asked) -> u32;
}

/// Where the bytes of a record are.
pub struct Source {
    pub skb: *mut __sk_buff,
    /// Offset of the payload from the IP header.
    pub payload: u32,
    /// Sequence number of its first byte.
    pub seq: u32,
    /// See `flow::Stretch`.
    pub source: u32,
    /// Of the ring.
    pub key: u64,
}

impl Fetch for Source {
    #[inline(always)]
    unsafe fn copy<const N: usize>(&self, from: u32, to: *mut u8, len: u32) -> bool {
        // SAFETY: the caller's.
        unsafe {
            if self.source == Stretch::RING {
                let ring = rings::get(self.key);
                if !ring.is_null() {
                    rings::copy::<N>(ring, from, to);
                }
                return !ring.is_null();
            }
            let offset = self.payload + from.wrapping_sub(self.seq);
            bpf_skb_load_bytes(self.skb.cast(), offset, to.cast(), within::<N>(len)) == 0
        }
    }

    #[inline(always)]
    fn leaves_out(&self, asked: Asked) -> u32 {
        leave_out(self.skb, asked.what, asked.index, asked.from)
    }
}

/// Stores and reads back, so that the verifier knows no more than the types. The memory must be this run's own.
#[inline(always)]
fn forget(scratch: *mut u32, len: u32, flags: u8) -> (u32, u8) {
    // SAFETY: the caller's pointer is into socket storage.
    let packed = unsafe {
        core::ptr::write_volatile(scratch, (flags as u32) << FLAGS | len);
        core::ptr::read_volatile(scratch)
    };
    (packed & ((1 << FLAGS) - 1), (packed >> FLAGS) as u8)
}

/// Above the length of what is sent.
const FLAGS: u32 = 16;

const _: () = assert!(EventHeader::TRUNCATED == 1 << 1 && HEAD_CAPTURE < 1 << FLAGS);
