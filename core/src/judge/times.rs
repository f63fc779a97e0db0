//! Times of which some are known only to be no shorter than they are: who waited in vain waited at least that long.
//!
//! An attempt without an answer is right-censored. Left out, it would make a service that hangs look quick. So there are two ends: at the low
//! one it took as long as it was waited for, at the high one for ever.

use crate::stats::quantile;
use crate::window::{EdgeWindow, Failure};

/// Times in nanoseconds, each list ascending.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Times {
    /// Those that came to an end.
    ended: Vec<u64>,
    /// Those, and for how long the others were waited for as far as that is known.
    seen: Vec<u64>,
    /// Others of which nothing is known.
    unknown: usize,
}

impl Times {
    /// From times that ended, waits that did not, and the number of those that are not known.
    pub(crate) fn new(mut ended: Vec<u64>, waits: &[u64], unknown: usize) -> Self {
        ended.sort_unstable();
        let mut seen = [&ended, waits].concat();
        seen.sort_unstable();
        Self { ended, seen, unknown }
    }

    /// Times to the answer in those windows of an edge.
    pub(crate) fn to_answer<'a>(windows: impl Iterator<Item = &'a EdgeWindow>) -> Self {
        let (mut ended, mut waits, mut unknown) = (Vec::new(), Vec::new(), 0);
        for window in windows {
            ended.extend_from_slice(&window.latency_ns);
            let known = waited(window);
            unknown += number(unanswered(window)).saturating_sub(known.len()) + number(window.pending);
            waits.extend(known);
        }
        Self::new(ended, &waits, unknown)
    }

    /// Times to the failure. Of an attempt that hangs it is not known when it would have failed.
    pub(crate) fn to_failure<'a>(windows: impl Iterator<Item = &'a EdgeWindow>) -> Self {
        let (mut ended, mut seen) = (Vec::new(), Vec::new());
        for window in windows {
            let mut times = window.failure_latency_ns.clone();
            times.sort_unstable();
            // Which of the times are theirs is not kept: the shortest leave the most that is long.
            let hung = number(window.failures.get(&Failure::Hang).copied().unwrap_or(0)).min(times.len());
            seen.extend_from_slice(&times);
            ended.extend_from_slice(times.get(hung..).unwrap_or_default());
        }
        ended.sort_unstable();
        seen.sort_unstable();
        Self { ended, seen, unknown: 0 }
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.seen.len() + self.unknown
    }

    /// How many came to no end.
    pub(crate) const fn endless(&self) -> usize {
        self.len() - self.ended.len()
    }

    /// Whether no time is known at all, not even of a wait.
    pub(crate) const fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// The longest, if each came to an end.
    pub(crate) fn longest(&self) -> Option<u64> {
        self.ended.last().copied().filter(|_| self.endless() == 0)
    }

    /// The longest known, of a wait or to an end.
    pub(crate) fn longest_seen(&self) -> Option<u64> {
        self.seen.last().copied()
    }

    /// The quantile in seconds of what is known.
    pub(crate) fn value(&self, q: f64) -> f64 {
        at(&self.seen, quantile::rank(self.seen.len(), q)).unwrap_or(f64::NAN)
    }

    /// The least that the quantile can be, in seconds: each wait ended where it was given up.
    pub(crate) fn low(&self, q: f64) -> f64 {
        quantile::rank(self.len(), q).checked_sub(self.unknown).and_then(|rank| at(&self.seen, rank)).unwrap_or(0.0)
    }

    /// The most that it can be: no wait would have ended.
    pub(crate) fn high(&self, q: f64) -> f64 {
        at(&self.ended, quantile::rank(self.len(), q)).unwrap_or(f64::INFINITY)
    }

    /// How many took longer than so many seconds: at least, and at most.
    pub(crate) fn longer_than(&self, seconds: f64) -> (usize, usize) {
        let beyond = |times: &[u64]| times.iter().filter(|ns| **ns as f64 / 1e9 > seconds).count();
        (beyond(&self.seen), beyond(&self.ended) + self.endless())
    }
}

/// Attempts of the window that were waited for in vain. Pending ones come on top.
fn unanswered(window: &EdgeWindow) -> u64 {
    [Failure::ClientAbort, Failure::Hang].iter().filter_map(|failure| window.failures.get(failure)).sum()
}

/// For how long they were waited for, at least.
fn waited(window: &EdgeWindow) -> Vec<u64> {
    let mut times = window.failure_latency_ns.clone();
    times.sort_unstable();
    // Which of the failures' times are theirs is not kept: they waited no shorter than the shortest.
    times.truncate(number(unanswered(window)));
    times
}

fn at(sorted: &[u64], rank: usize) -> Option<f64> {
    sorted.get(rank.checked_sub(1)?).map(|ns| *ns as f64 / 1e9)
}

fn number(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "whole seconds are exact")]
    fn a_wait_in_vain_lies_between_its_length_and_for_ever() {
        let times = Times::new(vec![1_000_000_000, 2_000_000_000], &[5_000_000_000], 1);
        assert_eq!((times.len(), times.endless(), times.longest()), (4, 2, None));
        assert_eq!([0.25, 0.5, 0.75, 1.0].map(|q| times.low(q)), [0.0, 1.0, 2.0, 5.0]);
        assert_eq!([0.25, 0.5, 0.75].map(|q| times.high(q)), [1.0, 2.0, f64::INFINITY]);
        assert_eq!(times.longer_than(1.5), (2, 3));
        assert_eq!(times.value(1.0), 5.0);
    }
}
