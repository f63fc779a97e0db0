//! From what the kernel counted on each hook to what each fault of a group selected and hit.

use std::ops::AddAssign;

use stormdrill_core::fault::{Backend, FaultCounts, FaultKind, FaultSpec};

/// What was counted on one hook, or on several together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    /// Packets that the program selected.
    pub(crate) selected: u64,
    /// Of those, the ones that it dropped, rewrote or refused.
    pub(crate) hit: u64,
    /// Packets that the discipline dropped, for whatever reason.
    pub(crate) dropped: u64,
    /// Packets that left it.
    pub(crate) passed: u64,
    /// Packets that found no room in it.
    pub(crate) overflowed: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.selected += other.selected;
        self.hit += other.hit;
        self.dropped += other.dropped;
        self.passed += other.passed;
        self.overflowed += other.overflowed;
    }
}

impl Tally {
    /// What of it is a fault's.
    pub(crate) fn of(&self, spec: &FaultSpec, backend: Backend) -> FaultCounts {
        let hit = match (&spec.kind, backend) {
            (_, Backend::EbpfDrop | Backend::EbpfHttpStatus | Backend::CgroupConnect) => self.hit,
            (FaultKind::Loss { .. } | FaultKind::LossModel(_) | FaultKind::Partition, _) => self.dropped.saturating_sub(self.overflowed),
            // What came out and never went in.
            (FaultKind::Duplicate { .. }, _) => (self.passed + self.dropped).saturating_sub(self.selected),
            // Nothing tells which packets these hit: all had their chance.
            (FaultKind::Corrupt { share, .. } | FaultKind::Reorder { share, .. }, _) if *share == 0.0 => 0,
            _ => self.passed,
        };
        // What was selected may be a buffer of many segments, which tbf, and netem for a corruption, take apart and count one by one. Duplicates pass, too.
        FaultCounts { selected: self.selected, hit: hit.min(self.selected), overflowed: self.overflowed }
    }
}

#[cfg(test)]
mod tests {
    use stormdrill_core::fault::RateLimit;

    use super::*;

    #[test]
    fn a_buffer_of_many_segments_is_one_packet_selected_and_one_hit() {
        // Ten buffers of 64 KiB, which a bucket of 3200 bytes lets out as 450 segments.
        let tally = Tally { selected: 10, passed: 450, ..Tally::default() };
        let limit = RateLimit { bytes_per_second: 125_000, overhead: 0, cell_size: 0, cell_overhead: 0 };
        for (kind, backend) in [
            (FaultKind::Rate(limit), Backend::Tbf),
            (FaultKind::Corrupt { share: 0.5, correlation: 0.0 }, Backend::Netem),
            (FaultKind::Duplicate { share: 0.5, correlation: 0.0 }, Backend::Netem),
        ] {
            let counts = tally.of(&FaultSpec::new(kind, "store"), backend);
            assert_eq!((counts.selected, counts.hit), (10, 10), "{backend:?}");
        }
        // What still waits was not hit yet.
        let waiting = Tally { selected: 10, passed: 4, ..Tally::default() };
        assert_eq!(waiting.of(&FaultSpec::new(FaultKind::Rate(limit), "store"), Backend::Tbf).hit, 4);
    }
}
