//! The reading of a segment: a chunk at a time, in steps that a kernel program can be made of.
#![allow(clippy::cast_possible_truncation, reason = "lengths within a segment are meant to be cut; checked conversions could panic")]

use crate::conn::Head;
use crate::flow::{Flow, IN_HOLE, Merge, Stretch};
use crate::http1::{Body, Machine, Step, Window};

/// Bytes that are read from a segment at a time.
pub const CHUNK: usize = 256;

/// A segment's payload, of which a chunk at a time can be looked at.
///
/// In the kernel the chunk lies in memory that all runs on a CPU share, since the stack is too small for it and cannot be
/// indexed before 5.12. A run may be interrupted by another one that takes the chunk; hence `is_intact`.
pub trait Payload: Window {
    /// Loads `len` bytes (1 to [`CHUNK`]) from `offset`; false if that failed.
    fn load(&mut self, offset: u32, len: u32) -> bool;
    /// The chunk still holds what was loaded last.
    fn is_intact(&self) -> bool;
}

/// What a head's bytes in this run are told as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where they begin in the segment's payload.
    pub from: u32,
    /// Where they end.
    pub to: u32,
    /// Offset of the first from the head's first byte.
    pub offset: u32,
}

/// Told what a run finds.
pub trait Sink {
    /// A head is complete: books it as `Book::complete` does.
    fn complete(&mut self, machine: &Machine) -> (Option<Head>, Body);
    /// Tells of the head that was just booked; `declared` is the length of the body that it announces.
    fn head(&mut self, head: Head, piece: Piece, declared: u64);
    /// The run ends within a head.
    fn part(&mut self, machine: &Machine, piece: Piece);
    /// The stream is not HTTP/1.x.
    fn foreign(&mut self);
}

/// A reader of the stretch of a flow, step by step.
///
/// All that changes from step to step is memory, read and written as volatile: what the kernel's verifier sees before each
/// step is then the same, and it need not follow each way there was to get to it.
pub struct Run<'a> {
    machine: &'a mut Machine,
    /// Sequence number of the chunk's first byte: everything before it is done with.
    mark: &'a mut u32,
    stretch: &'a mut Stretch,
    /// The machine as it was when the chunk was loaded.
    saved: &'a mut Machine,
    /// Sequence number of the payload's first byte.
    seq: u32,
}

#[inline(always)]
fn get<T: Copy>(place: &T) -> T {
    // SAFETY: a reference is valid for reads.
    unsafe { core::ptr::read_volatile(place) }
}

#[inline(always)]
fn set<T: Copy>(place: &mut T, value: T) {
    // SAFETY: a reference is valid for writes.
    unsafe { core::ptr::write_volatile(place, value) }
}

impl<'a> Run<'a> {
    /// Goes on with the stretch that [`Flow::place`] has chosen of a segment at `seq`; or begins it, after [`begin`].
    #[inline(always)]
    pub fn new(flow: &'a mut Flow, saved: &'a mut Machine, seq: u32) -> Self {
        let which = get(&flow.stretch.which) as usize & 1;
        Self { machine: &mut flow.machines[which], mark: &mut flow.marks[which], stretch: &mut flow.stretch, saved, seq }
    }

    /// Bytes from the mark to the end.
    #[inline(always)]
    fn left(&self) -> u32 {
        get(&self.stretch.end).wrapping_sub(get(self.mark))
    }

    /// Bytes that were read in this run.
    #[inline(always)]
    fn read(&self) -> u32 {
        get(self.mark).wrapping_sub(get(&self.stretch.start))
    }

    #[inline(always)]
    fn advance(&mut self, by: u32) {
        let mark = get(self.mark);
        set(self.mark, mark.wrapping_add(by));
    }

