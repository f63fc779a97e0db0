//! Processor time of this thread: on a busy machine the clock on the wall says nothing about a parser.

use std::time::Instant;

/// A point of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    wall: Instant,
    ran_ns: Option<u64>,
}

pub(crate) fn now() -> Mark {
    Mark { wall: Instant::now(), ran_ns: ran_ns() }
}

impl Mark {
    /// How long this thread has run since, nanoseconds; where the kernel does not tell, how much time has passed.
    pub(crate) fn elapsed_ns(self) -> u64 {
        match (ran_ns(), self.ran_ns) {
            (Some(now), Some(then)) => now.saturating_sub(then),
            _ => u64::try_from(self.wall.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

fn ran_ns() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().next()?.parse().ok()
}
