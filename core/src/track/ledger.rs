//! From cumulative kernel counters to what each window added.
//!
//! The kernel counts under an epoch that user space advances, in one of four slots, so that a window can be read after
//! it was closed while the next one is being counted. Slots are never cleared: each close takes the difference to the
//! slot's total at its previous close.

use std::collections::BTreeMap;

use crate::event::Epoch;
use crate::window::{EdgeCounts, grown};

/// How many epochs the kernel keeps apart. An epoch has to be closed before the fourth one after it begins.
pub const SLOTS: usize = 4;

/// The slot that an epoch is counted in.
#[must_use]
pub const fn slot(epoch: Epoch) -> usize {
    epoch as usize % SLOTS
}

/// Cumulative counters of one edge.
pub trait Tally: Clone + Default {
    /// What was added since `earlier`.
    #[must_use]
    fn since(&self, earlier: &Self) -> Self;
    /// Both together.
    #[must_use]
    fn plus(&self, other: &Self) -> Self;
}

impl Tally for EdgeCounts {
    fn since(&self, earlier: &Self) -> Self {
        self.since(earlier)
    }

    fn plus(&self, other: &Self) -> Self {
        self.plus(other)
    }
}

impl Tally for BTreeMap<u16, u64> {
    fn since(&self, earlier: &Self) -> Self {
        let added = |(code, &now): (&u16, &u64)| (*code, grown(now, earlier.get(code).copied().unwrap_or(0)));
        self.iter().map(added).filter(|&(_, added)| added > 0).collect()
    }

    fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        for (code, count) in other {
            let entry = sum.entry(*code).or_default();
            *entry = entry.saturating_add(*count);
        }
        sum
    }
}

/// Remembers each slot's totals at its last close, by edge.
#[derive(Debug, Clone)]
pub struct Ledger<T = EdgeCounts> {
    closed: [Vec<T>; SLOTS],
}

impl<T: Tally> Ledger<T> {
    /// Counts from zero.
    #[must_use]
    pub fn new() -> Self {
        Self { closed: std::array::from_fn(|_| Vec::new()) }
    }

    /// Counts from the totals that the slots have now, as when the kernel had been counting before.
    #[must_use]
    pub const fn starting_at(slots: [Vec<T>; SLOTS]) -> Self {
        Self { closed: slots }
    }

    /// Closes an epoch: what it added, by edge, given its slot's totals by edge, summed over CPUs.
    pub fn close(&mut self, epoch: Epoch, slot_totals: &[T]) -> Vec<T> {
        let nothing = T::default();
        let before = &mut self.closed[slot(epoch)];
        let added = slot_totals.iter().enumerate().map(|(edge, now)| now.since(before.get(edge).unwrap_or(&nothing)));
        let added = added.collect();
        before.clear();
        before.extend_from_slice(slot_totals);
        added
    }
}

impl<T: Tally> Default for Ledger<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The sum over all slots, by edge: everything counted since the kernel began.
#[must_use]
pub fn total<T: Tally>(slots: &[Vec<T>]) -> Vec<T> {
    let edges = slots.iter().map(Vec::len).max().unwrap_or(0);
    let of_edge = |edge: usize| slots.iter().filter_map(|slot| slot.get(edge)).fold(T::default(), |sum, part| sum.plus(part));
    (0..edges).map(of_edge).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn requests(requests: u64) -> EdgeCounts {
        EdgeCounts { requests, ..EdgeCounts::default() }
    }

    #[test]
    fn a_slot_that_comes_round_again_counts_only_what_was_added() {
        let mut ledger = Ledger::new();
        assert_eq!(ledger.close(0, &[requests(5), requests(1)]), [requests(5), requests(1)]);
        assert_eq!(ledger.close(1, &[requests(7), requests(0)]), [requests(7), requests(0)]);
        assert_eq!(ledger.close(4, &[requests(8), requests(1)]), [requests(3), requests(0)]);
        assert_eq!(ledger.close(8, &[requests(8), requests(9)]), [requests(0), requests(8)]);
    }

    #[test]
    fn a_counter_that_went_back_counts_from_zero() {
        let mut ledger = Ledger::new();
        ledger.close(0, &[requests(100)]);
        assert_eq!(ledger.close(4, &[requests(3)]), [requests(3)]);
    }

    #[test]
    fn counting_may_start_in_the_middle() {
        let mut ledger = Ledger::starting_at(std::array::from_fn(|slot| vec![requests(slot as u64 * 10)]));
        assert_eq!(ledger.close(2, &[requests(25)]), [requests(5)]);
    }

    #[test]
    fn status_counts_are_told_apart_by_code() {
        let mut ledger = Ledger::new();
        let first = BTreeMap::from([(200, 5), (503, 1)]);
        assert_eq!(ledger.close(0, std::slice::from_ref(&first)), [first]);
        let second = BTreeMap::from([(200, 5), (429, 2), (503, 4)]);
        assert_eq!(ledger.close(4, &[second]), [BTreeMap::from([(429, 2), (503, 3)])]);
    }

    #[test]
    fn the_total_is_taken_over_all_slots() {
        let slots = [vec![requests(1), requests(2)], vec![requests(3)], vec![], vec![requests(4), requests(5)]];
        assert_eq!(total(&slots), [requests(8), requests(7)]);
        assert!(total::<EdgeCounts>(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn what_the_windows_add_is_what_was_counted(added in proptest::collection::vec(0_u64..1000, 0..40)) {
            let mut ledger = Ledger::new();
            let mut slots: [Vec<EdgeCounts>; SLOTS] = std::array::from_fn(|_| vec![EdgeCounts::default()]);
            for (epoch, &count) in (0..).zip(&added) {
                let slot = &mut slots[slot(epoch)];
                slot[0].requests += count;
                prop_assert_eq!(ledger.close(epoch, slot), vec![requests(count)]);
            }
            prop_assert_eq!(total(&slots), vec![requests(added.iter().sum())]);
        }
    }
}
