//! tbf's options as the kernel reads them: a bandwidth where there is no netem. Pure: bytes from parameters.

use super::tlv::Writer;

const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
/// Sizes are counted as they are, without a table of ours.
const LINKLAYER_ETHERNET: u8 = 1;
/// Least burst: two full Ethernet frames.
const LEAST_BURST: u32 = 3200;
/// More than a link's header and its tags, which its MTU does not count.
const HEADERS: u32 = 464;
/// Least room of the queue, bytes.
const LEAST_QUEUE: u32 = 256 * 1024;

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tbf {
    /// Bytes a second, above zero.
    pub bytes_per_second: u64,
    /// The interface's largest packet, bytes: one that is larger than the burst would be dropped, unless it can be cut.
    pub mtu: u32,
}

impl Tbf {
    /// Bytes that pass at once after a rest: a hundredth of a second's, or the largest packet.
    #[must_use]
    pub fn burst(&self) -> u32 {
        let least = self.mtu.saturating_add(HEADERS).max(LEAST_BURST);
        u32::try_from(self.bytes_per_second / 100).unwrap_or(u32::MAX).max(least)
    }

    /// Bytes that wait: half a second's.
    #[must_use]
    pub fn queue(&self) -> u32 {
        u32::try_from(self.bytes_per_second / 2).unwrap_or(u32::MAX).max(LEAST_QUEUE)
    }

    /// The value of `TCA_OPTIONS`.
    #[must_use]
    pub fn options(&self) -> Vec<u8> {
        let mut parameters = [0; 36];
        // struct tc_ratespec, twice (the second, the peak, stays zero), then limit, buffer and mtu.
        parameters[1] = LINKLAYER_ETHERNET;
        parameters[8..12].copy_from_slice(&u32::try_from(self.bytes_per_second).unwrap_or(u32::MAX).to_ne_bytes());
        parameters[24..28].copy_from_slice(&self.queue().to_ne_bytes());
        let mut writer = Writer::default();
        writer.attribute(TCA_TBF_PARMS, &parameters).u32(TCA_TBF_BURST, self.burst());
        if u32::try_from(self.bytes_per_second).is_err() {
            writer.attribute(TCA_TBF_RATE64, &self.bytes_per_second.to_ne_bytes());
        }
        writer.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_packet_fits_into_the_burst() {
        let slow = Tbf { bytes_per_second: 125_000, mtu: 1500 };
        assert_eq!((slow.burst(), slow.queue()), (3200, 262_144));
        assert_eq!(Tbf { mtu: 65_536, ..slow }.burst(), 66_000);
        assert_eq!(Tbf { mtu: 9000, ..slow }.burst(), 9464);
        assert_eq!(Tbf { bytes_per_second: 125_000_000, ..slow }.burst(), 1_250_000);
        assert_eq!(slow.options().len(), 4 + 36 + 8);
        assert_eq!(Tbf { bytes_per_second: u64::MAX, ..slow }.options().len(), 4 + 36 + 8 + 12);
    }
}
