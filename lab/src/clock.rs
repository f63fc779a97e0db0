//! The one place where the lab reads a clock.
//!
//! Everything else is handed times, as a `Duration` since this clock's start, so that policies can be tested without one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A monotonic clock that also knows the wall time at which it was started.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    origin_unix: Duration,
}

impl Clock {
    /// Starts a clock at zero.
    #[must_use]
    pub fn start() -> Self {
        // A wall clock before 1970 is read as 1970: deadlines are then merely all in the future.
        let origin_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { origin: Instant::now(), origin_unix }
    }

    /// Time since the start. Never goes back.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The wall time that belongs to `at`, as time since the Unix epoch.
    ///
    /// A wall clock that is set while the lab runs is not followed, so that a deadline never jumps.
    #[must_use]
    pub fn unix(&self, at: Duration) -> Duration {
        self.origin_unix + at
    }

    /// Sleeps until `at`; returns at once if that is over. Resolution: 1 ms, rounded up.
    pub async fn sleep_until(&self, at: Duration) {
        tokio::time::sleep_until(self.origin + at).await;
    }

    /// Blocks this thread for `span`, to the kernel's precision of some 50 µs. Not for a runtime's worker.
    pub fn block_for(&self, span: Duration) {
        std::thread::sleep(span);
    }
}
