//! A segment that is being read, step by step.

use stormdrill_wire::{http1::Machine, read::Run};

use crate::{packet::Bytes, watch::Watch};

/// A segment that is being read.
pub struct Job {
    pub bytes: Bytes,
    pub saved: Machine,
    pub seq: u32,
    pub watch: Watch,
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

impl Job {
    #[inline(always)]
    pub fn run(&mut self) {
        #[expect(clippy::never_loop, reason = "the way to leave a sequence early")]
        loop {
            sixteen_each!(step(self); 1 2 3);
            break;
        }
        end(self);
    }
}

/// One step; false at the end.
#[inline(never)]
fn step(job: &mut Job) -> bool {
    // SAFETY: `flow` points into socket storage; the job holds no other reference to it.
    let flow = unsafe { &mut *job.watch.flow };
    Run::new(flow, &mut job.saved, job.seq).step(&mut job.bytes, &mut job.watch)
}

#[inline(never)]
fn end(job: &mut Job) {
    // SAFETY: as above.
    let flow = unsafe { &mut *job.watch.flow };
    Run::new(flow, &mut job.saved, job.seq).end(&mut job.bytes, &mut job.watch);
}
