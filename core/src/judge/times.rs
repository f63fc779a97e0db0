//! Times of which some are known only to be no shorter than they are: who waited in vain waited at least that long.
//!
//! An attempt without an answer is right-censored. Left out, it would make a service that hangs look quick. So there are two ends: at the low
//! one it took as long as it was waited for, at the high one for ever.

use crate::stats::quantile;
use crate::window::{EdgeWindow, Failure};

/// Times in nanoseconds, each list ascending.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Times {
    /// Those that came to an end.
    ended: Vec<u64>,
    /// Those, and for how long the others were waited for as far as that is known.
    seen: Vec<u64>,
    /// Others of which nothing is known.
    unknown: usize,
    /// How much each counts for in an interval, up to 1.
    weight: f64,
}

impl Times {
    /// From times that ended, waits that did not, and the number of those that are not known.
    pub(crate) fn new(mut ended: Vec<u64>, waits: &[u64], unknown: usize) -> Self {
        ended.sort_unstable();
        let mut seen = [&ended, waits].concat();
        seen.sort_unstable();
        Self { ended, seen, unknown, weight: 1.0 }
    }

    /// The same times, each of which counts for less.
    pub(crate) fn weighing(self, weight: f64) -> Self {
        Self { weight, ..self }
    }

    /// See [`Self::weighing`].
    pub(crate) const fn weight(&self) -> f64 {
        self.weight
    }

    /// Times to the answer in those windows of an edge.
    pub(crate) fn to_answer<'a>(windows: impl Iterator<Item = &'a EdgeWindow>) -> Self {
        let (mut ended, mut waits, mut unknown) = (Vec::new(), Vec::new(), 0);
        for window in windows {
            ended.extend_from_slice(&window.latency_ns);
            let known = waited(window);
            let others = number(unanswered(window) + window.pending).saturating_sub(known.len());
            // Of many answers a part is kept; of the waits, the same part is to count.
            let (of, to) = (known.len(), kept(window, known.len()));
            waits.extend((0..to).filter_map(|index| known.get(index * of / to)));
            unknown += kept(window, others);
        }
        Self::new(ended, &waits, unknown)
    }

    /// Times to the failure. Of an attempt that hangs it is not known when it would have failed.
    pub(crate) fn to_failure<'a>(windows: impl Iterator<Item = &'a EdgeWindow>) -> Self {
        let (mut ended, mut seen) = (Vec::new(), Vec::new());
        for window in windows {
            let mut times = window.failure_latency_ns.clone();
            times.sort_unstable();
            seen.extend_from_slice(&times);
            // Which of the times are theirs is not kept, only that they are among the waits: the shortest of those leave the most that is long.
            let hung = number(window.failures.get(&Failure::Hang).copied().unwrap_or(0)).min(times.len());
            let mut waits = waited(window).into_iter().filter(|wait| times.binary_search(wait).is_ok()).take(hung).peekable();
            let left = times.len() - hung;
            let mut others: Vec<u64> = times.iter().copied().filter(|time| waits.next_if_eq(time).is_none()).collect();
            others.drain(..others.len().saturating_sub(left));
            ended.append(&mut others);
        }
        ended.sort_unstable();
        seen.sort_unstable();
        Self { ended, seen, unknown: 0, weight: 1.0 }
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

/// For how long they were waited for, at least; ascending.
fn waited(window: &EdgeWindow) -> Vec<u64> {
    let is_told = !window.waited_ns.is_empty();
    let mut times = if is_told { window.waited_ns.clone() } else { window.failure_latency_ns.clone() };
    times.sort_unstable();
    if !is_told {
        // They waited no shorter than the shortest.
        times.truncate(number(unanswered(window)));
    }
    times
}

/// As many of `all` as are in proportion to the answers whose times were kept.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a length")]
fn kept(window: &EdgeWindow, all: usize) -> usize {
    let untold: u64 = window.failures.iter().filter(|(failure, _)| **failure != Failure::Status).map(|(_, count)| count).sum();
    let answered = number(window.attempts.saturating_sub(window.pending + untold));
    let times = window.latency_ns.len();
    if times == 0 || times >= answered { all } else { (all as f64 * times as f64 / answered as f64).ceil() as usize }
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
    fn told_failures_are_no_waits_and_of_a_sample_the_same_part_counts() {
        let second = 1_000_000_000;
        let window = EdgeWindow {
            attempts: 1_010,
            failures: [(Failure::Status, 500), (Failure::ClientAbort, 4), (Failure::Hang, 4)].into(),
            pending: 2,
            latency_ns: vec![second; 500],
            failure_latency_ns: [vec![1_000; 500], vec![3 * second; 4], vec![7 * second; 4]].concat(),
            waited_ns: [vec![3 * second; 4], vec![7 * second; 4], vec![2 * second; 1]].concat(),
            ..EdgeWindow::default()
        };
        let times = Times::to_answer(std::iter::once(&window));
        // Half of the answers' times were kept, so half of nine waits and of the one that is not known.
        assert_eq!((times.len(), times.endless(), times.longer_than(1.5).0), (506, 6, 5));
        let failures = Times::to_failure(std::iter::once(&window));
        assert_eq!((failures.len(), failures.endless(), failures.value(1.0)), (508, 4, 7.0));
        assert_eq!((failures.high(0.99), failures.high(1.0)), (7.0, f64::INFINITY));
    }

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
