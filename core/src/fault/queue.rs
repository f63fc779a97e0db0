//! How many packets netem's queue must hold: a limit that nobody gave is worked out from delay and rate.

use std::time::Duration;

use super::{FaultKind, FaultSpec, RateLimit};

/// Packets a second that a delayed flow may have before the queue overflows, for a limit that nobody gave. Ten gigabits of full frames are 800,000
/// packets, but far fewer buffers, because the queue holds segments of up to 64 KiB as one.
const ASSUMED_PACKETS_PER_SECOND: f64 = 200_000.0;
/// Smallest packet that a bandwidth is thought to be filled with, bytes, when the queue's room is worked out.
const SMALL_PACKET: f64 = 128.0;
/// Room above rate times delay.
const ROOM: f64 = 1.5;
/// The least limit, iproute2's own default.
const LEAST: u32 = 1000;

/// Packets that the queue must hold so that a busy sender's are not dropped for lack of room.
///
/// `longest` is the longest that a packet is held back on purpose, but for what a full bandwidth adds.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates, and the value is positive")]
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub fn limit(longest: Duration, rate: Option<RateLimit>) -> u32 {
    let limited = rate.map_or(f64::MAX, |rate| rate.bytes_per_second as f64 / SMALL_PACKET);
    LEAST.saturating_add((longest.as_secs_f64() * limited.min(ASSUMED_PACKETS_PER_SECOND) * ROOM) as u32)
}

/// The limit of the one netem that carries several faults out: the largest that was given, or what all of them come to.
#[must_use]
pub fn limit_of(specs: &[&FaultSpec]) -> u32 {
    let given = specs.iter().filter_map(|spec| spec.tuning.limit).max();
    given.unwrap_or_else(|| {
        let held = |spec: &&FaultSpec| match spec.kind {
            FaultKind::Delay { time, jitter, .. } => longest(time, jitter, spec),
            _ => Duration::ZERO,
        };
        let rate = specs.iter().find_map(|spec| if let FaultKind::Rate(rate) = spec.kind { Some(rate) } else { None });
        limit(specs.iter().map(held).fold(Duration::ZERO, Duration::saturating_add), rate)
    })
}

fn longest(time: Duration, jitter: Duration, spec: &FaultSpec) -> Duration {
    let slot = spec.tuning.slot.map_or(Duration::ZERO, |slot| slot.every.longest());
    time.saturating_add(jitter.saturating_mul(4)).saturating_add(slot)
}
