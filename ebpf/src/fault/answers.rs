//! Reads a connection's requests and answers, and decides which answers get another status.
//!
//! The requests are read with the answers, by the recogniser that also counts them: only an answer that is due is touched, whatever its body
//! looks like, and it is known which request it belongs to. The decision is remembered by the place of the status in the stream.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::bpf_skb_load_bytes;
use aya_ebpf::programs::TcContext;
use stormdrill_wire::abi::kind;
use stormdrill_wire::conn::{Book, side};
use stormdrill_wire::fault::exchange::{ANSWERS, Chosen, Exchange};
use stormdrill_wire::fault::http2::{self, FRAME_HEADER, Next};
use stormdrill_wire::fault::request::{PATH, target_at};
use stormdrill_wire::fault::{AddressKey, FaultRule, FaultStats, STATUS_AT, draw, is_rewritable, mix};
use stormdrill_wire::flow::Flow;
use stormdrill_wire::http1::Machine;
use stormdrill_wire::read::{self, Run, Sink};
use stormdrill_wire::recogniser::{Note, Piece};

use crate::chain::{CALLS, DONE, FRAMES, Found, Place, READ, WRITE, call};
use crate::maps;
use crate::packet::{Packet, TCP};
use crate::rewrite;
use crate::segment::{self, Bytes, SYN, Segment, load8, within};
use crate::select::{self, Way};

/// Statuses of one segment that are written together. A run decides on fewer than half of what can be remembered.
const TOGETHER: u32 = ANSWERS as u32 / 2;

/// Calls `step` eight times for each token, until there is nothing left. Written out for the verifier, as in the probe.
macro_rules! steps {
    ($step:expr; $($_token:tt)*) => {
        $(steps!(@ $_token $step $step $step $step $step $step $step $step);)*
    };
    (@ $_token:tt $($step:expr)*) => { $(if !$step { break; })* };
}

/// Looks at one packet of either direction, and hands it on if it is of a selected connection and has a payload.
#[inline(always)]
pub fn see(ctx: &TcContext) {
    let Some(selected) = select::read(ctx) else {
        return;
    };
    let packet = &selected.packet;
    if packet.protocol != TCP || !packet.has_ports {
        return;
    }
    let (side, flow) = if select::matches(ctx, packet, selected.rule, Way::Along) {
        (side::RESPONSE, flow(packet, Way::Along))
    } else if select::matches(ctx, packet, selected.rule, Way::Back) {
        (side::REQUEST, flow(packet, Way::Back))
    } else {
        return;
    };
    let Some(segment) = segment::read(ctx, packet) else {
        return;
    };
    if side == side::REQUEST && segment.flags & SYN != 0 {
        maps::forget(flow);
    }
    if segment.len == 0 || maps::exchange(flow).is_none() {
        return;
    }
    let Some(place) = maps::place() else {
        return;
    };
    // SAFETY: this CPU's entry; no other run of these programs comes in between, since they run with softirqs off.
    unsafe {
        let transport = packet.transport;
        *place = Place { flow, segment, transport, side: side as u32, unwritten: 0, after: DONE, calls: 0, found: Found::NOTHING }
    };
    call(ctx, READ);
}

/// Reads a segment as HTTP/1, as far as one run goes, or hands it on as HTTP/2.
#[inline(always)]
pub fn read(ctx: &TcContext) {
    let Some((place, watch)) = watch(ctx) else {
        return;
    };
    let Some(chunk) = maps::chunk() else {
        return;
    };
    if place.side == side::RESPONSE as u32 && watch.may_be_frames() {
        call(ctx, FRAMES);
        return;
    }
    let bytes = Bytes {
        skb: ctx.as_ptr().cast(),
        payload: place.segment.payload,
        seq: place.segment.seq,
        chunk,
        token: place.flow << 1 | u64::from(place.side),
    };
    let mut job = Job { bytes, in_hole: false, watch };
    let again = job.read();
    job.watch.act_on_found();
    let after = if !again {
        DONE
    } else if job.watch.may_go_on() {
        READ
    } else {
        job.watch.give_up();
        DONE
    };
    job.watch.go_on(ctx, after);
}

