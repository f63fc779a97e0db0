//! How many layers retry: the downstream edges on which retries are shown to be more than a hundredth of first attempts.

use super::Scene;
use super::shares::retry_share;
use crate::edge::Role;
use crate::expectation::RetryBase;
use crate::judge::ALPHA;
use crate::judge::sample::Sample;
use crate::stats::Tails;

/// Retries over first attempts from which on a layer counts as retrying.
const LEAST: f64 = 0.01;

/// The edges that are shown to retry; at most, those that are not shown to keep from it. Each edge is tested at its part
/// of the error probability, so that the count as a whole keeps to it.
pub(super) fn retrying(scene: Scene<'_>) -> Sample {
    // Of an edge that was not seen, it is not known.
    let unseen = |edge: usize| super::none_kept(edge, scene.judged);
    let edges: Vec<usize> = (0..scene.edges.len()).filter(|&edge| scene.edges[edge].role == Role::Downstream).collect();
    let tails = Tails::each(ALPHA / edges.len().max(1) as f64);
    let intervals = edges.iter().map(|&edge| {
        // An edge without attempts does not retry.
        retry_share(edge, scene.judged, RetryBase::First).map(|share| share.estimate(tails, 1.0).interval)
    });
    let (mut shown, mut possible) = (0.0, edges.iter().filter(|&&edge| unseen(edge)).count() as f64);
    for interval in intervals.flatten() {
        shown += if interval.lo > LEAST { 1.0 } else { 0.0 };
        possible += if interval.hi > LEAST { 1.0 } else { 0.0 };
    }
    Sample::Exact { value: shown, lo: shown, hi: possible }
}
