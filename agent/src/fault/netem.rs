//! netem's options as the kernel reads them. Pure: bytes from parameters.
//!
//! Every attribute is sent every time, zeros too. A change keeps what is left out (correlation, reorder, corrupt, rate, slot), so a fault
//! that was set before would stay under the new one.

use std::time::Duration;

use stormdrill_core::fault::Distribution;

use super::distribution;
use super::tlv::Writer;

const TCA_NETEM_CORR: u16 = 1;
const TCA_NETEM_DELAY_DIST: u16 = 2;
const TCA_NETEM_REORDER: u16 = 3;
const TCA_NETEM_CORRUPT: u16 = 4;
const TCA_NETEM_RATE: u16 = 6;
const TCA_NETEM_ECN: u16 = 7;
const TCA_NETEM_RATE64: u16 = 8;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_JITTER64: u16 = 11;
const TCA_NETEM_SLOT: u16 = 12;

/// Packets a second that a delayed flow may have before the queue overflows, for a limit that nobody gave. Ten gigabits of full frames are 800,000
/// packets, but far fewer buffers, because the queue holds segments of up to 64 KiB as one.
const ASSUMED_PACKETS_PER_SECOND: f64 = 200_000.0;
/// Room above rate times delay.
const ROOM: f64 = 1.5;
/// The least limit, iproute2's own default.
const LEAST_LIMIT: u32 = 1000;
/// The kernel's tick, nanoseconds, in the fields that the 64-bit attributes replace.
const TICK_NS: u64 = 64;

/// The parameters of one netem. The default does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Netem {
    /// Mean delay.
    pub delay: Duration,
    /// Spread of the delay.
    pub jitter: Duration,
    /// Shape of the spread.
    pub distribution: Distribution,
    /// Share of packets that are lost, 0 to 1, each on its own.
    pub loss: f64,
    /// Share of packets that are sent twice, 0 to 1.
    pub duplicate: f64,
    /// Share of packets with a flipped bit, 0 to 1.
    pub corrupt: f64,
    /// Share of packets that skip the delay, 0 to 1.
    pub reorder: f64,
    /// Bytes a second; 0 for no limit.
    pub rate: u64,
    /// Packets that the queue holds; `None` works it out from the delay.
    pub limit: Option<u32>,
}

impl Netem {
    /// Packets that the queue must hold so that a busy sender's are not dropped for lack of room.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates, and the value is positive")]
    pub fn queue_limit(&self) -> u32 {
        self.limit.unwrap_or_else(|| {
            let longest = self.delay.as_secs_f64() + 4.0 * self.jitter.as_secs_f64();
            LEAST_LIMIT.saturating_add((longest * ASSUMED_PACKETS_PER_SECOND * ROOM) as u32)
        })
    }

    /// The value of `TCA_OPTIONS`.
    #[must_use]
    pub fn options(&self) -> Vec<u8> {
        let (delay, jitter) = (nanoseconds(self.delay), nanoseconds(self.jitter));
        let mut writer = Writer::with_header(&words(&[
            ticks(delay),
            self.queue_limit(),
            probability(self.loss),
            // The gap of reorder by counting, which is not offered.
            0,
            probability(self.duplicate),
            ticks(jitter),
        ]));
        writer
            .attribute(TCA_NETEM_CORR, &words(&[0, 0, 0]))
            .attribute(TCA_NETEM_REORDER, &words(&[probability(self.reorder), 0]))
            .attribute(TCA_NETEM_CORRUPT, &words(&[probability(self.corrupt), 0]))
            .attribute(TCA_NETEM_RATE, &words(&[u32::try_from(self.rate).unwrap_or(u32::MAX), 0, 0, 0]))
            .u32(TCA_NETEM_ECN, 0)
            .attribute(TCA_NETEM_RATE64, &self.rate.to_ne_bytes())
            .attribute(TCA_NETEM_LATENCY64, &delay.to_ne_bytes())
            .attribute(TCA_NETEM_JITTER64, &jitter.to_ne_bytes())
            .attribute(TCA_NETEM_SLOT, &[0; 40]);
        if let Some(table) = distribution::table(self.distribution) {
            let bytes: Vec<u8> = table.iter().flat_map(|value| value.to_ne_bytes()).collect();
            writer.attribute(TCA_NETEM_DELAY_DIST, &bytes);
        }
        writer.into_bytes()
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn ticks(nanoseconds: i64) -> u32 {
    u32::try_from(nanoseconds.unsigned_abs() / TICK_NS).unwrap_or(u32::MAX)
}

/// A share as netem compares it: 0 never, `u32::MAX` always.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range of u32 first")]
fn probability(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * f64::from(u32::MAX)).round() as u32
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::super::tlv::{Attributes, u32_at};
    use super::*;

    fn attribute(options: &[u8], kind: u16) -> Vec<u8> {
        Attributes::new(&options[24..]).find(kind).unwrap().unwrap().to_vec()
    }

    #[test]
    fn every_attribute_is_sent_even_when_nothing_is_asked() {
        let options = Netem::default().options();
        let sent: Vec<(u16, usize)> =
            Attributes::new(&options[24..]).map(|a| a.map(|(kind, value)| (kind, value.len())).unwrap()).collect();
        assert_eq!(sent, [(1, 12), (3, 8), (4, 8), (6, 16), (7, 4), (8, 8), (10, 8), (11, 8), (12, 40)]);
        assert_eq!(u32_at(&options, 0), Some(0));
        assert_eq!(u32_at(&options, 4), Some(1000));
        assert_eq!(u32_at(&options, 8), Some(0));
    }

    #[test]
    fn thirty_percent_is_rounded_and_a_hundred_is_always() {
        let loss = |share| u32_at(&Netem { loss: share, ..Netem::default() }.options(), 8).unwrap();
        assert_eq!(loss(0.3), 1_288_490_189);
        assert_eq!(loss(1.0), u32::MAX);
        assert_eq!(loss(1.01), u32::MAX);
        assert_eq!(loss(f64::NAN), 0);
    }

    #[test]
    fn delays_are_exact_beyond_what_ticks_can_say() {
        let asked = Duration::from_secs(300) + Duration::from_nanos(1);
        let options = Netem { delay: asked, jitter: Duration::from_micros(500), ..Netem::default() }.options();
        assert_eq!(u32_at(&options, 0), Some(u32::MAX));
        assert_eq!(attribute(&options, 10), 300_000_000_001_i64.to_ne_bytes());
        assert_eq!(attribute(&options, 11), 500_000_i64.to_ne_bytes());
        assert_eq!(u32_at(&options, 20), Some(7812));
    }

    #[test]
    fn the_queue_has_room_for_the_delay() {
        let second = Netem { delay: Duration::from_secs(1), ..Netem::default() };
        assert_eq!(second.queue_limit(), 301_000);
        assert_eq!(Netem { limit: Some(7), ..second }.queue_limit(), 7);
    }

    #[test]
    fn a_distribution_travels_as_a_table() {
        let options = Netem { distribution: Distribution::Normal, ..Netem::default() }.options();
        assert_eq!(attribute(&options, 2).len(), 2 * 4096);
    }
}