/// Reads a segment of answers as HTTP/2.
#[inline(always)]
pub fn frames(ctx: &TcContext) {
    let Some((_, mut watch)) = watch(ctx) else {
        return;
    };
    let skb = ctx.as_ptr().cast();
    let mut after = DONE;
    #[expect(clippy::never_loop, reason = "the way to leave a sequence early")]
    loop {
        steps!(frame(&mut watch, skb); 1 2 3);
        // What is left when no more calls are allowed stays unread, and the place is lost with the next segment.
        if watch.may_go_on() {
            after = FRAMES;
        }
        break;
    }
    watch.go_on(ctx, after);
}

/// Writes what was decided on the statuses in a segment.
#[inline(always)]
pub fn write(ctx: &TcContext) {
    let (Some(place), Some(rule)) = (maps::place(), maps::rule()) else {
        return;
    };
    // SAFETY: as above.
    let place = unsafe {
        (*place).unwritten = 0;
        *place
    };
    if let Some(exchange) = maps::exchange(place.flow) {
        rewrite::remembered(ctx, &place, exchange, rule);
    }
    if place.after != DONE {
        call(ctx, place.after);
    }
}

/// What the program before this one has found.
#[inline(always)]
fn watch(ctx: &TcContext) -> Option<(Place, Watch)> {
    let known = maps::place()?;
    // SAFETY: as above.
    let place = unsafe {
        (*known).found = Found::NOTHING;
        *known
    };
    let (rule, stats) = (maps::rule()?, maps::stats()?);
    let exchange = maps::exchange(place.flow)?;
    let (skb, side) = (ctx.as_ptr().cast(), place.side as usize & 1);
    Some((place, Watch { skb, segment: place.segment, exchange, place: known, side, flow: place.flow, rule, stats }))
}

/// A segment that is being read.
struct Job {
    bytes: Bytes,
    in_hole: bool,
    watch: Watch,
}

/// What finds are booked with.
struct Watch {
    skb: *mut __sk_buff,
    segment: Segment,
    exchange: *mut Exchange,
    place: *mut Place,
    side: usize,
    flow: u64,
    rule: &'static FaultRule,
    stats: *mut FaultStats,
}

impl Job {
    /// Reads what is new in the segment; whether it must be offered again.
    #[inline(always)]
    fn read(&mut self) -> bool {
        let (exchange, segment) = (self.watch.exchange, self.watch.segment);
        // SAFETY: a value of the map, which stays readable and writable for the run of the program even if it is evicted. Fields are reached
        // one at a time, so that no two references overlap.
        unsafe {
            let side = self.watch.side & 1;
            let chosen = (*exchange).choose(side, segment.seq, segment.len);
            if let Chosen::Nothing = chosen {
                return false;
            }
            self.in_hole = matches!(chosen, Chosen::InHole);
            let (flow, book) = self.parts();
            read::begin::<Machine>(flow, book, side);
            #[expect(clippy::never_loop, reason = "the way to leave a sequence early")]
            loop {
                steps!(step(self); 1 2 3);
                break;
            }
            end(self);
            let mark = self.parts().0.mark;
            if self.in_hole {
                (*exchange).merge(side);
            }
            mark != segment.seq.wrapping_add(segment.len)
        }
    }

    /// The flow that is read, and the book.
    #[inline(always)]
    fn parts(&mut self) -> (&mut Flow, &mut Book) {
        // SAFETY: as in `read`; the two lie apart.
        unsafe {
            let (exchange, side) = (self.watch.exchange, self.watch.side & 1);
            let flows = if self.in_hole { &raw mut (*exchange).holes } else { &raw mut (*exchange).flows };
            (&mut *flows.cast::<Flow>().add(side), &mut (*exchange).book)
        }
    }
}

/// One step; false at the end.
#[inline(never)]
fn step(job: &mut Job) -> bool {
    let side = job.watch.side & 1;
    let (flow, book) = job.parts();
    // SAFETY: they lie in the exchange, apart from the job.
    let (flow, book) = unsafe { (&mut *core::ptr::from_mut(flow), &mut *core::ptr::from_mut(book)) };
    let goes_on = Run::<Machine>::new(flow, book, side).step(&mut job.bytes, &mut job.watch);
    // SAFETY: this CPU's entry.
    goes_on && unsafe { core::ptr::read_volatile(&raw const (*job.watch.place).found.is_there) } == 0
}

