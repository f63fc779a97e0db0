//! Shares of an edge's attempts: retried, failed, answered, and of the failures those that said so.

use super::{attempts, connecting, of_edge, weight};
use crate::event::ConnectFailure;
use crate::expectation::RetryBase;
use crate::judge::sample::Share;
use crate::window::{Failure, Window};

/// Retries among attempts; `None` without attempts.
pub(crate) fn retry_share(edge: usize, windows: &[&Window], base: RetryBase) -> Option<Share> {
    let of = attempts(edge, windows);
    let retries: u64 = of_edge(edge, windows).map(|(_, counts)| counts.retries.total()).sum();
    (of > 0).then(|| Share { base, ..Share::of_all(retries.min(of), of) }.thinned(weight(edge, windows)))
}

/// Attempts that failed, as a share of all; `None` without one that has an outcome.
pub(crate) fn failed_share(edge: usize, windows: &[&Window]) -> Option<Share> {
    outcome_share(edge, windows, |failed, _| failed)
}

/// Tries that came to nothing, as a share of all: attempts that failed, and connects that never let one be made; `None` without a try that has
/// an outcome.
pub(crate) fn failed_tries(edge: usize, windows: &[&Window]) -> Option<Share> {
    // All of them are seen; where attempts are a share of all, and each counts for that share of one, so do they.
    let unconnected = connecting::failed(edge, windows) as f64 * weight(edge, windows).powi(2);
    let attempts = failed_share(edge, windows).unwrap_or(Share::of_all(0, 0));
    let (hits, of) = (attempts.hits + unconnected, attempts.of + unconnected);
    (of > 0.0).then_some(Share { hits, of, ..attempts })
}

/// Attempts that were answered without failure, as a share of all; `None` without one that has an outcome.
pub(crate) fn success_share(edge: usize, windows: &[&Window]) -> Option<Share> {
    outcome_share(edge, windows, |failed, settled| settled - failed)
}

/// Failures that said so, of all; `None` without a failure.
///
/// A requester that gave up and an attempt that is still open hung: nobody told them. A connect that is refused, or a login that is, is told; one that timed out is not.
pub(crate) fn explicit_share(edge: usize, windows: &[&Window]) -> Option<Share> {
    let (mut told, mut hung) = (0.0, 0.0);
    for (window, counts) in of_edge(edge, windows) {
        for (failure, count) in &counts.failures {
            match failure {
                Failure::Status | Failure::Unprocessed | Failure::Reset | Failure::NoAnswer => told += *count as f64,
                Failure::ClientAbort | Failure::Hang => hung += *count as f64,
            }
        }
        // All connects are seen, also where events of a share of the requests are kept: they count for as much.
        let kept = window.sampling_of(edge);
        for (reason, count) in &counts.connect_failures {
            match reason {
                ConnectFailure::Refused | ConnectFailure::TurnedAway => told += kept * *count as f64,
                ConnectFailure::TimedOut => hung += kept * *count as f64,
                // Unreachable, interrupted, closed by the caller: it cannot be said which.
                ConnectFailure::Other => {}
            }
        }
    }
    (told + hung > 0.0).then(|| Share { hits: told, of: told + hung, ..Share::of_all(0, 0) }.thinned(weight(edge, windows)))
}

fn outcome_share(edge: usize, windows: &[&Window], hits: fn(u64, u64) -> u64) -> Option<Share> {
    let of = attempts(edge, windows);
    let unknown = of_edge(edge, windows).map(|(_, counts)| counts.pending).sum::<u64>().min(of);
    let settled = of - unknown;
    let failed = of_edge(edge, windows).map(|(_, counts)| counts.failures.values().sum::<u64>()).sum::<u64>().min(settled);
    (settled > 0).then(|| Share { unknown: unknown as f64, ..Share::of_all(hits(failed, settled), of) }.thinned(weight(edge, windows)))
}
