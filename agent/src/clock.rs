//! The only place that reads a clock.
//!
//! Everything is timed by CLOCK_MONOTONIC, the clock of `bpf_ktime_get_ns`, so that instants taken here and
//! in the kernel can be compared. The wall clock serves only to say when a drill started.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Now, in nanoseconds of CLOCK_MONOTONIC.
#[must_use]
pub fn monotonic_ns() -> u64 {
    // CLOCK_MONOTONIC exists on every Linux; the call has no other way to fail.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map(|t| u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec()).unwrap_or(0))
        .unwrap_or(0)
}

/// How long it is from now until `at_ns`; zero if that is past.
#[must_use]
pub fn until(at_ns: u64) -> Duration {
    Duration::from_nanos(at_ns.saturating_sub(monotonic_ns()))
}

/// What the wall clock showed at nanosecond 0 of the monotonic one, nanoseconds since 1970; `None` if it is set to before that.
#[must_use]
pub fn wall_origin_ns() -> Option<u64> {
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(wall.as_nanos()).ok()?.checked_sub(monotonic_ns())
}

/// The instant that is so long from now.
#[must_use]
pub fn after(time: Duration) -> u64 {
    monotonic_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Now as RFC 3339 in UTC, to the second.
#[must_use]
pub fn wall_rfc3339() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let first = monotonic_ns();
        assert!(first > 0 && monotonic_ns() >= first);
    }
}
