//! netem's options as the kernel reads them. Pure: bytes from parameters.
//!
//! Every attribute is sent every time, zeros too. A change keeps what is left out (correlation, reorder, corrupt, rate, slot), so a fault
//! that was set before would stay under the new one.

use std::sync::Arc;
use std::time::Duration;

use stormdrill_core::fault::model::LossModel;
use stormdrill_core::fault::{Distribution, RateLimit, Slot, Spacing, queue};

use super::distribution;
use super::tlv::Writer;

const TCA_NETEM_CORR: u16 = 1;
const TCA_NETEM_DELAY_DIST: u16 = 2;
const TCA_NETEM_REORDER: u16 = 3;
const TCA_NETEM_CORRUPT: u16 = 4;
const TCA_NETEM_LOSS: u16 = 5;
const TCA_NETEM_RATE: u16 = 6;
const TCA_NETEM_ECN: u16 = 7;
const TCA_NETEM_RATE64: u16 = 8;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_JITTER64: u16 = 11;
const TCA_NETEM_SLOT: u16 = 12;
const TCA_NETEM_SLOT_DIST: u16 = 13;
const TCA_NETEM_PRNG_SEED: u16 = 14;
/// The value is a run of attributes.
const NESTED: u16 = 0x8000;
const NETEM_LOSS_GI: u16 = 1;
const NETEM_LOSS_GE: u16 = 2;

/// The kernel's tick, nanoseconds, in the fields that the 64-bit attributes replace.
const TICK_NS: u64 = 64;

/// A share of packets, with netem's correlation of the draws.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Draw {
    /// 0 to 1.
    pub share: f64,
    /// 0 to 1.
    pub correlation: f64,
}

/// The parameters of one netem. The default does nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Netem {
    /// Mean delay.
    pub delay: Duration,
    /// Spread of the delay.
    pub jitter: Duration,
    /// How much a jitter resembles the one before, 0 to 1.
    pub jitter_correlation: f64,
    /// Shape of the spread.
    pub distribution: Distribution,
    /// A table of the spread, instead of the distribution.
    pub table: Option<Arc<[i16]>>,
    /// Share of packets that are lost, 0 to 1, each on its own.
    pub loss: f64,
    /// A loss with memory, instead of the share.
    pub model: Option<LossModel>,
    /// Packets are marked instead of lost, where they can be.
    pub ecn: bool,
    /// Packets that are sent twice.
    pub duplicate: Draw,
    /// Packets with a flipped bit.
    pub corrupt: Draw,
    /// Packets that skip the delay.
    pub reorder: Draw,
    /// Every so-many-th packet may skip it; netem reorders nothing at 0.
    pub gap: u32,
    /// The bandwidth.
    pub rate: Option<RateLimit>,
    /// Packets leave in bursts.
    pub slot: Option<Slot>,
    /// Packets that the queue holds; `None` works it out from delay and rate.
    pub limit: Option<u32>,
    /// Seed of the draws, for kernels from 6.6 on.
    pub seed: Option<u64>,
}