    /// Reads on by one step. False when there is nothing left to read.
    #[inline(always)]
    pub fn step(&mut self, payload: &mut impl Payload, sink: &mut impl Sink) -> bool {
        let loaded = get(&self.stretch.loaded) as u32;
        if loaded == 0 {
            *self.saved = *self.machine;
            return self.next_chunk(payload);
        }
        let cursor = get(&self.stretch.cursor) as u32;
        if cursor >= loaded {
            // Cannot be: every chunk that is used up is committed below.
            return false;
        }
        let (taken, step) = self.machine.step(payload, cursor, loaded - cursor);
        set(&mut self.stretch.cursor, (cursor + taken) as u16);
        if step as u8 == Step::More as u8 && cursor + taken < loaded {
            return true;
        }
        if !payload.is_intact() {
            self.go_back();
            return true;
        }
        self.commit();
        if step as u8 == Step::HeadEnd as u8 {
            let piece = self.piece();
            let declared = self.machine.declared_body();
            let (head, body) = sink.complete(self.machine);
            self.machine.finish_head(body);
            if let Some(head) = head {
                sink.head(head, piece, declared);
            }
        } else if step as u8 == Step::Fail as u8 {
            if self.machine.fail() {
                sink.foreign();
            }
            let rest = self.left();
            self.advance(rest);
            return false;
        }
        true
    }

    /// To be called after the last step of a run, whatever made it the last.
    #[inline(always)]
    pub fn end(&mut self, payload: &mut impl Payload, sink: &mut impl Sink) {
        if get(&self.stretch.loaded) != 0 {
            if payload.is_intact() {
                self.commit();
            } else {
                self.go_back();
            }
        }
        if self.machine.in_head() && self.read() > 0 {
            sink.part(self.machine, self.piece());
        }
    }

    /// The chunk was taken away: to where it was loaded.
    #[inline(always)]
    fn go_back(&mut self) {
        *self.machine = *self.saved;
        set(&mut self.stretch.loaded, 0);
    }

    /// Loads what comes next, or passes over it; false at the end.
    #[inline(always)]
    fn next_chunk(&mut self, payload: &mut impl Payload) -> bool {
        let left = self.left();
        if left == 0 {
            return false;
        }
        if self.machine.skips() {
            let skipped = self.machine.skip(left);
            self.advance(skipped);
            return true;
        }
        if self.machine.is_passive() {
            self.advance(left);
            return false;
        }
        let len = if left > CHUNK as u32 { CHUNK as u32 } else { left };
        if !payload.load(get(self.mark).wrapping_sub(self.seq), len) {
            self.machine.lose();
            self.advance(left);
            return false;
        }
        set(&mut self.stretch.cursor, 0);
        set(&mut self.stretch.loaded, len as u16);
        true
    }

    /// What was read up to the cursor is done with.
    #[inline(always)]
    fn commit(&mut self) {
        let cursor = get(&self.stretch.cursor) as u32;
        self.advance(cursor);
        set(&mut self.stretch.loaded, 0);
    }

    /// The bytes of the current head that were read in this run.
    #[inline(always)]
    fn piece(&self) -> Piece {
        let run = self.read();
        let to = get(self.mark).wrapping_sub(self.seq);
        let head = self.machine.head_len();
        if head <= run { Piece { from: to - head, to, offset: 0 } } else { Piece { from: to - run, to, offset: head - run } }
    }
}

/// What is left to do after a run over a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Nothing.
    None,
    /// The same segment must be offered again: the run's budget was used up, or it also has bytes beyond the hole.
    Again,
    /// As `None`, and the hole's head is to be counted as complete.
    HeadAssumed,
}

/// Begins a run over the stretch that [`Flow::place`] has chosen.
#[inline(always)]
pub fn begin(flow: &mut Flow) {
    let which = get(&flow.stretch.which) as usize & 1;
    flow.machines[which].at_segment_start();
    let mark = get(&flow.marks[which]);
    set(&mut flow.stretch.start, mark);
    set(&mut flow.stretch.cursor, 0);
    set(&mut flow.stretch.loaded, 0);
}

/// Ends a run over a segment of `len` bytes at `seq`. Tells what is left to do, and how many bytes were read.
#[inline(always)]
pub fn finish(flow: &mut Flow, seq: u32, len: u32) -> (Rest, u32) {
    let which = get(&flow.stretch.which) as usize & 1;
    let end = get(&flow.marks[which]);
    let read = end.wrapping_sub(get(&flow.stretch.start));
    if which == IN_HOLE
        && let Merge::HeadAssumed = flow.merge()
    {
        return (Rest::HeadAssumed, read);
    }
    (if end == seq.wrapping_add(len) { Rest::None } else { Rest::Again }, read)
}
