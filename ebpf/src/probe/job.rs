//! A stretch that is being read, in bursts of steps.
//!
//! A burst is a *global* function: the verifier goes through it once, whatever calls it, and so a program may call it as often as a
//! segment takes. Such a function is given the context only (before 5.13 no pointer to anything else), so each burst finds
//! the connection again; what goes on from burst to burst lies in the connection's memory.

use aya_ebpf::bindings::__sk_buff;
use stormdrill_wire::{
    conn::Book,
    flow::Flow,
    read::{Payload, Run, Sink},
    recogniser::Recogniser,
};

use crate::{conns, maps::CHUNKS, packet::Bytes, scratch::Scratch, watch::Watch};

/// Bursts that a stretch may take at most. Enough for 64 KiB of the smallest messages.
pub const BURSTS: u32 = 1024;

/// A stretch that is being read.
pub struct Job<B, W> {
    pub bytes: B,
    pub watch: W,
}

/// What knows the flow that is read, the connection and the side.
pub trait OnFlow {
    fn at(&self) -> (*mut Flow, *mut Book, usize);
}

/// Calls `step` sixteen times for each token, until there is nothing left.
///
/// Written out, and `step` a function that is really called: a loop has one place in the program for all its rounds, and
/// the verifier, which keeps only a few states for each place, would go through every sequence of rounds. Here each call
/// is a place of its own, and is gone through once.
macro_rules! sixteen_each {
    ($step:expr; $($_token:tt)*) => {
        $($crate::job::sixteen_each!(@ $_token $step $step $step $step $step $step $step $step $step $step $step $step $step $step $step $step);)*
    };
    (@ $_token:tt $($step:expr)*) => { $(if !$step { break; })* };
}

pub(crate) use sixteen_each;

/// Reads on by a burst; 0 when there is nothing left to read.
#[inline(always)]
pub fn burst<M: Recogniser>(skb: *mut __sk_buff) -> u32 {
    let Some(conn) = conns::of(skb) else {
        return 0;
    };
    let Some(chunk) = CHUNKS.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: the context; `conn` is a non-null value of the storage map, whose fields are reached one at a time.
    unsafe {
        let scratch = Scratch::of(skb);
        let side = scratch.side();
        let book = &raw mut (*conn).book;
        let flow = (&raw mut (*conn).flows).cast::<Flow>().add(side);
        // Unlike that of any other run that this one may interrupt, or be interrupted by: those are on other sockets, or
        // on the other direction of this one.
        let token = (*book).cookie << 1 | scratch.incoming() as u64;
        let key = (*book).cookie << 1 | side as u64;
        let bytes = Bytes { skb, payload: scratch.payload(), seq: scratch.seq(), chunk, token, key };
        let mut job = Job { bytes, watch: Watch { skb, book, flow, side, key } };
        on::<M, _, _>(&mut job)
    }
}

/// Reads on with what is at hand; 0 when there is nothing left to read.
///
/// # Safety
/// The job's flow and connection must lie in a map, apart from each other.
#[inline(always)]
pub unsafe fn on<M: Recogniser, B: Payload, W: Sink + OnFlow>(job: &mut Job<B, W>) -> u32 {
    #[expect(clippy::never_loop, reason = "the way to leave a sequence early")]
    loop {
        sixteen_each!(step::<M, B, W>(job); 1);
        return 1;
    }
    end::<M, B, W>(job);
    0
}

/// One step; false at the end.
#[inline(never)]
fn step<M: Recogniser, B: Payload, W: Sink + OnFlow>(job: &mut Job<B, W>) -> bool {
    let (flow, book, side) = job.watch.at();
    // SAFETY: `on`'s caller's.
    let (flow, book) = unsafe { (&mut *flow, &mut *book) };
    Run::<M>::new(flow, book, side).step(&mut job.bytes, &mut job.watch)
}

#[inline(never)]
fn end<M: Recogniser, B: Payload, W: Sink + OnFlow>(job: &mut Job<B, W>) {
    let (flow, book, side) = job.watch.at();
    // SAFETY: as above.
    let (flow, book) = unsafe { (&mut *flow, &mut *book) };
    Run::<M>::new(flow, book, side).end(&mut job.bytes, &mut job.watch);
}