impl Netem {
    /// The longest that a packet is held back on purpose, but for what a full bandwidth adds.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.delay
            .saturating_add(self.jitter.saturating_mul(4))
            .saturating_add(self.slot.map_or(Duration::ZERO, |slot| slot.every.longest()))
    }

    /// Packets that the queue must hold so that a busy sender's are not dropped for lack of room.
    #[must_use]
    pub fn queue_limit(&self) -> u32 {
        self.limit.unwrap_or_else(|| queue::limit(self.longest(), self.rate))
    }

    /// The value of `TCA_OPTIONS`.
    #[must_use]
    pub fn options(&self) -> Vec<u8> {
        let (delay, jitter) = (nanoseconds(self.delay), nanoseconds(self.jitter));
        let mut writer = Writer::with_header(&words(&[
            ticks(delay),
            self.queue_limit(),
            probability(self.loss),
            self.gap,
            probability(self.duplicate.share),
            ticks(jitter),
        ]));
        let draw = |draw: Draw| words(&[probability(draw.share), probability(draw.correlation)]);
        let correlations = [self.jitter_correlation, 0.0, self.duplicate.correlation].map(probability);
        let bytes_per_second = self.rate.map_or(0, |rate| rate.bytes_per_second);
        writer
            .attribute(TCA_NETEM_CORR, &words(&correlations))
            .attribute(TCA_NETEM_REORDER, &draw(self.reorder))
            .attribute(TCA_NETEM_CORRUPT, &draw(self.corrupt))
            .attribute(TCA_NETEM_RATE, &self.rate_words(bytes_per_second))
            .u32(TCA_NETEM_ECN, self.ecn.into())
            .attribute(TCA_NETEM_RATE64, &bytes_per_second.to_ne_bytes())
            .attribute(TCA_NETEM_LATENCY64, &delay.to_ne_bytes())
            .attribute(TCA_NETEM_JITTER64, &jitter.to_ne_bytes())
            .attribute(TCA_NETEM_SLOT, &slot(self.slot));
        if let Some(model) = self.model {
            writer.nested(TCA_NETEM_LOSS | NESTED, |inner| loss_model(inner, model));
        }
        if let Some(seed) = self.seed {
            writer.attribute(TCA_NETEM_PRNG_SEED, &seed.to_ne_bytes());
        }
        if let Some(table) = self.table.as_deref().or_else(|| distribution::table(self.distribution)) {
            writer.attribute(TCA_NETEM_DELAY_DIST, &table_bytes(table));
        }
        if let Some(Slot { every: Spacing::Around { distribution, .. }, .. }) = self.slot
            && let Some(table) = distribution::table(distribution)
        {
            writer.attribute(TCA_NETEM_SLOT_DIST, &table_bytes(table));
        }
        writer.into_bytes()
    }

    /// A `struct tc_netem_rate`: the 32-bit rate, overhead, cell size, cell overhead.
    fn rate_words(&self, bytes_per_second: u64) -> Vec<u8> {
        let rate = u32::try_from(bytes_per_second).unwrap_or(u32::MAX);
        let (overhead, size, cell) = self.rate.map_or((0, 0, 0), |rate| (rate.overhead, rate.cell_size, rate.cell_overhead));
        words(&[rate, overhead.cast_unsigned(), size, cell.cast_unsigned()])
    }
}

/// The kernel's structures have their members in an order of their own.
fn loss_model(writer: &mut Writer, model: LossModel) {
    match model {
        LossModel::Gemodel(model) => {
            // The bad state's share that passes, as what is left of the loss, and the good state's that is lost.
            let passes = u32::MAX - probability(1.0 - model.h);
            let words = words(&[probability(model.p), probability(model.r), passes, probability(1.0 - model.k)]);
            writer.attribute(NETEM_LOSS_GE, &words)
        }
        LossModel::State(model) => {
            writer.attribute(NETEM_LOSS_GI, &words(&[model.p13, model.p31, model.p32, model.p14, model.p23].map(probability)))
        }
    };
}

fn table_bytes(table: &[i16]) -> Vec<u8> {
    table.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// A `struct tc_netem_slot`: least and most time between slots, packets, bytes, and the middle and spread of the time where it has a distribution.
fn slot(slot: Option<Slot>) -> [u8; 40] {
    let mut bytes = [0; 40];
    if let Some(slot) = slot {
        let (at, first, second) = match slot.every {
            Spacing::Between(least, most) => (0, least, most),
            Spacing::Around { time, jitter, .. } => (24, time, jitter),
        };
        bytes[at..at + 8].copy_from_slice(&nanoseconds(first).to_ne_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&nanoseconds(second).to_ne_bytes());
        bytes[16..20].copy_from_slice(&slot.packets.to_ne_bytes());
        bytes[20..24].copy_from_slice(&slot.bytes.to_ne_bytes());
    }
    bytes
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
    (share.clamp(0.0, 1.0) * f64::from(u32::MAX)).round_ties_even() as u32
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
        assert_eq!(loss(0.3), 1_288_490_188);
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