#[inline(never)]
fn end(job: &mut Job) {
    let side = job.watch.side & 1;
    let (flow, book) = job.parts();
    // SAFETY: as above.
    let (flow, book) = unsafe { (&mut *core::ptr::from_mut(flow), &mut *core::ptr::from_mut(book)) };
    Run::<Machine>::new(flow, book, side).end(&mut job.bytes, &mut job.watch);
}

/// One step through an HTTP/2 segment; false at the end.
#[inline(never)]
fn frame(watch: &mut Watch, skb: *mut __sk_buff) -> bool {
    // SAFETY: as above.
    let frames = unsafe { &mut (*watch.exchange).frames };
    let at = frames.next.wrapping_sub(watch.segment.seq);
    let left = watch.segment.len.wrapping_sub(at);
    if left == 0 || left > watch.segment.len {
        return false;
    }
    let offset = watch.segment.payload + at;
    match frames.next() {
        Next::Skip(count) => frames.skip(if count < left { count } else { left }),
        Next::Header if frames.at_header() && left >= FRAME_HEADER => match load8(skb, offset) {
            Some(first) => frames.header(first),
            None => return false,
        },
        next => {
            let mut byte = 0_u8;
            // SAFETY: the helper writes one byte, or fails.
            if unsafe { bpf_skb_load_bytes(skb.cast(), offset, (&raw mut byte).cast(), 1) } != 0 {
                return false;
            }
            if next == Next::Header {
                frames.header_byte(byte);
            } else {
                let seq = frames.next;
                if frames.field(byte) && http2::is_rewritable(byte) {
                    watch.answer2(seq);
                }
            }
        }
    }
    true
}

impl Watch {
    /// Hands the segment on to what comes after, by way of the writing if there is enough to write, or nothing more to read.
    #[inline(always)]
    fn go_on(&self, ctx: &TcContext, after: u32) {
        // SAFETY: this CPU's entry.
        let unwritten = unsafe {
            (*self.place).after = after;
            (*self.place).unwritten
        };
        if after != DONE && unwritten < TOGETHER {
            call(ctx, after);
        } else if self.side == side::RESPONSE {
            call(ctx, WRITE);
        }
    }

    /// Whether the segment may be read further, with calls left to write what was decided.
    #[inline(always)]
    fn may_go_on(&self) -> bool {
        // SAFETY: this CPU's entry.
        unsafe { (*self.place).calls < CALLS }
    }

    /// Whether the segment is to be read as HTTP/2: no request in HTTP/1 was seen, and frames were, or one plausibly begins here.
    #[inline(always)]
    fn may_be_frames(&self) -> bool {
        // SAFETY: as in `Job::read`.
        unsafe {
            if (*self.exchange).book.request_count != 0 {
                return false;
            }
            let frames = &mut (*self.exchange).frames;
            if frames.is_known() {
                frames.reach(self.segment.seq);
            }
            if !frames.is_known() && self.begins_frames() {
                frames.adopt(self.segment.seq);
            }
            frames.is_known()
        }
    }

    /// Whether the segment begins with a frame: a plausible header, and another where the frame ends.
    #[inline(always)]
    fn begins_frames(&self) -> bool {
        let (len, at) = (self.segment.len, self.segment.payload);
        if len < FRAME_HEADER {
            return false;
        }
        match load8(self.skb, at).and_then(http2::plausible) {
            None => false,
            Some(frame) if frame + FRAME_HEADER <= len => load8(self.skb, at + frame).and_then(http2::plausible).is_some(),
            // To its end, or beyond.
            Some(frame) => frame >= len,
        }
    }

    /// Decides on an answer whose status begins at that place in the stream.
    #[inline(always)]
    fn decide(&self, head: u32, status: u32) {
        // SAFETY: the counters are this CPU's own, and the exchange a map's value of which this field has one writer.
        unsafe {
            if !maps::is_leased() {
                (*self.stats).expired += 1;
                return;
            }
            (*self.stats).selected += 1;
            if u64::from(draw(self.rule.seed, self.flow, head)) < self.rule.threshold {
                (*self.stats).hit += 1;
                (*self.exchange).remember(status);
                (*self.place).unwritten += 1;
            }
        }
    }

