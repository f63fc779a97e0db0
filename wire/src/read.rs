//! The reading of a stretch: a chunk at a time, in steps that a kernel program can be made of.
#![allow(clippy::cast_possible_truncation, reason = "lengths within a segment are meant to be cut; checked conversions could panic")]

use crate::conn::Book;
use crate::flow::{Flow, Stretch};
use crate::recogniser::{Note, Piece, Recogniser, State, Step, Window};

/// Bytes that are read at a time.
pub const CHUNK: usize = 256;

/// The bytes of a stretch, of which a chunk at a time can be looked at.
///
/// In the kernel the chunk lies in memory that all runs on a CPU share, since the stack is too small for it and cannot be
/// indexed before 5.12. A run may be interrupted by another one that takes the chunk; hence `is_intact`.
pub trait Payload: Window {
    /// Loads up to `len` bytes (1 to [`CHUNK`]) from sequence number `at` of a source (see [`Stretch`]); how many, 0 if that failed.
    fn load(&mut self, source: u32, at: u32, len: u32) -> u32;
    /// The chunk still holds what was loaded last.
    fn is_intact(&self) -> bool;
}

/// Told what a run finds.
pub trait Sink {
    /// Whether it is told of the beginning of every answer, as soon as its status is known, and not only of those of which more is read.
    const EARLY: bool = false;

    /// Something is complete: counts it, and sends its record with the piece.
    fn note(&mut self, note: &Note, piece: Piece);
    /// The stream is not what it was taken for.
    fn foreign(&mut self);
}

/// A reader of the stretch of a flow, step by step.
///
/// All that changes from step to step is memory, read and written as volatile: what the kernel's verifier sees before each
/// step is then the same, and it need not follow each way there was to get to it.
pub struct Run<'a, M> {
    machine: &'a mut M,
    /// The machine as it was when the chunk was loaded.
    saved: &'a mut State,
    /// Sequence number of the chunk's first byte: everything before it is done with.
    mark: &'a mut u32,
    stretch: &'a mut Stretch,
    book: &'a mut Book,
    side: usize,
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

impl<'a, M: Recogniser> Run<'a, M> {
    /// Goes on with the stretch that was chosen; or begins it, after [`begin`].
    #[inline(always)]
    pub fn new(flow: &'a mut Flow, book: &'a mut Book, side: usize) -> Self {
        let Flow { state, saved, mark, stretch, .. } = flow;
        Self { machine: M::of(state), saved, mark, stretch, book, side }
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
        if get(&self.stretch.loaded) == 0 {
            if self.machine.is_due() {
                return self.complete(sink);
            }
            *self.saved = self.machine.keep();
            if !self.next_chunk(payload) {
                return false;
            }
            if get(&self.stretch.loaded) == 0 {
                // Passed over.
                return true;
            }
        }
        let loaded = get(&self.stretch.loaded) as u32;
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
        if step as u8 == Step::Complete as u8 {
            return self.complete(sink);
        }
        if step as u8 == Step::Fail as u8 {
            if self.machine.fail() {
                sink.foreign();
            }
            let rest = self.left();
            self.advance(rest);
            return false;
        }
        true
    }

    /// Books what is complete, and tells of it; false if the connection goes on with another protocol.
    #[inline(always)]
    fn complete(&mut self, sink: &mut impl Sink) -> bool {
        let piece = self.machine.piece(self.read(), get(self.mark));
        let note = self.machine.complete(self.book, self.side);
        if note.kind | note.tally | note.turn != 0 {
            sink.note(&note, piece);
        }
        if note.turn != 0 {
            self.book.protocol = note.turn;
        }
        note.turn == 0
    }

    /// To be called after the last step of a run, whatever made it the last.
    #[inline(always)]
    pub fn end<S: Sink>(&mut self, payload: &mut impl Payload, sink: &mut S) {
        if get(&self.stretch.loaded) != 0 {
            if payload.is_intact() {
                self.commit();
            } else {
                self.go_back();
            }
        }
        if self.machine.in_head() && self.read() > 0 {
            let note = if S::EARLY { self.machine.early(self.book, self.side) } else { self.machine.part(self.book, self.side) };
            if note.kind != 0 {
                sink.note(&note, self.machine.piece(self.read(), get(self.mark)));
            }
        }
    }

    /// The chunk was taken away: to where it was loaded.
    #[inline(always)]
    fn go_back(&mut self) {
        *self.machine = *M::of(self.saved);
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
        let len = payload.load(get(&self.stretch.source), get(self.mark), len);
        if len == 0 {
            self.machine.lose(self.book, self.side);
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
}

/// Begins a run over the stretch that [`Flow::place`] has chosen.
#[inline(always)]
pub fn begin<M: Recogniser>(flow: &mut Flow, book: &Book, side: usize) {
    M::of(&mut flow.state).begin(book, side);
    let mark = get(&flow.mark);
    set(&mut flow.stretch.start, mark);
    set(&mut flow.stretch.cursor, 0);
    set(&mut flow.stretch.loaded, 0);
}

/// What was read of the stretch, and whether that is all of it.
#[inline(always)]
#[must_use]
pub fn finish(flow: &Flow) -> (bool, u32) {
    let mark = get(&flow.mark);
    (mark == get(&flow.stretch.end), mark.wrapping_sub(get(&flow.stretch.start)))
}
