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
        FaultCounts { selected: self.selected, hit, overflowed: self.overflowed }
    }
}
