//! The kernel's monotonic clock, the one that a lease's expiry is compared with.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`, which `bpf_ktime_get_ns` reads too.
#[must_use]
pub fn monotonic_ns() -> u64 {
    // The call fails only for a clock that does not exist; a lease that starts at 0 has already run out.
    let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC) else {
        return 0;
    };
    let seconds = u64::try_from(now.tv_sec()).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec()).unwrap_or(0)
}
