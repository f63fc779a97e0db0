//! HTTP/1.x among the protocols: what a complete head counts as, and what follows it.
#![allow(clippy::cast_possible_truncation, reason = "a body's length only limits how much of it is sent")]

use super::{Body, Machine, Step, Window};
use crate::abi::{EventHeader, kind, protocol};
use crate::conn::{Book, side};
use crate::recogniser::{Note, Recogniser, part_of, tally};

/// In `of_responses`: the connection stopped being HTTP (upgrade, CONNECT).
const OPAQUE: u32 = 1;

// SAFETY: 16 bytes of integers, as asserted beside the type.
unsafe impl Recogniser for Machine {
    const PROTOCOL: u8 = protocol::HTTP1;

    #[inline(always)]
    fn fresh(side: usize) -> Self {
        if side == side::REQUEST { Self::requests() } else { Self::responses() }
    }

    #[inline(always)]
    fn late(side: usize) -> Self {
        Self::fresh(side).joined_late()
    }

    #[inline(always)]
    fn begin(&mut self, book: &Book, _side: usize) {
        if book.of_responses & OPAQUE != 0 {
            self.make_opaque();
        }
        self.at_segment_start();
    }

    #[inline(always)]
    fn step(&mut self, window: &impl Window, at: u32, left: u32) -> (u32, Step) {
        self.take(window, at, left)
    }

    #[inline(always)]
    fn complete(&mut self, book: &mut Book, side: usize) -> Note {
        let declared = self.declared_body();
        let body = if declared > u32::MAX as u64 { u32::MAX } else { declared as u32 };
        let (note, follows) = if side == side::REQUEST { (request(book, self), Body::AsDeclared) } else { response(book, self) };
        self.finish_head(follows);
        Note { body, ..note }
    }

    #[inline(always)]
    fn skips(&self) -> bool {
        self.has_body()
    }

    #[inline(always)]
    fn skip(&mut self, available: u32) -> u32 {
        self.pass(available)
    }

    #[inline(always)]
    fn bridge(&mut self, missing: u32) -> bool {
        self.pass_missing(missing)
    }

    #[inline(always)]
    fn is_passive(&self) -> bool {
        self.looks_at_nothing()
    }

    #[inline(always)]
    fn lose(&mut self, book: &mut Book, side: usize) {
        if side == side::RESPONSE {
            book.forget_answers();
        }
        self.forget_place();
    }

    #[inline(always)]
    fn fail(&mut self) -> bool {
        self.give_up()
    }

    #[inline(always)]
    fn in_head(&self) -> bool {
        self.is_in_head()
    }

    #[inline(always)]
    fn head_len(&self) -> u32 {
        self.bytes_of_head()
    }

    #[inline(always)]
    fn part(&self, book: &Book, side: usize) -> Note {
        if side == side::RESPONSE && !is_read(self.status()) { Note::NONE } else { self.early(book, side) }
    }

    #[inline(always)]
    fn early(&self, book: &Book, side: usize) -> Note {
        if side == side::RESPONSE && !(self.status_known() && self.status() >= 200) {
            return Note::NONE;
        }
        Note { status: if side == side::RESPONSE { self.status() } else { 0 }, ..part_of(book, side) }
    }
}

/// Bit `index % 64` of the ring says that this request's method was HEAD; `of_requests` is 1 + index of a CONNECT, 0 without.
#[inline(always)]
fn request(book: &mut Book, machine: &Machine) -> Note {
    let index = book.request_count;
    let bit = 1u64 << (index & 63);
    book.ring[0] = if machine.is_head() { book.ring[0] | bit } else { book.ring[0] & !bit };
    if machine.is_connect() {
        book.of_requests = index.wrapping_add(1);
    }
    // The response side reads the ring only once the count says that the request is there.
    book.request_count = index.wrapping_add(1);
    Note::request(index)
}

#[inline(always)]
fn response(book: &mut Book, machine: &Machine) -> (Note, Body) {
    let status = machine.status();
    if status < 200 && status != 101 {
        return (Note::NONE, Body::None);
    }
    let index = book.response_count;
    let orphan = index == book.request_count;
    if machine.is_to_h2c() {
        // The request is stream 1 from here on, and its response comes there.
        book.of_requests = 1;
        let kind = if orphan { 0 } else { kind::UPGRADED };
        return (Note { kind, bare: true, turn: protocol::HTTP2, index, ..Note::NONE }, Body::None);
    }
    if !orphan {
        book.response_count = index.wrapping_add(1);
    }
    let to_connect = !orphan && book.of_requests == index.wrapping_add(1);
    let body = if status == 101 || (to_connect && status < 300) {
        book.of_responses |= OPAQUE;
        Body::Opaque
    } else if status == 204 || status == 304 || (!orphan && book.ring[0] >> (index & 63) & 1 == 1) {
        Body::None
    } else {
        Body::AsDeclared
    };
    let kind = if orphan { 0 } else { kind::RESPONSE };
    (Note { kind, tally: tally::STATUS, flags: EventHeader::COMPLETE, bare: !is_read(status), status, index, ..Note::NONE }, body)
}

/// Whether an answer with this status says more by its head: how long to wait before the next attempt (RFC 9110, 10.2.3).
#[inline(always)]
#[must_use]
pub const fn is_read(status: u16) -> bool {
    status == 429 || status == 503 || status.wrapping_sub(300) < 100
}
