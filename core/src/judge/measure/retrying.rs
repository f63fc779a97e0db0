//! How retries were made: what is wrong with them, how they are spread, and whether `matched` can be believed.

use super::{Gap, Scene, of_edge};
use crate::expectation::RetryBase;
use crate::judge::ALPHA;
use crate::judge::sample::{Sample, Share};
use crate::retry::matching::{self, FALSE_RATE_LIMIT};
use crate::stats::{Tails, quantile};
use crate::track::burst::Burst;
use crate::window::{EdgeWindow, Window};

/// Fewer retries do not tell whether they come in bursts, and fewer pauses before them not how those are spread.
pub(crate) const FEWEST_RETRIES: u64 = 30;

/// A typical pause shorter than this is none: it is the time that a program takes to go on. Nanoseconds.
pub(crate) const SHORTEST_PAUSE_NS: u64 = 5_000_000;

/// Retries among attempts, less those that the baseline shows to be none.
///
/// # Errors
/// Without attempts, or where calls are so alike that too much of what is matched is no retry.
pub(super) fn share(scene: Scene<'_>, windows: &[&Window], base: RetryBase, phase: &'static str) -> Result<Share, Gap> {
    let of = super::attempts(scene.edge, windows);
    if of == 0 {
        return Err(if super::none_kept(scene.edge, windows) { Gap::NoneKept(phase) } else { Gap::NoTraffic(phase) });
    }
    let (mut told, mut matched, mut unread) = (0, 0, 0);
    for (_, edge) in of_edge(scene.edge, windows) {
        unread += edge.uncompared;
        told += edge.retries.marker + edge.retries.id;
        matched += edge.retries.matched;
    }
    let rate = matching::false_rate_of(scene.baseline.iter().copied(), scene.edge).unwrap_or(0.0);
    // Where the evidence is that bad and carries the number, there is no number.
    if rate > FALSE_RATE_LIMIT && matched > told {
        return Err(Gap::TooAlike(permille(rate)));
    }
    if unread >= of {
        return Err(Gap::Unread { unread, of });
    }
    let wrong = rate * of as f64;
    let retries = told as f64 + (matched as f64 - wrong).max(0.0);
    // Those may be retries or not.
    let share = Share { hits: retries.min((of - unread) as f64), unknown: unread as f64, base, ..Share::of_all(0, of) };
    Ok(share.thinned(super::weight(scene.edge, windows)))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share, in thousandths")]
fn permille(rate: f64) -> u32 {
    (rate * 1000.0).round() as u32
}

/// Retries of a kind.
pub(super) fn count(scene: Scene<'_>, of: fn(&EdgeWindow) -> u64) -> f64 {
    of_edge(scene.edge, scene.judged).map(|(_, edge)| of(edge)).sum::<u64>() as f64
}

/// How the pauses before first retries are spread.
///
/// # Errors
/// Without enough of them, or where they are so short that the client does not pause at all.
pub(super) fn jitter(scene: Scene<'_>) -> Result<Sample, Gap> {
    let mut pauses: Vec<u64> = of_edge(scene.edge, scene.judged).flat_map(|(_, edge)| edge.first_gaps_ns.iter().copied()).collect();
    match pauses.len() {
        0 if super::none_kept(scene.edge, scene.judged) => Err(Gap::NoneKept(scene.phase)),
        0 => Err(Gap::NoRetry(scene.phase)),
        few if (few as u64) < FEWEST_RETRIES => Err(Gap::FewPauses { pauses: few, least: FEWEST_RETRIES }),
        _ => {
            pauses.sort_unstable();
            match quantile::estimate(&pauses, 0.5, Tails::each(ALPHA)) {
                Some(median) if median.value < SHORTEST_PAUSE_NS => {
                    let is_shown = median.hi.is_some_and(|hi| hi < SHORTEST_PAUSE_NS);
                    Err(Gap::AtOnce { micros: median.value / 1000, is_shown })
                }
                _ => Ok(Sample::Variation(pauses)),
            }
        }
    }
}

/// Pauses before first retries.
pub(crate) fn pauses(edge: usize, windows: &[&Window]) -> u64 {
    of_edge(edge, windows).map(|(_, counts)| counts.first_gaps_ns.len() as u64).sum()
}

/// Retries whose place in time is known.
pub(crate) fn retries_in_bursts(edge: usize, windows: &[&Window]) -> u64 {
    of_edge(edge, windows).map(|(_, counts)| counts.burst.retries).sum()
}

/// The fullest hundredth of a second over the mean.
///
/// # Errors
/// Without enough retries, or where they were sampled: fewer look more crowded.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share, in hundredths")]
pub(super) fn peak_to_mean(scene: Scene<'_>) -> Result<Sample, Gap> {
    if super::is_of_a_share(scene.edge, scene.judged) {
        return Err(Gap::OfAShare((100.0 * super::kept(scene.edge, scene.judged)).round() as u32));
    }
    let all = of_edge(scene.edge, scene.judged).fold(Burst::NONE, |sum, (_, edge)| sum.and(edge.burst));
    match all.retries {
        0 => Err(Gap::NoRetry(scene.phase)),
        few @ ..FEWEST_RETRIES => Err(Gap::FewRetries { retries: few, least: FEWEST_RETRIES }),
        _ => Ok(Sample::Peak { peak: all.peak as f64, of: all.retries as f64, bins: all.bins() as f64 }),
    }
}

/// A sum that is known only where requests say until when somebody waits.
///
/// # Errors
/// Where none does.
pub(super) fn of_deadlines(scene: Scene<'_>, of: fn(&EdgeWindow) -> f64) -> Result<f64, Gap> {
    let edges = || of_edge(scene.edge, scene.judged).map(|(_, edge)| edge);
    if edges().all(|edge| edge.accountable == 0) {
        return Err(Gap::NoDeadline(scene.phase));
    }
    Ok(edges().map(of).sum())
}