    /// Remembers the beginning of a message until the reading has stopped.
    #[inline(always)]
    fn find(&self, index: u32, status: u16, piece: Piece) {
        if piece.offset == 0 {
            // SAFETY: this CPU's entry. Volatile, so that the verifier forgets what was written.
            unsafe {
                core::ptr::write_volatile(
                    &raw mut (*self.place).found,
                    Found { is_there: 1, index, status: status.into(), at: piece.from.wrapping_sub(self.segment.seq) },
                )
            };
        }
    }

    /// Decides on the message whose beginning was found.
    #[inline(always)]
    fn act_on_found(&self) {
        // SAFETY: as above.
        let found = unsafe { core::ptr::read_volatile(&raw const (*self.place).found) };
        if found.is_there == 0 {
            return;
        }
        if self.side == side::REQUEST {
            let is_meant = self.is_meant(found.at).unwrap_or(false);
            // SAFETY: a map's value; this field has one writer.
            unsafe { (*self.exchange).ask(found.index, is_meant) };
            return;
        }
        // SAFETY: as above.
        if is_rewritable(found.status as u16) && unsafe { (*self.exchange).is_meant(found.index) } {
            let head = self.segment.seq.wrapping_add(found.at);
            self.decide(head, head.wrapping_add(STATUS_AT));
        }
    }

    /// The segment takes more than all runs that there can be: its direction goes on with a segment that begins like a message.
    #[inline(always)]
    fn give_up(&self) {
        // SAFETY: as in `Job::read`.
        let flow = unsafe { &mut (*self.exchange).flows[self.side & 1] };
        flow.give_up(self.segment.seq.wrapping_add(self.segment.len));
    }

    #[inline(always)]
    fn answer2(&self, seq: u32) {
        if self.rule.http2_status != 0 && maps::requests().is_some_and(|requests| requests.is_any()) {
            self.decide(seq, seq);
        }
    }

    /// Whether the request that begins there in the payload is one of the fault's.
    #[inline(always)]
    fn is_meant(&self, begin: u32) -> Option<bool> {
        let requests = maps::requests()?;
        if requests.is_any() {
            return Some(true);
        }
        let skb = self.skb;
        let at = self.segment.payload + begin;
        let first = load8(skb, at)?.to_be();
        if !requests.has_method(first) {
            return Some(false);
        }
        if requests.path_mask[0] == 0 {
            return Some(true);
        }
        let target = target_at(first)?;
        let left = self.segment.len.checked_sub(begin + target).filter(|left| *left > 0)?;
        let mut path = [0_u64; PATH / 8];
        let len = within::<PATH>(if left < PATH as u32 { left } else { PATH as u32 });
        // SAFETY: no more than the array holds.
        if unsafe { bpf_skb_load_bytes(skb.cast(), at + target, path.as_mut_ptr().cast(), len) } != 0 {
            return None;
        }
        Some(requests.has_path(&path))
    }
}

impl Sink for Watch {
    // A head may take several runs, and come in several segments, of which only the first has the status.
    const EARLY: bool = true;

    #[inline(always)]
    fn note(&mut self, note: &Note, piece: Piece) {
        if note.kind == kind::REQUEST || note.kind == kind::RESPONSE {
            self.find(note.index, note.status, piece);
        }
    }

    #[inline(always)]
    fn foreign(&mut self) {}
}

/// One number for the connection, the same from both directions: the end that answers comes first.
#[inline(always)]
fn flow(packet: &Packet, way: Way) -> u64 {
    let (from, to, from_port, to_port) = match way {
        Way::Along => (&packet.source, &packet.destination, packet.source_port, packet.destination_port),
        Way::Back => (&packet.destination, &packet.source, packet.destination_port, packet.source_port),
    };
    mix(address(address(0, from), to), u64::from(from_port) << 16 | u64::from(to_port))
}

#[inline(always)]
fn address(state: u64, key: &AddressKey) -> u64 {
    let [_, a, b, c, d] = *key;
    mix(mix(state, u64::from(a) << 32 | u64::from(b)), u64::from(c) << 32 | u64::from(d))
}
